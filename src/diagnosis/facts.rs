//! What was found on the way to the founder: plain data, so that the decision needs no network. `None` is what was not looked at.

use std::net::IpAddr;
use std::time::Duration;

use console::snapshot::Synced;
use console::text::Safe;

use crate::join::fault::Fault;
use crate::protocol::encoding::Pin;
use crate::protocol::url::Endpoint;

/// Everything that a diagnosis decides from.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Whom the machine looks for.
    pub endpoint: Endpoint,
    /// Interfaces; `None` also when the kernel could not be asked.
    pub nics: Option<Vec<NicFact>>,
    /// The resolver's answer; `Literal` when there is nothing to resolve.
    pub name: Option<NameFact>,
    /// The way to the founder, or to the name server that should know it.
    pub way: Option<WayFact>,
    /// Does somebody else have our address?
    pub duplicate: Option<DuplicateFact>,
    /// A TCP connect.
    pub port: Option<PortFact>,
    /// Five more.
    pub quality: Option<QualityFact>,
    /// Large packets.
    pub mtu: Option<MtuFact>,
    /// `GET /v1/join`.
    pub founder: Option<FounderFact>,
    /// What is known of earlier tries.
    pub past: Past,
    /// This machine's clock.
    pub clock: ClockFact,
    /// The name of a proxy setting that is in force for other programs.
    pub proxy: Option<&'static str>,
    /// The run had to end.
    pub timed_out: bool,
}

/// What the join has learnt before: told, never tried again for a diagnosis.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Past {
    /// Whose answers are taken: proven, or from the join URL. Empty: nobody is known.
    pub pins: Vec<Pin>,
    /// Whether the cluster proved the code.
    pub proof: ProofFact,
    /// A refusal that still stands.
    pub refusal: Option<Box<Fault>>,
    /// The release of this machine, for the refusal's advice; empty when unknown.
    pub release: Safe<64>,
}

/// The last proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProofFact {
    /// None yet.
    #[default]
    NotYet,
    /// The cluster proved the code.
    Good,
    /// It did not; with the key of who did not.
    Failed(Option<Pin>),
}

/// One interface, never the loopback.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NicFact {
    /// Index in the kernel.
    pub index: u32,
    /// Name.
    pub name: Safe<64>,
    /// Hardware address, colons.
    pub mac: Safe<64>,
    /// Switched on.
    pub up: bool,
    /// Carrier; `None` when the driver does not tell.
    pub carrier: Option<bool>,
    /// Mbit/s.
    pub speed_mbps: Option<u32>,
    /// Hardware, or what reaches hardware; on a machine without any, each Ethernet interface.
    pub counts: bool,
    /// Its neighbours are found by ARP.
    pub arp: bool,
    /// Largest packet in bytes.
    pub mtu: Option<u32>,
    /// Addresses.
    pub addresses: Vec<AddressFact>,
}

/// One address of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressFact {
    /// The address.
    pub ip: IpAddr,
    /// Length of its prefix.
    pub prefix: u8,
    /// IPv6 duplicate address detection failed: the kernel does not use it.
    pub dad_failed: bool,
    /// Detection is still under way.
    pub tentative: bool,
}

/// What the resolver said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameFact {
    /// The founder is given by its address.
    Literal,
    /// At least one address.
    Resolved(Vec<IpAddr>),
    /// None; in a technician's words.
    Failed(Safe<200>),
}

/// Where a way leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// To the founder.
    Founder(IpAddr),
    /// The founder's name did not resolve; to a name server of this machine.
    NameServer(IpAddr),
}

/// The way to a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WayFact {
    /// Where.
    pub target: Target,
    /// What the kernel's routing says.
    pub route: RouteFact,
    /// The next machine on it; `None` until something was sent there.
    pub neighbour: Option<NeighbourFact>,
}

