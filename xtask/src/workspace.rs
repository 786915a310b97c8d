//! Where things are: the repository, the target directory, cargo. Runs `cargo metadata`; writes nothing.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// This repository and the folder its builds go to.
pub(crate) struct Workspace {
    /// The directory of the root `Cargo.toml`.
    pub(crate) root: PathBuf,
    /// `target/`, or where the developer's settings put it.
    pub(crate) target: PathBuf,
}

/// How the programs of a demo or a bench are built.
#[derive(Clone, Copy)]
pub(crate) enum Profile {
    /// Fast to build; the same artefacts as the tests'.
    Dev,
    /// What ships.
    Release,
}

// === impl Workspace ===

impl Workspace {
    /// Finds the workspace this xtask was built from.
    pub(crate) fn find() -> Result<Self> {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = manifest.parent().context("xtask has no parent directory")?.to_owned();
        let out = Command::new(cargo())
            .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
            .current_dir(&root)
            .output()
            .context("cargo metadata")?;
        if !out.status.success() {
            bail!("cargo metadata: {}", String::from_utf8_lossy(&out.stderr).trim());
        }
        let meta: serde_json::Value = serde_json::from_slice(&out.stdout).context("cargo metadata")?;
        let target = meta["target_directory"].as_str().context("cargo metadata names no target directory")?;
        Ok(Self { root, target: target.into() })
    }

    /// A cargo command in the repository.
    pub(crate) fn cargo(&self, args: &[&str]) -> Command {
        let mut command = Command::new(cargo());
        command.args(args).current_dir(&self.root);
        // `cargo xtask` runs us with variables of the package xtask. A build script that watches them (ring's does) would
        // be run again, and all that depends on it built again, at every change between `cargo` and `cargo xtask`.
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(is_about_this_package) {
                command.env_remove(name);
            }
        }
        command
    }

    /// Where a build of `profile` leaves its programs.
    pub(crate) fn bin_dir(&self, profile: Profile) -> PathBuf {
        self.target.join(match profile {
            Profile::Dev => "debug",
            Profile::Release => "release",
        })
    }

    /// The command that builds every program a join needs: agent, installer, founder, stratumctl, firstboot stand-in.
    pub(crate) fn build_programs(&self, profile: Profile) -> Command {
        let mut command = self.cargo(&["build", "--locked", "--workspace", "--exclude", "xtask", "--bins"]);
        if let Profile::Release = profile {
            command.arg("--release");
        }
        command
    }
}

/// Is this a variable that cargo sets for the program it runs, and not one of the developer's?
fn is_about_this_package(name: &str) -> bool {
    name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") || name == "CARGO_PRIMARY_PACKAGE"
}

/// The cargo that built this xtask.
fn cargo() -> &'static str {
    option_env!("CARGO").unwrap_or("cargo")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_cargo_says_about_xtask_is_taken_out_of_the_environment() {
        assert!(is_about_this_package("CARGO_PKG_NAME") && is_about_this_package("CARGO_MANIFEST_DIR"));
        assert!(!is_about_this_package("CARGO_TARGET_DIR") && !is_about_this_package("CARGO_HOME"));
    }
}
