//! A staged release as the helper sees it: written by somebody who may be an enemy, and believed in nothing (docs/helper.md).
//!
//! Reads the stage, whose place is fixed; no link is followed there and nothing is waited for. The manifest and its signatures are read once, into
//! memory; of the files only bytes that were hashed after they were read are handed on.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::{ReleaseFiles, records};
use crate::durable_file::{plain, plain_io};
use crate::paths::Paths;
use crate::upgrade::fault::{Code, UpgradeFault};
use crate::upgrade::keys::{KeyId, KeyRing};
use crate::upgrade::manifest::{Form, MAX_MANIFEST};
use crate::upgrade::running::RunningOs;
use crate::upgrade::signature::{MAX_SIGNATURE, SignatureName, Signatures};
use crate::upgrade::verify::{Check, Kind, Verified, verify};
use crate::upgrade::{CHUNK, Digest, FileEntry};

/// Most signatures by keys that are not ours, read so that the refusal can name them.
const MAX_STRANGERS: usize = 16;
/// Most names of the directory of signatures that are looked at.
const MAX_NAMES: usize = 256;
const AGAIN: &str = "It is fetched again at the next try. If it happens again, check this disk.";

/// The stage.
pub(crate) struct Staged {
    dir: OwnedFd,
    path: PathBuf,
    /// The file that was read last.
    open: Option<(Digest, File)>,
    buffer: Vec<u8>,
}

// === impl Staged ===

impl Staged {
    /// Opens it.
    pub(crate) fn open(paths: &Paths) -> Result<Self, UpgradeFault> {
        let path = paths.upgrade_dir();
        // The directory above the agent's is root's; from there on every name may be a trap.
        let state = paths.state_dir();
        let base = state.parent().unwrap_or(&state);
        let below = path.strip_prefix(base).unwrap_or(&path);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let base = rustix::fs::open(base, flags, Mode::empty())
            .map_err(|errno| refused(&format!("{}", base.display()), errno))?;
        let dir = open_beneath(&base, below, OFlags::DIRECTORY)
            .map_err(|errno| refused(&format!("The stage {}", path.display()), errno))?;
        Ok(Self { dir, path, open: None, buffer: Vec::new() })
    }

    /// The release of this manifest, if it keeps every rule: signed by the keys of the running OS, for this product and processor, newer than what
    /// runs and ran here.
    pub(crate) fn verified(
        &self,
        paths: &Paths,
        manifest: Digest,
        form: Option<Form>,
    ) -> Result<Verified, UpgradeFault> {
        let os = RunningOs::load(paths).map_err(|error| UpgradeFault::unsupported(error, None))?;
        let keys = KeyRing::load(paths).map_err(|error| {
            let what = format!("No release can be trusted here: {error}.");
            UpgradeFault::new(Code::KeyUnknown, what, "Install from a newer ISO.")
        })?;
        let floor = records::floor(paths, &os)?;
        let release = format!("releases/{manifest}");
        let name = format!("{release}/manifest.json");
        let bytes = self.small(&name, MAX_MANIFEST)?;
        if Digest::of(&bytes) != manifest {
            return Err(differs(
                &format!("{name} in the stage"),
                "is another manifest than the one that was verified",
            ));
        }
        let signatures = self.signatures(&release, &keys)?;
        let check = Check {
            keys,
            os,
            floor,
            to: None,
            form,
            host: "The stage".to_owned(),
            url: self.path.join(release).display().to_string(),
        };
        Ok(verify(&check, &bytes, Kind::File, &signatures)?)
    }

    /// Those of our keys, and a few of others so that they can be named.
    fn signatures(&self, release: &str, keys: &KeyRing) -> Result<Signatures, UpgradeFault> {
        let sig = format!("{release}/sig");
        let mut found = Signatures::default();
        for key in keys.keys() {
            let name = format!("{sig}/{}.minisig", key.id());
            match self.file(&name) {
                Err(Missed::Errno(Errno::NOENT)) => {}
                opened => {
                    let bytes = read_small(&name, opened, MAX_SIGNATURE)?;
                    found.add(SignatureName::Of(key.id()), &bytes, Kind::File);
                }
            }
        }
        for id in self.strangers(&sig, keys) {
            let name = format!("{sig}/{id}.minisig");
            if let Ok(bytes) = self.small(&name, MAX_SIGNATURE) {
                found.add(SignatureName::Of(id), &bytes, Kind::File);
            }
        }
        Ok(found)
    }

    fn strangers(&self, sig: &str, keys: &KeyRing) -> Vec<KeyId> {
        let Ok(dir) = open_beneath(&self.dir, sig.as_ref(), OFlags::DIRECTORY) else { return Vec::new() };
        let Ok(names) = rustix::fs::Dir::read_from(dir) else { return Vec::new() };
        let id = |name: &str| name.strip_suffix(".minisig")?.parse::<KeyId>().ok();
        let names = names.take(MAX_NAMES).map_while(Result::ok);
        let ids = names.filter_map(|name| id(name.file_name().to_str().ok()?));
        ids.filter(|id| keys.find(*id).is_none()).take(MAX_STRANGERS).collect()
    }

