//! What goes wrong in an upgrade, as the founder, the console and the log tell it, and what comes of it.

use console::Snapshot;
use lab_founder::mirror::{Fault, MirrorFault};
use serde_json::json;
use stratum_join::install::recorded::boot::Outcome;

use super::*;
use crate::control::say;

#[test]
fn an_os_that_does_not_come_up_three_times_is_told_everywhere_and_the_next_attempt_joins() {
    let mut upgrade = Upgrade::from_founder(2);
    upgrade.machine().start();
    upgrade.restart(Outcome::Panics);
    // What is left of the new OS is taken back first.
    let failed = |s: &Snapshot| s.fault.as_ref().is_some_and(|fault| fault.code.as_str() == "BOOT_FAILED");
    let shown = upgrade.machine().wait_for("the end of it", |s| failed(s) && !s.do_not_power_off);
    let fault = shown.fault.clone().unwrap();
    assert_eq!(fault.step.unwrap().as_str(), "upgrade/boot");
    assert!(fault.message.as_str().contains("was started 3 times and did not come up"), "{}", fault.message);
    assert!(fault.why.unwrap().as_str().contains("runs 0.6.0 again"), "{:?}", shown.headline);
    let about = shown.upgrade.unwrap();
    assert_eq!((about.attempt, about.boot_failures, shown.do_not_power_off), (1, 1, false));
    assert_eq!(shown.machine.release.unwrap().as_str(), "0.6.0");
    // The cluster has it too, after the machine has registered again as what it is.
    let told = wait::until(PATIENCE, || {
        Some(upgrade.only_record()).filter(|record| record["failedStep"] == "upgrade/boot")
    });
    let told = told.unwrap_or_else(|| panic!("{}", upgrade.only_record()));
    assert!(told["failedError"].as_str().unwrap().starts_with("BOOT_FAILED: "), "{}", told["failedError"]);
    assert_eq!(told["state"], "needs-upgrade");
    let log = upgrade.machine().log();
    assert!(
        log.contains("upgrade attempt 1 failed at upgrade/boot: The new OS 0.7.0 was started 3 times"),
        "{log}"
    );

    // Ten minutes, or the key.
    upgrade.machine().wait_for("the key", |s| s.actions.retry);
    assert_eq!(say(&upgrade.world, "retry").as_deref(), Some("{\"ok\":true}"));
    upgrade.restart(Outcome::Comes);
    upgrade.machine().wait_for_state(State::Pending);
    upgrade.world.finish();
    // What was there is not fetched again: one copy of the image left the founder.
    let fetched = upgrade.world.founder.core().received();
    let images = fetched.iter().filter(|r| r.path.contains("/release/os/blobs/")).count();
    assert_eq!(images, 3, "each of the three files once");
}

#[test]
fn a_helper_that_is_killed_in_mid_write_leaves_nothing_armed_and_the_next_attempt_joins() {
    let mut upgrade = Upgrade::from_founder(2).through_helper(Some("crash:slot-write:during"));
    upgrade.machine().start();
    let shown = upgrade.machine().wait_for_fault("HELPER");
    let died = || upgrade.helper.as_ref().unwrap().died_at_the_crash_point().then_some(());
    assert!(wait::until(PATIENCE, died).is_some());
    let fault = shown.fault.unwrap();
    assert_eq!(fault.step.unwrap().as_str(), "upgrade/install");
    assert!(fault.message.as_str().contains("ended before it answered"), "{}", fault.message);
    for name in ["armed.json", "installed.json"] {
        assert!(!upgrade.machine().path("var/lib/stratum/os").join(name).exists(), "{name}");
    }
    let told = wait::until(PATIENCE, || {
        Some(upgrade.only_record()).filter(|record| record["failedStep"] == "upgrade/install")
    });
    assert!(told.is_some(), "{}", upgrade.only_record());
    upgrade.machine().wait_for("the key", |s| s.actions.retry);
    assert_eq!(say(&upgrade.world, "retry").as_deref(), Some("{\"ok\":true}"));
    upgrade.restart(Outcome::Comes);
    upgrade.machine().wait_for_state(State::Pending);
    upgrade.world.finish();
    upgrade.look_at_the_slot();
}

