//! What `stratum-join console` tells systemd, and how it ends: without a terminal, so on a pipe. The terminals are in console/tests/pty.rs.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use console::Snapshot;
use console::snapshot::State;

fn console(root: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stratum-join"));
    command.args(["console", "--root"]).arg(root).stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

fn root_with(state: State) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join("run/stratum-join")).unwrap();
    let snapshot = Snapshot { state, ..Snapshot::default() };
    std::fs::write(root.path().join("run/stratum-join/snapshot.json"), snapshot.encode()).unwrap();
    root
}

struct Systemd(UnixDatagram);

impl Systemd {
    fn at(path: &Path) -> Self {
        let socket = UnixDatagram::bind(path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Self(socket)
    }

    fn told(&self) -> String {
        let mut bytes = [0; 512];
        let len = self.0.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    }
}

#[test]
fn it_is_ready_with_its_first_frame_and_feeds_the_watchdog_with_each() {
    let root = root_with(State::Pending);
    let socket = root.path().join("notify");
    let systemd = Systemd::at(&socket);
    let mut child = console(root.path()).env("NOTIFY_SOCKET", &socket).spawn().unwrap();
    let first = systemd.told();
    let second = systemd.told();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(first.contains("READY=1") && first.contains("WATCHDOG=1"), "{first}");
    assert!(second.contains("WATCHDOG=1") && !second.contains("READY=1"), "{second}");
}

#[test]
fn one_that_ends_well_before_a_second_frame_has_been_ready() {
    let root = root_with(State::Joined);
    let socket = root.path().join("notify");
    let systemd = Systemd::at(&socket);
    let status = console(root.path()).env("NOTIFY_SOCKET", &socket).status().unwrap();
    assert!(status.success());
    assert!(systemd.told().contains("READY=1"));
}

#[test]
fn a_name_that_is_no_terminal_is_wrong_usage_for_the_screen_and_for_each_duty() {
    let root = root_with(State::Pending);
    for duty in [None, Some("--prepare"), Some("--restore"), Some("--give-back")] {
        for name in ["tty0", "console", "../tty1", "pts/1"] {
            let done = console(root.path())
                .args(["--tty", name])
                .args(duty)
                .stderr(Stdio::piped())
                .output()
                .unwrap();
            assert_eq!(done.status.code(), Some(64), "{duty:?} {name}");
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            assert!(said.contains("not a terminal name"), "{said}");
        }
    }
}

#[test]
fn a_terminal_that_is_not_there_is_a_lost_one() {
    let root = root_with(State::Pending);
    let done = console(root.path()).args(["--tty", "ttyUSB99"]).stderr(Stdio::null()).status().unwrap();
    assert_eq!(done.code(), Some(75));
}
