//! The links of an approval: NICs, bonds, VLANs, and the addresses that the founder picks. Pure.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::addresses::Cidr;
use super::assignment::{Bond, Link, Mgmt};
use super::check::{Ground, Problems};
use super::rules;
use crate::config::Network;

const PURPOSES: [&str; 5] = ["mgmt", "storage", "overlay", "provider", "oob"];
const MODES: [&str; 7] =
    ["balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb"];
const HASHES: [&str; 6] = ["layer2", "layer2+3", "layer3+4", "encap2+3", "encap3+4", "vlan+srcmac"];

/// The links with every default, in the order of the request.
pub(crate) fn check(asked: &[Link], mgmt: &Mgmt, ground: &Ground<'_>, problems: &mut Problems) -> Vec<Link> {
    let mut picked: BTreeSet<IpAddr> = Cidr::parse(&mgmt.address).map(|c| c.address).into_iter().collect();
    let mut links = Vec::new();
    for (n, link) in asked.iter().enumerate() {
        let at = |name: &str| format!("links[{n}].{name}");
        names(link, n, asked, problems, &at);
        match link.kind.as_str() {
            "ethernet" => ethernet(link, n, asked, mgmt, ground, problems, &at),
            "bond" => bond(link, asked, problems, &at),
            "vlan" => vlan(link, asked, ground, problems, &at),
            _ => problems.add(at("kind"), "must be ethernet, bond or vlan"),
        }
        for (p, purpose) in link.purposes.iter().enumerate() {
            if !PURPOSES.contains(&purpose.as_str()) {
                problems.add(
                    format!("links[{n}].purposes[{p}]"),
                    format!("must be one of {}", PURPOSES.join(", ")),
                );
            }
        }
        if link.mtu.is_some_and(|mtu| !(576..=65_535).contains(&mtu)) {
            problems.add(at("mtu"), "must be 576 to 65535");
        }
        links.push(addressed(link, ground, &mut picked, problems, &at("addresses")));
    }
    links
}

fn names(link: &Link, n: usize, asked: &[Link], problems: &mut Problems, at: &impl Fn(&str) -> String) {
    if !rules::plain_name(&link.name) {
        problems.add(at("name"), "must be 1 to 63 letters, digits, dots, dashes and underscores");
    } else if asked[..n].iter().any(|l| l.name == link.name) {
        problems.add(at("name"), format!("{} is another link's name", link.name));
    }
    if !rules::interface_name(&link.interface) {
        problems.add(at("interface"), "must be the name of a network interface");
    } else if asked[..n].iter().any(|l| l.interface == link.interface) {
        problems.add(at("interface"), format!("{} is another link's interface", link.interface));
    }
}

fn ethernet(
    link: &Link,
    n: usize,
    asked: &[Link],
    mgmt: &Mgmt,
    ground: &Ground<'_>,
    problems: &mut Problems,
    at: &impl Fn(&str) -> String,
) {
    if ground.inventory.nic(&link.interface).is_none() && rules::interface_name(&link.interface) {
        problems.add(at("interface"), format!("the machine has no NIC {}", link.interface));
    }
    for (name, given) in [("parent", link.parent.is_some()), ("vlanId", link.vlan_id.is_some())] {
        if given {
            problems.add(at(name), "belongs to a vlan");
        }
    }
    if link.bond.is_some() {
        problems.add(at("bond"), "belongs to a bond");
    }
    let Some(controller) = &link.controller else { return };
    if !asked.iter().enumerate().any(|(m, l)| m != n && l.kind == "bond" && is_named(l, controller)) {
        problems.add(at("controller"), format!("there is no bond {controller}"));
    }
    if link.interface == mgmt.interface {
        problems
            .add(at("interface"), "the management NIC cannot be a member of a bond: its address would go");
    }
    if !link.addresses.is_empty() {
        problems.add(at("addresses"), "a bond member has no address of its own");
    }
    if !link.purposes.is_empty() {
        problems.add(at("purposes"), "a bond member carries what its bond carries");
    }
}

fn bond(link: &Link, asked: &[Link], problems: &mut Problems, at: &impl Fn(&str) -> String) {
    if !asked
        .iter()
        .any(|l| l.kind == "ethernet" && l.controller.as_deref().is_some_and(|c| is_named(link, c)))
    {
        problems.add(at("interface"), "the bond has no member: name it as controller of an ethernet link");
    }
    let default = Bond::default();
    let bond = link.bond.as_ref().unwrap_or(&default);
    if !MODES.contains(&bond.mode.as_str()) {
        problems.add(at("bond.mode"), format!("must be one of {}", MODES.join(", ")));
    }
    if bond.xmit_hash_policy.as_deref().is_some_and(|p| !HASHES.contains(&p)) {
        problems.add(at("bond.xmitHashPolicy"), format!("must be one of {}", HASHES.join(", ")));
    }
    match bond.lacp_rate.as_deref() {
        None => {}
        Some(_) if bond.mode != "802.3ad" => problems.add(at("bond.lacpRate"), "belongs to mode 802.3ad"),
        Some("slow" | "fast") => {}
        Some(_) => problems.add(at("bond.lacpRate"), "must be slow or fast"),
    }
    if bond.miimon_ms.is_some_and(|ms| ms > 10_000) {
        problems.add(at("bond.miimonMs"), "must be at most 10000");
    }
}

