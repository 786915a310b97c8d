//! From the cable to the port: the rows that need no founder. Pure.

use std::net::{IpAddr, Ipv6Addr};

use console::text::Safe;

use crate::diagnosis::facts::{
    AddressFact, DuplicateFact, Facts, NameFact, NeighbourFact, NicFact, PortError, PortFact, RouteFact,
    Target,
};
use crate::diagnosis::rows::{Row, RowName};
use crate::protocol::url::Host;

/// So many names are spelled out.
const NAMES: usize = 6;
/// A round trip that is worth a remark.
const SLOW_MS: u128 = 500;

pub(super) fn link(facts: &Facts) -> Option<Row> {
    let name = RowName::Link;
    if facts.is_local() {
        return Some(Row::skipped(name, "not needed, the founder is this machine"));
    }
    let Some(nics) = &facts.nics else { return facts.way.as_ref().map(|_| no_kernel(name)) };
    let counted: Vec<&NicFact> = nics.iter().filter(|nic| nic.counts).collect();
    let works = |nic: &&NicFact| nic.up && nic.carrier != Some(false);
    let other = counted.iter().copied().find(works);
    Some(match (facts.nic_of_way(), other) {
        (Some(nic), _) if works(&nic) => Row::ok(name, describe(nic)),
        (Some(nic), Some(other)) => Row::failed(
            name,
            format!("no cable on {}, and {} is reached through it", nic.name, facts.endpoint),
            &[
                "The cable of that card and the switch port at its other end.",
                &format!("{} has a link: is the address configured on the wrong card?", other.name),
            ],
        ),
        (None, Some(nic)) => Row::ok(name, describe(nic)),
        (_, None) if counted.is_empty() => Row::failed(
            name,
            "this machine has no network card that the system knows",
            &["Is the card seated, and its driver in this system? See: stratum-join probe."],
        ),
        (_, None) if counted.iter().all(|nic| !nic.up) => Row::failed(
            name,
            format!("every network card is switched off: {}", names(&counted)),
            &["This machine's network settings: they bring no card up. See: ip link."],
        ),
        (_, None) => {
            let dark: Vec<&NicFact> = counted.into_iter().filter(|nic| nic.up).collect();
            let which = match dark[..] {
                [only] => format!("no cable on {}", only.name),
                _ => format!("no cable on any of: {}", names(&dark)),
            };
            Row::failed(
                name,
                which,
                &["The cable, the module at either end, and whether the switch port is on."],
            )
        }
    })
}

pub(super) fn address(facts: &Facts) -> Option<Row> {
    let name = RowName::Address;
    if facts.is_local() {
        return Some(Row::skipped(name, "not needed, the founder is this machine"));
    }
    let Some(nics) = &facts.nics else { return facts.way.as_ref().map(|_| no_kernel(name)) };
    let on_way = facts.nic_of_way();
    let mine = |nic: &&NicFact| nic.counts || on_way.is_some_and(|on_way| on_way.index == nic.index);
    let lit: Vec<&NicFact> =
        nics.iter().filter(mine).filter(|nic| nic.up && nic.carrier != Some(false)).collect();
    let wanted = wanted_family(facts);
    let fits = |a: &&AddressFact| wanted.is_none_or(|v4| a.ip.is_ipv4() == v4) && reaches(a.ip, facts);
    let source = match facts.way.as_ref().map(|way| &way.route) {
        Some(RouteFact::Via { source, .. }) => *source,
        _ => None,
    };
    let all = || lit.iter().flat_map(|nic| nic.addresses.iter().map(move |a| (*nic, a)));
    let found = all()
        .find(|(_, a)| Some(a.ip) == source && reaches(a.ip, facts))
        .or_else(|| all().find(|(nic, a)| fits(a) && on_way.is_some_and(|w| w.index == nic.index)))
        .or_else(|| all().find(|(_, a)| fits(a)));
    if let Some((nic, a)) = found {
        let text = format!("{}/{} on {}", a.ip, a.prefix, nic.name);
        return Some(match a.tentative && !a.dad_failed {
            true => Row::unknown(name, text + ", still being checked"),
            false => Row::ok(name, text),
        });
    }
    let dhcp = "A DHCP server in this network, the switch port's VLAN, or a fixed address in this machine's settings.";
    let text = if let Some((nic, a)) = all().find(|(_, a)| a.ip.is_ipv4() && is_link_local(a.ip)) {
        format!("{} has only {}, which it gave itself: no DHCP server answers", nic.name, a.ip)
    } else if let (Some(v4), Some((nic, _))) = (wanted, all().find(|(_, a)| !is_link_local(a.ip))) {
        let family = if v4 { "IPv4" } else { "IPv6" };
        format!("{} has no {family} address, and the founder's address is one", nic.name)
    } else {
        let verb = if lit.len() == 1 { "has" } else { "have" };
        format!("{} {verb} a link but no address", names(&lit))
    };
    Some(Row::failed(name, text, &[dhcp]))
}

