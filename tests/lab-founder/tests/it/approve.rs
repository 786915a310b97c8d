//! What an approval is checked against.

use lab_founder::config::FirstMember;
use lab_founder::{Config, Response};
use serde_json::{Value, json};

use crate::support::{Joiner, World, config};

fn approve(world: &World, id: &str, assignment: &Value) -> Response {
    world.admin("POST", &format!("/joins/{id}/approve"), &json!({ "assignment": assignment }))
}

fn fields(response: &Response) -> Vec<String> {
    let value = response.value();
    let errors = value["errors"].as_array().cloned().unwrap_or_default();
    errors.iter().map(|e| e["field"].as_str().unwrap().to_owned()).collect()
}

fn waiting() -> (World, String) {
    let world = World::new();
    let id = Joiner::new(1).register(&world, &world.code());
    (world, id)
}

#[test]
fn six_mistakes_are_six_errors_and_six_reasons_in_the_same_order() {
    let (world, id) = waiting();
    let assignment = json!({
        "role": "storage-only",
        "mgmt": { "interface": "eth9" },
        "links": [
            { "name": "a", "interface": "eno9", "purposes": ["storage"] },
            { "name": "b", "kind": "bond", "interface": "bond0", "bond": { "mode": "fastest" } },
            { "name": "c", "interface": "eno3", "controller": "b" },
        ],
        "disks": [{ "key": "wwn-data", "role": "ceph-osd" }, { "key": "nowhere", "role": "compute" }],
    });
    let refused = approve(&world, &id, &assignment);
    assert_eq!((refused.status, refused.code().as_str()), (409, "JOIN_APPROVAL_REFUSED"));
    let expected = [
        "role",
        "mgmt.interface",
        "links[0].interface",
        "links[1].bond.mode",
        "disks[0].confirm",
        "disks[1].key",
    ];
    assert_eq!(fields(&refused), expected);
    let reasons = refused.value()["details"]["reasons"].clone();
    let reasons = reasons.as_array().unwrap();
    assert_eq!(reasons.len(), 6);
    for (reason, field) in reasons.iter().zip(expected) {
        assert!(reason.as_str().unwrap().starts_with(field), "{reason}");
    }
    assert_eq!(world.record(&id)["state"], "pending", "nothing was taken");
}

#[test]
fn a_body_that_does_not_decode_names_its_fields() {
    let (world, id) = waiting();
    let refused = approve(&world, &id, &json!({ "name": 7, "diskz": [] }));
    assert_eq!((refused.status, refused.code().as_str()), (400, "INVALID_INPUT"));
    assert_eq!(fields(&refused), ["name", "diskz"]);
}

#[test]
fn an_approval_without_a_word_takes_the_nic_it_registered_from_and_no_disk() {
    let (world, id) = waiting();
    let approved = world.approve(&id).value();
    let assignment = &approved["assignment"];
    assert_eq!(assignment["name"], "node-1.example.com");
    assert_eq!(assignment["role"], "hybrid");
    assert_eq!(assignment["mgmt"], json!({ "interface": "eno1", "address": "192.0.2.101/24" }));
    assert_eq!((&assignment["disks"], &assignment["links"]), (&json!([]), &json!([])));
    assert_eq!(
        assignment["provider"],
        json!({ "topology": "bridged", "upstreamInterface": "eno1", "vlan": 1 })
    );
    assert!(approved["nodeId"].as_str().unwrap().starts_with("n-"));
}

#[test]
fn another_pairing_code_is_refused_whatever_else_is_right() {
    let (world, id) = waiting();
    let refused = world.admin("POST", &format!("/joins/{id}/approve?pairing=AAA-AAA"), &json!({}));
    assert_eq!(refused.code(), "JOIN_APPROVAL_REFUSED");
    assert_eq!(fields(&refused), [""]);
    assert_eq!(refused.value()["details"]["reasons"], json!(["the pairing code does not match"]));
}

