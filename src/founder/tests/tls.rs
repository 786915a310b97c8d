//! Who is accepted and who is not: chains, keys, dates, versions, and services that are no join listener.

use std::io::{Read, Write};

use rcgen::{ExtendedKeyUsagePurpose, PKCS_ED25519, PKCS_RSA_SHA256, date_time_ymd};
use rustls::pki_types::CertificateDer;

use super::super::peer::{Ca, Peer, certified, json};
use super::*;

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
        rcgen::KeyPair::from_pkcs8_pem_and_sign_algo(include_str!("../testdata/rsa.pem"), &PKCS_RSA_SHA256)
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
            let _ = tcp.read(&mut hello);
            let _ = tcp.write_all(bytes);
        });
        assert_eq!(observe(&peer, &[]).await, (code, words.to_owned()), "{what}");
    }
}
