//! Bytes from several streams into parts, each chunk hashed while it passes. Touches the parts it is told; decides nothing.

use std::collections::HashMap;

use bytes::Bytes;
use ring::digest::{Context, SHA256};

use super::part::{Part, PartError};
use super::{Stage, StageError};
use crate::faults::{When, point};
use crate::upgrade::plan::{Ev, Reason, StreamId};
use crate::upgrade::{CHUNK, FileEntry};

/// The writing side of a download.
pub(in crate::upgrade) struct Writer {
    stage: Stage,
    wants: Vec<FileEntry>,
    parts: HashMap<usize, Part>,
    running: HashMap<StreamId, Running>,
}

/// The chunk that a stream brings.
struct Running {
    file: usize,
    chunk: usize,
    next: u64,
    hash: Context,
}

// === impl Writer ===

impl Writer {
    pub(in crate::upgrade) fn new(stage: Stage, wants: Vec<FileEntry>) -> Self {
        Self { stage, wants, parts: HashMap::new(), running: HashMap::new() }
    }

    /// The stage, when everything is written.
    pub(in crate::upgrade) fn into_stage(self) -> Stage {
        self.stage
    }

    /// Writes bytes of one chunk, which follow those that this stream brought before, or begin a chunk. `Some` when there is something to tell.
    pub(in crate::upgrade) fn write(
        &mut self,
        s: StreamId,
        file: usize,
        at: u64,
        data: &[Bytes],
    ) -> Option<Ev> {
        let want = self.wants.get(file)?;
        let chunk = usize::try_from(at / CHUNK).ok()?;
        let start = chunk as u64 * CHUNK;
        if at == start {
            // A request that is over left its chunk unfinished.
            self.running.retain(|other, _| other.slot != s.slot || *other == s);
            self.running.insert(s, Running { file, chunk, next: at, hash: Context::new(&SHA256) });
        }
        let running = self.running.get_mut(&s)?;
        if (running.file, running.chunk, running.next) != (file, chunk, at) {
            return None;
        }
        let end = start + want.chunk_len(chunk);
        let wanted = *want.chunks.get(chunk)?;
        for piece in data {
            running.hash.update(piece);
        }
        let mut at = at;
        let written = Self::part(&mut self.parts, &self.stage, &self.wants, file).and_then(|part| {
            for piece in data {
                part.write(&self.stage, at, piece)?;
                at += piece.len() as u64;
            }
            Ok(())
        });
        if let Err(error) = written {
            return Some(self.failed(file, error));
        }
        let running = self.running.get_mut(&s)?;
        running.next = at;
        if at < end {
            return None;
        }
        point("blob-chunk", When::After);
        let found = self.running.remove(&s)?.hash.finish();
        let right = found.as_ref() == wanted.0;
        Some(if right { Ev::ChunkOk { file, chunk } } else { Ev::ChunkBad { file, chunk } })
    }

    /// Seals a file whose chunks are all right.
    pub(in crate::upgrade) fn seal(&mut self, file: usize) -> Option<Ev> {
        let sealed = match self.parts.remove(&file) {
            Some(part) => part.seal(&self.stage),
            None => self.seal_found(file),
        };
        Some(match sealed {
            Ok(()) => Ev::Sealed(file),
            Err(error) => self.failed(file, error),
        })
    }

    /// One that nothing had to be fetched for: it is sealed already, or was complete when the last download broke off.
    fn seal_found(&self, file: usize) -> Result<(), PartError> {
        let Some(want) = self.wants.get(file) else { return Ok(()) };
        let name = want.sha256.to_string();
        if self.stage.open_own(&self.stage.blobs, &name, rustix::fs::OFlags::RDONLY)?.is_some() {
            return Ok(());
        }
        Part::open(&self.stage, want)?.seal(&self.stage)
    }

    fn part<'a>(
        parts: &'a mut HashMap<usize, Part>,
        stage: &Stage,
        wants: &[FileEntry],
        file: usize,
    ) -> Result<&'a mut Part, PartError> {
        match parts.entry(file) {
            std::collections::hash_map::Entry::Occupied(part) => Ok(part.into_mut()),
            std::collections::hash_map::Entry::Vacant(place) => {
                let want = wants.get(file).ok_or_else(|| PartError::Lost(String::new()))?;
                stage.room(std::slice::from_ref(want))?;
                Ok(place.insert(Part::open(stage, want)?))
            }
        }
    }

    fn failed(&mut self, file: usize, error: PartError) -> Ev {
        let reason = match error {
            PartError::Stop(StageError::Full(text)) => return Ev::Disk(Reason::NoSpace(text)),
            PartError::Stop(StageError::Failed(text)) => return Ev::Disk(Reason::Io(text)),
            PartError::Lost(text) => Reason::Io(text),
        };
        self.parts.remove(&file);
        self.running.retain(|_, running| running.file != file);
        let removed = self.wants.get(file).map(|want| Part::remove(&self.stage, &want.sha256));
        match removed {
            Some(Err(StageError::Full(text) | StageError::Failed(text))) => Ev::Disk(Reason::Io(text)),
            _ => Ev::Lost(file, reason),
        }
    }
}