#[test]
fn a_disk_with_data_is_wiped_only_when_its_key_was_typed() {
    let (world, id) = waiting();
    let disk = |key: &str, confirm: Value| json!({ "disks": [{ "key": key, "role": "ceph-osd", "confirm": confirm }] });
    assert_eq!(fields(&approve(&world, &id, &disk("wwn-data", Value::Null))), ["disks[0].confirm"]);
    assert_eq!(fields(&approve(&world, &id, &disk("wwn-data", json!("yes")))), ["disks[0].confirm"]);
    assert_eq!(fields(&approve(&world, &id, &disk("wwn-system", json!("wwn-system")))), ["disks[0].key"]);
    assert_eq!(approve(&world, &id, &disk("wwn-data", json!("wwn-data"))).status, 200);
    let yaml = Joiner::new(1).poll(&world, &id)["delivery"]["nodeYaml"].clone();
    assert!(yaml.as_str().unwrap().contains("confirm: wwn-data"), "{yaml}");
}

#[test]
fn a_name_belongs_to_one_node() {
    let world = World::new();
    let code = world.code();
    let (first, second) = (Joiner::new(1).register(&world, &code), Joiner::new(2).register(&world, &code));
    let name = json!({ "name": "db-1.example.com" });
    assert_eq!(approve(&world, &first, &name).status, 200);
    assert_eq!(fields(&approve(&world, &second, &name)), ["name"]);
}

#[test]
fn an_address_must_be_free_and_in_its_network() {
    let world = World::new();
    let code = world.code();
    let (first, second) = (Joiner::new(1).register(&world, &code), Joiner::new(2).register(&world, &code));
    let storage = |address: &str| json!({ "links": [{ "name": "s", "interface": "eno2", "purposes": ["storage"], "addresses": [address] }] });
    assert_eq!(
        fields(&approve(&world, &first, &storage("203.0.113.9/24"))),
        ["links[0].addresses"],
        "outside"
    );
    assert_eq!(
        fields(&approve(&world, &first, &storage("198.51.100.0/24"))),
        ["links[0].addresses"],
        "the network"
    );
    assert_eq!(
        fields(&approve(&world, &first, &storage("198.51.100.7"))),
        ["links[0].addresses"],
        "no prefix"
    );
    assert_eq!(approve(&world, &first, &storage("198.51.100.1/24")).status, 200);
    assert_eq!(
        fields(&approve(&world, &second, &storage("198.51.100.1/24"))),
        ["links[0].addresses"],
        "held"
    );
    let picked =
        json!({ "links": [{ "name": "s", "interface": "eno2", "purposes": ["storage", "overlay"] }] });
    let approved = approve(&world, &second, &picked).value();
    let link = &approved["assignment"]["links"][0];
    assert_eq!(link["addresses"], json!(["198.51.100.2/24", "203.0.113.1/24"]));
    assert_eq!(link["mtu"], 9000, "the largest of its networks");
    for (address, gateway, at) in [
        ("192.0.2.11/24", "192.0.2.1", "mgmt.address"),
        ("192.0.2.240/24", "192.0.2.1", "mgmt.address"),
        ("192.0.2.99/24", "198.51.100.1", "mgmt.gateway"),
        ("192.0.2.99", "192.0.2.1", "mgmt.address"),
    ] {
        let mgmt = json!({ "mgmt": { "interface": "eno1", "address": address, "gateway": gateway } });
        assert_eq!(fields(&approve(&world, &second, &mgmt)), [at], "{address}");
    }
    let mgmt = json!({ "mgmt": { "interface": "eno1", "address": "192.0.2.99/24" } });
    assert_eq!(fields(&approve(&world, &second, &mgmt)), ["mgmt.gateway"], "new on the NIC");
}

#[test]
fn a_second_approval_keeps_the_address_and_the_place() {
    let world = World::new();
    let code = world.code();
    let running = Joiner::new(1).register(&world, &code);
    world.approve(&running);
    let (second, third) = (Joiner::new(2).register(&world, &code), Joiner::new(3).register(&world, &code));
    let storage = json!({ "links": [{ "name": "s", "interface": "eno2", "purposes": ["storage"] }] });
    let first_time = approve(&world, &second, &storage).value();
    approve(&world, &third, &storage);
    let again = approve(&world, &second, &storage).value();
    assert_eq!(again["assignment"]["links"], first_time["assignment"]["links"]);
    assert_eq!(again["nodeId"], first_time["nodeId"]);
    assert_eq!(world.record(&third)["waitReason"], "place 2 in the queue");
}