/// The kernel's answer for one destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteFact {
    /// It is this machine.
    Local,
    /// Out of an interface.
    Via {
        /// Its index.
        index: u32,
        /// Its name.
        nic: Safe<64>,
        /// The router; `None` when the target is on the link.
        gateway: Option<IpAddr>,
        /// The address we send from.
        source: Option<IpAddr>,
    },
    /// No route.
    Missing,
    /// A route that forbids: `unreachable`, `prohibit`, `blackhole`.
    Refused(&'static str),
    /// The kernel could not be asked.
    Unknown,
}

/// The neighbour table after something was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NeighbourFact {
    /// It answered, or something came back through it.
    Answers,
    /// It did not; the kernel's word for it.
    Silent(&'static str),
    /// The interface has no neighbours to look for (a tunnel).
    NotNeeded,
    /// The kernel could not be asked, or has not made up its mind.
    Unknown,
}

/// Does somebody else have our IPv4 address?
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DuplicateFact {
    /// Nobody answered for these.
    None(Vec<IpAddr>),
    /// Somebody did.
    Found {
        /// Our address.
        ip: IpAddr,
        /// Who answers for it too.
        mac: Safe<64>,
    },
    /// This process may not ask.
    NotAllowed,
    /// There is no IPv4 address that could be asked for.
    NotNeeded,
    /// Asking failed.
    Unknown(Safe<200>),
}

/// A TCP connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortFact {
    /// It connects, to this address, in this time.
    Open(IpAddr, Duration),
    /// It does not; with the address that failed last.
    Closed(IpAddr, PortError),
}

/// Why TCP did not connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortError {
    /// A reset.
    Refused,
    /// Nothing came back.
    Silent(Duration),
    /// Somebody said that there is no way.
    Unreachable(&'static str),
    /// This machine does not let it out.
    Forbidden,
    /// Anything else, in words.
    Other(Safe<200>),
}

/// Five connects one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QualityFact {
    /// How many were made.
    pub tried: u32,
    /// How many needed more than one packet, or none helped.
    pub lost: u32,
    /// The middle one's time.
    pub round_trip: Duration,
}

/// Whether a large request is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MtuFact {
    /// It is.
    Passes,
    /// It ended otherwise than by silence: what is behind it says why.
    NotReached,
    /// Nothing is answered, however small the packets.
    Silent,
    /// Only in packets of at most so many bytes.
    Lost {
        /// IP header included.
        passes: u16,
    },
}

/// The answer to `GET /v1/join`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FounderFact {
    /// The join CA, once TLS stands.
    pub ca: Option<Pin>,
    /// What came.
    pub answer: Result<HelloFact, Box<Fault>>,
}

/// A good answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HelloFact {
    /// The founder's clock, milliseconds since 1970.
    pub server_time_ms: Option<i64>,
    /// This machine's at the same moment.
    pub our_time_ms: i64,
}

/// This machine's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockFact {
    /// Milliseconds since 1970.
    pub wall_ms: i64,
    /// Whether a time server keeps it.
    pub synced: Synced,
}

// === impl Facts ===

impl Facts {
    /// Nothing looked at yet.
    pub fn new(endpoint: Endpoint, past: Past, clock: ClockFact) -> Self {
        Self {
            endpoint,
            nics: None,
            name: None,
            way: None,
            duplicate: None,
            port: None,
            quality: None,
            mtu: None,
            founder: None,
            past,
            clock,
            proxy: None,
            timed_out: false,
        }
    }

    /// The interface through which the way leads, when it is known.
    pub fn nic_of_way(&self) -> Option<&NicFact> {
        let RouteFact::Via { index, .. } = self.way.as_ref()?.route else { return None };
        self.nics.as_ref()?.iter().find(|nic| nic.index == index)
    }

    /// The founder is this machine, or the way leads nowhere else.
    pub fn is_local(&self) -> bool {
        self.way.as_ref().is_some_and(|way| way.route == RouteFact::Local)
    }
}

// === impl Target ===

impl Target {
    /// Its address.
    pub fn ip(&self) -> IpAddr {
        match self {
            Target::Founder(ip) | Target::NameServer(ip) => *ip,
        }
    }
}
