//! The client against peers that behave and peers that do not.
#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use rcgen::{ExtendedKeyUsagePurpose, PKCS_ED25519, PKCS_RSA_SHA256, date_time_ymd};
use rustls::pki_types::CertificateDer;
use serde_json::value::RawValue;

use super::peer::{Ca, Peer, Request, certified, endpoint, json, raw};
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
async fn another_join_ca_is_told_apart_by_what_the_pin_stands_for() {
    let (ca, other) = (Ca::new(), Ca::new());
    let peer = Founder::peer(&ca, &code(), CONFIRMED);
    let (client, at, pins) = (client(), &peer.endpoint, [other.pin()]);
    let fault = client.observe(at, &pins).await.unwrap_err();
    assert_eq!(fault.code, Code::PinMismatch);
    assert_eq!(fault.details.expected_pin.unwrap(), other.pin().short_hex(16).as_str());
    assert_eq!(fault.details.seen_pin.unwrap(), ca.pin().short_hex(16).as_str());
    let fault = client.prove(at, other.pin(), &code(), Intent::Check).await.unwrap_err();
    assert_eq!(
        (fault.code, fault.detail.as_str()),
        (Code::TlsFailed, "another key answers than a moment ago")
    );
    let fault = client.poll(at, &pins, &join_id(), 0, "pending", false).await.unwrap_err();
    assert_eq!(fault.code, Code::FounderKeyChanged);
    assert_eq!(peer.requests(), [""; 0]);
    // With the next pin beside it, the one that answered is told.
    let polled = client.poll(at, &[other.pin(), ca.pin()], &join_id(), 0, "pending", false).await.unwrap();
    assert_eq!(polled.ca, ca.pin());
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
async fn wrong_chains_are_refused() {
    let (ca, other) = (Ca::new(), Ca::new());
    let (leaf, key) = ca.leaf();
    let (_, stranger) = other.leaf();
    let (client_leaf, client_key) =
        ca.leaf_with(|p| p.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]);
    let (big, big_key) = ca.leaf_with(|p| {
        p.subject_alt_names =
            (0..300).map(|n| rcgen::SanType::DnsName(format!("name-{n:012}").try_into().unwrap())).collect();
    });
    let own = rcgen::CertificateParams::default().self_signed(&key).unwrap();
    let pin = [ca.pin()];
    let not_signed = "its certificate is not signed by the join CA that it shows";
    let not_held = "it does not hold the key of its certificate";
    for (what, chain, pins, code, words) in [
        ("another CA", other.chain(), &pin[..], Code::PinMismatch, "the key is not the one in the join URL"),
        (
            "the leaf alone",
            certified(vec![leaf.clone()], &key),
            &[],
            Code::TlsFailed,
            "it shows 1 certificates instead of the two of a join listener",
        ),
        (
            "three certificates",
            certified(vec![leaf.clone(), ca.der(), ca.der()], &key),
            &[],
            Code::TlsFailed,
            "it shows 3 certificates instead of the two of a join listener",
        ),
        ("the wrong order", certified(vec![ca.der(), leaf.clone()], &key), &[], Code::TlsFailed, not_signed),
        (
            "a leaf of another CA under the pinned one",
            certified(vec![other.leaf().0, ca.der()], &stranger),
            &pin,
            Code::TlsFailed,
            not_signed,
        ),
        (
            "a self-signed leaf under the pinned CA",
            certified(vec![own.der().clone(), ca.der()], &key),
            &pin,
            Code::TlsFailed,
            not_signed,
        ),
        (
            "the right chain without its key",
            certified(vec![leaf.clone(), ca.der()], &stranger),
            &pin,
            Code::TlsFailed,
            not_held,
        ),
        (
            "a leaf that is not for servers",
            certified(vec![client_leaf, ca.der()], &client_key),
            &pin,
            Code::TlsFailed,
            not_signed,
        ),
        (
            "a large certificate",
            certified(vec![big.clone(), ca.der()], &big_key),
            &pin,
            Code::TlsFailed,
            &format!("it shows a certificate of {} bytes", big.len()),
        ),
        (
            "no certificate",
            certified(vec![CertificateDer::from(vec![0x30, 0]), ca.der()], &key),
            &[],
            Code::TlsFailed,
            "it shows something that is not a certificate",
        ),
    ] {
        let peer = Peer::tls(chain, |_, to| json(to, 200, HELLO));
        assert_eq!(observe(&peer, pins).await, (code, words.to_owned()), "{what}");
        assert_eq!(peer.requests(), [""; 0], "{what}");
    }
}

