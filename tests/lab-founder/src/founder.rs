//! The founder without a network: every call is one synchronous function of the store and of `now`.
//!
//! Touches its store and the random source. Reads no clock, waits for nothing, starts nothing. What is answered is durable.
//! Open proofs are kept in memory only: after a restart the joiner proves again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use stratum_join::protocol::encoding::Pin;
use tokio::sync::watch;

use crate::config::{Cluster, Config, Permission, Supply, Token};
use crate::entropy::{Entropy, NoEntropy, Seed};
use crate::evil::{EvilPlan, Layer, Scripted, Step};
use crate::http::{Handled, Peer, Refusal, Request, Response, Stop, refuse};
use crate::join_api::proof::{OpenProofs, Rates};
use crate::join_api::release_file::Transfers;
use crate::model::{Member, MemberState, Switches};
use crate::store::{Place, Store, StoreError, Tx};
use crate::tls::{CertError, JoinCa};

/// The founder's core. Shared by the servers, the tests and the simulations.
pub struct Founder {
    pub(crate) store: Store,
    pub(crate) config: Config,
    pub(crate) entropy: Entropy,
    pub(crate) join_ca: JoinCa,
    pub(crate) pin: Pin,
    pub(crate) cluster_ca: JoinCa,
    pub(crate) secrets: ClusterSecrets,
    pub(crate) proofs: Mutex<OpenProofs>,
    pub(crate) transfers: Arc<Transfers>,
    pub(crate) rates: Mutex<Rates>,
    pub(crate) evil: EvilPlan,
    pub(crate) last_confirm: Mutex<Option<String>>,
    pub(crate) confirmed_keys: Mutex<HashMap<[u8; 32], u32>>,
    advertise: RwLock<Option<String>>,
    tokens: Vec<Token>,
    received: Mutex<Vec<Received>>,
    changed: watch::Sender<u64>,
}

/// A request as it came in, for tests that ask what a founder (or an impostor) was told.
#[derive(Debug, Clone)]
pub struct Received {
    /// When, in milliseconds since 1970.
    pub at_ms: i64,
    /// Who.
    pub peer: Peer,
    /// `GET`, `POST`, `PUT`.
    pub method: String,
    /// Path.
    pub path: String,
    /// Query.
    pub query: Option<String>,
    /// Body.
    pub body: Vec<u8>,
}

/// The cluster's shared secrets, made at the first start. Secret.
#[derive(Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct ClusterSecrets {
    pub(crate) cluster_id: String,
    pub(crate) postgres_password: String,
    pub(crate) admin_password: String,
    pub(crate) openbao_token: String,
    pub(crate) axdnsd_key: String,
    pub(crate) unseal_key: String,
}

