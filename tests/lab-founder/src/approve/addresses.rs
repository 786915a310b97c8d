//! IPv4 networks and the next free host address. Pure.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

/// An address with its prefix length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cidr {
    pub(crate) address: IpAddr,
    pub(crate) prefix: u8,
}

/// Every address that somebody holds, with who it is.
#[derive(Debug, Default)]
pub(crate) struct Held(Vec<(IpAddr, String)>);

// === impl Cidr ===

impl Cidr {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let plain = !prefix.is_empty() && prefix.len() <= 3 && prefix.bytes().all(|b| b.is_ascii_digit());
        let prefix: u8 = prefix.parse().ok().filter(|_| plain)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        (prefix <= most).then_some(Self { address, prefix })
    }

    /// Whether an address is in the network of this one.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                same_bits(u128::from(a.to_bits()), u128::from(b.to_bits()), self.prefix, 32)
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => same_bits(a.to_bits(), b.to_bits(), self.prefix, 128),
            _ => false,
        }
    }

    /// A host may have it: neither the network's own address nor its broadcast.
    pub(crate) fn is_host(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(a), IpAddr::V4(b)) if self.prefix < 31 => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0);
                let network = a.to_bits() & mask;
                b.to_bits() != network && b.to_bits() != network | !mask
            }
            _ => true,
        }
    }

    /// The lowest free host address of an IPv4 network.
    pub(crate) fn next_free(&self, held: &Held, also: &BTreeSet<IpAddr>) -> Option<IpAddr> {
        let IpAddr::V4(base) = self.address else { return None };
        let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0);
        let network = base.to_bits() & mask;
        // 65,536 is far more than a cluster has nodes; a wider network is searched that far.
        let hosts =
            (network..=network | !mask).take(65_536).map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits)));
        hosts.filter(|a| self.is_host(*a)).find(|a| held.by(*a).is_none() && !also.contains(a))
    }
}

// === impl Held ===

impl Held {
    /// `text` may be a bare address or a CIDR; anything else holds nothing.
    pub(crate) fn add(&mut self, text: &str, who: impl Into<String>) {
        let bare = text.split('/').next().unwrap_or_default();
        if let Ok(address) = bare.parse() {
            self.0.push((address, who.into()));
        }
    }

    /// Who holds an address.
    pub(crate) fn by(&self, address: IpAddr) -> Option<&str> {
        self.0.iter().find(|(held, _)| *held == address).map(|(_, who)| who.as_str())
    }
}

fn same_bits(a: u128, b: u128, prefix: u8, width: u32) -> bool {
    let shift = width - u32::from(prefix);
    a.checked_shr(shift).unwrap_or(0) == b.checked_shr(shift).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cidrs_are_read_strictly() {
        assert!(Cidr::parse("192.0.2.1/24").is_some() && Cidr::parse("2001:db8::1/64").is_some());
        for bad in ["192.0.2.1", "192.0.2.1/33", "192.0.2.1/+4", "192.0.2.1/", "/24", "192.0.2/24", "a/24"] {
            assert_eq!(Cidr::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_next_free_host_is_no_held_one_and_not_the_network_itself() {
        let network = Cidr::parse("198.51.100.0/30").unwrap();
        let mut held = Held::default();
        let next = |held: &Held| network.next_free(held, &BTreeSet::new()).map(|a| a.to_string());
        assert_eq!(next(&held).as_deref(), Some("198.51.100.1"));
        held.add("198.51.100.1/30", "node-2");
        assert_eq!(next(&held).as_deref(), Some("198.51.100.2"));
        held.add("198.51.100.2", "node-3");
        assert_eq!(next(&held), None, "full");
    }

    #[test]
    fn a_network_contains_its_own_and_nothing_else() {
        let network = Cidr::parse("198.51.100.0/24").unwrap();
        assert!(network.contains("198.51.100.255".parse().unwrap()));
        assert!(!network.contains("198.51.101.0".parse().unwrap()));
        assert!(!network.contains("2001:db8::1".parse().unwrap()));
        assert!(Cidr::parse("0.0.0.0/0").unwrap().contains("203.0.113.9".parse().unwrap()));
    }
}
