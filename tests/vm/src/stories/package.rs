//! The package in a running machine: installed, upgraded with a join under way, removed, installed again, purged.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::sentences::{MOMENT, REGISTERED, Waiting, pairing_code_is_on_the_screen, until_it_waits};
use crate::founder::Founder;
use crate::lab::{Lab, Machine};
use crate::tree::HOST_NAME;
use crate::vm::Vm;
use crate::wait;

/// Everything a package could leave behind. What dpkg and the users' tools keep for themselves is theirs.
const EVERYTHING: &str = "find /etc /usr /var/lib /run /boot /root /opt /srv -xdev \
    -not -path '/var/lib/dpkg/*' -not -path '/run/systemd/*' -not -path '/run/user*' -not -path '/run/udev/*' \
    -not -path '/run/log/*' -not -path '/run/credentials*' -not -name '*-' -not -name '.pwd.lock' | sort";
/// What a purge leaves, and why that is right.
const STAYS: [&str; 3] = [
    // Anybody's directory: made on demand, and others may have put something there.
    "/run/motd.d",
    "/etc/issue.d",
    // agetty's own file.
    "/run/agetty.reload",
];
const CONSOLE: &str = "stratum-join-console@tty1.service";
const KEY: &str = "sha256sum < /var/lib/stratum/join/identity/key.pem";
const INSTALL: Duration = Duration::from_secs(180);

pub(super) fn tell(lab: &Lab) -> Result<()> {
    let previous = lab
        .settings
        .previous
        .as_ref()
        .context("the story needs the package in an older version (--previous)")?;
    let founder = lab.founder("founder")?;
    let tree = lab.debian()?;
    lab.add_stand_in(&tree)?;
    for (deb, name) in [(previous, "srv/previous.deb"), (&lab.settings.deb, "srv/current.deb")] {
        std::fs::copy(deb, tree.path(name)).with_context(|| format!("copy {}", deb.display()))?;
    }
    let machine = lab.machine(&tree)?;
    drop(tree);

    let mut vm = machine.switch_on()?;
    let (before, waiting) = vm.tell(|vm| {
        vm.wait_until_up()?;
        let before = everything(vm)?;
        installing_starts_an_agent_that_waits_for_a_request(vm)?;
        Ok((before, a_request_is_taken_without_a_restart(vm, &founder)?))
    })?;
    after_a_reboot(vm, &machine)?.tell_to_the_end(|vm| {
        an_upgrade_goes_on_with_the_same_registration(vm, &founder, &waiting)?;
        removing_gives_everything_back_but_the_state(vm)?;
        installed_again_it_is_still_the_same(vm, &founder, &waiting)?;
        a_purge_leaves_nothing(vm, &before)?;
        a_purge_keeps_the_mark_of_a_member(vm)
    })
}

fn installing_starts_an_agent_that_waits_for_a_request(vm: &mut Vm) -> Result<()> {
    dpkg(vm, "--install /srv/previous.deb")?;
    for (unit, state) in [
        ("stratum-join.service", "enabled"),
        ("stratum-join-console@tty1.service", "enabled"),
        ("stratum-join-control.socket", "static"),
        ("stratum-join-helper.socket", "static"),
    ] {
        let said = vm.guest.run("systemctl", &["is-enabled", unit])?.stdout;
        ensure!(said.trim() == state, "{unit} is {}, not {state}", said.trim());
    }
    for user in ["stratum-join", "stratum-console"] {
        let line = vm.guest.sh(&format!("getent passwd {user}"))?;
        ensure!(line.trim().ends_with(":/usr/sbin/nologin"), "{user} can log in: {line}");
    }
    let shown = vm.wait_for_snapshot("that it has no request", MOMENT, |s| !s["next"].is_null())?;
    println!("  without a request it says: {}", shown["headline"]);
    ensure!(
        vm.guest.sh("systemctl is-active stratum-join.service")?.trim() == "active",
        "the agent does not run"
    );
    vm.wait_for_screen(1, &format!("{HOST_NAME} login:"), MOMENT)?;
    nothing_has_failed(vm)
}

fn a_request_is_taken_without_a_restart(vm: &mut Vm, founder: &Founder) -> Result<Waiting> {
    let pid = agent(vm)?;
    let code = founder.join_code()?;
    vm.guest.sh("install -m 600 /dev/null /run/code")?;
    vm.guest.write("/run/code", &format!("{code}\n"))?;
    vm.guest.sh(&format!(
        "stratum-installer join --endpoint {} --code-file /run/code; rm /run/code",
        founder.endpoint()
    ))?;
    let waiting = until_it_waits(vm, founder)?;
    ensure!(agent(vm)? == pid, "the agent was restarted for a request");
    // Somebody may be working on tty1: there the banner says it, and no console takes the terminal.
    vm.wait_for_screen(1, &waiting.join.pairing, Duration::from_secs(90))?;
    vm.wait_for_screen(1, &format!("{HOST_NAME} login:"), MOMENT)?;
    Ok(waiting)
}

/// With the console on tty1, as on a machine that joins.
fn after_a_reboot(mut vm: Vm, machine: &Machine<'_>) -> Result<Vm> {
    // The guest agent may be gone before it has answered.
    let _ = vm.guest.run("systemctl", &["poweroff", "--no-block"]);
    wait::until("the machine to switch itself off", INSTALL, || Ok(vm.is_off().then_some(())))?;
    drop(vm);
    let mut vm = machine.switch_on()?;
    vm.wait_until_up()?;
    Ok(vm)
}

