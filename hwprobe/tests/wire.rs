//! The wire form: schema 1, digest, and fitting into a bound.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

mod support;

use hwprobe::{Code, Inventory, MachinePart, NetworkPart, Options, Roots, probe_machine, probe_network};
use serde_json::Value;
use support::{disk, many};

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

fn sorted(text: &str) -> Vec<&str> {
    let mut list: Vec<&str> = text.split_whitespace().collect();
    list.sort_unstable();
    list
}

fn same_keys(value: &Value, want: &str) {
    let mut have = keys(value);
    have.sort_unstable();
    assert_eq!(have, sorted(want));
}

#[test]
fn every_field_of_schema_1_is_there() {
    let t = many();
    t.put("capture/ip-addr.json", r#"[{"ifindex":2,"ifname":"ens3","flags":[],"link_type":"ether"}]"#);
    t.dir("sys/class/net/ens3/device");
    let v = serde_json::to_value(t.probe()).unwrap();
    same_keys(
        &v,
        "schemaVersion generation host cpuVirtualization kvm hypervisor memoryBytes disks nics warnings",
    );
    same_keys(
        &v["host"],
        "hostname serial serialSource manufacturer product release architecture kernel cpuModel cpuCount",
    );
    same_keys(
        &v["disks"][0],
        "name path byId byPath keys wwn model vendor serial sizeBytes logicalBlockSize physicalBlockSize rotational \
         transport removable readOnly mounts holds partitionTable partitions tailFreeBytes stack paths notAssignable",
    );
    same_keys(
        &v["disks"][0]["partitions"][0],
        "name number startBytes sizeBytes type label uuid holds mounts",
    );
    same_keys(&v["disks"][0]["stack"][0], "name path kind label sizeBytes depth holds mounts");
    same_keys(
        &v["nics"][0],
        "name altNames mac currentMac kind driver speedMbps mtu link ipv4 ipv6 routes master parent lower vf bus",
    );
    same_keys(&v["warnings"][0], "code at facts detail");
    assert_eq!(v["cpuVirtualization"], "");
    assert_eq!((v["schemaVersion"].as_u64(), v["generation"].as_u64()), (Some(1), Some(1)));
}

#[test]
fn the_layout_of_the_install_record_is_there_only_with_a_record() {
    let t = many();
    t.put("etc/stratum/install.yaml", "osDiskLayout: compute-tail\ninstallId: abc\n");
    let roots = Roots::under(t.path()).unwrap();
    let machine = probe_machine(&roots, &Options::default());
    assert_eq!(machine.install_id.as_deref(), Some("abc"));
    let v = serde_json::to_value(Inventory::assemble(machine, probe_network(&roots, &Options::default())))
        .unwrap();
    assert_eq!(v["osDiskLayout"], "compute-tail");
}

#[test]
fn both_parts_survive_the_socket() {
    let t = many();
    let roots = Roots::under(t.path()).unwrap();
    let (machine, network) =
        (probe_machine(&roots, &Options::default()), probe_network(&roots, &Options::default()));
    let m: MachinePart = serde_json::from_str(&serde_json::to_string(&machine).unwrap()).unwrap();
    let n: NetworkPart = serde_json::from_str(&serde_json::to_string(&network).unwrap()).unwrap();
    assert_eq!((&m, &n), (&machine, &network));
    let inventory = Inventory::assemble(m, n);
    let again: Inventory = serde_json::from_str(&serde_json::to_string(&inventory).unwrap()).unwrap();
    assert_eq!(again, inventory);
}

#[test]
fn the_reasons_against_a_disk_are_decided_anew() {
    let t = many();
    let roots = Roots::under(t.path()).unwrap();
    let mut machine = probe_machine(&roots, &Options::default());
    // A part that claims too little does not get through.
    machine.disks.iter_mut().for_each(|d| d.not_assignable.clear());
    let i = Inventory::assemble(machine, probe_network(&roots, &Options::default()));
    assert_eq!(
        serde_json::to_value(&disk(&i, "sda").not_assignable).unwrap(),
        serde_json::json!(["mounted"])
    );
    assert_eq!(
        serde_json::to_value(&disk(&i, "sde").not_assignable).unwrap(),
        serde_json::json!(["mounted", "noStableKey"])
    );
}

#[test]
fn the_digest_ignores_the_generation_and_the_words_only() {
    let a = many().probe();
    let mut b = a.clone();
    b.generation = 7;
    b.warnings.iter_mut().for_each(|w| w.detail = None);
    assert_eq!(a.digest(), b.digest());
    let mut c = a.clone();
    c.disks[2].read_only = true;
    let mut d = a.clone();
    d.warnings[0].facts.push("x".to_owned());
    let mut e = a.clone();
    e.disks[0].holds.pop();
    let all = [a.digest(), c.digest(), d.digest(), e.digest()];
    for (n, one) in all.iter().enumerate() {
        assert!(all[n + 1..].iter().all(|other| other != one), "{n}");
    }
}

#[test]
fn fitting_loses_blank_disks_before_holders_and_never_mounted_ones() {
    let full = many().probe();
    let size = full.json_len();
    assert_eq!(full.clone().fit(size), full);
    let mut last_lost = false;
    for max in (1000..size).step_by(250).rev() {
        let small = full.clone().fit(max);
        let mounted = |i: &Inventory| i.disks.iter().filter(|d| !d.mounts.is_empty()).count();
        assert_eq!(mounted(&small), mounted(&full));
        assert!(small.json_len() <= max || small.disks.iter().all(|d| !d.mounts.is_empty()));
        assert!(small.warnings.iter().any(|w| w.code == Code::Truncated && w.at.is_empty()));
        for kept in &small.disks {
            let old = disk(&full, &kept.name);
            assert_eq!((&kept.holds, &kept.mounts, &kept.keys), (&old.holds, &old.mounts, &old.keys));
            assert_eq!(kept.stack.len(), old.stack.len());
        }
        let holders_lost = !small.disks.iter().any(|d| d.name == "sdb");
        let blank_lost = !small.disks.iter().any(|d| d.name == "sdc");
        assert!(!holders_lost || blank_lost);
        last_lost = holders_lost;
    }
    assert!(last_lost);
}

#[test]
fn the_order_of_directories_does_not_matter() {
    // The same machine twice: directory order differs between trees on most file systems.
    assert_eq!(many().probe().digest(), many().probe().digest());
}

#[test]
fn the_table_shows_what_may_be_done_with_each_disk() {
    let text = hwprobe::table::render(&many().probe(), 200);
    let line = |name: &str| text.lines().find(|l| l.starts_with(name)).unwrap().to_owned();
    assert!(line("sda").contains("system: / /boot/efi"));
    assert!(line("sdb").contains("holds ceph_bluestore"));
    assert!(line("sdc").contains("blank") && line("sdc").ends_with("0x5000c500a1b2c3d3"));
    assert!(line("sdf").contains("cannot be assigned: no stable key"));
}

#[test]
fn the_table_can_be_read_on_a_terminal_of_80_columns() {
    let text = hwprobe::table::render(&many().probe(), 80);
    assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
    assert!(text.contains("\n    key 0x5000c500a1b2c3d3\n"), "{text}");
}
