//! What is known of a self-upgrade: [`Upgrade`] is on disk, [`Upgrading`] in memory. Touches nothing.

use console::text::Safe;
use serde::{Deserialize, Serialize};

use crate::install::{OsState, Slot as OsSlot};
use crate::join::state::{Lane, Slot};
use crate::protocol::encoding::B64;
use crate::protocol::wire::{StepStatus, UpgradeOffer};
use crate::upgrade::Digest;
use crate::upgrade::fault::UpgradeFault;
use crate::upgrade::fetch::Progress;

/// One upgrade, from the offer until the cluster knows the new release. Unknown fields are kept: after a fallback the older agent writes again what
/// the newer one wrote.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Upgrade {
    /// How far it has come.
    pub phase: UpgradePhase,
    /// The release that the offer says runs here.
    pub from: Safe<64>,
    /// The release that the cluster wants here.
    pub to: Safe<64>,
    /// The release that was found at the source.
    #[serde(default)]
    pub manifest: Option<Digest>,
    /// Attempts with this manifest, the present one included.
    #[serde(default)]
    pub attempt: u32,
    /// How often its OS was started in vain.
    #[serde(default)]
    pub boot_failures: u32,
    /// Where the new OS was written.
    #[serde(default)]
    pub slot: Option<OsSlot>,
    /// In which boot the next start was changed; of phase `armed`.
    #[serde(default)]
    pub armed_boot_id: Option<String>,
    /// The client key at that time, which the new OS must be able to read. `None` once another one is made on purpose.
    #[serde(default)]
    pub client_fp: Option<B64<32>>,
    /// Why the new OS was not accepted on its trial.
    #[serde(default)]
    pub trial_note: Option<Safe<400>>,
    /// How the last attempt failed, while the next one is waited for.
    #[serde(default)]
    pub failure: Option<Failed>,
    /// What a newer agent wrote.
    #[serde(flatten)]
    pub other: serde_json::Map<String, serde_json::Value>,
}

/// What of an upgrade a restart must know. All before `armed` is one phase: it changes no boot, every part of it finds what is there and repeats
/// nothing, so a restart goes through it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UpgradePhase {
    /// Manifest, download, verify, write.
    Preparing,
    /// The next start may be of the new OS; on disk before the helper is asked.
    Armed,
    /// The new OS runs and is accepted; the cluster is to be told.
    Blessed,
}

/// The end of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failed {
    /// Where.
    pub step: UpgradeStep,
    /// Why.
    #[serde(with = "stored")]
    pub fault: UpgradeFault,
    /// In which boot.
    pub boot_id: String,
    /// When, boot clock in milliseconds.
    pub at_boot_ms: u64,
    /// How long the next attempt is waited for, milliseconds.
    pub wait_ms: u64,
}

/// The six steps, and the upgrade as a whole (docs/upgrade.md, "Steps").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UpgradeStep {
    /// Before the first step.
    Whole,
    /// Manifest, signatures, rules.
    Manifest,
    /// Download.
    Download,
    /// Every file as a whole.
    Verify,
    /// The other slot, and the boot entry.
    Install,
    /// The restart, or its end in the old OS.
    Boot,
    /// On the new OS.
    Health,
}

/// A step with its times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpgradeLine {
    /// Which.
    pub step: UpgradeStep,
    /// How it stands.
    pub status: StepStatus,
    /// When it began, boot clock.
    pub began_ms: u64,
    /// When it ended.
    pub ended_ms: Option<u64>,
}

/// What is done for an upgrade. One thing at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Finding and checking the release.
    Check,
    /// Downloading.
    Fetch,
    /// Looking at every file once more.
    Verify,
    /// Writing the other slot.
    Write,
    /// Changing the next start.
    Arm,
    /// Restarting.
    Restart,
    /// Taking the change of the next start back.
    Disarm,
    /// Accepting the new OS.
    Bless,
    /// Removing what no upgrade wants any more.
    Clean,
}

