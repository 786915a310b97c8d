//! systemd and logind over D-Bus: start one unit, see how it stands, hold a shutdown up, reboot.
//!
//! Touches the system bus. Knows one unit's name and no other; who calls gives no text that reaches the bus.
//! Interfaces: org.freedesktop.systemd1(5), org.freedesktop.login1(5).

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};
use zbus::export::futures_core::Stream;
use zbus::fdo::PropertiesProxy;
use zbus::names::InterfaceName;
use zbus::{Connection, OwnedFd, OwnedObjectPath, OwnedVariant};

use crate::join::fault::{Code, Fault};

/// The product's unit that runs firstboot (docs/firstboot.md).
pub(super) const FIRSTBOOT: &str = "stratum-firstboot.service";

/// Longest wait for an answer of systemd or logind.
const ANSWER: Duration = Duration::from_secs(20);
/// Longest wait until a started unit is seen to have been started.
const STARTED: Duration = Duration::from_secs(60);
/// How often the unit is looked at when no signal says that something changed: a lost signal costs this much.
const LOOK: Duration = Duration::from_secs(2);

#[zbus::proxy(
    interface = "org.freedesktop.systemd1.Manager",
    default_service = "org.freedesktop.systemd1",
    default_path = "/org/freedesktop/systemd1"
)]
trait Manager {
    fn subscribe(&self) -> zbus::Result<()>;
    fn load_unit(&self, name: &str) -> zbus::Result<OwnedObjectPath>;
    fn start_unit(&self, name: &str, mode: &str) -> zbus::Result<OwnedObjectPath>;
    fn stop_unit(&self, name: &str, mode: &str) -> zbus::Result<OwnedObjectPath>;
    #[zbus(signal)]
    fn job_removed(&self, id: u32, job: OwnedObjectPath, unit: String, result: String) -> zbus::Result<()>;
}

#[zbus::proxy(
    interface = "org.freedesktop.login1.Manager",
    default_service = "org.freedesktop.login1",
    default_path = "/org/freedesktop/login1"
)]
trait Login {
    fn inhibit(&self, what: &str, who: &str, why: &str, mode: &str) -> zbus::Result<OwnedFd>;
    fn reboot(&self, interactive: bool) -> zbus::Result<()>;
}

/// A connection to the bus that systemd and logind are on.
#[derive(Debug, Clone)]
pub(super) struct Bus {
    connection: Connection,
}

/// While it lives the machine is not powered off or rebooted without force.
pub(super) struct Inhibitor(#[allow(dead_code, reason = "closing it is its one use")] OwnedFd);

/// How the unit stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct UnitState {
    /// `LoadState`: `loaded`, `not-found`, `masked`...
    pub(super) load: String,
    /// `ActiveState`.
    pub(super) active: String,
    /// `SubState`.
    pub(super) sub: String,
    /// `InvocationID` in hex; empty when it was never started.
    pub(super) invocation: String,
    /// `Result` of the last run: `success`, `exit-code`, `signal`...
    pub(super) result: String,
    /// `ExecMainStatus`: exit status, or signal number.
    pub(super) status: i32,
    /// `RemainAfterExit`.
    pub(super) remains: bool,
    /// systemd still has to start or to stop it: a job of it waits, or is at work.
    pub(super) has_job: bool,
}

// === impl UnitState ===

impl UnitState {
    /// Whether its program runs, or is being started or stopped.
    pub(super) fn is_running(&self) -> bool {
        match self.active.as_str() {
            "active" => self.sub != "exited",
            "activating" | "deactivating" | "reloading" | "refreshing" => true,
            _ => false,
        }
    }
}

// === impl Bus ===

impl Bus {
    /// The machine's own bus.
    pub(super) async fn system() -> Result<Self, Fault> {
        let connection = timeout(ANSWER, Connection::system()).await;
        let connection = connection.map_err(|_| late("the system bus"))?;
        Ok(Self { connection: connection.map_err(|error| failed("connecting to the system bus", &error))? })
    }

    /// Another connection: the tests'.
    #[cfg(test)]
    pub(super) fn over(connection: Connection) -> Self {
        Self { connection }
    }