/// The founder could not start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Its database.
    #[error("cannot open the founder's state")]
    Store(#[from] StoreError),
    /// Its keys.
    #[error("cannot make or read the founder's keys")]
    Cert(#[from] CertError),
    /// No randomness.
    #[error(transparent)]
    Entropy(#[from] NoEntropy),
}

/// Requests kept for [`Founder::received`].
const KEPT_REQUESTS: usize = 4096;
/// The request id of every 404 of the join listener: nothing in that answer may differ.
const NO_REQUEST_ID: &str = "req-00000000";

// === impl Founder ===

impl Founder {
    /// Opens (or makes) the state. The same place opens again with the same keys, codes, registrations and members.
    pub fn open(place: &Place, config: Config, seed: Seed) -> Result<Self, OpenError> {
        let store = Store::open(place)?;
        let epoch = store.tx(|tx| tx.next("starts"))?;
        let entropy = Entropy::new(seed, epoch);
        let join_ca = match &config.ca {
            Some(ca) => ca.clone(),
            None => kept_ca(&store, "joinCa", "Stratum lab join CA")?,
        };
        let cluster_ca = kept_ca(&store, "clusterCa", "Stratum lab cluster CA")?;
        let secrets = kept_secrets(&store, &entropy)?;
        let tokens = kept_tokens(&store, &entropy, &config)?;
        first_members(&store, &config.cluster)?;
        Ok(Self {
            pin: join_ca.pin()?,
            join_ca,
            cluster_ca,
            secrets,
            tokens,
            proofs: Mutex::new(OpenProofs::default()),
            transfers: Arc::default(),
            rates: Mutex::new(Rates::default()),
            evil: EvilPlan::new(config.evil.clone()),
            last_confirm: Mutex::new(None),
            confirmed_keys: Mutex::new(HashMap::new()),
            advertise: RwLock::new(config.advertise.clone()),
            received: Mutex::new(Vec::new()),
            changed: watch::Sender::new(0),
            store,
            config,
            entropy,
        })
    }

    /// One call on the join listener. Never waits: a long-poll that found nothing new says so in [`Response::hold`].
    pub fn dispatch(&self, now: i64, peer: Peer, request: &Request) -> Response {
        self.record(now, peer, request);
        let step = Step::of(&request.method, &request.path);
        let evil = self.evil.take(step, Layer::Before);
        if let Some(evil) = &evil
            && let Some(response) = crate::evil_core::before(self, evil, &peer, request)
        {
            return response;
        }
        let mut response = self.answer(now, peer, request, evil.as_ref());
        crate::evil_core::after(self, step, &peer, request, &mut response);
        response
    }

    /// Asks a held poll again, without counting it as a new request. `last` when its wait is over: then it is answered.
    pub fn ask_again(&self, now: i64, peer: Peer, request: &Request, last: bool) -> Response {
        let mut response = self.answer(now, peer, request, None);
        if last {
            response.hold = None;
        }
        crate::evil_core::after(self, Some(Step::Poll), &peer, request, &mut response);
        response
    }

    /// One call on the admin listener.
    pub fn dispatch_admin(&self, now: i64, request: &Request) -> Response {
        self.advance(now);
        let response = self.finish(crate::admin::route(self, now, request));
        if request.method != "GET" {
            self.advance(now);
            self.touch();
        }
        response
    }

    /// What happens by itself with time: expiry, removal, stalled flags, the queue. Called before and after every call, and by
    /// a simulation or a server whenever time passed.
    pub fn advance(&self, now: i64) {
        match self.store.tx(|tx| crate::scheduler::advance(self, tx, now)) {
            Ok(true) => self.touch(),
            Ok(false) => {}
            Err(Stop::Broken(e)) => tracing_line("the queue could not be moved", &e),
            Err(Stop::Refused(_)) => {}
        }
    }

    /// Wakes when something changed that a poll may wait for.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The pin of the join CA.
    pub fn ca_pin(&self) -> Pin {
        self.pin
    }

    /// The join CA, to start another founder of the same cluster.
    pub fn join_ca(&self) -> JoinCa {
        self.join_ca.clone()
    }

    /// The first admin token.
    pub fn token(&self) -> &str {
        self.tokens.first().map_or("", |t| &t.secret)
    }

    /// Every request since the start, at most 4,096, oldest first. Empty unless [`Config::record`].
    pub fn received(&self) -> Vec<Received> {
        lock(&self.received).clone()
    }

    /// Replaces the scripted faults.
    pub fn set_evil(&self, script: Vec<Scripted>) {
        self.evil.set(script);
        self.touch();
    }

    /// Adds a scripted fault.
    pub fn add_evil(&self, scripted: Scripted) {
        self.evil.add(scripted);
    }

    /// The scripted faults that still wait.
    pub fn evil(&self) -> Vec<Scripted> {
        self.evil.get()
    }

    /// The lab's switches.
    pub fn switches(&self) -> Result<Switches, StoreError> {
        self.store.tx(|tx| Ok(tx.meta("switches")?.unwrap_or_default()))
    }

    /// Sets the lab's switches; kept across restarts.
    pub fn set_switches(&self, now: i64, switches: &Switches) -> Result<(), StoreError> {
        self.store.tx(|tx| tx.set_meta("switches", switches))?;
        self.advance(now);
        self.touch();
        Ok(())
    }

    /// Host and port for join URLs.
    pub fn set_advertise(&self, host_and_port: &str) {
        *self.advertise.write().unwrap_or_else(PoisonError::into_inner) = Some(host_and_port.to_owned());
    }

    /// Host and port for join URLs.
    pub fn advertise(&self) -> String {
        let advertise = self.advertise.read().unwrap_or_else(PoisonError::into_inner).clone();
        advertise.unwrap_or_else(|| "127.0.0.1:9444".to_owned())
    }

    /// The release facts that hold now.
    pub(crate) fn release(&self, tx: &Tx<'_>) -> Result<ReleaseFacts, StoreError> {
        let switches: Switches = tx.meta("switches")?.unwrap_or_default();
        let cluster = &self.config.cluster;
        Ok(ReleaseFacts {
            release: switches.release.unwrap_or_else(|| cluster.release.clone()),
            min_upgrade_from: switches.min_upgrade_from.unwrap_or_else(|| cluster.min_upgrade_from.clone()),
            iso: switches.iso.unwrap_or_else(|| cluster.iso.clone()),
            supply: self.config.supply.clone(),
        })
    }

    /// Refuses unless the token has the permission.
    pub(crate) fn permit(&self, request: &Request, permission: Permission) -> Result<(), Refusal> {
        use subtle::ConstantTimeEq;
        let given = request.bearer.as_deref().unwrap_or_default();
        let found = self.tokens.iter().find(|t| t.secret.as_bytes().ct_eq(given.as_bytes()).into());
        let token = found.ok_or_else(refuse::unauthenticated)?;
        if token.permissions.contains(&permission) {
            Ok(())
        } else {
            Err(refuse::forbidden(permission.name()))
        }
    }

    /// A problem with a request id.
    pub(crate) fn problem(&self, refusal: Refusal) -> Response {
        let id = match refusal.code {
            "JOIN_NOT_FOUND" => NO_REQUEST_ID.to_owned(),
            _ => self.entropy.id("req-").unwrap_or_else(|_| NO_REQUEST_ID.to_owned()),
        };
        refusal.into_response(&id)
    }

    pub(crate) fn touch(&self) {
        self.changed.send_modify(|n| *n += 1);
    }

    fn answer(&self, now: i64, peer: Peer, request: &Request, evil: Option<&crate::evil::Evil>) -> Response {
        self.advance(now);
        let response = self.finish(crate::join_api::route(self, now, peer, request, evil));
        if request.method != "GET" {
            self.advance(now);
            self.touch();
        }
        response
    }

    fn finish(&self, handled: Handled) -> Response {
        match handled {
            Ok(response) => response,
            Err(Stop::Refused(refusal)) => self.problem(refusal),
            Err(Stop::Broken(e)) => {
                tracing_line("a call failed", &e);
                self.problem(refuse::unavailable())
            }
        }
    }

    fn record(&self, now: i64, peer: Peer, request: &Request) {
        if !self.config.record {
            return;
        }
        let mut received = lock(&self.received);
        if received.len() == KEPT_REQUESTS {
            received.remove(0);
        }
        received.push(Received {
            at_ms: now,
            peer,
            method: request.method.clone(),
            path: request.path.clone(),
            query: request.query.clone(),
            body: request.body.clone(),
        });
    }
}

/// The cluster's release as registrations see it.
pub(crate) struct ReleaseFacts {
    pub(crate) release: String,
    pub(crate) min_upgrade_from: String,
    pub(crate) iso: String,
    pub(crate) supply: Supply,
}

/// A lock whose holder panicked is still good: what it guards is changed in single assignments.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The error chain on one line of stderr: the lab founder's only log.
pub(crate) fn tracing_line(what: &str, error: &dyn std::error::Error) {
    let mut line = format!("lab-founder: {what}: {error}");
    let mut source = error.source();
    while let Some(e) = source {
        line.push_str(&format!(": {e}"));
        source = e.source();
    }
    eprintln!("{}", console::text::Safe::<1024>::clean(line));
}

fn kept_ca(store: &Store, key: &str, name: &str) -> Result<JoinCa, OpenError> {
    let kept = store.tx(|tx| tx.meta::<(Vec<u8>, String)>(key))?;
    if let Some((cert, key_pem)) = kept {
        return Ok(JoinCa::from_parts(name, cert, key_pem)?);
    }
    let ca = JoinCa::generate(name)?;
    let (_, cert, key_pem) = ca.parts();
    store.tx(|tx| tx.set_meta(key, &(cert, key_pem)))?;
    Ok(ca)
}

fn kept_secrets(store: &Store, entropy: &Entropy) -> Result<ClusterSecrets, OpenError> {
    if let Some(secrets) = store.tx(|tx| tx.meta("secrets"))? {
        return Ok(secrets);
    }
    let secrets = ClusterSecrets {
        cluster_id: entropy.id("cl-")?,
        postgres_password: entropy.hex64()?,
        admin_password: entropy.hex64()?,
        openbao_token: format!("hvs.{}", entropy.hex64()?),
        axdnsd_key: entropy.hex64()?,
        unseal_key: entropy.hex64()?,
    };
    store.tx(|tx| tx.set_meta("secrets", &secrets))?;
    Ok(secrets)
}

fn kept_tokens(store: &Store, entropy: &Entropy, config: &Config) -> Result<Vec<Token>, OpenError> {
    if !config.tokens.is_empty() {
        return Ok(config.tokens.clone());
    }
    let secret = match store.tx(|tx| tx.meta::<String>("token"))? {
        Some(kept) => kept,
        None => {
            let fresh = entropy.hex64()?;
            store.tx(|tx| tx.set_meta("token", &fresh))?;
            fresh
        }
    };
    Ok(vec![Token { secret, permissions: Permission::ALL.to_vec() }])
}

fn first_members(store: &Store, cluster: &Cluster) -> Result<(), StoreError> {
    store.tx(|tx| {
        if !tx.members()?.is_empty() {
            return Ok(());
        }
        let generation = tx.next("generation")?;
        for (order, first) in (1..).zip(&cluster.members) {
            tx.put_member(&Member {
                node_id: first.node_id.clone(),
                state: MemberState::Active,
                role: "hybrid".to_owned(),
                mgmt_ip: first.mgmt_ip.clone(),
                networks: Default::default(),
                labels: Default::default(),
                az: String::new(),
                name: first.name.clone(),
                join_order: order,
                applied_generation: generation,
                failed_step: None,
                failed_error: None,
                raft_cleanup_at: None,
                node_key: None,
            })?;
        }
        Ok(())
    })
}
