//! Links, addresses and routes of a captured tree, and links from sysfs alone.
//!
//! May touch: `capture/ip-addr.json`, `capture/ip-route.json`, `sys/class/net`. Must never: open a socket.

use std::net::Ipv4Addr;

use serde_json::Value;

use crate::finding::{Finding, Missing};
use crate::netsource::{Addr, Link, NetSource, Route};
use crate::roots::Roots;

/// Main routing table.
const MAIN: u32 = 254;
/// `IFF_UP`.
const IFF_UP: u64 = 1;

/// A captured tree: the output of `ip -j -d addr show` and `ip -j -N -d route show table main`.
#[derive(Debug)]
pub(crate) struct NetCapture(pub(crate) Roots);

// === impl NetCapture ===

impl NetCapture {
    fn json(&self, file: &str) -> Finding<Vec<Value>> {
        let bytes = self
            .0
            .read_long(file)
            .map_err(|m| if m == Missing::Absent { Missing::NotCaptured } else { m })?;
        serde_json::from_slice(&bytes).map_err(|_| Missing::Invalid)
    }

    fn index_of(links: &[Value], name: &str) -> Option<u32> {
        links.iter().find(|l| text(l, "ifname") == Some(name)).and_then(|l| number(l, "ifindex"))
    }
}

impl NetSource for NetCapture {
    fn links(&self) -> Finding<Vec<Link>> {
        let all = match self.json("capture/ip-addr.json") {
            Err(Missing::NotCaptured) => return sysfs_links(&self.0),
            other => other?,
        };
        Ok(links_in(&all))
    }

    fn addresses(&self) -> Finding<Vec<Addr>> {
        addresses_in(&self.json("capture/ip-addr.json")?)
    }

    fn routes(&self) -> Finding<Vec<Route>> {
        let links = self.json("capture/ip-addr.json")?;
        let routes = self.json("capture/ip-route.json")?;
        Ok(routes_in(&links, &routes))
    }
}

/// The interfaces of `ip -j -d addr show`.
pub(crate) fn links_in(all: &[Value]) -> Vec<Link> {
    all.iter().filter_map(|l| to_link(all, l)).collect()
}

/// The addresses of `ip -j -d addr show`. `ip` gives every interface a list of addresses: when none has one, they were not recorded.
pub(crate) fn addresses_in(all: &[Value]) -> Finding<Vec<Addr>> {
    if !all.is_empty() && all.iter().all(|link| link.get("addr_info").is_none()) {
        return Err(Missing::NotCaptured);
    }
    let mut found = Vec::new();
    for link in all {
        let Some(index) = number(link, "ifindex") else { continue };
        for address in link.get("addr_info").and_then(Value::as_array).into_iter().flatten() {
            let temporary = address.get("temporary").and_then(Value::as_bool) == Some(true);
            let counts = match text(address, "family") {
                Some("inet") => true,
                Some("inet6") => {
                    !temporary && !matches!(text(address, "scope"), Some("link" | "host" | "nowhere"))
                }
                _ => false,
            };
            let ip = text(address, "local").and_then(|l| l.parse().ok());
            let prefix = number(address, "prefixlen").and_then(|p| u8::try_from(p).ok());
            if let (true, Some(address), Some(prefix)) = (counts, ip, prefix) {
                found.push(Addr { index, address, prefix });
            }
        }
    }
    Ok(found)
}

/// The routes of `ip -j -N -d route show table main`; `links` is what [`links_in`] takes.
pub(crate) fn routes_in(links: &[Value], routes: &[Value]) -> Vec<Route> {
    routes.iter().filter_map(|r| to_route(links, r)).collect()
}

fn to_link(all: &[Value], link: &Value) -> Option<Link> {
    let flags = link.get("flags").and_then(Value::as_array);
    let other = |key: &str| text(link, key).and_then(|name| NetCapture::index_of(all, name));
    let kind = link.get("linkinfo").and_then(|i| text(i, "info_kind"));
    let names = link.get("altnames").and_then(Value::as_array).into_iter().flatten();
    Some(Link {
        index: number(link, "ifindex")?,
        name: text(link, "ifname")?.to_owned(),
        alt_names: names.filter_map(Value::as_str).map(str::to_owned).collect(),
        address: text(link, "address").map(address).unwrap_or_default(),
        permanent: text(link, "permaddr").map(address).unwrap_or_default(),
        kind: kind.map(str::to_owned),
        arp_type: match text(link, "link_type") {
            Some("ether") => Some(1),
            Some("infiniband") => Some(32),
            _ => None,
        },
        up: flags.is_some_and(|f| f.iter().any(|f| f.as_str() == Some("UP"))),
        mtu: number(link, "mtu"),
        master: other("master"),
        lower: number(link, "link_index").or_else(|| other("link")),
    })
}

