//! A machine of many SCSI disks, as files: `--root` of the probe and `--sysroot` of `lsblk` read the same tree. The bench of `cargo xtask`
//! uses this file too, so it has nothing but the standard library.
//!
//! Every file that the kernel shows for a disk and a partition is there, also those that only `lsblk` reads: what a program looks for and does
//! not find costs less than what it finds.
#![allow(dead_code, clippy::disallowed_methods, missing_docs, unreachable_pub)]

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

/// Sectors of a disk: 4 TB.
const DISK: u64 = 7_814_037_168;
/// Sectors of a partition: 400 GB.
const PART: u64 = 781_250_560;
/// Majors of the SCSI disk driver, 256 minors each (Documentation/admin-guide/devices.txt).
const MAJORS: [u32; 16] = [8, 65, 66, 67, 68, 69, 70, 71, 128, 129, 130, 131, 132, 133, 134, 135];

/// Attributes that are alike on all disks, in the directory of the disk.
const DISK_FILES: &[(&str, &str)] = &[
    ("alignment_offset", "0\n"),
    ("capability", "0\n"),
    ("discard_alignment", "0\n"),
    ("events", "\n"),
    ("events_async", "\n"),
    ("events_poll_msecs", "-1\n"),
    ("ext_range", "256\n"),
    ("hidden", "0\n"),
    ("inflight", "       0        0\n"),
    ("range", "16\n"),
    ("removable", "0\n"),
    ("ro", "0\n"),
    (
        "stat",
        "    1064        0    57578      291        0        0        0        0        0      312      291\n",
    ),
    ("power/control", "on\n"),
    ("power/runtime_status", "unsupported\n"),
    ("trace/enable", "0\n"),
    ("integrity/format", "none\n"),
    ("queue/add_random", "0\n"),
    ("queue/chunk_sectors", "0\n"),
    ("queue/dax", "0\n"),
    ("queue/discard_granularity", "0\n"),
    ("queue/discard_max_bytes", "0\n"),
    ("queue/discard_max_hw_bytes", "0\n"),
    ("queue/discard_zeroes_data", "0\n"),
    ("queue/fua", "1\n"),
    ("queue/hw_sector_size", "512\n"),
    ("queue/io_poll", "0\n"),
    ("queue/iostats", "1\n"),
    ("queue/logical_block_size", "512\n"),
    ("queue/max_sectors_kb", "1280\n"),
    ("queue/max_segments", "128\n"),
    ("queue/minimum_io_size", "4096\n"),
    ("queue/nomerges", "0\n"),
    ("queue/nr_requests", "256\n"),
    ("queue/nr_zones", "0\n"),
    ("queue/optimal_io_size", "0\n"),
    ("queue/physical_block_size", "4096\n"),
    ("queue/read_ahead_kb", "128\n"),
    ("queue/rotational", "1\n"),
    ("queue/rq_affinity", "1\n"),
    ("queue/scheduler", "none [mq-deadline]\n"),
    ("queue/stable_writes", "0\n"),
    ("queue/wbt_lat_usec", "75000\n"),
    ("queue/write_cache", "write back\n"),
    ("queue/write_same_max_bytes", "0\n"),
    ("queue/write_zeroes_max_bytes", "0\n"),
    ("queue/zone_append_max_bytes", "0\n"),
    ("queue/zoned", "none\n"),
];
/// The same in the directory of the SCSI device.
const DEVICE_FILES: &[(&str, &str)] = &[
    ("model", "ST4000NM0023    \n"),
    ("queue_depth", "254\n"),
    ("rev", "0004\n"),
    ("scsi_level", "7\n"),
    ("state", "running\n"),
    ("timeout", "30\n"),
    ("type", "0\n"),
    ("vendor", "SEAGATE \n"),
];
/// The same in the directory of a partition.
const PART_FILES: &[(&str, &str)] = &[
    ("alignment_offset", "0\n"),
    ("discard_alignment", "0\n"),
    ("inflight", "       0        0\n"),
    ("ro", "0\n"),
    (
        "stat",
        "      62        0     4608        8        0        0        0        0        0       12        8\n",
    ),
    ("power/control", "auto\n"),
    ("trace/enable", "0\n"),
];

