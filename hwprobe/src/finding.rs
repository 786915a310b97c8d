//! What became of one fact: the value, or the reason why it is missing.
//!
//! May touch: nothing. Must never: turn a failure into a value.

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// A fact, or why there is none. No probing function returns an error for a missing fact.
pub type Finding<T> = Result<T, Missing>;

/// Why a fact is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Missing {
    /// The device or machine has no such fact (no file, empty file).
    Absent,
    /// We were not allowed to look.
    Permission,
    /// The kernel failed while reading.
    IoError,
    /// Something was read and it is not what it should be.
    Invalid,
    /// The device went away.
    Vanished,
    /// It took too long.
    Timeout,
    /// The captured tree does not hold this fact.
    NotCaptured,
    /// The driver or this way of probing does not offer the fact.
    NotSupported,
    /// A value was there and was refused: a placeholder.
    Junk,
    /// More was there than we read.
    Truncated,
}

// === impl Missing ===

impl Missing {
    /// The reason behind an errno of `open`, `read`, `readlink` or `getdents` on sysfs, proc or a device node.
    pub(crate) fn of(errno: Errno) -> Self {
        match errno {
            Errno::NOENT | Errno::NOTDIR => Self::Absent,
            Errno::ACCESS | Errno::PERM => Self::Permission,
            Errno::NODEV | Errno::NXIO => Self::Vanished,
            Errno::INVAL | Errno::OPNOTSUPP | Errno::NOTTY => Self::NotSupported,
            Errno::LOOP | Errno::NAMETOOLONG | Errno::ISDIR => Self::Invalid,
            Errno::TIMEDOUT => Self::Timeout,
            _ => Self::IoError,
        }
    }
}
