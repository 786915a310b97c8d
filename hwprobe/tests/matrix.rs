//! What real machines taught: each case was seen in a machine of `cargo xtask vm hardware`.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

mod support;

use std::os::unix::net::UnixListener;

use hwprobe::{Code, table};
use support::{Tree, disk, texts};

#[test]
fn of_a_multipath_disk_whose_partitions_only_the_map_shows_the_free_end_is_not_known() {
    let t = Tree::bare();
    t.dm("dm-0", "253:0", "mpatha", "mpath-3x").dm("dm-1", "253:1", "mpatha-part1", "part1-mpath-3x");
    t.stack("dm-0", "dm-1");
    for (sd, dev) in [("sda", "8:0"), ("sdb", "8:16")] {
        t.disk(sd, dev, 2048 * 64).udev(dev, &["ID_FS_TYPE=mpath_member"]).stack(sd, "dm-0");
    }
    t.udev("253:0", &["ID_PART_TABLE_TYPE=gpt"]).udev("253:1", &["ID_FS_TYPE=ext4"]);
    let i = t.probe();
    let d = disk(&i, "sda");
    assert_eq!((texts(&d.holds), d.paths.len()), (vec!["gpt", "ext4"], 2));
    assert_eq!(d.tail_free_bytes, None);
    // The table stands on the map, too.
    assert_eq!(texts(&d.stack[1].holds), ["gpt"]);
}

#[test]
fn a_partition_table_on_an_array_is_what_the_array_holds() {
    let t = Tree::bare();
    t.disk("sda", "8:0", 4096).udev("8:0", &["ID_FS_TYPE=linux_raid_member"]);
    t.md("md0", "9:0", "raid1").stack("sda", "md0").udev("9:0", &["ID_PART_TABLE_TYPE=dos"]);
    assert_eq!(texts(&disk(&t.probe(), "sda").stack[0].holds), ["dos"]);
}

#[test]
fn a_serial_number_that_udev_has_cut_is_taken_whole() {
    let t = Tree::bare();
    let uuid = "7c1f3a5e-20d4-4b6f-9a58-3d2e51c7b804";
    t.disk("sda", "8:0", 8)
        .udev("8:0", &["ID_SERIAL_SHORT=7c1f3a5e-20d4-4b6f-9", &format!("ID_SCSI_SERIAL={uuid}")]);
    t.disk("sdb", "8:16", 8).udev("8:16", &["ID_SERIAL_SHORT=ZA1", "ID_SCSI_SERIAL=another"]);
    let i = t.probe();
    assert_eq!(disk(&i, "sda").serial.as_deref(), Some(uuid));
    assert_eq!(disk(&i, "sdb").serial.as_deref(), Some("ZA1"));
}

#[test]
fn a_disk_that_has_no_page_of_identifiers_has_not_gone_away() {
    let t = Tree::bare();
    t.disk("sda", "8:0", 8).udev("8:0", &["ID_MODEL=x"]);
    // Opening a socket fails with ENXIO, as reading `wwid` of such a disk does.
    let _socket = UnixListener::bind(t.path().join("sys/block/sda/device/wwid")).unwrap();
    let i = t.probe();
    let about = |code| i.warnings.iter().find(|w| w.at == "disks/sda" && w.code == code);
    assert!(about(Code::Absent).is_some_and(|w| w.facts.contains(&"wwn".to_owned())), "{:?}", i.warnings);
    assert!(about(Code::Vanished).is_none(), "{:?}", i.warnings);
}

#[test]
fn the_model_of_a_card_is_its_product_name() {
    let t = Tree::bare();
    t.disk("mmcblk0", "179:0", 8)
        .put("sys/block/mmcblk0/device/name", "SD32!\n")
        .udev("179:0", &["ID_SERIAL=0x1", "ID_NAME=SD32_"]);
    assert_eq!(disk(&t.probe(), "mmcblk0").model.as_deref(), Some("SD32!"));
}

#[test]
fn the_table_says_once_what_is_true_of_many_disks() {
    let t = Tree::bare();
    for (sd, dev) in [("sda", "8:0"), ("sdb", "8:16"), ("sdc", "8:32")] {
        t.disk(sd, dev, 8).udev(dev, &["ID_FS_TYPE=ext4", "ID_MODEL=x", "ID_SERIAL=s"]);
        t.put(&format!("sys/block/{sd}/device/vendor"), "v\n");
    }
    let text = table::render(&t.probe(), 200);
    assert_eq!(text.matches("no WWN and no /dev/disk/by-id link").count(), 1, "{text}");
    assert!(text.contains("disks/sda sdb sdc: "), "{text}");
}
