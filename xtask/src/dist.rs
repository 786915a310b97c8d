//! `cargo xtask dist`: the packages that a node installs, made from the units of `systemd/`, the recipes of `packaging/` and a build.
//!
//! Everything is staged once as one tree (`dist/tree.rs`); the .deb and the .rpm are two wrappings of it. The same commit gives the
//! same bytes. Writes only below the target directory.

mod deb;
mod notices;
mod rpm;
mod tree;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::packages;
use crate::steps::words;
use crate::workspace::{Profile, Workspace};

/// Make the Debian package, and the rpm when asked.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How the programs are built: release is what ships, dev is for tests in a hurry.
    #[arg(long, value_enum, default_value = "release")]
    profile: Build,
    /// Give the package this version instead of the workspace's (upgrade tests).
    #[arg(long, value_name = "VERSION")]
    package_version: Option<String>,
    /// Make the rpm too.
    #[arg(long)]
    rpm: bool,
    /// Let lintian read the package; an error or a warning of it is one of ours.
    #[arg(long)]
    lint: bool,
    /// Install missing Debian packages without asking.
    #[arg(long)]
    yes: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Build {
    Release,
    Dev,
}

/// What a package is made of, and where it goes.
struct Dist {
    workspace: Workspace,
    /// `target/dist`.
    out: PathBuf,
    version: String,
    /// Seconds since 1970 of everything that carries a time.
    epoch: u64,
}

