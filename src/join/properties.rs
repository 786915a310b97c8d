//! The properties of `join` over random worlds (list in the module's doc). 256 worlds, or as many as `STRATUM_TEST_CASES` says.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::effect::{Effect, Timer};
use super::event::Event;
use super::fault::Code;
use super::sim::{GOOD, IMPOSTOR, Outcome, World};
use crate::test_support::config;

/// One thing that happens to a world.
#[derive(Debug, Clone)]
enum Act {
    Answer(usize, Outcome),
    Fire,
    Crash,
    Reboot,
    Operator(Founder),
    NewRequest,
    Retry,
    NetworkChanged,
    Hardware(u8, bool),
    Impostor(bool),
    /// So many starts of a new OS fail from now on.
    BadStarts(u8),
    /// The firmware starts the confirmed OS, whatever is armed.
    PassedOver,
    /// The settings allow an upgrade, or do not.
    Settings(bool),
}

/// What happens at the founder.
#[derive(Debug, Clone, Copy)]
enum Founder {
    Approve,
    Reject,
    Expire,
    Retry,
    Forget,
    NeedsUpgrade,
    Fail,
    Unknown,
    /// The cluster goes on to the next release.
    Newer,
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        8 => Just(Outcome::Deliver),
        1 => Just(Outcome::LoseRequest),
        2 => Just(Outcome::LoseAnswer),
        1 => (0..Code::ALL.len()).prop_map(|n| Outcome::Refuse(Code::ALL[n])),
    ]
}

fn founder() -> impl Strategy<Value = Founder> {
    prop_oneof![
        6 => Just(Founder::Approve),
        1 => Just(Founder::Reject),
        1 => Just(Founder::Expire),
        4 => Just(Founder::Retry),
        1 => Just(Founder::Forget),
        1 => Just(Founder::NeedsUpgrade),
        1 => Just(Founder::Fail),
        1 => Just(Founder::Unknown),
        1 => Just(Founder::Newer),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        24 => (0..4usize, outcome()).prop_map(|(n, o)| Act::Answer(n, o)),
        4 => Just(Act::Fire),
        2 => Just(Act::Crash),
        1 => Just(Act::Reboot),
        4 => founder().prop_map(Act::Operator),
        1 => Just(Act::NewRequest),
        1 => Just(Act::Retry),
        1 => Just(Act::NetworkChanged),
        2 => (any::<u8>(), any::<bool>()).prop_map(|(what, disks)| Act::Hardware(what, disks)),
        1 => any::<bool>().prop_map(Act::Impostor),
        1 => (0..9u8).prop_map(Act::BadStarts),
        1 => Just(Act::PassedOver),
        1 => any::<bool>().prop_map(Act::Settings),
    ]
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    prop::collection::vec(act(), 1..120)
}

fn play(world: &mut World, acts: Vec<Act>) {
    for act in acts {
        match act {
            Act::Answer(n, outcome) => world.answer(n, outcome),
            Act::Fire => drop(world.fire()),
            Act::Crash => world.crash(),
            Act::Reboot => world.reboot(),
            Act::NewRequest => world.new_request(),
            Act::Retry => {
                let offered = world.state.can_retry();
                world.feed(Event::Retry);
                // A verdict that waits for a person is an end of the wait, too.
                let verdict = world.state.d.stop.is_some();
                if offered && world.outstanding.is_empty() && !verdict {
                    world.violations.push("P12 a retry that was offered left everything waiting".to_owned());
                }
            }
            // Beside it somebody asks for a look at the way, which ends at some later time.
            Act::NetworkChanged => {
                world.feed(Event::NetworkChanged);
                world.looked(world.boot_ms.is_multiple_of(2));
                world.feed(Event::Check);
            }
            Act::Hardware(what, disks) => {
                world.hardware = what;
                world.feed(Event::HardwareChanged { disks });
            }
            Act::PassedOver => world.pass_over(),
            Act::Settings(may) => world.settings(may),
            Act::BadStarts(count) => {
                if let Some(os) = &mut world.os {
                    os.bad_starts = count;
                }
            }
            Act::Impostor(there) => world.at_address = if there { IMPOSTOR } else { GOOD },
            Act::Operator(what) => at_founder(world, what),
        }
    }
}

