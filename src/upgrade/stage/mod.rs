//! The stage: where a release lies until it is installed. Files are named by their digests; no path of a release becomes a path here.
//!
//! Touches one directory: `parts/` (being fetched), `blobs/` (complete and durable), `releases/` (manifests). Must never follow a link that somebody
//! planted there, nor block on one, and never call a byte good that it did not read back and hash.
//!
//! There is no list of what is done: it would tear at a power cut. What is there is read and hashed when a download begins; whatever is wrong, be it a
//! tail of zeros, a flipped bit or another file's content, is fetched again, a chunk at a time.

mod part;
mod scan;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::HashSet;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

pub use self::scan::{Stopped, Verified};
#[cfg(test)]
pub(super) use self::tests::Op;
pub(super) use self::writer::Writer;
use super::fault::{Code, UpgradeFault};
use super::{Digest, FileEntry};
use crate::durable_file::{self, FileError, Lock, plain};

/// What must stay free on the file system, bytes.
pub const RESERVE: u64 = 64 * 1024 * 1024;
/// Longest that a stage waits for the one before it in this process to let go.
const LOCK_TRIES: u32 = 50;

/// The stage of one process: nobody else may use it meanwhile.
#[derive(Debug)]
pub struct Stage {
    root: PathBuf,
    dir: OwnedFd,
    parts: OwnedFd,
    blobs: OwnedFd,
    _lock: Lock,
    #[cfg(test)]
    trouble: tests::Trouble,
}

/// Why the stage cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StageError {
    /// No room: for how much, and how much there is, or what the system says.
    #[error("{0}")]
    Full(String),
    /// The disk or the directory fails: operation and reason.
    #[error("{0}")]
    Failed(String),
}

// === impl StageError ===

impl StageError {
    fn of(doing: &str, what: &str, errno: Errno) -> Self {
        let text = format!("{doing} {what}: {}", plain(errno));
        match errno {
            Errno::NOSPC | Errno::DQUOT => StageError::Full(text),
            _ => StageError::Failed(text),
        }
    }
}

impl From<FileError> for StageError {
    fn from(error: FileError) -> Self {
        if error.is_full() {
            StageError::Full(error.to_string())
        } else {
            StageError::Failed(error.to_string())
        }
    }
}

impl From<&StageError> for UpgradeFault {
    fn from(error: &StageError) -> Self {
        match error {
            StageError::Full(text) => UpgradeFault::new(
                Code::NoSpace,
                format!("There is no room for the release: {text}."),
                "Free space.",
            ),
            StageError::Failed(text) => UpgradeFault::new(
                Code::Io,
                format!("The disk failed: {text}."),
                "Check the disk (`smartctl`); replace it.",
            ),
        }
    }
}

// === impl Stage ===

