//! Registration, re-registration, and who may see what.

use lab_founder::config::Supply;
use lab_founder::{Config, Request};
use serde_json::json;
use stratum_join::protocol::encoding::B64;
use stratum_join::protocol::pairing::pairing_code;
use stratum_join::protocol::wire::JoinId;

use crate::support::{DAY, HOUR, Joiner, MINUTE, World, config};

#[test]
fn both_sides_compute_the_same_pairing_code() {
    let world = World::new();
    let joiner = Joiner::new(1);
    let (proof_id, confirm) = joiner.prove(&world, &world.code());
    let confirm = confirm.value();
    let answer = joiner.post(&world, &proof_id);
    assert_eq!(answer.status, 201);
    let id = JoinId::parse(confirm["joinId"].as_str().unwrap()).unwrap();
    let nonce = B64::parse(confirm["founderNonce"].as_str().unwrap()).unwrap();
    let own = pairing_code(&world.founder.ca_pin(), &joiner.fp, &id, &joiner.nonce, &nonce);
    assert_eq!(answer.value()["pairingCode"], own);
    assert_eq!(world.record(id.as_str())["pairingCode"], own);
}

#[test]
fn a_repeat_is_the_same_registration() {
    let world = World::new();
    let code = world.code();
    let mut joiner = Joiner::new(1);
    let (proof_id, _) = joiner.prove(&world, &code);
    let first = joiner.post(&world, &proof_id);
    joiner.hostname = "renamed.example.com".to_owned();
    let repeat = joiner.post(&world, &proof_id);
    assert_eq!((first.status, repeat.status), (201, 200));
    let same = |key: &str| assert_eq!(first.value()[key], repeat.value()[key]);
    same("joinId");
    same("pairingCode");
    let id = repeat.value()["joinId"].as_str().unwrap().to_owned();
    assert_eq!(world.record(&id)["hostname"], "renamed.example.com");
    let (_, again) = joiner.prove(&world, &code);
    assert_eq!(again.value()["joinId"], id, "a new proof of the same key loads it");
}

#[test]
fn a_nonce_that_does_not_open_the_commitment_is_refused() {
    let world = World::new();
    let mut joiner = Joiner::new(1);
    let (proof_id, _) = joiner.prove(&world, &world.code());
    joiner.nonce = B64([1; 32]);
    let refused = joiner.post(&world, &proof_id);
    assert_eq!(refused.code(), "INVALID_INPUT");
    assert_eq!(refused.value()["errors"][0]["field"], "pairingNonce");
}

#[test]
fn another_commitment_of_the_same_key_is_a_conflict() {
    let world = World::new();
    let code = world.code();
    let mut joiner = Joiner::new(1);
    joiner.register(&world, &code);
    joiner.nonce = B64([1; 32]);
    assert_eq!(joiner.prove(&world, &code).1.code(), "PAIRING_CONFLICT");
}

#[test]
fn a_foreign_key_gets_the_same_404() {
    let world = World::new();
    let id = Joiner::new(1).register(&world, &world.code());
    let stranger = Joiner::new(2);
    let paths = |id: &str| {
        let of = |tail: &str| format!("/v1/join/registrations/{id}{tail}");
        vec![
            Request::get(&of("")),
            Request::get(&of("?wait=50&state=pending")),
            Request::send("PUT", &of(""), &stranger.body()),
            Request::send("PUT", &of(""), &json!({ "bad": 1 })),
            Request::send("POST", &of("/ack"), &json!({ "attempt": 1, "sha256": "0".repeat(64) })),
            Request::send("POST", &of("/progress"), &json!([])),
            Request::send("POST", &of("/log"), &json!({ "first": 1, "lines": ["x"] })),
            Request::get(&of("/release/payload/manifest.json")),
        ]
    };
    let bytes = |request: &Request| {
        let response = stranger.call(&world, request);
        (response.status, format!("{:?}", response.headers), response.body, response.hold)
    };
    let expected = bytes(&Request::get("/v1/join/registrations/nj-00000000"));
    assert_eq!(expected.0, 404);
    assert!(String::from_utf8_lossy(&expected.2).contains("JOIN_NOT_FOUND"));
    for other in ["nj-00000000", id.as_str(), "no form at all", "%2e%2e"] {
        for request in paths(other) {
            assert_eq!(bytes(&request), expected, "{} {}", request.method, request.path);
        }
    }
}

#[test]
fn a_hundred_at_once_never_make_seventeen_waiting() {
    let world = World::new();
    let code = world.code();
    let outcomes: Vec<String> = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..100)
            .map(|n| {
                let (world, code) = (&world, &code);
                scope.spawn(move || {
                    let (proof_id, confirm) = Joiner::new(n).prove(world, code);
                    if confirm.status == 200 {
                        Joiner::new(n).post(world, &proof_id).code()
                    } else {
                        confirm.code()
                    }
                })
            })
            .collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    let count = |code: &str| outcomes.iter().filter(|o| *o == code).count();
    assert_eq!((count(""), count("JOIN_QUEUE_FULL")), (16, 84), "{outcomes:?}");
    assert_eq!(world.admin_get("/joins")["joins"].as_array().unwrap().len(), 16);
}

