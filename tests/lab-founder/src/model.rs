//! What the founder keeps: join codes, registrations, members. Plain data; touches nothing.

use serde::{Deserialize, Serialize};
use stratum_join::protocol::encoding::B64;

use crate::approve::assignment::Assignment;
use crate::time::DAY;

/// State of a registration (documented, except `registering`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JoinState {
    /// The code is proven; the hardware is not known yet.
    Registering,
    /// It runs an older release and upgrades itself.
    NeedsUpgrade,
    /// It waits for approval.
    Pending,
    /// It waits for its turn.
    Approved,
    /// Its configuration is ready for it.
    Delivering,
    /// It reported progress.
    Installing,
    /// It is a member.
    Joined,
    /// It stopped in a step.
    Failed,
    /// An operator said no.
    Rejected,
    /// Nobody approved it in time.
    Expired,
}

// === impl JoinState ===

impl JoinState {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            JoinState::Registering => "registering",
            JoinState::NeedsUpgrade => "needs-upgrade",
            JoinState::Pending => "pending",
            JoinState::Approved => "approved",
            JoinState::Delivering => "delivering",
            JoinState::Installing => "installing",
            JoinState::Joined => "joined",
            JoinState::Failed => "failed",
            JoinState::Rejected => "rejected",
            JoinState::Expired => "expired",
        }
    }

    /// Takes one of the 16 places of waiting machines.
    pub fn waits(self) -> bool {
        matches!(self, JoinState::Registering | JoinState::NeedsUpgrade | JoinState::Pending)
    }

    /// One of these runs at a time.
    pub fn runs(self) -> bool {
        matches!(self, JoinState::Delivering | JoinState::Installing)
    }

    /// The registration still is this key's one: another proof by the same key loads it.
    pub fn lives(self) -> bool {
        !matches!(self, JoinState::Rejected | JoinState::Expired)
    }
}

/// A registration.
#[derive(Clone, Serialize, Deserialize)]
pub struct Join {
    /// `nj-` and eight characters.
    pub id: String,
    /// Where it stands.
    pub state: JoinState,
    /// SHA-256 of the client key.
    pub client_fp: B64<32>,
    /// Commitment to the joiner's nonce, fixed by the proof.
    pub commit: B64<32>,
    /// nF.
    pub founder_nonce: B64<32>,
    /// nJ, once revealed.
    pub joiner_nonce: Option<B64<32>>,
    /// Computed once, from stored values.
    pub pairing_code: Option<String>,
    /// The code of its last proof.
    pub code_id: String,
    /// When that code expires.
    pub code_expires_ms: i64,
    /// When the proof made (or last touched) the record.
    pub proven_ms: i64,
    /// When it registered.
    pub registered_ms: Option<i64>,
    /// Last call by this key.
    pub last_seen_ms: i64,
    /// Release it reported.
    pub release: String,
    /// Whether it can upgrade itself.
    pub self_upgrade: bool,
    /// Version of its agent.
    pub agent: String,
    /// Kernel boot id.
    pub boot_id: String,
    /// Host name.
    pub hostname: String,
    /// Serial, empty when none.
    pub serial: String,
    /// The address it registered from.
    pub source_address: String,
    /// The upgrade it was offered.
    pub upgrade: Option<Upgrade>,
    /// What it becomes.
    pub assignment: Option<Assignment>,
    /// Assigned at approval.
    pub node_id: Option<String>,
    /// Place in the order of approvals.
    pub approved_order: Option<i64>,
    /// Deliveries so far.
    pub attempt: u64,
    /// Membership generation it was admitted at.
    pub generation: Option<u64>,
    /// What an approved join waits for.
    pub wait_reason: Option<String>,
    /// Why it was rejected.
    pub reason: Option<String>,
    /// Where it failed.
    pub failed: Option<Failed>,
    /// Its steps, in order of first report.
    pub steps: Vec<StepRecord>,
    /// Highest progress number.
    pub last_seq: u64,
    /// Highest log line.
    pub last_line: u64,
    /// When it last sent log lines.
    pub last_log_ms: Option<i64>,
    /// What it acknowledged.
    pub acked: Option<Acked>,
    /// A running join silent for 10 minutes.
    pub stalled: bool,
    /// Its firstboot reported the last step done.
    pub firstboot_done: bool,
}

// === impl Join ===

impl Join {
    /// When an unapproved registration expires: 24 hours after its code (documented).
    pub fn expires_ms(&self) -> i64 {
        self.code_expires_ms.saturating_add(DAY)
    }
}

