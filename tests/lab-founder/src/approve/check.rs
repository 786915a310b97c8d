//! Checks an approval against the machine's hardware, the cluster's size and its addresses, and fills in every default.
//!
//! Pure. Finds every problem, not only the first (documented), and never lets through what would wipe data that nobody named.

use std::net::IpAddr;

use stratum_join::protocol::wire::FieldError;

use super::addresses::{Cidr, Held};
use super::assignment::{Asked, AskedMgmt, Assignment, Link, Mgmt, ProviderChoice};
use super::inventory::{Inventory, NoDisk};
use super::{disks, links, rules};
use crate::config::Cluster;
use crate::disk::{Disk, Verdict};
use crate::http::field;

/// What an approval is checked against.
pub(crate) struct Ground<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) inventory: &'a Inventory,
    /// Host name it registered with.
    pub(crate) hostname: &'a str,
    /// Address it registered from.
    pub(crate) source: &'a str,
    /// Addresses of members, virtual addresses and other approved, running or failed joins.
    pub(crate) held: Held,
    /// Names of the same.
    pub(crate) names: Vec<String>,
    /// Control-plane nodes besides this one.
    pub(crate) control_planes: usize,
    /// Most of them.
    pub(crate) most_control_planes: usize,
    /// Its assignment of before: an address is kept while it is free.
    pub(crate) previous: Option<&'a Assignment>,
}

/// Problems in the order of the request.
#[derive(Default)]
pub(crate) struct Problems(Vec<FieldError>);

// === impl Problems ===

impl Problems {
    pub(crate) fn add(&mut self, at: impl Into<String>, message: impl Into<String>) {
        self.0.push(field(at, message));
    }

    /// The fields, for tests.
    #[cfg(test)]
    pub(crate) fn into_fields(self) -> Vec<String> {
        self.0.iter().map(|e| e.field.to_string()).collect()
    }
}

/// The complete assignment, or every problem.
pub(crate) fn check(asked: &Asked, ground: &Ground<'_>) -> Result<Assignment, Vec<FieldError>> {
    let mut problems = Problems::default();
    let mut notes = Vec::new();
    role(asked, ground, &mut problems);
    let name = name(asked, ground, &mut problems);
    for (at, value) in [("rack", &asked.rack), ("az", &asked.az)] {
        if value.as_ref().is_some_and(|v| !rules::plain_name(v)) {
            problems.add(at, "must be 1 to 63 letters, digits, dots, dashes and underscores");
        }
    }
    let mgmt = mgmt(&asked.mgmt, ground, &mut problems, &mut notes);
    let links = links::check(asked.links.as_deref().unwrap_or_default(), &mgmt, ground, &mut problems);
    disks::check(&asked.disks, ground.inventory, &mut problems);
    addresses_of("ntpServers", asked.ntp_servers.as_deref(), false, &mut problems);
    let provider = provider(&asked.provider, &links, &mgmt, ground, &mut problems);
    match asked.copy_from.as_deref() {
        None | Some("none") => {}
        Some(_) => problems
            .add("copyFrom", "this founder copies no assignment yet: send none, and the links themselves"),
    }
    if !problems.0.is_empty() {
        return Err(problems.0);
    }
    let mut disks = asked.disks.clone();
    for disk in disks.iter_mut().filter(|d| d.role == "compute") {
        let pool = disk.pool.get_or_insert_with(|| "default".to_owned()).clone();
        disk.storage_class.get_or_insert(pool);
    }
    Ok(Assignment {
        name,
        role: "hybrid".to_owned(),
        rack: asked.rack.clone(),
        az: asked.az.clone(),
        mgmt,
        links,
        disks,
        ntp_servers: asked.ntp_servers.clone(),
        provider,
        copied_from: None,
        copy_notes: notes,
    })
}

/// The first assigned NIC or disk that a new inventory no longer has.
pub(crate) fn lost_hardware(assignment: &Assignment, inventory: &Inventory) -> Option<String> {
    let made: Vec<&str> =
        assignment.links.iter().filter(|l| l.kind != "ethernet").map(|l| l.interface.as_str()).collect();
    let wanted = assignment.links.iter().filter(|l| l.kind == "ethernet").map(|l| l.interface.as_str());
    let parents = assignment.links.iter().filter_map(|l| l.parent.as_deref());
    let mut nics = wanted.chain(parents).chain([assignment.mgmt.interface.as_str()]);
    if let Some(nic) = nics.find(|n| *n != LOOPBACK && !made.contains(n) && inventory.nic(n).is_none()) {
        return Some(format!("NIC {nic} is gone"));
    }
    let gone = |key: &str| inventory.disk(key).err() == Some(NoDisk::Unknown);
    assignment.disks.iter().find(|d| gone(&d.key)).map(|d| format!("disk {} is gone", d.key))
}