pub(super) fn duplicate(facts: &Facts) -> Option<Row> {
    let name = RowName::Duplicate;
    let look: &[&str] = &[
        "Give one of the two machines another address; the switch knows the port of that hardware address.",
    ];
    let taken = facts.nics.iter().flatten().filter(|nic| nic.counts).find_map(|nic| {
        let failed = nic.addresses.iter().find(|a| a.dad_failed)?;
        Some(format!(
            "{} on {} is also used by another machine: the kernel found it out",
            failed.ip, nic.name
        ))
    });
    if let Some(text) = taken {
        return Some(Row::failed(name, text, look));
    }
    Some(match facts.duplicate.as_ref()? {
        DuplicateFact::Found { ip, mac } => Row::failed(name, format!("{ip} is also used by {mac}"), look),
        DuplicateFact::None(ips) => {
            let ips: Vec<String> = ips.iter().map(ToString::to_string).collect();
            Row::ok(name, format!("nobody else answers for {}", ips.join(", ")))
        }
        DuplicateFact::NotAllowed => {
            Row::skipped(name, "only root can ask for it: run 'stratum-join diagnose' as root")
        }
        DuplicateFact::NotNeeded => Row::skipped(name, "no IPv4 address to ask for"),
        DuplicateFact::Unknown(why) => Row::unknown(name, format!("it could not be asked for: {why}")),
    })
}

pub(super) fn route(facts: &Facts) -> Option<Row> {
    let name = RowName::Route;
    let way = facts.way.as_ref()?;
    let target = target(&way.target);
    let look = match way.target {
        Target::Founder(_) => "The gateway in this machine's network settings, and the cluster's address.",
        Target::NameServer(_) => "The gateway and the name servers in this machine's network settings.",
    };
    Some(match &way.route {
        RouteFact::Local => Row::ok(name, "the founder is this machine"),
        RouteFact::Via { nic, gateway: Some(gateway), .. } => {
            Row::ok(name, format!("through {gateway} on {nic}"))
        }
        RouteFact::Via { nic, gateway: None, .. } => Row::ok(name, format!("directly on {nic}")),
        RouteFact::Missing => Row::failed(name, format!("no route to {target}"), &[look]),
        RouteFact::Refused(kind) => Row::failed(
            name,
            format!("a route of this machine forbids {target} ({kind})"),
            &["The routes and rules of this machine: ip route, ip rule."],
        ),
        RouteFact::Unknown => no_kernel(name),
    })
}

pub(super) fn neighbour(facts: &Facts) -> Option<Row> {
    let name = RowName::Neighbour;
    let way = facts.way.as_ref()?;
    let (nic, gateway) = match &way.route {
        RouteFact::Local => return Some(Row::skipped(name, "not needed, the founder is this machine")),
        RouteFact::Via { nic, gateway, .. } => (nic, gateway),
        _ => return None,
    };
    let next = match gateway {
        Some(gateway) => format!("gateway {gateway}"),
        None => target(&way.target),
    };
    let how = match gateway.unwrap_or(way.target.ip()) {
        IpAddr::V4(_) => "ARP",
        IpAddr::V6(_) => "neighbour discovery",
    };
    Some(match way.neighbour? {
        NeighbourFact::Answers => Row::ok(name, format!("{next} answers")),
        NeighbourFact::NotNeeded => Row::skipped(name, format!("{nic} needs none")),
        NeighbourFact::Silent(state) => Row::failed(
            name,
            format!("{next} does not answer {how} on {nic} (neighbour {state})"),
            &[match gateway {
                Some(_) => {
                    "The switch port's VLAN, and the gateway's address in this machine's network settings."
                }
                None => "The switch port's VLAN, and whether that machine is on and has this address.",
            }],
        ),
        NeighbourFact::Unknown => {
            Row::unknown(name, format!("the kernel does not say whether {next} answers"))
        }
    })
}

pub(super) fn name(facts: &Facts) -> Option<Row> {
    let name = RowName::Name;
    let host = &facts.endpoint.host;
    let look = ["The name servers of this machine (/etc/resolv.conf), and the spelling of the name."];
    Some(match facts.name.as_ref()? {
        NameFact::Literal => Row::skipped(name, "not needed, the founder is given by its address"),
        NameFact::Resolved(ips) => {
            let ips: Vec<String> = ips.iter().take(3).map(ToString::to_string).collect();
            Row::ok(name, format!("{host} is {}", ips.join(", ")))
        }
        NameFact::Failed(why) => Row::failed(name, format!("{host} does not resolve: {why}"), &look),
    })
}

