//! The JSON bodies of `stratum-join/1` (docs/protocol.md), as the agent sends and reads them and as the lab founder does.
//!
//! Touches nothing. Requests refuse unknown fields (a misspelt field must not pass silently), answers ignore them (a newer
//! founder must not break an older joiner). Every founder text is cleaned on the way in. Duplicate keys are refused.

use std::fmt;

use console::text::Safe;
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::value::RawValue;

use super::encoding::{B64, Pin};

/// The protocol's name in `GET /v1/join`.
pub const PROTOCOL: &str = "stratum-join/1";
/// The one PAKE suite.
pub const SUITE: &str = "spake2-ed25519";
/// Longest `wait` of a long-poll, in seconds (documented: at most 60).
pub const MAX_WAIT_SECS: u64 = 60;
/// Largest node.yaml in bytes.
pub const MAX_NODE_YAML: usize = 256 * 1024;
/// Largest bundle in bytes, as received.
pub const MAX_BUNDLE: usize = 512 * 1024;
/// Largest serialised inventory in bytes.
pub const MAX_INVENTORY: usize = 128 * 1024;

/// Answer of `GET /v1/join`. Unauthenticated: it may delay us and nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hello {
    /// Protocol names, 1 to 8.
    pub protocols: Vec<Safe<32>>,
    /// PAKE suites, 1 to 8.
    pub suites: Vec<Safe<32>>,
    /// The founder's clock, RFC 3339; shown, never trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_time: Option<Safe<64>>,
}

/// What a proof is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Intent {
    /// `--check` and stage 1 of the installer: creates nothing.
    Check,
    /// A registration follows.
    Register,
}

// === impl Intent ===

impl Intent {
    /// The word that goes into `th0`.
    pub fn as_str(self) -> &'static str {
        match self {
            Intent::Check => "check",
            Intent::Register => "register",
        }
    }
}

/// Body of `POST /v1/join/proofs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProofRequest {
    /// Always 1.
    pub v: u32,
    /// [`SUITE`].
    pub suite: String,
    /// What the proof is for.
    pub intent: Intent,
    /// Two alphabet characters, upper case.
    pub selector: String,
    /// Side A's SPAKE2 message.
    pub msg: B64<33>,
}

/// Answer to [`ProofRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProofAnswer {
    /// Single use, bound to the client key; confirm within 30 s.
    pub proof_id: B64<16>,
    /// Side B's SPAKE2 message.
    pub msg: B64<33>,
    /// Commitment of this key's live registration, if there is one.
    #[serde(default)]
    pub resume_commit: Option<B64<32>>,
    /// The founder's confirmation.
    pub confirm: B64<32>,
}

/// Body of `POST /v1/join/proofs/{proofId}/confirm`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConfirmRequest {
    /// The joiner's confirmation.
    pub confirm: B64<32>,
    /// Commitment to the pairing nonce; null for `check`.
    #[serde(default)]
    pub commit: Option<B64<32>>,
}

/// Answer to [`ConfirmRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfirmAnswer {
    /// The release the cluster runs.
    pub cluster_release: Safe<64>,
    /// Lowest release that may upgrade itself.
    pub min_upgrade_from: Safe<64>,
    /// Name of the cluster's ISO.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iso: Option<Safe<255>>,
    /// Would a registration be taken now.
    pub accepting: bool,
    /// `check` only: the problem code a registration would get.
    #[serde(default)]
    pub refusal: Option<Safe<64>>,
    /// When the code expires, RFC 3339.
    #[serde(default)]
    pub code_expires_at: Option<Safe<64>>,
    /// The founder's clock, RFC 3339.
    #[serde(default)]
    pub server_time: Option<Safe<64>>,
    /// `register` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub join_id: Option<JoinId>,
    /// `register` only: nF, fixed for the life of the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub founder_nonce: Option<B64<32>>,
}

/// A registration's id: `nj-` and 1 to 32 of `[0-9a-z]`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct JoinId(String);

/// A value that is not of its form; names the field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not of its documented form")]
pub struct Malformed(pub &'static str);

// === impl JoinId ===

impl JoinId {
    /// Checks the form.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let rest = text.strip_prefix("nj-").ok_or(Malformed("joinId"))?;
        let ok = (1..=32).contains(&rest.len())
            && rest.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_lowercase());
        if ok { Ok(Self(text.to_owned())) } else { Err(Malformed("joinId")) }
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for JoinId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for JoinId {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

/// Body of `POST /v1/join/registrations`, and of `PUT` without the first two fields.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RegistrationRequest {
    /// POST only: confirmed with intent `register`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof_id: Option<B64<16>>,
    /// POST only: nJ, opens the commitment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pairing_nonce: Option<B64<32>>,
    /// `VERSION_ID` of the running OS, 1 to 64.
    pub release: String,
    /// Whether this agent can upgrade itself (documented).
    pub self_upgrade: bool,
    /// RFC 1123 host name, 1 to 253.
    pub hostname: String,
    /// Printable ASCII, 0 to 128; empty when there is none.
    pub serial: String,
    /// Version of the agent, 1 to 32.
    pub agent: String,
    /// Kernel boot id, 36 characters.
    pub boot_id: String,
    /// The probe's inventory, kept as it is.
    pub inventory: Box<RawValue>,
}

/// What a registration looks like to its joiner: answer of POST, PUT and the long-poll.
///
/// A plain struct, because the raw bundle does not survive `flatten` or tagged enums.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Registration {
    /// The registration's id.
    pub join_id: JoinId,
    /// A documented state or a newer founder's word, 1 to 32.
    pub state: Safe<32>,
    /// `XXX-XXX`.
    #[serde(default)]
    pub pairing_code: Option<Safe<16>>,
    /// Why it was rejected.
    #[serde(default)]
    pub reason: Option<Safe<1024>>,
    /// What an approved join waits for.
    #[serde(default)]
    pub wait_reason: Option<Safe<1024>>,
    /// The upgrade a joiner of an older release makes.
    #[serde(default)]
    pub upgrade: Option<UpgradeOffer>,
    /// Rises each time the join enters `delivering`.
    #[serde(default)]
    pub attempt: Option<u64>,
    /// Only in `delivering` and `installing`. Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<DeliveryWire>,
    /// The founder's view of a failure.
    #[serde(default)]
    pub failed_step: Option<Safe<128>>,
    /// What a person is told the failed step is.
    #[serde(default)]
    pub failed_step_title: Option<Safe<200>>,
    /// The error of the failed step.
    #[serde(default)]
    pub failed_error: Option<Safe<2048>>,
    /// RFC 3339, display only.
    #[serde(default)]
    pub code_expires_at: Option<Safe<64>>,
    /// RFC 3339, display only.
    #[serde(default)]
    pub expires_at: Option<Safe<64>>,
    /// RFC 3339, display only.
    #[serde(default)]
    pub server_time: Option<Safe<64>>,
    /// Planned rotation of the join CA, 0 to 2.
    #[serde(default)]
    pub next_pins: Vec<Pin>,
}

