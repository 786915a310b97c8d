//! The console's process: one terminal, one snapshot file, until the join is over or the terminal is.
//!
//! Threads: this one draws; one reads keys; one waits for hang-up; one for signals; one for a new snapshot. All tell this one
//! over a channel, and state changes here only. Call [`run`] once per process: the threads live as long as it does.
//! Must always leave the terminal as it was found: on return, on an error, on SIGTERM and on a panic.

mod app;
mod backend;
mod cards;
mod control;
mod terminal;
mod watch;

use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use app::{Action, App};
use backend::Painter;
pub use backend::bytes_between;
pub use terminal::check_name;
use terminal::{Kind, Tty};
use watch::Event;

use crate::clock::Now;
use crate::draw::{FALLBACK, code_position, draw, effective_size};
use crate::view::Leave;

/// The whole screen is written again this often, unless told otherwise: something else may have written to the terminal.
pub const REPAINT: Duration = Duration::from_secs(10);

/// What [`run`] is told.
pub struct Options {
    /// The agent's snapshot.
    pub snapshot_path: PathBuf,
    /// The agent's control socket; without it the keys for retry, check and identify answer `not now`.
    pub control_path: Option<PathBuf>,
    /// Name of the terminal below `/dev`, e.g. `tty1`; `None` = the one this process was started on.
    pub tty: Option<String>,
    /// Leave as soon as the joined screen is drawn, instead of after Enter or 10 minutes.
    pub exit_when_joined: bool,
    /// Q twice or Ctrl-C leaves. Never on a machine's own console.
    pub allow_quit: bool,
    /// How long what something else wrote to a screen may stay there; [`REPAINT`].
    pub repaint: Duration,
    /// Called after every frame that was drawn or dropped, at least every 2 s: feeds a watchdog.
    pub on_alive: Option<Box<dyn FnMut()>>,
}

/// Why [`run`] ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitReason {
    /// Joined, and dismissed or shown long enough.
    Joined,
    /// Left by a key, with `allow_quit`.
    Quit,
    /// A serial line was handed back to its login.
    HandedBack,
    /// The port has no hardware.
    NoHardware,
    /// SIGTERM or SIGINT.
    Stopped,
}

/// Why [`run`] ended badly.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Not the name of one terminal.
    #[error("not a terminal name: {0}")]
    BadName(crate::text::Name),
    /// It cannot be opened or set up.
    #[error("cannot use the terminal {name}")]
    Terminal {
        /// Which one.
        name: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// End of file, an I/O error or a hang-up: the terminal is gone.
    #[error("the terminal is gone")]
    Lost,
}

// === impl Options ===

impl Options {
    /// A console on the terminal this process was started on.
    pub fn new(snapshot_path: impl Into<PathBuf>) -> Self {
        Self {
            snapshot_path: snapshot_path.into(),
            control_path: None,
            tty: None,
            exit_when_joined: false,
            allow_quit: false,
            repaint: REPAINT,
            on_alive: None,
        }
    }
}

/// Draws the snapshot on one terminal until the join is over. Blocks; see [`ExitReason`] and [`RunError`] for its ends.
///
/// # Errors
/// [`RunError::BadName`] before anything is touched; [`RunError::Terminal`] when the terminal cannot be set up;
/// [`RunError::Lost`] within a second after a hang-up.
pub fn run(mut options: Options) -> Result<ExitReason, RunError> {
    let kind = match &options.tty {
        Some(name) => {
            check_name(name)?;
            if terminal::has_no_hardware(name) {
                return Ok(ExitReason::NoHardware);
            }
            Kind::of_name(name)
        }
        None => Kind::of_own(),
    };
    let (tell, told) = mpsc::channel();
    // Before any thread is started: a signal must not end the process past the guard that restores the terminal.
    watch::block_signals();
    let mut app = App::new(&options, kind, tell.clone());
    app.reload();
    match kind {
        Kind::Lines => {
            watch::signals(tell.clone());
            watch::snapshot(options.snapshot_path.clone(), tell);
            cards::lines(&mut app, &mut options, &told)
        }
        Kind::Cards => {
            let tty = Tty::open_line(options.tty.as_deref())?;
            watch::signals(tell.clone());
            watch::hang_up(&tty, tell.clone())?;
            watch::bytes(&tty, tell.clone())?;
            watch::snapshot(options.snapshot_path.clone(), tell);
            cards::cards(&mut app, &tty, &mut options, &told)
        }
        Kind::Screen { .. } => {
            let tty = Tty::open_screen(options.tty.as_deref(), kind)?;
            watch::signals(tell.clone());
            watch::hang_up(&tty, tell.clone())?;
            watch::keys(tell.clone());
            watch::snapshot(options.snapshot_path.clone(), tell);
            screen(&mut app, &tty, &mut options, &told)
        }
    }
}

