//! The one loop: next event -> `join::step` -> journal -> effects. It decides nothing.
//!
//! Owns the tasks, the timers and the ports. Everything it does to the world is an effect that the core asked for, except what shows the
//! state: snapshot, banner, `STATUS=`.

mod perform;
mod publish;
mod turns;
mod upgrade;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

pub use perform::release;
pub use turns::{Store, Turns};
pub use upgrade::may_upgrade;

use self::perform::{Msg, Performer};
use self::publish::Publisher;
use crate::clock;
use crate::config::{ConfigError, Settings};
use crate::control::{self, Asked, Op};
use crate::durable_file::{self, FileError, Lock};
use crate::faults::{When, point};
use crate::handoff::progress::{ProgressSocket, Senders};
use crate::join::event::Event;
use crate::join::fault::{Code, Fault};
use crate::join::notice::Notice;
use crate::join::state::{Durable, Env};
use crate::journal::{Found, Journal, JournalError};
use crate::paths::Paths;
use crate::privileged::{FirstbootRunner, InProcess, Privileged, ThroughHelper};
use crate::request::JoinRequest;
use crate::telemetry::Telemetry;

/// How one agent is run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where everything lies.
    pub paths: Paths,
    /// The firstboot program that the in-process verbs start. `None`: the helper process does the verbs, and this one has no privilege.
    pub firstboot: Option<PathBuf>,
    /// A captured tree to probe instead of this machine.
    pub probe_root: Option<PathBuf>,
    /// The in-process verbs only write down which OS they would install.
    pub recorded_os: bool,
}

