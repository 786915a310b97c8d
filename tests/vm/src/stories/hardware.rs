//! Machines with every kind of disk and NIC: what the probe says is what lsblk and ip say, and what it is known to be; whoever runs it; and
//! also while disks come and go.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::sentences::{MOMENT, Waiting, request_inside, until_it_waits};
use crate::child::output;
use crate::founder::Founder;
use crate::hardware::compare::Met;
use crate::hardware::machines::{BUSES, Model, STACKS};
use crate::hardware::plug::{self, Loose};
use crate::hardware::rows::{list, text};
use crate::hardware::{answer, views};
use crate::lab::Lab;
use crate::qemu::in_spite_of_crashes;
use crate::tree::Tree;
use crate::vm::Vm;
use crate::wait;

/// What was made of disks and NICs takes emulation its time.
const PREPARED: Duration = Duration::from_secs(240);
/// A change is told at most once a minute.
const TOLD: Duration = Duration::from_secs(120);
const AS_NOBODY: &str = "setpriv --reuid=nobody --regid=nogroup --clear-groups";

pub(super) fn tell(lab: &Lab) -> Result<()> {
    let mut met = Met::default();
    for (model, part) in [(BUSES, buses as Part), (STACKS, stacks)] {
        println!("  - {}", model.name);
        in_spite_of_crashes(|| one(lab, &model, part, &mut met)).with_context(|| model.name.to_owned())?;
    }
    met.all_were_met()
}

/// What is told of one machine only, once it waits for its approval.
type Part = fn(&mut Vm, &Case<'_>) -> Result<()>;

/// A machine that waits for its approval.
struct Case<'a> {
    founder: &'a Founder,
    tree: &'a Tree,
    waiting: Waiting,
    /// What root sees.
    seen: Value,
}

fn one(lab: &Lab, model: &Model, part: Part, met: &mut Met) -> Result<()> {
    let founder = &lab.founder(&format!("founder-{}", model.name))?;
    let tree = &lab.node()?;
    model.place(tree)?;
    let machine = lab.case_with(model.name, tree, model.board)?;
    machine.switch_on()?.tell_to_the_end(|vm| {
        vm.wait_until_up()?;
        prepare(vm, model)?;
        let seen = is_what_lsblk_and_ip_say(vm, met)?;
        answer::is_the_known_one(lab, model.name, &seen)?;

        request_inside(vm, founder)?;
        let waiting = until_it_waits(vm, founder)?;
        views::the_agents_is_the_same(&seen, &founder.inventory(&waiting.join.id)?)?;
        part(vm, &Case { founder, tree, waiting, seen })
    })
}

fn prepare(vm: &mut Vm, model: &Model) -> Result<()> {
    let done = vm.guest.run_within(PREPARED, "/bin/sh", &["-euxc", model.prepare])?;
    vm.keep_text("prepare.log", &format!("{}{}", done.stdout, done.stderr))?;
    ensure!(done.is_ok(), "the disks could not be prepared; see prepare.log");
    Ok(())
}

/// The comparison, field by field. Gives the inventory.
fn is_what_lsblk_and_ip_say(vm: &mut Vm, met: &mut Met) -> Result<Value> {
    let mut ask = |name: &str, command: &str| -> Result<Value> {
        let said = vm.guest.sh(command)?;
        vm.keep_text(name, &said)?;
        serde_json::from_str(&said).with_context(|| format!("the answer of {command}"))
    };
    let seen = ask("probe.json", "stratum-join probe --output json")?;
    let lsblk = ask("lsblk.json", "lsblk -J -b -O")?;
    let addresses = ask("ip-addr.json", "ip -j -d addr")?;
    let routes = ask("ip-route.json", "ip -j route show table main")?;
    let facts = met.compare(&seen, &lsblk, &addresses, &routes)?;
    println!("  {facts} facts are what lsblk and ip say, or differ for a known reason");
    let guest = vm.guest.run("/bin/systemd-detect-virt", &["--vm"])?.stdout;
    ensure!(seen["hypervisor"] == guest.trim(), "{} is {guest} for systemd", seen["hypervisor"]);
    views::has_no_control_characters(&seen)?;
    Ok(seen)
}

