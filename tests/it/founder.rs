//! What a founder refuses, and what the machine makes of it: codes that are over, no place, an upgrade, no, nobody, a foreign key.

use console::snapshot::{FaultKind, State};
use lab_founder::Config;
use lab_founder::config::Limits;
use lab_founder::model::Switches;
use serde_json::{Value, json};
use stratum_join::protocol::code::JoinCode;
use stratum_join::protocol::proof::Stretched;

use crate::support::actions::mistyped;
use crate::support::raw_tls::RawJoiner;
use crate::support::told::{count, heap, holds};
use crate::support::{Machine, World, joiner};

const DAY_MS: i64 = 86_400_000;

/// The agent and `--check` come to the same verdict, no hardware is sent, and a new code goes on without a restart.
fn refused(world: &mut World, code: &str, expected: &str, words: &str) {
    let (exit, report) = world.machine.check_json(&world.endpoint(), code);
    assert_eq!((exit, report["code"].as_str()), (5, Some(expected)), "{report}");
    assert!(report["verdict"].as_str().unwrap().contains(words), "{report}");

    world.machine.ask_to_join(&world.endpoint(), code);
    world.machine.start();
    let shown = world.machine.wait_for_fault(expected);
    assert_eq!(shown.state, State::Refused);
    let fault = shown.fault.unwrap();
    assert_eq!(fault.kind, FaultKind::Refused);
    assert!(fault.retry_at_mono.is_none(), "nothing is tried by itself");
    assert!(
        fault.what_to_do.iter().any(|line| line.as_str().contains("stratum-installer join")),
        "{fault:?}"
    );
    assert!(!holds(&heap(&world.founder.core().received()), "inventory"));

    world.ask_to_join();
    world.machine.wait_for_state(State::Pending);
    assert!(world.machine.running());
}

#[test]
fn an_expired_code_is_named_and_a_new_one_is_taken() {
    let mut world = World::new();
    let code = world.new_code(300)["code"].as_str().unwrap().to_owned();
    world.founder.clock().advance_ms(301_000);
    refused(&mut world, &code, "JOIN_CODE_EXPIRED", "has expired");
}

#[test]
fn a_revoked_code_is_named_and_a_new_one_is_taken() {
    let mut world = World::new();
    let made = world.new_code(3600);
    world.admin("DELETE", &format!("/v1/admin/cluster/join-codes/{}", made["id"].as_str().unwrap()), None);
    refused(&mut world, made["code"].as_str().unwrap(), "JOIN_CODE_REVOKED", "was revoked");
}

#[test]
fn a_burned_code_is_named_with_where_the_answer_came_from() {
    let limits = Limits { open_tries: 2, ..Limits::wide() };
    let mut world = World::with(Config { limits, ..Config::for_tests() });
    let made = world.new_code(3600);
    let code = made["code"].as_str().unwrap();
    for _ in 0..2 {
        assert_eq!(world.machine.check(&world.endpoint(), &mistyped(code)).exit, 4);
    }
    assert_eq!(world.code_row(made["id"].as_str().unwrap())["state"], "burned");
    // It is told to anybody, so it is not the cluster's proven word.
    let said = world.machine.check(&world.endpoint(), code);
    assert!(said.err.contains("This answer came before the cluster proved the code."), "{}", said.err);
    refused(&mut world, code, "JOIN_CODE_BURNED", "burned by too many wrong tries");
}

#[test]
fn the_seventeenth_machine_waits_for_a_place_and_sends_no_hardware_before() {
    let mut world = World::new();
    let text = world.code();
    let code = JoinCode::parse(&text).unwrap();
    let w = Stretched::of(&code);
    let ids: Vec<String> = (1..=16).map(|n| joiner::register(&world.founder, &code, &w, n)).collect();

    let (exit, report) = world.machine.check_json(&world.endpoint(), &text);
    assert_eq!((exit, report["code"].as_str()), (3, Some("JOIN_QUEUE_FULL")), "{report}");
    world.machine.ask_to_join(&world.endpoint(), &text);
    world.machine.start();
    let shown = world.machine.wait_for_fault("JOIN_QUEUE_FULL");
    assert_eq!(shown.state, State::Registering);
    let fault = shown.fault.unwrap();
    assert!(
        fault.kind == FaultKind::Transient && fault.verified && fault.retry_at_mono.is_some(),
        "{fault:?}"
    );
    assert_eq!(world.joins().len(), 16);
    assert_eq!(count(&world.founder, "POST", "/v1/join/registrations"), 16, "no seventeenth inventory");

    let path = format!("/v1/admin/cluster/joins/{}/reject", ids[7]);
    world.admin("POST", &path, Some(json!({ "reason": "not ours" })));
    world.machine.ask_to_join(&world.endpoint(), &text);
    world.machine.wait_for_state(State::Pending);
    assert_eq!(world.joins().iter().filter(|j| j["state"] == "pending").count(), 16);
}

