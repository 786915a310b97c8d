//! The snapshot: everything that may be shown about a join, written by the agent, read by every console.
//!
//! Holds the schema (docs/console.md) and the reader's rules. Reads one file when asked; writes nothing.
//! Must never carry a secret: no join code, no node.yaml, no bundle, no key material.

mod enums;
mod parts;
mod read;

pub use enums::*;
pub use parts::*;
pub use read::{Liveness, MAX_BYTES, ReadError, pid_alive};

use serde::{Deserialize, Serialize};

use crate::text::{Name, Safe, Text};

/// The schema this crate reads and writes.
pub const SCHEMA: u32 = 1;
/// The heartbeat of an agent that has something to show, milliseconds.
pub const DEFAULT_HEARTBEAT_MS: u64 = 5000;

/// What may be shown, at one instant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// Version of the schema, 1.
    pub schema: u32,
    /// Content changes since the agent started; heartbeats do not count.
    pub seq: u64,
    /// Wall time of this write.
    pub written_at: Instant,
    /// Boot time of this write.
    pub written_mono: u64,
    /// The longest gap the writer leaves between two writes, milliseconds. Readers judge its age by it.
    #[serde(default = "default_heartbeat")]
    pub heartbeat_ms: u64,
    /// The state in one line.
    pub headline: Safe<80>,
    /// What a person does next, at most 3; empty only in states that run by themselves.
    pub next: Vec<Safe<76>>,
    /// The agent's process.
    pub agent: Agent,
    /// Why the agent is not at its best, e.g. `restarted 6 times in 10 minutes`.
    pub degraded: Option<Text>,
    /// The machine's clock.
    pub clock: Clock,
    /// Which machine this is.
    pub machine: Machine,
    /// Its network.
    pub network: Network,
    /// The cluster.
    pub cluster: Cluster,
    /// Where the join stands.
    pub state: State,
    /// The founder's word for it.
    pub state_raw: Option<Text>,
    /// Since when.
    pub state_since_mono: u64,
    /// `XXX-XXX`, only when both sides agreed on it; never after expired or rejected.
    pub pairing_code: Option<Code>,
    /// The join code with all but its selector starred, e.g. `4F**-****-***`.
    pub code_hint: Option<Name>,
    /// Hex of the first 16 bytes of the client key's fingerprint.
    pub node_key: Option<Name>,
    /// The founder's record.
    pub registration: Registration,
    /// What `steps` are about.
    pub phase: Phase,
    /// At most 64.
    pub steps: Vec<Step>,
    /// A bar.
    pub progress: Option<Progress>,
    /// The self-upgrade.
    pub upgrade: Option<Upgrade>,
    /// What is wrong.
    pub fault: Option<Fault>,
    /// Last line of the running step.
    pub last_message: Option<LastMessage>,
    /// True while a cut would cost something.
    pub do_not_power_off: bool,
    /// Which keys work now.
    pub actions: Actions,
    /// The hardware in words.
    pub hardware: Hardware,
    /// At most 100 lines, oldest first.
    pub log: Vec<LogLine>,
}

fn default_heartbeat() -> u64 {
    DEFAULT_HEARTBEAT_MS
}

// === impl Snapshot ===

impl Default for Snapshot {
    /// A machine whose agent has just started and knows nothing yet.
    fn default() -> Self {
        Self {
            schema: SCHEMA,
            seq: 0,
            written_at: Instant::default(),
            written_mono: 0,
            heartbeat_ms: DEFAULT_HEARTBEAT_MS,
            headline: "starting".into(),
            next: Vec::new(),
            agent: Agent::default(),
            degraded: None,
            clock: Clock::default(),
            machine: Machine::default(),
            network: Network::default(),
            cluster: Cluster::default(),
            state: State::Starting,
            state_raw: None,
            state_since_mono: 0,
            pairing_code: None,
            code_hint: None,
            node_key: None,
            registration: Registration::default(),
            phase: Phase::Register,
            steps: Vec::new(),
            progress: None,
            upgrade: None,
            fault: None,
            last_message: None,
            do_not_power_off: false,
            actions: Actions::default(),
            hardware: Hardware::default(),
            log: Vec::new(),
        }
    }
}

impl Snapshot {
    /// The file's bytes: one JSON object and a line feed, never over [`MAX_BYTES`].
    ///
    /// Lists are cut to their bounds (the oldest log lines go first); if that is not enough, log lines, disks, other
    /// NICs and steps are shed until it fits, so that a writer can never make a snapshot no reader takes.
    pub fn encode(&self) -> Vec<u8> {
        let mut shown = self.clone();
        shown.next.truncate(3);
        shown.network.nics.truncate(16);
        shown.network.checks.truncate(10);
        shown.steps.truncate(64);
        shown.hardware.disks.truncate(64);
        shown.log.drain(..shown.log.len().saturating_sub(100));
        if let Some(fault) = &mut shown.fault {
            fault.what_to_do.truncate(8);
        }
        loop {
            let mut bytes = serde_json::to_vec(&shown).unwrap_or_default();
            bytes.push(b'\n');
            if bytes.len() <= MAX_BYTES {
                return bytes;
            }
            let list =
                [shown.log.len(), shown.hardware.disks.len(), shown.network.nics.len(), shown.steps.len()];
            match list.iter().position(|len| *len > 0) {
                Some(0) => drop(shown.log.drain(..shown.log.len().div_ceil(4))),
                Some(1) => shown.hardware.disks.truncate(shown.hardware.disks.len() / 2),
                Some(2) => shown.network.nics.truncate(shown.network.nics.len() / 2),
                Some(_) => shown.steps.truncate(shown.steps.len() / 2),
                // What is left has bounds far below 64 KiB.
                None => return bytes,
            }
        }
    }
}
