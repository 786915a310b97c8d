//! What each program takes on its command line, and what it does for each subcommand.
//!
//! Here and not in the programs, so that the man pages and the shell completions are rendered from the very same words
//! (`packaging/manual`). Touches nothing.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use super::{agent, console, diagnose, helper, join, probe, release, status};

/// The join agent of a Stratum cluster's node
#[derive(Debug, Parser)]
#[command(name = "stratum-join", version)]
pub struct StratumJoin {
    #[command(subcommand)]
    command: JoinCommand,
}

#[derive(Debug, Subcommand)]
enum JoinCommand {
    /// Run until this machine has joined (stratum-join.service)
    Agent(agent::Args),
    /// Do one privileged verb for the agent (stratum-join-helper@.service)
    #[command(hide = true)]
    Helper(helper::Args),
    /// Show the join on a terminal
    Console(console::Args),
    /// Print the state of the join
    Status(status::Args),
    /// Find out why the cluster cannot be reached
    Diagnose(diagnose::Args),
    /// Print this machine's hardware as the cluster will be told
    Probe(probe::Args),
    /// Try the releases that machines upgrade themselves to
    Release(release::Args),
}

/// Stratum installer
#[derive(Debug, Parser)]
#[command(name = "stratum-installer", version)]
pub struct StratumInstaller {
    #[command(subcommand)]
    command: InstallerCommand,
}

#[derive(Debug, Subcommand)]
enum InstallerCommand {
    /// Give this machine the cluster's address and a join code, or check them
    Join(join::Args),
}

// === impl StratumJoin ===

impl StratumJoin {
    /// Does what was asked.
    pub fn run(self) -> ExitCode {
        match self.command {
            JoinCommand::Agent(args) => agent::run(args),
            JoinCommand::Helper(args) => helper::run(args),
            JoinCommand::Console(args) => console::run(args),
            JoinCommand::Status(args) => status::run(&args),
            JoinCommand::Diagnose(args) => diagnose::run(&args),
            JoinCommand::Probe(args) => probe::run(&args),
            JoinCommand::Release(args) => release::run(args),
        }
    }
}

// === impl StratumInstaller ===

impl StratumInstaller {
    /// Does what was asked.
    pub fn run(self) -> ExitCode {
        match self.command {
            InstallerCommand::Join(args) => join::run(args),
        }
    }
}

/// The command line of `stratum-join`, for its man pages and completions.
pub fn stratum_join() -> clap::Command {
    StratumJoin::command()
}

/// The command line of `stratum-installer`, for its man pages and completions.
pub fn stratum_installer() -> clap::Command {
    StratumInstaller::command()
}

#[cfg(test)]
mod tests {
    #[test]
    fn both_command_lines_are_sound() {
        super::stratum_join().debug_assert();
        super::stratum_installer().debug_assert();
    }
}
