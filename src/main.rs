//! `stratum-join`: the agent, the console, and what a technician asks on a shell.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use stratum_join::cli;

/// Freed memory is wiped: buffers of the TLS and HTTP libraries hold the delivery.
#[global_allocator]
static ALLOCATOR: zeroizing_alloc::ZeroAlloc<std::alloc::System> =
    zeroizing_alloc::ZeroAlloc(std::alloc::System);

/// The join agent of a Stratum cluster's node
#[derive(Debug, Parser)]
#[command(name = "stratum-join", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run until this machine has joined (stratum-join.service)
    Agent(cli::agent::Args),
    /// Show the join on a terminal
    Console(cli::console::Args),
    /// Print the state of the join
    Status(cli::status::Args),
    /// Print this machine's hardware as the cluster will be told
    Probe(cli::probe::Args),
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Agent(args) => cli::agent::run(args),
        Command::Console(args) => cli::console::run(args),
        Command::Status(args) => cli::status::run(&args),
        Command::Probe(args) => cli::probe::run(&args),
    }
}
