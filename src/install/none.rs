//! No backend: this machine installs no OS by itself, and says so. Reads os-release.

use console::text::Safe;

use super::{Installed, OsInstaller, OsState, Progress, ReleaseFiles};
use crate::paths::Paths;
use crate::upgrade::fault::UpgradeFault;
use crate::upgrade::running::RunningOs;
use crate::upgrade::verify::Verified;

/// Why.
const WHY: &str = "this version installs no OS by itself yet: the backend for this machine is not built in";

/// Where nothing is installed.
#[derive(Debug, Clone)]
pub struct NoInstaller {
    paths: Paths,
    boot_id: String,
}

// === impl NoInstaller ===

impl NoInstaller {
    /// For the machine below `paths`, in this boot.
    pub fn new(paths: Paths, boot_id: impl Into<String>) -> Self {
        Self { paths, boot_id: boot_id.into() }
    }

    fn refuse<T>(&self, release: Option<&Verified>) -> Result<T, UpgradeFault> {
        Err(UpgradeFault::unsupported(WHY, release.map(|release| release.manifest().about.release.as_str())))
    }
}

impl OsInstaller for NoInstaller {
    fn probe(&self) -> Result<OsState, UpgradeFault> {
        let release = RunningOs::load(&self.paths).map(|os| Safe::clean(os.release.as_str()));
        Ok(OsState::unsupported(WHY, release.unwrap_or_default(), &*self.boot_id))
    }

    fn write(
        &self,
        release: &Verified,
        _: &mut dyn ReleaseFiles,
        _: &mut Progress<'_>,
    ) -> Result<Installed, UpgradeFault> {
        self.refuse(Some(release))
    }

    fn arm(&self, release: &Verified) -> Result<(), UpgradeFault> {
        self.refuse(Some(release))
    }

    /// Nothing is ever armed here.
    fn disarm(&self) -> Result<(), UpgradeFault> {
        Ok(())
    }

    fn bless(&self) -> Result<(), UpgradeFault> {
        self.refuse(None)
    }
}
