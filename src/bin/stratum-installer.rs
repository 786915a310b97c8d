//! `stratum-installer`: the part of the installer's command line that concerns a join.

use std::process::ExitCode;

use clap::Parser;
use stratum_join::cli::arguments::StratumInstaller;
use stratum_join::cli::secret_args;

/// Freed memory is wiped: it held a join code.
#[global_allocator]
static ALLOCATOR: zeroizing_alloc::ZeroAlloc<std::alloc::System> =
    zeroizing_alloc::ZeroAlloc(std::alloc::System);

fn main() -> ExitCode {
    secret_args::take_off_the_command_line();
    StratumInstaller::parse().run()
}
