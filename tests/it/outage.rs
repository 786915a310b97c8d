//! The founder dies and comes back, and the network is cut, delayed and reset, in each state of a join: the agent joins all the same.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use console::snapshot::{Contact, State};
use lab_founder::{Evil, FaultProxy, ProxyFault, Step};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::invariants::Known;
use crate::support::{Machine, PATIENCE, RELEASE, World, bin, wait};

/// Where a join stands when it happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Registering,
    Waiting,
    Approved,
    Delivering,
    Installing,
    Failed,
}

const STATES: [At; 6] =
    [At::Registering, At::Waiting, At::Approved, At::Delivering, At::Installing, At::Failed];

/// A join that stands there and stays until it is let go.
struct Held {
    world: World,
    code: String,
}

impl Held {
    /// `away`: the founder cannot be reached from the start on, which is what holds a join in registering.
    fn at(at: At, endpoint: impl FnOnce(&World) -> String, away: impl FnOnce(&mut World)) -> Self {
        let mut world = World::new();
        let code = world.code();
        world.machine.firstboot_does(match at {
            At::Installing => "delay-ms=100 log-lines=5",
            At::Failed => "delay-ms=0 fail=storage error=no disk",
            _ => "delay-ms=0",
        });
        world.machine.ask_to_join(&endpoint(&world), &code);
        match at {
            At::Registering => away(&mut world),
            At::Approved => world.set_green(false),
            // It holds the acknowledgement, and with it the start of firstboot.
            At::Delivering => world.founder.core().add_evil(Evil::NeverAnswer.once(Step::Ack)),
            _ => {}
        }
        world.machine.start();
        match at {
            At::Registering => notices(&world.machine),
            At::Waiting => drop(world.machine.wait_for_state(State::Pending)),
            At::Approved => {
                world.approve();
                world.machine.wait_for_state(State::Approved);
            }
            At::Delivering => {
                world.approve();
                let acks =
                    || world.founder.core().received().iter().any(|r| r.path.ends_with("/ack")).then_some(());
                assert!(wait::until(PATIENCE, acks).is_some(), "{}", world.machine.log());
            }
            At::Installing => {
                world.approve();
                world.machine.wait_for("the second step", |s| {
                    s.steps.iter().any(|step| step.name.as_str() == "storage")
                });
            }
            At::Failed => {
                world.approve();
                world.machine.wait_for_state(State::Failed);
            }
        }
        Self { world, code }
    }

    /// Lets it go on; it must end joined, as one registration with one run of firstboot for each attempt.
    fn ends_joined(mut self) {
        self.world.set_green(true);
        let end = self.world.operate_with(|world| world.machine.firstboot_does("delay-ms=0"));
        assert!(end.success(), "{end:?}; {}", self.world.machine.log());
        self.world.look_at_the_joined(&Known::default(), &self.code);
    }
}

impl World {
    fn set_green(&self, green: bool) {
        let core = self.founder.core();
        let mut switches = core.switches().unwrap();
        switches.cluster_green = green;
        core.set_switches(self.founder.now_ms(), &switches).unwrap();
    }
}

/// Waits until the machine shows that its founder does not answer.
fn notices(machine: &Machine) {
    machine.wait_for("a founder that is away", |s| s.cluster.contact == Contact::Failing);
}

