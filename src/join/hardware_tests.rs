//! Looking at the hardware again: when, how often, and what the cluster is told.

use super::effect::Effect;
use super::event::Event;
use super::fault::{Code, Fault};
use super::hardware::{AGAIN_MS, APART_MS, FLAP_MS, QUIET_MAX_MS, QUIET_MS};
use super::notice::Notice;
use super::sim::{Outcome, World};
use super::state::Phase;

/// A world that waits for its approval, with a poll outstanding.
fn pending() -> World {
    let mut world = World::new();
    for _ in 0..100 {
        if world.outstanding.iter().all(is_poll) && world.state.phase() == Phase::Pending {
            return world;
        }
        world.answer(0, Outcome::Deliver);
    }
    panic!("it does not come to rest");
}

fn is_poll(effect: &Effect) -> bool {
    matches!(effect, Effect::Poll { .. })
}

fn looks(world: &World) -> bool {
    world.outstanding.iter().any(|effect| matches!(effect, Effect::Probe { .. }))
}

fn registers(world: &World) -> bool {
    world.outstanding.iter().any(|effect| matches!(effect, Effect::Reregister { .. }))
}

/// Fires the next timer; gives how long it took.
fn fire(world: &mut World) -> u64 {
    let before = world.boot_ms;
    assert!(world.fire(), "a timer is armed");
    world.boot_ms - before
}

/// Answers the look that is outstanding.
fn look(world: &mut World) {
    let n = world.outstanding.iter().position(|e| matches!(e, Effect::Probe { .. })).expect("a look");
    world.answer(n, Outcome::Deliver);
}

/// Something changes, and is looked at until that is settled.
fn change(world: &mut World, hardware: u8) {
    world.hardware = hardware;
    world.feed(Event::HardwareChanged { disks: true });
    for _ in 0..5 {
        if registers(world) || !world.timers.contains_key(&super::effect::Timer::Hardware) {
            return;
        }
        fire(world);
        if looks(world) {
            look(world);
        }
    }
}

fn answer_registration(world: &mut World) {
    let n =
        world.outstanding.iter().position(|e| matches!(e, Effect::Reregister { .. })).expect("it registers");
    world.answer(n, Outcome::Deliver);
}

#[test]
fn a_burst_of_events_is_one_look_three_seconds_after_the_last_and_fifteen_after_the_first() {
    let mut world = pending();
    world.feed(Event::HardwareChanged { disks: true });
    world.boot_ms += 1_000;
    world.feed(Event::HardwareChanged { disks: false });
    assert_eq!(fire(&mut world), QUIET_MS);
    assert!(world.outstanding.contains(&Effect::Probe { disks: true }));

    let mut world = pending();
    let begin = world.boot_ms;
    for _ in 0..10 {
        world.feed(Event::HardwareChanged { disks: false });
        world.boot_ms += 2_000;
        if world.boot_ms - begin >= QUIET_MAX_MS {
            break;
        }
    }
    world.boot_ms = begin + 14_000;
    fire(&mut world);
    assert_eq!(world.boot_ms - begin, QUIET_MAX_MS);
    assert!(world.outstanding.contains(&Effect::Probe { disks: false }));
}

#[test]
fn what_is_as_before_is_told_to_nobody() {
    let mut world = pending();
    let same = world.hardware;
    change(&mut world, same);
    assert!(!registers(&world) && world.outstanding.iter().all(is_poll), "{:?}", world.outstanding);
}

#[test]
fn two_looks_that_agree_are_told_at_once_and_the_poll_is_not_waited_for() {
    let mut world = pending();
    world.hardware = 0x50;
    world.feed(Event::HardwareChanged { disks: true });
    fire(&mut world);
    look(&mut world);
    assert!(!registers(&world), "one look is not enough");
    assert_eq!(fire(&mut world), AGAIN_MS);
    look(&mut world);
    assert!(registers(&world) && !world.outstanding.iter().any(is_poll), "{:?}", world.outstanding);
    answer_registration(&mut world);
    assert!(world.outstanding.iter().all(is_poll) && world.state.phase() == Phase::Pending);
}

#[test]
fn the_log_says_whether_it_was_a_cable_an_address_or_a_device() {
    for (then, what) in [(0x31, "links"), (0x20, "addresses"), (0x50, "hardware")] {
        let mut world = pending();
        change(&mut world, then);
        let text = format!("the {what} of this machine changed: the cluster is told");
        assert!(
            world.said.contains(&Notice::Info(console::text::Safe::clean(&text))),
            "{text}: {:?}",
            world.said
        );
    }
}

#[test]
fn hardware_that_never_holds_still_is_told_after_five_looks() {
    let mut world = pending();
    world.feed(Event::HardwareChanged { disks: true });
    let mut looked = 0;
    while !registers(&world) {
        fire(&mut world);
        world.hardware = 0x40 + 0x10 * looked;
        look(&mut world);
        looked += 1;
        assert!(looked <= 5, "it looks for ever");
    }
    assert_eq!(looked, 5);
}

#[test]
fn the_cluster_is_told_at_most_once_a_minute_and_of_a_flapping_cable_once_in_ten() {
    for (then, apart) in [(0x60, APART_MS), (0x51, FLAP_MS)] {
        let mut world = pending();
        change(&mut world, 0x50);
        let told = world.boot_ms;
        answer_registration(&mut world);
        change(&mut world, then);
        assert!(registers(&world));
        assert!(world.boot_ms - told >= apart, "{} ms", world.boot_ms - told);
        // An answer takes some milliseconds in this world.
        assert!(world.boot_ms - told < apart + AGAIN_MS + 100, "{} ms", world.boot_ms - told);
    }
}

#[test]
fn a_cable_that_is_back_by_then_was_never_gone() {
    let mut world = pending();
    change(&mut world, 0x50);
    answer_registration(&mut world);
    world.hardware = 0x51;
    world.feed(Event::HardwareChanged { disks: false });
    for _ in 0..2 {
        fire(&mut world);
        look(&mut world);
    }
    world.hardware = 0x50;
    assert!(fire(&mut world) > APART_MS);
    look(&mut world);
    assert!(!registers(&world) && world.timers.keys().all(|t| *t != super::effect::Timer::Hardware));
}

#[test]
fn from_the_delivery_on_nothing_is_looked_at_again() {
    let mut world = pending();
    world.record().unwrap().state = "approved";
    for _ in 0..50 {
        if world.state.d.handoff.is_some() {
            break;
        }
        world.answer(0, Outcome::Deliver);
    }
    assert!(world.state.d.handoff.is_some());
    world.feed(Event::HardwareChanged { disks: true });
    assert!(!world.timers.contains_key(&super::effect::Timer::Hardware));
}

#[test]
fn a_look_that_fails_changes_nothing_and_is_tried_again() {
    let mut world = pending();
    world.feed(Event::HardwareChanged { disks: true });
    fire(&mut world);
    world.outstanding.retain(|e| !matches!(e, Effect::Probe { .. }));
    world.feed(Event::Probed(Err(Fault::new(Code::Local, "the helper is not there"))));
    assert_eq!(world.state.phase(), Phase::Pending);
    assert!(world.outstanding.iter().all(is_poll));
    world.hardware = 0x50;
    assert_eq!(fire(&mut world), APART_MS);
    look(&mut world);
    fire(&mut world);
    look(&mut world);
    assert!(registers(&world));
}
