//! What of a file is here already: read and hashed, a chunk at a time. Reads the stage; what is not ours, or has a wrong length, is set right.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use ring::digest::{Context, SHA256};
use rustix::fs::{OFlags, SeekFrom};
use rustix::io::Errno;

use super::{Stage, StageError};
use crate::upgrade::{CHUNK, Digest, FileEntry};

/// Read at once.
const READ: usize = 256 * 1024;

/// What of a file is here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verified {
    /// All of it, under its final name.
    Blob,
    /// These chunks.
    Chunks(Vec<bool>),
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Stopped {
    /// It was told to stop.
    #[error("given up")]
    Told,
    /// The stage fails.
    #[error(transparent)]
    Stage(#[from] StageError),
}

// === impl Verified ===

impl Verified {
    /// As one bit for each of `count` chunks.
    pub fn into_chunks(self, count: usize) -> Vec<bool> {
        match self {
            Verified::Blob => vec![true; count],
            Verified::Chunks(chunks) => chunks,
        }
    }
}

// === impl Stage ===

impl Stage {
    /// Reads and hashes what is here of `want`. A complete file with a flaw becomes a part again. `read` is told of every chunk that was
    /// looked at, in bytes, and says `false` to stop.
    pub fn scan(&self, want: &FileEntry, read: &mut dyn FnMut(u64) -> bool) -> Result<Verified, Stopped> {
        let name = want.sha256.to_string();
        if let Some(blob) = self.open_own(&self.blobs, &name, OFlags::RDONLY)? {
            let length = blob.metadata().map(|meta| meta.len());
            let chunks = match length {
                Ok(length) if length == want.size => hash(&blob, want, read)?,
                _ => vec![false; want.chunks.len()],
            };
            if chunks.iter().all(|good| *good) {
                return Ok(Verified::Blob);
            }
            rustix::fs::renameat(&self.blobs, &name, &self.parts, &name)
                .map_err(|errno| StageError::of("renaming", &name, errno))?;
            self.fit(want)?;
            return Ok(Verified::Chunks(chunks));
        }
        match self.fit(want)? {
            Some(part) => Ok(Verified::Chunks(hash(&part, want, read)?)),
            None => Ok(Verified::Chunks(vec![false; want.chunks.len()])),
        }
    }

    /// Whether a complete file has its digest as a whole. `read` as for [`Stage::scan`].
    pub fn whole(&self, want: &FileEntry, read: &mut dyn FnMut(u64) -> bool) -> Result<bool, Stopped> {
        let name = want.sha256.to_string();
        let Some(blob) = self.open_own(&self.blobs, &name, OFlags::RDONLY)? else { return Ok(false) };
        if blob.metadata().map_or(0, |meta| meta.len()) != want.size {
            return Ok(false);
        }
        let mut context = Context::new(&SHA256);
        let mut buffer = vec![0; READ];
        let mut at = 0;
        while at < want.size {
            let take = usize::try_from(want.size - at).map_or(READ, |left| left.min(READ));
            if blob.read_exact_at(&mut buffer[..take], at).is_err() {
                return Ok(false);
            }
            context.update(&buffer[..take]);
            at += take as u64;
            if !read(take as u64) {
                return Err(Stopped::Told);
            }
        }
        Ok(context.finish().as_ref() == want.sha256.0)
    }

    /// The part, at its full length.
    fn fit(&self, want: &FileEntry) -> Result<Option<File>, StageError> {
        let name = want.sha256.to_string();
        let Some(part) = self.open_own(&self.parts, &name, OFlags::RDWR)? else { return Ok(None) };
        if part.metadata().map_or(0, |meta| meta.len()) != want.size
            && let Err(error) = part.set_len(want.size)
        {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            return Err(StageError::of("setting the length of", &name, errno));
        }
        Ok(Some(part))
    }
}

/// Which chunks have their hash. One that cannot be read has not.
fn hash(file: &File, want: &FileEntry, read: &mut dyn FnMut(u64) -> bool) -> Result<Vec<bool>, Stopped> {
    let mut buffer = vec![0; READ];
    let mut good = Vec::with_capacity(want.chunks.len());
    // Where the next data is; what lies before it was never written.
    let mut data = 0;
    for (chunk, wanted) in want.chunks.iter().enumerate() {
        let start = chunk as u64 * CHUNK;
        let len = want.chunk_len(chunk);
        if data < start {
            data = next_data(file, start);
        } else if chunk == 0 {
            data = next_data(file, 0);
        }
        let right = if data >= start + len {
            *wanted == zeros(len)
        } else {
            hash_at(file, start, len, &mut buffer).is_some_and(|found| found == *wanted)
        };
        good.push(right);
        if !read(len) {
            return Err(Stopped::Told);
        }
    }
    Ok(good)
}

fn hash_at(file: &File, start: u64, len: u64, buffer: &mut [u8]) -> Option<Digest> {
    let mut context = Context::new(&SHA256);
    let (mut at, end) = (start, start + len);
    while at < end {
        let take = usize::try_from(end - at).map_or(buffer.len(), |left| left.min(buffer.len()));
        file.read_exact_at(&mut buffer[..take], at).ok()?;
        context.update(&buffer[..take]);
        at += take as u64;
    }
    let mut out = [0; 32];
    out.copy_from_slice(context.finish().as_ref());
    Some(Digest(out))
}

/// The offset of the first data at or behind `from`; `from` itself where the file system cannot say.
fn next_data(file: &File, from: u64) -> u64 {
    match rustix::fs::seek(file, SeekFrom::Data(from)) {
        Ok(at) => at,
        Err(Errno::NXIO) => u64::MAX,
        Err(_) => from,
    }
}

/// The digest of zeros.
fn zeros(len: u64) -> Digest {
    static WHOLE: OnceLock<Digest> = OnceLock::new();
    let of = |len| Digest::of(&vec![0; usize::try_from(len).unwrap_or(0)]);
    if len == CHUNK { *WHOLE.get_or_init(|| of(CHUNK)) } else { of(len) }
}
