//! The self-upgrade: check, download, verify, write, arm, restart, bless; what fails is tried again every ten minutes until the cluster stops it.
//!
//! Before each of the three things that cannot be taken back (write, arm, restart) the cluster is asked afresh whether it still wants this. What
//! was armed and is not wanted any more is disarmed, before anything else. A machine that starts with something armed judges first what it runs, and
//! registers after that. Touches nothing.

mod state;
#[cfg(test)]
mod tests;
mod trial;

use console::text::Safe;

pub use self::state::{
    Ask, Checked, Do, Done, Failed, Figures, Upgrade, UpgradeLine, UpgradePhase, UpgradeStep, Upgrading, Work,
};
use super::backoff;
use super::effect::{Effect, Timer};
use super::event::StepReport;
use super::fault::{Class, Code as FaultCode, Fault};
use super::notice::Notice;
use super::state::{Call, Lane, Queued, Slot, State};
use super::step::Turn;
use crate::install::{OsState, Slot as OsSlot, Trial};
use crate::protocol::encoding::B64;
use crate::protocol::wire::{StepStatus, UpgradeOffer};
use crate::upgrade::fault::{Code, UpgradeFault};

/// Between a failure and the next attempt (documented: every 10 minutes).
pub const RETRY_MS: u64 = 600_000;
/// And up to this more, so that machines do not march in step.
pub const SPREAD_MS: u64 = 60_000;
/// The cluster is given this long to say that it still wants the upgrade.
pub const SILENT_MS: u64 = 600_000;
/// A restart that was asked for comes within this time, or it does not come.
pub const RESTART_MS: u64 = 300_000;
/// Between two tries of what must come to its end: disarm, and bless on a trial boot. The OS itself ends a trial that takes too long.
const STUCK_PACE_MS: u64 = 10_000;
/// So many tries to confirm an OS that nothing falls back from: it stays anyway.
const UNCOUNTED_TRIES: u32 = 6;
/// So many offers in a row for a release that does not run here are taken for news that is late.
const STALE: u32 = 2;

// === impl State ===

impl State {
    /// Whether this machine may tell the cluster that it upgrades itself (documented: only such a joiner is offered an upgrade).
    pub fn self_upgrade(&self) -> bool {
        self.v.env.may_upgrade && self.v.upgrading.os().is_some_and(|os| os.supported.is_none())
    }

    /// The offer of the cluster's last answer.
    pub fn offer(&self) -> Option<&UpgradeOffer> {
        let view = self.v.view.as_deref().filter(|_| self.word() == Some("needs-upgrade"))?;
        view.upgrade.as_ref().filter(|_| self.self_upgrade())
    }

    /// The upgrade that the cluster wants here, in an answer that this run has heard.
    fn upgrade_wanted(&self) -> bool {
        let Some(upgrade) = &self.d.upgrade else { return false };
        let fits = |offer: &UpgradeOffer| offer.to == upgrade.to && offer.from == upgrade.from;
        self.d.stop.is_none()
            && self.d.joined.is_none()
            && self.v.request.is_some()
            && upgrade.phase != UpgradePhase::Blessed
            && self.offer().is_some_and(fits)
    }

    /// Whether the next start was changed in this boot.
    pub(super) fn armed_here(&self) -> bool {
        self.d.upgrade.as_ref().is_some_and(|up| {
            up.is_armed() && up.armed_boot_id.as_deref() == Some(self.v.env.boot_id.as_str())
        })
    }

    /// Whether the machine was started since.
    pub(super) fn armed_before(&self) -> bool {
        self.d.upgrade.as_ref().is_some_and(|up| {
            up.is_armed() && up.armed_boot_id.as_deref() != Some(self.v.env.boot_id.as_str())
        })
    }

    /// Something is armed that nobody waits for: of this boot, or left by a fallback or by a run whose journal was lost.
    fn must_disarm(&self) -> bool {
        let left = |os: &OsState| os.armed.as_ref().is_some_and(|armed| Some(armed.slot) != os.booted.slot);
        let armed = self.armed_here() || self.v.upgrading.os().is_some_and(left);
        armed && self.v.upgrading.next != Work::Restart
    }

