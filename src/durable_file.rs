//! The file discipline: every file of ours is written and read here.
//!
//! Touches the file it is told and its directory. Must never leave a half-written file under the real name, never follow a link that
//! somebody planted, and never call a file missing that is there but is not ours.
//!
//! A write goes to a sibling `.<name>.<pid>-<n>.tmp` made with its mode, is fsynced, renamed over the name, and the directory is fsynced. All
//! of it happens relative to one directory descriptor. As root, a file gets the owner of its directory, so that what root writes for
//! the agent can be read by the agent.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, RawMode, ResolveFlags};
use rustix::io::Errno;

use crate::faults::{When, point};
use crate::join::fault::{Code, Fault};

/// Why a file could not be written or read.
///
/// `Display` ends in the plain words of the errno, so the error has no source that would say it again.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system refused.
    #[error("cannot {doing} {}: {}", path.display(), plain(*errno))]
    Io {
        /// `read`, `write`, `remove`, `lock`.
        doing: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why.
        errno: Errno,
    },
    /// Something is there, and it is not what we wrote. It is left as it is.
    #[error("{} {why}", path.display())]
    Tampered {
        /// Which file.
        path: PathBuf,
        /// A predicate: `is a symbolic link`.
        why: String,
    },
    /// Another process holds the lock.
    #[error("another stratum-join agent (pid {pid}) owns {}", dir.display())]
    Owned {
        /// What the lock file says; `unknown` when it says nothing.
        pid: String,
        /// The directory it stands for.
        dir: PathBuf,
    },
}

/// The one process that may use a directory, until dropped or dead.
#[derive(Debug)]
pub struct Lock {
    _held: File,
}

/// Replaces `path` by `bytes`, durably. After `Ok` it survives a power cut; after `Err`, or a crash in between, the old content or the
/// new one is there, never a mixture. `mode` holds whatever the umask is. `name` is the crash point.
pub fn write(path: &Path, bytes: &[u8], mode: RawMode, name: &'static str) -> Result<(), FileError> {
    replace(path, bytes, mode, name, true)
}

/// The same without fsync, for files on tmpfs: a reader sees the old or the new content, a power cut takes both.
pub fn write_volatile(path: &Path, bytes: &[u8], mode: RawMode, name: &'static str) -> Result<(), FileError> {
    replace(path, bytes, mode, name, false)
}

/// As [`write()`], and the content that was there is overwritten on the disk once the new one is durable, as far as the disk lets us.
pub fn write_secret(path: &Path, bytes: &[u8], mode: RawMode, name: &'static str) -> Result<(), FileError> {
    let (dir, file) = split(path)?;
    let old = hold(&dir, file);
    replace(path, bytes, mode, name, true)?;
    wipe(old);
    Ok(())
}

/// Reads a secret: a regular file of our own, with one link, without any group or other permission, of at most `cap` bytes.
/// `Ok(None)` is missing; everything else is [`FileError::Tampered`].
pub fn read_private(path: &Path, cap: u64) -> Result<Option<Vec<u8>>, FileError> {
    read(path, cap, Whose::Ours { private: true })
}

/// Reads a file of our own that others may read: as [`read_private`] without the check of the permissions.
pub fn read_own(path: &Path, cap: u64) -> Result<Option<Vec<u8>>, FileError> {
    read(path, cap, Whose::Ours { private: false })
}

/// Reads a file that must belong to `uid`: regular, one link, no symbolic link, at most `cap` bytes.
pub fn read_owned(path: &Path, cap: u64, uid: u32) -> Result<Option<Vec<u8>>, FileError> {
    read(path, cap, Whose::Uid(uid))
}

/// Reads a file of the operator or of the system: regular, at most `cap` bytes; a symbolic link is followed.
pub fn read_public(path: &Path, cap: u64) -> Result<Option<Vec<u8>>, FileError> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(fd) => take(path, fd, cap, |_| None).map(Some),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(failed("read", path, errno)),
    }
}

