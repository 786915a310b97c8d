//! Acknowledgement, progress and log.

use lab_founder::config::Limits;
use lab_founder::{Config, Request};
use serde_json::{Value, json};

use crate::support::{Joiner, MINUTE, SECOND, World, config, digest};

fn delivering(world: &World) -> (Joiner, String) {
    let joiner = Joiner::new(1);
    let id = joiner.register(world, &world.code());
    assert_eq!(world.approve(&id).status, 200);
    (joiner, id)
}

#[test]
fn the_delivery_is_there_in_delivering_and_installing_and_can_be_left_out() {
    let world = World::new();
    let joiner = Joiner::new(1);
    let id = joiner.register(&world, &world.code());
    assert!(joiner.poll(&world, &id)["delivery"].is_null());
    world.approve(&id);
    let first = joiner.poll(&world, &id);
    assert_eq!(first["attempt"], 1);
    assert!(first["delivery"]["nodeYaml"].as_str().unwrap().contains("node-1.example.com"));
    let without = joiner.call(&world, &Request::get(&format!("/v1/join/registrations/{id}?delivery=0")));
    assert!(without.value()["delivery"].is_null());
    joiner.progress(&world, &id, 1, "storage", (1, 9), "running");
    assert_eq!(joiner.poll(&world, &id)["delivery"], first["delivery"], "fetched again, the same bytes");
    joiner.progress(&world, &id, 2, "storage", (9, 9), "done");
    assert_eq!(joiner.poll(&world, &id)["state"], "installing", "firstboot's last step is not its end");
    joiner.progress(&world, &id, 3, "join", (9, 9), "done");
    let joined = joiner.poll(&world, &id);
    assert_eq!(joined["state"], "joined");
    assert!(joined["delivery"].is_null());
}

#[test]
fn an_acknowledgement_is_compared_with_what_was_sent() {
    let world = World::new();
    let (joiner, id) = delivering(&world);
    let poll = joiner.call(&world, &Request::get(&format!("/v1/join/registrations/{id}")));
    let (attempt, sha256) = digest(&poll.body);
    let ack = |attempt: Value, sha256: &str| {
        joiner.send(&world, &id, "ack", &json!({ "attempt": attempt, "sha256": sha256 }))
    };
    assert_eq!(ack(json!(attempt), &"0".repeat(64)).code(), "DELIVERY_MISMATCH");
    assert_eq!(ack(json!(7), &sha256).code(), "JOIN_STATE_CONFLICT");
    assert_eq!(world.record(&id)["acked"], false);
    assert_eq!(ack(json!(attempt), &sha256).value()["state"], "delivering", "it moves no state");
    assert_eq!(ack(Value::Null, &sha256).status, 200, "repeated, and without attempt");
    assert_eq!(world.record(&id)["acked"], true);
}

#[test]
fn a_repeated_or_late_report_is_stored_once_and_answered_the_same() {
    let world = World::new();
    let (joiner, id) = delivering(&world);
    let first = joiner.progress(&world, &id, 12, "storage", (1, 19), "running");
    assert_eq!(first.value(), json!({ "state": "installing", "lastSeq": 12 }));
    assert_eq!(joiner.progress(&world, &id, 12, "join/ovn", (2, 19), "running").value(), first.value());
    assert_eq!(joiner.progress(&world, &id, 3, "join/ovn", (2, 19), "failed").value(), first.value());
    let steps = world.record(&id)["steps"].clone();
    assert_eq!(steps.as_array().unwrap().len(), 1);
    assert_eq!(steps[0]["title"], "Doing storage");
    joiner.progress(&world, &id, 13, "storage", (1, 19), "done");
    let steps = world.record(&id)["steps"].clone();
    assert_eq!((steps[0]["status"].as_str(), steps[0]["finishedAt"].is_string()), (Some("done"), true));
}

#[test]
fn a_failed_step_fails_the_join_and_takes_the_member_out() {
    let world = World::new();
    let (joiner, id) = delivering(&world);
    let before = world.admin_get("/members")["generation"].as_u64().unwrap();
    let failed = joiner.progress(&world, &id, 1, "join/raft-openbao", (7, 19), "failed");
    assert_eq!(failed.value()["state"], "failed");
    let record = world.record(&id);
    assert_eq!(record["failedStep"], "join/raft-openbao");
    assert_eq!(record["failedStepTitle"], "Doing join/raft-openbao");
    assert_eq!(record["failedError"], "it broke");
    let members = world.admin_get("/members");
    assert!(members["generation"].as_u64().unwrap() > before);
    assert_eq!(members["members"][1]["state"], "failed");
    assert!(members["members"][1]["raftCleanupAt"].is_string());
    let late = joiner.progress(&world, &id, 2, "join/ovn", (8, 19), "running");
    assert_eq!(late.value()["state"], "failed", "a late report does not bring it back");
}