fn to_route(links: &[Value], route: &Value) -> Option<Route> {
    let dst = text(route, "dst")?;
    let (destination, prefix) = match dst.split_once('/') {
        _ if dst == "default" => (None, 0),
        Some((ip, prefix)) => (Some(ip.parse::<Ipv4Addr>().ok()?), prefix.parse().ok()?),
        None => (Some(dst.parse().ok()?), 32),
    };
    let hops = route.get("nexthops").and_then(Value::as_array).into_iter().flatten();
    let names = text(route, "dev").into_iter().chain(hops.filter_map(|h| text(h, "dev")));
    let devices: Vec<u32> = names.filter_map(|n| NetCapture::index_of(links, n)).collect();
    let table =
        text(route, "table").map_or(MAIN, |t| if t == "main" { MAIN } else { t.parse().unwrap_or(0) });
    Some(Route {
        table,
        unicast: text(route, "type").is_none_or(|t| t == "unicast" || t == "1"),
        destination,
        prefix,
        nexthop_object: devices.is_empty() && route.get("nhid").is_some(),
        devices,
    })
}

/// What sysfs alone tells of the interfaces.
pub(crate) fn sysfs_links(roots: &Roots) -> Finding<Vec<Link>> {
    let names = roots.list("sys/class/net")?;
    let mut links: Vec<Link> = Vec::new();
    for (n, name) in names.iter().enumerate() {
        let file = |file: &str| format!("sys/class/net/{name}/{file}");
        // `bonding_masters` is a file.
        if roots.list(&format!("sys/class/net/{name}")).is_err() {
            continue;
        }
        let flags = roots.line(&file("flags")).ok();
        let flags = flags.and_then(|f| u64::from_str_radix(f.trim_start_matches("0x"), 16).ok());
        let small = |name: &str| roots.number(&file(name)).ok().and_then(|v| u32::try_from(v).ok());
        let mut kind = None;
        for (dir, name) in [("bonding", "bond"), ("bridge", "bridge"), ("tun_flags", "tun")] {
            if roots.stat(&file(dir)).is_ok() {
                kind = Some(name.to_owned());
            }
        }
        let uevent = roots.line(&file("uevent")).unwrap_or_default();
        if uevent.lines().any(|l| l == "DEVTYPE=vlan") {
            kind = Some("vlan".to_owned());
        }
        links.push(Link {
            index: small("ifindex").unwrap_or_else(|| u32::try_from(n).unwrap_or(0).saturating_add(1 << 30)),
            name: name.clone(),
            address: roots.line(&file("address")).map(|a| address(&a)).unwrap_or_default(),
            kind,
            arp_type: small("type").and_then(|t| u16::try_from(t).ok()),
            up: flags.is_some_and(|f| f & IFF_UP != 0),
            mtu: small("mtu"),
            lower: small("iflink"),
            ..Link::default()
        });
    }
    let masters: Vec<Option<String>> =
        links.iter().map(|l| roots.link_name(&format!("sys/class/net/{}/master", l.name)).ok()).collect();
    let index = |name: &str| links.iter().find(|l| l.name == name).map(|l| l.index);
    let masters: Vec<Option<u32>> = masters.into_iter().map(|m| m.as_deref().and_then(index)).collect();
    for (link, master) in links.iter_mut().zip(masters) {
        link.master = master;
        link.lower = link.lower.filter(|l| *l != link.index && *l != 0);
    }
    Ok(links)
}

fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str)
}

fn number(value: &Value, key: &str) -> Option<u32> {
    value.get(key).and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok())
}

/// The bytes of `02:fc:00:00:00:01`; empty when it is no such thing.
pub(crate) fn address(text: &str) -> Vec<u8> {
    let byte = |s: &str| if s.len() == 2 { u8::from_str_radix(s, 16).ok() } else { None };
    text.trim().split(':').map(byte).collect::<Option<Vec<u8>>>().unwrap_or_default()
}