/// Removes `path`, durably, and what a crash left of writing it, and overwrites what it held, as far as the disk lets us. Missing is fine.
/// `name` is the crash point.
pub fn remove(path: &Path, name: &'static str) -> Result<(), FileError> {
    point(name, When::Before);
    let (dir, file) = match split(path) {
        Ok(both) => both,
        Err(FileError::Io { errno: Errno::NOENT, .. }) => return Ok(()),
        Err(other) => return Err(other),
    };
    sweep_one(&dir, path, file)?;
    let old = hold(&dir, file);
    match rustix::fs::unlinkat(&dir, file, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(failed("remove", path, errno)),
    }
    point(name, When::During);
    rustix::fs::fsync(&dir).map_err(|errno| failed("remove", path, errno))?;
    wipe(old);
    point(name, When::After);
    Ok(())
}

/// Removes what a crash left of writing any file of `dir`. Only for who holds the lock of that directory: a write in progress would lose
/// its temporary file.
pub fn sweep(dir: &Path) -> Result<(), FileError> {
    let fd = match open_dir(dir) {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(failed("read", dir, errno)),
    };
    sweep_where(&fd, dir, |_| true)
}

/// Removes what a crash left of writing `path`. Same condition as [`sweep`].
pub fn sweep_of(path: &Path) -> Result<(), FileError> {
    match split(path) {
        Ok((dir, file)) => sweep_one(&dir, path, file),
        Err(FileError::Io { errno: Errno::NOENT, .. }) => Ok(()),
        Err(other) => Err(other),
    }
}

/// Makes `dir` and the directories above it. A new directory gets `mode` (those above it 0755) and, as root, the owner of the one above;
/// one that is there must be a directory and not a link.
pub fn make_dir(dir: &Path, mode: RawMode) -> Result<(), FileError> {
    match open_dir(dir) {
        Ok(_) => return Ok(()),
        Err(Errno::NOENT) => {}
        Err(Errno::NOTDIR | Errno::LOOP) => return Err(tampered(dir, "is not a directory")),
        Err(errno) => return Err(failed("make", dir, errno)),
    }
    // The ones above are the system's and may be links (`/tmp`, `/var` on some images); the one asked for may not.
    let parent = parent(dir);
    if !parent.is_dir() {
        make_dir(parent, 0o755)?;
    }
    let name = name_of(dir)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let above = rustix::fs::open(parent, flags, Mode::empty()).map_err(|errno| failed("make", dir, errno))?;
    match rustix::fs::mkdirat(&above, name, Mode::from_raw_mode(mode)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(failed("make", dir, errno)),
    }
    let made = open_dir(dir).map_err(|errno| failed("make", dir, errno))?;
    let steps = || -> rustix::io::Result<()> {
        rustix::fs::fchmod(&made, Mode::from_raw_mode(mode))?;
        give_to_owner_of(&above, &made)?;
        rustix::fs::fsync(&above)
    };
    steps().map_err(|errno| failed("make", dir, errno))
}

// === impl FileError ===

impl FileError {
    /// No space, or the quota is used up: it goes on when there is space again.
    pub fn is_full(&self) -> bool {
        matches!(self.errno(), Some(Errno::NOSPC | Errno::DQUOT))
    }

    /// The file system is read-only.
    pub fn is_read_only(&self) -> bool {
        self.errno() == Some(Errno::ROFS)
    }

    /// The file is there and is not ours.
    pub fn is_tampered(&self) -> bool {
        matches!(self, FileError::Tampered { .. })
    }

    /// The system's reason, when it was the system.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            FileError::Io { errno, .. } => Some(*errno),
            FileError::Tampered { .. } | FileError::Owned { .. } => None,
        }
    }

    /// Classified for the core.
    pub fn fault(&self) -> Fault {
        let code = if self.is_tampered() { Code::Tampered } else { Code::Local };
        Fault::from_error(code, self)
    }
}

impl From<&FileError> for Fault {
    fn from(error: &FileError) -> Self {
        error.fault()
    }
}

impl From<FileError> for Fault {
    fn from(error: FileError) -> Self {
        error.fault()
    }
}

