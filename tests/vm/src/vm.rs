//! A machine that runs: the process, its monitor, its serial line and its inside in one place.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::accel::Accel;
use crate::artefacts::Artefacts;
use crate::guest::Guest;
use crate::picture::Picture;
use crate::qemu::{Crashed, Disks, NIC, Qemu, Start};
use crate::qmp::Qmp;
use crate::screen::Screen;
use crate::serial::{Mark, Serial};
use crate::wait;

/// How long the way from the first instruction to the guest agent may take, in emulation on a busy machine.
const BOOT: Duration = Duration::from_secs(240);
/// How long a kernel may take to notice a disk that was plugged in.
const SEEN: Duration = Duration::from_secs(60);

/// A running machine.
pub struct Vm {
    /// What comes out of the serial line, and goes in.
    pub serial: Serial,
    /// Commands and files inside.
    pub guest: Guest,
    qmp: Qmp,
    qemu: Qemu,
    artefacts: Artefacts,
    started: Instant,
    accel: Accel,
}

// === impl Vm ===

impl Vm {
    /// Switches it on, with the cable plugged in or not.
    pub fn switch_on(
        accel: Accel,
        disks: &Disks,
        start: Start<'_>,
        link: bool,
        artefacts: &Artefacts,
    ) -> Result<Self> {
        let qemu = Qemu::start(accel, disks, start, &artefacts.path("qemu.log"))?;
        let serial = Serial::connect(&qemu.socket("serial"), &artefacts.path("serial.log"))?;
        let mut qmp = Qmp::connect(&qemu.socket("monitor"))?;
        if !link {
            qmp.set_link(NIC, false)?;
        }
        qmp.cont()?;
        let guest = Guest::new(qemu.socket("guest"));
        Ok(Self { serial, guest, qmp, qemu, artefacts: artefacts.clone(), started: Instant::now(), accel })
    }

    /// Waits until commands can be run inside.
    pub fn wait_until_up(&mut self) -> Result<()> {
        self.guest.wait_until_it_answers(BOOT).or_else(|error| {
            self.qemu.must_run()?;
            Err(error)
        })
    }

    /// Tells a part of a story. When it goes wrong, what there is to be seen is kept first.
    pub fn tell<T>(&mut self, part: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let told = part(self);
        if told.is_err() {
            // An emulator that failed is the cause of whatever else went wrong.
            self.qemu.must_run()?;
            if let Some(stalled) = Crashed::in_emulation(self.accel, &self.serial.text_since(Mark::default()))
            {
                return Err(stalled.into());
            }
            self.keep_what_there_is();
        }
        told
    }

    /// Tells the last part. What there is to be seen is kept in any case, and the machine is switched off.
    pub fn tell_to_the_end<T>(mut self, part: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let told = self.tell(part)?;
        self.keep_journal()?;
        Ok(told)
    }

    /// Milliseconds since the kernel started, by the machine's clock.
    pub fn uptime_ms(&mut self) -> Result<u64> {
        let text = self.guest.sh("cat /proc/uptime")?;
        let seconds: f64 = text.split(' ').next().and_then(|s| s.parse().ok()).context("/proc/uptime")?;
        Ok((seconds * 1000.0) as u64)
    }

    /// Types on the keyboard: small letters, digits, blanks, `-` and Enter.
    pub fn type_text(&mut self, text: &str) -> Result<()> {
        for c in text.chars() {
            let key = match c {
                '\n' => "ret".to_owned(),
                ' ' => "spc".to_owned(),
                '-' => "minus".to_owned(),
                c => c.to_string(),
            };
            self.qmp.press(&[&key])?;
        }
        Ok(())
    }

    /// An error when the machine is not running any more.
    pub fn must_run(&self) -> Result<()> {
        self.qemu.must_run()
    }

    /// True when the machine has switched itself off.
    pub fn is_off(&self) -> bool {
        self.qemu.ended()
    }

    /// Seconds since it was switched on, by the clock of this side.
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// What the agent shows now; `None` while it shows nothing.
    pub fn snapshot(&mut self) -> Result<Option<Value>> {
        let text = self.guest.read("/run/stratum-join/snapshot.json")?;
        text.map(|text| serde_json::from_str(&text).context("the agent's snapshot")).transpose()
    }

    /// Waits until the agent's snapshot fulfils a condition.
    pub fn wait_for_snapshot(
        &mut self,
        what: &str,
        limit: Duration,
        fulfils: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let mut last = Value::Null;
        let found = wait::until(&format!("the agent to show {what}"), limit, || {
            self.qemu.must_run()?;
            last = self.snapshot()?.unwrap_or(Value::Null);
            Ok(fulfils(&last).then(|| last.clone()))
        });
        found.with_context(|| format!("last it showed {} ({})", last["state"], last["headline"]))
    }

