//! A captured tree gives the same answers as what it was captured from.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

mod support;

use std::path::Path;

use hwprobe::{Capture, Inventory, Node, Options, Roots, capture, probe};
use proptest::prelude::*;
use support::{Tree, files, hwdata, many, texts};

/// Writes a capture, as the program does.
fn write(captured: &Capture) -> tempfile::TempDir {
    let dir = Tree::room();
    for (path, node) in &captured.tree {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        match node {
            Node::Dir => std::fs::create_dir_all(&path).unwrap(),
            Node::File(bytes) => std::fs::write(&path, bytes).unwrap(),
            Node::Link(target) => std::os::unix::fs::symlink(target, &path).unwrap(),
        }
    }
    dir
}

fn probe_dir(dir: &Path) -> Inventory {
    probe(&Roots::under(dir).unwrap(), &Options::default())
}

/// The tree as its copy is to be judged: without the ends of the disks, which no copy has.
fn without_ends(tree: &Tree) -> Inventory {
    let _ = std::fs::remove_dir_all(tree.path().join("capture/ends"));
    tree.probe()
}

#[test]
fn a_copy_gives_the_same_inventory_and_a_copy_of_the_copy_too() {
    let tree = many();
    let captured = capture(&Roots::under(tree.path()).unwrap(), false);
    let copy = write(&captured);
    let want = without_ends(&tree);
    assert_eq!(probe_dir(copy.path()), want);
    assert_eq!(captured.digest, Some(want.digest()));
    let again = capture(&Roots::under(copy.path()).unwrap(), false);
    assert_eq!(again.digest, captured.digest);
    assert_eq!(probe_dir(write(&again).path()), want);
}

#[test]
fn no_contents_of_a_disk_are_in_a_copy() {
    let tree = many();
    assert!(tree.path().join("capture/ends").exists());
    let captured = capture(&Roots::under(tree.path()).unwrap(), false);
    assert!(captured.tree.keys().all(|path| !path.starts_with("capture/ends")));
}

#[test]
fn the_install_record_is_copied_with_our_two_keys_alone() {
    let tree = many();
    tree.put("etc/stratum/install.yaml", "osDiskLayout: compute-tail\ninstallId: a-1\npassword: hunter2\n");
    let captured = capture(&Roots::under(tree.path()).unwrap(), false);
    let record = &captured.tree["etc/stratum/install.yaml"];
    assert_eq!(*record, Node::File(b"osDiskLayout: compute-tail\ninstallId: 'a-1'\n".to_vec()));
    assert_eq!(Some(probe_dir(write(&captured).path()).digest()), captured.digest);
}

