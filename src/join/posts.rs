//! The post lane: progress and log lines to the founder, in order, resumed after a gap, never silent for long. Touches nothing.

use super::backoff;
use super::effect::{Effect, Timer};
use super::fault::{Class, Code, Fault};
use super::install::join_report;
use super::state::{Lane, LogBatch, MAX_LOG_BATCHES, Post, Queued, SEQ_BLOCK, Stage};
use super::step::Turn;
use super::upgrade;
use crate::protocol::wire::{self, LogRequest, ProgressRequest, StepStatus};

/// A running step is told again after this long without a report (docs/protocol.md: at most 120 s).
const HEARTBEAT_MS: u64 = 110_000;
/// While a report is due and cannot be told, it is looked at this often.
const HEARTBEAT_PACE_MS: u64 = 5_000;
/// Between two log calls.
const LOG_PACE_MS: u64 = 1_000;
/// Most lines of one log call.
const MAX_LINES: usize = 200;
/// Most bytes of lines that are put together for one log call; a founder takes 256 KiB with all around them.
const MAX_BODY: usize = 64 * 1024;
/// Largest sequence or line number (2^53 - 1): a founder that names a larger one is held to it.
const MAX_NUMBER: u64 = (1 << 53) - 1;
/// Reports kept unsent; the oldest that is not the end goes first.
const MAX_REPORTS: usize = 256;

impl Turn {
    pub(super) fn queue(&mut self, queued: Queued) {
        let reports = &mut self.s.v.reports;
        if reports.len() >= MAX_REPORTS
            && let Some(place) = reports.iter().skip(1).position(|q| !q.is_end)
        {
            // The first one may be under way.
            reports.remove(place + 1);
        }
        reports.push_back(queued);
        // A log call that is only being paced must not hold up a step.
        if self.s.v.post_failures == 0 && matches!(self.s.v.post, Lane::Delayed(_)) {
            self.out.push(Effect::Disarm(Timer::Post));
            self.s.v.post = Lane::Idle;
        }
    }

    /// The steps are of an attempt that is over; the report under way is answered to nobody.
    pub(super) fn clear_reports(&mut self) {
        self.s.v.reports.clear();
        self.s.v.stale_post |= matches!(self.s.v.post, Lane::Busy(Post::Progress, _));
    }

    /// All that was to be told is of another registration.
    pub(super) fn clear_posts(&mut self) {
        self.s.v.reports.clear();
        self.s.v.log.clear();
        self.s.v.stale_post |= matches!(self.s.v.post, Lane::Busy(..));
    }

    pub(super) fn drive_post(&mut self) {
        if self.s.v.post != Lane::Idle || self.s.d.stop.is_some() {
            return;
        }
        let Some(join_id) = self.s.d.registration.as_ref().map(|r| r.join_id.clone()) else { return };
        // After a restart the key is loaded first; joined, it is not loaded any more and nothing is told.
        if self.s.identity().is_none() {
            return;
        }
        if self.s.d.joined.is_some() && self.s.v.post_failures > 0 {
            self.s.v.reports.clear();
            self.s.v.log.clear();
        }
        if let Some(queued) = self.s.v.reports.front() {
            let body = progress(queued, 0, &self.s.v.env.boot_id);
            let attempt = self.s.d.handoff.as_ref().and_then(|h| h.attempt);
            let seq = self.next_seq();
            self.s.v.post = Lane::Busy(Post::Progress, self.now.boot_ms);
            self.out.push(Effect::SendProgress { join_id, body: ProgressRequest { seq, attempt, ..body } });
            return;
        }
        let Some(batch) = self.s.v.log.front() else { return };
        if self.now.boot_ms < self.s.v.next_log_ms {
            return self.delay_post(self.s.v.next_log_ms - self.now.boot_ms);
        }
        let next_line = self.s.d.handoff.as_ref().map_or(1, |h| h.next_line);
        let lines = batch.lines.iter().map(|line| line.as_str().to_owned()).collect();
        let body = LogRequest { first: next_line + batch.lost, lost: batch.lost, lines };
        self.s.v.next_log_ms = self.now.boot_ms + LOG_PACE_MS;
        self.s.v.post = Lane::Busy(Post::Log, self.now.boot_ms);
        self.out.push(Effect::SendLog { join_id, body });
    }

    /// The next sequence number. Blocks are reserved in the journal, so that a restart never uses one again.
    fn next_seq(&mut self) -> u64 {
        if self.s.v.next_seq == 0 {
            self.s.v.next_seq = self.s.d.seq_reserved + 1;
        }
        if self.s.v.next_seq > self.s.d.seq_reserved {
            self.s.d.seq_reserved = self.s.v.next_seq - 1 + SEQ_BLOCK;
        }
        self.s.v.next_seq
    }

