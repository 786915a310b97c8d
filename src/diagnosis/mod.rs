//! The network diagnosis: on the way from this machine's cable to the founder's answer, what is the first thing that does not work?
//!
//! `look` asks the kernel, the resolver and the founder, one stage after the other, and stops at the first that is red; [`decide`] says what the
//! facts mean and touches nothing. It needs no privilege; root is also told whether somebody else uses this machine's address. It must never try the join code, for each try counts, never send anything but `GET /v1/join`
//! to a founder, and never take longer than [`LONGEST`].

pub mod decide;
pub mod facts;
mod look;
pub mod rows;

use std::time::Duration;

use console::snapshot::Synced;

use self::facts::{ClockFact, Past};
use crate::paths::Paths;
use crate::protocol::url::Endpoint;

pub use look::run;

/// No run takes longer.
pub const LONGEST: Duration = Duration::from_secs(10);

/// What is to be looked at.
#[derive(Debug, Clone)]
pub struct Subject {
    /// Where the founder should be.
    pub endpoint: Endpoint,
    /// What earlier tries have shown.
    pub past: Past,
    /// Whether a time server keeps the clock.
    pub synced: Synced,
}

/// Whether systemd-timesyncd keeps the clock: the directory is its own, the file in it says yes.
pub fn synced(paths: &Paths) -> Synced {
    let dir = paths.timesync_dir();
    match (dir.join("synchronized").exists(), dir.exists()) {
        (true, _) => Synced::Yes,
        (false, true) => Synced::No,
        (false, false) => Synced::Unknown,
    }
}

impl Subject {
    fn clock(&self) -> ClockFact {
        ClockFact { wall_ms: crate::clock::wall_ms(), synced: self.synced }
    }
}
