//! What a join knows: `Durable` is on disk before any effect that depends on it, `Volatile` is derived again after a restart.
//!
//! Touches nothing. The only secret here is the pairing nonce.

use std::collections::VecDeque;

use console::text::Safe;
use serde::{Deserialize, Serialize};

use super::checks::Checks;
use super::event::{IdentityView, Nonce, Now, ProbeView, RequestView, StepReport};
use super::fault::{Code, Fault};
use super::hardware::Looks;
use super::upgrade::{Upgrade, UpgradePhase, Upgrading};
use crate::protocol::encoding::{B64, Pin};
use crate::protocol::wire::{self, JoinId};

/// Version of [`Durable`] on disk.
pub const VERSION: u32 = 1;
/// Largest inventory sent, in bytes, and the smaller one after a refusal.
pub const FITS: [usize; 2] = [131_072, 65_536];
/// Most steps kept of one firstboot run.
pub const MAX_STEPS: usize = 64;
/// Most log batches (of at most 200 lines) kept unsent; the oldest go first.
pub const MAX_LOG_BATCHES: usize = 50;
/// How many sequence numbers one journal write reserves.
pub const SEQ_BLOCK: u64 = 1_000;

/// The whole state of a join.
#[derive(Debug, Clone)]
pub struct State {
    /// On disk.
    pub d: Durable,
    /// In memory.
    pub v: Volatile,
}

/// The part on disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Durable {
    /// [`VERSION`].
    pub version: u32,
    /// Which machine and installation this state belongs to.
    #[serde(default)]
    pub binding: Option<Binding>,
    /// The client key on disk must not be used: a new one is made first.
    #[serde(default)]
    pub discard_identity: bool,
    /// The request this state belongs to ([`RequestView::id`]).
    #[serde(default)]
    pub request: Option<B64<32>>,
    /// Whom we trust, since a proof.
    #[serde(default)]
    pub trust: Option<Trust>,
    /// Our side of the pairing code.
    #[serde(default)]
    pub pairing: Option<Pairing>,
    /// The founder's record of us.
    #[serde(default)]
    pub registration: Option<Record>,
    /// The delivery being installed.
    #[serde(default)]
    pub handoff: Option<Handoff>,
    /// Sequence numbers up to here may have been used.
    #[serde(default)]
    pub seq_reserved: u64,
    /// Why we wait for a person.
    #[serde(default)]
    pub stop: Option<Fault>,
    /// The CA that did not prove the code: no second try against it.
    #[serde(default)]
    pub unproven: Option<Pin>,
    /// Member of the cluster: nothing registers any more.
    #[serde(default)]
    pub joined: Option<Joined>,
    /// The self-upgrade, from the offer until the cluster knows the new release.
    #[serde(default)]
    pub upgrade: Option<Upgrade>,
    /// The last ten starts of the agent, for the crash-loop damper.
    #[serde(default)]
    pub starts: Vec<Start>,
    /// What a newer agent wrote: the older OS that runs after a fallback keeps it.
    #[serde(flatten)]
    pub other: serde_json::Map<String, serde_json::Value>,
}

/// What ties the state to a machine: a copied disk makes a new identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Binding {
    /// DMI product UUID; `None` when the machine has none or a placeholder.
    #[serde(default)]
    pub product_uuid: Option<Safe<64>>,
    /// `installId` of the install record.
    #[serde(default)]
    pub install_id: Option<Safe<64>>,
}

/// The pinned founder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Trust {
    /// The join CA's key that proved the code.
    pub pin: Pin,
    /// Announced over the pinned channel, at most 2.
    #[serde(default)]
    pub next_pins: Vec<Pin>,
}

/// Our nonce, and to what it was revealed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pairing {
    /// nJ.
    pub nonce: Nonce,
    /// Stored for this CA.
    pub ca: Pin,
    /// Stored for this client key.
    pub client_fp: B64<32>,
    /// The answer it was revealed for: never revealed for another one.
    #[serde(default)]
    pub revealed: Option<Revealed>,
}

/// The founder's half of the pairing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Revealed {
    /// The registration's id.
    pub join_id: JoinId,
    /// nF.
    pub founder_nonce: B64<32>,
}

/// The founder's record of us.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Its id.
    pub join_id: JoinId,
    /// The client key it is bound to.
    pub client_fp: B64<32>,
    /// Computed by ourselves, `XXX-XXX`; the founder's value was the same.
    pub pairing_code: Safe<16>,
    /// The state last seen, in the founder's word.
    pub state: Safe<32>,
    /// When we registered, milliseconds since 1970; display only.
    pub registered_wall_ms: i64,
}