#[test]
fn a_redacted_copy_has_no_serial_and_says_the_same_otherwise() {
    let tree = many();
    let serial = "ZA1ABCDE";
    tree.put("proc/sys/kernel/hostname", "rack7node3\n")
        .put("sys/class/dmi/id/product_serial", "SN0002-77\n");
    tree.udev(
        "8:16",
        &[
            "ID_SERIAL_SHORT=ZA1ABCDE",
            "ID_FS_TYPE=ceph_bluestore",
            "ID_WWN=0x5000c500a1b2c3d2",
            "disk/by-id/wwn-0x5000c500a1b2c3d2",
            "disk/by-id/ata-ST8000_ZA1ABCDE",
        ],
    );
    tree.link("sys/class/net/enx02fc123456ab", "../../devices/pci0000:00/0000:03:00.0/net/enx02fc123456ab");
    tree.put("sys/devices/pci0000:00/0000:03:00.0/net/enx02fc123456ab/address", "02:fc:12:34:56:ab\n");
    tree.dir("sys/devices/pci0000:00/0000:03:00.0/net/enx02fc123456ab/device");
    let original = without_ends(&tree);
    assert_eq!(original.nics.len(), 1);
    let captured = capture(&Roots::under(tree.path()).unwrap(), true);
    assert_eq!(captured.digest, None);
    for (path, node) in &captured.tree {
        let text = format!(
            "{path} {}",
            match node {
                Node::Dir => String::new(),
                Node::File(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                Node::Link(target) => target.clone(),
            }
        );
        for secret in [serial, "5000c500a1b2c3d2", "02:fc:12", "02fc123456ab", "rack7node3", "SN0002-77"] {
            assert!(!text.contains(secret), "{secret} in {path}");
        }
    }
    let copy = probe_dir(write(&captured).path());
    let disk = |i: &Inventory| i.disks.iter().find(|d| d.name == "sdb").unwrap().clone();
    let (old, new) = (disk(&original), disk(&copy));
    assert_eq!(
        (old.keys.len(), old.by_id.len(), old.holds),
        (new.keys.len(), new.by_id.len(), new.holds.clone())
    );
    let (serial, wwn) = (new.serial.unwrap(), new.wwn.unwrap());
    assert_eq!((serial.len(), wwn.len()), (8, 18));
    // The links follow their values.
    assert!(texts(&new.by_id).contains(&format!("/dev/disk/by-id/wwn-{}", &*wwn).as_str()));
    assert!(texts(&new.by_id).contains(&format!("/dev/disk/by-id/ata-ST8000_{}", &*serial).as_str()));
    assert_eq!(copy.nics[0].name.len(), original.nics[0].name.len());
    for (old, new) in original.disks.iter().zip(&copy.disks) {
        assert_eq!(
            (&old.mounts, &old.holds, &old.not_assignable),
            (&new.mounts, &new.holds, &new.not_assignable)
        );
    }
}

#[test]
fn public_captures_are_copied_without_a_difference() {
    let Some(data) = hwdata() else { return };
    let dir = Tree::room();
    for archive in ["util-linux/lsblk-dumps/simple-lvm.tar.xz", "hwloc/2pa-pcidomain32bits.tar.bz2"] {
        let done = std::process::Command::new("tar")
            .arg("-xf")
            .arg(data.join(archive))
            .arg("-C")
            .arg(dir.path())
            .status();
        if !done.is_ok_and(|s| s.success()) {
            println!("skipped: {archive} cannot be unpacked here");
            return;
        }
    }
    for root in ["simple-lvm", "2pa-pcidomain32bits"] {
        let captured = capture(&Roots::under(&dir.path().join(root)).unwrap(), false);
        assert_eq!(probe_dir(write(&captured).path()), probe_dir(&dir.path().join(root)), "{root}");
    }
}

#[test]
fn this_machine_is_copied_without_a_difference() {
    let captured = capture(&Roots::live().unwrap(), false);
    let copy = probe_dir(write(&captured).path());
    assert_eq!(Some(copy.digest()), captured.digest, "{}", serde_json::to_string_pretty(&copy).unwrap());
}

#[test]
fn a_tree_without_any_one_of_its_files_is_copied_as_it_is() {
    let tree = many();
    let _ = std::fs::remove_dir_all(tree.path().join("capture/ends"));
    for path in files(tree.path()) {
        let (link, bytes) = (std::fs::read_link(&path), std::fs::read(&path).unwrap_or_default());
        std::fs::remove_file(&path).unwrap();
        let copy = write(&capture(&Roots::under(tree.path()).unwrap(), false));
        let (want, have) = (tree.probe(), probe_dir(copy.path()));
        assert_eq!(want, have, "without {}", path.display());
        match link {
            Ok(target) => std::os::unix::fs::symlink(target, &path).unwrap(),
            Err(_) => std::fs::write(&path, bytes).unwrap(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever of it is missing, empty or unreadable: reasons are copied too.
    #[test]
    fn a_broken_tree_is_copied_as_it_is(picks in proptest::collection::vec((any::<prop::sample::Index>(), 0..4u8), 1..12)) {
        let tree = many();
        let all = files(tree.path());
        for (pick, how) in picks {
            let path = &all[pick.index(all.len())];
            if std::fs::symlink_metadata(path).is_err() || std::fs::remove_file(path).is_err() {
                continue;
            }
            match how {
                0 => {}
                1 => std::fs::write(path, b"").unwrap(),
                2 => std::fs::create_dir(path).unwrap(),
                _ => std::fs::write(path, b"\xff\x00garbage\n").unwrap(),
            }
        }
        let captured = capture(&Roots::under(tree.path()).unwrap(), false);
        let want = without_ends(&tree);
        prop_assert_eq!(Some(want.digest()), captured.digest);
        prop_assert_eq!(probe_dir(write(&captured).path()), want);
    }
}
