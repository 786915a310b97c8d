//! The disks of the machine: puts together what the other modules find.
//!
//! May touch: what the modules it calls may touch. Must never: decide what is blank ([`crate::holds`] does) or what may
//! be assigned ([`crate::Inventory::assemble`] does).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Instant;

use crate::blockdev::{BlockDev, BlockTree, Dev};
use crate::classify;
use crate::ends::{self, Target};
use crate::facts::{Facts, collapse};
use crate::finding::{Finding, Missing};
use crate::holds::{self, DiskFacts, EndsAnswer, Token};
use crate::identity::{self, NvmeNames};
use crate::inventory::{Disk, NotAssignable, StackKind, Transport};
use crate::mounts::{MountMap, UNKNOWN};
use crate::order::natural;
use crate::partitions;
use crate::paths::{self, Group};
use crate::roots::Roots;
use crate::text::Text;
use crate::udevdb::Properties;
use crate::warning::{Code, Warnings};
use crate::{Options, Sources, stack, transport};

/// Disks of one machine.
const MAX_DISKS: usize = 4096;
/// Mount points of one disk.
const MAX_MOUNTS: usize = 64;
/// Table types by which `wipefs` names a partition table.
const TABLES: [&str; 8] = ["gpt", "dos", "sun", "sgi", "bsd", "mac", "dasd", "atari"];

/// Everything that is known before the disks are looked at one by one.
pub(crate) struct World<'a> {
    pub(crate) roots: &'a Roots,
    pub(crate) tree: BlockTree,
    pub(crate) udev: Vec<Option<Properties>>,
    pub(crate) mounts: MountMap,
    pub(crate) kinds: BTreeMap<usize, StackKind>,
    /// Hidden NVMe paths by the name of their namespace.
    pub(crate) nvme_paths: HashMap<String, Vec<usize>>,
    /// Namespaces by the number of their subsystem (or controller).
    namespaces: HashMap<String, usize>,
}

/// All disks of the machine.
pub(crate) fn probe(
    roots: &Roots,
    sources: &Sources,
    options: &Options,
    warnings: &mut Warnings,
) -> Vec<Disk> {
    let Some(tree) = BlockTree::read(roots, warnings) else { return Vec::new() };
    let udev: Vec<Option<Properties>> = tree.devs.iter().map(|d| sources.udev.properties(d)).collect();
    let mounts = MountMap::read(roots, &tree, &udev, warnings);
    let kind = |(i, d): (usize, &BlockDev)| Some((i, stack::kind(roots, d)?));
    let kinds = tree.devs.iter().enumerate().filter_map(kind).collect();
    let mut nvme_paths: HashMap<String, Vec<usize>> = HashMap::new();
    let mut namespaces: HashMap<String, usize> = HashMap::new();
    for (index, dev) in tree.devs.iter().enumerate().filter(|(_, d)| !d.is_partition()) {
        if let Some(of) = classify::nvme_path_of(&dev.name) {
            nvme_paths.entry(of).or_default().push(index);
        } else if let Some(subsystem) = subsystem_of(&dev.name) {
            *namespaces.entry(subsystem.to_owned()).or_default() += 1;
        }
    }
    let world = World { roots, tree, udev, mounts, kinds, nvme_paths, namespaces };
    let mut groups = world.groups(warnings);
    if groups.len() > MAX_DISKS {
        groups.truncate(MAX_DISKS);
        warnings.note("", Code::Truncated, "disks", "more than 4,096 disks");
    }
    let began = Instant::now();
    paths::fold(&world, &mut groups, sources, options, warnings);
    // Both read disks, within one time.
    let left = options.read_total.saturating_sub(began.elapsed());
    let options = &Options { read_total: left, ..options.clone() };
    let mut links: Vec<(String, identity::Links)> = groups.iter().map(|g| world.links(g)).collect();
    identity::drop_shared_links(&mut links, warnings);
    let mut disks: Vec<(Disk, DiskFacts)> = Vec::new();
    for (group, (_, links)) in groups.iter().zip(&links) {
        disks.extend(world.disk(group, links, warnings).map(|disk| {
            let facts = world.disk_facts(group, &disk);
            (disk, facts)
        }));
    }
    look(&world, &groups, &mut disks, sources, options, warnings);
    let mut disks: Vec<Disk> = disks
        .into_iter()
        .map(|(mut disk, facts)| {
            disk.holds = holds::decide(&facts);
            if let (None, EndsAnswer::Data(names)) = (&disk.partition_table, &facts.ends) {
                disk.partition_table = names.iter().find(|n| TABLES.contains(&n.as_str())).cloned();
            }
            disk
        })
        .collect();
    identity::settle_shared(&mut disks, warnings);
    for disk in &disks {
        if disk.keys.is_empty() && !disk.not_assignable.contains(&NotAssignable::DuplicateIdentity) {
            no_key(disk, warnings);
        }
    }
    disks
}

