//! The NICs of the machine: hardware, and the bonds, teams, VLANs and bridges that reach hardware.
//!
//! May touch: `sys/class/net`, and what [`NetSource`] tells. Must never: set a link up, or treat a driver that cannot
//! tell its speed as an error.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Sources;
use crate::facts::Facts;
use crate::finding::{Finding, Missing};
use crate::inventory::{LinkState, Nic, NicKind};
use crate::netcapture::{address, sysfs_links};
use crate::netsource::{Addr, Link, Route};
use crate::order::natural;
use crate::roots::Roots;
use crate::text::Text;
use crate::warning::{Code, Warnings};

const MAX_NICS: usize = 1024;
const MAX_ALT_NAMES: usize = 16;
const MAX_LOWER: usize = 64;
const MAX_ADDRESSES: usize = 256;
/// Over all NICs.
const MAX_ROUTES: usize = 8192;
/// Main routing table.
const MAIN: u32 = 254;
/// Mbit/s; more is a driver's way to say "unknown".
const MAX_SPEED: u64 = 2_000_000;

/// All NICs.
pub(crate) fn probe(roots: &Roots, sources: &Sources, warnings: &mut Warnings) -> Vec<Nic> {
    let links = sources.net.links().or_else(|missing| {
        if roots.is_live() {
            let detail = "the kernel's list of interfaces could not be had: sysfs alone is used";
            warnings.note("", missing, "nics", detail);
        }
        sysfs_links(roots)
    });
    let links = match links {
        Ok(links) => links,
        Err(missing) => {
            warnings.note("", missing, "nics", "the interfaces cannot be listed");
            return Vec::new();
        }
    };
    let addresses = sources.net.addresses();
    let routes = sources.net.routes();
    let unknown = [
        ("ipv4", addresses.as_ref().err()),
        ("ipv6", addresses.as_ref().err()),
        ("routes", routes.as_ref().err()),
    ];
    for (fact, missing) in unknown {
        if let Some(missing) = missing {
            warnings.note("", *missing, fact, "");
        }
    }
    let mut listed = select(roots, &links);
    listed.sort_by(|a, b| natural(&a.name, &b.name));
    if listed.len() > MAX_NICS {
        listed.truncate(MAX_NICS);
        warnings.note("", Code::Truncated, "nics", "more than 1,024 NICs");
    }
    let net = Net { roots, links: &links, addresses, routes: routes.map(|r| by_device(&r, warnings)) };
    let mut left = MAX_ROUTES;
    listed.into_iter().filter_map(|link| net.nic(link, &mut left, warnings)).collect()
}

/// Hardware, and what reaches hardware.
fn select<'a>(roots: &Roots, links: &'a [Link]) -> Vec<&'a Link> {
    let physical = |l: &Link| {
        let device = format!("sys/class/net/{}/device", l.name);
        // A capture can hold the link without what it leads to.
        roots.link(&device).is_ok() || roots.stat(&device).is_ok()
    };
    let mut taken: HashSet<u32> = links.iter().filter(|l| physical(l)).map(|l| l.index).collect();
    // Upwards until nothing new comes: VLAN on bond on hardware.
    loop {
        let reaches = |l: &&Link| {
            let virtual_kind = matches!(l.kind.as_deref(), Some("bond" | "team" | "vlan" | "bridge"));
            virtual_kind && !taken.contains(&l.index) && lower(links, l).iter().any(|i| taken.contains(i))
        };
        let more: Vec<u32> = links.iter().filter(reaches).map(|l| l.index).collect();
        if more.is_empty() {
            break;
        }
        taken.extend(more);
    }
    links.iter().filter(|l| taken.contains(&l.index)).collect()
}

/// Members, ports and parent.
fn lower(links: &[Link], link: &Link) -> Vec<u32> {
    let members = links.iter().filter(|l| l.master == Some(link.index)).map(|l| l.index);
    let parent = link.lower.filter(|_| link.kind.as_deref() == Some("vlan"));
    members.chain(parent).collect()
}

/// Destinations by interface, from the unicast routes of the main table, without the default route.
fn by_device(routes: &[Route], warnings: &mut Warnings) -> HashMap<u32, BTreeSet<(Ipv4Addr, u8)>> {
    let mut map: HashMap<u32, BTreeSet<(Ipv4Addr, u8)>> = HashMap::new();
    for route in routes.iter().filter(|r| r.table == MAIN && r.unicast && (1..=32).contains(&r.prefix)) {
        if route.nexthop_object {
            warnings.note("", Code::NexthopObject, "routes", "a route with a nexthop object was skipped");
            continue;
        }
        let destination = (route.destination.unwrap_or(Ipv4Addr::UNSPECIFIED), route.prefix);
        for device in &route.devices {
            map.entry(*device).or_default().insert(destination);
        }
    }
    map
}