    async fn manager(&self) -> Result<ManagerProxy<'static>, Fault> {
        ManagerProxy::new(&self.connection).await.map_err(|error| failed("asking systemd", &error))
    }

    /// How firstboot's unit stands now.
    pub(super) async fn firstboot(&self) -> Result<UnitState, Fault> {
        let ask = async {
            let path = self.manager().await?.load_unit(FIRSTBOOT).await;
            let path =
                path.map_err(|error| failed("asking systemd for stratum-firstboot.service", &error))?;
            self.state(path).await
        };
        timeout(ANSWER, ask).await.unwrap_or_else(|_| Err(late("systemd")))
    }

    async fn state(&self, path: OwnedObjectPath) -> Result<UnitState, Fault> {
        let wrong = |error: zbus::Error| failed("reading the state of stratum-firstboot.service", &error);
        let properties = self.properties(path).await.map_err(wrong)?;
        let of = async |interface: &'static str| {
            let name = InterfaceName::try_from(interface)?;
            properties.get_all(name).await.map_err(zbus::Error::from)
        };
        let mut unit = of("org.freedesktop.systemd1.Unit").await.map_err(wrong)?;
        let mut service = of("org.freedesktop.systemd1.Service").await.map_err(wrong)?;
        let id: Vec<u8> = take(&mut unit, "InvocationID").unwrap_or_default();
        let job: Option<(u32, OwnedObjectPath)> = take(&mut unit, "Job");
        Ok(UnitState {
            load: take(&mut unit, "LoadState").unwrap_or_default(),
            active: take(&mut unit, "ActiveState").unwrap_or_default(),
            sub: take(&mut unit, "SubState").unwrap_or_default(),
            invocation: data_encoding::HEXLOWER.encode(&id),
            result: take(&mut service, "Result").unwrap_or_default(),
            status: take(&mut service, "ExecMainStatus").unwrap_or_default(),
            remains: take(&mut service, "RemainAfterExit").unwrap_or_default(),
            has_job: job.is_some_and(|(id, _)| id != 0),
        })
    }

    async fn properties(&self, path: OwnedObjectPath) -> zbus::Result<PropertiesProxy<'static>> {
        PropertiesProxy::builder(&self.connection)
            .destination("org.freedesktop.systemd1")
            .path(path)
            .build()
            .await
    }

    /// Starts firstboot's unit; gives the invocation that is not `before`, as soon as there is one. A unit that has run and remains is
    /// stopped first: to systemd it counts as started.
    pub(super) async fn start_firstboot(&self, before: &UnitState) -> Result<String, Fault> {
        let manager = self.manager().await?;
        let wrong = |error: zbus::Error| failed("starting stratum-firstboot.service", &error);
        let start = async {
            subscribe(&manager).await.map_err(wrong)?;
            // Before the job: its end may come before the answer to the call that made it.
            let mut removed = manager.receive_job_removed().await.map_err(wrong)?;
            if before.active == "active" {
                let job = manager.stop_unit(FIRSTBOOT, "replace").await.map_err(wrong)?;
                while ended(&mut removed, &job).await.map_err(wrong)?.is_none() {}
            }
            let job = manager.start_unit(FIRSTBOOT, "replace").await.map_err(wrong)?;
            let until = Instant::now() + STARTED;
            loop {
                // A unit of Type=oneshot has its job until firstboot ends; that it runs is enough.
                let now = self.firstboot().await?;
                if now.invocation != before.invocation && !now.invocation.is_empty() {
                    return Ok(now.invocation);
                }
                let look = (Instant::now() + Duration::from_millis(200)).min(until);
                let result = match timeout_at(look, ended(&mut removed, &job)).await {
                    Ok(result) => result.map_err(wrong)?,
                    Err(_) if Instant::now() >= until => return Err(not_started()),
                    Err(_) => None,
                };
                if let Some(result) = result {
                    let now = self.firstboot().await?;
                    if now.invocation != before.invocation && !now.invocation.is_empty() {
                        return Ok(now.invocation);
                    }
                    let detail = match result.as_str() {
                        "done" | "skipped" => {
                            "systemd did not start stratum-firstboot.service: a condition of the unit does not hold"
                                .to_owned()
                        }
                        other => format!("systemd could not start stratum-firstboot.service: {other}"),
                    };
                    return Err(Fault::new(Code::Local, detail));
                }
            }
        };
        timeout(STARTED + ANSWER, start).await.unwrap_or_else(|_| Err(not_started()))
    }

    /// Gives the state of firstboot's unit whenever it may have changed.
    pub(super) async fn watch_firstboot(&self) -> Result<Watch, Fault> {
        let wrong = |error: zbus::Error| failed("following stratum-firstboot.service", &error);
        let manager = self.manager().await?;
        let begin = async {
            subscribe(&manager).await.map_err(wrong)?;
            let path = manager.load_unit(FIRSTBOOT).await.map_err(wrong)?;
            let properties = self.properties(path).await.map_err(wrong)?;
            let changes = properties.receive_properties_changed().await.map_err(wrong)?;
            Ok(Watch { bus: self.clone(), changes: Box::pin(changes), unseen: true })
        };
        timeout(ANSWER, begin).await.unwrap_or_else(|_| Err(late("systemd")))
    }

    /// Holds a shutdown up for as long as the answer lives (org.freedesktop.login1(5), `Inhibit`, mode `block`).
    pub(super) async fn inhibit(&self, why: &str) -> Result<Inhibitor, Fault> {
        let ask = async {
            let login = LoginProxy::new(&self.connection).await?;
            login.inhibit("shutdown", "Stratum join", why, "block").await
        };
        let fd = timeout(ANSWER, ask).await.map_err(|_| late("logind"))?;
        fd.map(Inhibitor).map_err(|error| failed("asking logind to hold a shutdown up", &error))
    }

    /// Reboots the machine.
    pub(super) async fn reboot(&self) -> Result<(), Fault> {
        let ask = async { LoginProxy::new(&self.connection).await?.reboot(false).await };
        let done = timeout(ANSWER, ask).await.map_err(|_| late("logind"))?;
        done.map_err(|error| failed("asking logind for a reboot", &error))
    }
}

