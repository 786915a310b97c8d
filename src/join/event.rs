//! What the driver tells the core. Touches nothing; carries no secret but the pairing nonce.

use console::text::Safe;
use serde::{Deserialize, Serialize};

use super::fault::Fault;
use super::upgrade::Done;
use crate::diagnosis::rows::Diagnosis;
use crate::protocol::encoding::{B64, Pin};
use crate::protocol::wire;

/// The instant of a step, supplied by the driver. Timers use `boot_ms` only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// CLOCK_BOOTTIME in milliseconds: monotonic, counts suspend.
    pub boot_ms: u64,
    /// Wall clock in milliseconds since 1970: display only.
    pub wall_ms: i64,
    /// Fresh random bits, for jitter.
    pub random: u64,
}

/// The pairing nonce nJ. Secret until revealed: `Debug` does not print it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nonce(pub B64<32>);

impl std::fmt::Debug for Nonce {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[secret]")
    }
}

/// What of a join request the core needs. The code itself stays with the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestView {
    /// `host:port` as shown and dialled.
    pub endpoint: Safe<262>,
    /// Whether a join code is saved.
    pub has_code: bool,
    /// The selector and stars, e.g. `4F**-****-***`.
    pub code_hint: Option<Safe<16>>,
    /// Whether the check character fits; a hint only.
    pub code_check_fits: bool,
    /// Pins that came with the URL.
    pub pins: Vec<Pin>,
    /// SHA-256 over endpoint, code and pins, salted: tells a changed request from the same one, also after a restart.
    pub id: [u8; 32],
}

/// The identity the driver holds after loading or making it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdentityView {
    /// SHA-256 of the certificate's SubjectPublicKeyInfo.
    pub client_fp: [u8; 32],
    /// Whether it was made just now.
    pub made: bool,
}

/// What the core needs of a finished probe. The inventory itself stays with the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeView {
    /// Digest of the inventory.
    pub digest: [u8; 32],
    /// The same without links and routes, which a bad cable changes all the time.
    pub steady: [u8; 32],
    /// And without addresses: what is in the machine.
    pub hardware: [u8; 32],
    /// DMI product UUID when it is not a placeholder.
    pub product_uuid: Option<Safe<64>>,
    /// `installId` of the install record.
    pub install_id: Option<Safe<64>>,
    /// The running OS's release; `None` when os-release has none.
    pub release: Option<Safe<64>>,
}

/// A good `GET /v1/join` on the observing client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// Key of the join CA that answered. Only observed, not yet trusted.
    pub ca: Pin,
}

/// The founder proved the code: its confirmation was compared and fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FounderProven {
    /// Key of the join CA that proved the code.
    pub ca: Pin,
    /// The proof to confirm.
    pub proof_id: B64<16>,
    /// Commitment of this key's live registration.
    pub resume_commit: Option<B64<32>>,
    /// 32 fresh random bytes, to be used only where the rules ask for a fresh nonce.
    pub fresh_nonce: Nonce,
}

/// What the core needs of a delivery. The bytes stay with the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryView {
    /// Delivery digest, 64 hex digits.
    pub sha256: String,
    /// The first check that failed: the delivery must not be handed over.
    pub problem: Option<Fault>,
    /// `clusterId` of the bundle.
    pub cluster_id: Option<Safe<64>>,
    /// Our node id, when the bundle tells it.
    pub node_id: Option<Safe<64>>,
}

/// One progress datagram of firstboot, checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepReport {
    /// 1 to 128 of `[a-z0-9/_-]`.
    pub step: Safe<128>,
    /// What a person is told, 1 to 200.
    pub title: Safe<200>,
    /// 1 to 999.
    #[serde(default)]
    pub index: Option<u32>,
    /// 1 to 999, at least `index`.
    #[serde(default)]
    pub total: Option<u32>,
    /// Status of the step.
    pub status: wire::StepStatus,
    /// The error line of a failed step.
    #[serde(default)]
    pub error: Option<Safe<2048>>,
}

/// How firstboot ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FirstbootEnd {
    /// Success.
    Done,
    /// Any other end, with the exit status in words (`exit status 1`, `signal 9`).
    Failed(Safe<200>),
    /// This attempt had been started before and its end cannot be known: the machine restarted meanwhile.
    Lost,
}

/// Everything that can happen to a join.
#[derive(Debug, Clone)]
pub enum Event {
    /// There is a join request: at start, or a new one from the operator.
    Request(Option<RequestView>),
    /// The settings allow a self-upgrade from now on, or do not any more.
    MayUpgrade(bool),
    /// The operator asks to end the current wait.
    Retry,
    /// The operator asks to look at the way to the founder.
    Check,
    /// Answer to `Diagnose`.
    Diagnosed(Box<Diagnosis>),
    /// A carrier came up or an address changed.
    NetworkChanged,
    /// The kernel says that disks or NICs came, went or changed; `disks` is false when it was only the network.
    HardwareChanged {
        /// Disks too.
        disks: bool,
    },
    /// Answer to [`super::effect::Effect::LoadIdentity`] and to `DiscardIdentity`.
    Identity(Result<IdentityView, Fault>),
    /// Answer to `Probe`.
    Probed(Result<ProbeView, Fault>),
    /// Another announced key of the pinned founder answered: sent before the answer itself.
    CaAnswered(Pin),
    /// Answer to `Observe`.
    Observed(Result<Observed, Fault>),
    /// Answer to `StartProof`.
    Proven(Result<FounderProven, Fault>),
    /// Answer to `Confirm`.
    Confirmed(Result<wire::ConfirmAnswer, Fault>),
    /// Answer to `Register` and `Reregister`.
    Registered(Result<Box<wire::Registration>, Fault>),
    /// Answer to `Poll`. The delivery is taken out and told apart.
    Polled(Result<(Box<wire::Registration>, Option<DeliveryView>), Fault>),
    /// Answer to `Ack`.
    Acked(Result<wire::AckAnswer, Fault>),
    /// Answer to `SendProgress`.
    ProgressSent(Result<wire::ProgressAnswer, Fault>),
    /// Answer to `SendLog`.
    LogSent(Result<wire::LogAnswer, Fault>),
    /// Answer to `EraseCode`.
    CodeErased(Result<(), Fault>),
    /// Answer to `WriteDelivery`: the digest of what was written.
    DeliveryWritten(Result<String, Fault>),
    /// firstboot of the current attempt runs.
    FirstbootRunning,
    /// A step of firstboot.
    FirstbootStep(StepReport),
    /// Log lines of firstboot, redacted and cleaned, with the cursor behind the last one.
    FirstbootLog {
        /// At most 200 lines of at most 1 KiB.
        lines: Vec<Safe<1024>>,
        /// Where to go on reading after a restart.
        cursor: String,
    },
    /// firstboot ended, or the verb that starts it failed.
    FirstbootEnded(Result<FirstbootEnd, Fault>),
    /// Answer to `WriteJoinedMarker`.
    JoinedMarked(Result<(), Fault>),
    /// Answer to `Upgrade`.
    Upgrade(Done),
    /// A timer ran out.
    Timer(super::effect::Timer),
}
