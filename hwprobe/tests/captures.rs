//! Public captures of real machines, where they lie beside the repository.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

mod support;

use std::path::Path;
use std::process::Command;

use hwprobe::{Inventory, Options, Roots, probe};
use support::{Tree, hwdata, texts};

/// Unpacks an archive into a directory of its own; `None` (and a word) when there is no `tar`.
fn unpack(archive: &Path) -> Option<tempfile::TempDir> {
    let dir = tempfile::tempdir().unwrap();
    let done = Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(dir.path()).status();
    if done.is_ok_and(|s| s.success()) {
        return Some(dir);
    }
    println!("skipped: {} cannot be unpacked here", archive.display());
    None
}

fn probe_dir(dir: &Path) -> Inventory {
    probe(&Roots::under(dir).unwrap(), &Options::default())
}

#[test]
fn lsblk_dumps_list_the_disks_and_their_mounts() {
    let Some(data) = hwdata() else { return };
    for name in ["simple-lvm", "simple-nvme"] {
        let Some(dir) = unpack(&data.join(format!("util-linux/lsblk-dumps/{name}.tar.xz"))) else { return };
        let i = probe_dir(&dir.path().join(name));
        let disks: Vec<_> = i.disks.iter().map(|d| (d.name.as_str(), texts(&d.mounts))).collect();
        let want = [
            ("nvme0n1", vec!["/home", "/home/test"]),
            ("sda", vec!["/", "/boot", "/boot/efi"]),
            ("sdb", vec!["/home/archive"]),
        ];
        assert_eq!(disks, want, "{name}");
        assert_eq!(i.disks[0].serial.as_deref(), Some("50026B728203601D"));
        assert_eq!(i.disks[1].wwn, None);
        assert!(i.disks.iter().all(|d| !d.holds.is_empty()));
    }
}

#[test]
fn captured_machines_list_their_disks_and_nothing_more() {
    let Some(data) = hwdata() else { return };
    let machines: [(&str, &str, &[&str]); 8] = [
        ("ghw-snapshots/linux-amd64-415ee03b8c4d1c4f07ae2e9d8b3d3d6d.tar.gz", "", &["nvme0n1"]),
        ("ghw-snapshots/linux-amd64-8581cf3a529e5d8b97ea876eade2f60d.tar.gz", "", &["sda"]),
        ("ghw-snapshots/linux-amd64-accel.tar.gz", "", &["vda"]),
        ("ghw-snapshots/linux-amd64-accel-nvidia.tar.gz", "", &["sda"]),
        ("ghw-snapshots/linux-arm64-c288e0776090cd558ef793b2a4e61939.tar.gz", "", &["nvme0n1"]),
        ("hwloc/2pa-pcidomain32bits.tar.bz2", "2pa-pcidomain32bits", &["vda"]),
        ("hwloc/40intel64-2g2n4c+pcilocality.tar.bz2", "40intel64-2g2n4c+pci", &["sda"]),
        ("prometheus-procfs/fixtures-unpacked.tar.xz", "fixtures", &["sda"]),
    ];
    for (archive, root, want) in machines {
        let Some(dir) = unpack(&data.join(archive)) else { return };
        let i = probe_dir(&dir.path().join(root));
        let names: Vec<&str> = i.disks.iter().map(|d| d.name.as_str()).collect();
        assert_eq!(names, want, "{archive}");
        // None of them was captured with its mount table and udev: nothing may look free.
        assert!(i.disks.iter().all(|d| !d.holds.is_empty()), "{archive}");
    }
}

#[test]
fn no_signature_image_is_ever_blank() {
    let Some(data) = hwdata() else { return };
    let mut seen = 0;
    for dir in ["util-linux/blkid/images/images-fs", "util-linux/blkid/images/images-pt", "derived"] {
        let Ok(entries) = std::fs::read_dir(data.join(dir)) else { continue };
        for path in entries.map(|e| e.unwrap().path()).filter(|p| p.extension().is_some_and(|e| e == "xz")) {
            let Ok(out) = Command::new("xz").args(["-dc", "--"]).arg(&path).output() else {
                println!("skipped: no xz here");
                return;
            };
            let mut bytes = out.stdout;
            bytes.resize(bytes.len().next_multiple_of(512).max(512), 0);
            let t = Tree::bare();
            t.disk("sda", "8:0", bytes.len() as u64 / 512).udev("8:0", &["ID_MODEL=x"]);
            t.ends("sda", &bytes);
            let i = t.probe();
            assert_eq!(texts(&i.disks[0].holds), ["unknown-data"], "{}", path.display());
            seen += 1;
        }
    }
    assert!(seen > 100, "only {seen} images");
}
