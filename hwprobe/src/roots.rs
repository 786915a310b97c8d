//! The tree that the probe reads: this machine, or a captured copy of one.
//!
//! May touch: files below the one root directory, read-only. Must never: follow a link out of the root, open anything
//! for writing, block on a fifo, or read without a bound.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::Arc;

use rustix::fd::OwnedFd;
use rustix::fs::{self, FileType, Mode, OFlags, RawDir, ResolveFlags, Stat};
use rustix::io::Errno;

use crate::finding::{Finding, Missing};
use crate::recording::{Entry, Kind, Recording, UNREADABLE, Way};

/// Files of sysfs and proc: one page usually, never more than this.
const SHORT: usize = 64 * 1024;
/// A page, and what sysfs says of the size of an attribute.
const PAGE: usize = 4096;
/// Room for the first read of a file of proc.
const PROC: usize = 16 * 1024;
/// `mountinfo`, `swaps`, `cpuinfo`: 4 MiB, then `truncated`.
const LONG: usize = 4 * 1024 * 1024;
/// Entries of one directory that are looked at.
const MAX_ENTRIES: usize = 65_536;

/// One root directory below which `sys`, `proc`, `dev`, `run` and `etc` are read.
///
/// Every open is `openat2` with `RESOLVE_IN_ROOT`: an absolute link in a captured tree stays inside the tree. Only this machine's
/// own root is also read without it.
#[derive(Clone, Debug)]
pub struct Roots {
    root: Arc<OwnedFd>,
    live: bool,
    /// What could not be read when a captured tree was recorded, and why.
    missing: Arc<HashMap<String, Missing>>,
    recording: Option<Arc<Recording>>,
}

// === impl Roots ===

impl Roots {
    /// This machine.
    ///
    /// # Errors
    /// The root cannot be opened.
    pub fn live() -> io::Result<Self> {
        Self::open_root(Path::new("/"), true)
    }

    /// A captured tree: no netlink, no udev socket, no CPUID, no device node, no child process.
    ///
    /// # Errors
    /// `dir` cannot be opened as a directory, or the kernel has no `openat2`.
    pub fn under(dir: &Path) -> io::Result<Self> {
        Self::open_root(dir, false)
    }

