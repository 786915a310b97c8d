//! What stands on disks: several layers, several disks, pools, swap, live media; and names that look alike.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

mod support;

use hwprobe::{Code, StackKind};
use proptest::prelude::*;
use support::{Tree, disk, texts};

#[test]
fn a_volume_on_luks_on_a_mirror_is_on_both_disks_in_the_order_in_which_it_is_taken_down() {
    let t = Tree::bare();
    t.md("md0", "9:0", "raid1");
    for (sd, dev) in [("sda", "8:0"), ("sdb", "8:16")] {
        t.disk(sd, dev, 2048 * 8).udev(dev, &["ID_FS_TYPE=linux_raid_member"]).stack(sd, "md0");
    }
    t.udev("9:0", &["ID_FS_TYPE=crypto_LUKS"]);
    t.dm("dm-0", "253:0", "secret", "CRYPT-LUKS2-0-secret").stack("md0", "dm-0");
    t.dm("dm-1", "253:1", "vg-swap", "LVM-x").stack("dm-0", "dm-1");
    t.dm("dm-2", "253:2", "vg-root", "LVM-y").stack("dm-0", "dm-2");
    t.mounts(&["253:2 /a\\040b\\012c ext4 /dev/mapper/vg-root"]);
    t.put("proc/swaps", "Filename Type Size Used Priority\n/dev/dm-1 partition 1024 0 -2\n");
    let i = t.probe();
    for sd in ["sda", "sdb"] {
        let d = disk(&i, sd);
        let stack: Vec<_> = d.stack.iter().map(|s| (s.name.as_str(), s.kind, s.depth)).collect();
        assert_eq!(
            stack,
            [
                ("dm-1", StackKind::Lvm, 3),
                ("dm-2", StackKind::Lvm, 3),
                ("dm-0", StackKind::Crypt, 2),
                ("md0", StackKind::Raid1, 1)
            ]
        );
        // A line feed is no part of a text for people.
        assert_eq!(texts(&d.mounts), ["/a b\u{fffd}c", "[SWAP]"]);
        assert_eq!(texts(&d.holds), ["linux_raid_member"]);
    }
}

#[test]
fn devices_that_stand_on_each_other_end_and_leave_their_disk_in_use() {
    let t = Tree::bare();
    t.disk("sda", "8:0", 8).udev("8:0", &["ID_MODEL=x"]).ends("sda", &[0; 4096]);
    t.dm("dm-0", "253:0", "a", "LVM-a").dm("dm-1", "253:1", "b", "LVM-b");
    t.stack("sda", "dm-0").stack("dm-0", "dm-1").stack("dm-1", "dm-0");
    let i = t.probe();
    assert_eq!(texts(&disk(&i, "sda").holds), ["in-use"]);
    assert!(i.warnings.iter().any(|w| w.code == Code::Invalid && w.at == "disks/sda"));
    // A diamond: one device on two paths is listed once, at its longest way.
    let t = Tree::bare();
    t.disk("sda", "8:0", 8)
        .dm("dm-0", "253:0", "a", "LVM-a")
        .dm("dm-1", "253:1", "b", "LVM-b")
        .dm("dm-2", "253:2", "c", "LVM-c");
    t.stack("sda", "dm-0")
        .stack("dm-0", "dm-2")
        .stack("sda", "dm-1")
        .stack("dm-1", "dm-2")
        .stack("sda", "dm-2");
    let i = t.probe();
    let stack: Vec<_> = disk(&i, "sda").stack.iter().map(|s| (s.name.as_str(), s.depth)).collect();
    assert_eq!(stack, [("dm-2", 2), ("dm-0", 1), ("dm-1", 1)]);
}

