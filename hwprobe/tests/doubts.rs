//! Disks that cannot be read, and what is named once or not at all: no doubt comes out as blank.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

mod support;

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use hwprobe::{Code, Ends, Inventory, Look, Missing, Options, ReadFailure, Roots, Sources, Target};
use support::{MIB, Tree, disk, texts};

/// What each of three disks does when it is read: answers, fails, never answers.
struct Troubled(Mutex<mpsc::Receiver<()>>);

impl Ends for Troubled {
    fn look(&self, target: &Target) -> Result<Look, ReadFailure> {
        match target.node.as_str() {
            "sdb" => return Err(ReadFailure { missing: Missing::IoError, what: "EIO".to_owned() }),
            "sdc" => drop(self.0.lock().unwrap().recv()),
            _ => {}
        }
        Ok(Look { all_zero: true, digest: [0; 32] })
    }
}

#[test]
fn a_disk_that_fails_or_hangs_is_unreadable_with_its_reason_and_its_neighbour_is_blank() {
    let t = Tree::bare();
    for (sd, dev) in [("sda", "8:0"), ("sdb", "8:16"), ("sdc", "8:32")] {
        t.disk(sd, dev, 2048 * 8).udev(dev, &["ID_MODEL=x"]);
    }
    let (_keep, never) = mpsc::channel();
    let roots = Roots::under(t.path()).unwrap();
    let mut sources = Sources::of(&roots);
    sources.ends = Arc::new(Troubled(Mutex::new(never)));
    let options = Options { read_deadline: Duration::from_secs(1), ..Options::default() };
    let machine = hwprobe::probe_machine_with(&roots, &sources, &options);
    let i = Inventory::assemble(machine, hwprobe::probe_network(&roots, &options));
    assert!(disk(&i, "sda").holds.is_empty());
    for (sd, word, timeout) in [("sdb", "EIO", false), ("sdc", "did not answer in time", true)] {
        assert_eq!(texts(&disk(&i, sd).holds), ["unreadable"]);
        let of = |code: Code| i.warnings.iter().find(|w| w.code == code && w.at == format!("disks/{sd}"));
        let detail = of(Code::Unreadable).and_then(|w| w.detail.clone()).unwrap();
        assert!(detail.contains(word), "{detail}");
        assert_eq!(of(Code::Timeout).is_some(), timeout);
    }
}

#[test]
fn a_label_at_the_end_of_the_last_partition_is_named_once() {
    let t = Tree::bare();
    t.disk("sda", "8:0", 2048 * 64)
        .part("sda", "sda1", "8:1", 1, 2048, 2048)
        .part("sda", "sda2", "8:2", 2, 4096, 2048);
    // The end of the last partition is the end of the disk too: udev tells of the label twice.
    t.udev("8:0", &["ID_PART_TABLE_TYPE=gpt", "ID_FS_TYPE=zfs_member"])
        .udev("8:1", &["ID_FS_TYPE=vfat"])
        .udev("8:2", &["ID_FS_TYPE=zfs_member"]);
    let i = t.probe();
    assert_eq!(texts(&disk(&i, "sda").holds), ["gpt", "vfat", "zfs_member"]);
    assert_eq!(disk(&i, "sda").partitions.len(), 2, "there is a table: they are no phantoms");
}

#[test]
fn members_of_what_is_not_assembled_hold_their_disk() {
    for member in [
        "LVM2_member",
        "linux_raid_member",
        "isw_raid_member",
        "ddf_raid_member",
        "crypto_LUKS",
        "bcache",
        "drbd",
    ] {
        let t = Tree::bare();
        t.disk("sda", "8:0", 2048 * 8).udev("8:0", &[&format!("ID_FS_TYPE={member}")]);
        t.ends("sda", &vec![0; 8 * MIB]);
        let i = t.probe();
        assert_eq!(texts(&disk(&i, "sda").holds), [member]);
        assert!(disk(&i, "sda").stack.is_empty());
    }
}

#[test]
fn a_disk_that_udev_does_not_know_is_judged_by_its_ends_and_that_is_told() {
    for (byte, holds) in [(0, vec![]), (1, vec!["unknown-data"])] {
        let t = Tree::bare();
        t.disk("sda", "8:0", 2048 * 8).ends("sda", &vec![byte; 8 * MIB]);
        let i = t.probe();
        assert_eq!(texts(&disk(&i, "sda").holds), holds);
        assert!(i.warnings.iter().any(|w| w.code == Code::UdevIncomplete && w.at == "disks/sda"));
    }
}
