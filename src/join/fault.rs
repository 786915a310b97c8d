//! What went wrong, classified. A port turns its own error into a [`Fault`]; `step` looks at its class and code, people get `advice`.
//!
//! Touches nothing. Never holds a secret.

use std::time::Duration;

use console::text::Safe;
use serde::{Deserialize, Serialize};

/// The refusal table of docs/protocol.md section 6, plus the faults of this machine.
///
/// The names are those of the wire (`SCREAMING_SNAKE_CASE`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[allow(
    missing_docs,
    reason = "the names are the documentation's; the table in docs/protocol.md explains each"
)]
pub enum Code {
    // Found by ourselves.
    CodeMalformed,
    UrlMalformed,
    AddressUnreachable,
    TlsFailed,
    ProtocolUnsupported,
    CodeNotProven,
    PinMismatch,
    FounderKeyChanged,
    PairingMismatch,
    ResponseInvalid,
    ResponseTooLarge,
    DeliveryInvalid,
    // The founder's.
    InvalidInput,
    JoinCodeWrong,
    JoinCodeExpired,
    JoinCodeRevoked,
    JoinCodeBurned,
    JoinNotFound,
    ReleaseMismatch,
    JoinStateConflict,
    ProofExpired,
    PairingConflict,
    DeliveryMismatch,
    JoinRejected,
    JoinExpired,
    InventoryTooLarge,
    InventoryInvalid,
    RateLimited,
    JoinQueueFull,
    UpgradeRunning,
    ReleaseBusy,
    Unavailable,
    /// Any other 5xx.
    ServerError,
    /// Any other 4xx.
    OtherRefusal,
    /// This machine: disk full, permission, helper missing.
    Local,
    /// A file of ours is not what we wrote (wrong owner, link, unreadable text).
    Tampered,
    /// This agent cannot do what the cluster asks (self-upgrade in a build without it).
    Unsupported,
}

/// What the agent does about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// By itself, after a delay.
    Retry,
    /// Waits for a person; keeps key and data.
    Operator,
    /// This registration is over.
    Final,
}

/// Structured facts of a refusal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Details {
    /// RELEASE_MISMATCH: the release the cluster runs.
    pub cluster_release: Option<Safe<64>>,
    /// RELEASE_MISMATCH: the cluster's ISO.
    pub iso: Option<Safe<255>>,
    /// RELEASE_MISMATCH: lowest release that may upgrade itself.
    pub min_upgrade_from: Option<Safe<64>>,
    /// JOIN_STATE_CONFLICT: the state at the founder.
    pub state: Option<Safe<32>>,
    /// FOUNDER_KEY_CHANGED, PIN_MISMATCH: first 16 hex digits of the expected key.
    pub expected_pin: Option<Safe<64>>,
    /// FOUNDER_KEY_CHANGED, PIN_MISMATCH: first 16 hex digits of the key that answered.
    pub seen_pin: Option<Safe<64>>,
}

/// A classified failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fault {
    /// Which row of the table.
    pub code: Code,
    /// One lowercase fragment for the `<cause>`, `<reason>`, `<field>` of the advice: our own words or, when `from_founder`, the founder's, cleaned.
    pub detail: Safe<400>,
    /// `detail` is the founder's text: shown only in its own quoted area.
    pub from_founder: bool,
    /// The answer came over a proven channel.
    pub verified: bool,
    /// The full source chain, joined by `: `, for journald.
    pub chain: Safe<400>,
    /// HTTP status, when there was an answer.
    pub http: Option<u16>,
    /// The founder's request id.
    pub request_id: Option<Safe<64>>,
    /// `Retry-After` in seconds as received (held to 1..600 by the backoff).
    pub retry_after: Option<u32>,
    /// Facts per code.
    pub details: Details,
}

// === impl Code ===

