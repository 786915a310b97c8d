//! The terminal: which kinds there are, how one is opened, set up and always given back as it was.
//!
//! Owns the process's standard input, the panic hook, and the one place outside `main` that may end the process.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ratatui::crossterm::terminal::{disable_raw_mode, enable_raw_mode};
use rustix::fs::{Mode, OFlags};
use rustix::termios::{ControlModes, InputModes, LocalModes, OptionalActions, OutputModes, Termios};

use super::RunError;
use crate::draw::FALLBACK;

/// Exit code of a panic (sysexits EX_SOFTWARE).
const PANIC: i32 = 70;
/// A frame that does not get out within this is dropped.
const PATIENCE_MS: u16 = 250;

/// How a terminal is used; chosen once, at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Drawn on. `vt` = one of the kernel's virtual terminals.
    Screen {
        /// A virtual terminal of the kernel.
        vt: bool,
    },
    /// A serial line: cards.
    Cards,
    /// A pipe, a file, a dumb terminal: one card, then lines.
    Lines,
}

/// An open terminal, which is standard input as well. Dropping it gives it back.
pub(super) struct Tty {
    fd: OwnedFd,
    name: String,
    kind: Kind,
    before: Option<Termios>,
}

/// Is this the name of one terminal below `/dev`? `tty0` and `console` mean "whatever is in front" and are refused.
///
/// # Errors
/// [`RunError::BadName`].
pub fn check_name(name: &str) -> Result<(), RunError> {
    let number = |prefix: &str| {
        name.strip_prefix(prefix).filter(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    let vt = number("tty").is_some_and(|n| n.len() <= 2 && !n.starts_with('0'));
    let line =
        ["ttyS", "ttyAMA", "ttyUSB", "hvc"].iter().any(|prefix| number(prefix).is_some_and(|n| n.len() <= 6));
    if vt || line { Ok(()) } else { Err(RunError::BadName(name.into())) }
}

/// True for a `ttyS` the kernel reserves but has no hardware for.
pub(super) fn has_no_hardware(name: &str) -> bool {
    name.starts_with("ttyS")
        && std::fs::read_to_string(format!("/sys/class/tty/{name}/type")).is_ok_and(|text| text.trim() == "0")
}

// === impl Kind ===

impl Kind {
    /// By the name of a terminal below `/dev`.
    pub(super) fn of_name(name: &str) -> Self {
        let vt = name.starts_with("tty") && name[3..].bytes().all(|b| b.is_ascii_digit());
        if vt && env("NO_COLOR").is_none() { Self::Screen { vt: true } } else { Self::Cards }
    }

    /// By what this process was started on.
    pub(super) fn of_own() -> Self {
        let both = rustix::termios::isatty(io::stdin()) && rustix::termios::isatty(io::stdout());
        match env("TERM").as_deref() {
            _ if !both => Self::Lines,
            None | Some("" | "dumb") => Self::Lines,
            _ if env("NO_COLOR").is_some() => Self::Cards,
            Some(term) => Self::Screen { vt: term == "linux" },
        }
    }

    /// Box lines only where every console font has them: a virtual terminal in UTF-8 mode.
    pub(super) fn boxes(self) -> bool {
        self == Self::Screen { vt: true }
            && std::fs::read_to_string("/sys/module/vt/parameters/default_utf8")
                .is_ok_and(|text| text.trim() == "1")
    }
}

/// What a terminal can do is in the environment and nowhere else.
#[expect(
    clippy::disallowed_methods,
    reason = "TERM and NO_COLOR describe the terminal; they are not settings"
)]
fn env(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| name != "NO_COLOR" || !value.is_empty())
}

// === impl Tty ===