/// How far a delivery has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Its digest is noted; nothing is written.
    Received,
    /// node.yaml and the bundle are in place.
    Written,
    /// The founder knows that we have it.
    Acked,
    /// firstboot is being started: from here on this attempt is never started anew.
    Starting,
    /// firstboot runs.
    Running,
    /// firstboot ended well.
    Done,
    /// It ended otherwise; see [`Handoff::failure`].
    Failed,
}

/// One delivery attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Handoff {
    /// The registration it belongs to.
    pub join_id: JoinId,
    /// The founder's number; `None` from a founder without attempts.
    #[serde(default)]
    pub attempt: Option<u64>,
    /// The delivery's digest.
    pub sha256: String,
    /// How far it has come.
    pub stage: Stage,
    /// The boot in which it came: the bundle does not survive a reboot.
    pub boot_id: String,
    /// Our node id and the cluster's id, for the screen.
    #[serde(default)]
    pub node_id: Option<Safe<64>>,
    /// The cluster's id.
    #[serde(default)]
    pub cluster_id: Option<Safe<64>>,
    /// Steps so far, in order of appearance.
    #[serde(default)]
    pub steps: Vec<StepLine>,
    /// The step that failed, when `stage` is `Failed`.
    #[serde(default)]
    pub failure: Option<StepReport>,
    /// The end (done or failed) has reached the founder.
    #[serde(default)]
    pub end_reported: bool,
    /// Number of the next log line.
    pub next_line: u64,
    /// Where to go on reading firstboot's log.
    #[serde(default)]
    pub log_cursor: Option<String>,
}

/// Which delivery something belongs to. Two attempts may deliver the same bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hand {
    /// The founder's number.
    pub attempt: Option<u64>,
    /// The digest.
    pub sha256: String,
}

/// One step with its times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepLine {
    /// The latest report of it.
    pub report: StepReport,
    /// When it began, boot clock in milliseconds.
    pub began_ms: u64,
    /// When it ended.
    #[serde(default)]
    pub ended_ms: Option<u64>,
}

/// The end of a join.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Joined {
    /// When we heard of it, milliseconds since 1970; display only.
    pub wall_ms: i64,
}

/// One start of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Start {
    /// In this boot.
    pub boot_id: String,
    /// At this time since boot, milliseconds.
    pub boot_ms: u64,
}

/// What does not change while the agent runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Env {
    /// Kernel boot id, 36 characters.
    pub boot_id: String,
    /// Seconds the founder may hold a poll.
    pub poll_wait: u64,
    /// Refuse a request without a pin.
    pub require_pin: bool,
    /// The joined marker is on disk.
    pub marked_joined: bool,
    /// The settings allow a self-upgrade.
    pub may_upgrade: bool,
}

/// Something made once, on request.
#[derive(Debug, Clone, PartialEq)]
pub enum Slot<T> {
    /// Not asked for.
    Empty,
    /// Asked for.
    Busy,
    /// There.
    Ready(T),
    /// Failed; asked for again at that boot time.
    Later(u64),
}

/// What the main lane does. One call at a time: so at most one poll is outstanding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "named after the effects")]
pub enum Call {
    Observe,
    Prove,
    Confirm,
    Register,
    Reregister,
    Poll,
    Ack,
}

/// A lane carries one thing at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane<T> {
    /// Free.
    Idle,
    /// Under way since that boot time.
    Busy(T, u64),
    /// Its timer is armed for that boot time.
    Delayed(u64),
}

/// How far the proof has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    /// Nothing yet.
    None,
    /// This CA answers; not trusted.
    Observed(Pin),
    /// It proved the code; pin and nonce are durable.
    Proven(B64<16>),
    /// The founder accepted ours; join id and nonces are durable.
    Confirmed(B64<16>),
}

/// A failure that goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// What went wrong last.
    pub fault: Fault,
    /// What was being done.
    pub doing: &'static str,
    /// When it began, boot clock.
    pub since_ms: u64,
    /// How many in a row.
    pub attempts: u32,
    /// The next try, boot clock.
    pub retry_at_ms: Option<u64>,
}

/// A privileged verb under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "named after the effects")]
pub enum Verb {
    WriteDelivery,
    StartFirstboot,
    MarkJoined,
}

