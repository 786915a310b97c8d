//! What is mounted or swapped on, and on which block devices.
//!
//! May touch: `proc/1/mountinfo`, `proc/self/mountinfo`, `proc/swaps`, `sys/fs/btrfs`, `sys/fs/bcachefs`, loop backing
//! files' names. Must never: let a mount that it does not understand count as "not mounted".

use std::collections::{BTreeSet, HashMap};

use crate::blockdev::{BlockTree, Dev};
use crate::finding::{Finding, Missing};
use crate::roots::Roots;
use crate::udevdb::Properties;
use crate::warning::{Code, Warnings};

/// Shown as a mount when the mount table could not be read whole. The founder's one rule for "do not touch" is
/// "mounted", so that a doubt has to look like a mount.
pub(crate) const UNKNOWN: &str = "[UNKNOWN]";
/// Shown for active swap.
pub(crate) const SWAP: &str = "[SWAP]";

/// One line of mountinfo (proc(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    dev: Dev,
    point: Vec<u8>,
    fstype: String,
    source: Vec<u8>,
    options: Vec<u8>,
}

/// Mount points by device index.
#[derive(Debug, Default)]
pub(crate) struct MountMap {
    points: HashMap<usize, BTreeSet<Vec<u8>>>,
    /// Loop devices on files of a device's file systems: part of "stacked on it" for mounts, not for the stack.
    pub(crate) loops: HashMap<usize, Vec<usize>>,
    /// The table could not be read whole: nothing may count as not mounted.
    pub(crate) doubt: bool,
}

// === impl MountMap ===

impl MountMap {
    /// Reads both tables and gives every mount to its devices.
    pub(crate) fn read(
        roots: &Roots,
        tree: &BlockTree,
        udev: &[Option<Properties>],
        warnings: &mut Warnings,
    ) -> Self {
        let mut map = Self::default();
        let mounts = match read_mountinfo(roots) {
            Ok((mounts, whole)) => {
                if !whole {
                    map.doubt = true;
                    warnings.note("", Code::Invalid, "mounts", "a line of the mount table cannot be read");
                }
                mounts
            }
            Err(missing) => {
                map.doubt = true;
                let code = if missing == Missing::Absent && !roots.is_live() {
                    Code::NotCaptured
                } else {
                    Code::IoError
                };
                warnings.note(
                    "",
                    code,
                    "mounts",
                    "the mount table cannot be read: every disk counts as in use",
                );
                Vec::new()
            }
        };
        let finder = Finder { roots, tree, udev, mounts: &mounts };
        for mount in &mounts {
            let (devices, sure) = finder.devices(mount);
            map.doubt |= !sure;
            if !sure {
                let what = String::from_utf8_lossy(&mount.point).into_owned();
                warnings.note(
                    "",
                    Code::Invalid,
                    "mounts",
                    &format!("the devices of the mount {what} are not known"),
                );
            }
            for device in devices {
                map.points.entry(device).or_default().insert(mount.point.clone());
            }
        }
        map.read_swaps(roots, &finder, warnings);
        map.read_loops(roots, &finder);
        map
    }

    /// Mount points of the devices at `indexes`, sorted.
    pub(crate) fn of(&self, indexes: &[usize]) -> BTreeSet<Vec<u8>> {
        indexes.iter().filter_map(|i| self.points.get(i)).flatten().cloned().collect()
    }

    fn read_swaps(&mut self, roots: &Roots, finder: &Finder<'_>, warnings: &mut Warnings) {
        let swaps = match roots.read_long("proc/swaps") {
            Ok(text) if text.starts_with(b"Filename") => text,
            // A kernel without swap has no such file. A proc that hides everything but processes has none either.
            Err(Missing::Absent) if roots.is_live() && roots.exists("proc/meminfo") => return,
            other => {
                self.doubt = true;
                let code = match other {
                    Err(Missing::Absent) if !roots.is_live() => Code::NotCaptured,
                    Ok(_) => Code::Invalid,
                    Err(_) => Code::IoError,
                };
                warnings.note(
                    "",
                    code,
                    "swap",
                    "the list of swap cannot be read: every disk counts as in use",
                );
                return;
            }
        };
        for line in swaps.split(|b| *b == b'\n').skip(1).filter(|l| !l.is_empty()) {
            let mut fields = line.split(|b| b.is_ascii_whitespace()).filter(|f| !f.is_empty());
            let path = unescape(fields.next().unwrap_or_default());
            let path = path.strip_suffix(b" (deleted)").unwrap_or(&path);
            let devices = if fields.next() == Some(b"file") {
                finder.containing(path)
            } else {
                finder.by_path(path).into_iter().collect()
            };
            if devices.is_empty() && !on_memory(path) {
                self.doubt = true;
                let what = String::from_utf8_lossy(path).into_owned();
                warnings.note(
                    "",
                    Code::Invalid,
                    "swap",
                    &format!("the device of the swap {what} is not known"),
                );
            }
            for device in devices {
                self.points.entry(device).or_default().insert(SWAP.as_bytes().to_vec());
            }
        }
    }

