//! What an OS backend says of this machine: which slot runs, what is armed, what became of the last trial. Values only; touches nothing.

use console::text::Safe;
use serde::{Deserialize, Serialize};

use crate::upgrade::Digest;
use crate::upgrade::manifest::Form;

/// Why this machine cannot be upgraded: a sentence without its capital and its full stop, as it stands in "cannot fall back safely: ...".
pub type Why = Safe<200>;

/// The facts of `probe os`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OsState {
    /// Who installs here.
    pub backend: Backend,
    /// `None`: an OS can be installed, and a bad one comes back. Otherwise why not.
    #[serde(default)]
    pub supported: Option<Why>,
    /// What runs.
    pub booted: Booted,
    /// What `armed.json` says, when an entry of the boot loader stands behind it. It may be of an earlier boot.
    #[serde(default)]
    pub armed: Option<Armed>,
    /// The manifest whose OS was written whole to the slot that does not run.
    #[serde(default)]
    pub installed: Option<Digest>,
    /// What became of what was armed in an earlier boot.
    #[serde(default)]
    pub last_trial: LastTrial,
    /// What the kernel said last when the new OS died.
    #[serde(default)]
    pub last_error: Option<Safe<1024>>,
    /// Which form of a release is installed here.
    #[serde(default)]
    pub form: Option<Form>,
}

/// Who installs an OS on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Backend {
    /// Nobody.
    None,
    /// The one that only writes down what it is told, below a temporary root (development, demo, tests).
    Recorded,
}

/// The OS that runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Booted {
    /// Where it lies; `None` where there are no slots.
    #[serde(default)]
    pub slot: Option<Slot>,
    /// `VERSION_ID` of its os-release; empty when that cannot be read.
    pub release: Safe<64>,
    /// Whether it is still on trial.
    pub trial: Trial,
    /// The kernel's boot id.
    pub boot_id: String,
}

/// One of the two places for an OS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Slot {
    /// The first.
    A,
    /// The second.
    B,
}

/// Whether the running OS was confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Trial {
    /// It was, or it never had to be.
    No,
    /// It was not: the boot loader counts its starts, this one among `done`.
    Counting {
        /// Starts that it still gets.
        left: u8,
        /// Starts that it had.
        done: u8,
    },
    /// It was not, and the boot loader does not count.
    NotCounted,
}

/// What became of the OS that was armed in an earlier boot, as the boot loader left its entry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LastTrial {
    /// None was armed, or it was in this boot, or it runs now and is on trial.
    #[default]
    None,
    /// Never started.
    NotTried,
    /// Started as often as it may be, and it did not come up.
    Exhausted {
        /// How often.
        tries: u8,
    },
    /// Started, and then the other OS before the starts were used up.
    Interrupted {
        /// Starts that it had.
        done: u8,
        /// Starts that it still has.
        left: u8,
    },
    /// It came up and was confirmed.
    Good,
    /// Its entry is gone.
    Lost,
}

/// `armed.json`: which OS was made the next to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Armed {
    /// Its manifest.
    #[serde(rename = "manifestSha256")]
    pub manifest: Digest,
    /// Its name.
    pub release: Safe<64>,
    /// Where it lies.
    pub slot: Slot,
    /// The boot in which it was armed.
    pub boot_id: String,
}

/// What `write` did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Installed {
    /// Where it wrote.
    pub slot: Slot,
}

// === impl Slot ===

impl Slot {
    /// The one beside it.
    pub fn other(self) -> Self {
        match self {
            Slot::A => Slot::B,
            Slot::B => Slot::A,
        }
    }

    /// `a` or `b`.
    pub fn letter(self) -> &'static str {
        match self {
            Slot::A => "a",
            Slot::B => "b",
        }
    }
}

// === impl OsState ===

impl OsState {
    /// Where nothing can be installed.
    pub fn unsupported(why: impl AsRef<str>, release: Safe<64>, boot_id: impl Into<String>) -> Self {
        Self {
            backend: Backend::None,
            supported: Some(Safe::clean(why.as_ref())),
            booted: Booted { slot: None, release, trial: Trial::No, boot_id: boot_id.into() },
            armed: None,
            installed: None,
            last_trial: LastTrial::None,
            last_error: None,
            form: None,
        }
    }
}
