//! How fast the machine runs: KVM when it really works, else emulation.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::child::Child;
use crate::wait;

/// A boot sector that says 0x2a to the device that ends QEMU: `mov al, 0x2a; out 0xf4, al; hlt`.
const CODE: [u8; 5] = [0xb0, 0x2a, 0xe6, 0xf4, 0xf4];
/// What QEMU then ends with: twice the value, plus one.
const SAID: i32 = 0x2a * 2 + 1;
/// A machine that runs says it at once.
const LIMIT: Duration = Duration::from_secs(10);

/// What QEMU is told about the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accel {
    /// The processor itself.
    Kvm,
    /// Software emulation, one thread for each virtual processor.
    Emulation,
}

// === impl Accel ===

impl Accel {
    /// Finds out by running five bytes of code. `/dev/kvm` alone says nothing: where machines are nested it may be there and not work.
    pub fn find(qemu: &Path, temp: &Path) -> Result<Self> {
        if !Path::new("/dev/kvm").exists() {
            return Ok(Self::Emulation);
        }
        let mut sector = [0; 512];
        sector[..CODE.len()].copy_from_slice(&CODE);
        sector[510..].copy_from_slice(&[0x55, 0xaa]);
        let disk = temp.join("boot-sector");
        crate::artefacts::write(&disk, sector)?;
        Ok(if runs(qemu, &disk).context("test of KVM")? { Self::Kvm } else { Self::Emulation })
    }

    /// The arguments.
    pub fn args(self) -> [&'static str; 4] {
        match self {
            Self::Kvm => ["-accel", "kvm", "-cpu", "host"],
            Self::Emulation => ["-accel", "tcg,thread=multi", "-cpu", "max"],
        }
    }
}

fn runs(qemu: &Path, disk: &Path) -> Result<bool> {
    let mut child = Child::start("QEMU with KVM", qemu, |command: &mut Command| {
        command.args([
            "-accel",
            "kvm",
            "-cpu",
            "host",
            "-m",
            "64",
            "-display",
            "none",
            "-nodefaults",
            "-no-user-config",
        ]);
        command.args(["-device", "isa-debug-exit,iobase=0xf4,iosize=0x01"]);
        command.arg("-drive").arg(format!("file={},format=raw,if=ide", disk.display()));
        command.stdout(Stdio::null()).stderr(Stdio::null());
    })?;
    let ended = wait::until("five bytes of code", LIMIT, || Ok(child.ended().then_some(())));
    wait::check_signals()?;
    // Whatever else it ended with, or that it did not end, means: not this one.
    Ok(ended.is_ok() && child.kill().and_then(|status| status.code()) == Some(SAID))
}
