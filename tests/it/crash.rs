//! The agent is killed with SIGKILL before, during and after every write and every effect, and started again: the join always ends well.
//!
//! [`TABLE`] names every crash point of the source; a test here reads the source and compares, so that the table cannot go stale.

use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

use console::snapshot::State;
use lab_founder::{Evil, Step};

use crate::support::invariants::Known;
use crate::support::{World, bin};
use crate::upgrade;

/// How a join comes to the point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// It asks to join and joins.
    Plain,
    /// It is pending, and its agent starts again.
    Resumed,
    /// It is pending, and the founder has lost its record.
    Lost,
    /// It is pending, and its operator gives another join code.
    NewCode,
    /// The founder refuses the first acknowledgement: the digest differs.
    Mismatch,
    /// firstboot fails, and the founder queues the join again.
    Failed,
    /// The founder refuses the registration once, and the operator asks again.
    Refused,
    /// The request is being saved.
    Installer,
    /// It is pending, its agent was killed, and the unit's `ExecStopPost=` writes that down.
    Recorded,
}

use Way::{Failed, Installer, Lost, Mismatch, NewCode, Plain, Recorded, Refused, Resumed};

const ALL: &[&str] = &["before", "during", "after"];
const ENDS: &[&str] = &["before", "after"];

/// Area, point, the way that leads there, the moments.
type Row = (&'static str, &'static str, Way, &'static [&'static str]);

const TABLE: &[Row] = &[
    ("start", "start-store", Plain, ALL),
    ("start", "snapshot-write", Plain, ALL),
    ("start", "banner-write", Plain, ALL),
    ("start", "probe", Plain, ENDS),
    ("start", "binding-store", Plain, ALL),
    ("start", "key-create", Plain, ALL),
    ("start", "cert-create", Plain, ALL),
    ("request", "request-store", Installer, ALL),
    ("request", "request-read", Plain, ALL),
    ("request", "request-seen-store", Plain, ALL),
    ("request", "code-erase", Plain, ALL),
    ("proof", "observe-send", Plain, ALL),
    ("proof", "proof-send", Plain, ALL),
    ("proof", "confirm-check", Plain, ALL),
    ("proof", "nonce-store", Plain, ALL),
    ("proof", "pin-store", NewCode, ALL),
    ("proof", "confirm-send", Plain, ALL),
    ("registration", "joinid-store", Plain, ALL),
    ("registration", "reveal-send", Plain, ALL),
    ("registration", "registered-store", Plain, ALL),
    ("registration", "resume-send", Resumed, ALL),
    ("registration", "record-lost", Lost, ALL),
    ("registration", "stop-store", Refused, ALL),
    ("waiting", "poll-send", Plain, ALL),
    ("waiting", "state-store", Plain, ALL),
    ("delivery", "delivery-receive", Plain, ALL),
    ("delivery", "delivery-store-digest", Plain, ALL),
    ("delivery", "attempt-remove", Plain, ALL),
    ("delivery", "node-yaml-write", Plain, ALL),
    ("delivery", "bundle-write", Plain, ALL),
    ("delivery", "attempt-write", Plain, ALL),
    ("delivery", "written-store", Plain, ALL),
    ("delivery", "ack-send", Plain, ALL),
    ("delivery", "handoff-clear", Mismatch, ALL),
    ("install", "starting-store", Plain, ALL),
    ("install", "firstboot-follow", Plain, ENDS),
    ("install", "firstboot-log", Plain, ALL),
    ("install", "firstboot-marker", Plain, ALL),
    ("install", "firstboot-start", Plain, ALL),
    ("install", "running-store", Plain, ALL),
    ("install", "progress-store", Plain, ALL),
    ("install", "progress-send", Plain, ALL),
    ("install", "log-send", Plain, ALL),
    ("waiting", "exit-record", Recorded, ALL),
    ("end", "bundle-remove", Plain, ALL),
    ("end", "firstboot-done-store", Plain, ALL),
    ("end", "firstboot-failed-store", Failed, ALL),
    ("end", "done-store", Plain, ALL),
    ("end", "joined-mark", Plain, ALL),
    ("end", "identity-discard", Plain, ALL),
    ("end", "exit", Plain, ENDS),
];

