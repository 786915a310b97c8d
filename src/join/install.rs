//! From the delivery to the end of firstboot: received, written, acknowledged, started at most once per attempt, followed. Touches nothing.

use console::text::Safe;

use super::backoff;
use super::effect::{Effect, Timer};
use super::event::{DeliveryView, FirstbootEnd, StepReport};
use super::fault::{Code, Fault};
use super::notice::Notice;
use super::state::{Call, Handoff, Lane, LogBatch, MAX_STEPS, Queued, Stage, StepLine, Trouble, Verb};
use super::step::Turn;
use crate::protocol::wire::{self, StepStatus};

/// Step name and title of the join as a whole, used when no step of firstboot fits (documented name `join`).
const JOIN_STEP: (&str, &str) = ("join", "Joining the cluster");

impl Turn {
    /// After a restart: what the boot and the stage allow. An attempt that may have been started is never started again in another boot: a
    /// second run over a half-done one could destroy what the first wrote.
    pub(super) fn resume_handoff(&mut self) {
        if self.s.d.joined.is_some() {
            return;
        }
        let boot_id = self.s.v.env.boot_id.clone();
        let Some(handoff) = &mut self.s.d.handoff else { return };
        let rebooted = handoff.boot_id != boot_id;
        match handoff.stage {
            Stage::Received | Stage::Written | Stage::Acked if rebooted => {
                // The bundle was on tmpfs. Nothing was started: fetch it again.
                handoff.stage = Stage::Received;
                handoff.boot_id = boot_id;
            }
            // The step that failed is known, and only the end of the program was not: that stays what is told.
            Stage::Starting | Stage::Running if rebooted && handoff.failure.is_some() => {
                handoff.stage = Stage::Failed;
            }
            Stage::Starting | Stage::Running if rebooted => {
                self.firstboot_failed("the machine restarted during the install");
            }
            _ => {}
        }
        // What the founder heard of the steps is not known: tell them again, repeats are harmless.
        let Some(handoff) = &self.s.d.handoff else { return };
        if handoff.stage >= Stage::Running && !handoff.end_reported && self.s.v.reports.is_empty() {
            let failed = handoff.failure.clone();
            let steps: Vec<StepReport> = handoff.steps.iter().map(|line| line.report.clone()).collect();
            let stage = handoff.stage;
            for report in steps.into_iter().filter(|r| r.status != StepStatus::Failed) {
                self.s.v.reports.push_back(Queued { report, is_end: false });
            }
            match (stage, failed) {
                (_, Some(report)) => self.s.v.reports.push_back(Queued { report, is_end: true }),
                (Stage::Done, None) => self.queue_end(StepStatus::Done, None),
                _ => {}
            }
        }
    }

    /// Whether the answer is of another attempt than ours.
    fn is_newer(&self, attempt: Option<u64>, delivery: Option<&DeliveryView>) -> bool {
        let Some(handoff) = &self.s.d.handoff else { return true };
        match (handoff.attempt, attempt) {
            (Some(old), Some(new)) => new > old,
            (None, Some(_)) => true,
            (_, None) => delivery.is_some_and(|d| d.sha256 != handoff.sha256),
        }
    }

    /// Whether an answer should have brought a delivery and did not.
    pub(super) fn lacks_delivery(&self, view: &wire::Registration, delivery: Option<&DeliveryView>) -> bool {
        let due = delivery.is_none() && matches!(view.state.as_str(), "delivering" | "installing");
        let newer = self.is_newer(view.attempt, None);
        let received = self.s.d.handoff.as_ref().is_some_and(|h| h.stage == Stage::Received);
        due && if newer { !self.s.v.skipped } else { received }
    }