    /// What runs here is on trial and the boot loader counts its starts: a restart leads back.
    fn can_fall_back(&self) -> bool {
        self.v.upgrading.os().is_some_and(|os| matches!(os.booted.trial, Trial::Counting { .. }))
    }

    /// What can be installed here, and what runs, has to be known.
    pub(super) fn needs_os(&self) -> bool {
        self.v.env.may_upgrade || self.d.upgrade.is_some()
    }

    /// What runs here is not accepted yet, or what can be installed is not known yet: the cluster is told after that. An operator may approve at
    /// once, and no install starts on an OS that may still fall back.
    pub(super) fn registration_waits(&self) -> bool {
        (self.needs_os() && self.v.upgrading.os().is_none()) || self.armed_before() || self.can_fall_back()
    }

    /// The next attempt is waited for.
    pub(super) fn upgrade_waits(&self) -> bool {
        matches!(self.v.upgrading.lane, Lane::Delayed(_)) && self.upgrade_wanted()
    }

    /// The step that is under way.
    pub fn upgrade_step(&self) -> Option<&UpgradeLine> {
        self.v.upgrading.steps.last().filter(|line| line.status == StepStatus::Running)
    }
}

// === impl Turn ===

impl Turn {
    /// After a restart: the wait for the next attempt goes on, in another boot from its beginning.
    pub(super) fn resume_upgrade(&mut self) {
        let now = self.now.boot_ms;
        let boot_id = self.s.v.env.boot_id.clone();
        let Some(failed) = self.s.d.upgrade.as_mut().and_then(|up| up.failure.as_mut()) else { return };
        if failed.boot_id != boot_id {
            (failed.boot_id, failed.at_boot_ms) = (boot_id, now);
        }
        // Whether the cluster has heard of it is not known; a repeat is harmless.
        let report = report(failed.step, StepStatus::Failed, Some(&failed.fault));
        self.queue(Queued { report, is_end: false });
    }

    /// What can be installed here is asked for beside the probe.
    pub(super) fn ask_os(&mut self) {
        if self.s.needs_os() && matches!(self.s.v.upgrading.os, Slot::Empty) {
            self.s.v.upgrading.os = Slot::Busy;
            self.out.push(Effect::Upgrade(Do::Os));
        }
    }

    fn os_known(&mut self, answer: Result<OsState, UpgradeFault>) {
        if !matches!(self.s.v.upgrading.os, Slot::Busy) {
            return;
        }
        match answer {
            Ok(os) => {
                if std::mem::take(&mut self.s.v.upgrading.os_failures) > 0 {
                    self.s.v.prepare_fault = None;
                }
                self.s.v.upgrading.os = Slot::Ready(os);
            }
            // Whoever could not be asked may be asked later; what was looked at and cannot be used is known.
            Err(fault)
                if matches!(fault.code, Code::Helper | Code::Busy)
                    || self.s.d.upgrade.as_ref().is_some_and(Upgrade::is_armed) =>
            {
                self.s.v.upgrading.os_failures += 1;
                let told = Fault::new(FaultCode::Local, fault.what.as_str());
                let delay = self.prepare_failed("asking what can be installed here", told);
                self.s.v.upgrading.os = Slot::Later(self.now.boot_ms + delay);
            }
            Err(fault) => {
                self.info(format!("this machine does not upgrade itself: {}", fault.what));
                let boot_id = self.s.v.env.boot_id.clone();
                let os = OsState::unsupported(fault.what.as_str(), Safe::default(), boot_id);
                self.s.v.upgrading.os = Slot::Ready(os);
            }
        }
    }

