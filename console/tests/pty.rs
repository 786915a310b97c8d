//! The console on a real pseudo-terminal: what a person sees, and how it leaves the terminal.

#![allow(clippy::unwrap_used)]

mod common;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use console::snapshot::{Agent, State};
use console::{Now, Snapshot};
use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

/// Longer than any of this takes on a busy machine; the tests end as soon as they see what they wait for.
const PATIENCE: Duration = Duration::from_secs(20);

/// The example that shows a file, built from the sources of now.
fn show() -> &'static Path {
    static SHOW: OnceLock<PathBuf> = OnceLock::new();
    SHOW.get_or_init(|| {
        let status = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--offline", "--package", "console", "--example", "show"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .unwrap();
        assert!(status.success());
        // target/debug/deps/pty-... -> target/debug/examples/show
        let me = std::env::current_exe().unwrap();
        me.parent().unwrap().parent().unwrap().join("examples/show")
    })
}

struct Shown {
    master: Option<Box<dyn MasterPty + Send>>,
    child: Box<dyn Child + Send + Sync>,
    bytes: Receiver<Vec<u8>>,
    reader: Option<std::thread::JoinHandle<()>>,
    screen: vt100::Parser,
    all: Vec<u8>,
    keys: Option<Box<dyn Write + Send>>,
    before: String,
}

impl Shown {
    fn start(file: &Path, flags: &[&str], cols: u16, rows: u16) -> Self {
        Self::start_as(file, flags, cols, rows, "xterm")
    }

    fn start_as(file: &Path, flags: &[&str], cols: u16, rows: u16, term: &str) -> Self {
        let (flags, plain): (Vec<&str>, Vec<&str>) = flags.iter().partition(|flag| **flag != "--no-color");
        let pair =
            native_pty_system().openpty(PtySize { rows, cols, pixel_width: 0, pixel_height: 0 }).unwrap();
        let before = format!("{:?}", pair.master.get_termios().unwrap());
        let mut command = CommandBuilder::new(show());
        command.args(&flags);
        command.arg(file);
        command.env("TERM", term);
        command.env_remove("RUST_BACKTRACE");
        if plain.is_empty() {
            command.env_remove("NO_COLOR");
        } else {
            command.env("NO_COLOR", "1");
        }
        let child = pair.slave.spawn_command(command).unwrap();
        drop(pair.slave);
        let mut reader = pair.master.try_clone_reader().unwrap();
        let keys = pair.master.take_writer().unwrap();
        let (tell, bytes) = channel();
        let reader = std::thread::spawn(move || {
            let mut buffer = [0_u8; 4096];
            while let Ok(read @ 1..) = reader.read(&mut buffer) {
                if tell.send(buffer[..read].to_vec()).is_err() {
                    return;
                }
            }
        });
        let (cols, rows) = console::effective_size((cols, rows));
        let screen = vt100::Parser::new(rows.try_into().unwrap(), cols.try_into().unwrap(), 0);
        Self {
            master: Some(pair.master),
            child,
            bytes,
            reader: Some(reader),
            screen,
            all: Vec::new(),
            keys: Some(keys),
            before,
        }
    }

    fn text(&self) -> String {
        self.screen.screen().contents()
    }

    /// Reads until the screen holds `wanted`; how long it took.
    fn until(&mut self, wanted: &str) -> Duration {
        let start = Instant::now();
        while !self.text().contains(wanted) {
            let left = PATIENCE.checked_sub(start.elapsed()).unwrap_or_default();
            let more = self.bytes.recv_timeout(left);
            let Ok(more) = more else { panic!("{wanted:?} is not on the screen:\n{}", self.text()) };
            self.screen.process(&more);
            self.all.extend_from_slice(&more);
        }
        start.elapsed()
    }

    /// What comes until nothing has come for a while.
    fn burst(&mut self) -> Vec<u8> {
        let mut all = self.bytes.recv_timeout(PATIENCE).unwrap();
        while let Ok(more) = self.bytes.recv_timeout(Duration::from_millis(150)) {
            all.extend(more);
        }
        self.screen.process(&all);
        self.all.extend_from_slice(&all);
        all
    }

