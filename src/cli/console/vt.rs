//! Keeps messages of the kernel and of systemd off the virtual terminal that the console draws on, and undoes it.
//!
//! Touches where the kernel's messages go (`setlogcons`), without that program the console log level (`/proc/sys/kernel/printk`), whether
//! PID 1 prints status lines (`SetShowStatus`), and its own note of what was before, `/run/stratum/console.json`: root's, because the shared
//! directory beside it is not. Must never leave less than it found: the note is written before anything is changed, is kept by
//! a console that is started again, and is used by the last console that ends.

use rustix::fs::{FlockOperation, Mode, OFlags};
use serde::{Deserialize, Serialize};

use super::programs::Programs;
use crate::durable_file;
use crate::paths::Paths;

/// Where messages cannot be sent elsewhere, those above this level are not printed while the screen is up, on no console of the machine:
/// the second best. 4 is what `quiet` sets: errors and worse.
const LEVEL: u8 = 4;
/// Messages go to this terminal meanwhile: Alt+F8 shows them. logind starts logins on 1 to 6 only.
const ASIDE: &str = "tty8";
/// The same for `setlogcons`; 0 is the terminal in front, which is the kernel's own setting.
const ASIDE_NUMBER: &str = "8";
/// Largest note in bytes.
const MAX_NOTE: u64 = 4096;

/// What was before, and who needs it changed.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    /// The console log level; `None` when it is left alone.
    level: Option<u8>,
    /// Status lines of PID 1 are stopped.
    status: bool,
    /// Consoles that run, by terminal.
    terminals: Vec<String>,
}

/// What `ExecStartPre=` does. Gives the lines to log; nothing of it is worth not starting for.
pub(super) fn prepare(paths: &Paths, tty: &str, programs: &mut Programs) -> Vec<String> {
    if !is_vt(tty) {
        return Vec::new();
    }
    let mut lines = Vec::new();
    let _lock = lock(paths);
    let status = status_lines_come_to(paths, tty);
    let mut note = read(paths).unwrap_or(Note { level: None, status, terminals: Vec::new() });
    if !note.terminals.iter().any(|name| name == tty) {
        note.terminals.push(tty.to_owned());
    }
    if let Err(error) = save(paths, &note) {
        // What cannot be put back is not changed.
        return vec![format!("{error}: messages of the kernel may stand on {tty} for up to 10 s")];
    }
    // The kernel goes by the redirection only if that terminal exists, and opening it makes it.
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let aside = rustix::fs::open(paths.device(ASIDE), flags, Mode::empty())
        .map_err(|errno| format!("cannot open {ASIDE}: {}", durable_file::plain(errno)))
        .and_then(|_| programs.run("setlogcons", &[ASIDE_NUMBER]));
    match aside {
        Ok(_) => lines.push(format!("messages of the kernel go to {ASIDE} while the screen is on {tty}")),
        Err(error) => {
            lines.push(format!("messages of the kernel may stand on {tty} for up to 10 s: {error}"));
            lines.extend(lower_level(paths, &mut note).err());
        }
    }
    if note.status {
        lines.extend(show_status(programs, "no").err());
    }
    lines
}

/// What `ExecStopPost=` does, however the console ended.
pub(super) fn restore(paths: &Paths, tty: &str, programs: &mut Programs) -> Vec<String> {
    let mut lines = Vec::new();
    let _lock = lock(paths);
    let Some(mut note) = read(paths).filter(|note| note.terminals.iter().any(|name| name == tty)) else {
        return lines;
    };
    note.terminals.retain(|name| name != tty);
    if !note.terminals.is_empty() {
        lines.extend(save(paths, &note).err());
        return lines;
    }
    // Somebody may have set another level meanwhile: theirs stays.
    if let Some(before) = note.level.filter(|_| level(paths) == Some(LEVEL)) {
        lines.extend(set_level(paths, before).err());
    }
    lines.extend(programs.run("setlogcons", &["0"]).err());
    if note.status {
        // Empty takes our word back: what the command line or an administrator asked for holds again.
        lines.extend(show_status(programs, "").err());
    }
    lines.extend(
        durable_file::remove(&paths.console_note(), "console-note").err().map(|error| error.to_string()),
    );
    lines
}

// === private ===

/// One of the kernel's virtual terminals. The name was checked.
pub(super) fn is_vt(tty: &str) -> bool {
    tty.strip_prefix("tty").is_some_and(|number| number.bytes().all(|b| b.is_ascii_digit()))
}

