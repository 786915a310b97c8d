//! Runs a lab founder until it is told to stop. A shim: everything is in the library.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};
use lab_founder::config::{Limits, Supply};
use lab_founder::{Config, LabFounder, Scripted, release};

/// The founder's side of a join, for tests, demos and labs. Never a real cluster.
#[derive(Parser)]
#[command(name = "lab-founder", version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run until SIGTERM or SIGINT. Prints one line of JSON when it is ready: join, admin, token, caPin, dir.
    Run(Run),
    /// Make, sign and check the releases that joiners upgrade to.
    Release(release::cli::Args),
    /// Serve a release directory over HTTPS, with faults if told. Prints one line of JSON when it is ready: url, ca.
    Mirror(lab_founder::mirror::Args),
    /// Start a machine anew whose agent ran with --recorded-os and has been stopped. Prints a line of JSON for each start.
    Restart(lab_founder::machine::Args),
}

#[derive(clap::Args)]
struct Run {
    /// Where the state lives; made if missing. stratumctl.json for `stratumctl --config` is written there.
    #[arg(long)]
    dir: PathBuf,
    /// Join listener.
    #[arg(long, default_value = "127.0.0.1:0")]
    join_listen: SocketAddr,
    /// Admin listener, loopback only.
    #[arg(long, default_value = "127.0.0.1:0")]
    admin_listen: SocketAddr,
    /// HOST:PORT in join URLs, when it is not the join listener's address.
    #[arg(long)]
    advertise: Option<String>,
    /// The release of the cluster.
    #[arg(long)]
    release: Option<String>,
    /// Lowest release that may upgrade itself.
    #[arg(long)]
    min_upgrade_from: Option<String>,
    /// Name of the cluster's ISO.
    #[arg(long)]
    iso: Option<String>,
    /// Offer older joiners their upgrade from this mirror.
    #[arg(long, value_name = "URL")]
    mirror: Option<String>,
    /// Give older joiners this release directory from the founder itself.
    #[arg(long, value_name = "DIR", conflicts_with = "mirror")]
    release_dir: Option<PathBuf>,
    /// At most so many bytes per second of each file of it; 0 is no limit.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "release_dir")]
    transfer_rate: u64,
    /// Answers to proof calls leave no earlier than this.
    #[arg(long, value_name = "MS")]
    proof_floor_ms: Option<u64>,
    /// No rates and no connection counts, for many joiners from one address.
    #[arg(long)]
    wide: bool,
    /// Members do not apply a generation by themselves; POST /v1/lab/applied says when.
    #[arg(long)]
    manual_apply: bool,
    /// Scripted faults: a JSON list of {"fault","at","skip","times"}.
    #[arg(long, value_name = "FILE")]
    evil: Option<PathBuf>,
    /// The clock runs this far ahead.
    #[arg(long, value_name = "MS", allow_negative_numbers = true)]
    clock_offset_ms: Option<i64>,
    /// Writes the ready line to this file too, whole or not at all.
    #[arg(long, value_name = "FILE")]
    print_ready: Option<PathBuf>,
}

fn main() -> ExitCode {
    let result = match Args::parse().command {
        Command::Run(args) => run(args).map(|()| ExitCode::SUCCESS),
        Command::Release(args) => release::cli::run(args),
        Command::Mirror(args) => args.run().map(|()| ExitCode::SUCCESS),
        Command::Restart(args) => args.run().map(|()| ExitCode::SUCCESS),
    };
    match result {
        Ok(code) => code,
        Err(e) => {
            eprintln!("lab-founder: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: Run) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        use tokio::signal::unix::{SignalKind, signal};
        // Before it is ready, so that no early signal is lost.
        let mut term = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let print_ready = args.print_ready.clone();
        let founder = LabFounder::start(config(args)?).await?;
        ready(&founder, print_ready)?;
        tokio::select! {
            _ = term.recv() => {}
            _ = interrupt.recv() => {}
        }
        Ok(())
    })
}

fn config(args: Run) -> anyhow::Result<Config> {
    let mut config = Config {
        dir: Some(args.dir),
        join_listen: args.join_listen,
        admin_listen: args.admin_listen,
        advertise: args.advertise,
        members_apply_at_once: !args.manual_apply,
        record: false,
        ..Config::default()
    };
    if args.wide {
        config.limits = Limits { proof_floor_ms: config.limits.proof_floor_ms, ..Limits::wide() };
    }
    if let Some(floor) = args.proof_floor_ms {
        config.limits.proof_floor_ms = floor;
    }
    config.limits.transfer_rate = args.transfer_rate;
    if let Some(url) = args.mirror {
        config.supply = Supply::Mirror(url);
    }
    if let Some(dir) = args.release_dir {
        config.supply = Supply::Founder;
        config.release_dir = Some(dir);
    }
    let cluster = &mut config.cluster;
    if let Some(release) = args.release {
        cluster.iso = format!("stratum-{release}.iso");
        cluster.release = release;
    }
    cluster.min_upgrade_from = args.min_upgrade_from.unwrap_or_else(|| cluster.min_upgrade_from.clone());
    cluster.iso = args.iso.unwrap_or_else(|| cluster.iso.clone());
    if let Some(offset) = args.clock_offset_ms {
        config.clock = lab_founder::Clock::with_offset(offset);
    }
    if let Some(file) = args.evil {
        let text = std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let script: Vec<Scripted> = serde_json::from_slice(&text)
            .with_context(|| format!("{} is no list of faults", file.display()))?;
        config.evil = script;
    }
    Ok(config)
}

fn ready(founder: &LabFounder, file: Option<PathBuf>) -> anyhow::Result<()> {
    let line = serde_json::json!({
        "join": founder.join_addr(),
        "admin": founder.admin_addr(),
        "token": founder.token(),
        "caPin": founder.ca_pin(),
        "dir": founder.dir(),
    });
    if let Some(file) = file {
        let dir = file.parent().filter(|d| !d.as_os_str().is_empty()).map_or(".".into(), PathBuf::from);
        let written = tempfile::NamedTempFile::new_in(dir).and_then(|mut temp| {
            writeln!(temp, "{line}")?;
            temp.persist(&file)?;
            Ok(())
        });
        written.with_context(|| format!("cannot write {}", file.display()))?;
    }
    let mut out = std::io::stdout().lock();
    // Nobody listening is no reason to stop.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    Ok(())
}
