//! The client against peers that behave, and what the other tests of it share.
#![allow(clippy::unwrap_used)]

mod answers;
mod tls;

use std::io::Write;
use std::sync::{Arc, Mutex};

use serde_json::value::RawValue;

use super::peer::{Ca, Peer, Request, json};
use super::*;
use crate::protocol::code::JoinCode;
use crate::protocol::pairing::{commitment, delivery_digest};
use crate::protocol::proof::{FounderProof, Stretched};
use crate::protocol::release::Verdict;
use crate::protocol::wire::ProofRequest;

const HELLO: &str =
    r#"{"protocols":["stratum-join/1"],"suites":["spake2-ed25519"],"serverTime":"2026-11-29T10:42:07Z"}"#;
const PENDING: &str = r#"{"joinId":"nj-8w2k4m1p","state":"pending","pairingCode":"4F7-K2Q","nextPins":[]}"#;
const BUNDLE: &str =
    "{ \"clusterId\":\"c\",\n  \"x\" : [1.0e2, \"\\u0041\", 123456789012345678901234567890] }";

fn client() -> Client {
    Client::new(Arc::new(Identity::ephemeral().unwrap()))
}

fn code() -> JoinCode {
    JoinCode::parse("4F7K-2Q9M-ABD").unwrap()
}

fn join_id() -> JoinId {
    JoinId::parse("nj-8w2k4m1p").unwrap()
}

/// The founder's half of the proof and one registration, with the code that it knows.
struct Founder {
    w: Stretched,
    ca: Pin,
    pending: Mutex<Option<FounderProof>>,
    confirm: &'static str,
}

impl Founder {
    fn peer(ca: &Ca, knows: &JoinCode, confirm: &'static str) -> Peer {
        let founder = Founder { w: Stretched::of(knows), ca: ca.pin(), pending: Mutex::default(), confirm };
        Peer::tls(ca.chain(), move |request, to| founder.answer(request, to))
    }

    fn answer(&self, request: &Request, to: &mut dyn Write) -> std::io::Result<()> {
        let path = request.line.split(' ').nth(1).unwrap_or_default();
        match path {
            "/v1/join" => json(to, 200, HELLO),
            "/v1/join/proofs" => {
                let body: ProofRequest = serde_json::from_slice(&request.body).unwrap();
                let (answer, pending) =
                    FounderProof::answer(&self.w, &self.ca, &request.client_fp, &body, B64([5; 16]), None)
                        .unwrap();
                *self.pending.lock().unwrap() = Some(pending);
                json(to, 200, &serde_json::to_string(&answer).unwrap())
            }
            path if path.ends_with("/confirm") => {
                let body: ConfirmRequest = serde_json::from_slice(&request.body).unwrap();
                let pending = self.pending.lock().unwrap();
                if !pending.as_ref().unwrap().accepts(&body.confirm, body.commit.as_ref()) {
                    return json(
                        to,
                        403,
                        r#"{"title":"no","status":403,"code":"JOIN_CODE_WRONG","requestId":"r"}"#,
                    );
                }
                json(to, 200, self.confirm)
            }
            path if path.contains("delivering") => {
                let body = format!(
                    r#"{{"joinId":"nj-8w2k4m1p","state":"delivering","attempt":1,"delivery":{{"bundle":{BUNDLE},"nodeYaml":"node:\n  a: \u0062\n"}}}}"#
                );
                json(to, 200, &body)
            }
            _ => json(to, 200, PENDING),
        }
    }
}

const CONFIRMED: &str = r#"{"clusterRelease":"0.7.0","minUpgradeFrom":"0.5.0","iso":"stratum-0.7.0.iso","accepting":true,"refusal":null,
 "joinId":"nj-8w2k4m1p","founderNonce":"O1DZ-67s6lC_RKkcb10WU2Nm9Ul1EgIIn20NKJkdnF8"}"#;

