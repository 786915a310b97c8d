//! The listeners over real sockets: handshakes, limits, polls, and each fault as a client sees it.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream as StdStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::LabFounder;
use crate::config::{Config, Limits};
use crate::evil::{Evil, Step};
use crate::proxy::{FaultProxy, ProxyFault};
use crate::relay::{Relay, client};
use crate::tls::{Leaf, SERVER_NAME, spki_fingerprint};

type Stream = TlsStream<TcpStream>;

async fn connect_as(addr: SocketAddr, leaf: &Leaf) -> std::io::Result<Stream> {
    let stream = TcpStream::connect(addr).await?;
    client(leaf).unwrap().connect(ServerName::try_from(SERVER_NAME).unwrap(), stream).await
}

async fn connect(addr: SocketAddr) -> std::io::Result<Stream> {
    connect_as(addr, &Leaf::joiner().unwrap()).await
}

async fn send(stream: &mut Stream, method: &str, path: &str, body: &str) -> std::io::Result<()> {
    let head =
        format!("{method} {path} HTTP/1.1\r\nhost: {SERVER_NAME}\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.flush().await
}

/// Status, head and body of one answer.
async fn receive(stream: &mut Stream) -> std::io::Result<(u16, String, Vec<u8>)> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
            let length =
                head.lines().find_map(|l| l.strip_prefix("content-length: ")).and_then(|l| l.parse().ok());
            let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
            let body = &bytes[end + 4..];
            if body.len() >= length.unwrap_or(0) {
                return Ok((status, head, body.to_vec()));
            }
        }
        let mut piece = [0; 8192];
        match stream.read(&mut piece).await? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            n => bytes.extend_from_slice(&piece[..n]),
        }
    }
}

async fn get(addr: SocketAddr, path: &str) -> std::io::Result<(u16, String, Vec<u8>)> {
    let mut stream = connect(addr).await?;
    send(&mut stream, "GET", path, "").await?;
    receive(&mut stream).await
}

fn start() -> LabFounder {
    LabFounder::start_now(Config::for_tests()).unwrap()
}

/// A registered joiner, put straight into the store through the core.
fn registered(founder: &LabFounder, leaf: &Leaf) -> String {
    use stratum_join::protocol::encoding::B64;
    use stratum_join::protocol::pairing::commitment;
    use stratum_join::protocol::proof::{JoinerProof, Stretched};
    use stratum_join::protocol::wire::Intent;
    let (core, now) = (founder.core(), founder.now_ms());
    let made = core.create_code(now, 600, "").unwrap();
    let fp = leaf.fingerprint().unwrap();
    let peer = crate::Peer { client_fp: fp, addr: [127, 0, 0, 1].into() };
    let w = Stretched::of(&made.code);
    let proof = JoinerProof::start(&w, made.code.selector(), &core.ca_pin(), &fp, Intent::Register).unwrap();
    let answer = core.dispatch(now, peer, &crate::Request::send("POST", "/v1/join/proofs", proof.request()));
    let proven = proof.finish(&serde_json::from_slice(&answer.body).unwrap()).unwrap();
    let commit = commitment(&B64([7; 32]));
    let path = format!("/v1/join/proofs/{}/confirm", proven.proof_id().encode());
    let body = json!({ "confirm": proven.confirm(Some(&commit)), "commit": commit });
    assert_eq!(core.dispatch(now, peer, &crate::Request::send("POST", &path, &body)).status, 200);
    let body = json!({
        "proofId": proven.proof_id(), "pairingNonce": B64([7; 32]), "release": "0.7.0", "selfUpgrade": true,
        "hostname": "node-2", "serial": "", "agent": "0.1.0", "bootId": "1b4e28ba-2fa1-41d2-883f-0016d3cca427",
        "inventory": { "disks": [], "nics": [] },
    });
    let answer = core.dispatch(now, peer, &crate::Request::send("POST", "/v1/join/registrations", &body));
    answer.value()["joinId"].as_str().unwrap().to_owned()
}

fn approve(founder: &LabFounder, id: &str) {
    let mut request =
        crate::Request::send("POST", &format!("/v1/admin/cluster/joins/{id}/approve"), &json!({}));
    request.bearer = Some(founder.token().to_owned());
    let answer = founder.core().dispatch_admin(founder.now_ms(), &request);
    assert_eq!(answer.status, 200, "{}", answer.value());
}