/// Whether the cluster was asked afresh, right before something that cannot be taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// Not needed.
    No,
    /// Wanted.
    Due,
    /// Under way.
    Sent,
    /// It still wants this upgrade.
    Confirmed,
}

/// The upgrade in memory.
#[derive(Debug, Clone)]
pub struct Upgrading {
    /// What this machine can install, and what it booted.
    pub os: Slot<OsState>,
    /// Tries in a row to learn that, in vain.
    pub os_failures: u32,
    /// What comes next of the present attempt; [`Work::Check`] begins one.
    pub next: Work,
    /// What is under way, or waited for.
    pub lane: Lane<Work>,
    /// The cluster's last word.
    pub ask: Ask,
    /// A privileged part that must come to its end (disarm, bless) and does not: when it is tried again, boot clock, and failures in a row.
    pub stuck: Option<(u64, u32)>,
    /// Files of an upgrade that is over may lie in the stage.
    pub to_clean: bool,
    /// The steps of the present attempt so far.
    pub steps: Vec<UpgradeLine>,
    /// Figures of the present step.
    pub figures: Option<Figures>,
    /// Whom the release comes from, once one was found.
    pub host: Option<Safe<64>>,
    /// Offers in a row that are of another release than the one that runs.
    pub stale: u32,
}

/// Figures of a step in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Figures {
    /// Of the download.
    Download(Progress),
    /// So many of so many.
    Plain(u64, u64),
}

/// What a source was found to hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checked {
    /// The offer is of a release that does not run here any more.
    Stale,
    /// What is offered runs already.
    Installed,
    /// The release that was asked for: signed, whole, newer.
    Release {
        /// Its manifest.
        manifest: Digest,
        /// Who serves it.
        host: Safe<64>,
    },
}

/// What the core asks of an upgrade's ports. Each answers with the event of the same name in [`Done`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Do {
    /// What this machine can install and what it booted.
    Os,
    /// Find the release at the source and check it.
    Check(UpgradeOffer),
    /// Download what is missing of it. Any number of [`Done::Figures`] before the end.
    Fetch,
    /// Look at every file once more.
    Verify,
    /// Privileged: write it to the other slot.
    Write(Digest),
    /// Privileged: the next start is of it.
    Arm(Digest),
    /// Privileged: restart into it.
    Restart,
    /// Privileged: the next start is of what runs.
    Disarm,
    /// Privileged: what runs on trial is accepted.
    Bless,
    /// Empty the stage.
    Clean,
    /// Break off what is under way; no answer, not even a late one.
    Cancel,
}

/// The answers.
#[derive(Debug, Clone)]
pub enum Done {
    /// To [`Do::Os`].
    Os(Box<Result<OsState, UpgradeFault>>),
    /// To [`Do::Check`].
    Check(Result<Checked, UpgradeFault>),
    /// Of what is under way.
    Figures(Figures),
    /// To [`Do::Fetch`].
    Fetch(Result<(), UpgradeFault>),
    /// To [`Do::Verify`].
    Verify(Result<(), UpgradeFault>),
    /// To [`Do::Write`]: the slot.
    Write(Result<OsSlot, UpgradeFault>),
    /// To [`Do::Arm`].
    Arm(Result<(), UpgradeFault>),
    /// To [`Do::Restart`]; `Ok` means that the machine is going down.
    Restart(Result<(), UpgradeFault>),
    /// To [`Do::Disarm`].
    Disarm(Result<(), UpgradeFault>),
    /// To [`Do::Bless`].
    Bless(Result<(), UpgradeFault>),
    /// To [`Do::Clean`].
    Clean(Result<(), UpgradeFault>),
}

/// A fault in the journal. A code that only a newer agent has is read as trouble of the helper: its sentences say what it was.
mod stored {
    use console::text::Safe;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::upgrade::fault::{Code, UpgradeFault};

    #[derive(Serialize, Deserialize)]
    struct Stored {
        code: String,
        what: Safe<400>,
        todo: Safe<200>,
    }

