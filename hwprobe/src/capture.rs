//! A copy of what the probe reads of a machine, in the layout that [`Roots::under`] takes: a report from the field becomes a fixture.
//!
//! May touch: what the probe touches; it is run once, with a recorder in its `Roots`. Must never: write, read a disk, or keep more of the
//! install record than the two keys that the probe reads.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::OFlags;
use serde_json::{Value, json};

use crate::blockdev::{BlockDev, Dev};
use crate::ends::{Ends, Look, ReadFailure, Target};
use crate::finding::{Finding, Missing};
use crate::netsource::{Addr, Link, NetSource, Route};
use crate::recording::{Recording, UNREADABLE};
use crate::redact::Redactor;
use crate::roots::Roots;
use crate::system::{META, Meta};
use crate::udevdb::{DeviceDb, Properties};
use crate::{Inventory, Options, Sources, install_record, probe_machine_with, probe_network_with};

/// One entry of a captured tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// A directory that may be empty.
    Dir,
    /// A file. One that could not be read is empty.
    File(Vec<u8>),
    /// A symbolic link.
    Link(String),
}

/// A captured machine.
#[derive(Clone, Debug)]
pub struct Capture {
    /// The tree by path, relative to its root. No path leaves it. Directories that hold something are not listed.
    pub tree: BTreeMap<String, Node>,
    /// [`Inventory::digest`] that the tree gives again; `None` when it was redacted.
    pub digest: Option<[u8; 32]>,
    /// Files that could not be read.
    pub unreadable: usize,
}

/// Captures the machine, or the tree, at `roots`. No disk is read: the copy is judged by everything but the ends of the disks. With `redact`
/// serial numbers, WWNs, MAC addresses, the product UUID and the host name are replaced by others of the same shape, the same everywhere.
#[must_use]
pub fn capture(roots: &Roots, redact: bool) -> Capture {
    let recording = Arc::new(Recording::default());
    let recorded = roots.recorded(&recording);
    let told = Arc::new(Told::default());
    let mut sources = Sources::of(&recorded);
    sources.ends = Arc::new(NotRead);
    if roots.is_live() {
        sources.udev = Box::new(ToldDb(sources.udev, Arc::clone(&told)));
        sources.net = Box::new(ToldNet(sources.net, Arc::clone(&told)));
    }
    let options = Options::default();
    let inventory = Inventory::assemble(
        probe_machine_with(&recorded, &sources, &options),
        probe_network_with(&recorded, &sources, &options),
    );
    let (mut tree, mut missing) = recording.tree(roots);
    if roots.is_live() {
        told.add_to(&mut tree, roots);
        let meta = Meta {
            architecture: inventory.host.architecture.as_ref().map(ToString::to_string),
            kernel: inventory.host.kernel.as_ref().map(ToString::to_string),
            probe: Some(env!("CARGO_PKG_VERSION").to_owned()),
            cpuid: sources.system.cpuid(),
        };
        put_json(&mut tree, META, &meta);
        // A kernel without swap has no such file; a tree without it does not say so.
        tree.entry("proc/swaps".to_owned())
            .or_insert_with(|| Node::File(b"Filename\tType\tSize\tUsed\tPriority\n".to_vec()));
    }
    if let Some(Node::File(record)) = tree.get_mut(install_record::PATH) {
        *record = install_record::only_ours(record);
    }
    let unreadable = missing.len();
    let mut digest = Some(inventory.digest());
    if redact {
        let redactor = Redactor::of(&inventory, &tree);
        tree =
            tree.into_iter().map(|(path, node)| (redactor.path(&path), redactor.node(&path, node))).collect();
        missing = missing.into_iter().map(|(path, why)| (redactor.path(&path), why)).collect();
        digest = None;
    }
    if !missing.is_empty() {
        put_json(&mut tree, UNREADABLE, &missing);
    }
    close(&mut tree);
    Capture { tree, digest, unreadable }
}

/// Takes out what lies below a file or a link, and directories that hold something: each path can then be made as it is.
fn close(tree: &mut BTreeMap<String, Node>) {
    let above = |path: &str| -> Vec<String> {
        path.char_indices()
            .filter(|(_, c)| *c == '/')
            .filter_map(|(n, _)| path.get(..n))
            .map(str::to_owned)
            .collect()
    };
    let all: Vec<String> = tree.keys().cloned().collect();
    for path in all {
        for up in above(&path) {
            match tree.get(&up) {
                Some(Node::Link(_)) => drop(tree.remove(&path)),
                // A directory that could not be listed, and something in it that was there all the same.
                Some(Node::Dir | Node::File(_)) => drop(tree.remove(&up)),
                None => {}
            }
        }
    }
}

fn put_json(tree: &mut BTreeMap<String, Node>, path: &str, value: &impl serde::Serialize) {
    let mut text = serde_json::to_vec_pretty(value).expect("plain data always becomes JSON");
    text.push(b'\n');
    tree.insert(path.to_owned(), Node::File(text));
}

/// Ends that nobody reads, as in a tree without them.
struct NotRead;

impl Ends for NotRead {
    fn look(&self, _target: &Target) -> Result<Look, ReadFailure> {
        Err(ReadFailure { missing: Missing::NotCaptured, what: "not captured".to_owned() })
    }
}

