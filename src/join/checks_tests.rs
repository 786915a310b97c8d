//! When the way to the founder is looked at, and how long what was found is shown.
#![allow(clippy::unwrap_used)]

use super::checks::{AFTER, AGAIN_MS};
use super::effect::Effect;
use super::event::Event;
use super::fault::{Code, Fault};
use super::notice::Notice;
use super::sim::{Outcome, World, diagnosis, is_main};
use super::state::Phase;
use super::step;
use crate::diagnosis::facts::Past;
use crate::report::{self, Facts};
use console::snapshot::CheckStatus;

/// A world whose machine has read its hardware and made its key, and asks the founder.
fn asking() -> World {
    let mut world = World::new();
    while !world.outstanding.iter().any(is_main) {
        world.answer(0, Outcome::Deliver);
    }
    world
}

fn looks(world: &World) -> bool {
    world.look.is_some()
}

/// The call under way ends in `fault`, and the next begins.
fn fail_with(world: &mut World, fault: &Fault) {
    while !world.outstanding.iter().any(is_main) {
        assert!(world.fire());
    }
    let at = world.outstanding.iter().position(is_main).unwrap();
    let effect = world.outstanding.remove(at);
    world.feed(effect.failed(fault.clone()).unwrap());
}

fn fail(world: &mut World) {
    fail_with(world, &Fault::new(Code::AddressUnreachable, "connection refused"));
}

fn shown(world: &World) -> console::Snapshot {
    let now = super::event::Now { boot_ms: world.boot_ms, wall_ms: 0, random: 0 };
    report::snapshot(&world.state, &Facts::default(), now, 1)
}

#[test]
fn the_third_failure_in_a_row_looks_and_no_earlier_one() {
    let mut world = asking();
    for _ in 1..AFTER {
        fail(&mut world);
        assert!(!looks(&world));
        assert!(shown(&world).network.checks.is_empty());
    }
    fail(&mut world);
    assert!(looks(&world));
    assert!(shown(&world).network.checks.iter().all(|check| check.status == CheckStatus::Running));
    // While it is under way nothing begins another.
    for _ in 0..5 {
        fail(&mut world);
        world.feed(Event::Check);
    }
    assert!(looks(&world));
}

#[test]
fn while_it_goes_on_failing_it_is_looked_at_about_once_a_minute_and_at_once_when_the_network_changed() {
    let mut world = asking();
    for _ in 0..AFTER {
        fail(&mut world);
    }
    world.looked(true);
    let ended = world.boot_ms;
    while !looks(&world) {
        assert!(world.boot_ms < ended + 3 * AGAIN_MS);
        fail(&mut world);
    }
    assert!(world.boot_ms >= ended + AGAIN_MS);
    world.looked(true);
    world.feed(Event::NetworkChanged);
    assert!(!looks(&world), "the next try may be a good one");
    fail(&mut world);
    assert!(looks(&world));
}

#[test]
fn the_cause_is_what_is_shown_and_goes_with_the_trouble() {
    let mut world = asking();
    for _ in 0..AFTER {
        fail(&mut world);
    }
    world.looked(true);
    let snapshot = shown(&world);
    assert_eq!(snapshot.network.checks.len(), 10);
    assert_eq!(snapshot.network.checks[0].status, CheckStatus::Failed);
    assert_eq!(snapshot.headline.as_str(), "Nothing answers at 192.0.2.240:9444: no cable on any of: eth0.");
    assert_eq!(snapshot.next[0].as_str(), "1 link: the cable.");
    assert_eq!(snapshot.fault.unwrap().what_to_do[0].as_str(), "1 link: the cable.");
    for _ in 0..60 {
        if world.state.phase() == Phase::Pending {
            break;
        }
        match world.outstanding.is_empty() {
            true => drop(world.fire()),
            false => world.answer(0, Outcome::Deliver),
        }
    }
    assert_eq!(world.state.phase(), Phase::Pending);
    let snapshot = shown(&world);
    assert!(snapshot.network.checks.is_empty() && snapshot.fault.is_none(), "{:?}", snapshot.network.checks);
}

#[test]
fn a_look_that_ends_after_the_trouble_did_shows_nothing_unless_somebody_asked() {
    let mut world = asking();
    for _ in 0..AFTER {
        fail(&mut world);
    }
    while world.state.phase() != Phase::Pending {
        match world.outstanding.iter().position(is_main) {
            None => assert!(world.fire()),
            Some(at) => world.answer(at, Outcome::Deliver),
        }
    }
    world.looked(true);
    let snapshot = shown(&world);
    assert!(snapshot.fault.is_none());
    assert_eq!(snapshot.headline.as_str(), "waiting for approval");
    assert!(
        snapshot.network.checks.is_empty(),
        "what was red when nobody answered is not shown beside an answer"
    );
    world.feed(Event::Check);
    world.looked(true);
    assert_eq!(shown(&world).network.checks[0].status, CheckStatus::Failed);
}

#[test]
fn an_operator_is_answered_in_any_state_and_a_member_or_a_machine_without_a_request_is_not_looked_at() {
    let mut world = asking();
    while world.state.phase() != Phase::Pending {
        world.answer(0, Outcome::Deliver);
    }
    world.feed(Event::Check);
    world.feed(Event::Check);
    assert!(looks(&world));
    world.looked(false);
    assert_eq!(shown(&world).network.checks[0].status, CheckStatus::Ok);
    // What was found is of the network as it was.
    world.feed(Event::NetworkChanged);
    assert!(shown(&world).network.checks.is_empty());

    world.feed(Event::Request(None));
    world.feed(Event::Check);
    assert!(!looks(&world));
    let mut world = World::new();
    assert!(world.run_fairly());
    world.feed(Event::Check);
    assert!(!looks(&world));
}

#[test]
fn what_was_found_on_the_way_to_another_address_is_nothing() {
    let mut world = asking();
    world.feed(Event::Check);
    let mut other = diagnosis(&Past::default(), true);
    other.endpoint = console::text::Safe::clean("192.0.2.99:9444");
    world.look = None;
    world.feed(Event::Diagnosed(Box::new(other)));
    assert!(shown(&world).network.checks.is_empty());
    world.feed(Event::Check);
    assert!(looks(&world), "the next one is not held up");
}

#[test]
fn a_refusal_of_the_founder_is_no_trouble_of_the_way() {
    let mut world = asking();
    let mut full = Fault::new(Code::JoinQueueFull, "16 wait");
    (full.http, full.from_founder) = (Some(503), true);
    for _ in 0..6 {
        fail_with(&mut world, &full);
    }
    assert!(!looks(&world));
    // It is told when somebody asks.
    world.feed(Event::Check);
    assert_eq!(world.look.unwrap().refusal.map(|refusal| refusal.code), Some(Code::JoinQueueFull));
}

#[test]
fn journald_is_told_a_cause_once_and_again_only_after_it_was_gone() {
    let mut world = asking();
    let mut told = Vec::new();
    for red in [true, true, false, true] {
        world.feed(Event::Check);
        let found = Event::Diagnosed(Box::new(diagnosis(&world.look.take().unwrap(), red)));
        let now = super::event::Now { boot_ms: world.boot_ms, wall_ms: 0, random: 1 };
        let done = step::step(world.state.clone(), found, now);
        world.state = done.state;
        told.extend(done.effects.into_iter().filter_map(|effect| match effect {
            Effect::Say(Notice::Diagnosis(text)) => Some(text.to_string()),
            _ => None,
        }));
    }
    assert_eq!(told, ["no cable on any of: eth0. Look at: The cable."; 2]);
}