    /// A poll in `delivering` or `installing` brought (or did not bring) the delivery.
    pub(super) fn delivery(&mut self, attempt: Option<u64>, delivery: Option<DeliveryView>) {
        let newer = self.is_newer(attempt, delivery.as_ref());
        let present = self.s.d.handoff.as_ref();
        let Some(delivery) = delivery else {
            if self.s.v.skipped && newer {
                // We left it out ourselves, and meanwhile it is another attempt's: ask again, with it.
                self.s.v.in_hand = None;
            } else if newer || present.is_some_and(|h| h.stage == Stage::Received) {
                let fault = Fault::new(Code::ResponseInvalid, "the delivery is missing").verified();
                self.again("receiving the configuration", fault);
            }
            return;
        };
        let not_started = present.is_some_and(|h| h.stage <= Stage::Acked && h.attempt == attempt);
        self.s.v.in_hand = Some(delivery.sha256.clone());
        let replaces = not_started && present.is_some_and(|h| h.sha256 != delivery.sha256);
        if !newer && !replaces {
            return;
        }
        let Some(record) = &self.s.d.registration else { return };
        // The log is the join's: what an earlier attempt still has to tell is told before the next one's.
        let next_line = present.map(|h| h.next_line);
        self.s.d.handoff = Some(Handoff {
            join_id: record.join_id.clone(),
            attempt,
            sha256: delivery.sha256,
            stage: Stage::Received,
            boot_id: self.s.v.env.boot_id.clone(),
            node_id: delivery.node_id,
            cluster_id: delivery.cluster_id,
            steps: Vec::new(),
            failure: None,
            end_reported: false,
            next_line: next_line.unwrap_or(1),
            log_cursor: None,
        });
        self.clear_reports();
        if next_line.is_none() {
            self.clear_posts();
        }
        self.s.v.last_line = None;
        self.note_older_run();
        if let Some(problem) = delivery.problem {
            let text = format!("the received configuration is not usable: {}", problem.detail);
            self.firstboot_failed(&text);
            self.say(Notice::Fault {
                doing: "checking the configuration",
                fault: Box::new(problem),
                retry_ms: None,
                attempt: 1,
            });
        }
    }

    /// An older attempt that still runs holds up this one. A person must know what is waited for.
    fn note_older_run(&mut self) {
        if self.s.v.following.is_none() {
            return;
        }
        let detail = "firstboot of an earlier attempt still runs, and this one starts when it has ended";
        let fault = Fault::new(Code::Local, detail);
        let doing = "placing the configuration";
        self.say(Notice::Info(Safe::clean(detail)));
        self.s.v.privileged_trouble =
            Some(Trouble { fault, doing, since_ms: self.now.boot_ms, attempts: 1, retry_at_ms: None });
    }

    pub(super) fn drive_privileged(&mut self) {
        if self.s.v.privileged != Lane::Idle {
            return;
        }
        if self.s.d.joined.is_some() {
            // A member does not start another OS at its next start.
            if self.s.armed_here() {
                return;
            }
            let posting =
                self.s.v.post != Lane::Idle || !self.s.v.reports.is_empty() || !self.s.v.log.is_empty();
            if self.s.v.following.is_none() && !(posting && self.s.v.post_failures == 0) {
                self.verb(Verb::MarkJoined, Effect::WriteJoinedMarker);
            }
            return;
        }
        let wanted = self.s.d.stop.is_none() && matches!(self.s.word(), Some("delivering" | "installing"));
        let Some(handoff) = &mut self.s.d.handoff else { return };
        let (attempt, sha256) = (handoff.attempt, handoff.sha256.clone());
        match handoff.stage {
            Stage::Received if self.s.v.in_hand.as_ref() == Some(&sha256) => {
                self.s.v.writing = Some(handoff.hand());
                self.verb(Verb::WriteDelivery, Effect::WriteDelivery { attempt, sha256 });
            }
            // Whoever is asked to start it may find that it does not run yet: then the cluster must still want it.
            Stage::Acked | Stage::Starting if !wanted => {}
            Stage::Acked | Stage::Starting | Stage::Running => {
                // `Starting` is in the journal before the verb is sent.
                if handoff.stage == Stage::Acked {
                    handoff.stage = Stage::Starting;
                }
                let log_cursor = handoff.log_cursor.clone();
                self.s.v.following = Some(handoff.hand());
                self.verb(Verb::StartFirstboot, Effect::StartFirstboot { attempt, sha256, log_cursor });
            }
            _ => {}
        }
    }

    /// The cluster does not want this attempt any more and nothing of it was started: it is over, and never started later.
    pub(super) fn give_up_unstarted(&mut self) {
        let Some(handoff) = &mut self.s.d.handoff else { return };
        if self.s.v.following.is_some() || !matches!(handoff.stage, Stage::Acked | Stage::Starting) {
            return;
        }
        handoff.stage = Stage::Failed;
        handoff.end_reported = true;
        self.settle_privileged();
    }

    /// Ends the wait for a verb's next try.
    pub(super) fn settle_privileged(&mut self) {
        self.s.v.privileged_trouble = None;
        if let Lane::Delayed(_) = self.s.v.privileged {
            self.out.push(Effect::Disarm(Timer::Privileged));
            self.s.v.privileged = Lane::Idle;
        }
    }

    fn verb(&mut self, verb: Verb, effect: Effect) {
        self.s.v.privileged = Lane::Busy(verb, self.now.boot_ms);
        self.out.push(effect);
    }

