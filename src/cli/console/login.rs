//! Gives a terminal back to its login, and never to nobody.
//!
//! Touches the marker `/run/stratum-join/login-<tty>`, which lets getty start there and the console not, and asks systemd for the
//! getty. Must never take a terminal from a console that is up again, nor from a rescue shell.

use std::os::unix::fs::MetadataExt;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::programs::Programs;
use super::vt::is_vt;
use crate::durable_file;
use crate::paths::Paths;
use crate::privileged::banner;

/// How often a link in the marker's place is removed before giving up.
const TRIES: u32 = 8;

/// What the login's unit does once the console has ended for good. Gives the line to log.
///
/// # Errors
/// The login could not be given back; the unit tries again.
pub(super) fn give_back(paths: &Paths, tty: &str, programs: &mut Programs) -> Result<String, String> {
    if has_no_hardware(paths, tty) {
        return Ok(format!("{tty} has no hardware: no login is started there"));
    }
    let console = format!("stratum-join-console@{tty}.service");
    // Restarted by hand, it stops and starts: what stopped is not over.
    let state = programs.run("systemctl", &["show", "--property=ActiveState", "--value", &console]);
    if let Ok(state @ ("active" | "activating" | "reloading")) = state.as_deref() {
        return Ok(format!("{console} is {state}: {tty} stays with it"));
    }
    let marked = mark(paths, tty);
    // The console is gone, so the prompt must not send people to its screen. Without a snapshot there is nothing to say yet.
    if let Ok(agent) = std::fs::metadata(paths.state_dir()) {
        let _ = banner::reload(paths, agent.uid(), false);
    }
    let getty =
        if is_vt(tty) { format!("getty@{tty}.service") } else { format!("serial-getty@{tty}.service") };
    // A getty ends a rescue shell (getty@.service: Conflicts=rescue.service) and has no place in a shutdown; the marker lets it come later.
    let system = programs.run("systemctl", &["show", "--property=SystemState", "--value"]);
    let started = match system.as_deref() {
        Ok(state @ ("maintenance" | "stopping")) => {
            Ok(format!("{tty} is free for its login, which is not started now: the system is {state}"))
        }
        _ => programs
            .run("systemctl", &["start", "--no-block", &getty])
            .map(|_| format!("{tty} is given back to its login: {getty}")),
    };
    marked.and(started)
}

/// True once the conditions of the console's unit hold no more. A console that crashes then is not started again, and a start that is
/// skipped tells nobody: systemd 252 happens to run OnSuccess= then, later ones need not.
pub(super) fn is_due(paths: &Paths) -> bool {
    paths.joined_marker().exists() || !paths.request().exists()
}

// === private ===

/// A `ttyS` the kernel reserves but has no hardware for.
fn has_no_hardware(paths: &Paths, tty: &str) -> bool {
    let kind = durable_file::read_public(&paths.serial_type(tty), 64).ok().flatten();
    tty.starts_with("ttyS") && kind.is_some_and(|kind| kind.trim_ascii() == b"0")
}

