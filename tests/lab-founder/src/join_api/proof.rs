//! The proof of a join code, both ways, and the counting that makes guessing hopeless (docs/protocol.md 3.2).
//!
//! A try is counted, durably, before it is answered. Only who knows a code learns its fate.

use std::collections::HashMap;
use std::net::IpAddr;

use serde_json::json;
use stratum_join::protocol::code::ALPHABET;
use stratum_join::protocol::encoding::B64;
use stratum_join::protocol::proof::{FounderProof, ProofError, Stretched};
use stratum_join::protocol::wire::{ConfirmRequest, Intent, ProofRequest, SUITE};

use super::{body, proof_id};
use crate::founder::{Founder, lock};
use crate::http::{Handled, Peer, Refusal, Request, Response, Stop, field, refuse};
use crate::model::{Code, CodeState, Join, JoinState, Switches};
use crate::store::Tx;
use crate::time::{MINUTE, rfc3339};

/// Confirm within this.
const CONFIRM_MS: i64 = 30_000;
/// Register within this after the confirmation.
const REGISTER_MS: i64 = 120_000;

/// Proofs that were begun and not used up. In memory only.
#[derive(Default)]
pub(crate) struct OpenProofs(HashMap<[u8; 16], OpenProof>);

struct OpenProof {
    client_fp: [u8; 32],
    intent: Intent,
    selector: String,
    stage: Stage,
}

enum Stage {
    /// Answered; the joiner's confirmation is awaited.
    Answered { proof: FounderProof, since_ms: i64 },
    /// Confirmed with intent `register`.
    Confirmed { join_id: String, since_ms: i64 },
}

/// Token buckets of the proof rate. In memory only.
#[derive(Default)]
pub(crate) struct Rates {
    all: Option<Bucket>,
    by_address: HashMap<IpAddr, Bucket>,
}

#[derive(Clone, Copy)]
struct Bucket {
    tokens: f64,
    at_ms: i64,
}

// === impl OpenProofs ===

impl OpenProofs {
    fn prune(&mut self, now: i64) {
        self.0.retain(|_, proof| match proof.stage {
            Stage::Answered { since_ms, .. } => now - since_ms <= CONFIRM_MS,
            Stage::Confirmed { since_ms, .. } => now - since_ms <= REGISTER_MS,
        });
    }

    fn awaiting(&self) -> usize {
        self.0.values().filter(|p| matches!(p.stage, Stage::Answered { .. })).count()
    }

    /// The registration that a confirmed proof of this key made. A repeat within the time is the same.
    pub(crate) fn registration(&mut self, now: i64, id: &B64<16>, fp: &[u8; 32]) -> Option<String> {
        self.prune(now);
        match self.0.get(&id.0) {
            Some(OpenProof { client_fp, stage: Stage::Confirmed { join_id, .. }, .. }) if client_fp == fp => {
                Some(join_id.clone())
            }
            _ => None,
        }
    }
}

// === impl Rates ===

impl Rates {
    /// Takes one proof of `addr`; or how many seconds to wait.
    fn take(&mut self, now: i64, addr: IpAddr, per_address: u32, in_all: u32) -> Result<(), u64> {
        let full = |per_minute: u32| Bucket { tokens: f64::from(per_minute), at_ms: now };
        // A bucket that is full again says nothing: drop it, so that the map does not grow.
        self.by_address.retain(|_, bucket| now - bucket.at_ms < MINUTE);
        let mut one = self.by_address.get(&addr).copied().unwrap_or_else(|| full(per_address));
        let mut all = self.all.unwrap_or_else(|| full(in_all));
        let wait = one.refill(now, per_address).max(all.refill(now, in_all));
        if wait > 0 {
            return Err(wait);
        }
        one.tokens -= 1.0;
        all.tokens -= 1.0;
        self.by_address.insert(addr, one);
        self.all = Some(all);
        Ok(())
    }
}

// === impl Bucket ===

