//! Rules with long waits in them, on the simulated world's clock: whom to try again, when, and what nobody has to do for it.
#![allow(clippy::unwrap_used)]

use super::backoff::MINUTE_MS;
use super::effect::Effect;
use super::event::{DeliveryView, Event};
use super::fault::Code;
use super::sim::{GOOD, IMPOSTOR, Outcome, World, is_main, view};
use super::state::Phase;
use crate::report::{self, Facts};

/// Lets everything be answered until only a held poll or a timer is left. Gives the calls to the founder and to the helper, in order.
fn settle(world: &mut World) -> Vec<String> {
    let mut done = Vec::new();
    for _ in 0..200 {
        match world.outstanding.as_slice() {
            [] | [Effect::Poll { wait: 1.., .. }] => return done,
            [effect, ..] => {
                let text = format!("{effect:?}");
                done.push(text.split([' ', '{']).next().unwrap().to_owned());
                world.answer(0, Outcome::Deliver);
            }
        }
    }
    panic!("it does not come to rest: {done:?}");
}

/// The next timer, and how long it took.
fn next_timer(world: &mut World) -> u64 {
    let before = world.boot_ms;
    assert!(world.fire(), "a timer is armed");
    world.boot_ms - before
}

fn pending() -> World {
    let mut world = World::new();
    settle(&mut world);
    assert_eq!(world.state.phase(), Phase::Pending);
    world
}

fn shown(world: &World) -> console::Snapshot {
    let now = super::event::Now { boot_ms: world.boot_ms, wall_ms: 0, random: 0 };
    report::snapshot(&world.state, &Facts::default(), now, 1)
}

#[test]
fn who_did_not_prove_the_code_is_looked_at_every_minute_and_never_tried_again() {
    let mut world = World::new();
    world.at_address = IMPOSTOR;
    assert_eq!(settle(&mut world), ["Probe", "LoadIdentity", "Observe", "StartProof"]);
    assert_eq!(world.state.d.stop.as_ref().unwrap().code, Code::CodeNotProven);
    for _ in 0..60 {
        assert_eq!(next_timer(&mut world), MINUTE_MS);
        assert_eq!(settle(&mut world), ["Observe"]);
    }
    // Nothing that only ends a wait makes a second try, nor does a restart.
    for event in [Event::NetworkChanged, Event::Retry] {
        world.feed(event);
        assert_eq!(settle(&mut world), ["Observe"]);
    }
    world.crash();
    assert_eq!(settle(&mut world), ["Probe", "LoadIdentity", "Observe"]);
    assert_eq!(world.violations, Vec::<String>::new());
}

#[test]
fn the_right_founder_behind_the_same_address_is_joined_by_itself_within_a_minute() {
    let mut world = World::new();
    world.at_address = IMPOSTOR;
    settle(&mut world);
    world.at_address = GOOD;
    assert_eq!(next_timer(&mut world), MINUTE_MS);
    let done = settle(&mut world);
    assert_eq!(done[..4], ["Observe", "StartProof", "Confirm", "Register"]);
    assert_eq!(world.state.phase(), Phase::Pending);
    assert!(world.run_fairly());
    assert_eq!(world.violations, Vec::<String>::new());
}

#[test]
fn a_silent_address_during_the_look_out_changes_nothing() {
    let mut world = World::new();
    world.at_address = IMPOSTOR;
    settle(&mut world);
    for _ in 0..5 {
        assert_eq!(next_timer(&mut world), MINUTE_MS);
        world.answer(0, Outcome::LoseRequest);
        assert_eq!(world.state.phase(), Phase::IdentityFailed);
    }
}

#[test]
fn another_key_after_the_proof_is_asked_every_minute_with_the_old_pin_only() {
    let mut world = pending();
    let trust = world.state.d.trust.clone();
    let registration = world.state.d.registration.clone();
    world.at_address = IMPOSTOR;
    world.answer(0, Outcome::Deliver);
    for _ in 0..10 {
        assert_eq!(world.state.phase(), Phase::IdentityFailed);
        assert!(world.state.is_parked() || !world.timers.is_empty());
        assert_eq!(next_timer(&mut world), MINUTE_MS);
        assert!(world.outstanding.iter().all(|effect| matches!(effect, Effect::Poll { .. })));
        world.answer(0, Outcome::Deliver);
        assert_eq!(world.state.d.trust, trust, "no pin but by a new proof");
    }
    world.at_address = GOOD;
    next_timer(&mut world);
    settle(&mut world);
    assert_eq!(world.state.phase(), Phase::Pending);
    assert_eq!(world.state.d.registration, registration);
    assert_eq!(world.violations, Vec::<String>::new());
}

