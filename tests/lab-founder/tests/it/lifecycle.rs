//! The queue, the end of a join, failure and retry.

use lab_founder::model::Switches;
use lab_founder::{Config, Request};
use serde_json::{Value, json};

use crate::support::{Joiner, World, config};

fn states(world: &World) -> Vec<(String, String, String)> {
    let joins = world.admin_get("/joins");
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let row = |j: &Value| (text(&j["hostname"]), text(&j["state"]), text(&j["waitReason"]));
    joins["joins"].as_array().unwrap().iter().map(row).collect()
}

fn row(host: &str, state: &str, wait: &str) -> (String, String, String) {
    (format!("{host}.example.com"), state.to_owned(), wait.to_owned())
}

#[test]
fn one_join_at_a_time_in_the_order_of_approval() {
    let world = World::new();
    let code = world.code();
    let joiners: Vec<Joiner> = (1..=3).map(Joiner::new).collect();
    let ids: Vec<String> = joiners.iter().map(|j| j.register(&world, &code)).collect();
    for n in [1, 0, 2] {
        assert_eq!(world.approve(&ids[n]).status, 200);
    }
    let running = "join of node-2.example.com is running";
    let expected = [
        row("node-1", "approved", running),
        row("node-2", "delivering", ""),
        row("node-3", "approved", "place 2 in the queue"),
    ];
    assert_eq!(states(&world), expected);
    assert_eq!(joiners[0].poll(&world, &ids[0])["waitReason"], running);
    joiners[1].install(&world, &ids[1], 1);
    let running = "join of node-1.example.com is running";
    let expected =
        [row("node-1", "delivering", ""), row("node-2", "joined", ""), row("node-3", "approved", running)];
    assert_eq!(states(&world), expected);
}

#[test]
fn a_cluster_that_is_not_green_or_removes_a_node_starts_no_join() {
    let world = World::new();
    let id = Joiner::new(1).register(&world, &world.code());
    let set = |switches: &Switches| world.founder.set_switches(world.now, switches).unwrap();
    set(&Switches { cluster_green: false, ..Switches::default() });
    world.approve(&id);
    assert_eq!(states(&world), [row("node-1", "approved", "the cluster is not green")]);
    set(&Switches { removal_running: true, ..Switches::default() });
    assert_eq!(states(&world), [row("node-1", "approved", "a removal is running")]);
    set(&Switches::default());
    assert_eq!(states(&world), [row("node-1", "delivering", "")]);
}

#[test]
fn a_join_is_done_when_every_member_applied_its_generation() {
    let mut world =
        World::with(Config { members_apply_at_once: false, joiner_applies_when_done: true, ..config() });
    let code = world.code();
    let first = Joiner::new(1);
    let id = first.register(&world, &code);
    world.approve(&id);
    first.install(&world, &id, 1);
    world.pass(1000);
    assert_eq!(world.record(&id)["state"], "installing", "the founder has not applied it");
    let generation = world.admin_get("/members")["generation"].as_u64().unwrap();
    world.founder.applied("n-0000f0nd", generation).unwrap();
    world.pass(1000);
    assert_eq!(world.record(&id)["state"], "joined");
    let second = Joiner::new(2).register(&world, &code);
    world.approve(&second);
    let generation = world.admin_get("/members")["generation"].as_u64().unwrap();
    let waits = format!("node-1 has not applied generation {generation}");
    assert_eq!(world.record(&second)["waitReason"], waits);
}

#[test]
fn a_failed_join_runs_again_with_a_higher_attempt_and_the_same_addresses() {
    let world = World::new();
    let joiner = Joiner::new(1);
    let id = joiner.register(&world, &world.code());
    let links = json!({ "assignment": { "links": [
        { "name": "storage", "interface": "eno2", "purposes": ["storage"] },
    ] } });
    let approved = world.admin("POST", &format!("/joins/{id}/approve"), &links).value();
    assert_eq!(approved["state"], "approved");
    assert_eq!(approved["assignment"]["links"][0]["addresses"], json!(["198.51.100.1/24"]));
    assert_eq!(approved["assignment"]["links"][0]["addressesAllocated"], true);
    let first = joiner.poll(&world, &id);
    assert_eq!(world.admin("POST", &format!("/joins/{id}/retry"), &json!({})).code(), "JOIN_STATE_CONFLICT");
    joiner.progress(&world, &id, 1, "join/patroni", (3, 9), "failed");
    let again = world.admin("POST", &format!("/joins/{id}/retry"), &json!({}));
    assert_eq!(again.value()["state"], "approved");
    let second = joiner.poll(&world, &id);
    assert_eq!((&first["attempt"], &second["attempt"]), (&json!(1), &json!(2)));
    assert_eq!(second["state"], "delivering");
    assert!(second["failedStep"].is_null());
    assert_eq!(second["delivery"]["nodeYaml"], first["delivery"]["nodeYaml"], "same node, same addresses");
    joiner.install(&world, &id, 5);
    assert_eq!(world.record(&id)["state"], "joined");
}

