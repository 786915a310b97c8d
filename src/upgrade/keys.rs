//! The release keys of the running OS (docs/upgrade.md, "Keys").
//!
//! Reads one directory of the OS image and nothing else. Must never take a key from a place that is written at run time, and never one that
//! somebody else than root could have put there: whoever can add a key can install an OS.

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use data_encoding::{BASE64, HEXUPPER};
use minisign_verify::PublicKey;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::durable_file::plain;
use crate::paths::Paths;

/// Most keys.
pub const MAX_KEYS: usize = 8;
/// Longest key file, bytes.
const MAX_KEY_FILE: usize = 1024;
/// Most entries of the directory that are looked at.
const MAX_ENTRIES: usize = 64;
/// The file with the number of signatures that are needed.
const THRESHOLD: &str = "threshold";
/// What minisign writes before a key: Ed25519.
const ALGORITHM: &[u8] = b"Ed";

/// The number of a key: random, made with it, and in each of its signatures. 16 upper-case hex digits in text, as minisign prints it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId([u8; 8]);

/// One public key.
#[derive(Debug, Clone)]
pub struct ReleaseKey {
    id: KeyId,
    raw: [u8; 32],
    key: PublicKey,
}

/// The keys that count, no two with one id and no two of the same 32 bytes, and how many of them must have signed.
#[derive(Debug, Clone)]
pub struct KeyRing {
    keys: Vec<ReleaseKey>,
    threshold: usize,
    warnings: Vec<String>,
}

/// Whose files count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// Only this user's, that nobody else may write.
    Uid(u32),
    /// Anybody's: a directory that a person names on a command line.
    Anybody,
}

/// Why a text is no public key of minisign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a public key of minisign")]
pub struct BadKey;

/// Why no release can be trusted here.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The directory or a file of it cannot be read.
    #[error("cannot read {}: {}", path.display(), plain(*errno))]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        errno: Errno,
    },
    /// Somebody else than its owner could have changed it.
    #[error("{} {why}", path.display())]
    NotTrusted {
        /// Which.
        path: PathBuf,
        /// A predicate.
        why: String,
    },
    /// Not one key.
    #[error("no release key in {}", dir.display())]
    None {
        /// Where they should be.
        dir: PathBuf,
    },
    /// `threshold` is no number that these keys could reach.
    #[error("{} says `{text}`, which is no number from 1 to {keys}, the keys beside it", path.display())]
    Threshold {
        /// The file.
        path: PathBuf,
        /// What it says.
        text: String,
        /// How many keys there are.
        keys: usize,
    },
}

// === impl KeyId ===

impl KeyId {
    /// Of the eight bytes as they stand in keys and signatures.
    pub fn of_bytes(bytes: [u8; 8]) -> Self {
        Self(bytes)
    }

    /// The eight bytes.
    pub fn bytes(self) -> [u8; 8] {
        self.0
    }
}

impl FromStr for KeyId {
    type Err = BadKey;