fn vlan(
    link: &Link,
    asked: &[Link],
    ground: &Ground<'_>,
    problems: &mut Problems,
    at: &impl Fn(&str) -> String,
) {
    match &link.parent {
        None => problems.add(at("parent"), "a vlan needs its parent device"),
        Some(parent) => {
            let other = asked.iter().any(|l| l.kind != "vlan" && is_named(l, parent));
            if !other && ground.inventory.nic(parent).is_none() {
                problems.add(at("parent"), format!("the machine has no NIC {parent}"));
            }
        }
    }
    if !link.vlan_id.is_some_and(|id| (1..=4094).contains(&id)) {
        problems.add(at("vlanId"), "must be 1 to 4094");
    }
}

fn is_named(link: &Link, name: &str) -> bool {
    link.name == name || link.interface == name
}

/// Named addresses must be free and in their network; a link that names none gets the next free ones.
fn addressed(
    link: &Link,
    ground: &Ground<'_>,
    picked: &mut BTreeSet<IpAddr>,
    problems: &mut Problems,
    at: &str,
) -> Link {
    let mut link = link.clone();
    let purposes = link.purposes.iter().filter(|p| matches!(p.as_str(), "storage" | "overlay"));
    let networks: Vec<(&str, Option<&Network>)> =
        purposes.map(|p| (p.as_str(), ground.cluster.networks.iter().find(|n| n.purpose == *p))).collect();
    let mut largest: Option<u32> = None;
    for (_, network) in &networks {
        largest = largest.max(network.map(|n| n.mtu));
    }
    if !link.addresses.is_empty() {
        named(&link, &networks, ground, picked, problems, at);
    } else if link.controller.is_none() {
        let mut addresses = Vec::new();
        for (purpose, network) in &networks {
            let Some(network) = network else {
                problems.add(at, format!("the cluster records no {purpose} network: name the address"));
                continue;
            };
            match pick(&link, network, ground, picked) {
                Some(address) => addresses.push(address),
                None => problems
                    .add(at, format!("the {purpose} network {} is full: name the address", network.cidr)),
            }
        }
        link.addresses_allocated = !addresses.is_empty();
        link.addresses = addresses;
    }
    link.mtu = link.mtu.or(largest);
    link
}

fn named(
    link: &Link,
    networks: &[(&str, Option<&Network>)],
    ground: &Ground<'_>,
    picked: &mut BTreeSet<IpAddr>,
    problems: &mut Problems,
    at: &str,
) {
    let known: Vec<Cidr> = networks.iter().filter_map(|(_, n)| Cidr::parse(&n.as_ref()?.cidr)).collect();
    for text in &link.addresses {
        let Some(cidr) = Cidr::parse(text) else {
            problems.add(at, format!("{text} is no CIDR"));
            continue;
        };
        if !cidr.is_host(cidr.address) {
            problems.add(at, format!("{text} is a network, not a host in it"));
        } else if !known.is_empty() && !known.iter().any(|n| n.contains(cidr.address)) {
            problems.add(at, format!("{text} is outside the cluster's network of the link's purpose"));
        } else if let Some(who) = ground.held.by(cidr.address) {
            problems.add(at, format!("{} is held by {who}", cidr.address));
        } else if !picked.insert(cidr.address) {
            problems.add(at, format!("{} stands twice", cidr.address));
        }
    }
}

/// The address it had before while that is still free, else the lowest free one.
fn pick(
    link: &Link,
    network: &Network,
    ground: &Ground<'_>,
    picked: &mut BTreeSet<IpAddr>,
) -> Option<String> {
    let cidr = Cidr::parse(&network.cidr)?;
    let previous = ground.previous.iter().flat_map(|p| &p.links).filter(|l| l.name == link.name);
    let before = previous.flat_map(|l| &l.addresses).filter_map(|a| Cidr::parse(a)).map(|c| c.address);
    let kept = before
        .filter(|a| cidr.contains(*a) && cidr.is_host(*a))
        .find(|a| ground.held.by(*a).is_none() && !picked.contains(a));
    let address = kept.or_else(|| cidr.next_free(&ground.held, picked))?;
    picked.insert(address);
    Some(format!("{address}/{}", cidr.prefix))
}
