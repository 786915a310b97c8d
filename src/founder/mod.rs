//! The client of a founder's join listener: one method for each call of `stratum-join/1`, each answering with a value or a classified
//! [`Fault`].
//!
//! Touches the network. Everything received is capped, checked and cleaned here. It decides nothing: no retry, no change of pin, no file. Must
//! never send anything but `GET /v1/join` to a founder whose key it was not told to accept.

mod check;
mod explain;
mod look;
mod problem;
mod proofs;
mod release;
mod transport;

#[cfg(test)]
mod peer;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use check::{CheckReport, OurRelease};
pub use look::{Looked, Sized};

pub use self::proofs::Proofs;
pub(crate) use self::transport::resolver_words;
use self::transport::{Call, Channel, Limits, Mismatch, Reply};
use crate::identity::Identity;
use crate::join::event::{FounderProven, Nonce, Observed};
use crate::join::fault::{Code, Fault};
use crate::protocol::code::JoinCode;
use crate::protocol::encoding::{B64, Pin};
use crate::protocol::pake::random;
use crate::protocol::proof::JoinerProof;
use crate::protocol::url::Endpoint;
use crate::protocol::wire::{
    AckAnswer, AckRequest, ConfirmAnswer, ConfirmRequest, Hello, Intent, JoinId, LogAnswer, LogRequest,
    MAX_WAIT_SECS, PROTOCOL, ProgressAnswer, ProgressRequest, ProofAnswer, Registration, RegistrationRequest,
    SUITE,
};

const SMALL: usize = 8 * 1024;
const MEDIUM: usize = 64 * 1024;
const LARGE: usize = 1024 * 1024;
/// What a long-poll's head may take beyond its `wait` and the usual 10 s.
const POLL_GRACE: Duration = Duration::from_secs(5);

/// A value and the join CA that gave it: with two pins, which of them answered.
#[derive(Debug, Clone)]
pub struct Answered<T> {
    /// The checked answer.
    pub value: T,
    /// The key of the join CA on whose channel it came.
    pub ca: Pin,
}

/// A client for one identity. Cheap to share; connections are kept while endpoint and pins stay the same.
pub struct Client {
    identity: Arc<Identity>,
    proofs: Arc<Proofs>,
    channels: Mutex<Channels>,
    limits: Limits,
}

#[derive(Default)]
struct Channels {
    /// Proof, registration, long-poll, acknowledgement.
    main: Option<Arc<Channel>>,
    /// Progress and log.
    posts: Option<Arc<Channel>>,
    /// Files of a release.
    release: Option<Arc<Channel>>,
}

#[derive(Clone, Copy)]
enum Lane {
    Main,
    Posts,
}

// === impl Client ===

impl Client {
    /// Connects nothing yet.
    pub fn new(identity: Arc<Identity>) -> Self {
        Self::with(identity, Arc::default())
    }

    /// The same with what was computed before there was an identity: stretching the code takes longer than reading the hardware.
    pub fn with(identity: Arc<Identity>, proofs: Arc<Proofs>) -> Self {
        Self { identity, proofs, channels: Mutex::default(), limits: Limits::default() }
    }

    /// Begins to stretch the code on another thread, so that the first proof need not wait for it.
    pub fn warm(&self, code: &JoinCode) {
        self.proofs.warm(code);
    }

    /// Forgets the kept connections: the network changed. Calls in progress go on.
    pub fn disconnect(&self) {
        *self.channels.lock().unwrap_or_else(PoisonError::into_inner) = Channels::default();
    }

    /// `GET /v1/join`: who answers there, and does it speak our protocol. With `pins` any other join CA is `PIN_MISMATCH`; without, the
    /// CA is only observed. The answer is unauthenticated.
    pub async fn observe(&self, endpoint: &Endpoint, pins: &[Pin]) -> Result<Observed, Fault> {
        let channel = Channel::once(&self.identity, endpoint, pins, self.limits)?;
        let reply = channel.call(Call::get("/v1/join", Mismatch::UrlPin, SMALL).at("observe-send")).await?;
        let hello: Hello = reply.read()?;
        if hello.protocols.len() > 8 || hello.suites.len() > 8 {
            return Err(reply.invalid("more than 8 protocols"));
        }
        if !hello.protocols.iter().any(|p| p == PROTOCOL) || !hello.suites.iter().any(|s| s == SUITE) {
            let offered: Vec<&str> = hello.protocols.iter().map(|p| p.as_str()).collect();
            let mut fault = reply.fault(Code::ProtocolUnsupported, offered.join(", "));
            fault.from_founder = true;
            return Err(fault);
        }
        Ok(Observed { ca: reply.ca })
    }