    pub(super) fn progress_sent(&mut self, answer: Result<wire::ProgressAnswer, Fault>) {
        if !self.take_post(Post::Progress) {
            return;
        }
        if std::mem::take(&mut self.s.v.stale_post) {
            // Its number may have been used; the next report is another one.
            let last_seq = answer.map_or(0, |answer| answer.last_seq.min(MAX_NUMBER));
            self.s.v.next_seq = self.s.v.next_seq.max(last_seq) + 1;
            return;
        }
        match answer {
            Ok(answer) => {
                let sent = self.s.v.next_seq;
                let last_seq = answer.last_seq.min(MAX_NUMBER);
                self.s.v.next_seq = sent.max(last_seq) + 1;
                if last_seq > sent {
                    // The founder has seen higher numbers: this report was ignored, so it is sent again above them.
                    self.s.v.post_failures += 1;
                    let delay = backoff::jittered_ms(self.s.v.post_failures, self.now.random);
                    return self.delay_post(delay);
                }
                self.s.v.post_failures = 0;
                self.s.v.last_report_ms = self.now.boot_ms;
                if let Some(sent) = self.s.v.reports.pop_front() {
                    self.end_reported(&sent);
                }
            }
            Err(fault) if is_for_later(&fault) || self.end_is_due() => self.post_again(&fault),
            // The founder does not want it (another state, an unknown record): what is true now, the poll tells.
            Err(_) => {
                self.s.v.next_seq += 1;
                self.s.v.post_failures = 0;
                if let Some(refused) = self.s.v.reports.pop_front() {
                    self.end_reported(&refused);
                }
            }
        }
    }

    /// The founder still waits for the end of the attempt, and that is what was sent: it is never given up.
    fn end_is_due(&self) -> bool {
        // Without a registration it is just being made anew, and it may be the same one.
        matches!(self.s.word(), Some("delivering" | "installing") | None)
            && self.s.v.reports.front().is_some_and(|queued| queued.is_end)
    }

    fn end_reported(&mut self, queued: &Queued) {
        if let Some(handoff) = &mut self.s.d.handoff
            && queued.is_end
        {
            handoff.end_reported = true;
        }
    }

    pub(super) fn log_sent(&mut self, answer: Result<wire::LogAnswer, Fault>) {
        if !self.take_post(Post::Log) || std::mem::take(&mut self.s.v.stale_post) {
            return;
        }
        match answer {
            Ok(answer) => {
                let Some(batch) = self.s.v.log.pop_front() else { return };
                if let Some(handoff) = &mut self.s.d.handoff {
                    let last = handoff.next_line + batch.lost + batch.lines.len() as u64 - 1;
                    let last_line = answer.last_line.min(MAX_NUMBER);
                    if last_line > last && self.s.v.post_failures < 3 {
                        // Another run used these numbers: go on above them, with the same lines.
                        handoff.next_line = last_line + 1;
                        self.s.v.log.push_front(batch);
                        self.s.v.post_failures += 1;
                        return;
                    }
                    handoff.next_line = last + 1;
                    handoff.log_cursor = Some(batch.cursor);
                }
                self.s.v.post_failures = 0;
            }
            Err(fault) if is_for_later(&fault) => self.post_again(&fault),
            // A refused log never holds up a join.
            Err(_) => {
                if let Some(batch) = self.s.v.log.pop_front()
                    && let Some(next) = self.s.v.log.front_mut()
                {
                    next.lost += batch.lost + batch.lines.len() as u64;
                }
            }
        }
    }

    /// Keeps log lines until they are told. One call a second goes out, so what comes in small pieces is put together; the oldest go first when
    /// the founder is away for long, and are counted.
    pub(super) fn keep_log(&mut self, mut batch: LogBatch) {
        let under_way = usize::from(matches!(self.s.v.post, Lane::Busy(Post::Log, _)));
        let log = &mut self.s.v.log;
        let size = |batch: &LogBatch| batch.lines.iter().map(|line| line.as_str().len()).sum::<usize>();
        let free = log.len() > under_way;
        match log.back_mut().filter(|_| free) {
            Some(last)
                if last.lines.len() + batch.lines.len() <= MAX_LINES
                    && size(last) + size(&batch) <= MAX_BODY =>
            {
                last.lines.append(&mut batch.lines);
                last.cursor = batch.cursor;
            }
            _ => log.push_back(batch),
        }
        if log.len() > MAX_LOG_BATCHES
            && let Some(old) = log.remove(under_way)
            && let Some(next) = log.get_mut(under_way)
        {
            next.lost += old.lost + old.lines.len() as u64;
        }
    }

    fn post_again(&mut self, fault: &Fault) {
        self.s.v.post_failures += 1;
        let delay = backoff::delay_ms(fault, self.s.v.post_failures, self.now.random);
        self.delay_post(delay);
    }

