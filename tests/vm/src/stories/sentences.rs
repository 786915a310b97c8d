//! The sentences that most stories share: a new machine, its registration, the approval, the end.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::checks;
use crate::founder::{Founder, Listed};
use crate::lab::{Lab, Machine};
use crate::tree::Tree;
use crate::vm::Vm;
use crate::wait;

/// From switching on to the registration at the founder: emulation boots in 15 s when it has two processors for itself.
pub(super) const REGISTERED: Duration = Duration::from_secs(300);
/// From the approval to the end.
pub(super) const JOINED: Duration = Duration::from_secs(240);
/// What takes the machine a moment.
pub(super) const MOMENT: Duration = Duration::from_secs(60);

/// A machine that waits for its approval.
pub(super) struct Waiting {
    /// The founder's record.
    pub(super) join: Listed,
    /// Milliseconds from the start of the kernel to the registration, by the machine's own clock.
    pub(super) registered_ms: u64,
}

/// What stage 1 of the installer leaves: our package, and the address and the code as the documented command saves them.
pub(super) fn installed(lab: &Lab, founder: &Founder) -> Result<Tree> {
    installed_with(lab, founder, &founder.join_code()?)
}

/// The same with a code that the story keeps.
pub(super) fn installed_with(lab: &Lab, founder: &Founder, code: &str) -> Result<Tree> {
    let tree = lab.node()?;
    request(&tree, founder, code)?;
    Ok(tree)
}

/// The command of stage 1, in the machine's root.
pub(super) fn request(tree: &Tree, founder: &Founder, code: &str) -> Result<()> {
    let endpoint = founder.endpoint();
    tree.feed(
        &format!("{code}\n"),
        &["stratum-installer", "join", "--endpoint", &endpoint, "--code-file", "-"],
    )
    .map(drop)
    .context("the command of stage 1")
}

/// The same inside a running machine, as an administrator does it who logged in.
pub(super) fn request_inside(vm: &mut Vm, founder: &Founder) -> Result<()> {
    let code = founder.join_code()?;
    vm.guest.sh("install -m 600 /dev/null /run/code")?;
    vm.guest.write("/run/code", &format!("{code}\n"))?;
    let endpoint = founder.endpoint();
    let said = vm
        .guest
        .sh(&format!("stratum-installer join --endpoint {endpoint} --code-file /run/code; rm /run/code"))?;
    ensure!(!said.contains(&code), "the command repeats the code");
    Ok(())
}

/// A machine as stage 1 leaves it, on disks.
pub(super) fn new_machine<'a>(lab: &'a Lab, founder: &Founder) -> Result<Machine<'a>> {
    lab.machine(&installed(lab, founder)?)
}

/// Waits until the machine has shown itself to the founder, and both agree on the pairing code.
pub(super) fn until_it_waits(vm: &mut Vm, founder: &Founder) -> Result<Waiting> {
    let join = wait::until("a registration at the founder", REGISTERED, || {
        vm.must_run()?;
        Ok(founder.joins()?.pop().filter(|join| join.state == "pending"))
    })?;
    vm.wait_until_up()?;
    let shown = vm.wait_for_snapshot("that it waits for approval", MOMENT, |s| s["state"] == "pending")?;
    ensure!(
        shown["pairingCode"] == join.pairing.as_str(),
        "the machine shows {}, the founder {}",
        shown["pairingCode"],
        join.pairing
    );
    let registered_ms = shown["registration"]["registeredMono"]
        .as_u64()
        .context("the snapshot has no time of registration")?;
    Ok(Waiting { join, registered_ms })
}

/// On tty1: as text, and drawn so big that it is read from the door.
pub(super) fn pairing_code_is_on_the_screen(vm: &mut Vm, code: &str) -> Result<()> {
    vm.wait_for_screen(1, &format!("PAIRING CODE  {code}"), MOMENT)?;
    let shown = vm.wait_for_snapshot("its pairing code", MOMENT, |s| s["pairingCode"] == code)?;
    checks::shows_the_big_code(vm, &shown)
}

/// Waits until both sides say that the machine has joined. Milliseconds from the start of the kernel, by the machine's clock.
pub(super) fn until_joined(vm: &mut Vm, founder: &Founder, join: &Listed) -> Result<u64> {
    // Asked on this side: questions inside the machine would take the processor from what is measured.
    wait::until("the founder to call it joined", JOINED, || {
        vm.must_run()?;
        let state = founder.state(&join.id)?.unwrap_or_default();
        ensure!(!["failed", "rejected", "expired"].contains(&state.as_str()), "the founder calls it {state}");
        Ok((state == "joined").then_some(()))
    })?;
    let shown = vm.wait_for_snapshot("that it has joined", MOMENT, |s| s["state"] == "joined")?;
    shown["stateSinceMono"].as_u64().context("the snapshot has no time of joining")
}

/// The figures of one join, for a person and for whoever compares runs.
pub(super) fn say_figures(registered_ms: u64, joined_ms: u64) {
    println!(
        "  figures: boot to registered {:.1} s, boot to joined {:.1} s (the machine's own clock)",
        registered_ms as f64 / 1000.0,
        joined_ms as f64 / 1000.0
    );
}