#[tokio::test]
async fn other_keys_dates_and_leaves_of_the_same_ca_are_accepted() {
    let ca = Ca::new();
    let dated = |from, to| {
        let (leaf, key) = ca.leaf_with(|p| {
            p.not_before = date_time_ymd(from, 1, 1);
            p.not_after = date_time_ymd(to, 1, 1);
        });
        certified(vec![leaf, ca.der()], &key)
    };
    let ed25519 = Ca::with(&PKCS_ED25519);
    for (what, chain, pin) in [
        ("one leaf", ca.chain(), ca.pin()),
        ("another leaf", ca.chain(), ca.pin()),
        ("expired", dated(2001, 2002), ca.pin()),
        ("not yet valid", dated(2090, 2091), ca.pin()),
        ("Ed25519", ed25519.chain(), ed25519.pin()),
    ] {
        let peer = Peer::tls(chain, |_, to| json(to, 200, HELLO));
        assert_eq!(client().observe(&peer.endpoint, &[pin]).await.expect(what).ca, pin);
    }
}

#[tokio::test]
async fn a_join_ca_with_an_rsa_key_is_refused() {
    // ring makes no RSA keys, so this is a fixed one, used nowhere else.
    let key =
        rcgen::KeyPair::from_pkcs8_pem_and_sign_algo(include_str!("testdata/rsa.pem"), &PKCS_RSA_SHA256)
            .unwrap();
    let cert = rcgen::CertificateParams::default().self_signed(&key).unwrap();
    let peer = Peer::tls(certified(vec![cert.der().clone(), cert.der().clone()], &key), |_, to| {
        json(to, 200, HELLO)
    });
    let (code, words) = observe(&peer, &[]).await;
    assert_eq!((code, words.as_str()), (Code::TlsFailed, "it has no TLS settings in common with a joiner"));
}

#[tokio::test]
async fn tls_1_2_is_refused_although_the_build_has_it() {
    let ca = Ca::new();
    let peer = Peer::tls_versions(ca.chain(), &[&rustls::version::TLS12], |_, to| json(to, 200, HELLO));
    assert_eq!(observe(&peer, &[]).await, (Code::TlsFailed, "it speaks only TLS 1.2 or older".to_owned()));
}

#[tokio::test]
async fn services_that_are_no_join_listener_are_named() {
    let talks: [(&str, &[u8], Code, &str); 4] = [
        (
            "plain HTTP",
            b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n",
            Code::TlsFailed,
            "it does not speak TLS; it is plain HTTP or another service",
        ),
        (
            "SSH",
            b"SSH-2.0-OpenSSH_9.2\r\n",
            Code::TlsFailed,
            "it does not speak TLS; it is plain HTTP or another service",
        ),
        ("a port that hangs up", b"", Code::TlsFailed, "it closes the connection during the TLS handshake"),
        (
            "a refusing TLS server",
            &[21, 3, 3, 0, 2, 2, 70],
            Code::TlsFailed,
            "it speaks only TLS 1.2 or older",
        ),
    ];
    for (what, bytes, code, words) in talks {
        let peer = Peer::plain(move |mut tcp| {
            let mut hello = [0; 1024];
            let _ = std::io::Read::read(&mut tcp, &mut hello);
            let _ = tcp.write_all(bytes);
        });
        assert_eq!(observe(&peer, &[]).await, (code, words.to_owned()), "{what}");
    }
}

