//! Name, interfaces, route, neighbour, duplicate address, port: what can be found out without a word of the founder.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use console::text::Safe;
use hwprobe::Roots;
use netlink_packet_route::neighbour::NeighbourState;
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};

use super::{Run, arp, netlink};
use crate::diagnosis::decide::nic_name;
use crate::diagnosis::facts::{
    DuplicateFact, NameFact, NeighbourFact, NicFact, PortError, PortFact, RouteFact, Target, WayFact,
};
use crate::founder::resolver_words;
use crate::protocol::url::Host;

/// The resolver's time. It gives a server 5 s by itself; the rows behind need theirs.
const NAME: Duration = Duration::from_secs(4);
/// For a connect: three SYNs.
const CONNECT: Duration = Duration::from_secs(5);
/// For a neighbour that is being asked: the kernel asks three times, a second apart.
const NEIGHBOUR: Duration = Duration::from_millis(3_500);
/// For a neighbour after a connect that found nobody: it was asked by then.
const AFTER_CONNECT: Duration = Duration::from_millis(1_500);
/// How often the neighbour table is read meanwhile.
const PACE: Duration = Duration::from_millis(100);
/// Most addresses of a name that are tried.
const MAX_TARGETS: usize = 4;
/// Largest resolv.conf that is read.
const MAX_RESOLV_CONF: u64 = 64 * 1024;
/// Drivers of a management controller's own USB interface: a cable that is always there and leads nowhere.
const INSIDE: [&str; 3] = ["cdc_ether", "rndis_host", "cdc_eem"];

impl Run {
    pub(super) async fn resolve(&mut self) {
        let Host::Name(host) = &self.facts.endpoint.host else {
            if let Host::Ip(ip) = self.facts.endpoint.host {
                self.targets = vec![ip];
            }
            self.facts.name = Some(NameFact::Literal);
            return;
        };
        let lookup = tokio::net::lookup_host((host.clone(), self.facts.endpoint.port));
        let found = timeout(NAME, lookup).await;
        let failed = |why: String| NameFact::Failed(Safe::clean(why));
        self.facts.name = Some(match found {
            Ok(Ok(found)) => {
                let mut ips: Vec<IpAddr> = Vec::new();
                for ip in found.map(|address| address.ip().to_canonical()) {
                    if !ips.contains(&ip) && ips.len() < MAX_TARGETS {
                        ips.push(ip);
                    }
                }
                self.targets.clone_from(&ips);
                if ips.is_empty() { failed("it has no address".to_owned()) } else { NameFact::Resolved(ips) }
            }
            Ok(Err(error)) => {
                let words = resolver_words(&error);
                failed(if words == "no name server answers" { no_answer() } else { words })
            }
            Err(_) => failed(format!("{} in {} s", no_answer(), NAME.as_secs())),
        });
    }

    /// Interfaces, and the way to the founder; to a name server when the name did not resolve.
    pub(super) async fn find_way(&mut self) {
        let targets: Vec<Target> = match self.facts.name {
            Some(NameFact::Failed(_)) => name_servers().into_iter().map(Target::NameServer).collect(),
            _ => self.targets.iter().copied().map(Target::Founder).collect(),
        };
        let found = spawn_blocking(move || {
            let links = netlink::links();
            let name_of = |index: u32| {
                links.as_ref().ok()?.iter().find(|link| link.index == index).map(|link| link.name.clone())
            };
            let mut ways: Vec<WayFact> = Vec::new();
            for target in targets {
                let route = netlink::route(target.ip(), name_of);
                ways.push(WayFact { target, route, neighbour: None });
            }
            let nics = links.and_then(|links| Ok((nics(&links)?, links)));
            (ways, nics)
        });
        let Ok((ways, nics)) = found.await else { return };
        if let Ok((nics, links)) = nics {
            self.facts.nics = Some(nics);
            self.macs = links.into_iter().map(|link| link.mac).collect();
        }
        let leads = |way: &&WayFact| matches!(way.route, RouteFact::Via { .. } | RouteFact::Local);
        // Where there is no way at all, each is as good as the other for saying so.
        if ways.iter().any(|way| leads(&way)) {
            let open = |ip: &IpAddr| ways.iter().any(|way| way.target == Target::Founder(*ip) && leads(&way));
            self.targets.retain(open);
        }
        self.facts.way = ways.iter().find(leads).or(ways.first()).cloned();
        if let Some(WayFact {
            target: Target::NameServer(ip),
            route: RouteFact::Via { index, gateway, .. },
            ..
        }) = self.facts.way.clone()
        {
            send_one(SocketAddr::new(ip, 53));
            let next = gateway.unwrap_or(ip);
            let state = self.watch(index, next, NEIGHBOUR).await;
            self.set_neighbour(state);
        }
    }