    fn read_loops(&mut self, roots: &Roots, finder: &Finder<'_>) {
        for (index, dev) in finder.tree.devs.iter().enumerate().filter(|(_, d)| d.name.starts_with("loop")) {
            if let Ok(file) = roots.read(&format!("{}/loop/backing_file", dev.dir)) {
                let file = file.strip_suffix(b"\n").unwrap_or(&file);
                for below in finder.containing(file) {
                    self.loops.entry(below).or_default().push(index);
                }
                // A loop device may also stand on a whole device.
                if let Some(below) = finder.by_path(file) {
                    self.loops.entry(below).or_default().push(index);
                }
            }
        }
    }
}

/// Finds the devices behind paths and mounts.
struct Finder<'a> {
    roots: &'a Roots,
    tree: &'a BlockTree,
    udev: &'a [Option<Properties>],
    mounts: &'a [Mount],
}

// === impl Finder ===

impl Finder<'_> {
    /// The devices that `mount` stands for, and whether we are sure of them.
    fn devices(&self, mount: &Mount) -> (Vec<usize>, bool) {
        let numbered = if mount.dev.0 == 0 { None } else { self.tree.by_dev(mount.dev) };
        // A FUSE file system on a disk has an anonymous number: its source is the only trace.
        let mut devices: Vec<usize> = numbered.or_else(|| self.by_path(&mount.source)).into_iter().collect();
        // A number that no device has: the device is one that is not seen, and could be any disk's.
        let known = mount.dev.0 == 0 || !devices.is_empty();
        // External logs and realtime devices are named in the options (xfs(5), ext4(5)).
        for option in mount.options.split(|b| *b == b',') {
            for key in [&b"logdev="[..], b"rtdev=", b"journal_path="] {
                if let Some(path) = option.strip_prefix(key) {
                    devices.extend(self.by_path(&unescape(path)));
                }
            }
        }
        let sure = match mount.fstype.as_str() {
            "btrfs" => self.add_btrfs(&mut devices),
            "bcachefs" => self.add_bcachefs(mount, &mut devices),
            "zfs" => self.add_zfs(mount, &mut devices),
            "overlay" => {
                for dir in lower_dirs(&mount.options) {
                    devices.extend(self.containing(&dir));
                }
                true
            }
            _ => true,
        };
        devices.sort_unstable();
        devices.dedup();
        (devices, sure && known)
    }

    fn add_btrfs(&self, devices: &mut Vec<usize>) -> bool {
        let mut found = !devices.is_empty();
        for uuid in self.roots.list("sys/fs/btrfs").unwrap_or_default() {
            let members: Vec<usize> = self
                .roots
                .list(&format!("sys/fs/btrfs/{uuid}/devices"))
                .unwrap_or_default()
                .iter()
                .filter_map(|name| self.tree.by_name(name))
                .collect();
            if members.iter().any(|m| devices.contains(m)) {
                devices.extend(members);
            }
        }
        // The same from udev: one file system UUID on several devices.
        let uuids: Vec<&str> =
            devices.iter().filter_map(|d| self.fs(*d, "btrfs")?.text("ID_FS_UUID")).collect();
        let more = self.all(|p| {
            p.text("ID_FS_TYPE") == Some("btrfs") && p.text("ID_FS_UUID").is_some_and(|u| uuids.contains(&u))
        });
        devices.extend(more);
        if !found {
            devices.extend(self.all(|p| p.text("ID_FS_TYPE") == Some("btrfs")));
            found = !devices.is_empty();
        }
        found
    }

    fn add_bcachefs(&self, mount: &Mount, devices: &mut Vec<usize>) -> bool {
        for part in mount.source.split(|b| *b == b':') {
            devices.extend(self.by_path(part));
        }
        for uuid in self.roots.list("sys/fs/bcachefs").unwrap_or_default() {
            let members: Vec<usize> = self
                .roots
                .list(&format!("sys/fs/bcachefs/{uuid}"))
                .unwrap_or_default()
                .iter()
                .filter_map(|dev| self.roots.link_name(&format!("sys/fs/bcachefs/{uuid}/{dev}/block")).ok())
                .filter_map(|name| self.tree.by_name(&name))
                .collect();
            if members.iter().any(|m| devices.contains(m)) {
                devices.extend(members);
            }
        }
        if devices.is_empty() {
            devices.extend(self.all(|p| p.text("ID_FS_TYPE") == Some("bcachefs")));
        }
        !devices.is_empty()
    }

    fn add_zfs(&self, mount: &Mount, devices: &mut Vec<usize>) -> bool {
        let pool = mount.source.split(|b| *b == b'/').next().unwrap_or_default();
        let member = |p: &Properties| p.text("ID_FS_TYPE") == Some("zfs_member");
        devices.extend(self.all(|p| member(p) && p.bytes("ID_FS_LABEL") == Some(pool)));
        if devices.is_empty() {
            devices.extend(self.all(member));
        }
        !devices.is_empty()
    }

    fn fs(&self, index: usize, fstype: &str) -> Option<&Properties> {
        self.udev.get(index)?.as_ref().filter(|p| p.text("ID_FS_TYPE") == Some(fstype))
    }

    fn all(&self, test: impl Fn(&Properties) -> bool) -> Vec<usize> {
        let hit = |(i, p): (usize, &Option<Properties>)| p.as_ref().filter(|p| test(p)).map(|_| i);
        self.udev.iter().enumerate().filter_map(hit).collect()
    }

    /// The device that a `/dev/...` path names.
    fn by_path(&self, path: &[u8]) -> Option<usize> {
        let path = std::str::from_utf8(path).ok()?;
        let name = path.strip_prefix("/dev/")?;
        if self.roots.is_live()
            && let Ok(stat) = self.roots.stat(&format!("dev/{name}"))
        {
            let dev = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
            if let Some(index) = self.tree.by_dev(dev) {
                return Some(index);
            }
        }
        if let Some(index) = self.tree.by_name(&name.replace('/', "!")) {
            return Some(index);
        }
        if let Some(label) = name.strip_prefix("mapper/") {
            let is = |dir: &str| self.roots.line(&format!("{dir}/dm/name")).is_ok_and(|n| n == label);
            if let Some(index) = self.tree.devs.iter().position(|d| d.name.starts_with("dm-") && is(&d.dir)) {
                return Some(index);
            }
        }
        self.udev.iter().position(|p| p.as_ref().is_some_and(|p| p.links().iter().any(|l| l == path)))
    }

    /// The devices of the mount with the longest mount point that contains `path`.
    fn containing(&self, path: &[u8]) -> Vec<usize> {
        let inside = |m: &&Mount| {
            path.strip_prefix(m.point.as_slice())
                .is_some_and(|rest| m.point.ends_with(b"/") || rest.is_empty() || rest.starts_with(b"/"))
        };
        // Of equal mount points the later one hides the earlier one; both count, since both are mounted.
        let longest = self.mounts.iter().filter(inside).map(|m| m.point.len()).max();
        let hits = self.mounts.iter().filter(inside).filter(|m| Some(m.point.len()) == longest);
        hits.filter(|m| m.fstype != "overlay").flat_map(|m| self.devices(m).0).collect()
    }
}

