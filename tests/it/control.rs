//! The keys of the console, over the control socket of a real agent.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use console::snapshot::State;
use lab_founder::model::Switches;

use crate::support::{PATIENCE, World, wait};

const NOT_NOW: &str = "{\"ok\":false,\"error\":\"not now\"}";

/// Sends one request; gives the answer, or nothing when nobody listens.
pub fn say(world: &World, op: &str) -> Option<String> {
    let mut stream = UnixStream::connect(world.machine.path("run/stratum-join/control.sock")).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    writeln!(stream, "{{\"v\":1,\"op\":\"{op}\"}}").unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    Some(line.trim_end().to_owned())
}

#[test]
fn a_wait_of_a_minute_is_ended_by_the_key_and_the_key_is_offered_only_while_something_waits() {
    let mut world = World::new();
    let code = world.code();
    let upgrading = |upgrade_running| Switches { upgrade_running, ..Switches::default() };
    world.founder.core().set_switches(world.founder.now_ms(), &upgrading(true)).unwrap();
    world.machine.ask_to_join(&world.endpoint(), &code);
    world.machine.start();
    world.machine.wait_for_fault("UPGRADE_RUNNING");
    let shown = world.machine.wait_for("the key", |s| s.actions.retry);
    assert!(!shown.actions.identify, "there is no light below a temporary root");

    world.founder.core().set_switches(world.founder.now_ms(), &upgrading(false)).unwrap();
    assert_eq!(say(&world, "retry").as_deref(), Some("{\"ok\":true}"));
    // Nobody here waits for a minute.
    let shown = world.machine.wait_for_state(State::Pending);
    assert!(!shown.actions.retry, "a poll is no wait that could be ended");
    assert_eq!(say(&world, "retry").as_deref(), Some(NOT_NOW));
    world.finish();
}

#[test]
fn a_restarted_agent_takes_the_keys_again_and_one_that_has_joined_offers_none() {
    let mut world = World::joining();
    world.machine.wait_for_state(State::Pending);
    world.machine.kill();
    world.machine.start();
    assert_eq!(wait::until(PATIENCE, || say(&world, "identify")).as_deref(), Some(NOT_NOW));
    world.approve();
    let shown = world.machine.wait_for_state(State::Joined);
    assert_eq!(shown.actions, console::snapshot::Actions::default());
    world.finish();
}
