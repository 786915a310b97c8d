//! The .rpm, made with rpmbuild from the same tree.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::{Dist, output_of, run_command};

/// Wraps the tree; gives the package's path.
pub(super) fn build(dist: &Dist, staged: &Path) -> Result<PathBuf> {
    let top = dist.out.join("rpm");
    let spec = dist.workspace.root.join("packaging/stratum-join.spec");
    let define = |name: &str, value: &str| format!("{name} {value}");
    let defines = [
        define("_topdir", &top.display().to_string()),
        define("stratum_version", &dist.version),
        define("stratum_tree", &staged.display().to_string()),
        define("use_source_date_epoch_as_buildtime", "1"),
        define("clamp_mtime_to_source_date_epoch", "1"),
        define("_buildhost", "reproducible"),
    ];
    let mut command = Command::new("rpmbuild");
    command.args(["-bb", "--quiet"]).env("SOURCE_DATE_EPOCH", dist.epoch.to_string()).stdout(Stdio::null());
    for define in &defines {
        command.args(["--define", define]);
    }
    run_command(command.arg(spec))?;
    let found = output_of(Command::new("find").arg(top.join("RPMS")).args(["-name", "*.rpm"]))?;
    let wanted = format!("stratum-join-{}-", dist.version);
    found.lines().find(|path| path.contains(&wanted)).map(PathBuf::from).context("rpmbuild left no package")
}