#[test]
fn every_device_of_a_bcachefs_is_mounted() {
    // By the source, and by sysfs when the source names one of them alone.
    for source in ["/dev/sda:/dev/sdb", "/dev/sda"] {
        let t = Tree::bare();
        for (n, sd, dev) in [(0, "sda", "8:0"), (1, "sdb", "8:16"), (2, "sdc", "8:32")] {
            t.disk(sd, dev, 2048 * 8).udev(dev, &["ID_FS_TYPE=bcachefs"]);
            if n < 2 {
                t.link(&format!("sys/fs/bcachefs/u-1/dev-{n}/block"), &format!("../../../../block/{sd}"));
            }
        }
        t.mounts(&[&format!("0:50 /pool bcachefs {source}")]);
        let i = t.probe();
        assert_eq!(
            (texts(&disk(&i, "sda").mounts), texts(&disk(&i, "sdb").mounts)),
            (vec!["/pool"], vec!["/pool"])
        );
        assert!(disk(&i, "sdc").mounts.is_empty(), "{source}");
    }
}

#[test]
fn the_stick_below_a_live_system_is_mounted_down_to_its_overlay() {
    let t = Tree::bare();
    t.disk("sda", "8:0", 2048 * 8).part("sda", "sda1", "8:1", 1, 2048, 2048);
    t.udev("8:0", &["ID_PART_TABLE_TYPE=dos"]).udev("8:1", &["ID_FS_TYPE=vfat"]);
    t.put("sys/block/loop0/dev", "7:0\n").put("sys/block/loop0/size", "8\n").dir("sys/block/loop0/holders");
    t.put("sys/block/loop0/loop/backing_file", "/run/live/medium/fs.squashfs\n");
    let line = |dev: &str, at: &str, fs: &str, source: &str, options: &str| {
        format!("2 1 {dev} / {at} rw - {fs} {source} {options}\n")
    };
    t.put(
        "proc/1/mountinfo",
        line(
            "0:1",
            "/",
            "overlay",
            "overlay",
            "rw,lowerdir=/run/live/rootfs,upperdir=/run/live/up/rw,workdir=/run/live/up/w",
        ) + &line("8:1", "/run/live/medium", "vfat", "/dev/sda1", "ro")
            + &line("7:0", "/run/live/rootfs", "squashfs", "/dev/loop0", "ro")
            + &line("0:2", "/run/live/up", "tmpfs", "tmpfs", "rw"),
    );
    let i = t.probe();
    assert_eq!(texts(&disk(&i, "sda").mounts), ["/", "/run/live/medium", "/run/live/rootfs"]);
    assert_eq!(i.disks.len(), 1, "a loop device is no disk");
}

/// Names of disks that begin with each other, with partitions, in a machine.
fn likes() -> impl Strategy<Value = Vec<(String, bool)>> {
    let name = prop_oneof!["sd[ab]{1,3}", "nvme[0-1]{1,2}n[1-2]{1,2}", "vd[ab]{1,2}", "mmcblk[0-1]{1,2}"];
    proptest::collection::btree_map(name, any::<bool>(), 1..8).prop_map(|names| names.into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_partition_and_its_mount_never_belong_to_a_disk_whose_name_begins_alike(names in likes()) {
        let t = Tree::bare();
        let mut lines = Vec::new();
        for (n, (name, partitioned)) in names.iter().enumerate() {
            t.disk(name, &format!("259:{}", 10 * n), 2048 * 8);
            if *partitioned {
                let digit = name.ends_with(|c: char| c.is_ascii_digit());
                let part = format!("{name}{}1", if digit { "p" } else { "" });
                t.part(name, &part, &format!("259:{}", 10 * n + 1), 1, 2048, 2048);
                lines.push(format!("259:{} /on-{name} ext4 /dev/{part}", 10 * n + 1));
            }
        }
        t.mounts(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        let i = t.probe();
        prop_assert_eq!(i.disks.len(), names.len());
        for (name, partitioned) in &names {
            let d = disk(&i, name);
            let want: Vec<String> = partitioned.then(|| format!("/on-{name}")).into_iter().collect();
            prop_assert_eq!(texts(&d.mounts), want);
            prop_assert_eq!(d.partitions.len(), usize::from(*partitioned));
        }
    }
}
