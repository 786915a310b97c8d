//! md arrays and device-mapper devices above a disk.
//!
//! May touch: sysfs. Must never: leave one out that stands on the disk.

use std::collections::BTreeMap;

use crate::blockdev::{BlockDev, BlockTree};
use crate::facts::Facts;
use crate::inventory::{StackItem, StackKind};
use crate::order::natural;
use crate::roots::Roots;
use crate::text::Text;
use crate::warning::Code;

/// Items under one disk.
const MAX_ITEMS: usize = 1024;

/// What a device is, when it is md or device-mapper.
pub(crate) fn kind(roots: &Roots, dev: &BlockDev) -> Option<StackKind> {
    if dev.is_partition() {
        return None;
    }
    if dev.name.starts_with("dm-") || dev.has(roots, "dm") {
        return Some(dm_kind(&roots.line(&format!("{}/dm/uuid", dev.dir)).unwrap_or_default()));
    }
    if dev.name.starts_with("md") || dev.has(roots, "md") {
        let read = |file: &str| roots.line(&format!("{}/md/{file}", dev.dir)).unwrap_or_default();
        return Some(md_kind(&read("level"), &read("metadata_version")));
    }
    None
}

/// The kind behind the prefix of a device-mapper UUID.
fn dm_kind(uuid: &str) -> StackKind {
    if uuid
        .strip_prefix("part")
        .is_some_and(|r| r.trim_start_matches(|c: char| c.is_ascii_digit()).starts_with("-mpath-"))
    {
        return StackKind::MpathPart;
    }
    let prefixes = [
        ("LVM-", StackKind::Lvm),
        ("CRYPT-", StackKind::Crypt),
        ("mpath-", StackKind::Mpath),
        ("DMRAID-", StackKind::Dmraid),
        ("VDO-", StackKind::Vdo),
    ];
    prefixes.iter().find(|(p, _)| uuid.starts_with(p)).map_or(StackKind::Dm, |(_, kind)| *kind)
}

/// `external:<format>` is a container, `external:/<container>/<n>` a volume in one (kernel md.rst).
fn md_kind(level: &str, metadata: &str) -> StackKind {
    let container = metadata.strip_prefix("external:").is_some_and(|format| !format.starts_with('/'));
    match level {
        _ if container => StackKind::Container,
        "container" => StackKind::Container,
        "linear" => StackKind::Linear,
        "raid0" => StackKind::Raid0,
        "raid1" => StackKind::Raid1,
        "raid4" => StackKind::Raid4,
        "raid5" => StackKind::Raid5,
        "raid6" => StackKind::Raid6,
        "raid10" => StackKind::Raid10,
        _ => StackKind::Md,
    }
}

/// Everything stacked on the disk at `index`, farthest first.
pub(crate) fn of(
    tree: &BlockTree,
    index: usize,
    kinds: &BTreeMap<usize, StackKind>,
    own: impl Fn(usize) -> Vec<Text<64>>,
    array_name: impl Fn(usize) -> Option<Vec<u8>>,
    mounts: impl Fn(usize) -> Vec<Text<1024>>,
    facts: &mut Facts<'_>,
) -> Vec<StackItem> {
    let (depths, whole) = tree.depths(index);
    if !whole {
        facts.warnings.note(&facts.at, Code::Invalid, "stack", "the stack is a circle or deeper than 32");
    }
    let mut items: Vec<StackItem> = Vec::new();
    for (above, depth) in depths {
        let (Some(dev), Some(kind)) = (tree.get(above), kinds.get(&above)) else { continue };
        if depth == 0 {
            continue;
        }
        let roots = facts.roots;
        let dm = dev.name.starts_with("dm-");
        let label = roots.read(&format!("{}/dm/name", dev.dir)).ok();
        let label = label.or_else(|| array_name(above)).and_then(|l| facts.text::<128>("stack", &l));
        let path = match &label {
            Some(label) if dm => format!("/dev/mapper/{label}"),
            _ => format!("/dev/{}", dev.node_name()),
        };
        let (Some(name), Some(path)) = (Text::of(&dev.name), Text::of(&path)) else { continue };
        items.push(StackItem {
            name,
            path,
            kind: *kind,
            label,
            size_bytes: roots.number(&format!("{}/size", dev.dir)).unwrap_or(0).saturating_mul(512),
            depth,
            holds: own(above),
            mounts: mounts(above),
        });
    }
    items.sort_by(|a, b| b.depth.cmp(&a.depth).then_with(|| natural(&a.name, &b.name)));
    if items.len() > MAX_ITEMS {
        items.truncate(MAX_ITEMS);
        facts.warnings.note(&facts.at, Code::Truncated, "stack", "");
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_mapper_kinds_come_from_the_uuid() {
        for (uuid, kind) in [
            ("LVM-abc", StackKind::Lvm),
            ("CRYPT-LUKS2-x", StackKind::Crypt),
            ("mpath-3600", StackKind::Mpath),
            ("part12-mpath-3600", StackKind::MpathPart),
            ("part-x", StackKind::Dm),
            ("", StackKind::Dm),
        ] {
            assert_eq!(dm_kind(uuid), kind, "{uuid}");
        }
    }

    #[test]
    fn a_container_is_told_from_its_volume() {
        assert_eq!(md_kind("", "external:imsm"), StackKind::Container);
        assert_eq!(md_kind("raid1", "external:/md127/0"), StackKind::Raid1);
        assert_eq!(md_kind("", "1.2"), StackKind::Md);
    }
}
