//! The lab founder on the network: its two listeners on a thread of their own.
//!
//! Touches sockets, its directory and the clock. Stopping it is abrupt, as a power cut is: listeners and connections drop at once.

mod chain;
mod connection;
mod http1;
mod listener;
mod polls;
mod raw;
#[cfg(test)]
mod tests;

pub(crate) use chain::{acceptor, provider};

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use stratum_join::protocol::encoding::Pin;
use tokio::sync::oneshot;

use crate::config::Config;
use crate::founder::{Founder, OpenError};
use crate::store::Place;
use crate::tls::CertError;

/// What happens by itself with time is looked at this often.
const TICK: Duration = Duration::from_millis(500);
/// The file that `stratumctl` reads.
pub const CTL_FILE: &str = "stratumctl.json";

/// A running lab founder. Dropping it stops it.
pub struct LabFounder {
    core: Arc<Founder>,
    config: Config,
    dir: Dir,
    join_addr: SocketAddr,
    admin_addr: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The lab founder could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its core.
    #[error("cannot open the lab founder")]
    Open(#[from] OpenError),
    /// Its certificates.
    #[error("cannot make the lab founder's certificates")]
    Cert(#[from] CertError),
    /// TLS.
    #[error("cannot set up TLS")]
    Tls(#[from] rustls::Error),
    /// A listener.
    #[error("cannot listen on {0}")]
    Listen(SocketAddr, #[source] std::io::Error),
    /// The admin listener is plain HTTP, so it is loopback only.
    #[error("the admin listener must be on loopback, not on {0}")]
    AdminNotLoopback(SocketAddr),
    /// Its directory.
    #[error("cannot use {0}")]
    Dir(PathBuf, #[source] std::io::Error),
    /// Its thread.
    #[error("cannot start the lab founder's thread")]
    Thread(#[source] std::io::Error),
}

/// A directory that may go away with the founder. Shared, so that a restart keeps it.
#[derive(Clone)]
enum Dir {
    Given(PathBuf),
    Temporary(Arc<tempfile::TempDir>),
}

// === impl Dir ===

impl Dir {
    fn path(&self) -> &Path {
        match self {
            Dir::Given(path) => path,
            Dir::Temporary(dir) => dir.path(),
        }
    }
}

// === impl LabFounder ===

impl LabFounder {
    /// Starts a founder. Ports of 0 take any; the same directory starts again with the same keys, codes and registrations.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        Self::start_now(config)
    }

    /// The same for code that is not async.
    pub fn start_now(config: Config) -> Result<Self, StartError> {
        let dir = match &config.dir {
            Some(dir) => Dir::Given(dir.clone()),
            None => {
                let dir = tempfile::tempdir().map_err(|e| StartError::Dir(std::env::temp_dir(), e))?;
                Dir::Temporary(Arc::new(dir))
            }
        };
        Self::start_in(dir, config)
    }

    fn start_in(dir: Dir, mut config: Config) -> Result<Self, StartError> {
        if !config.admin_listen.ip().is_loopback() {
            return Err(StartError::AdminNotLoopback(config.admin_listen));
        }
        let core = Arc::new(Founder::open(&Place::Dir(dir.path().to_owned()), config.clone(), config.seed)?);
        let chains = chain::Chains::new(&core)?;
        let (join, join_addr) = bind(config.join_listen)?;
        let (admin, admin_addr) = bind(config.admin_listen)?;
        // A restart takes the same ports.
        config.join_listen = join_addr;
        config.admin_listen = admin_addr;
        if config.advertise.is_none() {
            core.set_advertise(&join_addr.to_string());
        }
        write_ctl_file(dir.path(), admin_addr, core.token())
            .map_err(|e| StartError::Dir(dir.path().join(CTL_FILE), e))?;
        let (stop, stopped) = oneshot::channel();
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(StartError::Thread)?;
        let shared = core.clone();
        let thread = std::thread::Builder::new()
            .name("lab-founder".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        () = listener::join(join, shared.clone(), chains) => {}
                        () = listener::admin(admin, shared.clone()) => {}
                        () = tick(&shared) => {}
                        _ = stopped => {}
                    }
                });
            })
            .map_err(StartError::Thread)?;
        Ok(Self { core, config, dir, join_addr, admin_addr, stop: Some(stop), thread: Some(thread) })
    }

    /// Stops it abruptly. The port is closed when this returns; the state stays.
    pub fn stop(&mut self) {
        // A receiver that is gone has stopped already.
        let _ = self.stop.take().map(|stop| stop.send(()));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    /// Stops it (if it still runs) and starts it again on the same directory and the same ports.
    pub fn restart(self) -> Result<Self, StartError> {
        self.restart_with(|_| {})
    }

    /// The same with a changed configuration.
    pub fn restart_with(mut self, change: impl FnOnce(&mut Config)) -> Result<Self, StartError> {
        self.stop();
        let (dir, mut config) = (self.dir.clone(), self.config.clone());
        // Scripted faults are of one life.
        config.evil.clear();
        // The old core holds the database open until here.
        drop(self);
        change(&mut config);
        Self::start_in(dir, config)
    }

    /// The core, to look inside and to script faults.
    pub fn core(&self) -> &Arc<Founder> {
        &self.core
    }

    /// Address of the join listener.
    pub fn join_addr(&self) -> SocketAddr {
        self.join_addr
    }

    /// Address of the admin listener.
    pub fn admin_addr(&self) -> SocketAddr {
        self.admin_addr
    }

    /// Base URL of the admin API.
    pub fn admin_url(&self) -> String {
        format!("http://{}", self.admin_addr)
    }

    /// Pin of the join CA.
    pub fn ca_pin(&self) -> Pin {
        self.core.ca_pin()
    }

    /// An admin token with every permission.
    pub fn token(&self) -> &str {
        self.core.token()
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Its clock: advance it and time passes for the founder.
    pub fn clock(&self) -> &crate::time::Clock {
        &self.config.clock
    }

    /// Now, by its clock.
    pub fn now_ms(&self) -> i64 {
        self.config.clock.now_ms()
    }
}

impl Drop for LabFounder {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn tick(core: &Founder) {
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        core.advance(core.config.clock.now_ms());
    }
}

fn bind(addr: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |e| StartError::Listen(addr, e);
    let listener = TcpListener::bind(addr).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

/// Readable by its owner only: the token is in it. A half-written file is never seen.
fn write_ctl_file(dir: &Path, admin: SocketAddr, token: &str) -> std::io::Result<()> {
    let text = serde_json::json!({ "server": format!("http://{admin}"), "token": token }).to_string();
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(dir.join(CTL_FILE))?;
    Ok(())
}
