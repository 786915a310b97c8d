//! Shows the state: snapshot file, banner, `STATUS=`, journal lines, the watchdog. Everything here follows the state and feeds nothing back.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use console::banner;
use console::snapshot::{Level, LogLine, Snapshot, State as Word};
use console::text::Safe;
use sd_notify::NotifyState;
use tokio::sync::mpsc::Sender;
use tokio::time::Instant;

use super::perform::Msg;
use super::turns::{Store, Turns};
use crate::clock;
use crate::config::LogLevel;
use crate::durable_file;
use crate::join::fault::Fault;
use crate::join::notice::Notice;
use crate::join::state::State;
use crate::paths::Paths;
use crate::privileged::{self, Privileged};
use crate::report::{self, Agent, Facts, Machine};
use crate::telemetry::{Context, Message, Priority, Start, Telemetry};

/// Longest gap between two writes while something goes on.
const HEARTBEAT_BUSY: Duration = Duration::from_secs(5);
/// The same while the join waits for a person or its turn. Longer than a poll, whose answer writes the snapshot anyway: so no timer of ours runs
/// out meanwhile (docs/join.md; docs/console.md says what readers make of it).
const HEARTBEAT_QUIET: Duration = Duration::from_secs(55);
/// While a person must act, the login prompts are told again with the first snapshot after this: about once a minute.
const BANNER_AGAIN: Duration = Duration::from_secs(50);
/// Progress is shown at most twice a second.
const PROGRESS_PACE: Duration = Duration::from_millis(500);
/// How long the end of the agent waits for a banner that is being written.
const LAST_BANNER: Duration = Duration::from_secs(2);
/// Lines kept for the log screen.
const LOG_LINES: usize = 100;

pub(super) struct Publisher {
    paths: Paths,
    helper: Arc<dyn Privileged>,
    facts: Facts,
    log: VecDeque<LogLine>,
    /// The last snapshot written, with its time and elapsed figures blanked.
    shown: Option<Snapshot>,
    seq: u64,
    next_write: Option<Instant>,
    last_write: Option<Instant>,
    /// The snapshot cannot be written, which was told.
    failing: bool,
    banner: Banner,
    ready: bool,
    tx: Sender<Msg>,
    telemetry: Telemetry,
}

#[derive(Default)]
struct Banner {
    /// Text of the last reload, without its stamp.
    text: String,
    /// What made the login prompts reload.
    key: String,
    /// When they were asked to.
    reloaded: Option<Instant>,
    busy: bool,
    again: bool,
    /// It cannot be written, which was told.
    failing: bool,
    task: Option<tokio::task::JoinHandle<()>>,
}

// === impl Publisher ===

impl Publisher {
    pub(super) fn new(
        paths: Paths,
        helper: Arc<dyn Privileged>,
        started_mono: u64,
        state: &State,
        tx: Sender<Msg>,
        telemetry: Telemetry,
    ) -> Self {
        let agent = Agent {
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            started_mono,
            restarts: u32::try_from(state.d.starts.len().saturating_sub(1)).unwrap_or(u32::MAX),
        };
        Self {
            paths,
            helper,
            facts: Facts { agent, ..Facts::default() },
            log: VecDeque::new(),
            shown: None,
            seq: 0,
            next_write: None,
            last_write: None,
            failing: false,
            banner: Banner::default(),
            ready: false,
            tx,
            telemetry,
        }
    }

    /// Whether the keys of the console reach this agent: only then are they offered.
    pub(super) fn taking_requests(mut self, takes: bool) -> Self {
        self.facts.control = takes;
        self.facts.light = privileged::identify::is_possible(&self.paths);
        self
    }

    /// What the keys of the console can do now.
    pub(super) fn actions(&self, state: &State) -> console::snapshot::Actions {
        report::actions(state, &self.facts)
    }

    /// One line for journald and for the log screen.
    pub(super) fn say(&mut self, notice: &Notice, state: &State) {
        let told = self.telemetry.say(notice, &context(state, self.seq), clock::now());
        self.keep(told);
    }

