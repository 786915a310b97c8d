//! One request and one answer, as the core sees them: no socket, no waiting. Plain data; touches nothing but an open file that is a body.

use std::fs::File;
use std::net::IpAddr;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use console::text::Safe;
use serde::Serialize;
use stratum_join::protocol::wire::{FieldError, Problem};

use crate::join_api::release_file::Transfer;
use crate::store::StoreError;

/// Bytes of a file that are read at once.
const PIECE: usize = 128 * 1024;

/// Who asks on the join listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Fingerprint of the client key, proved in the handshake.
    pub client_fp: [u8; 32],
    /// Where the connection comes from.
    pub addr: IpAddr,
}

/// A request whose body was read within its bound.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// `GET`, `POST`, `PUT`, `DELETE`.
    pub method: String,
    /// Path, as sent.
    pub path: String,
    /// Query without the `?`.
    pub query: Option<String>,
    /// Body.
    pub body: Vec<u8>,
    /// Header `x-stratum-pad`.
    pub pad: Option<String>,
    /// Header `range`.
    pub range: Option<String>,
    /// Header `if-range`.
    pub if_range: Option<String>,
    /// Token of header `authorization` (admin listener only).
    pub bearer: Option<String>,
}

/// An answer.
#[derive(Debug, Clone, Default)]
pub struct Response {
    /// HTTP status.
    pub status: u16,
    /// Headers besides length and connection.
    pub headers: Vec<(&'static str, String)>,
    /// Body.
    pub body: Vec<u8>,
    /// The body, when it is part of a file.
    pub file: Option<FileBody>,
    /// A long-poll that found nothing new: ask again when something changed, or answer this after that time.
    pub hold: Option<Hold>,
}

/// A part of a file as a body. The transfer counts as long as a copy of this is there.
#[derive(Debug, Clone)]
pub struct FileBody {
    file: Arc<File>,
    at: u64,
    left: u64,
    rate: u64,
    _transfer: Arc<Transfer>,
}

/// How long a poll may be held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// Whose poll it is.
    pub join_id: String,
    /// The state it is in: answer when it is another.
    pub state: String,
    /// Seconds it may wait.
    pub secs: u64,
}

/// A refusal, before it gets its request id. Becomes `application/problem+json`.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    /// HTTP status.
    pub status: u16,
    /// The code that machines decide by.
    pub code: &'static str,
    title: &'static str,
    more: Box<More>,
}

/// What only some refusals carry.
#[derive(Debug, Clone, Default)]
struct More {
    detail: Option<String>,
    errors: Vec<FieldError>,
    details: Option<serde_json::Value>,
    retry_after: Option<u64>,
}

/// Why a handler did not answer with success. Everything that its transaction changed is undone.
#[derive(Debug)]
pub(crate) enum Stop {
    Refused(Refusal),
    Broken(StoreError),
}

/// What handlers give.
pub(crate) type Handled<T = Response> = Result<T, Stop>;

// === impl Request ===

impl Request {
    /// A request without a body.
    pub fn get(path: &str) -> Self {
        let (path, query) = path.split_once('?').map_or((path, None), |(p, q)| (p, Some(q.to_owned())));
        Self { method: "GET".to_owned(), path: path.to_owned(), query, ..Self::default() }
    }

    /// A request with a JSON body.
    pub fn send(method: &str, path: &str, body: &impl Serialize) -> Self {
        Self {
            method: method.to_owned(),
            body: serde_json::to_vec(body).unwrap_or_default(),
            ..Self::get(path)
        }
    }

    /// A value of the query; the last one wins. Percent signs stand for themselves: no value that we know needs one.
    pub(crate) fn query_value(&self, key: &str) -> Option<&str> {
        let pairs = self.query.as_deref()?.split('&').filter_map(|pair| pair.split_once('='));
        pairs.rev().find(|(k, _)| *k == key).map(|(_, v)| v)
    }
}

// === impl Response ===

impl Response {
    /// JSON with a status.
    pub fn json(status: u16, body: &impl Serialize) -> Self {
        Self {
            status,
            headers: vec![("content-type", "application/json".to_owned())],
            body: serde_json::to_vec(body).unwrap_or_default(),
            file: None,
            hold: None,
        }
    }

    /// 204.
    pub(crate) fn nothing() -> Self {
        Self { status: 204, ..Self::default() }
    }