#[tokio::test]
async fn a_founder_that_knows_the_code_is_observed_proven_confirmed_and_registered_at() {
    let ca = Ca::new();
    let peer = Founder::peer(&ca, &code(), CONFIRMED);
    let client = client();
    client.warm(&code());
    let at = &peer.endpoint;

    let observed = client.observe(at, &[]).await.unwrap();
    assert_eq!(observed.ca, ca.pin());
    let proven = client.prove(at, observed.ca, &code(), Intent::Register).await.unwrap();
    let commit = commitment(&proven.fresh_nonce.0);
    let confirmed = client.confirm(at, proven.ca, proven.proof_id, Some(commit)).await.unwrap();
    assert_eq!(confirmed.join_id, Some(join_id()));
    // A repeat after a lost answer is the same request.
    client.confirm(at, proven.ca, proven.proof_id, Some(commit)).await.unwrap();

    let body = RegistrationRequest {
        proof_id: Some(proven.proof_id),
        pairing_nonce: Some(proven.fresh_nonce.0),
        release: "0.7.0".into(),
        self_upgrade: false,
        hostname: "node-2".into(),
        serial: String::new(),
        agent: "0.1.0".into(),
        boot_id: "1b4e28ba-2fa1-41d2-883f-0016d3cca427".into(),
        inventory: RawValue::from_string("{}".into()).unwrap(),
    };
    let pins = [ca.pin()];
    let registered = client.register(at, &pins, &body).await.unwrap();
    assert_eq!(registered.ca, ca.pin());
    assert_eq!(registered.value.pairing_code.unwrap(), "4F7-K2Q");
    client.reregister(at, &pins, &join_id(), &body).await.unwrap();

    let polled = client.poll(at, &pins, &join_id(), 50, "pending & more", false).await.unwrap();
    assert_eq!(polled.value.state, "pending");
    assert_eq!(
        peer.requests().last().unwrap(),
        "GET /v1/join/registrations/nj-8w2k4m1p?wait=50&state=pending+%26+more HTTP/1.1"
    );
    // One connection to observe, one for everything that uses the same pin.
    assert_eq!(peer.connections(), 2);
}

#[tokio::test]
async fn a_delivery_keeps_its_bytes_and_is_dropped_where_it_is_not_wanted() {
    let ca = Ca::new();
    let peer = Founder::peer(&ca, &code(), CONFIRMED);
    let (client, pins) = (client(), [ca.pin()]);
    let polled = client.poll(&peer.endpoint, &pins, &join_id(), 0, "delivering", false).await.unwrap();
    let delivery = polled.value.delivery.unwrap();
    let (node_yaml, bundle) = (delivery.node_yaml.unwrap(), delivery.bundle.unwrap());
    assert_eq!(bundle.get(), BUNDLE);
    assert_eq!(node_yaml, "node:\n  a: b\n");
    assert_eq!(delivery_digest(node_yaml.as_bytes(), bundle.get().as_bytes()).len(), 64);
    let polled = client.poll(&peer.endpoint, &pins, &join_id(), 0, "delivering", true).await.unwrap();
    assert!(polled.value.delivery.is_none());
}

#[tokio::test]
async fn requests_name_nothing_but_the_constant_host() {
    let ca = Ca::new();
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&heads);
    let peer = Peer::tls(ca.chain(), move |request, to| {
        seen.lock().unwrap().push(request.head.clone());
        json(to, 200, HELLO)
    });
    client().observe(&peer.endpoint, &[]).await.unwrap();
    assert_eq!(
        *heads.lock().unwrap(),
        ["GET /v1/join HTTP/1.1\r\naccept: */*\r\nhost: stratum-join.invalid\r\n\r\n"]
    );
}

