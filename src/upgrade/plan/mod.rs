//! The planner of a download: which bytes are asked for, what an answer means, when to wait, when to give up.
//!
//! Pure: values in, values out; the time and the seed are given. It knows which chunks are verified and never asks for one of those again. It must
//! never let a byte be written of which it is not known where in the file it belongs.
//!
//! `fetch` is its edge: it opens what [`Act::Open`] says, tells of the answer, asks [`Planner::body`] where each byte goes, and performs the rest.

mod answer;
mod slot;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ops::Range;

pub use self::answer::{Head, Meaning, meaning};
use self::slot::{Request, Slot};
use super::{CHUNK, FileEntry};

/// Boot time in milliseconds.
pub type BootMs = u64;

/// Most chunks of one request: 64 MiB.
const SPAN: usize = 16;
/// Bad answers for one chunk before the file counts as damaged at the source.
const BAD_PER_CHUNK: u32 = 3;
/// Bad chunks in an attempt before the source counts as damaged.
const BAD_IN_ALL: u32 = 16;
/// Answers against the rules of HTTP before the source counts as none.
const BROKEN_ANSWERS: u32 = 5;
/// Times that the disk may lose a file before the disk counts as broken.
const LOSSES: u32 = 2;
/// Nothing new for this long ends the attempt.
const QUIET_MS: u64 = 600_000;
/// This many bytes that were never received before are something new. One byte is not: a source that brings a byte more before it breaks off each
/// time would keep us for ever.
const NEWS: u64 = 64 * 1024;
/// After a busy answer one stream fewer is used for this long.
const FEWER_MS: u64 = 60_000;
/// A `Retry-After` is honoured within these bounds.
const RETRY_AFTER_SECS: std::ops::RangeInclusive<u64> = 1..=120;
/// Without a `Retry-After` a busy source is asked again after this, and up to as much again.
const BUSY_MS: u64 = 5_000;

/// One request. An event of a request that is over is recognised and ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamId {
    /// Which of the parallel streams.
    pub slot: usize,
    /// Counts the requests.
    pub nth: u32,
}

/// What the edge must do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Send a request.
    Open {
        /// Its name from now on.
        s: StreamId,
        /// Index of the file.
        file: usize,
        /// First and last byte for `Range`; the whole file without the header if `None`.
        range: Option<(u64, u64)>,
    },
    /// Read no more of this request. Nothing more is said of it.
    Close(StreamId),
    /// Every chunk is right: sync the file and give it its name; then [`Ev::Sealed`].
    Seal(usize),
    /// Every file is sealed.
    Done,
    /// The attempt is over. What is verified stays.
    Fail(Reason),
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ev {
    /// The head of an answer.
    Head(StreamId, Head),
    /// A request is over, and the planner did not close it.
    Ended(StreamId, End),
    /// A chunk that was received whole has the signed hash.
    ChunkOk {
        /// Index of the file.
        file: usize,
        /// Which chunk.
        chunk: usize,
    },
    /// It has not.
    ChunkBad {
        /// Index of the file.
        file: usize,
        /// Which chunk.
        chunk: usize,
    },
    /// The file is complete and durable.
    Sealed(usize),
    /// The disk lost what was written of this file; it is gone and begins anew.
    Lost(usize, Reason),
    /// The disk can take no more.
    Disk(Reason),
    /// The network came back: no more waiting out of caution.
    Network,
    /// The edge could not read for this many milliseconds, because the disk was slow. No fault of the source.
    Paused(u64),
}

/// Why a request ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The body is over.
    Eof,
    /// The connection broke.
    Cut,
    /// There was no connection; why, in a person's words.
    Connect(String),
    /// Who answers is not trusted.
    Tls(String),
    /// As [`End::Tls`], because of what the certificate says itself: its dates, its name.
    Certificate(String),
    /// As [`End::Certificate`], because of the dates, and this machine's clock cannot be right.
    Clock(String),
    /// The address, or one it redirects to, is not allowed.
    Refused(String),
}

/// Where bytes of a body go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece {
    /// Nowhere: they are here already, or were not asked for.
    Skip(usize),
    /// Into a file, all within one chunk.
    Write {
        /// Index of the file.
        file: usize,
        /// Offset in it.
        at: u64,
        /// How many.
        len: usize,
    },
}