#[test]
fn firstboot_reports_a_failed_join_with_the_key_of_its_node_certificate() {
    let world = World::new();
    let joiner = Joiner::new(1);
    let id = joiner.register(&world, &world.code());
    world.approve(&id);
    let bundle = joiner.poll(&world, &id)["delivery"]["bundle"].clone();
    let node_id = world.record(&id)["nodeId"].as_str().unwrap().to_owned();
    let der = pem_der(bundle["nodeCert"].as_str().unwrap());
    let node = Joiner { fp: lab_founder::tls::spki_fingerprint(&der).unwrap(), ..Joiner::new(2) };
    let call = |from: &Joiner, node_id: &str| {
        let path = format!("/v1/admin/cluster/members/{node_id}/join-failed");
        from.call(
            &world,
            &Request::send("POST", &path, &json!({ "step": "join/raft-openbao", "error": "no quorum" })),
        )
    };
    assert_eq!(call(&joiner, &node_id).code(), "JOIN_NOT_FOUND", "the joiner's own key is not the node's");
    assert_eq!(call(&node, "n-0000f0nd").code(), "JOIN_NOT_FOUND", "only about itself");
    let member = call(&node, &node_id).value();
    assert_eq!((&member["state"], &member["failedStep"]), (&json!("failed"), &json!("join/raft-openbao")));
    assert_eq!(world.record(&id)["state"], "failed");
    assert_eq!(joiner.poll(&world, &id)["failedError"], "no quorum");
    assert_eq!(call(&node, &node_id).value(), member, "only a joining member moves");
    let url = bundle["labFounder"]["joinFailedUrl"].as_str().unwrap();
    assert!(url.ends_with(&format!("/v1/admin/cluster/members/{node_id}/join-failed")));
}

fn pem_der(pem: &str) -> Vec<u8> {
    let body: String = pem.lines().filter(|l| !l.starts_with('-')).collect();
    data_encoding::BASE64.decode(body.as_bytes()).unwrap()
}

#[test]
fn a_running_join_is_not_rejected_and_a_waiting_one_is() {
    let world = World::new();
    let code = world.code();
    let id = Joiner::new(1).register(&world, &code);
    world.approve(&id);
    let reject = |id: &str, reason: &str| {
        world.admin("POST", &format!("/joins/{id}/reject"), &json!({ "reason": reason }))
    };
    assert_eq!(reject(&id, "no").code(), "JOIN_STATE_CONFLICT");
    Joiner::new(1).progress(&world, &id, 1, "storage", (1, 2), "failed");
    assert_eq!(reject(&id, "").code(), "INVALID_INPUT");
    assert_eq!(reject(&id, "a\nb").code(), "INVALID_INPUT");
    assert_eq!(reject(&id, "broken disk").value()["state"], "rejected");
    assert_eq!(reject("nj-00000000", "x").code(), "NOT_FOUND");
    assert_eq!(Joiner::new(1).poll(&world, &id)["state"], "rejected");
}

#[test]
fn the_bundle_names_every_member_in_join_order_and_its_secrets_are_random() {
    let world = World::new();
    let code = world.code();
    let first = Joiner::new(1);
    let id = first.register(&world, &code);
    world.approve(&id);
    first.install(&world, &id, 1);
    let second = Joiner::new(2);
    let other = second.register(&world, &code);
    let rack = json!({ "assignment": { "rack": "r4", "az": "a" } });
    world.admin("POST", &format!("/joins/{other}/approve"), &rack);
    let bundle = second.poll(&world, &other)["delivery"]["bundle"].clone();
    let nodes = bundle["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 3);
    assert_eq!(nodes[0]["nodeId"], "n-0000f0nd");
    assert_eq!(nodes[1]["mgmtIp"], "192.0.2.101");
    assert_eq!((&nodes[2]["labels"]["topology.rack"], &nodes[2]["az"]), (&json!("r4"), &json!("a")));
    assert!(bundle["clusterId"].as_str().unwrap().starts_with("cl-"));
    assert_eq!(bundle["dnsUpstreamServers"], json!(["192.0.2.53"]));
    assert_eq!(bundle["axdnsdEncryptionKey"].as_str().unwrap().len(), 64);
    assert_ne!(bundle["postgresPassword"], bundle["adminPassword"]);
    let listed = world.admin_get("/joins").to_string() + &world.record(&other).to_string();
    assert!(!listed.contains(bundle["postgresPassword"].as_str().unwrap()), "no secret in a record");
}
