//! The inventory as the ready-made texts of the snapshot. Pure.

use std::net::IpAddr;

use console::snapshot as shown;
use console::text::Safe;
use hwprobe::{Disk, Inventory, LinkState, Nic};

/// What of the hardware is shown.
#[derive(Debug, Clone, Default)]
pub struct Machine {
    /// Host name, serial, vendor, model, release.
    pub machine: shown::Machine,
    /// Chassis, CPU, memory, summary, disks.
    pub hardware: shown::Hardware,
    /// NICs with the one that carries the route to the founder first.
    pub nics: Vec<shown::Nic>,
    /// Whether the first NIC of `nics` is known to carry that route.
    pub has_primary: bool,
}

// === impl Machine ===

impl Machine {
    /// From the inventory; `local` is our address towards the founder, when the kernel has a route.
    pub fn of(inventory: &Inventory, local: Option<IpAddr>) -> Self {
        let host = &inventory.host;
        let text = |t: Option<&str>| t.map(Safe::clean);
        let machine = shown::Machine {
            hostname: text(host.hostname.as_ref().map(|t| t.as_str())),
            serial: text(host.serial.as_ref().map(|t| t.as_str())),
            vendor: text(host.manufacturer.as_ref().map(|t| t.as_str())),
            model: text(host.product.as_ref().map(|t| t.as_str())),
            release: text(host.release.as_ref().map(|t| t.as_str())),
        };
        let cpus = host.cpu_count.map_or("? cores".to_owned(), |n| plural(u64::from(n), "core"));
        let memory = inventory.memory_bytes.map_or("? memory".to_owned(), size);
        let cpu_model = host.cpu_model.as_ref().map_or("CPU", |t| t.as_str());
        let flag = serde_json::to_value(inventory.cpu_virtualization).unwrap_or_default();
        let flag = flag.as_str().filter(|f| !f.is_empty()).map_or(String::new(), |f| format!(", {f}"));
        let (disks, nics) = (inventory.disks.len() as u64, inventory.nics.len() as u64);
        let hardware = shown::Hardware {
            chassis: Safe::clean(
                [host.manufacturer.as_ref().map(|t| t.as_str()), host.product.as_ref().map(|t| t.as_str())]
                    .into_iter()
                    .flatten()
                    .collect::<Vec<_>>()
                    .join(" "),
            ),
            cpu: Safe::clean(format!("{cpu_model}, {cpus}{flag}")),
            memory: Safe::clean(&memory),
            summary: Safe::clean(format!(
                "{cpus}, {memory}, {}, {}",
                plural(disks, "disk"),
                plural(nics, "NIC")
            )),
            disks: inventory.disks.iter().map(disk).collect(),
        };
        let mut nics: Vec<&Nic> = inventory.nics.iter().collect();
        let carries = |nic: &Nic| local.is_some_and(|local| has_address(nic, local));
        let rank = |nic: &Nic| {
            let addressed = addresses(nic).next().is_some();
            (!carries(nic), !addressed, nic.link != LinkState::Up)
        };
        nics.sort_by_key(|nic| rank(nic));
        let has_primary = nics.first().is_some_and(|nic| carries(nic));
        let nics = nics.into_iter().map(|n| self::nic(n, local)).collect();
        Self { machine, hardware, nics, has_primary }
    }
}

fn has_address(nic: &Nic, local: IpAddr) -> bool {
    addresses(nic).any(|cidr| address_of(cidr) == Some(local))
}

/// As CIDR, those of IPv4 first.
fn addresses(nic: &Nic) -> impl Iterator<Item = &str> {
    let v4 = nic.ipv4.iter().flatten().map(|t| t.as_str());
    v4.chain(nic.ipv6.iter().flatten().map(|t| t.as_str()))
}

fn address_of(cidr: &str) -> Option<IpAddr> {
    cidr.split('/').next().and_then(|a| a.parse().ok())
}

fn nic(nic: &Nic, local: Option<IpAddr>) -> shown::Nic {
    let own = |cidr: &&str| local.is_some() && address_of(cidr) == local;
    let all: Vec<&str> = addresses(nic).collect();
    let address = all.iter().find(|c| own(c)).or(all.first()).map(Safe::clean);
    shown::Nic {
        nic: Safe::clean(nic.name.as_str()),
        mac: Safe::clean(nic.mac.as_ref().map_or("", |m| m.as_str())),
        address,
        source: shown::AddressSource::Unknown,
        link: match nic.link {
            LinkState::Up => shown::Link::Up,
            LinkState::Down => shown::Link::Down,
            LinkState::Unknown => shown::Link::Unknown,
        },
        speed_mbps: nic.speed_mbps,
    }
}

fn disk(disk: &Disk) -> shown::Disk {
    let holds = disk.holds.iter().map(|t| t.as_str()).collect::<Vec<_>>().join(", ");
    let usage = match (disk.mounts.is_empty(), holds.is_empty()) {
        (false, _) => "system".to_owned(),
        (true, true) => "blank".to_owned(),
        (true, false) => format!("holds data: {holds}"),
    };
    shown::Disk {
        name: Safe::clean(disk.name.as_str()),
        size: Safe::clean(size(disk.size_bytes)),
        usage: Safe::clean(usage),
        model: Safe::clean(disk.model.as_ref().map_or("", |m| m.as_str())),
    }
}

fn plural(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// Binary units, the number between 1 and 9999.
fn size(bytes: u64) -> String {
    let (unit, name) = if bytes < 10_000 << 20 { (1u64 << 20, "MiB") } else { (1 << 30, "GiB") };
    format!("{} {name}", (bytes + unit / 2) / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_a_person_writes_them() {
        assert_eq!(size(960_197_124_096), "894 GiB");
        assert_eq!(size(536_870_912), "512 MiB");
        assert_eq!(plural(1, "core"), "1 core");
    }
}