impl Bucket {
    /// Fills up to `now`, and the seconds until one token is there.
    fn refill(&mut self, now: i64, per_minute: u32) -> u64 {
        let rate = f64::from(per_minute) / 60_000.0;
        // A clock that went back fills nothing.
        let passed = i32::try_from((now - self.at_ms).clamp(0, MINUTE)).unwrap_or(0);
        self.tokens = (self.tokens + f64::from(passed) * rate).min(f64::from(per_minute));
        self.at_ms = now;
        let missing_ms = (1.0 - self.tokens) / rate;
        // A positive number of at most a minute.
        if missing_ms <= 0.0 { 0 } else { (missing_ms / 1000.0).ceil() as u64 }
    }
}

/// The address that a rate is counted for: IPv4, or the /64 of IPv6.
fn rate_key(addr: IpAddr) -> IpAddr {
    match addr.to_canonical() {
        IpAddr::V6(v6) => {
            let s = v6.segments();
            IpAddr::from([s[0], s[1], s[2], s[3], 0, 0, 0, 0])
        }
        v4 => v4,
    }
}

/// Call 1. `knows_nothing` makes it an impostor's.
pub(crate) fn open(
    founder: &Founder,
    now: i64,
    peer: Peer,
    request: &Request,
    knows_nothing: bool,
) -> Handled {
    let request: ProofRequest = body(request)?;
    if request.v != 1 || request.suite != SUITE {
        return Err(refuse::protocol_unsupported().into());
    }
    let selector_ok = request.selector.len() == 2 && request.selector.bytes().all(|b| ALPHABET.contains(&b));
    if !selector_ok {
        return Err(
            refuse::invalid(vec![field("selector", "must be 2 characters of the code alphabet")]).into()
        );
    }
    let limits = &founder.config.limits;
    lock(&founder.rates)
        .take(now, rate_key(peer.addr), limits.proofs_per_minute_per_address, limits.proofs_per_minute)
        .map_err(refuse::rate_limited)?;
    {
        let mut proofs = lock(&founder.proofs);
        proofs.prune(now);
        if proofs.awaiting() >= limits.open_proofs {
            return Err(refuse::rate_limited(5).into());
        }
    }
    // Counted and durable before anything is answered. The message is checked after that, so a bad one stays counted.
    let counted = founder.store.tx(|tx| count(founder, tx, now, &peer, &request))?;
    let random_w = || founder.entropy.bytes().map(Stretched::from_bytes);
    let w = match counted.w {
        Some(w) if !knows_nothing => Stretched::from_bytes(w),
        _ => random_w()?,
    };
    let id = B64(founder.entropy.bytes()?);
    let answer = FounderProof::answer(&w, &founder.pin, &peer.client_fp, &request, id, counted.resume_commit);
    let (answer, proof) = match answer {
        Ok(done) => done,
        Err(ProofError::Message(e)) => return Err(refuse::invalid(vec![field("msg", e.to_string())]).into()),
        Err(ProofError::Random(_) | ProofError::NotProven) => return Err(refuse::unavailable().into()),
    };
    let open = OpenProof {
        client_fp: peer.client_fp,
        intent: request.intent,
        selector: request.selector,
        stage: Stage::Answered { proof, since_ms: now },
    };
    lock(&founder.proofs).0.insert(id.0, open);
    Ok(Response::json(200, &answer))
}

struct Counted {
    w: Option<[u8; 32]>,
    resume_commit: Option<B64<32>>,
}

fn count(
    founder: &Founder,
    tx: &Tx<'_>,
    now: i64,
    peer: &Peer,
    request: &ProofRequest,
) -> Result<Counted, Stop> {
    let code = tx.code_by_selector(&request.selector)?;
    if code.as_ref().is_some_and(|c| c.burned_ms.is_some()) {
        return Err(refuse::code_burned().into());
    }
    tx.count_try(&request.selector, &peer.client_fp)?;
    let live = tx.live_join(&peer.client_fp)?;
    let resume_commit = match request.intent {
        Intent::Check => None,
        Intent::Register => live.map(|j| j.commit),
    };
    let w = code.as_ref().map(|c| c.w);
    if let Some(mut code) = code {
        code.open_tries += 1;
        warn_and_burn(founder, tx, now, &mut code, peer.addr)?;
    }
    Ok(Counted { w, resume_commit })
}