#[test]
fn a_cluster_takes_five_control_planes_and_no_sixth() {
    let members = (1..=4).map(|n| FirstMember {
        node_id: format!("n-0000000{n}"),
        name: format!("old-{n}"),
        mgmt_ip: format!("192.0.2.{n}"),
    });
    let mut config = config();
    config.cluster.members = members.collect();
    let world = World::with(Config { ..config });
    let code = world.code();
    let (fifth, sixth) = (Joiner::new(1).register(&world, &code), Joiner::new(2).register(&world, &code));
    assert_eq!(world.approve(&fifth).status, 200);
    let refused = world.approve(&sixth);
    assert_eq!(fields(&refused), ["role"]);
    Joiner::new(1).progress(&world, &fifth, 1, "storage", (1, 2), "failed");
    assert_eq!(world.approve(&sixth).status, 200, "a failed join is no control plane");
}

#[test]
fn hardware_that_went_away_withdraws_the_approval() {
    let world = World::new();
    let code = world.code();
    let running = Joiner::new(1).register(&world, &code);
    world.approve(&running);
    let mut joiner = Joiner::new(2);
    let id = joiner.register(&world, &code);
    let disks = json!({ "disks": [{ "key": "wwn-blank", "role": "compute" }] });
    assert_eq!(approve(&world, &id, &disks).status, 200);
    assert_eq!(joiner.put(&world, &id).value()["state"], "approved", "nothing is gone");
    joiner.inventory["disks"].as_array_mut().unwrap().remove(1);
    let put = joiner.put(&world, &id).value();
    assert_eq!(put["state"], "pending");
    let why = "hardware changed since approval: disk wwn-blank is gone; approve again";
    assert_eq!(put["waitReason"], why);
    assert_eq!(fields(&approve(&world, &id, &disks)), ["disks[0].key"]);
}

#[test]
fn a_disk_that_got_data_or_a_mount_after_the_approval_withdraws_it() {
    let world = World::new();
    let code = world.code();
    let running = Joiner::new(1).register(&world, &code);
    world.approve(&running);
    let disk = |key: &str, confirm: Value| json!({ "disks": [{ "key": key, "role": "ceph-osd", "confirm": confirm }] });
    let cases = [
        ("wwn-blank", Value::Null, 1, "holds", "ext4", "disk wwn-blank holds data now (ext4)"),
        (
            "wwn-data",
            json!("wwn-data"),
            2,
            "mounts",
            "/srv",
            "disk wwn-data: the disk is mounted at /srv: it is a system disk",
        ),
    ];
    for (n, (key, confirm, at, field, value, why)) in (2..).zip(cases) {
        let mut joiner = Joiner::new(n);
        let id = joiner.register(&world, &code);
        assert_eq!(approve(&world, &id, &disk(key, confirm)).status, 200);
        assert_eq!(joiner.put(&world, &id).value()["state"], "approved", "nothing changed");
        joiner.inventory["disks"][at][field] = json!([value]);
        let put = joiner.put(&world, &id).value();
        assert_eq!(put["state"], "pending");
        assert_eq!(put["waitReason"], format!("hardware changed since approval: {why}; approve again"));
    }
}

#[test]
fn what_firstboot_left_on_a_disk_does_not_stop_the_retry() {
    let (world, id) = waiting();
    let mut joiner = Joiner::new(1);
    let disks = json!({ "disks": [{ "key": "wwn-blank", "role": "ceph-osd" }] });
    assert_eq!(approve(&world, &id, &disks).status, 200);
    joiner.poll(&world, &id);
    joiner.progress(&world, &id, 1, "storage", (1, 2), "failed");
    // Keeps the retry in the queue, where the machine is started again.
    let next = Joiner::new(2).register(&world, &world.code());
    world.approve(&next);
    joiner.inventory["disks"][1]["holds"] = json!(["ceph_bluestore"]);
    assert_eq!(joiner.put(&world, &id).value()["state"], "failed");
    assert_eq!(world.admin("POST", &format!("/joins/{id}/retry"), &json!({})).status, 200);
    assert_eq!(joiner.put(&world, &id).value()["state"], "approved");
}