/// A disk comes while the machine waits, and goes: the cluster is told of both.
fn buses(vm: &mut Vm, case: &Case<'_>) -> Result<()> {
    let id = &case.waiting.join.id;
    ensure!(case.told()?.1 == 1, "the first registration has generation {}", case.told()?.1);
    let later = plug::scsi("right", "later", "LATER001");
    vm.plug(&later.device)?;
    let (disk, generation) = wait::until("the founder to be told of a new disk", TOLD, || {
        vm.must_run()?;
        let (inventory, generation) = case.told()?;
        let disk = list(&inventory["disks"]).iter().find(|disk| disk["serial"] == later.serial).cloned();
        Ok(disk.map(|disk| (disk, generation)))
    })?;
    ensure!(generation == 2, "the new disk came with generation {generation}");
    let shown = case.founder.show(id)?;
    ensure!(
        shown.lines().any(|line| line.contains(text(&disk["name"])) && line.contains("blank")),
        "stratumctl does not show the new disk:\n{shown}"
    );

    vm.unplug(text(&later.device["id"]))?;
    // The cluster is told a minute after it was told last.
    vm.guest.sh("udevadm settle")?;
    case.others_see_the_same(vm)?;
    let (inventory, generation) = wait::until("the founder to be told that it is gone", TOLD, || {
        vm.must_run()?;
        let (inventory, generation) = case.told()?;
        let there = list(&inventory["disks"]).iter().any(|disk| disk["serial"] == later.serial);
        Ok((!there).then_some((inventory, generation)))
    })?;
    ensure!(generation == 3, "that it is gone came with generation {generation}");
    views::the_agents_is_the_same(&case.seen, &inventory)?;
    println!("  a disk that came and one that went were told to the cluster");
    case.founder.wait_for(id, "pending", MOMENT)
}

/// Disks come and go while they are probed.
fn stacks(vm: &mut Vm, case: &Case<'_>) -> Result<()> {
    case.others_see_the_same(vm)?;
    // The agent would look, too, and only slow it down.
    vm.guest.sh("systemctl stop stratum-join.service")?;
    let loose: [Loose; 2] = [plug::scsi("left", "loose", "LOOSE001"), plug::usb("stick", "STICK001")];
    plug::probes_bear_it(vm, &case.seen, &loose)
}

// === impl Case ===

impl Case<'_> {
    /// What the cluster knows of it, and how often it was told.
    fn told(&self) -> Result<(Value, u64)> {
        let inventory = self.founder.inventory(&self.waiting.join.id)?;
        let generation = inventory["generation"].as_u64().context("an inventory without a generation")?;
        Ok((inventory, generation))
    }

    /// An ordinary user, a person at a terminal, and whoever gets a copy.
    fn others_see_the_same(&self, vm: &mut Vm) -> Result<()> {
        let user = vm.guest.sh(&format!("{AS_NOBODY} stratum-join probe --output json"))?;
        vm.keep_text("nobody.json", &user)?;
        let unread = views::an_ordinary_users_is_the_same(&self.seen, &serde_json::from_str(&user)?)?;
        println!("  {unread} facts may not be read by an ordinary user, who is told so");

        let table = vm.guest.sh("stratum-join probe")?;
        vm.keep_text("table.txt", &table)?;
        views::the_table_is_for_people(&table)?;

        vm.guest.sh("stratum-join probe --capture /run/copy && tar -C /run/copy -cf /run/copy.tar .")?;
        let copy = vm.artefact("copy");
        std::fs::create_dir_all(&copy).with_context(|| format!("create {}", copy.display()))?;
        let tar = vm.artefact("copy.tar");
        crate::artefacts::write(&tar, vm.guest.bytes("/bin/cat", &["/run/copy.tar"])?)?;
        output(Command::new("tar").arg("-xf").arg(&tar).arg("-C").arg(&copy))?;
        let mut replay = Command::new(self.tree.path("usr/bin/stratum-join"));
        let replay = output(replay.args(["probe", "--output", "json", "--root"]).arg(&copy))?;
        vm.keep_text("copy.json", &replay)?;
        let ends = views::the_copys_is_the_same(&self.seen, &serde_json::from_str(&replay)?)?;
        println!("  a copy gives the same answer; the ends of these disks would be needed: {ends:?}");
        Ok(())
    }
}
