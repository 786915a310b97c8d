//! `stratum-join helper`: does one privileged verb for the agent and ends (stratum-join-helper@.service).

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;

use super::RootArg;
use crate::config::LogLevel;
use crate::driver::boot_id;
use crate::privileged::helper::{Callers, Served, serve};
use crate::privileged::{FirstbootRunner, InProcess};
use crate::telemetry::Telemetry;

/// The agent's user (sysusers.d).
const AGENT: &str = "stratum-join";
/// Where `journalctl -u` shows what the helper has to say: its own unit has a new name for each request (systemd.journal-fields(7)).
const AGENT_UNIT: &str = "stratum-join.service";

/// Arguments of `helper`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    root: RootArg,
    /// Run firstboot as this program instead of its unit (development and tests; only with --root)
    #[arg(long, value_name = "PROGRAM", hide = true, requires = "root")]
    firstboot: Option<PathBuf>,
    /// Probe a captured tree instead of this machine
    #[arg(long, value_name = "DIR", hide = true, requires = "root")]
    probe_root: Option<PathBuf>,
    /// Install no OS: write down what would be done, below the root (development and tests; only with --root)
    #[arg(long, hide = true, requires = "root")]
    recorded_os: bool,
}

/// Runs it. 0 answered (an error answer is an answer), 2 a bad request or a caller that may not ask.
pub fn run(args: Args) -> ExitCode {
    // It holds a delivery for a moment.
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    let _telemetry = Telemetry::init(LogLevel::Info);
    match served(args) {
        Ok(Served::Answered | Served::Gone) => ExitCode::SUCCESS,
        Ok(Served::Refused(why)) => {
            tracing::warn!(object_systemd_unit = AGENT_UNIT, "the helper refused a request: {why}");
            ExitCode::from(2)
        }
        Err(why) => {
            tracing::error!(object_systemd_unit = AGENT_UNIT, "the helper cannot work: {why}");
            ExitCode::FAILURE
        }
    }
}

fn served(args: Args) -> Result<Served, String> {
    let paths = args.root.paths();
    // systemd gives the connection as standard input and output (StandardInput=socket).
    let stdin = std::io::stdin().as_fd().try_clone_to_owned();
    let connection = UnixStream::from(stdin.map_err(|error| format!("no standard input: {error}"))?);
    connection.set_nonblocking(true).map_err(|error| format!("standard input is no socket: {error}"))?;
    let agent = if paths.is_system() {
        let user = nix::unistd::User::from_name(AGENT).ok().flatten();
        user.ok_or_else(|| format!("there is no user {AGENT}: systemd-sysusers makes it"))?.uid.as_raw()
    } else {
        rustix::process::geteuid().as_raw()
    };
    let boot_id = boot_id().ok_or("the kernel's boot id cannot be read")?;
    let runner = match args.firstboot {
        Some(program) => FirstbootRunner::Command { program },
        None => FirstbootRunner::Unit,
    };
    let mut verbs = InProcess::new(paths, runner, boot_id).probing(args.probe_root).for_agent(agent);
    if args.recorded_os {
        verbs = verbs.with_recorded_os();
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(4)
        .build()
        .map_err(|error| format!("cannot start: {error}"))?;
    let served = runtime.block_on(async {
        let connection = tokio::net::UnixStream::from_std(connection)
            .map_err(|error| format!("standard input is no socket: {error}"))?;
        Ok(serve(connection, Callers { agent }, &verbs).await)
    });
    // Not dropped: that would wait for work that hangs, and the answer has said that it does.
    runtime.shutdown_background();
    served
}
