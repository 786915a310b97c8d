//! Whom a machine believes: impostors, relays, other keys, pins. Nothing is sent to, and nothing is changed by, who did not prove the code.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use console::snapshot::{Identity, State};
use curve25519_dalek::constants::EIGHT_TORSION;
use curve25519_dalek::edwards::CompressedEdwardsY;
use lab_founder::tls::JoinCa;
use lab_founder::{Config, Evil, FaultProxy, Impostor, Relay, Step};
use stratum_join::protocol::code::JoinCode;
use stratum_join::protocol::encoding::{B64, Pin};
use stratum_join::protocol::proof::{FounderProof, JoinerProof, ProofError, Stretched};
use stratum_join::protocol::wire::Intent;

use crate::support::actions::mistyped;
use crate::support::told::{assert_nothing_given_away, count, heap, holds, proofs};
use crate::support::{Machine, World};

const CODE: &str = "4F7K-2Q9M-ABD";

fn impostor() -> Impostor {
    Impostor::start_now(Config::for_tests()).unwrap()
}

/// Every file below `dir` with its bytes.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path.display().to_string(), fs::read(&path).unwrap_or_default());
        }
    }
    found
}

#[test]
fn an_impostor_is_told_nothing_and_tried_once_also_after_a_restart() {
    let impostor = impostor();
    let mut machine = Machine::new();
    machine.ask_to_join(&impostor.addr().to_string(), CODE);
    machine.start();
    let shown = machine.wait_for_fault("CODE_NOT_PROVEN");
    assert_eq!(shown.state, State::IdentityFailed);
    assert_eq!(shown.cluster.identity, Identity::Failed);
    assert!(shown.pairing_code.is_none() && shown.cluster.pin.is_none());
    assert_eq!(machine.request()["code"], CODE, "the request is kept");
    let journal = machine.journal();
    assert!(journal["trust"].is_null() && journal["pairing"].is_null() && journal["registration"].is_null());

    machine.restart();
    let looked = || (count(impostor.founder(), "GET", "/v1/join") >= 2).then_some(());
    crate::support::wait::until(crate::support::PATIENCE, looked).expect("it looks again after its restart");
    // The operator asks for another try. Whatever the machine did of its own accord has come before it.
    machine.ask_to_join(&impostor.addr().to_string(), CODE);
    let tried = || (proofs(impostor.founder()) >= 2).then_some(());
    crate::support::wait::until(crate::support::PATIENCE, tried).expect("it tries again when it is told to");
    let words: Vec<String> = impostor.received().iter().map(|r| format!("{} {}", r.method, r.path)).collect();
    let (look, proof) = ("GET /v1/join", "POST /v1/join/proofs");
    assert_eq!(words, [look, proof, look, look, proof], "each proof costs a try of the code");
    assert_nothing_given_away(&heap(&impostor.received()), CODE);
}

#[test]
fn twenty_wrong_founders_change_nothing_and_the_right_one_behind_the_same_address_is_joined() {
    let mut world = World::new();
    let code = world.code();
    let proxy = FaultProxy::start(world.founder.join_addr()).unwrap();
    let address = proxy.addr().to_string();
    let mut before = None;
    for n in 0..20 {
        let impostor = impostor();
        proxy.set_target(impostor.addr());
        // The same request given once more is the operator's way to ask for another try.
        world.machine.ask_to_join(&address, &code);
        if n == 0 {
            world.machine.start();
        }
        let tried = || (proofs(impostor.founder()) == 1).then_some(());
        crate::support::wait::until(crate::support::PATIENCE, tried)
            .unwrap_or_else(|| panic!("founder {n} was not tried: {}", world.machine.log()));
        let unproven = |journal: &serde_json::Value| {
            journal["unproven"] == serde_json::json!(impostor.founder().ca_pin())
                && !journal["stop"].is_null()
        };
        crate::support::wait::until(crate::support::PATIENCE, || {
            unproven(&world.machine.journal()).then_some(())
        })
        .unwrap_or_else(|| panic!("{}", world.machine.log()));
        assert_nothing_given_away(&heap(&impostor.received()), &code);
        assert_eq!(proofs(impostor.founder()), 1);
        // Outside the agent's own state and what it shows nothing was written, and its key is the same.
        let mut now = files(&world.machine.path("etc"));
        now.extend(files(&world.machine.path("run/stratum")));
        now.insert("key".to_owned(), world.machine.client_key().into_bytes());
        assert_eq!(before.get_or_insert_with(|| now.clone()), &now, "founder {n}");
    }
    proxy.set_target(world.founder.join_addr());
    world.machine.ask_to_join(&address, &code);
    let shown = world.machine.wait_for_state(State::Pending);
    assert_eq!(world.joins()[0]["pairingCode"], shown.pairing_code.unwrap().as_str());
    assert!(world.machine.running(), "without a restart");
}

