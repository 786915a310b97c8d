//! Installing an OS beside the one that runs: what a backend can do, and the backends (docs/helper.md, "Installing an OS").
//!
//! Runs as root, in the process that does the verbs, after that has checked what it is told (`privileged`). A backend touches its slots, its boot
//! entries and `/var/lib/stratum/os`; never the slot that runs, never the stage but through [`ReleaseFiles`].

mod none;
pub mod recorded;
mod records;
mod staged;
pub mod state;

pub use none::NoInstaller;
pub(crate) use staged::Staged;
pub use state::{Armed, Backend, Booted, Installed, LastTrial, OsState, Slot, Trial, Why};

use crate::durable_file::FileError;
use crate::upgrade::FileEntry;
use crate::upgrade::fault::{Code, UpgradeFault};
use crate::upgrade::verify::Verified;

/// Told of a write: bytes written, bytes in all; `false` ends it before the next chunk.
pub type Progress<'a> = dyn FnMut(u64, u64) -> bool + 'a;

/// What installs an OS. Every call can be repeated, and one that is killed at any moment leaves the running OS the next to start.
pub trait OsInstaller: Send + Sync {
    /// Facts; guesses nothing, changes nothing.
    fn probe(&self) -> Result<OsState, UpgradeFault>;

    /// Writes `release` to the slot that does not run and reads it back. Disarms first; the next start is still that of the running OS.
    fn write(
        &self,
        release: &Verified,
        files: &mut dyn ReleaseFiles,
        progress: &mut Progress<'_>,
    ) -> Result<Installed, UpgradeFault>;

    /// Makes what was written the next to start, a few times: the one call that changes the next boot.
    fn arm(&self, release: &Verified) -> Result<(), UpgradeFault>;

    /// Takes the next start back from an OS that was never confirmed.
    fn disarm(&self) -> Result<(), UpgradeFault>;

    /// Confirms the OS that runs on trial: it is started from now on.
    fn bless(&self) -> Result<(), UpgradeFault>;
}

/// The files of a release, piece by piece. What a call gives is what was checked: bytes of its own that nobody else can change.
pub trait ReleaseFiles {
    /// Chunk `index` of `file`, which has the digest that the signed manifest says.
    fn chunk(&mut self, file: &FileEntry, index: usize) -> Result<&[u8], UpgradeFault>;
}

/// A file of ours that cannot be read or written.
fn disk_fault(error: &FileError) -> UpgradeFault {
    if error.is_full() {
        let what = format!("There is no room left: {error}.");
        return UpgradeFault::new(Code::NoSpace, what, "Free space, or reinstall with a larger disk.");
    }
    let what = format!("The disk failed: {error}.");
    UpgradeFault::new(Code::Io, what, "Check the disk (smartctl); replace it.")
}
