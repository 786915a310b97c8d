//! Cards on a line, and lines in a pipe: for terminals that are not drawn on.

use std::io::Write;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use super::app::App;
use super::terminal::Tty;
use super::watch::Event;
use super::{ExitReason, Options, RunError, wait};
use crate::card::{card_of, line};
use crate::clock::Now;
use crate::snapshot::Liveness;
use crate::view::{Feed, Screen};

/// How often a card is repeated while a person must act, and otherwise.
const REPEAT_MS: (u64, u64) = (60_000, 300_000);
/// How often it is looked whether something changed.
const LOOK: Duration = Duration::from_secs(1);

/// What a card is about; another of it is another card.
type Subject = (u64, Liveness, Screen, Option<String>);

/// A card on every change and key, and again from time to time.
pub(super) fn cards(
    app: &mut App,
    tty: &Tty,
    options: &mut Options,
    told: &Receiver<Event>,
) -> Result<ExitReason, RunError> {
    let mut shown: Option<(Subject, u64)> = None;
    loop {
        let now = Now::read();
        if let Some(reason) = app.tick(now) {
            return Ok(reason);
        }
        let subject = subject(app);
        let repeat = if app.snapshot().state.needs_person() { REPEAT_MS.0 } else { REPEAT_MS.1 };
        let due = shown.as_ref().is_none_or(|(before, at)| *before != subject || now.since(*at) >= repeat);
        if app.take_repaint() || due {
            let text = card_of(app.snapshot(), app.view());
            let whole = tty.write(text.replace('\n', "\r\n").as_bytes())?;
            if !whole {
                tty.discard_output();
            }
            // What was dropped is due at once.
            shown = whole.then_some((subject, now.boot_ms));
        }
        if let Some(alive) = &mut options.on_alive {
            alive();
        }
        if options.exit_when_joined && app.joined() {
            return Ok(ExitReason::Joined);
        }
        if let Some(end) = wait(app, told, LOOK)? {
            return Ok(end);
        }
    }
}

/// One card, then one line per change of what it says; until joined.
pub(super) fn lines(
    app: &mut App,
    options: &mut Options,
    told: &Receiver<Event>,
) -> Result<ExitReason, RunError> {
    let mut said: Option<String> = None;
    loop {
        let now = Now::read();
        app.tick(now);
        let next = match (&app.view().feed, said.is_some()) {
            (Feed::Live, true) => line(app.snapshot(), app.view().liveness, now),
            _ => card_of(app.snapshot(), app.view()),
        };
        // The stamp is no news, and neither is a countdown.
        let news = news(app);
        if said.as_ref() != Some(&news) {
            let mut out = std::io::stdout().lock();
            out.write_all(next.as_bytes()).and_then(|()| out.flush()).map_err(|_| RunError::Lost)?;
            said = (app.view().feed == Feed::Live).then_some(news);
        }
        if let Some(alive) = &mut options.on_alive {
            alive();
        }
        if app.joined() {
            return Ok(ExitReason::Joined);
        }
        if let Some(end) = wait(app, told, LOOK)? {
            return Ok(end);
        }
        while app.view().feed != Feed::Live {
            if let Some(end) = wait(app, told, LOOK)? {
                return Ok(end);
            }
            app.tick(Now::read());
        }
    }
}

// === private ===

fn subject(app: &App) -> Subject {
    let notice = app.view().notice.as_ref().map(|notice| notice.to_string());
    (app.snapshot().seq, app.view().liveness, app.view().screen, notice)
}

fn news(app: &App) -> String {
    let s = app.snapshot();
    let step = crate::facts::current_step(s).filter(|_| s.state.changes_machine());
    let fault = s.fault.as_ref().map(|fault| fault.message.as_str());
    format!("{:?} {} {step:?} {:?} {fault:?}", app.view().liveness == Liveness::Gone, s.state, s.pairing_code)
}