/// What the post lane sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "named after the effects")]
pub enum Post {
    Progress,
    Log,
}

/// A batch of log lines with the cursor behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogBatch {
    /// At most 200.
    pub lines: Vec<Safe<1024>>,
    /// Behind the last one.
    pub cursor: String,
    /// Lines dropped just before this batch.
    pub lost: u64,
}

/// A progress report that has not reached the founder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queued {
    /// What to say.
    pub report: StepReport,
    /// It tells the end of the attempt.
    pub is_end: bool,
}

/// The part in memory.
#[derive(Debug, Clone)]
pub struct Volatile {
    /// Constants of this run.
    pub env: Env,
    /// The saved request; `None` until somebody asked to join.
    pub request: Option<RequestView>,
    /// Client key and certificate.
    pub identity: Slot<IdentityView>,
    /// The hardware.
    pub probe: Slot<ProbeView>,
    /// Looking at it again.
    pub looks: Looks,
    /// The way to the founder, as it was looked at.
    pub checks: Checks,
    /// Failures in a row while making identity or probe.
    pub prepare_failures: u32,
    /// The last of them.
    pub prepare_fault: Option<Fault>,
    /// The self-upgrade.
    pub upgrading: Upgrading,
    /// Calls to the founder.
    pub main: Lane<Call>,
    /// How far the proof has come.
    pub proof: Proof,
    /// The founder has our present inventory.
    pub registered_now: bool,
    /// Index into [`FITS`].
    pub fit: usize,
    /// Failures in a row, for the backoff.
    pub failures: u32,
    /// Refusals in a row that end in a wait for a person.
    pub refusals: u32,
    /// Set while the founder cannot be used.
    pub trouble: Option<Trouble>,
    /// Proofs that expired in a row.
    pub expired_proofs: u32,
    /// The founder's last answer.
    pub view: Option<Box<wire::Registration>>,
    /// What the cluster runs, told over the proven channel.
    pub cluster: Option<ClusterView>,
    /// Last good answer, boot clock.
    pub last_contact_ms: Option<u64>,
    /// Since when the present state lasts, boot clock.
    pub state_since_ms: u64,
    /// When the present approval was heard of, boot clock.
    pub approved_ms: Option<u64>,
    /// When the registration was confirmed in this run, boot clock.
    pub registered_ms: Option<u64>,
    /// Polls answered at once in a row.
    pub fast_polls: u32,
    /// Digest of the delivery in the driver's hand.
    pub in_hand: Option<String>,
    /// The last poll asked to leave the delivery out.
    pub skipped: bool,
    /// Removing the code from the saved request.
    pub erasing: Lane<()>,
    /// Privileged verbs.
    pub privileged: Lane<Verb>,
    /// Failures in a row of them, and the last.
    pub privileged_trouble: Option<Trouble>,
    /// The delivery that is being placed.
    pub writing: Option<Hand>,
    /// The delivery whose firstboot is followed in this run.
    pub following: Option<Hand>,
    /// Posts to the founder.
    pub post: Lane<Post>,
    /// Failures in a row of them.
    pub post_failures: u32,
    /// The post under way belongs to an attempt that is over.
    pub stale_post: bool,
    /// Next sequence number to use.
    pub next_seq: u64,
    /// Reports not yet sent.
    pub reports: VecDeque<Queued>,
    /// Log batches not yet sent.
    pub log: VecDeque<LogBatch>,
    /// No log call before this boot time: at most one a second.
    pub next_log_ms: u64,
    /// The heartbeat's timer is armed.
    pub heartbeat: bool,
    /// Last line of firstboot, for the screen, and when it came.
    pub last_line: Option<(Safe<200>, u64)>,
    /// When a report last reached the founder, boot clock.
    pub last_report_ms: u64,
    /// The joined marker is written, or the end was reached.
    pub finished: bool,
    /// The network part starts late: restarted too often.
    pub degraded: Option<Safe<200>>,
}

/// What the cluster said of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterView {
    /// The release it runs.
    pub release: Safe<64>,
    /// Its ISO.
    pub iso: Option<Safe<255>>,
    /// Lowest release that may upgrade itself.
    pub min_upgrade_from: Safe<64>,
    /// When the code expires.
    pub code_expires_at: Option<Safe<64>>,
}

/// What a person is told the join is doing. Derived, never stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the documented states and ours; docs/join.md")]
pub enum Phase {
    NoRequest,
    Starting,
    Registering,
    NeedsUpgrade,
    Pending,
    Approved,
    Delivering,
    Installing,
    Joined,
    Failed,
    Rejected,
    Expired,
    Refused,
    IdentityFailed,
    Unknown,
}

