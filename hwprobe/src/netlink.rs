//! The running kernel's links, addresses and routes by rtnetlink dumps.
//!
//! May touch: one AF_NETLINK socket of its own. Must never: send anything but a GET, or wait for ever.

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NLMSG_DONE, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage, AddressScope};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkInfo, LinkMessage, Prop};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::finding::{Finding, Missing};
use crate::netsource::{Addr, Link, NetSource, Route};

/// A dump that the kernel calls inconsistent is done again this often.
const TRIES: u32 = 5;
/// Kernel dumps come in pieces of at most 32 KiB.
const BUFFER: usize = 64 * 1024;

/// The running kernel.
#[derive(Debug)]
pub(crate) struct Netlink;

/// Why one dump has no answer.
enum Broken {
    /// It changed while it was read; worth another try.
    Interrupted,
    Missing(Missing),
}

// === impl Netlink ===

impl NetSource for Netlink {
    fn links(&self) -> Finding<Vec<Link>> {
        dump(
            || RouteNetlinkMessage::GetLink(LinkMessage::default()),
            |message| match message {
                RouteNetlinkMessage::NewLink(link) => Some(to_link(link)),
                _ => None,
            },
        )
    }

    fn addresses(&self) -> Finding<Vec<Addr>> {
        let mut request = AddressMessage::default();
        request.header.family = AddressFamily::Unspec;
        dump(
            || RouteNetlinkMessage::GetAddress(request.clone()),
            |message| match message {
                RouteNetlinkMessage::NewAddress(address) => to_addr(&address),
                _ => None,
            },
        )
    }

    fn routes(&self) -> Finding<Vec<Route>> {
        let mut request = RouteMessage::default();
        request.header.address_family = AddressFamily::Inet;
        request.header.table = RouteHeader::RT_TABLE_MAIN;
        dump(
            || RouteNetlinkMessage::GetRoute(request.clone()),
            |message| match message {
                RouteNetlinkMessage::NewRoute(route)
                    if route.header.address_family == AddressFamily::Inet =>
                {
                    Some(to_route(route))
                }
                _ => None,
            },
        )
    }
}

