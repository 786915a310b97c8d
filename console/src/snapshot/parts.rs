//! The parts of a snapshot, field by field as docs/console.md lists them. Plain data: no behaviour, no I/O.
//!
//! `..._mono` is CLOCK_BOOTTIME in milliseconds, `..._at` RFC 3339 in UTC. Every text is `Safe`.

use serde::{Deserialize, Serialize};

use super::enums::*;
use crate::text::{Message, Name, Safe, Text};

/// An RFC 3339 instant in UTC, as text: readers that cannot parse it show it as it is.
pub type Instant = Safe<40>;
/// A pairing code, `XXX-XXX`.
pub type Code = Safe<16>;

/// The agent's process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Agent {
    /// Version of the agent.
    pub version: Name,
    /// Process id; 0 = not known.
    pub pid: u32,
    /// When it started.
    pub started_mono: u64,
    /// Times systemd restarted it in this boot.
    pub restarts: u32,
    /// How it ended; only written by `agent --record-exit`.
    pub exit: Option<AgentExit>,
}

/// systemd's words on how the agent ended (`SERVICE_RESULT`, `EXIT_CODE`, `EXIT_STATUS`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentExit {
    /// E.g. `signal`, `exit-code`, `watchdog`.
    pub result: Name,
    /// `exited`, `killed` or `dumped`.
    pub code: Name,
    /// An exit code, or a signal name such as `SEGV`.
    pub status: Name,
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Clock {
    /// Synchronised by a time server?
    pub synced: Synced,
}

/// Which machine this is; `None` = unknown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    /// Host name.
    pub hostname: Option<Name>,
    /// Serial number of the machine.
    pub serial: Option<Name>,
    /// Manufacturer.
    pub vendor: Option<Name>,
    /// Product name.
    pub model: Option<Name>,
    /// Release of the running OS.
    pub release: Option<Name>,
}

/// The network as the agent sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Network {
    /// The NIC that routes to the endpoint.
    pub primary: Option<Nic>,
    /// The other NICs, at most 16.
    pub nics: Vec<Nic>,
    /// At most 10, in the fixed order link address gateway name tcp mtu tls proof release clock.
    pub checks: Vec<Check>,
    /// Since when the endpoint cannot be used; not a state but an overlay on every state.
    pub failing_since_mono: Option<u64>,
    /// When it is tried again.
    pub next_try_mono: Option<u64>,
}

/// One NIC.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Nic {
    /// Name.
    pub nic: Name,
    /// MAC address.
    pub mac: Name,
    /// Address with prefix length.
    pub address: Option<Name>,
    /// Where the address came from.
    pub source: AddressSource,
    /// Carrier.
    pub link: Link,
    /// Speed in Mbit/s.
    pub speed_mbps: Option<u32>,
}

/// One row of the network diagnosis.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    /// Fixed name.
    pub name: Name,
    /// What a person reads.
    pub title: Name,
    /// Result.
    pub status: CheckStatus,
    /// One line.
    pub detail: Option<Text>,
}

/// The cluster, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cluster {
    /// Address and port; empty while there is no request.
    pub endpoint: Text,
    /// Does it answer?
    pub contact: Contact,
    /// Last answer.
    pub last_contact_mono: Option<u64>,
    /// Is it the cluster?
    pub identity: Identity,
    /// Its release, told over the proven channel.
    pub release: Option<Name>,
    /// Hex of the first 16 bytes of the pin.
    pub pin: Option<Name>,
    /// Its id, told over the proven channel.
    pub cluster_id: Option<Name>,
}