#[test]
fn a_relay_with_the_right_code_is_not_proven() {
    let mut world = World::new();
    let relay = Relay::start(world.founder.join_addr()).unwrap();
    let code = world.code();
    world.machine.ask_to_join(&relay.addr().to_string(), &code);
    world.machine.start();
    let shown = world.machine.wait_for_fault("CODE_NOT_PROVEN");
    assert_eq!(shown.state, State::IdentityFailed);
    let advice: Vec<_> = shown.fault.unwrap().what_to_do.iter().map(ToString::to_string).collect();
    assert!(advice.iter().any(|line| line.contains("someone may be in between")), "{advice:?}");

    let seen = relay.seen_from_joiner();
    assert!(holds(&seen, "POST /v1/join/proofs "), "it relayed the proof");
    assert_nothing_given_away(&seen, &code);
    // And the founder saw the relay's key, no confirmation, no inventory.
    assert_nothing_given_away(&heap(&world.founder.core().received()), &code);
    assert_eq!(proofs(&world.founder), 1);
    assert!(world.joins().is_empty());
}

#[test]
fn a_founder_with_another_ca_after_pinning_is_told_nothing_and_the_old_one_is_believed_again() {
    let world = World::joining();
    let before = world.machine.wait_for_state(State::Pending);
    let code = world.machine.request()["code"].as_str().unwrap().to_owned();
    let pin = world.machine.journal()["trust"]["pin"].clone();

    let other = JoinCa::generate("another cluster").unwrap();
    let world = world.with_founder_restarted(|config| config.ca = Some(other));
    let shown = world.machine.wait_for_fault("FOUNDER_KEY_CHANGED");
    assert_eq!((shown.state, shown.cluster.identity), (State::IdentityFailed, Identity::Changed));
    let message = shown.fault.unwrap().message.to_string();
    let (had, now) = (Pin::parse(pin.as_str().unwrap()).unwrap(), world.founder.ca_pin());
    assert!(message.contains(&had.short_hex(16)) && message.contains(&now.short_hex(16)), "{message}");
    assert!(world.founder.core().received().is_empty(), "the handshake already fails");
    assert_eq!(world.machine.journal()["trust"]["pin"], pin);

    let world = world.with_founder_restarted(|config| config.ca = None);
    world.machine.ask_to_join(&world.endpoint(), &code);
    let after = world.machine.wait_for_state(State::Pending);
    assert_eq!(after.pairing_code, before.pairing_code);
    assert_eq!(after.registration.join_id, before.registration.join_id);
    assert_eq!(world.machine.journal()["trust"]["pin"], pin);
}