    /// Whether this is the running machine.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.live
    }

    fn open_root(dir: &Path, live: bool) -> io::Result<Self> {
        let root = fs::open(dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let mut roots = Self { root: Arc::new(root), live, missing: Arc::default(), recording: None };
        match roots.open(".", OFlags::PATH) {
            Err(Errno::NOSYS) => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "kernel without openat2: 5.6 or later is needed",
            )),
            Err(errno) => Err(errno.into()),
            Ok(_) => {
                if !live && let Ok(text) = roots.read_bytes(UNREADABLE, LONG) {
                    roots.missing = Arc::new(serde_json::from_slice(&text).unwrap_or_default());
                }
                Ok(roots)
            }
        }
    }

    /// The same root, with every look at it written down.
    pub(crate) fn recorded(&self, recording: &Arc<Recording>) -> Self {
        Self { recording: Some(Arc::clone(recording)), ..self.clone() }
    }

    /// Answers what the recording of this tree says, or looks; and writes it down where somebody records.
    fn look<T>(
        &self,
        path: &str,
        way: Way,
        look: impl FnOnce() -> Finding<T>,
        entry: impl FnOnce(&T) -> Entry,
    ) -> Finding<T> {
        let told = if self.missing.is_empty() { None } else { self.missing.get(&way.key(path)) };
        let found = told.map_or_else(look, |missing| Err(*missing));
        if let Some(recording) = &self.recording {
            match &found {
                Ok(value) => recording.note(path, entry(value)),
                Err(Missing::Absent) => {}
                // Something that is no link: that is what it will be again.
                Err(Missing::Invalid) if way == Way::Link => recording.note(path, Entry::Exists),
                Err(missing) => recording.failed(path, way, *missing),
            }
        }
        found
    }

    /// Opens `path` (relative to the root) read-only, never blocking, never leaving the root.
    pub(crate) fn open(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC;
        let flags =
            if flags.contains(OFlags::PATH) { flags } else { flags | OFlags::NONBLOCK | OFlags::NOCTTY };
        let mut tries = 0;
        loop {
            match fs::openat2(&*self.root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT) {
                // EAGAIN: a rename raced with the walk (openat2(2)); the walk is simply done again.
                Err(Errno::AGAIN | Errno::INTR) if tries < 32 => tries += 1,
                // systemd's RestrictSUIDSGID= takes openat2 away, because a filter cannot look into its arguments. The root of
                // the running machine is the process's own, and no path leaves that.
                Err(Errno::NOSYS) if self.live => {
                    return fs::openat(&*self.root, path, flags, Mode::empty());
                }
                other => return other,
            }
        }
    }

    /// The bytes of a short file, at most 64 KiB. Only regular files are read.
    pub(crate) fn read(&self, path: &str) -> Finding<Vec<u8>> {
        self.read_up_to(path, SHORT)
    }

    /// The bytes of a long file of proc, at most 4 MiB.
    pub(crate) fn read_long(&self, path: &str) -> Finding<Vec<u8>> {
        self.read_up_to(path, LONG)
    }

    /// A short file as trimmed text; an empty one is `Absent`, bytes that are not UTF-8 are `Invalid`.
    pub(crate) fn line(&self, path: &str) -> Finding<String> {
        let bytes = self.read(path)?;
        let text = std::str::from_utf8(&bytes).map_err(|_| Missing::Invalid)?;
        let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
        if text.is_empty() { Err(Missing::Absent) } else { Ok(text.to_owned()) }
    }

    /// A short file as a decimal number.
    pub(crate) fn number(&self, path: &str) -> Finding<u64> {
        self.line(path)?.parse().map_err(|_| Missing::Invalid)
    }

    fn read_up_to(&self, path: &str, max: usize) -> Finding<Vec<u8>> {
        self.look(path, Way::Read, || self.read_bytes(path, max), |bytes| Entry::File(bytes.clone()))
    }

    /// [`Self::read`], and nobody writes it down.
    pub(crate) fn read_unseen(&self, path: &str) -> Finding<Vec<u8>> {
        self.read_bytes(path, SHORT)
    }

    fn read_bytes(&self, path: &str, max: usize) -> Finding<Vec<u8>> {
        let fd = self.open(path, OFlags::RDONLY).map_err(Missing::of)?;
        let stat = fs::fstat(&fd).map_err(Missing::of)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Missing::Invalid);
        }
        // A file with a size ends there. Those of sysfs say one page and are never longer; those of proc have none.
        let size = usize::try_from(stat.st_size).unwrap_or(0);
        let mut bytes = Vec::with_capacity(if size == 0 { PROC } else { size.min(max) + 1 });
        loop {
            match rustix::io::read(&fd, rustix::buffer::spare_capacity(&mut bytes)) {
                Ok(0) => return Ok(bytes),
                Ok(_) if bytes.len() > max => return Err(Missing::Truncated),
                Ok(_) if bytes.len() == size => return Ok(bytes),
                // One read of an attribute gives all of it (fs/seq_file.c: `show` writes it once, into one page).
                Ok(n) if self.live && size == PAGE && n < PAGE && path.starts_with("sys/") => {
                    return Ok(bytes);
                }
                Ok(_) => bytes.reserve(bytes.len()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Missing::of(errno)),
            }
        }
    }

    /// The text of the link at `path`; `Invalid` when it is no link.
    pub(crate) fn link(&self, path: &str) -> Finding<String> {
        self.look(path, Way::Link, || self.read_link(path), |target| Entry::Link(target.clone()))
    }

    /// [`Self::link`], and nobody writes it down.
    pub(crate) fn read_link(&self, path: &str) -> Finding<String> {
        let fd = self.open(path, OFlags::PATH | OFlags::NOFOLLOW).map_err(Missing::of)?;
        let target = fs::readlinkat(&fd, "", Vec::new()).map_err(|errno| match errno {
            // What it says of anything that is no link (readlink(2)).
            Errno::INVAL | Errno::NOENT => Missing::Invalid,
            errno => Missing::of(errno),
        })?;
        target.into_string().map_err(|_| Missing::Invalid)
    }

    /// The last component of the link at `path`.
    pub(crate) fn link_name(&self, path: &str) -> Finding<String> {
        let target = self.link(path)?;
        match target.rsplit('/').next() {
            Some(name) if !name.is_empty() && name != ".." => Ok(name.to_owned()),
            _ => Err(Missing::Invalid),
        }
    }

    /// The names in a directory, in bytewise order, without `.` and `..`. Names that are not UTF-8 come out lossy.
    pub(crate) fn list(&self, path: &str) -> Finding<Vec<String>> {
        Ok(self.list_kinds(path)?.into_iter().map(|(name, _)| name).collect())
    }

    /// The same, with what each is.
    pub(crate) fn list_kinds(&self, path: &str) -> Finding<Vec<(String, Kind)>> {
        self.look(path, Way::List, || self.read_list(path), |entries| Entry::Dir(entries.clone()))
    }

    fn read_list(&self, path: &str) -> Finding<Vec<(String, Kind)>> {
        let fd = self.open(path, OFlags::RDONLY | OFlags::DIRECTORY).map_err(Missing::of)?;
        let mut names = Vec::new();
        let mut room = [MaybeUninit::uninit(); 2 * PAGE];
        let mut entries = RawDir::new(fd, &mut room);
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(Missing::of)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name == "." || name == ".." {
                continue;
            }
            if names.len() == MAX_ENTRIES {
                return Err(Missing::Truncated);
            }
            names.push((name, Kind::of(entry.file_type())));
        }
        names.sort_unstable();
        Ok(names)
    }

    /// The status of what `path` leads to.
    pub(crate) fn stat(&self, path: &str) -> Finding<Stat> {
        let look = || {
            let fd = self.open(path, OFlags::PATH).map_err(Missing::of)?;
            fs::fstat(&fd).map_err(Missing::of)
        };
        self.look(path, Way::Stat, look, |stat| match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Entry::Dir(Vec::new()),
            _ => Entry::Exists,
        })
    }

    /// Writes down that the directory at `path` cannot be listed.
    pub(crate) fn note_broken(&self, path: &str) {
        if let Some(recording) = &self.recording {
            recording.failed(path, Way::List, Missing::Invalid);
        }
    }

    /// Whether something is at `path`; an error other than "not there" counts as there.
    pub(crate) fn exists(&self, path: &str) -> bool {
        !matches!(self.stat(path), Err(Missing::Absent))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_cannot_leave_the_root() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("canary"), "outside").unwrap();
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        symlink(outside.path().join("canary"), dir.path().join("a/absolute")).unwrap();
        symlink(format!("../../../../../..{}/canary", outside.path().display()), dir.path().join("a/b/up"))
            .unwrap();
        let roots = Roots::under(dir.path()).unwrap();
        assert_eq!(roots.read("a/absolute"), Err(Missing::Absent));
        assert_eq!(roots.read("a/b/up"), Err(Missing::Absent));
    }

    #[test]
    fn absolute_links_resolve_inside_the_root() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("usr/lib")).unwrap();
        std::fs::create_dir_all(dir.path().join("etc")).unwrap();
        std::fs::write(dir.path().join("usr/lib/os-release"), "inside\n").unwrap();
        symlink("/usr/lib/os-release", dir.path().join("etc/os-release")).unwrap();
        let roots = Roots::under(dir.path()).unwrap();
        assert_eq!(roots.line("etc/os-release"), Ok("inside".to_owned()));
        assert_eq!(roots.link_name("etc/os-release"), Ok("os-release".to_owned()));
    }

    #[test]
    fn a_fifo_is_refused_and_does_not_block() {
        let dir = tempfile::tempdir().unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, dir.path().join("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert_eq!(Roots::under(dir.path()).unwrap().read("fifo"), Err(Missing::Invalid));
    }

    #[test]
    fn a_file_over_the_bound_is_truncated_not_cut() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("big"), vec![b'x'; SHORT + 1]).unwrap();
        let roots = Roots::under(dir.path()).unwrap();
        assert_eq!(roots.read("big"), Err(Missing::Truncated));
        assert_eq!(roots.read_long("big").map(|b| b.len()), Ok(SHORT + 1));
    }
}