    /// The body as JSON, for tests; `null` when it is none.
    pub fn value(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The `code` of a problem.
    pub fn code(&self) -> String {
        self.value()["code"].as_str().unwrap_or_default().to_owned()
    }
}

// === impl FileBody ===

impl FileBody {
    pub(crate) fn new(file: File, first: u64, len: u64, rate: u64, transfer: Transfer) -> Self {
        Self { file: Arc::new(file), at: first, left: len, rate, _transfer: Arc::new(transfer) }
    }

    /// At most so many bytes per second may leave; 0 is no limit.
    pub fn rate(&self) -> u64 {
        self.rate
    }

    /// Bytes that are still to come.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// The next bytes; empty at the end.
    pub fn read(&mut self) -> std::io::Result<Vec<u8>> {
        let len = usize::try_from(self.left).map_or(PIECE, |left| left.min(PIECE));
        let mut piece = vec![0; len];
        self.file.read_exact_at(&mut piece, self.at)?;
        self.at += len as u64;
        self.left -= len as u64;
        Ok(piece)
    }
}

// === impl Refusal ===

impl Refusal {
    pub(crate) fn new(status: u16, code: &'static str, title: &'static str) -> Self {
        Self { status, code, title, more: Box::default() }
    }

    pub(crate) fn detail(mut self, text: impl Into<String>) -> Self {
        self.more.detail = Some(text.into());
        self
    }

    pub(crate) fn errors(mut self, errors: Vec<FieldError>) -> Self {
        self.more.errors = errors;
        self
    }

    pub(crate) fn details(mut self, details: serde_json::Value) -> Self {
        self.more.details = Some(details);
        self
    }

    pub(crate) fn retry_after(mut self, secs: u64) -> Self {
        self.more.retry_after = Some(secs);
        self
    }

    pub(crate) fn into_response(self, request_id: &str) -> Response {
        let problem = Problem {
            kind: "about:blank".into(),
            title: self.title.into(),
            status: self.status,
            code: self.code.into(),
            request_id: request_id.into(),
            detail: self.more.detail.map(Safe::from),
            errors: self.more.errors,
            details: self.more.details,
        };
        let mut response = Response::json(self.status, &problem);
        response.headers[0].1 = "application/problem+json".to_owned();
        if let Some(secs) = self.more.retry_after {
            response.headers.push(("retry-after", secs.to_string()));
        }
        response
    }
}

// === impl Stop ===

impl From<StoreError> for Stop {
    fn from(e: StoreError) -> Self {
        Stop::Broken(e)
    }
}

impl From<rusqlite::Error> for Stop {
    fn from(e: rusqlite::Error) -> Self {
        Stop::Broken(e.into())
    }
}

impl From<Refusal> for Stop {
    fn from(e: Refusal) -> Self {
        Stop::Refused(e)
    }
}

impl From<crate::entropy::NoEntropy> for Stop {
    fn from(_: crate::entropy::NoEntropy) -> Self {
        refuse::unavailable().into()
    }
}

/// One field's problem.
pub(crate) fn field(field: impl Into<String>, message: impl Into<String>) -> FieldError {
    FieldError { field: Safe::from(field.into()), message: Safe::from(message.into()) }
}

/// The refusals of docs/protocol.md section 6 and of the admin API.
pub(crate) mod refuse {
    use serde_json::json;

    use super::{FieldError, Refusal};
    use crate::model::JoinState;

    pub(crate) fn invalid(errors: Vec<FieldError>) -> Refusal {
        Refusal::new(400, "INVALID_INPUT", "the request is not of its documented form").errors(errors)
    }

    pub(crate) fn protocol_unsupported() -> Refusal {
        Refusal::new(400, "PROTOCOL_UNSUPPORTED", "this founder speaks stratum-join/1 with spake2-ed25519")
    }

    pub(crate) fn code_wrong() -> Refusal {
        Refusal::new(403, "JOIN_CODE_WRONG", "the join code is wrong")
    }

    pub(crate) fn code_expired() -> Refusal {
        Refusal::new(403, "JOIN_CODE_EXPIRED", "the join code has expired")
    }

    pub(crate) fn code_revoked() -> Refusal {
        Refusal::new(403, "JOIN_CODE_REVOKED", "the join code was revoked")
    }

    pub(crate) fn code_burned() -> Refusal {
        Refusal::new(403, "JOIN_CODE_BURNED", "the join code was burned by too many wrong tries")
    }

    /// The same for an unknown id and a foreign key: nothing in it may depend on either.
    pub(crate) fn join_not_found() -> Refusal {
        Refusal::new(404, "JOIN_NOT_FOUND", "no such registration")
    }

