//! The release of a demo, made with the tools of a release engineer. Its files hold noise. Writes below the demo's directory only.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::lab::{OLDER, Programs, RELEASE, output};
use crate::snapshot::mib;
use crate::steps::words;

pub(super) const MIB: u64 = 1024 * 1024;
/// Beside the files themselves: state, logs, and the reserve that the joiner keeps.
const BESIDE: u64 = 128 * MIB;

/// How large the files of a release are, in bytes.
pub(super) struct Sizes {
    pub(super) root: u64,
    pub(super) linux: u64,
    pub(super) initrd: u64,
    pub(super) sysext: u64,
}

/// A signed release below the demo's directory.
pub(super) struct Release {
    /// Its directory, as it is served.
    pub(super) dir: PathBuf,
    /// The public half of the key that signed it.
    pub(super) key: PathBuf,
}

// === impl Sizes ===

impl Sizes {
    /// Over 256 MiB.
    pub(super) const DEMO: Self =
        Self { root: 208 * MIB, linux: 12 * MIB, initrd: 28 * MIB, sysext: 16 * MIB };

    fn files(&self) -> [(&'static str, u64); 4] {
        [
            ("root.erofs", self.root),
            ("vmlinuz", self.linux),
            ("initrd.img", self.initrd),
            ("extra.raw", self.sysext),
        ]
    }

    fn all(&self) -> u64 {
        self.files().iter().map(|(_, size)| size).sum()
    }

    /// The release, what the joiner has of it, and what it installs of that.
    fn needed(&self) -> u64 {
        3 * self.all() + BESIDE
    }
}

// === impl Release ===

impl Release {
    /// Makes, signs and checks one; shows each command.
    pub(super) fn make(programs: &Programs, dir: &Path, sizes: &Sizes) -> Result<Self> {
        let free = free(dir)?;
        enough(dir, sizes.needed(), free)?;
        let (all, need) = (mib(sizes.all()), mib(sizes.needed()));
        println!("release: {all} of noise for an OS; {need} are needed in {}", dir.display());
        let begin = Instant::now();
        for (name, size) in sizes.files() {
            noise(&dir.join(name), size)?;
        }
        let release = |args: &[&str]| -> Result<()> {
            let mut command = Command::new(programs.path("lab-founder"));
            command.arg("release").args(args).current_dir(dir).env_remove("SOURCE_DATE_EPOCH");
            println!("release: $ {}", words(&command));
            for line in output(&mut command)?.lines() {
                println!("release:   {line}");
            }
            Ok(())
        };
        release(&["keygen", "--out", "keys", "--name", "demo"])?;
        release(&[
            "make",
            "--out",
            "release",
            "--release",
            RELEASE,
            "--sequence",
            "70",
            "--min-upgrade-from",
            "0.5.0",
            "--created",
            "2026-11-29T00:00:00Z",
            "--root",
            "root.erofs",
            "--fstype",
            "erofs",
            "--linux",
            "vmlinuz",
            "--initrd",
            "initrd.img",
            "--cmdline",
            "quiet",
            "--sysext",
            "extra=extra.raw",
        ])?;
        for (name, _) in sizes.files() {
            fs::remove_file(dir.join(name)).with_context(|| format!("remove {name}"))?;
        }
        release(&["sign", "release", "--key", "keys/demo.key"])?;
        release(&["check", "release", "--os-keys", "keys", "--from", OLDER])?;
        println!("release: made, signed and checked in {:.1} s", begin.elapsed().as_secs_f64());
        Ok(Self { dir: dir.join("release"), key: dir.join("keys/demo.pub") })
    }

    /// Its image of the root file system.
    pub(super) fn root_image(&self) -> Result<PathBuf> {
        let path = self.dir.join("payload/manifest.json");
        let manifest = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        let manifest: Value = serde_json::from_slice(&manifest).context("manifest")?;
        let root =
            manifest["os"]["ab"]["root"]["path"].as_str().context("the manifest names no root image")?;
        Ok(self.dir.join(root))
    }
}

/// The bytes of both, when they are the same.
pub(super) fn same_bytes(one: &Path, other: &Path) -> Result<u64> {
    let open = |path: &Path| File::open(path).with_context(|| format!("open {}", path.display()));
    let (mut left, mut right) = (open(one)?, open(other)?);
    let (mut a, mut b) = (Vec::new(), Vec::new());
    let mut bytes = 0;
    loop {
        a.clear();
        b.clear();
        (&mut left).take(MIB).read_to_end(&mut a).with_context(|| format!("read {}", one.display()))?;
        (&mut right).take(MIB).read_to_end(&mut b).with_context(|| format!("read {}", other.display()))?;
        if a != b {
            bail!("{} does not hold what {} holds", one.display(), other.display());
        }
        if a.is_empty() {
            return Ok(bytes);
        }
        bytes += a.len() as u64;
    }
}

// === private ===

fn free(dir: &Path) -> Result<u64> {
    let stat = rustix::fs::statvfs(dir).with_context(|| format!("free space of {}", dir.display()))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

fn enough(dir: &Path, need: u64, free: u64) -> Result<()> {
    if free < need {
        let above = dir.parent().unwrap_or(dir).display();
        bail!(
            "the demo needs {} in {above}, and {} are free; make room there, or name another directory: TMPDIR=/var/tmp cargo xtask ...",
            mib(need),
            mib(free)
        );
    }
    Ok(())
}

fn noise(path: &Path, bytes: u64) -> Result<()> {
    let mut noise = File::open("/dev/urandom").context("/dev/urandom")?.take(bytes);
    let mut file = File::create(path).with_context(|| format!("create {}", path.display()))?;
    std::io::copy(&mut noise, &mut file).with_context(|| format!("write {}", path.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "inputs of a test need not survive a power cut")]

    use super::*;

    #[test]
    fn the_release_of_the_demo_has_at_least_256_mib_and_200_of_them_are_the_root() {
        assert!(Sizes::DEMO.all() >= 256 * MIB && Sizes::DEMO.root >= 200 * MIB);
    }

    #[test]
    fn too_little_room_is_said_with_both_figures_and_what_to_do() {
        let error = enough(Path::new("/tmp/demo"), 900 * MIB, 50 * MIB).unwrap_err().to_string();
        assert!(error.starts_with("the demo needs 900.0 MiB in /tmp, and 50.0 MiB are free"), "{error}");
        assert!(error.contains("TMPDIR="), "{error}");
    }

    #[test]
    fn two_files_are_the_same_only_to_the_last_byte() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            fs::write(&path, bytes).unwrap();
            path
        };
        let long = vec![7; MIB as usize + 1];
        let (a, b) = (file("a", &long), file("b", &long));
        assert_eq!(same_bytes(&a, &b).unwrap(), MIB + 1);
        let short = file("short", &long[..MIB as usize]);
        assert!(same_bytes(&a, &short).is_err() && same_bytes(&short, &a).is_err());
        let mut other = long;
        *other.last_mut().unwrap() = 8;
        assert!(same_bytes(&a, &file("other", &other)).is_err());
    }
}
