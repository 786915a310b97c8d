//! `start-firstboot`: start what was delivered, at most once, and follow it to its end.
//!
//! Touches the run's directory, reads the delivery, deletes the bundle when firstboot is done. Must never tell a line of the log
//! before it is redacted.

use std::io::{Read, Seek, SeekFrom};
use std::time::Duration;

use console::text::Safe;
use tokio::sync::mpsc::Sender;

use super::delivery::{self, Attempt};
use super::journald::UNREDACTABLE;
use super::run::{self, Run, Stage};
use super::{FirstbootRunner, InProcess};
use crate::durable_file;
use crate::faults::{When, point};
use crate::handoff::Redactor;
use crate::join::event::{Event, FirstbootEnd};
use crate::join::fault::{Code, Fault};

/// Most lines in one event.
const MAX_LINES: usize = 200;
/// Most bytes of the log read at once; of a longer line the beginning is told.
const CHUNK: usize = 64 * 1024;
/// How often the files are looked at while firstboot runs.
const TICK: Duration = Duration::from_millis(200);
/// How many ticks a claimed run may take to say who it is (5 s).
const COMING_UP: u32 = 25;
/// The verb's own decision before anything is started.
enum Plan {
    /// Follow the run; spawn it when nobody claims it.
    Go { run: Run, spawn: bool },
    /// Its end cannot be known.
    Lost,
}

// === impl InProcess ===

impl InProcess {
    pub(super) async fn start_or_follow(
        &self,
        attempt: Option<u64>,
        sha256: &str,
        log_cursor: Option<String>,
        events: Sender<Event>,
    ) -> Result<FirstbootEnd, Fault> {
        let program = match &self.runner {
            FirstbootRunner::Command { program } => program,
            FirstbootRunner::Unit => {
                return self.start_or_follow_unit(attempt, sha256, log_cursor, events).await;
            }
        };
        point("firstboot-start", When::Before);
        let lock = delivery::lock(&self.paths).await?;
        let digest = sha256.to_owned();
        let plan = self.blocking(move |this| this.plan(attempt, &digest)).await?;
        let Plan::Go { run, spawn } = plan else { return Ok(FirstbootEnd::Lost) };
        point("firstboot-start", When::During);
        let mut runner = if spawn { Some(run.spawn(program, &self.paths)?) } else { None };
        point("firstboot-start", When::After);
        self.wait_for_claim(&run, &mut runner).await?;
        drop(lock);
        // Who receives is gone only when the agent ends; firstboot runs on.
        let _ = events.send(Event::FirstbootRunning).await;
        let mut log = Log::new(&run, log_cursor, self.redactor(sha256).await?);
        let end = self.follow(&run, &mut runner, &mut log, &events).await?;
        self.ended(&end, attempt, sha256).await?;
        Ok(end)
    }

    /// What knows the secrets of this delivery, while they are there.
    pub(super) async fn redactor(&self, sha256: &str) -> Result<Option<Redactor>, Fault> {
        let digest = sha256.to_owned();
        let read = self.blocking(move |this| Ok(delivery::read_back(&this.paths, &digest).ok())).await?;
        Ok(read.as_ref().map(Redactor::from_delivery))
    }

    /// A node keeps no bundle. But one that was delivered for a later attempt is not ours to take away: whoever follows late would leave
    /// that attempt without its secrets.
    pub(super) async fn ended(
        &self,
        end: &FirstbootEnd,
        attempt: Option<u64>,
        sha256: &str,
    ) -> Result<(), Fault> {
        if *end != FirstbootEnd::Done {
            return Ok(());
        }
        let _lock = delivery::lock(&self.paths).await?;
        let digest = sha256.to_owned();
        self.blocking(move |this| {
            let other = |written: &Attempt| written.attempt != attempt || written.sha256 != digest;
            if delivery::last_written(&this.paths)?.as_ref().is_some_and(other) {
                return Ok(());
            }
            Ok(durable_file::remove(&this.paths.bundle(), "bundle-remove")?)
        })
        .await
    }

    /// Whether what was written last is this delivery, in this boot, and still is what was delivered. `false`: it was written in another boot,
    /// and may have been started there.
    pub(super) fn may_start(&self, attempt: Option<u64>, sha256: &str) -> Result<bool, Fault> {
        let written = delivery::last_written(&self.paths)?.filter(|written| written.boot_id == self.boot_id);
        let Some(written) = written else { return Ok(false) };
        if !written.is(attempt, sha256) || written.sha256 != sha256 {
            return Err(Fault::new(
                Code::Local,
                "another delivery was written after this one: it is not started",
            ));
        }
        delivery::refuse_member(&self.paths)?;
        delivery::read_back(&self.paths, sha256)?;
        Ok(true)
    }

    /// `started.json` of a run in this boot.
    pub(super) fn mark_started(&self, run: &Run, attempt: Option<u64>, sha256: &str) -> Result<(), Fault> {
        durable_file::make_dir(&self.paths.firstboot_dir(), 0o700)?;
        Ok(run.mark_started(&Attempt {
            attempt,
            sha256: sha256.to_owned(),
            boot_id: self.boot_id.clone(),
        })?)
    }

    /// Under the lock: what to do, with the marker written when the run is new.
    fn plan(&self, attempt: Option<u64>, sha256: &str) -> Result<Plan, Fault> {
        let paths = &self.paths;
        let run = Run::of(paths, attempt, sha256);
        if let Some(started) = run.started()? {
            if started.boot_id != self.boot_id {
                return Ok(Plan::Lost);
            }
            let spawn = run.stage()? == Stage::Unclaimed;
            if spawn {
                delivery::read_back(paths, sha256)?;
            }
            return Ok(Plan::Go { run, spawn });
        }
        // The agent asks only after the delivery was written. If not in this boot, it was in an earlier one.
        if !self.may_start(attempt, sha256)? {
            return Ok(Plan::Lost);
        }
        if run::any_running(paths)? {
            return Err(other_runs());
        }
        self.mark_started(&run, attempt, sha256)?;
        Ok(Plan::Go { run, spawn: true })
    }

