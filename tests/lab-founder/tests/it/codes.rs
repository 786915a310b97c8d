//! Join codes: proofs, guesses, and how codes end.

use lab_founder::config::{Limits, Permission, Token};
use lab_founder::{Config, Evil, Request, Step};
use serde_json::json;
use stratum_join::protocol::proof::ProofError;
use stratum_join::protocol::wire::Intent;

use crate::support::{DAY, HOUR, Joiner, MINUTE, SECOND, World, config, guess};

#[test]
fn a_proven_code_makes_one_registration_and_a_check_makes_none() {
    let world = World::new();
    let code = world.code();
    let confirmed = Joiner::new(1).begin(&world, &code, Intent::Check).proven();
    let check = Joiner::new(1).confirm(&world, &confirmed, Intent::Check).value();
    assert_eq!(check["accepting"], true);
    assert_eq!(check["clusterRelease"], "0.7.0");
    assert!(check["joinId"].is_null());
    assert_eq!(world.admin_get("/joins")["joins"], json!([]));
    Joiner::new(1).register(&world, &code);
    assert_eq!(world.admin_get("/joins")["joins"].as_array().unwrap().len(), 1);
}

#[test]
fn a_wrong_code_is_seen_by_the_joiner_and_costs_an_open_try() {
    let world = World::new();
    let code = world.code();
    let begun = Joiner::new(1).begin(&world, &guess(&code), Intent::Register);
    assert_eq!(begun.confirmed.unwrap().unwrap_err(), ProofError::NotProven);
    assert_eq!(world.code_row(&code.id)["openTries"], 1);
    assert_eq!(world.code_row(&code.id)["badTries"], 0);
}

/// A joiner that does not compare the founder's confirmation and sends something of its own.
fn bad_confirm(world: &World, joiner: &Joiner, code: &crate::support::TestCode) -> lab_founder::Response {
    let begun = joiner.begin(world, code, Intent::Register);
    let id = begun.response.value()["proofId"].as_str().unwrap_or_default().to_owned();
    if id.is_empty() {
        return begun.response;
    }
    let zeros = "A".repeat(43);
    let body = json!({ "confirm": zeros, "commit": zeros });
    joiner.call(world, &Request::send("POST", &format!("/v1/join/proofs/{id}/confirm"), &body))
}

#[test]
fn twenty_wrong_confirmations_burn_a_code() {
    let world = World::new();
    let code = world.code();
    for n in 0..20 {
        assert_eq!(bad_confirm(&world, &Joiner::new(n), &code).code(), "JOIN_CODE_WRONG");
    }
    assert_eq!(world.code_row(&code.id)["state"], "burned");
    assert_eq!(Joiner::new(77).begin(&world, &code, Intent::Register).response.code(), "JOIN_CODE_BURNED");
}

#[test]
fn two_hundred_silent_tries_burn_a_code() {
    let world = World::new();
    let code = world.code();
    for n in 0..200 {
        assert_eq!(Joiner::new(n).begin(&world, &code, Intent::Check).response.status, 200, "{n}");
    }
    assert_eq!(world.code_row(&code.id)["openTries"], 200);
    assert_eq!(Joiner::new(1).begin(&world, &code, Intent::Check).response.code(), "JOIN_CODE_BURNED");
}

#[test]
fn fifty_parallel_guesses_count_fifty() {
    let world = World::new();
    let code = world.code();
    std::thread::scope(|scope| {
        for n in 0..50 {
            let (world, code) = (&world, &code);
            scope.spawn(move || Joiner::new(n).begin(world, &guess(code), Intent::Register));
        }
    });
    assert_eq!(world.code_row(&code.id)["openTries"], 50);
}

#[test]
fn lost_answers_do_not_burn_an_honest_code() {
    let world = World::new();
    let code = world.code();
    Joiner::new(9).begin(&world, &guess(&code), Intent::Register);
    for _ in 0..150 {
        Joiner::new(1).begin(&world, &code, Intent::Register);
    }
    assert_eq!(world.code_row(&code.id)["openTries"], 151);
    Joiner::new(1).register(&world, &code);
    assert_eq!(world.code_row(&code.id)["openTries"], 1, "another's try stays counted");
}

#[test]
fn a_replayed_proof_is_refused() {
    let world = World::new();
    let code = world.code();
    let joiner = Joiner::new(1);
    let confirmed = joiner.begin(&world, &code, Intent::Register).proven();
    assert_eq!(joiner.confirm(&world, &confirmed, Intent::Register).status, 200);
    assert_eq!(joiner.confirm(&world, &confirmed, Intent::Register).code(), "PROOF_EXPIRED");
    assert_eq!(world.code_row(&code.id)["badTries"], 0);
}

