//! `cargo xtask release`: builds `lab-founder` and passes its `release` everything that is said. Writes what that command writes.

use std::ffi::OsString;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::workspace::{Profile, Workspace};

/// What follows is read by `lab-founder release`.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// See `cargo xtask release --help`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

/// Builds, then runs it where the caller stands, so that paths mean what they mean there.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let workspace = Workspace::find()?;
    let mut build = workspace.cargo(&[
        "build",
        "--locked",
        "--quiet",
        "--package",
        "lab-founder",
        "--bin",
        "lab-founder",
    ]);
    if !build.status().context("cargo build")?.success() {
        bail!("lab-founder does not build");
    }
    let program = workspace.bin_dir(Profile::Dev).join("lab-founder");
    let status = Command::new(&program)
        .arg("release")
        .args(&args.args)
        .status()
        .with_context(|| format!("cannot start {}", program.display()))?;
    Ok(u8::try_from(status.code().unwrap_or(1)).map_or(ExitCode::FAILURE, ExitCode::from))
}
