//! `cargo xtask`: the developer's commands. Runs cargo, apt-get and this workspace's own programs on the developer's
//! machine; installs Debian packages only after saying which. Never part of what ships.

mod bench;
mod boot_clock;
mod children;
mod demo;
mod dist;
mod fuzz;
mod lab;
mod packages;
mod procfs;
mod release;
mod snapshot;
mod steps;
mod supply;
mod terminal;
mod test;
mod vm;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The developer's commands of this workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", disable_help_subcommand = true)]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Everything that must be green: format, lints, build, all tests, dependency policy.
    Test(test::Args),
    /// One whole join on this machine, from the agent's start to `joined`, with nothing left behind.
    Demo(demo::Args),
    /// Measure the agent, or the hardware probe, and print each figure beside its target.
    Bench(bench::Args),
    /// The packages that a node installs.
    Dist(dist::Args),
    /// Throw bytes at the parsers of what devices and other programs say.
    Fuzz(fuzz::Args),
    /// Make, sign and check a release that joiners upgrade to: `lab-founder release`.
    Release(release::Args),
    /// A real machine in QEMU, and a story about it.
    Vm(vm::Args),
}

fn main() -> ExitCode {
    let result = match Args::parse().task {
        Task::Test(args) => test::run(&args),
        Task::Demo(args) => demo::run(&args),
        Task::Bench(args) => bench::run(&args),
        Task::Dist(args) => dist::run(&args),
        Task::Fuzz(args) => fuzz::run(&args),
        Task::Release(args) => release::run(&args),
        Task::Vm(args) => vm::run(&args),
    };
    match result {
        Ok(code) => code,
        Err(error) if error.is::<children::Interrupted>() => {
            eprintln!("stopped: Ctrl-C. Everything this command started has ended.");
            ExitCode::from(130)
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        super::Args::command().debug_assert();
    }
}
