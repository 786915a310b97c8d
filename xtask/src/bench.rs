//! `cargo xtask bench`: measures the agent.
use std::process::ExitCode;
/// Measure.
#[derive(clap::Args)]
pub(crate) struct Args {}
pub(crate) fn run(_: &Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("later")
}