// === impl Durable ===

impl Default for Durable {
    fn default() -> Self {
        Self {
            version: VERSION,
            binding: None,
            discard_identity: false,
            request: None,
            trust: None,
            pairing: None,
            registration: None,
            handoff: None,
            seq_reserved: 0,
            stop: None,
            unproven: None,
            joined: None,
            upgrade: None,
            starts: Vec::new(),
            other: serde_json::Map::new(),
        }
    }
}

impl Durable {
    /// The pins a pinned call accepts.
    pub fn pins(&self) -> Vec<Pin> {
        self.trust.iter().flat_map(|t| std::iter::once(t.pin).chain(t.next_pins.iter().copied())).collect()
    }

    /// Name of the crash point of the journal write that leads from `self` to `next`: what the write is for.
    pub fn point(&self, next: &Durable) -> &'static str {
        let stage = |d: &Durable| d.handoff.as_ref().map(|h| (h.attempt, h.stage));
        let phase = |d: &Durable| d.upgrade.as_ref().map(|up| up.phase);
        if next.joined != self.joined {
            "done-store"
        } else if stage(next) != stage(self) {
            match next.handoff.as_ref().map(|h| h.stage) {
                Some(Stage::Received) => "delivery-store-digest",
                Some(Stage::Written) => "written-store",
                Some(Stage::Acked) => "acked-store",
                Some(Stage::Starting) => "starting-store",
                Some(Stage::Running) => "running-store",
                Some(Stage::Done) => "firstboot-done-store",
                Some(Stage::Failed) => "firstboot-failed-store",
                None => "handoff-clear",
            }
        } else if phase(next) != phase(self) {
            match phase(next) {
                Some(UpgradePhase::Preparing) if phase(self).is_none() => "offer-store",
                Some(UpgradePhase::Preparing) => "disarmed-store",
                Some(UpgradePhase::Armed) => "arming-store",
                Some(UpgradePhase::Blessed) => "blessed-store",
                None => "upgrade-clear",
            }
        } else if next.registration.as_ref().map(|r| &r.join_id)
            != self.registration.as_ref().map(|r| &r.join_id)
        {
            if next.registration.is_some() { "registered-store" } else { "record-lost" }
        } else if next.pairing.as_ref().map(|p| &p.nonce) != self.pairing.as_ref().map(|p| &p.nonce) {
            "nonce-store"
        } else if next.pairing != self.pairing {
            "joinid-store"
        } else if next.trust != self.trust {
            "pin-store"
        } else if next.binding != self.binding || next.discard_identity != self.discard_identity {
            "binding-store"
        } else if next.request != self.request {
            "request-seen-store"
        } else if next.registration != self.registration {
            "state-store"
        } else if next.handoff != self.handoff {
            "progress-store"
        } else if next.upgrade != self.upgrade {
            "upgrade-store"
        } else if next.starts != self.starts {
            "start-store"
        } else {
            "stop-store"
        }
    }
}

// === impl Handoff ===

impl Handoff {
    /// Which delivery this is.
    pub fn hand(&self) -> Hand {
        Hand { attempt: self.attempt, sha256: self.sha256.clone() }
    }
}

// === impl State ===

impl State {
    /// The founder's word of the state last seen.
    pub fn word(&self) -> Option<&str> {
        self.d.registration.as_ref().map(|r| r.state.as_str())
    }

