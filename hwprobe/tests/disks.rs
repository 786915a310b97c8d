//! Disks of whole machines made of files: what holds them, what is mounted, what stands on them.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

mod support;

use hwprobe::{Code, NotAssignable, StackKind};
use support::{MIB, Tree, disk, many, texts};

#[test]
fn each_disk_of_a_mixed_machine_says_what_holds_it() {
    let i = many().probe();
    let names: Vec<&str> = i.disks.iter().map(|d| d.name.as_str()).collect();
    assert_eq!(names, ["sda", "sdb", "sdc", "sdd", "sde", "sdf", "sdg", "sdh"]);
    let holds = |name| texts(&disk(&i, name).holds);
    assert_eq!(holds("sda"), ["gpt", "vfat", "linux_raid_member"]);
    assert_eq!(holds("sdb"), ["ceph_bluestore"]);
    assert!(holds("sdc").is_empty());
    assert_eq!(holds("sdd"), ["unknown-data"]);
    assert_eq!(holds("sde"), ["partitions"]);
    assert_eq!(holds("sdf"), ["in-use"]);
    assert_eq!(holds("sdg"), ["btrfs"]);
}

#[test]
fn mounts_reach_every_disk_below_them() {
    let i = many().probe();
    let mounts = |name| texts(&disk(&i, name).mounts);
    assert_eq!(mounts("sda"), ["/", "/boot/efi"]);
    assert_eq!(mounts("sde"), ["[SWAP]"]);
    assert_eq!(mounts("sdg"), ["/data"]);
    assert_eq!(mounts("sdh"), ["/data"]);
    for name in ["sdb", "sdc", "sdd", "sdf"] {
        assert!(mounts(name).is_empty(), "{name}");
    }
    assert!(disk(&i, "sdh").not_assignable.contains(&NotAssignable::Mounted));
}

#[test]
fn the_stack_is_listed_farthest_first() {
    let i = many().probe();
    let stack: Vec<_> = disk(&i, "sda").stack.iter().map(|s| (s.name.as_str(), s.kind, s.depth)).collect();
    assert_eq!(stack, [("dm-0", StackKind::Lvm, 2), ("md127", StackKind::Raid1, 1)]);
    let first = &disk(&i, "sda").stack[0];
    assert_eq!((first.path.as_str(), texts(&first.mounts)), ("/dev/mapper/vg0-root", vec!["/"]));
    assert_eq!(disk(&i, "sda").stack[1].label.as_deref(), Some("os"));
}

#[test]
fn a_partition_belongs_to_the_disk_that_contains_it() {
    let t = Tree::bare();
    t.disk("sda", "8:0", 2048 * 8).disk("sdaa", "65:160", 2048 * 8);
    t.part("sdaa", "sdaa1", "65:161", 1, 2048, 2048).udev("65:161", &["ID_FS_TYPE=ext4"]);
    t.mounts(&["65:161 /x ext4 /dev/sdaa1"]);
    let i = t.probe();
    assert!(disk(&i, "sda").partitions.is_empty() && disk(&i, "sda").mounts.is_empty());
    assert_eq!(disk(&i, "sdaa").partitions.len(), 1);
    assert_eq!(texts(&disk(&i, "sdaa").mounts), ["/x"]);
}

#[test]
fn a_mount_table_that_cannot_be_read_makes_every_disk_look_mounted() {
    for broken in [None, Some(""), Some("garbage\n"), Some("1 0 8:0 / / rw - ext4 /dev/sda rw\n1 0 8")] {
        let t = Tree::bare();
        t.disk("sda", "8:0", 2 * 2048).udev("8:0", &["ID_MODEL=x"]).ends("sda", &vec![0; 2 * MIB]);
        match broken {
            Some(text) => drop(t.put("proc/1/mountinfo", text)),
            None => std::fs::remove_file(t.path().join("proc/1/mountinfo")).unwrap(),
        }
        let i = t.probe();
        let d = disk(&i, "sda");
        assert!(texts(&d.mounts).contains(&"[UNKNOWN]"), "{broken:?}");
        assert_eq!(texts(&d.holds), ["in-use"], "{broken:?}");
        assert!(d.not_assignable.contains(&NotAssignable::Mounted));
    }
}

