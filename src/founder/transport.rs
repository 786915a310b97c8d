//! One HTTP call over TLS 1.3, capped and timed on every side.
//!
//! Touches the network. Never follows a redirect, uses a proxy, keeps a cookie, resumes a session or decodes a content encoding.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, RANGE, RETRY_AFTER};
use reqwest::{Method, Response, StatusCode, Url, redirect};
use rustls::client::Resumption;
use rustls::sign::SingleCertAndKey;
use rustls::version::TLS13;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::{explain, json, problem};
use crate::faults::{When, point};
use crate::identity::Identity;
use crate::identity::verifier::FounderVerifier;
use crate::join::fault::{Code, Fault};
use crate::protocol::encoding::Pin;
use crate::protocol::url::{Endpoint, Host};

/// SNI and `Host`: a constant, so that no name leaks and none is trusted.
pub(super) const NAME: &str = "stratum-join.invalid";
const MAX_HEADERS: usize = 32;
const MAX_HEAD: usize = 16 * 1024;
const MAX_PROBLEM: usize = 16 * 1024;

/// How long anything may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Name, TCP and TLS together.
    pub(super) connect: Duration,
    /// The head of an answer, once there is a connection.
    pub(super) head: Duration,
    /// Between two pieces of a body.
    pub(super) silence: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(15),
            head: Duration::from_secs(10),
            silence: Duration::from_secs(20),
        }
    }
}

/// What another join CA than the accepted ones means for this call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mismatch {
    /// The pins came with the join URL.
    UrlPin,
    /// The pin was observed a moment ago.
    Observed,
    /// The pin was proved.
    Pinned,
}

/// One request.
pub(super) struct Call {
    method: Method,
    path: String,
    pub(super) query: Vec<(&'static str, String)>,
    body: Option<Vec<u8>>,
    /// How much longer than usual the head of the answer may take: a long-poll's wait and a grace.
    pub(super) patience: Duration,
    /// Largest good body in bytes.
    cap: usize,
    mismatch: Mismatch,
    verified: bool,
    point: Option<&'static str>,
}

/// A whole answer with a good status.
pub(super) struct Reply {
    pub(super) ca: Pin,
    status: StatusCode,
    body: Vec<u8>,
    verified: bool,
    what: String,
    kind: String,
}

/// An HTTP client for one endpoint and one set of pins.
pub(super) struct Channel {
    endpoint: Endpoint,
    pins: Vec<Pin>,
    http: reqwest::Client,
    verifier: Arc<FounderVerifier>,
    dialled: Arc<Dialled>,
    limits: Limits,
}

/// When the last connect attempt began and resolved, to tell a slow connection from a slow answer.
#[derive(Default)]
pub(super) struct Dialled(Mutex<(Option<Instant>, Option<Instant>)>);

/// Resolves our one name to the endpoint, anew at each connect attempt.
struct Dialler {
    endpoint: Endpoint,
    dialled: Arc<Dialled>,
}

/// A name that gives no address.
#[derive(Debug, thiserror::Error)]
#[error("{host} does not resolve: {why}")]
pub(super) struct Unresolved {
    pub(super) host: String,
    pub(super) why: String,
}

// === impl Call ===

impl Call {
    pub(super) fn get(path: &str, mismatch: Mismatch, cap: usize) -> Self {
        Self {
            method: Method::GET,
            path: path.to_owned(),
            query: Vec::new(),
            body: None,
            patience: Duration::ZERO,
            cap,
            mismatch,
            verified: false,
            point: None,
        }
    }

    pub(super) fn post(
        path: &str,
        body: &impl Serialize,
        mismatch: Mismatch,
        cap: usize,
    ) -> Result<Self, Fault> {
        Self::with_body(Method::POST, path, body, mismatch, cap)
    }

    pub(super) fn with_body(
        method: Method,
        path: &str,
        body: &impl Serialize,
        mismatch: Mismatch,
        cap: usize,
    ) -> Result<Self, Fault> {
        Ok(Self { method, body: Some(json(body)?), ..Self::get(path, mismatch, cap) })
    }

