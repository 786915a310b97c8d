//! One running QEMU: a machine with a root disk, what its [`Board`] says, a NIC, a screen and a serial line. Killed when it is dropped.
//!
//! Everything it listens on is a socket in a temporary directory; it opens no port.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::accel::Accel;
use crate::board::Board;
use crate::child::{Child, last_lines};
use crate::wait;

/// The emulator.
pub const PROGRAM: &str = "/usr/bin/qemu-system-x86_64";
/// The NIC's name in the monitor.
pub const NIC: &str = "nic0";
/// How long QEMU may take to make its sockets.
const START: Duration = Duration::from_secs(30);
/// How often a story is told whose emulator dies.
const TRIES: u32 = 3;

/// The disks and the kernel of a machine, which outlive a power cut.
#[derive(Debug)]
pub struct Disks {
    dir: PathBuf,
    board: Board,
}

/// What differs from one start to the next.
#[derive(Clone, Copy, Debug, Default)]
pub struct Start<'a> {
    /// Added to the kernel's command line.
    pub kernel_args: &'a str,
    /// What the clock on the board says, as `2026-11-29T20:00:00`; now when `None`.
    pub clock: Option<&'a str>,
}

/// The emulator itself has failed, which says nothing about the machine in it.
#[derive(Debug, thiserror::Error)]
pub enum Crashed {
    /// QEMU before 8.1 may, when one of its threads changes the map of the devices while another one is using it
    /// (`tcg_commit` swapped the map under the other processor).
    #[error("QEMU itself was ended by signal {0}")]
    Signal(i32),
    /// A processor gets no timer interrupts any more, and everything that waits in the machine waits for ever.
    #[error("QEMU stopped one of its processors: the guest's kernel says that its timers do not fire")]
    Stalled,
}

/// What the kernel says when a processor's timer interrupts do not come (kernel/rcu/tree_stall.h). No program in the machine can do that.
const NO_TIMERS: &str = "kthread timer wakeup didn't happen";

// === impl Crashed ===

impl Crashed {
    /// Whether the serial line tells that the emulator stopped a processor. Not with KVM: there it would be the machine's own fault.
    pub fn in_emulation(accel: Accel, serial: &str) -> Option<Self> {
        (accel != Accel::Kvm && serial.contains(NO_TIMERS)).then_some(Self::Stalled)
    }
}

/// The process, and where its sockets are.
pub struct Qemu {
    child: Child,
    sockets: TempDir,
    log: PathBuf,
}

// === impl Disks ===

impl Disks {
    /// Takes over `root.img`, `vmlinuz` and `initrd.img` in `dir`, and adds the empty disks of the board.
    pub fn in_dir(dir: &Path, board: Board) -> Result<Self> {
        for drive in board.drives.iter().filter(|drive| drive.same_as.is_none()) {
            let path = dir.join(drive.file());
            crate::artefacts::write(&path, drive.data)?;
            let grown = File::options().write(true).open(&path);
            let grown = grown.and_then(|file| file.set_len(u64::from(drive.size) << 20));
            grown.with_context(|| format!("make {}", path.display()))?;
        }
        Ok(Self { dir: dir.to_owned(), board })
    }

    /// One drive. Nothing is locked: a file may be the disk behind two adapters. It stays when the device that uses it is unplugged.
    fn drive(&self, id: &str, file: &str, read_only: bool) -> String {
        let only = if read_only { ",read-only=on" } else { "" };
        let file = self.dir.join(file);
        format!(
            "driver=raw,node-name={id},file.driver=file,file.locking=off,file.filename={}{only}",
            file.display()
        )
    }
}

// === impl Qemu ===

impl Qemu {
    /// Starts the machine, paused: nothing has run yet when this returns.
    pub fn start(accel: Accel, disks: &Disks, start: Start<'_>, log: &Path) -> Result<Self> {
        let sockets =
            tempfile::Builder::new().prefix("stratum-vm.").tempdir().context("temporary directory")?;
        let child = Child::start("QEMU", Path::new(PROGRAM), |command| {
            machine(command, accel, disks, start);
            channels(command, sockets.path());
            let log = File::options().create(true).append(true).open(log);
            command.stdout(Stdio::null()).stderr(log.map_or_else(|_| Stdio::null(), Stdio::from));
        })?;
        let qemu = Self { child, sockets, log: log.to_owned() };
        wait::until("QEMU's sockets", START, || {
            qemu.must_run()?;
            Ok(qemu.socket("guest").exists().then_some(()))
        })?;
        Ok(qemu)
    }