impl Tty {
    /// Opens a terminal to draw on: raw, cursor hidden, cleared.
    pub(super) fn open_screen(name: Option<&str>, kind: Kind) -> Result<Self, RunError> {
        let mut tty = Self::open(name, kind)?;
        restore_on_panic();
        enable_raw_mode().map_err(|source| tty.error(source))?;
        // crossterm keeps what it found and puts it back.
        tty.before = None;
        let start: &[u8] = match kind {
            // No blanking and no powering down: a screen that went dark looks like a machine that did.
            Kind::Screen { vt: true } => b"\x1b[9;0]\x1b[14;0]\x1b[0m\x1b[?25l\x1b[2J",
            _ => b"\x1b[0m\x1b[?25l\x1b[2J",
        };
        tty.write(start)?;
        Ok(tty)
    }

    /// Opens a line for cards: raw, no flow control that a stray `^S` could stop for ever.
    pub(super) fn open_line(name: Option<&str>) -> Result<Self, RunError> {
        let mut tty = Self::open(name, Kind::Cards)?;
        let before = rustix::termios::tcgetattr(&tty.fd).map_err(|errno| tty.error(errno.into()))?;
        restore_on_panic();
        let _ = LINE.set(before.clone());
        let mut raw = before.clone();
        raw.input_modes -= InputModes::IXON
            | InputModes::IXOFF
            | InputModes::ICRNL
            | InputModes::INLCR
            | InputModes::IGNCR
            | InputModes::BRKINT
            | InputModes::ISTRIP;
        raw.local_modes -= LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG | LocalModes::IEXTEN;
        raw.output_modes -= OutputModes::OPOST;
        raw.control_modes -= ControlModes::CRTSCTS;
        raw.control_modes |= ControlModes::CLOCAL | ControlModes::CREAD;
        rustix::termios::tcsetattr(&tty.fd, OptionalActions::Now, &raw)
            .map_err(|errno| tty.error(errno.into()))?;
        tty.before = Some(before);
        Ok(tty)
    }

    /// A description of its own, so that non-blocking does not leak to whoever shares the old one; put onto standard input, so
    /// that crossterm reads the same terminal.
    fn open(name: Option<&str>, kind: Kind) -> Result<Self, RunError> {
        let path = name.map_or("/proc/self/fd/0".into(), |name| format!("/dev/{name}"));
        let name = name.unwrap_or("standard input").to_owned();
        let error = |source: io::Error| RunError::Terminal { name: name.clone(), source };
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd = match rustix::fs::open(&path, flags, Mode::empty()) {
            Ok(fd) => fd,
            // A terminal of another user (su) can be used but not opened again.
            Err(rustix::io::Errno::ACCESS) if path.starts_with("/proc") => {
                io::stdin().as_fd().try_clone_to_owned().map_err(error)?
            }
            Err(errno) => return Err(error(errno.into())),
        };
        if !rustix::termios::isatty(&fd) {
            return Err(error(rustix::io::Errno::NOTTY.into()));
        }
        rustix::stdio::dup2_stdin(&fd).map_err(|errno| error(errno.into()))?;
        Ok(Self { fd, name, kind, before: None })
    }

    /// Columns and rows as the terminal reports them; 0 where it does not know.
    pub(super) fn size(&self) -> (u16, u16) {
        rustix::termios::tcgetwinsize(&self.fd).map_or(FALLBACK, |size| (size.ws_col, size.ws_row))
    }

    pub(super) fn is_vt(&self) -> bool {
        self.kind == Kind::Screen { vt: true }
    }

    pub(super) fn duplicate(&self) -> Result<OwnedFd, RunError> {
        self.fd.try_clone().map_err(|source| self.error(source))
    }

    fn error(&self, source: io::Error) -> RunError {
        RunError::Terminal { name: self.name.clone(), source }
    }

    /// Writes all of it, or gives up when the terminal takes nothing for a while (Scroll Lock, `^S`): false then.
    pub(super) fn write(&self, bytes: &[u8]) -> Result<bool, RunError> {
        write(self.fd.as_fd(), bytes)
    }

