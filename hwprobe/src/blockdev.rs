//! Block devices as sysfs shows them, and how they stand on each other.
//!
//! May touch: `sys/block`. Must never: attach a partition by its name, or lose an edge that either side shows: a lost
//! edge is a mount that no longer reaches its disk.

use std::collections::HashMap;

use crate::finding::Missing;
use crate::recording::Kind;
use crate::roots::Roots;
use crate::warning::{Code, Warnings};

/// Sub-directories of a block device that are not partitions; not asked, to save system calls.
const NOT_PARTITIONS: [&str; 18] = [
    "bcache",
    "bdi",
    "device",
    "dm",
    "holders",
    "integrity",
    "loop",
    "md",
    "mq",
    "power",
    "queue",
    "slaves",
    "subsystem",
    "trace",
    "zfs",
    "iosched",
    "nvme",
    "slave",
];
/// Sub-directories that tell what a device is.
const TELLING: [&str; 5] = ["bcache", "device", "dm", "loop", "md"];
/// Levels of stacking that are followed.
pub(crate) const MAX_LEVELS: u32 = 32;

/// Major and minor number.
pub type Dev = (u32, u32);

/// One block device: a disk, a partition, a stacked device, or something virtual.
#[derive(Clone, Debug, Default)]
pub struct BlockDev {
    /// Kernel name, as sysfs spells it (`/` is `!`).
    pub name: String,
    /// Directory below the root, `sys/block/sda/sda1`.
    pub dir: String,
    /// Canonical path below `sys` (`/devices/...`); empty when the captured tree has no links.
    pub devpath: String,
    /// Device number; `None` when neither `dev` nor `uevent` tells.
    pub dev: Option<Dev>,
    /// Index of the device that contains this partition.
    pub parent: Option<usize>,
    /// Indexes of the partitions.
    pub partitions: Vec<usize>,
    /// Indexes of what stands on this device.
    pub holders: Vec<usize>,
    /// Partition number.
    pub number: u32,
    /// Something about this device or its partitions could not be listed: treat it as in use.
    pub doubt: bool,
    /// Which of [`TELLING`] a disk has; `None` when it was not listed.
    telling: Option<Vec<&'static str>>,
}

/// All block devices of the machine.
#[derive(Debug, Default)]
pub struct BlockTree {
    /// The devices; indexes into it are stable.
    pub devs: Vec<BlockDev>,
    by_name: HashMap<String, usize>,
    by_dev: HashMap<Dev, usize>,
}

// === impl BlockDev ===

impl BlockDev {
    /// The name as people and `/dev` spell it: `cciss!c0d0` is `cciss/c0d0`.
    #[must_use]
    pub fn node_name(&self) -> String {
        self.name.replace('!', "/")
    }

    /// Whether it is a partition.
    #[must_use]
    pub fn is_partition(&self) -> bool {
        self.parent.is_some()
    }

    /// Whether it has this sub-directory.
    pub(crate) fn has(&self, roots: &Roots, sub: &str) -> bool {
        match &self.telling {
            Some(telling) => telling.contains(&sub),
            None => roots.stat(&format!("{}/{sub}", self.dir)).is_ok(),
        }
    }
}

// === impl BlockTree ===

impl BlockTree {
    /// Lists `sys/block`. `None`: it could not be listed, and a warning says so.
    pub(crate) fn read(roots: &Roots, warnings: &mut Warnings) -> Option<Self> {
        let names = match roots.list("sys/block") {
            Ok(names) => names,
            Err(Missing::Truncated) => {
                warnings.note("", Missing::Truncated, "disks", "too many block devices");
                return None;
            }
            Err(_) => {
                warnings.note("", Missing::IoError, "disks", "sys/block cannot be listed");
                return None;
            }
        };
        let mut tree = Self::default();
        let mut holders: Vec<(usize, String)> = Vec::new();
        let mut slaves: Vec<(usize, String)> = Vec::new();
        for name in names {
            if !is_kernel_name(&name) {
                warnings.note(
                    "",
                    Code::HostileName,
                    "disks",
                    "a block device with an unsafe name was skipped",
                );
                continue;
            }
            tree.read_whole(roots, &name, &mut holders, &mut slaves);
        }
        for (index, above) in holders {
            match tree.by_name.get(&above).copied() {
                Some(above) => tree.add_edge(index, above),
                None => tree.mark(index),
            }
        }
        for (index, below) in slaves {
            match tree.by_name.get(&below).copied() {
                Some(below) => tree.add_edge(below, index),
                None => tree.mark(index),
            }
        }
        Some(tree)
    }