/// Follows firstboot's unit.
pub(super) struct Watch {
    bus: Bus,
    changes: Pin<Box<zbus::fdo::PropertiesChangedStream>>,
    /// Something may have changed since the last state that was given.
    unseen: bool,
}

// === impl Watch ===

impl Watch {
    /// The state: at once the first time, then when something changed or [`LOOK`] has passed. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<UnitState, Fault> {
        if !self.unseen {
            let _ = timeout(LOOK, poll_fn(|cx| self.changes.as_mut().poll_next(cx))).await;
        }
        self.unseen = true;
        let state = self.bus.firstboot().await;
        self.unseen = false;
        state
    }
}

// === private ===

/// systemd sends no signal to who has not asked for them. Who has already, is told so as an error.
async fn subscribe(manager: &ManagerProxy<'_>) -> zbus::Result<()> {
    match manager.subscribe().await {
        Err(zbus::Error::MethodError(name, ..)) if name.ends_with(".AlreadySubscribed") => Ok(()),
        other => other,
    }
}

/// The next removed job: its result when it is `job`.
async fn ended(removed: &mut JobRemovedStream, job: &OwnedObjectPath) -> zbus::Result<Option<String>> {
    let signal = poll_fn(|cx| Pin::new(&mut *removed).poll_next(cx)).await;
    let Some(signal) = signal else { return Err(zbus::Error::Failure("the bus is gone".to_owned())) };
    let args = signal.args()?;
    Ok((args.job() == job).then(|| args.result().clone()))
}

fn take<T: TryFrom<OwnedVariant>>(properties: &mut HashMap<String, OwnedVariant>, name: &str) -> Option<T> {
    T::try_from(properties.remove(name)?).ok()
}

fn failed(doing: &str, error: &zbus::Error) -> Fault {
    Fault::new(Code::Local, format!("{doing}: {error}"))
}

/// Its job stays: whoever asks again finds it, or what it started.
fn not_started() -> Fault {
    let detail =
        format!("systemd did not start {FIRSTBOOT} in time: systemctl list-jobs shows what it waits for");
    Fault::new(Code::Local, detail)
}

fn late(who: &str) -> Fault {
    Fault::new(Code::Local, format!("{who} does not answer"))
}
