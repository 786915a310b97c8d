//! Machines that are larger than the inventory: what is left out, and that it is said; and what the digest sees.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

mod support;

use std::net::Ipv4Addr;

use hwprobe::{Addr, Code, Finding, Inventory, Link, NetSource, Options, Roots, Route, Sources};
use serde_json::{Value, json};
use support::{Tree, disk, many, texts};

fn truncated(inventory: &Inventory, at: &str, fact: &str) -> bool {
    let hit =
        |w: &&hwprobe::Warning| w.code == Code::Truncated && w.at == at && w.facts.iter().any(|f| f == fact);
    inventory.warnings.iter().any(|w| hit(&w))
}

#[test]
fn of_4200_disks_4096_are_listed_and_the_mounted_one_stays_when_they_must_fit() {
    let t = Tree::bare();
    for n in 0..4200 {
        let dir = format!("sys/block/vd{n}");
        t.put(&format!("{dir}/uevent"), format!("MAJOR=254\nMINOR={n}\nDEVTYPE=disk\n"));
        t.put(&format!("{dir}/size"), "2048\n");
    }
    t.mounts(&["254:4000 /data ext4 /dev/vd4000"]);
    let i = t.probe();
    assert_eq!((i.disks.len(), truncated(&i, "", "disks")), (4096, true));
    assert_eq!(texts(&disk(&i, "vd4000").mounts), ["/data"]);
    let small = i.clone().fit(131_072);
    assert!(small.json_len() <= 131_072 && truncated(&small, "", "disks"));
    assert_eq!(texts(&disk(&small, "vd4000").mounts), ["/data"]);
    for kept in &small.disks {
        let old = disk(&i, &kept.name);
        assert_eq!((&kept.holds, &kept.mounts, &kept.keys), (&old.holds, &old.mounts, &old.keys));
    }
}

#[test]
fn of_300_partitions_256_are_listed_and_a_mount_on_the_last_one_counts() {
    let t = Tree::bare();
    t.disk("sda", "8:0", 1 << 30).udev("8:0", &["ID_PART_TABLE_TYPE=gpt"]);
    for n in 1..=300 {
        let dev = format!("259:{n}");
        t.part("sda", &format!("sda{n}"), &dev, n, u64::from(n) * 4096, 2048);
        t.udev(&dev, &[if n == 300 { "ID_FS_TYPE=xfs" } else { "ID_FS_TYPE=ext4" }]);
    }
    t.mounts(&["259:300 /last xfs /dev/sda300"]);
    let i = t.probe();
    let d = disk(&i, "sda");
    assert_eq!((d.partitions.len(), truncated(&i, "disks/sda", "partitions")), (256, true));
    assert_eq!((texts(&d.mounts), texts(&d.holds)), (vec!["/last"], vec!["gpt", "ext4", "xfs"]));
    // What is behind the partitions that are not listed is not known to be free.
    assert_eq!(d.tail_free_bytes, None);
}

#[test]
fn of_1100_nics_1024_are_listed() {
    let t = Tree::bare();
    for n in 0..1100 {
        t.put(&format!("sys/class/net/eth{n}/ifindex"), format!("{}\n", n + 2));
        t.dir(&format!("sys/class/net/eth{n}/device"));
    }
    let i = t.probe();
    assert_eq!((i.nics.len(), truncated(&i, "", "nics")), (1024, true));
}

/// A kernel with as many routes as a router of the internet.
struct Many;

impl NetSource for Many {
    fn links(&self) -> Finding<Vec<Link>> {
        Ok(vec![Link { index: 2, name: "eth0".to_owned(), up: true, ..Link::default() }])
    }

    fn addresses(&self) -> Finding<Vec<Addr>> {
        Ok(Vec::new())
    }

    fn routes(&self) -> Finding<Vec<Route>> {
        let route = |n: u32| Route {
            table: 254,
            unicast: true,
            destination: Some(Ipv4Addr::from(0x0a00_0000 + n * 16)),
            prefix: 28,
            devices: vec![2],
            nexthop_object: false,
        };
        Ok((0..100_000).rev().map(route).collect())
    }
}

#[test]
fn of_100000_routes_the_first_8192_are_listed() {
    let t = Tree::bare();
    t.dir("sys/class/net/eth0/device");
    let roots = Roots::under(t.path()).unwrap();
    let mut sources = Sources::of(&roots);
    sources.net = Box::new(Many);
    let part = hwprobe::probe_network_with(&roots, &sources, &Options::default());
    let routes = part.nics[0].routes.as_ref().unwrap();
    assert_eq!((routes.len(), routes[0].as_str(), routes[1].as_str()), (8192, "10.0.0.0/28", "10.0.0.16/28"));
    assert!(part.warnings.iter().any(|w| w.code == Code::Truncated && w.facts == ["routes"]));
}

/// Every place of `value` that is no list and no object.
fn leaves(at: &str, value: &Value, out: &mut Vec<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, v)| leaves(&format!("{at}/{key}"), v, out)),
        Value::Array(list) => list.iter().enumerate().for_each(|(n, v)| leaves(&format!("{at}/{n}"), v, out)),
        Value::Null => {}
        _ => out.push(at.to_owned()),
    }
}

#[test]
fn the_digest_sees_every_field_but_the_generation_and_the_words() {
    let inventory = many().probe();
    let value = serde_json::to_value(&inventory).unwrap();
    let mut places = Vec::new();
    leaves("", &value, &mut places);
    let mut seen = 0;
    for place in places {
        let mut other = value.clone();
        let leaf = other.pointer_mut(&place).unwrap();
        *leaf = match &leaf {
            Value::Bool(b) => json!(!b),
            Value::Number(n) => json!(n.as_u64().unwrap() + 1),
            text => json!(format!("{}1", text.as_str().unwrap())),
        };
        // An enum has no such value.
        let Ok(other) = serde_json::from_value::<Inventory>(other) else { continue };
        let same = place == "/generation" || place.ends_with("/detail");
        assert_eq!(other.digest() == inventory.digest(), same, "{place}");
        seen += 1;
    }
    assert!(seen > 100, "{seen}");
}
