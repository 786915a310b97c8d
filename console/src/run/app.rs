//! The console's state: the last good snapshot, the screen in front, what a key means. No terminal, no threads.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::mpsc::Sender;

use super::control::{self, Op};
use super::terminal::Kind;
use super::watch::Event;
use super::{ExitReason, Options};
use crate::clock::Now;
use crate::snapshot::{Liveness, Machine, ReadError, Snapshot, State, pid_alive};
use crate::text::Safe;
use crate::view::{Feed, Leave, Screen, View};

/// A side screen gives way to the main one after this long without a key: the next person must find the code.
const SIDE_MS: u64 = 120_000;
/// The second key of a pair must follow within this.
const PAIR_MS: u64 = 5000;
/// And not sooner than this: line noise comes in bursts, a person reads the question first.
const PAIR_APART_MS: u64 = 100;
/// An answer stays this long.
const NOTICE_MS: u64 = 3000;
/// A joined console gives the login back after this.
const JOINED_MS: u64 = 600_000;

/// A key, after aliases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Letter(char),
    Enter,
    Back,
    CtrlC,
    Other,
}

/// What a key asks of the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    None,
    Leave(ExitReason),
}

/// The first key of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Armed {
    Retry,
    Quit,
    HandBack,
}

pub(super) struct App {
    path: PathBuf,
    control: Option<PathBuf>,
    tell: Sender<Event>,
    snapshot: Snapshot,
    good: bool,
    view: View,
    seen: Option<(u64, u64, i64, i64)>,
    armed: Option<(Armed, u64)>,
    notice_until: u64,
    key_at: u64,
    repaint: bool,
    state_changed: bool,
    allow_quit: bool,
}

// === impl App ===

impl App {
    pub(super) fn new(options: &Options, kind: Kind, tell: Sender<Event>) -> Self {
        let now = Now::read();
        let mut view = View::new(now);
        view.leave = super::leave(options, kind);
        view.login_comes_back = options.tty.is_some();
        view.boxes = kind.boxes();
        view.feed = Feed::NotYet { since_mono: now.boot_ms };
        Self {
            path: options.snapshot_path.clone(),
            control: options.control_path.clone(),
            tell,
            snapshot: nothing_yet(),
            good: false,
            view,
            seen: None,
            armed: None,
            notice_until: 0,
            key_at: now.boot_ms,
            repaint: true,
            state_changed: false,
            allow_quit: options.allow_quit,
        }
    }

    pub(super) fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    pub(super) fn view(&self) -> &View {
        &self.view
    }

    /// True when there is a snapshot and it says joined.
    pub(super) fn joined(&self) -> bool {
        self.good && self.snapshot.state == State::Joined
    }

    pub(super) fn take_repaint(&mut self) -> bool {
        std::mem::take(&mut self.repaint)
    }

    pub(super) fn take_state_change(&mut self) -> bool {
        std::mem::take(&mut self.state_changed)
    }

    pub(super) fn ask_repaint(&mut self) {
        self.repaint = true;
    }

    pub(super) fn set_now(&mut self, now: Now) {
        self.view.now = now;
    }

    /// Time passes: ages are judged, notices end, side screens give way.
    pub(super) fn tick(&mut self, now: Now) -> Option<ExitReason> {
        self.view.now = now;
        if self.armed.is_some_and(|(_, until)| now.boot_ms >= until) {
            self.armed = None;
        }
        if self.view.notice.is_some() && now.boot_ms >= self.notice_until {
            self.view.notice = None;
        }
        if self.view.screen != Screen::Main && now.since(self.key_at) >= SIDE_MS {
            self.show(Screen::Main);
        }
        if self.good {
            let mut alive = true;
            self.view.liveness = self.snapshot.liveness(now.boot_ms, |pid| {
                alive = pid_alive(pid);
                alive
            });
            self.view.agent_alive = alive;
        }
        let shown_long = now.since(self.snapshot.state_since_mono) >= JOINED_MS;
        (self.joined() && self.view.login_comes_back && shown_long).then_some(ExitReason::Joined)
    }

