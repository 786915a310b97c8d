//! The cable is not plugged in. The machine says so, and joins without help once it is.

use anyhow::{Result, ensure};

use super::sentences::{
    MOMENT, REGISTERED, new_machine, pairing_code_is_on_the_screen, say_figures, until_it_waits, until_joined,
};
use crate::lab::Lab;
use crate::qemu::Start;

/// The screen every PC has had since 1987, 80 columns and 25 rows: no driver of the graphics card.
const VGA_TEXT: Start<'_> = Start { kernel_args: "modprobe.blacklist=bochs", clock: None };

pub(super) fn tell(lab: &Lab) -> Result<()> {
    let founder = lab.founder("founder")?;
    let machine = new_machine(lab, &founder)?;
    machine.switch_on_with(VGA_TEXT, false)?.tell_to_the_end(|vm| {
        vm.wait_until_up()?;
        let shown =
            vm.wait_for_snapshot("that it cannot reach the cluster", REGISTERED, |s| !s["fault"].is_null())?;
        println!("  it says: {}", shown["fault"]["message"]);
        let screen = vm.wait_for_screen(1, "Error", MOMENT)?;
        ensure!(
            (screen.rows.len(), screen.columns()) == (25, 80),
            "tty1 is {} x {}",
            screen.columns(),
            screen.rows.len()
        );
        vm.keep_screen("tty1-no-network")?;
        ensure!(founder.joins()?.is_empty(), "it has registered without a cable");

        let plugged = vm.uptime_ms()?;
        vm.set_link(true)?;
        let waiting = until_it_waits(vm, &founder)?;
        println!(
            "  figures: cable to registered {:.1} s",
            waiting.registered_ms.saturating_sub(plugged) as f64 / 1000.0
        );
        pairing_code_is_on_the_screen(vm, &waiting.join.pairing)?;
        vm.keep_screen("tty1-pending")?;
        founder.approve(&waiting.join)?;
        let joined_ms = until_joined(vm, &founder, &waiting.join)?;
        say_figures(waiting.registered_ms, joined_ms);
        Ok(())
    })
}
