//! A founder (or whatever answers in its place) that misbehaves: in its HTTP, its texts, its states, its deliveries.

use std::time::{Duration, Instant};

use console::snapshot::State;
use lab_founder::model::Switches;
use lab_founder::{Evil, Step};
use serde_json::{Value, json};

use crate::support::actions::Said;
use crate::support::told::{count, proofs};
use crate::support::{Machine, PATIENCE, World, wait};

/// What a terminal, a log reader or a person could be fooled by. A line feed is only allowed where we put it.
fn is_foul(c: char) -> bool {
    (c.is_control() && c != '\n')
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2028}' | '\u{2029}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// Every string in a JSON value, keys included.
fn strings(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) => found.push(text.clone()),
        Value::Array(list) => list.iter().for_each(|item| strings(item, found)),
        Value::Object(map) => map.iter().for_each(|(key, item)| {
            found.push(key.clone());
            strings(item, found);
        }),
        _ => {}
    }
}

fn status(machine: &Machine, args: &[&str]) -> String {
    let root = machine.path("").display().to_string();
    let out = std::process::Command::new(crate::support::bin("stratum-join"))
        .args(["status", "--root", &root])
        .args(args)
        .output()
        .unwrap();
    String::from_utf8(out.stdout).unwrap()
}

/// Looks at everything a person or a program is shown.
fn assert_clean(machine: &Machine, when: &str) {
    let file = |below: &str| std::fs::read_to_string(machine.path(below)).unwrap_or_default();
    let card = status(machine, &[]);
    let said = Said::from(machine.installer(&["--check"], ""));
    let texts = [
        ("snapshot.json", file("run/stratum-join/snapshot.json")),
        ("issue", file("run/stratum-join/issue")),
        ("motd", file("run/stratum-join/motd")),
        ("status", card.clone()),
        ("status --output json", status(machine, &["--output", "json"])),
        ("log", machine.log()),
        ("--check", said.out),
        ("--check, stderr", said.err.clone()),
    ];
    for (name, text) in &texts {
        assert!(!text.is_empty() || name.starts_with("--check"), "{when}: {name} is empty");
        assert!(!text.chars().any(is_foul), "{when}: {name}: {text:?}");
        if text.starts_with('{') {
            let mut found = Vec::new();
            strings(&serde_json::from_str(text).unwrap(), &mut found);
            let foul = found.iter().find(|text| text.chars().any(|c| is_foul(c) || c == '\n'));
            assert!(foul.is_none(), "{when}: {name}: {foul:?}");
        }
    }
    // A false pairing code stands only behind the sign of foreign text.
    for line in card.lines().chain(said.err.lines()).chain(file("run/stratum-join/issue").lines()) {
        if let Some((before, _)) = line.split_once("AAA-AAA") {
            assert!(before.contains("> "), "{when}: {line}");
        }
    }
    // One line of the log is one line of ours.
    for line in machine.log().lines() {
        assert!(line.starts_with("20") && line.contains("Z "), "{when}: {line}");
    }
}

#[test]
fn hostile_texts_never_reach_a_screen_or_a_log_raw() {
    let mut world = World::new();
    world.founder.core().set_evil(vec![Evil::HostileText.always(Step::Any)]);
    let green = |cluster_green| Switches { cluster_green, ..Switches::default() };
    world.founder.core().set_switches(world.founder.now_ms(), &green(false)).unwrap();
    world.ask_to_join();
    world.machine.start();
    let pending = world.machine.wait_for_state(State::Pending);
    assert_clean(&world.machine, "pending");

    let id = world.approve();
    let approved = world.machine.wait_for_state(State::Approved);
    assert!(
        approved.registration.wait_reason.is_some_and(|r| r.as_str().contains("gnorw")),
        "it is shown, cleaned"
    );
    assert_eq!(approved.pairing_code, pending.pairing_code, "the fixed field is ours");
    assert_clean(&world.machine, "approved");

    world.admin("POST", &format!("/v1/admin/cluster/joins/{id}/reject"), Some(json!({ "reason": "no" })));
    let rejected = world.machine.wait_for_state(State::Rejected);
    assert!(
        rejected.registration.reject_reason.is_some_and(|r| r.as_str().contains("Pairing code: AAA-AAA"))
    );
    assert_clean(&world.machine, "rejected");
}

