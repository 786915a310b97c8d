//! One disk, several paths: under a multipath map, and without one.
//!
//! May touch: sysfs, and the ends of disks that say that they are one. Must never: fold two disks that differ in anything that was looked
//! at, or hide what is on any of the paths: what a path holds, and what is mounted from it, is the disk's.

use std::collections::BTreeMap;

use crate::classify::{self, Whole};
use crate::disks::World;
use crate::ends::{self, Target};
use crate::facts::Facts;
use crate::finding::Missing;
use crate::identity;
use crate::inventory::{DiskPath, StackKind};
use crate::order::natural;
use crate::text::Text;
use crate::warning::{Code, Warnings};
use crate::{Options, Sources};

/// Paths of one disk.
const MAX_PATHS: usize = 64;

/// One disk: a device, or several paths to one.
pub(crate) struct Group {
    pub(crate) first: Whole,
    pub(crate) members: Vec<usize>,
    /// The multipath map over them, if there is one.
    pub(crate) map: Option<usize>,
    /// Any path says that it must be written in order.
    pub(crate) zoned: bool,
}

// === impl Group ===

impl Group {
    /// Device indexes that are this disk: every path, and the map.
    pub(crate) fn same(&self) -> impl Iterator<Item = usize> {
        self.members.iter().copied().chain(self.map)
    }
}

/// What two paths to one disk say alike.
type Identity = (String, String, u64);

/// Folds paths without a map: the same WWN, serial number and size behind another target, and both ends read the same, byte for byte. A disk
/// that cannot be read is folded with nothing. What is left with one identity is `duplicateIdentity`.
pub(crate) fn fold(
    world: &World<'_>,
    groups: &mut Vec<Group>,
    sources: &Sources,
    options: &Options,
    warnings: &mut Warnings,
) {
    if !options.read_ends {
        return;
    }
    let mut by_wwn: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (n, group) in groups.iter().enumerate().filter(|(_, g)| g.map.is_none()) {
        let (index, name) = (group.first.index, world.name(group.first.index));
        // A bridge to USB may tell its own numbers, the same for every disk in it.
        if let (true, Some(dev)) = (name.starts_with("sd"), world.tree.get(index))
            && !dev.devpath.contains("/usb")
            && let Ok(wwn) = identity::wwn(world.roots, dev, world.props(index))
        {
            by_wwn.entry(wwn).or_default().push(n);
        }
    }
    let mut twins: BTreeMap<Identity, Vec<(usize, String)>> = BTreeMap::new();
    for (wwn, sharers) in by_wwn.into_iter().filter(|(_, sharers)| sharers.len() > 1) {
        for n in sharers {
            let Some(first) = groups.get(n).map(|g| &g.first) else { continue };
            let Some(dev) = world.tree.get(first.index) else { continue };
            let mut unheard = Warnings::default();
            let mut facts = Facts::new(world.roots, String::new(), &mut unheard);
            let serial = identity::serial(&mut facts, dev, world.props(first.index), Some(&wwn));
            let target =
                world.roots.link_name(&format!("{}/device", dev.dir)).ok().as_deref().and_then(target_of);
            if let (Ok(serial), Some(target)) = (serial, target) {
                twins.entry((wwn.clone(), serial.to_string(), first.size)).or_default().push((n, target));
            }
        }
    }
    let mut gone: Vec<usize> = Vec::new();
    for paths in twins.into_values().filter(|paths| paths.len() > 1) {
        let targets = paths.iter().filter_map(|(n, _)| {
            let first = &groups.get(*n)?.first;
            let dev = world.tree.get(first.index)?;
            Some(Target { node: dev.node_name(), dev: dev.dev, size: first.size })
        });
        let looks =
            ends::look_at_all(&sources.ends, targets.collect(), options.read_deadline, options.read_total);
        // In a tree without ends there is nothing to compare, and nothing to lose.
        let looks = looks.into_iter().map(|look| match look {
            Ok(look) => Some(Some(look.digest)),
            Err(failure) if failure.missing == Missing::NotCaptured => Some(None),
            Err(_) => None,
        });
        let seen: Vec<_> =
            paths.into_iter().zip(looks).filter_map(|((n, target), look)| Some((n, target, look?))).collect();
        for (at, (n, target, look)) in seen.iter().enumerate() {
            if gone.contains(n) {
                continue;
            }
            let mut targets = vec![target];
            for (other, its_target, its_look) in seen.iter().skip(at + 1) {
                if its_look != look || targets.contains(&its_target) || gone.contains(other) {
                    continue;
                }
                let Some((members, zoned)) = groups.get(*other).map(|g| (g.members.clone(), g.zoned)) else {
                    continue;
                };
                if let Some(group) = groups.get_mut(*n) {
                    group.members.extend(members);
                    group.zoned |= zoned;
                    targets.push(its_target);
                    gone.push(*other);
                }
            }
            if let Some(group) = groups.get(*n).filter(|g| g.members.len() > 1) {
                let names: Vec<&str> = group.members.iter().map(|m| world.name(*m)).collect();
                let detail = format!(
                    "one disk on {} paths, and no multipath map over them: {}",
                    names.len(),
                    names.join(", ")
                );
                let at = format!("disks/{}", world.name(group.first.index));
                warnings.note(&at, Code::MultipathInactive, "paths", &detail);
            }
        }
    }
    let mut n = 0;
    groups.retain(|_| {
        n += 1;
        !gone.contains(&(n - 1))
    });
}

