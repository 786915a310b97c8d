//! What a founder, an impostor or a relay was told, searched for what must not have reached it.

use lab_founder::{LabFounder, Received};
use stratum_join::protocol::code::JoinCode;

/// Whether `needle` stands in `hay`. An empty needle is a mistake of the test.
pub fn holds(hay: &[u8], needle: &str) -> bool {
    assert!(!needle.is_empty());
    hay.windows(needle.len()).any(|window| window == needle.as_bytes())
}

/// The secret part of a join code (characters 3 to 10; the selector is public) and the whole code, each as a person, a log or a URL may
/// spell it.
pub fn spellings(code: &str) -> Vec<String> {
    let code = JoinCode::parse(code).unwrap();
    let written = code.written();
    let plain = written.replace('-', "");
    let all = [written.to_string(), plain.clone(), plain[2..10].to_owned()];
    all.iter().flat_map(|text| [text.clone(), text.to_ascii_lowercase()]).collect()
}

/// Everything of these requests in one heap of bytes.
pub fn heap(received: &[Received]) -> Vec<u8> {
    let mut heap = Vec::new();
    for request in received {
        let head =
            format!("{} {}?{}\n", request.method, request.path, request.query.as_deref().unwrap_or(""));
        heap.extend_from_slice(head.as_bytes());
        heap.extend_from_slice(&request.body);
        heap.push(b'\n');
    }
    heap
}

/// Requests with this method whose path begins so.
pub fn count(founder: &LabFounder, method: &str, path: &str) -> usize {
    founder.core().received().iter().filter(|r| r.method == method && r.path.starts_with(path)).count()
}

/// Proofs that were begun.
pub fn proofs(founder: &LabFounder) -> usize {
    let received = founder.core().received();
    received.iter().filter(|r| r.method == "POST" && r.path == "/v1/join/proofs").count()
}

/// Fails when an inventory, the pairing nonce, our confirmation or the code is among the bytes.
pub fn assert_nothing_given_away(bytes: &[u8], code: &str) {
    for word in [
        "inventory",
        "\"disks\"",
        "\"nics\"",
        "hostname",
        "pairingNonce",
        "/confirm",
        "bootId",
        "selfUpgrade",
    ] {
        assert!(!holds(bytes, word), "{word} was sent: {}", String::from_utf8_lossy(bytes));
    }
    for spelling in spellings(code) {
        assert!(!holds(bytes, &spelling), "the code was sent");
    }
}

#[test]
fn the_search_finds_what_it_looks_for() {
    let found = |bytes: &[u8]| {
        std::panic::catch_unwind(|| assert_nothing_given_away(bytes, "4F7K-2Q9M-ABD")).is_err()
    };
    for bytes in [
        &b"x 4f7k2q9mabd"[..],
        b"7K2Q9MAB",
        b"4F7K-2Q9M-ABD",
        b"{\"inventory\":{}}",
        b"POST /v1/join/proofs/x/confirm",
    ] {
        assert!(found(bytes), "{}", String::from_utf8_lossy(bytes));
    }
    assert!(!found(b"POST /v1/join/proofs {\"selector\":\"4F\"}"));
}