/// Writes the machine below `root`: `disks` of them behind one SAS adapter, each with a GPT and `partitions` (at most 15) of ext4. The first
/// partition of the first disk is mounted at `/`. No disk looks blank, so that none is read.
///
/// # Errors
/// A file could not be written.
pub fn write(root: &Path, disks: u32, partitions: u32) -> io::Result<()> {
    let rack = Rack { root, alike: root.join("alike") };
    rack.put("proc/swaps", "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n")?;
    let mounts = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n";
    rack.put("proc/1/mountinfo", mounts)?;
    rack.put("proc/self/mountinfo", mounts)?;
    rack.put("proc/devices", "Character devices:\n  1 mem\n\nBlock devices:\n  8 sd\n 65 sd\n259 blkext\n")?;
    rack.put("etc/os-release", "ID=debian\nVERSION_ID=\"12\"\n")?;
    for dir in
        ["sys/block", "sys/bus/scsi", "sys/class/block", "sys/class/net", "sys/dev/block", "run/udev/data"]
    {
        fs::create_dir_all(root.join(dir))?;
    }
    for (list, name) in [(DISK_FILES, "disk"), (DEVICE_FILES, "device"), (PART_FILES, "part")] {
        for (file, text) in list {
            rack.put(&format!("alike/{name}/{file}"), text)?;
        }
    }
    (0..disks).try_for_each(|n| rack.disk(n, partitions))?;
    fs::remove_dir_all(&rack.alike)
}

/// Where it is written.
struct Rack<'a> {
    root: &'a Path,
    /// Files that many devices share by hard links, so that the tree fits into memory.
    alike: std::path::PathBuf,
}

// === impl Rack ===