#[test]
fn an_upgrade_that_this_agent_did_not_offer_to_do_is_shown_and_nothing_is_touched() {
    let mut world = pending();
    world.record().unwrap().state = "needs-upgrade";
    world.answer(0, Outcome::Deliver);
    for _ in 0..20 {
        assert_eq!(world.state.phase(), Phase::NeedsUpgrade);
        let snapshot = shown(&world);
        assert!(snapshot.next[0].as_str().contains("install it from an ISO"), "{:?}", snapshot.next);
        let polls = |e: &Effect| matches!(e, Effect::Poll { .. });
        assert!(world.outstanding.iter().all(polls), "{:?}", world.outstanding);
        if world.outstanding.is_empty() {
            next_timer(&mut world);
        } else {
            world.answer(0, Outcome::Deliver);
        }
    }
    // Who installs it anew, or the cluster, may solve it: it is heard of.
    world.record().unwrap().state = "pending";
    while world.state.phase() == Phase::NeedsUpgrade {
        if world.outstanding.is_empty() {
            next_timer(&mut world);
        } else {
            world.answer(0, Outcome::Deliver);
        }
    }
    assert_eq!(world.state.phase(), Phase::Pending);
    assert_eq!(world.violations, Vec::<String>::new());
}

#[test]
fn a_delivery_in_a_state_that_has_none_is_not_looked_at() {
    for state in [
        "registering",
        "needs-upgrade",
        "pending",
        "approved",
        "failed",
        "rejected",
        "expired",
        "quarantined",
    ] {
        let mut world = pending();
        world.record().unwrap().state = state;
        let answer = view(world.record().unwrap());
        let (sha256, problem) = ("0".repeat(64), None);
        let decoy = DeliveryView { sha256, problem, cluster_id: None, node_id: None };
        world.outstanding.retain(|effect| !is_main(effect));
        world.feed(Event::Polled(Ok((answer, Some(decoy)))));
        assert!(world.state.d.handoff.is_none(), "{state}");
        let helped = world
            .outstanding
            .iter()
            .any(|e| matches!(e, Effect::WriteDelivery { .. } | Effect::StartFirstboot { .. }));
        assert!(!helped, "{state}: {:?}", world.outstanding);
    }
}

#[test]
fn a_state_that_nobody_knows_is_shown_and_waited_out() {
    let mut world = pending();
    world.record().unwrap().state = "quarantined";
    world.answer(0, Outcome::Deliver);
    assert_eq!(world.state.phase(), Phase::Unknown);
    assert!(shown(&world).headline.as_str().contains("(quarantined)"));
    assert!(!world.state.is_parked());
    assert!(world.run_fairly());
}

#[test]
fn rejected_and_expired_ask_nothing_until_a_new_code_and_the_code_is_erased() {
    for (word, phase) in [("rejected", Phase::Rejected), ("expired", Phase::Expired)] {
        let mut world = pending();
        let key = world.key;
        world.record().unwrap().state = word;
        world.answer(0, Outcome::Deliver);
        assert_eq!(settle(&mut world), ["EraseCode"]);
        assert_eq!(world.state.phase(), phase);
        assert!(!world.code_saved);
        for event in [Event::Retry, Event::NetworkChanged] {
            world.feed(event);
            assert!(world.outstanding.is_empty() && world.timers.is_empty(), "{word}");
        }
        world.crash();
        assert!(!settle(&mut world).iter().any(|call| call == "Observe" || call == "Poll"));
        assert!(!world.fire());

        world.new_request();
        assert_eq!(settle(&mut world)[..4], ["Observe", "StartProof", "Confirm", "Register"]);
        assert_eq!(world.state.phase(), Phase::Pending);
        assert_eq!(world.key, key, "the key is kept");
        assert_eq!(world.founder.records.len(), 2);
        assert_eq!(world.violations, Vec::<String>::new());
    }
}

#[test]
fn polls_that_are_answered_at_once_for_ever_come_about_once_a_second() {
    let mut world = pending();
    let (begun, mut polls) = (world.boot_ms, 0);
    while world.boot_ms < begun + MINUTE_MS {
        if world.outstanding.iter().any(is_main) {
            polls += 1;
            world.answer(0, Outcome::Deliver);
        } else {
            next_timer(&mut world);
        }
    }
    assert!((50..=70).contains(&polls), "{polls} polls in a minute");
}

#[test]
fn a_record_that_the_founder_lost_is_asked_for_every_minute_when_no_code_is_saved() {
    let mut world = pending();
    world.record().unwrap().state = "approved";
    // Approved: the code is erased. Then the founder loses the record before anything is started.
    world.answer(0, Outcome::Deliver);
    let lost = std::mem::take(&mut world.founder.records);
    let mut asked = 0;
    for _ in 0..400 {
        if asked == 3 {
            break;
        }
        match world.outstanding.first() {
            None => asked += u32::from(next_timer(&mut world) == MINUTE_MS),
            Some(_) => world.answer(0, Outcome::Deliver),
        }
    }
    assert_eq!(asked, 3, "{:?}", world.state.v.trouble);
    // A founder restored from its backup has it again, and the join goes on.
    world.founder.records = lost;
    assert!(world.run_fairly());
    assert_eq!(world.violations, Vec::<String>::new());
}