/// `lowerdir=a:b,upperdir=c` of an overlay.
fn lower_dirs(options: &[u8]) -> Vec<Vec<u8>> {
    let mut dirs = Vec::new();
    for option in options.split(|b| *b == b',') {
        if let Some(list) = option.strip_prefix(b"lowerdir=").or_else(|| option.strip_prefix(b"lowerdir+=")) {
            dirs.extend(list.split(|b| *b == b':').map(unescape));
        } else if let Some(dir) = option.strip_prefix(b"upperdir=") {
            dirs.push(unescape(dir));
        }
    }
    dirs
}

/// Swap on a device that holds nothing after a reboot.
fn on_memory(path: &[u8]) -> bool {
    path.starts_with(b"/dev/zram") || path.starts_with(b"/zram")
}

/// The mount table of process 1, else our own, and whether every line was understood. Read twice: the kernel does not
/// promise one moment over several reads, so lines of either reading count.
fn read_mountinfo(roots: &Roots) -> Finding<(Vec<Mount>, bool)> {
    let mut last = Missing::Absent;
    for path in ["proc/1/mountinfo", "proc/self/mountinfo"] {
        match roots.read_long(path) {
            Ok(first) => {
                let (mut mounts, mut whole) = parse_mountinfo(&first);
                if roots.is_live() {
                    match roots.read_long(path) {
                        Ok(second) if second != first => {
                            let (more, also_whole) = parse_mountinfo(&second);
                            whole &= also_whole;
                            for mount in more {
                                if !mounts.contains(&mount) {
                                    mounts.push(mount);
                                }
                            }
                        }
                        Ok(_) => {}
                        Err(missing) => return Err(missing),
                    }
                }
                // Something is always mounted at `/`: an empty table is a broken one.
                return if mounts.is_empty() { Err(Missing::Invalid) } else { Ok((mounts, whole)) };
            }
            Err(missing @ (Missing::Absent | Missing::Permission)) => last = missing,
            Err(missing) => return Err(missing),
        }
    }
    Err(last)
}

