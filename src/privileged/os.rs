//! `probe os`, `install-release`, `bless`: what the helper itself checks before a backend may do anything, whatever the caller says.
//!
//! Reads the stage, os-release and the release keys of the running OS; what a backend touches is its own. Must never hand a backend a release that
//! this process has not verified: who has taken over the agent can at worst install one that we signed and that is newer than what runs here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::Sender;

use super::InProcess;
use super::bus::Inhibitor;
use super::reboot::Reboot;
use crate::durable_file::{self, FileError, Lock};
use crate::install::recorded::Recorded;
use crate::install::{Installed, NoInstaller, OsInstaller, OsState, Staged, Trial};
use crate::join::fault::Fault;
use crate::upgrade::Digest;
use crate::upgrade::fault::UpgradeFault;
use crate::upgrade::verify::Verified;

/// How long a verb waits for the lock.
const LOCK_WAIT: Duration = Duration::from_secs(5);
/// Least time between two figures of a write.
const FIGURES: Duration = Duration::from_secs(1);
/// What a logged-in person is told who tries to power the machine off.
const WHY_NOT: &str = "a new OS is being installed";

/// Told to stop when it is dropped.
struct Stop(Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

// === impl InProcess ===

impl InProcess {
    pub(super) async fn os_probe(&self) -> Result<OsState, UpgradeFault> {
        self.os_work(|this| this.installer().probe()).await
    }

    pub(super) async fn os_write(
        &self,
        manifest: Digest,
        progress: Sender<(u64, u64)>,
    ) -> Result<Installed, UpgradeFault> {
        let _inhibitor = self.hold_up().await;
        let stopped = Arc::new(AtomicBool::new(false));
        let _stop = Stop(stopped.clone());
        self.os_work(move |this| {
            let mut last: Option<Instant> = None;
            let mut tell = |done, total| {
                if last.is_none_or(|at| at.elapsed() >= FIGURES) {
                    last = Some(Instant::now());
                    // Figures that nobody has taken yet are out of date.
                    let _ = progress.try_send((done, total));
                }
                !stopped.load(Ordering::Relaxed)
            };
            let (release, mut files) = this.verified(manifest)?;
            this.installer().write(&release, &mut files, &mut tell)
        })
        .await
    }

    pub(super) async fn os_arm(&self, manifest: Digest) -> Result<(), UpgradeFault> {
        let _inhibitor = self.hold_up().await;
        self.os_work(move |this| {
            let (release, _) = this.verified(manifest)?;
            this.installer().arm(&release)
        })
        .await
    }

    pub(super) async fn os_disarm(&self) -> Result<(), UpgradeFault> {
        self.os_work(|this| this.installer().disarm()).await
    }

    pub(super) async fn os_bless(&self) -> Result<(), UpgradeFault> {
        self.os_work(|this| this.installer().bless()).await
    }

    /// Whether the machine may be restarted, and done if nothing has to be asked for it.
    pub(super) async fn os_reboot(&self) -> Result<Reboot, Fault> {
        let decided = self.os_work(|this| {
            let may = this.is_armed();
            let on_trial = || this.installer().probe().is_ok_and(|os| os.booted.trial != Trial::No);
            if may.is_err() && !on_trial() {
                return Ok(may.map(|()| Reboot::Ask));
            }
            if !this.recorded_os {
                return Ok(Ok(Reboot::Ask));
            }
            this.recorded().request_restart()?;
            Ok(Ok(Reboot::Done))
        });
        decided.await.map_err(|fault| super::reboot::local(&fault))?
    }

    fn installer(&self) -> Box<dyn OsInstaller> {
        if self.recorded_os {
            Box::new(self.recorded())
        } else {
            Box::new(NoInstaller::new(self.paths.clone(), &*self.boot_id))
        }
    }

    fn recorded(&self) -> Recorded {
        let recorded = Recorded::new(self.paths.clone(), &*self.boot_id);
        #[cfg(test)]
        let recorded = recorded.with_trouble(self.os_trouble.clone());
        recorded
    }

    /// The staged release of this manifest, checked here and now.
    fn verified(&self, manifest: Digest) -> Result<(Verified, Staged), UpgradeFault> {
        let state = self.installer().probe()?;
        if let Some(why) = state.supported {
            return Err(UpgradeFault::unsupported(why, None));
        }
        let staged = Staged::open(&self.paths)?;
        let release = staged.verified(&self.paths, manifest, state.form)?;
        Ok((release, staged))
    }

    /// Does it off the loop's thread, under the lock. The work keeps the lock when nobody waits for it any more.
    async fn os_work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, UpgradeFault> + Send + 'static,
    ) -> Result<T, UpgradeFault> {
        let lock = self.os_lock().await?;
        let this = self.clone();
        let done = tokio::task::spawn_blocking(move || {
            let _lock = lock;
            work(&this)
        });
        done.await.unwrap_or_else(|_| Err(UpgradeFault::helper("a privileged verb broke off")))
    }

    /// One verb about the OS at a time, in this process or in another.
    async fn os_lock(&self) -> Result<Lock, UpgradeFault> {
        let broken = |error: &FileError| UpgradeFault::helper(error);
        durable_file::make_dir(&self.paths.os_dir(), 0o755).map_err(|error| broken(&error))?;
        let path = self.paths.os_lock();
        let since = tokio::time::Instant::now();
        loop {
            match Lock::take(&path) {
                Ok(lock) => return Ok(lock),
                Err(FileError::Owned { pid, .. }) if since.elapsed() >= LOCK_WAIT => {
                    return Err(UpgradeFault::busy(format_args!("process {pid} holds {}", path.display())));
                }
                Err(FileError::Owned { .. }) => tokio::time::sleep(Duration::from_millis(50)).await,
                Err(error) => return Err(broken(&error)),
            }
        }
    }

    /// Where there is a logind. Without it the install goes on: a cut is survived.
    async fn hold_up(&self) -> Option<Inhibitor> {
        if !self.paths.is_system() {
            return None;
        }
        let held = match self.bus().await {
            Ok(bus) => bus.inhibit(WHY_NOT).await,
            Err(fault) => Err(fault),
        };
        held.map_err(|fault| tracing::warn!("a shutdown would not wait for the install: {}", fault.chain))
            .ok()
    }
}
