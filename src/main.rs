//! `stratum-join`: the agent, the console, and what a technician asks on a shell.

use std::process::ExitCode;

use clap::Parser;
use stratum_join::cli::arguments::StratumJoin;

/// Freed memory is wiped: buffers of the TLS and HTTP libraries hold the delivery.
#[global_allocator]
static ALLOCATOR: zeroizing_alloc::ZeroAlloc<std::alloc::System> =
    zeroizing_alloc::ZeroAlloc(std::alloc::System);

fn main() -> ExitCode {
    StratumJoin::parse().run()
}
