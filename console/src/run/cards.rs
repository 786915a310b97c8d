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
use crate::snapshot::{Liveness, Snapshot};
use crate::view::{Feed, Screen, View};

/// How often a card is repeated while a person must act, and otherwise.
const REPEAT_MS: (u64, u64) = (60_000, 300_000);
/// How often it is looked whether something changed.
const LOOK: Duration = Duration::from_secs(1);
/// The same while a slow line still takes a card.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// A card that is not out by then is dropped, and so is what the kernel holds of it: nobody reads the line, or it is stopped.
const OUT_WITHIN_MS: u64 = 5000;

/// What a card is about; another of it is another card. Times, progress and log lines are no news on a slow line.
type Subject = (String, Screen, Option<String>);

/// What a card is written to.
trait Line {
    /// Takes what it can at once; how much that was.
    fn write_some(&self, bytes: &[u8]) -> Result<usize, RunError>;
    /// Forgets what it took and has not sent.
    fn discard_output(&self);
}

/// The card that is going out. One at a time: a newer one waits, so that no card is ever cut by another.
#[derive(Default)]
struct Out {
    left: Vec<u8>,
    since: u64,
}

// === impl Line ===

impl Line for Tty {
    fn write_some(&self, bytes: &[u8]) -> Result<usize, RunError> {
        Tty::write_some(self, bytes)
    }

    fn discard_output(&self) {
        Tty::discard_output(self);
    }
}

// === impl Out ===

impl Out {
    fn is_idle(&self) -> bool {
        self.left.is_empty()
    }

    fn begin(&mut self, card: &str, now: Now) {
        self.left = card.replace('\n', "\r\n").into_bytes();
        self.since = now.boot_ms;
    }

    /// Writes what the line takes now. False when the card was dropped.
    fn push(&mut self, line: &impl Line, now: Now) -> Result<bool, RunError> {
        while !self.left.is_empty() {
            match line.write_some(&self.left)? {
                0 if now.since(self.since) < OUT_WITHIN_MS => return Ok(true),
                0 => {
                    self.left.clear();
                    line.discard_output();
                    return Ok(false);
                }
                written => drop(self.left.drain(..written)),
            }
        }
        Ok(true)
    }
}

/// A card on every change and key, and again from time to time.
pub(super) fn cards(
    app: &mut App,
    tty: &Tty,
    options: &mut Options,
    told: &Receiver<Event>,
) -> Result<ExitReason, RunError> {
    let mut out = Out::default();
    let mut shown: Option<(Subject, u64)> = None;
    loop {
        let now = Now::read();
        if let Some(reason) = app.tick(now) {
            return Ok(reason);
        }
        let subject = subject(app.snapshot(), app.view());
        let repeat = if app.snapshot().state.needs_person() { REPEAT_MS.0 } else { REPEAT_MS.1 };
        let due = shown.as_ref().is_none_or(|(before, at)| *before != subject || now.since(*at) >= repeat);
        if out.is_idle() && (app.take_repaint() || due) {
            out.begin(&card_of(app.snapshot(), app.view()), now);
            shown = Some((subject, now.boot_ms));
        }
        if !out.push(tty, now)? {
            // What was dropped is due at once.
            shown = None;
        }
        if let Some(alive) = &mut options.on_alive {
            alive();
        }
        if options.exit_when_joined && app.joined() && out.is_idle() {
            return Ok(ExitReason::Joined);
        }
        if let Some(end) = wait(app, told, if out.is_idle() { LOOK } else { LOOK_AGAIN })? {
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

fn subject(s: &Snapshot, view: &View) -> Subject {
    let notice = view.notice.as_ref().map(|notice| notice.to_string());
    // At an instant that does not move: what is left are the words.
    let still = View {
        now: Now { boot_ms: 0, wall: jiff::Timestamp::UNIX_EPOCH },
        screen: Screen::Main,
        notice: None,
        ..view.clone()
    };
    (card_of(s, &still), view.screen, notice)
}

fn news(app: &App) -> String {
    let s = app.snapshot();
    let step = crate::facts::current_step(s).filter(|_| s.state.changes_machine());
    let fault = s.fault.as_ref().map(|fault| fault.message.as_str());
    format!("{:?} {} {step:?} {:?} {fault:?}", app.view().liveness == Liveness::Gone, s.state, s.pairing_code)
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;
    use crate::snapshot::{LastMessage, LogLine, Progress, State, Unit};

    /// A line that takes so many bytes a look, and holds what it has not sent.
    #[derive(Default)]
    struct Slow {
        takes: Cell<usize>,
        holds: RefCell<Vec<u8>>,
    }

    impl Line for Slow {
        fn write_some(&self, bytes: &[u8]) -> Result<usize, RunError> {
            let taken = self.takes.replace(0).min(bytes.len());
            self.holds.borrow_mut().extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn discard_output(&self) {
            self.holds.borrow_mut().clear();
        }
    }

    fn at(boot_ms: u64) -> Now {
        Now { boot_ms, wall: "2026-11-29T10:55:15Z".parse().unwrap() }
    }

    #[test]
    fn a_slow_line_gets_a_whole_card_and_one_that_is_stuck_none_of_it() {
        let (line, mut out) = (Slow::default(), Out::default());
        out.begin("one\ntwo\n", at(0));
        for n in 0..4 {
            line.takes.set(3);
            assert!(out.push(&line, at(n * 1000)).unwrap());
        }
        assert!(out.is_idle());
        assert_eq!(line.holds.take(), b"one\r\ntwo\r\n");

        out.begin("three\nfour\n", at(10_000));
        line.takes.set(4);
        assert!(out.push(&line, at(10_000)).unwrap() && !out.is_idle());
        assert!(out.push(&line, at(10_000 + OUT_WITHIN_MS - 1)).unwrap(), "it is waited for");
        assert!(!out.push(&line, at(10_000 + OUT_WITHIN_MS)).unwrap(), "it is dropped");
        assert!(out.is_idle() && line.holds.borrow().is_empty(), "the next one begins at its beginning");
    }

    #[test]
    fn a_card_is_sent_for_other_words_and_not_for_time_progress_or_log_lines() {
        let mut s = Snapshot::parse(include_bytes!("../../tests/fixtures/upgrade-failed.json")).unwrap();
        let mut view = View::new(at(1_017_400));
        let before = subject(&s, &view);
        view.now.boot_ms += 61_000;
        s.seq += 1;
        s.written_mono += 61_000;
        s.cluster.last_contact_mono = Some(s.written_mono);
        s.progress = Some(Progress { unit: Unit::Bytes, done: 1, total: 2, ..Progress::default() });
        s.last_message = Some(LastMessage { text: "a line".into(), at_mono: 1 });
        s.log.push(LogLine { text: "a line".into(), ..LogLine::default() });
        assert!(subject(&s, &view) == before);
        for change in [
            |s: &mut Snapshot, _: &mut View| s.state = State::Failed,
            |s: &mut Snapshot, _: &mut View| s.pairing_code = Some("4F7-K2X".into()),
            |_: &mut Snapshot, view: &mut View| view.liveness = Liveness::Gone,
            |_: &mut Snapshot, view: &mut View| view.screen = Screen::Log,
            |_: &mut Snapshot, view: &mut View| view.notice = Some("done".into()),
        ] {
            let (mut s, mut view) = (s.clone(), view.clone());
            change(&mut s, &mut view);
            assert!(subject(&s, &view) != before);
        }
    }
}
