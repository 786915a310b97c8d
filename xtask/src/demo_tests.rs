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
    /// The joiner upgrades itself first.
    upgrade: Option<Upgrade>,
}

/// What differs from an upgrade that goes well.
#[derive(Clone, Copy)]
struct Upgrade {
    from: From,
    /// The code after the restart.
    code: &'static str,
    /// What the new OS's slot holds; the release's root is `noise`.
    slot: &'static str,
    /// The first attempt fails, and nobody told it to.
    fails: bool,
    break_new_os: bool,
}

impl Upgrade {
    const GOOD: Self =
        Self { from: From::Founder, code: "4F7-K2Q", slot: "noise", fails: false, break_new_os: false };
}

const FOUNDER: &str = r#"
here=$(dirname "$0")
case "$1 $2" in
"release keygen") mkdir -p keys; echo key > keys/demo.pub ;;
"release make")
  mkdir -p release/payload; printf noise > release/root
  echo '{"os":{"ab":{"root":{"path":"root"}}}}' > release/payload/manifest.json ;;
"mirror --dir") echo '{"url":"https://127.0.0.1:3","ca":"/ca.pem"}'; exec sleep 600 ;;
"restart --trial")
  rm -f "$5/var/lib/stratum/os/recorded/restart-requested" "$5/run/stratum-join/snapshot.json"
  up() { printf '{"bootId":"%s","slot":"%s","release":"%s","entry":"e","came":true}\n' "$@"; }
  if [ "$3" = panics ]; then up id-old a 0.6.0; else up id-new b 0.7.0; fi ;;
esac
[ "$1" = run ] || exit 0
echo "$*" > "$here/founder-args"
mkdir -p "$3"
printf '{"join":"127.0.0.1:1","admin":"127.0.0.1:2","token":"t","caPin":"p","dir":"%s"}\n' "$3"
exec sleep 600"#;

const CTL: &str = r#"
here=$(dirname "$0")
case "$*" in
*"join-codes create"*) echo '{"id":"jc-1","code":"4F7K-2Q9M-ABD"}' ;;
*"joins list") printf 'ID           STATE    PAIRING\nnj-8w2k4m1p  %s  LISTED\n' "$(cat "$here/state")" ;;
*"joins show nj-8w2k4m1p"*)
  echo '{"steps":['
  for step in manifest download verify install boot; do
    echo '{"name":"upgrade/'$step'","title":"'$step'","status":"done"},'
  done
  echo '{"name":"upgrade/health","title":"health","status":"done"}]}' ;;
*"approve nj-8w2k4m1p --pairing 4F7-K2Q") touch "$here/approved" ;;
*) echo "unexpected: $*" >&2; exit 2 ;;
esac"#;

const INSTALLER: &str = r#"
read -r code
[ "$code" = 4F7K-2Q9M-ABD ] && echo "saved""#;

const AGENT: &str = r#"
here=$(dirname "$0"); run="$3/run/stratum-join"; mkdir -p "$run"
code=4F7-K2Q
show() {
  echo "$1" > "$here/state"
  printf '{"state":"%s","headline":"%s","next":[],"agent":{"startedMono":1000},"pairingCode":"%s",%s
    "registration":{"joinId":"nj-8w2k4m1p","registeredMono":1112},"phase":"install","steps":%s}' "$1" "$1" "$code" "$3" "$2" > "$run/t"
  mv "$run/t" "$run/snapshot.json"
}
recorded="$3/var/lib/stratum/os/recorded"
case "$* $STRATUM_BOOT_ID" in
*"--recorded-os id-new") code=NEW_CODE ;;
*"--recorded-os id-old") show needs-upgrade '[]' '"upgrade":{"waiting":"retry"},"actions":{"retry":true},'; exec sleep 600 ;;
*"--recorded-os ")
  FAILS && show needs-upgrade '[]' '"upgrade":{"waiting":"retry"},"fault":{"message":"no room","do":["Free space."]},' && exec sleep 600
  show needs-upgrade '[]'
  sleep 0.2; mkdir -p "$recorded"; printf SLOT > "$recorded/slot-b.img"; touch "$recorded/restart-requested"; exec sleep 600 ;;
esac
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
    let (result, approved, _) = demo_with_args(with);
    (result, approved)
}

