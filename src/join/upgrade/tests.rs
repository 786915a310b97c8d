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

/// A machine that has just done what comes before `point`, and asks the cluster once more.
fn asked_about(point: &str) -> World {
    let before = match point {
        "write" => "verify",
        "arm" => "write",
        _ => "arm",
    };
    let mut world = World::older();
    until(&mut world, before);
    let (n, _) = upgrading(&world).unwrap();
    world.answer(n, Outcome::Deliver);
    world
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
            let mut world = asked_about(point);
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
        let mut world = asked_about(point);
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
    assert_eq!(failure(&world).step.name(), "upgrade/download");
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

#[test]
fn a_disarming_that_fails_is_tried_again_every_ten_seconds_and_not_at_once() {
    let mut world = World::older();
    until(&mut world, "restart");
    world.crash();
    for _ in 0..3 {
        until(&mut world, "disarm");
        let asked = world.boot_ms;
        world.answer(upgrading(&world).unwrap().0, Outcome::LoseRequest);
        assert_eq!(upgrading(&world), None);
        until(&mut world, "disarm");
        assert!(world.boot_ms >= asked + 10_000, "after {} ms", world.boot_ms - asked);
    }
    assert!(world.run_fairly());
}

#[test]
fn what_still_has_starts_left_after_a_fallback_is_disarmed_before_anything_else() {
    let mut world = World::older();
    until(&mut world, "restart");
    // The firmware starts the old OS, though nothing was tried.
    world.pass_over();
    assert_eq!(until(&mut world, "disarm"), Vec::<&str>::new());
    assert_eq!(failure(&world).fault.code, Code::NotTried);
    assert!(snapshot(&world).do_not_power_off);
    world.answer(upgrading(&world).unwrap().0, Outcome::Deliver);
    // The cluster has said nothing yet.
    assert!(!snapshot(&world).do_not_power_off);
    settle(&mut world);
    world.record().unwrap().state = "rejected";
    poll_answers(&mut world);
    settle(&mut world);
    world.reboot();
    assert_eq!(world.os.as_ref().unwrap().running, "0.6.0");
}

#[test]
fn an_entry_that_the_journal_does_not_know_is_taken_back() {
    let mut world = World::older();
    until(&mut world, "restart");
    world.disk = Durable::default();
    world.crash();
    assert_eq!(until(&mut world, "disarm"), Vec::<&str>::new());
    assert!(world.run_fairly());
    assert_eq!(world.violations, Vec::<String>::new());
}

#[test]
fn a_power_cut_right_after_the_new_os_was_confirmed_does_not_keep_it_from_registering() {
    let mut world = World::older();
    until(&mut world, "bless");
    // The helper did it, and nobody heard.
    world.os.as_mut().unwrap().carry_out(&Do::Bless, world.boot).unwrap();
    world.reboot();
    assert!(world.run_fairly(), "{:?}", world.state.v.upgrading);
    assert_eq!(world.os.as_ref().unwrap().running, "0.7.0");
}

#[test]
fn a_new_request_or_a_lost_record_before_the_trial_does_not_cost_the_new_os() {
    for request in [true, false] {
        let mut world = World::older();
        until(&mut world, "restart");
        if request {
            world.new_request();
        } else {
            world.disk.registration = None;
        }
        world.reboot();
        assert_eq!(until(&mut world, "bless"), Vec::<&str>::new());
        assert!(world.run_fairly());
        assert_eq!(world.os.as_ref().unwrap().starts, 1);
    }
}

#[test]
fn a_request_that_is_gone_stops_the_upgrade_and_leaves_nothing_armed() {
    let mut world = World::older();
    until(&mut world, "fetch");
    world.feed(Event::Request(None));
    assert_eq!(upgrading(&world), None);

    let mut world = World::older();
    until(&mut world, "arm");
    world.answer(upgrading(&world).unwrap().0, Outcome::Deliver);
    world.feed(Event::Request(None));
    assert_eq!(upgrading(&world).map(|(_, next)| next), Some("disarm"));
}

#[test]
fn a_trial_is_judged_though_the_request_is_gone() {
    let mut world = World::older();
    until(&mut world, "bless");
    let durable = world.disk.clone();
    world.crash_without_request();
    assert_eq!(world.state.d.request, durable.request);
    assert_eq!(until(&mut world, "bless"), Vec::<&str>::new());
}

#[test]
fn a_record_that_is_gone_stops_what_is_armed_also_when_no_code_is_saved() {
    let mut world = World::older();
    until(&mut world, "arm");
    world.answer(upgrading(&world).unwrap().0, Outcome::Deliver);
    world.code_saved = false;
    let view = world.request();
    world.feed(Event::Request(Some(view)));
    world.founder.records.clear();
    poll_answers(&mut world);
    assert_eq!(upgrading(&world).map(|(_, next)| next), Some("disarm"));
}

#[test]
fn settings_that_forbid_upgrades_stop_one_at_once_and_the_cluster_is_told() {
    let mut world = World::older();
    until(&mut world, "arm");
    world.answer(upgrading(&world).unwrap().0, Outcome::Deliver);
    world.feed(Event::MayUpgrade(false));
    assert_eq!(upgrading(&world).map(|(_, next)| next), Some("disarm"));
    assert!(world.outstanding.iter().any(|e| matches!(e, Effect::Reregister { self_upgrade: false, .. })));
    world.feed(Event::MayUpgrade(true));
    assert!(world.run_fairly());
    assert_eq!(world.os.as_ref().unwrap().running, "0.7.0");
}

#[test]
fn a_refusal_that_names_the_rejection_is_the_end_and_the_stage_is_emptied() {
    let mut world = World::older();
    until(&mut world, "fetch");
    let n = world.outstanding.iter().position(|e| matches!(e, Effect::Poll { .. })).unwrap();
    world.answer(n, Outcome::Refuse(FaultCode::JoinRejected));
    assert_eq!(upgrading(&world).map(|(_, next)| next), Some("clean"));
    assert_eq!(world.state.d.upgrade, None);
}

#[test]
fn a_late_failure_of_what_is_not_wanted_any_more_does_not_hold_up_what_is() {
    let mut world = World::older();
    until(&mut world, "arm");
    world.cluster = "0.7.1";
    world.record().unwrap().offer.as_mut().unwrap().1 = "0.7.1";
    poll_answers(&mut world);
    world.answer(upgrading(&world).unwrap().0, Outcome::LoseAnswer);
    assert_eq!(world.state.d.upgrade.as_ref().unwrap().failure, None);
    assert_eq!(until(&mut world, "check"), ["disarm"]);
}

#[test]
fn an_os_on_trial_that_is_neither_of_the_two_is_judged_all_the_same() {
    let mut world = World::older();
    until(&mut world, "restart");
    world.cluster = "0.7.1";
    world.record().unwrap().offer.as_mut().unwrap().1 = "0.7.1";
    poll_answers(&mut world);
    // Too late: it goes down.
    world.answer(upgrading(&world).unwrap().0, Outcome::Deliver);
    assert!(world.run_fairly());
    assert_eq!(world.os.as_ref().unwrap().running, "0.7.1");
    assert_eq!(world.violations, Vec::<String>::new());
}

#[test]
fn the_same_request_given_once_more_begins_the_next_attempt() {
    let mut world = World::older();
    until(&mut world, "fetch");
    world.answer(upgrading(&world).unwrap().0, Outcome::Refuse(FaultCode::Local));
    settle(&mut world);
    let view = world.request();
    world.feed(Event::Request(Some(view)));
    assert_eq!(upgrading(&world).map(|(_, next)| next), Some("check"));
}

#[test]
fn a_new_os_that_nothing_can_fall_back_from_is_not_restarted_for_ever_and_registers() {
    // Its loader does not count: a restart would start it again.
    for lost_key in [true, false] {
        let mut world = World::older();
        until(&mut world, "bless");
        world.os.as_mut().unwrap().counts = false;
        if lost_key {
            world.key = None;
        }
        world.crash();
        for _ in 0..400 {
            if world
                .outstanding
                .iter()
                .any(|e| matches!(e, Effect::Reregister { .. } | Effect::Observe { .. }))
            {
                break;
            }
            match upgrading(&world) {
                Some((n, what)) => {
                    assert_ne!(what, "restart");
                    world.answer(n, Outcome::LoseRequest);
                }
                None if world.outstanding.is_empty() => assert!(world.fire()),
                None => world.answer(0, Outcome::Deliver),
            }
        }
        assert!(!world.state.registration_waits(), "lost key: {lost_key}");
    }
}

#[test]
fn the_step_that_failed_is_shown_also_after_a_restart() {
    let mut world = World::older();
    until(&mut world, "verify");
    world.answer(upgrading(&world).unwrap().0, Outcome::Refuse(FaultCode::Local));
    settle(&mut world);
    world.crash();
    settle(&mut world);
    let status: Vec<shown::StepStatus> = snapshot(&world).steps.iter().map(|step| step.status).collect();
    use shown::StepStatus::{Done, Failed, Waiting};
    assert_eq!(status, [Done, Done, Failed, Waiting, Waiting, Waiting]);
}

#[test]
fn files_of_an_upgrade_that_is_over_are_removed_also_when_the_agent_was_killed_before() {
    let mut world = World::older();
    until(&mut world, "clean");
    world.crash();
    assert!(settle(&mut world).contains(&"clean"));
}