    /// Waits until a virtual terminal shows a text.
    pub fn wait_for_screen(&mut self, vt: u8, text: &str, limit: Duration) -> Result<Screen> {
        wait::until(&format!("{text:?} on tty{vt}"), limit, || {
            self.qemu.must_run()?;
            let screen = Screen::read(&mut self.guest, vt)?;
            Ok(screen.shows(text).then_some(screen))
        })
    }

    /// Keeps the picture on the monitor, and the text of tty1, as `<name>.png` and `<name>.txt`.
    pub fn keep_screen(&mut self, name: &str) -> Result<Screen> {
        let screen = Screen::read(&mut self.guest, 1)?;
        self.keep_picture(name)?;
        self.artefacts.write(&format!("{name}.txt"), screen.text())?;
        Ok(screen)
    }

    /// Keeps only the picture, which needs nothing of the machine's inside.
    pub fn keep_picture(&mut self, name: &str) -> Result<()> {
        self.qmp.screendump(&absolute(&self.artefacts.path(&format!("{name}.png")))?, "png")
    }

    /// The cells of a virtual terminal.
    pub fn screen(&mut self, vt: u8) -> Result<Screen> {
        Screen::read(&mut self.guest, vt)
    }

    /// What the monitor on the desk shows now.
    pub fn picture(&mut self) -> Result<Picture> {
        let file = self.qemu.socket("picture.ppm");
        self.qmp.screendump(&file, "ppm")?;
        let bytes = std::fs::read(&file).with_context(|| format!("read {}", file.display()))?;
        Picture::of_ppm(&bytes)
    }

    fn keep_file(&mut self, path: &str, name: &str) -> Result<()> {
        match self.guest.read(path)? {
            Some(text) => self.artefacts.write(name, text),
            None => Ok(()),
        }
    }

    /// Where something else of this name is kept.
    pub fn artefact(&self, name: &str) -> std::path::PathBuf {
        self.artefacts.path(name)
    }

    /// Keeps a text.
    pub fn keep_text(&self, name: &str, text: &str) -> Result<()> {
        self.artefacts.write(name, text)
    }

    /// Presses keys together.
    pub fn press(&mut self, keys: &[&str]) -> Result<()> {
        self.qmp.press(keys)
    }

    /// Plugs the cable in or out.
    pub fn set_link(&mut self, up: bool) -> Result<()> {
        self.qmp.set_link(NIC, up)
    }

    /// Plugs a disk in, as the monitor describes it, and waits until the machine's kernel has read from it. Asks nothing of its inside.
    pub fn plug(&mut self, disk: &Value) -> Result<()> {
        let drive = disk["drive"].as_str().context("a disk without a drive")?;
        self.qmp.device_add(disk)?;
        wait::until(&format!("the kernel to see {drive}"), SEEN, || {
            self.qemu.must_run()?;
            Ok((self.qmp.reads(drive)? > 0).then_some(()))
        })
    }

    /// Pulls the device with this `id` out.
    pub fn unplug(&mut self, id: &str) -> Result<()> {
        self.qmp.device_del(id)
    }

    /// Keeps what journald has of this boot, complete and as `journalctl` prints it.
    pub fn keep_journal(&mut self) -> Result<()> {
        let export = self.guest.bytes("/usr/bin/journalctl", &["-b", "-o", "export"])?;
        self.artefacts.write("journal.export", export)?;
        let text = self.guest.sh("journalctl -b -o short-monotonic --no-hostname")?;
        self.artefacts.write("journal.txt", text)
    }

    /// Pulls the plug.
    pub fn pull_the_plug(self) {
        self.qemu.pull_the_plug();
    }

    /// What can still be kept of a machine whose story went wrong.
    pub fn keep_what_there_is(&mut self) {
        let kept = [
            ("picture", self.keep_picture("tty1")),
            ("journal", self.keep_journal()),
            ("screen", self.keep_screen("tty1").map(drop)),
            ("snapshot", self.keep_file("/run/stratum-join/snapshot.json", "snapshot.json")),
            ("banner", self.keep_file("/run/stratum-join/issue", "issue.txt")),
        ];
        for (what, result) in kept {
            if let Err(error) = result {
                println!("  (no {what}: {error:#})");
            }
        }
    }
}

fn absolute(path: &Path) -> Result<std::path::PathBuf> {
    std::path::absolute(path).with_context(|| format!("{}", path.display()))
}
