//! firstboot as a unit of systemd: started at most once for an attempt, followed to its end.
//!
//! Touches the run's small files, the bus, `journalctl`. Must never start a unit for a second time for one attempt, whatever is killed when.
//!
//! | File in `/run/stratum/firstboot/<key>/` | Written | Means |
//! |---|---|---|
//! | `before` | first | the unit's invocation at that time |
//! | `started.json` | before the start | this attempt may have been started from now on; in which boot |
//! | `invocation` | after the start | the invocation that is ours |
//! | `end` | when it is seen | how it ended: told again whoever asks, whatever became of the unit |
//!
//! **Why a start may be repeated.** Who is killed between `started.json` and `invocation` does not know whether systemd was asked. systemd
//! does: an invocation that is still that of `before` is no start of ours. The unit has to keep its state for that
//! (`RemainAfterExit=yes`, docs/firstboot.md), and one that does not is refused.

use console::text::Safe;
use tokio::sync::mpsc::Sender;

use super::InProcess;
use super::bus::{Bus, FIRSTBOOT, UnitState};
use super::delivery;
use super::firstboot::other_runs;
use super::journald::UnitLog;
use super::run::Run;
use crate::durable_file;
use crate::faults::{When, point};
use crate::join::event::{Event, FirstbootEnd};
use crate::join::fault::{Code, Fault};

/// What a logged-in person is told who tries to power the machine off.
const WHY_NOT: &str = "this machine is being installed as a node of a cluster";
/// How often in a row systemd may fail to answer who follows: it is away for a moment when it runs itself anew (`systemctl daemon-reexec`),
/// which an upgrade of its package does, also one by firstboot.
const UNANSWERED: u32 = 3;
const DONE: &str = "done";
const FAILED: &str = "failed: ";

// === impl InProcess ===

impl InProcess {
    pub(super) async fn start_or_follow_unit(
        &self,
        attempt: Option<u64>,
        sha256: &str,
        log_cursor: Option<String>,
        events: Sender<Event>,
    ) -> Result<FirstbootEnd, Fault> {
        point("firstboot-start", When::Before);
        let run = Run::of(&self.paths, attempt, sha256);
        let bus = self.bus().await?;
        // Before the start: a machine that is told to power off meanwhile finishes that, and starts nothing.
        let inhibitor = bus.inhibit(WHY_NOT).await;
        if let Err(fault) = &inhibitor {
            tracing::warn!("a shutdown would not wait for the install: {}", fault.chain);
        }
        let lock = delivery::lock(&self.paths).await?;
        let started = self.started_unit(&run, &bus, attempt, sha256).await?;
        drop(lock);
        let invocation = match started {
            Started::As(invocation) => invocation,
            Started::Lost => return Ok(FirstbootEnd::Lost),
        };
        point("firstboot-start", When::After);
        let _ = events.send(Event::FirstbootRunning).await;
        let mut log = UnitLog::new(&invocation, log_cursor, self.redactor(sha256).await?);
        let end = match run.note("end")? {
            Some(text) => end_from(&text),
            None => follow(&bus, &invocation, &mut log, &events).await?,
        };
        // Before its last lines, which may take a while: what systemd still knows now, nobody may after that.
        run.write_note("end", &end_as_text(&end))?;
        log.rest(&events).await;
        self.ended(&end, attempt, sha256).await?;
        Ok(end)
    }

