//! Keys of disks: what may be typed to wipe one, and what two disks may not share.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

mod support;

use hwprobe::{Code, NotAssignable};
use support::{MIB, Tree, disk, texts};

const W: &str = "0x5000c500a1b2c3d4";

fn two(first: &[&str], second: &[&str]) -> Tree {
    let t = Tree::bare();
    t.disk("sda", "8:0", 2048 * 4).udev("8:0", first);
    t.disk("sdb", "8:16", 2048 * 4).udev("8:16", second);
    t.ends("sda", &vec![0; 4 * MIB]).ends("sdb", &vec![0; 4 * MIB]);
    t
}

#[test]
fn keys_are_the_wwn_then_its_link_then_the_rest() {
    let t = Tree::bare();
    t.disk("sda", "8:0", 2048 * 4).udev(
        "8:0",
        &[
            &format!("ID_WWN={W}"),
            "ID_SERIAL_SHORT=ZA1ABCDE",
            "disk/by-id/scsi-SATA_X_ZA1ABCDE",
            &format!("disk/by-id/wwn-{W}"),
            "disk/by-id/ata-X_ZA1ABCDE",
            "disk/by-id/ata-X_ZA1ABCDE-part1",
            "disk/by-id/lvm-pv-uuid-abc",
            "disk/by-id/ata-bad\\x20name",
            "disk/by-path/pci-0000:00:1f.2-ata-1",
        ],
    );
    let i = t.probe();
    let d = disk(&i, "sda");
    let id = |n: &str| format!("/dev/disk/by-id/{n}");
    let want = [W.to_owned(), id(&format!("wwn-{W}")), id("ata-X_ZA1ABCDE"), id("scsi-SATA_X_ZA1ABCDE")];
    assert_eq!(texts(&d.keys), want.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(texts(&d.by_path), ["/dev/disk/by-path/pci-0000:00:1f.2-ata-1"]);
    assert_eq!(d.serial.as_deref(), Some("ZA1ABCDE"));
    assert!(d.not_assignable.is_empty());
}

#[test]
fn the_long_wwn_is_preferred() {
    let long = "0x600508b1001c2d3e4f5a6b7c8d9e0f1a";
    let t = two(&["ID_WWN=0x600508b1001c2d3e", &format!("ID_WWN_WITH_EXTENSION={long}")], &["ID_MODEL=x"]);
    assert_eq!(disk(&t.probe(), "sda").wwn.as_deref(), Some(long));
}

#[test]
fn a_placeholder_wwn_is_null_and_told() {
    let i = two(&["ID_WWN=0x0000000000000000"], &["ID_WWN=0x0000000000000000"]).probe();
    assert_eq!(i.disks.len(), 2);
    assert!(i.disks.iter().all(|d| d.wwn.is_none()));
    let junk = i.warnings.iter().filter(|w| w.code == Code::Junk && w.facts == ["wwn"]);
    assert_eq!(junk.count(), 2);
}

#[test]
fn a_wwn_of_two_different_disks_is_nobodys_key() {
    let wwn = format!("ID_WWN={W}");
    let link = format!("disk/by-id/scsi-3{}", &W[2..]);
    let i =
        two(&[&wwn, "ID_SERIAL_SHORT=A1", &link, "disk/by-id/ata-A1"], &[&wwn, "ID_SERIAL_SHORT=B1"]).probe();
    let (a, b) = (disk(&i, "sda"), disk(&i, "sdb"));
    assert!(a.wwn.is_none() && b.wwn.is_none());
    assert_eq!(texts(&a.keys), ["/dev/disk/by-id/ata-A1"]);
    assert_eq!(b.not_assignable, [NotAssignable::NoStableKey]);
    assert!(i.warnings.iter().any(|w| w.code == Code::SharedWwn));
}

/// Two paths to one disk, without a map: `sdb` is behind another host.
fn dual_port(ends: Option<[u8; 2]>) -> Tree {
    let facts = [&*format!("ID_WWN={W}"), "ID_SERIAL_SHORT=A1", "disk/by-id/wwn-0x5000c500a1b2c3d4"];
    let t = Tree::bare();
    for (sd, dev, host) in [("sda", "8:0", 0), ("sdb", "8:16", 1)] {
        let real = format!("pci0000:00/0000:00:1f.2/host{host}/target{host}:0:0/{host}:0:0:0");
        t.dir(&format!("sys/devices/{real}/block/{sd}/holders"));
        t.link(&format!("sys/block/{sd}"), &format!("../devices/{real}/block/{sd}"));
        t.link(&format!("sys/block/{sd}/device"), &format!("../../../{host}:0:0:0"));
        t.put(&format!("sys/block/{sd}/dev"), dev)
            .put(&format!("sys/block/{sd}/size"), "16")
            .udev(dev, &facts);
        if let Some(bytes) = ends {
            t.ends(sd, &vec![bytes[host]; 8192]);
        }
    }
    t
}

#[test]
fn two_paths_to_one_disk_without_a_map_are_one_disk_when_both_ends_read_the_same() {
    for (ends, holds) in [(Some([0, 0]), vec![]), (Some([7, 7]), vec!["unknown-data"]), (None, vec![])] {
        let i = dual_port(ends).probe();
        let d = &i.disks[0];
        assert_eq!((i.disks.len(), d.paths.len(), texts(&d.holds)), (1, 2, holds), "{ends:?}");
        assert_eq!(texts(&d.keys), [W, &format!("/dev/disk/by-id/wwn-{W}")]);
        assert!(d.not_assignable.is_empty() && i.warnings.iter().any(|w| w.code == Code::MultipathInactive));
    }
}

#[test]
fn paths_with_other_contents_stay_two_disks_without_a_key() {
    let i = dual_port(Some([0, 7])).probe();
    assert_eq!(i.disks.len(), 2);
    assert!(
        i.disks
            .iter()
            .all(|d| d.not_assignable.contains(&NotAssignable::DuplicateIdentity) && d.keys.is_empty())
    );
}

#[test]
fn a_path_that_cannot_be_read_is_folded_with_nothing() {
    let t = dual_port(Some([0, 0]));
    // First one of them, then both: two disks that nobody could read are not alike.
    for sd in ["sdb", "sda"] {
        std::fs::remove_file(t.path().join(format!("capture/ends/{sd}.tail"))).unwrap();
        let i = t.probe();
        assert!(i.disks.len() == 2 && i.disks.iter().all(|d| !d.not_assignable.is_empty()), "{sd}");
    }
    let options = hwprobe::Options { read_ends: false, ..hwprobe::Options::default() };
    let i = hwprobe::probe(&hwprobe::Roots::under(dual_port(Some([0, 0])).path()).unwrap(), &options);
    assert!(i.disks.len() == 2 && i.disks.iter().all(|d| !d.not_assignable.is_empty()));
}

#[test]
fn two_logical_units_of_one_target_are_no_two_paths() {
    let t = dual_port(Some([0, 0]));
    t.dir("sys/devices/pci0000:00/0000:00:1f.2/host0/target0:0:0/0:0:0:1");
    std::fs::remove_file(t.path().join("sys/block/sdb/device")).unwrap();
    t.link("sys/block/sdb/device", "../../../../host0/target0:0:0/0:0:0:1");
    assert_eq!(t.probe().disks.len(), 2);
}

#[test]
fn what_is_on_any_path_is_on_the_folded_disk() {
    let t = dual_port(Some([0, 0]));
    t.mounts(&["8:16 /data ext4 /dev/sdb"]);
    assert_eq!(texts(&t.probe().disks[0].mounts), ["/data"]);
    let t = dual_port(Some([0, 0]));
    t.udev("8:16", &[&*format!("ID_WWN={W}"), "ID_SERIAL_SHORT=A1", "ID_FS_TYPE=LVM2_member"]);
    assert_eq!(texts(&t.probe().disks[0].holds), ["LVM2_member"]);
    let t = dual_port(Some([0, 0]));
    t.dm("dm-0", "253:0", "plain", "CRYPT-PLAIN-x").stack("sdb", "dm-0");
    let d = t.probe().disks.remove(0);
    assert_eq!((texts(&d.holds), d.stack.len()), (vec!["in-use"], 1));
    let t = dual_port(Some([0, 0]));
    t.put("sys/block/sdb/ro", "1");
    assert!(t.probe().disks[0].read_only);
}

#[test]
fn two_disks_that_say_they_are_one_cannot_be_assigned() {
    let facts = [&*format!("ID_WWN={W}"), "ID_SERIAL_SHORT=A1"];
    let i = two(&facts, &facts).probe();
    for d in &i.disks {
        assert!(d.keys.is_empty());
        assert!(d.not_assignable.contains(&NotAssignable::DuplicateIdentity));
    }
}

#[test]
fn a_serial_number_alone_is_no_key_and_two_disks_may_have_the_same() {
    let i = two(&["ID_SERIAL_SHORT=A1", "disk/by-id/ata-X_A1"], &["ID_SERIAL_SHORT=A1"]).probe();
    assert_eq!(i.disks.iter().map(|d| d.serial.as_deref()).collect::<Vec<_>>(), [Some("A1"); 2]);
    assert_eq!(texts(&disk(&i, "sda").keys), ["/dev/disk/by-id/ata-X_A1"]);
    assert!(disk(&i, "sdb").keys.is_empty());
}

#[test]
fn a_link_that_two_disks_claim_is_nobodys() {
    let i = two(&["disk/by-id/virtio-same", "disk/by-id/virtio-a"], &["disk/by-id/virtio-same"]).probe();
    assert_eq!(texts(&disk(&i, "sda").keys), ["/dev/disk/by-id/virtio-a"]);
    assert!(disk(&i, "sdb").keys.is_empty());
    assert_eq!(i.warnings.iter().filter(|w| w.code == Code::SharedLink).count(), 2);
}

#[test]
fn two_paths_under_a_multipath_map_are_one_disk() {
    let t = Tree::bare();
    t.dm("dm-0", "253:0", "mpatha", "mpath-3600").udev("253:0", &["DM_NAME=mpatha"]);
    for (sd, dev) in [("sda", "8:0"), ("sdb", "8:16")] {
        t.disk(sd, dev, 2048 * 4).udev(dev, &[&format!("ID_WWN={W}"), "ID_FS_TYPE=mpath_member"]);
        t.put(&format!("sys/block/{sd}/device/state"), "running\n").stack(sd, "dm-0");
    }
    t.ends("dm-0", &vec![0; 4 * MIB]);
    let i = t.probe();
    assert_eq!(i.disks.len(), 1);
    let d = disk(&i, "sda");
    assert!(d.holds.is_empty(), "the map's ends are zero: {:?}", d.holds);
    assert_eq!(d.wwn.as_deref(), Some(W));
    let paths: Vec<_> = d.paths.iter().map(|p| (p.name.as_str(), p.state.as_deref())).collect();
    assert_eq!(paths, [("sda", Some("running")), ("sdb", Some("running"))]);
    assert_eq!(d.stack[0].name, "dm-0");

    // A partition of the map, an LV on it, mounted: the disk is both held and mounted.
    t.dm("dm-1", "253:1", "mpatha-part1", "part1-mpath-3600");
    t.stack("dm-0", "dm-1").udev("253:1", &["ID_FS_TYPE=ext4"]);
    t.mounts(&["253:1 /srv ext4 /dev/mapper/mpatha-part1"]);
    let i = t.probe();
    let d = disk(&i, "sda");
    assert_eq!((texts(&d.holds), texts(&d.mounts)), (vec!["ext4"], vec!["/srv"]));
}

#[test]
fn one_path_under_a_map_is_in_use() {
    let t = Tree::bare();
    t.dm("dm-0", "253:0", "mpatha", "mpath-3600");
    t.disk("sda", "8:0", 2048 * 4).udev("8:0", &["ID_FS_TYPE=mpath_member"]).stack("sda", "dm-0");
    assert_eq!(texts(&disk(&t.probe(), "sda").holds), ["in-use"]);
}

#[test]
fn hostile_text_is_made_harmless_and_told() {
    let t = two(&["ID_MODEL_ENC=a\\x1b[31mb\\x20\\x20c", "ID_SERIAL_SHORT=\u{202e}x"], &["ID_MODEL=x"]);
    let i = t.probe();
    assert_eq!(disk(&i, "sda").model.as_deref(), Some("a\u{fffd}[31mb c"));
    let hostile = i.warnings.iter().find(|w| w.code == Code::HostileText && w.at == "disks/sda").unwrap();
    assert_eq!(hostile.facts, ["model", "serial"]);
    let out = format!("{}{}", serde_json::to_string(&i).unwrap(), hwprobe::table::render(&i, 80));
    assert!(!out.chars().any(|c| c.is_control() && c != '\n'));
}

#[test]
fn several_namespaces_and_paths_of_one_nvme_are_told_apart() {
    let t = Tree::bare();
    for n in 1..=3 {
        t.disk(&format!("nvme0n{n}"), &format!("259:{n}"), 2048 * 4);
        t.put(&format!("sys/block/nvme0n{n}/wwid"), format!("eui.002538b111b0000{n}\n"));
        t.udev(&format!("259:{n}"), &[&format!("disk/by-id/nvme-M_S_{n}"), "ID_MODEL=M"]);
    }
    t.udev("259:1", &["disk/by-id/nvme-M_S_1", "disk/by-id/nvme-M_S"]);
    for c in 0..2 {
        t.disk(&format!("nvme0c{c}n1"), &format!("259:{}", 10 + c), 2048 * 4);
        t.put(&format!("sys/block/nvme0c{c}n1/hidden"), "1\n");
        t.put(&format!("sys/block/nvme0c{c}n1/device/state"), "live\n");
    }
    let i = t.probe();
    assert_eq!(i.disks.len(), 3);
    let d = disk(&i, "nvme0n1");
    // The link without a number would move to another namespace.
    assert!(!texts(&d.keys).contains(&"/dev/disk/by-id/nvme-M_S"));
    assert_eq!(d.keys[0], "eui.002538b111b00001");
    let paths: Vec<_> =
        d.paths.iter().map(|p| (p.name.as_str(), p.path.as_deref(), p.state.as_deref())).collect();
    assert_eq!(paths, [("nvme0c0n1", None, Some("live")), ("nvme0c1n1", None, Some("live"))]);
}