    /// Reads the snapshot if the file is another than the one read last.
    pub(super) fn reload_if_changed(&mut self) {
        if self.seen != self.signature() {
            self.reload();
        }
    }

    /// Reads the snapshot. What cannot be read keeps the last good one; its age tells the rest.
    pub(super) fn reload(&mut self) {
        self.seen = self.signature();
        let feed = match Snapshot::read(&self.path) {
            Ok(snapshot) => {
                self.take(snapshot);
                self.good = true;
                Feed::Live
            }
            Err(error) => match Feed::of_newer(error) {
                Ok((newer, feed)) => {
                    self.take(newer);
                    self.good = false;
                    feed
                }
                Err(_) if self.good => return,
                Err(ReadError::Missing { .. }) => match self.view.feed {
                    Feed::NotYet { since_mono } => Feed::NotYet { since_mono },
                    _ => Feed::NotYet { since_mono: self.view.now.boot_ms },
                },
                Err(error) => Feed::Unreadable(chain(&error).as_str().into()),
            },
        };
        self.view.feed = feed;
    }

    /// The agent answered one of our requests.
    pub(super) fn answered(&mut self, answer: Result<(), Safe<60>>) {
        match answer {
            Ok(()) => self.notice("done"),
            Err(error) => self.notice(error.as_str()),
        }
    }

    /// A key was pressed.
    pub(super) fn key(&mut self, key: Key) -> Action {
        self.key_at = self.view.now.boot_ms;
        // Who presses a key may do so because something else wrote to the terminal.
        self.repaint = true;
        let now = self.view.now.boot_ms;
        let armed = self.armed.take().filter(|(_, until)| now < *until);
        let read = armed.is_some_and(|(_, until)| now + PAIR_MS >= until + PAIR_APART_MS);
        let armed = armed.map(|(armed, _)| armed);
        self.view.notice = None;
        match (key, armed) {
            (Key::CtrlC, _) if self.allow_quit => return Action::Leave(ExitReason::Quit),
            (Key::Letter('q'), Some(Armed::Quit)) => return Action::Leave(ExitReason::Quit),
            (Key::Letter('y'), Some(Armed::HandBack)) if read => {
                return Action::Leave(ExitReason::HandedBack);
            }
            (Key::Letter('y'), Some(Armed::Retry)) if read => self.send(Op::Retry),
            (Key::Enter, _) if self.joined() => return Action::Leave(ExitReason::Joined),
            (Key::Letter('q'), _) if self.allow_quit && self.view.screen == Screen::Main => {
                self.arm(Armed::Quit, "Press Q again to leave");
            }
            (Key::Back | Key::Letter('q'), _) => self.show(Screen::Main),
            (Key::Letter('d'), _) => self.show(Screen::Details),
            (Key::Letter('n'), _) => self.show(Screen::Network),
            (Key::Letter('l'), _) => self.show(Screen::Log),
            (Key::Letter('t'), _) if self.snapshot.actions.retry && self.control.is_some() => {
                self.arm(Armed::Retry, "Retry now? press Y");
            }
            (Key::Letter('c'), _) if self.snapshot.actions.check && self.control.is_some() => {
                self.send(Op::Check)
            }
            (Key::Letter('i'), _) if self.snapshot.actions.identify && self.control.is_some() => {
                self.send(Op::Identify)
            }
            (Key::Letter('t' | 'c' | 'i'), _) => self.notice("not now"),
            (Key::Letter('x'), _) if self.view.leave == Leave::HandBack => {
                self.arm(Armed::HandBack, "Give this line back to the login? press Y");
            }
            (Key::Letter('u'), _) => self.scroll(true),
            (Key::Letter('j'), _) => self.scroll(false),
            (Key::Letter('f'), _) => self.view.scroll = 0,
            _ => {}
        }
        Action::None
    }

    // --- private ---

