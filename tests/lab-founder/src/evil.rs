//! Scripted faults: what a founder may do to a joiner, as data. Seeded and counted, never random.
//!
//! Which layer does it: `core` ones change an answer and also work in simulations without a network; `wire` ones need a socket.

use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// One fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fault", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Evil {
    // --- connection ---
    /// Resets the connection at once. (A port that is closed: stop the founder.)
    RefuseConnect,
    /// Accepts, then never says a byte.
    AcceptThenSilence,
    /// Handshake and request are read; the connection is reset before it is handled.
    ResetBeforeAnswer,
    /// The request is handled; the connection is reset instead of the answer.
    ResetAfterRequest,
    /// The request is handled; the sending side is closed without an answer.
    HalfClose,
    /// The answer is sent one byte per second.
    OneBytePerSecond,
    /// The answer is cut after that many bytes, head included.
    CloseMidBody {
        /// Bytes sent.
        after: usize,
    },
    // --- TLS ---
    /// Speaks TLS 1.2 only.
    Tls12Only,
    /// Speaks HTTP without TLS.
    PlainHttp,
    /// Sends the leaf without the join CA.
    LeafOnly,
    /// Sends a third certificate.
    ThreeCerts,
    /// Sends the true join CA with a leaf that another CA signed.
    LeafFromOtherCa,
    /// Another cluster: another join CA and its leaf.
    OtherJoinCa,
    /// A leaf far over 4 KiB.
    HugeCertificate,
    /// Another leaf of the same CA: a failover, which is allowed.
    OtherLeafSameCa,
    // --- HTTP ---
    /// A body without end, with a length of 1 GiB.
    EndlessBody,
    /// Chunks without end.
    EndlessChunks,
    /// 10,000 headers.
    TenThousandHeaders,
    /// JSON nested 100,000 deep.
    DeepJson,
    /// An HTML page with status 200.
    HtmlPage,
    /// 302 to another place.
    Redirect,
    /// The answer says that it is gzip.
    GzipBody,
    /// The length header promises more than comes.
    WrongContentLength,
    /// 1xx answers without end.
    InformationalFlood,
    // --- proof ---
    /// Knows no code: every proof is made with a random one.
    WrongCode,
    /// Sends the joiner's own message back.
    ReflectMessage,
    /// A point that is not on the curve.
    OffCurveMessage,
    /// The identity point.
    LowOrderMessage,
    /// The confirmation of the session before.
    ConfirmOfOtherSession,
    /// A confirmation of zeros.
    SkipConfirm,
    /// `GET /v1/join` names only `stratum-join/<version>`.
    ProtocolVersionOnly {
        /// The version.
        version: u32,
    },
    // --- registration ---
    /// From the second confirmation of a key on, another joinId.
    OtherJoinIdOnRetry,
    /// From the second confirmation of a key on, another nF.
    OtherNonceOnRetry,
    /// Answers another pairing code.
    WrongPairingCode,
    /// The record is gone, as from a backup that was put back.
    ForgetRecord,
    /// Refuses with this problem.
    RefuseWith {
        /// HTTP status.
        status: u16,
        /// Problem code.
        code: String,
        /// `Retry-After`.
        retry_after: Option<u64>,
    },
    /// Refuses that many times with 503 `UNAVAILABLE`, then works.
    RefuseThenAccept {
        /// How often.
        n: u32,
    },
    // --- poll and delivery ---
    /// A state that nobody knows.
    UnknownState,
    /// A state that was left long ago.
    BackwardState,
    /// Holds the call for ever.
    NeverAnswer,
    /// Answers polls at once, whatever `wait` says.
    AnswerAtOnceFlood,
    /// Sends a delivery in a state that has none.
    DeliveryBeforeApproval,
    /// The node.yaml is no YAML document.
    BadNodeYaml,
    /// Texts full of escape sequences, bidi marks and false pairing codes.
    HostileText,
}

/// The call that a fault waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Step {
    /// Any call (for connection and TLS faults: the connection).
    Any,
    /// `GET /v1/join`.
    Discover,
    /// `POST /v1/join/proofs`.
    Proof,
    /// `POST /v1/join/proofs/{id}/confirm`.
    Confirm,
    /// `POST /v1/join/registrations`.
    Register,
    /// `PUT /v1/join/registrations/{id}`.
    Reregister,
    /// `GET /v1/join/registrations/{id}`.
    Poll,
    /// `POST .../ack`.
    Ack,
    /// `POST .../progress`.
    Progress,
    /// `POST .../log`.
    Log,
    /// `GET .../release/...`.
    Release,
}

/// A fault with its position.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Scripted {
    /// What.
    #[serde(flatten)]
    pub evil: Evil,
    /// At which call.
    pub at: Step,
    /// How many such calls pass first.
    #[serde(default)]
    pub skip: u32,
    /// How often; `None` for ever.
    #[serde(default)]
    pub times: Option<u32>,
}

/// Which part of the founder does a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layer {
    /// Before the handshake, or in it.
    Connection,
    /// Instead of handling the request.
    Request,
    /// The bytes of an answer.
    Bytes,
    /// Instead of the answer, or in how it is made.
    Before,
    /// The finished answer.
    After,
}

/// The faults that still wait.
#[derive(Default)]
pub(crate) struct EvilPlan(Mutex<Vec<Scripted>>);

// === impl Evil ===

impl Evil {
    /// Once, at this call.
    pub fn once(self, at: Step) -> Scripted {
        Scripted { evil: self, at, skip: 0, times: Some(1) }
    }

    /// That many times, at this call.
    pub fn times(self, at: Step, n: u32) -> Scripted {
        Scripted { evil: self, at, skip: 0, times: Some(n) }
    }

