//! `reboot`: only into an OS that this boot's own upgrade has armed.
//!
//! Reads `armed.json`, which only the helper writes; asks logind.

use serde::Deserialize;

use super::InProcess;
use crate::durable_file;
use crate::join::fault::{Code, Fault};

/// Largest `armed.json`.
const MAX_ARMED: u64 = 4 * 1024;

/// What this verb needs of it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Armed {
    boot_id: String,
}

// === impl InProcess ===

impl InProcess {
    pub(super) async fn reboot_armed(&self) -> Result<(), Fault> {
        self.blocking(|this| this.is_armed()).await?;
        self.bus().await?.reboot().await
    }

    /// Whatever the caller says: without an armed entry of this boot a reboot would only interrupt what runs.
    fn is_armed(&self) -> Result<(), Fault> {
        let path = self.paths.os_dir().join("armed.json");
        let refused = |why: &str| {
            Fault::new(Code::Local, format!("{} {why}: this machine is not rebooted", path.display()))
        };
        let text = durable_file::read_own(&path, MAX_ARMED)?.ok_or_else(|| refused("is not there"))?;
        let armed: Armed = serde_json::from_slice(&text).map_err(|_| refused("is not what was written"))?;
        if armed.boot_id == self.boot_id { Ok(()) } else { Err(refused("is of another boot")) }
    }
}