    /// Until the run is claimed and known. The lock is held meanwhile, so that no other verb takes it for not started.
    async fn wait_for_claim(
        &self,
        run: &Run,
        runner: &mut Option<tokio::process::Child>,
    ) -> Result<(), Fault> {
        for _ in 0..COMING_UP {
            match run.stage()? {
                Stage::Running | Stage::Ended(_) | Stage::Vanished => return Ok(()),
                Stage::Unclaimed | Stage::ComingUp => {}
            }
            let ended = match runner {
                Some(child) => tokio::time::timeout(TICK / 8, child.wait()).await.is_ok(),
                None => {
                    tokio::time::sleep(TICK / 8).await;
                    false
                }
            };
            if ended && run.stage()? == Stage::Unclaimed {
                return Err(Fault::new(
                    Code::Local,
                    "the runner of firstboot ended before it began: is there a shell?",
                ));
            }
        }
        match run.stage()? {
            Stage::Unclaimed => Err(Fault::new(Code::Local, "the runner of firstboot did not come up")),
            _ => Ok(()),
        }
    }

    async fn follow(
        &self,
        run: &Run,
        runner: &mut Option<tokio::process::Child>,
        log: &mut Log,
        events: &Sender<Event>,
    ) -> Result<FirstbootEnd, Fault> {
        let mut coming_up = 0;
        loop {
            // The stage before the log: what was written before the end is then read.
            let stage = run.stage()?;
            let ended = !matches!(stage, Stage::Running | Stage::ComingUp | Stage::Unclaimed);
            while let Some(batch) = log.next(ended)? {
                let _ = events.send(batch).await;
            }
            match stage {
                Stage::Ended(code) => return Ok(run::end_of(code)),
                Stage::Vanished => {
                    return Ok(FirstbootEnd::Failed(Safe::clean("killed before it could say how it ended")));
                }
                Stage::Running => coming_up = 0,
                Stage::ComingUp | Stage::Unclaimed => coming_up += 1,
            }
            if coming_up > COMING_UP {
                return Ok(FirstbootEnd::Failed(Safe::clean("killed before it began")));
            }
            match runner {
                // Waiting for our own child also takes it out of the process table.
                Some(child) => {
                    if tokio::time::timeout(TICK, child.wait()).await.is_ok() {
                        *runner = None;
                    }
                }
                None => tokio::time::sleep(TICK).await,
            }
        }
    }
}

/// A second firstboot over a running one could destroy what that one wrote.
pub(super) fn other_runs() -> Fault {
    Fault::new(Code::Local, "firstboot of another attempt still runs: a second is not started")
}

/// The log file from a cursor on. A cursor is `<run>:<byte>`; another run's reads from the beginning.
struct Log {
    run: Run,
    offset: u64,
    redactor: Option<Redactor>,
    told: bool,
    /// The rest of an overlong line is dropped: it may begin in the middle of a secret.
    in_long: bool,
}

// === impl Log ===

impl Log {
    fn new(run: &Run, cursor: Option<String>, redactor: Option<Redactor>) -> Self {
        let offset = cursor.and_then(|cursor| {
            let (key, offset) = cursor.rsplit_once(':')?;
            if key == run.key() { offset.parse().ok() } else { None }
        });
        Self { run: run.clone(), offset: offset.unwrap_or(0), redactor, told: false, in_long: false }
    }

    /// The next lines; `None` when there are none yet. `ended`: nobody writes any more, so what is left is a line too.
    fn next(&mut self, ended: bool) -> Result<Option<Event>, Fault> {
        let failed = |error: std::io::Error| {
            Fault::new(
                Code::Local,
                format!("cannot read {}: {}", self.run.log().display(), durable_file::plain_io(&error)),
            )
        };
        let mut file = self.run.open_log().map_err(failed)?;
        let len = file.metadata().map_err(failed)?.len();
        if self.offset > len {
            // Somebody cut it.
            self.offset = 0;
        }
        file.seek(SeekFrom::Start(self.offset)).map_err(failed)?;
        let mut bytes = Vec::with_capacity(CHUNK);
        file.take(CHUNK as u64).read_to_end(&mut bytes).map_err(failed)?;
        let full = bytes.len() == CHUNK;
        let mut taken = 0;
        let mut lines = Vec::new();
        while lines.len() < MAX_LINES && taken < bytes.len() {
            let rest = &bytes[taken..];
            let newline = rest.iter().position(|byte| *byte == b'\n');
            let (line, used) = match newline {
                Some(at) => (&rest[..at], at + 1),
                None if ended || (full && taken == 0) => (rest, rest.len()),
                // An unfinished line waits for its end.
                None => break,
            };
            taken += used;
            if !self.in_long {
                lines.extend(self.clean(line));
            }
            self.in_long = newline.is_none();
        }
        if taken == 0 {
            return Ok(None);
        }
        self.offset += taken as u64;
        Ok(Some(Event::FirstbootLog { lines, cursor: format!("{}:{}", self.run.key(), self.offset) }))
    }

    fn clean(&mut self, line: &[u8]) -> Option<Safe<1024>> {
        match &mut self.redactor {
            Some(redactor) => redactor.clean(line),
            None if self.told => None,
            None => {
                self.told = true;
                Some(Safe::clean(UNREDACTABLE))
            }
        }
    }
}
