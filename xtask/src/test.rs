//! `cargo xtask test`: all that must be green before a change goes in. Runs cargo; installs what is missing after saying so.

use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::fuzz;
use crate::packages;
use crate::steps::{Steps, words};
use crate::supply;
use crate::workspace::Workspace;

/// Cases per property in a full run.
const CASES: &str = "10000";
/// Seconds for each fuzz target with `--long`.
const FUZZ_SECONDS: u32 = 60;
/// Cuts of a download with `--long`; otherwise what the test itself says.
const LONG_CUTS: &str = "100";
/// Scripts of a mirror with `--long`.
const LONG_SCRIPTS: &str = "200";
/// Cases per property with `--quick`.
const QUICK_CASES: &str = "256";

/// Everything that must be green.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Fewer property cases, and cargo-deny only when it is already installed.
    #[arg(long)]
    quick: bool,
    /// Fuzz every parser for a minute too, cut a download a hundred times, and try two hundred scripts of a mirror.
    #[arg(long, conflicts_with = "quick")]
    long: bool,
    /// Print the steps and their commands, and run none.
    #[arg(long)]
    list: bool,
    /// Install missing Debian packages without asking.
    #[arg(long)]
    yes: bool,
    /// Let this step be left out when it cannot run here; the summary says so.
    #[arg(long, value_name = "STEP")]
    allow_skip: Vec<String>,
}

/// Runs every step, prints the summary.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let workspace = Workspace::find()?;
    let mut plan = plan(&workspace, args.quick);
    if args.long {
        for (_, command) in plan.iter_mut().filter(|(name, _)| *name == "test") {
            command.env("STRATUM_TEST_CUTS", LONG_CUTS).env("STRATUM_TEST_SCRIPTS", LONG_SCRIPTS);
        }
    }
    if args.list {
        println!("packages     Debian packages: installed when missing");
        for (name, command) in &plan {
            println!("{name:<12} {}", words(command));
        }
        println!("bans         no banned crate in `cargo tree`");
        println!("deny         cargo-deny --offline --locked check bans licenses sources");
        if args.long {
            println!("fuzz         cargo xtask fuzz --seconds {FUZZ_SECONDS}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    packages::ensure(&[packages::BUILD, packages::TEST], args.yes)?;
    let mut steps = Steps::new();
    for (name, command) in &mut plan {
        let green = steps.run(name, command);
        if *name == "build" && !green {
            for name in ["test", "doc"] {
                steps.skip(name, "the build is red");
            }
            break;
        }
    }
    steps.check("bans", || supply::bans(&workspace));
    policy(&mut steps, &workspace, args);
    if args.long {
        fuzz::all(&mut steps, &workspace, None, FUZZ_SECONDS)?;
    }
    Ok(steps.summary())
}

/// The cargo steps, in the order in which they tell most soonest.
fn plan(workspace: &Workspace, quick: bool) -> Vec<(&'static str, Command)> {
    // The integration tests start the programs, so these are built first and with the crash points of the kill tests.
    let faults = ["--locked", "--workspace", "--features", "stratum-join/faults"];
    let mut clippy = workspace.cargo(&["clippy", "--all-targets"]);
    clippy.args(faults).args(["--", "-D", "warnings"]);
    let mut build = workspace.cargo(&["build"]);
    build.args(faults);
    let mut test = workspace.cargo(&["test", "--no-fail-fast"]);
    test.args(faults)
        .env("STRATUM_TEST_CASES", if quick { QUICK_CASES } else { CASES })
        // A test compares with the committed snapshots, it never writes them.
        .env("INSTA_UPDATE", "no");
    let mut doc = workspace.cargo(&["doc", "--no-deps", "--lib", "--exclude", "xtask"]);
    doc.args(faults).env("RUSTDOCFLAGS", "-D warnings");
    vec![
        ("fmt", workspace.cargo(&["fmt", "--all", "--check"])),
        ("clippy", clippy),
        ("build", build),
        ("test", test),
        ("doc", doc),
    ]
}

/// cargo-deny. A full run installs it once; a quick one takes what is there.
fn policy(steps: &mut Steps, workspace: &Workspace, args: &Args) {
    if supply::deny(workspace).is_none() && !args.quick {
        steps.run("deny-install", &mut supply::install_deny(workspace));
    }
    match supply::deny(workspace) {
        Some(mut command) => drop(steps.run("deny", &mut command)),
        None if args.quick || args.allow_skip.iter().any(|name| name == "deny") => {
            steps.skip("deny", "cargo-deny is not installed; a run without --quick installs it");
        }
        None => drop(
            steps.check("deny", || anyhow::bail!("cargo-deny is missing; --allow-skip deny leaves it out")),
        ),
    }
}