#[test]
fn a_hostile_refusal_is_shown_as_the_founders_words() {
    let mut world = World::new();
    let refusal =
        Evil::RefuseWith { status: 451, code: "CODE_OF_ANOTHER_VERSION".to_owned(), retry_after: None };
    world.founder.core().set_evil(vec![refusal.always(Step::Discover)]);
    let code = world.code();
    let (exit, report) = world.machine.check_json(&world.endpoint(), &code);
    assert_eq!((exit, report["code"].as_str()), (3, Some("OTHER_REFUSAL")), "{report}");
    world.machine.ask_to_join(&world.endpoint(), &code);
    world.machine.start();
    let shown = world.machine.wait_for_state(State::Refused);
    let fault = shown.fault.unwrap();
    assert!(!fault.verified, "it came before the proof");
    assert!(fault.message.as_str().contains("the lab founder was told to say this"), "{fault:?}");
    assert_eq!(count(&world.founder, "GET", "/v1/join"), 4, "one check, three tries of the agent");
}

#[test]
fn an_unknown_state_is_shown_as_it_is_spelt_and_waited_out() {
    let world = World::joining();
    world.founder.core().add_evil(Evil::UnknownState.always(Step::Poll));
    let shown = world.machine.wait_for_state(State::Unknown);
    assert_eq!(shown.state_raw.unwrap().as_str(), "quantum-superposition");
    assert!(shown.headline.as_str().contains("quantum-superposition"), "{}", shown.headline);
    assert!(!shown.next.is_empty());
    world.founder.core().set_evil(Vec::new());
    world.machine.wait_for_state(State::Pending);
}

#[test]
fn a_state_that_goes_backward_neither_registers_again_nor_stops_the_join() {
    let mut world = World::joining();
    let before = world.machine.wait_for_state(State::Pending);
    world.machine.kill();
    world.founder.core().set_evil(vec![Evil::BackwardState.times(Step::Poll, 2)]);
    world.machine.start();
    world.machine.wait_for_log("-> registering");
    let pid = world.machine.pid();
    let after = world.machine.wait_for("pending", |s| s.agent.pid == pid && s.state == State::Pending);
    assert_eq!(after.pairing_code, before.pairing_code);
    assert_eq!(proofs(&world.founder), 1);
    assert_eq!(world.joins().len(), 1);
}

#[test]
fn a_delivery_before_the_approval_is_ignored() {
    let mut world = World::new();
    world.founder.core().add_evil(Evil::DeliveryBeforeApproval.times(Step::Poll, 3));
    world.ask_to_join();
    world.machine.start();
    world.machine.wait_for_state(State::Pending);
    let polled = || (count(&world.founder, "GET", "/v1/join/registrations/") >= 2).then_some(());
    wait::until(PATIENCE, polled).unwrap();
    assert!(!world.machine.path("etc/stratum/node.yaml").exists());
    assert!(!world.machine.path("run/stratum/delivery").exists());
    assert!(world.machine.journal()["handoff"].is_null());
    // The real one is taken.
    world.finish();
    assert!(!std::fs::read_to_string(world.machine.path("etc/stratum/node.yaml")).unwrap().contains("decoy"));
}

#[test]
fn a_founder_that_answers_polls_at_once_for_ever_is_asked_about_once_a_second() {
    let mut world = World::new();
    world.founder.core().add_evil(Evil::AnswerAtOnceFlood.always(Step::Poll));
    world.ask_to_join();
    world.machine.start();
    world.machine.wait_for_state(State::Pending);
    let polls = || count(&world.founder, "GET", "/v1/join/registrations/");
    let (begun, first) = (Instant::now(), polls());
    wait::until(PATIENCE, || (polls() >= first + 5).then_some(())).unwrap();
    let spent = begun.elapsed();
    assert!(spent >= Duration::from_secs(2), "five polls in {spent:?}");
    assert!(world.machine.snapshot().unwrap().state == State::Pending);
}

