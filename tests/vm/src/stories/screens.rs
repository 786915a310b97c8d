//! Every screen a technician may find: on a framebuffer and on a VGA card's text screen, in the kernel's own font and in Debian's, while
//! the kernel, systemd and a stranger write to the terminal.
//!
//! The text of each is checked; the pictures are for a person to look at, and are compared with the text point by point.

use anyhow::{Context, Result, ensure};
use console::Snapshot;
use console::snapshot::{
    AgentExit, Contact, Fault, FaultKind, Phase, Progress, State, Step, StepStatus, Unit, Upgrade,
};

use super::sentences::{JOINED, MOMENT, REGISTERED, installed, until_it_waits};
use crate::checks::{self, Font};
use crate::founder::{Founder, Listed};
use crate::lab::Lab;
use crate::qemu::{Start, in_spite_of_crashes};
use crate::screen::Screen;
use crate::tree::{HOST_NAME, Tree};
use crate::vm::Vm;
use crate::wait;

/// What a monitor is plugged into: how it is called, and what makes the kernel use it. The second has no driver of the graphics card.
const DISPLAYS: [(&str, &str); 2] = [("framebuffer", ""), ("vga-text", "modprobe.blacklist=bochs")];
const CONSOLE: &str = "stratum-join-console@tty1.service";
/// What Debian's installer chooses for English and its neighbours.
const DEBIAN: &str = "/usr/share/consolefonts/Lat15-Fixed16.psf.gz";
/// What firstboot says when it fails.
const ERROR: &str =
    "/dev/disk/by-id/scsi-0QEMU_QEMU_HARDDISK_SCSI0001 is in use: LVM physical volume of \"old-vg\"";
/// A foreign write is repaired within 10 s; a question inside an emulated machine takes its time, too.
const REPAIRED_MS: u64 = 13_000;
/// What nothing may write over the screen.
const SHOUT: &str = "NOT FOR THIS SCREEN";

pub(super) fn tell(lab: &Lab) -> Result<()> {
    for (name, kernel_args) in DISPLAYS {
        println!("  - {name}");
        in_spite_of_crashes(|| one(lab, name, kernel_args)).with_context(|| name.to_owned())?;
    }
    Ok(())
}

fn one(lab: &Lab, name: &str, kernel_args: &str) -> Result<()> {
    let founder = lab.founder(&format!("founder-{name}"))?;
    let tree = installed(lab, &founder)?;
    tree.write("etc/stratum/stand-in", format!("delay-ms=10000\nfail=storage\nerror={ERROR}\n"))?;
    leave_the_font_alone(&tree)?;
    let machine = lab.case(name, &tree)?;
    drop(tree);
    let start = Start { kernel_args, clock: None };
    machine.switch_on_with(start, false)?.tell_to_the_end(|vm| Walk::begin(vm)?.tell(&founder))
}

/// The machine starts with the kernel's own font: a console-setup that does not run is none.
fn leave_the_font_alone(tree: &Tree) -> Result<()> {
    tree.run(
        "systemctl mask console-setup.service keyboard-setup.service; \
         ln -sf /dev/null /etc/udev/rules.d/90-console-setup.rules",
    )
    .map(drop)
}

/// One machine, and the fonts its screen is looked at in.
struct Walk<'a> {
    vm: &'a mut Vm,
    fonts: [Font; 2],
}

// === impl Walk ===

impl<'a> Walk<'a> {
    fn begin(vm: &'a mut Vm) -> Result<Self> {
        vm.wait_until_up()?;
        // A quiet kernel puts a font on the screen when something is written there.
        vm.wait_for_screen(1, "STRATUM JOIN", MOMENT)?;
        let kernel = Font::of_tty1(&mut vm.guest, "kernel-font")?;
        vm.guest.sh(&format!("setfont -C /dev/tty1 {DEBIAN}"))?;
        let debian = Font::of_tty1(&mut vm.guest, "debian-font")?;
        Ok(Self { vm, fonts: [kernel, debian] })
    }

    fn tell(mut self, founder: &Founder) -> Result<()> {
        self.no_network()?;
        let join = self.waiting(founder)?;
        self.installing(founder, &join)?;
        self.failed()?;
        self.upgrading()?;
        self.given_back()
    }

    /// No cable: the check list.
    fn no_network(&mut self) -> Result<()> {
        self.vm.wait_for_screen(1, "CANNOT REACH", REGISTERED)?;
        self.vm.wait_for_screen(1, "Look at", MOMENT)?;
        self.look("network", &["[XX] 1 link", "no cable", "SN0002", HOST_NAME])?;
        self.vm.set_link(true)
    }