    /// Writes what the terminal takes at once; how much that was.
    pub(super) fn write_some(&self, bytes: &[u8]) -> Result<usize, RunError> {
        loop {
            match rustix::io::write(&self.fd, bytes) {
                Ok(written) => return Ok(written.min(bytes.len())),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return Ok(0),
                Err(_) => return Err(RunError::Lost),
            }
        }
    }

    /// Forgets what was written and not sent.
    pub(super) fn discard_output(&self) {
        let _ = rustix::termios::tcflush(&self.fd, rustix::termios::QueueSelector::OFlush);
    }
}

impl Drop for Tty {
    fn drop(&mut self) {
        match (&self.before, self.kind) {
            (Some(before), _) => {
                let _ = rustix::termios::tcsetattr(&self.fd, OptionalActions::Now, before);
            }
            (None, Kind::Screen { .. }) => {
                let rows = match self.size() {
                    (_, 0) => FALLBACK.1,
                    (_, rows) => rows,
                };
                // The last picture stays; the prompt goes below it.
                let _ = self.write(format!("\x1b[0m\x1b[{rows};1H\x1b[?25h\r\n").as_bytes());
                let _ = disable_raw_mode();
            }
            (None, _) => {}
        }
    }
}

fn write(fd: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<bool, RunError> {
    while !bytes.is_empty() {
        match rustix::io::write(fd, bytes) {
            Ok(written) => bytes = &bytes[written.min(bytes.len())..],
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => {
                let mut fds = [PollFd::new(fd, PollFlags::POLLOUT)];
                match poll(&mut fds, PollTimeout::from(PATIENCE_MS)) {
                    Ok(0) => return Ok(false),
                    Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                    Err(_) => return Err(RunError::Lost),
                }
                let gone = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
                if fds[0].revents().is_some_and(|events| events.intersects(gone)) {
                    return Err(RunError::Lost);
                }
            }
            Err(_) => return Err(RunError::Lost),
        }
    }
    Ok(true)
}

/// The settings of the line that cards go to, as they were found: what ends the process from any thread puts them back.
static LINE: OnceLock<Termios> = OnceLock::new();

/// Gives the terminal back from any thread. The old picture stays; a line never gets an escape sequence.
fn give_back(word: &str) {
    let fd = io::stdin();
    let _ = match LINE.get() {
        Some(before) => {
            let _ = rustix::termios::tcsetattr(&fd, OptionalActions::Now, before);
            write(fd.as_fd(), format!("\r\n{word}").as_bytes())
        }
        None => {
            let _ = disable_raw_mode();
            write(fd.as_fd(), format!("\x1b[0m\x1b[?25h\r\n{word}").as_bytes())
        }
    };
}

/// A panic in any thread gives the terminal back, says that the console restarts, and ends the process with 70.
fn restore_on_panic() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        give_back("console restarting\r\n");
        before(info);
        end();
    }));
}

/// Ends a console that cannot work, with the terminal given back.
pub(super) fn die(why: &str) {
    give_back("");
    eprintln!("stratum-join console: {why}");
    end();
}

#[expect(
    clippy::disallowed_methods,
    reason = "a panic hook cannot return to main, and 70 tells systemd to start again"
)]
fn end() {
    std::process::exit(PANIC);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_one_terminal_are_taken() {
        for good in ["tty1", "tty63", "ttyS0", "ttyS12", "ttyAMA0", "ttyUSB1", "hvc0"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "tty",
            "tty0",
            "tty01",
            "tty100",
            "console",
            "ttyS",
            "../tty1",
            "tty1/../sda",
            "pts/0",
            "TTY1",
            "tty1\n",
            "hvc",
        ] {
            let error = check_name(bad).unwrap_err();
            assert!(error.to_string().starts_with("not a terminal name: "), "{bad}");
        }
    }

    #[test]
    fn serial_lines_get_cards() {
        assert_eq!(Kind::of_name("ttyS0"), Kind::Cards);
        assert_eq!(Kind::of_name("hvc0"), Kind::Cards);
    }
}
