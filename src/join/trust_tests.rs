//! What somebody who has not proved the code cannot do, whatever he answers, and which key is never used again. In the simulated world.
#![allow(clippy::unwrap_used)]

use console::text::Safe;

use super::effect::Effect;
use super::event::{Event, ProbeView};
use super::fault::Code;
use super::sim::{GOOD, IMPOSTOR, Outcome, World};
use super::state::Phase;

/// Answers everything well until `wanted` is under way; gives its place.
pub(super) fn until(world: &mut World, wanted: impl Fn(&Effect) -> bool) -> usize {
    for _ in 0..200 {
        if let Some(place) = world.outstanding.iter().position(&wanted) {
            return place;
        }
        if world.outstanding.is_empty() {
            assert!(world.fire(), "nothing is under way in {:?}", world.state.phase());
        } else {
            world.answer(0, Outcome::Deliver);
        }
    }
    panic!("it does not come to that: {:?}", world.outstanding);
}

pub(super) fn pending() -> World {
    let mut world = World::new();
    until(&mut world, |e| matches!(e, Effect::Poll { wait: 1.., .. }));
    world
}

fn is_observe(effect: &Effect) -> bool {
    matches!(effect, Effect::Observe { .. })
}

fn is_proof(effect: &Effect) -> bool {
    matches!(effect, Effect::StartProof { .. })
}

#[test]
fn no_answer_before_the_proof_erases_the_code_or_the_key() {
    for code in Code::ALL {
        for wanted in [is_observe as fn(&Effect) -> bool, is_proof] {
            let mut world = World::new();
            for _ in 0..6 {
                let place = until(&mut world, wanted);
                let key = world.key;
                world.answer(place, Outcome::Refuse(*code));
                let harm = |e: &Effect| matches!(e, Effect::EraseCode | Effect::DiscardIdentity);
                assert!(!world.outstanding.iter().any(harm), "{code:?}: {:?}", world.outstanding);
                assert_eq!(world.key, key, "{code:?}");
                assert!(world.code_saved && world.state.d.trust.is_none(), "{code:?}");
                assert!(!matches!(world.state.phase(), Phase::Rejected | Phase::Expired), "{code:?}");
                if world.state.d.stop.is_some() {
                    break;
                }
            }
        }
    }
}

#[test]
fn whoever_refuses_before_the_proof_is_looked_at_every_minute_and_the_right_founder_is_joined_by_itself() {
    for code in [Code::JoinCodeBurned, Code::InvalidInput, Code::JoinRejected, Code::ProtocolUnsupported] {
        let mut world = World::new();
        world.at_address = IMPOSTOR;
        while world.state.d.stop.is_none() {
            let place = until(&mut world, is_proof);
            world.answer(place, Outcome::Refuse(code));
        }
        for _ in 0..3 {
            let before = world.boot_ms;
            assert!(world.fire(), "{code:?}");
            assert_eq!(world.boot_ms - before, 60_000, "{code:?}");
            assert!(world.outstanding.iter().all(is_observe), "{code:?}: {:?}", world.outstanding);
            world.answer(0, Outcome::Deliver);
        }
        world.at_address = GOOD;
        assert!(world.fire());
        until(&mut world, |e| matches!(e, Effect::Poll { wait: 1.., .. }));
        assert_eq!(world.state.phase(), Phase::Pending, "{code:?}");
        assert_eq!(world.violations, Vec::<String>::new());
    }
}

#[test]
fn once_a_founder_proved_the_code_only_its_key_is_looked_out_for() {
    let mut world = pending();
    world.founder.records.clear();
    let place = until(&mut world, is_proof);
    // It forgot the code too.
    world.answer(place, Outcome::Refuse(Code::CodeNotProven));
    assert!(world.state.d.stop.is_some());
    world.at_address = IMPOSTOR;
    for _ in 0..3 {
        assert!(world.fire());
        assert_eq!(world.outstanding, [Effect::Observe { pins: vec![GOOD] }]);
        world.answer(0, Outcome::Deliver);
    }
    assert_eq!(world.state.d.trust.as_ref().unwrap().pin, GOOD);
}

fn probed_as(uuid: &str) -> Event {
    Event::Probed(Ok(ProbeView {
        digest: [3; 32],
        steady: [3; 32],
        hardware: [3; 32],
        product_uuid: Some(Safe::clean(uuid)),
        install_id: None,
        release: Some(Safe::clean("0.7.0")),
    }))
}

/// A copied disk in another machine, whose key is about to be thrown away.
fn cloned() -> World {
    let mut world = pending();
    world.crash();
    until(&mut world, |e| matches!(e, Effect::Probe { .. }));
    world.outstanding.clear();
    world.feed(probed_as("uuid-2"));
    assert_eq!(world.outstanding, [Effect::DiscardIdentity]);
    world
}

#[test]
fn a_key_that_could_not_be_thrown_away_is_not_used() {
    let mut world = cloned();
    let key = world.key;
    world.answer(0, Outcome::LoseRequest);
    assert!(world.fire());
    assert_eq!(world.outstanding, [Effect::DiscardIdentity]);
    world.answer(0, Outcome::Deliver);
    assert_ne!(world.key, key);
    until(&mut world, is_observe);
}

#[test]
fn a_crash_before_a_key_was_thrown_away_does_not_save_it() {
    let mut world = cloned();
    world.crash();
    until(&mut world, |e| matches!(e, Effect::Probe { .. }));
    world.outstanding.clear();
    world.feed(probed_as("uuid-2"));
    assert_eq!(world.outstanding, [Effect::DiscardIdentity]);
    // Once it is gone, the new key stays.
    world.answer(0, Outcome::Deliver);
    world.crash();
    until(&mut world, |e| matches!(e, Effect::Probe { .. }));
    world.outstanding.clear();
    world.feed(probed_as("uuid-2"));
    assert_eq!(world.outstanding, [Effect::LoadIdentity]);
}