/// Why an attempt failed. `fetch` makes the sentences of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// The source has no such file, or does not give it.
    Status {
        /// Index of the file.
        file: usize,
        /// Of the answer.
        status: u16,
    },
    /// Too many answers against the rules.
    NotARelease(Meaning),
    /// Nothing new for ten minutes; the last answer, when it was one that asks to come back later.
    Stalled(Option<u16>),
    /// No connection for ten minutes; the last reason.
    Unreachable(String),
    /// As [`End::Tls`].
    Tls(String),
    /// As [`End::Certificate`].
    Certificate(String),
    /// As [`End::Clock`].
    Clock(String),
    /// As [`End::Refused`].
    Refused(String),
    /// The source's bytes are not the signed ones.
    Hash(usize),
    /// The disk is full: where, needed and free bytes, or the system's words.
    NoSpace(String),
    /// The disk failed: operation and reason.
    Io(String),
}

/// What a download waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// The source said that it is busy.
    Busy,
    /// The source cannot be reached, or breaks off: it is tried again.
    Source,
}

/// A download.
#[derive(Debug)]
pub struct Planner {
    files: Vec<FileState>,
    /// Indices, largest file first.
    order: Vec<usize>,
    slots: Vec<Slot>,
    /// How many of the slots may be used, and until when fewer than all.
    allowed: usize,
    fewer_until: BootMs,
    /// No request before this, because the source asked for it; and before this because it was busy.
    hold_until: BootMs,
    busy_until: BootMs,
    no_ranges: bool,
    broken: u32,
    bad: HashMap<(usize, usize), u32>,
    bad_in_all: u32,
    losses: u32,
    /// How far each chunk that is not complete was ever received: more than that is new.
    reached: HashMap<(usize, usize), u64>,
    /// How long there was nothing new, and when that was last counted.
    quiet: u64,
    fresh: u64,
    seen: Option<BootMs>,
    unreachable: Option<String>,
    last_status: Option<u16>,
    fetched: u64,
    /// Sums over all files: verified bytes, chunks to ask for, files that are being sealed, files that are not sealed.
    done: u64,
    missing: usize,
    sealing: usize,
    unsealed: usize,
    nth: u32,
    random: u64,
    end: Option<Result<(), Reason>>,
    acts: Vec<Act>,
}