    /// The terminal is stopped, or goes on: as by Scroll Lock, or by `^S` and `^Q` where they still mean that.
    fn flow(&self, on: bool) {
        use rustix::termios::{Action, tcflow};
        let name = self.master.as_ref().unwrap().tty_name().unwrap();
        let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::NONBLOCK;
        let slave = rustix::fs::open(name, flags, rustix::fs::Mode::empty()).unwrap();
        tcflow(&slave, if on { Action::OOn } else { Action::OOff }).unwrap();
    }

    /// Every row of the frame is whole.
    fn assert_frame(&self) {
        let rows: Vec<String> = self.screen.screen().rows(0, 80).collect();
        let edge = |c: char| matches!(c, '|' | '│');
        assert!(rows[0].contains("─ STRATUM JOIN ─") || rows[0].contains("- STRATUM JOIN -"), "{rows:#?}");
        assert!(rows[22].ends_with("-+") || rows[22].ends_with("─┘"), "{rows:#?}");
        assert!(rows[1..22].iter().all(|row| row.starts_with(edge) && row.ends_with(edge)), "{rows:#?}");
    }

    fn type_keys(&mut self, keys: &str) {
        let writer = self.keys.as_mut().unwrap();
        writer.write_all(keys.as_bytes()).unwrap();
        writer.flush().unwrap();
    }

    /// Waits for the end; exit code and how long it took. Signals are 1 to portable-pty.
    fn end(&mut self) -> (u32, Duration) {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return (status.exit_code(), start.elapsed());
            }
            assert!(start.elapsed() < PATIENCE, "it does not end");
            std::thread::yield_now();
        }
    }

    fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = i32::try_from(self.child.process_id().unwrap()).unwrap();
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).unwrap();
    }

    /// The terminal is as it was found: modes, cursor, no attribute left on.
    fn assert_given_back(&mut self) {
        while let Ok(more) = self.bytes.recv_timeout(Duration::from_millis(200)) {
            self.screen.process(&more);
            self.all.extend_from_slice(&more);
        }
        let after = format!("{:?}", self.master.as_ref().unwrap().get_termios().unwrap());
        assert_eq!(self.before, after);
        assert!(!self.screen.screen().hide_cursor());
        assert!(!self.screen.screen().inverse() && !self.screen.screen().bold());
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A snapshot file as a living agent (this process) would write it.
fn file(dir: &Path, change: impl FnOnce(&mut Snapshot)) -> PathBuf {
    let path = dir.join("snapshot.json");
    let now = Now::read();
    let mut s = common::pending();
    s.written_mono = now.boot_ms;
    s.registration.registered_mono = Some(now.boot_ms);
    s.heartbeat_ms = 300_000;
    s.agent = Agent { pid: std::process::id(), ..s.agent };
    change(&mut s);
    let next = dir.join("next");
    std::fs::File::create(&next).unwrap().write_all(&s.encode()).unwrap();
    std::fs::rename(next, &path).unwrap();
    path
}

#[test]
fn a_person_sees_the_code_and_the_next_state_without_a_key() {
    let dir = tempfile::tempdir().unwrap();
    let mut shown = Shown::start(&file(dir.path(), |_| {}), &[], 80, 24);
    shown.until("PAIRING CODE  4F7-K2Q");
    shown.until("[Q][Q] leave");
    assert!(shown.screen.screen().hide_cursor());
    // The big code: a reverse-video pixel in row 5.
    assert!((0..80).any(|x| shown.screen.screen().cell(4, x).unwrap().inverse()));
    file(dir.path(), |s| s.state = State::Approved);
    let took = shown.until("APPROVED - WAITING FOR ITS TURN");
    println!("rename to screen: {took:?}");
    shown.type_keys("d");
    shown.until("Node key    7D1A:44E0");
    shown.type_keys("q");
    shown.until("WAITING FOR ITS TURN");
    shown.type_keys("qq");
    assert_eq!(shown.end().0, 0);
    shown.assert_given_back();
}

#[test]
fn a_terminal_without_a_size_gets_80x24_and_one_that_loses_it_keeps_what_it_had() {
    let dir = tempfile::tempdir().unwrap();
    let file = file(dir.path(), |_| {});
    let mut shown = Shown::start(&file, &[], 0, 0);
    let took = shown.until("PAIRING CODE  4F7-K2Q");
    shown.until("[Q][Q] leave");
    assert!(took < Duration::from_secs(2), "{took:?}");
    shown.assert_frame();
    let mut shown = Shown::start(&file, &[], 40, 10);
    shown.until("| PAIRING CODE  4F7-K2Q                |");
    shown
        .master
        .as_ref()
        .unwrap()
        .resize(PtySize { rows: 0, cols: 0, pixel_width: 0, pixel_height: 0 })
        .unwrap();
    // crossterm does not see a key that comes together with the signal before the next one.
    shown.burst();
    shown.type_keys("d");
    shown.until("DETAILS");
    shown.type_keys("q");
    shown.until("| PAIRING CODE  4F7-K2Q                |");
}

#[test]
fn a_line_without_a_size_gets_its_card_at_once_and_no_question() {
    let dir = tempfile::tempdir().unwrap();
    let mut shown = Shown::start_as(&file(dir.path(), |_| {}), &["--no-color"], 0, 0, "vt220");
    let took = shown.until("==== R repeat");
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert!(!shown.all.contains(&0x1b) && shown.all.len() <= 700, "{}", shown.all.len());
}

/// What a program has used of the processors, in clock ticks of 10 ms, once it has ended and before its parent has asked.
fn cpu_ticks_of_ended(pid: u32) -> u64 {
    let start = Instant::now();
    loop {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        if fields[0] == "Z" {
            return fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        }
        assert!(start.elapsed() < PATIENCE, "it does not end");
        std::thread::yield_now();
    }
}

#[test]
fn a_stopped_screen_keeps_the_console_alive_and_gets_a_whole_frame_once_it_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (path, alive) = (file(dir.path(), |_| {}), dir.path().join("alive"));
    for flag in ["--own", "--no-color"] {
        let signs = || std::fs::metadata(&alive).map_or(0, |meta| meta.len());
        let mut shown = Shown::start(&path, &[flag, "--alive", alive.to_str().unwrap()], 80, 24);
        shown.until("4F7-K2Q");
        shown.flow(false);
        file(dir.path(), |s| s.state = State::Approved);
        let before = signs();
        let start = Instant::now();
        while signs() < before + 3 {
            assert!(start.elapsed() < PATIENCE, "no sign of life from a stopped terminal");
            std::thread::yield_now();
        }
        shown.flow(true);
        shown.until("WAITING FOR ITS TURN");
        if flag == "--own" {
            shown.until("[R]edraw");
            shown.assert_frame();
        } else {
            shown.until("==== R repeat");
        }
        file(dir.path(), |_| {});
    }
}