    /// Names the crash point.
    pub(super) fn at(mut self, point: &'static str) -> Self {
        self.point = Some(point);
        self
    }

    /// The channel is proven: what comes over it is the founder's word.
    pub(super) fn verified(mut self) -> Self {
        self.verified = true;
        self
    }

    fn crash(&self, when: When) {
        if let Some(name) = self.point {
            point(name, when);
        }
    }

    fn what(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    fn url(&self) -> Result<Url, Fault> {
        let mut url = Url::parse(&format!("https://{NAME}{}", self.path))
            .map_err(|error| Fault::from_error(Code::Local, &error))?;
        if !self.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&self.query);
        }
        Ok(url)
    }
}

// === impl Channel ===

impl Channel {
    /// For one call: the connection is closed behind it.
    pub(super) fn once(
        identity: &Identity,
        endpoint: &Endpoint,
        pins: &[Pin],
        limits: Limits,
    ) -> Result<Self, Fault> {
        Self::build(identity, endpoint, pins, limits, 0)
    }

    /// Keeps one idle connection.
    pub(super) fn kept(
        identity: &Identity,
        endpoint: &Endpoint,
        pins: &[Pin],
        limits: Limits,
    ) -> Result<Self, Fault> {
        Self::build(identity, endpoint, pins, limits, 1)
    }