#[derive(Debug)]
struct FileState {
    size: u64,
    chunks: Vec<Chunk>,
    /// Chunks that are not verified.
    left: usize,
    stage: FileStage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileStage {
    Wanted,
    Sealing,
    Sealed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chunk {
    Missing,
    /// Asked for by this slot.
    Claimed(usize),
    /// Received whole by this slot; the verdict is pending.
    Received(usize),
    Have,
}

// === impl FileState ===

impl FileState {
    fn bytes(&self, chunk: usize) -> Range<u64> {
        let start = chunk as u64 * CHUNK;
        start..(start + CHUNK).min(self.size)
    }

    fn len(&self, chunk: usize) -> u64 {
        let bytes = self.bytes(chunk);
        bytes.end - bytes.start
    }
}

// === impl Planner ===

impl Planner {
    /// A download of `wants` over at most `streams` requests at once. `have` says of each file which chunks are verified already (none where
    /// it is shorter). `seed` spreads the retries of many machines.
    pub fn new(wants: &[FileEntry], have: &[Vec<bool>], streams: usize, seed: u64) -> Self {
        let file = |want: &FileEntry| {
            let count = usize::try_from(want.size.div_ceil(CHUNK)).unwrap_or(0);
            let chunks = vec![Chunk::Missing; count];
            FileState { size: want.size, chunks, left: count, stage: FileStage::Wanted }
        };
        let files: Vec<FileState> = wants.iter().map(file).collect();
        let mut order: Vec<usize> = (0..files.len()).collect();
        order.sort_by_key(|&at| std::cmp::Reverse(files[at].size));
        let streams = streams.max(1);
        let mut planner = Self {
            order,
            slots: (0..streams).map(|_| Slot::default()).collect(),
            allowed: streams,
            fewer_until: 0,
            hold_until: 0,
            busy_until: 0,
            no_ranges: false,
            broken: 0,
            bad: HashMap::new(),
            bad_in_all: 0,
            losses: 0,
            reached: HashMap::new(),
            quiet: 0,
            fresh: 0,
            seen: None,
            unreachable: None,
            last_status: None,
            fetched: 0,
            done: 0,
            missing: files.iter().map(|file| file.left).sum(),
            sealing: 0,
            unsealed: files.len(),
            nth: 0,
            random: seed | 1,
            end: None,
            acts: Vec::new(),
            files,
        };
        for (file, known) in have.iter().enumerate().take(wants.len()) {
            for (chunk, _) in known.iter().enumerate().filter(|(_, have)| **have) {
                planner.set(file, chunk, Chunk::Have);
            }
        }
        for file in 0..planner.files.len() {
            planner.seal(file);
        }
        planner
    }

    /// Bytes of all files.
    pub fn total(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }

    /// Verified bytes. Falls only when the disk loses a file.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Bytes of bodies received, also those that were thrown away.
    pub fn fetched(&self) -> u64 {
        self.fetched
    }

    /// Requests that are open.
    pub fn streams(&self) -> usize {
        self.slots.iter().filter(|slot| slot.request.is_some()).count()
    }

    /// What is waited for, when nothing is open for that reason.
    pub fn waiting(&self, now: BootMs) -> Option<Waiting> {
        if self.end.is_some() || self.streams() > 0 || self.missing == 0 {
            None
        } else if now < self.busy_until {
            Some(Waiting::Busy)
        } else {
            Some(Waiting::Source)
        }
    }

    /// Takes note of an event.
    pub fn on(&mut self, event: Ev, now: BootMs) {
        self.count_quiet(now);
        if self.end.is_some() {
            return;
        }
        match event {
            Ev::Head(s, head) => self.on_head(s, &head, now),
            Ev::Ended(s, why) => self.on_end(s, why, now),
            Ev::ChunkOk { file, chunk } => self.on_chunk_ok(file, chunk),
            Ev::ChunkBad { file, chunk } => self.on_chunk_bad(file, chunk),
            Ev::Sealed(file) => self.on_sealed(file),
            Ev::Lost(file, reason) => self.on_lost(file, reason),
            Ev::Disk(reason) => self.fail(reason),
            Ev::Network => {
                for slot in &mut self.slots {
                    slot.rested();
                    slot.not_before = 0;
                }
            }
            Ev::Paused(ms) => {
                for slot in &mut self.slots {
                    slot.excuse(ms);
                }
                self.quiet = self.quiet.saturating_sub(ms);
            }
        }
    }

    /// Where the next `len` bytes of a body go, in order. Afterwards [`Planner::next`] may close the request: it has all it wants.
    pub fn body(&mut self, s: StreamId, len: usize, now: BootMs) -> Vec<Piece> {
        self.count_quiet(now);
        let mut pieces = Vec::with_capacity(2);
        let mut left = len;
        if self.end.is_some() || self.request(s).is_none() {
            return vec![Piece::Skip(len)];
        }
        self.fetched += len as u64;
        if let Some(request) = self.request(s) {
            request.total += len as u64;
            request.alive(now);
        }
        while left > 0 {
            let Some(request) = self.slots[s.slot].request.as_mut() else { break };
            let (index, Some(pos)) = (request.file, request.pos) else { break };
            let file = &self.files[index];
            if pos >= request.end {
                break;
            }
            let chunk = usize::try_from(pos / CHUNK).unwrap_or(usize::MAX);
            let Some(state) = file.chunks.get(chunk).copied() else { break };
            let bytes = file.bytes(chunk);
            let take = usize::try_from(bytes.end - pos).map_or(left, |room| room.min(left));
            request.pos = Some(pos + take as u64);
            left -= take;
            if state != Chunk::Claimed(s.slot) {
                pieces.push(Piece::Skip(take));
                continue;
            }
            pieces.push(Piece::Write { file: index, at: pos, len: take });
            let within = pos + take as u64 - bytes.start;
            let reached = self.reached.entry((index, chunk)).or_insert(0);
            if within > *reached {
                self.fresh += within - *reached;
                *reached = within;
            }
            if pos + take as u64 == bytes.end {
                self.set(index, chunk, Chunk::Received(s.slot));
            }
        }
        if self.fresh >= NEWS {
            (self.fresh, self.quiet) = (0, 0);
        }
        if left > 0 {
            pieces.push(Piece::Skip(left));
        }
        if self.request(s).is_some_and(|request| request.pos.is_some_and(|pos| pos >= request.end)) {
            self.close(s.slot);
        }
        pieces
    }

    /// What to do now.
    pub fn next(&mut self, now: BootMs) -> Vec<Act> {
        self.count_quiet(now);
        if self.end.is_none() {
            self.overdue(now);
        }
        if self.end.is_none() && self.quiet >= QUIET_MS {
            let reason =
                self.unreachable.take().map_or(Reason::Stalled(self.last_status), Reason::Unreachable);
            self.fail(reason);
        }
        if self.end.is_none() {
            self.open(now);
        }
        if self.end.is_none() && self.unsealed == 0 {
            self.end = Some(Ok(()));
            self.acts.push(Act::Done);
        }
        std::mem::take(&mut self.acts)
    }

    /// When [`Planner::next`] must be asked again, if nothing happens before.
    pub fn wake(&self, now: BootMs) -> BootMs {
        let mut at = now + QUIET_MS.saturating_sub(self.quiet).max(1);
        if now < self.busy_until {
            at = at.max(self.busy_until);
        }
        if self.allowed < self.slots.len() && self.missing > 0 {
            at = at.min(self.fewer_until.max(now + 1));
        }
        let gate = self.gate();
        for slot in &self.slots {
            let due = match &slot.request {
                Some(request) => request.deadline(now),
                None => slot.not_before.max(gate),
            };
            // An idle slot whose time has come waits for work, not for the clock.
            if due > now {
                at = at.min(due);
            }
        }
        at.max(now + 1)
    }

    // --- events ---

    fn on_head(&mut self, s: StreamId, head: &Head, now: BootMs) {
        let Some(request) = self.request(s) else { return };
        let (file, range) = (request.file, request.range);
        request.alive(now);
        self.unreachable = None;
        self.last_status = Some(head.status).filter(|status| *status >= 400);
        let size = self.files[file].size;
        match meaning(head, range, size) {
            Meaning::Body { at } => {
                if let Some(request) = self.request(s) {
                    request.begin(at, now);
                }
                if range.is_some() && head.status == 200 {
                    self.ignores_ranges(s);
                }
            }
            Meaning::Busy => {
                self.close(s.slot);
                let spread = self.random_below(BUSY_MS + 1);
                let wait = head.retry_after.map_or(BUSY_MS, |secs| secs.min(*RETRY_AFTER_SECS.end()) * 1000);
                self.busy_until = self.busy_until.max(now + wait + spread);
                self.allowed = (self.allowed - 1).max(1);
                self.fewer_until = now + FEWER_MS;
            }
            Meaning::Later => {
                if let Some(secs) = head.retry_after {
                    let secs = secs.clamp(*RETRY_AFTER_SECS.start(), *RETRY_AFTER_SECS.end());
                    self.hold_until = self.hold_until.max(now + secs * 1000);
                }
                self.retry(s.slot, now);
            }
            Meaning::Refused => {
                let status = head.status;
                self.fail(Reason::Status { file, status });
            }
            broken => {
                self.broken += 1;
                if self.broken >= BROKEN_ANSWERS {
                    return self.fail(Reason::NotARelease(broken));
                }
                self.retry(s.slot, now);
            }
        }
    }

    /// The source answered with the whole file. Other requests for the same file would get it too, so this one takes it all.
    fn ignores_ranges(&mut self, s: StreamId) {
        self.no_ranges = true;
        let Some(index) = self.request(s).map(|request| request.file) else { return };
        for slot in 0..self.slots.len() {
            if slot != s.slot && self.slots[slot].request.as_ref().is_some_and(|r| r.file == index) {
                self.close(slot);
            }
        }
        let mut end = 0;
        for chunk in 0..self.files[index].chunks.len() {
            if matches!(self.files[index].chunks[chunk], Chunk::Missing | Chunk::Claimed(_)) {
                self.set(index, chunk, Chunk::Claimed(s.slot));
                end = self.files[index].bytes(chunk).end;
            }
        }
        if let Some(request) = self.request(s) {
            request.end = end;
        }
    }

    fn on_end(&mut self, s: StreamId, why: End, now: BootMs) {
        let Some(request) = self.request(s) else { return };
        // An answer may be for less than was asked: as long as whole chunks come, that is no failure.
        let brought = request.whole_chunks();
        match why {
            End::Eof if brought => self.close(s.slot),
            End::Eof | End::Cut => self.retry(s.slot, now),
            End::Connect(reason) => {
                self.unreachable = Some(reason);
                self.retry(s.slot, now);
            }
            End::Tls(reason) => self.fail(Reason::Tls(reason)),
            End::Certificate(reason) => self.fail(Reason::Certificate(reason)),
            End::Clock(reason) => self.fail(Reason::Clock(reason)),
            End::Refused(rule) => self.fail(Reason::Refused(rule)),
        }
    }

    fn on_chunk_ok(&mut self, file: usize, chunk: usize) {
        // Another state: the file was lost meanwhile.
        let Some(Chunk::Received(slot)) = self.chunk(file, chunk) else { return };
        self.set(file, chunk, Chunk::Have);
        self.slots[slot].rested();
        self.reached.remove(&(file, chunk));
        self.quiet = 0;
        self.seal(file);
    }

    fn on_chunk_bad(&mut self, file: usize, chunk: usize) {
        let Some(Chunk::Received(_)) = self.chunk(file, chunk) else { return };
        self.set(file, chunk, Chunk::Missing);
        let count = self.bad.entry((file, chunk)).or_insert(0);
        *count += 1;
        self.bad_in_all += 1;
        if *count >= BAD_PER_CHUNK || self.bad_in_all >= BAD_IN_ALL {
            self.fail(Reason::Hash(file));
        }
    }

    fn on_sealed(&mut self, file: usize) {
        self.stage(file, FileStage::Sealed);
        self.quiet = 0;
    }

    fn on_lost(&mut self, file: usize, reason: Reason) {
        self.losses += 1;
        if self.losses >= LOSSES {
            return self.fail(reason);
        }
        for slot in 0..self.slots.len() {
            if self.slots[slot].request.as_ref().is_some_and(|request| request.file == file) {
                self.close(slot);
            }
        }
        for chunk in 0..self.files.get(file).map_or(0, |file| file.chunks.len()) {
            self.set(file, chunk, Chunk::Missing);
        }
        self.stage(file, FileStage::Wanted);
        self.reached.retain(|(of, _), _| *of != file);
        self.quiet = 0;
    }

    // --- decisions ---

    fn overdue(&mut self, now: BootMs) {
        for slot in 0..self.slots.len() {
            if self.slots[slot].request.as_ref().is_some_and(|request| request.overdue(now)) {
                self.retry(slot, now);
            }
        }
        if self.allowed < self.slots.len() && now >= self.fewer_until {
            self.allowed = self.slots.len();
        }
    }

    fn seal(&mut self, file: usize) {
        if self.files.get(file).is_some_and(|file| file.left == 0 && file.stage == FileStage::Wanted) {
            self.stage(file, FileStage::Sealing);
            self.acts.push(Act::Seal(file));
        }
    }

    fn open(&mut self, now: BootMs) {
        if now < self.gate() {
            return;
        }
        for slot in 0..self.slots.len() {
            let idle = self.slots[slot].request.is_none() && now >= self.slots[slot].not_before;
            if !idle || self.missing == 0 || self.streams() >= self.allowed {
                continue;
            }
            let Some((index, span)) = self.span() else { return };
            for chunk in span.clone() {
                if self.chunk(index, chunk) == Some(Chunk::Missing) {
                    self.set(index, chunk, Chunk::Claimed(slot));
                }
            }
            let file = &self.files[index];
            let (start, end) = (file.bytes(span.start).start, file.bytes(span.end - 1).end);
            let whole = start == 0 && end == file.size;
            // A small file is one plain request; a source that ignores ranges need not be asked for one.
            let range = if whole && (file.chunks.len() == 1 || self.no_ranges) {
                None
            } else {
                Some((start, end - 1))
            };
            self.nth = self.nth.wrapping_add(1);
            let s = StreamId { slot, nth: self.nth };
            self.slots[slot].request = Some(Request::new(s, index, range, end, now));
            self.acts.push(Act::Open { s, file: index, range });
        }
    }

    /// The next chunks to ask for: of the largest file first, ascending in it.
    fn span(&self) -> Option<(usize, Range<usize>)> {
        for &index in &self.order {
            let chunks = &self.files[index].chunks;
            let Some(first) = chunks.iter().position(|chunk| *chunk == Chunk::Missing) else { continue };
            if self.no_ranges {
                // Whatever is asked for, the whole file may come: one request, and for all that is missing.
                if self.slots.iter().flat_map(|slot| &slot.request).any(|request| request.file == index) {
                    continue;
                }
                let last = chunks.iter().rposition(|chunk| *chunk == Chunk::Missing).unwrap_or(first);
                return Some((index, first..last + 1));
            }
            let run = chunks[first..].iter().take(SPAN).take_while(|chunk| **chunk == Chunk::Missing);
            return Some((index, first..first + run.count()));
        }
        None
    }

    fn gate(&self) -> BootMs {
        self.hold_until.max(self.busy_until)
    }

    // --- ends of requests ---

    /// Closes, and tries again after a while.
    fn retry(&mut self, slot: usize, now: BootMs) {
        self.close(slot);
        let most = self.slots[slot].backoff();
        self.slots[slot].not_before = now + self.random_below(most + 1);
    }

    fn close(&mut self, slot: usize) {
        if let Some(request) = self.slots[slot].request.take() {
            for chunk in 0..self.files[request.file].chunks.len() {
                if self.chunk(request.file, chunk) == Some(Chunk::Claimed(slot)) {
                    self.set(request.file, chunk, Chunk::Missing);
                }
            }
            self.acts.push(Act::Close(request.id));
        }
    }

    fn fail(&mut self, reason: Reason) {
        for slot in 0..self.slots.len() {
            self.close(slot);
        }
        self.end = Some(Err(reason.clone()));
        self.acts.push(Act::Fail(reason));
    }

    fn request(&mut self, s: StreamId) -> Option<&mut Request> {
        self.slots.get_mut(s.slot)?.request.as_mut().filter(|request| request.id == s)
    }

    /// Time without news counts, except while the source is busy.
    fn count_quiet(&mut self, now: BootMs) {
        let from = self.seen.unwrap_or(now).max(self.busy_until.min(now));
        // With nothing to ask for, or a file being sealed, the disk is at work and not the source.
        if self.sealing == 0 && (self.missing > 0 || self.streams() > 0) {
            self.quiet += now.saturating_sub(from);
        }
        self.seen = Some(self.seen.map_or(now, |seen| seen.max(now)));
    }

    fn chunk(&self, file: usize, chunk: usize) -> Option<Chunk> {
        self.files.get(file)?.chunks.get(chunk).copied()
    }

    /// The one place where a chunk changes its state, so that the sums are right.
    fn set(&mut self, file: usize, chunk: usize, to: Chunk) {
        let Some(state) = self.files.get_mut(file) else { return };
        let len = state.len(chunk);
        let Some(chunk) = state.chunks.get_mut(chunk) else { return };
        let from = std::mem::replace(chunk, to);
        self.missing = self.missing + usize::from(to == Chunk::Missing) - usize::from(from == Chunk::Missing);
        if (from == Chunk::Have) != (to == Chunk::Have) {
            let have = to == Chunk::Have;
            state.left = if have { state.left - 1 } else { state.left + 1 };
            self.done = if have { self.done + len } else { self.done - len };
        }
    }

    fn stage(&mut self, file: usize, to: FileStage) {
        let Some(state) = self.files.get_mut(file) else { return };
        let from = std::mem::replace(&mut state.stage, to);
        let is = |stage, wanted| usize::from(stage == wanted);
        self.sealing = self.sealing + is(to, FileStage::Sealing) - is(from, FileStage::Sealing);
        self.unsealed = self.unsealed + is(from, FileStage::Sealed) - is(to, FileStage::Sealed);
    }

    /// xorshift64; only to spread retries.
    fn random_below(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % bound.max(1)
    }
}