/// Reads the ends of every disk that looks blank so far, and keeps what was seen in its facts.
fn look(
    world: &World<'_>,
    groups: &[Group],
    disks: &mut [(Disk, DiskFacts)],
    sources: &Sources,
    options: &Options,
    warnings: &mut Warnings,
) {
    let mut asked: Vec<usize> = Vec::new();
    let mut targets: Vec<Target> = Vec::new();
    let by_name: HashMap<&str, &Group> = groups.iter().map(|g| (world.name(g.first.index), g)).collect();
    for (n, (disk, facts)) in disks.iter().enumerate() {
        if !holds::needs_ends(facts) {
            continue;
        }
        if !options.read_ends {
            warnings.note(
                &format!("disks/{}", disk.name),
                Missing::NotSupported,
                "holds",
                "the disk was not read",
            );
            continue;
        }
        let group = by_name.get(disk.name.as_str());
        let node = group.map(|g| g.map.unwrap_or(g.first.index)).and_then(|i| world.tree.get(i));
        if let Some(node) = node {
            asked.push(n);
            targets.push(Target { node: node.node_name(), dev: node.dev, size: disk.size_bytes });
        }
    }
    let nodes: Vec<String> = targets.iter().map(|t| t.node.clone()).collect();
    let began = Instant::now();
    let answers = ends::look_at_all(&sources.ends, targets, options.read_deadline, options.read_total);
    for ((n, node), answer) in asked.into_iter().zip(nodes).zip(answers) {
        let Some((disk, facts)) = disks.get_mut(n) else { continue };
        let at = format!("disks/{}", disk.name);
        facts.ends = match answer {
            Ok(look) if look.all_zero => EndsAnswer::AllZero,
            // A name is worth no wait beyond the time of the whole: the disk holds data with or without one.
            Ok(_) if began.elapsed() > options.read_total => EndsAnswer::Data(Vec::new()),
            Ok(_) => EndsAnswer::Data(sources.namer.names(&node)),
            Err(failure) if failure.missing == Missing::NotCaptured => {
                warnings.note(
                    &at,
                    Missing::NotCaptured,
                    "holds",
                    "the ends of the disk are not in the captured tree",
                );
                EndsAnswer::NotCaptured
            }
            Err(failure) => {
                let detail = format!("the disk cannot be read: {}", failure.what);
                warnings.note(&at, Code::Unreadable, "holds", &detail);
                if failure.missing == Missing::Timeout {
                    warnings.note(&at, Missing::Timeout, "holds", &failure.what);
                }
                EndsAnswer::Unreadable
            }
        };
    }
}

// === impl World ===

