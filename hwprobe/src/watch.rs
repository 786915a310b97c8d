//! Waits until the kernel or udev says that disks or the network may have changed.
//!
//! May touch: one udev monitor socket and one AF_NETLINK socket of its own. Must never: send anything, or look at what changed: that is a
//! probe's to find out.

use std::io;
use std::time::Duration;

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// rtnetlink(7): `RTMGRP_LINK`, `RTMGRP_IPV4_IFADDR`, `RTMGRP_IPV4_ROUTE`, `RTMGRP_IPV6_IFADDR`, `RTMGRP_IPV6_ROUTE`.
const GROUPS: u32 = 0x1 | 0x10 | 0x40 | 0x100 | 0x400;
/// Messages taken away in one go; the next wait takes the rest.
const DRAIN: usize = 4_096;

/// What may have changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// A block device, or a NIC as a device.
    pub devices: bool,
    /// A link, an address or a route.
    pub network: bool,
}

/// Hears udev's and the kernel's own messages. Needs no privilege. Without udevd there are no device events.
pub struct Watch {
    udev: udev::MonitorSocket,
    routes: Socket,
}

// === impl Watch ===

impl Watch {
    /// Begins to listen. What happens from now on is not missed.
    ///
    /// # Errors
    /// The sockets cannot be made.
    pub fn new() -> io::Result<Self> {
        let udev = udev::MonitorBuilder::new()?.match_subsystem("block")?.match_subsystem("net")?.listen()?;
        let mut routes = Socket::new(NETLINK_ROUTE)?;
        routes.bind(&SocketAddr::new(0, GROUPS))?;
        routes.set_non_blocking(true)?;
        Ok(Self { udev, routes })
    }

    /// Waits for a message, at most `longest`; `None` waits for ever. What is there is taken away: one answer for a burst of messages. An
    /// overflow of a socket is a message too, because what was lost may matter.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub fn wait(&mut self, longest: Option<Duration>) -> io::Result<Changed> {
        let longest = longest.map(|time| Timespec {
            tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        });
        let mut both = [PollFd::new(&self.udev, PollFlags::IN), PollFd::new(&self.routes, PollFlags::IN)];
        match poll(&mut both, longest.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let [udev, routes] = both.map(|fd| !fd.revents().is_empty());
        Ok(Changed { devices: udev && self.take_devices(), network: routes && self.take_routes() })
    }

    fn take_devices(&self) -> bool {
        // An overflow (ENOBUFS) ends the iteration like an empty socket does, and is an event all the same.
        let _ = self.udev.iter().take(DRAIN).count();
        true
    }

    fn take_routes(&self) -> bool {
        let mut room = Vec::with_capacity(64 * 1024);
        for _ in 0..DRAIN {
            room.clear();
            match self.routes.recv(&mut room, 0) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // ENOBUFS is told once, then the socket works again.
                Err(_) => {}
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_happens_is_no_change() {
        let mut watch = Watch::new().unwrap();
        // Another process of this machine may change something; then that is taken away first.
        while watch.wait(Some(Duration::ZERO)).unwrap() != Changed::default() {}
        assert_eq!(watch.wait(Some(Duration::from_millis(1))).unwrap(), Changed::default());
    }
}
