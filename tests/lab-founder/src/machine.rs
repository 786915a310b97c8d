//! `lab-founder restart`: starts a machine anew whose OS is only recorded (docs/upgrade.md, "Watching an upgrade").
//!
//! Touches what the boot loader and a restart touch below the root it is given; never the real root, and nothing while an agent runs there.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::{Value, json};
use stratum_join::durable_file::Lock;
use stratum_join::install::recorded::boot::{Boot, Outcome, boot_until_up};
use stratum_join::paths::Paths;

/// What `lab-founder restart` takes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The machine: the root of an agent that ran with --recorded-os
    #[arg(long, value_name = "DIR")]
    root: PathBuf,
    /// What becomes of an OS on trial, each time it is started
    #[arg(long, value_enum, default_value = "comes")]
    trial: Trial,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Trial {
    /// It comes up
    Comes,
    /// Its kernel panics, and the machine starts again, until the OS before it is started
    Panics,
    /// It is not started: the OS before it is
    PassedOver,
}

// === impl Args ===

impl Args {
    /// Starts the machine until an OS comes up; prints a line of JSON for each start.
    pub fn run(self) -> anyhow::Result<()> {
        let starts = restart(&self.root, self.trial.into())?;
        let mut out = std::io::stdout().lock();
        for start in &starts {
            writeln!(out, "{}", line(start)).context("standard output")?;
        }
        Ok(())
    }
}

impl From<Trial> for Outcome {
    fn from(trial: Trial) -> Self {
        match trial {
            Trial::Comes => Self::Comes,
            Trial::Panics => Self::Panics,
            Trial::PassedOver => Self::PassedOver,
        }
    }
}

// === private ===

/// The machine below `root` loses what is in memory, and is started until an OS comes up.
fn restart(root: &Path, trial: Outcome) -> anyhow::Result<Vec<Boot>> {
    let root = root.canonicalize().with_context(|| format!("no machine at {}", root.display()))?;
    let paths = Paths::under(&root);
    if paths.is_system() {
        bail!("{} is this machine itself, and that one is not restarted", root.display());
    }
    if !paths.state_dir().is_dir() {
        bail!("no agent has run below {}: there is no {}", root.display(), paths.state_dir().display());
    }
    let _alone = Lock::take(&paths.agent_lock()).context("stop the agent first")?;
    for dir in [paths.run_dir(), paths.public_dir()] {
        forget(&root, &dir)?;
    }
    boot_until_up(&root, trial).with_context(|| format!("start the machine below {}", root.display()))
}

/// Removes a directory that a restart empties; not one that a link puts elsewhere.
fn forget(root: &Path, dir: &Path) -> anyhow::Result<()> {
    let Ok(real) = dir.canonicalize() else { return Ok(()) };
    if !real.starts_with(root) {
        bail!("{} leads out of {}", dir.display(), root.display());
    }
    std::fs::remove_dir_all(&real).with_context(|| format!("remove {}", real.display()))
}

fn line(boot: &Boot) -> Value {
    json!({
        "slot": boot.slot,
        "release": boot.release,
        "bootId": boot.boot_id,
        "entry": boot.entry,
        "trial": boot.trial,
        "came": boot.came,
    })
}