struct Net<'a> {
    roots: &'a Roots,
    links: &'a [Link],
    addresses: Finding<Vec<Addr>>,
    routes: Finding<HashMap<u32, BTreeSet<(Ipv4Addr, u8)>>>,
}

// === impl Net ===

impl Net<'_> {
    fn name_of(&self, index: u32) -> Option<Text<15>> {
        self.links.iter().find(|l| l.index == index).and_then(|l| Text::of(&l.name))
    }

    fn nic(&self, link: &Link, routes_left: &mut usize, warnings: &mut Warnings) -> Option<Nic> {
        let mut facts = Facts::new(self.roots, format!("nics/{}", link.name), warnings);
        let file = |file: &str| format!("sys/class/net/{}/{file}", link.name);
        let name: Text<15> = match Text::from_bytes(link.name.as_bytes()) {
            Some(clean) if !clean.altered && !link.name.contains('/') => clean.text,
            _ => {
                facts.warnings.note(
                    "",
                    Code::HostileName,
                    "nics",
                    "an interface with an unsafe name was skipped",
                );
                return None;
            }
        };
        let mac = self.mac(link);
        let current = hardware_address(&link.address).filter(|c| Some(c) != mac.as_ref().ok());
        let mac = facts.keep("mac", mac);
        let state = self.state(link);
        let speed = self.roots.line(&file("speed")).and_then(|text| {
            // -1 (the kernel's SPEED_UNKNOWN, 32 or 16 bits of it too) and 0: the driver does not know it.
            match text.parse::<i64>() {
                Ok(-1 | 0 | 65_535 | 4_294_967_295) => Err(Missing::Absent),
                Ok(speed) => u64::try_from(speed).ok().filter(|s| *s <= MAX_SPEED).ok_or(Missing::Junk),
                Err(_) => Err(Missing::Invalid),
            }
        });
        let speed = if state == LinkState::Up { facts.keep("speedMbps", speed) } else { None };
        let driver = self.roots.link_name(&file("device/driver")).ok().or_else(|| {
            let kind = link.kind.as_deref()?;
            self.roots.stat(&file("device")).is_err().then(|| kind.to_owned())
        });
        let driver = facts
            .keep("driver", driver.ok_or(Missing::Absent))
            .and_then(|d| facts.text("driver", d.as_bytes()));
        let bus = self.bus(link);
        if bus.is_none() && self.roots.stat(&file("device")).is_ok() {
            facts.warnings.note(&facts.at, Missing::Absent, "bus", "");
        }
        let mtu =
            link.mtu.or_else(|| self.roots.number(&file("mtu")).ok().and_then(|m| u32::try_from(m).ok()));
        let mtu = facts.keep("mtu", mtu.ok_or(Missing::Absent));
        let mut alt_names: Vec<Text<128>> =
            link.alt_names.iter().filter_map(|n| facts.text("altNames", n.as_bytes())).collect();
        alt_names.sort_by(|a, b| natural(a, b));
        let mut below: Vec<Text<15>> =
            lower(self.links, link).into_iter().filter_map(|i| self.name_of(i)).collect();
        below.sort_by(|a, b| natural(a, b));
        for (cut, fact) in [(alt_names.len() > MAX_ALT_NAMES, "altNames"), (below.len() > MAX_LOWER, "lower")]
        {
            if cut {
                facts.warnings.note(&facts.at, Code::Truncated, fact, "");
            }
        }
        alt_names.truncate(MAX_ALT_NAMES);
        below.truncate(MAX_LOWER);
        Some(Nic {
            name,
            alt_names,
            current_mac: current.filter(|_| mac.is_some()).and_then(|c| Text::of(&c)),
            mac: mac.and_then(|m| Text::of(&m)),
            kind: self.kind(link),
            driver,
            speed_mbps: speed.and_then(|s| u32::try_from(s).ok()),
            mtu,
            link: state,
            ipv4: self.addresses.as_ref().ok().map(|all| ipv4(all, link.index, &mut facts)),
            ipv6: self.addresses.as_ref().ok().map(|all| ipv6(all, link.index, &mut facts)),
            routes: self.routes.as_ref().ok().map(|all| {
                let mine = all.get(&link.index).map(|r| r.iter().copied().collect()).unwrap_or_default();
                let take: usize = *routes_left;
                let list = cidrs(mine, take, "routes", &mut facts);
                *routes_left = take - list.len();
                list
            }),
            master: link.master.and_then(|m| self.name_of(m)),
            parent: link.lower.filter(|_| link.kind.as_deref() == Some("vlan")).and_then(|l| self.name_of(l)),
            lower: below,
            vf: self.roots.stat(&file("device/physfn")).is_ok(),
            bus: bus.and_then(|b| facts.text("bus", b.as_bytes())),
        })
    }

    /// Carrier. Not asked of an interface that is switched off: the kernel has no answer then. `operstate` stays
    /// `unknown` on drivers that do have a carrier.
    fn state(&self, link: &Link) -> LinkState {
        if !link.up {
            return LinkState::Unknown;
        }
        match self.roots.number(&format!("sys/class/net/{}/carrier", link.name)) {
            Ok(1) => LinkState::Up,
            Ok(0) => LinkState::Down,
            _ => LinkState::Unknown,
        }
    }

    /// The permanent address: members of a bond all show the bond's.
    fn mac(&self, link: &Link) -> Finding<String> {
        let slave = self.roots.line(&format!("sys/class/net/{}/bonding_slave/perm_hwaddr", link.name));
        let all =
            [link.permanent.clone(), slave.map(|s| address(&s)).unwrap_or_default(), link.address.clone()];
        if let Some(mac) = all.iter().find_map(|bytes| hardware_address(bytes)) {
            return Ok(mac);
        }
        Err(if all.iter().all(Vec::is_empty) { Missing::Absent } else { Missing::Junk })
    }

    fn kind(&self, link: &Link) -> NicKind {
        match link.kind.as_deref() {
            Some("bond") => return NicKind::Bond,
            Some("team") => return NicKind::Team,
            Some("vlan") => return NicKind::Vlan,
            Some("bridge") => return NicKind::Bridge,
            _ => {}
        }
        let dir = format!("sys/class/net/{}", link.name);
        let uevent = self.roots.line(&format!("{dir}/uevent")).unwrap_or_default();
        let wifi = uevent.lines().any(|l| l == "DEVTYPE=wlan")
            || self.roots.stat(&format!("{dir}/phy80211")).is_ok();
        match link.arp_type {
            _ if wifi => NicKind::Wifi,
            Some(1) => NicKind::Ethernet,
            Some(32) => NicKind::Infiniband,
            _ => NicKind::Other,
        }
    }

    /// The nearest PCI or USB device above the interface.
    fn bus(&self, link: &Link) -> Option<String> {
        let target = self.roots.link(&format!("sys/class/net/{}", link.name)).ok();
        let path = match target {
            Some(target) => crate::blockdev::resolve("class/net", &target),
            None => crate::blockdev::resolve(
                "",
                &self.roots.link(&format!("sys/class/net/{}/device", link.name)).ok()?,
            ),
        };
        let mut parts = path.split('/').rev();
        parts.find(|p| is_pci(p) || is_usb(p)).map(str::to_owned)
    }
}