fn at_founder(world: &mut World, what: Founder) {
    if matches!(what, Founder::Forget) {
        let key = world.key;
        world.founder.records.retain(|r| Some(r.client_fp) != key);
        return;
    }
    if matches!(what, Founder::Newer) && world.os.is_some() {
        world.cluster = "0.7.1";
        if let Some(record) = world.record()
            && let Some((_, to)) = &mut record.offer
        {
            *to = "0.7.1";
        }
        return;
    }
    let Some(record) = world.record() else { return };
    record.state = match (what, record.state) {
        (Founder::Approve, "pending") | (Founder::Retry, "failed") => "approved",
        (Founder::Reject, "pending" | "approved" | "failed" | "needs-upgrade") => "rejected",
        (Founder::Expire, "pending" | "needs-upgrade") => "expired",
        (Founder::NeedsUpgrade, "pending") => "needs-upgrade",
        (Founder::Fail, "delivering" | "installing") => "failed",
        (Founder::Unknown, "pending") => "quarantined",
        (Founder::Approve, "needs-upgrade") if record.offer.is_some() => "needs-upgrade",
        (Founder::Approve, "quarantined" | "needs-upgrade") => "pending",
        (_, state) => state,
    };
}

/// A machine of the cluster's release, or an older one that upgrades itself.
fn world(older: bool) -> World {
    if older { World::older() } else { World::new() }
}

fn violations_of(world: &World, property: &str) -> Vec<String> {
    world.violations.iter().filter(|v| v.starts_with(property)).cloned().collect()
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn p1_every_state_that_waits_for_no_person_has_something_under_way(older: bool, acts in acts()) {
        let mut world = world(older);
        play(&mut world, acts);
        prop_assert_eq!(violations_of(&world, "P1"), Vec::<String>::new());
    }

    #[test]
    fn p12_a_retry_that_is_offered_leaves_nothing_waiting(older: bool, acts in acts()) {
        let mut world = world(older);
        play(&mut world, acts);
        prop_assert_eq!(violations_of(&world, "P12"), Vec::<String>::new());
    }

    #[test]
    fn p2_nothing_goes_out_before_the_key_and_no_inventory_before_the_proof(older: bool, acts in acts()) {
        let mut world = world(older);
        play(&mut world, acts);
        prop_assert_eq!(violations_of(&world, "P2"), Vec::<String>::new());
    }

    #[test]
    fn p3_at_most_one_poll_is_outstanding(older: bool, acts in acts()) {
        let mut world = world(older);
        play(&mut world, acts);
        prop_assert_eq!(violations_of(&world, "P3"), Vec::<String>::new());
    }

    #[test]
    fn p4_firstboot_starts_at_most_once_per_attempt_and_only_from_our_delivery(older: bool, acts in acts()) {
        let mut world = world(older);
        play(&mut world, acts);
        world.run_fairly();
        prop_assert_eq!(violations_of(&world, "P4"), Vec::<String>::new());
    }

    #[test]
    fn p5_after_any_crash_the_same_end_is_reached(older: bool, acts in acts(), crashes in prop::collection::vec(0..60usize, 0..6)) {
        let mut world = world(older);
        play(&mut world, acts);
        // Crash again at arbitrary places of the way to the end.
        for after in crashes {
            for _ in 0..after {
                world.answer(0, Outcome::Deliver);
            }
            world.crash();
        }
        let joined = world.run_fairly();
        let rest: Vec<&String> = world.violations.iter().collect();
        prop_assert!(
            joined,
            "not joined: {:?}, upgrade {:?} {:?} {:?}, stop {:?}, trouble {:?}, handoff {:?}, founder {:?}, under way {:?}",
            world.state.phase(),
            world.state.d.upgrade,
            world.state.v.upgrading,
            world.os,
            world.state.d.stop,
            world.state.v.trouble,
            world.state.d.handoff,
            world.founder.records,
            world.outstanding
        );
        prop_assert!(rest.is_empty(), "{rest:?}");
        if let Some(os) = &world.os {
            prop_assert_eq!(&os.running, world.cluster);
        }
    }

    #[test]
    fn p6_a_machine_that_needs_an_upgrade_is_handed_nothing_and_installs_only_what_the_cluster_has_just_confirmed(older: bool, acts in acts()) {
        let mut world = world(older);
        play(&mut world, acts);
        prop_assert_eq!(violations_of(&world, "P6"), Vec::<String>::new());
    }
}

/// Longest silence (docs/testing.md): a person, and the founder's flag for a silent machine, wait no longer.
const SILENCE_MS: u64 = 90_000;
/// What a call may take beyond the time the founder is asked to hold it: 10 s for the head of the answer and 5 s more (`founder::POLL_GRACE`).
const GRACE_MS: u64 = 15_000;