    /// The pairing code, and whatever writes over it.
    fn waiting(&mut self, founder: &Founder) -> Result<Listed> {
        let join = until_it_waits(self.vm, founder)?.join;
        let code = format!("PAIRING CODE  {}", join.pairing);
        let shown = [code.as_str(), "WAITING FOR APPROVAL", &join.id, "SN0002", HOST_NAME];
        self.vm.wait_for_screen(1, &code, MOMENT)?;
        self.look("waiting", &shown)?;
        let snapshot = self.vm.snapshot()?.context("no snapshot")?;
        checks::shows_the_big_code(self.vm, &snapshot)?;
        self.a_stranger_is_written_over(&code)?;
        self.a_hang_up_ends_it(&code)?;
        self.look_at_side("details", "d", &[join.pairing.as_str()])?;
        self.look_at_side("log", "l", &[])?;
        Ok(join)
    }

    /// Approved while the terminal is stopped.
    fn installing(&mut self, founder: &Founder, join: &Listed) -> Result<()> {
        let before = self.console()?;
        // In raw mode this is a key like any other.
        self.vm.press(&["ctrl", "s"])?;
        self.vm.press(&["scroll_lock"])?;
        founder.approve(join)?;
        founder.wait_for(&join.id, "installing", JOINED)?;
        self.vm.wait_for_snapshot("step 2", JOINED, |s| s["steps"][1]["status"] == "running")?;
        // The step lasts as long as it is looked at.
        self.vm.guest.sh("systemctl freeze stratum-firstboot.service")?;
        let screen = self.vm.screen(1)?;
        ensure!(screen.shows("WAITING FOR APPROVAL"), "Scroll Lock stopped nothing:\n{}", screen.text());
        self.vm.press(&["scroll_lock"])?;
        self.vm.wait_for_screen(1, "INSTALLING STEP 2 OF 9", MOMENT)?;
        ensure!(self.console()? == before, "the console was started again behind Scroll Lock");
        self.look(
            "installing",
            &["INSTALLING STEP 2 OF 9", "DO NOT POWER OFF", "[..] 2 Preparing the disks"],
        )?;
        self.vm.guest.sh("systemctl thaw stratum-firstboot.service").map(drop)
    }

    fn failed(&mut self) -> Result<()> {
        self.vm.wait_for_screen(1, "JOIN FAILED", JOINED)?;
        self.look(
            "failed",
            &["[XX] JOIN FAILED AT STEP 2 OF 9", "Preparing the disks", "old-vg", "pairing code"],
        )
    }

    /// Nobody upgrades this machine: the agent is stopped, and a snapshot is put in its place, as one would write it that does.
    fn upgrading(&mut self) -> Result<()> {
        let last = self.vm.snapshot()?.context("no snapshot")?;
        let last = Snapshot::parse(last.to_string().as_bytes()).context("the agent's snapshot")?;
        self.vm.guest.sh("systemctl stop stratum-join.service")?;
        self.vm.wait_for_screen(1, "AGENT WAS STOPPED", MOMENT)?;
        self.look("agent-stopped", &["[XX] THE JOIN AGENT WAS STOPPED", "systemctl start stratum-join"])?;
        let code = last.pairing_code.clone().context("no pairing code")?;
        let now = self.vm.uptime_ms()?;
        self.show(&upgrade(&last, now))?;
        let shown = ["UPGRADING THIS MACHINE 0.6.0 -> 0.7.0", "DO NOT POWER OFF", "37%", code.as_str()];
        self.vm.wait_for_screen(1, shown[0], MOMENT)?;
        self.look("upgrade-made", &shown)?;
        self.show(&upgrade_failed(&last, now))?;
        self.vm.wait_for_screen(1, "UPGRADE ATTEMPT 1 FAILED", MOMENT)?;
        self.look("upgrade-failed-made", &["Install from a newer ISO", code.as_str()])
    }

    /// When it is over, the kernel speaks here again.
    fn given_back(&mut self) -> Result<()> {
        self.vm.guest.sh(&format!("systemctl stop {CONSOLE}"))?;
        self.vm.wait_for_screen(1, &format!("{HOST_NAME} login:"), MOMENT)?;
        self.vm.guest.sh("echo '<3>the kernel is back' > /dev/kmsg")?;
        self.vm.wait_for_screen(1, "the kernel is back", MOMENT).context("messages of the kernel")?;
        self.vm.keep_screen("given-back").map(drop)
    }

