//! What a joiner reports: acknowledgement, progress, log (docs/protocol.md 3.7 to 3.9).

use console::text::Safe;
use stratum_join::protocol::pairing::delivery_digest;
use stratum_join::protocol::wire::{
    AckAnswer, AckRequest, FieldError, LogAnswer, LogRequest, ProgressAnswer, ProgressRequest, StepStatus,
};
use subtle::ConstantTimeEq;

use super::{body, own_join};
use crate::approve::rules;
use crate::founder::Founder;
use crate::http::{Handled, Peer, Request, Response, field, refuse};
use crate::model::{Acked, Failed, Join, JoinState, StepRecord};
use crate::scheduler;
use crate::store::{NewLines, Tx};
use crate::time::rfc3339;

/// Largest progress and line number: what JSON numbers hold exactly.
const MAX_NUMBER: u64 = (1 << 53) - 1;
/// The step that stands for the join as a whole.
const WHOLE_JOIN: &str = "join";
/// Steps that are kept of one join.
const MAX_STEPS: usize = 500;

pub(crate) fn ack(founder: &Founder, now: i64, peer: Peer, id: &str, request: &Request) -> Handled {
    founder.store.tx(|tx| {
        let mut join = own_join(tx, &peer, id)?;
        let request: AckRequest = body(request)?;
        ended(&join)?;
        let delivery = tx.delivery(&join.id)?.filter(|_| join.state.runs());
        let delivery = delivery.ok_or_else(|| refuse::conflict(join.state))?;
        if request.attempt.is_some_and(|attempt| attempt != delivery.attempt) {
            return Err(refuse::conflict(join.state).into());
        }
        let sent = delivery_digest(delivery.node_yaml.as_bytes(), delivery.bundle.as_bytes());
        if !bool::from(sent.as_bytes().ct_eq(request.sha256.as_bytes())) {
            return Err(refuse::delivery_mismatch().into());
        }
        join.acked = Some(Acked { attempt: delivery.attempt, sha256: sent });
        heard(&mut join, now);
        tx.put_join(&join)?;
        Ok(Response::json(200, &AckAnswer { state: join.state.as_str().into() }))
    })
}

pub(crate) fn progress(founder: &Founder, now: i64, peer: Peer, id: &str, request: &Request) -> Handled {
    founder.store.tx(|tx| {
        let mut join = own_join(tx, &peer, id)?;
        let report: ProgressRequest = body(request)?;
        check(&report)?;
        ended(&join)?;
        let upgrade = is_upgrade(&report.step);
        let takes = match join.state {
            JoinState::Registering => false,
            JoinState::NeedsUpgrade | JoinState::Pending | JoinState::Approved => upgrade,
            _ => true,
        };
        if !takes {
            return Err(refuse::conflict(join.state).into());
        }
        heard(&mut join, now);
        // A late word of an attempt that is over must not end the present one.
        let late = report.attempt.is_some_and(|attempt| attempt < join.attempt);
        if report.seq > join.last_seq && late {
            join.last_seq = report.seq;
        } else if report.seq > join.last_seq {
            join.last_seq = report.seq;
            note_step(&mut join, now, &report);
            move_on(tx, now, &mut join, &report)?;
        }
        tx.put_join(&join)?;
        let answer = ProgressAnswer { state: join.state.as_str().into(), last_seq: join.last_seq };
        Ok(Response::json(200, &answer))
    })
}

/// The state that follows from a report. A failed upgrade leaves it: the joiner tries again by itself (documented).
fn move_on(tx: &Tx<'_>, now: i64, join: &mut Join, report: &ProgressRequest) -> Handled<()> {
    let upgrade = is_upgrade(&report.step);
    // firstboot may have told the failure itself, by a call that knows no title.
    let told = join.state == JoinState::Failed && join.failed.as_ref().is_some_and(|f| f.step == report.step);
    if report.status == StepStatus::Failed && (upgrade || join.state.runs() || told) {
        join.failed = Some(Failed {
            step: report.step.clone(),
            title: report.title.clone(),
            error: report.error.clone().unwrap_or_default(),
        });
    }
    if !join.state.runs() || upgrade {
        return Ok(());
    }
    join.state = JoinState::Installing;
    match report.status {
        StepStatus::Failed => scheduler::fail(tx, now, join)?,
        // The end of the whole join, which the joiner says when firstboot's unit ended well. The last of firstboot's own steps is no
        // end: the unit can still fail after it.
        StepStatus::Done => join.firstboot_done |= report.step == WHOLE_JOIN,
        StepStatus::Running => {}
    }
    Ok(())
}

fn note_step(join: &mut Join, now: i64, report: &ProgressRequest) {
    let status = match report.status {
        StepStatus::Running => "running",
        StepStatus::Done => "done",
        StepStatus::Failed => "failed",
    };
    let ended = (report.status != StepStatus::Running).then(|| rfc3339(now));
    let title: Safe<200> = report.title.as_str().into();
    let error = report.error.as_deref().filter(|e| !e.is_empty()).map(|e| Safe::<2048>::from(e).to_string());
    let room = join.steps.len() < MAX_STEPS;
    match join.steps.iter_mut().find(|s| s.name == report.step) {
        Some(step) => {
            step.title = title.to_string();
            step.status = status.to_owned();
            step.error = error;
            step.finished_at = ended;
        }
        None if room => join.steps.push(StepRecord {
            name: report.step.clone(),
            title: title.to_string(),
            status: status.to_owned(),
            error,
            started_at: rfc3339(now),
            finished_at: ended,
        }),
        None => {}
    }
}