#[test]
fn a_hang_up_ends_it_with_75_within_a_second() {
    let dir = tempfile::tempdir().unwrap();
    for (term, flag) in [("xterm", "--own"), ("linux", "--own"), ("vt220", "--no-color")] {
        let mut shown = Shown::start_as(&file(dir.path(), |_| {}), &[flag], 80, 24, term);
        shown.until("PAIRING CODE  4F7-K2Q");
        drop(shown.keys.take());
        drop(shown.master.take());
        // The last holder of the other end is the thread that reads it; it ends with the next tick of the clock.
        shown.bytes = channel().1;
        shown.reader.take().unwrap().join().unwrap();
        let start = Instant::now();
        let ticks = cpu_ticks_of_ended(shown.child.process_id().unwrap());
        let took = start.elapsed();
        assert_eq!(shown.end().0, 75);
        assert!(took < Duration::from_secs(1), "{took:?}");
        // All of its life; a reader that spins uses a whole processor.
        assert!(ticks <= 25, "{ticks} ticks");
    }
}

#[test]
fn a_hang_up_signal_ends_it_with_75_and_the_terminal_is_given_back() {
    let dir = tempfile::tempdir().unwrap();
    for flag in ["--own", "--no-color"] {
        let mut shown = Shown::start(&file(dir.path(), |_| {}), &[flag], 80, 24);
        shown.until("4F7-K2Q");
        shown.signal(nix::sys::signal::Signal::SIGHUP);
        let (code, took) = shown.end();
        assert_eq!(code, 75);
        assert!(took < Duration::from_secs(1), "{took:?}");
        shown.assert_given_back();
    }
}

