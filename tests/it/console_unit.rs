//! What `stratum-join console` tells systemd, and how it ends: without a terminal, so on a pipe. The terminals are in console/tests/pty.rs.

use std::io::Write;
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

/// `console --render` with these arguments; exit code, standard output, standard error.
fn render(args: &[&str], stdin: &[u8]) -> (Option<i32>, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_stratum-join"))
        .args(["console", "--render"])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Who does not read it closes it.
    let _ = child.stdin.take().unwrap().write_all(stdin);
    let done = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (done.status.code(), text(done.stdout), text(done.stderr))
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

#[test]
fn a_snapshot_is_printed_as_it_was_when_it_was_written_from_a_file_and_from_a_pipe() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("from the field.json");
    let snapshot = Snapshot {
        state: State::Pending,
        pairing_code: Some("4F7-K2Q".into()),
        written_at: "2026-11-29T10:55:15Z".into(),
        written_mono: 812_400,
        ..Snapshot::default()
    };
    std::fs::write(&path, snapshot.encode()).unwrap();
    let file = path.to_str().unwrap();
    for args in [&["--size", "80x24"][..], &["--size", "0x0"], &[], &["--card"], &["--screen", "details"]] {
        let (code, out, err) = render(&[&[file], args].concat(), b"");
        assert_eq!((code, err.as_str()), (Some(0), ""), "{args:?}");
        assert!(out.contains("4F7-K2Q") && out.contains("10:55:15Z"), "{args:?}: {out}");
        assert_eq!(render(&[&["-"], args].concat(), &snapshot.encode()).1, out, "{args:?}");
    }
    let (_, small, _) = render(&[file, "--size", "20x5"], b"");
    assert!(small.lines().count() == 5 && small.lines().all(|line| line.len() <= 20), "{small}");
}

#[test]
fn what_cannot_be_printed_is_told_with_an_exit_code_of_its_own() {
    let snapshot = Snapshot::default().encode();
    let long = [snapshot.as_slice(), &vec![b' '; 70_000]].concat();
    for (args, stdin, code, said) in [
        (
            &["-", "--size", "80by24"][..],
            snapshot.as_slice(),
            64,
            "not a size: 80by24; give COLSxROWS, for example 80x24",
        ),
        (&["-", "--size", "999x9"], &snapshot, 64, "the size 999x9 is larger than 500x200"),
        (&["-"], b"not json", 65, "standard input: the snapshot is not valid JSON"),
        (&["-"], b"", 65, "standard input: the snapshot is not valid JSON"),
        (&["-"], &long, 65, "standard input: the snapshot is larger than 64 KiB"),
        (
            &["/nonexistent/snapshot.json"],
            b"",
            66,
            "cannot read /nonexistent/snapshot.json: no such file or directory\n",
        ),
    ] {
        let (end, out, err) = render(args, stdin);
        assert_eq!((end, out.as_str()), (Some(code), ""), "{args:?}: {err}");
        assert!(err.starts_with("stratum-join console: ") && err.contains(said), "{args:?}: {err}");
    }
}