    /// The cluster has answered: its offer is the same, another one, or gone.
    pub(super) fn heard_of_upgrade(&mut self) {
        if self.s.upgrade_wanted() {
            if self.s.v.upgrading.ask == Ask::Sent {
                self.s.v.upgrading.ask = Ask::Confirmed;
            }
            return;
        }
        let Some(offer) = self.s.offer().cloned() else { return };
        self.cut_upgrade();
        // What the offer before it has armed is disarmed first.
        let is_armed = self.s.armed_here();
        let armed = self.s.d.upgrade.take().filter(|_| is_armed);
        let mut upgrade = Upgrade::of(&offer);
        if let Some(old) = armed {
            (upgrade.phase, upgrade.slot, upgrade.armed_boot_id) = (old.phase, old.slot, old.armed_boot_id);
            upgrade.client_fp = old.client_fp;
        }
        self.s.d.upgrade = Some(upgrade);
        self.info(format!("the cluster wants release {} here, this machine runs {}", offer.to, offer.from));
    }

    /// Breaks off what may be broken off; the next attempt begins anew.
    fn cut_upgrade(&mut self) {
        let upgrading = &mut self.s.v.upgrading;
        (upgrading.next, upgrading.ask, upgrading.figures) = (Work::Check, Ask::No, None);
        match upgrading.lane {
            Lane::Busy(work, _) if work.may_be_cut() => {
                upgrading.lane = Lane::Idle;
                self.out.push(Effect::Upgrade(Do::Cancel));
            }
            Lane::Busy(..) => return,
            Lane::Delayed(_) => upgrading.lane = Lane::Idle,
            Lane::Idle => {}
        }
        self.s.v.upgrading.steps.clear();
        self.out.push(Effect::Disarm(Timer::Upgrade));
    }

    pub(super) fn drive_upgrade(&mut self) {
        let wanted = self.s.upgrade_wanted();
        let upgrading = &self.s.v.upgrading;
        let idle = upgrading.lane == Lane::Idle && upgrading.ask == Ask::No && upgrading.next == Work::Check;
        if !wanted && !idle && !self.s.registration_waits() {
            self.cut_upgrade();
        }
        if matches!(self.s.v.upgrading.lane, Lane::Busy(..)) {
            return;
        }
        let known = self.s.v.upgrading.os().is_some();
        if known && self.s.registration_waits() {
            self.judge();
            if matches!(self.s.v.upgrading.lane, Lane::Busy(..)) || self.s.registration_waits() {
                return;
            }
        }
        if self.s.must_disarm() {
            return match self.s.v.upgrading.stuck {
                Some((until, _)) if self.now.boot_ms < until => self.wait_until(until),
                _ => self.work(Work::Disarm, Do::Disarm),
            };
        }
        if !known {
            return;
        }
        if !wanted {
            return self.end_upgrade();
        }
        let Some(upgrade) = &self.s.d.upgrade else { return };
        if let Some(failed) = &upgrade.failure {
            let until = failed.at_boot_ms.saturating_add(failed.wait_ms);
            if self.now.boot_ms < until {
                return self.wait_until(until);
            }
        }
        if let Some(offer) = self.s.offer().cloned() {
            self.go_on(offer);
        }
    }