fn an_upgrade_goes_on_with_the_same_registration(
    vm: &mut Vm,
    founder: &Founder,
    waiting: &Waiting,
) -> Result<()> {
    let code = format!("PAIRING CODE  {}", waiting.join.pairing);
    vm.wait_for_snapshot("that it waits", REGISTERED, |s| s["state"] == "pending")?;
    vm.wait_for_screen(1, &code, MOMENT)?;
    let (pid, key, console) = (agent(vm)?, vm.guest.sh(KEY)?, main_pid(vm, CONSOLE)?);
    let old = vm.guest.sh("dpkg-query --show --showformat='${Version}' stratum-join")?;
    dpkg(vm, "--install /srv/current.deb")?;
    let new = vm.guest.sh("dpkg-query --show --showformat='${Version}' stratum-join")?;
    println!("  upgraded from {old} to {new}");
    ensure!(old != new, "both packages have version {new}");
    ensure!(agent(vm)? != pid, "the old agent still runs");
    ensure!(vm.guest.sh(KEY)? == key, "the upgrade changed the client key");
    is_the_same(vm, founder, waiting)?;
    wait::until("the new console", MOMENT, || {
        let now = main_pid(vm, CONSOLE)?;
        Ok((now != console && now.trim() != "0").then_some(()))
    })?;
    pairing_code_is_on_the_screen(vm, &waiting.join.pairing)?;
    vm.keep_screen("tty1-upgraded")?;
    nothing_has_failed(vm)
}

fn removing_gives_everything_back_but_the_state(vm: &mut Vm) -> Result<()> {
    let key = vm.guest.sh(KEY)?;
    dpkg(vm, "--remove stratum-join")?;
    let running = vm.guest.run("pgrep", &["-u", "stratum-join,stratum-console", "-l"])?;
    ensure!(running.stdout.is_empty(), "still running: {}", running.stdout);
    let units =
        vm.guest.sh("systemctl list-units --all --no-legend 'stratum-join*' | grep -v not-found || true")?;
    ensure!(units.trim().is_empty(), "units of a removed package: {units}");
    ensure!(vm.guest.sh(KEY)? == key, "removing touched the client key");
    let screen = vm.wait_for_screen(1, &format!("{HOST_NAME} login:"), MOMENT)?;
    ensure!(!screen.shows("Stratum join"), "the banner of a removed package:\n{}", screen.text());
    vm.keep_screen("tty1-removed")?;
    nothing_has_failed(vm)
}

fn installed_again_it_is_still_the_same(vm: &mut Vm, founder: &Founder, waiting: &Waiting) -> Result<()> {
    dpkg(vm, "--install /srv/current.deb")?;
    is_the_same(vm, founder, waiting)
}

fn a_purge_leaves_nothing(vm: &mut Vm, before: &BTreeSet<String>) -> Result<()> {
    let said = dpkg(vm, "--purge stratum-join")?;
    ensure!(said.contains("client key"), "the purge does not say that the key goes:\n{said}");
    let left: Vec<String> =
        everything(vm)?.difference(before).filter(|path| !STAYS.contains(&path.as_str())).cloned().collect();
    ensure!(left.is_empty(), "a purge leaves {left:#?}");
    nothing_has_failed(vm)
}

/// A machine that is a member must not join again because somebody purged a package: its disks hold a cluster's data.
fn a_purge_keeps_the_mark_of_a_member(vm: &mut Vm) -> Result<()> {
    dpkg(vm, "--install /srv/current.deb")?;
    vm.guest.sh("systemctl stop stratum-join.service; install -m 600 -o stratum-join /dev/null /var/lib/stratum/join/joined")?;
    let said = dpkg(vm, "--purge stratum-join")?;
    ensure!(said.contains("member"), "the purge does not say that this is a member:\n{said}");
    vm.guest.sh("test -e /var/lib/stratum/join/joined").map(drop).context("the mark of a member is gone")
}

fn is_the_same(vm: &mut Vm, founder: &Founder, waiting: &Waiting) -> Result<()> {
    let shown = vm.wait_for_snapshot("that it waits again", REGISTERED, |s| {
        s["state"] == "pending" && !s["cluster"]["lastContactMono"].is_null()
    })?;
    ensure!(
        shown["pairingCode"] == waiting.join.pairing.as_str(),
        "the pairing code became {}",
        shown["pairingCode"]
    );
    let joins = founder.joins()?;
    ensure!(joins == [waiting.join.clone()], "the founder knows {joins:?}");
    Ok(())
}

fn dpkg(vm: &mut Vm, what: &str) -> Result<String> {
    let script = format!("DEBIAN_FRONTEND=noninteractive dpkg {what} 2>&1");
    let out = vm.guest.run_within(INSTALL, "/bin/sh", &["-euc", &script])?;
    ensure!(out.is_ok(), "dpkg {what}: {}:\n{}", out.ending(), out.stdout);
    Ok(out.stdout)
}

fn agent(vm: &mut Vm) -> Result<String> {
    main_pid(vm, "stratum-join.service")
}

fn main_pid(vm: &mut Vm, unit: &str) -> Result<String> {
    vm.guest.sh(&format!("systemctl show -P MainPID {unit}"))
}

fn everything(vm: &mut Vm) -> Result<BTreeSet<String>> {
    Ok(vm.guest.sh(EVERYTHING)?.lines().map(str::to_owned).collect())
}

fn nothing_has_failed(vm: &mut Vm) -> Result<()> {
    let failed = vm.guest.sh("systemctl --failed --no-legend --plain")?;
    ensure!(failed.trim().is_empty(), "failed units:\n{failed}");
    Ok(())
}