#[test]
fn a_place_comes_free_by_approval_and_after_15_minutes_of_silence() {
    let mut world = World::new();
    let code = world.code();
    for n in 0..15 {
        Joiner::new(n).register(&world, &code);
    }
    let (_, proven) = Joiner::new(15).prove(&world, &code);
    assert_eq!(proven.status, 200, "proven only, but it takes a place");
    assert_eq!(Joiner::new(16).prove(&world, &code).1.code(), "JOIN_QUEUE_FULL");
    let list = world.admin_get("/joins");
    assert!(list["joins"].as_array().unwrap().iter().any(|j| j["state"] == "registering"));
    world.pass(15 * MINUTE);
    let id = Joiner::new(16).register(&world, &code);
    assert_eq!(Joiner::new(17).prove(&world, &code).1.code(), "JOIN_QUEUE_FULL");
    assert_eq!(world.approve(&id).status, 200);
    Joiner::new(17).register(&world, &code);
}

#[test]
fn no_registration_is_taken_while_the_cluster_upgrades() {
    let world = World::new();
    let code = world.code();
    let set = |on| {
        let switches = lab_founder::model::Switches { upgrade_running: on, ..Default::default() };
        world.founder.set_switches(world.now, &switches).unwrap();
    };
    set(true);
    let (_, refused) = Joiner::new(1).prove(&world, &code);
    assert_eq!((refused.status, refused.code().as_str()), (503, "UPGRADE_RUNNING"));
    assert!(refused.headers.iter().any(|(name, _)| *name == "retry-after"));
    set(false);
    Joiner::new(1).register(&world, &code);
}

fn upgradable() -> World {
    let supply = Supply::Mirror("https://mirror.example/releases/stratum/0.7.0/bundle".to_owned());
    World::with(Config { supply, ..config() })
}

#[test]
fn an_older_machine_upgrades_itself_and_keeps_its_pairing_code() {
    let mut world = upgradable();
    let code = world.code_for(600);
    let mut joiner = Joiner { release: "0.6.0".to_owned(), ..Joiner::new(1) };
    let id = joiner.register(&world, &code);
    let offer = joiner.poll(&world, &id);
    assert_eq!(offer["state"], "needs-upgrade");
    assert_eq!(offer["upgrade"]["from"], "0.6.0");
    assert_eq!(offer["upgrade"]["source"], "https://mirror.example/releases/stratum/0.7.0/bundle");
    assert_eq!(world.approve(&id).code(), "JOIN_STATE_CONFLICT");
    let release = Request::get(&format!("/v1/join/registrations/{id}/release/payload/manifest.json"));
    assert_eq!(
        joiner.call(&world, &release).code(),
        "NOT_FOUND",
        "this founder holds none, which is no lost record"
    );
    let failed = joiner.progress(&world, &id, 1, "upgrade/download", (2, 6), "failed");
    assert_eq!(failed.value()["state"], "needs-upgrade", "it tries again by itself");
    assert_eq!(world.record(&id)["failedStep"], "upgrade/download");
    world.pass(HOUR);
    joiner.release = "0.7.0".to_owned();
    let registered = joiner.put(&world, &id).value();
    assert_eq!(registered["state"], "pending", "without a code, which expired meanwhile");
    assert_eq!(registered["pairingCode"], offer["pairingCode"]);
    assert_eq!(joiner.call(&world, &release).code(), "JOIN_STATE_CONFLICT");
    assert!(registered["upgrade"].is_null() && registered["failedStep"].is_null());
}

#[test]
fn another_release_is_refused_with_the_isos_name_and_its_place_is_free_again() {
    let world = upgradable();
    let code = world.code();
    let cases = [("0.8.0", true), ("0.6.0", false), ("0.4.0", true), ("12", true)];
    for (release, self_upgrade) in cases {
        let joiner = Joiner { release: release.to_owned(), self_upgrade, ..Joiner::new(1) };
        let (proof_id, _) = joiner.prove(&world, &code);
        let refused = joiner.post(&world, &proof_id);
        assert_eq!(refused.code(), "RELEASE_MISMATCH", "{release}");
        let details = &refused.value()["details"];
        assert_eq!(details["clusterRelease"], "0.7.0");
        assert_eq!(details["iso"], "stratum-0.7.0.iso");
        assert_eq!(details["minUpgradeFrom"], "0.5.0");
        assert_eq!(world.admin_get("/joins")["joins"], json!([]));
    }
}

