//! The happy path, one screenful.

use console::snapshot::State;

use crate::support::World;

#[test]
fn a_machine_joins_after_its_operator_compared_the_pairing_codes() {
    let mut world = World::joining();

    let waiting = world.machine.wait_for_state(State::Pending);
    let listed = &world.joins()[0];
    assert_eq!(listed["pairingCode"], waiting.pairing_code.unwrap().as_str());

    let id = world.approve();
    let end = world.machine.wait_for_end();
    assert!(end.success(), "{}", world.machine.log());

    let record = world.record(&id);
    assert_eq!(record["state"], "joined");
    assert!(record["steps"].as_array().unwrap().iter().all(|s| s["status"] == "done"), "{record}");
    let joined = world.machine.snapshot().unwrap();
    assert_eq!(joined.state, State::Joined);
    assert_eq!(joined.registration.node_id.unwrap().as_str(), record["nodeId"].as_str().unwrap());
    assert!(world.machine.path("var/lib/stratum/join/joined").exists());
    assert!(!world.machine.path("var/lib/stratum/join/identity/key.pem").exists());
}
