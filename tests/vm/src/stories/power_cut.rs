//! The plug is pulled, in each state that a join goes through; the machine boots again and joins with the same pairing code.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::sentences::{
    JOINED, MOMENT, REGISTERED, Waiting, installed, say_figures, until_it_waits, until_joined,
};
use crate::founder::Founder;
use crate::lab::{Lab, Machine};
use crate::qemu::{Start, in_spite_of_crashes};
use crate::vm::Vm;

/// A case: what it is called, and how it is told.
type Case = (&'static str, fn(&Machine<'_>, &Founder) -> Result<()>);

const CASES: [Case; 5] = [
    ("before-registration", before_registration),
    ("waiting", waiting),
    ("approved", approved),
    ("delivering", delivering),
    ("installing", installing),
];
/// The client key, which is what a machine is recognised by before it has a pairing code.
const KEY: &str = "sha256sum < /var/lib/stratum/join/identity/key.pem";

pub(super) fn tell(lab: &Lab) -> Result<()> {
    for (name, tell) in CASES {
        println!("  - cut {name}");
        in_spite_of_crashes(|| one(lab, name, tell)).with_context(|| format!("cut {name}"))?;
    }
    Ok(())
}

fn one(lab: &Lab, name: &str, tell: fn(&Machine<'_>, &Founder) -> Result<()>) -> Result<()> {
    let founder = lab.founder(&format!("founder-{name}"))?;
    let tree = installed(lab, &founder)?;
    // Slow enough to be cut in a step.
    tree.write("etc/stratum/stand-in", "delay-ms=1000\n")?;
    let machine = lab.case(name, &tree)?;
    drop(tree);
    tell(&machine, &founder)
}

/// The key is made, the cable is not plugged in yet.
fn before_registration(machine: &Machine<'_>, founder: &Founder) -> Result<()> {
    let mut vm = machine.switch_on_with(Start::default(), false)?;
    let key = vm.tell(|vm| {
        vm.wait_until_up()?;
        // It has tried to reach the cluster: by then the key must be on the disk.
        vm.wait_for_snapshot("that it cannot reach the cluster", REGISTERED, |s| !s["fault"].is_null())?;
        vm.guest.sh(KEY)
    })?;
    ensure!(founder.joins()?.is_empty(), "it has registered without a cable");
    vm.pull_the_plug();

    let joined = machine.switch_on()?.tell_to_the_end(|vm| {
        let waiting = until_it_waits(vm, founder)?;
        ensure!(vm.guest.sh(KEY)? == key, "the machine made another key");
        founder.approve(&waiting.join)?;
        until_joined(vm, founder, &waiting.join).map(|joined_ms| (waiting.registered_ms, joined_ms))
    })?;
    say_figures(joined.0, joined.1);
    Ok(())
}

fn waiting(machine: &Machine<'_>, founder: &Founder) -> Result<()> {
    let mut vm = machine.switch_on()?;
    let before = vm.tell(|vm| until_it_waits(vm, founder))?;
    vm.pull_the_plug();

    machine.switch_on()?.tell_to_the_end(|vm| {
        shows_the_same_code(vm, "pending", &before)?;
        vm.wait_for_screen(1, &format!("PAIRING CODE  {}", before.join.pairing), MOMENT)?;
        founder.approve(&before.join)?;
        joins_as_the_same(vm, founder, &before)
    })
}

/// The cluster has no time yet: it is not green.
fn approved(machine: &Machine<'_>, founder: &Founder) -> Result<()> {
    founder.set_green(false)?;
    let mut vm = machine.switch_on()?;
    let before = vm.tell(|vm| {
        let before = until_it_waits(vm, founder)?;
        founder.approve(&before.join)?;
        vm.wait_for_snapshot("that it is approved", MOMENT, |s| s["state"] == "approved")?;
        Ok(before)
    })?;
    vm.pull_the_plug();

    machine.switch_on()?.tell_to_the_end(|vm| {
        shows_the_same_code(vm, "approved", &before)?;
        founder.set_green(true)?;
        joins_as_the_same(vm, founder, &before)
    })
}

/// The founder has handed the delivery out, and the machine has only begun to place it.
fn delivering(machine: &Machine<'_>, founder: &Founder) -> Result<()> {
    let mut vm = machine.switch_on()?;
    let before = vm.tell(|vm| {
        let before = until_it_waits(vm, founder)?;
        founder.approve(&before.join)?;
        founder.wait_for(&before.join.id, "delivering", MOMENT)?;
        Ok(before)
    })?;
    vm.pull_the_plug();

    machine.switch_on()?.tell_to_the_end(|vm| joins_as_the_same(vm, founder, &before))
}

/// firstboot is in its third step. What it has half done must not be done again behind the administrator's back.
fn installing(machine: &Machine<'_>, founder: &Founder) -> Result<()> {
    let mut vm = machine.switch_on()?;
    let before = vm.tell(|vm| {
        let before = until_it_waits(vm, founder)?;
        founder.approve(&before.join)?;
        vm.wait_for_snapshot("the third step of the install", JOINED, |s| {
            s["state"] == "installing"
                && s["steps"].as_array().is_some_and(|steps| steps.iter().any(third_runs))
        })?;
        Ok(before)
    })?;
    vm.pull_the_plug();

    machine.switch_on()?.tell_to_the_end(|vm| {
        let shown =
            vm.wait_for_snapshot("that the install was cut", REGISTERED, |s| s["state"] == "failed")?;
        ensure!(shown["pairingCode"] == before.join.pairing.as_str(), "it shows {}", shown["pairingCode"]);
        vm.wait_for_screen(1, "restarted", MOMENT)?;
        vm.keep_screen("tty1-installing-cut")?;
        // The machine knows it first; the administrator can act when the cluster knows it too.
        founder.wait_for(&before.join.id, "failed", MOMENT)?;
        founder.retry(&before.join.id)?;
        joins_as_the_same(vm, founder, &before)
    })
}

fn third_runs(step: &Value) -> bool {
    step["index"] == 3 && step["status"] == "running"
}

fn shows_the_same_code(vm: &mut Vm, state: &str, before: &Waiting) -> Result<()> {
    vm.wait_until_up()?;
    let shown = vm.wait_for_snapshot(&format!("that it is {state}"), REGISTERED, |s| {
        // What it knew is shown at once; what it is told by the founder comes with the first poll.
        s["state"] == state && !s["cluster"]["lastContactMono"].is_null()
    })?;
    ensure!(
        shown["pairingCode"] == before.join.pairing.as_str(),
        "it showed {} before the cut, and {} after it",
        before.join.pairing,
        shown["pairingCode"]
    );
    Ok(())
}

/// One registration, the same pairing code, one run of firstboot in this boot.
fn joins_as_the_same(vm: &mut Vm, founder: &Founder, before: &Waiting) -> Result<()> {
    let joined_ms = until_joined(vm, founder, &before.join)?;
    let joins = founder.joins()?;
    ensure!(joins.len() == 1, "the founder knows {} registrations", joins.len());
    ensure!(joins[0].pairing == before.join.pairing, "the pairing code became {}", joins[0].pairing);
    let starts = vm.guest.sh("journalctl -b -u stratum-firstboot -o cat | grep -c '^Started '")?;
    ensure!(starts.trim() == "1", "firstboot was started {} times after the cut", starts.trim());
    println!(
        "  figures: boot after the cut to joined {:.1} s (the machine's own clock)",
        joined_ms as f64 / 1000.0
    );
    Ok(())
}
