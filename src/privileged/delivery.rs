//! `write-delivery`: node.yaml below `/etc/stratum`, the bundle on tmpfs, and which attempt they are of.
//!
//! Touches `node.yaml`, `/run/stratum/delivery` and the helper's lock. Must never write to a machine that is a member already, nor under a
//! running firstboot.

use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{FirstbootRunner, InProcess, run};
use crate::durable_file::{self, FileError, Lock};
use crate::handoff::{Delivery, check};
use crate::join::fault::{Code, Fault};
use crate::paths::Paths;
use crate::protocol::wire::{MAX_BUNDLE, MAX_NODE_YAML};

/// How long a verb waits for the lock.
const LOCK_WAIT: Duration = Duration::from_secs(5);
/// Largest `attempt.json`.
const MAX_ATTEMPT: u64 = 4 * 1024;
const SECRET: u32 = 0o600;

/// `attempt.json`: what the files beside it are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Attempt {
    /// The delivery's attempt; null from a founder without attempts.
    pub(super) attempt: Option<u64>,
    /// Its digest.
    pub(super) sha256: String,
    /// The boot it was written in.
    pub(super) boot_id: String,
}

// === impl Attempt ===

impl Attempt {
    /// Whether this is the same hand-off: the same attempt, or without attempts the same digest.
    pub(super) fn is(&self, attempt: Option<u64>, sha256: &str) -> bool {
        match (self.attempt, attempt) {
            (None, None) => self.sha256 == sha256,
            (ours, theirs) => ours == theirs,
        }
    }
}

// === impl InProcess ===

impl InProcess {
    /// Whether firstboot of any attempt runs.
    pub(super) async fn firstboot_runs(&self) -> Result<bool, Fault> {
        match &self.runner {
            FirstbootRunner::Command { .. } => self.blocking(|this| run::any_running(&this.paths)).await,
            // One that is asked for and waits will read the files whenever it comes up.
            FirstbootRunner::Unit => {
                let unit = self.bus().await?.firstboot().await?;
                Ok(unit.is_running() || unit.has_job)
            }
        }
    }

    /// The verb itself; the caller holds the lock, and no firstboot runs.
    pub(super) fn place(&self, attempt: Option<u64>, delivery: &Delivery) -> Result<String, Fault> {
        if let Some(problem) = check(delivery).problem {
            return Err(problem);
        }
        let paths = &self.paths;
        refuse_member(paths)?;
        let said = Attempt { attempt, sha256: delivery.sha256().to_owned(), boot_id: self.boot_id.clone() };
        place_files(paths, delivery, &said)?;
        Ok(said.sha256)
    }
}

/// One delivery verb at a time, in this process or in another.
pub(super) async fn lock(paths: &Paths) -> Result<Lock, Fault> {
    let path = paths.helper_lock();
    durable_file::make_dir(&paths.run_dir(), 0o755)?;
    let since = Instant::now();
    loop {
        match Lock::take(&path) {
            Ok(lock) => return Ok(lock),
            Err(FileError::Owned { pid, .. }) if since.elapsed() >= LOCK_WAIT => {
                let detail = format!("{} is busy: process {pid} holds it", path.display());
                return Err(Fault::new(Code::Local, detail));
            }
            Err(FileError::Owned { .. }) => tokio::time::sleep(Duration::from_millis(50)).await,
            Err(error) => return Err(error.fault()),
        }
    }
}

/// What was written last, if it was in any boot.
pub(super) fn last_written(paths: &Paths) -> Result<Option<Attempt>, Fault> {
    let path = paths.attempt();
    let Some(bytes) = durable_file::read_private(&path, MAX_ATTEMPT)? else { return Ok(None) };
    let attempt = serde_json::from_slice(&bytes);
    attempt
        .map(Some)
        .map_err(|_| Fault::new(Code::Tampered, format!("{} is not what was written", path.display())))
}