#[test]
fn the_provider_network_is_the_clusters() {
    let (world, id) = waiting();
    let provider =
        json!({ "provider": { "topology": "routed-host", "vlan": 7, "upstreamInterface": "eno9" } });
    let expected = ["provider.topology", "provider.vlan", "provider.upstreamInterface"];
    assert_eq!(fields(&approve(&world, &id, &provider)), expected);
    let carries = json!({
        "links": [{ "name": "s", "interface": "eno2", "purposes": ["storage", "provider"] }],
    });
    assert_eq!(fields(&approve(&world, &id, &carries)), ["provider.upstreamInterface"]);
}

#[test]
fn a_bond_needs_members_that_are_not_the_management_nic() {
    let (world, id) = waiting();
    let alone = json!({ "links": [{ "name": "b", "kind": "bond", "interface": "bond0", "bond": { "mode": "active-backup" } }] });
    assert_eq!(fields(&approve(&world, &id, &alone)), ["links[0].interface"]);
    let members = |first: &str| {
        json!({ "links": [
            { "name": "b", "kind": "bond", "interface": "bond0", "bond": { "mode": "802.3ad", "lacpRate": "fast" } },
            { "name": "m1", "interface": first, "controller": "bond0" },
            { "name": "m2", "interface": "eno3", "controller": "bond0" },
            { "name": "v", "kind": "vlan", "interface": "vlan90", "parent": "bond0", "vlanId": 90, "purposes": ["storage"] },
        ] })
    };
    assert_eq!(fields(&approve(&world, &id, &members("eno1"))), ["links[1].interface"]);
    assert_eq!(approve(&world, &id, &members("eno2")).status, 200);
    let yaml = Joiner::new(1).poll(&world, &id)["delivery"]["nodeYaml"].as_str().unwrap().to_owned();
    for expected in ["connections:", "vlanId: 90", "parent: bond0", "mode: 802.3ad", "198.51.100.1/24"] {
        assert!(yaml.contains(expected), "{expected} in\n{yaml}");
    }
}

#[test]
fn copying_is_refused_where_it_stands_and_none_copies_nothing() {
    let (world, id) = waiting();
    let ask = |from: &str| world.admin("POST", &format!("/joins/{id}/approve"), &json!({ "copyFrom": from }));
    assert_eq!(fields(&ask("n-0000f0nd")), ["copyFrom"]);
    assert_eq!(ask("none").status, 200);
}

#[test]
fn forty_hostile_inventories_build_no_yaml_of_their_own() {
    let nasty = [
        "a\nrole: founder",
        "x: y",
        "- z",
        "{{",
        "\u{1b}[2J",
        "'; DROP TABLE joins; --",
        "&a *a",
        "\u{202e}abc",
    ];
    for (n, text) in (0..40).zip(nasty.iter().cycle()) {
        let world = World::new();
        let mut joiner = Joiner::new(n);
        joiner.inventory["disks"][1]["keys"] = json!([text]);
        joiner.inventory["disks"][1]["model"] = json!(text);
        joiner.inventory["nics"][1]["name"] = json!(text);
        let id = joiner.register(&world, &world.code());
        let disks = json!({ "disks": [{ "key": text, "role": "compute" }] });
        let approved = approve(&world, &id, &disks);
        let state = world.record(&id)["state"].clone();
        if approved.status == 200 {
            let yaml = joiner.poll(&world, &id)["delivery"]["nodeYaml"].as_str().unwrap().to_owned();
            assert_eq!(yaml.matches("\nnode:").count() + usize::from(yaml.starts_with("node:")), 1, "{yaml}");
            assert!(yaml.contains("role: hybrid"));
        } else {
            assert_eq!((approved.status, state), (400, json!("pending")), "{text:?}");
        }
    }
}
