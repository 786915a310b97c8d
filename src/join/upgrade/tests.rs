//! Self-upgrades in the simulated world: what follows what, what stops them, and what a restart makes of them.
#![allow(clippy::unwrap_used)]

use console::snapshot as shown;

use super::{Do, RETRY_MS, SILENT_MS, SPREAD_MS, UpgradePhase};
use crate::join::effect::{Effect, Timer};
use crate::join::event::{Event, Now};
use crate::join::fault::Code as FaultCode;
use crate::join::sim::{Outcome, World};
use crate::join::state::{Durable, Phase};
use crate::report::{self, Facts};
use crate::upgrade::fault::Code;

/// The three things that cannot be taken back.
const IRREVERSIBLE: [&str; 3] = ["write", "arm", "restart"];

fn name(what: &Do) -> &'static str {
    match what {
        Do::Os => "os",
        Do::Check(_) => "check",
        Do::Fetch => "fetch",
        Do::Verify => "verify",
        Do::Write(_) => "write",
        Do::Arm(_) => "arm",
        Do::Restart => "restart",
        Do::Disarm => "disarm",
        Do::Bless => "bless",
        Do::Clean => "clean",
        Do::Cancel => "cancel",
    }
}

fn upgrading(world: &World) -> Option<(usize, &'static str)> {
    world.outstanding.iter().enumerate().find_map(|(n, effect)| match effect {
        Effect::Upgrade(what) if *what != Do::Os => Some((n, name(what))),
        _ => None,
    })
}

/// Lets everything be answered, and time pass, until `what` is about to be carried out. Gives what was carried out before.
fn until(world: &mut World, what: &str) -> Vec<&'static str> {
    let mut done = Vec::new();
    for _ in 0..2_000 {
        if let Some((n, next)) = upgrading(world) {
            if next == what {
                return done;
            }
            done.push(next);
            world.answer(n, Outcome::Deliver);
        } else if !held(world) || !world.fire() {
            world.answer(0, Outcome::Deliver);
        }
    }
    panic!("`{what}` never comes, after {done:?}: {:?}", world.state.v.upgrading);
}

/// Only a poll that the founder holds is left.
fn held(world: &World) -> bool {
    world.outstanding.iter().all(|effect| matches!(effect, Effect::Poll { wait: 1.., .. }))
}

/// Everything is answered until only a held poll is left.
fn settle(world: &mut World) -> Vec<&'static str> {
    let mut done = Vec::new();
    for _ in 0..500 {
        if let Some((n, next)) = upgrading(world) {
            done.push(next);
            world.answer(n, Outcome::Deliver);
        } else if held(world) {
            return done;
        } else {
            let other = world.outstanding.iter().position(|e| !matches!(e, Effect::Poll { wait: 1.., .. }));
            world.answer(other.unwrap(), Outcome::Deliver);
        }
    }
    panic!("it does not come to rest: {done:?}");
}

/// The founder answers the poll that is held.
fn poll_answers(world: &mut World) {
    for _ in 0..10 {
        if let Some(n) = world.outstanding.iter().position(|e| matches!(e, Effect::Poll { .. })) {
            return world.answer(n, Outcome::Deliver);
        }
        assert!(world.fire());
    }
    panic!("nobody polls");
}

fn failure(world: &World) -> super::Failed {
    world.state.d.upgrade.as_ref().unwrap().failure.clone().expect("the attempt failed")
}

fn snapshot(world: &World) -> shown::Snapshot {
    let now = Now { boot_ms: world.boot_ms, wall_ms: 0, random: 0 };
    report::snapshot(&world.state, &Facts::default(), now, 1)
}

#[test]
fn an_older_machine_upgrades_itself_and_joins_as_the_same_machine() {
    let mut world = World::older();
    assert_eq!(until(&mut world, "bless"), ["check", "fetch", "verify", "write", "arm", "restart"]);
    let code = world.state.d.registration.as_ref().unwrap().pairing_code.clone();
    assert!(world.run_fairly(), "{:?} {:?}", world.state.phase(), world.state.d.upgrade);
    assert_eq!(world.violations, Vec::<String>::new());
    assert_eq!(world.os.as_ref().unwrap().running, "0.7.0");
    let record = &world.founder.records[0];
    assert_eq!((world.founder.records.len(), record.pairing_code.as_str()), (1, code.as_str()));
    assert_eq!(world.state.d.upgrade, None);
}