/// Burns a code whose tries are used up; names the address at 10 and at 50.
fn warn_and_burn(
    founder: &Founder,
    tx: &Tx<'_>,
    now: i64,
    code: &mut Code,
    addr: IpAddr,
) -> Result<(), crate::store::StoreError> {
    let limits = &founder.config.limits;
    if matches!(code.open_tries + code.bad_tries, 10 | 50) {
        eprintln!(
            "lab-founder: {} tries at join code {} nobody proved, last from {addr}",
            code.open_tries, code.id
        );
    }
    if code.bad_tries >= limits.bad_tries || code.open_tries >= limits.open_tries {
        code.burned_ms = Some(now);
        tx.put_code(code)?;
    }
    Ok(())
}

/// Call 2.
pub(crate) fn confirm(founder: &Founder, now: i64, peer: Peer, id: &str, request: &Request) -> Handled {
    let id = proof_id(id)?;
    let request: ConfirmRequest = body(request)?;
    let open = take_answered(founder, now, &id, &peer).ok_or_else(refuse::proof_expired)?;
    if (open.intent == Intent::Register) != request.commit.is_some() {
        let what = "must be given for a registration and left out for a check";
        return Err(refuse::invalid(vec![field("commit", what)]).into());
    }
    let Stage::Answered { proof, .. } = &open.stage else { return Err(refuse::proof_expired().into()) };
    if !proof.accepts(&request.confirm, request.commit.as_ref()) {
        founder.store.tx(|tx| bad_try(founder, tx, now, &open.selector, peer.addr))?;
        return Err(refuse::code_wrong().into());
    }
    // A refusal in here stays after the commit, so that the refund does.
    let (response, join_id) =
        founder.store.tx(|tx| confirmed(founder, tx, now, &peer, &open, request.commit))??;
    if let Some(join_id) = join_id {
        let stage = Stage::Confirmed { join_id, since_ms: now };
        lock(&founder.proofs).0.insert(id.0, OpenProof { stage, ..open });
    }
    Ok(response)
}

/// Single use: whoever confirms takes the proof, right or wrong. A proof of another key stays where it is.
fn take_answered(founder: &Founder, now: i64, id: &B64<16>, peer: &Peer) -> Option<OpenProof> {
    let mut proofs = lock(&founder.proofs);
    proofs.prune(now);
    match proofs.0.get(&id.0) {
        Some(OpenProof { client_fp, stage: Stage::Answered { .. }, .. }) if *client_fp == peer.client_fp => {}
        _ => return None,
    }
    proofs.0.remove(&id.0)
}

fn bad_try(founder: &Founder, tx: &Tx<'_>, now: i64, selector: &str, addr: IpAddr) -> Result<(), Stop> {
    if let Some(mut code) = tx.code_by_selector(selector)? {
        code.bad_tries += 1;
        tx.put_code(&code)?;
        warn_and_burn(founder, tx, now, &mut code, addr)?;
    }
    Ok(())
}

type Confirmed = Result<(Response, Option<String>), Refusal>;