/// Whatever is there lets the login start, except a link, which may lead nowhere: the directory is shared with the agent.
fn mark(paths: &Paths, tty: &str) -> Result<(), String> {
    let path = paths.login_marker(tty);
    let failed = |errno: Errno| format!("cannot write {}: {}", path.display(), durable_file::plain(errno));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for _ in 0..TRIES {
        match rustix::fs::open(&path, flags, Mode::from_raw_mode(0o644)) {
            Ok(_) => return Ok(()),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed(errno)),
        }
        match rustix::fs::readlink(&path, Vec::new()) {
            Err(Errno::INVAL) => return Ok(()),
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed(errno)),
            Ok(_) => rustix::fs::unlink(&path).map_err(failed)?,
        }
    }
    Err(format!("cannot write {}: somebody puts links there", path.display()))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    struct Machine {
        _root: tempfile::TempDir,
        paths: Paths,
    }

    fn machine() -> Machine {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::under(root.path());
        std::fs::create_dir_all(paths.public_dir()).unwrap();
        Machine { _root: root, paths }
    }

    /// What was started, with the console and the system in these states.
    fn give(paths: &Paths, tty: &str, console: &str, system: &str) -> (Result<String, String>, Vec<String>) {
        let started = Rc::new(RefCell::new(Vec::new()));
        let (seen, console, system) = (Rc::clone(&started), console.to_owned(), system.to_owned());
        let mut programs = Programs::with(move |_, arguments| match arguments {
            ["show", "--property=ActiveState", ..] => Ok(console.clone()),
            ["show", "--property=SystemState", ..] => Ok(system.clone()),
            ["start", "--no-block", unit] => {
                seen.borrow_mut().push((*unit).to_owned());
                Ok(String::new())
            }
            other => Err(format!("{other:?}")),
        });
        let said = give_back(paths, tty, &mut programs);
        (said, started.take())
    }

    #[test]
    fn each_terminal_gets_the_login_of_its_kind() {
        for (tty, unit) in [
            ("tty1", "getty@tty1.service"),
            ("ttyS0", "serial-getty@ttyS0.service"),
            ("hvc0", "serial-getty@hvc0.service"),
        ] {
            let machine = machine();
            let (said, started) = give(&machine.paths, tty, "failed", "running");
            assert_eq!((said.is_ok(), started), (true, vec![unit.to_owned()]));
            assert!(machine.paths.login_marker(tty).is_file());
        }
    }

    #[test]
    fn the_prompt_that_comes_back_sends_nobody_to_the_screen_that_went() {
        let machine = machine();
        std::fs::create_dir_all(machine.paths.state_dir()).unwrap();
        let put = |path: std::path::PathBuf, bytes: &[u8]| {
            std::io::Write::write_all(&mut std::fs::File::create(path).unwrap(), bytes).unwrap();
        };
        let pending = console::Snapshot {
            state: console::snapshot::State::Pending,
            pairing_code: Some("4F7-K2Q".into()),
            ..console::Snapshot::default()
        };
        put(machine.paths.snapshot(), &pending.encode());
        put(machine.paths.issue(), b" Pairing code  4F7-K2Q   status screen: Alt+F1\n");
        assert!(give(&machine.paths, "tty1", "failed", "running").0.is_ok());
        let issue = std::fs::read_to_string(machine.paths.issue()).unwrap();
        assert!(issue.contains("4F7-K2Q") && !issue.contains("Alt+F1"), "{issue}");
    }

    #[test]
    fn a_login_is_due_without_a_request_and_once_joined() {
        let machine = machine();
        assert!(is_due(&machine.paths));
        std::fs::create_dir_all(machine.paths.state_dir()).unwrap();
        std::fs::File::create(machine.paths.request()).unwrap();
        assert!(!is_due(&machine.paths));
        std::fs::File::create(machine.paths.joined_marker()).unwrap();
        assert!(is_due(&machine.paths));
    }

    #[test]
    fn a_port_without_hardware_gets_none() {
        let machine = machine();
        let kind = machine.paths.serial_type("ttyS3");
        std::fs::create_dir_all(kind.parent().unwrap()).unwrap();
        std::io::Write::write_all(&mut std::fs::File::create(kind).unwrap(), b"0\n").unwrap();
        let (said, started) = give(&machine.paths, "ttyS3", "failed", "running");
        assert_eq!((said.is_ok(), started), (true, vec![]));
    }

    #[test]
    fn a_console_that_is_up_again_keeps_its_terminal() {
        for state in ["active", "activating"] {
            let machine = machine();
            assert_eq!(give(&machine.paths, "tty1", state, "running").1, Vec::<String>::new());
            assert!(!machine.paths.login_marker("tty1").exists());
        }
    }

    #[test]
    fn a_rescue_shell_and_a_shutdown_are_not_disturbed() {
        for state in ["maintenance", "stopping"] {
            let machine = machine();
            assert_eq!(give(&machine.paths, "tty1", "inactive", state).1, Vec::<String>::new());
            assert!(machine.paths.login_marker("tty1").is_file());
        }
    }

    #[test]
    fn a_link_in_the_markers_place_is_replaced_and_not_followed() {
        let machine = machine();
        let elsewhere = machine.paths.public_dir().join("elsewhere");
        std::os::unix::fs::symlink(&elsewhere, machine.paths.login_marker("tty1")).unwrap();
        assert!(give(&machine.paths, "tty1", "failed", "running").0.is_ok());
        assert!(!elsewhere.exists());
        assert!(std::fs::symlink_metadata(machine.paths.login_marker("tty1")).unwrap().is_file());
    }

    #[test]
    fn a_marker_that_is_there_is_fine() {
        let machine = machine();
        for _ in 0..2 {
            assert!(give(&machine.paths, "tty1", "failed", "running").0.is_ok());
        }
    }

    #[test]
    fn without_a_marker_the_login_is_still_asked_for_and_the_unit_fails() {
        let machine = machine();
        std::fs::remove_dir(machine.paths.public_dir()).unwrap();
        let (said, started) = give(&machine.paths, "tty1", "failed", "running");
        assert_eq!((said.is_err(), started), (true, vec!["getty@tty1.service".to_owned()]));
    }
}