    /// A whole small file.
    fn small(&self, name: &str, most: usize) -> Result<Vec<u8>, UpgradeFault> {
        read_small(name, self.file(name), most)
    }

    /// A plain file with one name.
    fn file(&self, name: &str) -> Result<File, Missed> {
        let file =
            File::from(open_beneath(&self.dir, name.as_ref(), OFlags::empty()).map_err(Missed::Errno)?);
        let meta = file.metadata().map_err(Missed::Io)?;
        if !meta.is_file() {
            return Err(Missed::Not("is not a regular file".to_owned()));
        }
        if meta.nlink() != 1 {
            return Err(Missed::Not(format!("has {} hard links", meta.nlink())));
        }
        Ok(file)
    }

    /// The file of a release, at its exact length.
    fn blob(&self, file: &FileEntry) -> Result<File, UpgradeFault> {
        let name = format!("blobs/{}", file.sha256);
        let shown = shown(file);
        let opened = self.file(&name).map_err(|missed| missed.fault(&shown))?;
        let len = opened.metadata().map_err(|error| io(&shown, &error))?.len();
        if len != file.size {
            let why = format!("has {len} bytes and not {}", file.size);
            return Err(differs(&shown, &why));
        }
        Ok(opened)
    }
}

impl ReleaseFiles for Staged {
    fn chunk(&mut self, file: &FileEntry, index: usize) -> Result<&[u8], UpgradeFault> {
        let shown = shown(file);
        let len = file.chunk_len(index);
        let (Some(want), Ok(take), true) = (file.chunks.get(index), usize::try_from(len), len > 0) else {
            return Err(UpgradeFault::helper(format_args!("{shown} has no chunk {index}")));
        };
        if self.open.as_ref().is_none_or(|(digest, _)| *digest != file.sha256) {
            self.open = Some((file.sha256, self.blob(file)?));
        }
        let Some((_, from)) = &self.open else {
            return Err(UpgradeFault::helper(format_args!("{shown} is not open")));
        };
        self.buffer.resize(take.max(self.buffer.len()), 0);
        let buffer = &mut self.buffer[..take];
        // Once it is in this buffer nobody else can change it: what is hashed is what is written.
        from.read_exact_at(buffer, index as u64 * CHUNK).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => differs(&shown, "is shorter than it was"),
            _ => io(&shown, &error),
        })?;
        if Digest::of(buffer) == *want {
            Ok(buffer)
        } else {
            Err(differs(&shown, "does not match the signed manifest"))
        }
    }
}

/// Why a file is not taken.
enum Missed {
    Errno(Errno),
    Io(std::io::Error),
    /// A predicate.
    Not(String),
}

// === impl Missed ===

impl Missed {
    fn fault(self, shown: &str) -> UpgradeFault {
        match self {
            Missed::Errno(errno) => refused(shown, errno),
            Missed::Io(error) => io(shown, &error),
            Missed::Not(why) => differs(shown, &why),
        }
    }
}

// === private ===

fn open_beneath(dir: impl AsFd, name: &std::path::Path, more: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC | more;
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    rustix::fs::openat2(dir, name, flags, Mode::empty(), resolve)
}

fn read_small(name: &str, opened: Result<File, Missed>, most: usize) -> Result<Vec<u8>, UpgradeFault> {
    let shown = format!("{name} in the stage");
    let file = opened.map_err(|missed| missed.fault(&shown))?;
    let mut bytes = Vec::new();
    file.take(most as u64 + 1).read_to_end(&mut bytes).map_err(|error| io(&shown, &error))?;
    if bytes.len() > most { Err(differs(&shown, "is too long")) } else { Ok(bytes) }
}

fn shown(file: &FileEntry) -> String {
    format!("{} in the stage", file.path)
}

/// What is there is not what was verified.
fn differs(shown: &str, why: &str) -> UpgradeFault {
    UpgradeFault::new(Code::Hash, format!("{shown} {why}."), AGAIN)
}

fn refused(shown: &str, errno: Errno) -> UpgradeFault {
    match errno {
        Errno::NOENT => differs(shown, "is not there"),
        Errno::LOOP => differs(shown, "is a symbolic link, or behind one"),
        Errno::XDEV => differs(shown, "leads to another file system"),
        // open(2): O_DIRECTORY comes before O_NOFOLLOW.
        Errno::NOTDIR => differs(shown, "is a symbolic link, or no directory"),
        Errno::NXIO | Errno::ISDIR => differs(shown, "is not a regular file"),
        errno => failed(shown, &plain(errno)),
    }
}

fn io(shown: &str, error: &std::io::Error) -> UpgradeFault {
    failed(shown, &plain_io(error))
}

fn failed(shown: &str, why: &str) -> UpgradeFault {
    let what = format!("The disk failed: reading {shown}: {why}.");
    UpgradeFault::new(Code::Io, what, "Check the disk (smartctl); replace it.")
}
