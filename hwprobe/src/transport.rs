//! How a disk is attached.
//!
//! May touch: sysfs. Must never: guess; `None` when nothing tells.

use crate::blockdev::BlockDev;
use crate::inventory::Transport;
use crate::roots::Roots;
use crate::udevdb::Properties;

/// The transport, by the first source that tells.
pub(crate) fn of(roots: &Roots, dev: &BlockDev, udev: Option<&Properties>) -> Option<Transport> {
    let name = dev.name.as_str();
    if name.starts_with("nvme") {
        return Some(nvme(roots, dev));
    }
    let subsystem = roots.link_name(&format!("{}/device/subsystem", dev.dir)).ok();
    match subsystem.as_deref() {
        Some("virtio") => return Some(Transport::Virtio),
        Some("xen") => return Some(Transport::Xen),
        _ => {}
    }
    let by_name = [
        ("vd", Transport::Virtio),
        ("xvd", Transport::Xen),
        ("dasd", Transport::Dasd),
        ("pmem", Transport::Pmem),
    ];
    if let Some((_, transport)) = by_name.iter().find(|(prefix, _)| name.starts_with(prefix)) {
        return Some(*transport);
    }
    if name.starts_with("mmcblk") {
        let sd = roots.line(&format!("{}/device/type", dev.dir)).is_ok_and(|t| t == "SD");
        return Some(if sd { Transport::Sd } else { Transport::Mmc });
    }
    by_path(roots, dev).or_else(|| by_udev(udev))
}

fn nvme(roots: &Roots, dev: &BlockDev) -> Transport {
    // `device` is the controller, or the subsystem whose controllers are links beside it.
    let device = format!("{}/device", dev.dir);
    let mut found = roots.line(&format!("{device}/transport")).ok();
    if found.is_none() {
        let names = roots.list(&device).unwrap_or_default();
        let controllers = names.iter().filter(|n| n.strip_prefix("nvme").is_some_and(|r| !r.contains('n')));
        found = controllers.filter_map(|n| roots.line(&format!("{device}/{n}/transport")).ok()).next();
    }
    match found.as_deref() {
        Some("tcp") => Transport::NvmeTcp,
        Some("rdma") => Transport::NvmeRdma,
        Some("fc") => Transport::NvmeFc,
        _ => Transport::Nvme,
    }
}

fn by_path(roots: &Roots, dev: &BlockDev) -> Option<Transport> {
    let parts: Vec<&str> = dev.devpath.split('/').collect();
    let numbered = |prefix: &str| {
        let hit =
            |p: &&str| p.strip_prefix(prefix).is_some_and(|r| r.starts_with(|c: char| c.is_ascii_digit()));
        parts.iter().copied().find(hit)
    };
    if numbered("usb").is_some() {
        return Some(Transport::Usb);
    }
    if parts.iter().any(|p| p.starts_with("rport-")) {
        return Some(Transport::Fc);
    }
    if numbered("session").is_some() {
        return Some(Transport::Iscsi);
    }
    if parts.iter().any(|p| p.starts_with("end_device-")) {
        return Some(Transport::Sas);
    }
    let host = numbered("host")?;
    let driver = roots.line(&format!("sys/class/scsi_host/{host}/proc_name")).unwrap_or_default();
    if driver.starts_with("mpt") {
        let address = roots.link_name(&format!("{}/device", dev.dir)).ok();
        if address.is_some_and(|a| roots.stat(&format!("sys/class/raid_devices/{a}")).is_ok()) {
            return Some(Transport::Raid);
        }
    }
    if roots.stat(&format!("sys/class/sas_host/{host}")).is_ok() {
        return Some(Transport::Sas);
    }
    match driver.as_str() {
        "ahci" => Some(Transport::Sata),
        "ata_piix" => Some(Transport::Ata),
        "virtio_scsi" => Some(Transport::Scsi),
        "megaraid_sas" | "hpsa" | "smartpqi" | "aacraid" => Some(Transport::Raid),
        d if d.starts_with("sata_") => Some(Transport::Sata),
        d if d.starts_with("pata_") => Some(Transport::Ata),
        _ => None,
    }
}

fn by_udev(udev: Option<&Properties>) -> Option<Transport> {
    let udev = udev?;
    if udev.text("ID_ATA_SATA") == Some("1") {
        return Some(Transport::Sata);
    }
    match udev.text("ID_BUS")? {
        "ata" => Some(Transport::Ata),
        "usb" => Some(Transport::Usb),
        "scsi" => Some(Transport::Scsi),
        _ => None,
    }
}
