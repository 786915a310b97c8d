//! The place of an OS: a file that stands for a partition. Written so that nothing could ever start a half of it: its beginning is made invalid first
//! and written last.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use ring::digest::{Context, SHA256};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::{Meter, Trouble};
use crate::durable_file::{plain, plain_io};
use crate::faults::{When, point};
use crate::install::ReleaseFiles;
use crate::upgrade::fault::{Code, UpgradeFault};
use crate::upgrade::{CHUNK, Digest, FileEntry};

/// What of the beginning is made invalid.
const CLEARED: usize = 1024 * 1024;
/// Synced each time that many chunks were written: 64 MiB.
const SYNC_EVERY: usize = 16;
/// Read at once.
const READ: usize = 256 * 1024;

/// A slot's file, or one on the boot partition.
pub(super) struct Target {
    path: PathBuf,
    /// What it is called to people.
    pub(super) name: String,
    pub(super) trouble: Trouble,
}

// === impl Target ===

impl Target {
    pub(super) fn new(path: PathBuf, name: impl Into<String>, trouble: Trouble) -> Self {
        Self { path, name: name.into(), trouble }
    }

    /// Writes `image`: beginning cleared, chunks 1 to the last, chunk 0, each durable before the next.
    pub(super) fn write(
        &self,
        image: &FileEntry,
        files: &mut dyn ReleaseFiles,
        meter: &mut Meter<'_, '_>,
    ) -> Result<(), UpgradeFault> {
        let slot = self.open(OFlags::RDWR | OFlags::CREATE)?;
        point("slot-clear", When::Before);
        let zeros = vec![0; CLEARED];
        let (first, second) = zeros.split_at(CLEARED / 2);
        self.put(&slot, first, 0)?;
        point("slot-clear", When::During);
        self.put(&slot, second, first.len() as u64)?;
        // A partition has its length; here what is behind the image would stay.
        slot.set_len(image.size).map_err(|error| self.io(&error))?;
        self.sync(&slot)?;
        point("slot-clear", When::After);
        point("slot-write", When::Before);
        let chunks = image.chunks.len();
        for index in (1..chunks).chain([0]) {
            if index == 0 {
                point("slot-write", When::During);
            }
            let chunk = files.chunk(image, index)?;
            self.put(&slot, chunk, index as u64 * CHUNK)?;
            if index % SYNC_EVERY == 0 || index + 1 == chunks {
                self.sync(&slot)?;
            }
            meter.add(chunk.len() as u64)?;
        }
        point("slot-write", When::After);
        Ok(())
    }

    /// Writes a smaller file whole, under another name first.
    pub(super) fn place(
        &self,
        content: &FileEntry,
        files: &mut dyn ReleaseFiles,
        meter: &mut Meter<'_, '_>,
    ) -> Result<(), UpgradeFault> {
        if self.holds(content, meter)? {
            return meter.add(content.size);
        }
        let temp = Target::new(self.path.with_extension("tmp"), &*self.name, self.trouble.clone());
        let file = temp.open(OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC)?;
        for index in 0..content.chunks.len() {
            let chunk = files.chunk(content, index)?;
            temp.put(&file, chunk, index as u64 * CHUNK)?;
            meter.add(chunk.len() as u64)?;
        }
        temp.sync(&file)?;
        std::fs::rename(&temp.path, &self.path).map_err(|error| self.io(&error))?;
        let dir = self.path.parent().unwrap_or(Path::new("."));
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(|error| self.io(&error))?;
        if self.holds(content, meter)? { Ok(()) } else { Err(self.differs()) }
    }

    /// Whether it holds these bytes and no others, read back from the beginning to the end.
    pub(super) fn holds(&self, image: &FileEntry, meter: &mut Meter<'_, '_>) -> Result<bool, UpgradeFault> {
        let Some(file) = self.there(image)? else { return Ok(false) };
        let mut context = Context::new(&SHA256);
        let mut buffer = vec![0; READ];
        let mut at = 0;
        while at < image.size {
            let take = usize::try_from(image.size - at).map_or(READ, |left| left.min(READ));
            file.read_exact_at(&mut buffer[..take], at).map_err(|error| self.io(&error))?;
            self.trouble.spoil(&mut buffer);
            context.update(&buffer[..take]);
            at += take as u64;
            meter.add(0)?;
        }
        Ok(context.finish().as_ref() == image.sha256.0)
    }

    /// Whether its first and last chunk are those of `image`: enough to tell that it was not written again since.
    pub(super) fn ends_right(&self, image: &FileEntry) -> Result<bool, UpgradeFault> {
        let Some(file) = self.there(image)? else { return Ok(false) };
        let last = image.chunks.len().saturating_sub(1);
        for index in [0, last] {
            let mut buffer = vec![0; usize::try_from(image.chunk_len(index)).unwrap_or(0)];
            file.read_exact_at(&mut buffer, index as u64 * CHUNK).map_err(|error| self.io(&error))?;
            self.trouble.spoil(&mut buffer);
            if image.chunks.get(index) != Some(&Digest::of(&buffer)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What was written is not what is there.
    pub(super) fn differs(&self) -> UpgradeFault {
        UpgradeFault::install_io(&self.name, "read back differs")
    }

    // --- private ---

    /// It, when it has the length.
    fn there(&self, image: &FileEntry) -> Result<Option<File>, UpgradeFault> {
        match std::fs::symlink_metadata(&self.path) {
            Ok(meta) if meta.len() != image.size => Ok(None),
            Ok(_) => self.open(OFlags::RDONLY).map(Some),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.io(&error)),
        }
    }

    fn open(&self, access: OFlags) -> Result<File, UpgradeFault> {
        let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(&self.path, flags, Mode::from_raw_mode(0o600))
            .map_err(|errno| self.failed(errno))?;
        let file = File::from(fd);
        let meta = file.metadata().map_err(|error| self.io(&error))?;
        if meta.is_file() && meta.nlink() == 1 {
            Ok(file)
        } else {
            Err(UpgradeFault::install_io(&self.name, "it is not a plain file of its own"))
        }
    }

    fn put(&self, file: &File, bytes: &[u8], at: u64) -> Result<(), UpgradeFault> {
        self.trouble.write().map_err(|errno| self.failed(errno))?;
        file.write_all_at(bytes, at).map_err(|error| self.io(&error))
    }

    fn sync(&self, file: &File) -> Result<(), UpgradeFault> {
        self.trouble.sync().map_err(|errno| self.failed(errno))?;
        file.sync_data().map_err(|error| self.io(&error))
    }

    fn io(&self, error: &std::io::Error) -> UpgradeFault {
        match Errno::from_io_error(error) {
            Some(errno) => self.failed(errno),
            None => UpgradeFault::install_io(&self.name, plain_io(error)),
        }
    }

    fn failed(&self, errno: Errno) -> UpgradeFault {
        match errno {
            Errno::NOSPC | Errno::DQUOT => {
                let what = format!("There is no room left for {}: {}.", self.name, plain(errno));
                UpgradeFault::new(Code::NoSpace, what, "Free space, or reinstall with a larger disk.")
            }
            errno => UpgradeFault::install_io(&self.name, plain(errno)),
        }
    }
}