#[test]
fn the_terminal_is_given_back_on_sigterm() {
    let dir = tempfile::tempdir().unwrap();
    for flag in ["--own", "--no-color"] {
        let mut shown = Shown::start(&file(dir.path(), |_| {}), &[flag], 80, 24);
        shown.until("PAIRING CODE  4F7-K2Q");
        shown.signal(nix::sys::signal::Signal::SIGTERM);
        let (code, took) = shown.end();
        assert_eq!(code, 0);
        assert!(took < Duration::from_secs(1), "{took:?}");
        shown.assert_given_back();
    }
}

#[test]
fn the_terminal_is_given_back_after_a_panic_and_the_picture_stays() {
    let dir = tempfile::tempdir().unwrap();
    for flags in [&["--panic"][..], &["--panic", "--no-color"]] {
        let mut shown = Shown::start(&file(dir.path(), |_| {}), flags, 80, 24);
        shown.until("console restarting");
        assert_eq!(shown.end().0, 70);
        shown.assert_given_back();
        assert!(shown.text().contains("WAITING FOR APPROVAL"));
    }
}

#[test]
fn ctrl_c_leaves_a_demo_and_does_nothing_on_a_machines_own_console() {
    let dir = tempfile::tempdir().unwrap();
    let file = file(dir.path(), |_| {});
    let mut own = Shown::start(&file, &["--own"], 80, 24);
    own.until("PAIRING CODE  4F7-K2Q");
    own.type_keys("\x03qql");
    own.until("following");
    let mut demo = Shown::start(&file, &[], 80, 24);
    demo.until("PAIRING CODE  4F7-K2Q");
    demo.type_keys("\x03");
    assert_eq!(demo.end().0, 0);
    demo.assert_given_back();
}

#[test]
fn joined_is_left_by_itself_when_asked_and_by_enter_otherwise() {
    let dir = tempfile::tempdir().unwrap();
    let file = file(dir.path(), |s| s.state = State::Joined);
    let mut shown = Shown::start(&file, &["--exit-when-joined"], 80, 24);
    shown.until("JOINED THE CLUSTER");
    assert_eq!(shown.end().0, 0);
    let mut shown = Shown::start(&file, &["--own"], 80, 24);
    shown.until("JOINED THE CLUSTER");
    shown.type_keys("\r");
    assert_eq!(shown.end().0, 0);
}

#[test]
fn a_killed_agent_is_seen_within_two_seconds() {
    let dir = tempfile::tempdir().unwrap();
    let mut agent = Command::new("sleep").arg("1000").spawn().unwrap();
    let file = file(dir.path(), |s| s.agent.pid = agent.id());
    let mut shown = Shown::start(&file, &[], 80, 24);
    shown.until("PAIRING CODE  4F7-K2Q");
    agent.kill().unwrap();
    agent.wait().unwrap();
    let took = shown.until("THE JOIN AGENT DOES NOT ANSWER");
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert!(shown.text().contains("4F7-K2Q  <- may be out of date"));
}

/// As if a kernel message had gone to the same screen.
fn kernel_message(shown: &mut Shown) {
    let message =
        b"\x1b[11;1H\x1b[0mkernel: something is rotten in this machine and all over the line\r\nand more";
    shown.screen.process(message);
    assert!(!shown.text().contains("PAIRING CODE  4F7-K2Q"));
}

#[test]
fn foreign_writes_are_repaired_by_any_key() {
    let dir = tempfile::tempdir().unwrap();
    let mut shown = Shown::start(&file(dir.path(), |_| {}), &[], 80, 24);
    shown.until("[Q][Q] leave");
    kernel_message(&mut shown);
    shown.type_keys("r");
    shown.until("PAIRING CODE  4F7-K2Q");
}

