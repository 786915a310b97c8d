//! An agent without any privilege of its own: everything that needs root goes through a helper process for each verb.

use console::snapshot::State;

use crate::support::helper::HelperSocket;
use crate::support::{PATIENCE, World, bin, wait};

/// A world whose agent has only the helper. It does not run yet.
fn world(fault: Option<&str>) -> (World, HelperSocket) {
    let mut world = World::new();
    let helper = HelperSocket::listen(world.machine.root.path(), fault);
    world.machine.through_helper = true;
    world.ask_to_join();
    (world, helper)
}

#[test]
fn a_machine_joins_through_the_helper_alone() {
    let (mut world, helper) = world(None);
    world.machine.start();
    let waiting = world.machine.wait_for_state(State::Pending);
    assert_ne!(waiting.hardware.memory.as_str(), "", "the inventory came through the helper");
    world.finish();
    assert_eq!(world.machine.starts(), [1]);
    assert!(world.machine.path("etc/stratum/node.yaml").exists());
    assert!(!world.machine.path("run/stratum/delivery/bundle.json").exists());
    let issue = std::fs::read_to_string(world.machine.path("run/stratum-join/issue")).unwrap();
    assert!(issue.contains("Stratum node"), "{issue}");
    assert_eq!(wait::until(PATIENCE, || (helper.running() == 0).then_some(())), Some(()));
    let said = std::fs::read_to_string(world.machine.path("helper.log")).unwrap();
    assert_eq!(said, "", "a helper that did its work says nothing");
}

#[test]
fn without_the_helper_it_says_so_and_goes_on_by_itself_when_it_is_there() {
    let mut world = World::new();
    world.machine.through_helper = true;
    world.ask_to_join();
    world.machine.start();
    let stuck = world.machine.wait_for("a fault", |s| s.fault.is_some());
    let fault = stuck.fault.unwrap();
    assert!(fault.message.as_str().contains("helper.sock is not there"), "{}", fault.message);
    assert!(!stuck.next.is_empty() && fault.retry_at_mono.is_some(), "{fault:?}");
    assert!(world.joins().is_empty());
    let _helper = HelperSocket::listen(world.machine.root.path(), None);
    world.machine.wait_for_state(State::Pending);
}

#[test]
fn a_helper_that_is_killed_while_it_follows_firstboot_is_asked_again() {
    let (mut world, helper) = world(None);
    world.machine.firstboot_does("delay-ms=400");
    world.machine.start();
    world.approve();
    world.machine.wait_for("a step", |s| s.steps.len() > 1);
    assert!(helper.kill_all() > 0);
    let end = world.machine.wait_for_end();
    assert!(end.success(), "{}", world.machine.log());
    assert_eq!(world.machine.starts(), [1]);
}

#[test]
fn an_agent_that_is_killed_leaves_no_helper_behind_and_follows_again() {
    let (mut world, helper) = world(None);
    world.machine.firstboot_does("delay-ms=400 log-lines=3");
    world.machine.start();
    world.approve();
    world.machine.wait_for("a step", |s| s.steps.len() > 1);
    world.machine.kill();
    // The next line of the log finds nobody who reads it.
    assert_eq!(wait::until(PATIENCE, || (helper.running() == 0).then_some(())), Some(()));
    world.machine.start();
    let end = world.machine.wait_for_end();
    assert!(end.success(), "{}", world.machine.log());
    assert_eq!(world.machine.starts(), [1]);
}

#[test]
fn a_helper_that_dies_at_any_moment_of_a_verb_costs_nothing_but_the_time_of_asking_again() {
    for point in ["node-yaml-write", "bundle-write", "attempt-write", "firstboot-start", "firstboot-marker"] {
        for moment in ["before", "during", "after"] {
            let fault = format!("crash:{point}:{moment}");
            let (mut world, helper) = world(Some(&fault));
            world.machine.start();
            world.finish();
            assert!(helper.died_at_the_crash_point(), "{fault} was not reached");
            assert_eq!(world.machine.starts(), [1], "{fault}");
        }
    }
}

#[test]
fn the_banner_of_an_agent_that_was_killed_says_so() {
    let (mut world, _helper) = world(None);
    world.machine.start();
    world.machine.wait_for_state(State::Pending);
    world.machine.kill();
    let status = std::process::Command::new(bin("stratum-join"))
        .args(["agent", "--record-exit", "--root"])
        .arg(world.machine.root.path())
        .envs([("SERVICE_RESULT", "signal"), ("EXIT_CODE", "killed"), ("EXIT_STATUS", "SEGV")])
        .status()
        .unwrap();
    assert!(status.success());
    let issue = std::fs::read_to_string(world.machine.path("run/stratum-join/issue")).unwrap();
    assert!(issue.contains("AGENT STOPPED (signal SEGV)"), "{issue}");
}

#[test]
fn a_request_on_a_terminal_is_no_socket_and_says_so() {
    let root = tempfile::tempdir().unwrap();
    let out = std::process::Command::new(bin("stratum-join"))
        .args(["helper", "--root"])
        .arg(root.path())
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&out.stderr).contains("standard input is no socket"), "{out:?}");
}