    /// The next thing of the attempt.
    fn go_on(&mut self, offer: UpgradeOffer) {
        let next = self.s.v.upgrading.next;
        if next == Work::Check {
            self.s.v.upgrading.steps.clear();
            if let Some(upgrade) = &mut self.s.d.upgrade {
                upgrade.failure = None;
                upgrade.attempt = upgrade.attempt.saturating_add(1);
            }
        }
        self.began(next.step());
        // What is still to be told would be lost with the machine.
        let telling = !self.s.v.reports.is_empty() && self.s.v.post_failures == 0;
        if next == Work::Restart && telling {
            return;
        }
        if matches!(next, Work::Write | Work::Arm | Work::Restart) && !self.still_wanted() {
            return;
        }
        let Some(upgrade) = &mut self.s.d.upgrade else { return };
        let manifest = upgrade.manifest;
        match (next, manifest) {
            (Work::Check, _) => self.work(next, Do::Check(offer)),
            (Work::Fetch, _) => self.work(next, Do::Fetch),
            (Work::Verify, _) => self.work(next, Do::Verify),
            (Work::Write, Some(manifest)) => self.work(next, Do::Write(manifest)),
            (Work::Arm, Some(manifest)) => {
                // On disk before the helper is asked: from here on a start may be of the new OS.
                upgrade.phase = UpgradePhase::Armed;
                upgrade.armed_boot_id = Some(self.s.v.env.boot_id.clone());
                upgrade.client_fp = match &self.s.v.identity {
                    Slot::Ready(identity) => Some(B64(identity.client_fp)),
                    _ => None,
                };
                self.work(next, Do::Arm(manifest));
            }
            (Work::Restart, _) => self.work(next, Do::Restart),
            _ => self.s.v.upgrading.next = Work::Check,
        }
    }

    /// Whether the cluster has just said again that it wants this. If not it is asked now.
    fn still_wanted(&mut self) -> bool {
        match self.s.v.upgrading.ask {
            Ask::Confirmed => {
                self.s.v.upgrading.ask = Ask::No;
                self.out.push(Effect::Disarm(Timer::Upgrade));
                true
            }
            Ask::No => {
                self.s.v.upgrading.ask = Ask::Due;
                self.out.push(Effect::Arm(Timer::Upgrade, SILENT_MS));
                // An answer to a question that was asked earlier would not do.
                if matches!(self.s.v.main, Lane::Busy(Call::Poll, _)) {
                    self.cancel_main();
                }
                false
            }
            Ask::Due | Ask::Sent => false,
        }
    }

    /// Whether the next poll is that question; it is then under way.
    pub(super) fn upgrade_asks(&mut self) -> bool {
        let due = self.s.v.upgrading.ask == Ask::Due;
        if due {
            self.s.v.upgrading.ask = Ask::Sent;
        }
        due
    }

    /// The question got no answer.
    pub(super) fn ask_again(&mut self) {
        if self.s.v.upgrading.ask == Ask::Sent {
            self.s.v.upgrading.ask = Ask::Due;
        }
    }

    /// No upgrade is wanted, or nobody knows at the moment.
    fn end_upgrade(&mut self) {
        let stopped = self.s.d.stop.as_ref().is_some_and(|stop| stop.code.class() == Class::Final);
        let over =
            stopped || self.s.d.joined.is_some() || self.s.word().is_some_and(|word| word != "needs-upgrade");
        if over && self.s.d.upgrade.take().is_some() {
            self.s.v.upgrading.to_clean = true;
        }
        if over && self.s.v.upgrading.to_clean {
            self.s.v.upgrading.to_clean = false;
            self.work(Work::Clean, Do::Clean);
        }
    }

    /// The attempt is over; the next one begins by itself.
    fn upgrade_failed(&mut self, step: UpgradeStep, fault: UpgradeFault) {
        let wait_ms = RETRY_MS + self.now.random % SPREAD_MS;
        let boot_id = self.s.v.env.boot_id.clone();
        self.ended(step, StepStatus::Failed, Some(&fault));
        let Some(upgrade) = &mut self.s.d.upgrade else { return };
        self.out.push(Effect::Say(Notice::Upgrade {
            step,
            fault: Box::new(fault.clone()),
            retry_ms: wait_ms,
            attempt: upgrade.attempt,
        }));
        upgrade.failure = Some(Failed { step, fault, boot_id, at_boot_ms: self.now.boot_ms, wait_ms });
        let upgrading = &mut self.s.v.upgrading;
        (upgrading.next, upgrading.ask, upgrading.figures) = (Work::Check, Ask::No, None);
        self.wait_until(self.now.boot_ms.saturating_add(wait_ms));
    }

    fn wait_until(&mut self, until: u64) {
        self.s.v.upgrading.lane = Lane::Delayed(until);
        self.out.push(Effect::Arm(Timer::Upgrade, until.saturating_sub(self.now.boot_ms)));
    }