impl Rack<'_> {
    fn put(&self, path: &str, text: &str) -> io::Result<()> {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap_or(self.root))?;
        fs::write(path, text)
    }

    /// A file beside others: its directory is there.
    fn add(&self, dir: &str, file: &str, text: &str) -> io::Result<()> {
        fs::write(self.root.join(dir).join(file), text)
    }

    /// A link out of `dir` to something else below `sys`.
    fn up_link(&self, dir: &str, name: &str, target: &str) -> io::Result<()> {
        let up = "../".repeat(dir.matches('/').count());
        symlink(format!("{up}{target}"), self.root.join(dir).join(name))
    }

    fn share(&self, dir: &str, name: &str, files: &[(&str, &str)]) -> io::Result<()> {
        let (from, to) = (self.alike.join(name), self.root.join(dir));
        for sub in ["holders", "slaves", "power", "trace", "integrity", "queue"] {
            if files.iter().any(|(file, _)| file.starts_with(sub)) {
                fs::create_dir_all(to.join(sub))?;
            }
        }
        files.iter().try_for_each(|(file, _)| fs::hard_link(from.join(file), to.join(file)))
    }

    fn disk(&self, n: u32, partitions: u32) -> io::Result<()> {
        let name = disk_name(n);
        let address = format!("0:0:{n}:0");
        let adapter = "sys/devices/pci0000:00/0000:00:03.0/0000:03:00.0/host0";
        let device = format!("{adapter}/port-0:{n}/end_device-0:{n}/target0:0:{n}/{address}");
        let dir = format!("{device}/block/{name}");
        let wwn = format!("5000c500{:08x}", 0xa000_0000_u32.wrapping_add(n.wrapping_mul(4)));
        let serial = format!("Z1Z{n:05}");
        for sub in ["holders", "slaves"] {
            fs::create_dir_all(self.root.join(&dir).join(sub))?;
        }
        self.share(&device, "device", DEVICE_FILES)?;
        self.add(&device, "wwid", &format!("naa.{wwn}\n"))?;
        self.add(&device, "vpd_pg80", &format!("\0\u{1}\0\u{8}{serial}"))?;
        self.up_link(&device, "subsystem", "bus/scsi")?;
        self.share(&dir, "disk", DISK_FILES)?;
        let number = number(n, 0);
        self.node(&dir, &name, number, "disk", DISK, &format!("DISKSEQ={}\n", n + 1))?;
        self.add(&dir, "diskseq", &format!("{}\n", n + 1))?;
        symlink(format!("../../../{address}"), self.root.join(&dir).join("device"))?;
        let target = dir.strip_prefix("sys/").unwrap_or(&dir);
        symlink(format!("../{target}"), self.root.join("sys/block").join(&name))?;
        let mut known = vec![
            "DEVTYPE=disk".to_owned(),
            "SUBSYSTEM=block".to_owned(),
            "SCSI_TPGS=0".to_owned(),
            "SCSI_TYPE=disk".to_owned(),
            "SCSI_VENDOR=SEAGATE".to_owned(),
            "SCSI_VENDOR_ENC=SEAGATE\\x20".to_owned(),
            "SCSI_MODEL=ST4000NM0023".to_owned(),
            "SCSI_MODEL_ENC=ST4000NM0023\\x20\\x20\\x20\\x20".to_owned(),
            "SCSI_REVISION=0004".to_owned(),
            "ID_SCSI=1".to_owned(),
            "ID_VENDOR=SEAGATE".to_owned(),
            "ID_VENDOR_ENC=SEAGATE\\x20".to_owned(),
            "ID_MODEL=ST4000NM0023".to_owned(),
            "ID_MODEL_ENC=ST4000NM0023\\x20\\x20\\x20\\x20".to_owned(),
            "ID_REVISION=0004".to_owned(),
            "ID_TYPE=disk".to_owned(),
            format!("SCSI_IDENT_SERIAL={serial}"),
            format!("SCSI_IDENT_LUN_NAA_REG={wwn}"),
            format!("ID_SERIAL=3{wwn}"),
            format!("ID_SERIAL_SHORT={wwn}"),
            format!("ID_SCSI_SERIAL={serial}"),
            format!("ID_WWN=0x{wwn}"),
            format!("ID_WWN_WITH_EXTENSION=0x{wwn}"),
            "ID_BUS=scsi".to_owned(),
            format!("ID_PATH=pci-0000:03:00.0-sas-phy{n}-lun-0"),
            format!("ID_PATH_TAG=pci-0000_03_00_0-sas-phy{n}-lun-0"),
            format!("ID_PART_TABLE_UUID=11d5cd4f-0000-4000-8000-{n:012x}"),
            "ID_PART_TABLE_TYPE=gpt".to_owned(),
        ];
        let links = |end: &str| {
            [
                format!("disk/by-id/wwn-0x{wwn}{end}"),
                format!("disk/by-id/scsi-3{wwn}{end}"),
                format!("disk/by-id/scsi-SSEAGATE_ST4000NM0023_{serial}{end}"),
                format!("disk/by-path/pci-0000:03:00.0-sas-phy{n}-lun-0{end}"),
            ]
        };
        self.udev(&name, number, &known, &links(""))?;
        // What udev knows of a disk it copies down to the partitions.
        if let Some(first) = known.first_mut() {
            *first = "DEVTYPE=partition".to_owned();
        }
        (1..=partitions).try_for_each(|p| self.partition(n, p, &dir, &known, &links(&format!("-part{p}"))))
    }

    fn partition(&self, n: u32, p: u32, disk: &str, known: &[String], links: &[String]) -> io::Result<()> {
        let name = format!("{}{p}", disk_name(n));
        let dir = format!("{disk}/{name}");
        let start = 2048 + u64::from(p - 1) * PART;
        fs::create_dir_all(self.root.join(&dir).join("holders"))?;
        self.share(&dir, "part", PART_FILES)?;
        let uuid = format!("{p:08x}-cd4f-4000-8000-{n:012x}");
        let number = number(n, p);
        self.node(&dir, &name, number, "partition", PART, &format!("PARTN={p}\nPARTUUID={uuid}\n"))?;
        self.add(&dir, "partition", &format!("{p}\n"))?;
        self.add(&dir, "start", &format!("{start}\n"))?;
        let mut known = known.to_vec();
        known.extend([
            "ID_FS_TYPE=ext4".to_owned(),
            "ID_FS_USAGE=filesystem".to_owned(),
            "ID_FS_VERSION=1.0".to_owned(),
            format!("ID_FS_UUID={uuid}"),
            format!("ID_FS_UUID_ENC={uuid}"),
            "ID_PART_ENTRY_SCHEME=gpt".to_owned(),
            format!("ID_PART_ENTRY_UUID={uuid}"),
            "ID_PART_ENTRY_TYPE=0fc63daf-8483-4772-8e79-3d69d8477de4".to_owned(),
            format!("ID_PART_ENTRY_NUMBER={p}"),
            format!("ID_PART_ENTRY_OFFSET={start}"),
            format!("ID_PART_ENTRY_SIZE={PART}"),
        ]);
        self.udev(&name, number, &known, links)
    }

    /// The files that no two devices have alike, and the link by number.
    fn node(
        &self,
        dir: &str,
        name: &str,
        (major, minor): (u32, u32),
        kind: &str,
        sectors: u64,
        more: &str,
    ) -> io::Result<()> {
        self.add(dir, "dev", &format!("{major}:{minor}\n"))?;
        self.add(dir, "size", &format!("{sectors}\n"))?;
        let uevent = format!("MAJOR={major}\nMINOR={minor}\nDEVNAME={name}\nDEVTYPE={kind}\n{more}");
        self.add(dir, "uevent", &uevent)?;
        self.up_link(dir, "subsystem", "class/block")?;
        let target = dir.strip_prefix("sys/").unwrap_or(dir);
        symlink(format!("../../{target}"), self.root.join(format!("sys/dev/block/{major}:{minor}")))
    }

    /// The record in both spellings: udev's own, which the probe reads, and the dump that `lsblk --sysroot` reads.
    fn udev(
        &self,
        name: &str,
        (major, minor): (u32, u32),
        known: &[String],
        links: &[String],
    ) -> io::Result<()> {
        let (mut record, mut dump) = (String::new(), String::new());
        for link in links {
            record += &format!("S:{link}\n");
        }
        record += "I:4209131\n";
        for pair in known {
            record += &format!("E:{pair}\n");
            dump += &format!("{pair}\n");
        }
        let links: Vec<String> = links.iter().map(|link| format!("/dev/{link}")).collect();
        dump += &format!("DEVLINKS={}\n", links.join(" "));
        record += "G:systemd\nQ:systemd\nV:1\n";
        self.put(&format!("run/udev/data/b{major}:{minor}"), &record)?;
        self.put(&format!("dev/{name}"), &dump)
    }
}

/// `sda`, ..., `sdz`, `sdaa`, ...: the name of disk `n` (drivers/scsi/sd.c, `sd_format_disk_name`).
pub fn disk_name(mut n: u32) -> String {
    let mut letters = Vec::new();
    loop {
        letters.push(b'a' + u8::try_from(n % 26).unwrap_or(0));
        match (n / 26).checked_sub(1) {
            Some(rest) => n = rest,
            None => break,
        }
    }
    letters.push(b'd');
    letters.push(b's');
    letters.iter().rev().map(|b| char::from(*b)).collect()
}

/// Device number of partition `p` of disk `n`; 0 is the disk (`sd_major`, `sd_probe`).
fn number(n: u32, p: u32) -> (u32, u32) {
    let major = MAJORS[(n as usize & 0xf0) >> 4];
    (major, ((n & 0xf) << 4 | (n & 0xf_ff00)) + p)
}
