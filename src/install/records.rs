//! What is remembered of the slots from one boot to the next: `floor.json`, `installed.json`, `armed.json`.
//!
//! Touches these three files, which only the process that does the verbs writes. One that is not what was written counts as none: a slot is then
//! written again, and nothing is rebooted.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::disk_fault;
use super::state::{Armed, Slot};
use crate::durable_file::{self, FileError};
use crate::paths::Paths;
use crate::upgrade::Digest;
use crate::upgrade::fault::UpgradeFault;
use crate::upgrade::running::RunningOs;
use crate::upgrade::version::Floor;

/// Largest of the files, bytes.
const MAX: u64 = 4 * 1024;
const MODE: u32 = 0o644;

/// `installed.json`: what was written whole and read back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InstalledRecord {
    /// Its manifest.
    #[serde(rename = "manifestSha256")]
    pub(super) manifest: Digest,
    /// Its name.
    pub(super) release: String,
    /// Where it is.
    pub(super) slot: Slot,
}

/// `floor.json`.
#[derive(Serialize)]
struct FloorRecord<'a> {
    release: &'a str,
    sequence: u64,
}

/// The highest release that ever ran here, this one included.
pub(crate) fn floor(paths: &Paths, os: &RunningOs) -> Result<Floor, UpgradeFault> {
    let file = readable(durable_file::read_own(&paths.os_floor(), MAX))?;
    Ok(Floor::of(file.as_deref(), os))
}

/// The running OS was confirmed: nothing older comes after it.
pub(super) fn raise_floor(paths: &Paths, os: &RunningOs) -> Result<(), UpgradeFault> {
    let floor = floor(paths, os)?;
    let record = FloorRecord { release: floor.release.as_str(), sequence: floor.sequence };
    let path = paths.os_floor();
    durable_file::write(&path, &encoded(&record), MODE, "floor-store").map_err(|e| disk_fault(&e))
}

/// What was written last.
pub(super) fn installed(paths: &Paths) -> Result<Option<InstalledRecord>, UpgradeFault> {
    Ok(parsed(readable(durable_file::read_own(&paths.os_installed(), MAX))?))
}

/// A slot holds this now.
pub(super) fn store_installed(paths: &Paths, record: &InstalledRecord) -> Result<(), UpgradeFault> {
    let path = paths.os_installed();
    durable_file::write(&path, &encoded(record), MODE, "installed-store").map_err(|e| disk_fault(&e))
}

/// The slot is about to be written.
pub(super) fn remove_installed(paths: &Paths) -> Result<(), UpgradeFault> {
    durable_file::remove(&paths.os_installed(), "installed-remove").map_err(|e| disk_fault(&e))
}

/// What was armed last.
pub(super) fn armed(paths: &Paths) -> Result<Option<Armed>, UpgradeFault> {
    Ok(parsed(readable(durable_file::read_own(&paths.os_armed(), MAX))?))
}

/// This is about to be armed.
pub(super) fn store_armed(paths: &Paths, armed: &Armed) -> Result<(), UpgradeFault> {
    let path = paths.os_armed();
    durable_file::write(&path, &encoded(armed), MODE, "armed-store").map_err(|e| disk_fault(&e))
}

/// It is not armed any more.
pub(super) fn remove_armed(paths: &Paths) -> Result<(), UpgradeFault> {
    durable_file::remove(&paths.os_armed(), "armed-remove").map_err(|e| disk_fault(&e))
}

/// What is not ours counts as none; a disk that fails does not.
fn readable(read: Result<Option<Vec<u8>>, FileError>) -> Result<Option<Vec<u8>>, UpgradeFault> {
    match read {
        Err(error) if error.is_tampered() => Ok(None),
        other => other.map_err(|error| disk_fault(&error)),
    }
}

fn parsed<T: DeserializeOwned>(bytes: Option<Vec<u8>>) -> Option<T> {
    serde_json::from_slice(&bytes?).ok()
}

fn encoded(record: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(record).expect("names, numbers and digests become JSON");
    bytes.push(b'\n');
    bytes
}
