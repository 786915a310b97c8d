//! Debian packages: which are needed and why, which are missing, and installing them after saying so.
//!
//! Asks `dpkg-query`; runs `apt-get` only as root. Never removes or upgrades a package by name.

use std::io::{IsTerminal, Write};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// A Debian package and what it is for.
pub(crate) struct Package {
    name: &'static str,
    why: &'static str,
}

/// What every build needs.
pub(crate) const BUILD: &[Package] = &[
    Package { name: "gcc", why: "the linker, and the C parts of ring and SQLite" },
    Package { name: "libc6-dev", why: "headers and start files for the linker" },
    Package { name: "pkg-config", why: "finds libudev" },
    Package { name: "libudev-dev", why: "hwprobe reads udev's knowledge of the disks" },
];

/// What the tests need beyond [`BUILD`].
pub(crate) const TEST: &[Package] = &[
    Package { name: "procps", why: "kill, for the process groups of the kill tests" },
    Package { name: "xz-utils", why: "unpacks recorded machines" },
    Package { name: "minisign", why: "signs and verifies releases beside our own code" },
    Package { name: "faketime", why: "other dates for the tests of releases: 1970, 2039" },
    Package { name: "e2fsprogs", why: "mkfs.ext2: disks that are full, or fail" },
    Package { name: "mount", why: "mounts them" },
    Package { name: "systemd", why: "systemd-analyze judges the units" },
];

/// What `dist` needs beyond [`BUILD`].
pub(crate) const DIST: &[Package] = &[
    Package { name: "binutils", why: "strip" },
    Package { name: "dpkg-dev", why: "dpkg-shlibdeps: which versions of which libraries the programs need" },
    Package { name: "gzip", why: "compresses the changelog and the manual" },
];

/// What `dist --lint` needs.
pub(crate) const LINT: &[Package] = &[Package { name: "lintian", why: "reads the package as Debian would" }];

/// What `dist --rpm` needs.
pub(crate) const RPM: &[Package] = &[Package { name: "rpm", why: "rpmbuild" }];

/// What `vm` needs beyond [`DIST`].
pub(crate) const VM: &[Package] = &[
    Package { name: "qemu-system-x86", why: "the machine" },
    Package { name: "mmdebstrap", why: "makes its file system from Debian's packages" },
    Package { name: "e2fsprogs", why: "mke2fs: puts the file system on a disk, without mounting it" },
    Package { name: "util-linux", why: "setpriv: nothing that was started outlives the command" },
];

/// What `bench hwprobe` needs: the peers, and what counts.
pub(crate) const BENCH: &[Package] = &[
    Package { name: "util-linux", why: "lsblk, to compare with" },
    Package { name: "iproute2", why: "ip, to compare with; the network namespace" },
    Package { name: "lshw", why: "to compare with" },
    Package { name: "strace", why: "counts system calls" },
    Package { name: "time", why: "peak memory of a process" },
];

/// What `bench download` needs: the peers, and what counts.
pub(crate) const BENCH_DOWNLOAD: &[Package] = &[
    Package { name: "curl", why: "to compare with" },
    Package { name: "openssl", why: "hashes what curl fetched" },
    Package { name: "aria2", why: "to compare with" },
    Package { name: "ca-certificates", why: "the system's certificate authorities" },
    Package { name: "coreutils", why: "sync of one file" },
    Package { name: "util-linux", why: "taskset: a processor each for server and client" },
    Package { name: "strace", why: "counts system calls" },
    Package { name: "time", why: "peak memory of a process" },
];

/// Makes sure that every package is there; says what it installs and why.
///
/// Without `yes` a person at a terminal is asked first. Not being root is an error that carries the exact command.
pub(crate) fn ensure(groups: &[&[Package]], yes: bool) -> Result<()> {
    let wanted: Vec<&Package> = groups.iter().flat_map(|group| group.iter()).collect();
    let Some(missing) = missing(&wanted) else {
        println!(
            "packages: this is not Debian (no dpkg-query); these must be there under your system's names:"
        );
        describe(&wanted);
        return Ok(());
    };
    if missing.is_empty() {
        let names: Vec<_> = wanted.iter().map(|package| package.name).collect();
        println!("packages: all there ({})", names.join(", "));
        return Ok(());
    }
    println!("packages: these Debian packages are missing and will be installed:");
    describe(&missing);
    let names: Vec<&str> = missing.iter().map(|package| package.name).collect();
    let by_hand = format!("apt-get install --no-install-recommends {}", names.join(" "));
    if !rustix::process::geteuid().is_root() {
        bail!("not root, so nothing was installed. Run this, then start again:\n  sudo {by_hand}");
    }
    if !yes && std::io::stdin().is_terminal() && !agreed()? {
        bail!("nothing was installed. By hand it is:\n  {by_hand}");
    }
    // The lists of a fresh machine are empty or old; when they cannot be fetched the install says what is wrong.
    let _ = apt(&["update"]).status();
    let mut install = apt(&["install", "--yes", "--no-install-recommends"]);
    let status = install.args(&names).status().context("apt-get")?;
    if !status.success() {
        bail!("apt-get ended with {status}. By hand it is:\n  {by_hand}");
    }
    Ok(())
}

/// Those of `wanted` that are not installed, or `None` where there is no dpkg.
fn missing<'a>(wanted: &[&'a Package]) -> Option<Vec<&'a Package>> {
    let mut missing = Vec::new();
    for package in wanted {
        let out = Command::new("dpkg-query")
            .args(["--show", "--showformat=${db:Status-Status}", package.name])
            .stderr(Stdio::null())
            .output()
            .ok()?;
        if !(out.status.success() && out.stdout == b"installed") {
            missing.push(*package);
        }
    }
    Some(missing)
}

fn describe(packages: &[&Package]) {
    for package in packages {
        println!("  {:<12} {}", package.name, package.why);
    }
}

fn agreed() -> Result<bool> {
    print!("Install them now with apt-get? [Y/n] ");
    std::io::stdout().flush()?;
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    // End of input is not a yes; an empty line is.
    Ok(!line.is_empty() && matches!(line.trim().to_ascii_lowercase().as_str(), "" | "y" | "yes"))
}

fn apt(args: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    command.args(["--quiet=2", "-o", "Dpkg::Use-Pty=0"]).args(args);
    command.env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_that_is_not_installed_is_found_missing() {
        let absent = Package { name: "no-such-package", why: "a test" };
        let essential = Package { name: "dpkg", why: "a test" };
        match missing(&[&absent, &essential]) {
            Some(found) => {
                assert_eq!(found.iter().map(|p| p.name).collect::<Vec<_>>(), ["no-such-package"]);
            }
            None => println!("skipped: no dpkg-query here"),
        }
    }

    #[test]
    fn every_package_says_what_it_is_for() {
        let all = [BUILD, TEST, DIST, LINT, RPM, VM, BENCH];
        assert!(all.iter().copied().flatten().all(|package| !package.why.is_empty()));
    }
}