    pub(super) fn drive_heartbeat(&mut self) {
        let running =
            (self.s.firstboot_open() || self.s.upgrade_step().is_some()) && self.s.d.joined.is_none();
        if running && !self.s.v.heartbeat {
            self.s.v.heartbeat = true;
            let quiet = self.now.boot_ms.saturating_sub(self.s.v.last_report_ms);
            let left = HEARTBEAT_MS.saturating_sub(quiet).max(HEARTBEAT_PACE_MS);
            self.out.push(Effect::Arm(Timer::Heartbeat, left));
        } else if !running && self.s.v.heartbeat {
            self.s.v.heartbeat = false;
            self.out.push(Effect::Disarm(Timer::Heartbeat));
        }
    }

    /// Tells the running step again, so that the founder can tell a long step from a dead machine.
    pub(super) fn heartbeat(&mut self) {
        let quiet = self.now.boot_ms.saturating_sub(self.s.v.last_report_ms);
        if quiet < HEARTBEAT_MS || !self.s.v.reports.is_empty() {
            return;
        }
        if let Some(step) = self.s.upgrade_step().map(|line| line.step) {
            let report = upgrade::report(step, StepStatus::Running, None);
            return self.queue(Queued { report, is_end: false });
        }
        if !self.s.firstboot_open() {
            return;
        }
        let Some(handoff) =
            self.s.d.handoff.as_ref().filter(|h| h.stage == Stage::Running && h.failure.is_none())
        else {
            return;
        };
        let report = match handoff.steps.last() {
            Some(line) => line.report.clone(),
            // It runs and has not named a step yet.
            None => join_report(StepStatus::Running, None),
        };
        self.queue(Queued { report, is_end: false });
    }
}

fn is_for_later(fault: &Fault) -> bool {
    match fault.code {
        Code::OtherRefusal | Code::JoinStateConflict | Code::JoinNotFound => false,
        // Trust faults are the poll's to show; the report waits until the right founder is back.
        Code::FounderKeyChanged | Code::PinMismatch => true,
        code => code.class() == Class::Retry,
    }
}

fn progress(queued: &Queued, seq: u64, boot_id: &str) -> ProgressRequest {
    let report = &queued.report;
    let error = match (&report.error, report.status) {
        (Some(error), _) => Some(error.as_str().to_owned()),
        (None, StepStatus::Failed) => Some("no error text".to_owned()),
        (None, _) => None,
    };
    ProgressRequest {
        seq,
        boot_id: boot_id.to_owned(),
        attempt: None,
        step: report.step.as_str().to_owned(),
        title: report.title.as_str().to_owned(),
        index: report.index,
        total: report.total,
        status: report.status,
        error,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::join::event::{DeliveryView, Event};
    use crate::join::sim::{Outcome, World, view};

    fn under_way(world: &World) -> Option<&ProgressRequest> {
        world.outstanding.iter().find_map(|effect| match effect {
            Effect::SendProgress { body, .. } => Some(body),
            _ => None,
        })
    }

    #[test]
    fn a_report_under_way_when_the_next_attempt_begins_does_not_count_as_the_end_of_that() {
        let mut world = World::new();
        for _ in 0..100 {
            if under_way(&world).is_some() {
                break;
            }
            if let Some(record) = world.record().filter(|record| record.state == "pending") {
                record.state = "approved";
            }
            let firstboot = world.outstanding.iter().position(|e| matches!(e, Effect::StartFirstboot { .. }));
            match firstboot {
                Some(index) => world.answer(index, Outcome::LoseRequest),
                None => world.answer(0, Outcome::Deliver),
            }
        }
        let first = under_way(&world).unwrap().clone();
        assert_eq!(first.attempt, Some(1));

        // Meanwhile the founder failed and retried it, and the next delivery is not usable: its end is known at once.
        let record = world.record().unwrap();
        (record.state, record.attempt) = ("delivering", 2);
        let next = view(record);
        let problem = Some(Fault::new(Code::DeliveryInvalid, "node.yaml is no YAML"));
        let delivery = DeliveryView { sha256: "2".repeat(64), problem, cluster_id: None, node_id: None };
        world.feed(Event::Polled(Ok((next, Some(delivery)))));
        world.outstanding.retain(|effect| !matches!(effect, Effect::SendProgress { .. }));
        let answer = wire::ProgressAnswer { state: "delivering".into(), last_seq: first.seq };
        world.feed(Event::ProgressSent(Ok(answer)));

        let second = under_way(&world).unwrap();
        assert_eq!((second.attempt, second.status), (Some(2), StepStatus::Failed));
        assert!(second.seq > first.seq);
        assert!(!world.state.d.handoff.as_ref().unwrap().end_reported);
    }
}