    /// The operator wants the next attempt now.
    pub(super) fn retry_upgrade(&mut self) {
        if !self.s.upgrade_waits() {
            return;
        }
        if let Some(failed) = self.s.d.upgrade.as_mut().and_then(|up| up.failure.as_mut()) {
            failed.wait_ms = 0;
        }
        self.s.v.upgrading.lane = Lane::Idle;
        self.out.push(Effect::Disarm(Timer::Upgrade));
    }

    /// The same wish, said by a request that is given once more, or by a new one.
    pub(super) fn upgrade_asked_again(&mut self) {
        self.retry_upgrade();
        // Nobody waits at the moment; the wait must not begin either.
        if let Some(failed) = self.s.d.upgrade.as_mut().and_then(|up| up.failure.as_mut()) {
            failed.wait_ms = 0;
        }
    }

    /// The settings were read again.
    pub(super) fn may_upgrade(&mut self, may: bool) {
        if std::mem::replace(&mut self.s.v.env.may_upgrade, may) == may {
            return;
        }
        let text =
            if may { "a self-upgrade is allowed now" } else { "a self-upgrade is not allowed any more" };
        self.info(text.to_owned());
        if may && self.s.d.stop.as_ref().is_some_and(|stop| stop.code == FaultCode::ReleaseMismatch) {
            self.s.d.stop = None;
        }
        // The cluster decides by what it was told.
        if matches!(self.s.word(), Some("needs-upgrade" | "pending")) {
            self.s.v.registered_now = false;
            let paced = matches!(self.s.v.main, Lane::Delayed(_))
                && self.s.v.trouble.is_none()
                && self.s.v.degraded.is_none();
            if paced || matches!(self.s.v.main, Lane::Busy(Call::Poll | Call::Reregister, _)) {
                self.cancel_main();
            }
        }
    }

    pub(super) fn upgrade_timer(&mut self) {
        let upgrading = &mut self.s.v.upgrading;
        match (upgrading.lane, upgrading.ask) {
            (Lane::Delayed(_), _) => upgrading.lane = Lane::Idle,
            (Lane::Busy(Work::Restart, _), _) => {
                upgrading.lane = Lane::Idle;
                self.restart_failed(UpgradeFault::helper("this machine was to restart and did not"));
            }
            (_, Ask::Due | Ask::Sent) => {
                let what = "The cluster did not confirm the upgrade for 10 minutes. Not restarted.";
                let step = upgrading.next.step();
                self.upgrade_failed(step, UpgradeFault::new(Code::FounderSilent, what, "Check the founder."));
            }
            _ => {}
        }
    }

    fn restart_failed(&mut self, fault: UpgradeFault) {
        if self.s.registration_waits() {
            self.info(format!("{} It is tried again.", fault.what));
            return self.wait_until(self.now.boot_ms + backoff::MINUTE_MS);
        }
        // Otherwise it is not wanted any more, and is disarmed.
        if self.s.v.upgrading.next == Work::Restart {
            self.upgrade_failed(UpgradeStep::Boot, fault);
        }
    }

    /// What must come to its end is tried again soon.
    fn stuck(&mut self, doing: &'static str, fault: &UpgradeFault) {
        let attempt = self.s.v.upgrading.stuck.map_or(0, |(_, failures)| failures).saturating_add(1);
        let until = self.now.boot_ms.saturating_add(STUCK_PACE_MS);
        self.s.v.upgrading.stuck = Some((until, attempt));
        let fault = Box::new(Fault::new(FaultCode::Local, fault.what.as_str()));
        self.say(Notice::Fault { doing, fault, retry_ms: Some(STUCK_PACE_MS), attempt });
        self.wait_until(until);
    }

    // --- answers ------------------------------------------------------------------------------

