//! The two programs, as an operator runs them: started, used, killed, started again.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

/// A lab founder in its own process; killed on drop.
struct Process {
    child: Child,
    ready: Value,
}

impl Process {
    fn start(dir: &Path, args: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_lab-founder"))
            .args(["run", "--dir"])
            .arg(dir)
            .args(args)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, ready: serde_json::from_str(&line).unwrap() }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ctl(dir: &Path, args: &[&str]) -> Output {
    let config = dir.join(lab_founder::CTL_FILE);
    let mut command = Command::new(env!("CARGO_BIN_EXE_stratumctl"));
    command
        .arg("--config")
        .arg(config)
        .args(["admin", "nodes"])
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_killed_founder_starts_again_with_its_codes_its_pin_and_its_token() {
    let dir = tempfile::tempdir().unwrap();
    let ready = dir.path().join("ready.json");
    let mut founder =
        Process::start(dir.path(), &["--release", "0.9.0", "--print-ready", ready.to_str().unwrap()]);
    let first = founder.ready.clone();
    assert_eq!(serde_json::from_slice::<Value>(&std::fs::read(ready).unwrap()).unwrap(), first);
    let created = ctl(dir.path(), &["join-codes", "create", "--note", "rack 4"]);
    let created = text(&created.stdout);
    let pin = first["caPin"].as_str().unwrap();
    assert!(created.contains("stratum-join://127.0.0.1:") && created.contains(pin), "{created}");
    founder.child.kill().unwrap();
    founder.child.wait().unwrap();
    let refused = ctl(dir.path(), &["join-codes", "list"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("is the lab founder running?"));
    let join = first["join"].as_str().unwrap();
    let founder = Process::start(dir.path(), &["--join-listen", join]);
    for key in ["join", "token", "caPin", "dir"] {
        assert_eq!(founder.ready[key], first[key], "{key}");
    }
    let list = text(&ctl(dir.path(), &["join-codes", "list"]).stdout);
    assert!(list.contains("live") && list.contains("rack 4"), "{list}");
}

#[test]
fn sigterm_ends_it_in_good_order() {
    let dir = tempfile::tempdir().unwrap();
    let mut founder = Process::start(dir.path(), &[]);
    Command::new("kill").arg(founder.child.id().to_string()).status().unwrap();
    assert_eq!(founder.child.wait().unwrap().code(), Some(0));
}

#[test]
fn an_approval_without_a_compared_pairing_code_is_refused_before_the_founder_is_asked() {
    let dir = tempfile::tempdir().unwrap();
    let _founder = Process::start(dir.path(), &[]);
    let refused = ctl(dir.path(), &["joins", "approve", "nj-8w2k4m1p"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("nobody compared the pairing codes"));
    let unknown = ctl(dir.path(), &["joins", "approve", "nj-8w2k4m1p", "--pairing", "4F7-K2Q"]);
    assert!(text(&unknown.stderr).contains("NOT_FOUND"));
    let list = text(&ctl(dir.path(), &["joins", "list"]).stdout);
    assert_eq!(
        list,
        "ID           STATE    PAIRING  HOSTNAME             SERIAL     SOURCE      NODE  WAITING FOR\n"
    );
}

#[test]
fn the_admin_listener_is_on_loopback_only() {
    let dir = tempfile::tempdir().unwrap();
    let refused = Command::new(env!("CARGO_BIN_EXE_lab-founder"))
        .args(["run", "--admin-listen", "0.0.0.0:0", "--dir"])
        .arg(dir.path())
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("must be on loopback"));
}