/// In the source and never reached, with the reason.
const NEVER: &[(&str, &str)] = &[
    ("recorded-write", "the recording backend's own files, which no node has"),
    ("restart-clear", "as recorded-write"),
    ("restart-request", "as recorded-write"),
    (
        "acked-store",
        "the same step that hears of the acknowledgement starts firstboot: one write, `starting-store`",
    ),
    ("console-note", "what `console --prepare` remembers of the screen: no join depends on it"),
    (
        "firstboot-note",
        "a run by a unit of systemd: unit tests with a fake of it, and the stories in tests/vm",
    ),
];

#[test]
fn killed_around_its_start() {
    area("start");
}

#[test]
fn killed_around_the_request() {
    area("request");
}

#[test]
fn killed_in_the_proof() {
    area("proof");
}

#[test]
fn killed_in_the_registration() {
    area("registration");
}

#[test]
fn killed_while_waiting() {
    area("waiting");
}

#[test]
fn killed_in_the_delivery() {
    area("delivery");
}

#[test]
fn killed_during_the_install() {
    area("install");
}

#[test]
fn killed_at_the_end() {
    area("end");
}

// --- a power cut in the hand-off ------------------------------------------------------------------

/// Whether the attempt may have been started when the power goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// `starting` is not in the journal: firstboot has not run, and runs after the boot.
    Before,
    /// It is: a second run could destroy what the first wrote, so the attempt has failed.
    While,
    /// The end is in the journal: it is told after the boot.
    Done,
}

const CUTS: &[(&str, Cut, &[&str])] = &[
    ("delivery-receive", Cut::Before, ALL),
    ("delivery-store-digest", Cut::Before, ALL),
    ("attempt-remove", Cut::Before, ALL),
    ("node-yaml-write", Cut::Before, ALL),
    ("bundle-write", Cut::Before, ALL),
    ("attempt-write", Cut::Before, ALL),
    ("written-store", Cut::Before, ALL),
    ("ack-send", Cut::Before, ALL),
    ("starting-store", Cut::Before, &["before", "during"]),
    ("starting-store", Cut::While, &["after"]),
    ("firstboot-follow", Cut::While, ENDS),
    ("firstboot-log", Cut::While, ALL),
    ("firstboot-marker", Cut::While, ALL),
    ("firstboot-start", Cut::While, ALL),
    ("running-store", Cut::While, ALL),
    ("progress-store", Cut::While, ALL),
    ("progress-send", Cut::While, ALL),
    ("log-send", Cut::While, ALL),
    ("bundle-remove", Cut::While, ALL),
    ("firstboot-done-store", Cut::While, &["before", "during"]),
    ("firstboot-done-store", Cut::Done, &["after"]),
    ("done-store", Cut::Done, ALL),
    ("joined-mark", Cut::Done, ALL),
    ("identity-discard", Cut::Done, ALL),
    ("exit", Cut::Done, ENDS),
];

#[test]
fn a_power_cut_before_firstboot_was_started_starts_it_once_after_the_boot() {
    power_cuts(Cut::Before);
}

#[test]
fn a_power_cut_while_firstboot_may_run_fails_the_attempt_and_the_retry_joins() {
    power_cuts(Cut::While);
}

#[test]
fn a_power_cut_after_the_end_of_firstboot_changes_nothing() {
    power_cuts(Cut::Done);
}

fn power_cuts(cut: Cut) {
    let rows = CUTS.iter().filter(|row| row.1 == cut);
    let cases = rows.flat_map(|row| row.2.iter().map(|when| (row.0, cut, *when))).collect();
    run_all(&format!("power cut, {cut:?}"), cases, |point, cut, when| power_cut(point, *cut, when));
}

