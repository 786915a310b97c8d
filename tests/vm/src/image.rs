//! The Debian that every machine starts from: made once by `mmdebstrap` with the packages of `image/packages.txt` (and, for machines with
//! many disks, of `image/packages-storage.txt`, for Debian's own font, of `image/packages-fonts.txt`, or to measure, of
//! `image/packages-measure.txt`), kept as a tar below the target directory under a name that changes with the recipe.
//!
//! Needs root. Takes its packages from where this machine takes its own: no address of an archive is written anywhere here.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use data_encoding::HEXLOWER;
use ring::digest::{SHA256, digest};

use crate::artefacts::write;

/// Debian 12.
const SUITE: &str = "bookworm";
const PACKAGES: &str = include_str!("../image/packages.txt");
const FONTS: &str = include_str!("../image/packages-fonts.txt");
const STORAGE: &str = include_str!("../image/packages-storage.txt");
const MEASURE: &str = include_str!("../image/packages-measure.txt");
const INITRAMFS: &str = include_str!("../image/initramfs.conf");
const MODULES: &str = include_str!("../image/modules.txt");
const LEFT_OUT: &str = include_str!("../image/dpkg.cfg");

/// The kernel's command line: what docs/packaging.md recommends for a machine with a screen and a serial line.
/// The screen comes last, so it is where `/dev/console` is; `quiet` keeps it clean.
pub const KERNEL_ARGS: &str = "root=LABEL=stratum-vm rw quiet console=ttyS0,115200 console=tty0";

/// Which packages an image has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Image {
    /// What a machine needs to start, and the harness to reach it.
    #[default]
    Plain,
    /// That, and what puts disks together: RAID, LVM, encryption, multipath.
    Storage,
    /// Or what sets Debian's own font on a console.
    Fonts,
    /// Or what measures the hardware probe, and what it is compared with.
    Measure,
}

/// A tar with the whole file system of a machine that has no package of ours yet.
#[derive(Clone, Debug)]
pub struct Base {
    tar: PathBuf,
}

// === impl Image ===

impl Image {
    /// Minutes it takes to make, at most, where packages are fetched fast.
    pub const MINUTES: u64 = 3;

    /// Whether there is one below `cache`.
    pub fn is_made(self, cache: &Path) -> bool {
        self.tar(cache).exists()
    }

    fn tar(self, cache: &Path) -> PathBuf {
        cache.join(format!("{SUITE}-{}.tar", self.recipe()))
    }

    /// The names in the lists.
    fn packages(self) -> impl Iterator<Item = &'static str> {
        let lines = self.lists().into_iter().flat_map(str::lines).filter(|line| !line.starts_with('#'));
        lines.filter_map(|line| line.split_whitespace().next())
    }

    fn lists(self) -> Vec<&'static str> {
        match self {
            Self::Plain => vec![PACKAGES],
            Self::Storage => vec![PACKAGES, STORAGE],
            Self::Fonts => vec![PACKAGES, FONTS],
            Self::Measure => vec![PACKAGES, MEASURE],
        }
    }

    /// Sixteen digits that change when the image would.
    fn recipe(self) -> String {
        let mut all = self.lists();
        all.splice(0..0, [SUITE]);
        all.extend([INITRAMFS, MODULES, LEFT_OUT]);
        HEXLOWER.encode(&digest(&SHA256, all.join("\0").as_bytes()).as_ref()[..8])
    }
}

// === impl Base ===

impl Base {
    /// The cached one below `cache`, or a new one.
    pub fn find_or_make(cache: &Path, image: Image) -> Result<Self> {
        let tar = image.tar(cache);
        if tar.exists() {
            println!("image: {} from the cache", tar.display());
            return Ok(Self { tar });
        }
        if !rustix::process::geteuid().is_root() {
            bail!(
                "making a machine's file system needs root: its files belong to root, and packages are installed in a chroot"
            );
        }
        std::fs::create_dir_all(cache).with_context(|| format!("create {}", cache.display()))?;
        println!("image: making {} (once, some minutes)", tar.display());
        make(cache, image, &tar)?;
        Ok(Self { tar })
    }