    // --- private ---

    /// The screen in each font, while others have something to say: all of it is there, and nothing else.
    fn look(&mut self, name: &str, shown: &[&str]) -> Result<()> {
        let mut all = Vec::new();
        for font in &self.fonts {
            font.put(&mut self.vm.guest)?;
            shout(self.vm)?;
            let looks = font.shows_all_of(self.vm).with_context(|| format!("the screen {name}"))?;
            let screen = self.vm.keep_screen(&format!("{name}-{}", font.name))?;
            nothing_else_is_there(&screen)?;
            for text in shown {
                ensure!(screen.shows(text), "{text:?} is not on the screen {name}:\n{}", screen.text());
            }
            all.push(looks);
        }
        let [kernel, debian] = &all[..] else { return Ok(()) };
        let same = kernel.iter().filter(|(c, shape)| debian.get(c) == Some(shape)).count();
        ensure!(same < kernel.len() / 2, "both fonts look the same: {same} of {}", kernel.len());
        Ok(())
    }

    fn look_at_side(&mut self, name: &str, key: &str, shown: &[&str]) -> Result<()> {
        self.vm.press(&[key])?;
        self.vm.wait_for_screen(1, &name.to_uppercase(), MOMENT)?;
        self.look(name, shown)?;
        self.vm.press(&["esc"])?;
        self.vm.wait_for_screen(1, "WAITING FOR APPROVAL", MOMENT).map(drop)
    }

    /// Who writes to the terminal itself, and moves everything, is written over.
    fn a_stranger_is_written_over(&mut self, code: &str) -> Result<()> {
        let before = self.vm.uptime_ms()?;
        self.vm.guest.sh(&format!("printf '\\033[1;1H{SHOUT}\\n\\n\\033[99;1H\\n\\n{SHOUT}' > /dev/tty1"))?;
        let screen = self.vm.screen(1)?;
        self.vm.keep_screen("foreign-write")?;
        let whole = wait::until("the screen to be repaired", MOMENT, || {
            let screen = self.vm.screen(1)?;
            Ok((!screen.shows(SHOUT) && checks::frame_is_whole(&screen).is_ok()).then_some(screen))
        })?;
        let took = self.vm.uptime_ms()?.saturating_sub(before);
        println!(
            "  figures: a foreign write ({}) was repaired within {:.1} s",
            if screen.shows(SHOUT) { "seen" } else { "not seen" },
            took as f64 / 1000.0
        );
        ensure!(whole.shows(code), "the code is not back:\n{}", whole.text());
        ensure!(took <= REPAIRED_MS, "a foreign write stood there for {took} ms");
        Ok(())
    }

    /// Whoever takes the terminal away ends the console at once. systemd starts it again.
    fn a_hang_up_ends_it(&mut self, code: &str) -> Result<()> {
        let before = self.console()?;
        // What takes it may be hung up in its turn, by systemd, which resets the terminal after us.
        self.vm.guest.sh(
            "systemd-run --quiet --unit=hang-up -p Type=oneshot -p StandardInput=tty-force -p TTYPath=/dev/tty1 \
               -p TTYVHangup=yes /bin/true || true",
        )?;
        let mut when = |unit: &str, what: &str| {
            wait::until(&format!("{what:?} in the journal of {unit}"), MOMENT, || {
                let said = self.vm.guest.sh(&format!("journalctl -b -o short-monotonic -u {unit}"))?;
                said.lines().find(|line| line.contains(what)).map(seconds).transpose()
            })
        };
        let hung_up = when("hang-up.service", "Starting ")?;
        let ended = when(CONSOLE, "Main process exited, code=exited, status=75")?;
        let took = ended - hung_up;
        println!("  figures: {took:.2} s from a hang-up to the end of the console");
        ensure!(took < 1.0, "the console ended {took:.2} s after its terminal");
        // Its last picture stands there until another draws.
        wait::until("another console", MOMENT, || {
            let said = self.vm.guest.sh(&format!("systemctl show -P ActiveState {CONSOLE}"))?;
            Ok((said.trim() == "active" && self.console()? != before).then_some(()))
        })?;
        let screen = self.vm.wait_for_screen(1, code, MOMENT)?;
        checks::frame_is_whole(&screen).context("after a hang-up")
    }

    /// Which process draws, and how often it was started again.
    fn console(&mut self) -> Result<String> {
        self.vm.guest.sh(&format!("systemctl show -p MainPID -p NRestarts {CONSOLE}"))
    }

