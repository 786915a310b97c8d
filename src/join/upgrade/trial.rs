//! After a restart into another OS: what runs is judged, accepted, or left again. Touches nothing.

use super::{Do, UNCOUNTED_TRIES, Upgrade, UpgradePhase, UpgradeStep, Work};
use crate::install::{LastTrial, OsState, Trial};
use crate::join::state::{Lane, Slot};
use crate::join::step::Turn;
use crate::protocol::encoding::B64;
use crate::protocol::wire::StepStatus;
use crate::upgrade::fault::{Code, UpgradeFault};

// === impl Turn ===

impl Turn {
    /// What runs here: the new OS on trial, the old one again, or a third.
    pub(super) fn judge(&mut self) {
        if self.s.identity().is_none() || matches!(self.s.v.upgrading.lane, Lane::Delayed(_)) {
            return;
        }
        let Some(os) = self.s.v.upgrading.os().cloned() else { return };
        let Some(upgrade) = self.s.d.upgrade.as_ref().filter(|_| self.s.armed_before()) else {
            // The journal does not know of a trial: it was lost, which is no fault of the new OS.
            return self.bless();
        };
        let runs = os.booted.release.clone();
        if runs == upgrade.to && os.booted.slot == upgrade.slot {
            // The helper had confirmed it, and the machine went down before that was noted.
            if os.booted.trial == Trial::No {
                self.came_up();
                return self.blessed(Ok(()));
            }
            return self.bless();
        }
        if runs == upgrade.from {
            return self.fell_back(&os);
        }
        let text = format!(
            "this machine runs {runs}, neither {} nor {}: the upgrade is over",
            upgrade.from, upgrade.to
        );
        self.info(text);
        self.s.d.upgrade = None;
        self.s.v.upgrading.to_clean = true;
        if self.s.can_fall_back() {
            self.bless();
        }
    }

    fn bless(&mut self) {
        // The key is made on the old OS; a new OS that cannot read it is none that works. A registration may be gone for other reasons.
        let before = self.s.d.upgrade.as_ref().and_then(|upgrade| upgrade.client_fp);
        let now = self.s.identity().map(|identity| B64(identity.client_fp));
        if before.is_some() && before != now {
            let check = "the client key is not the one that registered";
            return self.not_accepted(&UpgradeFault::health(check, "Look at: journalctl -u stratum-join"));
        }
        self.came_up();
        self.began(UpgradeStep::Health);
        self.work(Work::Bless, Do::Bless);
    }

    /// The cluster has heard of the beginning of the restart, from the OS before.
    fn came_up(&mut self) {
        let judged = self.s.v.upgrading.steps.iter().any(|line| line.step == UpgradeStep::Health);
        if self.s.d.upgrade.is_some() && !judged {
            self.ended(UpgradeStep::Boot, StepStatus::Done, None);
        }
    }

    /// A restart is what ends a trial in vain: after three the boot loader starts the old OS. Where it does not count them the same OS would start
    /// again, for ever: then it stays.
    fn not_accepted(&mut self, fault: &UpgradeFault) {
        self.ended(UpgradeStep::Health, StepStatus::Failed, Some(fault));
        if !self.s.can_fall_back() {
            self.info(format!("the new OS stays, for nothing would start the old one: {}", fault.what));
            return self.accept();
        }
        if let Some(upgrade) = &mut self.s.d.upgrade {
            upgrade.trial_note = Some(fault.what.clone());
        }
        self.info(format!("the new OS is not accepted: {} This machine restarts", fault.what));
        self.work(Work::Restart, Do::Restart);
    }

    /// The old OS runs again. Why, the boot entry tells: what the installer said when it armed proves nothing.
    fn fell_back(&mut self, os: &OsState) {
        let Some(upgrade) = &mut self.s.d.upgrade else { return };
        let fault = back_again(upgrade, os);
        if matches!(fault.code, Code::BootFailed | Code::Health) {
            upgrade.boot_failures = upgrade.boot_failures.saturating_add(1);
        }
        upgrade.phase = UpgradePhase::Preparing;
        (upgrade.slot, upgrade.armed_boot_id, upgrade.client_fp) = (None, None, None);
        upgrade.trial_note = None;
        self.upgrade_failed(UpgradeStep::Boot, fault);
    }

    pub(super) fn blessed(&mut self, answer: Result<(), UpgradeFault>) {
        match answer {
            Ok(()) => {
                self.ended(UpgradeStep::Health, StepStatus::Done, None);
                let runs = self.s.v.upgrading.os().map(|os| os.booted.release.clone()).unwrap_or_default();
                self.info(format!("the new OS {runs} works and stays"));
                self.accept();
            }
            Err(fault) if matches!(fault.code, Code::Helper | Code::Busy) => {
                let failures = self.s.v.upgrading.stuck.map_or(0, |(_, failures)| failures);
                if failures >= UNCOUNTED_TRIES && !self.s.can_fall_back() {
                    return self.not_accepted(&fault);
                }
                self.stuck("confirming the new OS", &fault);
            }
            Err(fault) => self.not_accepted(&fault),
        }
    }

    /// What runs here stays, and the cluster may be told of it.
    fn accept(&mut self) {
        self.s.v.upgrading.stuck = None;
        if let Slot::Ready(os) = &mut self.s.v.upgrading.os {
            os.booted.trial = Trial::No;
        }
        if let Some(upgrade) = &mut self.s.d.upgrade {
            upgrade.phase = UpgradePhase::Blessed;
            (upgrade.armed_boot_id, upgrade.client_fp) = (None, None);
        }
    }
}

/// Why the old OS runs again, as the boot entry has it.
fn back_again(upgrade: &Upgrade, os: &OsState) -> UpgradeFault {
    let (from, to) = (upgrade.from.as_str(), upgrade.to.as_str());
    match os.last_trial {
        LastTrial::Exhausted { tries } => {
            let error = os.last_error.as_ref().map(|error| format!("Its last words: {error}."));
            let note = upgrade.trial_note.as_ref().map(ToString::to_string).or(error).unwrap_or_default();
            let fault = UpgradeFault::boot_failed(to, from, tries, &note);
            let code = if upgrade.trial_note.is_some() { Code::Health } else { fault.code };
            UpgradeFault { code, ..fault }
        }
        LastTrial::NotTried => UpgradeFault::not_tried(to),
        LastTrial::Interrupted { done, left } => {
            UpgradeFault::interrupted(to, done, done.saturating_add(left))
        }
        LastTrial::Good => UpgradeFault::new(
            Code::Interrupted,
            format!("The new OS {to} works, and {from} was chosen by hand."),
            "Leave the machine on.",
        ),
        LastTrial::None | LastTrial::Lost => UpgradeFault::new(
            Code::Interrupted,
            format!("The boot entry of {to} is not there any more."),
            "Leave the machine on.",
        ),
    }
}