/// What waits for longer than [`SILENCE_MS`] although nobody but this machine can end it. An outstanding call ends by its own deadline, which is
/// the hold that was asked for and [`GRACE_MS`]; a wait ends by its timer. The timers of the heartbeat and of the next look at the hardware are left
/// out: no join waits for them. So is that of an upgrade, whose ten minutes are documented; the founder is polled meanwhile.
fn silent(world: &World) -> Option<String> {
    for effect in &world.outstanding {
        let hold = match effect {
            Effect::Poll { wait, .. } => wait * 1_000,
            _ => 0,
        };
        if hold + GRACE_MS > SILENCE_MS {
            return Some(format!("{effect:?} may take {} ms", hold + GRACE_MS));
        }
    }
    let timers = world
        .timers
        .iter()
        .filter(|(timer, _)| !matches!(timer, Timer::Heartbeat | Timer::Hardware | Timer::Upgrade));
    let late =
        timers.map(|(timer, at)| (timer, at.saturating_sub(world.boot_ms))).find(|(_, ms)| *ms > SILENCE_MS);
    late.map(|(timer, ms)| format!("{timer:?} runs for {ms} ms"))
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn p9_no_call_and_no_wait_lasts_longer_than_ninety_seconds(older: bool, acts in acts()) {
        let mut world = world(older);
        for act in acts {
            play(&mut world, vec![act]);
            prop_assert_eq!(silent(&world), None, "in {:?}", world.state.phase());
        }
    }
}

/// What a person is shown now must say what to do next.
fn shown(world: &World) -> console::Snapshot {
    let facts = crate::report::Facts::default();
    let now = super::event::Now { boot_ms: world.boot_ms, wall_ms: 1_764_412_927_000, random: 1 };
    crate::report::snapshot(&world.state, &facts, now, 1)
}

fn says_what_next(shown: &console::Snapshot) -> bool {
    !shown.headline.is_empty() && !shown.next.is_empty() && shown.next.iter().all(|line| !line.is_empty())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn p7_every_state_and_every_fault_says_what_comes_next(older: bool, acts in acts(), code in 0..Code::ALL.len(), stop: bool) {
        let mut world = world(older);
        for act in acts {
            play(&mut world, vec![act]);
            let shown = shown(&world);
            prop_assert!(says_what_next(&shown), "{:?} {:?}", world.state.phase(), shown.next);
        }
        // Any fault on top of the state that was reached.
        let fault = super::fault::Fault::new(Code::ALL[code], "");
        if stop {
            world.state.d.stop = Some(fault);
        } else {
            let since_ms = world.boot_ms;
            let doing = "joining";
            world.state.v.trouble =
                Some(super::state::Trouble { fault, doing, since_ms, attempts: 9, retry_at_ms: Some(since_ms + 1) });
        }
        let shown = shown(&world);
        prop_assert!(says_what_next(&shown), "{:?} {:?}", Code::ALL[code], shown.next);
        if world.state.d.joined.is_none() {
            prop_assert!(shown.fault.is_some_and(|f| !f.message.is_empty()), "{:?} is not shown", Code::ALL[code]);
        }
    }
}

#[test]
fn a_join_without_trouble_ends_joined_with_one_key_one_record_one_start() {
    let mut world = World::new();
    assert!(world.run_fairly());
    assert_eq!(world.founder.records.len(), 1);
    assert_eq!(world.starts.values().copied().collect::<Vec<_>>(), [1]);
    assert!(world.violations.is_empty(), "{:?}", world.violations);
    assert!(!world.code_saved);
}

/// What a person may see follow what, over worlds that are the same in every run. `docs/join-states.dot` is this picture, so it cannot go stale.
#[test]
fn the_picture_of_the_states_in_docs_is_true() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    use std::collections::BTreeSet;

    let mut runner = TestRunner::deterministic();
    let mut edges = BTreeSet::new();
    for n in 0..8_000 {
        let acts = acts().new_tree(&mut runner).unwrap().current();
        let mut world = world(n % 4 == 3);
        let mut before = world.state.phase();
        for act in acts {
            // A restart shows the state before it once more: not a step of the join.
            let restart = matches!(act, Act::Crash | Act::Reboot | Act::PassedOver);
            play(&mut world, vec![act]);
            let after = world.state.phase();
            if after != before && !restart {
                edges.insert(format!("  {before:?} -> {after:?};"));
            }
            before = after;
        }
    }
    let edges: Vec<String> = edges.into_iter().collect();
    let picture = format!("digraph join {{\n  rankdir=LR;\n{}\n}}\n", edges.join("\n"));
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/join-states.dot");
    let committed = std::fs::read_to_string(file).unwrap_or_default();
    if committed != picture {
        let new = format!("{}/join-states.dot", std::env::temp_dir().display());
        #[expect(clippy::disallowed_methods, reason = "a test's output")]
        std::fs::write(&new, &picture).unwrap();
        panic!("docs/join-states.dot is stale: look at {new} and copy it");
    }
}