    pub(super) fn serialize<S: Serializer>(fault: &UpgradeFault, to: S) -> Result<S::Ok, S::Error> {
        let code = fault.code.as_str().to_owned();
        Stored { code, what: fault.what.clone(), todo: fault.todo.clone() }.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<UpgradeFault, D::Error> {
        let Stored { code, what, todo } = Stored::deserialize(from)?;
        Ok(UpgradeFault { code: Code::from_wire(&code).unwrap_or(Code::Helper), what, todo })
    }
}

// === impl UpgradeStep ===

impl UpgradeStep {
    /// The steps in their order.
    pub const ALL: [UpgradeStep; 6] = [
        UpgradeStep::Manifest,
        UpgradeStep::Download,
        UpgradeStep::Verify,
        UpgradeStep::Install,
        UpgradeStep::Boot,
        UpgradeStep::Health,
    ];

    /// The name on the wire (documented: `upgrade` or `upgrade/<step>`).
    pub fn name(self) -> &'static str {
        match self {
            UpgradeStep::Whole => "upgrade",
            UpgradeStep::Manifest => "upgrade/manifest",
            UpgradeStep::Download => "upgrade/download",
            UpgradeStep::Verify => "upgrade/verify",
            UpgradeStep::Install => "upgrade/install",
            UpgradeStep::Boot => "upgrade/boot",
            UpgradeStep::Health => "upgrade/health",
        }
    }

    /// What a person is told it is.
    pub fn title(self) -> &'static str {
        match self {
            UpgradeStep::Whole => "upgrade this machine",
            UpgradeStep::Manifest => "check the release manifest",
            UpgradeStep::Download => "download the release",
            UpgradeStep::Verify => "verify every file",
            UpgradeStep::Install => "install the OS",
            UpgradeStep::Boot => "restart into the new OS",
            UpgradeStep::Health => "check that the new OS works",
        }
    }

    /// 1 to 6; `None` for the whole.
    pub fn index(self) -> Option<u32> {
        UpgradeStep::ALL.iter().position(|step| *step == self).and_then(|n| u32::try_from(n + 1).ok())
    }
}

// === impl Work ===

impl Work {
    /// The step it belongs to, for a person.
    pub fn step(self) -> UpgradeStep {
        match self {
            Work::Check => UpgradeStep::Manifest,
            Work::Fetch => UpgradeStep::Download,
            Work::Verify => UpgradeStep::Verify,
            Work::Write | Work::Arm => UpgradeStep::Install,
            Work::Restart | Work::Disarm => UpgradeStep::Boot,
            Work::Bless => UpgradeStep::Health,
            Work::Clean => UpgradeStep::Whole,
        }
    }

    /// Whether it may be broken off at any moment. What changes the next start is waited for: its end must be known.
    pub fn may_be_cut(self) -> bool {
        matches!(self, Work::Check | Work::Fetch | Work::Verify | Work::Write)
    }
}

// === impl Upgrade ===

impl Upgrade {
    /// Nothing of it is done yet.
    pub fn of(offer: &UpgradeOffer) -> Self {
        Self {
            phase: UpgradePhase::Preparing,
            from: offer.from.clone(),
            to: offer.to.clone(),
            manifest: None,
            attempt: 0,
            boot_failures: 0,
            slot: None,
            armed_boot_id: None,
            client_fp: None,
            trial_note: None,
            failure: None,
            other: serde_json::Map::new(),
        }
    }

    /// Whether the next start, or the present one, may be of the new OS.
    pub fn is_armed(&self) -> bool {
        self.phase == UpgradePhase::Armed
    }
}

// === impl Upgrading ===

impl Default for Upgrading {
    fn default() -> Self {
        Self {
            os: Slot::Empty,
            os_failures: 0,
            next: Work::Check,
            lane: Lane::Idle,
            ask: Ask::No,
            stuck: None,
            // Of an earlier run.
            to_clean: true,
            steps: Vec::new(),
            figures: None,
            host: None,
            stale: 0,
        }
    }
}

impl Upgrading {
    /// What is known of the OS.
    pub fn os(&self) -> Option<&OsState> {
        match &self.os {
            Slot::Ready(os) => Some(os),
            _ => None,
        }
    }
}