/// The upgrade that a joiner of an older release makes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Upgrade {
    /// The release it reported.
    pub from: String,
    /// The cluster's.
    pub to: String,
    /// The mirror's URL; empty when the founder gives it.
    pub source: String,
    /// Whether the founder gives it itself.
    pub from_founder: bool,
}

/// A failed step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// As the joiner named it.
    pub step: String,
    /// What a person is told it is.
    pub title: String,
    /// The last error line.
    pub error: String,
}

/// One step, as reported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepRecord {
    /// `join/patroni`.
    pub name: String,
    /// What a person is told it is.
    pub title: String,
    /// running, done, failed.
    pub status: String,
    /// Its error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// First report, RFC 3339.
    pub started_at: String,
    /// When it was done or failed, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<String>,
}

/// An acknowledged delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acked {
    /// The attempt.
    pub attempt: u64,
    /// Its digest.
    pub sha256: String,
}

/// State of a join code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CodeState {
    /// Usable.
    Live,
    /// Past its time.
    Expired,
    /// Taken back.
    Revoked,
    /// Too many wrong tries.
    Burned,
}

/// A join code as the founder keeps it: the selector and `w`, never the code.
#[derive(Clone)]
pub struct Code {
    /// `jc-` and eight characters.
    pub id: String,
    /// Finds it.
    pub selector: String,
    /// The stretched code. Secret.
    pub w: [u8; 32],
    /// A person's remark.
    pub note: String,
    /// When it was made.
    pub created_ms: i64,
    /// When it expires.
    pub expires_ms: i64,
    /// When it was revoked.
    pub revoked_ms: Option<i64>,
    /// When it burned.
    pub burned_ms: Option<i64>,
    /// Wrong confirmations.
    pub bad_tries: u32,
    /// Tries that nobody proved.
    pub open_tries: u32,
}

// === impl Code ===

impl Code {
    /// Its state at `now`. Burned and revoked outlast the expiry.
    pub fn state(&self, now: i64) -> CodeState {
        match self {
            Code { burned_ms: Some(_), .. } => CodeState::Burned,
            Code { revoked_ms: Some(_), .. } => CodeState::Revoked,
            code if now >= code.expires_ms => CodeState::Expired,
            _ => CodeState::Live,
        }
    }

    /// When it stopped being live, if it did.
    pub fn dead_since(&self, now: i64) -> Option<i64> {
        [self.burned_ms, self.revoked_ms, Some(self.expires_ms)]
            .into_iter()
            .flatten()
            .filter(|at| *at <= now)
            .min()
    }
}

/// State of a member (documented).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemberState {
    /// Admitted and installing.
    Joining,
    /// In.
    Active,
    /// Its join did not finish.
    Failed,
    /// On its way out.
    Removing,
    /// Out.
    Decommissioned,
}

/// A node's membership.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// `n-` and eight characters.
    pub node_id: String,
    /// Where it stands.
    pub state: MemberState,
    /// Always hybrid.
    pub role: String,
    /// Management address without a prefix.
    pub mgmt_ip: String,
    /// Traffic class to address and interface.
    pub networks: std::collections::BTreeMap<String, Binding>,
    /// Declared labels; `topology.rack` is the rack.
    pub labels: std::collections::BTreeMap<String, String>,
    /// Availability zone; empty on a single-zone install.
    pub az: String,
    /// Display name.
    pub name: String,
    /// Order of every peer list; 1 is the founder.
    pub join_order: u64,
    /// The generation it applied.
    pub applied_generation: u64,
    /// The step it failed in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_step: Option<String>,
    /// The last error line of that step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_error: Option<String>,
    /// When it was taken back out of every raft.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raft_cleanup_at: Option<String>,
    /// Fingerprint of its node key; not shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_key: Option<B64<32>>,
}

/// One traffic class of a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// A bare address.
    pub ip: String,
    /// The interface that carries it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
}

/// The lab's switches; kept across restarts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Switches {
    /// A cluster upgrade runs: no registration is taken.
    pub upgrade_running: bool,
    /// Joins run only while this is so.
    pub cluster_green: bool,
    /// A removal runs: no join starts.
    pub removal_running: bool,
    /// The release from now on, over the configured one.
    pub release: Option<String>,
    /// Its least release that may upgrade itself.
    pub min_upgrade_from: Option<String>,
    /// Its ISO.
    pub iso: Option<String>,
}

// === impl Switches ===

impl Default for Switches {
    fn default() -> Self {
        Self {
            upgrade_running: false,
            cluster_green: true,
            removal_running: false,
            release: None,
            min_upgrade_from: None,
            iso: None,
        }
    }
}
