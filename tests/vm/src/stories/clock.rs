//! The clock of the board is decades wrong. No trust decision may depend on it: the machine joins.

use anyhow::{Context, Result, ensure};

use super::sentences::{installed, pairing_code_is_on_the_screen, say_figures, until_it_waits, until_joined};
use crate::lab::Lab;
use crate::qemu::{Start, in_spite_of_crashes};

/// What the board's clock says, and what the machine's own must be near to when it joins.
const CLOCKS: [(&str, &str, i64); 2] =
    [("1970", "1970-01-01T00:02:00", 120), ("2039", "2039-02-01T00:00:00", 2_180_131_200)];
/// systemd moves a clock that is older than itself forward. A machine whose clock jumps back later is this one.
const BACK_TO_1970: &str = "[Unit]\nDescription=The clock as the board has it\nDefaultDependencies=no\n\
    After=sysinit.target\nBefore=basic.target stratum-join.service\n\
    [Service]\nType=oneshot\nExecStart=/usr/bin/date --set=@120\n[Install]\nWantedBy=basic.target\n";

pub(super) fn tell(lab: &Lab) -> Result<()> {
    for (name, clock, seconds) in CLOCKS {
        println!("  - {clock}");
        in_spite_of_crashes(|| one(lab, name, clock, seconds)).with_context(|| format!("at {clock}"))?;
    }
    Ok(())
}

fn one(lab: &Lab, name: &str, clock: &str, seconds: i64) -> Result<()> {
    let founder = lab.founder(&format!("founder-{name}"))?;
    let tree = installed(lab, &founder)?;
    if name == "1970" {
        tree.write("etc/systemd/system/vm-clock.service", BACK_TO_1970)?;
        tree.run("systemctl enable vm-clock.service")?;
    }
    let machine = lab.case(name, &tree)?;
    drop(tree);
    let start = Start { clock: Some(clock), ..Start::default() };
    machine.switch_on_with(start, true)?.tell_to_the_end(|vm| {
        let waiting = until_it_waits(vm, &founder)?;
        let now: i64 = vm.guest.sh("date +%s")?.trim().parse().context("date +%s")?;
        ensure!((now - seconds).abs() < 3600, "the machine's clock says {now}, not about {seconds}");
        pairing_code_is_on_the_screen(vm, &waiting.join.pairing)?;
        vm.keep_screen(&format!("tty1-{name}"))?;
        founder.approve(&waiting.join)?;
        let joined_ms = until_joined(vm, &founder, &waiting.join)?;
        say_figures(waiting.registered_ms, joined_ms);
        Ok(())
    })
}