/// `0000:03:00.0`, also with the long domains of some hosts.
fn is_pci(part: &str) -> bool {
    let hex = |s: &str, n: std::ops::RangeInclusive<usize>| {
        n.contains(&s.len()) && s.bytes().all(|b| b.is_ascii_hexdigit())
    };
    let mut fields = part.split(':');
    let (Some(domain), Some(bus), Some(rest), None) =
        (fields.next(), fields.next(), fields.next(), fields.next())
    else {
        return false;
    };
    rest.split_once('.').is_some_and(|(device, function)| {
        hex(domain, 4..=8) && hex(bus, 2..=2) && hex(device, 2..=2) && hex(function, 1..=1)
    })
}

/// `1-1.4`: a USB device, not its interface (`1-1.4:1.0`).
fn is_usb(part: &str) -> bool {
    part.split_once('-').is_some_and(|(bus, port)| {
        let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
        digits(bus) && port.split('.').all(digits)
    })
}

/// `02:fc:00:00:00:01`; `None` for lengths that no NIC has and for placeholders.
fn hardware_address(bytes: &[u8]) -> Option<String> {
    let placeholder = bytes.iter().all(|b| *b == 0) || bytes.iter().all(|b| *b == 0xff);
    if !matches!(bytes.len(), 6 | 8 | 20) || placeholder {
        return None;
    }
    Some(bytes.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(":"))
}