    /// Under the lock: the invocation of this attempt, started now if it never was.
    async fn started_unit(
        &self,
        run: &Run,
        bus: &Bus,
        attempt: Option<u64>,
        sha256: &str,
    ) -> Result<Started, Fault> {
        let known = run.started()?;
        if let Some(started) = &known {
            if started.boot_id != self.boot_id {
                return Ok(Started::Lost);
            }
            if let Some(invocation) = run.note("invocation")? {
                return Ok(Started::As(invocation));
            }
        }
        let now = bus.firstboot().await?;
        if known.is_some() {
            let before = run.note("before")?.unwrap_or_default();
            if !now.invocation.is_empty() && now.invocation != before {
                run.write_note("invocation", &now.invocation)?;
                return Ok(Started::As(now.invocation));
            }
        }
        if !self.may_start(attempt, sha256)? {
            return Ok(Started::Lost);
        }
        check_unit(&now)?;
        // A job that waits is our own only when the marker was there.
        if now.is_running() || (known.is_none() && now.has_job) {
            return Err(other_runs());
        }
        if known.is_none() {
            durable_file::make_dir(&self.paths.firstboot_dir(), 0o700)?;
            run.write_note("before", &now.invocation)?;
            self.mark_started(run, attempt, sha256)?;
        }
        point("firstboot-start", When::During);
        let invocation = bus.start_firstboot(&now).await?;
        run.write_note("invocation", &invocation)?;
        Ok(Started::As(invocation))
    }
}

enum Started {
    As(String),
    /// In another boot: its end cannot be known.
    Lost,
}

// === private ===

/// Whether the image has a unit that keeps the contract.
fn check_unit(unit: &UnitState) -> Result<(), Fault> {
    let refused = |why: &str| Err(Fault::new(Code::Local, format!("{FIRSTBOOT} {why}")));
    match unit.load.as_str() {
        "loaded" if unit.remains => Ok(()),
        "loaded" => refused("lacks RemainAfterExit=yes: how it ended would be lost, so it is not started"),
        "not-found" => refused("is not installed: this image cannot become a node"),
        "masked" => refused("is masked: systemctl unmask it, or install another image"),
        other => refused(&format!("cannot be used: systemd says {other}")),
    }
}

async fn follow(
    bus: &Bus,
    invocation: &str,
    log: &mut UnitLog,
    events: &Sender<Event>,
) -> Result<FirstbootEnd, Fault> {
    let mut watch = bus.watch_firstboot().await?;
    let mut unanswered = 0;
    loop {
        tokio::select! {
            state = watch.next() => match state {
                Ok(state) => {
                    unanswered = 0;
                    if let Some(end) = end_of(&state, invocation) {
                        return Ok(end);
                    }
                }
                Err(_) if unanswered < UNANSWERED => unanswered += 1,
                Err(fault) => return Err(fault),
            },
            lines = log.next() => drop(events.send(lines).await),
        }
    }
}

/// How the run ended, if it has. Failures are nouns: "firstboot ended with ...", "firstboot failed: ...".
fn end_of(unit: &UnitState, invocation: &str) -> Option<FirstbootEnd> {
    let failed = |text: String| Some(FirstbootEnd::Failed(Safe::clean(text)));
    if unit.invocation != invocation {
        return failed(format!("a start or a stop of {FIRSTBOOT} by somebody else"));
    }
    if unit.is_running() {
        return None;
    }
    match (unit.result.as_str(), unit.status) {
        // It remains after it has ended; one that does not was stopped.
        ("success", _) if unit.active == "active" => Some(FirstbootEnd::Done),
        ("success", _) => failed("a stop before it was done".to_owned()),
        // systemd.exec(5), "Process exit codes": 203 is EXIT_EXEC.
        ("exit-code", 203) => failed("exit status 203: the program could not be started".to_owned()),
        ("exit-code", status) => failed(format!("exit status {status}")),
        ("signal" | "core-dump", status) => failed(format!("signal {status}")),
        (other, _) => failed(format!("the result {other} of its unit")),
    }
}

fn end_as_text(end: &FirstbootEnd) -> String {
    match end {
        FirstbootEnd::Done => DONE.to_owned(),
        FirstbootEnd::Failed(why) => format!("{FAILED}{why}"),
        FirstbootEnd::Lost => String::new(),
    }
}

fn end_from(text: &str) -> FirstbootEnd {
    match text {
        DONE => FirstbootEnd::Done,
        "" => FirstbootEnd::Lost,
        other => FirstbootEnd::Failed(Safe::clean(other.strip_prefix(FAILED).unwrap_or(other))),
    }
}

#[cfg(test)]
#[path = "unit_tests.rs"]
mod tests;