#[tokio::test]
async fn a_founder_that_does_not_know_the_code_gets_no_confirmation_and_nothing_else() {
    let ca = Ca::new();
    let other = JoinCode::parse("4F7K-2Q9M-AC0").unwrap();
    let peer = Founder::peer(&ca, &other, CONFIRMED);
    let client = client();
    let fault = client.prove(&peer.endpoint, ca.pin(), &code(), Intent::Register).await.unwrap_err();
    assert_eq!(fault.code, Code::CodeNotProven);
    assert_eq!(peer.requests(), ["POST /v1/join/proofs HTTP/1.1"]);
    let fault = client.confirm(&peer.endpoint, ca.pin(), B64([5; 16]), None).await.unwrap_err();
    assert_eq!(fault.code, Code::ProofExpired);
    assert_eq!(peer.requests().len(), 1);
}

#[tokio::test]
async fn a_reflected_message_is_not_proven() {
    let ca = Ca::new();
    let peer = Peer::tls(ca.chain(), |request, to| {
        let body: ProofRequest = serde_json::from_slice(&request.body).unwrap();
        let answer =
            ProofAnswer { proof_id: B64([5; 16]), msg: body.msg, resume_commit: None, confirm: B64([0; 32]) };
        json(to, 200, &serde_json::to_string(&answer).unwrap())
    });
    let fault = client().prove(&peer.endpoint, ca.pin(), &code(), Intent::Register).await.unwrap_err();
    assert_eq!(fault.code, Code::CodeNotProven);
}

#[tokio::test]
async fn a_call_without_a_pin_is_refused_before_anything_is_sent() {
    let ca = Ca::new();
    let peer = Founder::peer(&ca, &code(), CONFIRMED);
    let fault = client().poll(&peer.endpoint, &[], &join_id(), 0, "pending", false).await.unwrap_err();
    assert_eq!(fault.code, Code::Local);
    assert_eq!(peer.connections(), 0);
}

/// What `observe` makes of this peer, with a pin for the CA where one is given.
async fn observe(peer: &Peer, pins: &[Pin]) -> (Code, String) {
    let fault = client().observe(&peer.endpoint, pins).await.unwrap_err();
    assert!(!fault.verified && !fault.chain.is_empty());
    (fault.code, fault.detail.to_string())
}

#[tokio::test]
async fn a_check_tells_what_a_registration_would_get() {
    let good =
        r#"{"clusterRelease":"0.7.0","minUpgradeFrom":"0.5.0","iso":"stratum-0.7.0.iso","accepting":true}"#;
    let full = r#"{"clusterRelease":"0.7.0","minUpgradeFrom":"0.5.0","accepting":false,"refusal":"JOIN_QUEUE_FULL"}"#;
    let ca = Ca::new();
    for (confirm, ours, self_upgrade, verdict, fault) in [
        (good, "0.7.0", false, Verdict::Same, None),
        (good, "0.6.0", true, Verdict::Upgrade, None),
        (good, "0.6.0", false, Verdict::TooOld, Some(Code::ReleaseMismatch)),
        (good, "", false, Verdict::Unreadable, Some(Code::ReleaseMismatch)),
        (full, "0.7.0", false, Verdict::Same, Some(Code::JoinQueueFull)),
    ] {
        let peer = Founder::peer(&ca, &code(), confirm);
        let report =
            client().check(&peer.endpoint, &[], &code(), OurRelease { name: ours, self_upgrade }).await;
        assert!(report.proven && report.code_check_fits);
        assert_eq!((report.ca, report.release), (Some(ca.pin()), Some(verdict)));
        assert_eq!(report.fault.as_ref().map(|f| f.code), fault);
        assert!(report.fault.is_none_or(|f| f.verified));
    }
    let stranger = Founder::peer(&ca, &JoinCode::parse("4F7K-2Q9M-AC0").unwrap(), good);
    let report = client()
        .check(&stranger.endpoint, &[], &code(), OurRelease { name: "0.7.0", self_upgrade: false })
        .await;
    assert!(!report.proven && report.cluster.is_none());
    assert_eq!(report.fault.map(|f| f.code), Some(Code::CodeNotProven));
}
