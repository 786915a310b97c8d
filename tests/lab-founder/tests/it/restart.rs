//! The founder is killed at any moment and loses nothing that it answered.

use lab_founder::{Founder, Place, Request, Seed};
use serde_json::{Value, json};
use stratum_join::protocol::wire::Intent;

use crate::support::{Joiner, T0, World, config};

/// Opens the same directory anew, as after a kill: nothing is closed in good order that SQLite would need.
fn again(dir: &std::path::Path, now: i64) -> World {
    World { founder: Founder::open(&Place::Dir(dir.to_owned()), config(), Seed::System).unwrap(), now }
}

#[test]
fn a_restart_before_every_call_still_ends_joined_with_the_same_pairing_code() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = again(dir.path(), T0);
    let code = world.code();
    let joiner = Joiner::new(1);
    let pin = world.founder.ca_pin();
    let token = world.founder.token().to_owned();
    // Open proofs are lost with a restart, and only they.
    let confirmed = joiner.begin(&world, &code, Intent::Register).proven();
    world = again(dir.path(), T0);
    assert_eq!(joiner.confirm(&world, &confirmed, Intent::Register).code(), "PROOF_EXPIRED");
    let (proof_id, confirm) = joiner.prove(&world, &code);
    let id = confirm.value()["joinId"].as_str().unwrap().to_owned();
    world = again(dir.path(), T0);
    assert_eq!(joiner.post(&world, &proof_id).code(), "PROOF_EXPIRED");
    let (proof_id, confirm_again) = joiner.prove(&world, &code);
    assert_eq!(confirm_again.value()["joinId"], id);
    assert_eq!(confirm_again.value()["founderNonce"], confirm.value()["founderNonce"]);
    let pairing = joiner.post(&world, &proof_id).value()["pairingCode"].clone();
    world = again(dir.path(), T0);
    assert_eq!(joiner.poll(&world, &id)["pairingCode"], pairing);
    assert_eq!(joiner.put(&world, &id).value()["pairingCode"], pairing);
    world.approve(&id);
    let delivery = joiner.poll(&world, &id)["delivery"].clone();
    assert!(delivery.is_object());
    world = again(dir.path(), T0);
    assert_eq!(joiner.poll(&world, &id)["delivery"], delivery, "byte for byte the same");
    joiner.progress(&world, &id, 1, "storage", (1, 2), "running");
    joiner.send(&world, &id, "log", &json!({ "first": 1, "lines": ["a", "b"] }));
    world = again(dir.path(), T0);
    assert_eq!(world.record(&id)["log"], json!(["a", "b"]));
    assert_eq!(joiner.progress(&world, &id, 1, "storage", (1, 2), "running").value()["lastSeq"], 1);
    joiner.progress(&world, &id, 2, "join", (2, 2), "done");
    world = again(dir.path(), T0);
    assert_eq!(joiner.poll(&world, &id)["state"], "joined");
    assert_eq!((world.founder.ca_pin(), world.founder.token()), (pin, token.as_str()));
}

#[test]
fn counted_tries_and_burned_codes_survive() {
    let dir = tempfile::tempdir().unwrap();
    let world = again(dir.path(), T0);
    let code = world.code();
    for n in 0..3 {
        Joiner::new(n).begin(&world, &code, Intent::Check);
    }
    drop(world);
    let world = again(dir.path(), T0);
    assert_eq!(world.code_row(&code.id)["openTries"], 3);
    Joiner::new(0).register(&world, &code);
    assert_eq!(world.code_row(&code.id)["openTries"], 2, "refunded across the restart");
}

#[test]
fn the_state_is_the_founders_alone() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let world = again(dir.path(), T0);
    world.code();
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", entry.path().display());
    }
}

#[test]
fn a_database_of_another_version_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    drop(again(dir.path(), T0));
    let file = dir.path().join("founder.sqlite");
    rusqlite::Connection::open(&file).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let error = Founder::open(&Place::Dir(dir.path().to_owned()), config(), Seed::System).err().unwrap();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(source, "the founder's database has schema 99, this version knows 1");
}

#[test]
fn a_record_that_is_gone_is_a_404() {
    let world = World::new();
    let code = world.code();
    let joiner = Joiner::new(1);
    let id = joiner.register(&world, &code);
    world.founder.set_evil(vec![lab_founder::Evil::ForgetRecord.once(lab_founder::Step::Poll)]);
    let gone = joiner.call(&world, &Request::get(&format!("/v1/join/registrations/{id}")));
    assert_eq!(gone.code(), "JOIN_NOT_FOUND");
    let new: Value = json!(joiner.register(&world, &code));
    assert_ne!(new, id, "ids are never used twice");
}