    fn build(
        identity: &Identity,
        endpoint: &Endpoint,
        pins: &[Pin],
        limits: Limits,
        idle: usize,
    ) -> Result<Self, Fault> {
        let verifier = FounderVerifier::new(pins.to_vec());
        let dialled = Arc::new(Dialled::default());
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls(identity, Arc::clone(&verifier))?)
            .dns_resolver(Dialler { endpoint: endpoint.clone(), dialled: Arc::clone(&dialled) })
            .https_only(true)
            .http1_only()
            .redirect(redirect::Policy::none())
            .no_proxy()
            .referer(false)
            .tls_info(true)
            .connect_timeout(limits.connect)
            .pool_max_idle_per_host(idle)
            .pool_idle_timeout(Duration::from_secs(90))
            .build()
            .map_err(|error| Fault::from_error(Code::Local, &error))?;
        Ok(Self { endpoint: endpoint.clone(), pins: pins.to_vec(), http, verifier, dialled, limits })
    }

    /// The join CA of the last handshake that was good.
    pub(super) fn ca(&self) -> Option<Pin> {
        self.verifier.latest()
    }

    pub(super) fn fits(&self, endpoint: &Endpoint, pins: &[Pin]) -> bool {
        self.endpoint == *endpoint && self.pins == pins
    }

    /// Makes the call. `Ok` is a whole body with status 200 or 201; everything else is a fault.
    pub(super) async fn call(&self, call: Call) -> Result<Reply, Fault> {
        call.crash(When::Before);
        let response = self.send(&call).await?;
        call.crash(When::During);
        let reply = self.receive(&call, response).await?;
        call.crash(When::After);
        Ok(reply)
    }

    /// Sends a `GET` whose answer the caller reads, times and judges.
    pub(super) async fn open(&self, call: &Call, range: Option<(u64, u64)>) -> Result<Response, Fault> {
        let mut request = self.http.get(call.url()?).header(ACCEPT_ENCODING, "identity");
        if let Some((first, last)) = range {
            request = request.header(RANGE, format!("bytes={first}-{last}"));
        }
        request.send().await.map_err(|error| self.failed(&error, call))
    }

    /// Sends, and once more when a kept connection turns out to be dead: the founder may have closed it just now, and every call may be
    /// repeated.
    async fn send(&self, call: &Call) -> Result<Response, Fault> {
        let started = Instant::now();
        let error = match self.send_once(call, started).await? {
            Ok(response) => return Ok(response),
            Err(error) => error,
        };
        let kept = self.dialled.started().is_none_or(|dialled| dialled < started);
        if !kept || !explain::is_broken(&error) {
            return Err(self.failed(&error, call));
        }
        self.send_once(call, Instant::now()).await?.map_err(|error| self.failed(&error, call))
    }

    async fn send_once(
        &self,
        call: &Call,
        started: Instant,
    ) -> Result<Result<Response, reqwest::Error>, Fault> {
        let mut request = self.http.request(call.method.clone(), call.url()?);
        if let Some(body) = &call.body {
            request = request.header(CONTENT_TYPE, "application/json").body(body.clone());
        }
        let head = self.limits.head + call.patience;
        let mut sending = std::pin::pin!(request.send());
        loop {
            let deadline = self.deadline(started, head);
            tokio::select! {
                sent = &mut sending => return Ok(sent),
                () = sleep_until(deadline) => {
                    if self.deadline(started, head) <= deadline {
                        return Err(explain::no_answer(&self.endpoint, &call.what(), head));
                    }
                }
            }
        }
    }

    /// When the head of an answer is overdue for a call begun at `started`. Dialling has its own end, so that a slow line does not look like
    /// a silent founder.
    fn deadline(&self, started: Instant, head: Duration) -> Instant {
        match self.dialled.started().filter(|dialled| *dialled >= started) {
            None => started + head,
            Some(dialled) => match self.verifier.verified_at().filter(|verified| *verified >= dialled) {
                Some(verified) => verified + head,
                None => dialled + self.limits.connect + head,
            },
        }
    }

    async fn receive(&self, call: &Call, response: Response) -> Result<Reply, Fault> {
        let status = response.status();
        let ca = response
            .extensions()
            .get::<reqwest::tls::TlsInfo>()
            .and_then(|info| info.peer_certificate())
            .and_then(|leaf| self.verifier.ca_of(leaf))
            .ok_or_else(|| Fault::new(Code::TlsFailed, "the library did not tell who answered"))?;
        let headers = response.headers().clone();
        let mut reply = Reply {
            ca,
            status,
            body: Vec::new(),
            verified: call.verified,
            what: call.what(),
            kind: text_of(&headers, CONTENT_TYPE.as_str()).to_ascii_lowercase(),
        };
        let size: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
        if headers.len() > MAX_HEADERS || size > MAX_HEAD {
            return Err(reply.invalid("too many headers"));
        }
        let encoding = text_of(&headers, CONTENT_ENCODING.as_str());
        if !encoding.is_empty() && !encoding.eq_ignore_ascii_case("identity") {
            return Err(reply.invalid("a compressed body"));
        }
        if status.is_redirection() {
            return Err(reply.invalid("a redirect to somewhere else"));
        }
        let good = matches!(status, StatusCode::OK | StatusCode::CREATED);
        if !good && status.as_u16() < 400 {
            return Err(reply.invalid(&format!("status {}", status.as_u16())));
        }
        let cap = if good { call.cap } else { MAX_PROBLEM };
        reply.body = self.body(call, response, cap).await.map_err(|fault| reply.mark(fault))?;
        if good {
            return Ok(reply);
        }
        let retry_after = text_of(&headers, RETRY_AFTER.as_str()).parse().ok();
        Err(reply.mark(problem::fault(status, &reply.kind, &reply.body, &reply.what, retry_after)))
    }

    fn failed(&self, error: &reqwest::Error, call: &Call) -> Fault {
        let resolving = !self.dialled.has_address();
        explain::failed(error, &self.endpoint, &call.what(), call.mismatch, resolving, self.limits.connect)
    }

    /// The body, counted while it streams. No piece may take longer than `silence`, and all of it no longer than that and a second for
    /// each 16 KiB allowed, so that a drip cannot hold us for hours.
    async fn body(&self, call: &Call, mut response: Response, cap: usize) -> Result<Vec<u8>, Fault> {
        let silence = self.limits.silence;
        let whole =
            Instant::now() + silence + Duration::from_secs(u64::try_from(cap / (16 * 1024)).unwrap_or(0));
        let slow = |why: String| explain::slow(&self.endpoint, &call.what(), &why);
        let mut body = Vec::new();
        loop {
            let piece = timeout_at(whole, timeout(silence, response.chunk())).await;
            let piece = piece
                .map_err(|_| slow("the answer comes too slowly".to_owned()))?
                .map_err(|_| slow(format!("the answer stopped in the middle for {} s", silence.as_secs())))?;
            let piece = piece.map_err(|error| self.failed(&error, call))?;
            let Some(piece) = piece else { return Ok(body) };
            if body.len() + piece.len() > cap {
                let detail = format!("more than {cap} bytes");
                return Err(Fault::new(Code::ResponseTooLarge, detail));
            }
            body.extend_from_slice(&piece);
        }
    }
}

