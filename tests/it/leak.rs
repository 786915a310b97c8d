//! Secrets are where they belong and nowhere else: join code, client key, pairing nonce, and every secret of the delivery.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};
use std::time::SystemTime;

use console::Snapshot;
use console::snapshot::State;
use lab_founder::{Peer, Request};
use serde_json::{Value, json};

use crate::support::leaks::{Canary, Processes, places, search};
use crate::support::{PATIENCE, World, wait};

/// The files that may hold a secret, and for how long: in `request.json` the code until the approval, the key until joined.
fn may_hold(canary: &str, place: &str) -> bool {
    // A file that is being replaced has its next content beside it, under the same permissions, until the rename.
    let is = |file: &str| {
        let (dir, name) = file.rsplit_once('/').unwrap();
        let rest = place.strip_prefix(dir).and_then(|rest| rest.strip_prefix('/'));
        rest.is_some_and(|rest| {
            rest == name || (rest.starts_with(&format!(".{name}.")) && rest.ends_with(".tmp"))
        })
    };
    let firstboots_own_log = place.starts_with("run/stratum/firstboot/") && place.ends_with("/log");
    match canary {
        "join code" => is("var/lib/stratum/join/request.json"),
        "client key" => is("var/lib/stratum/join/identity/key.pem"),
        // It is shown to the founder once, in the registration: that is what it is for.
        "pairing nonce" => is("var/lib/stratum/join/journal.json") || place == "founder: registration",
        _ => is("run/stratum/delivery/bundle.json") || is("etc/stratum/node.yaml") || firstboots_own_log,
    }
}

#[test]
fn every_secret_is_only_where_it_may_be_before_during_and_after_the_install() {
    let since = SystemTime::now();
    let mut world = World::new();
    let code = world.code();
    let temporary = world.machine.path("tmp");
    fs::create_dir(&temporary).unwrap();
    world.machine.set_env("TMPDIR", temporary.display().to_string());
    world.machine.set_env("SSLKEYLOGFILE", world.machine.path("keylog").display().to_string());
    // firstboot prints every text of the bundle, as a program in trouble does.
    world.machine.firstboot_does("print-secrets\ndelay-ms=100\nhang=storage\n");
    let processes = Processes::watch(&world.machine.path(""));

    world.machine.ask_to_join(&world.endpoint(), &code);
    world.machine.start();
    world.machine.wait_for_state(State::Pending);
    let mut canaries = Canary::of_code(&code);
    canaries.extend(Canary::of_pem("client key", &world.machine.client_key()));
    let nonce = world.machine.journal()["pairing"]["nonce"].as_str().unwrap().to_owned();
    canaries.push(Canary::new("pairing nonce", nonce));
    assert_eq!(search(&places(&world, since), &canaries, may_hold), BTreeSet::new(), "while it waits");
    let owned = search(&places(&world, since), &canaries, |_, _| false);
    assert!(
        owned.contains("client key in var/lib/stratum/join/identity/key.pem"),
        "the search finds them: {owned:?}"
    );

    let id = world.approve();
    world.machine.wait_for_state(State::Installing);
    let bundle = fs::read(world.machine.path("run/stratum/delivery/bundle.json")).unwrap();
    canaries.extend(Canary::of_bundle(&serde_json::from_slice(&bundle).unwrap()));
    let told = || world.record(&id)["log"].to_string().contains("checking the chosen disks").then_some(());
    wait::until(PATIENCE, told).expect("the founder has the lines behind the secrets");
    let log = world.record(&id)["log"].to_string();
    assert!(log.matches("[removed]").count() >= 7, "{log}");
    assert_eq!(search(&places(&world, since), &canaries, may_hold), BTreeSet::new(), "during the install");

    // A failed step whose error holds a secret, then the retry that goes through. firstboot also tells the founder itself (documented): that is
    // firstboot's own call, and its text comes back to us with the next poll.
    world.machine.kill_firstboot();
    let password: Value = serde_json::from_slice::<Value>(&bundle).unwrap()["postgresPassword"].clone();
    let error = format!("fail=join/patroni\nerror=cannot log in with {}", password.as_str().unwrap());
    wait::until(PATIENCE, || (world.record(&id)["state"] == "failed").then_some(())).expect("it is failed");
    world.machine.firstboot_does(&format!("print-secrets\ndelay-ms=0\n{error}\n"));
    world.admin("POST", &format!("/v1/admin/cluster/joins/{id}/retry"), None);
    let failed = || (world.record(&id)["failedStep"] == "join/patroni").then_some(());
    wait::until(PATIENCE, failed).unwrap_or_else(|| panic!("{}", world.machine.log()));
    world.machine.wait_for_state(State::Failed);
    let reported = || {
        let told = world.founder.core().received();
        let mut progress = told.iter().filter(|r| r.path.ends_with("/progress"));
        progress
            .any(|r| String::from_utf8_lossy(&r.body).contains("cannot log in with [removed]"))
            .then_some(())
    };
    wait::until(PATIENCE, reported).expect("the agent's own report is redacted");
    // The options of the stand-in hold it, too, and are no file of ours.
    world.machine.firstboot_does("print-secrets\ndelay-ms=0\n");
    let firstboots_call = |canary: &str, place: &str| {
        may_hold(canary, place) || matches!(place, "founder: record" | "founder: join-failed")
    };
    assert_eq!(
        search(&places(&world, since), &canaries, firstboots_call),
        BTreeSet::new(),
        "after a failed step"
    );

    world.admin("POST", &format!("/v1/admin/cluster/joins/{id}/retry"), None);
    let end = world.machine.wait_for_end();
    assert!(end.success(), "{}", world.machine.log());
    let mut found = places(&world, since);
    found.push(processes.stop());
    assert_eq!(search(&found, &canaries, firstboots_call), BTreeSet::new(), "after it joined");
    let processes = &found.last().unwrap().text;
    for seen in ["stratum-join agent", "stratum-installer join", "firstboot"] {
        assert!(processes.contains(seen), "the watch saw no {seen}: {processes}");
    }
    // What is over is gone, also from where it was allowed.
    for gone in ["run/stratum/delivery/bundle.json", "var/lib/stratum/join/identity/key.pem", "keylog"] {
        assert!(!world.machine.path(gone).exists(), "{gone}");
    }
    assert!(world.machine.request().get("code").is_none());
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0, "no temporary file");
}

