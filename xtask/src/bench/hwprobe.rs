//! `cargo xtask bench hwprobe`: what the hardware probe costs, beside `lsblk`, `ip` and `lshw`, in the same run and in turns.
//!
//! Reads this machine's hardware; writes trees of files below a temporary directory in memory that goes away. As root it also makes 100,000
//! routes, in a network namespace of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::children::Signals;
use crate::packages;

use super::places::{Place, Setup};

/// Measure the hardware probe.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Rounds of what takes milliseconds.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Rounds of `lsblk` over 10,000 devices, which takes most of a minute.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    slow_rounds: u32,
    /// Where to measure; all of them without it.
    #[arg(long, value_enum)]
    place: Vec<Place>,
    /// Measure this `stratum-join` and build none.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Install missing Debian packages without asking.
    #[arg(long)]
    yes: bool,
}

/// Builds, measures, prints.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    packages::ensure(&[packages::BENCH], args.yes)?;
    let program = super::program(args.program.as_deref(), args.yes)?;
    let signals = Signals::register()?;
    let memory = Path::new("/dev/shm");
    let mut builder = tempfile::Builder::new();
    let builder = builder.prefix("stratum-bench-");
    let dir = if memory.is_dir() { builder.tempdir_in(memory) } else { builder.tempdir() };
    let dir = dir.context("temporary directory")?;
    let setup = Setup {
        once: knows_once(&program)?,
        program,
        dir: dir.path(),
        rounds: args.rounds,
        slow_rounds: args.slow_rounds,
        signals: &signals,
        yes: args.yes,
    };
    let places = if args.place.is_empty() { Place::ALL } else { args.place.as_slice() };
    let mut reached = true;
    for place in places {
        reached &= setup.measure(*place)?;
    }
    Ok(if reached { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether a plain `probe` waits for udev, and `--once` keeps it from that.
fn knows_once(program: &Path) -> Result<bool> {
    let help = Command::new(program).args(["probe", "--help"]).output();
    let help = help.with_context(|| format!("cannot start {}", program.display()))?;
    Ok(String::from_utf8_lossy(&help.stdout).contains("--once"))
}
