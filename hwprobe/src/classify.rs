//! Which block devices are disks.
//!
//! May touch: sysfs, `proc/devices`. Must never: drop a device because one of its files is unreadable, or take a
//! virtual device for a disk.

use std::collections::HashMap;

use crate::blockdev::{BlockDev, BlockTree};
use crate::finding::Missing;
use crate::roots::Roots;
use crate::warning::{Code, Warnings};

/// Drivers whose devices are never disks, by their name in `proc/devices`.
const NOT_DISK_DRIVERS: [&str; 18] = [
    "loop",
    "ramdisk",
    "ram",
    "brd",
    "zram",
    "fd",
    "sr",
    "nbd",
    "rbd",
    "drbd",
    "zvol",
    "mtdblock",
    "ublkb",
    "device-mapper",
    "md",
    "mdp",
    "bcache",
    "mtd",
];
/// The same by the letters before the number, where the major does not tell.
const NOT_DISK_NAMES: [&str; 16] = [
    "loop",
    "ram",
    "zram",
    "fd",
    "sr",
    "nbd",
    "rbd",
    "drbd",
    "zd",
    "mtdblock",
    "ublkb",
    "dm-",
    "md",
    "md_d",
    "bcache",
    "mtdblock_ro",
];
/// SCSI peripheral types (SPC-4, table 49): disk, simplified disk, host-managed zoned disk.
const SCSI_DISK: [u64; 3] = [0, 14, 20];
const SCSI_ZONED: u64 = 20;

/// A whole disk of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Whole {
    /// Index into the tree.
    pub(crate) index: usize,
    /// Bytes, not 0.
    pub(crate) size: u64,
    /// Must be written in order.
    pub(crate) zoned: bool,
}

/// The disks of the tree, in its order.
pub(crate) fn disks(roots: &Roots, tree: &BlockTree, warnings: &mut Warnings) -> Vec<Whole> {
    let drivers = drivers(roots);
    let mut found = Vec::new();
    let mut no_medium: Vec<String> = Vec::new();
    for (index, dev) in tree.devs.iter().enumerate().filter(|(_, d)| !d.is_partition()) {
        let Some(zoned) = is_disk(roots, dev, drivers.as_ref()) else { continue };
        let at = format!("disks/{}", dev.name);
        match roots.number(&format!("{}/size", dev.dir)) {
            Ok(0) => no_medium.push(dev.name.clone()),
            Ok(sectors) => {
                if dev.dev.is_none() {
                    let detail = "no device number: the disk counts as in use";
                    warnings.note(&at, Missing::Invalid, "mounts", detail);
                }
                // The unit is 512 bytes whatever the block size (kernel include/linux/types.h, sector_t).
                found.push(Whole { index, size: sectors.saturating_mul(512), zoned });
            }
            Err(Missing::Vanished) => warnings.note(&at, Missing::Vanished, "name", "went away: left out"),
            Err(_) if roots.stat(&dev.dir).is_err() => {
                warnings.note(&at, Missing::Vanished, "name", "went away: left out");
            }
            Err(_) => no_medium.push(dev.name.clone()),
        }
    }
    if !no_medium.is_empty() {
        let detail = format!("no medium, or no size: {}", no_medium.join(", "));
        warnings.note("", Code::NoMedium, "disks", &detail);
    }
    found
}

