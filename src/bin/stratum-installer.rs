//! `stratum-installer`: the part of the installer's command line that concerns a join.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use stratum_join::cli;

/// Freed memory is wiped: it held a join code.
#[global_allocator]
static ALLOCATOR: zeroizing_alloc::ZeroAlloc<std::alloc::System> =
    zeroizing_alloc::ZeroAlloc(std::alloc::System);

/// Stratum installer
#[derive(Debug, Parser)]
#[command(name = "stratum-installer", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Give this machine the cluster's address and a join code, or check them
    Join(cli::join::Args),
}

fn main() -> ExitCode {
    cli::secret_args::take_off_the_command_line();
    match Arguments::parse().command {
        Command::Join(args) => cli::join::run(args),
    }
}