#[test]
fn settings_that_forbid_it_stop_an_upgrade_that_runs_and_nothing_is_written() {
    let mut upgrade = Upgrade::from_mirror(2, &[Fault::always(MirrorFault::Drip).at("os/blobs")]);
    upgrade.machine().start();
    upgrade.machine().wait_for("the download", |s| {
        s.steps.iter().any(|step| step.index == 2 && step.status == StepStatus::Running)
    });
    fs::write(upgrade.machine().path("etc/stratum/join.yaml"), "upgrade: {enabled: false}\n").unwrap();
    upgrade.machine().hang_up();
    upgrade.machine().wait_for_fault("RELEASE_MISMATCH");
    assert!(!upgrade.machine().path("var/lib/stratum/os/installed.json").exists());
}

#[test]
fn a_rejected_machine_stops_its_download_at_once_and_keeps_nothing() {
    let mut upgrade = Upgrade::from_mirror(2, &[Fault::always(MirrorFault::Drip).at("os/blobs")]);
    upgrade.machine().start();
    let shown = upgrade.machine().wait_for("the download", |s| {
        s.steps.iter().any(|step| step.index == 2 && step.status == StepStatus::Running)
    });
    let id = shown.registration.join_id.unwrap();
    let body = json!({ "reason": "wrong rack" });
    upgrade.world.admin("POST", &format!("/v1/admin/cluster/joins/{id}/reject"), Some(body));
    upgrade.machine().wait_for_state(State::Rejected);
    let stage = upgrade.machine().path("var/lib/stratum/join/upgrade");
    let empty = || {
        ["parts", "blobs", "releases"].iter().all(|sub| fs::read_dir(stage.join(sub)).unwrap().count() == 0)
    };
    assert!(wait::until(PATIENCE, || empty().then_some(())).is_some(), "the stage is kept");
    assert!(!upgrade.machine().path("var/lib/stratum/os/installed.json").exists());
    assert!(!restarts(upgrade.machine()));
}

#[test]
fn a_mirror_that_lies_is_named_and_the_attempt_after_its_repair_joins() {
    let mut upgrade = Upgrade::from_mirror(2, &[Fault::always(MirrorFault::Html)]);
    upgrade.machine().start();
    let shown = upgrade.machine().wait_for_fault("NOT_A_RELEASE");
    assert!(shown.fault.unwrap().message.as_str().contains("did not answer with a Stratum release"));
    let told = wait::until(PATIENCE, || {
        Some(upgrade.only_record()).filter(|record| record["failedStep"] == "upgrade/manifest")
    });
    assert!(told.is_some(), "{}", upgrade.only_record());
    upgrade.mirror.as_ref().unwrap().set_faults(&[]);
    upgrade.machine().wait_for("the key", |s| s.actions.retry);
    assert_eq!(say(&upgrade.world, "retry").as_deref(), Some("{\"ok\":true}"));
    upgrade.restart(Outcome::Comes);
    upgrade.machine().wait_for_state(State::Pending);
    upgrade.world.finish();
}

#[test]
fn a_machine_with_the_keys_of_another_maker_says_to_use_a_newer_iso_and_fetches_nothing() {
    let mut upgrade = Upgrade::from_founder(2);
    let other = SecretKey::from_seed([9; 32], [9; 8]).public_text();
    fs::write(upgrade.machine().path("usr/share/stratum/release-keys.d/release.pub"), other).unwrap();
    upgrade.machine().start();
    let shown = upgrade.machine().wait_for_fault("KEY_UNKNOWN");
    assert!(shown.next[0].as_str().contains("Install from a newer ISO"), "{:?}", shown.next);
    let received = upgrade.world.founder.core().received();
    let asked: Vec<&str> =
        received.iter().map(|r| r.path.as_str()).filter(|path| path.contains("/release/")).collect();
    assert!((2..=3).contains(&asked.len()) && !asked.iter().any(|path| path.contains("blobs")), "{asked:?}");
}

#[test]
fn a_machine_whose_settings_forbid_it_is_refused_and_told_which_iso() {
    let mut upgrade = Upgrade::from_founder(1);
    fs::write(upgrade.machine().path("etc/stratum/join.yaml"), "upgrade: {enabled: false}\n").unwrap();
    upgrade.machine().start();
    upgrade.machine().wait_for_fault("RELEASE_MISMATCH");
    assert!(!upgrade.machine().path("var/lib/stratum/join/upgrade").exists());
}