/// Runs all cases, several at a time because they wait most of their time. Names those that failed.
fn run_all<T: std::fmt::Debug + Copy + Send>(cases: Vec<T>, run: impl Fn(T) + Sync) {
    let count = cases.len();
    let (queue, failed) = (Mutex::new(VecDeque::from(cases)), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                loop {
                    let Some(case) = queue.lock().unwrap().pop_front() else { return };
                    if catch_unwind(AssertUnwindSafe(|| run(case))).is_err() {
                        failed.lock().unwrap().push(case);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{} of {count} cases failed: {failed:?}", failed.len());
}

// --- the founder --------------------------------------------------------------------------------

#[test]
fn a_founder_that_dies_and_comes_back_in_any_state_gets_its_machine() {
    run_all(STATES.to_vec(), |at| {
        let mut held = Held::at(at, World::endpoint, |world| world.founder.stop());
        held.world.founder.stop();
        notices(&held.world.machine);
        let Held { world, code } = held;
        let World { founder, machine } = world;
        Held { world: World { founder: founder.restart().unwrap(), machine }, code }.ends_joined();
    });
}

/// A founder as its own process, to be killed as a power cut would.
struct FounderProcess {
    dir: TempDir,
    child: Child,
    ready: Value,
}

impl FounderProcess {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (child, ready) = Self::run(dir.path(), "127.0.0.1:0", "127.0.0.1:0");
        Self { dir, child, ready }
    }

    fn run(dir: &Path, join: &str, admin: &str) -> (Child, Value) {
        let mut child = Command::new(bin("lab-founder"))
            .args([
                "run",
                "--wide",
                "--release",
                RELEASE,
                "--join-listen",
                join,
                "--admin-listen",
                admin,
                "--dir",
            ])
            .arg(dir)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (child, serde_json::from_str(&line).unwrap())
    }

    fn join(&self) -> &str {
        self.ready["join"].as_str().unwrap()
    }

    /// SIGKILL, on whatever it is doing.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// The same directory, the same ports.
    fn start_again(&mut self) {
        let admin = self.ready["admin"].as_str().unwrap();
        (self.child, self.ready) = Self::run(self.dir.path(), self.join(), admin);
    }

    /// `stratumctl admin nodes ...`.
    fn ctl(&self, args: &[&str]) -> Value {
        let out = Command::new(bin("stratumctl"))
            .args(["admin", "nodes"])
            .args(args)
            .args(["--output", "json", "--config"])
            .arg(self.dir.path().join("stratumctl.json"))
            .output()
            .unwrap();
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        serde_json::from_slice(&out.stdout).unwrap()
    }

    /// A machine that asked this founder to let it join, with its agent running.
    fn joiner(&self) -> Machine {
        let mut machine = Machine::new();
        machine.firstboot_does("delay-ms=60 log-lines=10");
        let made = self.ctl(&["join-codes", "create"]);
        machine.ask_to_join(self.join(), made["code"].as_str().unwrap());
        machine.start();
        machine
    }

    fn approve(&self, machine: &Machine) -> String {
        let shown = machine.wait_for_state(State::Pending);
        let (id, code) = (shown.registration.join_id.unwrap(), shown.pairing_code.unwrap());
        self.ctl(&["joins", "approve", id.as_str(), "--pairing", code.as_str()]);
        id.to_string()
    }

    fn has_joined(&self, machine: &mut Machine, id: &str) {
        assert!(machine.wait_for_end().success(), "{}", machine.log());
        let record = self.ctl(&["joins", "show", id]);
        assert_eq!(record["state"], "joined");
        assert_eq!(machine.starts(), [1]);
        let steps = record["steps"].as_array().unwrap();
        assert!(steps.len() == 10 && steps.iter().all(|step| step["status"] == "done"), "{steps:?}");
        let log = record["log"].as_array().unwrap();
        let lost: Vec<&Value> =
            log.iter().filter(|line| line.as_str().unwrap().contains("lines lost")).collect();
        assert!(lost.is_empty() && log.len() > 90, "{} lines, {lost:?}", log.len());
    }
}

impl Drop for FounderProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_founder_killed_while_a_machine_waits_knows_it_again() {
    let mut founder = FounderProcess::start();
    let mut machine = founder.joiner();
    let before = machine.wait_for_state(State::Pending);
    founder.kill();
    notices(&machine);
    founder.start_again();
    let id = founder.approve(&machine);
    assert_eq!(before.registration.join_id.unwrap().as_str(), id);
    founder.has_joined(&mut machine, &id);
}

#[test]
fn a_founder_killed_twice_during_an_install_hears_all_of_it() {
    let mut founder = FounderProcess::start();
    let mut machine = founder.joiner();
    let id = founder.approve(&machine);
    for step in ["storage", "join/patroni"] {
        machine.wait_for(step, |s| s.steps.iter().any(|line| line.name.as_str() == step));
        founder.kill();
        notices(&machine);
        founder.start_again();
    }
    founder.has_joined(&mut machine, &id);
}

// --- the network --------------------------------------------------------------------------------

/// What happens to the network for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// Every connection is reset, and so is every new one.
    Cut,
    /// Nothing comes through, nobody says a word; then all of it comes at once.
    Silence,
    /// Every piece is late, to the end.
    Late,
    /// Connections are cut, and new ones reset before the first byte.
    Reset,
    /// Connections are cut, and new ones end in the middle of an answer.
    Torn,
    /// Connections are cut, and new ones are closed on one side in the middle of an answer.
    HalfClosed,
}

const TROUBLES: [Trouble; 6] =
    [Trouble::Cut, Trouble::Silence, Trouble::Late, Trouble::Reset, Trouble::Torn, Trouble::HalfClosed];

/// Into the middle of a TLS handshake, or of the answer behind it.
const TORN_AFTER: u64 = 900;

#[test]
fn whatever_the_network_does_in_whatever_state_the_machine_joins() {
    let cases =
        STATES.iter().flat_map(|at| TROUBLES.iter().map(|trouble| (*at, *trouble))).collect::<Vec<_>>();
    assert_eq!(cases.len(), 36);
    run_all(cases, |(at, trouble)| network(at, trouble));
}

fn network(at: At, trouble: Trouble) {
    let mut proxy = None;
    let held = Held::at(
        at,
        |world| {
            let made = proxy.insert(FaultProxy::start(world.founder.join_addr()).unwrap());
            if at == At::Registering {
                made.set(ProxyFault::Refuse);
            }
            made.addr().to_string()
        },
        |_| {},
    );
    let proxy = proxy.unwrap();
    // The next try of a machine is its answer to what went wrong before.
    let next_try = |fault| {
        let before = proxy.connections();
        proxy.set(fault);
        let tried = wait::until(PATIENCE, || (proxy.connections() > before).then_some(()));
        assert!(tried.is_some(), "no try any more; {}", held.world.machine.log());
    };
    let pause = |ms| wait::until(Duration::from_millis(ms), || None::<()>);
    match trouble {
        Trouble::Cut => next_try(ProxyFault::Refuse),
        Trouble::Silence => {
            proxy.set(ProxyFault::Drop);
            pause(400);
        }
        Trouble::Late => {
            proxy.set(ProxyFault::Delay(60));
            return held.ends_joined();
        }
        Trouble::Reset | Trouble::Torn | Trouble::HalfClosed => {
            next_try(ProxyFault::Refuse);
            next_try(match trouble {
                Trouble::Reset => ProxyFault::ResetBefore,
                Trouble::Torn => ProxyFault::Truncate(TORN_AFTER),
                _ => ProxyFault::HalfClose(TORN_AFTER),
            });
            pause(100);
        }
    }
    proxy.set(ProxyFault::Pass);
    held.ends_joined();
}
