//! Single facts of the hand-off, in the simulated world.
#![allow(clippy::unwrap_used)]

use super::effect::Effect;
use super::event::Event;
use super::sim::{Outcome, World, report};
use crate::protocol::wire::StepStatus;

/// A world whose firstboot runs.
fn installing() -> World {
    let mut world = World::new();
    for _ in 0..200 {
        if let Some(record) = world.record()
            && record.state == "pending"
        {
            record.state = "approved";
        }
        if world.outstanding.iter().any(|e| matches!(e, Effect::StartFirstboot { .. })) {
            break;
        }
        if world.outstanding.is_empty() {
            world.fire();
        }
        world.answer(0, Outcome::Deliver);
    }
    // Starts it.
    let place = world.outstanding.iter().position(|e| matches!(e, Effect::StartFirstboot { .. })).unwrap();
    world.answer(place, Outcome::Deliver);
    world
}

#[test]
fn a_step_whose_end_was_lost_is_done_when_the_next_one_starts() {
    let mut world = installing();
    world.feed(Event::FirstbootStep(report("storage", 1, StepStatus::Running)));
    world.feed(Event::FirstbootStep(report("join/patroni", 2, StepStatus::Running)));
    let steps = &world.state.d.handoff.as_ref().unwrap().steps;
    assert_eq!(steps[0].report.status, StepStatus::Done);
    assert_eq!(steps[1].report.status, StepStatus::Running);
}

#[test]
fn a_poll_that_left_out_another_attempts_delivery_is_followed_by_one_that_asks_for_it_at_once() {
    let mut world = installing();
    // A poll under way left the delivery out, because firstboot of attempt 1 runs; meanwhile the founder went on to attempt 2.
    let place =
        world.outstanding.iter().position(|e| matches!(e, Effect::Poll { skip_delivery: true, .. })).unwrap();
    let record = world.record().unwrap();
    record.state = "delivering";
    record.attempt += 1;
    world.answer(place, Outcome::Deliver);
    let next = world.outstanding.iter().find(|e| matches!(e, Effect::Poll { .. })).unwrap();
    assert!(matches!(next, Effect::Poll { wait: 0, skip_delivery: false, .. }), "{next:?}");
}