/// PID 1 prints to `/dev/console`, the last of the kernel's consoles. Where that is a serial line, its lines stay: somebody may
/// follow the boot there, and they do not come to us.
fn status_lines_come_to(paths: &Paths, tty: &str) -> bool {
    let active = read_text(&paths.active_consoles()).unwrap_or_default();
    let last = active.split_whitespace().last().unwrap_or("tty0").to_owned();
    last == "tty0" || last == tty
}

/// The first of the four numbers (kernel: Documentation/admin-guide/sysctl/kernel.rst, printk).
fn level(paths: &Paths) -> Option<u8> {
    read_text(&paths.printk())?.split_whitespace().next()?.parse().ok()
}

/// Notes what it was, then lowers it. A level that is low enough is left alone.
fn lower_level(paths: &Paths, note: &mut Note) -> Result<(), String> {
    let Some(before) = level(paths).filter(|level| *level > LEVEL) else { return Ok(()) };
    note.level = Some(before);
    save(paths, note)?;
    set_level(paths, LEVEL)
}

/// One number sets the first only.
fn set_level(paths: &Paths, level: u8) -> Result<(), String> {
    let path = paths.printk();
    let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::CLOEXEC;
    rustix::fs::open(&path, flags, Mode::empty())
        .and_then(|fd| rustix::io::write(&fd, format!("{level}\n").as_bytes()))
        .map(drop)
        .map_err(|errno| {
            format!("cannot set the console log level in {}: {}", path.display(), durable_file::plain(errno))
        })
}

/// `SetShowStatus` of systemd 249 and later; the signals SIGRTMIN+20 and +21 could only set, not take back.
fn show_status(programs: &mut Programs, mode: &str) -> Result<String, String> {
    let manager =
        ["org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager"];
    let arguments = ["--timeout=3", "call", manager[0], manager[1], manager[2], "SetShowStatus", "s", mode];
    programs.run("busctl", &arguments).map_err(|error| format!("status lines of systemd: {error}"))
}

fn read_text(path: &std::path::Path) -> Option<String> {
    let bytes = durable_file::read_public(path, MAX_NOTE).ok().flatten()?;
    String::from_utf8(bytes).ok()
}

/// A note that is not ours or makes no sense is none.
fn read(paths: &Paths) -> Option<Note> {
    let bytes = durable_file::read_private(&paths.console_note(), MAX_NOTE).ok().flatten()?;
    serde_json::from_slice(&bytes).ok()
}

fn save(paths: &Paths, note: &Note) -> Result<(), String> {
    let bytes = serde_json::to_vec(note).map_err(|error| error.to_string())?;
    durable_file::make_dir(&paths.run_dir(), 0o755).map_err(|error| error.to_string())?;
    durable_file::write_volatile(&paths.console_note(), &bytes, 0o600, "console-note")
        .map_err(|error| error.to_string())
}

