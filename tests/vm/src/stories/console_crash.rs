//! The console on tty1 is killed again and again. The login comes back with its banner, the join goes on as if nothing had been.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::sentences::{MOMENT, new_machine, say_figures, until_it_waits, until_joined};
use crate::lab::Lab;
use crate::tree::{HOST_NAME, PASSWORD};
use crate::vm::Vm;
use crate::wait;

/// How often it is killed: one more than systemd starts it again.
const KILLS: usize = 6;
const UNIT: &str = "stratum-join-console@tty1.service";
/// From the last kill to a login prompt; 15 s on hardware.
const LOGIN: Duration = Duration::from_secs(45);

pub(super) fn tell(lab: &Lab) -> Result<()> {
    let founder = lab.founder("founder")?;
    let machine = new_machine(lab, &founder)?;
    machine.switch_on()?.tell_to_the_end(|vm| {
        let waiting = until_it_waits(vm, &founder)?;
        let code = format!("PAIRING CODE  {}", waiting.join.pairing);
        vm.wait_for_screen(1, &code, MOMENT)?;
        let agent = vm.guest.sh("systemctl show -P MainPID stratum-join.service")?;

        login_behind_alt_f2(vm)?;
        vm.press(&["alt", "f1"])?;

        let mut killed = 0;
        while killed < KILLS && kill_the_console(vm)? {
            killed += 1;
        }
        println!(
            "  the console was killed {killed} times{}",
            if killed < KILLS { ", then systemd gave it up" } else { "" }
        );
        let screen = vm.wait_for_screen(1, &format!("{HOST_NAME} login:"), LOGIN)?;
        ensure!(screen.shows(&waiting.join.pairing), "the login on tty1 has no banner:\n{}", screen.text());
        vm.keep_screen("tty1-after-six-kills")?;

        ensure!(
            vm.guest.sh("systemctl show -P MainPID stratum-join.service")? == agent,
            "the agent was restarted"
        );
        founder.approve(&waiting.join)?;
        let joined_ms = until_joined(vm, &founder, &waiting.join)?;
        say_figures(waiting.registered_ms, joined_ms);
        vm.wait_for_screen(1, "member of cluster", MOMENT)?;
        vm.keep_screen("tty1-joined").map(drop)
    })
}

/// SIGKILL to the one that runs now, once it runs. False when systemd has given up on it.
fn kill_the_console(vm: &mut Vm) -> Result<bool> {
    let pid = wait::until("the console to run again, or to be given up", MOMENT, || {
        let said = vm.guest.sh(&format!("systemctl show -p MainPID -p ActiveState -p Result {UNIT}"))?;
        let value =
            |key: &str| said.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default().to_owned();
        Ok(match (value("ActiveState=").as_str(), value("MainPID=").as_str()) {
            ("active", pid) if pid != "0" => Some(Some(pid.to_owned())),
            ("failed" | "inactive", _) => Some(None),
            _ => None,
        })
    })?;
    let Some(pid) = pid else { return Ok(false) };
    // Somebody sees it, and then it dies.
    vm.wait_for_screen(1, "PAIRING CODE", MOMENT)?;
    vm.guest.sh(&format!("kill -KILL {pid}"))?;
    // Until systemd has seen it, the unit still names it.
    wait::until("systemd to notice", MOMENT, || {
        let now = vm.guest.sh(&format!("systemctl show -P MainPID {UNIT}"))?;
        Ok((now.trim() != pid).then_some(true))
    })
}

/// A login works while the console has tty1: name, password, a command.
fn login_behind_alt_f2(vm: &mut Vm) -> Result<()> {
    vm.press(&["alt", "f2"])?;
    vm.wait_for_screen(2, &format!("{HOST_NAME} login:"), MOMENT)?;
    vm.type_text("root\n")?;
    vm.wait_for_screen(2, "Password:", MOMENT)?;
    vm.type_text(&format!("{PASSWORD}\n"))?;
    vm.wait_for_screen(2, "root@", MOMENT)?;
    vm.type_text("stratum-join status\n")?;
    vm.wait_for_screen(2, "STRATUM JOIN", MOMENT)?;
    vm.keep_picture("tty2-login")
}