#[test]
fn a_failure_that_is_first_seen_after_a_restart_shows_no_secret() {
    let since = SystemTime::now();
    let mut world = World::new();
    world.machine.firstboot_does("delay-ms=0\nhang=storage\n");
    world.ask_to_join();
    world.machine.start();
    let id = world.approve();
    world.machine.wait_for_state(State::Installing);
    let bundle = fs::read(world.machine.path("run/stratum/delivery/bundle.json")).unwrap();
    let bundle: Value = serde_json::from_slice(&bundle).unwrap();
    let password = bundle["postgresPassword"].as_str().unwrap();

    // While the agent is dead, firstboot tells the founder why it failed (documented call).
    world.machine.kill();
    let node = world.record(&id)["nodeId"].as_str().unwrap().to_owned();
    let error = format!("cannot log in with {password}");
    let call = format!("/v1/admin/cluster/members/{node}/join-failed");
    world.admin("POST", &call, Some(json!({ "step": "join/patroni", "error": error })));
    world.machine.kill_firstboot();
    world.machine.start();
    world.machine.wait_for("failed, told by the founder", |s| {
        s.state == State::Failed && s.cluster.last_contact_mono.is_some()
    });
    let firstboots_call = |canary: &str, place: &str| {
        may_hold(canary, place) || matches!(place, "founder: record" | "founder: join-failed")
    };
    let canary = [Canary::new("postgresPassword", password.to_owned())];
    assert_eq!(search(&places(&world, since), &canary, firstboots_call), BTreeSet::new());
}

#[test]
fn the_log_that_the_agent_keeps_of_firstboot_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let mut world = World::new();
    world.machine.firstboot_does("print-secrets\ndelay-ms=0\nhang=storage\n");
    world.ask_to_join();
    world.machine.start();
    world.approve();
    world.machine.wait_for("the second step", |s| s.steps.len() >= 2);
    let mode = |below: &str| fs::metadata(world.machine.path(below)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("run/stratum/firstboot"), 0o700);
    assert_eq!(mode("run/stratum/delivery"), 0o700);
    assert_eq!(mode("run/stratum/delivery/bundle.json"), 0o600);
    assert_eq!(mode("etc/stratum/node.yaml"), 0o600);
    assert_eq!(mode("var/lib/stratum/join"), 0o700);
    for file in ["request.json", "journal.json", "identity/key.pem"] {
        assert_eq!(mode(&format!("var/lib/stratum/join/{file}")), 0o600, "{file}");
    }
    assert_eq!(mode("run/stratum-join/snapshot.json"), 0o644);
}

/// Plants one canary in every place that is searched: each must be found.
#[test]
fn the_search_finds_a_canary_in_every_place() {
    const CANARY: &str = "canary-5f3a9c1e7b2d";
    let since = SystemTime::now();
    let world = World::new();
    let root = world.machine.path("");
    let plant = |below: &str, text: &str| {
        let path = world.machine.path(below);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    plant("agent.log", &format!("2026 INFO {CANARY}\n"));
    plant("var/lib/stratum/join/anything", CANARY);
    let snapshot = Snapshot {
        cluster: console::snapshot::Cluster { endpoint: CANARY.into(), ..Default::default() },
        ..Snapshot::default()
    };
    plant("run/stratum-join/snapshot.json", std::str::from_utf8(&snapshot.encode()).unwrap());
    plant("run/stratum-join/issue", &data_encoding::BASE64.encode(CANARY.as_bytes()));
    plant("run/stratum-join/motd", &data_encoding::HEXLOWER.encode(CANARY.as_bytes()));
    let left = tempfile::Builder::new().prefix("canary").tempfile_in("/tmp").unwrap();
    fs::write(left.path(), CANARY).unwrap();
    let peer = Peer { client_fp: [9; 32], addr: [192, 0, 2, 9].into() };
    for path in
        ["/v1/join/registrations", "/v1/join/registrations/nj-1/progress", "/v1/join/registrations/nj-1/log"]
    {
        let request = Request::send("POST", path, &json!({ "text": CANARY }));
        world.founder.core().dispatch(world.founder.now_ms(), peer, &request);
    }
    let processes = Processes::watch(&root);
    let mut child = Command::new("sleep")
        .arg("60")
        .env("ROOT", &root)
        .env("LEAKED", CANARY)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let mut found = places(&world, since);
    found.push(processes.stop());
    child.kill().unwrap();
    child.wait().unwrap();

    let hits = search(&found, &[Canary::new("canary", CANARY)], |_, _| false);
    let left = format!("/tmp {:?}", left.path().file_name().unwrap());
    let expected: BTreeSet<String> = [
        "agent.log",
        "var/lib/stratum/join/anything",
        "run/stratum-join/snapshot.json",
        "run/stratum-join/issue",
        "run/stratum-join/motd",
        "status",
        "status --output json",
        "founder: registration",
        "founder: progress",
        "founder: log",
        "processes",
        &left,
    ]
    .iter()
    .map(|place| format!("canary in {place}"))
    .collect();
    assert_eq!(hits, expected);
}