/// One transaction with everything that is checked and taken (Tailscale TS-2025-007 is what happens otherwise).
fn confirmed(
    founder: &Founder,
    tx: &Tx<'_>,
    now: i64,
    peer: &Peer,
    open: &OpenProof,
    commit: Option<B64<32>>,
) -> Result<Confirmed, Stop> {
    let Some(code) = tx.code_by_selector(&open.selector)? else { return Ok(Err(refuse::code_wrong())) };
    tx.refund_tries(&code.selector, &peer.client_fp)?;
    match code.state(now) {
        CodeState::Live => {}
        CodeState::Expired => return Ok(Err(refuse::code_expired())),
        CodeState::Revoked => return Ok(Err(refuse::code_revoked())),
        CodeState::Burned => return Ok(Err(refuse::code_burned())),
    }
    let switches: Switches = tx.meta("switches")?.unwrap_or_default();
    let live = tx.live_join(&peer.client_fp)?;
    let full = live.is_none() && tx.waiting()? >= founder.config.limits.waiting;
    let refusal = if switches.upgrade_running {
        Some(refuse::upgrade_running())
    } else if full {
        Some(refuse::queue_full())
    } else {
        None
    };
    let facts = founder.release(tx)?;
    let mut answer = json!({
        "clusterRelease": facts.release,
        "minUpgradeFrom": facts.min_upgrade_from,
        "iso": facts.iso,
        "accepting": refusal.is_none(),
        "refusal": refusal.as_ref().map(|r| r.code),
        "codeExpiresAt": rfc3339(code.expires_ms),
        "serverTime": rfc3339(now),
    });
    let Some(commit) = commit else { return Ok(Ok((Response::json(200, &answer), None))) };
    if let Some(refusal) = refusal {
        return Ok(Err(refusal));
    }
    let join = match live {
        Some(join) if join.commit != commit => return Ok(Err(refuse::pairing_conflict())),
        Some(mut join) => {
            if code.expires_ms >= join.code_expires_ms {
                join.code_id = code.id;
                join.code_expires_ms = code.expires_ms;
            }
            join.proven_ms = now;
            join.last_seen_ms = now;
            join
        }
        None => new_join(founder, tx, now, peer, commit, &code)?,
    };
    tx.put_join(&join)?;
    answer["joinId"] = json!(join.id);
    answer["founderNonce"] = json!(join.founder_nonce);
    Ok(Ok((Response::json(200, &answer), Some(join.id))))
}

fn new_join(
    founder: &Founder,
    tx: &Tx<'_>,
    now: i64,
    peer: &Peer,
    commit: B64<32>,
    code: &Code,
) -> Result<Join, Stop> {
    let mut id = founder.entropy.id("nj-")?;
    while !tx.use_id(&id)? {
        id = founder.entropy.id("nj-")?;
    }
    Ok(Join {
        id,
        state: JoinState::Registering,
        client_fp: B64(peer.client_fp),
        commit,
        founder_nonce: B64(founder.entropy.bytes()?),
        joiner_nonce: None,
        pairing_code: None,
        code_id: code.id.clone(),
        code_expires_ms: code.expires_ms,
        proven_ms: now,
        registered_ms: None,
        last_seen_ms: now,
        release: String::new(),
        self_upgrade: false,
        agent: String::new(),
        boot_id: String::new(),
        hostname: String::new(),
        serial: String::new(),
        source_address: peer.addr.to_canonical().to_string(),
        upgrade: None,
        assignment: None,
        node_id: None,
        approved_order: None,
        attempt: 0,
        generation: None,
        wait_reason: None,
        reason: None,
        failed: None,
        steps: Vec::new(),
        last_seq: 0,
        last_line: 0,
        last_log_ms: None,
        acked: None,
        stalled: false,
        firstboot_done: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_proofs_a_minute_come_from_one_address_and_then_one_every_ten_seconds() {
        let mut rates = Rates::default();
        let addr = IpAddr::from([192, 0, 2, 1]);
        let mut take = |now| rates.take(now, addr, 6, 60);
        for _ in 0..6 {
            assert_eq!(take(0), Ok(()));
        }
        assert_eq!(take(0), Err(10));
        assert_eq!(take(9_000), Err(1));
        assert_eq!(take(10_000), Ok(()));
        assert_eq!(take(10_000), Err(10));
    }

    #[test]
    fn one_slash_64_is_one_address() {
        let key = |text: &str| rate_key(text.parse().unwrap());
        assert_eq!(key("2001:db8::1"), key("2001:db8::ffff:1"));
        assert_ne!(key("2001:db8::1"), key("2001:db8:0:1::1"));
        assert_eq!(key("::ffff:192.0.2.1"), key("192.0.2.1"));
    }
}
