//! The one tree that every package holds: what lies where, with which mode.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{Dist, notices, output_of, run_command};

/// Files of the repository, and where each lies on a node.
const FILES: &[(&str, &str)] = &[
    ("systemd/stratum-join.service", "usr/lib/systemd/system/stratum-join.service"),
    ("systemd/stratum-join-control.socket", "usr/lib/systemd/system/stratum-join-control.socket"),
    ("systemd/stratum-join-helper.socket", "usr/lib/systemd/system/stratum-join-helper.socket"),
    ("systemd/stratum-join-helper@.service", "usr/lib/systemd/system/stratum-join-helper@.service"),
    ("systemd/stratum-join-console@.service", "usr/lib/systemd/system/stratum-join-console@.service"),
    (
        "systemd/stratum-join-console-login@.service",
        "usr/lib/systemd/system/stratum-join-console-login@.service",
    ),
    (
        "systemd/getty@tty1.service.d/10-stratum-join.conf",
        "usr/lib/systemd/system/getty@tty1.service.d/10-stratum-join.conf",
    ),
    (
        "systemd/serial-getty@.service.d/10-stratum-join.conf",
        "usr/lib/systemd/system/serial-getty@.service.d/10-stratum-join.conf",
    ),
    ("systemd/stratum-join.preset", "usr/lib/systemd/system-preset/50-stratum-join.preset"),
    ("systemd/stratum-join.sysusers.conf", "usr/lib/sysusers.d/stratum-join.conf"),
    ("systemd/stratum-join.tmpfiles.conf", "usr/lib/tmpfiles.d/stratum-join.conf"),
    ("packaging/join.yaml", "etc/stratum/join.yaml"),
];

/// What `stratum-manual` writes, and where each lies on a node.
const MANUAL: &[(&str, &str)] = &[
    ("stratum-join.8", "usr/share/man/man8/stratum-join.8"),
    ("stratum-installer.8", "usr/share/man/man8/stratum-installer.8"),
    ("join.yaml.5", "usr/share/man/man5/join.yaml.5"),
    ("stratum-join.bash", "usr/share/bash-completion/completions/stratum-join"),
    ("stratum-installer.bash", "usr/share/bash-completion/completions/stratum-installer"),
    ("stratum-join.zsh", "usr/share/zsh/vendor-completions/_stratum-join"),
    ("stratum-installer.zsh", "usr/share/zsh/vendor-completions/_stratum-installer"),
    ("stratum-join.fish", "usr/share/fish/vendor_completions.d/stratum-join.fish"),
    ("stratum-installer.fish", "usr/share/fish/vendor_completions.d/stratum-installer.fish"),
];

/// Files that an administrator may change: kept on an upgrade.
pub(super) const CONFIG_FILES: &[&str] = &["/etc/stratum/join.yaml"];

/// The programs of the package.
pub(super) const PROGRAMS: &[&str] = &["usr/bin/stratum-join", "usr/bin/stratum-installer"];

/// The banner, where agetty looks on every version of util-linux. Not in /run/issue.d: before 2.41 that is read only when there is no
/// /etc/issue.
const LINKS: &[(&str, &str)] = &[("etc/issue.d/60-stratum.issue", "/run/stratum-join/issue")];

/// Makes the tree anew.
pub(super) fn stage(dist: &Dist, programs: &Path, manual: &Path, tree: &Path) -> Result<()> {
    if tree.exists() {
        fs::remove_dir_all(tree).with_context(|| format!("cannot clear {}", tree.display()))?;
    }
    for program in PROGRAMS {
        let name = Path::new(program).file_name().context("a program without a name")?;
        let to = tree.join(program);
        place(&programs.join(name), &to, 0o755)?;
        // Symbols of a development build are larger than the program; a release build has none.
        run_command(Command::new("strip").args(["--strip-unneeded", "--remove-section=.comment"]).arg(&to))?;
    }
    for (from, to) in FILES {
        place(&dist.workspace.root.join(from), &tree.join(to), 0o644)?;
    }
    for (from, to) in MANUAL {
        place(&manual.join(from), &tree.join(to), 0o644)?;
        if to.contains("/man/") {
            gzip(&tree.join(to))?;
        }
    }
    let notices = tree.join("usr/share/doc/stratum-join/third-party-licences");
    write(&notices, notices::text(&dist.workspace)?.as_bytes(), 0o644)?;
    gzip(&notices)?;
    for (link, target) in LINKS {
        let link = tree.join(link);
        make_parent(&link)?;
        symlink(target, &link).with_context(|| format!("cannot link {}", link.display()))?;
    }
    Ok(())
}

/// No program that ships holds any of these texts.
pub(super) fn holds_none_of(tree: &Path, texts: &[&str]) -> Result<()> {
    for program in PROGRAMS {
        for text in texts {
            let mut grep = Command::new("grep");
            let found =
                grep.args(["--quiet", "--fixed-strings", "-e", text]).arg(tree.join(program)).status();
            match found.context("cannot start grep")?.code() {
                Some(1) => {}
                Some(0) => bail!("/{program} holds {text:?}, which must not ship"),
                _ => bail!("cannot search /{program}"),
            }
        }
    }
    Ok(())
}

/// Copies one file with its mode.
pub(super) fn place(from: &Path, to: &Path, mode: u32) -> Result<()> {
    make_parent(to)?;
    fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode))
        .with_context(|| format!("cannot set the mode of {}", to.display()))
}

/// Writes one text with its mode.
pub(super) fn write(to: &Path, text: &[u8], mode: u32) -> Result<()> {
    make_parent(to)?;
    #[expect(clippy::disallowed_methods, reason = "a build's own output, made anew at each run")]
    fs::write(to, text).with_context(|| format!("cannot write {}", to.display()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode))
        .with_context(|| format!("cannot set the mode of {}", to.display()))
}

/// Compresses one file the way Debian's policy asks: best, without name and time.
pub(super) fn gzip(path: &Path) -> Result<()> {
    run_command(Command::new("gzip").args(["-9n", "--force"]).arg(path))
}

/// Every file below `dir` and every link, relative, sorted.
pub(super) fn list(dir: &Path) -> Result<Vec<String>> {
    let text = output_of(
        Command::new("find").arg(dir).args(["(", "-type", "f", "-o", "-type", "l", ")", "-printf", "%P\\n"]),
    )?;
    let mut files: Vec<String> = text.lines().map(str::to_owned).collect();
    files.sort();
    Ok(files)
}

fn make_parent(path: &Path) -> Result<()> {
    let parent = path.parent().context("a path without a parent")?;
    fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_systemd_is_in_the_package() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let files = list(&root.join("systemd")).unwrap();
        assert!(files.len() > 5, "{files:?}");
        for file in files {
            let from = format!("systemd/{file}");
            assert!(FILES.iter().any(|(source, _)| *source == from), "{from} is packaged nowhere");
        }
    }

    #[test]
    fn a_unit_keeps_its_name() {
        for (from, to) in FILES.iter().filter(|(_, to)| to.starts_with("usr/lib/systemd/system/")) {
            assert!(to.ends_with(from.strip_prefix("systemd/").unwrap()), "{from} -> {to}");
        }
    }
}