    fn take(&mut self, snapshot: Snapshot) {
        if snapshot.state != self.snapshot.state {
            self.state_changed = true;
            let ends = matches!(
                snapshot.state,
                State::Refused | State::Failed | State::Joined | State::Rejected | State::Expired
            );
            if ends {
                self.show(Screen::Main);
            }
        }
        self.snapshot = snapshot;
        if self.view.liveness == Liveness::Gone {
            // It wrote again; the next tick judges anew.
            self.view.liveness = Liveness::Alive;
        }
    }

    fn show(&mut self, screen: Screen) {
        self.view.screen = screen;
        self.view.scroll = 0;
    }

    fn scroll(&mut self, up: bool) {
        // The log counts from its end, the details from their start.
        let more = (self.view.screen == Screen::Log) == up;
        let most = self.snapshot.log.len()
            + self.snapshot.hardware.disks.len()
            + self.snapshot.network.nics.len()
            + 20;
        self.view.scroll =
            if more { (self.view.scroll + 5).min(most) } else { self.view.scroll.saturating_sub(5) };
    }

    fn arm(&mut self, armed: Armed, question: &str) {
        let until = self.view.now.boot_ms + PAIR_MS;
        self.armed = Some((armed, until));
        self.view.notice = Some(question.into());
        self.notice_until = until;
    }

    fn notice(&mut self, text: &str) {
        self.view.notice = Some(text.into());
        self.notice_until = self.view.now.boot_ms + NOTICE_MS;
    }

    fn send(&mut self, op: Op) {
        if let Some(path) = &self.control {
            control::send(path.clone(), op, self.tell.clone());
            self.notice("asking the agent...");
        }
    }

    fn signature(&self) -> Option<(u64, u64, i64, i64)> {
        let meta = std::fs::symlink_metadata(&self.path).ok()?;
        Some((meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec()))
    }
}

/// What is shown while there is no snapshot: which machine this is, as far as any process knows.
fn nothing_yet() -> Snapshot {
    let name = rustix::system::uname();
    let hostname = Safe::clean(name.nodename().to_bytes());
    let machine = Machine { hostname: Some(hostname).filter(|name| !name.is_empty()), ..Machine::default() };
    Snapshot { machine, ..Snapshot::default() }
}