pub(super) fn port(facts: &Facts) -> Option<Row> {
    let name = RowName::Port;
    let port = facts.endpoint.port;
    Some(match facts.port.as_ref()? {
        PortFact::Open(ip, took) => Row::ok(name, format!("port {port} of {ip} in {} ms", took.as_millis())),
        PortFact::Closed(ip, error) => {
            let (why, look) = match error {
                PortError::Refused => (
                    format!("port {port} refused: the founder is down or a firewall rejects"),
                    format!(
                        "On {ip}: does the founder run and listen on port {port}? A firewall there or between."
                    ),
                ),
                PortError::Silent(after) => (
                    format!("port {port}: no answer in {} s", after.as_secs()),
                    format!("A firewall on the way that drops port {port}, and whether {ip} is on."),
                ),
                PortError::Unreachable(what) => (
                    format!("port {port}: a machine on the way says of {ip}: {what}"),
                    format!("The routers between here and {ip}, and whether {ip} is on."),
                ),
                PortError::Forbidden => (
                    format!("port {port}: a firewall of this machine forbids it"),
                    "The firewall rules of this machine for outgoing connections.".to_owned(),
                ),
                PortError::Other(why) => (
                    format!("port {port} of {ip}: {why}"),
                    format!("The way to {ip}, and a firewall between."),
                ),
            };
            Row::failed(name, why, &[&look])
        }
    })
}

pub(super) fn quality(facts: &Facts) -> Option<Row> {
    let name = RowName::Quality;
    let found = facts.quality?;
    let look = ["The cable and its plugs, duplex and error counters (ip -s link), a full line on the way."];
    let millis = found.round_trip.as_millis();
    Some(if found.lost > 0 {
        let were = if found.lost == 1 { "was" } else { "were" };
        Row::unknown(name, format!("{} of {} connects {were} lost or slow", found.lost, found.tried))
            .look_at(&look)
    } else if millis > SLOW_MS {
        Row::unknown(name, format!("a round trip takes {millis} ms")).look_at(&look)
    } else {
        Row::ok(name, format!("{} connects, {millis} ms each", found.tried))
    })
}

// === private ===

fn no_kernel(name: RowName) -> Row {
    Row::unknown(name, "the kernel could not be asked")
}

/// `eno1 up, 25G, MAC 3c:ec:ef:12:34:56`.
fn describe(nic: &NicFact) -> String {
    let speed = match nic.speed_mbps {
        Some(speed) if speed >= 1_000 && speed.is_multiple_of(1_000) => format!(", {}G", speed / 1_000),
        Some(speed) => format!(", {speed}M"),
        None => String::new(),
    };
    let mac = if nic.mac.is_empty() { String::new() } else { format!(", MAC {}", nic.mac) };
    let carrier = if nic.carrier.is_none() { ", carrier not told" } else { "" };
    format!("{} up{carrier}{speed}{mac}", nic.name)
}

fn names(nics: &[&NicFact]) -> String {
    let mut text = nics.iter().take(NAMES).map(|nic| nic.name.as_str()).collect::<Vec<_>>().join(", ");
    if nics.len() > NAMES {
        text.push_str(&format!(" and {} more", nics.len() - NAMES));
    }
    text
}

fn target(target: &Target) -> String {
    match target {
        Target::Founder(ip) => ip.to_string(),
        Target::NameServer(ip) => format!("the name server {ip}"),
    }
}

/// Whether the founder's address is IPv4, as far as it is known.
fn wanted_family(facts: &Facts) -> Option<bool> {
    match (&facts.endpoint.host, &facts.way) {
        (Host::Ip(ip), _) => Some(ip.is_ipv4()),
        (Host::Name(_), Some(way)) if matches!(way.target, Target::Founder(_)) => {
            Some(way.target.ip().is_ipv4())
        }
        _ => None,
    }
}

/// An address that more than its own link knows; link-local ones only reach link-local ones.
fn reaches(ip: IpAddr, facts: &Facts) -> bool {
    let far = facts.way.as_ref().is_none_or(|way| !is_link_local(way.target.ip()));
    !(ip.is_loopback() || ip.is_unspecified() || far && is_link_local(ip))
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => is_unicast_link_local(ip),
    }
}

fn is_unicast_link_local(ip: Ipv6Addr) -> bool {
    ip.segments()[0] & 0xffc0 == 0xfe80
}

/// An interface's name as text of any kernel.
pub(in crate::diagnosis) fn nic_name(name: &str) -> Safe<64> {
    Safe::clean(name)
}
