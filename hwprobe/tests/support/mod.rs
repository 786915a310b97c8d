//! A machine made of files, in the layout that `Roots::under` reads.
#![allow(dead_code, clippy::unwrap_used, clippy::disallowed_methods, missing_docs, unreachable_pub)]

pub mod images;
pub mod rack;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use hwprobe::{Disk, Inventory, Options, Roots, probe};

pub const MIB: usize = 1024 * 1024;
/// Bytes at each end that are looked at.
pub const END: usize = 4 * MIB;

/// A tree in a temporary directory.
pub struct Tree(tempfile::TempDir);

impl Tree {
    /// A machine without disks: a mount table with a root on a device that is not there, no swap, no interfaces.
    pub fn bare() -> Self {
        let tree = Self(Self::room());
        tree.put("proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n");
        tree.mounts(&[]);
        fs::create_dir_all(tree.0.path().join("sys/block")).unwrap();
        fs::create_dir_all(tree.0.path().join("sys/class/net")).unwrap();
        tree
    }

    /// A directory for hundreds of small files: in memory where that is possible.
    pub fn room() -> tempfile::TempDir {
        let memory = Path::new("/dev/shm");
        let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        dir.unwrap()
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn put(&self, path: &str, text: impl AsRef<[u8]>) -> &Self {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    pub fn link(&self, path: &str, target: &str) -> &Self {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
        self
    }

    pub fn dir(&self, path: &str) -> &Self {
        fs::create_dir_all(self.0.path().join(path)).unwrap();
        self
    }

    /// The mount table: lines of `major:minor point fstype source`.
    pub fn mounts(&self, lines: &[&str]) -> &Self {
        let mut text = String::from("1 0 0:1 / / rw - rootfs rootfs rw\n");
        for line in lines {
            let f: Vec<&str> = line.split(' ').collect();
            text += &format!("2 1 {} / {} rw shared:1 - {} {} rw\n", f[0], f[1], f[2], f[3]);
        }
        self.put("proc/1/mountinfo", text)
    }

    /// A SCSI disk under a PCI host; `sd` is its name, `dev` its number.
    pub fn disk(&self, sd: &str, dev: &str, sectors: u64) -> &Self {
        self.device(
            &format!("pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0/block/{sd}"),
            sd,
            dev,
            sectors,
        );
        let dir = format!("sys/block/{sd}");
        self.dir(&format!("{dir}/device")).put(&format!("{dir}/device/type"), "0\n");
        self.put(&format!("{dir}/queue/logical_block_size"), "512\n")
            .put(&format!("{dir}/queue/physical_block_size"), "4096\n")
            .put(&format!("{dir}/queue/rotational"), "0\n")
            .put(&format!("{dir}/ro"), "0\n")
            .put(&format!("{dir}/removable"), "0\n")
    }

    /// A device-mapper device.
    pub fn dm(&self, name: &str, dev: &str, label: &str, uuid: &str) -> &Self {
        self.device(&format!("virtual/block/{name}"), name, dev, 2048);
        self.put(&format!("sys/block/{name}/dm/name"), format!("{label}\n"))
            .put(&format!("sys/block/{name}/dm/uuid"), format!("{uuid}\n"))
    }

    fn device(&self, path: &str, name: &str, dev: &str, sectors: u64) {
        let (major, minor) = dev.split_once(':').unwrap();
        self.dir(&format!("sys/devices/{path}"))
            .link(&format!("sys/block/{name}"), &format!("../devices/{path}"));
        let dir = format!("sys/block/{name}");
        self.put(&format!("{dir}/dev"), format!("{dev}\n"))
            .put(&format!("{dir}/size"), format!("{sectors}\n"))
            .put(
                &format!("{dir}/uevent"),
                format!("MAJOR={major}\nMINOR={minor}\nDEVNAME={name}\nDEVTYPE=disk\n"),
            )
            .dir(&format!("{dir}/holders"))
            .dir(&format!("{dir}/slaves"));
    }

    pub fn part(&self, disk: &str, name: &str, dev: &str, number: u32, start: u64, sectors: u64) -> &Self {
        let (major, minor) = dev.split_once(':').unwrap();
        let dir = format!("sys/block/{disk}/{name}");
        self.put(&format!("{dir}/dev"), format!("{dev}\n"))
            .put(&format!("{dir}/partition"), format!("{number}\n"))
            .put(&format!("{dir}/start"), format!("{start}\n"))
            .put(&format!("{dir}/size"), format!("{sectors}\n"))
            .put(
                &format!("{dir}/uevent"),
                format!("MAJOR={major}\nMINOR={minor}\nDEVNAME={name}\nDEVTYPE=partition\nPARTN={number}\n"),
            )
            .dir(&format!("{dir}/holders"))
    }

    /// `above` stands on `below`; `below` is a path under `sys/block`.
    pub fn stack(&self, below: &str, above: &str) -> &Self {
        let name = below.rsplit('/').next().unwrap();
        self.link(&format!("sys/block/{below}/holders/{above}"), &format!("../../{above}"));
        self.link(&format!("sys/block/{above}/slaves/{name}"), &format!("../../{name}"))
    }

    /// A finished udev record.
    pub fn udev(&self, dev: &str, lines: &[&str]) -> &Self {
        let mut text = String::from("I:1000\n");
        for line in lines {
            let tag = if line.starts_with("disk/") { "S" } else { "E" };
            text += &format!("{tag}:{line}\n");
        }
        self.put(&format!("run/udev/data/b{dev}"), text)
    }

    /// The ends of a disk whose contents are `bytes`.
    pub fn ends(&self, disk: &str, bytes: &[u8]) -> &Self {
        let n = bytes.len().min(END);
        self.put(&format!("capture/ends/{disk}.head"), &bytes[..n])
            .put(&format!("capture/ends/{disk}.tail"), &bytes[bytes.len() - n..])
    }

    pub fn probe(&self) -> Inventory {
        probe(&Roots::under(self.path()).unwrap(), &Options::default())
    }
}

pub fn disk<'a>(inventory: &'a Inventory, name: &str) -> &'a Disk {
    inventory.disks.iter().find(|d| d.name == name).unwrap_or_else(|| panic!("no disk {name}"))
}

