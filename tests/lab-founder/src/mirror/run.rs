//! `lab-founder mirror`: serves until it is told to stop.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context;

use super::{EvilMirror, Fault, MirrorConfig};

/// What `lab-founder mirror` takes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The release directory, or one above it
    #[arg(long)]
    dir: PathBuf,
    /// Address and port; port 0 takes any
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Where its certificates are kept, ca.pem among them; made if missing
    #[arg(long, value_name = "DIR")]
    certs: PathBuf,
    /// A name or an address in its certificate, besides the ones of loopback
    #[arg(long, value_name = "NAME")]
    name: Vec<String>,
    /// What it does wrong: NAME[:ARG][@PART-OF-THE-PATH][*TIMES]
    #[arg(long, value_name = "FAULT")]
    fault: Vec<Fault>,
    /// At most so many bytes per second on each connection
    #[arg(long, value_name = "N", default_value_t = 0)]
    rate: u64,
}

// === impl Args ===

impl Args {
    /// Serves until SIGTERM or SIGINT.
    pub fn run(self) -> anyhow::Result<()> {
        let mut config = MirrorConfig {
            listen: self.listen,
            certs: Some(self.certs.clone()),
            faults: self.fault,
            bytes_per_second: self.rate,
            ..MirrorConfig::of(self.dir)
        };
        config.names.extend(self.name);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            use tokio::signal::unix::{SignalKind, signal};
            // Before it is ready, so that no early signal is lost.
            let (mut term, mut interrupt) =
                (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
            let mirror =
                EvilMirror::start(config).with_context(|| format!("cannot serve on {}", self.listen))?;
            let line = serde_json::json!({ "url": mirror.url(), "ca": self.certs.join("ca.pem") });
            let mut out = std::io::stdout().lock();
            // Nobody listening is no reason to stop.
            let _ = writeln!(out, "{line}").and_then(|()| out.flush());
            drop(out);
            tokio::select! {
                _ = term.recv() => {}
                _ = interrupt.recv() => {}
            }
            Ok(())
        })
    }
}