/// Reads back what was written; another digest than `sha256`, or a missing file, is `Tampered`.
pub(super) fn read_back(paths: &Paths, sha256: &str) -> Result<Delivery, Fault> {
    let read = |path: &std::path::Path, cap: usize| {
        let gone = || Fault::new(Code::Tampered, format!("{} is gone", path.display()));
        durable_file::read_private(path, cap as u64)?.ok_or_else(gone)
    };
    let delivery =
        Delivery::new(read(&paths.node_yaml(), MAX_NODE_YAML)?, read(&paths.bundle(), MAX_BUNDLE)?)?;
    if delivery.sha256() != sha256 {
        let detail = format!(
            "{} and {} are not what was delivered",
            paths.node_yaml().display(),
            paths.bundle().display()
        );
        return Err(Fault::new(Code::Tampered, detail));
    }
    Ok(delivery)
}

/// A member is never installed again. Where that cannot be known it is taken for one: the other mistake costs its data.
pub(super) fn refuse_member(paths: &Paths) -> Result<(), Fault> {
    let marker = paths.joined_marker();
    let detail = match std::fs::symlink_metadata(&marker) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Ok(_) => format!(
            "this machine is a member already ({} is there): nothing was written or started",
            marker.display()
        ),
        Err(error) => format!(
            "whether this machine is a member already cannot be told ({}: {}): nothing was written or started",
            marker.display(),
            durable_file::plain_io(&error)
        ),
    };
    Err(Fault::new(Code::Local, detail))
}

// === private ===

/// Replacing a link would not follow it. But who put it there expects the file elsewhere, and a person has to know.
pub(super) fn refuse_link(path: &std::path::Path) -> Result<(), Fault> {
    let refused = |is: &str| {
        let detail =
            format!("{} {is}: nothing is written there. Look who made it, and remove it", path.display());
        Err(Fault::new(Code::Tampered, detail))
    };
    match std::fs::symlink_metadata(path) {
        Ok(meta) if meta.is_symlink() => refused("is a symbolic link"),
        Ok(meta) if !meta.is_file() => refused("is not a regular file"),
        Ok(meta) if meta.nlink() > 1 => refused(&format!("has {} hard links", meta.nlink())),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The bundle must be gone when the power is: its directory has to be in memory (statfs(2), `TMPFS_MAGIC`, `RAMFS_MAGIC`).
fn refuse_disk(dir: &std::path::Path) -> Result<(), Fault> {
    const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];
    let kind = rustix::fs::statfs(dir).map(|fs| fs.f_type);
    if kind.is_ok_and(|kind| IN_MEMORY.contains(&kind)) {
        return Ok(());
    }
    let detail = format!("{} is not on a tmpfs: no secret is written to a disk", dir.display());
    Err(Fault::new(Code::Local, detail))
}

/// `attempt.json` goes first and comes last, so that it never stands beside another attempt's files.
fn place_files(paths: &Paths, delivery: &Delivery, said: &Attempt) -> Result<(), Fault> {
    durable_file::make_dir(&paths.etc_dir(), 0o755)?;
    durable_file::make_dir(&paths.delivery_dir(), 0o700)?;
    if paths.is_system() {
        refuse_disk(&paths.delivery_dir())?;
    }
    for path in [paths.node_yaml(), paths.bundle(), paths.attempt()] {
        refuse_link(&path)?;
    }
    durable_file::remove(&paths.attempt(), "attempt-remove")?;
    for path in [paths.node_yaml(), paths.bundle()] {
        durable_file::sweep_of(&path)?;
    }
    durable_file::write_secret(&paths.node_yaml(), delivery.node_yaml(), SECRET, "node-yaml-write")?;
    durable_file::write_secret(&paths.bundle(), delivery.bundle(), SECRET, "bundle-write")?;
    let text = serde_json::to_vec(said).unwrap_or_default();
    Ok(durable_file::write(&paths.attempt(), &text, SECRET, "attempt-write")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_may_lie_in_memory_and_on_no_disk() {
        assert_eq!(refuse_disk("/dev/shm".as_ref()), Ok(()));
        let disk = refuse_disk("/proc".as_ref()).unwrap_err();
        assert_eq!(disk.detail, "/proc is not on a tmpfs: no secret is written to a disk");
        assert!(refuse_disk("/no/such".as_ref()).is_err());
    }
}
