//! The verbs about the OS.

use tokio::sync::mpsc::Sender;

use super::InProcess;
use crate::install::{Installed, NoInstaller, OsInstaller, OsState};
use crate::upgrade::Digest;
use crate::upgrade::fault::UpgradeFault;

impl InProcess {
    fn installer(&self) -> Box<dyn OsInstaller> {
        Box::new(NoInstaller::new(self.paths.clone(), &*self.boot_id))
    }

    pub(super) async fn os_probe(&self) -> Result<OsState, UpgradeFault> {
        self.installer().probe()
    }

    pub(super) async fn os_write(&self, _: Digest, _: Sender<(u64, u64)>) -> Result<Installed, UpgradeFault> {
        Err(UpgradeFault::helper("not built in"))
    }

    pub(super) async fn os_arm(&self, _: Digest) -> Result<(), UpgradeFault> {
        Err(UpgradeFault::helper("not built in"))
    }

    pub(super) async fn os_disarm(&self) -> Result<(), UpgradeFault> {
        self.installer().disarm()
    }

    pub(super) async fn os_bless(&self) -> Result<(), UpgradeFault> {
        self.installer().bless()
    }
}