/// `Some(zoned)` for a disk. First match decides (docs/hardware.md).
fn is_disk(roots: &Roots, dev: &BlockDev, drivers: Option<&HashMap<u32, String>>) -> Option<bool> {
    let name = dev.name.as_str();
    let file = |file: &str| format!("{}/{file}", dev.dir);
    if is_nvme_path(name) || is_mmc_part(name) {
        return None;
    }
    let device = dev.has(roots, "device");
    if !device && ["dm", "md", "bcache"].into_iter().any(|sub| dev.has(roots, sub)) {
        return None;
    }
    let driver = dev.dev.and_then(|(major, _)| drivers?.get(&major)).map(String::as_str);
    let virtual_driver = match driver {
        // Many drivers share the extended major.
        None | Some("blkext") => is_virtual_name(name),
        Some(driver) => NOT_DISK_DRIVERS.contains(&driver),
    };
    let devpath = dev.devpath.as_str();
    let virtual_path =
        devpath.starts_with("/devices/virtual/") && !devpath.starts_with("/devices/virtual/nvme-subsystem/");
    if virtual_driver || virtual_path || roots.number(&file("hidden")) == Ok(1) {
        return None;
    }
    let mut zoned = roots.line(&file("queue/zoned")).is_ok_and(|z| z == "host-managed");
    let scsi =
        name.starts_with("sd") || roots.link_name(&file("device/subsystem")).is_ok_and(|s| s == "scsi");
    if scsi && let Ok(kind) = roots.number(&file("device/type")) {
        if !SCSI_DISK.contains(&kind) {
            return None;
        }
        zoned |= kind == SCSI_ZONED;
    }
    // Without links in the tree, a device without `device` is told by its name alone.
    (device || !devpath.is_empty() || !is_virtual_name(name)).then_some(zoned)
}

/// Block drivers by major number; `None` when the file is not there or lists none.
fn drivers(roots: &Roots) -> Option<HashMap<u32, String>> {
    let text = roots.read("proc/devices").ok()?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let block = text.lines().skip_while(|l| *l != "Block devices:").skip(1);
    let map: HashMap<u32, String> = block
        .filter_map(|line| {
            let (major, name) = line.trim().split_once(' ')?;
            Some((major.parse().ok()?, name.trim().to_owned()))
        })
        .collect();
    (!map.is_empty()).then_some(map)
}

/// `nvme<s>c<c>n<n>`: one path of a namespace, without a node of its own.
pub(crate) fn is_nvme_path(name: &str) -> bool {
    nvme_path_of(name).is_some()
}

/// The namespace `nvme<s>n<n>` that the path `nvme<s>c<c>n<n>` leads to.
pub(crate) fn nvme_path_of(name: &str) -> Option<String> {
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    let (subsystem, rest) = name.strip_prefix("nvme")?.split_once('c')?;
    let (controller, namespace) = rest.split_once('n')?;
    (digits(subsystem) && digits(controller) && digits(namespace))
        .then(|| format!("nvme{subsystem}n{namespace}"))
}

/// `mmcblk0boot0`, `mmcblk0rpmb`, `mmcblk0gp1`: hardware partitions of an eMMC.
fn is_mmc_part(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("mmcblk") else { return false };
    let tail = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    let numbered = |p: &str| {
        tail.strip_prefix(p).is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    tail.len() < rest.len() && (tail == "rpmb" || numbered("boot") || numbered("gp"))
}

fn is_virtual_name(name: &str) -> bool {
    let letters = name.trim_end_matches(|c: char| c.is_ascii_digit());
    letters.len() < name.len() && NOT_DISK_NAMES.contains(&letters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nvme_paths_and_emmc_parts_are_known_by_their_names() {
        assert_eq!(nvme_path_of("nvme0c1n2").as_deref(), Some("nvme0n2"));
        for name in ["nvme0n1", "nvme0cn1", "nvmec0n1", "nvme0c0n"] {
            assert_eq!(nvme_path_of(name), None, "{name}");
        }
        assert!(["mmcblk0boot0", "mmcblk0rpmb", "mmcblk12gp1"].iter().all(|n| is_mmc_part(n)));
        assert!(!["mmcblk0", "mmcblkboot0", "mmcblk0p1", "mmcblk0boot"].iter().any(|n| is_mmc_part(n)));
    }

    #[test]
    fn virtual_names_need_a_number() {
        assert!(["loop0", "zram1", "md127", "md_d0", "dm-3", "sr0"].iter().all(|n| is_virtual_name(n)));
        assert!(!["sda", "vda", "mda", "ram", "nvme0n1", "fdx1"].iter().any(|n| is_virtual_name(n)));
    }
}
