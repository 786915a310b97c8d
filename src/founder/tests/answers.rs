//! Answers that are refused, late, broken or endless.

use std::net::TcpListener;

use super::super::peer::{Ca, Peer, endpoint, json, raw};
use super::*;

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
async fn a_founder_that_hangs_up_after_each_answer_costs_no_call() {
    let ca = Ca::new();
    let peer = Peer::tls(ca.chain(), |_, to| {
        json(to, 200, PENDING)?;
        Err(std::io::ErrorKind::Other.into())
    });
    let client = client();
    for call in 1..=20 {
        client.poll(&peer.endpoint, &[ca.pin()], &join_id(), 0, "pending", false).await.unwrap();
        assert_eq!(peer.connections(), call);
    }
}