/// The first assigned disk that the rules of an approval would not let through any more: mounted since, or data on it that nobody
/// confirmed. For an approval of which nothing was delivered yet; afterwards what is on the disks is firstboot's own work.
pub(crate) fn endangered_disk(assignment: &Assignment, inventory: &Inventory) -> Option<String> {
    assignment.disks.iter().find_map(|choice| {
        let key = &choice.key;
        match inventory.disk(key).map(Disk::verdict) {
            Err(NoDisk::Two) => Some(format!("{key} is the key of two disks")),
            Ok(Verdict::Refused(why)) => Some(format!("disk {key}: {why}")),
            Ok(Verdict::NeedsConfirm(data)) if choice.confirm.is_none() => {
                Some(format!("disk {key} holds data now ({data})"))
            }
            Err(NoDisk::Unknown) | Ok(Verdict::Blank | Verdict::NeedsConfirm(_)) => None,
        }
    })
}

/// What a lab joiner on the founder's own machine is managed over.
const LOOPBACK: &str = "lo";

fn role(asked: &Asked, ground: &Ground<'_>, problems: &mut Problems) {
    if let Some(role) = asked.role.as_deref().filter(|r| *r != "hybrid") {
        problems.add("role", format!("{role} is not supported yet: every joiner is hybrid"));
    } else if ground.control_planes >= ground.most_control_planes {
        let most = ground.most_control_planes;
        problems.add(
            "role",
            format!("the cluster has {} control-plane nodes; it takes {most}", ground.control_planes),
        );
    }
}

fn name(asked: &Asked, ground: &Ground<'_>, problems: &mut Problems) -> String {
    let name = asked.name.as_deref().unwrap_or(ground.hostname);
    if !rules::host_name(name) {
        problems.add("name", "must be an RFC 1123 host name");
    } else if ground.names.iter().any(|n| n == name) {
        problems.add("name", format!("{name} is another node's name"));
    }
    name.to_owned()
}

fn mgmt(asked: &AskedMgmt, ground: &Ground<'_>, problems: &mut Problems, notes: &mut Vec<String>) -> Mgmt {
    let interface = match &asked.interface {
        Some(name) => name.clone(),
        None => default_interface(ground, notes).unwrap_or_else(|| {
            problems
                .add("mgmt.interface", format!("no NIC of the machine holds {}: name one", ground.source));
            String::new()
        }),
    };
    let nic = ground.inventory.nic(&interface);
    let loopback = interface == LOOPBACK && on_loopback(ground);
    if asked.interface.is_some() && nic.is_none() && !loopback {
        problems.add("mgmt.interface", format!("the machine has no NIC {interface}"));
    }
    let address = match &asked.address {
        Some(address) => named_address(address, asked, ground, nic, problems),
        None if loopback => "127.0.0.1/8".to_owned(),
        None => {
            let own = nic.and_then(|n| n.cidr_of(ground.source).or_else(|| n.addresses().next()));
            if own.is_none() && nic.is_some() {
                problems
                    .add("mgmt.address", format!("{interface} has no address: name one, with its gateway"));
            }
            own.unwrap_or_default().to_owned()
        }
    };
    if let Some(cidr) = Cidr::parse(&address) {
        if let Some(who) = ground.held.by(cidr.address).filter(|_| !cidr.address.is_loopback()) {
            problems.add("mgmt.address", format!("{} is held by {who}", cidr.address));
        }
        gateway(asked.gateway.as_deref(), cidr, problems);
    }
    addresses_of("mgmt.dns", asked.dns.as_deref(), true, problems);
    Mgmt { interface, address, gateway: asked.gateway.clone(), dns: asked.dns.clone() }
}

/// The NIC that holds the address it registered from. A machine that registered over loopback is the founder's own: any NIC that is up.
fn default_interface(ground: &Ground<'_>, notes: &mut Vec<String>) -> Option<String> {
    let nics = &ground.inventory.nics;
    if let Some(nic) = nics.iter().find(|n| n.cidr_of(ground.source).is_some()) {
        return Some(nic.name.clone());
    }
    if !on_loopback(ground) {
        return None;
    }
    let free = |nic: &&super::inventory::Nic| {
        let address = nic.addresses().next().and_then(Cidr::parse);
        nic.link == "up" && address.is_some_and(|a| ground.held.by(a.address).is_none())
    };
    let name = nics.iter().find(free).map_or(LOOPBACK, |n| n.name.as_str());
    notes.push(format!("registered over loopback, so {name} was taken for management: check it"));
    Some(name.to_owned())
}

