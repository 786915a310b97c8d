//! One file that is being fetched: full length from the start, written in pieces, synced now and then, sealed at the end.
//!
//! Touches `parts/<sha256>` and, at the seal, `blobs/<sha256>`. An error of a write or a sync is never passed over: after one, what the kernel says it
//! wrote may not be on the disk, so the file is given up.

use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;

use super::{Stage, StageError};
use crate::durable_file::plain_io;
use crate::faults::{When, point};
use crate::upgrade::{Digest, FileEntry};

/// Synced each time that many bytes were written.
const SYNC_EVERY: u64 = 64 * 1024 * 1024;
#[cfg(test)]
const LATE: u64 = 2 * crate::upgrade::CHUNK;

/// An open part.
#[derive(Debug)]
pub(super) struct Part {
    name: String,
    file: File,
    unsynced: u64,
}

/// What failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PartError {
    /// The stage cannot go on; what is there stays.
    Stop(StageError),
    /// This file cannot be trusted any more.
    Lost(String),
}

// === impl PartError ===

impl PartError {
    fn of(doing: &str, name: &str, errno: Errno) -> Self {
        match StageError::of(doing, name, errno) {
            StageError::Failed(text) if errno != Errno::ROFS => PartError::Lost(text),
            stop => PartError::Stop(stop),
        }
    }

    fn of_io(doing: &str, name: &str, error: &std::io::Error) -> Self {
        match Errno::from_io_error(error) {
            Some(errno) => PartError::of(doing, name, errno),
            None => PartError::Lost(format!("{doing} {name}: {}", plain_io(error))),
        }
    }
}

impl From<StageError> for PartError {
    fn from(error: StageError) -> Self {
        PartError::Stop(error)
    }
}

// === impl Part ===

impl Part {
    /// Opens or makes the part of `want`, at its full length, with its blocks.
    pub(super) fn open(stage: &Stage, want: &FileEntry) -> Result<Self, PartError> {
        let name = want.sha256.to_string();
        point("blob-create", When::Before);
        let file = match stage.open_own(&stage.parts, &name, OFlags::RDWR)? {
            Some(file) => file,
            None => {
                #[cfg(test)]
                stage
                    .trouble(super::tests::Op::Create)
                    .map_err(|errno| StageError::of("making", &name, errno))?;
                let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let fd = rustix::fs::openat(&stage.parts, &name, flags, Mode::from_raw_mode(0o600))
                    .map_err(|errno| StageError::of("making", &name, errno))?;
                File::from(fd)
            }
        };
        #[cfg(test)]
        stage
            .trouble(super::tests::Op::Allocate)
            .map_err(|errno| PartError::Stop(StageError::of("reserving", &name, errno)))?;
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, want.size) {
            Ok(()) => {}
            // A file system without it: the length alone.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            Err(errno) => return Err(StageError::of("reserving", &name, errno).into()),
        }
        file.set_len(want.size).map_err(|e| PartError::of_io("extending", &name, &e))?;
        point("blob-create", When::After);
        Ok(Self { name, file, unsynced: 0 })
    }

    /// Writes at `at`.
    pub(super) fn write(&mut self, stage: &Stage, at: u64, bytes: &[u8]) -> Result<(), PartError> {
        #[cfg(test)]
        stage
            .trouble(super::tests::Op::Write)
            .and_then(|()| match at {
                0..=LATE => Ok(()),
                _ => stage.trouble(super::tests::Op::LateWrite),
            })
            .map_err(|errno| PartError::of("writing", &self.name, errno))?;
        self.file.write_all_at(bytes, at).map_err(|e| PartError::of_io("writing", &self.name, &e))?;
        self.unsynced += bytes.len() as u64;
        if self.unsynced >= SYNC_EVERY { self.sync(stage) } else { Ok(()) }
    }

    /// What was written is on the disk.
    pub(super) fn sync(&mut self, stage: &Stage) -> Result<(), PartError> {
        let _ = stage;
        #[cfg(test)]
        stage.trouble(super::tests::Op::Sync).map_err(|errno| PartError::of("syncing", &self.name, errno))?;
        self.file.sync_data().map_err(|e| PartError::of_io("syncing", &self.name, &e))?;
        self.unsynced = 0;
        Ok(())
    }

    /// Syncs, and gives the file its place in `blobs/`. Durable when it returns.
    pub(super) fn seal(mut self, stage: &Stage) -> Result<(), PartError> {
        self.sync(stage)?;
        point("blob-finish", When::Before);
        #[cfg(test)]
        stage
            .trouble(super::tests::Op::Rename)
            .map_err(|errno| StageError::of("renaming", &self.name, errno))?;
        rustix::fs::renameat(&stage.parts, &self.name, &stage.blobs, &self.name)
            .map_err(|errno| StageError::of("renaming", &self.name, errno))?;
        point("blob-finish", When::During);
        for dir in [&stage.blobs, &stage.parts] {
            rustix::fs::fsync(dir)
                .map_err(|errno| StageError::of("syncing the directory of", &self.name, errno))?;
        }
        point("blob-finish", When::After);
        Ok(())
    }

    /// Gives it up.
    pub(super) fn remove(stage: &Stage, sha256: &Digest) -> Result<(), StageError> {
        stage.unlink(&stage.parts, &sha256.to_string())
    }
}