impl World<'_> {
    pub(crate) fn name(&self, index: usize) -> &str {
        self.tree.get(index).map_or("", |d| d.name.as_str())
    }

    pub(crate) fn props(&self, index: usize) -> Option<&Properties> {
        self.udev.get(index).and_then(Option::as_ref)
    }

    fn links(&self, group: &Group) -> (String, identity::Links) {
        let numbers: Vec<Dev> = group.same().filter_map(|i| self.tree.get(i)?.dev).collect();
        let mut all = identity::Links::default();
        for index in group.same() {
            let links = identity::links(self.roots, &numbers, self.props(index));
            all.by_id.extend(links.by_id);
            all.by_path.extend(links.by_path);
            all.claimed.extend(links.claimed);
        }
        for list in [&mut all.by_id, &mut all.by_path, &mut all.claimed] {
            list.sort_unstable();
            list.dedup();
        }
        (self.name(group.first.index).to_owned(), all)
    }

    /// Everything above any path of the disk, itself included.
    fn above(&self, group: &Group) -> Vec<usize> {
        let all: BTreeSet<usize> =
            group.members.iter().flat_map(|m| self.tree.above(*m, &self.mounts.loops)).collect();
        all.into_iter().collect()
    }

    /// Mount points of the devices at `indexes`; `[UNKNOWN]` when that cannot be told.
    fn mount_points(&self, indexes: &[usize], facts: &mut Facts<'_>) -> Vec<Text<1024>> {
        let mut points: Vec<Text<1024>> = self
            .mounts
            .of(indexes)
            .iter()
            .filter_map(|p| facts.text("mounts", p).or_else(|| Text::of(UNKNOWN)))
            .collect();
        if self.mounts.doubt || indexes.iter().any(|i| self.tree.get(*i).is_some_and(|d| d.doubt)) {
            points.extend(Text::of(UNKNOWN));
        }
        points.sort_unstable();
        points.dedup();
        if points.len() > MAX_MOUNTS {
            points.truncate(MAX_MOUNTS);
            facts.warnings.note(&facts.at, Code::Truncated, "mounts", "");
        }
        points
    }

    /// The device's own signatures as udev tells them, and whether there were several at one place.
    pub(crate) fn signatures(&self, index: usize) -> (Vec<Token>, bool) {
        let Some(props) = self.props(index) else { return (Vec::new(), false) };
        if let Some(name) = props.bytes("ID_FS_TYPE").and_then(Text::from_bytes) {
            return (vec![name.text], false);
        }
        let Some(list) = props.text("ID_FS_AMBIVALENT") else { return (Vec::new(), false) };
        let middle = |item: &str| Text::of(item.split(':').nth(1).unwrap_or(item));
        (list.split_ascii_whitespace().filter_map(middle).collect(), true)
    }

    fn disk(&self, group: &Group, links: &identity::Links, warnings: &mut Warnings) -> Option<Disk> {
        let index = group.first.index;
        let dev = self.tree.get(index)?;
        let udev = self.props(index);
        let mut facts = Facts::new(self.roots, format!("disks/{}", dev.name), warnings);
        if udev.is_none() {
            let detail =
                "udev has no record of this disk: what it holds is told by the kernel and its ends alone";
            facts.warnings.note(&facts.at, Code::UdevIncomplete, "holds", detail);
        }
        let file = |file: &str| format!("{}/{file}", dev.dir);
        let wwn = identity::wwn(self.roots, dev, udev);
        let serial = identity::serial(&mut facts, dev, udev, wwn.as_deref().ok());
        let serial = facts.keep("serial", serial);
        let wwn = facts.keep("wwn", wwn).and_then(|w| facts.text("wwn", w.as_bytes()));
        // The product name of a card's or an eMMC's CID (drivers/mmc/core); udev has it, too, with `_` for what is no letter.
        let card = dev.name.starts_with("mmcblk").then(|| self.roots.read(&file("device/name")).ok());
        let card = card.flatten().and_then(|name| facts.text("model", &collapse(&name)));
        let model = card.ok_or(Missing::Absent).or_else(|_| {
            self.label(&mut facts, udev, "model", &["ID_MODEL_ENC", "ID_MODEL"], &file("device/model"))
        });
        let model = facts.keep("model", model);
        // A virtio device's `vendor` is a PCI number, not a name.
        let vendor =
            self.label(&mut facts, udev, "vendor", &["ID_VENDOR_ENC", "ID_VENDOR"], &file("device/vendor"));
        let vendor = vendor.and_then(|v| {
            let none = ["ATA", "NVMe"].contains(&v.as_str()) || v.starts_with("0x");
            if none { Err(Missing::Absent) } else { Ok(v) }
        });
        let vendor = facts.keep("vendor", vendor);
        let block = |name: &str| {
            let size = self.roots.number(&file(&format!("queue/{name}")))?;
            let right = size.is_power_of_two() && (512..=1 << 20).contains(&size);
            u32::try_from(size).ok().filter(|_| right).ok_or(Missing::Invalid)
        };
        let logical = facts.keep("logicalBlockSize", block("logical_block_size"));
        let physical = facts.keep("physicalBlockSize", block("physical_block_size"));
        let rotational = self.roots.number(&file("queue/rotational")).map(|r| r == 1);
        let rotational = facts.keep("rotational", rotational);
        let transport = transport::of(self.roots, dev, udev);
        let transport = facts.keep("transport", transport.ok_or(Missing::Absent));
        let removable = self.any(group, "removable");
        let mut not_assignable = Vec::new();
        if group.zoned {
            not_assignable.push(NotAssignable::HostManagedZoned);
        }
        let above = self.above(group);
        let table = group.same().find_map(|i| self.props(i)?.bytes("ID_PART_TABLE_TYPE")).map(<[u8]>::to_vec);
        let table = table.and_then(|t| facts.text::<64>("partitionTable", &t));
        let (own, ambivalent) = self.signatures(index);
        if ambivalent {
            facts.warnings.note(&facts.at, Code::Ambivalent, "holds", "two signatures at one place");
        }
        let phantom = udev.is_some() && table.is_none() && own.iter().any(|o| o != "mpath_member");
        let mut partitions = self.partitions(index, &mut facts);
        if phantom && !partitions.is_empty() {
            let names: Vec<&str> = partitions.iter().map(|p| p.name.as_str()).collect();
            let detail = format!("not trusted, the disk has no partition table: {}", names.join(", "));
            facts.warnings.note(&facts.at, Code::PhantomPartitions, "partitions", &detail);
            partitions.clear();
        }
        // A partition whose extents are not known can be the last one. Those of a multipath disk that only its map shows are such.
        let mapped = |above: &usize| self.kinds.get(above) == Some(&StackKind::MpathPart);
        let of_the_map =
            group.map.and_then(|map| self.tree.get(map)).into_iter().flat_map(|map| &map.holders);
        let all_known = partitions.len() == dev.partitions.len()
            && of_the_map.filter(|a| mapped(a)).count() <= partitions.len();
        let tail_free_bytes = table
            .as_ref()
            .filter(|_| all_known)
            .map(|t| partitions::tail_free(t, group.first.size, logical, &partitions));
        // A partition table on an array is something, too; udev copies a disk's down to its partitions only.
        let own_of = |i: usize| {
            let table = self.props(i).and_then(|p| p.bytes("ID_PART_TABLE_TYPE")).filter(|_| !mapped(&i));
            let table = table.and_then(Text::from_bytes).map(|clean| clean.text);
            table.into_iter().chain(self.signatures(i).0).collect()
        };
        let quiet = |i: usize| {
            let mut scratch = Warnings::default();
            self.mount_points(
                &self.tree.above(i, &self.mounts.loops),
                &mut Facts::new(self.roots, String::new(), &mut scratch),
            )
        };
        let array = |i: usize| {
            let props = self.props(i)?;
            props.bytes("MD_DEVNAME").or_else(|| props.bytes("MD_NAME")).map(<[u8]>::to_vec)
        };
        let mut stack = Vec::new();
        for member in &group.members {
            for item in stack::of(&self.tree, *member, &self.kinds, own_of, array, quiet, &mut facts) {
                if !stack.contains(&item) {
                    stack.push(item);
                }
            }
        }
        stack.sort_by(|a, b| b.depth.cmp(&a.depth).then_with(|| natural(&a.name, &b.name)));
        let mounts = self.mount_points(&above, &mut facts);
        let mut disk = Disk {
            name: Text::of(&dev.name)?,
            path: Text::of(&format!("/dev/{}", dev.node_name()))?,
            by_id: Vec::new(),
            by_path: Vec::new(),
            keys: Vec::new(),
            wwn,
            model,
            vendor,
            serial,
            size_bytes: group.first.size,
            logical_block_size: logical,
            physical_block_size: physical,
            rotational,
            transport,
            removable: removable || matches!(transport, Some(Transport::Usb | Transport::Sd)),
            read_only: self.any(group, "ro"),
            mounts,
            holds: Vec::new(),
            partition_table: table,
            partitions,
            tail_free_bytes,
            stack,
            paths: self.paths(group),
            not_assignable,
        };
        identity::fill_keys(&mut disk, links, self.nvme_names(&dev.name), &mut facts);
        Some(disk)
    }

    /// Whether a flag is set on any path.
    fn any(&self, group: &Group, flag: &str) -> bool {
        let dirs = group.members.iter().filter_map(|m| self.tree.get(*m)).map(|d| &d.dir);
        dirs.into_iter().any(|dir| self.roots.number(&format!("{dir}/{flag}")) == Ok(1))
    }

    /// A name in udev's encoded form, its plain form, or sysfs.
    fn label(
        &self,
        facts: &mut Facts<'_>,
        udev: Option<&Properties>,
        fact: &str,
        [encoded, plain]: &[&str; 2],
        file: &str,
    ) -> Finding<Text<64>> {
        let sources =
            [udev.and_then(|p| p.decoded(encoded)), udev.and_then(|p| p.bytes(plain)).map(<[u8]>::to_vec)];
        for bytes in sources.into_iter().flatten() {
            if let Some(text) = facts.text(fact, &collapse(&bytes)) {
                return Ok(text);
            }
        }
        let bytes = self.roots.read(file)?;
        facts.text(fact, &collapse(&bytes)).ok_or(Missing::Absent)
    }

    fn partitions(&self, index: usize, facts: &mut Facts<'_>) -> Vec<crate::inventory::Partition> {
        let indexes = self.tree.get(index).map(|d| d.partitions.as_slice()).unwrap_or_default();
        let one = |i: &usize| {
            let dev = self.tree.get(*i)?;
            let mounts = self.mount_points(&self.tree.above(*i, &self.mounts.loops), facts);
            partitions::one(self.roots, dev, self.props(*i), self.signatures(*i).0, mounts, facts)
        };
        let mut list: Vec<_> = indexes.iter().filter_map(one).collect();
        list.sort_by_key(|p| p.number);
        if list.len() > partitions::MAX {
            list.truncate(partitions::MAX);
            facts.warnings.note(&facts.at, Code::Truncated, "partitions", "");
        }
        list
    }

    /// What the blank decision is made from; over every path and the map.
    fn disk_facts(&self, group: &Group, disk: &Disk) -> DiskFacts {
        let mut facts = DiskFacts {
            udev: group.members.iter().all(|m| self.props(*m).is_some()),
            table: disk.partition_table.clone(),
            mounted: !disk.mounts.is_empty(),
            ..DiskFacts::default()
        };
        for index in group.same() {
            let Some(dev) = self.tree.get(index) else { continue };
            facts.own.extend(self.signatures(index).0);
            facts.kernel_partitions |= !dev.partitions.is_empty();
            facts.holders |= dev.doubt;
            for above in &dev.holders {
                if self.kinds.get(above) == Some(&StackKind::MpathPart) {
                    // The partitions of a multipath disk, as the map shows them.
                    facts.kernel_partitions = true;
                    facts.partitions.push(self.signatures(*above).0);
                    facts.holders |= self.tree.get(*above).is_some_and(|d| !d.holders.is_empty());
                } else if Some(*above) != group.map {
                    facts.holders = true;
                }
            }
            for partition in dev.partitions.iter().filter_map(|p| self.tree.get(*p)) {
                facts.holders |= partition.doubt || !partition.holders.is_empty();
            }
            let mut numbered: Vec<usize> = dev.partitions.clone();
            numbered.sort_by_key(|p| self.tree.get(*p).map_or(0, |d| d.number));
            // Signatures of partitions that are not trusted count too: every doubt holds.
            facts.partitions.extend(numbered.into_iter().map(|p| self.signatures(p).0));
        }
        facts
    }

    /// Whether the subsystem (or controller) of an NVMe disk has more than one namespace.
    fn nvme_names(&self, name: &str) -> NvmeNames {
        let others = subsystem_of(name).and_then(|s| self.namespaces.get(s));
        if others.is_some_and(|n| *n > 1) { NvmeNames::Several } else { NvmeNames::One }
    }
}

/// `0` of `nvme0n1`.
fn subsystem_of(name: &str) -> Option<&str> {
    name.strip_prefix("nvme").and_then(|rest| rest.split_once('n')).map(|(subsystem, _)| subsystem)
}

/// Says what a person can do about a disk without a key.
fn no_key(disk: &Disk, warnings: &mut Warnings) {
    let detail = match disk.transport {
        Some(Transport::Virtio | Transport::Xen) => {
            "no WWN and no /dev/disk/by-id link: give the disk a serial in the hypervisor"
        }
        _ => "no WWN and no /dev/disk/by-id link: the disk cannot be addressed",
    };
    warnings.replace_detail(&format!("disks/{}", disk.name), Code::Absent, "keys", detail);
}
