//! A fresh machine boots, shows its pairing code wherever a technician looks, is approved, and joins.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::sentences::{
    MOMENT, installed_with, pairing_code_is_on_the_screen, say_figures, until_it_waits, until_joined,
};
use crate::checks;
use crate::founder::{Founder, Listed};
use crate::lab::Lab;
use crate::listing;
use crate::tree::HOST_NAME;
use crate::vm::Vm;
use crate::wait;

/// The banner is written anew at most every 10 s, and a prompt reloads then.
const BANNER: Duration = Duration::from_secs(90);

pub(super) fn tell(lab: &Lab) -> Result<()> {
    let founder = lab.founder("founder")?;
    let code = founder.join_code()?;
    let tree = installed_with(lab, &founder, &code)?;
    // Steps that take their time, as real ones do: their lines come one after the other.
    tree.write("etc/stratum/stand-in", "delay-ms=2000\n")?;
    let machine = lab.machine(&tree)?;
    drop(tree);
    machine.switch_on()?.tell_to_the_end(|vm| story(lab, vm, &founder, &code))
}

fn story(lab: &Lab, vm: &mut Vm, founder: &Founder, code: &str) -> Result<()> {
    let waiting = until_it_waits(vm, founder)?;
    println!("  it waits for approval, pairing code {}", waiting.join.pairing);
    the_code_is_the_same_wherever_one_looks(vm, founder, &waiting.join)?;
    kernel_messages_do_not_disturb_the_screen(vm, &waiting.join)?;

    checks::while_it_waits(vm)?;

    founder.approve(&waiting.join)?;
    let joined_ms = until_joined(vm, founder, &waiting.join)?;
    vm.keep_picture("tty1-joined")?;
    say_figures(waiting.registered_ms, joined_ms);

    the_delivery_is_in_place(vm)?;
    the_login_is_given_back(vm)?;
    checks::after_the_join(vm, code)?;
    listing::is_the_one_in_the_documents(lab, vm)
}

/// The four places of the documentation, and the picture for a person.
fn the_code_is_the_same_wherever_one_looks(vm: &mut Vm, founder: &Founder, join: &Listed) -> Result<()> {
    let code = &join.pairing;
    let listed = founder.list()?;
    ensure!(listed.contains(code.as_str()), "not in the founder's list:\n{listed}");

    pairing_code_is_on_the_screen(vm, &join.pairing)?;
    vm.keep_screen("tty1-pending")?;

    let journal = vm.guest.sh("journalctl -u stratum-join -o short")?;
    ensure!(journal.contains(code.as_str()), "not in journalctl -u stratum-join:\n{journal}");

    // Whoever comes to the serial line later presses Enter, or finds the prompt reloaded.
    let prompt = wait::until("the pairing code at the serial line's login prompt", BANNER, || {
        let said = vm.serial.text_since(crate::serial::Mark::default());
        let banner = said.rsplit(&format!("{HOST_NAME} login:")).nth(1).unwrap_or_default().to_owned();
        Ok(banner.contains(code.as_str()).then_some(banner))
    })?;
    vm.keep_text("serial-banner.txt", &prompt)
}

/// What the kernel has to say while a person compares codes goes to the journal, not over the code.
fn kernel_messages_do_not_disturb_the_screen(vm: &mut Vm, join: &Listed) -> Result<()> {
    vm.guest.sh("for n in 1 2 3; do echo '<2>a critical message of the kernel' > /dev/kmsg; done")?;
    pairing_code_is_on_the_screen(vm, &join.pairing)?;
    let screen = vm.keep_screen("tty1")?;
    ensure!(!screen.shows("critical message"), "the kernel wrote over the screen:\n{}", screen.text());
    Ok(())
}

fn the_delivery_is_in_place(vm: &mut Vm) -> Result<()> {
    let stat = vm.guest.sh("stat --format='%U:%G %a %h' /etc/stratum/node.yaml")?;
    ensure!(stat.trim() == "root:root 600 1", "node.yaml is {stat}");
    ensure!(vm.guest.read("/run/stratum/delivery/bundle.json")?.is_none(), "the bundle is still there");
    let starts = vm.guest.sh("journalctl -b -u stratum-firstboot -o cat | grep -c '^Started '")?;
    ensure!(starts.trim() == "1", "firstboot was started {} times", starts.trim());
    let result = vm.guest.sh("systemctl show -P Result stratum-firstboot.service")?;
    ensure!(result.trim() == "success", "firstboot ended with {result}");
    Ok(())
}

/// The agent ends, and so does the console when somebody presses the key it names: tty1 is a login again.
fn the_login_is_given_back(vm: &mut Vm) -> Result<()> {
    wait::until("the agent to end", MOMENT, || {
        let unit =
            vm.guest.sh("systemctl show -p ActiveState -p Result -p ExecMainStatus stratum-join.service")?;
        let ended = ["ActiveState=inactive", "Result=success", "ExecMainStatus=0"];
        Ok(ended.iter().all(|line| unit.lines().any(|said| said == *line)).then_some(()))
    })?;
    vm.wait_for_screen(1, "press Enter now", MOMENT)?;
    vm.press(&["ret"])?;
    let screen =
        vm.wait_for_screen(1, &format!("{HOST_NAME} login:"), MOMENT).context("tty1 after the join")?;
    ensure!(screen.shows("member of cluster"), "the login on tty1 has no banner:\n{}", screen.text());
    vm.keep_screen("tty1-login").map(drop)
}