    /// Whether somebody else answers for the address that we send from.
    pub(super) async fn ask_duplicates(&mut self) {
        let Some(nic) = self.facts.nic_of_way().filter(|nic| nic.arp).cloned() else {
            self.facts.duplicate = self.facts.way.as_ref().map(|_| DuplicateFact::NotNeeded);
            return;
        };
        let own = self.macs.clone();
        self.facts.duplicate = spawn_blocking(move || arp::look(&[&nic], &own)).await.ok();
    }

    /// TCP, and what the neighbour table makes of it.
    pub(super) async fn connect(&mut self) {
        let port = self.facts.endpoint.port;
        let count = u32::try_from(self.targets.len()).unwrap_or(1).max(1);
        for ip in self.targets.clone() {
            let began = Instant::now();
            let limit = CONNECT / count;
            let mut connecting = std::pin::pin!(timeout(limit, TcpStream::connect((ip, port))));
            self.take_way_to(ip);
            let error = loop {
                tokio::select! {
                    done = &mut connecting => match done {
                        Ok(Ok(_)) => {
                            self.set_neighbour(NeighbourFact::Answers);
                            self.facts.port = Some(PortFact::Open(ip, began.elapsed()));
                            return;
                        }
                        Ok(Err(error)) => break port_error(&error),
                        Err(_) => break PortError::Silent(limit),
                    },
                    // The kernel gives a neighbour up before a connect is over: no need to wait on.
                    () = sleep(PACE) => if let Some(NeighbourFact::Silent(state)) = self.neighbour_now().await {
                        self.set_neighbour(NeighbourFact::Silent(state));
                        break PortError::Unreachable("no route to host");
                    },
                }
            };
            let state = match &error {
                PortError::Refused => NeighbourFact::Answers,
                PortError::Forbidden | PortError::Other(_) => NeighbourFact::Unknown,
                PortError::Silent(_) | PortError::Unreachable(_) => match self.next_hop() {
                    Some((index, next)) => self.watch(index, next, AFTER_CONNECT).await,
                    None => NeighbourFact::Unknown,
                },
            };
            self.set_neighbour(state);
            self.facts.port = Some(PortFact::Closed(ip, error));
        }
    }

    /// The route is that to `ip` from now on.
    fn take_way_to(&mut self, ip: IpAddr) {
        if self.facts.way.as_ref().is_some_and(|way| way.target.ip() == ip) {
            return;
        }
        let nics = self.facts.nics.clone().unwrap_or_default();
        let name_of = |index: u32| nics.iter().find(|nic| nic.index == index).map(|nic| nic.name.to_string());
        let route = netlink::route(ip, name_of);
        self.facts.way = Some(WayFact { target: Target::Founder(ip), route, neighbour: None });
    }

    fn set_neighbour(&mut self, state: NeighbourFact) {
        if let Some(way) = &mut self.facts.way
            && matches!(way.route, RouteFact::Via { .. })
        {
            way.neighbour = Some(state);
        }
    }

    fn next_hop(&self) -> Option<(u32, IpAddr)> {
        let way = self.facts.way.as_ref()?;
        let RouteFact::Via { index, gateway, .. } = &way.route else { return None };
        Some((*index, gateway.unwrap_or(way.target.ip())))
    }

    async fn neighbour_now(&self) -> Option<NeighbourFact> {
        let (index, next) = self.next_hop()?;
        let state = spawn_blocking(move || netlink::neighbour(index, next)).await.ok()?.ok()?;
        decided(state)
    }

    /// Reads the neighbour table until it is decided.
    async fn watch(&self, index: u32, next: IpAddr, limit: Duration) -> NeighbourFact {
        let until = Instant::now() + limit;
        loop {
            let read = spawn_blocking(move || netlink::neighbour(index, next)).await;
            let Ok(Ok(state)) = read else { return NeighbourFact::Unknown };
            if let Some(decided) = decided(state) {
                return decided;
            }
            if Instant::now() >= until {
                return match state {
                    Some(NeighbourState::Incomplete) => NeighbourFact::Silent("INCOMPLETE"),
                    Some(NeighbourState::Probe) => NeighbourFact::Silent("PROBE"),
                    // It answered a moment ago and is not asked again yet.
                    Some(NeighbourState::Delay) => NeighbourFact::Answers,
                    _ => NeighbourFact::Unknown,
                };
            }
            sleep(PACE).await;
        }
    }
}