#[tokio::test]
async fn the_chain_is_leaf_and_join_ca_and_the_pin_is_the_cas_key() {
    let founder = start();
    let stream = connect(founder.join_addr()).await.unwrap();
    let session = stream.get_ref().1;
    let chain = session.peer_certificates().unwrap();
    assert_eq!(chain.len(), 2);
    assert_eq!(spki_fingerprint(&chain[1]).unwrap(), founder.ca_pin().0);
    assert_eq!(session.alpn_protocol(), Some(b"http/1.1".as_slice()));
    assert_eq!(session.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_3));
    let (status, _, body) = get(founder.join_addr(), "/v1/join").await.unwrap();
    assert_eq!(status, 200);
    assert_eq!(serde_json::from_slice::<Value>(&body).unwrap()["protocols"], json!(["stratum-join/1"]));
}

#[tokio::test]
async fn who_shows_no_key_or_speaks_tls_1_2_gets_no_answer() {
    let founder = start();
    let provider = Arc::new(super::provider());
    let roots = rustls::RootCertStore::empty();
    let tls12 = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(founder.join_addr()).await.unwrap();
    let name = ServerName::try_from(SERVER_NAME).unwrap();
    let refused = tokio_rustls::TlsConnector::from(Arc::new(tls12)).connect(name, stream).await;
    assert!(refused.unwrap_err().to_string().contains("ProtocolVersion"));
    let mut other = Leaf::joiner().unwrap();
    // A certificate whose key it does not hold.
    other.key_der = Leaf::joiner().unwrap().key_der;
    let mut stream = connect_unchecked(founder.join_addr(), &other).await;
    let answer = async {
        send(&mut stream, "GET", "/v1/join", "").await?;
        receive(&mut stream).await
    };
    assert!(answer.await.is_err());
    assert!(founder.core().received().is_empty());
}

/// rustls refuses a key that does not fit its certificate, so the mismatch is made behind its back.
async fn connect_unchecked(addr: SocketAddr, leaf: &Leaf) -> Stream {
    use rustls::client::ResolvesClientCert;
    use rustls::sign::CertifiedKey;
    #[derive(Debug)]
    struct Forged(Arc<CertifiedKey>);
    impl ResolvesClientCert for Forged {
        fn resolve(&self, _: &[&[u8]], _: &[rustls::SignatureScheme]) -> Option<Arc<CertifiedKey>> {
            Some(self.0.clone())
        }
        fn has_certs(&self) -> bool {
            true
        }
    }
    let key = rustls::crypto::ring::sign::any_supported_type(&leaf.key()).unwrap();
    let forged = Forged(Arc::new(CertifiedKey::new(vec![leaf.certificate()], key)));
    let honest = client(&Leaf::joiner().unwrap()).unwrap();
    let mut config = (**honest.config()).clone();
    config.client_auth_cert_resolver = Arc::new(forged);
    let stream = TcpStream::connect(addr).await.unwrap();
    let name = ServerName::try_from(SERVER_NAME).unwrap();
    tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
}

#[tokio::test]
async fn a_poll_is_held_until_the_state_changes() {
    let founder = start();
    let leaf = Leaf::joiner().unwrap();
    let id = registered(&founder, &leaf);
    let mut stream = connect_as(founder.join_addr(), &leaf).await.unwrap();
    send(&mut stream, "GET", &format!("/v1/join/registrations/{id}?wait=50&state=pending"), "")
        .await
        .unwrap();
    let nothing = tokio::time::timeout(Duration::from_millis(150), receive(&mut stream)).await;
    assert!(nothing.is_err(), "held");
    approve(&founder, &id);
    let (status, _, body) = receive(&mut stream).await.unwrap();
    let answer: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((status, &answer["state"]), (200, &json!("delivering")));
    assert!(answer["delivery"]["bundle"].is_object());
}