    pub(super) fn upgrade_done(&mut self, done: Done) {
        match done {
            Done::Os(answer) => self.os_known(*answer),
            Done::Figures(figures) => {
                if let Lane::Busy(Work::Fetch | Work::Verify | Work::Write, _) = self.s.v.upgrading.lane {
                    self.s.v.upgrading.figures = Some(figures);
                }
            }
            Done::Check(answer) if self.take_work(Work::Check) => self.checked(answer),
            Done::Fetch(answer) if self.take_work(Work::Fetch) => {
                self.passed(answer, Work::Fetch, Work::Verify)
            }
            Done::Verify(answer) if self.take_work(Work::Verify) => {
                self.passed(answer, Work::Verify, Work::Write);
            }
            Done::Write(answer) if self.take_work(Work::Write) => self.written(answer),
            Done::Arm(answer) if self.take_work(Work::Arm) => match answer {
                // The offer changed while it was armed: it is disarmed now.
                _ if self.s.v.upgrading.next != Work::Arm => {}
                Ok(()) => self.passed(Ok(()), Work::Arm, Work::Restart),
                // What it came to is not known, so it is taken back.
                Err(fault) => self.upgrade_failed(UpgradeStep::Install, fault),
            },
            Done::Restart(Ok(())) => {
                if matches!(self.s.v.upgrading.lane, Lane::Busy(Work::Restart, _)) {
                    self.info("this machine restarts into the new OS".to_owned());
                    self.out.push(Effect::Arm(Timer::Upgrade, RESTART_MS));
                }
            }
            Done::Restart(Err(fault)) if self.take_work(Work::Restart) => self.restart_failed(fault),
            Done::Disarm(answer) if self.take_work(Work::Disarm) => self.disarmed(answer),
            Done::Bless(answer) if self.take_work(Work::Bless) => self.blessed(answer),
            Done::Clean(answer) if self.take_work(Work::Clean) => self.cleaned(answer),
            // Late answers to what was broken off.
            _ => {}
        }
    }

    fn checked(&mut self, answer: Result<Checked, UpgradeFault>) {
        let (manifest, host) = match answer {
            Ok(Checked::Release { manifest, host }) => (manifest, host),
            Ok(Checked::Stale | Checked::Installed) => return self.stale_offer(),
            Err(fault) => {
                let whole = matches!(fault.code, Code::SourceRefused | Code::Unsupported);
                let step = if whole { UpgradeStep::Whole } else { UpgradeStep::Manifest };
                return self.upgrade_failed(step, fault);
            }
        };
        self.s.v.upgrading.stale = 0;
        self.s.v.upgrading.host = Some(host);
        if let Some(upgrade) = &mut self.s.d.upgrade {
            // Another release under the same name: its attempts are counted anew.
            if upgrade.manifest.is_some_and(|old| old != manifest) {
                (upgrade.attempt, upgrade.boot_failures) = (1, 0);
            }
            upgrade.manifest = Some(manifest);
        }
        self.passed(Ok(()), Work::Check, Work::Fetch);
    }

    /// The offer speaks of another release than the one that runs: the cluster is told what runs.
    fn stale_offer(&mut self) {
        self.s.v.upgrading.stale += 1;
        if self.s.v.upgrading.stale > STALE {
            // The next attempt tells it once more.
            self.s.v.upgrading.stale = 0;
            let (from, to) = self
                .s
                .d
                .upgrade
                .as_ref()
                .map_or_else(Default::default, |up| (up.from.clone(), up.to.clone()));
            let what = format!(
                "The cluster offers an upgrade from {from} to {to}, and this machine runs another release."
            );
            return self.upgrade_failed(
                UpgradeStep::Whole,
                UpgradeFault::new(Code::WrongRelease, what, "Reject this machine and let it register anew."),
            );
        }
        self.s.d.upgrade = None;
        self.s.v.view = None;
        self.s.v.registered_now = false;
        self.s.v.upgrading.steps.clear();
        if matches!(self.s.v.main, Lane::Busy(Call::Poll, _)) {
            self.cancel_main();
        }
    }