#[test]
fn without_reading_no_disk_is_blank() {
    let t = many();
    let options = hwprobe::Options { read_ends: false, ..hwprobe::Options::default() };
    let i = hwprobe::probe(&hwprobe::Roots::under(t.path()).unwrap(), &options);
    assert_eq!(texts(&disk(&i, "sdc").holds), ["unreadable"]);
    assert!(i.disks.iter().all(|d| !d.holds.is_empty()));
}

#[test]
fn a_kernel_guess_of_partitions_on_a_signed_disk_is_not_trusted() {
    let t = Tree::bare();
    t.disk("sda", "8:0", 2048 * 8).part("sda", "sda1", "8:1", 1, 2048, 2048);
    t.udev("8:0", &["ID_FS_TYPE=ceph_bluestore"]).udev("8:1", &["ID_PART_TABLE_TYPE=atari"]);
    let i = t.probe();
    assert!(disk(&i, "sda").partitions.is_empty());
    assert_eq!(texts(&disk(&i, "sda").holds), ["ceph_bluestore"]);
    assert!(i.warnings.iter().any(|w| w.code == Code::PhantomPartitions));
}

#[test]
fn two_signatures_at_one_place_both_hold() {
    let t = Tree::bare();
    t.disk("sda", "8:0", 2048 * 8)
        .udev("8:0", &["ID_FS_AMBIVALENT=filesystem:ext4:1.0 filesystem:zfs_member:8"]);
    let i = t.probe();
    assert_eq!(texts(&disk(&i, "sda").holds), ["ext4", "zfs_member"]);
    assert!(i.warnings.iter().any(|w| w.code == Code::Ambivalent));
}

#[test]
fn a_live_medium_behind_a_loop_device_is_mounted() {
    let t = Tree::bare();
    t.disk("sda", "8:0", 2048 * 8).udev("8:0", &["ID_FS_TYPE=iso9660"]);
    t.put("sys/block/loop0/dev", "7:0\n").put("sys/block/loop0/size", "8\n").dir("sys/block/loop0/holders");
    t.put("sys/block/loop0/loop/backing_file", "/run/live/fs.squashfs\n");
    t.mounts(&["8:0 /run/live iso9660 /dev/sda", "7:0 /run/rootfs squashfs /dev/loop0"]);
    let i = t.probe();
    assert_eq!(texts(&disk(&i, "sda").mounts), ["/run/live", "/run/rootfs"]);
    assert_eq!(i.disks.len(), 1);
}

#[test]
fn a_fuse_file_system_with_an_anonymous_number_mounts_the_disk_it_names() {
    let t = Tree::bare();
    t.disk("sda", "8:0", 2048 * 8).udev("8:0", &["ID_FS_TYPE=exfat"]);
    t.disk("sdb", "8:16", 2048 * 8).udev("8:16", &["ID_FS_TYPE=exfat"]);
    t.mounts(&["0:60 /mnt fuse.exfat /dev/sda", "0:61 /far fuse.sshfs host:/dev/sdb"]);
    let i = t.probe();
    assert_eq!(texts(&disk(&i, "sda").mounts), ["/mnt"]);
    assert!(disk(&i, "sdb").mounts.is_empty());
}

#[test]
fn a_mount_on_a_device_that_nobody_lists_makes_every_disk_look_mounted() {
    let t = Tree::bare();
    t.disk("sda", "8:0", 2048 * 8).udev("8:0", &["ID_FS_TYPE=ext4"]);
    t.mounts(&["8:33 /lost ext4 /dev/sdc1"]);
    let i = t.probe();
    assert_eq!(texts(&disk(&i, "sda").mounts), ["[UNKNOWN]"]);
    assert!(i.warnings.iter().any(|w| w.detail.as_deref().is_some_and(|d| d.contains("/lost"))));
    // Another number, and the source says which device it is.
    t.mounts(&["8:33 /found ext4 /dev/sda"]);
    assert_eq!(texts(&disk(&t.probe(), "sda").mounts), ["/found"]);
}