#[tokio::test]
async fn a_poll_is_answered_after_its_wait_and_the_third_sends_the_first_home() {
    let founder = start();
    let leaf = Leaf::joiner().unwrap();
    let id = registered(&founder, &leaf);
    let begin = Instant::now();
    let path = format!("/v1/join/registrations/{id}?wait=1");
    let mut stream = connect_as(founder.join_addr(), &leaf).await.unwrap();
    send(&mut stream, "GET", &path, "").await.unwrap();
    assert_eq!(receive(&mut stream).await.unwrap().0, 200);
    assert!(begin.elapsed() >= Duration::from_secs(1));
    let long = format!("/v1/join/registrations/{id}?wait=60&state=pending");
    let mut first = connect_as(founder.join_addr(), &leaf).await.unwrap();
    send(&mut first, "GET", &long, "").await.unwrap();
    // Only when the founder holds it do the others come.
    while founder.core().received().iter().filter(|r| r.method == "GET").count() < 2 {
        tokio::task::yield_now().await;
    }
    let mut others = Vec::new();
    for _ in 0..2 {
        let mut other = connect_as(founder.join_addr(), &leaf).await.unwrap();
        send(&mut other, "GET", &long, "").await.unwrap();
        others.push(other);
    }
    let (_, _, body) = receive(&mut first).await.unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&body).unwrap()["state"], "pending");
}

#[tokio::test]
async fn a_foreign_keys_poll_is_refused_at_once() {
    let founder = start();
    let id = registered(&founder, &Leaf::joiner().unwrap());
    let own = get(founder.join_addr(), &format!("/v1/join/registrations/{id}?wait=60&state=pending"))
        .await
        .unwrap();
    let unknown = get(founder.join_addr(), "/v1/join/registrations/nj-00000000").await.unwrap();
    assert_eq!(own, unknown, "byte for byte, head included");
    assert_eq!(own.0, 404);
}

#[tokio::test]
async fn bodies_and_heads_over_their_bounds_are_refused() {
    let founder = start();
    for (path, size, code) in [
        ("/v1/join/proofs", 4 * 1024 + 1, "BODY_TOO_LARGE"),
        ("/v1/join/registrations", 256 * 1024 + 1, "INVENTORY_TOO_LARGE"),
    ] {
        let mut stream = connect(founder.join_addr()).await.unwrap();
        // The answer may come before the whole body is sent.
        let _ = send(&mut stream, "POST", path, &" ".repeat(size)).await;
        let (status, _, body) = receive(&mut stream).await.unwrap();
        assert_eq!(status, 413);
        assert_eq!(serde_json::from_slice::<Value>(&body).unwrap()["code"], code);
    }
    let mut stream = connect(founder.join_addr()).await.unwrap();
    let head = format!("GET /v1/join HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "y".repeat(17 * 1024));
    let _ = stream.write_all(head.as_bytes()).await;
    assert!(!matches!(receive(&mut stream).await, Ok((200, _, _))));
}

#[tokio::test]
async fn four_connections_come_from_one_address_and_no_fifth() {
    let limits = Limits { connections_per_address: 4, ..Limits::wide() };
    let founder = LabFounder::start_now(Config { limits, ..Config::for_tests() }).unwrap();
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(connect(founder.join_addr()).await.unwrap());
    }
    assert!(connect(founder.join_addr()).await.is_err());
}

#[tokio::test]
async fn an_answer_to_a_proof_leaves_no_earlier_than_the_floor() {
    let limits = Limits { proof_floor_ms: 300, ..Limits::wide() };
    let founder = LabFounder::start_now(Config { limits, ..Config::for_tests() }).unwrap();
    let mut stream = connect(founder.join_addr()).await.unwrap();
    let begin = Instant::now();
    send(&mut stream, "POST", "/v1/join/proofs", "{}").await.unwrap();
    assert_eq!(receive(&mut stream).await.unwrap().0, 400);
    assert!(begin.elapsed() >= Duration::from_millis(300), "refusals too");
}