fn ipv4(all: &[Addr], index: u32, facts: &mut Facts<'_>) -> Vec<Text<18>> {
    let mine = all.iter().filter(|a| a.index == index && a.prefix <= 32).filter_map(|a| match a.address {
        IpAddr::V4(ip) => Some((ip, a.prefix)),
        IpAddr::V6(_) => None,
    });
    cidrs(in_order(mine), MAX_ADDRESSES, "ipv4", facts)
}

fn ipv6(all: &[Addr], index: u32, facts: &mut Facts<'_>) -> Vec<Text<43>> {
    let mine = all.iter().filter(|a| a.index == index && a.prefix <= 128).filter_map(|a| match a.address {
        IpAddr::V6(ip) => Some((ip, a.prefix)),
        IpAddr::V4(_) => None,
    });
    cidrs::<Ipv6Addr, 43>(in_order(mine), MAX_ADDRESSES, "ipv6", facts)
}

fn in_order<T: Ord>(addresses: impl Iterator<Item = T>) -> Vec<T> {
    addresses.collect::<BTreeSet<T>>().into_iter().collect()
}

fn cidrs<A: Display, const MAX: usize>(
    list: Vec<(A, u8)>,
    max: usize,
    fact: &str,
    facts: &mut Facts<'_>,
) -> Vec<Text<MAX>> {
    if list.len() > max {
        facts.warnings.note(&facts.at, Code::Truncated, fact, "");
    }
    list.into_iter().take(max).filter_map(|(ip, prefix)| Text::of(&format!("{ip}/{prefix}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> Option<Ipv4Addr> {
        text.parse().ok()
    }

    fn route(destination: &str, prefix: u8) -> Route {
        Route {
            table: MAIN,
            unicast: true,
            destination: ip(destination),
            prefix,
            devices: vec![2],
            ..Route::default()
        }
    }

    #[test]
    fn only_unicast_routes_of_the_main_table_without_the_default_count() {
        let mut warnings = Warnings::default();
        let routes = [
            route("192.0.2.0", 24),
            route("192.0.2.0", 24),
            route("198.51.100.7", 32),
            Route { prefix: 0, ..route("0.0.0.0", 0) },
            // The half default routes of VPNs are destinations like any other.
            Route { destination: None, ..route("0.0.0.0", 1) },
            Route { table: 100, ..route("10.1.0.0", 16) },
            Route { table: 70_000, ..route("10.2.0.0", 16) },
            Route { unicast: false, ..route("10.3.0.0", 16) },
            Route { devices: vec![2, 3], ..route("203.0.113.0", 24) },
        ];
        let map = by_device(&routes, &mut warnings);
        let show = |index: u32| -> Vec<String> {
            map.get(&index).into_iter().flatten().map(|(ip, p)| format!("{ip}/{p}")).collect()
        };
        assert_eq!(show(2), ["0.0.0.0/1", "192.0.2.0/24", "198.51.100.7/32", "203.0.113.0/24"]);
        assert_eq!(show(3), ["203.0.113.0/24"]);
        assert!(warnings.into_list().is_empty());
    }

    #[test]
    fn a_nexthop_object_is_skipped_and_told() {
        let mut warnings = Warnings::default();
        let hidden = Route { nexthop_object: true, devices: vec![], ..route("10.0.0.0", 8) };
        assert!(by_device(&[hidden], &mut warnings).is_empty());
        assert_eq!(warnings.into_list().first().map(|w| w.code), Some(Code::NexthopObject));
    }

    #[test]
    fn placeholder_addresses_are_none() {
        assert_eq!(hardware_address(&[0; 6]), None);
        assert_eq!(hardware_address(&[0xff; 6]), None);
        assert_eq!(hardware_address(&[1, 2, 3]), None);
        assert_eq!(hardware_address(&[2, 0xfc, 0, 0, 0, 1]).as_deref(), Some("02:fc:00:00:00:01"));
    }

    #[test]
    fn bus_addresses_are_told_from_the_rest_of_the_path() {
        assert!(is_pci("0000:03:00.0") && is_pci("10000:e1:00.0") && !is_pci("pci0000:00"));
        assert!(is_usb("1-1.4") && is_usb("2-3") && !is_usb("1-1.4:1.0") && !is_usb("eno-1x"));
    }
}