fn power_cut(point: &str, cut: Cut, when: &str) {
    let mut world = World::new();
    let code = world.code();
    world.machine.ask_to_join(&world.endpoint(), &code);
    // Where firstboot's end is not the matter it does not end, however long the crash takes to come.
    let ends =
        matches!(point, "firstboot-follow" | "bundle-remove" | "firstboot-done-store") || cut != Cut::While;
    world.machine.firstboot_does(if ends { "delay-ms=0" } else { "delay-ms=0 hang=join/membership" });
    world.machine.start_to_crash(point, when);
    let end = world.operate_with(calm);
    assert!(is_kill(end), "{point}:{when} was not reached: {end:?}; {}", world.machine.log());
    let known = world.look_at_the_dead();
    world.machine.reboot();
    let before = world.machine.starts();
    assert!(before.len() <= usize::from(cut != Cut::Before), "{before:?}");

    world.machine.start();
    let failures = Mutex::new(Vec::new());
    let end = world.operate_with(|world| {
        let record = &world.joins()[0];
        let told = format!(
            "{}: {}",
            record["failedStep"].as_str().unwrap(),
            record["failedError"].as_str().unwrap()
        );
        failures.lock().unwrap().push(told);
        calm(world);
    });
    assert!(end.success(), "{end:?}; {}", world.machine.log());
    let failures = failures.into_inner().unwrap();
    let (attempts, failed): (&[u64], &[&str]) = match cut {
        Cut::Before | Cut::Done => (&[1], &[]),
        Cut::While if before.is_empty() => (&[2], &["join: the machine restarted during the install"]),
        Cut::While => (&[1, 2], &["join: the machine restarted during the install"]),
    };
    assert_eq!(failures, failed);
    world.look_at_the_pair(&known, &code);
    assert_eq!(world.machine.starts(), attempts);
}

#[test]
fn the_table_names_every_crash_point_of_the_source() {
    let mut source = BTreeSet::new();
    points_below(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut source);
    for (name, _) in NEVER {
        let before = source.len();
        source.retain(|(point, _)| point != name);
        assert!(source.len() < before, "{name} is not in the source any more");
    }
    let pairs =
        |row: &Row| row.3.iter().map(|when| (row.1.to_owned(), (*when).to_owned())).collect::<Vec<_>>();
    let mut table: BTreeSet<(String, String)> = TABLE.iter().flat_map(pairs).collect();
    table.extend(upgrade::crash::points());
    let missing: Vec<_> = source.difference(&table).collect();
    let stale: Vec<_> = table.difference(&source).collect();
    assert!(
        missing.is_empty() && stale.is_empty(),
        "not in the table: {missing:?}; not in the source: {stale:?}"
    );
    assert!(table.len() >= 120, "only {} cases", table.len());
}

// --- one case ---------------------------------------------------------------------------------

fn area(name: &str) {
    let cases: Vec<(&str, Way, &str)> = TABLE
        .iter()
        .filter(|row| row.0 == name)
        .flat_map(|row| row.3.iter().map(|when| (row.1, row.2, *when)))
        .collect();
    run_all(name, cases, |point, way, when| crash(point, *way, when));
}

