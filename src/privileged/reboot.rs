//! `reboot`: only into an OS that this boot's own upgrade has armed, or out of one that is on trial.
//!
//! Reads `armed.json`, which only the helper writes; asks logind.

use serde::Deserialize;

use super::InProcess;
use crate::durable_file;
use crate::join::fault::{Code, Fault};
use crate::upgrade::fault::UpgradeFault;

/// Largest `armed.json`.
const MAX_ARMED: u64 = 4 * 1024;

/// What this verb needs of it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Armed {
    boot_id: String,
}

/// What is left to do.
pub(super) enum Reboot {
    /// logind has to be asked.
    Ask,
    /// Nothing.
    Done,
}

// === impl InProcess ===

impl InProcess {
    pub(super) async fn reboot_armed(&self) -> Result<(), Fault> {
        match self.os_reboot().await? {
            Reboot::Ask => self.bus().await?.reboot().await,
            Reboot::Done => Ok(()),
        }
    }

    /// Whatever the caller says: without an armed entry of this boot a reboot would only interrupt what runs.
    pub(super) fn is_armed(&self) -> Result<(), Fault> {
        let path = self.paths.os_armed();
        let refused = |why: &str| {
            Fault::new(Code::Local, format!("{} {why}: this machine is not rebooted", path.display()))
        };
        let text = durable_file::read_own(&path, MAX_ARMED)?.ok_or_else(|| refused("is not there"))?;
        let armed: Armed = serde_json::from_slice(&text).map_err(|_| refused("is not what was written"))?;
        if armed.boot_id == self.boot_id { Ok(()) } else { Err(refused("is of another boot")) }
    }
}

/// As a fault of a verb that answers with such.
pub(super) fn local(fault: &UpgradeFault) -> Fault {
    Fault::new(Code::Local, &fault.what)
}
