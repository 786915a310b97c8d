//! `cargo xtask bench`: our figures, each beside its target, and beside peers measured in the same run where there are some.

mod console;
mod contest;
mod download;
mod hwprobe;
mod join;
mod places;
#[allow(clippy::indexing_slicing, reason = "shared with the tests of hwprobe")]
#[path = "../../hwprobe/tests/support/rack.rs"]
mod rack;
mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::packages;
use crate::steps::words;
use crate::workspace::{Profile, Workspace};

/// Measure, and print each figure beside its target.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[group(skip)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    join: join::Args,
}

#[derive(clap::Subcommand)]
enum What {
    /// The agent: how long a join takes, what it keeps in memory, how often it wakes up. What a plain `bench` does
    Join(join::Args),
    /// The hardware probe beside lsblk, ip and lshw
    Hwprobe(hwprobe::Args),
    /// The status screen: what it costs while a machine waits, how soon it shows a change
    Console(console::Args),
    /// The download of a release, beside curl and aria2c; what a kill in the middle costs
    Download(download::Args),
}

/// Builds, measures, prints.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    match &args.what {
        None => join::run(&args.join),
        Some(What::Join(args)) => join::run(args),
        Some(What::Hwprobe(args)) => hwprobe::run(args),
        Some(What::Console(args)) => console::run(args),
        Some(What::Download(args)) => download::run(args),
    }
}

/// The `stratum-join` to measure: the one that was named, or the release build.
fn program(named: Option<&Path>, yes: bool) -> Result<PathBuf> {
    if let Some(named) = named {
        return Ok(named.to_owned());
    }
    let workspace = Workspace::find()?;
    packages::ensure(&[packages::BUILD], yes)?;
    build(&workspace)?;
    Ok(workspace.bin_dir(Profile::Release).join("stratum-join"))
}

/// The release build of every program.
fn build(workspace: &Workspace) -> Result<()> {
    let mut build = workspace.build_programs(Profile::Release);
    println!("build: {}", words(&build));
    if !build.status().context("cargo build")?.success() {
        bail!("the build failed");
    }
    Ok(())
}
