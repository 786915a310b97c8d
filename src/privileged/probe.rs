//! `probe`: disks, DMI, processor, memory. NICs are the agent's own to read: a helper without a network sees none.
//!
//! Reads; writes nothing.

use std::path::Path;

use hwprobe::{MachinePart, Roots};

use crate::join::fault::{Code, Fault};
use crate::paths::Paths;

/// Reads this machine, or the captured tree. Below a root that is not `/`, what is the installation's (release, install record) and a product
/// UUID, when they are there, come from that root: so a whole agent runs under a temporary root on a machine of another kind.
pub(super) fn probe(paths: &Paths, tree: Option<&Path>) -> Result<MachinePart, Fault> {
    let wrong = |error: std::io::Error| Fault::from_error(Code::Local, &error);
    let how = hwprobe::Options::default();
    // Right after the start, and after a disk was plugged in, udev may still be at it.
    let settled = hwprobe::Options { settle: Some(hwprobe::Options::SETTLE), ..how.clone() };
    let mut machine = hwprobe::probe_machine(&roots(tree)?, &settled);
    if !paths.is_system() && tree.is_none() {
        let local = hwprobe::probe_machine(&Roots::under(paths.root()).map_err(wrong)?, &how);
        machine.product_uuid = local.product_uuid.or(machine.product_uuid);
        machine.install_id = local.install_id.or(machine.install_id);
        machine.host.release = local.host.release.or(machine.host.release);
        machine.os_disk_layout = local.os_disk_layout.or(machine.os_disk_layout);
    }
    Ok(machine)
}

/// What is probed: this machine, or a captured tree.
pub fn roots(tree: Option<&Path>) -> Result<Roots, Fault> {
    let roots = match tree {
        Some(dir) => Roots::under(dir),
        None => Roots::live(),
    };
    roots.map_err(|error| Fault::from_error(Code::Local, &error))
}