// === impl Reply ===

impl Reply {
    /// The body as `T`. The reason for a refusal never repeats what the body holds: it may be a secret, or made to look like our own words.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, Fault> {
        serde_json::from_slice(&self.body).map_err(|error| {
            let html = self.kind.starts_with("text/html") || self.body.trim_ascii_start().starts_with(b"<");
            let why = if html {
                "an HTML page: a captive portal or a proxy?".to_owned()
            } else {
                explain::json(&error)
            };
            self.invalid(&why)
        })
    }

    /// `RESPONSE_INVALID` in our own words.
    pub(super) fn invalid(&self, why: &str) -> Fault {
        self.fault(Code::ResponseInvalid, why)
    }

    /// Any fault found in this answer.
    pub(super) fn fault(&self, code: Code, why: impl AsRef<str>) -> Fault {
        let mut fault = Fault::new(code, why.as_ref());
        fault.chain = console::text::Safe::clean(format!("{}: {}", self.what, why.as_ref()));
        self.mark(fault)
    }

    fn mark(&self, mut fault: Fault) -> Fault {
        fault.http = Some(self.status.as_u16());
        fault.verified = self.verified;
        fault
    }
}

// === impl Dialled ===

impl Dialled {
    fn set(&self, started: Instant, resolved: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = (Some(started), resolved);
    }

    /// Whether the last connect attempt got as far as having an address.
    pub(super) fn has_address(&self) -> bool {
        matches!(*self.0.lock().unwrap_or_else(PoisonError::into_inner), (Some(_), Some(_)))
    }

    /// When the last connect attempt began.
    fn started(&self) -> Option<Instant> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0
    }
}

// === impl Dialler ===

impl Resolve for Dialler {
    fn resolve(&self, _name: Name) -> Resolving {
        let (endpoint, dialled) = (self.endpoint.clone(), Arc::clone(&self.dialled));
        Box::pin(async move {
            let started = Instant::now();
            dialled.set(started, None);
            let addresses: Vec<SocketAddr> = match &endpoint.host {
                Host::Ip(address) => vec![SocketAddr::new(*address, endpoint.port)],
                Host::Name(name) => {
                    let unresolved = |why: String| Unresolved { host: name.clone(), why };
                    let found = tokio::net::lookup_host((name.as_str(), endpoint.port)).await;
                    let found: Vec<SocketAddr> =
                        found.map_err(|error| unresolved(resolver_words(&error)))?.collect();
                    if found.is_empty() {
                        return Err(unresolved("it has no address".to_owned()).into());
                    }
                    found
                }
            };
            dialled.set(started, Some(Instant::now()));
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// TLS 1.3 only, our key, their key, nothing kept between connections.
pub(super) fn tls(
    identity: &Identity,
    verifier: Arc<FounderVerifier>,
) -> Result<rustls::ClientConfig, Fault> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| Fault::from_error(Code::Local, &error))?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(identity.certified_key())));
    config.resumption = Resumption::disabled();
    config.enable_early_data = false;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn text_of<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().trim()
}

/// The resolver's error in a technician's words.
pub(crate) fn resolver_words(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.strip_prefix("failed to lookup address information: ").unwrap_or(&text);
    match text {
        "Name or service not known" => "no such name".to_owned(),
        "No address associated with hostname" => "it has no address".to_owned(),
        "Temporary failure in name resolution" => "no name server answers".to_owned(),
        other => other.to_lowercase(),
    }
}