#[test]
fn every_state_answers_a_new_registration_of_its_key_as_documented() {
    let mut world = World::new();
    let code = world.code();
    let joiner = Joiner::new(1);
    let (proof_id, confirm) = joiner.prove(&world, &code);
    let id = confirm.value()["joinId"].as_str().unwrap().to_owned();
    assert_eq!(joiner.put(&world, &id).code(), "JOIN_STATE_CONFLICT", "registering");
    joiner.post(&world, &proof_id);
    assert_eq!(joiner.put(&world, &id).value()["state"], "pending");
    assert_eq!(world.approve(&id).status, 200);
    assert_eq!(joiner.put(&world, &id).value()["state"], "delivering", "the queue was empty");
    joiner.install(&world, &id, 1);
    let joined = joiner.put(&world, &id);
    assert_eq!(joined.code(), "JOIN_STATE_CONFLICT");
    assert_eq!(joined.value()["details"]["state"], "joined");
    let rejected = Joiner::new(2).register(&world, &code);
    world.admin("POST", &format!("/joins/{rejected}/reject"), &json!({ "reason": "not ours" }));
    let gone = Joiner::new(2).put(&world, &rejected);
    assert_eq!((gone.status, gone.code().as_str()), (410, "JOIN_REJECTED"));
    assert_eq!(gone.value()["detail"], "not ours");
    assert_eq!(Joiner::new(2).poll(&world, &rejected)["reason"], "not ours");
    let again = Joiner::new(2).register(&world, &code);
    assert_ne!(again, rejected, "a new proof makes a new record");
    world.pass(2 * DAY);
    assert_eq!(Joiner::new(2).poll(&world, &again)["state"], "expired");
    assert_eq!(Joiner::new(2).put(&world, &again).code(), "JOIN_EXPIRED");
}

#[test]
fn nobody_approves_for_24_hours_after_the_codes_end() {
    let mut world = World::new();
    let id = Joiner::new(1).register(&world, &world.code_for(600));
    assert_eq!(world.record(&id)["expiresAt"], "2026-11-30T10:10:00Z");
    world.pass(DAY + 9 * MINUTE);
    assert_eq!(Joiner::new(1).poll(&world, &id)["state"], "pending");
    world.pass(MINUTE);
    assert_eq!(Joiner::new(1).poll(&world, &id)["state"], "expired");
    assert_eq!(world.approve(&id).code(), "JOIN_STATE_CONFLICT");
}

#[test]
fn what_is_wrong_with_a_registration_is_named_field_by_field() {
    let world = World::new();
    let mut joiner = Joiner::new(1);
    let (proof_id, _) = joiner.prove(&world, &world.code());
    joiner.hostname = "-bad-".to_owned();
    joiner.release = String::new();
    let refused = joiner.post(&world, &proof_id).value();
    let fields: Vec<&str> =
        refused["errors"].as_array().unwrap().iter().map(|e| e["field"].as_str().unwrap()).collect();
    assert_eq!(fields, ["release", "hostname"]);
    let mut body = Joiner::new(1).body();
    body["proofId"] = json!(proof_id);
    body["pairingNonce"] = json!(joiner.nonce);
    body["role"] = json!("founder");
    let unknown = joiner.call(&world, &Request::send("POST", "/v1/join/registrations", &body));
    assert_eq!(unknown.code(), "INVALID_INPUT", "a joiner never sets its role");
}

#[test]
fn an_inventory_over_its_bound_or_of_no_form_is_refused() {
    let world = World::new();
    let mut joiner = Joiner::new(1);
    let (proof_id, _) = joiner.prove(&world, &world.code());
    joiner.inventory = json!({ "pad": "x".repeat(128 * 1024) });
    assert_eq!(joiner.post(&world, &proof_id).code(), "INVENTORY_TOO_LARGE");
    for bad in [json!([]), json!("text"), json!({ "disks": 7 })] {
        joiner.inventory = bad;
        let refused = joiner.post(&world, &proof_id);
        assert_eq!((refused.status, refused.code().as_str()), (422, "INVENTORY_INVALID"));
    }
    joiner.inventory = Joiner::new(1).inventory;
    assert_eq!(joiner.post(&world, &proof_id).status, 201);
    let id = joiner.post(&world, &proof_id).value()["joinId"].as_str().unwrap().to_owned();
    assert_eq!(world.record(&id)["inventory"]["somethingNew"]["kept"], true, "unknown fields are kept");
}

#[test]
fn the_pad_comes_back_when_it_is_one() {
    let world = World::new();
    let hello = |pad: &str| {
        let request = Request { pad: Some(pad.to_owned()), ..Request::get("/v1/join") };
        let response = Joiner::new(1).call(&world, &request);
        assert_eq!(response.value()["protocols"], json!(["stratum-join/1"]));
        response.headers.iter().any(|(name, value)| *name == "x-stratum-pad" && value == pad)
    };
    for (pad, echoed) in [
        ("a", true),
        (&"b".repeat(1600), true),
        (&"c".repeat(4096), true),
        (&"d".repeat(4097), false),
        ("e f", false),
    ] {
        assert_eq!(hello(pad), echoed, "{} characters", pad.len());
    }
}