/// Host, channel and target of a SCSI address (`0:0:1:0`): two logical units of one target are no two paths.
fn target_of(address: &str) -> Option<String> {
    let (target, lun) = address.rsplit_once(':')?;
    let number = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    (target.split(':').count() == 3 && target.split(':').chain([lun]).all(number)).then(|| target.to_owned())
}

// === impl World ===

impl World<'_> {
    /// Disks in natural order; the paths under one multipath map are one.
    pub(crate) fn groups(&self, warnings: &mut Warnings) -> Vec<Group> {
        let mut wholes = classify::disks(self.roots, &self.tree, warnings);
        wholes.sort_by(|a, b| natural(self.name(a.index), self.name(b.index)));
        let mut groups: Vec<Group> = Vec::new();
        for whole in wholes {
            let holders = self.tree.get(whole.index).map(|d| d.holders.as_slice()).unwrap_or_default();
            let map = holders.iter().copied().find(|h| self.kinds.get(h) == Some(&StackKind::Mpath));
            let known =
                groups.iter_mut().find(|g| map.is_some() && g.map == map && g.first.size == whole.size);
            match known {
                Some(group) => {
                    group.members.push(whole.index);
                    group.zoned |= whole.zoned;
                }
                None => {
                    let zoned = whole.zoned;
                    groups.push(Group { members: vec![whole.index], first: whole, map, zoned });
                }
            }
        }
        // A map over one path is something that stands on the disk, like any other.
        for group in groups.iter_mut().filter(|g| g.members.len() == 1) {
            group.map = None;
        }
        groups
    }

    pub(crate) fn paths(&self, group: &Group) -> Vec<DiskPath> {
        let name = self.name(group.first.index);
        let nvme = self.nvme_paths.get(name).map(Vec::as_slice).unwrap_or_default();
        let (indexes, nodes) =
            if group.members.len() > 1 { (group.members.as_slice(), true) } else { (nvme, false) };
        if indexes.len() < 2 {
            return Vec::new();
        }
        let one = |i: &usize| {
            let dev = self.tree.get(*i)?;
            Some(DiskPath {
                name: Text::of(&dev.name)?,
                path: nodes.then(|| Text::of(&format!("/dev/{}", dev.node_name()))).flatten(),
                state: self.roots.line(&format!("{}/device/state", dev.dir)).ok().and_then(|s| Text::of(&s)),
            })
        };
        let mut paths: Vec<DiskPath> = indexes.iter().filter_map(one).collect();
        paths.sort_by(|a, b| natural(&a.name, &b.name));
        paths.truncate(MAX_PATHS);
        paths
    }
}