#[test]
fn the_cluster_hears_each_step_begin_and_end_in_its_order() {
    let mut world = World::older();
    until(&mut world, "bless");
    // An approval that comes at once would end the upgrade's reports with the upgrade.
    settle(&mut world);
    let steps = ["manifest", "download", "verify", "install", "boot", "health"];
    let mut told = world.founder.records[0].told.clone();
    told.dedup();
    let expected: Vec<String> = steps
        .iter()
        .flat_map(|step| [format!("upgrade/{step} Running"), format!("upgrade/{step} Done")])
        .collect();
    assert_eq!(told, expected);
}

#[test]
fn the_cluster_is_told_of_the_new_release_only_when_the_new_os_is_accepted() {
    let mut world = World::older();
    until(&mut world, "bless");
    assert!(!world.outstanding.iter().any(|e| matches!(e, Effect::Reregister { .. } | Effect::Poll { .. })));
    assert_eq!(world.state.phase(), Phase::NeedsUpgrade);
}

#[test]
fn a_rejection_before_each_irreversible_thing_stops_it_and_leaves_nothing_armed() {
    for point in IRREVERSIBLE {
        for word in ["rejected", "expired"] {
            let mut world = World::older();
            // Up to the thing before it: the cluster is asked once more, and says no.
            let before = match point {
                "write" => "verify",
                "arm" => "write",
                _ => "arm",
            };
            until(&mut world, before);
            let (n, _) = upgrading(&world).unwrap();
            world.answer(n, Outcome::Deliver);
            world.record().unwrap().state = word;
            let mut after = settle(&mut world);
            if world.state.d.stop.is_none() {
                // The polls are being paced.
                poll_answers(&mut world);
                after.extend(settle(&mut world));
            }
            assert!(!after.iter().any(|done| IRREVERSIBLE.contains(done)), "{point} {word}: {after:?}");
            assert_eq!(after.contains(&"disarm"), point == "restart", "{point}: {after:?}");
            assert_eq!(after.last(), Some(&"clean"), "{point}");
            assert_eq!(world.state.d.upgrade, None);
            world.reboot();
            assert_eq!(world.os.as_ref().unwrap().running, "0.6.0", "{point}");
            assert_eq!(world.violations, Vec::<String>::new());
        }
    }
}

#[test]
fn a_rejection_breaks_a_download_off_at_once() {
    let mut world = World::older();
    until(&mut world, "fetch");
    world.record().unwrap().state = "rejected";
    poll_answers(&mut world);
    assert_eq!(upgrading(&world).map(|(_, next)| next), Some("clean"));
}

#[test]
fn another_release_wanted_meanwhile_is_what_gets_installed() {
    for point in ["fetch", "write", "arm", "restart"] {
        let mut world = World::older();
        until(&mut world, point);
        if point == "restart" {
            // It is armed, and asked about: another answer now.
            world = World::older();
            until(&mut world, "arm");
            let (n, _) = upgrading(&world).unwrap();
            world.answer(n, Outcome::Deliver);
        }
        world.cluster = "0.7.1";
        world.record().unwrap().offer.as_mut().unwrap().1 = "0.7.1";
        poll_answers(&mut world);
        assert!(world.run_fairly(), "{point}");
        assert_eq!(world.os.as_ref().unwrap().running, "0.7.1", "{point}");
        assert_eq!(world.violations, Vec::<String>::new(), "{point}");
    }
}