#[test]
fn a_swap_file_is_on_the_disk_of_its_file_system() {
    let t = Tree::bare();
    t.disk("sda", "8:0", 2048 * 8).udev("8:0", &["ID_FS_TYPE=ext4"]);
    t.mounts(&["8:0 /a\\040b ext4 /dev/sda"]);
    t.put("proc/swaps", "Filename Type Size Used Priority\n/a\\040b/swap file 1 0 -2\n");
    assert_eq!(texts(&disk(&t.probe(), "sda").mounts), ["/a b", "[SWAP]"]);
}

#[test]
fn a_deleted_swap_file_is_still_swapped_on() {
    let t = Tree::bare();
    t.disk("sda", "8:0", 2048 * 8).udev("8:0", &["ID_FS_TYPE=swap"]).mounts(&[]);
    t.put("proc/swaps", "Filename Type Size Used Priority\n/dev/sda\\040(deleted) partition 1 0 -2\n");
    assert_eq!(texts(&disk(&t.probe(), "sda").mounts), ["[SWAP]"]);
}

#[test]
fn external_logs_and_the_layers_of_an_overlay_are_mounted_too() {
    let t = Tree::bare();
    for (sd, dev) in [("sda", "8:0"), ("sdb", "8:16"), ("sdc", "8:32"), ("sdd", "8:48")] {
        t.disk(sd, dev, 2048 * 8).udev(dev, &["ID_FS_TYPE=xfs"]);
    }
    let line = |dev: &str, at: &str, fs: &str, source: &str, options: &str| {
        format!("2 1 {dev} / {at} rw - {fs} {source} {options}\n")
    };
    t.put(
        "proc/1/mountinfo",
        line("0:1", "/", "rootfs", "rootfs", "rw")
            + &line("8:0", "/xfs", "xfs", "/dev/sda", "rw,logdev=/dev/sdb")
            + &line("8:32", "/low", "xfs", "/dev/sdc", "rw")
            + &line(
                "0:70",
                "/merged",
                "overlay",
                "overlay",
                "rw,lowerdir=/low/a,upperdir=/tmp/u,workdir=/tmp/w",
            ),
    );
    let i = t.probe();
    assert_eq!(texts(&disk(&i, "sdb").mounts), ["/xfs"]);
    assert_eq!(texts(&disk(&i, "sdc").mounts), ["/low", "/merged"]);
    assert!(disk(&i, "sdd").mounts.is_empty());
}

#[test]
fn a_pool_without_a_device_that_is_known_makes_every_disk_look_mounted() {
    for fs in ["bcachefs", "btrfs", "zfs"] {
        let t = Tree::bare();
        t.disk("sda", "8:0", 2048 * 8).udev("8:0", &["ID_FS_TYPE=ext4"]);
        t.mounts(&[&format!("0:50 /pool {fs} nobody-knows")]);
        assert_eq!(texts(&disk(&t.probe(), "sda").mounts), ["[UNKNOWN]"], "{fs}");
    }
}

#[test]
fn a_swap_device_that_is_not_known_makes_every_disk_look_mounted() {
    let t = many();
    t.put("proc/swaps", "Filename Type Size Used Priority\n/dev/strange partition 1 0 -2\n");
    assert!(t.probe().disks.iter().all(|d| texts(&d.mounts).contains(&"[UNKNOWN]")));
}

#[test]
fn every_member_of_a_pool_is_mounted() {
    let t = Tree::bare();
    for (sd, dev, pool) in [("sda", "8:0", "tank"), ("sdb", "8:16", "tank"), ("sdc", "8:32", "other")] {
        t.disk(sd, dev, 2048 * 8).udev(dev, &["ID_FS_TYPE=zfs_member", &format!("ID_FS_LABEL={pool}")]);
    }
    t.mounts(&["0:50 /tank zfs tank/data"]);
    let i = t.probe();
    assert_eq!(texts(&disk(&i, "sdb").mounts), ["/tank"]);
    assert!(disk(&i, "sdc").mounts.is_empty());
    // A pool that nobody has: then it is on every member there is.
    t.mounts(&["0:50 /tank zfs lost/data"]);
    let i = t.probe();
    assert!(i.disks.iter().all(|d| texts(&d.mounts) == ["/tank"]));
}

