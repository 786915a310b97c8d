//! The .deb, made with dpkg-deb.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{Dist, output_of, run_command, tree};

/// Wraps the tree; gives the package's path.
pub(super) fn build(dist: &Dist, staged: &Path) -> Result<PathBuf> {
    let architecture = output_of(Command::new("dpkg").arg("--print-architecture"))?.trim().to_owned();
    let work = dist.out.join("deb");
    if work.exists() {
        fs::remove_dir_all(&work).with_context(|| format!("cannot clear {}", work.display()))?;
    }
    run_command(Command::new("cp").args(["--recursive", "--preserve=mode,links"]).arg(staged).arg(&work))?;

    // Debian enables what is installed, and dpkg, which takes /usr/lib and /lib for two places, would say at each removal that the
    // directory of systemd's presets is not empty.
    let presets = work.join("usr/lib/systemd/system-preset");
    fs::remove_dir_all(&presets).with_context(|| format!("cannot remove {}", presets.display()))?;

    let recipes = dist.workspace.root.join("packaging/debian");
    let doc = work.join("usr/share/doc/stratum-join");
    let changelog = read(&recipes.join("changelog"))?;
    tree::write(&doc.join("changelog"), changelog_of(&changelog, &dist.version)?.as_bytes(), 0o644)?;
    tree::gzip(&doc.join("changelog"))?;
    tree::place(&recipes.join("copyright"), &doc.join("copyright"), 0o644)?;
    let overrides = recipes.join("lintian-overrides");
    if overrides.exists() {
        tree::place(&overrides, &work.join("usr/share/lintian/overrides/stratum-join"), 0o644)?;
    }

    let files = tree::list(&work)?;
    let control = work.join("DEBIAN");
    let text = read(&recipes.join("control"))?
        .replace("@VERSION@", &dist.version)
        .replace("@ARCHITECTURE@", &architecture)
        .replace("@INSTALLED_SIZE@", &installed_size(&work, &files)?.to_string())
        .replace("@SHLIBS@", &libraries(dist, &work)?);
    tree::write(&control.join("md5sums"), md5sums(&work, &files)?.as_bytes(), 0o644)?;
    tree::write(&control.join("control"), text.as_bytes(), 0o644)?;
    tree::write(&control.join("conffiles"), (tree::CONFIG_FILES.join("\n") + "\n").as_bytes(), 0o644)?;
    for script in ["postinst", "prerm", "postrm"] {
        tree::place(&recipes.join(script), &control.join(script), 0o755)?;
    }

    let deb = dist.out.join(format!("stratum-join_{}_{architecture}.deb", dist.version));
    // Under its name there is only ever a whole one.
    let unfinished = deb.with_extension("new");
    run_command(
        Command::new("dpkg-deb")
            .args(["--root-owner-group", "-Zxz", "--build"])
            .arg(&work)
            .arg(&unfinished)
            .env("SOURCE_DATE_EPOCH", dist.epoch.to_string())
            .stdout(std::process::Stdio::null()),
    )?;
    fs::rename(&unfinished, &deb).with_context(|| format!("cannot rename to {}", deb.display()))?;
    Ok(deb)
}

/// The changelog, with an entry for a version that is none of its own (upgrade tests).
fn changelog_of(text: &str, version: &str) -> Result<String> {
    if text.starts_with(&format!("stratum-join ({version}) ")) {
        return Ok(text.to_owned());
    }
    let signature =
        text.lines().find(|line| line.starts_with(" -- ")).context("the changelog has no signature")?;
    Ok(format!(
        "stratum-join ({version}) unstable; urgency=medium\n\n  * Built with this version for a test.\n\n{signature}\n\n{text}"
    ))
}

/// KiB on disk, as Debian's policy counts: each file rounded up, 1 for each directory.
fn installed_size(root: &Path, files: &[String]) -> Result<u64> {
    let mut size = 0;
    for file in files {
        let meta = fs::symlink_metadata(root.join(file)).with_context(|| format!("cannot stat {file}"))?;
        size += meta.len().div_ceil(1024).max(1);
    }
    let directories = output_of(Command::new("find").arg(root).args(["-type", "d", "-printf", "."]))?;
    Ok(size + directories.len() as u64)
}

fn md5sums(root: &Path, files: &[String]) -> Result<String> {
    let regular: Vec<&String> = files.iter().filter(|file| !root.join(file).is_symlink()).collect();
    output_of(Command::new("md5sum").arg("--").args(regular).current_dir(root))
}

/// What the programs link, as versions of Debian's packages.
fn libraries(dist: &Dist, work: &Path) -> Result<String> {
    // dpkg-shlibdeps reads ./debian/control, and looks there for which package it is asked.
    let source = dist.out.join("shlibdeps");
    tree::write(
        &source.join("debian/control"),
        b"Source: stratum-join\n\nPackage: stratum-join\nArchitecture: any\n",
        0o644,
    )?;
    let mut command = Command::new("dpkg-shlibdeps");
    command.arg("-O").current_dir(&source);
    for program in tree::PROGRAMS {
        command.arg("-e").arg(work.join(program));
    }
    let text = output_of(&mut command)?;
    match text.trim().strip_prefix("shlibs:Depends=") {
        Some(list) if !list.is_empty() => Ok(list.to_owned()),
        _ => bail!("dpkg-shlibdeps found no library: {text:?}"),
    }
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGELOG: &str = include_str!("../../../packaging/debian/changelog");

    #[test]
    fn the_changelog_begins_with_the_version_of_the_workspace() {
        assert_eq!(changelog_of(CHANGELOG, env!("CARGO_PKG_VERSION")).unwrap(), CHANGELOG);
    }

    #[test]
    fn another_version_gets_an_entry_of_its_own_above() {
        let text = changelog_of(CHANGELOG, "0.0.9").unwrap();
        assert!(text.starts_with("stratum-join (0.0.9) ") && text.ends_with(CHANGELOG), "{text}");
    }
}