impl Code {
    /// Every code, in the order of the table.
    pub const ALL: &'static [Code] = &[
        Code::CodeMalformed,
        Code::UrlMalformed,
        Code::AddressUnreachable,
        Code::TlsFailed,
        Code::ProtocolUnsupported,
        Code::CodeNotProven,
        Code::PinMismatch,
        Code::FounderKeyChanged,
        Code::PairingMismatch,
        Code::ResponseInvalid,
        Code::ResponseTooLarge,
        Code::DeliveryInvalid,
        Code::InvalidInput,
        Code::JoinCodeWrong,
        Code::JoinCodeExpired,
        Code::JoinCodeRevoked,
        Code::JoinCodeBurned,
        Code::JoinNotFound,
        Code::ReleaseMismatch,
        Code::JoinStateConflict,
        Code::ProofExpired,
        Code::PairingConflict,
        Code::DeliveryMismatch,
        Code::JoinRejected,
        Code::JoinExpired,
        Code::InventoryTooLarge,
        Code::InventoryInvalid,
        Code::RateLimited,
        Code::JoinQueueFull,
        Code::UpgradeRunning,
        Code::ReleaseBusy,
        Code::Unavailable,
        Code::ServerError,
        Code::OtherRefusal,
        Code::Local,
        Code::Tampered,
        Code::Unsupported,
    ];

    /// The name on the wire and in `STRATUM_CODE`.
    pub fn as_str(self) -> &'static str {
        match self {
            Code::CodeMalformed => "CODE_MALFORMED",
            Code::UrlMalformed => "URL_MALFORMED",
            Code::AddressUnreachable => "ADDRESS_UNREACHABLE",
            Code::TlsFailed => "TLS_FAILED",
            Code::ProtocolUnsupported => "PROTOCOL_UNSUPPORTED",
            Code::CodeNotProven => "CODE_NOT_PROVEN",
            Code::PinMismatch => "PIN_MISMATCH",
            Code::FounderKeyChanged => "FOUNDER_KEY_CHANGED",
            Code::PairingMismatch => "PAIRING_MISMATCH",
            Code::ResponseInvalid => "RESPONSE_INVALID",
            Code::ResponseTooLarge => "RESPONSE_TOO_LARGE",
            Code::DeliveryInvalid => "DELIVERY_INVALID",
            Code::InvalidInput => "INVALID_INPUT",
            Code::JoinCodeWrong => "JOIN_CODE_WRONG",
            Code::JoinCodeExpired => "JOIN_CODE_EXPIRED",
            Code::JoinCodeRevoked => "JOIN_CODE_REVOKED",
            Code::JoinCodeBurned => "JOIN_CODE_BURNED",
            Code::JoinNotFound => "JOIN_NOT_FOUND",
            Code::ReleaseMismatch => "RELEASE_MISMATCH",
            Code::JoinStateConflict => "JOIN_STATE_CONFLICT",
            Code::ProofExpired => "PROOF_EXPIRED",
            Code::PairingConflict => "PAIRING_CONFLICT",
            Code::DeliveryMismatch => "DELIVERY_MISMATCH",
            Code::JoinRejected => "JOIN_REJECTED",
            Code::JoinExpired => "JOIN_EXPIRED",
            Code::InventoryTooLarge => "INVENTORY_TOO_LARGE",
            Code::InventoryInvalid => "INVENTORY_INVALID",
            Code::RateLimited => "RATE_LIMITED",
            Code::JoinQueueFull => "JOIN_QUEUE_FULL",
            Code::UpgradeRunning => "UPGRADE_RUNNING",
            Code::ReleaseBusy => "RELEASE_BUSY",
            Code::Unavailable => "UNAVAILABLE",
            Code::ServerError => "SERVER_ERROR",
            Code::OtherRefusal => "OTHER_REFUSAL",
            Code::Local => "LOCAL",
            Code::Tampered => "TAMPERED",
            Code::Unsupported => "UNSUPPORTED",
        }
    }

    /// The code a founder's problem names, by its wire name; `None` for one we do not know.
    pub fn from_wire(name: &str) -> Option<Code> {
        Code::ALL.iter().copied().find(|code| code.as_str() == name)
    }

    /// The class of the table.
    pub fn class(self) -> Class {
        match self {
            Code::CodeMalformed
            | Code::UrlMalformed
            | Code::ProtocolUnsupported
            | Code::CodeNotProven
            | Code::PinMismatch
            | Code::FounderKeyChanged
            | Code::PairingMismatch
            | Code::InvalidInput
            | Code::JoinCodeWrong
            | Code::JoinCodeExpired
            | Code::JoinCodeRevoked
            | Code::JoinCodeBurned
            | Code::ReleaseMismatch
            | Code::Tampered
            | Code::Unsupported => Class::Operator,
            Code::JoinRejected | Code::JoinExpired => Class::Final,
            _ => Class::Retry,
        }
    }

    /// Exit code of `stratum-installer join` and `--check` (docs/protocol.md 6.1).
    pub fn exit(self) -> u8 {
        match self {
            Code::CodeMalformed | Code::UrlMalformed => 2,
            Code::CodeNotProven | Code::PinMismatch | Code::FounderKeyChanged | Code::PairingMismatch => 4,
            Code::JoinCodeWrong | Code::JoinCodeExpired | Code::JoinCodeRevoked | Code::JoinCodeBurned => 5,
            Code::ProtocolUnsupported | Code::ReleaseMismatch | Code::Unsupported => 6,
            Code::JoinRejected | Code::JoinExpired => 7,
            Code::InvalidInput | Code::InventoryTooLarge | Code::InventoryInvalid => 1,
            Code::Local | Code::Tampered => 8,
            _ => 3,
        }
    }
}