#[test]
fn every_evil_answer_ends_in_its_code_within_its_deadline() {
    let cases = [
        (Evil::EndlessBody, "RESPONSE_TOO_LARGE", 5),
        (Evil::EndlessChunks, "RESPONSE_TOO_LARGE", 5),
        (Evil::TenThousandHeaders, "RESPONSE_INVALID", 5),
        (Evil::DeepJson, "RESPONSE_TOO_LARGE", 5),
        (Evil::HtmlPage, "RESPONSE_INVALID", 5),
        (Evil::Redirect, "RESPONSE_INVALID", 5),
        (Evil::GzipBody, "RESPONSE_INVALID", 5),
        (Evil::WrongContentLength, "ADDRESS_UNREACHABLE", 25),
        (Evil::InformationalFlood, "ADDRESS_UNREACHABLE", 15),
        (Evil::CloseMidBody { after: 60 }, "ADDRESS_UNREACHABLE", 5),
        (Evil::ResetBeforeAnswer, "ADDRESS_UNREACHABLE", 5),
        (Evil::ResetAfterRequest, "ADDRESS_UNREACHABLE", 5),
        (Evil::HalfClose, "ADDRESS_UNREACHABLE", 5),
        (Evil::RefuseConnect, "TLS_FAILED", 5),
        (Evil::AcceptThenSilence, "ADDRESS_UNREACHABLE", 20),
        (Evil::NeverAnswer, "ADDRESS_UNREACHABLE", 15),
        (Evil::OneBytePerSecond, "ADDRESS_UNREACHABLE", 30),
    ];
    let outcome = |evil: &Evil, deadline: u64| {
        let world = World::new();
        let at = if matches!(evil, Evil::RefuseConnect | Evil::AcceptThenSilence) {
            Step::Any
        } else {
            Step::Discover
        };
        let code = world.code();
        world.founder.core().set_evil(vec![evil.clone().always(at)]);
        let begun = Instant::now();
        let (exit, report) = world.machine.check_json(&world.endpoint(), &code);
        // The machine that runs this test may be slow: twice the deadline still tells it from a hang.
        assert!(begun.elapsed() < Duration::from_secs(2 * deadline), "{evil:?}: {:?}", begun.elapsed());
        assert_eq!(proofs(&world.founder), 0);
        (exit, report["code"].as_str().unwrap_or("good").to_owned(), report["detail"].to_string())
    };
    // Each waits for its own deadline, so all wait at once.
    let found: Vec<_> = std::thread::scope(|scope| {
        let running: Vec<_> =
            cases.iter().map(|(evil, _, deadline)| scope.spawn(|| outcome(evil, *deadline))).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let wrong: Vec<_> = cases
        .iter()
        .zip(&found)
        .filter(|((_, expected, _), (exit, code, _))| code != expected || *exit != 3)
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_agent_goes_on_by_itself_after_answers_that_make_no_sense() {
    let mut world = World::new();
    world.founder.core().set_evil(vec![
        Evil::HtmlPage.once(Step::Discover),
        Evil::EndlessBody.once(Step::Proof),
        Evil::ResetAfterRequest.once(Step::Confirm),
        Evil::DeepJson.once(Step::Register),
    ]);
    world.ask_to_join();
    world.machine.start();
    let shown = world.machine.wait_for_state(State::Pending);
    assert_eq!(world.joins().len(), 1, "{}", world.machine.log());
    assert_eq!(world.joins()[0]["pairingCode"], shown.pairing_code.unwrap().as_str());
}

#[test]
fn another_answer_for_a_nonce_that_was_shown_makes_a_new_key() {
    for evil in [Evil::OtherJoinIdOnRetry, Evil::OtherNonceOnRetry] {
        let mut world = World::new();
        // The registration is taken and its answer lost, also of the repeat on a fresh connection: the machine proves again, and the founder
        // changes what it had said.
        world.founder.core().set_evil(vec![
            evil.clone().always(Step::Confirm),
            Evil::ResetAfterRequest.times(Step::Register, 2),
        ]);
        world.ask_to_join();
        world.machine.start();
        let shown = world.machine.wait_for_state(State::Pending);
        world
            .machine
            .wait_for_log("new machine key: the founder gave another answer for a nonce it has seen");
        let id = shown.registration.join_id.unwrap();
        let record = world.record(id.as_str());
        assert_eq!(record["pairingCode"], shown.pairing_code.unwrap().as_str(), "{evil:?}");
        let keys: std::collections::BTreeSet<_> =
            world.founder.core().received().iter().map(|r| r.peer.client_fp).collect();
        assert_eq!(keys.len(), 2, "{evil:?}");
        let nonces: std::collections::BTreeSet<String> = world
            .founder
            .core()
            .received()
            .iter()
            .filter(|r| r.method == "POST" && r.path == "/v1/join/registrations")
            .map(|r| serde_json::from_slice::<Value>(&r.body).unwrap()["pairingNonce"].to_string())
            .collect();
        assert_eq!(nonces.len(), 2, "{evil:?}: one for each answer");
    }
}

#[test]
fn proxy_variables_are_ignored() {
    let mut world = World::new();
    for name in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "HTTP_PROXY"] {
        world.machine.set_env(name, "http://127.0.0.1:1");
    }
    world.ask_to_join();
    world.machine.start();
    world.machine.wait_for_state(State::Pending);
}