    pub(crate) fn not_found() -> Refusal {
        Refusal::new(404, "NOT_FOUND", "the founder has nothing of that name")
    }

    pub(crate) fn method() -> Refusal {
        Refusal::new(405, "METHOD_NOT_ALLOWED", "this path has no such method")
    }

    pub(crate) fn release_mismatch(
        machine: &str,
        cluster: &str,
        iso: &str,
        min_upgrade_from: &str,
    ) -> Refusal {
        Refusal::new(409, "RELEASE_MISMATCH", "the machine runs another release than the cluster")
            .detail(format!("the machine runs {machine}, the cluster {cluster}: install from {iso}"))
            .details(json!({ "clusterRelease": cluster, "iso": iso, "minUpgradeFrom": min_upgrade_from }))
    }

    pub(crate) fn conflict(state: JoinState) -> Refusal {
        Refusal::new(409, "JOIN_STATE_CONFLICT", "the join is in another state")
            .detail(format!("the join is {}", state.as_str()))
            .details(json!({ "state": state.as_str() }))
    }

    pub(crate) fn proof_expired() -> Refusal {
        Refusal::new(409, "PROOF_EXPIRED", "there is no such open proof: prove the code again")
    }

    pub(crate) fn pairing_conflict() -> Refusal {
        Refusal::new(409, "PAIRING_CONFLICT", "the cluster holds another pairing for this machine's key")
    }

    pub(crate) fn delivery_mismatch() -> Refusal {
        Refusal::new(409, "DELIVERY_MISMATCH", "what was acknowledged is not what was sent: fetch it again")
    }

    pub(crate) fn approval_refused(errors: Vec<FieldError>) -> Refusal {
        let reasons: Vec<String> = errors
            .iter()
            .map(|e| {
                if e.field.is_empty() { e.message.to_string() } else { format!("{}: {}", e.field, e.message) }
            })
            .collect();
        Refusal::new(409, "JOIN_APPROVAL_REFUSED", "the approval is refused")
            .errors(errors)
            .details(json!({ "reasons": reasons }))
    }

    pub(crate) fn codes_full() -> Refusal {
        Refusal::new(409, "JOIN_CODES_FULL", "128 join codes are in use")
            .detail("revoked and expired codes make room after 7 days")
    }

    pub(crate) fn rejected(reason: Option<&str>) -> Refusal {
        let refusal = Refusal::new(410, "JOIN_REJECTED", "the join was rejected");
        match reason {
            Some(reason) => refusal.detail(reason),
            None => refusal,
        }
    }

    pub(crate) fn expired() -> Refusal {
        Refusal::new(410, "JOIN_EXPIRED", "nobody approved the join in time")
    }

    pub(crate) fn too_large() -> Refusal {
        Refusal::new(413, "BODY_TOO_LARGE", "the request body is too large")
    }

    pub(crate) fn inventory_too_large() -> Refusal {
        Refusal::new(413, "INVENTORY_TOO_LARGE", "the inventory is over 128 KiB")
    }

    pub(crate) fn inventory_invalid(what: &str) -> Refusal {
        Refusal::new(422, "INVENTORY_INVALID", "the inventory is not usable").detail(what)
    }

    pub(crate) fn rate_limited(secs: u64) -> Refusal {
        Refusal::new(429, "RATE_LIMITED", "too many tries").retry_after(secs)
    }

    pub(crate) fn queue_full() -> Refusal {
        Refusal::new(503, "JOIN_QUEUE_FULL", "16 machines already wait: approve or reject some")
            .retry_after(60)
    }

    pub(crate) fn upgrade_running() -> Refusal {
        Refusal::new(503, "UPGRADE_RUNNING", "the cluster is being upgraded").retry_after(60)
    }

    pub(crate) fn release_busy() -> Refusal {
        Refusal::new(503, "RELEASE_BUSY", "the founder serves others now").retry_after(5)
    }

    pub(crate) fn unavailable() -> Refusal {
        Refusal::new(503, "UNAVAILABLE", "the founder cannot answer now")
    }

    pub(crate) fn unauthenticated() -> Refusal {
        Refusal::new(401, "UNAUTHENTICATED", "a bearer token is needed")
    }

    pub(crate) fn forbidden(permission: &str) -> Refusal {
        Refusal::new(403, "FORBIDDEN", "the token does not have the permission").detail(permission)
    }
}
