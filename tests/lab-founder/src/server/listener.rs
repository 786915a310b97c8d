//! Accepts connections, counts them, and gives each its own task. Touches sockets.

use std::collections::HashMap;
use std::net::{IpAddr, TcpListener};
use std::sync::{Arc, Mutex};

use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::chain::Chains;
use super::connection;
use super::polls::Polls;
use crate::founder::{Founder, lock};

/// Connections by address.
#[derive(Default)]
struct Count(Mutex<HashMap<IpAddr, usize>>);

/// A place among the connections; given back on drop.
pub(super) struct Place {
    count: Arc<Count>,
    addr: IpAddr,
}

// === impl Count ===

impl Count {
    fn take(self: &Arc<Self>, addr: IpAddr, per_address: usize, in_all: usize) -> Option<Place> {
        let addr = addr.to_canonical();
        let mut count = lock(&self.0);
        let all: usize = count.values().sum();
        let one = count.entry(addr).or_insert(0);
        if all >= in_all || *one >= per_address {
            return None;
        }
        *one += 1;
        Some(Place { count: self.clone(), addr })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut count = lock(&self.count.0);
        if let Some(n) = count.get_mut(&self.addr) {
            *n -= 1;
            if *n == 0 {
                count.remove(&self.addr);
            }
        }
    }
}

/// The join listener. Ends only when it is dropped, and every connection with it.
pub(super) async fn join(listener: TcpListener, core: Arc<Founder>, chains: Chains) {
    let (chains, polls) = (Arc::new(chains), Arc::new(Polls::default()));
    let count = Arc::new(Count::default());
    let limits = core.config.limits.clone();
    each(listener, |tasks, stream, addr| {
        // Over the limit: closed at once, as a full backlog would.
        if let Some(place) = count.take(addr, limits.connections_per_address, limits.connections) {
            tasks.spawn(connection::join(stream, addr, core.clone(), chains.clone(), polls.clone(), place));
        }
    })
    .await;
}

/// The admin listener.
pub(super) async fn admin(listener: TcpListener, core: Arc<Founder>) {
    each(listener, |tasks, stream, _| {
        tasks.spawn(connection::admin(stream, core.clone()));
    })
    .await;
}

async fn each(listener: TcpListener, mut start: impl FnMut(&mut JoinSet<()>, TcpStream, IpAddr)) {
    let mut tasks = JoinSet::new();
    // It was made non-blocking, and this runs inside the runtime.
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, addr)) => {
                    // Small answers should not wait for more.
                    let _ = stream.set_nodelay(true);
                    start(&mut tasks, stream, addr.ip());
                }
                // Out of descriptors: let some close.
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
            },
            Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
        }
    }
}