#[tokio::test]
async fn stopping_is_abrupt_and_a_restart_takes_the_same_port_and_keys() {
    let mut founder = start();
    let (addr, pin) = (founder.join_addr(), founder.ca_pin());
    let mut stream = connect(addr).await.unwrap();
    founder.stop();
    assert!(StdStream::connect(addr).is_err(), "closed when stop returns");
    let answer = async {
        send(&mut stream, "GET", "/v1/join", "").await?;
        receive(&mut stream).await
    };
    assert!(answer.await.is_err());
    let founder = founder.restart().unwrap();
    assert_eq!((founder.join_addr(), founder.ca_pin()), (addr, pin));
    assert_eq!(get(addr, "/v1/join").await.unwrap().0, 200);
    let other = crate::tls::JoinCa::generate("other").unwrap();
    let founder = founder.restart_with(|c| c.ca = Some(other)).unwrap();
    assert_eq!(founder.join_addr(), addr);
    assert_ne!(founder.ca_pin(), pin, "another cluster at the same address");
}

/// What a client gets with a fault on its connection or its call.
async fn under(founder: &LabFounder, evil: Evil) -> std::io::Result<(u16, String, Vec<u8>)> {
    founder.core().set_evil(vec![evil.once(Step::Any)]);
    let answer = tokio::time::timeout(Duration::from_millis(400), get(founder.join_addr(), "/v1/join")).await;
    founder.core().set_evil(Vec::new());
    answer.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
}

#[tokio::test]
async fn each_fault_of_connection_and_bytes_is_what_its_name_says() {
    use std::io::ErrorKind::{ConnectionReset, InvalidData, TimedOut, UnexpectedEof};
    let founder = start();
    let kinds = [
        (Evil::RefuseConnect, vec![ConnectionReset]),
        (Evil::AcceptThenSilence, vec![TimedOut]),
        (Evil::ResetBeforeAnswer, vec![ConnectionReset]),
        (Evil::ResetAfterRequest, vec![ConnectionReset]),
        (Evil::HalfClose, vec![UnexpectedEof]),
        (Evil::OneBytePerSecond, vec![TimedOut]),
        (Evil::CloseMidBody { after: 20 }, vec![UnexpectedEof]),
        (Evil::Tls12Only, vec![InvalidData]),
        (Evil::PlainHttp, vec![InvalidData]),
        (Evil::WrongContentLength, vec![UnexpectedEof, TimedOut]),
        (Evil::NeverAnswer, vec![TimedOut]),
        (Evil::EndlessBody, vec![TimedOut]),
    ];
    for (evil, expected) in kinds {
        let kind = under(&founder, evil.clone()).await.map(|a| a.0).unwrap_err().kind();
        assert!(expected.contains(&kind), "{evil:?}: {kind:?}");
    }
    let text = |answer: (u16, String, Vec<u8>)| (answer.0, answer.1 + &String::from_utf8_lossy(&answer.2));
    for (evil, status, holds) in [
        (Evil::HtmlPage, 200, "<script>"),
        (Evil::Redirect, 302, "location: "),
        (Evil::GzipBody, 200, "content-encoding: gzip"),
        (Evil::TenThousandHeaders, 200, "x-lab-9999"),
        (Evil::DeepJson, 200, "[[[["),
        (Evil::EndlessChunks, 200, "chunked"),
        (Evil::InformationalFlood, 103, "103"),
        (Evil::ProtocolVersionOnly { version: 99 }, 200, "stratum-join/99"),
    ] {
        let (got, body) = text(under(&founder, evil.clone()).await.unwrap());
        assert!(got == status && body.contains(holds), "{evil:?}: {got}");
    }
    assert_eq!(get(founder.join_addr(), "/v1/join").await.unwrap().0, 200, "well again");
}

#[tokio::test]
async fn each_faulty_chain_is_what_its_name_says() {
    let founder = start();
    let pin = founder.ca_pin().0;
    for (evil, length, own_ca) in [
        (Evil::LeafOnly, 1, false),
        (Evil::ThreeCerts, 3, true),
        (Evil::LeafFromOtherCa, 2, true),
        (Evil::OtherJoinCa, 2, false),
        (Evil::HugeCertificate, 2, true),
        (Evil::OtherLeafSameCa, 2, true),
    ] {
        founder.core().set_evil(vec![evil.clone().once(Step::Any)]);
        let stream = connect(founder.join_addr()).await.unwrap();
        let chain = stream.get_ref().1.peer_certificates().unwrap();
        assert_eq!(chain.len(), length, "{evil:?}");
        let ca = chain.get(1).map(|c| spki_fingerprint(c).unwrap());
        assert_eq!(ca == Some(pin), own_ca, "{evil:?}");
    }
}