    /// The first proof call: the founder must prove that it knows the code. `ca` is the key that was observed; another one is `TLS_FAILED`.
    /// When the confirmation does not fit: `CODE_NOT_PROVEN`, and nothing more was sent.
    pub async fn prove(
        &self,
        endpoint: &Endpoint,
        ca: Pin,
        code: &JoinCode,
        intent: Intent,
    ) -> Result<FounderProven, Fault> {
        let w = self.proofs.stretched(code).await?;
        let local = |error: &(dyn std::error::Error + 'static)| Fault::from_error(Code::Local, error);
        let proof = JoinerProof::start(&w, code.selector(), &ca, &self.identity.client_fp(), intent)
            .map_err(|error| local(&error))?;
        let channel = self.channel(Lane::Main, endpoint, &[ca])?;
        let call =
            Call::post("/v1/join/proofs", proof.request(), Mismatch::Observed, SMALL)?.at("proof-send");
        let reply = channel.call(call).await?;
        let answer: ProofAnswer = reply.read()?;
        let confirmed = proofs::confirm_founder(proof, &answer, endpoint)?;
        let proven = FounderProven {
            ca,
            proof_id: confirmed.proof_id(),
            resume_commit: confirmed.resume_commit(),
            fresh_nonce: Nonce(B64(*random().map_err(|error| local(&error))?)),
        };
        self.proofs.keep(confirmed, intent);
        Ok(proven)
    }

    /// The second proof call. `commit` goes with intent `register` and only with it. A proof that this process does not hold (any more) is
    /// `PROOF_EXPIRED`.
    pub async fn confirm(
        &self,
        endpoint: &Endpoint,
        ca: Pin,
        proof_id: B64<16>,
        commit: Option<B64<32>>,
    ) -> Result<ConfirmAnswer, Fault> {
        let (confirm, intent) = self.proofs.confirm(proof_id, commit.as_ref())?;
        let body = ConfirmRequest { confirm, commit };
        let path = format!("/v1/join/proofs/{}/confirm", proof_id.encode());
        let channel = self.channel(Lane::Main, endpoint, &[ca])?;
        let call = Call::post(&path, &body, Mismatch::Observed, SMALL)?.at("confirm-send").verified();
        let reply = channel.call(call).await?;
        let answer: ConfirmAnswer = reply.read()?;
        if answer.cluster_release.is_empty() {
            return Err(reply.invalid("clusterRelease"));
        }
        if intent == Intent::Register && (answer.join_id.is_none() || answer.founder_nonce.is_none()) {
            return Err(reply.invalid("joinId and founderNonce"));
        }
        Ok(answer)
    }

    /// `POST /v1/join/registrations`. `body` holds the proof and the pairing nonce. Another CA than `pins` is `FOUNDER_KEY_CHANGED`, here
    /// and in every call below.
    pub async fn register(
        &self,
        endpoint: &Endpoint,
        pins: &[Pin],
        body: &RegistrationRequest,
    ) -> Result<Answered<Registration>, Fault> {
        let call = Call::post("/v1/join/registrations", body, Mismatch::Pinned, MEDIUM)?.at("reveal-send");
        let reply = self.pinned(Lane::Main, endpoint, pins, call).await?;
        registration(reply, None, Delivery::Drop)
    }

    /// `PUT /v1/join/registrations/{joinId}`: the same without proof and nonce, known by the client key alone.
    pub async fn reregister(
        &self,
        endpoint: &Endpoint,
        pins: &[Pin],
        join_id: &JoinId,
        body: &RegistrationRequest,
    ) -> Result<Answered<Registration>, Fault> {
        let call =
            Call::with_body(Method::PUT, &of(join_id, ""), body, Mismatch::Pinned, MEDIUM)?.at("resume-send");
        let reply = self.pinned(Lane::Main, endpoint, pins, call).await?;
        registration(reply, Some(join_id), Delivery::Drop)
    }

    /// The long-poll. `wait` in seconds, at most 60; `state` is the one last seen, as the founder spells it. `skip_delivery` asks for an
    /// answer without the delivery. The bundle's bytes are those of the answer.
    pub async fn poll(
        &self,
        endpoint: &Endpoint,
        pins: &[Pin],
        join_id: &JoinId,
        wait: u64,
        state: &str,
        skip_delivery: bool,
    ) -> Result<Answered<Registration>, Fault> {
        let wait = wait.min(MAX_WAIT_SECS);
        let mut call = Call::get(&of(join_id, ""), Mismatch::Pinned, LARGE).at("poll-send");
        call.query.push(("wait", wait.to_string()));
        call.query.push(("state", state.to_owned()));
        if skip_delivery {
            call.query.push(("delivery", "0".to_owned()));
        }
        call.patience = Duration::from_secs(wait) + POLL_GRACE;
        let reply = self.pinned(Lane::Main, endpoint, pins, call).await?;
        registration(reply, Some(join_id), if skip_delivery { Delivery::Drop } else { Delivery::Take })
    }

    /// Acknowledges a delivery by its digest.
    pub async fn ack(
        &self,
        endpoint: &Endpoint,
        pins: &[Pin],
        join_id: &JoinId,
        body: &AckRequest,
    ) -> Result<Answered<AckAnswer>, Fault> {
        let call = Call::post(&of(join_id, "/ack"), body, Mismatch::Pinned, SMALL)?.at("ack-send");
        self.posted(Lane::Main, endpoint, pins, call).await
    }

    /// Reports a step.
    pub async fn progress(
        &self,
        endpoint: &Endpoint,
        pins: &[Pin],
        join_id: &JoinId,
        body: &ProgressRequest,
    ) -> Result<Answered<ProgressAnswer>, Fault> {
        let call = Call::post(&of(join_id, "/progress"), body, Mismatch::Pinned, SMALL)?.at("progress-send");
        self.posted(Lane::Posts, endpoint, pins, call).await
    }

    /// Sends log lines.
    pub async fn log(
        &self,
        endpoint: &Endpoint,
        pins: &[Pin],
        join_id: &JoinId,
        body: &LogRequest,
    ) -> Result<Answered<LogAnswer>, Fault> {
        let call = Call::post(&of(join_id, "/log"), body, Mismatch::Pinned, SMALL)?.at("log-send");
        self.posted(Lane::Posts, endpoint, pins, call).await
    }

    async fn posted<T: DeserializeOwned>(
        &self,
        lane: Lane,
        endpoint: &Endpoint,
        pins: &[Pin],
        call: Call,
    ) -> Result<Answered<T>, Fault> {
        let reply = self.pinned(lane, endpoint, pins, call).await?;
        Ok(Answered { value: reply.read()?, ca: reply.ca })
    }

    async fn pinned(
        &self,
        lane: Lane,
        endpoint: &Endpoint,
        pins: &[Pin],
        call: Call,
    ) -> Result<Reply, Fault> {
        if pins.is_empty() {
            return Err(Fault::new(Code::Local, "no key is pinned for this call"));
        }
        self.channel(lane, endpoint, pins)?.call(call.verified()).await
    }

    fn channel(&self, lane: Lane, endpoint: &Endpoint, pins: &[Pin]) -> Result<Arc<Channel>, Fault> {
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = match lane {
            Lane::Main => &mut channels.main,
            Lane::Posts => &mut channels.posts,
        };
        if let Some(channel) = slot.as_ref().filter(|channel| channel.fits(endpoint, pins)) {
            return Ok(Arc::clone(channel));
        }
        let channel = Arc::new(Channel::kept(&self.identity, endpoint, pins, self.limits)?);
        *slot = Some(Arc::clone(&channel));
        Ok(channel)
    }
}

/// Whether a delivery in the answer is wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Delivery {
    Take,
    Drop,
}