/// All cases, two at a time; the names of those that failed.
pub fn run_all<T: Sync>(what: &str, cases: Vec<(&str, T, &str)>, run: impl Fn(&str, &T, &str) + Sync) {
    the_binary_has_crash_points();
    let (queue, failed) = (Mutex::new(cases.iter()), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().unwrap().next();
                    let Some((point, how, when)) = next else { return };
                    if catch_unwind(AssertUnwindSafe(|| run(point, how, when))).is_err() {
                        failed.lock().unwrap().push(format!("{point}:{when}"));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{what}: {} of {} cases failed: {failed:?}", failed.len(), cases.len());
    println!("{what}: {} cases", cases.len());
}

/// One join with one crash in it.
fn crash(point: &str, way: Way, when: &str) {
    let mut world = World::new();
    let mut code = world.code();
    world.machine.firstboot_does("delay-ms=0");
    if way == Installer {
        world.machine.set_env("STRATUM_FAULT", format!("crash:{point}:{when}"));
        assert_eq!(installer_dies(&world, &code), Some(9), "{point}:{when} was not reached");
        world.machine.unset_env("STRATUM_FAULT");
        world.look_at_the_dead();
        world.machine.ask_to_join(&world.endpoint(), &code);
        return finish(&mut world, Known::default(), &code);
    }
    world.machine.ask_to_join(&world.endpoint(), &code);
    if matches!(way, Resumed | Lost | NewCode | Recorded) {
        world.machine.start();
        world.machine.wait_for_state(State::Pending);
        world.machine.kill();
    }
    let script = |evil: Evil, at| world.founder.core().add_evil(evil.once(at));
    let refuse = |status, code: &str| Evil::RefuseWith { status, code: code.to_owned(), retry_after: None };
    match way {
        Lost => script(Evil::ForgetRecord, Step::Reregister),
        Mismatch => script(refuse(409, "DELIVERY_MISMATCH"), Step::Ack),
        Refused => script(refuse(400, "INVALID_INPUT"), Step::Register),
        NewCode => {
            code = world.code();
            world.machine.ask_to_join(&world.endpoint(), &code);
        }
        Failed => world.machine.firstboot_does("delay-ms=0 fail=storage error=no disk"),
        Recorded => world.machine.args.push("--record-exit".to_owned()),
        Plain | Resumed | Installer => {}
    }
    world.machine.start_to_crash(point, when);
    // An approval before the record is lost would be one of that record.
    let end = if way == Lost { world.machine.wait_for_end() } else { world.operate_with(calm) };
    assert!(is_kill(end), "{point}:{when} was not reached: {end:?}; {}", world.machine.log());
    world.machine.args.clear();
    let mut known = world.look_at_the_dead();
    if way == Lost {
        // The founder itself forgot it: a new record has a new id.
        known.pairing = None;
    }
    finish(&mut world, known, &code);
}

fn finish(world: &mut World, known: Known, code: &str) {
    world.machine.start();
    let end = world.operate_with(calm);
    assert!(end.success(), "{end:?}; {}", world.machine.log());
    world.look_at_the_joined(&known, code);
}

/// The next attempt of firstboot goes well.
fn calm(world: &World) {
    world.machine.firstboot_does("delay-ms=0");
}

fn is_kill(end: std::process::ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    end.signal() == Some(9)
}

fn installer_dies(world: &World, code: &str) -> Option<i32> {
    use std::os::unix::process::ExitStatusExt;
    let out = world.machine.installer(&["--endpoint", &world.endpoint(), "--code-file", "-"], code);
    out.status.signal()
}

/// A build without them would join every time and prove nothing.
fn the_binary_has_crash_points() {
    let binary = fs::read(bin("stratum-join")).unwrap();
    let found = binary.windows(13).any(|window| window == b"STRATUM_FAULT");
    assert!(
        found,
        "{} has no crash points: build it with `cargo build --workspace --features stratum-join/faults`",
        bin("stratum-join").display()
    );
}

// --- the source -------------------------------------------------------------------------------

/// What opens a call that names a crash point, and its moments; `None`: the moment stands in the call.
const CALLS: &[(&str, Option<&[&str]>)] = &[
    ("durable_file::write(", Some(ALL)),
    ("durable_file::write_secret(", Some(ALL)),
    ("durable_file::write_volatile(", Some(ALL)),
    ("durable_file::remove(", Some(ALL)),
    (".at(", Some(ALL)),
    (" point(", None),
];

fn points_below(dir: &Path, found: &mut BTreeSet<(String, String)>) {
    let mut paths: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "tests" {
                points_below(&path, found);
            }
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
            let text = fs::read_to_string(&path).unwrap();
            let text = text.split("\nmod tests {").next().unwrap();
            points_of(text, found);
            if let Some(journal) = text.split("pub fn point(&self, next: &Durable)").nth(1) {
                let body = journal.split("\n    }\n").next().unwrap();
                for name in literals(body) {
                    found.extend(ALL.iter().map(|when| (name.clone(), (*when).to_owned())));
                }
            }
        }
    }
}

fn points_of(text: &str, found: &mut BTreeSet<(String, String)>) {
    for (opening, moments) in CALLS {
        for (at, _) in text.match_indices(opening) {
            let call = arguments(&text[at + opening.len()..]);
            // A call with a variable instead of a name passes somebody else's point on.
            let Some(name) = literals(call).pop() else { continue };
            let said = ["before", "during", "after"].iter().filter(|when| {
                let word = format!("{}{}", when[..1].to_uppercase(), &when[1..]);
                moments.is_some() || call.contains(&format!("When::{word}"))
            });
            found.extend(said.map(|when| (name.clone(), (*when).to_owned())));
        }
    }
}

/// Up to the bracket that closes the call.
fn arguments(text: &str) -> &str {
    let mut depth = 1;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[..at];
        }
    }
    text
}

/// The literals that look like the name of a crash point.
fn literals(text: &str) -> Vec<String> {
    let kebab = |word: &&str| {
        word.len() > 3 && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'-') && !word.starts_with('-')
    };
    text.split('"').skip(1).step_by(2).filter(kebab).map(str::to_owned).collect()
}