// === private ===

/// `None` while the kernel has not made up its mind.
fn decided(state: Option<NeighbourState>) -> Option<NeighbourFact> {
    match state? {
        NeighbourState::Reachable | NeighbourState::Stale | NeighbourState::Permanent => {
            Some(NeighbourFact::Answers)
        }
        NeighbourState::Failed => Some(NeighbourFact::Silent("FAILED")),
        NeighbourState::Noarp => Some(NeighbourFact::NotNeeded),
        _ => None,
    }
}

/// The interfaces with what of them counts: hardware and what reaches hardware, by the probe; on a machine that has none (a container, a
/// network namespace) every Ethernet interface.
fn nics(links: &[netlink::Link]) -> io::Result<Vec<NicFact>> {
    let addresses = netlink::addresses()?;
    let probed = Roots::live().map(|roots| hwprobe::probe_network(&roots, &hwprobe::Options::default()));
    let probed = probed.map(|part| part.nics).unwrap_or_default();
    let known = |name: &str| probed.iter().find(|nic| nic.name.as_str() == name);
    let any_hardware = links.iter().any(|link| known(&link.name).is_some());
    let nic = |link: &netlink::Link| {
        let probe = known(&link.name);
        let mine: Vec<_> =
            addresses.iter().filter(|(index, _)| *index == link.index).map(|(_, a)| *a).collect();
        let driver = probe.and_then(|nic| nic.driver.as_ref()).map_or("", |driver| driver.as_str());
        let inside = INSIDE.contains(&driver) && mine.is_empty();
        NicFact {
            index: link.index,
            name: nic_name(&link.name),
            mac: Safe::clean(arp::mac_text(&link.mac)),
            up: link.up,
            carrier: link.carrier,
            speed_mbps: probe.and_then(|nic| nic.speed_mbps),
            counts: if any_hardware { probe.is_some() && !inside } else { link.ethernet },
            arp: link.arp,
            mtu: link.mtu,
            addresses: mine,
        }
    };
    Ok(links.iter().filter(|link| !link.loopback).map(nic).collect())
}

/// Makes the kernel look for the neighbour.
fn send_one(to: SocketAddr) {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    if let Ok(socket) = UdpSocket::bind(any) {
        // What becomes of it, the neighbour table tells.
        let _ = socket.send_to(&[0], to);
    }
}

fn port_error(error: &io::Error) -> PortError {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => PortError::Refused,
        io::ErrorKind::TimedOut => PortError::Silent(CONNECT),
        io::ErrorKind::HostUnreachable => PortError::Unreachable("no route to host"),
        io::ErrorKind::NetworkUnreachable => PortError::Unreachable("network is unreachable"),
        io::ErrorKind::PermissionDenied => PortError::Forbidden,
        _ => PortError::Other(Safe::clean(error.to_string().split(" (os error").next().unwrap_or_default())),
    }
}

/// The name servers of resolv.conf(5) beyond this machine; of systemd-resolved those behind it.
fn name_servers() -> Vec<IpAddr> {
    let found = servers_of("/etc/resolv.conf");
    let far = |list: &[IpAddr]| list.iter().copied().filter(|ip| !ip.is_loopback()).collect::<Vec<_>>();
    match far(&found) {
        list if list.is_empty() && !found.is_empty() => far(&servers_of("/run/systemd/resolve/resolv.conf")),
        list => list,
    }
}

fn servers_of(path: &str) -> Vec<IpAddr> {
    use std::io::Read;
    let mut text = String::new();
    let read =
        std::fs::File::open(path).and_then(|file| file.take(MAX_RESOLV_CONF).read_to_string(&mut text));
    if read.is_err() {
        return Vec::new();
    }
    let server = |line: &str| line.trim().strip_prefix("nameserver")?.trim().parse().ok();
    text.lines().filter_map(server).take(3).collect()
}

fn no_answer() -> String {
    let all = servers_of("/etc/resolv.conf");
    if all.is_empty() {
        return "this machine has no name server".to_owned();
    }
    let far = name_servers();
    let named: Vec<String> = if far.is_empty() { all } else { far }.iter().map(ToString::to_string).collect();
    format!("no answer from {}", named.join(", "))
}
