//! One of the parallel streams of a download: its request, its clocks, its patience. Pure.

use std::collections::VecDeque;

use super::{BootMs, StreamId};
use crate::upgrade::CHUNK;

/// Connecting (15 s) and the head of the answer (30 s).
const HEAD_MS: u64 = 45_000;
/// Between two pieces of a body.
const SILENCE_MS: u64 = 30_000;
/// A stream must bring [`FLOOR`] bytes per second, averaged over this.
const FLOOR_MS: u64 = 120_000;
const FLOOR: u64 = 8 * 1024;
/// How finely that is measured.
const MARK_MS: u64 = 1_000;
const FIRST_BACKOFF_MS: u64 = 500;
const MAX_BACKOFF_MS: u64 = 60_000;

/// A stream.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) request: Option<Request>,
    /// No request before this.
    pub(super) not_before: BootMs,
    /// In a row.
    failures: u32,
}

/// A request that is open.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) id: StreamId,
    pub(super) file: usize,
    /// First and last byte asked for.
    pub(super) range: Option<(u64, u64)>,
    /// Behind the last byte that is wanted.
    pub(super) end: u64,
    /// Where in the file the next byte of the body belongs; `None` before the head.
    pub(super) pos: Option<u64>,
    /// Bytes of the body so far.
    pub(super) total: u64,
    from: u64,
    last: BootMs,
    /// When how many bytes were there.
    marks: VecDeque<(BootMs, u64)>,
}

// === impl Slot ===

impl Slot {
    /// Longest wait after one more failure; the real one is anything up to it.
    pub(super) fn backoff(&mut self) -> u64 {
        let most = FIRST_BACKOFF_MS.saturating_mul(1 << self.failures.min(10)).min(MAX_BACKOFF_MS);
        self.failures = self.failures.saturating_add(1);
        most
    }

    /// It works (again).
    pub(super) fn rested(&mut self) {
        self.failures = 0;
    }

    /// Nothing could be read for `ms`: its clocks stood still.
    pub(super) fn excuse(&mut self, ms: u64) {
        if let Some(request) = &mut self.request {
            request.last = request.last.saturating_add(ms);
            for mark in &mut request.marks {
                mark.0 = mark.0.saturating_add(ms);
            }
        }
    }
}

// === impl Request ===

impl Request {
    pub(super) fn new(id: StreamId, file: usize, range: Option<(u64, u64)>, end: u64, now: BootMs) -> Self {
        Self { id, file, range, end, pos: None, total: 0, from: 0, last: now, marks: VecDeque::new() }
    }

    /// The body begins, with the byte at `at`.
    pub(super) fn begin(&mut self, at: u64, now: BootMs) {
        self.pos = Some(at);
        self.from = at;
        self.marks.push_back((now, 0));
    }

    /// A sign of life.
    pub(super) fn alive(&mut self, now: BootMs) {
        self.last = self.last.max(now);
        while self.marks.len() > 1 && self.marks[1].0 + FLOOR_MS <= now {
            self.marks.pop_front();
        }
        if self.marks.back().is_some_and(|mark| mark.0 + MARK_MS <= now) {
            self.marks.push_back((now, self.total));
        }
    }

    /// Whether at least one whole chunk of what was asked came.
    pub(super) fn whole_chunks(&self) -> bool {
        let wanted = self.range.map_or(0, |range| range.0);
        self.pos.is_some_and(|pos| pos.saturating_sub(wanted.max(self.from)) >= CHUNK)
    }

    /// When it may be overdue next.
    pub(super) fn deadline(&self, now: BootMs) -> BootMs {
        if self.pos.is_none() {
            return self.last + HEAD_MS;
        }
        let floor = self.marks.front().map(|mark| mark.0 + FLOOR_MS).filter(|at| *at > now);
        floor.map_or(self.last + SILENCE_MS, |floor| floor.min(self.last + SILENCE_MS))
    }

    pub(super) fn overdue(&self, now: BootMs) -> bool {
        if self.pos.is_none() {
            return now >= self.last + HEAD_MS;
        }
        let slow = self.marks.front().is_some_and(|(at, bytes)| {
            let time = now.saturating_sub(*at);
            time >= FLOOR_MS && self.total.saturating_sub(*bytes) < FLOOR * time / 1000
        });
        slow || now >= self.last + SILENCE_MS
    }
}
