//! What is not worth a line: an identical fault again and again, and more than 20 lines a minute. Pure; boot time decides.

use std::collections::BTreeMap;

use super::message::minute;
use crate::join::event::Now;
use crate::join::fault::Code;
use crate::join::notice::Notice;

/// Tries of an identical fault that are told.
const TOLD: [u64; 5] = [1, 2, 3, 5, 10];
const HOUR_MS: u64 = 3_600_000;
const MINUTE_MS: u64 = 60_000;
/// Most lines a minute.
const CAP: u32 = 20;
/// Most lines of steps a minute: a short install tells every step, a firstboot gone wild does not fill the journal.
const STEP_CAP: u32 = 150;
/// Most faults that are told apart at once.
const MAX_KNOWN: usize = 32;

/// What becomes of a notice.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Tell,
    /// Told with how often it came, since when.
    Repeated {
        times: u64,
        since: String,
    },
    Silent,
}

/// Which room a line takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// Told whatever else was: a change of state, what concerns trust.
    Always,
    /// A step of firstboot's.
    Step,
    /// Any other line.
    Minute,
}

/// Remembers what was told.
#[derive(Debug, Default)]
pub(super) struct Damper {
    known: BTreeMap<(Code, String), Known>,
    minute_from: u64,
    lines: u32,
    steps: u32,
    suppressed: u64,
    /// The running step and when it began.
    step: Option<(String, u64)>,
}

#[derive(Debug)]
struct Known {
    times: u64,
    since_wall: i64,
    told_boot: u64,
}

// === impl Damper ===

impl Damper {
    /// Whether a notice is told. Recovery forgets the faults: the next one is news.
    pub(super) fn judge(&mut self, notice: &Notice, now: Now) -> Verdict {
        let fault = match notice {
            Notice::Fault { fault, .. } => fault,
            Notice::Recovered { .. } => {
                self.known.clear();
                return Verdict::Tell;
            }
            _ => return Verdict::Tell,
        };
        let cause = fault.chain.as_str().rsplit(": ").next().unwrap_or_default().to_owned();
        if self.known.len() >= MAX_KNOWN && !self.known.contains_key(&(fault.code, cause.clone())) {
            self.known.clear();
        }
        let known = self.known.entry((fault.code, cause)).or_insert(Known {
            times: 0,
            since_wall: now.wall_ms,
            told_boot: now.boot_ms,
        });
        known.times += 1;
        let due = now.boot_ms.saturating_sub(known.told_boot) >= HOUR_MS;
        if !TOLD.contains(&known.times) && !due {
            return Verdict::Silent;
        }
        known.told_boot = now.boot_ms;
        if due && known.times > 1 {
            return Verdict::Repeated { times: known.times, since: minute(known.since_wall) };
        }
        Verdict::Tell
    }

    /// Room for one more line in this minute, and how many were suppressed before it, to be told first.
    pub(super) fn room(&mut self, room: Room, boot_ms: u64) -> (bool, u64) {
        let now = boot_ms.saturating_sub(self.minute_from) >= MINUTE_MS;
        if now || (self.lines, self.steps) == (0, 0) {
            self.minute_from = boot_ms;
            (self.lines, self.steps) = (0, 0);
        }
        let fits = match room {
            Room::Always => true,
            Room::Step => self.steps < STEP_CAP,
            Room::Minute => self.lines < CAP,
        };
        if !fits {
            self.suppressed += 1;
            return (false, 0);
        }
        match room {
            Room::Step => self.steps += 1,
            Room::Always | Room::Minute => self.lines += 1,
        }
        // With the next minute's first line, or with one that is always told: it may be the last.
        let tell = room == Room::Always || self.lines + self.steps == 1;
        (true, if tell { std::mem::take(&mut self.suppressed) } else { 0 })
    }

    /// How long the step that this notice ends ran.
    pub(super) fn step_took(&mut self, notice: &Notice, boot_ms: u64) -> Option<u64> {
        let Notice::Step { step, status, .. } = notice else { return None };
        let began = self.step.as_ref().filter(|(name, _)| name == step.as_str()).map(|(_, began)| *began);
        if *status == "running" {
            if began.is_none() {
                self.step = Some((step.to_string(), boot_ms));
            }
            return None;
        }
        self.step = None;
        began.map(|began| boot_ms.saturating_sub(began))
    }
}