    /// Unpacks it into an empty directory.
    pub fn unpack(&self, into: &Path) -> Result<()> {
        let mut tar = Command::new("tar");
        tar.args(["--numeric-owner", "--xattrs", "--xattrs-include=*", "-xpf"])
            .arg(&self.tar)
            .arg("-C")
            .arg(into);
        crate::child::output(&mut tar).map(drop)
    }
}

fn make(cache: &Path, image: Image, tar: &Path) -> Result<()> {
    let work = tempfile::tempdir_in(cache).context("temporary directory")?;
    let (config, modules, left_out) =
        (work.path().join("vm.conf"), work.path().join("vm"), work.path().join("dpkg.cfg"));
    write(&config, INITRAMFS)?;
    write(&modules, MODULES)?;
    write(&left_out, LEFT_OUT)?;
    // Before the packages, so that the initrd is made once, and made small.
    let place = |file: &Path, dir: &str| {
        format!("--setup-hook=mkdir -p \"$1/{dir}\" && cp '{}' \"$1/{dir}/\"", file.display())
    };
    let unfinished = work.path().join("base.tar");
    let mut command = Command::new("mmdebstrap");
    command.args([
        "--mode=root",
        "--variant=apt",
        "--format=tar",
        "--aptopt=APT::Install-Recommends \"false\"",
    ]);
    command.arg(place(&config, "etc/initramfs-tools/conf.d"));
    command.arg(place(&modules, "usr/share/initramfs-tools/modules.d"));
    command.arg(format!("--dpkgopt={}", left_out.display()));
    command.arg(format!("--include={}", image.packages().collect::<Vec<_>>().join(",")));
    // The machine must not know where it came from, and has nothing to fetch.
    command
        .arg("--customize-hook=rm -rf \"$1\"/etc/apt/sources.list* \"$1\"/etc/apt/apt.conf.d/99mmdebstrap");
    command.arg(SUITE).arg(&unfinished).args(sources()?);
    let status = command.stdin(Stdio::null()).status().context("cannot start mmdebstrap")?;
    if !status.success() {
        bail!("mmdebstrap ended with {status}; what it said stands above");
    }
    std::fs::rename(&unfinished, tar).with_context(|| format!("keep {}", tar.display()))
}

/// This machine's own package sources that have the suite.
fn sources() -> Result<Vec<PathBuf>> {
    let mut found = vec![PathBuf::from("/etc/apt/sources.list")];
    if let Ok(dir) = std::fs::read_dir("/etc/apt/sources.list.d") {
        found.extend(dir.filter_map(|entry| Some(entry.ok()?.path())));
    }
    found.retain(|path| {
        let listed = path.extension().is_some_and(|e| e == "list" || e == "sources");
        listed && std::fs::read_to_string(path).is_ok_and(|text| names_the_suite(&text))
    });
    found.sort();
    if found.is_empty() {
        bail!("none of this machine's package sources (/etc/apt/sources.list, sources.list.d) has {SUITE}");
    }
    Ok(found)
}

fn names_the_suite(text: &str) -> bool {
    text.lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .any(|line| line.split_whitespace().any(|word| word == SUITE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_says_why_it_is_there() {
        let lines = [PACKAGES, STORAGE, FONTS, MEASURE]
            .into_iter()
            .flat_map(str::lines)
            .filter(|line| !line.starts_with('#'));
        assert!(lines.clone().count() > 20);
        assert!(lines.into_iter().all(|line| line.split_whitespace().count() > 2));
    }

    #[test]
    fn a_source_counts_when_it_has_the_suite() {
        assert!(names_the_suite("Types: deb\nSuites: bookworm bookworm-updates\n"));
        assert!(names_the_suite("deb [signed-by=/k.gpg] http://deb.example/debian bookworm main\n"));
        assert!(!names_the_suite(
            "# deb http://deb.example/debian bookworm main\ndeb http://x nodistro main\n"
        ));
    }
}