#[tokio::test]
async fn nothing_that_answers_is_named_by_its_cause() {
    let closed = endpoint(TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
    let fault = client().observe(&closed, &[]).await.unwrap_err();
    assert_eq!((fault.code, fault.detail.as_str()), (Code::AddressUnreachable, "connection refused"));
    assert!(fault.chain.as_str().starts_with(&format!("connect {closed}: ")), "{}", fault.chain);

    let nowhere = Endpoint::parse("nowhere.invalid").unwrap();
    let fault = client().observe(&nowhere, &[]).await.unwrap_err();
    assert_eq!(fault.code, Code::AddressUnreachable);
    assert!(fault.detail.as_str().starts_with("nowhere.invalid does not resolve: "), "{}", fault.detail);
}

#[tokio::test]
async fn answers_that_make_no_sense_are_refused_within_their_bounds() {
    let many: String = (0..40).map(|n| format!("x-{n}: 1\r\n")).collect();
    let very_many: String = (0..10_000).map(|n| format!("x-{n}: 1\r\n")).collect();
    let long = format!("x-long: {}\r\n", "a".repeat(17 * 1024));
    let deep = format!("{}{}", "[".repeat(4000), "]".repeat(4000));
    let answer = |extra: &str, body: &str| {
        format!("HTTP/1.1 200 OK\r\n{extra}content-length: {}\r\n\r\n{body}", body.len())
    };
    let cases = [
        (
            "a redirect",
            "HTTP/1.1 302 x\r\nlocation: https://127.0.0.1/\r\ncontent-length: 0\r\n\r\n".to_owned(),
            Code::ResponseInvalid,
            "a redirect to somewhere else",
        ),
        ("gzip", answer("content-encoding: gzip\r\n", HELLO), Code::ResponseInvalid, "a compressed body"),
        ("40 headers", answer(&many, HELLO), Code::ResponseInvalid, "too many headers"),
        ("10,000 headers", answer(&very_many, HELLO), Code::ResponseInvalid, "too many headers"),
        ("a long header", answer(&long, HELLO), Code::ResponseInvalid, "too many headers"),
        ("a large body", answer("", &"x".repeat(9000)), Code::ResponseTooLarge, "more than 8192 bytes"),
        ("another status", "HTTP/1.1 204 x\r\n\r\n".to_owned(), Code::ResponseInvalid, "status 204"),
        (
            "a web page",
            answer("content-type: text/html\r\n", "<html>"),
            Code::ResponseInvalid,
            "an HTML page: a captive portal or a proxy?",
        ),
        (
            "a web page by its look",
            answer("", "\n<!doctype html>"),
            Code::ResponseInvalid,
            "an HTML page: a captive portal or a proxy?",
        ),
        ("no JSON", answer("", "hello"), Code::ResponseInvalid, "no JSON at line 1 column 1"),
        ("nothing", answer("", ""), Code::ResponseInvalid, "JSON that ends early at line 1 column 0"),
        (
            "deep JSON",
            answer("", &deep),
            Code::ResponseInvalid,
            "a field of another type than documented at line 1 column 2",
        ),
        (
            "a missing field",
            answer("", "{}"),
            Code::ResponseInvalid,
            "missing field `protocols` at line 1 column 2",
        ),
        (
            "a field twice",
            answer("", r#"{"suites":[],"suites":[]}"#),
            Code::ResponseInvalid,
            "duplicate field `suites` at line 1 column 21",
        ),
        (
            "text posing as ours",
            answer("", r#"{"protocols":"Pairing code: AAA-AAA"}"#),
            Code::ResponseInvalid,
            "a field of another type than documented at line 1 column 36",
        ),
        (
            "another protocol",
            answer("", r#"{"protocols":["stratum-join/2"],"suites":["spake2-ed25519"]}"#),
            Code::ProtocolUnsupported,
            "stratum-join/2",
        ),
        ("not HTTP", "hello\r\n\r\n".to_owned(), Code::ResponseInvalid, "it is not HTTP/1.1"),
        (
            "a broken chunk",
            "HTTP/1.1 200 x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n".to_owned(),
            Code::ResponseInvalid,
            "its HTTP is broken",
        ),
    ];
    let ca = Ca::new();
    for (what, bytes, code, words) in cases {
        let peer = Peer::tls(ca.chain(), move |_, to| raw(to, &bytes));
        assert_eq!(observe(&peer, &[]).await, (code, words.to_owned()), "{what}");
    }
}

#[tokio::test]
async fn an_endless_body_is_cut_at_its_cap() {
    let ca = Ca::new();
    let sent = Arc::new(Mutex::new(0_usize));
    let count = Arc::clone(&sent);
    let peer = Peer::tls(ca.chain(), move |_, to| {
        raw(to, "HTTP/1.1 200 x\r\ntransfer-encoding: chunked\r\n\r\n")?;
        loop {
            raw(to, &format!("1000\r\n{}\r\n", "x".repeat(0x1000)))?;
            *count.lock().unwrap() += 0x1000;
        }
    });
    assert_eq!(observe(&peer, &[]).await.0, Code::ResponseTooLarge);
}

#[tokio::test]
async fn a_connection_that_breaks_in_the_middle_is_unreachable() {
    let ca = Ca::new();
    let head = "HTTP/1.1 200 x\r\ncontent-length: 100\r\n\r\n{";
    for part in ["", "HTTP/1.1 200 x\r\n", head] {
        let peer = Peer::tls(ca.chain(), move |_, to| {
            raw(to, part)?;
            Err(std::io::ErrorKind::Other.into())
        });
        let (code, words) = observe(&peer, &[]).await;
        assert_eq!(
            (code, words.as_str()),
            (Code::AddressUnreachable, "the connection closed before the answer was complete")
        );
    }
}

/// What a client in a hurry makes of a peer that says `part` and then nothing, or hangs on forever with `drip`.
async fn impatient(part: &'static str, drip: &'static str) -> Fault {
    let ca = Ca::new();
    let peer = Peer::tls(ca.chain(), move |_, to| {
        raw(to, part)?;
        loop {
            std::thread::park_timeout(Duration::from_millis(20));
            raw(to, drip)?;
        }
    });
    let mut client = client();
    client.limits =
        Limits { head: Duration::from_millis(150), silence: Duration::from_millis(150), ..Limits::default() };
    client.observe(&peer.endpoint, &[]).await.unwrap_err()
}

#[tokio::test]
async fn a_founder_that_takes_the_request_and_is_silent_is_given_up() {
    for drip in ["", "HTTP/1.1 103 x\r\n\r\n"] {
        let fault = impatient("", drip).await;
        assert_eq!(fault.code, Code::AddressUnreachable);
        assert!(fault.detail.as_str().starts_with("it takes the connection but gives no answer within"));
    }
}

#[tokio::test]
async fn a_port_that_takes_connections_and_never_speaks_is_given_up() {
    let peer = Peer::plain(|_tcp| std::thread::park());
    let mut client = client();
    client.limits.connect = Duration::from_millis(150);
    let fault = client.observe(&peer.endpoint, &[]).await.unwrap_err();
    assert_eq!((fault.code, fault.detail.as_str()), (Code::AddressUnreachable, "no answer within 0 s"));
}

#[tokio::test]
async fn a_body_that_stops_or_drips_is_given_up() {
    for (drip, words) in [("", "the answer stopped in the middle for"), (" ", "the answer comes too slowly")]
    {
        let fault = impatient("HTTP/1.1 200 x\r\ncontent-length: 8000\r\n\r\n{", drip).await;
        assert_eq!(fault.code, Code::AddressUnreachable);
        assert!(fault.detail.as_str().starts_with(words), "{}", fault.detail);
    }
}

#[tokio::test]
async fn problems_become_faults_and_only_a_proven_channel_is_believed() {
    let ca = Ca::new();
    let peer = Peer::tls(ca.chain(), |_, to| {
        let body = r#"{"type":"about:blank","title":"t","status":429,"code":"RATE_LIMITED","requestId":"r1","detail":"slow down"}"#;
        raw(
            to,
            &format!(
                "HTTP/1.1 429 x\r\nretry-after: 30\r\ncontent-type: application/problem+json\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            ),
        )
    });
    let client = client();
    let unproven = client.observe(&peer.endpoint, &[]).await.unwrap_err();
    let proven = client.poll(&peer.endpoint, &[ca.pin()], &join_id(), 0, "pending", false).await.unwrap_err();
    for (fault, verified) in [(unproven, false), (proven, true)] {
        assert_eq!((fault.code, fault.http, fault.retry_after), (Code::RateLimited, Some(429), Some(30)));
        assert_eq!(
            (fault.detail.as_str(), fault.from_founder, fault.verified),
            ("slow down", true, verified)
        );
    }
}

#[tokio::test]
async fn a_registration_that_is_not_ours_or_not_whole_is_refused() {
    let ca = Ca::new();
    let cases = [
        (r#"{"joinId":"nj-other","state":"pending"}"#, "joinId of another registration"),
        (r#"{"joinId":"nj-8w2k4m1p","state":""}"#, "state"),
        (
            r#"{"joinId":"nj_8w2k4m1p","state":"pending"}"#,
            "joinId is not of its documented form at line 1 column 23",
        ),
        (r#"{"joinId":"nj-8w2k4m1p","state":"delivering"}"#, "delivery without nodeYaml or bundle"),
        (
            r#"{"joinId":"nj-8w2k4m1p","state":"delivering","delivery":{"bundle":{}}}"#,
            "delivery without nodeYaml or bundle",
        ),
        (
            r#"{"joinId":"nj-8w2k4m1p","state":"pending","nextPins":["sha256.A"]}"#,
            "pin is not of its documented form at line 1 column 65",
        ),
    ];
    for (body, words) in cases {
        let peer = Peer::tls(ca.chain(), move |_, to| json(to, 200, body));
        let fault = client().poll(&peer.endpoint, &[ca.pin()], &join_id(), 0, "x", false).await.unwrap_err();
        assert_eq!((fault.code, fault.detail.as_str()), (Code::ResponseInvalid, words));
        assert!(fault.verified);
    }
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