    /// The socket of one channel: `monitor`, `serial` or `guest`.
    pub fn socket(&self, name: &str) -> PathBuf {
        self.sockets.path().join(name)
    }

    /// An error, with what it said, when it has ended.
    pub fn must_run(&self) -> Result<()> {
        if let Some(signal) = self.child.ended_by_signal() {
            return Err(Crashed::Signal(signal).into());
        }
        if self.child.ended() {
            let said = std::fs::read_to_string(&self.log).unwrap_or_default();
            bail!("QEMU has ended; it said: {}", last_lines(&said, 5));
        }
        Ok(())
    }

    /// Pulls the plug: what the guest had flushed is on the disk, what it had not is lost.
    pub fn pull_the_plug(mut self) {
        self.child.kill();
    }

    /// True when the machine has switched itself off.
    pub fn ended(&self) -> bool {
        self.child.ended()
    }
}

/// Tells a part of a story that starts with a machine of its own; again when the emulator died under it.
pub fn in_spite_of_crashes<T>(mut tell: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 1..TRIES {
        match tell() {
            Err(error) if error.is::<Crashed>() => println!("  ({error}; told again from its beginning)"),
            told => return told,
        }
    }
    tell()
}

fn machine(command: &mut Command, accel: Accel, disks: &Disks, start: Start<'_>) {
    command.args(accel.args()).args(["-machine", "q35", "-smp", "2"]);
    command.arg("-m").arg(disks.board.memory.to_string());
    // Paused, so that the monitor is connected before the first instruction; no device but those named here.
    command.args(["-S", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-vga", "std"]);
    command.arg("-smbios").arg(
        "type=1,manufacturer=Stratum Lab,product=VM 1,serial=SN0002,uuid=7c1f3a5e-20d4-4b6f-9a58-3d2e51c7b804",
    );
    command.arg("-rtc").arg(start.clock.map_or("base=utc".to_owned(), |clock| format!("base={clock}")));
    command.arg("-kernel").arg(disks.dir.join("vmlinuz")).arg("-initrd").arg(disks.dir.join("initrd.img"));
    command.arg("-append").arg(format!("{} {}", crate::image::KERNEL_ARGS, start.kernel_args));

    command.arg("-blockdev").arg(disks.drive("root", "root.img", false));
    command.args(["-device", "virtio-blk-pci,drive=root,serial=ROOT0001"]);
    for drive in disks.board.drives {
        command.arg("-blockdev").arg(disks.drive(drive.id, &drive.file(), drive.read_only));
    }
    command.args(disks.board.devices);

    // The host's loopback is 10.0.2.2 in there, and nothing reaches the machine from outside.
    // QEMU takes `ipv6=on` for "and no IPv4".
    let routers = if disks.board.ipv6 { "" } else { ",ipv6=off" };
    command.arg("-netdev").arg(format!("user,id=net0{routers}")).arg("-device");
    command.arg(format!("virtio-net-pci,netdev=net0,id={NIC},mac=52:54:00:12:34:56"));
    command.args(["-device", "virtio-rng-pci"]);
}

fn channels(command: &mut Command, dir: &Path) {
    let socket = |id: &str| format!("socket,id={id},path={},server=on,wait=off", dir.join(id).display());
    command.arg("-chardev").arg(socket("serial")).args(["-serial", "chardev:serial"]);
    command.arg("-chardev").arg(socket("monitor")).args(["-mon", "chardev=monitor,mode=control"]);
    // The last of the sockets to be made: when it is there, all are.
    command.arg("-chardev").arg(socket("guest")).args(["-device", "virtio-serial-pci"]);
    command.args(["-device", "virtserialport,chardev=guest,name=org.qemu.guest_agent.0"]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_without_timers_is_the_emulators_fault_and_only_in_emulation() {
        let stalled = "[   46.5] rcu: rcu_preempt kthread timer wakeup didn't happen for 5246 jiffies! g4885";
        let busy = "[   46.5] rcu: INFO: rcu_preempt self-detected stall on CPU";
        assert!(matches!(Crashed::in_emulation(Accel::Emulation, stalled), Some(Crashed::Stalled)));
        assert!(Crashed::in_emulation(Accel::Emulation, busy).is_none());
        assert!(Crashed::in_emulation(Accel::Kvm, stalled).is_none());
    }
}