    pub(super) fn started(&mut self, state: &State, release: Option<&str>, endpoint: Option<&str>) {
        let start = Start {
            version: self.facts.agent.version,
            release,
            state: state.word().unwrap_or("none"),
            start: u64::from(self.facts.agent.restarts) + 1,
        };
        let context = Context { endpoint, ..context(state, self.seq) };
        let told = self.telemetry.started(&start, &context, clock::now());
        self.keep(Some(told));
    }

    /// The settings were read again.
    pub(super) fn set_level(&self, level: LogLevel) {
        self.telemetry.set_level(level);
    }

    fn keep(&mut self, told: Option<Message>) {
        let Some(message) = told else { return };
        let level = match message.priority {
            Priority::Crit | Priority::Err => Level::Error,
            Priority::Warning => Level::Warn,
            Priority::Notice | Priority::Info => Level::Info,
        };
        let at = Safe::clean(report::rfc3339(clock::wall_ms()));
        self.log.push_back(LogLine { at, level, text: Safe::clean(message.text) });
        if self.log.len() > LOG_LINES {
            self.log.pop_front();
        }
    }

    /// The request on disk cannot be used; the present one goes on.
    pub(super) fn request_fault(&mut self, fault: &Fault, state: &State) {
        let notice = Notice::Fault {
            doing: "reading the join request",
            fault: Box::new(fault.clone()),
            retry_ms: None,
            attempt: 1,
        };
        self.say(&notice, state);
        self.facts.request_fault = Some(fault.clone());
    }

    /// The request on disk could be read, or there is none.
    pub(super) fn request_read(&mut self) {
        self.facts.request_fault = None;
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.next_write
    }

    /// Writes the snapshot when what it shows changed or its heartbeat is due, and lets banner and `STATUS=` follow.
    pub(super) fn publish<S: Store>(&mut self, turns: &Turns<S>, machine: &Machine) {
        let now = Instant::now();
        let state = turns.state();
        self.facts.journal_fault = turns.fault().cloned();
        let due = self.next_write.is_none_or(|at| at <= now);
        let snapshot = self.snapshot(state, machine);
        let content = content_of(&snapshot);
        let changed = self.shown.as_ref() != Some(&content);
        if !changed && !due {
            return;
        }
        if changed && !due {
            let same_state = self.shown.as_ref().is_some_and(|old| is_progress_only(old, &content));
            let early = self.last_write.is_some_and(|at| now < at + PROGRESS_PACE);
            if same_state && early {
                self.next_write = self.last_write.map(|at| at + PROGRESS_PACE);
                return;
            }
        }
        if changed {
            self.seq += 1;
        }
        self.write(snapshot, content, now);
    }

    /// The final snapshot of a joined agent, with everything that follows it done before the process ends.
    pub(super) async fn last_words<S: Store>(&mut self, turns: &Turns<S>, machine: &Machine) {
        let mut snapshot = self.snapshot(turns.state(), machine);
        snapshot.actions = console::snapshot::Actions::default();
        let content = content_of(&snapshot);
        self.write(snapshot, content, Instant::now());
        // One that is being written may be of an older snapshot: it must not come last.
        if let Some(task) = self.banner.task.take() {
            let _ = tokio::time::timeout(LAST_BANNER, task).await;
        }
        if let Err(fault) = self.helper.reload_banner(true).await {
            tracing::warn!("the login banner could not be written: {}", fault.chain);
        }
    }

    fn snapshot(&mut self, state: &State, machine: &Machine) -> Snapshot {
        self.facts.machine = machine.clone();
        self.facts.log = self.log.iter().cloned().collect();
        let quiet = matches!(
            state.phase(),
            crate::join::state::Phase::Pending
                | crate::join::state::Phase::Approved
                | crate::join::state::Phase::Failed
                | crate::join::state::Phase::NoRequest
                | crate::join::state::Phase::Rejected
                | crate::join::state::Phase::Expired
                | crate::join::state::Phase::Refused
                | crate::join::state::Phase::IdentityFailed
                | crate::join::state::Phase::Unknown
        );
        let heartbeat = if quiet { HEARTBEAT_QUIET } else { HEARTBEAT_BUSY };
        self.facts.heartbeat_ms = u64::try_from(heartbeat.as_millis()).unwrap_or(5_000);
        self.facts.synced = crate::diagnosis::synced(&self.paths);
        report::snapshot(state, &self.facts, clock::now(), self.seq)
    }

