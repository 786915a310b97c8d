//! What is shown of a download: bytes, rate, time left, what it waits for. Pure.

use std::collections::VecDeque;

use crate::upgrade::plan::{BootMs, Planner, Waiting};

/// The rate is a mean over about this.
const RATE_MS: f64 = 10_000.0;
/// The time left follows the rate over this.
const ETA_MS: u64 = 60_000;
/// No time left is guessed before this, nor below [`ETA_LEAST`] bytes per second.
const ETA_AFTER_MS: u64 = 5_000;
const ETA_LEAST: u64 = 8 * 1024;

/// Where a download is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// What is here already is being read and hashed.
    Checking,
    /// Bytes are coming.
    Downloading,
}

/// The figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// Which phase.
    pub phase: Phase,
    /// Bytes wanted in all.
    pub total: u64,
    /// Of them verified.
    pub done: u64,
    /// Of them here when this download began.
    pub kept: u64,
    /// Bytes of what was here that were read and hashed so far.
    pub checked: u64,
    /// Bytes received in this download, also those of no use.
    pub fetched: u64,
    /// Bytes per second.
    pub rate: Option<u64>,
    /// Seconds.
    pub eta: Option<u64>,
    /// Open requests.
    pub streams: usize,
    /// What is waited for.
    pub waiting: Option<Waiting>,
}

/// Makes them.
#[derive(Debug)]
pub(super) struct Figures {
    pub(super) progress: Progress,
    began: Option<BootMs>,
    mean: f64,
    last: Option<(BootMs, u64)>,
    /// When how many bytes had come.
    past: VecDeque<(BootMs, u64)>,
}

// === impl Figures ===

impl Figures {
    pub(super) fn new(total: u64) -> Self {
        let progress = Progress {
            phase: Phase::Checking,
            total,
            done: 0,
            kept: 0,
            checked: 0,
            fetched: 0,
            rate: None,
            eta: None,
            streams: 0,
            waiting: None,
        };
        Self { progress, began: None, mean: 0.0, last: None, past: VecDeque::new() }
    }

    /// The download begins with `kept` verified bytes.
    pub(super) fn begin(&mut self, kept: u64) {
        self.progress.phase = Phase::Downloading;
        (self.progress.kept, self.progress.done) = (kept, kept);
    }

    pub(super) fn update(&mut self, planner: &Planner, now: BootMs) {
        let progress = &mut self.progress;
        progress.done = planner.done();
        progress.streams = planner.streams();
        progress.waiting = planner.waiting(now);
        self.count(planner.fetched(), now);
    }

    fn count(&mut self, fetched: u64, now: BootMs) {
        self.progress.fetched = fetched;
        let began = *self.began.get_or_insert(now);
        if let Some((at, before)) = self.last
            && now > at
        {
            #[allow(clippy::cast_precision_loss, reason = "a rate that is shown")]
            let (time, bytes) = ((now - at) as f64, fetched.saturating_sub(before) as f64);
            // A mean that forgets starts from its first value, not from nothing. No exponential: that one function would have every start of the
            // program load the library of mathematics.
            let weight = if self.mean == 0.0 { 1.0 } else { time / (time + RATE_MS) };
            self.mean += weight * (bytes * 1000.0 / time - self.mean);
        }
        if self.last.is_none_or(|(at, _)| now > at) {
            self.last = Some((now, fetched));
            self.past.push_back((now, fetched));
        }
        while self.past.len() > 2 && self.past[1].0 + ETA_MS <= now {
            self.past.pop_front();
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "finite and not negative")]
        let rate = self.mean as u64;
        self.progress.rate = (now > began).then_some(rate);
        let left = self.progress.total.saturating_sub(self.progress.done);
        self.progress.eta = self.past.front().and_then(|(at, before)| {
            let time = now.saturating_sub(*at).max(1);
            let mean = fetched.saturating_sub(*before).saturating_mul(1000) / time;
            let known = now.saturating_sub(began) >= ETA_AFTER_MS
                && mean >= ETA_LEAST
                && self.progress.waiting.is_none();
            known.then(|| left.div_ceil(mean))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_left_is_shown_after_five_seconds_and_only_while_bytes_come() {
        let mut figures = Figures::new(100 * 1024 * 1024);
        figures.begin(0);
        for second in 0..=60 {
            figures.count(second * 1024 * 1024, second * 1000);
            let progress = &figures.progress;
            assert_eq!(progress.eta.is_some(), second >= 5, "{second}");
            if second > 0 {
                assert_eq!(progress.rate, Some(1024 * 1024));
            }
        }
        // `done` is not told here, so all of it is left.
        assert_eq!(figures.progress.eta, Some(100));
        for second in 61..=200 {
            figures.count(60 * 1024 * 1024, second * 1000);
        }
        assert_eq!(figures.progress.eta, None);
        assert!(figures.progress.rate < Some(100));
    }
}