#[test]
fn a_founder_that_is_silent_for_ten_minutes_keeps_anything_from_being_armed() {
    for point in IRREVERSIBLE {
        let mut world = World::older();
        let before = match point {
            "write" => "verify",
            "arm" => "write",
            _ => "arm",
        };
        until(&mut world, before);
        let (n, _) = upgrading(&world).unwrap();
        world.answer(n, Outcome::Deliver);
        let asked = world.boot_ms;
        while world.state.d.upgrade.as_ref().unwrap().failure.is_none() {
            match world.outstanding.first() {
                Some(_) => world.answer(0, Outcome::LoseRequest),
                None => assert!(world.fire()),
            }
        }
        assert!(world.boot_ms >= asked + SILENT_MS);
        assert_eq!(failure(&world).fault.code, Code::FounderSilent, "{point}");
        // What was armed is disarmed at once, not in ten minutes: a power cut would start it.
        assert_eq!(upgrading(&world).map(|(_, next)| next), (point == "restart").then_some("disarm"));
        // It comes back, and the upgrade with it.
        assert!(world.run_fairly(), "{point}");
        assert_eq!(world.violations, Vec::<String>::new());
    }
}

#[test]
fn an_os_that_does_not_come_up_is_tried_again_after_ten_minutes_and_counted() {
    let mut world = World::older();
    world.os.as_mut().unwrap().bad_starts = 6;
    for failures in 1..=2 {
        until(&mut world, "restart");
        world.answer(upgrading(&world).unwrap().0, Outcome::Deliver);
        settle(&mut world);
        let failed = failure(&world);
        assert_eq!((failed.fault.code, failed.step.name()), (Code::BootFailed, "upgrade/boot"));
        assert!(failed.fault.what.as_str().contains("was started 3 times"), "{}", failed.fault.what);
        assert!((RETRY_MS..RETRY_MS + SPREAD_MS).contains(&failed.wait_ms));
        let upgrade = world.state.d.upgrade.as_ref().unwrap();
        assert_eq!((upgrade.attempt, upgrade.boot_failures), (failures, failures));
        assert_eq!(world.os.as_ref().unwrap().running, "0.6.0");
        // The founder hears of it when the old OS has registered again.
        let told = &world.founder.records[0].told;
        assert_eq!(told.last().unwrap(), "upgrade/boot Failed", "{told:?}");
        let shown = snapshot(&world);
        assert_eq!(shown.fault.unwrap().step.unwrap().as_str(), "upgrade/boot");
        assert_eq!(shown.upgrade.unwrap().boot_failures, failures);
        let failed_at = world.boot_ms;
        until(&mut world, "check");
        assert!(world.boot_ms >= failed_at + RETRY_MS - 1_000, "{} {failed_at}", world.boot_ms);
    }
    assert!(world.run_fairly());
    assert_eq!(world.os.as_ref().unwrap().running, "0.7.0");
    assert_eq!(world.violations, Vec::<String>::new());
}

#[test]
fn a_trial_cut_short_is_no_failure_of_the_new_os() {
    let mut world = World::older();
    until(&mut world, "restart");
    // One start fails, and at the next one somebody chooses the old entry.
    world.os.as_mut().unwrap().bad_starts = 1;
    world.answer(upgrading(&world).unwrap().0, Outcome::Deliver);
    world.os.as_mut().unwrap().running = "0.6.0".to_owned();
    world.crash();
    settle(&mut world);
    assert_eq!(failure(&world).fault.code, Code::Interrupted);
    assert_eq!(world.state.d.upgrade.as_ref().unwrap().boot_failures, 0);
}

#[test]
fn a_failed_attempt_is_begun_again_at_once_when_the_operator_says_so() {
    let mut world = World::older();
    until(&mut world, "fetch");
    world.answer(upgrading(&world).unwrap().0, Outcome::Refuse(FaultCode::Local));
    settle(&mut world);
    assert_eq!(failure(&world).fault.code, Code::Hash);
    assert!(world.state.can_retry());
    world.feed(Event::Retry);
    assert_eq!(upgrading(&world).map(|(_, next)| next), Some("check"));
    assert_eq!(world.state.d.upgrade.as_ref().unwrap().attempt, 2);
}

#[test]
fn the_wait_goes_on_after_a_restart_of_the_agent_and_begins_anew_after_one_of_the_machine() {
    let mut world = World::older();
    until(&mut world, "fetch");
    world.answer(upgrading(&world).unwrap().0, Outcome::Refuse(FaultCode::Local));
    settle(&mut world);
    let due = world.timers[&Timer::Upgrade];
    world.boot_ms += 100_000;
    world.crash();
    settle(&mut world);
    assert_eq!(world.timers[&Timer::Upgrade], due);
    world.reboot();
    settle(&mut world);
    assert!(world.timers[&Timer::Upgrade] >= RETRY_MS);
}