/// Why the agent cannot run at all.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// A directory or the lock.
    #[error(transparent)]
    File(#[from] FileError),
    /// The settings.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The journal is there and must not be touched.
    #[error("the journal cannot be used")]
    Journal(#[from] JournalError),
    /// firstboot's progress could not be heard.
    #[error(transparent)]
    Progress(#[from] crate::handoff::progress::SocketError),
    /// The kernel's notification of changes.
    #[error("cannot watch the join request and the hardware")]
    Watch(#[source] std::io::Error),
    /// No boot id.
    #[error("the kernel's boot id cannot be read")]
    BootId,
}

/// Runs the agent until it has joined.
pub async fn run(options: Options, telemetry: Telemetry) -> Result<(), AgentError> {
    let started_ms = clock::boot_ms();
    let paths = &options.paths;
    for (dir, mode) in [(paths.state_dir(), 0o700), (paths.public_dir(), 0o755)] {
        durable_file::make_dir(&dir, mode)?;
    }
    let _lock = take_lock(&paths.agent_lock()).await?;
    durable_file::sweep(&paths.state_dir())?;
    durable_file::sweep_of(&paths.snapshot())?;
    let settings = Settings::load(paths)?;
    telemetry.set_level(settings.log);
    let boot_id = boot_id().ok_or(AgentError::BootId)?;

    let journal = Journal::at(paths.journal());
    let mut early = Vec::new();
    let durable = match journal.load()? {
        Found::Good(durable) => *durable,
        Found::Absent => Durable::default(),
        Found::Bad { why, kept_as } => {
            early.push(Notice::Security(console::text::Safe::clean(format!(
                "the journal cannot be used ({why}); it is kept as {} and the join starts anew",
                kept_as.display()
            ))));
            Durable::default()
        }
    };
    let marked_joined = matches!(durable_file::read_own(&paths.joined_marker(), 16), Ok(Some(_)));
    let env = Env {
        boot_id: boot_id.clone(),
        poll_wait: settings.poll_wait_seconds,
        require_pin: settings.require_pin,
        marked_joined,
        may_upgrade: upgrade::may_upgrade(paths, &settings.upgrade),
    };

    let (tx, rx) = mpsc::channel(64);
    watch::request(&paths.state_dir(), tx.clone()).map_err(AgentError::Watch)?;
    // Below a temporary root the hardware is another machine's, or a captured tree's.
    if paths.is_system() {
        watch::hardware(tx.clone()).map_err(AgentError::Watch)?;
    }
    let senders = if paths.is_system() { Senders::Root } else { Senders::RootAndSelf };
    let progress = ProgressSocket::bind(&paths.progress_socket(), senders)?;
    let helper: Arc<dyn Privileged> = match options.firstboot.clone() {
        None => Arc::new(ThroughHelper::at(paths.helper_socket())),
        Some(program) => {
            let verbs = InProcess::new(paths.clone(), FirstbootRunner::Command { program }, boot_id.clone())
                .probing(options.probe_root.clone());
            Arc::new(if options.recorded_os { verbs.with_recorded_os() } else { verbs })
        }
    };

    let control = control_socket(paths, tx.clone());
    let (turns, effects) = Turns::begin(durable, env, clock::now(), JournalStore(journal));
    let publisher =
        Publisher::new(paths.clone(), helper.clone(), started_ms, turns.state(), tx.clone(), telemetry)
            .taking_requests(control);
    let performer = Performer::new(options.clone(), helper, boot_id, settings.upgrade, tx);
    let mut driver = Driver { turns, performer, publisher, progress, rx, retry_journal: None };
    for notice in early {
        driver.publisher.say(&notice, driver.turns.state());
    }
    let release = perform::release(&options.paths);
    let saved = JoinRequest::load(&options.paths).ok().flatten().map(|r| r.endpoint.to_string());
    driver.publisher.started(driver.turns.state(), release.as_deref(), saved.as_deref());
    driver.perform(effects);
    driver.read_request();
    driver.serve().await;
    Ok(())
}

/// The agent's lock. An agent that was killed while it started a program leaves a child that holds the lock until it is that program: a
/// moment, and no other agent.
async fn take_lock(path: &Path) -> Result<Lock, FileError> {
    let until = Instant::now() + Duration::from_secs(1);
    loop {
        match Lock::take(path) {
            Err(FileError::Owned { pid, .. }) if !is_alive(&pid) && Instant::now() < until => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            taken => return taken,
        }
    }
}

fn is_alive(pid: &str) -> bool {
    let pid = pid.parse().ok().and_then(rustix::process::Pid::from_raw);
    let gone = |pid| matches!(rustix::process::test_kill_process(pid), Err(rustix::io::Errno::SRCH));
    pid.is_none_or(|pid| !gone(pid))
}

/// The journal as the turns' store.
struct JournalStore(Journal);

impl Store for JournalStore {
    fn store(&mut self, durable: &Durable, point: &'static str) -> Result<(), Fault> {
        self.0.store(durable, point).map_err(|error| match &error {
            JournalError::File(file) => file.fault(),
            JournalError::Encode(_) => Fault::from_error(Code::Local, &error),
        })
    }
}

struct Driver {
    turns: Turns<JournalStore>,
    performer: Performer,
    publisher: Publisher,
    progress: ProgressSocket,
    rx: mpsc::Receiver<Msg>,
    /// When to try the journal again.
    retry_journal: Option<Instant>,
}

impl Driver {
    async fn serve(&mut self) {
        let mut hangup = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).ok();
        loop {
            self.publisher.publish(&self.turns, self.performer.machine());
            if self.performer.exiting() {
                point("exit", When::Before);
                self.publisher.last_words(&self.turns, self.performer.machine()).await;
                point("exit", When::After);
                return;
            }
            let wake = [self.performer.deadline(), self.publisher.deadline(), self.retry_journal];
            let wake =
                wake.into_iter().flatten().min().unwrap_or_else(|| Instant::now() + Duration::from_secs(60));
            tokio::select! {
                msg = self.rx.recv() => if let Some(msg) = msg { self.message(msg).await },
                report = self.progress.recv() => match report {
                    Ok(report) => self.feed(Event::FirstbootStep(self.performer.clean_report(report))),
                    Err(error) => tracing::warn!("the progress socket failed: {error}"),
                },
                () = sleep_until(wake) => self.timers(),
                Some(()) = hung_up(&mut hangup) => self.read_settings(),
            }
            // What is already there belongs to the same change: it is shown once.
            while let Ok(msg) = self.rx.try_recv() {
                self.message(msg).await;
            }
        }
    }

    async fn message(&mut self, msg: Msg) {
        match msg {
            Msg::RequestChanged => return self.read_request(),
            Msg::BannerDone(result) => return self.publisher.banner_done(result),
            Msg::Asked(asked) => return self.asked(asked),
            _ => {}
        }
        if matches!(&msg, Msg::Event(Event::FirstbootEnded(_))) {
            // Its last reports may still be in the socket.
            while let Ok(Ok(report)) = timeout(Duration::from_millis(20), self.progress.recv()).await {
                let report = self.performer.clean_report(report);
                self.feed(Event::FirstbootStep(report));
            }
        }
        for event in self.performer.understand(msg) {
            self.feed(event);
        }
    }

    fn feed(&mut self, event: Event) {
        let effects = self.turns.feed(event, clock::now());
        self.perform(effects);
    }

    fn perform(&mut self, effects: Vec<crate::join::effect::Effect>) {
        if self.turns.fault().is_some() {
            self.retry_journal.get_or_insert_with(|| Instant::now() + Duration::from_secs(2));
        } else {
            self.retry_journal = None;
        }
        let mut later = Vec::new();
        for effect in effects {
            if let crate::join::effect::Effect::Say(notice) = &effect {
                self.publisher.say(notice, self.turns.state());
            } else {
                later.extend(self.performer.start(effect, self.turns.state()));
            }
        }
        later.extend(self.turns.outdated());
        for event in later {
            self.feed(event);
        }
    }

    fn timers(&mut self) {
        for timer in self.performer.due() {
            self.feed(Event::Timer(timer));
        }
        if self.retry_journal.is_some_and(|at| at <= Instant::now()) {
            self.retry_journal = None;
            let effects = self.turns.write_again();
            self.perform(effects);
        }
    }

    fn read_request(&mut self) {
        match JoinRequest::load(self.performer.paths()) {
            Ok(request) => {
                self.publisher.request_read();
                let view = request.as_ref().map(JoinRequest::view);
                self.performer.set_request(request);
                self.feed(Event::Request(view));
            }
            Err(error) => {
                let fault = Fault::from(error);
                self.publisher.request_fault(&fault, self.turns.state());
            }
        }
    }

    /// A key of the console.
    fn asked(&mut self, asked: Asked) {
        let actions = self.publisher.actions(self.turns.state());
        match asked.op {
            Op::Retry if actions.retry => {
                asked.answer(Ok(()));
                self.feed(Event::Retry);
            }
            // One that is under way is the answer too.
            Op::Check if actions.check => {
                asked.answer(Ok(()));
                self.feed(Event::Check);
            }
            Op::Identify if actions.identify => self.performer.identify(asked),
            Op::Retry | Op::Check | Op::Identify => asked.answer(Err("not now".to_owned())),
        }
    }

    fn read_settings(&mut self) {
        match Settings::load(self.performer.paths()) {
            Ok(settings) => {
                self.turns.set(settings.poll_wait_seconds, settings.require_pin);
                let may = upgrade::may_upgrade(self.performer.paths(), &settings.upgrade);
                self.feed(Event::MayUpgrade(may));
                self.performer.set_upgrade(settings.upgrade.clone());
                self.publisher.set_level(settings.log);
            }
            Err(error) => tracing::warn!("the settings are not taken: {error}"),
        }
    }
}

/// Starts to listen for the keys of the console; whether that works. A join does not need it.
fn control_socket(paths: &Paths, tx: mpsc::Sender<Msg>) -> bool {
    let listener = match control::from_systemd() {
        Ok(None) if !paths.is_system() => control::bind(&paths.control_socket()).map(Some),
        given => given,
    };
    match listener {
        Ok(Some(listener)) => {
            #[expect(clippy::disallowed_methods, reason = "the driver's own task; it ends with the driver")]
            tokio::spawn(control::serve(listener, tx));
            true
        }
        // Started by hand on a node, without its socket unit.
        Ok(None) => false,
        Err(error) => {
            tracing::warn!("the keys of the console do nothing: no control socket: {error}");
            false
        }
    }
}

async fn hung_up(hangup: &mut Option<tokio::signal::unix::Signal>) -> Option<()> {
    match hangup {
        Some(hangup) => hangup.recv().await,
        None => std::future::pending().await,
    }
}

/// The kernel's boot id, 36 characters. Inside the unit's sandbox `/proc/sys` is hidden; there systemd gives it as `STRATUM_BOOT_ID`, 32 hex
/// digits.
pub fn boot_id() -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "set by our own unit (STRATUM_BOOT_ID=%b); not a setting")]
    let given = std::env::var("STRATUM_BOOT_ID").ok();
    if let Some(id) = given {
        let hex: String = id.chars().filter(char::is_ascii_hexdigit).collect();
        if hex.len() == 32 {
            let hex = hex.to_ascii_lowercase();
            return Some(format!(
                "{}-{}-{}-{}-{}",
                &hex[..8],
                &hex[8..12],
                &hex[12..16],
                &hex[16..20],
                &hex[20..]
            ));
        }
    }
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let id = text.trim().to_ascii_lowercase();
    (id.len() == 36).then_some(id)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::process::{Command, Stdio};

    use super::*;

    #[tokio::test]
    async fn a_lock_held_on_behalf_of_a_dead_agent_is_waited_for_and_a_living_one_is_named_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = Lock::take(&path).unwrap();
        let began = Instant::now();
        let error = take_lock(&path).await.unwrap_err();
        assert!(error.to_string().contains(&format!("(pid {})", std::process::id())), "{error}");
        assert!(began.elapsed() < Duration::from_secs(1));

        // The file names a process that is gone; the lock is still held, and then no more.
        let mut gone = Command::new("true").stdout(Stdio::null()).spawn().unwrap();
        gone.wait().unwrap();
        durable_file::write(&path, format!("{}\n", gone.id()).as_bytes(), 0o600, "test").unwrap();
        drop(held);
        let other = std::fs::File::open(&path).unwrap();
        rustix::fs::flock(&other, rustix::fs::FlockOperation::LockExclusive).unwrap();
        let (taken, ()) = tokio::join!(take_lock(&path), async {
            tokio::time::sleep(Duration::from_millis(30)).await;
            drop(other);
        });
        assert!(taken.is_ok());
    }
}