/// Two consoles may start at once. Waits for the other, who is done within seconds; freed when dropped.
fn lock(paths: &Paths) -> Option<std::os::fd::OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(paths.run_dir(), flags, Mode::empty()).ok()?;
    rustix::fs::flock(&dir, FlockOperation::LockExclusive).ok()?;
    Some(dir)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    struct Machine {
        root: tempfile::TempDir,
        paths: Paths,
        ran: Rc<RefCell<Vec<String>>>,
    }

    impl Machine {
        fn new(level: &str, consoles: &str) -> Self {
            let root = tempfile::tempdir().unwrap();
            let paths = Paths::under(root.path());
            for path in [paths.printk(), paths.active_consoles(), paths.device(ASIDE), paths.console_note()] {
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            }
            let put = |path: std::path::PathBuf, text: &str| {
                std::io::Write::write_all(&mut std::fs::File::create(path).unwrap(), text.as_bytes())
                    .unwrap();
            };
            put(paths.printk(), level);
            put(paths.active_consoles(), consoles);
            put(paths.device(ASIDE), "");
            Self { root, paths, ran: Rc::default() }
        }

        fn programs(&self, answer: Result<String, String>) -> Programs {
            let ran = Rc::clone(&self.ran);
            Programs::with(move |program, arguments| {
                ran.borrow_mut().push(format!("{program} {}", arguments.last().unwrap()));
                answer.clone()
            })
        }

        fn prepare(&self, tty: &str) -> Vec<String> {
            prepare(&self.paths, tty, &mut self.programs(Ok(String::new())))
        }

        fn prepare_without_programs(&self, tty: &str) -> Vec<String> {
            prepare(&self.paths, tty, &mut self.programs(Err("is not installed".into())))
        }

        fn restore(&self, tty: &str) -> Vec<String> {
            restore(&self.paths, tty, &mut self.programs(Ok(String::new())))
        }

        fn ran(&self) -> Vec<String> {
            self.ran.take()
        }
    }

    #[test]
    fn what_was_before_is_put_back_and_the_note_is_gone() {
        let machine = Machine::new("7\t4\t1\t7\n", "ttyS0 tty0\n");
        machine.prepare("tty1");
        assert_eq!(machine.ran(), ["setlogcons 8", "busctl no"]);
        assert!(machine.restore("tty1").is_empty());
        assert_eq!(machine.ran(), ["setlogcons 0", "busctl "]);
        assert!(!machine.paths.console_note().exists());
        assert_eq!(level(&machine.paths), Some(7), "other consoles keep their messages");
    }

    #[test]
    fn without_setlogcons_the_level_is_lowered_and_put_back() {
        let machine = Machine::new("7 4 1 7", "tty0");
        machine.prepare_without_programs("tty1");
        assert_eq!(level(&machine.paths), Some(4));
        machine.restore("tty1");
        assert_eq!(level(&machine.paths), Some(7));
    }

    #[test]
    fn a_console_that_was_killed_before_it_restored_keeps_the_first_note() {
        let machine = Machine::new("7 4 1 7", "tty0");
        machine.prepare_without_programs("tty1");
        machine.prepare_without_programs("tty1");
        machine.restore("tty1");
        assert_eq!(level(&machine.paths), Some(7));
    }

    #[test]
    fn a_level_that_is_low_is_not_raised_and_one_that_was_set_meanwhile_stays() {
        let quiet = Machine::new("1 4 1 7", "tty0");
        quiet.prepare_without_programs("tty1");
        assert_eq!(level(&quiet.paths), Some(1));
        quiet.restore("tty1");
        assert_eq!(level(&quiet.paths), Some(1));
        let touched = Machine::new("7 4 1 7", "tty0");
        touched.prepare_without_programs("tty1");
        set_level(&touched.paths, 6).unwrap();
        touched.restore("tty1");
        assert_eq!(level(&touched.paths), Some(6));
    }

    #[test]
    fn status_lines_on_a_serial_line_are_left_alone() {
        let machine = Machine::new("7 4 1 7", "tty0 ttyS0");
        machine.prepare("tty1");
        machine.restore("tty1");
        assert_eq!(machine.ran(), ["setlogcons 8", "setlogcons 0"]);
    }

    #[test]
    fn with_two_consoles_the_last_one_restores() {
        let machine = Machine::new("7 4 1 7", "tty0");
        machine.prepare("tty1");
        machine.prepare("tty3");
        machine.ran();
        machine.restore("tty1");
        assert_eq!(machine.ran(), Vec::<String>::new());
        machine.restore("tty3");
        assert_eq!(machine.ran(), ["setlogcons 0", "busctl "]);
    }

    #[test]
    fn a_serial_line_changes_nothing_of_the_machine() {
        let machine = Machine::new("7 4 1 7", "tty0");
        assert!(machine.prepare("ttyS0").is_empty() && machine.restore("ttyS0").is_empty());
        assert_eq!((level(&machine.paths), machine.ran()), (Some(7), vec![]));
    }

    #[test]
    fn what_does_not_work_is_said_and_the_rest_is_done() {
        let machine = Machine::new("7 4 1 7", "tty0");
        let lines = machine.prepare_without_programs("tty1");
        assert_eq!(level(&machine.paths), Some(4));
        assert_eq!(lines.iter().filter(|line| line.contains("is not installed")).count(), 2);
        assert_eq!(machine.restore("tty1"), Vec::<String>::new());
        assert_eq!(level(&machine.paths), Some(7));
    }

    #[test]
    fn what_cannot_be_noted_is_not_changed() {
        let machine = Machine::new("7 4 1 7", "tty0");
        std::fs::create_dir(machine.paths.console_note()).unwrap();
        let lines = machine.prepare("tty1");
        assert_eq!((level(&machine.paths), machine.ran(), lines.len()), (Some(7), vec![], 1), "{lines:?}");
    }

    #[test]
    fn a_note_that_somebody_planted_is_not_followed() {
        let machine = Machine::new("4 4 1 7", "tty0");
        let elsewhere = machine.root.path().join("elsewhere");
        std::fs::File::create(&elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, machine.paths.console_note()).unwrap();
        machine.prepare("tty1");
        assert_eq!(std::fs::read(&elsewhere).unwrap(), b"");
        assert!(std::fs::symlink_metadata(machine.paths.console_note()).unwrap().is_file());
    }
}