    /// What a person is told.
    pub fn phase(&self) -> Phase {
        if self.d.joined.is_some() {
            return Phase::Joined;
        }
        if let Some(stop) = &self.d.stop {
            return match stop.code {
                Code::JoinRejected => Phase::Rejected,
                Code::JoinExpired => Phase::Expired,
                Code::CodeNotProven | Code::PairingMismatch | Code::PinMismatch | Code::FounderKeyChanged => {
                    Phase::IdentityFailed
                }
                _ => Phase::Refused,
            };
        }
        if let Some(trouble) = &self.v.trouble
            && matches!(trouble.fault.code, Code::FounderKeyChanged | Code::PinMismatch)
        {
            return Phase::IdentityFailed;
        }
        if self.v.request.is_none() && !self.installs() {
            return Phase::NoRequest;
        }
        match self.word() {
            None if matches!(self.v.identity, Slot::Ready(_)) => Phase::Registering,
            None => Phase::Starting,
            Some("registering") => Phase::Registering,
            Some("needs-upgrade") => Phase::NeedsUpgrade,
            Some("pending") => Phase::Pending,
            Some("approved") => Phase::Approved,
            Some("delivering") => match self.d.handoff.as_ref().map(|h| h.stage) {
                Some(Stage::Running | Stage::Starting | Stage::Done) => Phase::Installing,
                Some(Stage::Failed) => Phase::Failed,
                _ => Phase::Delivering,
            },
            Some("installing") => match self.d.handoff.as_ref().map(|h| h.stage) {
                Some(Stage::Failed) => Phase::Failed,
                _ => Phase::Installing,
            },
            Some("joined") => Phase::Joined,
            Some("failed") => Phase::Failed,
            Some("rejected") => Phase::Rejected,
            Some("expired") => Phase::Expired,
            Some(_) => Phase::Unknown,
        }
    }

    /// Whether firstboot of the present attempt was started and has not ended.
    pub fn firstboot_open(&self) -> bool {
        self.d.handoff.as_ref().is_some_and(|h| matches!(h.stage, Stage::Starting | Stage::Running))
    }

    /// Whether firstboot of the present attempt was started and the cluster still waits for it.
    pub fn installs(&self) -> bool {
        let started =
            self.d.handoff.as_ref().is_some_and(|h| (Stage::Starting..=Stage::Done).contains(&h.stage));
        started && matches!(self.word(), Some("delivering" | "installing"))
    }

    /// The identity, when it is there.
    pub fn identity(&self) -> Option<IdentityView> {
        match self.v.identity {
            Slot::Ready(view) => Some(view),
            _ => None,
        }
    }

    /// Nothing will happen by itself any more: joined and written down.
    pub fn is_terminal(&self) -> bool {
        self.v.finished
    }

    /// Whether [`super::event::Event::Retry`] would end a wait now. Of a failed install it would not: that retry is the founder's.
    pub fn can_retry(&self) -> bool {
        if self.d.joined.is_some() || self.v.request.is_none() {
            return false;
        }
        let stopped = self.d.stop.as_ref().is_some_and(|stop| super::step::may_retry(stop.code));
        let main =
            matches!(self.v.main, Lane::Delayed(_)) && self.v.trouble.is_some() && self.v.degraded.is_none();
        let helper = matches!(self.v.privileged, Lane::Delayed(_));
        let prepare = matches!(self.v.identity, Slot::Later(_))
            || matches!(self.v.probe, Slot::Later(_))
            || (matches!(self.v.upgrading.os, Slot::Later(_)) && self.needs_os());
        stopped || main || helper || prepare || self.upgrade_waits()
    }

    /// Whether the way to a founder can be looked at: there is one to look for, and a member does not look any more.
    pub fn can_check(&self) -> bool {
        self.d.joined.is_none() && self.v.request.is_some()
    }

    /// Waits for a person: no request, or a refusal that only a person can clear.
    pub fn is_parked(&self) -> bool {
        self.v.request.is_none() || self.d.stop.as_ref().is_some_and(|stop| !stop.looks_out())
    }
}

// === impl Volatile ===

impl Volatile {
    /// Fresh at the start of the agent.
    pub fn new(env: Env, now: Now) -> Self {
        Self {
            env,
            request: None,
            identity: Slot::Empty,
            probe: Slot::Empty,
            looks: Looks::default(),
            checks: Checks::default(),
            prepare_failures: 0,
            prepare_fault: None,
            upgrading: Upgrading::default(),
            main: Lane::Idle,
            proof: Proof::None,
            registered_now: false,
            fit: 0,
            failures: 0,
            refusals: 0,
            trouble: None,
            expired_proofs: 0,
            view: None,
            cluster: None,
            last_contact_ms: None,
            state_since_ms: now.boot_ms,
            approved_ms: None,
            registered_ms: None,
            fast_polls: 0,
            in_hand: None,
            skipped: false,
            erasing: Lane::Idle,
            privileged: Lane::Idle,
            privileged_trouble: None,
            writing: None,
            following: None,
            post: Lane::Idle,
            post_failures: 0,
            stale_post: false,
            next_seq: 0,
            reports: VecDeque::new(),
            log: VecDeque::new(),
            next_log_ms: 0,
            heartbeat: false,
            last_line: None,
            last_report_ms: now.boot_ms,
            finished: false,
            degraded: None,
        }
    }
}
