//! Scripted faults of registration, poll and delivery, as a joiner sees them.

use lab_founder::{Evil, Request, Scripted, Step};
use serde_json::json;

use crate::support::{Joiner, World, digest};

fn poll(world: &World, joiner: &Joiner, id: &str, query: &str) -> lab_founder::Response {
    joiner.call(world, &Request::get(&format!("/v1/join/registrations/{id}{query}")))
}

fn registered() -> (World, Joiner, String) {
    let world = World::new();
    let joiner = Joiner::new(1);
    let id = joiner.register(&world, &world.code());
    (world, joiner, id)
}

#[test]
fn hostile_texts_leave_the_delivery_byte_for_byte() {
    let (world, joiner, id) = registered();
    world.approve(&id);
    let honest = digest(&poll(&world, &joiner, &id, "").body);
    world.founder.set_evil(vec![Evil::HostileText.always(Step::Poll)]);
    let answer = poll(&world, &joiner, &id, "");
    assert_eq!(digest(&answer.body), honest);
    assert!(answer.value()["waitReason"].as_str().unwrap().contains('\u{1b}'));
    assert_eq!(answer.value()["pairingCode"], world.record(&id)["pairingCode"]);
}

#[test]
fn an_unknown_state_is_answered_at_once_and_hostile_text_when_the_poll_ends() {
    let (world, joiner, id) = registered();
    world.founder.set_evil(vec![Evil::UnknownState.once(Step::Poll), Evil::HostileText.once(Step::Poll)]);
    let unknown = poll(&world, &joiner, &id, "?wait=50&state=pending");
    assert_eq!((unknown.value()["state"].as_str(), unknown.hold), (Some("quantum-superposition"), None));
    let request = Request::get(&format!("/v1/join/registrations/{id}?wait=50&state=pending"));
    let held = joiner.call(&world, &request);
    assert!(held.hold.is_some());
    assert_eq!(world.founder.evil().len(), 1, "it waits for the answer");
    let over = world.founder.ask_again(world.now, joiner.peer(), &request, true);
    assert!(over.value()["reason"].as_str().unwrap().contains("Pairing code: AAA-AAA"));
    assert!(world.founder.evil().is_empty());
}

#[test]
fn a_bad_node_yaml_waits_for_the_delivery_that_it_spoils() {
    let (world, joiner, id) = registered();
    world.founder.set_evil(vec![Evil::BadNodeYaml.once(Step::Poll)]);
    assert_eq!(poll(&world, &joiner, &id, "").status, 200);
    world.approve(&id);
    let spoiled = poll(&world, &joiner, &id, "").value();
    assert!(spoiled["delivery"]["nodeYaml"].as_str().unwrap().contains("unclosed"));
    let good = poll(&world, &joiner, &id, "").value();
    assert!(good["delivery"]["nodeYaml"].as_str().unwrap().contains("hybrid"));
}

#[test]
fn a_delivery_before_approval_is_a_decoy() {
    let (world, joiner, id) = registered();
    world.founder.set_evil(vec![Evil::DeliveryBeforeApproval.times(Step::Poll, 2)]);
    let decoy = poll(&world, &joiner, &id, "?wait=50&state=pending").value();
    assert_eq!(
        (&decoy["state"], &decoy["delivery"]["bundle"]["clusterId"]),
        (&json!("pending"), &json!("cl-decoy"))
    );
    world.approve(&id);
    let honest = poll(&world, &joiner, &id, "").value();
    assert_ne!(honest["delivery"]["bundle"]["clusterId"], "cl-decoy", "a true delivery is never replaced");
}

#[test]
fn another_id_or_nonce_comes_from_the_second_confirmation_on() {
    let world = World::new();
    let code = world.code();
    for (evil, key) in [(Evil::OtherJoinIdOnRetry, "joinId"), (Evil::OtherNonceOnRetry, "founderNonce")] {
        let joiner = Joiner::new(if key == "joinId" { 1 } else { 2 });
        world.founder.set_evil(vec![evil.always(Step::Confirm)]);
        let first = joiner.prove(&world, &code).1.value();
        let second = joiner.prove(&world, &code).1.value();
        assert_ne!(first[key], second[key], "{key}");
        world.founder.set_evil(Vec::new());
        assert_eq!(joiner.prove(&world, &code).1.value()[key], first[key]);
    }
}

#[test]
fn any_refusal_can_be_scripted_at_any_call() {
    let (world, joiner, id) = registered();
    let full = Evil::RefuseWith { status: 503, code: "JOIN_QUEUE_FULL".to_owned(), retry_after: Some(7) };
    world.founder.set_evil(vec![
        Scripted { skip: 1, ..full.once(Step::Poll) },
        Evil::RefuseThenAccept { n: 2 }.always(Step::Reregister),
    ]);
    assert_eq!(poll(&world, &joiner, &id, "").status, 200);
    let refused = poll(&world, &joiner, &id, "");
    assert_eq!((refused.status, refused.code().as_str()), (503, "JOIN_QUEUE_FULL"));
    assert!(refused.headers.contains(&("retry-after", "7".to_owned())));
    let puts: Vec<u16> = (0..3).map(|_| joiner.put(&world, &id).status).collect();
    assert_eq!(puts, [503, 503, 200]);
    world.founder.set_evil(vec![Evil::WrongPairingCode.once(Step::Reregister)]);
    assert_eq!(joiner.put(&world, &id).value()["pairingCode"], "AAA-AAA");
}

#[test]
fn a_flood_is_every_poll_answered_at_once() {
    let (world, joiner, id) = registered();
    world.founder.set_evil(vec![Evil::AnswerAtOnceFlood.times(Step::Poll, 2)]);
    let held = |_| poll(&world, &joiner, &id, "?wait=50&state=pending").hold.is_some();
    assert_eq!((0..3).map(held).collect::<Vec<_>>(), [false, false, true]);
}
