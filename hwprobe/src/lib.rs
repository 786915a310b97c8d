//! `hwprobe` answers one question: what is this joiner? Its answer is the [`Inventory`], which the founder checks an
//! approval against.
//!
//! May touch: files below one [`Roots`], AF_NETLINK, libudev, device nodes read-only, `wipefs --no-act` and `udevadm settle`. Must never:
//! write, open a device for writing or exclusively, load a module, set a link up, or send a packet.
//!
//! One rule is above all others: **every doubt about a disk comes out as "holds something" or "mounted"**. A false
//! "blank" destroys data; a false "holds something" costs a typed key.
//!
//! ```no_run
//! let roots = hwprobe::Roots::live()?;
//! let inventory = hwprobe::probe(&roots, &hwprobe::Options::default());
//! println!("{}", serde_json::to_string(&inventory)?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::indexing_slicing))]

use std::sync::Arc;
use std::time::Duration;

mod assemble;
mod blockdev;
mod capture;
mod classify;
mod disks;
mod ends;
mod facts;
mod finding;
#[doc(hidden)]
pub mod fuzzing;
pub mod holds;
mod hypervisor;
mod identity;
mod install_record;
mod inventory;
mod machine;
mod mounts;
mod namer;
mod netcapture;
mod netlink;
mod netsource;
mod nics;
mod order;
mod partitions;
mod paths;
mod recording;
mod redact;
mod roots;
mod settle;
mod stack;
mod system;
pub mod table;
mod text;
mod transport;
mod udevdb;
mod warning;
mod watch;

pub use blockdev::{BlockDev, BlockTree, Dev};
pub use capture::{Capture, Node, capture};
#[doc(hidden)]
pub use ends::ImageEnds;
pub use ends::{Ends, Look, ReadFailure, Target};
pub use finding::{Finding, Missing};
pub use hypervisor::Cpuid;
pub use inventory::{
    CpuVirtualization, Disk, DiskPath, Host, Hypervisor, Inventory, LinkState, MachinePart, NetworkPart, Nic,
    NicKind, NotAssignable, OsDiskLayout, Partition, SerialSource, StackItem, StackKind, Transport,
};
pub use namer::Namer;
#[doc(hidden)]
pub use namer::Wipefs;
pub use netsource::{Addr, Link, NetSource, Route};
pub use roots::Roots;
pub use system::System;
pub use text::{Cleaned, Text};
pub use udevdb::{DeviceDb, Properties};
pub use warning::{Code, Warning};
pub use watch::{Changed, Watch};

/// How to probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Read the ends of disks that look blank. Without it no disk is ever blank: each shows `unreadable`.
    pub read_ends: bool,
    /// Time for one disk, from the moment its read starts. A disk that sleeps can need 10 s to spin up.
    pub read_deadline: Duration,
    /// Time for all of them; what [`Self::settle`] took is taken from it.
    pub read_total: Duration,
    /// Wait so long at most until udev is done with the devices that it knows of, on the running machine. `None`: do not wait.
    pub settle: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            read_ends: true,
            read_deadline: Duration::from_secs(10),
            read_total: Duration::from_secs(60),
            settle: None,
        }
    }
}

/// Where the facts that are no plain files come from.
pub struct Sources {
    /// udev's records.
    pub udev: Box<dyn DeviceDb>,
    /// Links, addresses, routes.
    pub net: Box<dyn NetSource>,
    /// The ends of disks.
    pub ends: Arc<dyn Ends>,
    /// Names for what is found there.
    pub namer: Box<dyn Namer>,
    /// Memory and processor.
    pub system: Box<dyn System>,
}

// === impl Options ===

impl Options {
    /// The wait for udev that a probe of a machine that just started needs: what `udevadm settle` is given.
    pub const SETTLE: Duration = Duration::from_secs(30);
}

// === impl Sources ===

impl Sources {
    /// The sources that belong to `roots`: the running machine's, or files of the captured tree and nothing else.
    #[must_use]
    pub fn of(roots: &Roots) -> Self {
        if roots.is_live() {
            Self {
                udev: Box::new(udevdb::LiveDb::of(roots)),
                net: Box::new(netlink::Netlink),
                ends: Arc::new(ends::LiveEnds(roots.clone())),
                namer: Box::new(namer::Wipefs { dir: "/dev".into() }),
                system: Box::new(system::LiveSystem(roots.clone())),
            }
        } else {
            Self {
                udev: Box::new(udevdb::CapturedDb(roots.clone())),
                net: Box::new(netcapture::NetCapture(roots.clone())),
                ends: Arc::new(ends::CapturedEnds(roots.clone())),
                namer: Box::new(namer::NoNames),
                system: Box::new(system::CapturedSystem(roots.clone())),
            }
        }
    }
}

/// Disks, DMI, processor and memory. Needs root: without it every blank-looking disk is `unreadable`. Takes up to
/// [`Options::read_total`] when disks hang.
#[must_use]
pub fn probe_machine(roots: &Roots, options: &Options) -> MachinePart {
    probe_machine_with(roots, &Sources::of(roots), options)
}

/// [`probe_machine`] with sources of your own.
#[must_use]
pub fn probe_machine_with(roots: &Roots, sources: &Sources, options: &Options) -> MachinePart {
    let mut warnings = warning::Warnings::default();
    let began = std::time::Instant::now();
    if let Some(limit) = options.settle.filter(|_| roots.is_live())
        && let Err(why) = settle::settle(limit)
    {
        let detail = format!("{why}: a disk may be missing, and is then found when udev tells of it");
        warnings.note("", Code::UdevIncomplete, "disks", &detail);
    }
    let left = options.read_total.saturating_sub(began.elapsed());
    let options = &Options { read_total: left, ..options.clone() };
    let machine = machine::probe(roots, sources.system.as_ref(), &mut warnings);
    let record = install_record::read(roots, &mut warnings);
    let disks = disks::probe(roots, sources, options, &mut warnings);
    MachinePart {
        product_uuid: machine.product_uuid,
        install_id: record.install_id,
        host: machine.host,
        cpu_virtualization: machine.cpu_virtualization,
        kvm: machine.kvm,
        hypervisor: machine.hypervisor,
        memory_bytes: machine.memory_bytes,
        os_disk_layout: record.os_disk_layout,
        disks,
        warnings: warnings.into_list(),
    }
}

/// NICs, addresses and routes of the network namespace of the caller. Needs no privilege.
#[must_use]
pub fn probe_network(roots: &Roots, options: &Options) -> NetworkPart {
    probe_network_with(roots, &Sources::of(roots), options)
}

/// [`probe_network`] with sources of your own.
#[must_use]
pub fn probe_network_with(roots: &Roots, sources: &Sources, _options: &Options) -> NetworkPart {
    let mut warnings = warning::Warnings::default();
    let nics = nics::probe(roots, sources, &mut warnings);
    NetworkPart { nics, warnings: warnings.into_list() }
}

/// Both parts, put together.
#[must_use]
pub fn probe(roots: &Roots, options: &Options) -> Inventory {
    Inventory::assemble(probe_machine(roots, options), probe_network(roots, options))
}

/// `VERSION_ID` of os-release(5); `None` when it has none or it is no release.
#[must_use]
pub fn release(roots: &Roots) -> Option<Text<64>> {
    machine::release(roots).ok().and_then(|text| Text::of(&text))
}