/// Parses mountinfo. `false`: a line was not understood.
pub(crate) fn parse_mountinfo(bytes: &[u8]) -> (Vec<Mount>, bool) {
    let mut whole = bytes.is_empty() || bytes.ends_with(b"\n");
    let mut mounts = Vec::new();
    for line in bytes.split(|b| *b == b'\n').filter(|l| !l.is_empty()) {
        match parse_line(line) {
            Some(mount) => mounts.push(mount),
            None => whole = false,
        }
    }
    (mounts, whole)
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|b| *b == b' ');
    let number = std::str::from_utf8(fields.nth(2)?).ok()?;
    let (major, minor) = number.split_once(':')?;
    let point = unescape(fields.nth(1)?);
    fields.find(|f| *f == b"-")?;
    let fstype = std::str::from_utf8(fields.next()?).ok()?.to_owned();
    let source = unescape(fields.next().unwrap_or_default());
    let options = fields.next().unwrap_or_default().to_vec();
    Some(Mount { dev: (major.parse().ok()?, minor.parse().ok()?), point, fstype, source, options })
}

/// Decodes `\040`, `\011`, `\012`, `\134` and any other octal escape.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        if let [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] = rest {
            out.push((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'));
            rest = after;
        } else {
            out.push(*first);
            rest = tail;
        }
    }
    out
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_with_spaces_and_optional_fields_is_read() {
        let (mounts, whole) = parse_mountinfo(
            b"36 35 98:0 /mnt1 /a\\040b\\012c rw shared:1 master:2 - ext3 /dev/root rw,errors=x\n",
        );
        assert!(whole);
        let m = mounts.first().unwrap();
        assert_eq!((m.dev, m.point.as_slice(), m.fstype.as_str()), ((98, 0), &b"/a b\nc"[..], "ext3"));
    }

    #[test]
    fn a_cut_or_broken_table_is_not_whole() {
        assert!(!parse_mountinfo(b"36 35 98:0 / / rw - ext3 /dev/root rw").1);
        assert!(!parse_mountinfo(b"36 35 98:0 / /\n").1);
        assert!(!parse_mountinfo(b"garbage\n36 35 98:0 / / rw - ext3 /dev/root rw\n").1);
    }

    #[test]
    fn the_directories_of_an_overlay_are_found() {
        assert_eq!(
            lower_dirs(b"rw,lowerdir=/a:/b,upperdir=/c,workdir=/w"),
            [b"/a".to_vec(), b"/b".to_vec(), b"/c".to_vec()]
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse_mountinfo(&bytes);
        }
    }
}
