//! What the founder shows: five connects, a large request, and the answer to `GET /v1/join`.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use super::Run;
use crate::clock;
use crate::diagnosis::facts::{FounderFact, HelloFact, MtuFact, QualityFact};
use crate::founder::Sized;
use crate::protocol::url::{Endpoint, Host};

/// Connects for the quality of the line.
const CONNECTS: u32 = 5;
/// A first SYN that is lost is repeated after a second (RFC 6298).
const RESENT: Duration = Duration::from_millis(950);
/// All of them.
const ALL_CONNECTS: Duration = Duration::from_millis(2_000);
/// Between two, so that the other side sees the last one closed.
const BETWEEN: Duration = Duration::from_millis(20);
/// With its header and TLS a request of this padding has some 1,600 bytes: more than one packet of Ethernet.
const PAD: usize = 1_500;
/// For the large request.
const LARGE: Duration = Duration::from_secs(3);
/// For each smaller size.
const SMALLER: Duration = Duration::from_millis(1_200);
/// Sizes of IP packets that are tried, in bytes: IPv6's least, tunnels, PPPoE, Ethernet.
const SIZES: [u16; 5] = [1_280, 1_400, 1_440, 1_480, 1_500];
/// For the answer of the founder.
const ANSWER: Duration = Duration::from_millis(3_500);

impl Run {
    /// How good the line is. Last of all: a founder counts connections, and one too many would be taken for a fault of the way.
    pub(super) async fn measure(&mut self, to: SocketAddr) {
        let mut times = Vec::new();
        let mut found = QualityFact { tried: 0, lost: 0, round_trip: Duration::ZERO };
        let until = Instant::now() + ALL_CONNECTS;
        while found.tried < CONNECTS && Instant::now() < until {
            let began = Instant::now();
            let done = timeout(RESENT, TcpStream::connect(to)).await;
            found.tried += 1;
            match done {
                Ok(Ok(_)) => times.push(began.elapsed()),
                _ => found.lost += 1,
            }
            sleep(BETWEEN).await;
        }
        times.sort();
        found.round_trip = times.get(times.len() / 2).copied().unwrap_or_default();
        self.facts.quality = Some(found);
    }

    /// How large packets may be.
    pub(super) async fn size(&mut self, to: SocketAddr) {
        self.facts.mtu = self.packets(to).await;
    }

    async fn packets(&self, to: SocketAddr) -> Option<MtuFact> {
        let client = self.client.as_ref()?;
        let large = |mss: Option<u32>, time: Duration| client.padded(to, mss, PAD, time);
        match large(None, LARGE).await {
            Sized::Answered => return Some(MtuFact::Passes),
            Sized::Ended => return Some(MtuFact::NotReached),
            Sized::Silent => {}
        }
        let headers = if to.is_ipv4() { 40 } else { 60 };
        let mut passes = None;
        for size in SIZES {
            if large(Some(u32::from(size) - headers), SMALLER).await != Sized::Answered {
                break;
            }
            passes = Some(size);
        }
        let Some(passes) = passes else { return Some(MtuFact::Silent) };
        // A packet may be lost by bad luck: only what fails twice is the path's.
        if large(None, SMALLER).await == Sized::Answered {
            return Some(MtuFact::Passes);
        }
        Some(MtuFact::Lost { passes })
    }

    /// Who answers, and what.
    pub(super) async fn ask(&mut self, to: SocketAddr) {
        let Some(client) = self.client.clone() else { return };
        let endpoint = Endpoint { host: Host::Ip(to.ip()), port: to.port() };
        let left = self.deadline.saturating_duration_since(Instant::now());
        let time = ANSWER.min(left.saturating_sub(Duration::from_millis(100)));
        let looked = client.look(&endpoint, time).await;
        let answer = looked.answer.map_err(Box::new).map(|hello| {
            let theirs = hello.server_time.and_then(|time| time.as_str().parse::<jiff::Timestamp>().ok());
            HelloFact {
                server_time_ms: theirs.map(|time| time.as_millisecond()),
                our_time_ms: clock::wall_ms(),
            }
        });
        self.facts.founder = Some(FounderFact { ca: looked.ca, answer });
    }
}
