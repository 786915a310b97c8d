//! Does anybody else answer for our IPv4 address? An ARP probe as RFC 5227 section 2.1.1 has it: from no address, so that no table is changed.
//!
//! May touch: one packet socket, for ARP on one interface; the kernel gives it to root alone. Must never: send anything but a probe for an
//! address that is this machine's own.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use console::text::Safe;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{LinkAddr, bind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

use crate::diagnosis::facts::{DuplicateFact, NicFact};

/// `ETH_P_ARP`.
const ARP: u16 = 0x0806;
/// Probes for each address, and how far apart. Who has the address answers the first; the others are for one that is lost.
const PROBES: u32 = 3;
const APART: Duration = Duration::from_millis(250);
/// Most addresses asked for.
const MAX_ADDRESSES: usize = 4;

/// Asks for the usable IPv4 addresses of these interfaces. Takes at most 3 s.
pub(super) fn look(nics: &[&NicFact], own: &[Vec<u8>]) -> DuplicateFact {
    let asked = nics.iter().flat_map(|nic| {
        let v4 = nic.addresses.iter().filter_map(|a| match a.ip {
            IpAddr::V4(ip) if !ip.is_loopback() => Some(ip),
            _ => None,
        });
        v4.map(move |ip| (*nic, ip))
    });
    let asked: Vec<(&NicFact, Ipv4Addr)> = asked.take(MAX_ADDRESSES).collect();
    if asked.is_empty() {
        return DuplicateFact::NotNeeded;
    }
    let mut free = Vec::new();
    for (nic, ip) in asked {
        match probe(nic.name.as_str(), ip, own) {
            Ok(Some(mac)) => return DuplicateFact::Found { ip: ip.into(), mac: Safe::clean(mac_text(&mac)) },
            Ok(None) => free.push(ip.into()),
            Err(error) => match error.kind() {
                io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported => {
                    return DuplicateFact::NotAllowed;
                }
                // A sandbox without packet sockets.
                _ if error.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error()) => {
                    return DuplicateFact::NotAllowed;
                }
                _ => return DuplicateFact::Unknown(Safe::clean(error.to_string())),
            },
        }
    }
    DuplicateFact::None(free)
}

/// A hardware address as people write it.
pub(super) fn mac_text(mac: &[u8]) -> String {
    mac.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

/// Who else answers for `ip` on the interface.
fn probe(nic: &str, ip: Ipv4Addr, own: &[Vec<u8>]) -> io::Result<Option<[u8; 6]>> {
    let protocol = std::num::NonZeroU32::new(u32::from(ARP.to_be())).map(Protocol::from_raw);
    let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
    let address = link_address(nic)?;
    // Its protocol is 0 there, which keeps the socket's (packet(7)).
    bind(socket.as_raw_fd(), &address)?;
    let from = address.addr().ok_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable))?;
    let packet = request(from, ip);
    let mut room = [0; 128];
    for _ in 0..PROBES {
        send(&socket, &packet, SendFlags::empty())?;
        let until = Instant::now() + APART;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            let left = Timespec { tv_sec: 0, tv_nsec: left.subsec_nanos().into() };
            let ready = poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&left))?;
            if ready == 0 {
                break;
            }
            let (size, _) = recv(&socket, &mut room, RecvFlags::DONTWAIT)?;
            if let Some(mac) = room.get(..size).and_then(|frame| sender_of(frame, ip))
                && mac != from
                && !own.iter().any(|ours| ours[..] == mac)
            {
                return Ok(Some(mac));
            }
        }
    }
    Ok(None)
}

/// The interface as a packet socket names it: the C library's own list has it ready-made.
fn link_address(nic: &str) -> io::Result<LinkAddr> {
    let found = getifaddrs()?.filter(|entry| entry.interface_name == nic).find_map(|entry| {
        let address = entry.address?;
        address.as_link_addr().copied()
    });
    found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
}

/// Ethernet broadcast, ARP request, sender address 0.0.0.0 (RFC 826, RFC 5227).
fn request(from: [u8; 6], ip: Ipv4Addr) -> [u8; 42] {
    let mut frame = [0; 42];
    let parts: [(usize, &[u8]); 7] = [
        (0, &[0xff; 6]),
        (6, &from),
        (12, &ARP.to_be_bytes()),
        // Ethernet, IPv4, 6 and 4 bytes, request.
        (14, &[0, 1, 8, 0, 6, 4, 0, 1]),
        (22, &from),
        (28, &[0; 4]),
        (38, &ip.octets()),
    ];
    for (at, bytes) in parts {
        frame[at..at + bytes.len()].copy_from_slice(bytes);
    }
    frame
}

/// The hardware address that claims `ip` in this frame, whether asked or not.
fn sender_of(frame: &[u8], ip: Ipv4Addr) -> Option<[u8; 6]> {
    let is_arp = frame.get(12..14)? == ARP.to_be_bytes() && frame.get(14..20)? == [0, 1, 8, 0, 6, 4];
    let claims = frame.get(28..32)? == ip.octets();
    let mac: [u8; 6] = frame.get(22..28)?.try_into().ok()?;
    (is_arp && claims).then_some(mac)
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const THEM: [u8; 6] = [2, 0, 0, 0, 0, 2];

    #[test]
    fn a_probe_claims_no_address_and_an_answer_to_it_does() {
        let ip = Ipv4Addr::new(192, 0, 2, 12);
        let mut frame = request(US, ip);
        assert_eq!(sender_of(&frame, ip), None, "who asks from 0.0.0.0 does not have it yet");
        frame[21] = 2;
        frame[22..28].copy_from_slice(&THEM);
        frame[28..32].copy_from_slice(&ip.octets());
        assert_eq!(sender_of(&frame, ip), Some(THEM));
        assert_eq!(sender_of(&frame, Ipv4Addr::new(192, 0, 2, 13)), None);
        for cut in 0..42 {
            let _ = sender_of(&frame[..cut], ip);
        }
        assert_eq!(sender_of(&frame[..31], ip), None);
    }
}
