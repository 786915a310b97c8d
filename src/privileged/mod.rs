//! The fixed privileged verbs (docs/helper.md): values in, values out, never a path, an argv or a text to show.
//!
//! This file touches nothing: it is the port. [`InProcess`] runs the verbs where it is: in the agent itself for development, tests and the
//! demo, in the helper process on a node. There the agent has [`ThroughHelper`], which asks that process. Every verb checks for itself,
//! whatever the caller says, and every verb can be repeated.

pub(crate) mod banner;
mod bus;
mod delivery;
mod firstboot;
pub mod helper;
pub(crate) mod identify;
mod journald;
mod os;
mod probe;
mod reboot;
mod run;
mod unit;

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;

use hwprobe::MachinePart;
use tokio::sync::mpsc::Sender;

use self::bus::Bus;
use crate::handoff::Delivery;
use crate::install::{Installed, OsState};
use crate::join::event::{Event, FirstbootEnd};
use crate::join::fault::{Code, Fault};
use crate::paths::Paths;
use crate::upgrade::Digest;
use crate::upgrade::fault::UpgradeFault;

pub use helper::ThroughHelper;
pub use probe::roots;

/// The answer of a verb.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Fault>> + Send + 'a>>;

/// The answer of a verb about the OS.
pub type OsAnswer<'a, T> = Pin<Box<dyn Future<Output = Result<T, UpgradeFault>> + Send + 'a>>;

/// The verbs. One implementation runs them here, one asks the helper.
pub trait Privileged: Send + Sync {
    /// Reads disks, DMI, processor and memory.
    fn probe(&self) -> Answer<'_, MachinePart>;

    /// Places node.yaml and the bundle, durably, and remembers for which attempt. Gives the digest of what was written.
    fn write_delivery(&self, attempt: Option<u64>, delivery: &Delivery) -> Answer<'_, String>;

    /// Starts firstboot for what was written last, or follows it when this attempt (without one: this digest) was started before, and
    /// answers when it has ended. Meanwhile `events` gets one `FirstbootRunning` and any number of `FirstbootLog`, whose lines are redacted.
    /// `log_cursor` is that of the last `FirstbootLog`; `None` reads from the beginning.
    ///
    /// Started at most once, also when this process is killed at any moment and asks again. Dropping the answer ends the following, not
    /// firstboot.
    fn start_firstboot<'a>(
        &'a self,
        attempt: Option<u64>,
        sha256: &'a str,
        log_cursor: Option<String>,
        events: Sender<Event>,
    ) -> Answer<'a, FirstbootEnd>;

    /// Renders `issue` and `motd` of the snapshot file and writes each whose text changed; with `reload` the login prompts are told
    /// when `issue` changed.
    fn reload_banner(&self, reload: bool) -> Answer<'_, ()>;

    /// Makes the chassis light blink for a minute; `Unsupported` where there is none.
    fn identify_led(&self) -> Answer<'_, ()>;

    /// Reboots into the OS that an upgrade armed in this boot, or out of one that is on trial; refuses otherwise.
    fn reboot(&self) -> Answer<'_, ()>;

    /// Which slot runs, what is armed, what became of the last trial, and whether an OS can be installed here at all.
    fn probe_os(&self) -> OsAnswer<'_, OsState>;

    /// Checks the staged release of this manifest from its signature to its last chunk and writes it to the slot that does not run. The next
    /// start is still that of the running OS. `progress` gets bytes written and bytes in all, at most once a second.
    ///
    /// Dropping the answer ends the work before its next chunk.
    fn write_release<'a>(&'a self, manifest: Digest, progress: Sender<(u64, u64)>)
    -> OsAnswer<'a, Installed>;

    /// Makes the release of this manifest, which was written, the next to start.
    fn arm_release(&self, manifest: Digest) -> OsAnswer<'_, ()>;

    /// Takes that back, whichever it is. Never touches an OS that was confirmed.
    fn disarm_release(&self) -> OsAnswer<'_, ()>;

    /// Confirms the running OS, which is on trial; refuses any other.
    fn bless(&self) -> OsAnswer<'_, ()>;
}

/// How firstboot is run.
#[derive(Debug, Clone)]
pub enum FirstbootRunner {
    /// As the product's unit `stratum-firstboot.service`: a node.
    Unit,
    /// As a child of nobody: `<program> --config <node.yaml>` in a session of its own.
    Command {
        /// The program, by its full path.
        program: PathBuf,
    },
}

