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

/// One line of an answer.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Line {
    Progress(Progress),
    Ok(Box<RawValue>),
    Error(Refusal),
}

/// What `start-firstboot` tells before its end.
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
    chain: Safe<400>,
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
        Self { code: BAD_REQUEST.to_owned(), chain: detail.clone(), detail }
    }

    fn of(fault: &Fault) -> Self {
        Self {
            code: fault.code.as_str().to_owned(),
            detail: fault.detail.clone(),
            chain: fault.chain.clone(),
        }
    }

    /// As the caller's own fault. A code that is not a join's is a fault of this machine.
    fn into_fault(self) -> Fault {
        let code = Code::from_wire(&self.code).unwrap_or(Code::Local);
        let mut fault = Fault::new(code, &self.detail);
        fault.chain = self.chain;
        fault
    }
}

#[cfg(test)]
mod tests;