/// Checks what a registration's type cannot say.
fn registration(
    reply: Reply,
    asked: Option<&JoinId>,
    wanted: Delivery,
) -> Result<Answered<Registration>, Fault> {
    let mut value: Registration = reply.read()?;
    if value.state.is_empty() {
        return Err(reply.invalid("state"));
    }
    if asked.is_some_and(|asked| *asked != value.join_id) {
        return Err(reply.invalid("joinId of another registration"));
    }
    if value.next_pins.len() > 2 {
        return Err(reply.invalid("nextPins"));
    }
    // Outside of these states a delivery is not ours to use, whatever the answer holds.
    if wanted == Delivery::Drop || !matches!(value.state.as_str(), "delivering" | "installing") {
        value.delivery = None;
    } else if value.state == "delivering" {
        let whole = value.delivery.as_ref().is_some_and(|d| d.node_yaml.is_some() && d.bundle.is_some());
        if !whole {
            return Err(reply.invalid("delivery without nodeYaml or bundle"));
        }
    }
    Ok(Answered { value, ca: reply.ca })
}

fn of(join_id: &JoinId, rest: &str) -> String {
    format!("/v1/join/registrations/{join_id}{rest}")
}

/// The request body.
fn json(body: &impl Serialize) -> Result<Vec<u8>, Fault> {
    serde_json::to_vec(body).map_err(|error| Fault::from_error(Code::Local, &error))
}
