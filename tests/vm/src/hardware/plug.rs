//! Disks that are plugged in and out while somebody looks.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::rows::{list, text};
use super::views;
use crate::vm::Vm;
use crate::wait;

/// How often a disk comes and goes in one telling, where there is time for it.
const ROUNDS: u32 = 50;
/// How long that may go on.
const SPAN: Duration = Duration::from_secs(75);
/// A step in time.
const STEP: Duration = Duration::from_millis(100);
/// How long the last probe may take to end.
const END: Duration = Duration::from_secs(60);
/// Probes until it is told to stop. `stop` comes from the other side.
const PROBES: &str = "mkdir -p /run/rounds; cd /run/rounds; n=100; \
    while [ ! -e stop ]; do n=$((n+1)); stratum-join probe --output json >$n.json || echo \"probe $n ended with $?\" >>failed; done";
/// What a probe may say of a disk that came or went under it. That something went wrong with it; never that it is blank.
const SAID: [&str; 6] = ["absent", "vanished", "udevIncomplete", "unreadable", "notSupported", "noMedium"];

/// A disk that comes and goes, and what it is known by.
pub struct Loose {
    /// The device, as the monitor takes it.
    pub device: Value,
    /// Its serial number.
    pub serial: &'static str,
}

/// On the adapter `left` or `right` of a machine: `drive` as the disk `serial`.
pub fn scsi(adapter: &str, drive: &str, serial: &'static str) -> Loose {
    let device = json!({"driver": "scsi-hd", "id": drive, "bus": format!("{adapter}.0"), "scsi-id": 40, "drive": drive, "serial": serial});
    Loose { device, serial }
}

/// On the USB controller.
pub fn usb(drive: &str, serial: &'static str) -> Loose {
    let device =
        json!({"driver": "usb-storage", "id": drive, "bus": "xhci.0", "drive": drive, "serial": serial});
    Loose { device, serial }
}

/// Probes one after the other while two disks that are not blank come and go. Each probe answers, says of all other disks what is so, and
/// never calls one of the two blank; afterwards all is as it was.
pub fn probes_bear_it(vm: &mut Vm, reference: &Value, loose: &[Loose]) -> Result<()> {
    let begin = Instant::now();
    vm.guest.sh("stratum-join probe >/dev/null")?;
    let one_probe = u32::try_from(begin.elapsed().as_millis() / STEP.as_millis()).unwrap_or(u32::MAX).max(5);
    vm.guest.sh(&format!("systemd-run --quiet --unit=rounds /bin/sh -c '{}'", PROBES.replace('$', "$$")))?;
    let (begin, mut rounds) = (Instant::now(), 0);
    while rounds < ROUNDS && begin.elapsed() < SPAN {
        let one = &loose[rounds as usize % loose.len()];
        vm.plug(&one.device)?;
        if rounds == 0 {
            // One whole probe meets it, however quick the others are.
            let begun = |vm: &mut Vm| -> Result<u32> {
                Ok(vm.guest.sh("ls /run/rounds | grep -c json || true")?.trim().parse()?)
            };
            let before = begun(vm)?;
            wait::until("a probe of the loose disk", END, || Ok((begun(vm)? >= before + 3).then_some(())))?;
        }
        // At another moment of a probe each time.
        (0..rounds * 7 % one_probe).try_for_each(|_| wait::pause())?;
        vm.unplug(text(&one.device["id"]))?;
        rounds += 1;
    }
    vm.guest.sh("touch /run/rounds/stop")?;
    wait::until("the last probe to end", END, || {
        let state = vm.guest.run("/bin/systemctl", &["is-active", "rounds.service"])?.stdout;
        Ok((state.trim() != "active").then_some(()))
    })?;
    let failed = vm.guest.sh("cat /run/rounds/failed 2>/dev/null || true")?;
    ensure!(failed.is_empty(), "{failed}");
    let answers = vm.guest.sh("cat /run/rounds/*.json")?;
    vm.keep_text("rounds.json", &answers)?;
    let (mut met, mut codes) = (0, BTreeSet::new());
    for answer in answers.lines() {
        let answer: Value = serde_json::from_str(answer).context("the answer of a probe")?;
        met += u32::from(bore_it(reference, &answer, loose, &mut codes)?);
    }
    let probes = answers.lines().count();
    println!(
        "  {rounds} rounds, {probes} probes, {met} of them with a disk that came or went; said of those: {codes:?}"
    );
    ensure!(met > 0, "no probe saw a disk that comes and goes");
    let after = vm.guest.sh("udevadm settle; stratum-join probe --output json")?;
    views::the_agents_is_the_same(reference, &serde_json::from_str(&after)?).context("after all rounds")
}

/// Whether a loose disk was seen.
fn bore_it(reference: &Value, answer: &Value, loose: &[Loose], codes: &mut BTreeSet<String>) -> Result<bool> {
    let known = |disk: &&Value| list(&reference["disks"]).iter().any(|other| other["name"] == disk["name"]);
    let (old, new): (Vec<&Value>, Vec<&Value>) = list(&answer["disks"]).iter().partition(known);
    for disk in &new {
        let whose = loose.iter().any(|one| disk["serial"] == one.serial || disk["serial"].is_null());
        ensure!(whose, "a disk that nobody has plugged in: {disk}");
        ensure!(!list(&disk["holds"]).is_empty(), "a disk with data was called blank: {disk}");
    }
    let mut rest = answer.clone();
    rest["disks"] = old.into_iter().cloned().collect();
    let was = |warning: &&Value| list(&reference["warnings"]).contains(warning);
    let (kept, odd): (Vec<&Value>, Vec<&Value>) = list(&answer["warnings"]).iter().partition(was);
    rest["warnings"] = kept.into_iter().cloned().collect();
    for warning in &odd {
        let code = text(&warning["code"]);
        ensure!(SAID.contains(&code), "a disk that came or went: {warning}");
        codes.insert(code.to_owned());
    }
    views::the_agents_is_the_same(reference, &rest)?;
    Ok(!new.is_empty() || !odd.is_empty())
}