#[test]
fn a_planned_change_of_the_clusters_key_takes_a_new_code_and_a_new_proof() {
    let world = World::joining();
    world.machine.wait_for_state(State::Pending);
    let other = JoinCa::generate("the same cluster, new key").unwrap();
    let world = world.with_founder_restarted(|config| config.ca = Some(other));
    world.machine.wait_for_fault("FOUNDER_KEY_CHANGED");
    world.ask_to_join();
    world.machine.wait_for_state(State::Pending);
    let pin = serde_json::json!(world.founder.ca_pin());
    assert_eq!(world.machine.journal()["trust"]["pin"], pin);
    // The old nonce was for the old key: it is not shown again, so the machine is a new entry with a new key of its own.
    world.machine.wait_for_log("new machine key: the founder holds another commitment");
    assert_eq!(world.joins().len(), 2);
}

#[test]
fn another_leaf_of_the_same_ca_is_the_same_cluster() {
    let world = World::joining();
    let before = world.machine.wait_for_state(State::Pending);
    let mut world = world.with_founder_restarted(|_| {});
    world.founder.core().add_evil(Evil::OtherLeafSameCa.always(Step::Any));
    let id = world.approve();
    assert_eq!(before.registration.join_id.unwrap().as_str(), id);
    world.machine.wait_for("a state after pending", |s| s.state != State::Pending);
    assert!(!world.machine.log().contains("FOUNDER_KEY_CHANGED"));
    assert!(world.machine.running() || world.machine.snapshot().unwrap().state == State::Joined);
}

/// The two that no scripted founder sends (swapped order, the right CA over a self-signed leaf) are unit tests of the verifier's client.
#[test]
fn six_wrong_chains_are_refused_before_a_request_is_sent() {
    let world = World::new();
    let code = world.code();
    let cases = [
        (Evil::LeafOnly, "TLS_FAILED", "1 certificates"),
        (Evil::ThreeCerts, "TLS_FAILED", "3 certificates"),
        (Evil::LeafFromOtherCa, "TLS_FAILED", "not signed by the join CA"),
        (Evil::HugeCertificate, "TLS_FAILED", "a certificate of"),
        (Evil::Tls12Only, "TLS_FAILED", "TLS 1.2"),
        (Evil::PlainHttp, "TLS_FAILED", "does not speak TLS"),
    ];
    for (evil, expected, words) in cases {
        world.founder.core().set_evil(vec![evil.clone().always(Step::Any)]);
        let (exit, report) = world.machine.check_json(&world.endpoint(), &code);
        assert_eq!((exit, report["code"].as_str()), (3, Some(expected)), "{evil:?}: {report}");
        assert!(report["detail"].as_str().unwrap().contains(words), "{evil:?}: {report}");
        assert!(world.founder.core().received().is_empty(), "{evil:?}");
    }
}

#[test]
fn the_agent_waits_out_a_founder_that_speaks_only_tls_1_2() {
    let mut world = World::new();
    world.founder.core().set_evil(vec![Evil::Tls12Only.always(Step::Any)]);
    world.ask_to_join();
    world.machine.start();
    let shown = world.machine.wait_for_fault("TLS_FAILED");
    assert_eq!(shown.state, State::Registering);
    let fault = shown.fault.unwrap();
    assert!(fault.message.as_str().contains("TLS 1.2") && fault.retry_at_mono.is_some(), "{fault:?}");
    assert!(world.founder.core().received().is_empty());
    world.founder.core().set_evil(Vec::new());
    world.machine.wait_for_state(State::Pending);
}

#[test]
fn a_stale_pin_of_a_url_is_never_believed_and_nothing_is_sent() {
    let mut world = World::new();
    let made = world.new_code(3600);
    let fresh = made["url"].as_str().unwrap();
    let (base, _) = fresh.split_once("?pin=").unwrap();
    let stale = format!("{base}?pin={}", serde_json::json!(Pin([7; 32])).as_str().unwrap());

    let said =
        crate::support::actions::Said::from(world.machine.installer(&["--check", "--url", "-"], &stale));
    assert_eq!(said.exit, 4, "{}{}", said.out, said.err);
    assert!(said.err.contains("is not the one in the URL"), "{}", said.err);

    assert!(world.machine.installer(&["--url", "-"], &stale).status.success());
    world.machine.start();
    let shown = world.machine.wait_for_fault("PIN_MISMATCH");
    assert_eq!((shown.state, shown.cluster.identity), (State::IdentityFailed, Identity::Changed));
    assert!(shown.fault.unwrap().retry_at_mono.is_some());
    assert!(world.founder.core().received().is_empty());

    assert!(world.machine.installer(&["--url", "-"], fresh).status.success());
    world.machine.wait_for_state(State::Pending);
}