#[test]
fn a_wrong_confirmation_uses_the_proof_up() {
    let world = World::new();
    let code = world.code();
    let joiner = Joiner::new(1);
    let confirmed = joiner.begin(&world, &code, Intent::Register).proven();
    let path = format!("/v1/join/proofs/{}/confirm", confirmed.proof_id().encode());
    let zeros = "A".repeat(43);
    let wrong =
        joiner.call(&world, &Request::send("POST", &path, &json!({ "confirm": zeros, "commit": zeros })));
    assert_eq!(wrong.code(), "JOIN_CODE_WRONG");
    assert_eq!(
        joiner.confirm(&world, &confirmed, Intent::Register).code(),
        "PROOF_EXPIRED",
        "one guess per proof"
    );
    assert_eq!(world.code_row(&code.id)["badTries"], 1);
}

#[test]
fn a_proof_belongs_to_the_key_that_began_it() {
    let world = World::new();
    let code = world.code();
    let confirmed = Joiner::new(1).begin(&world, &code, Intent::Register).proven();
    assert_eq!(Joiner::new(2).confirm(&world, &confirmed, Intent::Register).code(), "PROOF_EXPIRED");
    let own = Joiner::new(1).confirm(&world, &confirmed, Intent::Register);
    assert_eq!(own.status, 200, "a stranger's try does not use it up");
    let id = confirmed.proof_id();
    assert_eq!(Joiner::new(2).post(&world, &id).code(), "PROOF_EXPIRED");
    assert_eq!(Joiner::new(1).post(&world, &id).status, 201);
}

#[test]
fn a_proof_must_be_confirmed_in_30_seconds_and_used_in_120_more() {
    let mut world = World::new();
    let code = world.code();
    let joiner = Joiner::new(1);
    let confirmed = joiner.begin(&world, &code, Intent::Register).proven();
    world.pass(31 * SECOND);
    assert_eq!(joiner.confirm(&world, &confirmed, Intent::Register).code(), "PROOF_EXPIRED");
    let (id, _) = joiner.prove(&world, &code);
    world.pass(121 * SECOND);
    assert_eq!(joiner.post(&world, &id).code(), "PROOF_EXPIRED");
    joiner.register(&world, &code);
}

#[test]
fn only_who_knows_a_dead_code_learns_its_fate() {
    let mut world = World::new();
    let expired = world.code_for(600);
    let revoked = world.code();
    assert_eq!(world.admin("DELETE", &format!("/join-codes/{}", revoked.id), &json!({})).status, 204);
    assert_eq!(
        world.admin("DELETE", &format!("/join-codes/{}", revoked.id), &json!({})).status,
        204,
        "twice"
    );
    world.pass(HOUR);
    for (code, fate) in [(&expired, "JOIN_CODE_EXPIRED"), (&revoked, "JOIN_CODE_REVOKED")] {
        let wrong = Joiner::new(1).begin(&world, &guess(code), Intent::Register);
        assert_eq!(wrong.response.status, 200, "a guesser gets an answer like any other");
        assert!(wrong.confirmed.unwrap().is_err());
        for intent in [Intent::Register, Intent::Check] {
            let confirmed = Joiner::new(2).begin(&world, code, intent).proven();
            assert_eq!(Joiner::new(2).confirm(&world, &confirmed, intent).code(), fate);
        }
    }
    world.pass(8 * DAY);
    assert!(Joiner::new(2).begin(&world, &expired, Intent::Check).confirmed.unwrap().is_err(), "forgotten");
}

#[test]
fn an_unknown_selector_looks_like_a_known_one() {
    let world = World::new();
    let known = world.code();
    let mut unknown = guess(&known);
    let selector = if known.code.selector() == "00" { "11" } else { "00" };
    let text = format!("{selector}AAAAAAAAA");
    unknown.code = stratum_join::protocol::code::JoinCode::parse(&text).unwrap();
    let shape = |response: &lab_founder::Response| {
        let value = response.value();
        (response.status, response.body.len(), value.as_object().unwrap().keys().cloned().collect::<Vec<_>>())
    };
    let a = Joiner::new(1).begin(&world, &guess(&known), Intent::Register).response;
    let b = Joiner::new(1).begin(&world, &unknown, Intent::Register).response;
    assert_eq!(shape(&a), shape(&b));
}

#[test]
fn a_bad_message_is_refused_and_stays_counted() {
    let world = World::new();
    let code = world.code();
    // The identity, with the joiner's side byte.
    let mut message = [0; 33];
    (message[0], message[1]) = (b'A', 1);
    let msg = stratum_join::protocol::encoding::B64(message);
    let body = json!({
        "v": 1, "suite": "spake2-ed25519", "intent": "register", "selector": code.code.selector(), "msg": msg,
    });
    let refused = Joiner::new(1).call(&world, &Request::send("POST", "/v1/join/proofs", &body));
    assert_eq!(refused.code(), "INVALID_INPUT");
    assert_eq!(refused.value()["errors"][0]["field"], "msg");
    assert_eq!(world.code_row(&code.id)["openTries"], 1);
}

