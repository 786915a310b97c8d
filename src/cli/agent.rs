//! `stratum-join agent`: runs until this machine has joined.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use console::Snapshot;
use console::snapshot::AgentExit;
use console::text::Safe;

use super::RootArg;
use crate::config::LogLevel;
use crate::driver::{self, Options};
use crate::durable_file;
use crate::join::fault::chain_of;
use crate::paths::Paths;
use crate::privileged::{Privileged, ThroughHelper};
use crate::telemetry::Telemetry;

/// How long the end of the agent waits for the banner: a shutdown must not.
const LAST_BANNER: Duration = Duration::from_secs(5);

/// Arguments of `agent`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    root: RootArg,
    /// Do the privileged verbs in this process, with this firstboot program (development and tests; only with --root)
    #[arg(long, value_name = "PROGRAM", hide = true, requires = "root")]
    firstboot: Option<PathBuf>,
    /// Probe a captured tree instead of this machine
    #[arg(long, value_name = "DIR", hide = true)]
    probe_root: Option<PathBuf>,
    /// Install no OS: write down what would be done, below the root (development and tests; only with --root and --firstboot)
    #[arg(long, hide = true, requires_all = ["root", "firstboot"])]
    recorded_os: bool,
    /// Write into the last snapshot how the agent ended (ExecStopPost= of its unit)
    #[arg(long, hide = true)]
    record_exit: bool,
}

/// Runs it. 0 only when joined, 1 when it cannot run at all.
pub fn run(args: Args) -> ExitCode {
    if args.record_exit {
        return record_exit(&args.root.paths());
    }
    // What holds secrets must not be read by a debugger of the same user, and leaves no core.
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    let runtime =
        match tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(4).build() {
            Ok(runtime) => runtime,
            Err(error) => {
                eprintln!("error: cannot start: {error}");
                return ExitCode::FAILURE;
            }
        };
    let options = Options {
        paths: args.root.paths(),
        firstboot: args.firstboot,
        probe_root: args.probe_root,
        recorded_os: args.recorded_os,
    };
    let telemetry = Telemetry::init(LogLevel::Info);
    match runtime.block_on(driver::run(options, telemetry)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("the agent cannot run: {}", chain_of(&error));
            ExitCode::FAILURE
        }
    }
}

/// The login banner says it too, where there is a helper to write it.
fn reload_banner(paths: &Paths) -> Result<(), String> {
    let socket = paths.helper_socket();
    if !socket.exists() {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let helper = ThroughHelper::at(socket);
    let asked = async { tokio::time::timeout(LAST_BANNER, helper.reload_banner(true)).await };
    let answer = runtime.map_err(|error| error.to_string())?.block_on(asked);
    let answer = answer.map_err(|_| "the helper does not answer: the banner stays as it is".to_owned())?;
    answer.map_err(|fault| fault.chain.to_string())
}

/// The console has no other way to know how the agent ended. systemd says it in three variables (systemd.exec(5), ExecStopPost=).
fn record_exit(paths: &Paths) -> ExitCode {
    #[expect(
        clippy::disallowed_methods,
        reason = "systemd's own way to tell ExecStopPost= what happened; no setting of ours"
    )]
    let said = |name: &str| Safe::clean(std::env::var(name).unwrap_or_default());
    let written = Snapshot::read(&paths.snapshot()).map_err(|e| e.to_string()).and_then(|mut snapshot| {
        snapshot.agent.exit = Some(AgentExit {
            result: said("SERVICE_RESULT"),
            code: said("EXIT_CODE"),
            status: said("EXIT_STATUS"),
        });
        snapshot.seq += 1;
        durable_file::write_volatile(&paths.snapshot(), &snapshot.encode(), 0o644, "exit-record")
            .map_err(|e| e.to_string())
    });
    match written.and_then(|()| reload_banner(paths)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
