//! Every group of `../shared/vectors/stratum-join-1.json`, made by a second implementation in Python, on both sides of the protocol.
#![allow(clippy::unwrap_used)]

use data_encoding::HEXLOWER;
use serde_json::Value;

use super::super::code::JoinCode;
use super::super::pairing::{commitment, delivery_digest, pairing_code};
use super::super::pake::check;
use super::super::wire::JoinId;
use super::*;

/// The cases of a group; `None` when the file is not there.
fn group(name: &str, count: usize) -> Option<Vec<Value>> {
    let file = crate::test_support::shared("vectors/stratum-join-1.json")?;
    let all: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let cases = all[name].as_array().unwrap().clone();
    assert_eq!(cases.len(), count, "{name}");
    Some(cases)
}

fn text<'a>(case: &'a Value, name: &str) -> &'a str {
    case[name].as_str().unwrap()
}

fn bytes(case: &Value, name: &str) -> Vec<u8> {
    HEXLOWER.decode(text(case, name).as_bytes()).unwrap()
}

fn fixed<const N: usize>(case: &Value, name: &str) -> [u8; N] {
    bytes(case, name).try_into().unwrap()
}

fn optional(case: &Value, name: &str) -> Option<B64<32>> {
    let bytes = bytes(case, name);
    (!bytes.is_empty()).then(|| B64(bytes.try_into().unwrap()))
}

fn intent(case: &Value) -> Intent {
    serde_json::from_value(case["intent"].clone()).unwrap()
}

#[test]
fn code() {
    for case in group("code", 10).into_iter().flatten() {
        let code = JoinCode::parse(text(&case, "typed")).unwrap();
        assert_eq!(code.written().replace('-', ""), text(&case, "normalised"));
        assert_eq!(code.written().as_str(), text(&case, "display"));
        assert_eq!(code.selector(), text(&case, "selector"));
        assert_eq!(&code.password()[2..], text(&case, "secret"));
        assert_eq!(code.check_fits(), case["checkOk"].as_bool().unwrap());
        let ten: Vec<u8> = code
            .password()
            .bytes()
            .map(|c| {
                u8::try_from(crate::protocol::code::ALPHABET.iter().position(|a| *a == c).unwrap()).unwrap()
            })
            .collect();
        let minted = JoinCode::mint(&ten.try_into().unwrap());
        assert_eq!(&minted.written()[12..], text(&case, "checkExpected"));
    }
}

#[test]
fn code_refused() {
    for case in group("codeRefused", 10).into_iter().flatten() {
        assert_eq!(JoinCode::parse(text(&case, "typed")).unwrap_err().reason(), text(&case, "reason"));
    }
}

#[test]
fn w() {
    for case in group("w", 10).into_iter().flatten() {
        assert_eq!(case["iterations"], ROUNDS);
        let w = Stretched::stretch(text(&case, "password"), text(&case, "selector"));
        assert_eq!(w.as_bytes(), &fixed::<32>(&case, "w"));
        let code = JoinCode::parse(&format!("{}0", text(&case, "password"))).unwrap();
        assert_eq!(Stretched::of(&code).as_bytes(), w.as_bytes());
    }
}

#[test]
fn th0_binds_both_keys_the_selector_and_the_intent() {
    for case in group("th0", 10).into_iter().flatten() {
        assert_eq!(text(&case, "suite"), SUITE);
        let th0 = th0(
            &Pin(fixed(&case, "caFP")),
            &fixed(&case, "clientFP"),
            text(&case, "selector"),
            intent(&case),
        );
        assert_eq!(th0, fixed(&case, "th0"));
    }
}

/// Runs one vector through both sides and returns whether the joiner accepted the founder.
fn run(case: &Value) -> bool {
    let w = |side: &str| Stretched::from_bytes(fixed(case, &format!("w{side}")));
    let entropy = |side: &str| Zeroizing::new(fixed::<64>(case, &format!("entropy{side}")));
    let proof_id = B64(fixed(case, "proofId"));
    let (resume, commit) = (optional(case, "resumeCommit"), optional(case, "commit"));

    let joiner = JoinerProof::<Spake2Ed25519>::start_with(
        &w("Joiner"),
        "4F",
        fixed(case, "th0Joiner"),
        Intent::Register,
        &entropy("A"),
    );
    assert_eq!(joiner.request().msg.0.to_vec(), bytes(case, "msgA"));
    let (answer, founder) = FounderProof::answer_with::<Spake2Ed25519>(
        &w("Founder"),
        &fixed(case, "th0Founder"),
        &joiner.request().msg,
        proof_id,
        resume,
        &entropy("B"),
    )
    .unwrap();
    assert_eq!(answer.msg.0.to_vec(), bytes(case, "msgB"));
    assert_eq!(answer.confirm.0, fixed(case, "confirmFSent"));

    // The keys and transcripts in between.
    for (side, key_name, th0_name, th1_name, peer, password, seed) in [
        (Side::Joiner, "keyJoiner", "th0Joiner", "th1Joiner", "msgB", "Joiner", "A"),
        (Side::Founder, "keyFounder", "th0Founder", "th1Founder", "msgA", "Founder", "B"),
    ] {
        let pake = Spake2Ed25519::start(side, &w(password), &fixed(case, th0_name), &entropy(seed));
        let key = pake.finish(&bytes(case, peer)).unwrap();
        assert_eq!(*key, fixed::<32>(case, key_name));
        let msg = |name| B64(fixed::<33>(case, name));
        let th1 = th1(&fixed(case, th0_name), &msg("msgA"), &msg("msgB"), &proof_id);
        assert_eq!(th1, fixed(case, th1_name));
        let (k_f, k_j) = confirmation_keys(&key, &th1);
        let (f_name, j_name) = match side {
            Side::Joiner => ("confirmFExpected", "confirmJSent"),
            Side::Founder => ("confirmFSent", "confirmJExpected"),
        };
        assert_eq!(Confirming { key: k_f, th1 }.tag(resume.as_ref()).0, fixed(case, f_name));
        assert_eq!(Confirming { key: k_j, th1 }.tag(commit.as_ref()).0, fixed(case, j_name));
    }

    let sent = B64(fixed(case, "confirmJSent"));
    match joiner.finish(&answer) {
        Ok(confirmed) => {
            assert_eq!(confirmed.confirm(commit.as_ref()), sent);
            assert_eq!(confirmed.resume_commit(), resume);
            assert!(founder.accepts(&sent, commit.as_ref()));
            // Another commitment than the one confirmed is not accepted.
            assert!(!founder.accepts(&sent, Some(&B64([9; 32]))));
            true
        }
        Err(error) => {
            assert_eq!(error, ProofError::NotProven);
            assert!(!founder.accepts(&sent, commit.as_ref()));
            false
        }
    }
}