    /// The device with this kernel name.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// The device with this number.
    #[must_use]
    pub fn by_dev(&self, dev: Dev) -> Option<usize> {
        self.by_dev.get(&dev).copied()
    }

    /// The device at this index.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&BlockDev> {
        self.devs.get(index)
    }

    /// Everything that stands on `start`, itself first: partitions, holders and what `more` adds (loop devices on its
    /// file systems). Each once, so cycles end.
    pub(crate) fn above(&self, start: usize, more: &HashMap<usize, Vec<usize>>) -> Vec<usize> {
        let mut seen = vec![start];
        let mut known = std::collections::HashSet::from([start]);
        let mut next = 0;
        while let Some(index) = seen.get(next).copied() {
            next += 1;
            let Some(dev) = self.get(index) else { continue };
            let extra = more.get(&index).map(Vec::as_slice).unwrap_or_default();
            for up in dev.partitions.iter().chain(&dev.holders).chain(extra) {
                if known.insert(*up) {
                    seen.push(*up);
                }
            }
        }
        seen
    }

    /// Depth of everything above `start` through `holders`; a partition adds nothing. `false`: a cycle or more than 32
    /// levels were met and cut.
    pub(crate) fn depths(&self, start: usize) -> (HashMap<usize, u32>, bool) {
        let mut depths = HashMap::from([(start, 0)]);
        let mut work = vec![start];
        let mut whole = true;
        while let Some(index) = work.pop() {
            let depth = depths.get(&index).copied().unwrap_or(0);
            let Some(dev) = self.get(index) else { continue };
            let ups =
                dev.partitions.iter().map(|p| (*p, depth)).chain(dev.holders.iter().map(|h| (*h, depth + 1)));
            for (up, depth) in ups {
                if depth > MAX_LEVELS {
                    whole = false;
                    continue;
                }
                if depths.get(&up).is_none_or(|old| *old < depth) {
                    depths.insert(up, depth);
                    work.push(up);
                }
            }
        }
        (depths, whole)
    }

    fn read_whole(
        &mut self,
        roots: &Roots,
        name: &str,
        holders: &mut Vec<(usize, String)>,
        slaves: &mut Vec<(usize, String)>,
    ) {
        let dir = format!("sys/block/{name}");
        let children = roots.list_kinds(&dir);
        let telling = children.as_ref().ok().map(|children| {
            let there = |sub: &&str| children.iter().any(|(child, _)| child == sub);
            TELLING.into_iter().filter(there).collect::<Vec<_>>()
        });
        if name.starts_with("loop")
            && telling.as_ref().is_some_and(|telling| !telling.contains(&"loop"))
            && roots.number(&format!("{dir}/size")) == Ok(0)
        {
            // Bound to no file: nothing is on it, and it is on nothing (drivers/block/loop.c). Many machines have eight of them.
            return;
        }
        let devpath = roots.link(&dir).map(|target| resolve("block", &target)).unwrap_or_default();
        let mut dev = read_dev(roots, name, &dir, devpath.clone()).0;
        dev.telling = telling;
        let index = self.push(dev);
        self.read_edges(roots, index, &dir, "holders", holders);
        self.read_edges(roots, index, &dir, "slaves", slaves);
        let Ok(children) = children else { return self.mark(index) };
        for (child, kind) in children {
            // An attribute is a file.
            if kind == Kind::File || NOT_PARTITIONS.contains(&child.as_str()) || !is_kernel_name(&child) {
                continue;
            }
            let child_dir = format!("{dir}/{child}");
            let (mut dev, says_partition) = read_dev(roots, &child, &child_dir, format!("{devpath}/{child}"));
            if !says_partition {
                continue;
            }
            dev.parent = Some(index);
            let doubt = dev.doubt;
            let child_index = self.push(dev);
            self.read_edges(roots, child_index, &child_dir, "holders", holders);
            if let Some(parent) = self.devs.get_mut(index) {
                parent.partitions.push(child_index);
                parent.doubt |= doubt;
            }
        }
    }

    fn read_edges(
        &mut self,
        roots: &Roots,
        index: usize,
        dir: &str,
        which: &str,
        out: &mut Vec<(usize, String)>,
    ) {
        match roots.list(&format!("{dir}/{which}")) {
            Ok(names) => out.extend(names.into_iter().map(|name| (index, name))),
            // A captured tree may hold only the links; the running kernel always has the directory.
            Err(Missing::Absent) if !roots.is_live() || which == "slaves" => {}
            Err(missing) => {
                // A copy of the tree must have the same doubt.
                if missing == Missing::Absent {
                    roots.note_broken(&format!("{dir}/{which}"));
                }
                self.mark(index);
            }
        }
    }

    fn push(&mut self, dev: BlockDev) -> usize {
        let index = self.devs.len();
        self.by_name.insert(dev.name.clone(), index);
        if let Some(number) = dev.dev {
            self.by_dev.insert(number, index);
        }
        self.devs.push(dev);
        index
    }

    fn add_edge(&mut self, below: usize, above: usize) {
        if let Some(dev) = self.devs.get_mut(below)
            && !dev.holders.contains(&above)
        {
            dev.holders.push(above);
        }
    }

    /// Marks a device, and the disk around a partition, as in doubt.
    fn mark(&mut self, index: usize) {
        let Some(dev) = self.devs.get_mut(index) else { return };
        dev.doubt = true;
        if let Some(parent) = dev.parent.and_then(|p| self.devs.get_mut(p)) {
            parent.doubt = true;
        }
    }
}

