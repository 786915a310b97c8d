//! `stratum-join agent`: runs until this machine has joined.

use std::path::PathBuf;
use std::process::ExitCode;

use super::RootArg;
use crate::config::LogLevel;
use crate::driver::{self, Options};
use crate::join::fault::chain_of;
use crate::telemetry::Telemetry;

/// The program that stage 2 of an install is (product documentation).
const FIRSTBOOT: &str = "/usr/bin/firstboot";

/// Arguments of `agent`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    root: RootArg,
    /// The firstboot program to start
    #[arg(long, value_name = "PROGRAM", default_value = FIRSTBOOT, hide = true)]
    firstboot: PathBuf,
    /// Probe a captured tree instead of this machine
    #[arg(long, value_name = "DIR", hide = true)]
    probe_root: Option<PathBuf>,
}

/// Runs it. 0 only when joined, 1 when it cannot run at all.
pub fn run(args: Args) -> ExitCode {
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
    let options =
        Options { paths: args.root.paths(), firstboot: args.firstboot, probe_root: args.probe_root };
    let telemetry = Telemetry::init(LogLevel::Info);
    match runtime.block_on(driver::run(options, telemetry)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("the agent cannot run: {}", chain_of(&error));
            ExitCode::FAILURE
        }
    }
}