    fn from_str(text: &str) -> Result<Self, BadKey> {
        let bytes = HEXUPPER.decode(text.as_bytes()).map_err(|_| BadKey)?;
        let mut bytes: [u8; 8] = bytes.try_into().map_err(|_| BadKey)?;
        bytes.reverse();
        Ok(Self(bytes))
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = self.0;
        bytes.reverse();
        f.write_str(&HEXUPPER.encode(&bytes))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

// === impl ReleaseKey ===

impl ReleaseKey {
    /// Of a `.pub` file: a comment, then the key.
    pub fn parse(text: &[u8]) -> Result<Self, BadKey> {
        let text = std::str::from_utf8(text).map_err(|_| BadKey)?;
        let mut lines = text.lines();
        let comment = lines.next().ok_or(BadKey)?;
        let line = lines.next().ok_or(BadKey)?;
        if !comment.starts_with("untrusted comment:") || lines.any(|line| !line.trim().is_empty()) {
            return Err(BadKey);
        }
        let bytes = BASE64.decode(line.as_bytes()).map_err(|_| BadKey)?;
        let (head, raw) = bytes.split_at_checked(10).ok_or(BadKey)?;
        let (algorithm, id) = head.split_at_checked(2).ok_or(BadKey)?;
        if algorithm != ALGORITHM {
            return Err(BadKey);
        }
        Ok(Self {
            id: KeyId(id.try_into().map_err(|_| BadKey)?),
            raw: raw.try_into().map_err(|_| BadKey)?,
            key: PublicKey::from_base64(line).map_err(|_| BadKey)?,
        })
    }

    /// Its number.
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// For the check of a signature.
    pub(super) fn key(&self) -> &PublicKey {
        &self.key
    }
}

// === impl KeyRing ===

impl KeyRing {
    /// The keys of the running OS, which are root's. Under another root than the real machine's nothing is root's, and they are anybody's.
    pub fn load(paths: &Paths) -> Result<Self, KeysError> {
        let owner = if paths.is_system() { Owner::Uid(0) } else { Owner::Anybody };
        Self::load_dir(&paths.release_keys_dir(), owner)
    }

    /// The keys of a directory. A file that is no key, or whose key is there already, is passed over with a warning.
    pub fn load_dir(dir: &Path, owner: Owner) -> Result<Self, KeysError> {
        let failed = |errno| match errno {
            Errno::NOENT => KeysError::None { dir: dir.to_owned() },
            errno => KeysError::Read { path: dir.to_owned(), errno },
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(dir, flags, Mode::empty()).map_err(failed)?;
        trusted(&fd, owner).map_err(|why| KeysError::NotTrusted { path: dir.to_owned(), why })?;
        let mut found = Found { keys: Vec::new(), warnings: Vec::new() };
        for name in key_names(&fd).map_err(failed)? {
            match read(&fd, dir, &name, owner) {
                Ok(bytes) => found.add(&name, ReleaseKey::parse(&bytes)),
                Err(error) => found.warnings.push(error.to_string()),
            }
        }
        let Found { keys, warnings } = found;
        if keys.is_empty() {
            return Err(KeysError::None { dir: dir.to_owned() });
        }
        let threshold = match read(&fd, dir, THRESHOLD, owner) {
            Err(KeysError::Read { errno: Errno::NOENT, .. }) => 1,
            Err(error) => return Err(error),
            Ok(bytes) => threshold(&bytes, keys.len()).ok_or_else(|| KeysError::Threshold {
                path: dir.join(THRESHOLD),
                text: String::from_utf8_lossy(bytes.get(..16).unwrap_or(&bytes)).trim().to_owned(),
                keys: keys.len(),
            })?,
        };
        Ok(Self { keys, threshold, warnings })
    }

    /// One key, for the fuzz targets.
    pub(crate) fn of_one(key: ReleaseKey) -> Self {
        Self { keys: vec![key], threshold: 1, warnings: Vec::new() }
    }

    /// In order of the names of their files.
    pub fn keys(&self) -> &[ReleaseKey] {
        &self.keys
    }

    /// The one with this number.
    pub fn find(&self, id: KeyId) -> Option<&ReleaseKey> {
        self.keys.iter().find(|key| key.id == id)
    }

    /// How many of them must have signed; at least 1 and at most all.
    pub fn threshold(&self) -> usize {
        self.threshold
    }

    /// What was passed over, and why: lines for the log.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

/// Keys on the way to a ring.
struct Found {
    keys: Vec<ReleaseKey>,
    warnings: Vec<String>,
}

impl Found {
    fn add(&mut self, name: &str, key: Result<ReleaseKey, BadKey>) {
        let no = match key {
            Err(why) => format!("{name} is {why}"),
            Ok(key) if self.keys.iter().any(|k| k.id == key.id || k.raw == key.raw) => {
                format!("{name} holds a key that an earlier file holds ({})", key.id)
            }
            Ok(_) if self.keys.len() >= MAX_KEYS => format!("{name} is more than {MAX_KEYS} keys"),
            Ok(key) => return self.keys.push(key),
        };
        self.warnings.push(format!("release key passed over: {no}"));
    }
}

/// Names that end in `.pub`, sorted.
fn key_names(dir: &OwnedFd) -> rustix::io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(dir)?.take(MAX_ENTRIES) {
        let entry = entry?;
        let name = entry.file_name().to_str().ok().filter(|name| name.ends_with(".pub"));
        names.extend(name.map(str::to_owned));
    }
    names.sort_unstable();
    Ok(names)
}

/// A regular file that may be trusted, of at most [`MAX_KEY_FILE`] bytes. One with several links is fine: OSTree keeps an image so.
fn read(dir: &OwnedFd, path: &Path, name: &str, owner: Owner) -> Result<Vec<u8>, KeysError> {
    let path = path.join(name);
    let not = |why: &str| KeysError::NotTrusted { path: path.clone(), why: why.to_owned() };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = match rustix::fs::openat(dir, name, flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::LOOP) => return Err(not("is a symbolic link")),
        Err(errno) => return Err(KeysError::Read { path, errno }),
    };
    let stat = rustix::fs::fstat(&fd).map_err(|errno| KeysError::Read { path: path.clone(), errno })?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(not("is not a regular file"));
    }
    trusted(&fd, owner).map_err(|why| not(&why))?;
    let mut bytes = vec![0; MAX_KEY_FILE.saturating_add(1)];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match rustix::io::read(&fd, rest) {
            Ok(0) => break,
            Ok(n) => filled = filled.saturating_add(n),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(KeysError::Read { path, errno }),
        }
    }
    if filled > MAX_KEY_FILE {
        return Err(not("has more than 1 KiB"));
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// Nobody but its owner could have written it. `Err` is a predicate.
fn trusted(fd: &OwnedFd, owner: Owner) -> Result<(), String> {
    let Owner::Uid(uid) = owner else { return Ok(()) };
    let stat = rustix::fs::fstat(fd).map_err(|errno| format!("cannot be looked at: {}", plain(errno)))?;
    if stat.st_uid != uid {
        return Err(format!("belongs to uid {}, not to {uid}", stat.st_uid));
    }
    if stat.st_mode & 0o022 != 0 {
        return Err(format!("can be written by others (mode {:04o})", stat.st_mode & 0o7777));
    }
    Ok(())
}

fn threshold(bytes: &[u8], keys: usize) -> Option<usize> {
    let text = std::str::from_utf8(bytes).ok()?.trim();
    let digit = text.len() == 1 && text.bytes().all(|b| b.is_ascii_digit());
    digit.then(|| text.parse().ok()).flatten().filter(|n| (1..=keys).contains(n))
}