fn to_link(message: LinkMessage) -> Link {
    let mut link = Link {
        index: message.header.index,
        up: message.header.flags.contains(LinkFlags::Up),
        arp_type: Some(u16::from(message.header.link_layer_type)),
        ..Link::default()
    };
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name = name,
            LinkAttribute::PropList(list) => {
                link.alt_names.extend(list.into_iter().filter_map(|p| match p {
                    Prop::AltIfName(name) => Some(name),
                    _ => None,
                }))
            }
            LinkAttribute::Address(bytes) => link.address = bytes,
            LinkAttribute::PermAddress(bytes) => link.permanent = bytes,
            LinkAttribute::Mtu(mtu) => link.mtu = Some(mtu),
            LinkAttribute::Controller(index) => link.master = Some(index),
            LinkAttribute::Link(index) => link.lower = Some(index),
            LinkAttribute::LinkInfo(infos) => {
                link.kind = infos.into_iter().find_map(|info| match info {
                    LinkInfo::Kind(kind) => Some(kind.to_string()),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    // A device below itself is no device below.
    link.lower = link.lower.filter(|l| *l != link.index && *l != 0);
    link
}

fn to_addr(message: &AddressMessage) -> Option<Addr> {
    let find = |local: bool| {
        message.attributes.iter().find_map(|a| match a {
            AddressAttribute::Local(ip) if local => Some(*ip),
            AddressAttribute::Address(ip) if !local => Some(*ip),
            _ => None,
        })
    };
    // On point-to-point links `address` is the peer's.
    let address = find(true).or_else(|| find(false))?;
    let header = &message.header;
    // Of IPv6 the kernel says "temporary" with the bit that means "secondary" in IPv4 (include/uapi/linux/if_addr.h).
    let passing = matches!(header.scope, AddressScope::Link | AddressScope::Host | AddressScope::Nowhere)
        || header.flags.contains(AddressHeaderFlags::Secondary);
    if address.is_ipv6() && passing {
        return None;
    }
    Some(Addr { index: message.header.index, address, prefix: message.header.prefix_len })
}

fn to_route(message: RouteMessage) -> Route {
    let mut route = Route {
        table: u32::from(message.header.table),
        unicast: message.header.kind == RouteType::Unicast,
        prefix: message.header.destination_prefix_length,
        ..Route::default()
    };
    let mut object = false;
    for attribute in message.attributes {
        match attribute {
            // The header field is 252 for ids above 255.
            RouteAttribute::Table(table) => route.table = table,
            RouteAttribute::Destination(RouteAddress::Inet(ip)) => route.destination = Some(ip),
            RouteAttribute::Oif(index) => route.devices.push(index),
            RouteAttribute::MultiPath(hops) => route.devices.extend(hops.iter().map(|h| h.interface_index)),
            RouteAttribute::NhId(_) => object = true,
            _ => {}
        }
    }
    route.nexthop_object = object && route.devices.is_empty();
    route
}

fn dump<T>(
    request: impl Fn() -> RouteNetlinkMessage,
    mut take: impl FnMut(RouteNetlinkMessage) -> Option<T>,
) -> Finding<Vec<T>> {
    for _ in 0..TRIES {
        match dump_once(request(), &mut take) {
            Ok(found) => return Ok(found),
            Err(Broken::Interrupted) => {}
            Err(Broken::Missing(missing)) => return Err(missing),
        }
    }
    Err(Missing::IoError)
}

fn dump_once<T>(
    request: RouteNetlinkMessage,
    take: &mut impl FnMut(RouteNetlinkMessage) -> Option<T>,
) -> Result<Vec<T>, Broken> {
    let io = |error: std::io::Error| {
        Broken::Missing(match error.kind() {
            std::io::ErrorKind::PermissionDenied => Missing::Permission,
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => Missing::Timeout,
            _ => match error.raw_os_error() {
                // A sandbox without this address family.
                Some(code) if code == rustix::io::Errno::AFNOSUPPORT.raw_os_error() => Missing::Permission,
                _ => Missing::IoError,
            },
        })
    };
    let mut socket = Socket::new(NETLINK_ROUTE).map_err(io)?;
    socket.bind_auto().map_err(io)?;
    socket.connect(&SocketAddr::new(0, 0)).map_err(io)?;
    // Older kernels do not know it; the filters run in any case.
    let _ = socket.set_netlink_get_strict_chk(true);
    // The kernel answers a dump at once; this only keeps a broken one from holding us for ever.
    let wait = Some(std::time::Duration::from_secs(10));
    let _ = rustix::net::sockopt::set_socket_timeout(&socket, rustix::net::sockopt::Timeout::Recv, wait);

    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_DUMP | NLM_F_REQUEST;
    header.sequence_number = 1;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(request));
    message.finalize();
    let mut buffer = vec![0; message.buffer_len()];
    message.serialize(&mut buffer);
    socket.send(&buffer, 0).map_err(io)?;

    let mut found = Vec::new();
    let mut received: Vec<u8> = Vec::with_capacity(BUFFER);
    loop {
        received.clear();
        let size = socket.recv(&mut received, 0).map_err(io)?;
        let mut rest = received.get(..size).ok_or(Broken::Missing(Missing::Truncated))?;
        if rest.is_empty() {
            return Err(Broken::Missing(Missing::IoError));
        }
        while !rest.is_empty() {
            let (length, flags, kind) = frame(rest).ok_or(Broken::Missing(Missing::Invalid))?;
            if flags & NLM_F_DUMP_INTR != 0 {
                return Err(Broken::Interrupted);
            }
            let one = rest.get(..length).ok_or(Broken::Missing(Missing::Truncated))?;
            match NetlinkMessage::<RouteNetlinkMessage>::deserialize(one) {
                Ok(message) => match message.payload {
                    NetlinkPayload::Done(_) => return Ok(found),
                    NetlinkPayload::Error(error) => {
                        let errno = error.code.map_or(0, |code| code.get());
                        return Err(io(std::io::Error::from_raw_os_error(errno.saturating_abs())));
                    }
                    NetlinkPayload::InnerMessage(message) => found.extend(take(message)),
                    NetlinkPayload::Overrun(_) => return Err(Broken::Interrupted),
                    _ => {}
                },
                // One link, address or route that the parser does not know would be missing from the answer: then
                // there is no answer.
                Err(_) if kind == NLMSG_DONE => return Ok(found),
                Err(_) => return Err(Broken::Missing(Missing::Invalid)),
            }
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

/// Length, flags and type of the first message; `None` when it is no whole message.
fn frame(bytes: &[u8]) -> Option<(usize, u16, u16)> {
    let length = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?);
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    let flags = u16::from_ne_bytes(bytes.get(6..8)?.try_into().ok()?);
    let length = usize::try_from(length).ok()?;
    (length >= 16 && length <= bytes.len()).then_some((length, flags, kind))
}