fn on_loopback(ground: &Ground<'_>) -> bool {
    ground.source.parse::<IpAddr>().is_ok_and(|a| a.is_loopback())
}

/// An IP that the NIC holds, or a CIDR that is new on it (then with a gateway).
fn named_address(
    text: &str,
    asked: &AskedMgmt,
    ground: &Ground<'_>,
    nic: Option<&super::inventory::Nic>,
    problems: &mut Problems,
) -> String {
    let bare = text.split('/').next().unwrap_or_default();
    let held = nic.and_then(|n| n.cidr_of(bare));
    match (Cidr::parse(text), text.parse::<IpAddr>(), held) {
        (Some(cidr), _, _) if !cidr.is_host(cidr.address) => {
            problems.add("mgmt.address", format!("{text} is a network, not a host in it"));
        }
        (Some(_), _, None) if asked.gateway.is_none() && !on_loopback(ground) => {
            problems.add("mgmt.gateway", format!("{text} is new on the NIC, so its gateway is needed"));
        }
        (Some(_), _, _) => {}
        (None, Ok(_), Some(cidr)) => return cidr.to_owned(),
        (None, Ok(_), None) => {
            problems.add("mgmt.address", format!("{text} is not on the NIC: give it with its prefix length"));
        }
        (None, Err(_), _) => problems.add("mgmt.address", "must be an IP address or a CIDR"),
    }
    text.to_owned()
}

fn gateway(gateway: Option<&str>, cidr: Cidr, problems: &mut Problems) {
    let Some(gateway) = gateway else { return };
    match gateway.parse::<IpAddr>() {
        Err(_) => problems.add("mgmt.gateway", "must be an IP address"),
        Ok(gateway) if !cidr.contains(gateway) || gateway == cidr.address => {
            problems.add("mgmt.gateway", "must be another address of the same network");
        }
        Ok(_) => {}
    }
}

fn addresses_of(at: &str, list: Option<&[String]>, only_ip: bool, problems: &mut Problems) {
    for (n, text) in list.unwrap_or_default().iter().enumerate() {
        let ip = text.parse::<IpAddr>().is_ok();
        if !ip && (only_ip || !rules::host_name(text)) {
            problems.add(
                format!("{at}[{n}]"),
                if only_ip { "must be an IP address" } else { "must be an address or a name" },
            );
        }
    }
}

fn provider(
    asked: &ProviderChoice,
    links: &[Link],
    mgmt: &Mgmt,
    ground: &Ground<'_>,
    problems: &mut Problems,
) -> ProviderChoice {
    let cluster = &ground.cluster.provider;
    if let Some(topology) = asked.topology.as_deref().filter(|t| *t != cluster.topology) {
        problems.add("provider.topology", format!("the cluster is {}, not {topology}", cluster.topology));
    }
    if asked.vlan.is_some() && asked.vlan != cluster.vlan {
        let own = cluster.vlan.map_or("none".to_owned(), |v| v.to_string());
        problems.add("provider.vlan", format!("the cluster's provider VLAN is {own}"));
    }
    let carrying = links.iter().find(|l| l.purposes.iter().any(|p| p == "provider"));
    let uplink = match (&asked.upstream_interface, carrying) {
        (Some(named), _) => named.clone(),
        (None, Some(link)) => link.interface.clone(),
        (None, None) if cluster.upstream_purpose == "mgmt" => mgmt.interface.clone(),
        (None, None) => cluster.upstream_interface.clone(),
    };
    if cluster.topology == "bridged" && !mgmt.interface.is_empty() {
        let link = links.iter().find(|l| l.interface == uplink);
        let there = link.is_some() || ground.inventory.nic(&uplink).is_some() || uplink == mgmt.interface;
        let carries = |l: &Link| l.purposes.iter().any(|p| p == "storage" || p == "overlay");
        if !there {
            problems.add("provider.upstreamInterface", format!("the machine has no NIC {uplink}"));
        } else if link.is_some_and(carries) {
            problems
                .add("provider.upstreamInterface", format!("{uplink} carries storage or overlay traffic"));
        }
    }
    ProviderChoice {
        topology: Some(cluster.topology.clone()),
        upstream_interface: Some(uplink),
        vlan: cluster.vlan,
    }
}
