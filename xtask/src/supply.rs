//! What may be linked: `cargo deny` by deny.toml, and without it the bans alone by `cargo tree`.
//!
//! May install cargo-deny below the target directory; touches nothing else.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::workspace::Workspace;

/// The cargo-deny this gate was written for.
const DENY_VERSION: &str = "0.20.2";

/// Crates that must never be in the tree; deny.toml has the reason of each.
const BANNED: &[&str] = &[
    "aws-lc-rs",
    "aws-lc-sys",
    "openssl",
    "openssl-sys",
    "native-tls",
    "async-io",
    "webpki-roots",
    "serde_yml",
    "serde_yaml",
];

/// The command of the whole policy, when cargo-deny is on this machine.
pub(crate) fn deny(workspace: &Workspace) -> Option<Command> {
    let own = tools(workspace).join("bin/cargo-deny");
    let program = if own.exists() { own } else { PathBuf::from("cargo-deny") };
    let found = Command::new(&program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !found.is_ok_and(|status| status.success()) {
        return None;
    }
    let mut command = Command::new(program);
    command
        .args(["--offline", "--locked", "check", "bans", "licenses", "sources"])
        .current_dir(&workspace.root);
    Some(command)
}

/// The command that installs cargo-deny below the target directory, where `cargo clean` takes it away again.
pub(crate) fn install_deny(workspace: &Workspace) -> Command {
    let mut command =
        workspace.cargo(&["install", "--locked", "--quiet", "--version", DENY_VERSION, "cargo-deny"]);
    command.arg("--root").arg(tools(workspace)).arg("--target-dir").arg(tools(workspace).join("build"));
    command
}

/// The bans alone: needs nothing but cargo and Cargo.lock.
pub(crate) fn bans(workspace: &Workspace) -> Result<()> {
    let out = workspace
        .cargo(&["tree", "--workspace", "--all-features", "--locked", "--offline"])
        .args(["--edges", "normal,build,dev", "--prefix", "none", "--format", "{p}"])
        .output()
        .context("cargo tree")?;
    if !out.status.success() {
        bail!("cargo tree: {}", String::from_utf8_lossy(&out.stderr).trim());
    }
    let tree = String::from_utf8_lossy(&out.stdout);
    let found: Vec<&str> = BANNED.iter().copied().filter(|name| contains(&tree, name)).collect();
    if !found.is_empty() {
        bail!(
            "banned by deny.toml: {}. `cargo tree --workspace -i <crate>` shows who brings it",
            found.join(", ")
        );
    }
    println!("none of {} is in the tree", BANNED.join(", "));
    Ok(())
}

/// Does a line of `cargo tree` name this package? A line is `name v1.2.3 ...`.
fn contains(tree: &str, name: &str) -> bool {
    tree.lines().any(|line| line.split(' ').next() == Some(name))
}

fn tools(workspace: &Workspace) -> PathBuf {
    workspace.target.join("tools")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_crate_banned_here_is_banned_in_deny_toml_and_the_other_way_round() {
        let policy = include_str!("../../deny.toml");
        for name in BANNED {
            assert!(policy.contains(&format!("{{ crate = \"{name}\"")), "{name} is not in deny.toml");
        }
        assert_eq!(policy.matches("{ crate = \"").count(), BANNED.len());
    }

    #[test]
    fn a_banned_crate_is_found_by_its_whole_name() {
        let tree = "openssl-probe v0.2.0\nserde v1.0.0\n";
        assert!(!contains(tree, "openssl"));
        assert!(contains("openssl v0.10.0 (*)\n", "openssl"));
    }
}