/// And what the founder was started with.
fn demo_with_args(with: &Script) -> (Result<()>, bool, String) {
    let dir = tempfile::tempdir().unwrap();
    let bin = dir.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let or = |word: &'static str, default| if word.is_empty() { default } else { word };
    script(&bin.join("lab-founder"), FOUNDER);
    script(&bin.join("stratumctl"), &CTL.replace("LISTED", or(with.listed, "4F7-K2Q")));
    script(&bin.join("stratum-installer"), INSTALLER);
    let agent = AGENT.replace("show END", &format!("show {}", or(with.end, "joined")));
    let upgrade = with.upgrade.unwrap_or(Upgrade::GOOD);
    let agent = agent.replace("AGENT_EXIT", or(with.agent_exit, "exit 0"));
    let agent = agent.replace("NEW_CODE", upgrade.code).replace("SLOT", upgrade.slot);
    script(&bin.join("stratum-join"), &agent.replace("FAILS", if upgrade.fails { "true" } else { "false" }));
    let programs = Programs::in_dir(bin.clone());
    let signals = Signals::register().unwrap();
    let wanted = with.upgrade.map(|upgrade| Wanted {
        sizes: Sizes { root: 5, linux: 1, initrd: 1, sysext: 1 },
        from: upgrade.from,
        break_new_os: upgrade.break_new_os,
        rate: 8,
    });
    let plan = wanted.map(|wanted| Plan::make(&programs, dir.path(), &wanted, &signals)).transpose();
    let result = plan
        .and_then(|plan| Demo::start(&programs, dir.path(), plan, &signals, false))
        .and_then(|mut demo| demo.join(false));
    let args = std::fs::read_to_string(bin.join("founder-args")).unwrap();
    (result, bin.join("approved").exists(), args)
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

fn upgraded(upgrade: Upgrade) -> (Result<()>, bool, String) {
    // The code in `joins list` is that of the joiner in every case.
    demo_with_args(&Script { upgrade: Some(upgrade), ..Script::default() })
}

#[test]
fn an_older_joiner_is_approved_after_its_upgrade_from_the_founder() {
    let (result, approved, args) = upgraded(Upgrade::GOOD);
    result.unwrap();
    assert!(approved);
    assert!(args.contains("/release --transfer-rate 4194304"), "half of 8 MiB for each of two: {args}");
}

#[test]
fn an_older_joiner_is_approved_after_its_upgrade_from_a_mirror() {
    let (result, approved, args) = upgraded(Upgrade { from: From::Mirror, ..Upgrade::GOOD });
    result.unwrap();
    assert!(approved && args.contains("--mirror https://127.0.0.1:3"), "{args}");
}

#[test]
fn another_pairing_code_after_the_restart_is_not_approved() {
    let (result, approved, _) = upgraded(Upgrade { code: "4F7-K2X", ..Upgrade::GOOD });
    assert_eq!(
        result.unwrap_err().to_string(),
        "the joiner shows 4F7-K2X, the cluster 4F7-K2Q: not approved",
        "the list of the stand-in does not follow"
    );
    assert!(!approved);
    let known = Upgraded::for_tests("nj-8w2k4m1p", "4F7-K2Q");
    known.check("nj-8w2k4m1p", "4F7-K2Q").unwrap();
    let error = known.check("nj-8w2k4m1p", "4F7-K2X").unwrap_err().to_string();
    assert!(error.starts_with("the joiner showed 4F7-K2Q before the upgrade and shows 4F7-K2X"), "{error}");
    let error = known.check("nj-000000000", "4F7-K2Q").unwrap_err().to_string();
    assert!(
        error.starts_with("the joiner was nj-8w2k4m1p before the upgrade and is nj-000000000"),
        "{error}"
    );
}

#[test]
fn a_slot_that_does_not_hold_the_root_image_is_an_error() {
    let (result, approved, _) = upgraded(Upgrade { slot: "noisf", ..Upgrade::GOOD });
    let error = result.unwrap_err().to_string();
    assert!(error.contains("slot-b.img does not hold what"), "{error}");
    assert!(!approved);
}

#[test]
fn an_attempt_that_fails_ends_the_demo_with_its_fault_and_not_after_ten_minutes() {
    let (result, ..) = upgraded(Upgrade { fails: true, ..Upgrade::GOOD });
    assert_eq!(result.unwrap_err().to_string(), "the upgrade failed: no room Free space.");
}

#[test]
fn without_a_control_socket_the_next_attempt_cannot_be_asked_for() {
    let (result, ..) = upgraded(Upgrade { break_new_os: true, ..Upgrade::GOOD });
    let error = format!("{:#}", result.unwrap_err());
    assert!(error.starts_with("connect ") && error.contains("control.sock"), "{error}");
}
