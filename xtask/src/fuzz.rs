//! `cargo xtask fuzz`: builds the targets of `fuzz/` with libFuzzer and AddressSanitizer, and runs them.
//!
//! May touch `target/fuzz`, where also grows what a run finds, and `fuzz/corpus`, where a crash is put: committed there, it is a test from then
//! on (`hwprobe/tests/corpus.rs`). The toolchain is the one of every other build.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::steps::Steps;
use crate::workspace::Workspace;

const TRIPLE: &str = "x86_64-unknown-linux-gnu";
/// What cargo-fuzz gives a nightly compiler. The stable one takes it with `RUSTC_BOOTSTRAP`.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Zsanitizer=address";
/// Longest input, in bytes.
const MAX_LEN: u32 = 4096;

/// Fuzz the parsers of what devices, files and other programs say.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// One target; all of them without it
    target: Option<String>,
    /// Time for each target
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u32,
}

/// Builds, runs one after the other, prints the summary.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let workspace = Workspace::find()?;
    let mut steps = Steps::new();
    all(&mut steps, &workspace, args.target.as_deref(), args.seconds)?;
    Ok(steps.summary())
}

/// The same as steps of a longer list.
pub(crate) fn all(
    steps: &mut Steps,
    workspace: &Workspace,
    target: Option<&str>,
    seconds: u32,
) -> Result<()> {
    let all = targets(&workspace.root)?;
    let chosen: Vec<&String> = all.iter().filter(|t| target.is_none_or(|name| name == *t)).collect();
    if chosen.is_empty() {
        bail!("no such target; there are: {}", all.join(", "));
    }
    let out = workspace.target.join("fuzz");
    let mut build =
        workspace.cargo(&["build", "--release", "--locked", "--manifest-path", "fuzz/Cargo.toml"]);
    // Without a target of its own, build scripts would get the flags too.
    build
        .args(["--target", TRIPLE, "--target-dir"])
        .arg(&out)
        .env("RUSTFLAGS", FLAGS)
        .env("RUSTC_BOOTSTRAP", "1");
    if !steps.run("fuzz-build", &mut build) {
        return Ok(());
    }
    for target in chosen {
        let (grown, kept) =
            (out.join("corpus").join(target), workspace.root.join("fuzz/corpus").join(target));
        for dir in [&grown, &kept] {
            std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        }
        let mut command = Command::new(out.join(TRIPLE).join("release").join(target));
        command.arg(format!("-max_total_time={seconds}")).arg(format!("-max_len={MAX_LEN}"));
        command.args(["-timeout=10", "-rss_limit_mb=1024", "-malloc_limit_mb=64", "-print_final_stats=1"]);
        command.arg(format!("-artifact_prefix={}/", kept.display())).arg(&grown).arg(&kept);
        steps.check("fuzz", || {
            println!("{target}: {seconds} s");
            let status = command.status().with_context(|| format!("cannot start the target {target}"))?;
            if !status.success() {
                bail!("{target}: {status}; what did it is in fuzz/corpus/{target}: commit it with its mend");
            }
            Ok(())
        });
    }
    Ok(())
}

/// The targets by their files.
fn targets(root: &Path) -> Result<Vec<String>> {
    let dir = root.join("fuzz/targets");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let path = entry?.path();
        names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_has_a_program_and_a_corpus() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let manifest = std::fs::read_to_string(root.join("fuzz/Cargo.toml")).unwrap();
        for target in targets(root).unwrap() {
            assert!(manifest.contains(&format!("path = \"targets/{target}.rs\"")), "{target}");
            assert!(root.join("fuzz/corpus").join(&target).is_dir(), "{target}");
        }
    }
}