/// What the sources said that are no files.
#[derive(Default)]
struct Told {
    udev: Mutex<BTreeMap<Dev, Properties>>,
    links: Mutex<Option<Vec<Link>>>,
    addresses: Mutex<Option<Vec<Addr>>>,
    routes: Mutex<Option<Vec<Route>>>,
}

/// Writes down what udev says.
struct ToldDb(Box<dyn DeviceDb>, Arc<Told>);

/// Writes down what the kernel says of the network.
struct ToldNet(Box<dyn NetSource>, Arc<Told>);

impl DeviceDb for ToldDb {
    fn properties(&self, dev: &BlockDev) -> Option<Properties> {
        let found = self.0.properties(dev)?;
        if let Some(number) = dev.dev {
            lock(&self.1.udev).insert(number, found.clone());
        }
        Some(found)
    }
}

impl NetSource for ToldNet {
    fn links(&self) -> Finding<Vec<Link>> {
        let found = self.0.links()?;
        *lock(&self.1.links) = Some(found.clone());
        Ok(found)
    }

    fn addresses(&self) -> Finding<Vec<Addr>> {
        let found = self.0.addresses()?;
        *lock(&self.1.addresses) = Some(found.clone());
        Ok(found)
    }

    fn routes(&self) -> Finding<Vec<Route>> {
        let found = self.0.routes()?;
        *lock(&self.1.routes) = Some(found.clone());
        Ok(found)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl Told ===

impl Told {
    fn add_to(&self, tree: &mut BTreeMap<String, Node>, roots: &Roots) {
        // A link that udev knows and /dev has not counts for nothing here, and must not in the copy.
        let there = |link: &str| {
            !link.starts_with("/dev/disk/") || roots.open(link.trim_start_matches('/'), OFlags::PATH).is_ok()
        };
        for ((major, minor), record) in lock(&self.udev).iter() {
            tree.insert(format!("run/udev/data/b{major}:{minor}"), Node::File(record.to_record(there)));
        }
        let (links, addresses, routes) = (lock(&self.links), lock(&self.addresses), lock(&self.routes));
        if let Some(links) = links.as_deref() {
            put_json(tree, "capture/ip-addr.json", &ip_addr(links, addresses.as_deref()));
            if let Some(routes) = routes.as_deref() {
                put_json(tree, "capture/ip-route.json", &ip_route(links, routes));
            }
        }
    }
}

fn name_of(links: &[Link], index: u32) -> Option<&str> {
    links.iter().find(|l| l.index == index).map(|l| l.name.as_str())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(":")
}

/// As `ip -j -d addr show`, with the keys that we read. Without `addresses` nobody could ask for them.
fn ip_addr(links: &[Link], addresses: Option<&[Addr]>) -> Value {
    let one = |link: &Link| {
        let mut out = json!({ "ifindex": link.index, "ifname": link.name, "flags": [] });
        let mut set =
            |key: &str, value: Value| drop(out.as_object_mut().map(|o| o.insert(key.to_owned(), value)));
        if link.up {
            set("flags", json!(["UP"]));
        }
        match link.arp_type {
            Some(1) => set("link_type", json!("ether")),
            Some(32) => set("link_type", json!("infiniband")),
            Some(772) => set("link_type", json!("loopback")),
            _ => {}
        }
        if let Some(mtu) = link.mtu {
            set("mtu", json!(mtu));
        }
        if !link.address.is_empty() {
            set("address", json!(hex(&link.address)));
        }
        if !link.permanent.is_empty() {
            set("permaddr", json!(hex(&link.permanent)));
        }
        if !link.alt_names.is_empty() {
            set("altnames", json!(link.alt_names));
        }
        if let Some(kind) = &link.kind {
            set("linkinfo", json!({ "info_kind": kind }));
        }
        if let Some(master) = link.master.and_then(|m| name_of(links, m)) {
            set("master", json!(master));
        }
        if let Some(lower) = link.lower {
            set("link_index", json!(lower));
        }
        if let Some(addresses) = addresses {
            let mine = addresses.iter().filter(|a| a.index == link.index);
            let family = |a: &Addr| if a.address.is_ipv4() { "inet" } else { "inet6" };
            let mine =
                mine.map(|a| json!({ "family": family(a), "local": a.address, "prefixlen": a.prefix }));
            set("addr_info", Value::Array(mine.collect()));
        }
        out
    };
    Value::Array(links.iter().map(one).collect())
}

/// As `ip -j -N -d route show table main`, with the keys that we read.
fn ip_route(links: &[Link], routes: &[Route]) -> Value {
    let one = |route: &Route| {
        let dst = match (route.destination, route.prefix) {
            (None, _) => "default".to_owned(),
            (Some(ip), prefix) => format!("{ip}/{prefix}"),
        };
        let kind = if route.unicast { "1" } else { "0" };
        let mut out = json!({ "type": kind, "dst": dst, "table": route.table.to_string() });
        let hops: Vec<&str> = route.devices.iter().filter_map(|d| name_of(links, *d)).collect();
        let mut set =
            |key: &str, value: Value| drop(out.as_object_mut().map(|o| o.insert(key.to_owned(), value)));
        match hops.as_slice() {
            [one] => set("dev", json!(one)),
            [] if route.nexthop_object => set("nhid", json!(1)),
            hops => set("nexthops", hops.iter().map(|dev| json!({ "dev": dev })).collect()),
        }
        out
    };
    Value::Array(routes.iter().map(one).collect())
}