impl Stage {
    /// Opens the stage `dir`; makes it and the directories above it if need be. Waits up to five seconds for the download before it in this process:
    /// not for a thread that others wait for.
    pub fn open(dir: &Path) -> Result<Self, StageError> {
        for sub in [dir.to_owned(), dir.join("parts"), dir.join("blobs"), dir.join("releases")] {
            durable_file::make_dir(&sub, 0o700)?;
        }
        let lock = take_lock(&dir.join("lock"))?;
        let failed = |what: &'static str| move |errno| StageError::of("opening", what, errno);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = rustix::fs::open(dir, flags, Mode::empty()).map_err(failed("the stage"))?;
        let sub =
            |name: &'static str| rustix::fs::openat(&root, name, flags, Mode::empty()).map_err(failed(name));
        Ok(Self {
            root: dir.to_owned(),
            parts: sub("parts")?,
            blobs: sub("blobs")?,
            dir: root,
            _lock: lock,
            #[cfg(test)]
            trouble: tests::Trouble::default(),
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// Where a complete file lies.
    pub fn blob_path(&self, sha256: &Digest) -> PathBuf {
        self.root.join("blobs").join(sha256.to_string())
    }

    /// Keeps a verified manifest and its signatures (key id, text) beside the files. Durable when it returns.
    pub fn keep_manifest(
        &self,
        sha256: &Digest,
        manifest: &[u8],
        signatures: &[(String, Vec<u8>)],
    ) -> Result<(), StageError> {
        let dir = self.root.join("releases").join(sha256.to_string());
        let sig = dir.join("sig");
        durable_file::make_dir(&dir, 0o700)?;
        durable_file::make_dir(&sig, 0o700)?;
        for (key, text) in signatures.iter().filter(|(key, _)| key.bytes().all(|b| b.is_ascii_hexdigit())) {
            durable_file::write(&sig.join(format!("{key}.minisig")), text, 0o600, "manifest-store")?;
        }
        durable_file::write(&dir.join("manifest.json"), manifest, 0o600, "manifest-store")?;
        Ok(())
    }

    /// Whether there is room for what is missing of `wants`, and [`RESERVE`] beyond.
    pub fn room(&self, wants: &[FileEntry]) -> Result<(), StageError> {
        let mut need = RESERVE;
        for want in wants {
            let name = want.sha256.to_string();
            let stat = |dir: &OwnedFd| rustix::fs::statat(dir, &name, AtFlags::SYMLINK_NOFOLLOW).ok();
            if stat(&self.blobs).is_some_and(|blob| u64::try_from(blob.st_size) == Ok(want.size)) {
                continue;
            }
            // A part has its blocks already; POSIX counts them in 512 bytes.
            let blocks = stat(&self.parts).map_or(0, |part| u64::try_from(part.st_blocks).unwrap_or(0));
            need = need.saturating_add(want.size.saturating_sub(blocks.saturating_mul(512)));
        }
        let stat =
            rustix::fs::fstatvfs(&self.dir).map_err(|e| StageError::of("asking for", "free space", e))?;
        let have = stat.f_bavail.saturating_mul(stat.f_frsize);
        if have >= need {
            return Ok(());
        }
        let at = self.root.display();
        Err(StageError::Full(format!("{at} needs {}, has {}", size_words(need), size_words(have))))
    }

    /// Removes every part and blob that is not one of `files`.
    pub fn clean_files(&self, files: &HashSet<Digest>) -> Result<(), StageError> {
        self.clean_sub("parts", files)?;
        self.clean_sub("blobs", files)
    }

    /// Removes every manifest that is not one of `manifests`.
    pub fn clean_manifests(&self, manifests: &HashSet<Digest>) -> Result<(), StageError> {
        self.clean_sub("releases", manifests)
    }

    // --- private ---

    fn clean_sub(&self, sub: &str, keep: &HashSet<Digest>) -> Result<(), StageError> {
        let failed =
            |e: &std::io::Error| StageError::Failed(format!("cleaning {sub}: {}", durable_file::plain_io(e)));
        for entry in std::fs::read_dir(self.root.join(sub)).map_err(|e| failed(&e))? {
            let entry = entry.map_err(|e| failed(&e))?;
            let known = entry.file_name().to_str().and_then(|name| name.parse::<Digest>().ok());
            if !known.is_some_and(|digest| keep.contains(&digest)) {
                remove(&entry.path()).map_err(|e| failed(&e))?;
            }
        }
        Ok(())
    }

    /// Opens a file of ours in `dir`. Whatever else has that name is removed, never followed and never waited for.
    fn open_own(&self, dir: &OwnedFd, name: &str, access: OFlags) -> Result<Option<File>, StageError> {
        let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW;
        let resolve = ResolveFlags::BENEATH
            | ResolveFlags::NO_SYMLINKS
            | ResolveFlags::NO_MAGICLINKS
            | ResolveFlags::NO_XDEV;
        let opened = match rustix::fs::openat2(dir, name, flags, Mode::empty(), resolve) {
            // A sandbox without openat2. The name is one component, so O_NOFOLLOW forbids the same links.
            Err(Errno::NOSYS) => rustix::fs::openat(dir, name, flags, Mode::empty()),
            other => other,
        };
        match opened {
            Ok(fd) => {
                let file = File::from(fd);
                let uid = rustix::process::geteuid().as_raw();
                let ours = file.metadata().is_ok_and(|m| m.is_file() && m.nlink() == 1 && m.uid() == uid);
                if ours {
                    return Ok(Some(file));
                }
            }
            Err(Errno::NOENT) => return Ok(None),
            // A link, a socket, a directory, another user's: not ours.
            Err(Errno::LOOP | Errno::NXIO | Errno::ISDIR | Errno::NODEV | Errno::XDEV | Errno::ACCESS) => {}
            Err(errno) => return Err(StageError::of("opening", name, errno)),
        }
        self.unlink(dir, name)?;
        Ok(None)
    }

    /// Takes a name away, whatever has it.
    fn unlink(&self, dir: &OwnedFd, name: &str) -> Result<(), StageError> {
        match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::ISDIR) => {
                let sub = if std::ptr::eq(dir, &self.parts) { "parts" } else { "blobs" };
                std::fs::remove_dir_all(self.root.join(sub).join(name)).map_err(|e| {
                    StageError::Failed(format!("removing {name}: {}", durable_file::plain_io(&e)))
                })
            }
            Err(errno) => Err(StageError::of("removing", name, errno)),
        }
    }

    #[cfg(test)]
    fn trouble(&self, op: tests::Op) -> rustix::io::Result<()> {
        self.trouble.ask(op)
    }
}

/// Bytes as a person reads them: `1.5 GiB`.
pub fn size_words(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut tenths = u128::from(bytes) * 10;
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    match unit {
        0 => format!("{bytes} B"),
        _ => format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit]),
    }
}

/// A download that was given up a moment ago may still sync its last bytes.
fn take_lock(path: &Path) -> Result<Lock, StageError> {
    let mut tries = 0;
    loop {
        match Lock::take(path) {
            Err(FileError::Owned { pid, .. })
                if pid == std::process::id().to_string() && tries < LOCK_TRIES =>
            {
                tries += 1;
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
            Err(FileError::Owned { pid, dir }) => {
                let dir = dir.display();
                return Err(StageError::Failed(format!("using {dir}: another download (pid {pid}) uses it")));
            }
            other => return Ok(other?),
        }
    }
}

/// Removes a file or a whole directory; links in it are not followed.
fn remove(path: &Path) -> std::io::Result<()> {
    if std::fs::symlink_metadata(path)?.is_dir() {
        std::fs::remove_dir_all(path)
    } else {
        std::fs::remove_file(path)
    }
}
