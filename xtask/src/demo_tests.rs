//! The demo against stand-ins: shell scripts with the names of our programs, in a temporary directory.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::*;

/// What differs from a join that goes well.
#[derive(Default)]
struct Script {
    /// The code in `joins list`; the joiner always shows `4F7-K2Q`.
    listed: &'static str,
    /// The state the join ends in.
    end: &'static str,
    /// How the agent ends.
    agent_exit: &'static str,
}

const FOUNDER: &str = r#"
mkdir -p "$3"
printf '{"join":"127.0.0.1:1","admin":"127.0.0.1:2","token":"t","caPin":"p","dir":"%s"}\n' "$3"
exec sleep 600"#;

const CTL: &str = r#"
here=$(dirname "$0")
case "$*" in
*"join-codes create"*) echo '{"id":"jc-1","code":"4F7K-2Q9M-ABD"}' ;;
*"joins list") printf 'ID           STATE    PAIRING\nnj-8w2k4m1p  pending  LISTED\n' ;;
*"approve nj-8w2k4m1p --pairing 4F7-K2Q") touch "$here/approved" ;;
*) echo "unexpected: $*" >&2; exit 2 ;;
esac"#;

const INSTALLER: &str = r#"
read -r code
[ "$code" = 4F7K-2Q9M-ABD ] && echo "saved""#;

const AGENT: &str = r#"
here=$(dirname "$0"); run="$3/run/stratum-join"; mkdir -p "$run"
show() {
  printf '{"state":"%s","headline":"%s","next":[],"agent":{"startedMono":1000},"pairingCode":"4F7-K2Q",
    "registration":{"joinId":"nj-8w2k4m1p","registeredMono":1112},"phase":"install","steps":%s}' "$1" "$1" "$2" > "$run/t"
  mv "$run/t" "$run/snapshot.json"
}
show pending '[]'
while [ ! -e "$here/approved" ]; do sleep 0.01; done
show installing '[{"name":"storage","title":"Disks","index":1,"total":1,"status":"running"}]'
show END '[{"name":"storage","title":"Disks","index":1,"total":1,"status":"done","elapsedMs":10}]'
AGENT_EXIT"#;

fn script(path: &Path, body: &str) {
    let mut file = File::create(path).unwrap();
    writeln!(file, "#!/bin/sh{body}").unwrap();
    file.set_permissions(std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Runs a headless demo with these stand-ins; also whether the approval was given.
fn demo(with: &Script) -> (Result<()>, bool) {
    let dir = tempfile::tempdir().unwrap();
    let bin = dir.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let or = |word: &'static str, default| if word.is_empty() { default } else { word };
    script(&bin.join("lab-founder"), FOUNDER);
    script(&bin.join("stratumctl"), &CTL.replace("LISTED", or(with.listed, "4F7-K2Q")));
    script(&bin.join("stratum-installer"), INSTALLER);
    let agent = AGENT.replace("show END", &format!("show {}", or(with.end, "joined")));
    script(&bin.join("stratum-join"), &agent.replace("AGENT_EXIT", or(with.agent_exit, "exit 0")));
    let programs = Programs::in_dir(bin.clone());
    let signals = Signals::register().unwrap();
    let result = Demo::start(&programs, dir.path(), signals, false).and_then(|mut demo| demo.join(false));
    (result, bin.join("approved").exists())
}

#[test]
fn a_join_that_goes_well_ends_joined() {
    let (result, approved) = demo(&Script::default());
    result.unwrap();
    assert!(approved);
}

#[test]
fn two_different_pairing_codes_are_not_approved() {
    let (result, approved) = demo(&Script { listed: "4F7-K2X", ..Script::default() });
    assert_eq!(
        result.unwrap_err().to_string(),
        "the joiner shows 4F7-K2Q, the cluster 4F7-K2X: not approved"
    );
    assert!(!approved);
}

#[test]
fn a_failed_join_is_an_error() {
    let (result, _) = demo(&Script { end: "failed", agent_exit: "exec sleep 600", ..Script::default() });
    assert!(result.unwrap_err().to_string().starts_with("the join stopped: failed"));
}

#[test]
fn an_agent_that_dies_before_the_end_is_an_error_with_its_exit() {
    let (result, _) =
        demo(&Script { end: "installing", agent_exit: "echo no >&2; exit 1", ..Script::default() });
    assert_eq!(result.unwrap_err().to_string(), "the agent ended with exit code 1; it said:\n  | no");
}

#[test]
fn an_agent_that_fails_after_joined_is_an_error() {
    let (result, _) = demo(&Script { agent_exit: "exit 1", ..Script::default() });
    assert_eq!(result.unwrap_err().to_string(), "joined, but the agent ended with exit code 1");
}