    fn passed(&mut self, answer: Result<(), UpgradeFault>, work: Work, next: Work) {
        match answer {
            Ok(()) => {
                self.s.v.upgrading.next = next;
                self.s.v.upgrading.figures = None;
                if next.step() != work.step() {
                    self.ended(work.step(), StepStatus::Done, None);
                }
            }
            Err(fault) => self.upgrade_failed(work.step(), fault),
        }
    }

    fn written(&mut self, answer: Result<OsSlot, UpgradeFault>) {
        if let (Ok(slot), Some(upgrade)) = (&answer, &mut self.s.d.upgrade) {
            upgrade.slot = Some(*slot);
        }
        self.passed(answer.map(drop), Work::Write, Work::Arm);
    }

    fn disarmed(&mut self, answer: Result<(), UpgradeFault>) {
        match answer {
            Ok(()) => {
                self.s.v.upgrading.stuck = None;
                if let Slot::Ready(os) = &mut self.s.v.upgrading.os {
                    os.armed = None;
                }
                if let Some(upgrade) = &mut self.s.d.upgrade {
                    upgrade.phase = UpgradePhase::Preparing;
                    (upgrade.armed_boot_id, upgrade.client_fp) = (None, None);
                }
                self.info("the next start is of the OS that runs now".to_owned());
            }
            Err(fault) => self.stuck("taking the next start back from the new OS", &fault),
        }
    }

    fn cleaned(&mut self, answer: Result<(), UpgradeFault>) {
        if let Err(fault) = answer {
            self.info(format!("files of an upgrade that is over stay on the disk: {}", fault.what));
        }
    }

    // --- helpers ------------------------------------------------------------------------------

    fn work(&mut self, work: Work, what: Do) {
        self.s.v.upgrading.lane = Lane::Busy(work, self.now.boot_ms);
        self.out.push(Effect::Upgrade(what));
    }

    fn take_work(&mut self, work: Work) -> bool {
        let mine = matches!(self.s.v.upgrading.lane, Lane::Busy(w, _) if w == work);
        if mine {
            self.s.v.upgrading.lane = Lane::Idle;
        }
        mine
    }

    fn info(&mut self, text: String) {
        self.say(Notice::Info(Safe::clean(text)));
    }

    /// Shown, and told to the cluster, once.
    fn began(&mut self, step: UpgradeStep) {
        let now = self.now.boot_ms;
        let steps = &mut self.s.v.upgrading.steps;
        if steps.iter().any(|line| line.step == step) {
            return;
        }
        steps.push(UpgradeLine { step, status: StepStatus::Running, began_ms: now, ended_ms: None });
        self.tell(step, StepStatus::Running, None);
    }

    fn ended(&mut self, step: UpgradeStep, status: StepStatus, fault: Option<&UpgradeFault>) {
        let now = self.now.boot_ms;
        let lines = self.s.v.upgrading.steps.iter_mut();
        for line in
            lines.filter(|line| line.step == step || (step == UpgradeStep::Whole && line.ended_ms.is_none()))
        {
            (line.status, line.ended_ms) = (status, Some(now));
        }
        self.tell(step, status, fault);
    }

    fn tell(&mut self, step: UpgradeStep, status: StepStatus, fault: Option<&UpgradeFault>) {
        let report = report(step, status, fault);
        // A failure has a line of its own, with when it is tried again.
        if fault.is_none() {
            self.say_step(&report);
        }
        self.queue(Queued { report, is_end: false });
    }
}

/// What the cluster is told of a step.
pub(super) fn report(step: UpgradeStep, status: StepStatus, fault: Option<&UpgradeFault>) -> StepReport {
    let index = step.index();
    StepReport {
        step: Safe::clean(step.name()),
        title: Safe::clean(step.title()),
        index,
        total: index.map(|_| UpgradeStep::ALL.len() as u32),
        status,
        error: fault.map(|fault| Safe::clean(format!("{}: {}", fault.code.as_str(), fault.what))),
    }
}