#[test]
fn a_wrong_code_replaced_while_the_agent_runs_is_taken_within_two_seconds() {
    let mut world = World::new();
    let code = world.code();
    let wrong = mistyped(&code);
    world.machine.ask_to_join(&world.endpoint(), &wrong);
    world.machine.start();
    let shown = world.machine.wait_for_fault("CODE_NOT_PROVEN");
    let todo: Vec<_> = shown.fault.unwrap().what_to_do.iter().map(ToString::to_string).collect();
    assert!(todo.iter().any(|line| line.contains("looks mistyped")), "{todo:?}");
    assert_eq!(proofs(&world.founder), 1);

    world.machine.ask_to_join(&world.endpoint(), &code);
    let given = Instant::now();
    world.machine.wait_for("the new code", |s| s.state != State::IdentityFailed);
    let taken = given.elapsed();
    assert!(taken < Duration::from_secs(2), "{taken:?}");
    world.machine.wait_for_state(State::Pending);
    assert_eq!(proofs(&world.founder), 2);
}

#[test]
fn a_founder_that_shows_another_pairing_code_is_stopped_at() {
    let mut world = World::new();
    world.founder.core().add_evil(Evil::WrongPairingCode.always(Step::Any));
    world.ask_to_join();
    world.machine.start();
    let shown = world.machine.wait_for_fault("PAIRING_MISMATCH");
    assert_eq!(shown.state, State::IdentityFailed);
    assert!(shown.pairing_code.is_none(), "no code that anybody could compare");
    let told = world.founder.core().received().len();
    // It stopped: an approval moves nothing.
    let id = world.joins()[0]["id"].as_str().unwrap().to_owned();
    world.admin("POST", &format!("/v1/admin/cluster/joins/{id}/approve"), Some(serde_json::json!({})));
    world.machine.restart();
    world.machine.wait_for_fault("PAIRING_MISMATCH");
    assert!(!world.machine.path("etc/stratum/node.yaml").exists());

    world.founder.core().set_evil(Vec::new());
    world.ask_to_join();
    world.machine.wait_for("the new code", |s| s.state != State::IdentityFailed);
    let asked = || world.founder.core().received().get(told).map(|r| format!("{} {}", r.method, r.path));
    let next = crate::support::wait::until(crate::support::PATIENCE, asked).unwrap();
    assert_eq!(next, "GET /v1/join", "nothing was asked in between: {}", world.machine.log());
}