#[test]
fn a_report_out_of_bounds_is_named_field_by_field() {
    let world = World::new();
    let (joiner, id) = delivering(&world);
    let body = json!({
        "seq": 0, "bootId": "x", "step": "Bad Step", "title": "", "index": 9, "total": 3, "status": "failed", "error": null,
    });
    let refused = joiner.send(&world, &id, "progress", &body).value();
    let fields: Vec<&str> =
        refused["errors"].as_array().unwrap().iter().map(|e| e["field"].as_str().unwrap()).collect();
    assert_eq!(fields, ["seq", "step", "title", "index", "error"]);
}

#[test]
fn install_steps_are_taken_only_while_installing() {
    let world = World::new();
    let joiner = Joiner::new(1);
    let id = joiner.register(&world, &world.code());
    let refused = joiner.progress(&world, &id, 1, "storage", (1, 2), "running");
    assert_eq!(refused.code(), "JOIN_STATE_CONFLICT");
    assert_eq!(refused.value()["details"]["state"], "pending");
}

#[test]
fn a_late_report_of_an_attempt_that_is_over_does_not_end_the_next_one() {
    let world = World::new();
    let (joiner, id) = delivering(&world);
    joiner.progress(&world, &id, 1, "storage", (1, 9), "failed");
    assert_eq!(world.admin("POST", &format!("/joins/{id}/retry"), &json!({})).status, 200);
    assert_eq!(joiner.poll(&world, &id)["attempt"], 2);
    let failed = |seq: u64, attempt: u64| {
        let body = json!({
            "seq": seq, "bootId": "1b4e28ba-2fa1-41d2-883f-0016d3cca427", "attempt": attempt, "step": "storage",
            "title": "Preparing the disks", "status": "failed", "error": "no disk",
        });
        joiner.send(&world, &id, "progress", &body).value()
    };
    assert_eq!(failed(2, 1), json!({ "state": "delivering", "lastSeq": 2 }));
    assert_eq!(failed(3, 2), json!({ "state": "failed", "lastSeq": 3 }));
}

#[test]
fn the_log_keeps_two_thousand_lines_and_marks_what_is_missing() {
    let world = World::new();
    let (joiner, id) = delivering(&world);
    let log = |first: u64, lost: u64, n: u64| {
        let lines: Vec<String> = (first..first + n).map(|l| format!("line {l}")).collect();
        joiner.send(&world, &id, "log", &json!({ "first": first, "lost": lost, "lines": lines })).value()
    };
    assert_eq!(log(1, 0, 200)["lastLine"], 200);
    assert_eq!(log(150, 0, 100)["lastLine"], 249, "known ones are left out");
    assert_eq!(log(300, 50, 1)["lastLine"], 300);
    let kept = world.record(&id)["log"].clone();
    assert_eq!(kept.as_array().unwrap().len(), 249 + 1 + 1);
    assert_eq!(
        (&kept[248], &kept[249], &kept[250]),
        (&json!("line 249"), &json!("[50 lines lost]"), &json!("line 300"))
    );
    for batch in 0..12 {
        log(301 + batch * 200, 0, 200);
    }
    let kept = world.record(&id)["log"].clone();
    assert_eq!(kept.as_array().unwrap().len(), 2000);
    assert_eq!(kept[1999], "line 2700");
    assert_eq!(kept[0], "line 701");
}

#[test]
fn a_log_call_out_of_bounds_is_refused() {
    let world = World::new();
    let (joiner, id) = delivering(&world);
    let many: Vec<&str> = vec!["x"; 201];
    for body in [
        json!({ "first": 1, "lines": [] }),
        json!({ "first": 1, "lines": many }),
        json!({ "first": 0, "lines": ["x"] }),
        json!({ "first": 1, "lines": ["x".repeat(1025)] }),
    ] {
        assert_eq!(joiner.send(&world, &id, "log", &body).code(), "INVALID_INPUT");
    }
    assert_eq!(
        joiner.send(&world, &id, "log", &json!({ "first": 1, "lines": ["x".repeat(1024)] })).status,
        200
    );
}

#[test]
fn one_log_call_a_second_is_taken() {
    let limits = Limits { log_interval_ms: 1000, ..Limits::wide() };
    let mut world = World::with(Config { limits, ..config() });
    let (joiner, id) = delivering(&world);
    let log = |world: &World, first: u64| {
        joiner.send(world, &id, "log", &json!({ "first": first, "lines": ["x"] }))
    };
    assert_eq!(log(&world, 1).status, 200);
    assert_eq!(log(&world, 2).code(), "RATE_LIMITED");
    world.pass(SECOND);
    assert_eq!(log(&world, 2).value()["lastLine"], 2);
}

#[test]
fn a_running_join_is_stalled_after_ten_silent_minutes_until_it_is_heard_again() {
    let mut world = World::new();
    let (joiner, id) = delivering(&world);
    joiner.progress(&world, &id, 1, "storage", (1, 2), "running");
    world.pass(10 * MINUTE - SECOND);
    assert_eq!(world.record(&id)["stalled"], false);
    world.pass(SECOND);
    assert_eq!(world.record(&id)["stalled"], true);
    joiner.progress(&world, &id, 2, "storage", (1, 2), "running");
    assert_eq!(world.record(&id)["stalled"], false);
    assert_eq!(world.record(&id)["state"], "installing", "stalled is a flag, not an end");
}
