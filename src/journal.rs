//! The durable part of a join on disk. Tells absent from corrupt; replaces the file as a whole; one writer, guarded by the agent's lock.
//!
//! Touches the state directory only, and only through `durable_file`.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::durable_file::{self, FileError};
use crate::join::state::{Durable, VERSION};

/// Largest journal read, in bytes.
pub const CAP: u64 = 256 * 1024;
/// Copies of a corrupt journal that are kept.
const KEPT: u32 = 3;

/// What was found at start.
#[derive(Debug)]
pub enum Found {
    /// No journal: a first start.
    Absent,
    /// A good one.
    Good(Box<Durable>),
    /// One that cannot be used; moved aside, never deleted.
    Bad {
        /// Why it cannot be used, in plain words.
        why: String,
        /// Where it is kept.
        kept_as: PathBuf,
    },
}

/// The journal could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file.
    #[error(transparent)]
    File(#[from] FileError),
    /// The state does not fit the format: our bug.
    #[error("cannot write the state as JSON")]
    Encode(#[source] serde_json::Error),
}

/// The journal file.
#[derive(Debug, Clone)]
pub struct Journal {
    path: PathBuf,
}

// === impl Journal ===

impl Journal {
    /// The journal at `path`; nothing is read yet.
    pub fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Reads it. A corrupt one is kept as `journal.json.bad-<n>` and told apart from a missing one.
    pub fn load(&self) -> Result<Found, JournalError> {
        let bytes = match durable_file::read_private(&self.path, CAP) {
            Ok(None) => return Ok(Found::Absent),
            Ok(Some(bytes)) => bytes,
            // A planted link or a foreign owner is not a broken journal: it is left, and a person has to look.
            Err(error) => return Err(error.into()),
        };
        match decode(&bytes) {
            Ok(durable) => Ok(Found::Good(Box::new(durable))),
            Err(why) => Ok(Found::Bad { why, kept_as: self.set_aside()? }),
        }
    }

    /// Reads it for somebody who only looks: nothing is moved.
    pub fn peek(&self) -> Result<Found, JournalError> {
        Ok(match durable_file::read_private(&self.path, CAP)? {
            None => Found::Absent,
            Some(bytes) => match decode(&bytes) {
                Ok(durable) => Found::Good(Box::new(durable)),
                Err(why) => Found::Bad { why, kept_as: self.path.clone() },
            },
        })
    }

    /// Replaces it durably. `point` names the crash point.
    pub fn store(&self, durable: &Durable, point: &'static str) -> Result<(), JournalError> {
        let bytes = serde_json::to_vec(durable).map_err(JournalError::Encode)?;
        durable_file::write(&self.path, &bytes, 0o600, point)?;
        Ok(())
    }

    fn set_aside(&self) -> Result<PathBuf, JournalError> {
        let name = |n: u32| self.path.with_file_name(format!("journal.json.bad-{n}"));
        let free = (1..=KEPT).map(name).find(|path| !path.exists());
        let target = match free {
            Some(free) => free,
            None => {
                for n in 1..KEPT {
                    rename(&name(n + 1), &name(n))?;
                }
                name(KEPT)
            }
        };
        rename(&self.path, &target)?;
        Ok(target)
    }
}

fn rename(from: &Path, to: &Path) -> Result<(), FileError> {
    rustix::fs::rename(from, to).map_err(|errno| FileError::Io {
        doing: "move aside",
        path: from.to_owned(),
        errno,
    })
}

/// Only the version, to be read before anything else.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

fn decode(bytes: &[u8]) -> Result<Durable, String> {
    let versioned: Versioned =
        serde_json::from_slice(bytes).map_err(|e| format!("it is not a journal: {e}"))?;
    match versioned.version {
        // The first version. An older one would be converted here, step by step.
        VERSION => serde_json::from_slice(bytes).map_err(|e| format!("it is damaged: {e}")),
        other => Err(format!("it is of version {other}, this agent knows {VERSION}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn put(dir: &Path, text: &[u8]) -> Journal {
        let path = dir.join("journal.json");
        durable_file::write(&path, text, 0o600, "test").unwrap();
        Journal::at(path)
    }

    #[test]
    fn a_missing_journal_is_absent_and_a_torn_one_is_bad_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::at(dir.path().join("journal.json"));
        assert!(matches!(journal.load().unwrap(), Found::Absent));
        journal.store(&Durable::default(), "test").unwrap();
        assert!(matches!(journal.load().unwrap(), Found::Good(_)));
        let whole = std::fs::read(dir.path().join("journal.json")).unwrap();
        for n in 1..=4 {
            let torn = &whole[..whole.len() - n];
            let journal = put(dir.path(), torn);
            let Found::Bad { kept_as, .. } = journal.load().unwrap() else {
                panic!("a torn journal was taken")
            };
            assert_eq!(std::fs::read(kept_as).unwrap(), torn);
            assert!(matches!(journal.load().unwrap(), Found::Absent));
        }
        let kept = std::fs::read_dir(dir.path())
            .unwrap()
            .filter(|e| e.as_ref().unwrap().file_name().to_string_lossy().contains(".bad-"));
        assert_eq!(kept.count(), KEPT as usize);
    }

    #[test]
    fn a_journal_of_a_newer_version_is_not_read_as_ours() {
        let dir = tempfile::tempdir().unwrap();
        let journal = put(dir.path(), br#"{"version":2}"#);
        let Found::Bad { why, .. } = journal.load().unwrap() else { panic!() };
        assert_eq!(why, "it is of version 2, this agent knows 1");
    }

    #[test]
    fn a_journal_others_may_read_is_refused_and_left() {
        let dir = tempfile::tempdir().unwrap();
        let journal = put(dir.path(), b"{}");
        std::fs::set_permissions(&journal.path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(journal.load(), Err(JournalError::File(FileError::Tampered { .. }))));
        assert!(journal.path.exists());
    }
}