/// One device directory, and whether it says that it is a partition. Each fact has two sources, so that one broken
/// file changes nothing.
fn read_dev(roots: &Roots, name: &str, dir: &str, devpath: String) -> (BlockDev, bool) {
    let uevent = roots.read(&format!("{dir}/uevent")).unwrap_or_default();
    let uevent = String::from_utf8_lossy(&uevent).into_owned();
    let get = |key: &str| uevent.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    let number = |s: &str| s.trim().parse::<u32>().ok();
    let from_file = || {
        let text = roots.line(&format!("{dir}/dev")).ok()?;
        let (major, minor) = text.split_once(':')?;
        Some((number(major)?, number(minor)?))
    };
    // One read tells all of it; its own files are asked for what it does not tell.
    let pair = || Some((number(get("MAJOR")?)?, number(get("MINOR")?)?));
    let dev = pair().or_else(from_file);
    let partition = || roots.line(&format!("{dir}/partition")).ok().and_then(|p| number(&p));
    let (is_partition, parted) = match get("DEVTYPE") {
        Some("partition") => (true, get("PARTN").and_then(number).or_else(partition)),
        Some(_) => (false, None),
        // A sub-directory with extents is a partition, whatever else of it is unreadable.
        None => match partition() {
            Some(parted) => (true, Some(parted)),
            None => (["partition", "start"].iter().any(|f| roots.exists(&format!("{dir}/{f}"))), None),
        },
    };
    let parted = parted.unwrap_or(0);
    let doubt = dev.is_none();
    let dev = BlockDev {
        name: name.to_owned(),
        dir: dir.to_owned(),
        devpath,
        dev,
        number: parted,
        doubt,
        ..BlockDev::default()
    };
    (dev, is_partition)
}

/// Names that the kernel can give: no `/`, no control or unprintable byte, at most 64 characters.
fn is_kernel_name(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic() && b != b'/')
}

/// The canonical path below `sys` of a link target found in `sys/<dir>`, without touching the file system: sysfs has
/// no links inside `devices`.
pub(crate) fn resolve(dir: &str, target: &str) -> String {
    let mut parts: Vec<&str> = dir.split('/').collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(edges: &[(usize, usize)], n: usize) -> BlockTree {
        let mut tree = BlockTree::default();
        for index in 0..n {
            tree.push(BlockDev { name: format!("d{index}"), ..BlockDev::default() });
        }
        for (below, above) in edges {
            tree.add_edge(*below, *above);
        }
        tree
    }

    #[test]
    fn a_diamond_has_the_longest_depth() {
        let (depths, whole) = tree(&[(0, 1), (1, 2), (0, 2)], 3).depths(0);
        assert!(whole);
        assert_eq!((depths[&1], depths[&2]), (1, 2));
    }

    #[test]
    fn a_cycle_ends_and_is_told() {
        let tree = tree(&[(0, 1), (1, 2), (2, 1)], 3);
        assert!(!tree.depths(0).1);
        assert_eq!(tree.above(0, &HashMap::new()), [0, 1, 2]);
    }

    #[test]
    fn link_targets_resolve_to_the_device_path() {
        assert_eq!(resolve("block", "../devices/virtual/block/dm-0"), "/devices/virtual/block/dm-0");
    }
}
