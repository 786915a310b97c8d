//! The kernel's interfaces, addresses, one route, and the neighbour table, by rtnetlink. Needs no privilege.
//!
//! May touch: one AF_NETLINK socket for each question. Must never: send anything but a GET, or wait for ever.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType, RouteVia};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use crate::diagnosis::facts::{AddressFact, RouteFact};

/// The kernel answers at once; this only keeps a broken one from holding us.
const WAIT: Duration = Duration::from_secs(2);
/// Kernel dumps come in pieces of at most 32 KiB.
const BUFFER: usize = 64 * 1024;
/// Of a whole answer; a machine with more neighbours than that is told nothing of them.
const MAX_MESSAGES: usize = 100_000;

/// One interface.
#[derive(Debug, Clone, Default)]
pub(super) struct Link {
    pub(super) index: u32,
    pub(super) name: String,
    pub(super) kind: Option<String>,
    pub(super) ethernet: bool,
    pub(super) arp: bool,
    pub(super) loopback: bool,
    pub(super) up: bool,
    pub(super) carrier: Option<bool>,
    pub(super) mac: Vec<u8>,
    pub(super) mtu: Option<u32>,
}

/// All interfaces.
pub(super) fn links() -> io::Result<Vec<Link>> {
    let mut found = Vec::new();
    ask(RouteNetlinkMessage::GetLink(LinkMessage::default()), true, |message| {
        if let RouteNetlinkMessage::NewLink(link) = message {
            found.push(to_link(link));
        }
    })?;
    Ok(found)
}

/// All addresses, with the index of their interface.
pub(super) fn addresses() -> io::Result<Vec<(u32, AddressFact)>> {
    let mut found = Vec::new();
    ask(RouteNetlinkMessage::GetAddress(AddressMessage::default()), true, |message| {
        if let RouteNetlinkMessage::NewAddress(address) = message {
            found.extend(to_address(&address));
        }
    })?;
    Ok(found)
}

/// What the kernel would do with a packet to `to`.
pub(super) fn route(to: IpAddr, name_of: impl Fn(u32) -> Option<String>) -> RouteFact {
    let mut request = RouteMessage::default();
    request.header.address_family = if to.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    request.header.destination_prefix_length = if to.is_ipv4() { 32 } else { 128 };
    request.attributes.push(RouteAttribute::Destination(RouteAddress::from(to)));
    let mut found = None;
    let asked = ask(RouteNetlinkMessage::GetRoute(request), false, |message| {
        if let RouteNetlinkMessage::NewRoute(route) = message {
            found = Some(to_route(&route, &name_of));
        }
    });
    match asked {
        Ok(()) => found.unwrap_or(RouteFact::Unknown),
        // ip-route(8): what each kind of route answers.
        Err(error) => match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
            Some(rustix::io::Errno::NETUNREACH) => RouteFact::Missing,
            Some(rustix::io::Errno::HOSTUNREACH) => RouteFact::Refused("unreachable"),
            Some(rustix::io::Errno::ACCESS) => RouteFact::Refused("prohibit"),
            Some(rustix::io::Errno::INVAL) => RouteFact::Refused("blackhole"),
            _ => RouteFact::Unknown,
        },
    }
}

/// The state of one neighbour; `None` when the table does not have it.
pub(super) fn neighbour(index: u32, ip: IpAddr) -> io::Result<Option<NeighbourState>> {
    let mut request = NeighbourMessage::default();
    request.header.family = if ip.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let mut found = None;
    ask(RouteNetlinkMessage::GetNeighbour(request), true, |message| {
        if let RouteNetlinkMessage::NewNeighbour(entry) = message
            && entry.header.ifindex == index
        {
            let same = entry.attributes.iter().any(|attribute| match attribute {
                NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => ip == IpAddr::V4(*v4),
                NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => ip == IpAddr::V6(*v6),
                _ => false,
            });
            if same {
                found = Some(entry.header.state);
            }
        }
    })?;
    Ok(found)
}

// === private ===