    /// For ever, at this call.
    pub fn always(self, at: Step) -> Scripted {
        Scripted { evil: self, at, skip: 0, times: None }
    }

    pub(crate) fn layer(&self) -> Layer {
        match self {
            Evil::RefuseConnect
            | Evil::AcceptThenSilence
            | Evil::Tls12Only
            | Evil::PlainHttp
            | Evil::LeafOnly
            | Evil::ThreeCerts
            | Evil::LeafFromOtherCa
            | Evil::OtherJoinCa
            | Evil::HugeCertificate
            | Evil::OtherLeafSameCa => Layer::Connection,
            Evil::ResetBeforeAnswer | Evil::NeverAnswer => Layer::Request,
            Evil::ResetAfterRequest
            | Evil::HalfClose
            | Evil::OneBytePerSecond
            | Evil::CloseMidBody { .. }
            | Evil::EndlessBody
            | Evil::EndlessChunks
            | Evil::TenThousandHeaders
            | Evil::DeepJson
            | Evil::HtmlPage
            | Evil::Redirect
            | Evil::GzipBody
            | Evil::WrongContentLength
            | Evil::InformationalFlood => Layer::Bytes,
            Evil::WrongCode
            | Evil::ProtocolVersionOnly { .. }
            | Evil::ForgetRecord
            | Evil::RefuseWith { .. }
            | Evil::RefuseThenAccept { .. } => Layer::Before,
            _ => Layer::After,
        }
    }
}

// === impl Step ===

impl Step {
    /// The call that a request is.
    pub fn of(method: &str, path: &str) -> Option<Step> {
        let rest = path.strip_prefix("/v1/join").filter(|rest| rest.is_empty() || rest.starts_with('/'))?;
        let parts: Vec<&str> = rest.split('/').skip(1).collect();
        Some(match (method, parts.as_slice()) {
            ("GET", []) => Step::Discover,
            ("POST", ["proofs"]) => Step::Proof,
            ("POST", ["proofs", _, "confirm"]) => Step::Confirm,
            ("POST", ["registrations"]) => Step::Register,
            ("PUT", ["registrations", _]) => Step::Reregister,
            ("GET", ["registrations", _]) => Step::Poll,
            ("POST", ["registrations", _, "ack"]) => Step::Ack,
            ("POST", ["registrations", _, "progress"]) => Step::Progress,
            ("POST", ["registrations", _, "log"]) => Step::Log,
            ("GET", ["registrations", _, "release", ..]) => Step::Release,
            _ => return None,
        })
    }
}

// === impl EvilPlan ===

impl EvilPlan {
    pub(crate) fn new(script: Vec<Scripted>) -> Self {
        Self(Mutex::new(script))
    }

    pub(crate) fn set(&self, script: Vec<Scripted>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = script;
    }

    pub(crate) fn add(&self, scripted: Scripted) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(scripted);
    }

    pub(crate) fn get(&self) -> Vec<Scripted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The first fault of this layer for this call, counted down.
    pub(crate) fn take(&self, step: Option<Step>, layer: Layer) -> Option<Evil> {
        self.take_if(step, layer, |_| true)
    }

    /// The same among those that apply; the others wait on.
    pub(crate) fn take_if(
        &self,
        step: Option<Step>,
        layer: Layer,
        applies: impl Fn(&Evil) -> bool,
    ) -> Option<Evil> {
        let mut script = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |s: &Scripted| {
            s.evil.layer() == layer && (s.at == Step::Any || Some(s.at) == step) && applies(&s.evil)
        };
        for at in 0..script.len() {
            let scripted = &mut script[at];
            if !fits(scripted) {
                continue;
            }
            if scripted.skip > 0 {
                scripted.skip -= 1;
                continue;
            }
            let evil = scripted.evil.clone();
            let left = match (&evil, scripted.times) {
                (Evil::RefuseThenAccept { n }, None) => Some(*n),
                (_, times) => times,
            };
            scripted.times = left.map(|n| n.saturating_sub(1));
            if left.is_some_and(|n| n <= 1) {
                script.remove(at);
            }
            return Some(evil);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_waits_for_its_call_and_counts_down() {
        let plan = EvilPlan::new(vec![Scripted { skip: 1, ..Evil::WrongCode.times(Step::Proof, 2) }]);
        let take =
            |step| plan.take(Some(step), if step == Step::Proof { Layer::Before } else { Layer::After });
        assert_eq!(take(Step::Poll), None);
        assert_eq!(take(Step::Proof), None, "the first one passes");
        assert_eq!(take(Step::Proof), Some(Evil::WrongCode));
        assert_eq!(take(Step::Proof), Some(Evil::WrongCode));
        assert_eq!(take(Step::Proof), None);
        plan.add(Evil::RefuseThenAccept { n: 2 }.always(Step::Proof));
        assert!(take(Step::Proof).is_some());
        assert!(take(Step::Proof).is_some());
        assert!(take(Step::Proof).is_none());
    }

    #[test]
    fn a_script_reads_back_from_json() {
        let script =
            vec![Evil::CloseMidBody { after: 9 }.once(Step::Poll), Evil::HostileText.always(Step::Any)];
        let text = serde_json::to_string(&script).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Scripted>>(&text).unwrap(), script);
    }

    #[test]
    fn every_call_of_the_join_listener_has_its_step() {
        assert_eq!(Step::of("GET", "/v1/join"), Some(Step::Discover));
        assert_eq!(Step::of("GET", "/v1/join/registrations/nj-1"), Some(Step::Poll));
        assert_eq!(Step::of("PUT", "/v1/join/registrations/nj-1"), Some(Step::Reregister));
        assert_eq!(Step::of("POST", "/v1/join/proofs/x/confirm"), Some(Step::Confirm));
        assert_eq!(Step::of("GET", "/v1/joint"), None);
    }
}