/// Builds, stages, wraps, and prints what came out.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let workspace = Workspace::find()?;
    let version = args.package_version.clone().unwrap_or_else(|| env!("CARGO_PKG_VERSION").to_owned());
    check_version(&version)?;
    let mut groups = vec![packages::BUILD, packages::DIST];
    if args.lint {
        groups.push(packages::LINT);
    }
    if args.rpm {
        groups.push(packages::RPM);
    }
    packages::ensure(&groups, args.yes)?;

    let programs = programs(&workspace, args.profile)?;
    let dist = Dist { out: workspace.target.join("dist"), epoch: epoch(&workspace)?, version, workspace };
    let _lock = lock(&dist.out)?;
    let manual = manual(&dist)?;
    let tree = dist.out.join("tree");
    tree::stage(&dist, &programs, &manual, &tree)?;
    // The crash points of the kill tests, and in a release also where it was built.
    let sources = format!("{}/src/", dist.workspace.root.display());
    let forbidden: &[&str] = match args.profile {
        Build::Dev => &["STRATUM_FAULT"],
        Build::Release => &["STRATUM_FAULT", "/registry/src/", &sources],
    };
    tree::holds_none_of(&tree, forbidden)?;
    let deb = deb::build(&dist, &tree)?;
    println!("{}", deb.display());
    if args.rpm {
        println!("{}", rpm::build(&dist, &tree)?.display());
    }
    if args.lint {
        run_command(
            Command::new("lintian")
                .args(["--allow-root", "--fail-on=error,warning", "--tag-display-limit=0"])
                .arg(&deb),
        )?;
        println!("lintian: nothing to say");
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds the programs that ship, and the one that writes their manual; gives the folder of the former. No feature is named, so there
/// are no crash points in them.
fn programs(workspace: &Workspace, build: Build) -> Result<PathBuf> {
    let Build::Release = build else {
        // The same selection as the demo's, so that neither builds anything twice.
        run_command(&mut workspace.build_programs(Profile::Dev))?;
        return Ok(workspace.bin_dir(Profile::Dev));
    };
    run_command(&mut workspace.cargo(&["build", "--locked", "--package", "stratum-manual"]))?;
    // In a folder of its own: its flags are not those of a developer's release build, and each would throw the other's work away.
    let dir = workspace.target.join("dist/build");
    let mut command = workspace.cargo(&["build", "--locked", "--package", "stratum-join", "--bins"]);
    command.arg("--release").arg("--target-dir").arg(&dir);
    run_command(command.env("CARGO_ENCODED_RUSTFLAGS", without_our_paths(workspace)?))?;
    Ok(dir.join("release"))
}

/// Panic messages name source files. What ships must not tell where it was built, and must not depend on it.
fn without_our_paths(workspace: &Workspace) -> Result<String> {
    #[expect(clippy::disallowed_methods, reason = "where cargo keeps its sources; no setting of ours")]
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")));
    let mut flags = vec![format!("--remap-path-prefix={}=stratum-join", workspace.root.display())];
    let sources = home.context("neither CARGO_HOME nor HOME is set")?.join("registry/src");
    let registries =
        std::fs::read_dir(&sources).with_context(|| format!("cannot list {}", sources.display()))?;
    for registry in registries {
        let path = registry.with_context(|| format!("cannot list {}", sources.display()))?.path();
        flags.push(format!("--remap-path-prefix={}=crates", path.display()));
    }
    Ok(flags.join("\x1f"))
}

/// One at a time: two would stage into one tree. Held until it is dropped.
fn lock(out: &Path) -> Result<File> {
    std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let path = out.join(".lock");
    let file = File::create(&path).with_context(|| format!("cannot open {}", path.display()))?;
    file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
    Ok(file)
}

/// Writes the man pages and the completions; gives their folder.
fn manual(dist: &Dist) -> Result<PathBuf> {
    let dir = dist.out.join("manual");
    let date = output_of(Command::new("date").args(["--utc", "+%F", &format!("--date=@{}", dist.epoch)]))?;
    let program = dist.workspace.bin_dir(Profile::Dev).join("stratum-manual");
    run_command(Command::new(program).arg(&dir).arg(date.trim()))?;
    Ok(dir)
}

/// A version that both dpkg and rpm take, and that is safe in a file's name.
fn check_version(version: &str) -> Result<()> {
    let good = |c: char| c.is_ascii_alphanumeric() || ".+~".contains(c);
    if version.starts_with(|c: char| c.is_ascii_digit()) && version.chars().all(good) {
        return Ok(());
    }
    bail!("{version:?} is no version: digits first, then letters, digits and `.+~`")
}

/// The time of the commit, or of `SOURCE_DATE_EPOCH`; in a tree without git that of 1980, the oldest every archive can hold.
fn epoch(workspace: &Workspace) -> Result<u64> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the convention of reproducible builds, no setting of ours"
    )]
    let given = std::env::var("SOURCE_DATE_EPOCH").ok();
    if let Some(given) = given {
        return given.parse().context("SOURCE_DATE_EPOCH is not a number");
    }
    let git = Command::new("git")
        .args(["log", "-1", "--format=%ct"])
        .current_dir(&workspace.root)
        .output()
        .ok()
        .filter(|out| out.status.success());
    let text = git.map(|out| String::from_utf8_lossy(&out.stdout).trim().to_owned());
    Ok(text.and_then(|text| text.parse().ok()).unwrap_or(315_532_800))
}

/// Runs one command with the terminal's own output; an error names it as one would type it.
fn run_command(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", words(command)))?;
    if !status.success() {
        bail!("{} ended with {status}", words(command));
    }
    Ok(())
}

/// What one command prints.
fn output_of(command: &mut Command) -> Result<String> {
    let out = command.output().with_context(|| format!("cannot start {}", words(command)))?;
    if !out.status.success() {
        bail!(
            "{} ended with {}: {}",
            words(command),
            out.status,
            String::from_utf8_lossy(&out.stderr).trim()
        );
    }
    String::from_utf8(out.stdout).with_context(|| format!("{} printed no text", words(command)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_would_leave_the_folder_or_confuse_dpkg_is_refused() {
        for good in ["0.1.0", "1.2.3~rc1", "0.0.9+test"] {
            check_version(good).unwrap();
        }
        for bad in ["", "v1", "../1", "1/2", "1-2", "1 2", "1:2"] {
            assert!(check_version(bad).is_err(), "{bad}");
        }
    }
}