#[tokio::test]
async fn a_relay_forwards_every_byte_under_keys_of_its_own() {
    let founder = start();
    let relay = Relay::start(founder.join_addr()).unwrap();
    let leaf = Leaf::joiner().unwrap();
    let mut stream = connect_as(relay.addr(), &leaf).await.unwrap();
    let ca = spki_fingerprint(&stream.get_ref().1.peer_certificates().unwrap()[1]).unwrap();
    assert_eq!(ca, relay.ca_pin().0);
    assert_ne!(relay.ca_pin(), founder.ca_pin());
    send(&mut stream, "GET", "/v1/join", "").await.unwrap();
    assert_eq!(receive(&mut stream).await.unwrap().0, 200);
    let received = founder.core().received();
    assert_eq!(received[0].path, "/v1/join");
    assert_ne!(received[0].peer.client_fp, leaf.fingerprint().unwrap(), "the founder sees the relay's key");
    assert!(String::from_utf8_lossy(&relay.seen_from_joiner()).starts_with("GET /v1/join"));
    assert!(String::from_utf8_lossy(&relay.seen_from_founder()).contains("stratum-join/1"));
}

/// A plain TCP server that answers `n` bytes to every byte it gets.
fn echo_server(n: usize) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            std::thread::spawn(move || {
                let mut byte = [0];
                while matches!(stream.read(&mut byte), Ok(1)) {
                    let _ = stream.write_all(&vec![byte[0]; n]);
                }
            });
        }
    });
    addr
}

fn exchange(proxy: &FaultProxy) -> (usize, std::io::Result<usize>) {
    let mut stream = StdStream::connect(proxy.addr()).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    // A reset that is there already is the write's to tell, and the read then finds the end.
    if let Err(reset) = stream.write_all(b"x") {
        return (0, Err(reset));
    }
    let mut got = 0;
    let mut buffer = [0; 64];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return (got, Ok(0)),
            Ok(n) if got + n >= 100 => return (got + n, Ok(n)),
            Ok(n) => got += n,
            Err(e) => return (got, Err(e)),
        }
    }
}

#[test]
fn the_proxy_breaks_as_it_is_told_and_is_well_again() {
    use std::io::ErrorKind::{ConnectionReset, WouldBlock};
    let proxy = FaultProxy::start(echo_server(100)).unwrap();
    let ok = |fault, bytes| {
        proxy.set(fault);
        let (got, end) = exchange(&proxy);
        assert_eq!((got, end.is_ok()), (bytes, true), "{fault:?}");
    };
    let err = |fault, bytes, kind| {
        proxy.set(fault);
        let (got, end) = exchange(&proxy);
        assert_eq!((got, end.unwrap_err().kind()), (bytes, kind), "{fault:?}");
    };
    ok(ProxyFault::Pass, 100);
    err(ProxyFault::Refuse, 0, ConnectionReset);
    err(ProxyFault::Drop, 0, WouldBlock);
    err(ProxyFault::ResetBefore, 0, ConnectionReset);
    ok(ProxyFault::HalfClose(30), 30);
    ok(ProxyFault::Truncate(30), 30);
    ok(ProxyFault::Delay(20), 100);
    ok(ProxyFault::Pass, 100);
    proxy.set(ProxyFault::OneBytePerSecond);
    assert_eq!(exchange(&proxy).0, 0, "not one in 200 ms");
    proxy.set(ProxyFault::ResetAfter(30));
    assert!(exchange(&proxy).0 <= 30, "a reset may overtake bytes");
    assert!(proxy.connections() >= 9);
}

#[test]
fn a_dropped_connection_goes_on_when_the_proxy_is_well_again() {
    let proxy = FaultProxy::start(echo_server(100)).unwrap();
    proxy.set(ProxyFault::Drop);
    let mut stream = StdStream::connect(proxy.addr()).unwrap();
    stream.write_all(b"x").unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert!(stream.read(&mut [0]).is_err());
    proxy.set(ProxyFault::Pass);
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 1);
}