/// The verbs in this process.
#[derive(Debug, Clone)]
pub struct InProcess {
    paths: Paths,
    runner: FirstbootRunner,
    boot_id: String,
    probe_tree: Option<PathBuf>,
    snapshot_owner: u32,
    recorded_os: bool,
    #[cfg(test)]
    os_trouble: crate::install::recorded::Trouble,
    #[cfg(test)]
    bus: Option<Bus>,
}

// === impl InProcess ===

impl InProcess {
    /// `boot_id` is the kernel's: what was started in another boot is never started again.
    pub fn new(paths: Paths, runner: FirstbootRunner, boot_id: impl Into<String>) -> Self {
        Self {
            paths,
            runner,
            boot_id: boot_id.into(),
            probe_tree: None,
            snapshot_owner: rustix::process::geteuid().as_raw(),
            recorded_os: false,
            #[cfg(test)]
            os_trouble: crate::install::recorded::Trouble::None,
            #[cfg(test)]
            bus: None,
        }
    }

    /// Probes a captured tree instead of this machine.
    pub fn probing(mut self, tree: Option<PathBuf>) -> Self {
        self.probe_tree = tree;
        self
    }

    /// The agent that writes the snapshot has another uid than we.
    pub fn for_agent(mut self, uid: u32) -> Self {
        self.snapshot_owner = uid;
        self
    }

    /// Installs no OS and restarts nothing: writes down what would be done (`install::recorded`). For development, the demo and tests.
    pub fn with_recorded_os(mut self) -> Self {
        self.recorded_os = true;
        self
    }

    async fn bus(&self) -> Result<Bus, Fault> {
        #[cfg(test)]
        if let Some(bus) = &self.bus {
            return Ok(bus.clone());
        }
        Bus::system().await
    }

    /// File work off the loop's thread: a slow disk must not stop the timers.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        let this = self.clone();
        let done = tokio::task::spawn_blocking(move || work(&this)).await;
        done.unwrap_or_else(|_| Err(Fault::new(Code::Local, "a privileged verb broke off")))
    }
}

impl Privileged for InProcess {
    fn probe(&self) -> Answer<'_, MachinePart> {
        Box::pin(self.blocking(|this| probe::probe(&this.paths, this.probe_tree.as_deref())))
    }

    fn write_delivery(&self, attempt: Option<u64>, delivery: &Delivery) -> Answer<'_, String> {
        let delivery = delivery.clone();
        Box::pin(async move {
            let _lock = delivery::lock(&self.paths).await?;
            if self.firstboot_runs().await? {
                return Err(Fault::new(Code::Local, "firstboot is running: its files are not changed"));
            }
            self.blocking(move |this| this.place(attempt, &delivery)).await
        })
    }

    fn start_firstboot<'a>(
        &'a self,
        attempt: Option<u64>,
        sha256: &'a str,
        log_cursor: Option<String>,
        events: Sender<Event>,
    ) -> Answer<'a, FirstbootEnd> {
        Box::pin(self.start_or_follow(attempt, sha256, log_cursor, events))
    }

    fn reload_banner(&self, reload: bool) -> Answer<'_, ()> {
        Box::pin(self.blocking(move |this| banner::reload(&this.paths, this.snapshot_owner, reload)))
    }

    fn identify_led(&self) -> Answer<'_, ()> {
        Box::pin(self.blink())
    }

    fn reboot(&self) -> Answer<'_, ()> {
        Box::pin(self.reboot_armed())
    }

    fn probe_os(&self) -> OsAnswer<'_, OsState> {
        Box::pin(self.os_probe())
    }

    fn write_release<'a>(
        &'a self,
        manifest: Digest,
        progress: Sender<(u64, u64)>,
    ) -> OsAnswer<'a, Installed> {
        Box::pin(self.os_write(manifest, progress))
    }

    fn arm_release(&self, manifest: Digest) -> OsAnswer<'_, ()> {
        Box::pin(self.os_arm(manifest))
    }

    fn disarm_release(&self) -> OsAnswer<'_, ()> {
        Box::pin(self.os_disarm())
    }

    fn bless(&self) -> OsAnswer<'_, ()> {
        Box::pin(self.os_bless())
    }
}

#[cfg(test)]
#[path = "."]
mod in_process {
    const THROUGH_HELPER: bool = false;
    #[path = "os_tests.rs"]
    mod os_tests;
    #[path = "tests.rs"]
    mod tests;
}

#[cfg(test)]
#[expect(clippy::duplicate_mod, reason = "the same facts must hold whoever does the verbs")]
#[path = "."]
mod through_helper {
    const THROUGH_HELPER: bool = true;
    #[path = "os_tests.rs"]
    mod os_tests;
    #[path = "tests.rs"]
    mod tests;
}