// === impl Fault ===

impl Fault {
    /// A fault found by ourselves, in our own words.
    pub fn new(code: Code, detail: impl AsRef<str>) -> Self {
        let detail = Safe::clean(detail.as_ref());
        let chain = detail.clone();
        Self {
            code,
            detail,
            from_founder: false,
            verified: false,
            chain,
            http: None,
            request_id: None,
            retry_after: None,
            details: Details::default(),
        }
    }

    /// The same with the whole source chain of `error` for journald; `detail` is the outermost message.
    pub fn from_error(code: Code, error: &(dyn std::error::Error + 'static)) -> Self {
        let mut fault = Self::new(code, error.to_string());
        fault.chain = Safe::clean(chain_of(error));
        fault
    }

    /// Marks the answer as come over a proven channel.
    pub fn verified(mut self) -> Self {
        self.verified = true;
        self
    }

    /// Whether this is the answer of somebody who had not proved the code. It may delay a join; it wipes, changes and ends nothing.
    pub fn is_unproven(&self) -> bool {
        self.http.is_some() && !self.verified
    }

    /// Whether the address is still looked at while this waits for a person: who is there now is not the cluster that we know, and may go away.
    pub fn looks_out(&self) -> bool {
        self.code == Code::CodeNotProven || self.is_unproven()
    }

    /// `Retry-After`, held to 1 to 600 s.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after.map(|secs| Duration::from_secs(u64::from(secs.clamp(1, 600))))
    }
}

/// The source chain as one line, joined by `: `; a source that repeats its parent's text is left out.
pub fn chain_of(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let part = inner.to_string();
        if !text.ends_with(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        source = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_reads_back_from_its_wire_name() {
        for code in Code::ALL {
            assert_eq!(Code::from_wire(code.as_str()), Some(*code));
            let json = serde_json::to_string(code).expect("a code serialises");
            assert_eq!(json, format!("\"{}\"", code.as_str()));
        }
    }

    #[test]
    fn retry_after_is_held_to_one_second_and_ten_minutes() {
        let mut fault = Fault::new(Code::RateLimited, "x");
        fault.retry_after = Some(0);
        assert_eq!(fault.retry_after(), Some(Duration::from_secs(1)));
        fault.retry_after = Some(86_400);
        assert_eq!(fault.retry_after(), Some(Duration::from_secs(600)));
    }
}
