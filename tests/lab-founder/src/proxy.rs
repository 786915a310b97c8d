//! A TCP proxy that breaks in the way it is told, in front of any listener. The way can change while it runs.
//!
//! Touches sockets on loopback, on a thread of its own. Knows nothing of what it carries.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

/// How the proxy behaves. Changes hold for connections that are open, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProxyFault {
    /// Carries everything.
    #[default]
    Pass,
    /// Resets every connection at once.
    Refuse,
    /// Accepts and carries nothing, in neither direction, without a word.
    Drop,
    /// Resets before a byte of the founder's comes through.
    ResetBefore,
    /// Resets after that many bytes of the founder's.
    ResetAfter(u64),
    /// After that many bytes of the founder's, closes that direction in good order and carries the other.
    HalfClose(u64),
    /// Every piece waits that many milliseconds.
    Delay(u64),
    /// One byte per second from the founder.
    OneBytePerSecond,
    /// After that many bytes of the founder's, closes both directions in good order.
    Truncate(u64),
}

/// A running proxy. Dropping it stops it and every connection through it.
pub struct FaultProxy {
    addr: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    target: Mutex<SocketAddr>,
    fault: watch::Sender<ProxyFault>,
    connections: AtomicU64,
    to_founder: AtomicU64,
    to_joiner: AtomicU64,
}

// === impl FaultProxy ===

impl FaultProxy {
    /// A proxy on a port of its own in front of `target`, passing everything.
    pub fn start(target: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let addr = listener.local_addr()?;
        let shared = Arc::new(Shared {
            target: Mutex::new(target),
            fault: watch::Sender::new(ProxyFault::Pass),
            connections: AtomicU64::new(0),
            to_founder: AtomicU64::new(0),
            to_joiner: AtomicU64::new(0),
        });
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let inside = shared.clone();
        let thread = std::thread::Builder::new().name("fault-proxy".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = accept(listener, inside) => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Self { addr, shared, stop: Some(stop), thread: Some(thread) })
    }

    /// Where to connect.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// From now on, also for open connections.
    pub fn set(&self, fault: ProxyFault) {
        self.shared.fault.send_replace(fault);
    }

    /// Carries new connections somewhere else.
    pub fn set_target(&self, target: SocketAddr) {
        *self.shared.target.lock().unwrap_or_else(PoisonError::into_inner) = target;
    }

    /// Connections accepted so far.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Bytes carried so far, to the founder and to the joiner.
    pub fn bytes(&self) -> (u64, u64) {
        (self.shared.to_founder.load(Ordering::SeqCst), self.shared.to_joiner.load(Ordering::SeqCst))
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        let _ = self.stop.take().map(|stop| stop.send(()));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut tasks = JoinSet::new();
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    shared.connections.fetch_add(1, Ordering::SeqCst);
                    tasks.spawn(carry(stream, shared.clone()));
                }
            }
            Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
        }
    }
}

async fn carry(joiner: TcpStream, shared: Arc<Shared>) {
    if *shared.fault.borrow() == ProxyFault::Refuse {
        let _ = joiner.set_zero_linger();
        return;
    }
    let target = *shared.target.lock().unwrap_or_else(PoisonError::into_inner);
    let Ok(founder) = TcpStream::connect(target).await else {
        let _ = joiner.set_zero_linger();
        return;
    };
    let _ = (joiner.set_nodelay(true), founder.set_nodelay(true));
    let (mut joiner, mut founder) = (joiner, founder);
    let reset = {
        let (joiner_in, joiner_out) = joiner.split();
        let (founder_in, founder_out) = founder.split();
        let up = pump(joiner_in, founder_out, &shared, false);
        let down = pump(founder_in, joiner_out, &shared, true);
        tokio::pin!(up, down);
        tokio::select! {
            end = &mut down => end == End::Reset || (end == End::Half && up.await == End::Reset),
            end = &mut up => end == End::Reset || down.await == End::Reset,
        }
    };
    if reset {
        let _ = joiner.set_zero_linger();
        let _ = founder.set_zero_linger();
    }
}

/// How a direction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The other direction goes on.
    Half,
    /// Both end.
    Both,
    /// Both end with a reset.
    Reset,
}

/// Carries one direction. Faults that count bytes count the founder's.
async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    shared: &Shared,
    from_founder: bool,
) -> End {
    let mut fault = shared.fault.subscribe();
    let counter = if from_founder { &shared.to_joiner } else { &shared.to_founder };
    let mut carried: u64 = 0;
    let mut buffer = [0; 16 * 1024];
    loop {
        let mode = *fault.borrow_and_update();
        let room = match mode {
            ProxyFault::Refuse => return End::Reset,
            ProxyFault::ResetBefore if from_founder && carried == 0 => 0,
            ProxyFault::ResetAfter(n) | ProxyFault::HalfClose(n) | ProxyFault::Truncate(n)
                if from_founder =>
            {
                n.saturating_sub(carried)
            }
            ProxyFault::OneBytePerSecond if from_founder => 1,
            _ => u64::MAX,
        };
        if mode == ProxyFault::Drop {
            // Nothing moves until the mode changes.
            if fault.changed().await.is_err() {
                return End::Both;
            }
            continue;
        }
        if room == 0 && !matches!(mode, ProxyFault::ResetBefore) {
            let _ = to.shutdown().await;
            return match mode {
                ProxyFault::ResetAfter(_) => End::Reset,
                ProxyFault::HalfClose(_) => End::Half,
                _ => End::Both,
            };
        }
        let most = usize::try_from(room.max(1)).unwrap_or(usize::MAX).min(buffer.len());
        let read = tokio::select! {
            read = from.read(&mut buffer[..most]) => read,
            changed = fault.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return End::Both,
            },
        };
        let n = match read {
            Ok(0) => {
                let _ = to.shutdown().await;
                return End::Half;
            }
            Ok(n) => n,
            Err(_) => return End::Reset,
        };
        if room == 0 {
            // ResetBefore: there was something, and it does not come through.
            return End::Reset;
        }
        match mode {
            ProxyFault::Delay(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
            ProxyFault::OneBytePerSecond if from_founder => tokio::time::sleep(Duration::from_secs(1)).await,
            _ => {}
        }
        if to.write_all(&buffer[..n]).await.is_err() {
            return End::Reset;
        }
        let n = u64::try_from(n).unwrap_or(0);
        carried += n;
        counter.fetch_add(n, Ordering::SeqCst);
    }
}
