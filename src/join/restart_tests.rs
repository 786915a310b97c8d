//! What a start of the agent does with what it finds, and what a new request does to a join that is under way. In the simulated world.
#![allow(clippy::unwrap_used)]

use super::effect::{Effect, Timer};
use super::event::{Event, Now};
use super::fault::{Code, Fault};
use super::sim::{GOOD, IMPOSTOR, Outcome, World};
use super::state::{Durable, Env, Phase};
use super::trust_tests::{pending, until};
use super::{Step, resume, step};

fn env(marked_joined: bool) -> Env {
    Env { boot_id: "boot-1".into(), poll_wait: 50, require_pin: false, marked_joined, may_upgrade: false }
}

const NOW: Now = Now { boot_ms: 1_000, wall_ms: 1_764_412_927_000, random: 3 };

#[test]
fn a_member_whose_journal_was_lost_registers_nowhere() {
    let world = World::new();
    let Step { state, effects } = resume(Durable::default(), env(true), NOW);
    assert_eq!(effects, [Effect::Exit]);
    let Step { state, effects } = step(state, Event::Request(Some(world.request())), NOW);
    assert_eq!((state.phase(), effects), (Phase::Joined, Vec::new()));
    assert_eq!(state.v.request.unwrap().endpoint, "192.0.2.240:9444", "it is shown");
}

#[test]
fn a_start_tries_again_what_a_person_may_have_corrected_and_nothing_that_needs_another_code() {
    for code in Code::ALL {
        let durable = Durable { stop: Some(Fault::new(*code, "x").verified()), ..Durable::default() };
        let kept = resume(durable, env(false), NOW).state.d.stop.is_some();
        let tried_again = matches!(
            code,
            Code::ReleaseMismatch
                | Code::ProtocolUnsupported
                | Code::InvalidInput
                | Code::InventoryTooLarge
                | Code::InventoryInvalid
                | Code::OtherRefusal
                | Code::Unsupported
                | Code::UrlMalformed
        );
        assert_eq!(kept, !tried_again, "{code:?}");
    }
}

#[test]
fn a_code_that_could_be_removed_after_all_leaves_no_fault_on_the_screen() {
    let mut world = pending();
    world.record().unwrap().state = "approved";
    let place = until(&mut world, |e| matches!(e, Effect::EraseCode));
    world.answer(place, Outcome::LoseRequest);
    assert!(world.state.v.prepare_fault.is_some());
    world.feed(Event::Timer(Timer::Prepare));
    let place = until(&mut world, |e| matches!(e, Effect::EraseCode));
    world.answer(place, Outcome::Deliver);
    assert_eq!(world.state.v.prepare_fault, None);
}

/// firstboot runs.
fn installing() -> World {
    let mut world = pending();
    world.record().unwrap().state = "approved";
    let place = until(&mut world, |e| matches!(e, Effect::StartFirstboot { .. }));
    world.answer(place, Outcome::Deliver);
    world
}

#[test]
fn a_request_that_came_during_an_install_keeps_its_code_and_is_taken_when_the_install_failed() {
    let mut world = installing();
    let before = world.state.d.registration.clone();
    world.new_request();
    assert_eq!(world.state.d.registration, before, "the install goes on");
    assert!(!world.outstanding.iter().any(|e| matches!(e, Effect::EraseCode)));
    world.record().unwrap().state = "failed";
    // The answer that is under way tells it.
    let place = world.outstanding.iter().position(|e| matches!(e, Effect::Poll { .. })).unwrap();
    world.answer(place, Outcome::Deliver);
    assert!(world.code_saved && world.state.d.registration.is_none(), "the new request is taken");
    assert!(world.outstanding.iter().any(|e| matches!(e, Effect::Observe { .. })));
}

#[test]
fn the_same_code_given_once_more_proves_anew_when_the_key_changed_and_only_then() {
    let mut world = pending();
    let view = world.request();
    world.feed(Event::Request(Some(view.clone())));
    assert_eq!(world.state.d.trust.as_ref().unwrap().pin, GOOD, "no key was forgotten");
    world.at_address = IMPOSTOR;
    world.answer(0, Outcome::Deliver);
    assert_eq!(world.state.phase(), Phase::IdentityFailed);
    world.feed(Event::Request(Some(view)));
    assert_eq!(world.outstanding, [Effect::Observe { pins: Vec::new() }]);
}

#[test]
fn a_new_request_during_the_pause_of_a_crash_loop_ends_the_pause_and_what_is_said_of_it() {
    let mut world = World::new();
    for _ in 0..7 {
        world.crash();
    }
    assert!(world.state.v.degraded.is_some());
    world.new_request();
    assert_eq!(world.state.v.degraded, None);
    assert!(world.run_fairly());
}

#[test]
fn since_when_is_told_for_what_is_shown() {
    let mut world = pending();
    world.record().unwrap().state = "approved";
    until(&mut world, |e| matches!(e, Effect::WriteDelivery { .. }));
    assert_eq!(world.state.phase(), Phase::Delivering);
    let delivering = world.state.v.state_since_ms;
    world.boot_ms += 30_000;
    until(&mut world, |e| matches!(e, Effect::StartFirstboot { .. }));
    assert_eq!(world.state.phase(), Phase::Installing);
    assert!(world.state.v.state_since_ms >= delivering + 30_000);
}
