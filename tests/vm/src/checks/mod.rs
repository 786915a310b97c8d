//! What must hold inside the machine, whatever the story: privileges, units, files, listeners. Read from the machine itself.

mod files;
mod font;
mod privileges;
mod screen;
mod units;

use anyhow::{Result, ensure};

use crate::vm::Vm;

pub use font::{Font, Looks};
pub use screen::{frame_is_whole, shows_the_big_code, still};

/// Everything that can be seen while the agent waits for an approval.
pub fn while_it_waits(vm: &mut Vm) -> Result<()> {
    units::systemd_has_nothing_to_say_about_our_units(vm)?;
    units::exposure_stays_low(vm)?;
    privileges::the_agent_has_none(vm)?;
    privileges::its_sandbox_holds(vm)?;
    privileges::the_helper_hears_only_the_agent(vm)?;
    nothing_of_ours_listens(vm)?;
    files::are_as_the_table_says_while_it_waits(vm)
}

/// What is left once the machine has joined.
pub fn after_the_join(vm: &mut Vm, code: &str) -> Result<()> {
    the_join_code_is_gone(vm, code)?;
    files::are_as_the_table_says_after_the_join(vm)?;
    nothing_was_forbidden(vm)
}

/// Whoever reads the disk, the memory file systems or the journal of a member does not learn what let it in.
fn the_join_code_is_gone(vm: &mut Vm, code: &str) -> Result<()> {
    // In a file, because an argument would be found in the process list and in the journal of the guest agent.
    vm.guest.write("/dev/shm/code", &format!("{code}\n{}\n", code.replace('-', "")))?;
    let found = vm.guest.sh(
        "grep -rlF -f /dev/shm/code /etc /run /var /tmp /root /home 2>/dev/null | grep -v '^/var/log/journal/' || true; \
         journalctl -o export | grep -acF -f /dev/shm/code | grep -v '^0$' || true; rm /dev/shm/code",
    )?;
    ensure!(found.is_empty(), "the join code is still in:\n{found}");
    Ok(())
}

/// sshd is the machine's own; a joiner opens no port.
fn nothing_of_ours_listens(vm: &mut Vm) -> Result<()> {
    let listeners = vm.guest.sh("ss -Hltnp")?;
    let foreign: Vec<&str> = listeners.lines().filter(|line| !line.contains("((\"sshd\",")).collect();
    ensure!(foreign.is_empty() && !listeners.is_empty(), "somebody listens besides sshd:\n{listeners}");
    Ok(())
}

/// A forbidden call is an EPERM, and what meets one says so.
fn nothing_was_forbidden(vm: &mut Vm) -> Result<()> {
    let said = vm.guest.sh(
        "journalctl -b -o cat -u 'stratum-join*' -u stratum-firstboot | grep -iE 'eperm|not permitted|permission denied|read-only file' || true; \
         journalctl -b -k -o cat | grep -iE 'type=1326|type=SECCOMP' || true",
    )?;
    ensure!(said.is_empty(), "something was forbidden on the way:\n{said}");
    Ok(())
}