#[test]
fn a_cluster_that_is_being_upgraded_is_waited_for() {
    let mut world = World::new();
    let code = world.code();
    let switches = |upgrade_running| Switches { upgrade_running, ..Switches::default() };
    world.founder.core().set_switches(world.founder.now_ms(), &switches(true)).unwrap();
    let (exit, report) = world.machine.check_json(&world.endpoint(), &code);
    assert_eq!((exit, report["code"].as_str()), (3, Some("UPGRADE_RUNNING")), "{report}");
    world.machine.ask_to_join(&world.endpoint(), &code);
    world.machine.start();
    let fault = world.machine.wait_for_fault("UPGRADE_RUNNING").fault.unwrap();
    assert!(fault.kind == FaultKind::Transient && fault.retry_at_mono.is_some(), "{fault:?}");
    world.founder.core().set_switches(world.founder.now_ms(), &switches(false)).unwrap();
    world.machine.ask_to_join(&world.endpoint(), &code);
    world.machine.wait_for_state(State::Pending);
}

#[test]
fn a_machine_of_another_release_is_told_which_iso_it_needs() {
    let mut world = World::new();
    std::fs::write(world.machine.path("etc/os-release"), "VERSION_ID=0.6.0\n").unwrap();
    let code = world.code();
    let (exit, report) = world.machine.check_json(&world.endpoint(), &code);
    assert_eq!((exit, report["code"].as_str()), (6, Some("RELEASE_MISMATCH")), "{report}");
    assert_eq!(report["advice"], json!(["Install this machine from stratum-0.7.0.iso."]));
    world.machine.ask_to_join(&world.endpoint(), &code);
    world.machine.start();
    let shown = world.machine.wait_for_fault("RELEASE_MISMATCH");
    assert_eq!(shown.state, State::Refused);
    let fault = shown.fault.unwrap();
    assert_eq!(fault.details.iso.unwrap().as_str(), "stratum-0.7.0.iso");
    assert_eq!(fault.details.cluster_release.unwrap().as_str(), "0.7.0");
    assert!(world.joins().is_empty(), "its place is free again");
}

#[test]
fn a_rejected_machine_shows_why_forgets_the_code_and_asks_again_with_a_new_one() {
    let mut world = World::joining();
    let before = world.machine.wait_for_state(State::Pending);
    let first = before.registration.join_id.unwrap().to_string();
    let key = world.machine.client_key();
    let reason = "that serial is not on the list";
    world.admin(
        "POST",
        &format!("/v1/admin/cluster/joins/{first}/reject"),
        Some(json!({ "reason": reason })),
    );
    let shown = world.machine.wait_for_state(State::Rejected);
    assert_eq!(shown.registration.reject_reason.as_ref().unwrap().as_str(), reason);
    assert!(shown.pairing_code.is_none());
    assert_eq!(shown.registration.last_pairing_code, before.pairing_code);
    crate::support::wait::until(crate::support::PATIENCE, || {
        world.machine.request().get("code").is_none().then_some(())
    })
    .expect("the code is wiped");
    let said = crate::support::actions::Said::from(world.machine.installer(&["--check"], ""));
    assert_eq!(said.exit, 7, "{}{}", said.out, said.err);
    assert!(said.err.contains(reason), "{}{}", said.out, said.err);

    let told = world.founder.core().received().len();
    world.machine.restart();
    world.machine.wait_for_state(State::Rejected);

    world.ask_to_join();
    let after = world.machine.wait_for_state(State::Pending);
    let next = &world.founder.core().received()[told];
    assert_eq!((next.method.as_str(), next.path.as_str()), ("GET", "/v1/join"), "a restart asks nothing");
    assert_ne!(after.registration.join_id.unwrap().as_str(), first, "ids are never used twice");
    assert_ne!(after.pairing_code, before.pairing_code);
    assert_eq!(world.machine.client_key(), key, "the key is kept");
}