#[test]
fn proof() {
    for case in group("proof", 10).into_iter().flatten() {
        assert!(case["accepted"].as_bool().unwrap());
        assert!(run(&case));
    }
}

#[test]
fn proof_must_fail() {
    for case in group("proofMustFail", 5).into_iter().flatten() {
        assert!(!case["accepted"].as_bool().unwrap());
        assert!(!run(&case), "{}", text(&case, "why"));
    }
}

#[test]
fn message() {
    let w = Stretched::from_bytes([1; 32]);
    for case in group("message", 10).into_iter().flatten() {
        let bytes = bytes(&case, "msg");
        assert_eq!(text(&case, "side"), "B");
        let refused = |result: Option<MessageError>| result.map_or("", MessageError::reason);
        assert_eq!(refused(check(&bytes, b'B').err()), text(&case, "refused"), "{case}");
        // The same before the crate, which accepts most of them, gets to see it.
        let pake = Spake2Ed25519::start(Side::Joiner, &w, &[2; 32], &Zeroizing::new([7; 64]));
        assert_eq!(refused(pake.finish(&bytes).err()), text(&case, "refused"), "{case}");
    }
}

#[test]
fn commit() {
    for case in group("commit", 10).into_iter().flatten() {
        assert_eq!(commitment(&B64(fixed(&case, "nJ"))).0, fixed(&case, "commit"));
    }
}

#[test]
fn pairing() {
    for case in group("pairing", 10).into_iter().flatten() {
        let join_id = JoinId::parse(text(&case, "joinId")).unwrap();
        let (n_j, n_f) = (B64(fixed(&case, "nJ")), B64(fixed(&case, "nF")));
        let code = pairing_code(&Pin(fixed(&case, "caFP")), &fixed(&case, "clientFP"), &join_id, &n_j, &n_f);
        assert_eq!(code, text(&case, "pairingCode"));
    }
}

#[test]
fn pin() {
    for case in group("pin", 10).into_iter().flatten() {
        assert_eq!(Pin(fixed(&case, "caFP")).to_string(), text(&case, "text"));
        assert_eq!(Pin::parse(text(&case, "text")).unwrap().0, fixed::<32>(&case, "caFP"));
    }
}

#[test]
fn delivery() {
    for case in group("deliveryDigest", 10).into_iter().flatten() {
        let digest = delivery_digest(text(&case, "nodeYaml").as_bytes(), text(&case, "bundle").as_bytes());
        assert_eq!(digest, text(&case, "sha256"));
    }
}

#[test]
fn a_reflected_message_is_refused_on_either_side() {
    let w = Stretched::from_bytes([1; 32]);
    let entropy = Zeroizing::new([7; 64]);
    for side in [Side::Joiner, Side::Founder] {
        let pake = Spake2Ed25519::start(side, &w, &[2; 32], &entropy);
        let own = pake.message();
        assert_eq!(pake.finish(&own.0).unwrap_err(), MessageError::Form);
    }
}

#[test]
fn live_runs_agree_and_a_changed_confirmation_is_not_proven() {
    let w = Stretched::from_bytes([1; 32]);
    let (ca, client) = (Pin([2; 32]), [3; 32]);
    for resume in [None, Some(B64([4; 32]))] {
        let start = || JoinerProof::start(&w, "4F", &ca, &client, Intent::Register).unwrap();
        let joiner = start();
        let (answer, founder) =
            FounderProof::answer(&w, &ca, &client, joiner.request(), B64([5; 16]), resume).unwrap();
        let mut forged = answer.clone();
        forged.resume_commit = Some(B64([9; 32]));
        let confirmed = joiner.finish(&answer).unwrap();
        assert!(founder.accepts(&confirmed.confirm(Some(&B64([6; 32]))), Some(&B64([6; 32]))));
        // The same answer with another resume commitment, to a joiner that began anew: nothing fits.
        assert_eq!(start().finish(&forged).unwrap_err(), ProofError::NotProven);
    }
}