#[test]
fn every_evil_proof_ends_without_a_confirmation_of_ours() {
    let world = World::new();
    let code = world.code();
    // The first confirmation is its own; the second is the one before.
    let other_session =
        lab_founder::Scripted { times: Some(2), ..Evil::ConfirmOfOtherSession.always(Step::Proof) };
    world.founder.core().set_evil(vec![other_session.clone()]);
    assert_eq!(world.machine.check(&world.endpoint(), &code).exit, 0);
    let cases = [
        (Evil::ConfirmOfOtherSession.once(Step::Proof), 4, "CODE_NOT_PROVEN"),
        (Evil::WrongCode.once(Step::Proof), 4, "CODE_NOT_PROVEN"),
        (Evil::ReflectMessage.once(Step::Proof), 4, "CODE_NOT_PROVEN"),
        (Evil::OffCurveMessage.once(Step::Proof), 4, "CODE_NOT_PROVEN"),
        (Evil::LowOrderMessage.once(Step::Proof), 4, "CODE_NOT_PROVEN"),
        (Evil::SkipConfirm.once(Step::Proof), 4, "CODE_NOT_PROVEN"),
        (Evil::ProtocolVersionOnly { version: 99 }.once(Step::Discover), 6, "PROTOCOL_UNSUPPORTED"),
    ];
    let confirmed = count(&world.founder, "POST", "/v1/join/proofs/");
    for (evil, exit, expected) in cases {
        world.founder.core().set_evil(vec![evil.clone()]);
        let (code, report) = world.machine.check_json(&world.endpoint(), &code);
        assert_eq!((code, report["code"].as_str()), (exit, Some(expected)), "{evil:?}: {report}");
    }
    assert_eq!(count(&world.founder, "POST", "/v1/join/proofs/"), confirmed);
}

#[test]
fn nine_bad_pake_messages_are_refused_before_a_key_is_made() {
    let (ca, fp) = (Pin([1; 32]), [2; 32]);
    let code = JoinCode::parse(CODE).unwrap();
    let w = Stretched::of(&code);
    let begin = || JoinerProof::start(&w, code.selector(), &ca, &fp, Intent::Register).unwrap();
    let good = |proof: &JoinerProof| {
        FounderProof::answer(&w, &ca, &fp, proof.request(), B64([3; 16]), None).unwrap().0
    };
    let honest = begin();
    let answer = good(&honest);
    assert!(honest.finish(&answer).is_ok());

    let message = |point: [u8; 32]| {
        let mut message = [b'B'; 33];
        message[1..].copy_from_slice(&point);
        message
    };
    // A point of the group plus one of order 8, from an honest message.
    let mixed = {
        let own = good(&begin()).msg.0;
        let point = CompressedEdwardsY(own[1..].try_into().unwrap()).decompress().unwrap();
        (point + EIGHT_TORSION[1]).compress().to_bytes()
    };
    // y = p + 1 is the identity written another way.
    let mut non_canonical = [0xff; 32];
    (non_canonical[0], non_canonical[31]) = (0xee, 0x7f);
    let mut off_curve = [0; 32];
    off_curve[0] = 2;
    let mut wrong_side = good(&begin()).msg.0;
    wrong_side[0] = b'A';
    let bad = [
        message(EIGHT_TORSION[0].compress().to_bytes()),
        message(EIGHT_TORSION[4].compress().to_bytes()),
        message(EIGHT_TORSION[2].compress().to_bytes()),
        message(EIGHT_TORSION[1].compress().to_bytes()),
        message(mixed),
        message(non_canonical),
        message(off_curve),
        message([0xff; 32]),
        wrong_side,
    ];
    for (n, msg) in bad.into_iter().enumerate() {
        let proof = begin();
        let mut answer = good(&proof);
        answer.msg = B64(msg);
        assert!(matches!(proof.finish(&answer), Err(ProofError::Message(_))), "message {n}");
    }
    // Reflected: our own message comes back.
    let proof = begin();
    let mut answer = good(&proof);
    answer.msg = proof.request().msg;
    assert!(matches!(proof.finish(&answer), Err(ProofError::Message(_))));
}

/// A message that followed from the code would let whoever saw it try codes without asking the founder.
#[test]
fn no_proof_message_is_a_function_of_the_code() {
    let (ca, fp) = (Pin([1; 32]), [2; 32]);
    let code = JoinCode::parse(CODE).unwrap();
    let w = Stretched::of(&code);
    let messages: std::collections::BTreeSet<_> = (0..200)
        .map(|_| JoinerProof::start(&w, code.selector(), &ca, &fp, Intent::Register).unwrap().request().msg.0)
        .collect();
    assert_eq!(messages.len(), 200, "the same code never says the same twice");
}
