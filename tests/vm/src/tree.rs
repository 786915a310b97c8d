//! The file system of one machine before its first start, and the disk made of it: what stage 1 of the installer leaves behind.
//!
//! Works in a chroot as root, without starting anything there and without mounting anything.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::artefacts::write;
use crate::board::Board;
use crate::child::output;
use crate::image::Base;
use crate::qemu::Disks;

/// The release of the machine and of the founder's cluster: no upgrade is due.
pub const RELEASE: &str = "0.7.0";
/// Its host name.
pub const HOST_NAME: &str = "node-2";
/// Root's password, for the logins that a story tries.
pub const PASSWORD: &str = "lab-only";
const NETWORK: &str = include_str!("../image/dhcp.network");
/// Size of the root disk.
const DISK: &str = "2G";
/// Work that Debian does now and then, and that would only slow a short life down.
const MASKED: [&str; 7] = [
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
    "systemd-networkd-wait-online.service",
];

/// An unpacked file system, removed with this value.
pub struct Tree {
    dir: tempfile::TempDir,
}

// === impl Tree ===

impl Tree {
    /// Debian with a network, a name and a root password.
    pub fn unpack(base: &Base, below: &Path) -> Result<Self> {
        let dir =
            tempfile::Builder::new().prefix("tree.").tempdir_in(below).context("temporary directory")?;
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755))
            .context("mode of the root directory")?;
        base.unpack(dir.path())?;
        let tree = Self { dir };
        tree.write("etc/hostname", format!("{HOST_NAME}\n"))?;
        tree.write("etc/hosts", format!("127.0.0.1 localhost\n127.0.1.1 {HOST_NAME}\n"))?;
        tree.write("etc/fstab", "LABEL=stratum-vm / ext4 defaults 0 1\n")?;
        tree.write("etc/systemd/network/50-dhcp.network", NETWORK)?;
        let release = format!(
            "NAME=\"Stratum\"\nPRETTY_NAME=\"Stratum {RELEASE}\"\nID=stratum\nID_LIKE=debian\nVERSION_ID=\"{RELEASE}\"\n"
        );
        tree.write("usr/lib/os-release", release)?;
        // An empty one is filled at the first start, as on an installed machine.
        tree.write("etc/machine-id", "")?;
        for unit in MASKED {
            let link = tree.path(&format!("etc/systemd/system/{unit}"));
            let _ = std::fs::remove_file(&link);
            symlink("/dev/null", &link).with_context(|| format!("mask {unit}"))?;
        }
        tree.run(
            "systemctl enable systemd-networkd.service && dpkg-reconfigure -f noninteractive openssh-server",
        )?;
        tree.run(&format!("echo root:{PASSWORD} | chpasswd"))?;
        Ok(tree)
    }

    /// Where a file of the machine is now.
    pub fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    /// Places a file, 0644.
    pub fn write(&self, below: &str, text: impl AsRef<[u8]>) -> Result<()> {
        let path = self.path(below);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).with_context(|| format!("create {}", parent.display()))?;
        }
        write(&path, text)
    }

    /// Places a program, 0755.
    pub fn program(&self, from: &Path, below: &str) -> Result<()> {
        std::fs::copy(from, self.path(below)).with_context(|| format!("copy {}", from.display()))?;
        std::fs::set_permissions(self.path(below), PermissionsExt::from_mode(0o755))
            .context("mode of a program")
    }

    /// Installs a package as dpkg does it, with nothing started.
    pub fn install(&self, deb: &Path) -> Result<()> {
        let name = "package.deb";
        std::fs::copy(deb, self.path(name)).with_context(|| format!("copy {}", deb.display()))?;
        self.write("usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n")?;
        std::fs::set_permissions(self.path("usr/sbin/policy-rc.d"), PermissionsExt::from_mode(0o755))
            .context("policy-rc.d")?;
        self.run(&format!("DEBIAN_FRONTEND=noninteractive dpkg --install /{name}"))?;
        for gone in [name, "usr/sbin/policy-rc.d"] {
            std::fs::remove_file(self.path(gone)).with_context(|| format!("remove {gone}"))?;
        }
        Ok(())
    }

    /// Runs a shell script in it.
    pub fn run(&self, script: &str) -> Result<String> {
        let mut chroot = Command::new("chroot");
        chroot.arg(self.dir.path()).args(["/bin/sh", "-euc", script]);
        chroot.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C.UTF-8");
        output(&mut chroot)
    }

    /// Runs a program in it with something on its standard input.
    pub fn feed(&self, input: &str, program: &[&str]) -> Result<String> {
        use std::io::Write;
        let mut chroot = Command::new("chroot");
        chroot.arg(self.dir.path()).args(program).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        let pipe = Stdio::piped;
        let mut child =
            chroot.stdin(pipe()).stdout(pipe()).stderr(pipe()).spawn().context("cannot start chroot")?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(input.as_bytes()).context("standard input of a program in the tree")?;
        }
        let out = child.wait_with_output().context("chroot")?;
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        if !out.status.success() {
            anyhow::bail!(
                "{program:?}: {}: {said}{}",
                out.status,
                String::from_utf8_lossy(&out.stderr).trim()
            );
        }
        Ok(said)
    }

    /// The disks of the machine, in `dir`.
    pub fn disks(&self, dir: &Path, board: Board) -> Result<Disks> {
        std::fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
        for (prefix, name) in [("vmlinuz-", "vmlinuz"), ("initrd.img-", "initrd.img")] {
            let boot = std::fs::read_dir(self.path("boot")).context("/boot of the image")?;
            let file =
                boot.filter_map(Result::ok).find(|e| e.file_name().to_string_lossy().starts_with(prefix));
            let file = file.with_context(|| format!("the image has no {prefix}*"))?;
            std::fs::copy(file.path(), dir.join(name)).with_context(|| format!("copy {name}"))?;
        }
        let image = dir.join("root.img");
        let _ = std::fs::remove_file(&image);
        let mut make = Command::new("mke2fs");
        make.args(["-q", "-t", "ext4", "-L", "stratum-vm", "-d"]).arg(self.dir.path()).arg(&image).arg(DISK);
        output(&mut make)?;
        Disks::in_dir(dir, board)
    }
}