pub fn texts<const N: usize>(list: &[hwprobe::Text<N>]) -> Vec<&str> {
    list.iter().map(|t| t.as_str()).collect()
}

/// Every file and link below `dir`.
pub fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut work = vec![dir.to_owned()];
    while let Some(dir) = work.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                work.push(entry.path());
            } else {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    found
}

/// A machine with one disk of every kind: system disk with LVM on md, data disk, blank disk, disk with unknown data,
/// swap, plain crypt without a signature, btrfs over two disks.
pub fn many() -> Tree {
    let t = Tree::bare();
    t.put(
        "proc/devices",
        "Character devices:\n  1 mem\n\nBlock devices:\n  7 loop\n  8 sd\n  9 md\n253 device-mapper\n",
    );
    // The system: ESP, and / on LVM on half a mirror.
    t.disk("sda", "8:0", 4096 * 2048)
        .part("sda", "sda1", "8:1", 1, 2048, 2048)
        .part("sda", "sda2", "8:2", 2, 4096, 204_800);
    t.dm("dm-0", "253:0", "vg0-root", "LVM-x");
    t.md("md127", "9:127", "raid1").stack("sda/sda2", "md127").stack("md127", "dm-0");
    t.udev(
        "8:0",
        &["ID_PART_TABLE_TYPE=gpt", "ID_WWN=0x5000c500a1b2c3d1", "disk/by-id/wwn-0x5000c500a1b2c3d1"],
    )
    .udev("8:1", &["ID_FS_TYPE=vfat", "ID_PART_TABLE_TYPE=gpt"])
    .udev("8:2", &["ID_FS_TYPE=linux_raid_member", "ID_PART_TABLE_TYPE=gpt"])
    .udev("9:127", &["ID_FS_TYPE=LVM2_member", "MD_DEVNAME=os"])
    .udev("253:0", &["ID_FS_TYPE=ext4"]);
    // Data, not mounted.
    t.disk("sdb", "8:16", 2048 * 64)
        .udev("8:16", &["ID_FS_TYPE=ceph_bluestore", "ID_WWN=0x5000c500a1b2c3d2"]);
    // Blank.
    t.disk("sdc", "8:32", 8)
        .udev("8:32", &["ID_WWN=0x5000c500a1b2c3d3", "disk/by-id/wwn-0x5000c500a1b2c3d3"])
        .ends("sdc", &[0; 4096]);
    // Something in the last sector that udev does not know.
    let mut bytes = [0; 4096];
    bytes[4095] = 1;
    t.disk("sdd", "8:48", 8).udev("8:48", &["ID_WWN=0x5000c500a1b2c3d4"]).ends("sdd", &bytes);
    // Swap on a partition, as udev does not see it.
    t.disk("sde", "8:64", 2048 * 64).part("sde", "sde1", "8:65", 1, 2048, 2048).udev("8:64", &["ID_MODEL=x"]);
    t.put("proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n/dev/sde1 partition 1024 0 -2\n");
    // Plain dm-crypt over zeros.
    t.disk("sdf", "8:80", 8).udev("8:80", &["ID_MODEL=x"]).ends("sdf", &[0; 4096]);
    t.dm("dm-1", "253:1", "plain", "CRYPT-PLAIN-plain")
        .stack("sdf", "dm-1")
        .udev("253:1", &["DM_NAME=plain"]);
    // btrfs over two whole disks, mounted by the first.
    for (sd, dev) in [("sdg", "8:96"), ("sdh", "8:112")] {
        t.disk(sd, dev, 2048 * 64).udev(dev, &["ID_FS_TYPE=btrfs", "ID_FS_UUID=u-1"]);
        t.link(&format!("sys/fs/btrfs/u-1/devices/{sd}"), &format!("../../../../block/{sd}"));
    }
    t.mounts(&[
        "253:0 / ext4 /dev/mapper/vg0-root",
        "8:1 /boot/efi vfat /dev/sda1",
        "0:44 /data btrfs /dev/sdg",
    ]);
    t
}

impl Tree {
    pub fn md(&self, name: &str, dev: &str, level: &str) -> &Self {
        self.device(&format!("virtual/block/{name}"), name, dev, 2048);
        self.put(&format!("sys/block/{name}/md/level"), format!("{level}\n"))
            .put(&format!("sys/block/{name}/md/metadata_version"), "1.2\n")
    }
}

/// The captures that lie beside the repository, if they do.
pub fn hwdata() -> Option<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/hwdata");
    if dir.is_dir() {
        return Some(dir);
    }
    println!("skipped: ../shared/hwdata not found");
    None
}