#[test]
fn another_version_or_suite_is_unsupported() {
    let world = World::new();
    for (v, suite) in [(2, "spake2-ed25519"), (1, "none")] {
        let body =
            json!({ "v": v, "suite": suite, "intent": "check", "selector": "4F", "msg": "A".repeat(44) });
        let response = Joiner::new(1).call(&world, &Request::send("POST", "/v1/join/proofs", &body));
        assert_eq!(response.code(), "PROTOCOL_UNSUPPORTED");
    }
}

#[test]
fn proofs_are_rated_by_address_and_in_all() {
    let mut world = World::with(Config { limits: Limits::default(), ..config() });
    let code = world.code();
    for _ in 0..6 {
        assert_eq!(Joiner::new(1).begin(&world, &code, Intent::Check).response.status, 200);
    }
    let refused = Joiner::new(1).begin(&world, &code, Intent::Check).response;
    assert_eq!((refused.status, refused.code().as_str()), (429, "RATE_LIMITED"));
    assert!(refused.headers.iter().any(|(name, value)| *name == "retry-after" && value == "10"));
    assert_eq!(world.code_row(&code.id)["openTries"], 6, "a refused call is no try");
    assert_eq!(Joiner::new(2).begin(&world, &code, Intent::Check).response.status, 200);
    world.pass(MINUTE);
    assert_eq!(Joiner::new(1).begin(&world, &code, Intent::Check).response.status, 200);
}

#[test]
fn thirty_two_open_proofs_are_the_most() {
    let limits = Limits { open_proofs: 32, ..Limits::wide() };
    let mut world = World::with(Config { limits, ..config() });
    let code = world.code();
    for n in 0..32 {
        assert_eq!(Joiner::new(n).begin(&world, &code, Intent::Check).response.status, 200);
    }
    assert_eq!(Joiner::new(40).begin(&world, &code, Intent::Check).response.code(), "RATE_LIMITED");
    world.pass(31 * SECOND);
    assert_eq!(Joiner::new(40).begin(&world, &code, Intent::Check).response.status, 200);
}

#[test]
fn a_code_is_shown_once_with_a_url_that_pins_the_founder() {
    let world = World::new();
    world.founder.set_advertise("192.0.2.240:9444");
    let made = world.admin("POST", "/join-codes", &json!({ "ttlSeconds": 300, "note": "rack 4" })).value();
    let code = made["code"].as_str().unwrap();
    let pin = world.founder.ca_pin();
    assert_eq!(made["url"], format!("stratum-join://192.0.2.240/{code}?pin={pin}"));
    assert_eq!(made["expiresAt"], "2026-11-29T10:05:00Z");
    let list = world.admin_get("/join-codes");
    assert_eq!(list["codes"][0]["note"], "rack 4");
    assert!(!list.to_string().contains(&code[5..]));
    for bad in [
        json!({ "ttlSeconds": 299 }),
        json!({ "ttlSeconds": 604_801 }),
        json!({ "note": "a\nb" }),
        json!({ "ttl": 1 }),
    ] {
        assert_eq!(world.admin("POST", "/join-codes", &bad).code(), "INVALID_INPUT", "{bad}");
    }
}

#[test]
fn a_token_does_what_its_permissions_say_and_no_more() {
    let token = Token { secret: "reader".to_owned(), permissions: vec![Permission::ReadNodeJoins] };
    let world = World::with(Config { tokens: vec![token], ..config() });
    assert_eq!(world.admin("GET", "/joins", &json!({})).status, 200);
    let refused = world.admin("POST", "/joins/nj-1/approve", &json!({}));
    assert_eq!((refused.status, refused.code().as_str()), (403, "FORBIDDEN"));
    assert_eq!(world.admin("GET", "/join-codes", &json!({})).status, 403);
    let nobody = world.founder.dispatch_admin(world.now, &Request::get("/v1/admin/cluster/joins"));
    assert_eq!((nobody.status, nobody.code().as_str()), (401, "UNAUTHENTICATED"));
}

#[test]
fn every_evil_founder_of_the_proof_is_seen_through() {
    let world = World::new();
    let code = world.code();
    Joiner::new(1).begin(&world, &code, Intent::Check);
    for evil in [
        Evil::WrongCode,
        Evil::ReflectMessage,
        Evil::OffCurveMessage,
        Evil::LowOrderMessage,
        Evil::SkipConfirm,
    ] {
        world.founder.set_evil(vec![evil.clone().once(Step::Proof)]);
        let begun = Joiner::new(1).begin(&world, &code, Intent::Check);
        assert!(begun.confirmed.unwrap().is_err(), "{evil:?}");
        assert!(
            Joiner::new(1).begin(&world, &code, Intent::Check).confirmed.unwrap().is_ok(),
            "{evil:?} is over"
        );
    }
    world.founder.set_evil(vec![Evil::ConfirmOfOtherSession.times(Step::Proof, 2)]);
    Joiner::new(1).begin(&world, &code, Intent::Check);
    assert!(Joiner::new(1).begin(&world, &code, Intent::Check).confirmed.unwrap().is_err());
}
