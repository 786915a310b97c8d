//! The threads that wait: keys, hang-up, signals, a new snapshot. Each tells the loop and does nothing else.

use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use ratatui::crossterm::event::{self, KeyCode, KeyEventKind, KeyModifiers};
use rustix::fs::inotify;

use super::app::Key;
use super::terminal::Tty;
use super::{RunError, terminal};
use crate::text::Safe;

/// What the loop is told.
pub(super) enum Event {
    Key(Key),
    Resized,
    Snapshot,
    Answered(Result<(), Safe<60>>),
    /// SIGTERM or SIGINT.
    Stop,
    /// The terminal hung up.
    Lost,
}

fn handled() -> SigSet {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGHUP, Signal::SIGTERM, Signal::SIGINT, Signal::SIGQUIT] {
        set.add(signal);
    }
    set
}

/// Blocks what [`signals`] waits for, in this thread and in those it starts from now on.
pub(super) fn block_signals() {
    // Fails only for a bad `how`, which nix chooses.
    let _ = handled().thread_block();
}

/// Waits for signals. A hang-up is one, and always ends the same way.
pub(super) fn signals(tell: Sender<Event>) {
    spawn("signals", move || {
        while let Ok(signal) = handled().wait() {
            let event = if signal == Signal::SIGHUP { Event::Lost } else { Event::Stop };
            if tell.send(event).is_err() {
                return;
            }
        }
    });
}

/// Waits for the terminal to hang up, before crossterm's reader can spin on it
/// (<https://github.com/crossterm-rs/crossterm/issues/793>).
pub(super) fn hang_up(tty: &Tty, tell: Sender<Event>) -> Result<(), RunError> {
    let fd = tty.duplicate()?;
    spawn("hang-up", move || {
        loop {
            let mut fds = [PollFd::new(fd.as_fd(), PollFlags::empty())];
            match poll(&mut fds, PollTimeout::NONE) {
                Ok(_) if fds[0].any() == Some(true) => break,
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(_) => break,
            }
        }
        let _ = tell.send(Event::Lost);
    });
    Ok(())
}

/// Reads keys by crossterm. An error is waited out: the hang-up has a thread of its own.
pub(super) fn keys(tell: Sender<Event>) {
    spawn("keys", move || {
        loop {
            let told = match event::read() {
                Ok(event::Event::Key(key)) if key.kind != KeyEventKind::Release => {
                    tell.send(Event::Key(of(key)))
                }
                Ok(event::Event::Resize(..)) => tell.send(Event::Resized),
                Ok(_) => Ok(()),
                Err(_) => {
                    std::thread::sleep(Duration::from_millis(200));
                    Ok(())
                }
            };
            if told.is_err() {
                return;
            }
        }
    });
}

/// Reads keys from a line, byte by byte. An escape sequence is one key that means nothing.
pub(super) fn bytes(tty: &Tty, tell: Sender<Event>) -> Result<(), RunError> {
    let fd = tty.duplicate()?;
    spawn("bytes", move || {
        let mut buffer = [0_u8; 64];
        loop {
            let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, PollTimeout::NONE) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(_) => return,
            }
            let read = match rustix::io::read(&fd, &mut buffer[..]) {
                Ok(0) => {
                    let _ = tell.send(Event::Lost);
                    return;
                }
                Ok(read) => read,
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => continue,
                Err(_) => {
                    let _ = tell.send(Event::Lost);
                    return;
                }
            };
            let typed = &buffer[..read];
            let keys: Vec<Key> = if typed[0] == 0x1b && read > 1 {
                vec![Key::Other]
            } else {
                typed.iter().map(|b| of_byte(*b)).collect()
            };
            for key in keys {
                if tell.send(Event::Key(key)).is_err() {
                    return;
                }
            }
        }
    });
    Ok(())
}

/// Waits for a new snapshot to be renamed into place. Where the directory cannot be watched, the loop's own look every second
/// has to do.
pub(super) fn snapshot(path: PathBuf, tell: Sender<Event>) {
    spawn("snapshot", move || {
        let dir =
            path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned();
        let name = path.file_name().unwrap_or_default().to_owned();
        loop {
            if let Ok(fd) = watched(&dir)
                && follow(&fd, &name, &tell).is_err()
            {
                return;
            }
            std::thread::sleep(Duration::from_secs(1));
        }
    });
}

// === private ===

fn watched(dir: &Path) -> rustix::io::Result<OwnedFd> {
    let fd = inotify::init(inotify::CreateFlags::CLOEXEC)?;
    let flags = inotify::WatchFlags::MOVED_TO
        | inotify::WatchFlags::CLOSE_WRITE
        | inotify::WatchFlags::DELETE
        | inotify::WatchFlags::DELETE_SELF
        | inotify::WatchFlags::ONLYDIR;
    inotify::add_watch(&fd, dir, flags)?;
    Ok(fd)
}

/// Tells every change of `name`; `Ok` when the directory is gone, `Err` when nobody listens any more.
fn follow(fd: &OwnedFd, name: &OsStr, tell: &Sender<Event>) -> Result<(), std::sync::mpsc::SendError<Event>> {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = inotify::Reader::new(fd, &mut buffer);
    // What happened before the watch was set.
    tell.send(Event::Snapshot)?;
    loop {
        match reader.next() {
            Ok(event) => {
                if event.events().intersects(inotify::ReadFlags::IGNORED | inotify::ReadFlags::UNMOUNT) {
                    return Ok(());
                }
                let ours = event.file_name().is_some_and(|file| OsStr::from_bytes(file.to_bytes()) == name);
                if ours || event.events().contains(inotify::ReadFlags::QUEUE_OVERFLOW) {
                    tell.send(Event::Snapshot)?;
                }
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return Ok(()),
        }
    }
}

/// A key of a full keyboard. F-keys and arrows are aliases only: some remote consoles never deliver them.
fn of(key: event::KeyEvent) -> Key {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c') if control => Key::CtrlC,
        KeyCode::Char(_) if control => Key::Other,
        KeyCode::Char(c) => Key::Letter(c.to_ascii_lowercase()),
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc | KeyCode::Left => Key::Back,
        KeyCode::F(2) => Key::Letter('d'),
        KeyCode::F(3) => Key::Letter('n'),
        KeyCode::F(4) => Key::Letter('l'),
        KeyCode::PageUp | KeyCode::Up => Key::Letter('u'),
        KeyCode::PageDown | KeyCode::Down => Key::Letter('j'),
        _ => Key::Other,
    }
}

fn of_byte(byte: u8) -> Key {
    match byte {
        b'\r' | b'\n' => Key::Enter,
        0x03 => Key::CtrlC,
        0x1b => Key::Back,
        b' '..=b'~' => Key::Letter(char::from(byte).to_ascii_lowercase()),
        _ => Key::Other,
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().name(name.into()).spawn(work);
    if let Err(error) = thread {
        // A console without one of its threads would look alive and not be.
        terminal::die(&format!("cannot start the thread {name}: {error}"));
    }
}