    fn verb_failed(&mut self, doing: &'static str, fault: Fault) {
        let old = self.s.v.privileged_trouble.take();
        let attempts = old.as_ref().map_or(0, |t| t.attempts) + 1;
        let since_ms = old.map_or(self.now.boot_ms, |t| t.since_ms);
        let delay = backoff::delay_ms(&fault, attempts, self.now.random);
        self.say(Notice::Fault {
            doing,
            fault: Box::new(fault.clone()),
            retry_ms: Some(delay),
            attempt: attempts,
        });
        let retry_at_ms = Some(self.now.boot_ms + delay);
        self.s.v.privileged_trouble = Some(Trouble { fault, doing, since_ms, attempts, retry_at_ms });
        self.s.v.privileged = Lane::Delayed(self.now.boot_ms + delay);
        self.out.push(Effect::Arm(Timer::Privileged, delay));
    }

    fn verb_ok(&mut self, verb: &'static str) {
        self.s.v.privileged_trouble = None;
        self.say(Notice::Verb { verb, result: Safe::clean("ok") });
    }

    pub(super) fn delivery_written(&mut self, answer: Result<String, Fault>) {
        if !self.take_verb(Verb::WriteDelivery) {
            return;
        }
        let written = self.s.v.writing.take();
        match answer {
            Ok(sha256) => {
                self.verb_ok("write-delivery");
                let Some(handoff) = &mut self.s.d.handoff else { return };
                let present = Some(handoff.hand()) == written && handoff.sha256 == sha256;
                if present && handoff.stage == Stage::Received {
                    handoff.stage = Stage::Written;
                    // Acknowledged at once, not when a held poll ends.
                    if matches!(self.s.v.main, Lane::Busy(Call::Poll, _)) {
                        self.cancel_main();
                    }
                }
                // If another delivery came meanwhile, it is written next.
            }
            Err(fault)
                if fault.code == Code::DeliveryInvalid
                    && self.s.d.handoff.as_ref().map(Handoff::hand) == written =>
            {
                let text = format!("the received configuration is not usable: {}", fault.detail);
                self.firstboot_failed(&text);
            }
            Err(fault) => self.verb_failed("placing the configuration", fault),
        }
    }

    pub(super) fn firstboot_running(&mut self) {
        let following = self.s.v.following.clone();
        if let Some(handoff) = &mut self.s.d.handoff
            && Some(handoff.hand()) == following
            && handoff.stage == Stage::Starting
        {
            handoff.stage = Stage::Running;
            self.s.v.last_report_ms = self.now.boot_ms;
        }
    }

    /// The attempt that is followed is the present one: what an older one still says is dropped.
    fn is_present(&self) -> bool {
        self.s.v.following.is_some() && self.s.v.following == self.s.d.handoff.as_ref().map(Handoff::hand)
    }

    pub(super) fn firstboot_step(&mut self, report: StepReport) {
        if !self.is_present() {
            return;
        }
        let now = self.now.boot_ms;
        let Some(handoff) = &mut self.s.d.handoff else { return };
        if matches!(handoff.stage, Stage::Starting) {
            handoff.stage = Stage::Running;
        }
        if handoff.failure.is_some() {
            return;
        }
        let ended_ms = (report.status != StepStatus::Running).then_some(now);
        match handoff.steps.iter_mut().rev().find(|line| line.report.step == report.step) {
            // The same datagram twice says nothing new.
            Some(line) if line.report == report => return,
            Some(line) => {
                line.report = kept(&report);
                line.ended_ms = ended_ms;
            }
            None => {
                handoff.steps.push(StepLine { report: kept(&report), began_ms: now, ended_ms });
                let surplus = handoff.steps.len().saturating_sub(MAX_STEPS);
                handoff.steps.drain(..surplus);
            }
        }
        // firstboot walks its steps one by one: what it has left behind is done, also when the datagram that said so was lost.
        let passed = handoff.steps.len().saturating_sub(1);
        self.finish_steps(passed);
        let Some(handoff) = &mut self.s.d.handoff else { return };
        let is_end = report.status == StepStatus::Failed;
        if is_end {
            handoff.failure = Some(report.clone());
        }
        self.say_step(&report);
        self.queue(Queued { report, is_end });
    }

    /// A step as a line of the log.
    pub(super) fn say_step(&mut self, report: &StepReport) {
        let status = match report.status {
            StepStatus::Running => "running",
            StepStatus::Done => "done",
            StepStatus::Failed => "failed",
        };
        self.say(Notice::Step {
            step: report.step.clone(),
            title: report.title.clone(),
            index: report.index,
            total: report.total,
            status,
            error: report.error.clone(),
        });
    }

