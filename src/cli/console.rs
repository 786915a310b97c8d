//! `stratum-join console`: the status screen on one terminal.

use std::process::ExitCode;

use console::{ExitReason, Options, RunError};

use super::RootArg;
use crate::join::fault::chain_of;

/// Arguments of `console`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    root: RootArg,
    /// The terminal, e.g. tty1 or ttyS0; without it, the one this runs on
    #[arg(long, value_name = "NAME")]
    tty: Option<String>,
    /// Leave as soon as the machine has joined
    #[arg(long)]
    exit_when_joined: bool,
}

/// Runs it. Exit codes: docs/protocol.md 6.1.
pub fn run(args: Args) -> ExitCode {
    let mut options = Options::new(args.root.paths().snapshot());
    // On a terminal of its own the console is left by the keys of its screens only; started by hand, Ctrl-C leaves it.
    options.allow_quit = args.tty.is_none();
    options.tty = args.tty;
    options.exit_when_joined = args.exit_when_joined;
    match console::run(options) {
        Ok(ExitReason::Joined | ExitReason::HandedBack | ExitReason::NoHardware) => ExitCode::SUCCESS,
        Ok(ExitReason::Quit) => ExitCode::from(130),
        Ok(ExitReason::Stopped) => ExitCode::from(143),
        Err(error) => {
            eprintln!("stratum-join console: {}", chain_of(&error));
            ExitCode::from(match error {
                RunError::BadName(_) => 64,
                RunError::Terminal { .. } | RunError::Lost => 75,
            })
        }
    }
}