pub(crate) fn log(founder: &Founder, now: i64, peer: Peer, id: &str, request: &Request) -> Handled {
    founder.store.tx(|tx| {
        let mut join = own_join(tx, &peer, id)?;
        let request: LogRequest = body(request)?;
        check_log(&request)?;
        ended(&join)?;
        if join.state == JoinState::Registering {
            return Err(refuse::conflict(join.state).into());
        }
        let interval = founder.config.limits.log_interval_ms;
        if join.last_log_ms.is_some_and(|at| (0..interval).contains(&(now - at))) {
            return Err(refuse::rate_limited(1).into());
        }
        join.last_log_ms = Some(now);
        heard(&mut join, now);
        let lines = new_lines(join.last_line, &request);
        tx.append_log(&join.id, NewLines(&lines))?;
        let last = request.first + u64::try_from(request.lines.len()).unwrap_or(0) - 1;
        join.last_line = join.last_line.max(last);
        tx.put_join(&join)?;
        Ok(Response::json(200, &LogAnswer { last_line: join.last_line }))
    })
}

/// What is new of a log call, with a mark for what is missing before it. Lines that are known already are left out.
fn new_lines(last_line: u64, request: &LogRequest) -> Vec<String> {
    let known = last_line.saturating_add(1).saturating_sub(request.first);
    let fresh = request.lines.iter().skip(usize::try_from(known).unwrap_or(usize::MAX));
    let mut out = Vec::new();
    // A joiner that numbers what it dropped leaves a gap; one that does not says how many.
    let gap = request.first.saturating_sub(last_line.saturating_add(1)).max(if known == 0 {
        request.lost
    } else {
        0
    });
    if gap > 0 {
        out.push(format!("[{gap} lines lost]"));
    }
    out.extend(fresh.map(|line| Safe::<1024>::from(line.as_str()).to_string()));
    out
}

fn is_upgrade(step: &str) -> bool {
    step == "upgrade" || step.starts_with("upgrade/")
}

fn heard(join: &mut Join, now: i64) {
    join.last_seen_ms = now;
    join.stalled = false;
}

fn ended(join: &Join) -> Handled<()> {
    match join.state {
        JoinState::Rejected => Err(refuse::rejected(join.reason.as_deref()).into()),
        JoinState::Expired => Err(refuse::expired().into()),
        _ => Ok(()),
    }
}

fn check(report: &ProgressRequest) -> Handled<()> {
    let mut errors: Vec<FieldError> = Vec::new();
    let mut must = |ok: bool, name: &str, what: &str| {
        if !ok {
            errors.push(field(name, what));
        }
    };
    must((1..=MAX_NUMBER).contains(&report.seq), "seq", "must be 1 to 2^53-1");
    must(report.boot_id.len() <= 36, "bootId", "must be at most 36 characters");
    must(rules::step_name(&report.step), "step", "must be 1 to 128 of a-z 0-9 / _ -");
    must((1..=200).contains(&report.title.chars().count()), "title", "must be 1 to 200 characters");
    let in_bounds = |n: Option<u32>| n.is_none_or(|n| (1..=999).contains(&n));
    must(in_bounds(report.index), "index", "must be 1 to 999");
    must(in_bounds(report.total), "total", "must be 1 to 999");
    let ordered = matches!((report.index, report.total), (Some(i), Some(n)) if i <= n)
        || report.index.is_none()
        || report.total.is_none();
    must(ordered, "index", "must be at most total");
    must(
        report.error.as_deref().is_none_or(|e| e.chars().count() <= 2048),
        "error",
        "must be at most 2048 characters",
    );
    must(
        report.status != StepStatus::Failed || report.error.is_some(),
        "error",
        "is needed for a failed step",
    );
    if errors.is_empty() { Ok(()) } else { Err(refuse::invalid(errors).into()) }
}

fn check_log(request: &LogRequest) -> Handled<()> {
    let mut errors: Vec<FieldError> = Vec::new();
    if !(1..=200).contains(&request.lines.len()) {
        errors.push(field("lines", "must be 1 to 200 lines"));
    }
    if !(1..=MAX_NUMBER).contains(&request.first) || request.lost > MAX_NUMBER {
        errors.push(field("first", "must be 1 to 2^53-1"));
    }
    for (at, line) in request.lines.iter().enumerate() {
        if line.len() > 1024 {
            errors.push(field(format!("lines[{at}]"), "must be at most 1 KiB"));
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(refuse::invalid(errors).into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(first: u64, lost: u64, lines: &[&str]) -> LogRequest {
        LogRequest { first, lost, lines: lines.iter().map(|l| (*l).to_owned()).collect() }
    }

    #[test]
    fn a_gap_is_marked_with_how_many_lines_it_has() {
        assert_eq!(new_lines(10, &request(11, 0, &["a"])), ["a"]);
        assert_eq!(new_lines(10, &request(15, 4, &["a"])), ["[4 lines lost]", "a"]);
        assert_eq!(new_lines(10, &request(11, 7, &["a"])), ["[7 lines lost]", "a"]);
    }

    #[test]
    fn known_lines_are_left_out() {
        assert_eq!(new_lines(10, &request(9, 0, &["a", "b", "c"])), ["c"]);
        assert_eq!(new_lines(10, &request(9, 3, &["a", "b"])), Vec::<String>::new());
    }

    #[test]
    fn a_line_is_cleaned_before_it_is_kept() {
        assert_eq!(new_lines(0, &request(1, 0, &["\u{1b}[31mred\u{202e}"])), ["red"]);
    }
}
