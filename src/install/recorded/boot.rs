//! The firmware and the boot loader of a machine that only writes down what it does: which OS the next start starts.
//!
//! Touches `recorded/` and the os-release below the root it is given, while no agent runs there.

use std::io;
use std::path::Path;

use serde_json::json;

use super::entry::{self, Entry};
use super::{LastStart, Recorded};
use crate::clock;
use crate::durable_file;
use crate::install::state::{Slot, Trial};
use crate::paths::Paths;
use crate::upgrade::fault::UpgradeFault;

/// What becomes of an OS on trial when it is started. One that was confirmed comes up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It comes up.
    Comes,
    /// Its kernel dies, and the machine starts anew.
    Panics,
    /// It is not even started: the firmware, or somebody at the boot menu, takes the confirmed OS.
    PassedOver,
}

/// One start of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boot {
    /// Where the OS lies that was started.
    pub slot: Slot,
    /// Its release.
    pub release: String,
    /// The boot id, for `STRATUM_BOOT_ID` of the agent that is started next.
    pub boot_id: String,
    /// The entry that was started, as it is named since.
    pub entry: String,
    /// Whether it was on trial.
    pub trial: Trial,
    /// Whether the OS came up; otherwise the machine starts anew.
    pub came: bool,
}

/// The next start of the machine below `root`: chooses the entry, counts it down, and, when the OS comes up, makes the root's os-release that of its
/// slot. Takes a restart request away.
pub fn boot(root: &Path, trial: Outcome) -> io::Result<Boot> {
    start(root, trial).map_err(|fault| io::Error::other(fault.to_string()))
}

/// Starts the machine below `root` until an OS comes up; gives every start. `Panics` is that of each trial.
pub fn boot_until_up(root: &Path, trial: Outcome) -> io::Result<Vec<Boot>> {
    let mut boots = vec![boot(root, trial)?];
    while boots.last().is_some_and(|boot| !boot.came) {
        boots.push(boot(root, trial)?);
    }
    Ok(boots)
}

fn start(root: &Path, outcome: Outcome) -> Result<Boot, UpgradeFault> {
    let paths = Paths::under(root);
    let boot_id = new_boot_id();
    let machine = Recorded::new(paths.clone(), &*boot_id);
    machine.factory()?;
    let mut entries = machine.entries()?;
    if outcome == Outcome::PassedOver {
        entries.retain(|entry| entry.count.is_none());
    }
    let chosen = entry::next(&entries).ok_or_else(|| UpgradeFault::helper("there is nothing to start"))?;
    let started = Entry { count: chosen.count.map(entry::Count::started), ..chosen.clone() };
    let dir = machine.file("entries");
    if started != *chosen {
        std::fs::rename(dir.join(chosen.file()), dir.join(started.file()))
            .map_err(|error| super::wrong(&dir, &error))?;
    }
    let came = started.count.is_none() || outcome != Outcome::Panics;
    machine.note(json!({"boot": started.slot, "entry": started.file(), "came": came}))?;
    durable_file::remove(&machine.file("restart-requested"), "restart-clear")
        .map_err(|error| crate::install::disk_fault(&error))?;
    if came {
        let os_release = machine.small(&format!("slot-{}.os-release", started.slot.letter()))?;
        place_os_release(&paths, &os_release.unwrap_or_default())?;
        let last = LastStart { slot: started.slot, boot_id: boot_id.clone(), count: started.count };
        let last = serde_json::to_vec(&last).map_err(UpgradeFault::helper)?;
        machine.store("booted.json", &last)?;
    } else {
        let text = format!("Kernel panic - not syncing: {} was told to fail (recorded)", started.release);
        machine.store("last-error", text.as_bytes())?;
    }
    Ok(Boot {
        slot: started.slot,
        release: started.release.as_str().to_owned(),
        boot_id,
        entry: started.file(),
        trial: started.count.map_or(Trial::No, entry::Count::trial),
        came,
    })
}

/// Where os-release is; where it would be, if there is none.
fn place_os_release(paths: &Paths, text: &[u8]) -> Result<(), UpgradeFault> {
    let places = paths.os_release();
    let path = places.iter().find(|path| path.exists()).unwrap_or(&places[0]);
    durable_file::write(path, text, 0o644, "recorded-write")
        .map_err(|error| crate::install::disk_fault(&error))
}

/// As the kernel's: random, in the form of a UUID.
fn new_boot_id() -> String {
    let (high, low) = (clock::now().random, clock::now().random);
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}