/// The errno in the words of a person, lowercase.
pub fn plain(errno: Errno) -> String {
    let text = match errno {
        Errno::NOSPC => "the disk is full",
        Errno::DQUOT => "the disk quota is used up",
        Errno::ROFS => "the file system is read-only",
        Errno::IO => "the disk reports an input/output error",
        Errno::ACCESS => "permission denied",
        Errno::PERM => "not permitted",
        Errno::MFILE | Errno::NFILE => "too many open files",
        Errno::NOENT => "no such file or directory",
        Errno::NOTDIR => "a part of the path is not a directory",
        Errno::ISDIR => "it is a directory",
        Errno::LOOP => "a symbolic link is in the way",
        other => {
            let text = io::Error::from(other).to_string();
            let text = text.split(" (os error").next().unwrap_or_default();
            let mut chars = text.chars();
            return chars.next().map(|c| c.to_lowercase().chain(chars).collect()).unwrap_or_default();
        }
    };
    text.to_owned()
}

/// [`plain`] for an error of the standard library.
pub fn plain_io(error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(errno) => plain(errno),
        None => error.to_string(),
    }
}

// === impl Lock ===

impl Lock {
    /// Takes the lock file `path` or says who holds it. Never waits. The kernel frees it when this process is gone, however it went.
    pub fn take(path: &Path) -> Result<Self, FileError> {
        let (dir, name) = split(path)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = match rustix::fs::openat(&dir, name, flags, Mode::from_raw_mode(0o600)) {
            Ok(fd) => fd,
            Err(Errno::LOOP) => return Err(tampered(path, "is a symbolic link")),
            Err(errno) => return Err(failed("lock", path, errno)),
        };
        let mut file = File::from(fd);
        let meta = file.metadata().map_err(|e| failed_io("lock", path, &e))?;
        if !meta.is_file() || meta.nlink() != 1 {
            return Err(tampered(path, "is not a plain file of its own"));
        }
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let mut text = String::new();
                let _ = (&file).take(16).read_to_string(&mut text);
                let pid = text.trim();
                let known = !pid.is_empty() && pid.bytes().all(|b| b.is_ascii_digit());
                let pid = if known { pid } else { "unknown" }.to_owned();
                return Err(FileError::Owned { pid, dir: parent(path).to_owned() });
            }
            Err(errno) => return Err(failed("lock", path, errno)),
        }
        give_to_owner_of(&dir, &file).map_err(|errno| failed("lock", path, errno))?;
        let pid = format!("{}\n", std::process::id());
        file.set_len(0)
            .and_then(|()| file.write_all(pid.as_bytes()))
            .map_err(|e| failed_io("lock", path, &e))?;
        Ok(Self { _held: file })
    }
}

// === private ===

/// Whose file a reader takes.
#[derive(Clone, Copy)]
enum Whose {
    /// Ours; as root the directory owner's, because root reads for the agent too.
    Ours { private: bool },
    /// This user's.
    Uid(u32),
}

static COUNTER: AtomicU32 = AtomicU32::new(0);

fn replace(
    path: &Path,
    bytes: &[u8],
    mode: RawMode,
    name: &'static str,
    durable: bool,
) -> Result<(), FileError> {
    point(name, When::Before);
    let (dir, file) = split(path)?;
    let (temp_name, fd) = create_temp(&dir, file, mode).map_err(|errno| failed("write", path, errno))?;
    let temp = File::from(fd);
    let done = fill(&dir, temp, bytes, mode, name, durable)
        .and_then(|()| Ok(rustix::fs::renameat(&dir, &temp_name, &dir, file)?));
    if let Err(error) = done {
        // Nothing of the new content stays; a distrusted file is never synced again.
        let _ = rustix::fs::unlinkat(&dir, &temp_name, AtFlags::empty());
        return Err(failed_io("write", path, &error));
    }
    if durable {
        rustix::fs::fsync(&dir).map_err(|errno| failed("write", path, errno))?;
    }
    point(name, When::After);
    Ok(())
}