/// An error and what caused it, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;
    use crate::snapshot::{Actions, Agent};

    fn app(
        state: State,
        change: impl FnOnce(&mut Options, &mut Snapshot),
    ) -> (App, tempfile::TempDir, Receiver<Event>) {
        let dir = tempfile::tempdir().unwrap();
        let mut options = Options::new(dir.path().join("snapshot.json"));
        let now = Now::read();
        let agent = Agent { pid: std::process::id(), ..Agent::default() };
        let mut s = Snapshot {
            state,
            written_mono: now.boot_ms,
            state_since_mono: now.boot_ms,
            agent,
            ..Snapshot::default()
        };
        change(&mut options, &mut s);
        put(&options.snapshot_path, &s.encode());
        let (tell, told) = channel();
        let mut app = App::new(&options, Kind::Screen { vt: true }, tell);
        app.reload();
        app.tick(now);
        (app, dir, told)
    }

    fn put(path: &std::path::Path, bytes: &[u8]) {
        use std::io::Write;
        let mut file = std::fs::File::create(path).unwrap();
        file.write_all(bytes).unwrap();
    }

    fn later(app: &mut App, ms: u64) -> Option<ExitReason> {
        let mut now = app.view.now;
        now.boot_ms += ms;
        app.tick(now)
    }

    #[test]
    fn letters_reach_every_screen_and_back() {
        let (mut app, _dir, _told) = app(State::Pending, |_, _| {});
        for (key, screen) in
            [('d', Screen::Details), ('n', Screen::Network), ('l', Screen::Log), ('q', Screen::Main)]
        {
            assert_eq!(app.key(Key::Letter(key)), Action::None);
            assert_eq!(app.view.screen, screen);
        }
    }

    #[test]
    fn every_key_writes_the_whole_screen_anew() {
        let (mut app, _dir, _told) = app(State::Pending, |_, _| {});
        app.take_repaint();
        for key in [Key::Letter('l'), Key::Letter('u'), Key::Letter('t'), Key::Back, Key::Enter, Key::Other] {
            app.key(key);
            assert!(app.take_repaint(), "{key:?}");
            assert!(!app.take_repaint());
        }
    }

    #[test]
    fn a_side_screen_gives_way_after_two_minutes_without_a_key() {
        let (mut app, _dir, _told) = app(State::Pending, |_, _| {});
        app.key(Key::Letter('l'));
        later(&mut app, SIDE_MS - 1);
        assert_eq!(app.view.screen, Screen::Log);
        later(&mut app, 1);
        assert_eq!(app.view.screen, Screen::Main);
    }

    #[test]
    fn a_side_screen_gives_way_at_once_when_the_join_fails() {
        let (mut app, _dir, _told) = app(State::Pending, |_, _| {});
        app.key(Key::Letter('l'));
        put(&app.path, &Snapshot { state: State::Failed, ..app.snapshot.clone() }.encode());
        app.reload_if_changed();
        assert_eq!((app.view.screen, app.snapshot.state), (Screen::Main, State::Failed));
        assert!(app.take_state_change());
    }

    #[test]
    fn a_broken_snapshot_keeps_the_last_good_one() {
        let (mut app, _dir, _told) = app(State::Pending, |_, _| {});
        put(&app.path, b"{\"schema\":1,");
        app.reload_if_changed();
        assert_eq!((app.snapshot.state, &app.view.feed), (State::Pending, &Feed::Live));
        std::fs::remove_file(&app.path).unwrap();
        app.reload_if_changed();
        assert_eq!((app.snapshot.state, &app.view.feed), (State::Pending, &Feed::Live));
    }

    #[test]
    fn no_snapshot_and_a_broken_first_one_are_told_apart() {
        let (mut app, _dir, _told) = app(State::Pending, |_, _| {});
        app.good = false;
        app.snapshot = nothing_yet();
        std::fs::remove_file(&app.path).unwrap();
        app.reload();
        assert!(matches!(app.view.feed, Feed::NotYet { .. }));
        assert!(
            app.snapshot.machine.hostname.is_some(),
            "two machines are told apart before their agents are up"
        );
        put(&app.path, b"nonsense");
        app.reload_if_changed();
        assert!(matches!(&app.view.feed, Feed::Unreadable(why) if why.as_str().contains("not valid JSON")));
        put(&app.path, br#"{"schema":2,"headline":"moving","next":["wait"]}"#);
        app.reload_if_changed();
        assert_eq!(
            (app.snapshot.headline.as_str(), &app.view.feed),
            ("moving", &Feed::Foreign { schema: 2 })
        );
    }

    #[test]
    fn a_dead_agent_is_gone_at_the_next_tick() {
        let (mut app, _dir, _told) = app(State::Pending, |_, s| s.agent.pid = u32::MAX);
        assert_eq!((app.view.liveness, app.view.agent_alive), (Liveness::Gone, false));
        put(
            &app.path,
            &Snapshot {
                agent: Agent { pid: std::process::id(), ..Agent::default() },
                ..app.snapshot.clone()
            }
            .encode(),
        );
        app.reload_if_changed();
        later(&mut app, 0);
        assert_eq!((app.view.liveness, app.view.agent_alive), (Liveness::Alive, true));
    }

    #[test]
    fn joined_is_left_by_enter_or_after_ten_minutes() {
        let (mut app, _dir, _told) = app(State::Joined, |options, _| options.tty = Some("tty1".into()));
        assert_eq!(app.key(Key::Enter), Action::Leave(ExitReason::Joined));
        assert_eq!(later(&mut app, JOINED_MS - 1000), None);
        assert_eq!(later(&mut app, 1000), Some(ExitReason::Joined));
    }

    #[test]
    fn enter_and_quit_keys_do_not_end_a_machines_own_console() {
        let (mut app, _dir, _told) = app(State::Pending, |options, _| options.tty = Some("tty1".into()));
        for key in [Key::Enter, Key::CtrlC, Key::Letter('q'), Key::Letter('q'), Key::Back, Key::Letter('y')] {
            assert_eq!(app.key(key), Action::None);
        }
        assert_eq!(later(&mut app, JOINED_MS * 2), None);
    }

    #[test]
    fn a_demo_is_left_by_q_twice_but_not_by_q_and_later_q() {
        let (mut app, _dir, _told) = app(State::Pending, |options, _| options.allow_quit = true);
        assert_eq!(app.key(Key::Letter('q')), Action::None);
        assert!(app.view.notice.is_some() && app.view.leave == Leave::Quit);
        later(&mut app, PAIR_MS);
        assert_eq!(app.key(Key::Letter('q')), Action::None);
        assert_eq!(app.key(Key::Letter('d')), Action::None);
        assert_eq!(app.key(Key::Letter('q')), Action::None);
        assert_eq!(app.key(Key::Letter('q')), Action::None);
        assert_eq!(app.key(Key::Letter('q')), Action::Leave(ExitReason::Quit));
    }

    #[test]
    fn keys_that_cannot_act_say_so() {
        let (mut app, _dir, _told) = app(State::Pending, |_, _| {});
        for key in ['t', 'c', 'i'] {
            app.key(Key::Letter(key));
            assert_eq!(app.view.notice.as_ref().unwrap(), &"not now");
        }
        later(&mut app, NOTICE_MS);
        assert_eq!(app.view.notice, None);
    }

    #[test]
    fn noise_on_the_line_asks_the_agent_for_nothing_and_hands_nothing_back() {
        let (mut app, dir, _told) = app(State::NeedsUpgrade, |options, s| {
            options.control_path = Some(options.snapshot_path.with_file_name("control.sock"));
            s.actions = Actions { retry: true, ..Actions::default() };
        });
        app.view.leave = Leave::HandBack;
        let listener = std::os::unix::net::UnixListener::bind(dir.path().join("control.sock")).unwrap();
        listener.set_nonblocking(true).unwrap();
        let mut noise = 1_u32;
        for _ in 0..10_000 {
            // The usual linear congruence; more than one in ten of its letters is one of a pair.
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let key = Key::Letter(char::from(b"tyxydnlq"[(noise >> 24) as usize % 8]));
            assert_eq!(app.key(key), Action::None);
            // 10 kB at 9600 baud.
            later(&mut app, 1);
        }
        assert!(listener.accept().is_err(), "nothing was sent");
    }

    #[test]
    fn retry_needs_two_keys_within_five_seconds_and_the_agents_leave() {
        let (mut app, dir, told) = app(State::NeedsUpgrade, |options, s| {
            options.control_path = Some(options.snapshot_path.with_file_name("control.sock"));
            s.actions = Actions { retry: true, ..Actions::default() };
        });
        let listener = std::os::unix::net::UnixListener::bind(dir.path().join("control.sock")).unwrap();
        listener.set_nonblocking(true).unwrap();
        app.key(Key::Letter('t'));
        later(&mut app, PAIR_MS + 1000);
        app.key(Key::Letter('y'));
        app.key(Key::Letter('t'));
        later(&mut app, 1000);
        app.key(Key::Letter('d'));
        app.key(Key::Letter('y'));
        app.key(Key::Letter('t'));
        app.key(Key::Letter('y'));
        assert!(listener.accept().is_err(), "nothing was sent");
        listener.set_nonblocking(false).unwrap();
        app.key(Key::Letter('t'));
        later(&mut app, PAIR_APART_MS);
        app.key(Key::Letter('y'));
        let (mut stream, _) = listener.accept().unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(&stream), &mut line).unwrap();
        assert_eq!(line, "{\"v\":1,\"op\":\"retry\"}\n");
        std::io::Write::write_all(&mut stream, b"{\"ok\":false,\"error\":\"BUSY\\u001b[2J\"}\n").unwrap();
        let Event::Answered(answer) = told.recv().unwrap() else { panic!() };
        app.answered(answer);
        assert_eq!(app.view.notice.as_ref().unwrap(), &"BUSY");
    }
}