    /// Notes the first `count` steps as done where they still run.
    fn finish_steps(&mut self, count: usize) {
        let now = self.now.boot_ms;
        let Some(handoff) = &mut self.s.d.handoff else { return };
        let mut done = Vec::new();
        for line in handoff.steps.iter_mut().take(count).filter(|l| l.report.status == StepStatus::Running) {
            line.report.status = StepStatus::Done;
            line.ended_ms = Some(now);
            done.push(Queued { report: line.report.clone(), is_end: false });
        }
        for queued in done {
            self.queue(queued);
        }
    }

    pub(super) fn firstboot_log(&mut self, lines: Vec<Safe<1024>>, cursor: String) {
        if !self.is_present() || lines.is_empty() {
            return;
        }
        if let Some(last) = lines.last() {
            self.s.v.last_line = Some((Safe::clean(last.as_str()), self.now.boot_ms));
        }
        self.keep_log(LogBatch { lines, cursor, lost: 0 });
    }

    pub(super) fn firstboot_ended(&mut self, end: Result<FirstbootEnd, Fault>) {
        if !self.take_verb(Verb::StartFirstboot) {
            return;
        }
        let present = self.is_present();
        self.s.v.following = None;
        let end = match end {
            Ok(end) => end,
            Err(fault) => return self.verb_failed("starting firstboot", fault),
        };
        self.s.v.privileged_trouble = None;
        let result = match &end {
            FirstbootEnd::Done => "firstboot ended well".to_owned(),
            FirstbootEnd::Failed(status) => format!("firstboot failed: {status}"),
            FirstbootEnd::Lost => "firstboot's end is not known: the machine restarted".to_owned(),
        };
        self.say(Notice::Verb { verb: "start-firstboot", result: Safe::clean(result) });
        if !present {
            return;
        }
        let Some(handoff) = &mut self.s.d.handoff else { return };
        let failed_step = handoff.failure.is_some();
        match end {
            // Its failed report is on its way already; a second one could hit the next attempt.
            _ if failed_step => handoff.stage = Stage::Failed,
            FirstbootEnd::Done => {
                handoff.stage = Stage::Done;
                self.finish_steps(usize::MAX);
                self.queue_end(StepStatus::Done, None);
            }
            FirstbootEnd::Failed(status) => self.firstboot_failed(&format!("firstboot ended with {status}")),
            FirstbootEnd::Lost => self.firstboot_failed("the machine restarted during the install"),
        }
    }

    /// The attempt is over without a failed step of its own: failed at the last step, or at `join` when there was none or the machine restarted.
    fn firstboot_failed(&mut self, error: &str) {
        let now = self.now.boot_ms;
        let Some(handoff) = &mut self.s.d.handoff else { return };
        let last = handoff
            .steps
            .last_mut()
            .filter(|_| handoff.stage == Stage::Running && !error.contains("restarted"));
        let report = match last {
            Some(line) => {
                line.report.status = StepStatus::Failed;
                line.report.error = Some(Safe::clean(error));
                line.ended_ms = Some(now);
                line.report.clone()
            }
            None => join_report(StepStatus::Failed, Some(Safe::clean(error))),
        };
        handoff.stage = Stage::Failed;
        handoff.failure = Some(report.clone());
        self.queue(Queued { report, is_end: true });
    }

    fn queue_end(&mut self, status: StepStatus, error: Option<Safe<2048>>) {
        self.queue(Queued { report: join_report(status, error), is_end: true });
    }

    pub(super) fn joined_marked(&mut self, answer: Result<(), Fault>) {
        if !self.take_verb(Verb::MarkJoined) {
            return;
        }
        match answer {
            Ok(()) => {
                self.s.v.finished = true;
                self.out.push(Effect::Exit);
            }
            Err(fault) => self.verb_failed("writing the joined marker", fault),
        }
    }
}

/// The join as a whole.
pub(super) fn join_report(status: StepStatus, error: Option<Safe<2048>>) -> StepReport {
    let (step, title) = (Safe::clean(JOIN_STEP.0), Safe::clean(JOIN_STEP.1));
    StepReport { step, title, index: None, total: None, status, error }
}

/// A report as the journal keeps it: only a failed step has an error, so that 64 steps stay far below the journal's cap.
fn kept(report: &StepReport) -> StepReport {
    let error = report.error.clone().filter(|_| report.status == StepStatus::Failed);
    StepReport { error, ..report.clone() }
}