/// The founder's record of this machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Registration {
    /// `nj-...`.
    pub join_id: Option<Name>,
    /// Registration attempts made so far.
    pub attempt: u32,
    /// When it was registered.
    pub registered_mono: Option<u64>,
    /// When it expires if nobody approves.
    pub expires_at: Option<Instant>,
    /// When it was approved.
    pub approved_mono: Option<u64>,
    /// The founder's words on what it waits for.
    pub wait_reason: Option<Text>,
    /// The administrator's words.
    pub reject_reason: Option<Text>,
    /// The node it becomes; from the delivery.
    pub node_id: Option<Name>,
    /// The pairing code that was valid before `expired` or `rejected`.
    pub last_pairing_code: Option<Code>,
}

/// One step. The console has no table of step names: `title` is always set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Name, e.g. `join/patroni`.
    pub name: Name,
    /// What a person reads.
    pub title: Text,
    /// From 1.
    pub index: u32,
    /// How many there are.
    pub total: u32,
    /// Where it stands.
    pub status: StepStatus,
    /// Time it took so far.
    pub elapsed_ms: Option<u64>,
    /// One more line.
    pub detail: Option<Text>,
}

/// A bar. `total` 0 = no bar; `done > total` is drawn as full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// What is counted.
    pub unit: Unit,
    /// So far.
    pub done: u64,
    /// Of.
    pub total: u64,
    /// Units per second.
    pub rate_per_sec: Option<u64>,
    /// Seconds left.
    pub eta_sec: Option<u64>,
}

/// The self-upgrade.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Upgrade {
    /// Running release.
    pub from: Name,
    /// Wanted release.
    pub to: Name,
    /// Where it comes from.
    pub source: ReleaseSource,
    /// Attempts of this manifest.
    pub attempt: u32,
    /// Name of the mirror.
    pub host: Option<Name>,
    /// Failed boots of this manifest.
    pub boot_failures: u32,
    /// Bytes found by resume.
    pub kept: u64,
    /// Streams open now.
    pub streams: u32,
    /// What it waits for.
    pub waiting: Option<UpgradeWait>,
}

/// A classified failure with its advice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fault {
    /// For software only, never shown.
    pub code: Name,
    /// Class.
    pub kind: FaultKind,
    /// False when the answer came before the proof.
    pub verified: bool,
    /// Name of the step it happened in.
    pub step: Option<Name>,
    /// The step as a person reads it.
    pub step_title: Option<Text>,
    /// What happened: foreign text, shown behind `> ` only.
    pub message: Message,
    /// Why, in our words.
    pub why: Option<Text>,
    /// What a person can do, in our words.
    #[serde(rename = "do")]
    pub what_to_do: Vec<Text>,
    /// When it is tried again; `None` = not by itself.
    pub retry_at_mono: Option<u64>,
    /// Facts some faults carry.
    pub details: FaultDetails,
}

/// Facts some faults carry.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FaultDetails {
    /// The cluster's release.
    pub cluster_release: Option<Name>,
    /// Its ISO.
    pub iso: Option<Text>,
}

/// Last line of the running step: foreign text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastMessage {
    /// The line.
    pub text: Text,
    /// When it came.
    pub at_mono: u64,
}

/// Which keys work now. All false in the last snapshot of a joined agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Actions {
    /// End the current wait.
    pub retry: bool,
    /// Run the network checks again.
    pub check: bool,
    /// Blink the chassis LED.
    pub identify: bool,
}

/// Ready-made texts about the hardware.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hardware {
    /// Firmware.
    pub chassis: Text,
    /// Processors.
    pub cpu: Text,
    /// Memory.
    pub memory: Text,
    /// One line on all of it.
    pub summary: Text,
    /// At most 64.
    pub disks: Vec<Disk>,
}

/// One disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Disk {
    /// Kernel name.
    pub name: Name,
    /// Size with unit.
    pub size: Name,
    /// `system`, `blank` or `holds data: <what>`.
    #[serde(rename = "use")]
    pub usage: Text,
    /// Model.
    pub model: Text,
}

/// One line of the agent's log, already redacted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogLine {
    /// When.
    pub at: Instant,
    /// Severity.
    pub level: Level,
    /// The line.
    pub text: Text,
}