#[test]
fn foreign_writes_are_repaired_without_a_key_after_a_time_that_is_ten_seconds_on_a_machine() {
    let dir = tempfile::tempdir().unwrap();
    assert!(console::REPAINT <= Duration::from_secs(10));
    let path = file(dir.path(), |_| {});
    assert_eq!(console::Options::new(&path).repaint, console::REPAINT);
    let mut shown = Shown::start(&path, &["--repaint-ms", "400"], 80, 24);
    shown.until("[Q][Q] leave");
    kernel_message(&mut shown);
    let took = shown.until("PAIRING CODE  4F7-K2Q");
    shown.until("[Q][Q] leave");
    shown.assert_frame();
    println!("repaired after {took:?}");
}

#[test]
fn a_whole_frame_is_at_most_3_kib_and_a_tick_of_the_clock_60_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let mut shown = Shown::start_as(&file(dir.path(), |_| {}), &["--own"], 80, 24, "linux");
    let first = shown.burst();
    shown.assert_frame();
    // What comes once at the start is not of the frame.
    println!("frame: {} bytes", first.len());
    assert!(first.len() <= 3072 + 32, "{}", first.len());
    for _ in 0..2 {
        let tick = shown.burst();
        assert!((1..=60).contains(&tick.len()), "{}: {}", tick.len(), String::from_utf8_lossy(&tick));
    }
}

#[test]
fn a_resize_is_followed() {
    let dir = tempfile::tempdir().unwrap();
    let mut shown = Shown::start(&file(dir.path(), |_| {}), &[], 80, 24);
    shown.until("[Q][Q] leave");
    let small = PtySize { rows: 10, cols: 40, pixel_width: 0, pixel_height: 0 };
    shown.master.as_ref().unwrap().resize(small).unwrap();
    shown.screen = vt100::Parser::new(10.try_into().unwrap(), 40.try_into().unwrap(), 0);
    shown.until("| PAIRING CODE  4F7-K2Q                |");
}

#[test]
fn only_the_allowed_sequences_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut shown = Shown::start_as(&file(dir.path(), |_| {}), &["--own"], 80, 24, "linux");
    shown.until("Alt+F2");
    file(dir.path(), |s| s.state = State::Failed);
    shown.until("JOIN FAILED");
    let text = String::from_utf8(shown.all.clone()).unwrap();
    for sequence in text.split('\x1b').skip(1) {
        let body = sequence.strip_prefix('[').unwrap_or_else(|| panic!("not CSI: {sequence:?}"));
        let end = body.find(|c: char| ('@'..='~').contains(&c)).unwrap();
        let (parameters, last) = (&body[..end], &body[end..=end]);
        let allowed = match last {
            "H" => true,
            "J" => parameters == "2",
            "K" => parameters.is_empty(),
            "h" | "l" => parameters == "?25",
            "m" => parameters.split(';').all(|p| ["0", "1", "7", "31", "32", "33", "36", "37"].contains(&p)),
            "]" => ["9;0", "14;0", "13"].contains(&parameters),
            _ => false,
        };
        assert!(allowed, "{sequence:?}");
    }
}

#[test]
fn a_pipe_gets_one_card_then_lines_until_joined() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), |_| {});
    let mut child = Command::new(show()).arg(&path).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    let mut read = |wanted: &str| loop {
        line.clear();
        assert_ne!(std::io::BufRead::read_line(&mut out, &mut line).unwrap(), 0, "{wanted}");
        if line.contains(wanted) {
            return;
        }
    };
    read("==== STRATUM JOIN");
    read(" PAIRING CODE  4F7-K2Q     four, Foxtrot, seven - Kilo, two, Quebec");
    read("=====");
    file(dir.path(), |s| s.state = State::Approved);
    read("APPROVED - WAITING FOR ITS TURN");
    file(dir.path(), |s| s.state = State::Joined);
    read("JOINED THE CLUSTER");
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_terminal_that_takes_no_colour_gets_cards() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), |_| {});
    let mut shown = Shown::start_as(&path, &["--no-color"], 80, 24, "xterm");
    shown.until("==== R repeat");
    assert!(!shown.all.contains(&0x1b));
    shown.type_keys("l");
    shown.until("STRATUM JOIN - LOG");
    shown.type_keys("qqq");
    assert_eq!(shown.end().0, 0);
    shown.assert_given_back();
}