    fn write(&mut self, mut snapshot: Snapshot, content: Snapshot, now: Instant) {
        snapshot.seq = self.seq;
        let bytes = snapshot.encode();
        if let Err(error) =
            durable_file::write_volatile(&self.paths.snapshot(), &bytes, 0o644, "snapshot-write")
        {
            if !std::mem::replace(&mut self.failing, true) {
                tracing::warn!("{error}; what is shown is out of date until this works again");
            }
        } else {
            self.failing = false;
        }
        self.last_write = Some(now);
        self.next_write = Some(now + Duration::from_millis(snapshot.heartbeat_ms));
        let status = banner::status_line(&snapshot);
        let mut states = vec![NotifyState::Status(&status), NotifyState::Watchdog];
        if !self.ready {
            self.ready = true;
            states.push(NotifyState::Ready);
        }
        let _ = sd_notify::notify(&states);
        self.follow_banner(&snapshot);
        self.shown = Some(content);
    }

    /// Asks for the banner when its text changed: with a reload of the prompts for a new state, code, address or fault. And once a
    /// minute while a person must act: Enter at a prompt repeats `login:` alone, so who comes late to a serial line would never see the code.
    fn follow_banner(&mut self, snapshot: &Snapshot) {
        let text = banner::unstamped(snapshot);
        let fault = snapshot.fault.as_ref().map_or("", |f| f.code.as_str());
        let code = snapshot.pairing_code.as_ref().map_or("", |c| c.as_str());
        let address =
            snapshot.network.primary.as_ref().and_then(|n| n.address.as_ref()).map_or("", |a| a.as_str());
        let key = format!("{} {code} {address} {fault}", snapshot.state);
        let again = snapshot.state.needs_person()
            && self.banner.reloaded.is_none_or(|at| at.elapsed() >= BANNER_AGAIN);
        if text == self.banner.text && !again {
            return;
        }
        if self.banner.busy {
            self.banner.again = true;
            return;
        }
        let reload = key != self.banner.key || again;
        if reload {
            self.banner.reloaded = Some(Instant::now());
        }
        self.banner.text = text;
        self.banner.key = key;
        self.banner.busy = true;
        let (helper, tx) = (self.helper.clone(), self.tx.clone());
        #[expect(clippy::disallowed_methods, reason = "the driver's own task; it answers with BannerDone")]
        let task = tokio::spawn(async move {
            let done = helper.reload_banner(reload).await;
            let _ = tx.send(Msg::BannerDone(done)).await;
        });
        self.banner.task = Some(task);
    }

    pub(super) fn banner_done(&mut self, result: Result<(), Fault>) {
        self.banner.busy = false;
        match result {
            Ok(()) => self.banner.failing = false,
            Err(fault) => {
                // Tried again with the next snapshot: an old banner names an old state.
                self.banner.text.clear();
                self.banner.key.clear();
                if !std::mem::replace(&mut self.banner.failing, true) {
                    tracing::warn!("the login banner could not be written: {}", fault.chain);
                }
            }
        }
        if std::mem::take(&mut self.banner.again) {
            // The text moved on meanwhile: write once more with the next publish.
            self.next_write = Some(Instant::now());
        }
    }
}

/// What stands beside every line of journald.
fn context(state: &State, seq: u64) -> Context<'_> {
    let record = state.d.registration.as_ref();
    Context {
        seq,
        join_id: record.map(|r| r.join_id.as_str()),
        pairing: record.map(|r| r.pairing_code.as_str()),
        endpoint: state.v.request.as_ref().map(|r| r.endpoint.as_str()),
    }
}

/// The snapshot without what changes by itself with time.
fn content_of(snapshot: &Snapshot) -> Snapshot {
    let mut content = snapshot.clone();
    content.seq = 0;
    content.written_at = Safe::clean("");
    content.written_mono = 0;
    for step in &mut content.steps {
        step.elapsed_ms = None;
    }
    content
}

/// Only figures moved: steps and their last line in the same state.
fn is_progress_only(old: &Snapshot, new: &Snapshot) -> bool {
    old.state == new.state
        && new.state == Word::Installing
        && old.fault == new.fault
        && old.headline == new.headline
        && old.pairing_code == new.pairing_code
}
