//! Links, addresses and routes, as netlink or a capture of `ip` tells them.
//!
//! May touch: nothing; the types and the trait. Must never: join anything by name that has an index.

use std::net::{IpAddr, Ipv4Addr};

use crate::finding::Finding;

/// One network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Interface index.
    pub index: u32,
    /// Name.
    pub name: String,
    /// Other names.
    pub alt_names: Vec<String>,
    /// Address in use.
    pub address: Vec<u8>,
    /// Permanent address.
    pub permanent: Vec<u8>,
    /// `bond`, `vlan`, `bridge`, ...; `None` for hardware.
    pub kind: Option<String>,
    /// ARP hardware type; 1 Ethernet, 32 InfiniBand.
    pub arp_type: Option<u16>,
    /// Switched on (`IFF_UP`).
    pub up: bool,
    /// Bytes.
    pub mtu: Option<u32>,
    /// Index of the bond, bridge or team.
    pub master: Option<u32>,
    /// Index of the interface below.
    pub lower: Option<u32>,
}

/// One address. Of IPv6 those that others can use from one day to the next: no link-local one, which every interface has, and no temporary one
/// (RFC 8981).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Addr {
    /// Interface index.
    pub index: u32,
    /// The address itself, not the peer's.
    pub address: IpAddr,
    /// Prefix length.
    pub prefix: u8,
}

/// One IPv4 route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// Routing table; main is 254.
    pub table: u32,
    /// `RTN_UNICAST`.
    pub unicast: bool,
    /// Destination; `None` is `0.0.0.0`.
    pub destination: Option<Ipv4Addr>,
    /// Prefix length of the destination.
    pub prefix: u8,
    /// Indexes of the interfaces of all hops.
    pub devices: Vec<u32>,
    /// The hops are behind a nexthop object that the kernel does not spell out.
    pub nexthop_object: bool,
}

/// Where links, addresses and routes come from.
pub trait NetSource {
    /// All interfaces.
    ///
    /// # Errors
    /// Why they are not known.
    fn links(&self) -> Finding<Vec<Link>>;
    /// All addresses.
    ///
    /// # Errors
    /// Why they are not known.
    fn addresses(&self) -> Finding<Vec<Addr>>;
    /// IPv4 routes of the main table at least.
    ///
    /// # Errors
    /// Why they are not known.
    fn routes(&self) -> Finding<Vec<Route>>;
}
