//! The join code of another cluster was typed in stage 1. The machine says so; the right one is given inside it, without a reboot.

use anyhow::{Result, ensure};

use super::sentences::{
    MOMENT, REGISTERED, pairing_code_is_on_the_screen, request, request_inside, say_figures, until_it_waits,
    until_joined,
};
use crate::lab::Lab;

pub(super) fn tell(lab: &Lab) -> Result<()> {
    let founder = lab.founder("founder")?;
    let elsewhere = lab.founder("founder-elsewhere")?;
    let tree = lab.node()?;
    request(&tree, &founder, &elsewhere.join_code()?)?;
    let machine = lab.machine(&tree)?;

    machine.switch_on()?.tell_to_the_end(|vm| {
        vm.wait_until_up()?;
        let shown = vm.wait_for_snapshot("that the code was not proven", REGISTERED, |s| {
            s["fault"]["code"] == "CODE_NOT_PROVEN"
        })?;
        println!("  it says: {}", shown["fault"]["message"]);
        vm.wait_for_screen(1, "stratum-installer join", MOMENT)?;
        vm.keep_screen("tty1-wrong-code")?;
        ensure!(founder.joins()?.is_empty(), "it has registered with the code of another cluster");
        let boot = vm.guest.sh("cat /proc/sys/kernel/random/boot_id")?;

        // As an administrator does it who logged in on another terminal.
        request_inside(vm, &founder)?;
        let waiting = until_it_waits(vm, &founder)?;
        pairing_code_is_on_the_screen(vm, &waiting.join.pairing)?;
        founder.approve(&waiting.join)?;
        let joined_ms = until_joined(vm, &founder, &waiting.join)?;
        ensure!(vm.guest.sh("cat /proc/sys/kernel/random/boot_id")? == boot, "the machine has rebooted");
        ensure!(elsewhere.joins()?.is_empty(), "another cluster has heard of it");
        say_figures(waiting.registered_ms, joined_ms);
        Ok(())
    })
}
