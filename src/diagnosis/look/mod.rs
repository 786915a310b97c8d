//! Looking, stage by stage, until one is red or time is up.
//!
//! May touch: what the stages touch: AF_NETLINK, sysfs through the probe, the resolver and its file, TCP to the founder, ARP for our own
//! address. Must never: try a join code, change anything, or outlast [`LONGEST`](super::LONGEST).

mod arp;
mod netlink;
mod reach;
mod way;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::decide::decide;
use super::facts::{Facts, PortFact};
use super::rows::Diagnosis;
use super::{LONGEST, Subject};
use crate::founder::Client;
use crate::identity::Identity;

/// For what comes behind the last stage.
const MARGIN: Duration = Duration::from_millis(200);

/// One run: what is known of the way so far.
struct Run {
    facts: Facts,
    /// Of this machine's interfaces.
    macs: Vec<Vec<u8>>,
    /// Where TCP may go.
    targets: Vec<IpAddr>,
    client: Option<Arc<Client>>,
    deadline: Instant,
}

/// Looks. Ends within [`LONGEST`], whatever hangs.
pub async fn run(subject: Subject) -> Diagnosis {
    let began = Instant::now();
    let clock = subject.clock();
    let mut run = Run {
        facts: Facts::new(subject.endpoint, subject.past, clock),
        macs: Vec::new(),
        targets: Vec::new(),
        // A key of its own: nobody learns from a look who looks.
        client: Identity::ephemeral().ok().map(|identity| Arc::new(Client::new(Arc::new(identity)))),
        deadline: began + LONGEST - MARGIN,
    };
    run.facts.proxy = proxy();
    if timeout_at(run.deadline, run.stages()).await.is_err() {
        run.facts.timed_out = true;
    }
    decide(&run.facts, u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX))
}

// === impl Run ===

impl Run {
    async fn stages(&mut self) {
        self.resolve().await;
        self.find_way().await;
        if self.is_red() {
            return;
        }
        self.ask_duplicates().await;
        if self.is_red() {
            return;
        }
        self.connect().await;
        if self.is_red() {
            return;
        }
        let Some(to) = self.open() else { return };
        self.size(to).await;
        if self.is_red() {
            return;
        }
        self.ask(to).await;
        if !self.is_red() {
            self.measure(to).await;
        }
    }

    /// Whether what was found already tells the cause.
    fn is_red(&self) -> bool {
        decide(&self.facts, 0).cause().is_some_and(|cause| cause.name < super::rows::RowName::Proof)
    }

    fn open(&self) -> Option<SocketAddr> {
        match self.facts.port {
            Some(PortFact::Open(ip, _)) => Some(SocketAddr::new(ip, self.facts.endpoint.port)),
            _ => None,
        }
    }
}

/// A setting that makes other programs use a proxy, and that a technician may think we use too.
fn proxy() -> Option<&'static str> {
    ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"].into_iter().find(|name| {
        #[expect(clippy::disallowed_methods, reason = "told to a person, and not a setting of ours")]
        let value = std::env::var_os(name);
        value.is_some_and(|value| !value.is_empty())
    })
}
