//! `cargo xtask vm`: builds what the stories of `tests/vm` need, and has them told.
//!
//! Installs Debian packages only after saying which. Everything the stories make is below `target/vm`.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::packages;
use crate::steps::words;
use crate::workspace::{Profile, Workspace};

/// What the package of an older release is called: the same programs, to upgrade from.
const PREVIOUS: &str = "0.0.9";

/// Boot a real machine in QEMU and tell a story about it.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Names of stories; `all`; or `list`
    #[arg(required = true, value_name = "STORY")]
    stories: Vec<String>,
    /// How our package is built: release is what ships, dev is for a story in the making.
    #[arg(long, value_enum, default_value = "release")]
    profile: Build,
    /// Tell each story this many times in a row.
    #[arg(long, value_name = "N", default_value_t = 1)]
    repeat: u32,
    /// After the first story begin none that would not be over after so many minutes; the ones left out are named.
    #[arg(long, value_name = "MINUTES")]
    within: Option<u64>,
    /// Keep the machines' disks.
    #[arg(long)]
    keep: bool,
    /// Write what a story would compare: the listing in docs/journal.md, the known answers in tests/vm/hardware.
    #[arg(long)]
    bless: bool,
    /// Install missing Debian packages without asking.
    #[arg(long)]
    yes: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Build {
    Release,
    Dev,
}

/// Builds, then tells.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let workspace = Workspace::find()?;
    let programs = workspace.bin_dir(Profile::Dev);
    if args.stories == ["list"] {
        build(&workspace, &["stratum-vm"])?;
        return tell(&mut stories(&programs, &workspace, &args.stories));
    }
    if !rustix::process::geteuid().is_root() {
        bail!(
            "a machine's file system belongs to root, and packages are installed in a chroot: this needs root.\n\
             As you are now: sudo --preserve-env=PATH,CARGO_HOME,RUSTUP_HOME cargo xtask vm {}",
            args.stories.join(" ")
        );
    }
    packages::ensure(&[packages::BUILD, packages::DIST, packages::VM], args.yes)?;
    build(&workspace, &["stratum-vm", "lab-founder", "firstboot-stand-in"])?;
    let dist = workspace.target.join("dist");
    let mut command = stories(&programs, &workspace, &args.stories);
    command.arg("--programs").arg(&programs);
    // The older one first: what is left in target/dist is the one that ships.
    if args.stories.iter().any(|name| name == "package" || name == "all") {
        command.arg("--previous").arg(package(&dist, args, Some(PREVIOUS))?);
    }
    command.arg("--deb").arg(package(&dist, args, None)?);
    command.arg("--repeat").arg(args.repeat.to_string());
    if let Some(minutes) = args.within {
        command.arg("--within").arg(minutes.to_string());
    }
    command.args(args.keep.then_some("--keep")).args(args.bless.then_some("--bless"));
    tell(&mut command)
}

/// `cargo xtask dist`, as a person types it; gives the package.
fn package(dist: &Path, args: &Args, version: Option<&str>) -> Result<PathBuf> {
    let mut command = Command::new(std::env::current_exe().context("where this program is")?);
    command.args(["dist", "--yes", "--profile"]);
    command.arg(match args.profile {
        Build::Release => "release",
        Build::Dev => "dev",
    });
    if let Some(version) = version {
        command.args(["--package-version", version]);
    }
    run_command(&mut command)?;
    let version = version.unwrap_or(env!("CARGO_PKG_VERSION"));
    let deb = dist.join(format!("stratum-join_{version}_amd64.deb"));
    if !deb.exists() {
        bail!("cargo xtask dist did not make {}", deb.display());
    }
    Ok(deb)
}

fn build(workspace: &Workspace, packages: &[&str]) -> Result<()> {
    let mut command = workspace.cargo(&["build", "--locked", "--bins"]);
    for package in packages {
        command.args(["--package", package]);
    }
    run_command(&mut command)
}

fn stories(programs: &Path, workspace: &Workspace, stories: &[String]) -> Command {
    let mut command = Command::new(programs.join("stratum-vm"));
    command.args(stories).arg("--dir").arg(workspace.target.join("vm"));
    command.arg("--repository").arg(&workspace.root);
    command
}

fn tell(command: &mut Command) -> Result<ExitCode> {
    let status = command.status().with_context(|| format!("cannot start {}", words(command)))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run_command(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", words(command)))?;
    if !status.success() {
        bail!("{}: {status}", words(command));
    }
    Ok(())
}