    /// Puts a snapshot in the place of the agent's.
    fn show(&mut self, snapshot: &Snapshot) -> Result<()> {
        let text = String::from_utf8(snapshot.encode()).context("a snapshot is UTF-8")?;
        self.vm.guest.write("/run/made.json", &text)?;
        self.vm.guest.sh("cp /run/made.json /run/stratum-join/snapshot.made; \
             mv /run/stratum-join/snapshot.made /run/stratum-join/snapshot.json")?;
        Ok(())
    }
}

// === private ===

/// The kernel at every level that matters, somebody who speaks to all terminals, and a unit that fails.
fn shout(vm: &mut Vm) -> Result<()> {
    vm.guest.sh(&format!(
        "for level in 0 2 3 4; do echo \"<$level>{SHOUT}: level $level\" > /dev/kmsg; done; \
         echo '{SHOUT}' | wall; systemctl start --no-block failing-unit-that-is-not-there.service 2>/dev/null || true; \
         systemd-run --quiet --no-block /bin/false"
    ))
    .map(drop)
}

/// The time of a line of the journal, `[  128.109851] ...`.
fn seconds(line: &str) -> Result<f64> {
    let time = line.trim_start_matches('[').split(']').next().unwrap_or_default().trim();
    time.parse().with_context(|| format!("no time in {line:?}"))
}

fn nothing_else_is_there(screen: &Screen) -> Result<()> {
    ensure!(!screen.shows(SHOUT), "somebody wrote over the screen:\n{}", screen.text());
    checks::frame_is_whole(screen)
}

/// What an agent writes while it fetches a release; of this machine.
fn upgrade(last: &Snapshot, now: u64) -> Snapshot {
    let mut s = last.clone();
    s.agent.pid = 0;
    s.agent.exit = None::<AgentExit>;
    (s.written_mono, s.heartbeat_ms, s.seq) = (now, 300_000, s.seq + 1);
    s.state = State::NeedsUpgrade;
    s.state_raw = Some("needs-upgrade".into());
    s.state_since_mono = now;
    s.headline = "this machine's release is older than the cluster's".into();
    s.next = vec!["No action needed. Do not power it off.".into()];
    s.machine.release = Some("0.6.0".into());
    (s.cluster.contact, s.cluster.last_contact_mono) = (Contact::Ok, Some(now));
    s.phase = Phase::Upgrade;
    let titles = [
        "check the release manifest",
        "download the release",
        "verify every file",
        "install the OS",
        "restart into the new OS",
        "check that the new OS works",
    ];
    s.steps = (1..)
        .zip(titles)
        .map(|(index, title)| Step {
            name: "upgrade".into(),
            title: title.into(),
            index,
            total: 6,
            status: match index {
                1 => StepStatus::Done,
                2 => StepStatus::Running,
                _ => StepStatus::Waiting,
            },
            elapsed_ms: (index <= 2).then_some(u64::from(index) * 8000),
            detail: None,
        })
        .collect();
    s.progress = Some(Progress {
        unit: Unit::Bytes,
        done: 682 << 20,
        total: 1843 << 20,
        rate_per_sec: Some(43_201_332),
        eta_sec: Some(28),
    });
    s.upgrade = Some(Upgrade { from: "0.6.0".into(), to: "0.7.0".into(), attempt: 1, ..Upgrade::default() });
    (s.fault, s.last_message, s.do_not_power_off) = (None, None, true);
    s
}

/// The same when the release is signed with a key that the running one does not know.
fn upgrade_failed(last: &Snapshot, now: u64) -> Snapshot {
    let mut s = upgrade(last, now);
    s.seq += 1;
    s.steps.truncate(1);
    s.steps[0].status = StepStatus::Failed;
    (s.progress, s.do_not_power_off) = (None, false);
    s.fault = Some(Fault {
        code: "UNKNOWN_RELEASE_KEY".into(),
        kind: FaultKind::Refused,
        verified: true,
        step: Some("upgrade/manifest".into()),
        step_title: Some("check the release manifest".into()),
        message: "release key 5B1D7C20A4E3F968 is not on this ISO (0.6.0)".into(),
        why: Some("This ISO is from before a release-signing key rotation.".into()),
        what_to_do: vec!["Install from a newer ISO, that of 0.7.0. Retrying does not help.".into()],
        retry_at_mono: Some(now + 600_000),
        ..Fault::default()
    });
    s.actions.retry = true;
    s
}
