//! The helper's socket: what goes over it, and both ends (docs/helper.md).
//!
//! One connection is one request: the caller writes one JSON line and closes its side; the helper answers with JSON lines, the last of which
//! is `ok` or `error`, and ends. The text form is between two processes of one release; `v` says so when that is ever not true.

mod client;
mod serve;

use console::text::Safe;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use client::ThroughHelper;
pub use serve::{Callers, Served, serve};

use crate::join::fault::{Code, Fault};
use crate::upgrade::Digest;
use crate::upgrade::fault::{Code as UpgradeCode, UpgradeFault};

/// The version of the form.
const VERSION: u32 = 1;
/// Largest request in bytes: both parts of a delivery at their largest, with every byte escaped once.
pub const MAX_REQUEST: usize = 2 * 1024 * 1024;
/// Largest line of an answer in bytes: an inventory of thousands of disks.
pub const MAX_ANSWER: usize = 4 * 1024 * 1024;
/// The code of an answer to what is no request.
const BAD_REQUEST: &str = "BAD_REQUEST";

/// The request line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    v: u32,
    verb: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    args: Option<Box<RawValue>>,
}

/// Arguments of `write-delivery`. Secret.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DeliveryArgs {
    attempt: Option<u64>,
    node_yaml: String,
    bundle: String,
}

/// Arguments of `start-firstboot`.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FirstbootArgs {
    attempt: Option<u64>,
    sha256: String,
    log_cursor: Option<String>,
}

/// Arguments of `reload-banner`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BannerArgs {
    reload: bool,
}

/// Arguments of `probe`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProbeArgs {
    what: What,
}

/// What `probe` looks at.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum What {
    Machine,
    Os,
}

/// Arguments of `install-release`.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct InstallArgs {
    action: Action,
    /// Not for `disarm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    manifest_sha256: Option<Digest>,
}

/// What `install-release` does.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Action {
    Write,
    Arm,
    Disarm,
}

/// One line of an answer.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Line {
    Progress(Told),
    Ok(Box<RawValue>),
    Error(Refusal),
}

/// What a verb tells before its end.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Told {
    Step { step: Step, done: u64, total: u64 },
    Other(Progress),
}

/// What is at work on an OS; `done` and `total` are bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Step {
    Write,
}

/// What `start-firstboot` tells before its end, and what any verb tells that takes long.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Progress {
    /// Nothing; it is still at it.
    Alive,
    /// firstboot runs.
    Running,
    /// Redacted lines of its log.
    Log { lines: Vec<Safe<1024>>, cursor: String },
}

/// Why not.
#[derive(Debug, Serialize, Deserialize)]
struct Refusal {
    code: String,
    detail: Safe<400>,
    /// The chain of causes: of the verbs that hand over and look.
    #[serde(default, skip_serializing_if = "Safe::is_empty")]
    chain: Safe<400>,
    /// What a person can do: of the verbs about the OS.
    #[serde(default, skip_serializing_if = "Safe::is_empty")]
    todo: Safe<200>,
}

/// How firstboot ended.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum End {
    Done,
    Failed(Safe<200>),
    Lost,
}

// === impl Refusal ===

impl Refusal {
    fn bad_request(why: impl AsRef<str>) -> Self {
        let detail = Safe::clean(why.as_ref());
        Self { code: BAD_REQUEST.to_owned(), chain: detail.clone(), detail, todo: Safe::default() }
    }

    fn of(fault: &Fault) -> Self {
        Self {
            code: fault.code.as_str().to_owned(),
            detail: fault.detail.clone(),
            chain: fault.chain.clone(),
            todo: Safe::default(),
        }
    }

    fn of_upgrade(fault: &UpgradeFault) -> Self {
        Self {
            code: fault.code.as_str().to_owned(),
            detail: fault.what.clone(),
            chain: Safe::default(),
            todo: fault.todo.clone(),
        }
    }

    /// As the caller's own fault. A code that is not a join's is a fault of this machine.
    fn into_fault(self) -> Fault {
        let code = Code::from_wire(&self.code).unwrap_or(Code::Local);
        let mut fault = Fault::new(code, &self.detail);
        if !self.chain.is_empty() {
            fault.chain = self.chain;
        }
        fault
    }

    /// The same for a verb about the OS: one that was not even understood is the helper's trouble.
    fn into_upgrade_fault(self) -> UpgradeFault {
        match UpgradeCode::from_wire(&self.code) {
            Some(code) => UpgradeFault { code, what: self.detail, todo: self.todo },
            None => UpgradeFault::helper(&self.detail),
        }
    }
}

#[cfg(test)]
mod tests;
