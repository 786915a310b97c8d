//! From the delivery to the end of firstboot, as both sides see it: steps, numbers, log lines, failures and the next attempt.

use std::fs;
use std::path::PathBuf;

use console::snapshot::{State, StepStatus};
use serde_json::{Value, json};

use crate::support::{PATIENCE, World, wait};

/// A world whose machine is approved, with firstboot doing this.
fn approved(options: &str) -> (World, String) {
    let mut world = World::new();
    world.machine.firstboot_does(options);
    world.ask_to_join();
    world.machine.start();
    let id = world.approve();
    (world, id)
}

/// The founder's record, once it is in this state.
fn record_in(world: &World, id: &str, state: &str) -> Value {
    let found = wait::until(PATIENCE, || Some(world.record(id)).filter(|record| record["state"] == state));
    found.unwrap_or_else(|| panic!("waited for {state}: {}; {}", world.record(id), world.machine.log()))
}

/// Bodies of one kind of call, as the founder got them.
fn told(world: &World, call: &str) -> Vec<Value> {
    let received = world.founder.core().received();
    let bodies = received.iter().filter(|r| r.method == "POST" && r.path.ends_with(call));
    bodies.map(|r| serde_json::from_slice(&r.body).unwrap()).collect()
}

/// What firstboot of this attempt wrote.
fn written(world: &World, attempt: u64) -> Vec<String> {
    let runs = fs::read_dir(world.machine.path("run/stratum/firstboot")).unwrap();
    let prefix = format!("attempt-{attempt}-");
    let mut logs: Vec<PathBuf> = runs
        .map(|run| run.unwrap().path())
        .filter(|run| run.file_name().unwrap().to_string_lossy().starts_with(&prefix))
        .map(|run| run.join("log"))
        .collect();
    assert_eq!(logs.len(), 1);
    let text = fs::read_to_string(logs.remove(0)).unwrap();
    text.lines().map(str::to_owned).collect()
}

fn log_of(record: &Value) -> Vec<String> {
    record["log"].as_array().unwrap().iter().map(|line| line.as_str().unwrap().to_owned()).collect()
}

#[test]
fn each_step_and_each_line_reaches_the_founder_once_and_in_order() {
    let (mut world, id) = approved("delay-ms=10 log-lines=30");
    assert!(world.machine.wait_for_end().success(), "{}", world.machine.log());
    let record = world.record(&id);
    let steps = record["steps"].as_array().unwrap();
    let names: Vec<&str> = steps.iter().map(|step| step["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "network",
            "storage",
            "images",
            "join/patroni",
            "join/raft-openbao",
            "join/raft-ovn",
            "join/vmstorage",
            "controlplane",
            "join/membership",
            "join"
        ]
    );
    assert!(steps.iter().all(|step| step["status"] == "done"), "{steps:?}");

    let reports = told(&world, "/progress");
    let rising = reports.windows(2).all(|two| two[0]["seq"].as_u64() < two[1]["seq"].as_u64());
    assert!(rising, "{reports:?}");
    let numbered = reports.iter().filter(|report| report["step"] != "join");
    for report in numbered {
        let place = names.iter().position(|name| report["step"] == *name).unwrap() + 1;
        assert_eq!((&report["index"], &report["total"]), (&json!(place), &json!(9)));
        assert_eq!(report["attempt"], 1);
    }
    assert_eq!(log_of(&record), written(&world, 1));
}

#[test]
fn a_failed_step_is_the_same_on_both_sides_and_the_next_attempt_joins() {
    let (mut world, id) = approved("delay-ms=0 fail=join/patroni error=no quorum, 1 of 3");
    // firstboot tells the founder itself, and the agent tells it too, with the title.
    let told = || Some(world.record(&id)).filter(|record| record["failedStepTitle"] == "Joining Patroni");
    let record = wait::until(PATIENCE, told).unwrap_or_else(|| panic!("{}", world.record(&id)));
    assert_eq!((&record["state"], &record["failedStep"]), (&json!("failed"), &json!("join/patroni")));
    assert_eq!(record["failedError"], "no quorum, 1 of 3");
    let shown = world.machine.wait_for_state(State::Failed);
    let step = shown.steps.iter().find(|step| step.status == StepStatus::Failed).unwrap();
    assert_eq!((step.name.as_str(), step.title.as_str()), ("join/patroni", "Joining Patroni"));
    let whole = serde_json::to_string(&shown).unwrap();
    assert!(whole.contains("no quorum, 1 of 3"), "{whole}");
    assert!(!shown.next.is_empty());
    assert!(world.machine.running(), "a failed join waits for its founder");

    world.machine.firstboot_does("delay-ms=0");
    world.admin("POST", &format!("/v1/admin/cluster/joins/{id}/retry"), None);
    assert!(world.machine.wait_for_end().success(), "{}", world.machine.log());
    let record = world.record(&id);
    assert_eq!((&record["state"], &record["attempt"]), (&json!("joined"), &json!(2)));
    assert!(record["failedStep"].is_null());
    assert_eq!(world.machine.starts(), [1, 2]);
    // The log of the attempt that failed is not lost by the one that worked.
    let lines: Vec<String> = written(&world, 1).into_iter().chain(written(&world, 2)).collect();
    assert_eq!(log_of(&record), lines);
}

#[test]
fn a_firstboot_that_ends_without_a_word_fails_at_its_last_step() {
    let (mut world, id) = approved("delay-ms=0 silent-exit=storage");
    let record = record_in(&world, &id, "failed");
    assert_eq!(record["failedStep"], "storage");
    assert_eq!(record["failedError"], "firstboot ended with exit status 1");
    world.machine.wait_for_state(State::Failed);
    world.machine.firstboot_does("delay-ms=0");
    world.admin("POST", &format!("/v1/admin/cluster/joins/{id}/retry"), None);
    assert!(world.machine.wait_for_end().success(), "{}", world.machine.log());
    assert_eq!(world.machine.starts(), [1, 2]);
}

#[test]
fn a_firstboot_that_is_killed_fails_with_the_signal() {
    let (mut world, id) = approved("delay-ms=0 hang=images");
    world.machine.wait_for("the hanging step", |s| s.steps.iter().any(|step| step.name.as_str() == "images"));
    world.machine.kill_firstboot_itself();
    let record = record_in(&world, &id, "failed");
    assert_eq!(record["failedStep"], "images");
    assert_eq!(record["failedError"], "firstboot ended with signal 9");
    world.machine.firstboot_does("delay-ms=0");
    world.admin("POST", &format!("/v1/admin/cluster/joins/{id}/retry"), None);
    assert!(world.machine.wait_for_end().success(), "{}", world.machine.log());
}

#[test]
fn an_agent_killed_three_times_during_the_install_loses_no_line_and_repeats_none() {
    let (mut world, id) = approved("delay-ms=150 log-lines=40");
    for step in ["storage", "join/patroni", "controlplane"] {
        world.machine.wait_for(step, |s| s.steps.iter().any(|line| line.name.as_str() == step));
        world.machine.kill();
        world.machine.start();
    }
    assert!(world.machine.wait_for_end().success(), "{}", world.machine.log());
    let record = world.record(&id);
    assert_eq!(record["state"], "joined");
    assert_eq!(log_of(&record), written(&world, 1));
    assert_eq!(world.machine.starts(), [1]);
    assert!(record["steps"].as_array().unwrap().iter().all(|step| step["status"] == "done"), "{record}");
}