fn to_link(message: LinkMessage) -> Link {
    let flags = message.header.flags;
    let mut link = Link {
        index: message.header.index,
        ethernet: message.header.link_layer_type == LinkLayerType::Ether,
        arp: message.header.link_layer_type == LinkLayerType::Ether && !flags.contains(LinkFlags::Noarp),
        loopback: flags.contains(LinkFlags::Loopback),
        up: flags.contains(LinkFlags::Up),
        ..Link::default()
    };
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name = name,
            LinkAttribute::Address(bytes) => link.mac = bytes,
            LinkAttribute::Carrier(carrier) => link.carrier = Some(carrier != 0),
            LinkAttribute::Mtu(mtu) => link.mtu = Some(mtu),
            LinkAttribute::LinkInfo(infos) => {
                link.kind = infos.into_iter().find_map(|info| match info {
                    LinkInfo::Kind(kind) => Some(kind.to_string()),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    link
}

fn to_address(message: &AddressMessage) -> Option<(u32, AddressFact)> {
    let find = |local: bool| {
        message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Local(ip) if local => Some(*ip),
            AddressAttribute::Address(ip) if !local => Some(*ip),
            _ => None,
        })
    };
    // On point-to-point links `address` is the peer's.
    let ip = find(true).or_else(|| find(false))?;
    let flags = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Flags(flags) => Some(*flags),
        _ => None,
    });
    let (dad_failed, tentative) = match flags {
        Some(flags) => (flags.contains(AddressFlags::Dadfailed), flags.contains(AddressFlags::Tentative)),
        None => {
            let flags = message.header.flags;
            (flags.contains(AddressHeaderFlags::Dadfailed), flags.contains(AddressHeaderFlags::Tentative))
        }
    };
    Some((message.header.index, AddressFact { ip, prefix: message.header.prefix_len, dad_failed, tentative }))
}

fn to_route(message: &RouteMessage, name_of: &impl Fn(u32) -> Option<String>) -> RouteFact {
    match message.header.kind {
        RouteType::Local => return RouteFact::Local,
        RouteType::Unreachable => return RouteFact::Refused("unreachable"),
        RouteType::Prohibit => return RouteFact::Refused("prohibit"),
        RouteType::BlackHole => return RouteFact::Refused("blackhole"),
        _ => {}
    }
    let ip = |address: &RouteAddress| match address {
        RouteAddress::Inet(ip) => Some(IpAddr::V4(*ip)),
        RouteAddress::Inet6(ip) => Some(IpAddr::V6(*ip)),
        _ => None,
    };
    let (mut out, mut gateway, mut source) = (None, None, None);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(index) => out = Some(*index),
            RouteAttribute::Gateway(address) => gateway = ip(address),
            RouteAttribute::Via(RouteVia::Inet(ip)) => gateway = Some(IpAddr::V4(*ip)),
            RouteAttribute::Via(RouteVia::Inet6(ip)) => gateway = Some(IpAddr::V6(*ip)),
            RouteAttribute::PrefSource(address) => source = ip(address),
            _ => {}
        }
    }
    match out {
        Some(index) => {
            let name = name_of(index).unwrap_or_else(|| format!("interface {index}"));
            RouteFact::Via { index, nic: crate::diagnosis::decide::nic_name(&name), gateway, source }
        }
        None => RouteFact::Unknown,
    }
}

/// One question and its whole answer; what cannot be read of it is an error.
fn ask(
    request: RouteNetlinkMessage,
    dump: bool,
    mut take: impl FnMut(RouteNetlinkMessage),
) -> io::Result<()> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(WAIT))?;
    let mut header = NetlinkHeader::default();
    header.flags = if dump { NLM_F_DUMP | NLM_F_REQUEST } else { NLM_F_REQUEST };
    header.sequence_number = 1;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(request));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send(&bytes, 0)?;

    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let mut room: Vec<u8> = Vec::with_capacity(BUFFER);
    let mut count = 0;
    loop {
        room.clear();
        let size = socket.recv(&mut room, 0)?;
        let mut rest = room.get(..size).filter(|rest| !rest.is_empty()).ok_or_else(invalid)?;
        while !rest.is_empty() {
            count += 1;
            let length = rest.first_chunk().map(|four| u32::from_ne_bytes(*four)).ok_or_else(invalid)?;
            let length = usize::try_from(length).ok().filter(|l| *l >= 16).ok_or_else(invalid)?;
            let one = rest.get(..length).filter(|_| count <= MAX_MESSAGES).ok_or_else(invalid)?;
            match NetlinkMessage::<RouteNetlinkMessage>::deserialize(one).map_err(|_| invalid())?.payload {
                NetlinkPayload::Done(_) => return Ok(()),
                NetlinkPayload::Error(error) if error.raw_code() == 0 => return Ok(()),
                NetlinkPayload::Error(error) => {
                    return Err(io::Error::from_raw_os_error(error.raw_code().saturating_abs()));
                }
                NetlinkPayload::InnerMessage(message) => take(message),
                _ => {}
            }
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        if !dump {
            return Ok(());
        }
    }
}
