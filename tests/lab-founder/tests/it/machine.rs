//! `lab-founder restart`, as a person types it.
#![allow(clippy::disallowed_methods, reason = "tests")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use stratum_join::durable_file::Lock;
use tempfile::TempDir;

const STATE: &str = "var/lib/stratum/join";

fn restart(root: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab-founder"));
    command.args(["restart", "--trial", "panics", "--root"]).arg(root);
    command.stdin(Stdio::null()).output().unwrap()
}

fn refused(root: &Path) -> String {
    let out = restart(root);
    assert_eq!(out.status.code(), Some(1), "{out:?}");
    assert!(out.stdout.is_empty(), "{out:?}");
    String::from_utf8(out.stderr).unwrap()
}

/// A machine whose agent has run.
fn machine() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for dir in ["etc", STATE, "run/stratum-join"] {
        fs::create_dir_all(root.path().join(dir)).unwrap();
    }
    fs::write(root.path().join("etc/os-release"), "VERSION_ID=0.6.0\nSTRATUM_SEQUENCE=60\n").unwrap();
    fs::write(root.path().join("run/stratum-join/snapshot.json"), "{}").unwrap();
    root
}

#[test]
fn a_machine_starts_its_confirmed_os_and_has_lost_what_was_in_memory() {
    let root = machine();
    let out = restart(root.path());
    assert!(out.status.success(), "{out:?}");
    let line: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(
        (&line["slot"], &line["release"], &line["came"]),
        (&"a".into(), &"0.6.0".into(), &true.into())
    );
    assert_eq!(line["bootId"].as_str().unwrap().len(), 36);
    assert!(!root.path().join("run/stratum-join").exists());
    assert_ne!(out.stdout, restart(root.path()).stdout, "each start has a boot id of its own");
}

#[test]
fn a_machine_whose_agent_runs_is_not_restarted() {
    let root = machine();
    let _agent = Lock::take(&root.path().join(STATE).join("lock")).unwrap();
    let said = refused(root.path());
    assert!(said.contains("stop the agent first: another stratum-join agent (pid "), "{said}");
    assert!(root.path().join("run/stratum-join/snapshot.json").exists());
}

#[test]
fn only_the_root_of_an_agent_is_one_and_never_the_real_one() {
    let empty = tempfile::tempdir().unwrap();
    assert!(refused(empty.path()).contains("no agent has run below"));
    assert!(refused(&empty.path().join("absent")).contains("no machine at"));
    assert!(refused(Path::new("/usr/..")).contains("/ is this machine itself"));
}

#[test]
fn a_link_out_of_the_root_is_not_followed() {
    let (root, outside) = (machine(), tempfile::tempdir().unwrap());
    fs::remove_dir_all(root.path().join("run")).unwrap();
    fs::create_dir(outside.path().join("stratum-join")).unwrap();
    std::os::unix::fs::symlink(outside.path(), root.path().join("run")).unwrap();
    assert!(refused(root.path()).contains("leads out of"));
    assert!(outside.path().join("stratum-join").exists());
}