fn fill(
    dir: &OwnedFd,
    mut temp: File,
    bytes: &[u8],
    mode: RawMode,
    name: &str,
    durable: bool,
) -> io::Result<()> {
    // The umask may have taken bits away from the mode at creation.
    rustix::fs::fchmod(&temp, Mode::from_raw_mode(mode))?;
    give_to_owner_of(dir, &temp)?;
    let (first, second) = bytes.split_at(bytes.len() / 2);
    temp.write_all(first)?;
    point(name, When::During);
    temp.write_all(second)?;
    if durable { temp.sync_all() } else { Ok(()) }
}

fn create_temp(dir: &OwnedFd, file: &str, mode: RawMode) -> rustix::io::Result<(String, OwnedFd)> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut last = Errno::EXIST;
    for _ in 0..64 {
        let count = COUNTER.fetch_add(1, Ordering::Relaxed);
        let name = format!(".{file}.{}-{count}.tmp", std::process::id());
        match rustix::fs::openat(dir, &name, flags, Mode::from_raw_mode(mode)) {
            Ok(fd) => return Ok((name, fd)),
            // Left by a crashed process of the same pid.
            Err(Errno::EXIST) => last = Errno::EXIST,
            Err(errno) => return Err(errno),
        }
    }
    Err(last)
}

/// As root, a file belongs to who owns its directory. Anybody else owns what it makes.
fn give_to_owner_of(dir: &OwnedFd, made: impl std::os::fd::AsFd) -> rustix::io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let owner = rustix::fs::fstat(dir)?;
    let own = rustix::fs::fstat(&made)?;
    if (own.st_uid, own.st_gid) == (owner.st_uid, owner.st_gid) || owner.st_uid == 0 {
        return Ok(());
    }
    let uid = rustix::fs::Uid::from_raw(owner.st_uid);
    let gid = rustix::fs::Gid::from_raw(owner.st_gid);
    rustix::fs::fchown(&made, Some(uid), Some(gid))
}

fn read(path: &Path, cap: u64, whose: Whose) -> Result<Option<Vec<u8>>, FileError> {
    let (dir, file) = match split(path) {
        Ok(both) => both,
        Err(FileError::Io { errno: Errno::NOENT, .. }) => return Ok(None),
        Err(other) => return Err(other),
    };
    let fd = match open_beneath(&dir, file) {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => return Err(tampered(path, "is a symbolic link")),
        // open(2): a socket gives ENXIO.
        Err(Errno::NXIO) => return Err(tampered(path, "is not a regular file")),
        Err(errno) => return Err(failed("read", path, errno)),
    };
    let uid = match whose {
        Whose::Uid(uid) => uid,
        Whose::Ours { .. } if !rustix::process::geteuid().is_root() => rustix::process::geteuid().as_raw(),
        Whose::Ours { .. } => rustix::fs::fstat(&dir).map_err(|errno| failed("read", path, errno))?.st_uid,
    };
    let bytes = take(path, fd, cap, |meta| {
        if meta.uid() != uid {
            Some(format!("belongs to uid {}, not to {uid}", meta.uid()))
        } else if meta.nlink() != 1 {
            Some(format!("has {} hard links", meta.nlink()))
        } else if matches!(whose, Whose::Ours { private: true }) && meta.mode() & 0o077 != 0 {
            Some(format!("is open to others (mode {:04o})", meta.mode() & 0o7777))
        } else {
            None
        }
    })?;
    Ok(Some(bytes))
}