#[test]
fn an_agent_that_starts_with_an_entry_armed_in_the_same_boot_takes_it_back_first() {
    let mut world = World::older();
    until(&mut world, "restart");
    world.crash();
    assert_eq!(until(&mut world, "disarm"), Vec::<&str>::new());
    assert!(world.run_fairly());
    assert_eq!(world.violations, Vec::<String>::new());
}

#[test]
fn a_journal_that_was_lost_on_the_trial_boot_does_not_cost_the_new_os() {
    let mut world = World::older();
    until(&mut world, "bless");
    world.disk = Durable::default();
    world.crash();
    assert!(world.run_fairly());
    assert_eq!(world.os.as_ref().unwrap().running, "0.7.0");
    assert_eq!(world.violations, Vec::<String>::new());
}

#[test]
fn a_new_os_that_lost_the_key_of_the_registration_is_not_accepted() {
    let mut world = World::older();
    until(&mut world, "bless");
    world.key = None;
    world.crash();
    assert_eq!(until(&mut world, "restart"), Vec::<&str>::new());
    let note = world.state.d.upgrade.as_ref().unwrap().trial_note.clone().unwrap();
    assert!(note.as_str().contains("client key"), "{note}");
}

#[test]
fn an_offer_for_a_release_that_does_not_run_is_answered_with_what_runs() {
    let mut world = World::older();
    until(&mut world, "check");
    world.os.as_mut().unwrap().running = "0.6.5".to_owned();
    world.answer(upgrading(&world).unwrap().0, Outcome::Deliver);
    assert!(world.outstanding.iter().any(|e| matches!(e, Effect::Reregister { self_upgrade: true, .. })));
}

#[test]
fn what_a_newer_agent_wrote_into_the_journal_is_kept() {
    let mut world = World::older();
    until(&mut world, "fetch");
    world.answer(upgrading(&world).unwrap().0, Outcome::Refuse(FaultCode::Local));
    let mut json = serde_json::to_value(&world.disk).unwrap();
    json["later"] = serde_json::json!({ "a": [1, null] });
    json["upgrade"]["later"] = serde_json::json!("b");
    json["upgrade"]["failure"]["fault"]["code"] = serde_json::json!("OF_A_LATER_RELEASE");
    let mut durable: Durable = serde_json::from_value(json.clone()).unwrap();
    assert_eq!(durable.upgrade.as_ref().unwrap().failure.as_ref().unwrap().fault.code, Code::Helper);
    durable.seq_reserved += 1;
    let again = serde_json::to_value(&durable).unwrap();
    assert_eq!((&again["later"], &again["upgrade"]["later"]), (&json["later"], &json["upgrade"]["later"]));
}

#[test]
fn what_is_shown_tells_the_step_the_figures_and_that_it_must_stay_on() {
    let mut world = World::older();
    until(&mut world, "write");
    world.feed(Event::Upgrade(super::Done::Figures(super::Figures::Plain(3, 4))));
    let shown = snapshot(&world);
    assert_eq!(shown.headline.as_str(), "upgrading this machine 0.6.0 -> 0.7.0, step 4 of 6: install the OS");
    let status: Vec<shown::StepStatus> = shown.steps.iter().map(|step| step.status).collect();
    use shown::StepStatus::{Done, Running, Waiting};
    assert_eq!(status, [Done, Done, Done, Running, Waiting, Waiting]);
    let progress = shown.progress.unwrap();
    assert_eq!((progress.done, progress.total, progress.unit), (3, 4, shown::Unit::Bytes));
    assert!(shown.do_not_power_off);
    let upgrade = shown.upgrade.unwrap();
    assert_eq!((upgrade.attempt, upgrade.host.unwrap().as_str()), (1, "mirror.example"));
    assert_eq!(world.state.d.upgrade.as_ref().unwrap().phase, UpgradePhase::Preparing);
}