#[test]
fn a_registration_that_nobody_approved_ends_and_a_new_code_asks_again() {
    let world = World::joining();
    let first = world.machine.wait_for_state(State::Pending).registration.join_id.unwrap();
    // A day for the code, a day more for the operator.
    world.founder.clock().advance_ms(2 * DAY_MS + 60_000);
    let shown = world.machine.wait_for_state(State::Expired);
    assert_eq!(shown.fault.unwrap().code.as_str(), "JOIN_EXPIRED");
    crate::support::wait::until(crate::support::PATIENCE, || {
        world.machine.request().get("code").is_none().then_some(())
    })
    .expect("the code is wiped");
    world.ask_to_join();
    let after = world.machine.wait_for_state(State::Pending).registration.join_id.unwrap();
    assert_ne!(after, first);
}

#[test]
fn a_foreign_key_gets_byte_for_byte_the_answer_of_an_unknown_id() {
    let world = World::joining();
    let id = world.machine.wait_for_state(State::Pending).registration.join_id.unwrap().to_string();
    let unknown = "nj-zzzzzzz0";
    assert_ne!(id, unknown);
    let stranger = RawJoiner::new();
    let put = json!({
        "release": "0.7.0", "selfUpgrade": false, "hostname": "mine", "serial": "", "agent": "0.1.0",
        "bootId": "1b4e28ba-2fa1-41d2-883f-0016d3cca427", "inventory": { "disks": [], "nics": [] },
    });
    let progress = json!({
        "seq": 1, "bootId": "1b4e28ba-2fa1-41d2-883f-0016d3cca427", "step": "storage", "title": "mine", "index": 1,
        "total": 1, "status": "running",
    });
    let calls: [(&str, &str, Value); 6] = [
        ("GET", "", Value::Null),
        ("GET", "?wait=50&state=pending", Value::Null),
        ("PUT", "", put),
        ("POST", "/ack", json!({ "attempt": 1, "sha256": "00".repeat(32) })),
        ("POST", "/progress", progress),
        ("POST", "/log", json!({ "first": 1, "lost": 0, "lines": ["mine"] })),
    ];
    for (method, rest, body) in calls {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let call = |id: &str| {
            stranger.call(
                world.founder.join_addr(),
                method,
                &format!("/v1/join/registrations/{id}{rest}"),
                &body,
            )
        };
        let (theirs, nobodys) = (call(&id), call(unknown));
        let text = String::from_utf8_lossy(&theirs);
        assert!(
            text.starts_with("HTTP/1.1 404 ") && text.contains("JOIN_NOT_FOUND"),
            "{method} {rest}: {text}"
        );
        assert_eq!(theirs, nobodys, "{method} {rest}: {text}{}", String::from_utf8_lossy(&nobodys));
    }
    let release = |id: &str| {
        let path = format!("/v1/join/registrations/{id}/release/payload/manifest.json");
        stranger.call(world.founder.join_addr(), "GET", &path, "")
    };
    assert_eq!(release(&id), release(unknown));
    assert_eq!(world.record(&id)["state"], "pending");
}

#[test]
fn two_machines_have_two_pairing_codes_and_one_does_not_open_the_other() {
    let mut world = World::new();
    let code = world.code();
    world.machine.ask_to_join(&world.endpoint(), &code);
    world.machine.start();
    let mut second = Machine::new();
    second.ask_to_join(&world.endpoint(), &code);
    second.start();
    let (one, two) = (world.machine.wait_for_state(State::Pending), second.wait_for_state(State::Pending));
    assert_ne!(one.pairing_code, two.pairing_code);
    assert_ne!(one.registration.join_id, two.registration.join_id);
    assert_ne!(one.node_key, two.node_key);

    let id = one.registration.join_id.as_ref().unwrap();
    let other = two.pairing_code.as_ref().unwrap();
    let approve = format!("/v1/admin/cluster/joins/{id}/approve?pairing={other}");
    let (status, answer) = world.try_admin("POST", &approve, Some(json!({})));
    assert_eq!((status, answer["code"].as_str()), (409, Some("JOIN_APPROVAL_REFUSED")), "{answer}");
    let shown: Vec<Value> = world.joins().iter().map(|join| join["pairingCode"].clone()).collect();
    for machine in [&one, &two] {
        assert!(shown.contains(&json!(machine.pairing_code.as_ref().unwrap().as_str())), "{shown:?}");
    }
}