/// `upgrade` of a registration (documented names; `fromFounder` is ours).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeOffer {
    /// The release the joiner reported.
    pub from: Safe<64>,
    /// The release the cluster runs.
    pub to: Safe<64>,
    /// The mirror's URL of the release directory; empty when the founder gives it.
    #[serde(default)]
    pub source: Safe<2048>,
    /// Whether the founder gives the release itself.
    #[serde(default)]
    pub from_founder: bool,
}

/// The delivery as it stands in the answer. Both parts are kept byte for byte (byte rule of docs/protocol.md). Secret.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeliveryWire {
    /// The node's configuration, 1 byte to 256 KiB.
    #[serde(default)]
    pub node_yaml: Option<String>,
    /// The join bundle, an object of 2 bytes to 512 KiB.
    #[serde(default)]
    pub bundle: Option<Box<RawValue>>,
}

impl fmt::Debug for DeliveryWire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration")
            .field("join_id", &self.join_id)
            .field("state", &self.state)
            .field("attempt", &self.attempt)
            .field("delivery", &self.delivery)
            .finish_non_exhaustive()
    }
}

/// Body of `POST .../ack`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AckRequest {
    /// The delivery's attempt; null from a founder without attempts.
    #[serde(default)]
    pub attempt: Option<u64>,
    /// Delivery digest, 64 hex digits.
    pub sha256: String,
}

/// Status of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StepStatus {
    /// It runs.
    Running,
    /// It is done.
    Done,
    /// It failed.
    Failed,
}

/// Body of `POST .../progress`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProgressRequest {
    /// 1 to 2^53-1, strictly rising per registration.
    pub seq: u64,
    /// Kernel boot id.
    pub boot_id: String,
    /// The delivery's attempt: a report that comes late says nothing of the next one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u64>,
    /// 1 to 128 of `[a-z0-9/_-]`.
    pub step: String,
    /// What a person is told, 1 to 200.
    pub title: String,
    /// 1 to 999, at most `total`.
    #[serde(default)]
    pub index: Option<u32>,
    /// 1 to 999.
    #[serde(default)]
    pub total: Option<u32>,
    /// Status of the step.
    pub status: StepStatus,
    /// Last error line, 0 to 2048; required for `failed`.
    #[serde(default)]
    pub error: Option<String>,
}

/// Answer to progress and acknowledgement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProgressAnswer {
    /// The registration's state now.
    pub state: Safe<32>,
    /// Highest `seq` the founder has stored.
    #[serde(default)]
    pub last_seq: u64,
}

/// Answer to an acknowledgement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AckAnswer {
    /// The registration's state now.
    pub state: Safe<32>,
}

/// Body of `POST .../log`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LogRequest {
    /// Number of the first line, rising.
    pub first: u64,
    /// Lines dropped just before it.
    #[serde(default)]
    pub lost: u64,
    /// 1 to 200 lines of at most 1 KiB.
    pub lines: Vec<String>,
}

/// Answer to [`LogRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogAnswer {
    /// Highest line number the founder has stored.
    pub last_line: u64,
}

/// RFC 7807 problem with the documented `code`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// A URI or `about:blank`.
    #[serde(rename = "type", default)]
    pub kind: Safe<256>,
    /// Short text; shown, never parsed.
    #[serde(default)]
    pub title: Safe<200>,
    /// 400 to 599.
    #[serde(default)]
    pub status: u16,
    /// `[A-Z0-9_]{1,64}`: what the agent decides by.
    pub code: Safe<64>,
    /// Correlates with the founder's log.
    #[serde(default)]
    pub request_id: Safe<64>,
    /// Shown, never parsed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Safe<1024>>,
    /// Field errors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
    /// Facts, shape fixed per code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<serde_json::Value>,
}

/// One field's problem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldError {
    /// The field's path.
    pub field: Safe<128>,
    /// What is wrong with it.
    pub message: Safe<400>,
}

// === impl Registration ===

impl Registration {
    /// The founder's error, short enough for one line.
    pub fn failed_error_short(&self) -> Option<Safe<1024>> {
        self.failed_error.as_ref().filter(|e| !e.as_str().is_empty()).map(|e| Safe::clean(e.as_str()))
    }
}