/// Reads an open file after its checks. The size counted is what was read, not what `fstat` said.
fn take(
    path: &Path,
    fd: OwnedFd,
    cap: u64,
    more: impl FnOnce(&std::fs::Metadata) -> Option<String>,
) -> Result<Vec<u8>, FileError> {
    let file = File::from(fd);
    let meta = file.metadata().map_err(|e| failed_io("read", path, &e))?;
    if !meta.is_file() {
        return Err(tampered(path, "is not a regular file"));
    }
    if let Some(why) = more(&meta) {
        return Err(tampered(path, why));
    }
    let too_large = || tampered(path, format!("is larger than {cap} bytes"));
    if meta.len() > cap {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(usize::try_from(meta.len()).unwrap_or(0) + 1);
    file.take(cap + 1).read_to_end(&mut bytes).map_err(|e| failed_io("read", path, &e))?;
    if bytes.len() as u64 > cap { Err(too_large()) } else { Ok(bytes) }
}

fn open_beneath(dir: &OwnedFd, file: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match rustix::fs::openat2(dir, file, flags, Mode::empty(), resolve) {
        // A sandbox without openat2. The name is one component, so O_NOFOLLOW forbids the same links.
        Err(Errno::NOSYS) => rustix::fs::openat(dir, file, flags, Mode::empty()),
        other => other,
    }
}

fn open_dir(dir: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(dir, flags, Mode::empty())
}

/// The directory, opened, and the name in it.
fn split(path: &Path) -> Result<(OwnedFd, &str), FileError> {
    let name = name_of(path)?;
    match open_dir(parent(path)) {
        Ok(dir) => Ok((dir, name)),
        Err(Errno::NOTDIR | Errno::LOOP) => Err(tampered(parent(path), "is not a directory")),
        Err(errno) => Err(failed("open", parent(path), errno)),
    }
}

fn name_of(path: &Path) -> Result<&str, FileError> {
    path.file_name().and_then(|n| n.to_str()).ok_or_else(|| tampered(path, "is not a file name"))
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    }
}

fn sweep_one(dir: &OwnedFd, path: &Path, file: &str) -> Result<(), FileError> {
    let prefix = format!(".{file}.");
    sweep_where(dir, path, |name| name.starts_with(&prefix))
}

fn sweep_where(dir: &OwnedFd, path: &Path, ours: impl Fn(&str) -> bool) -> Result<(), FileError> {
    let list = rustix::fs::Dir::read_from(dir).map_err(|errno| failed("read", path, errno))?;
    for entry in list {
        let entry = entry.map_err(|errno| failed("read", path, errno))?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        if is_temp(name) && ours(name) {
            let old = hold(dir, name);
            match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => wipe(old),
                Err(errno) => return Err(failed("remove", path, errno)),
            }
        }
    }
    Ok(())
}

/// Opens a file that is about to lose its name, so that it can be overwritten afterwards: before, a crash would leave a broken file under
/// the name. Only a plain file with one name; anything else is not ours to overwrite.
fn hold(dir: &OwnedFd, name: &str) -> Option<File> {
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(rustix::fs::openat(dir, name, flags, Mode::empty()).ok()?);
    let meta = file.metadata().ok()?;
    (meta.is_file() && meta.nlink() == 1).then_some(file)
}

/// Overwrites a file that has lost its last name. Best effort: the name is gone already, and a copy-on-write file system or a flash disk
/// keeps old blocks anyway.
fn wipe(old: Option<File>) {
    let Some(mut file) = old else { return };
    let Ok(meta) = file.metadata() else { return };
    if meta.nlink() == 0 {
        let zeros = io::repeat(0).take(meta.len());
        let _ = io::copy(&mut { zeros }, &mut file).and_then(|_| file.sync_data());
    }
}

/// `.<name>.<pid>-<n>.tmp`
fn is_temp(name: &str) -> bool {
    let Some(stem) = name.strip_prefix('.').and_then(|n| n.strip_suffix(".tmp")) else { return false };
    stem.rsplit_once('.').and_then(|(_, id)| id.split_once('-')).is_some_and(|(pid, n)| {
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        digits(pid) && digits(n)
    })
}

fn failed(doing: &'static str, path: &Path, errno: Errno) -> FileError {
    FileError::Io { doing, path: path.to_owned(), errno }
}

fn failed_io(doing: &'static str, path: &Path, error: &io::Error) -> FileError {
    failed(doing, path, Errno::from_io_error(error).unwrap_or(Errno::IO))
}

fn tampered(path: &Path, why: impl Into<String>) -> FileError {
    FileError::Tampered { path: path.to_owned(), why: why.into() }
}

#[cfg(test)]
#[path = "durable_file_tests.rs"]
mod tests;
