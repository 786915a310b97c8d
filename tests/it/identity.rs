//! One key for one machine: copies of a disk, reinstalls, and boards whose UUID says nothing.

use std::fs;
use std::path::Path;
use std::process::Command;

use console::snapshot::State;

use crate::support::{Machine, World};

const MINE: &str = "4c4c4544-0046-3510-8051-b7c04f4e3732";
const YOURS: &str = "4c4c4544-0047-4410-8034-c2c04f583632";

/// A machine whose hardware is what stands below its root, and nothing else.
fn bare(uuid: &str) -> Machine {
    let mut machine = Machine::new();
    machine.set_product_uuid(uuid);
    let root = machine.path("").display().to_string();
    machine.args.extend(["--probe-root".to_owned(), root]);
    machine
}

/// A world whose machine is such a one and waits for approval.
fn waiting(uuid: &str) -> World {
    let mut world = World::new();
    world.machine = bare(uuid);
    world.ask_to_join();
    world.machine.start();
    world.machine.wait_for_state(State::Pending);
    world
}

fn copy_state(from: &Machine, to: &Machine) {
    let target = to.path("var/lib/stratum");
    fs::create_dir_all(&target).unwrap();
    let source = from.path("var/lib/stratum/join");
    let copied = Command::new("cp").arg("-a").arg(&source).arg(&target).status().unwrap();
    assert!(copied.success());
}

fn install_record(machine: &Machine, id: &str) {
    let dir = machine.path("etc/stratum");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("install.yaml"), format!("osDiskLayout: compute-tail\ninstallId: {id}\n")).unwrap();
}

fn exists(machine: &Machine, below: &str) -> bool {
    Path::new(&machine.path(below)).exists()
}

#[test]
fn a_cloned_disk_makes_a_new_key_and_nothing_of_the_old_one_is_used() {
    let mut world = waiting(MINE);
    let before = world.machine.snapshot().unwrap();
    let key = world.machine.client_key();
    world.machine.kill();

    let mut clone = bare(YOURS);
    copy_state(&world.machine, &clone);
    assert_eq!(clone.client_key(), key);
    let told = world.founder.core().received().len();
    clone.start();
    clone.wait_for_log("belongs to another machine (its product UUID differs)");
    let shown = clone.wait_for("another registration", |s| {
        s.state == State::Pending && s.registration.join_id != before.registration.join_id
    });
    assert_ne!(clone.client_key(), key);
    assert_ne!(shown.pairing_code, before.pairing_code);
    assert_ne!(shown.node_key, before.node_key);
    // The founder never saw the old key from there, and lists both.
    let joins = world.joins();
    assert_eq!(joins.len(), 2);
    assert_ne!(joins[0]["keyFingerprint"], joins[1]["keyFingerprint"]);
    let old =
        data_encoding::HEXLOWER.decode(joins[0]["keyFingerprint"].as_str().unwrap().as_bytes()).unwrap();
    assert!(world.founder.core().received()[told..].iter().all(|r| r.peer.client_fp[..] != old[..]));

    // The machine it was copied from goes on as before.
    world.machine.start();
    let again = world.machine.wait_for("its own registration", |s| s.state == State::Pending && s.seq > 1);
    assert_eq!(again.registration.join_id, before.registration.join_id);
    assert_eq!(again.pairing_code, before.pairing_code);
    assert_eq!(world.machine.client_key(), key);
}

#[test]
fn a_clone_whose_code_was_already_removed_asks_for_one_and_says_so() {
    let mut world = waiting(MINE);
    world.machine.firstboot_does("hang=network");
    world.approve();
    world.machine.wait_for_state(State::Installing);
    world.machine.kill();
    world.machine.kill_firstboot();

    let mut clone = bare(YOURS);
    copy_state(&world.machine, &clone);
    clone.start();
    let shown = clone.wait_for_fault("JOIN_NOT_FOUND");
    assert_eq!(shown.state, State::Refused);
    assert!(
        shown.next.iter().any(|line| line.as_str().contains("stratum-installer join")),
        "{:?}",
        shown.next
    );
    assert!(!exists(&clone, "etc/stratum/node.yaml"), "the delivery of the other machine is not fetched");
    assert!(!exists(&clone, "run/stratum/delivery/bundle.json"));
}

#[test]
fn boards_whose_uuid_is_a_placeholder_keep_their_key() {
    let mut world = waiting("FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF");
    let (key, before) = (world.machine.client_key(), world.machine.snapshot().unwrap());
    for uuid in ["00000000-0000-0000-0000-000000000000", "03000200-0400-0500-0006-000700080009", MINE, ""] {
        world.machine.kill();
        world.machine.set_product_uuid(uuid);
        world.machine.start();
        let pid = world.machine.pid();
        let again =
            world.machine.wait_for("pending again", |s| s.agent.pid == pid && s.state == State::Pending);
        assert_eq!(again.pairing_code, before.pairing_code, "{uuid}");
        assert_eq!(world.machine.client_key(), key, "{uuid}");
    }
    assert!(!world.machine.log().contains("belongs to"), "{}", world.machine.log());
    assert_eq!(world.joins().len(), 1);
}

#[test]
fn a_reinstalled_machine_uses_nothing_of_the_installation_before() {
    let mut world = World::new();
    world.machine = bare(MINE);
    install_record(&world.machine, "first");
    world.ask_to_join();
    world.machine.start();
    let before = world.machine.wait_for_state(State::Pending);
    let key = world.machine.client_key();
    world.machine.kill();
    install_record(&world.machine, "second");
    world.machine.start();
    world.machine.wait_for_log("belongs to another installation (its install id differs)");
    let after = world.machine.wait_for("another registration", |s| {
        s.state == State::Pending && s.registration.join_id != before.registration.join_id
    });
    assert_ne!(world.machine.client_key(), key);
    assert_ne!(after.pairing_code, before.pairing_code);
    assert_eq!(world.joins().len(), 2, "the new record stands beside the old one");
}