/// The full-screen loop.
fn screen(
    app: &mut App,
    tty: &Tty,
    options: &mut Options,
    told: &Receiver<Event>,
) -> Result<ExitReason, RunError> {
    let mut painter = Painter::new(tty);
    let mut painted_at: Option<u64> = None;
    let mut size = FALLBACK;
    let repaint_ms = u64::try_from(options.repaint.as_millis()).unwrap_or(u64::MAX);
    loop {
        let now = Now::read();
        if let Some(reason) = app.tick(now) {
            return Ok(reason);
        }
        // A terminal that no longer knows its size is as large as it was.
        size = match tty.size() {
            (0, _) | (_, 0) => size,
            known => known,
        };
        let stale = painted_at.is_none_or(|at| now.since(at) >= repaint_ms);
        if app.take_repaint() || stale {
            painter.forget();
            painted_at = Some(now.boot_ms);
        }
        if app.take_state_change() {
            painter.unblank();
        }
        let buffer = draw(app.snapshot(), app.view(), effective_size(size));
        painter.paint(&buffer, code_position(&buffer, app.snapshot()))?;
        if let Some(alive) = &mut options.on_alive {
            alive();
        }
        if options.exit_when_joined && app.joined() {
            return Ok(ExitReason::Joined);
        }
        let due = painted_at.map_or(0, |at| repaint_ms.saturating_sub(now.since(at)));
        if let Some(end) = wait(app, told, until_next_second(now).min(Duration::from_millis(due)))? {
            return Ok(end);
        }
    }
}

/// Takes what is told, at most for `most`; several things at once give one frame.
fn wait(app: &mut App, told: &Receiver<Event>, most: Duration) -> Result<Option<ExitReason>, RunError> {
    let mut next = match told.recv_timeout(most) {
        Ok(event) => Some(event),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => return Err(RunError::Lost),
    };
    app.set_now(Now::read());
    while let Some(event) = next {
        match event {
            Event::Lost => return Err(RunError::Lost),
            Event::Stop => return Ok(Some(ExitReason::Stopped)),
            Event::Snapshot => app.reload(),
            Event::Resized => app.ask_repaint(),
            Event::Answered(answer) => app.answered(answer),
            Event::Key(key) => match app.key(key) {
                Action::None => {}
                Action::Leave(reason) => return Ok(Some(reason)),
            },
        }
        next = told.try_recv().ok();
    }
    app.reload_if_changed();
    Ok(None)
}

/// The clock shows seconds: wake when they change.
fn until_next_second(now: Now) -> Duration {
    let millis = now.wall.as_millisecond().rem_euclid(1000);
    Duration::from_millis(1000 - u64::try_from(millis).unwrap_or(0) + 5)
}

/// How the way out is told.
fn leave(options: &Options, kind: Kind) -> Leave {
    match kind {
        _ if options.allow_quit => Leave::Quit,
        Kind::Screen { vt: true } => Leave::AltF2,
        Kind::Cards if options.tty.is_some() => Leave::HandBack,
        _ => Leave::Nowhere,
    }
}