#[test]
fn what_is_no_disk_is_not_listed() {
    let t = Tree::bare();
    t.put("proc/devices", "Block devices:\n  7 loop\n  8 sd\n 11 sr\n253 zram\n");
    t.disk("sda", "8:0", 2048 * 8)
        .disk("sr0", "11:0", 2048 * 8)
        .disk("sdb", "8:16", 0)
        .disk("zram0", "253:0", 2048);
    t.disk("sdc", "8:32", 2048 * 8).put("sys/block/sdc/device/type", "5\n");
    t.disk("nvme0c0n1", "259:1", 2048).put("sys/block/nvme0c0n1/hidden", "1\n");
    t.disk("mmcblk0boot0", "179:8", 2048).disk("mmcblk0", "179:0", 2048);
    let i = t.probe();
    let names: Vec<&str> = i.disks.iter().map(|d| d.name.as_str()).collect();
    assert_eq!(names, ["mmcblk0", "sda"]);
    let no_medium = i.warnings.iter().find(|w| w.code == Code::NoMedium).unwrap();
    assert!(no_medium.detail.as_deref().unwrap().ends_with("sdb"));
}

#[test]
fn the_size_is_in_512_bytes_whatever_the_block_size() {
    let t = Tree::bare();
    t.disk("sda", "8:0", 15_628_053_168).put("sys/block/sda/queue/logical_block_size", "4096\n");
    let d = &t.probe().disks[0];
    assert_eq!((d.size_bytes, d.logical_block_size), (8_001_563_222_016, Some(4096)));
}

#[test]
fn a_host_managed_disk_cannot_be_assigned() {
    for (file, text) in [("device/type", "20\n"), ("queue/zoned", "host-managed\n")] {
        let t = Tree::bare();
        t.disk("sda", "8:0", 2048 * 8).put(&format!("sys/block/sda/{file}"), text);
        assert!(t.probe().disks[0].not_assignable.contains(&NotAssignable::HostManagedZoned), "{file}");
    }
}

#[test]
fn a_write_protected_disk_cannot_be_assigned() {
    let t = Tree::bare();
    t.disk("sda", "8:0", 2048 * 8).put("sys/block/sda/ro", "1\n");
    let d = &t.probe().disks[0];
    assert!(d.read_only && d.not_assignable.contains(&NotAssignable::ReadOnly));
}

#[test]
fn a_device_without_a_number_makes_its_disk_look_mounted() {
    for broken in ["sys/block/sda", "sys/block/sda/sda1"] {
        let t = Tree::bare();
        t.disk("sda", "8:0", 2048 * 8).part("sda", "sda1", "8:1", 1, 2048, 2048);
        t.udev("8:0", &["ID_PART_TABLE_TYPE=gpt"]).mounts(&["8:1 /x ext4 /dev/sda1"]);
        t.put(&format!("{broken}/dev"), "").put(&format!("{broken}/uevent"), "DEVTYPE=partition\n");
        if broken == "sys/block/sda" {
            t.put(&format!("{broken}/uevent"), "DEVTYPE=disk\n");
        }
        let i = t.probe();
        assert!(texts(&disk(&i, "sda").mounts).contains(&"[UNKNOWN]"), "{broken}");
    }
}

#[test]
fn one_broken_source_of_a_number_changes_nothing() {
    for file in ["dev", "uevent"] {
        let t = many();
        t.put(&format!("sys/block/dm-0/{file}"), "");
        t.put(&format!("sys/block/sda/sda1/{file}"), "");
        assert_eq!(texts(&disk(&t.probe(), "sda").mounts), ["/", "/boot/efi"], "{file}");
    }
}
