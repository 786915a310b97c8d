//! One truth: what the console's screen, the login banner, the message after login, `STATUS=`, `stratum-join status` and the founder's
//! record say is the same version of the same state, within 2 s of its snapshot, wherever a join may go.

use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use console::banner::{self, StatusScreen};
use console::snapshot::{Liveness, State};
use console::{Leave, Now, Snapshot, View, draw, text_of};
use lab_founder::model::Switches;
use serde_json::{Value, json};

use crate::control::say;
use crate::support::screen::Console;
use crate::support::{World, actions, bin, wait};

/// From a snapshot to everything that shows it.
const WITHIN: Duration = Duration::from_secs(2);

/// What may happen to a join next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    AskWithAWrongCode,
    AskWhileAnUpgradeRuns,
    UpgradeEnds,
    Ask,
    ApproveForLater,
    Approve,
    ItComes,
    Reject,
    TimePasses,
    FirstbootDies,
    RetryAndHang,
    RetryAndFinish,
    AgentIsKilled,
}

use Turn::*;

struct Walk {
    world: World,
    console: Console,
    status: Arc<Mutex<String>>,
}

// === impl Turn ===

impl Turn {
    /// What may happen in a state.
    fn of(state: Option<State>) -> &'static [Turn] {
        match state {
            None => &[Ask, AskWithAWrongCode, AskWhileAnUpgradeRuns],
            Some(State::Registering) => &[UpgradeEnds, AgentIsKilled],
            Some(State::Pending) => &[Approve, ApproveForLater, Reject, TimePasses, AgentIsKilled],
            Some(State::Approved) => &[ItComes, AgentIsKilled],
            Some(State::Installing) => &[FirstbootDies, AgentIsKilled],
            Some(State::Failed) => &[RetryAndHang, RetryAndFinish, AgentIsKilled],
            Some(State::Refused | State::IdentityFailed | State::Rejected | State::Expired) => &[Ask],
            Some(_) => &[],
        }
    }
}

// === impl Walk ===

impl Walk {
    fn begin() -> Self {
        let mut world = World::new();
        let socket = world.machine.path("notify");
        let told = UnixDatagram::bind(&socket).unwrap();
        world.machine.set_env("NOTIFY_SOCKET", socket.to_str().unwrap());
        let status = Arc::new(Mutex::new(String::new()));
        let last = status.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 2048];
            while let Ok(len) = told.recv(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..len]).into_owned();
                if let Some(line) = text.lines().find_map(|line| line.strip_prefix("STATUS=")) {
                    *last.lock().unwrap() = line.to_owned();
                }
            }
        });
        let console = Console::start(world.machine.root.path());
        Self { world, console, status }
    }

    /// Makes it happen, and gives the state that it leads to.
    fn take(&mut self, turn: Turn) -> State {
        let world = &mut self.world;
        let switch = |world: &World, change: fn(&mut Switches)| {
            let mut switches = Switches::default();
            change(&mut switches);
            world.founder.core().set_switches(world.founder.now_ms(), &switches).unwrap();
        };
        let start = |world: &mut World| {
            if !world.machine.running() {
                world.machine.start();
            }
        };
        let id = |world: &World| world.joins().last().map(|join| join["id"].as_str().unwrap().to_owned());
        match turn {
            AskWithAWrongCode => {
                let code = world.code();
                world.machine.ask_to_join(&world.endpoint(), &actions::mistyped(&code));
                start(world);
                State::IdentityFailed
            }
            AskWhileAnUpgradeRuns => {
                switch(world, |switches| switches.upgrade_running = true);
                world.ask_to_join();
                start(world);
                world.machine.wait_for_fault("UPGRADE_RUNNING");
                State::Registering
            }
            UpgradeEnds => {
                switch(world, |_| {});
                // Nobody here waits for a minute.
                world.machine.wait_for("the key", |s| s.actions.retry);
                assert_eq!(say(world, "retry").as_deref(), Some("{\"ok\":true}"));
                State::Pending
            }
            Ask => {
                switch(world, |_| {});
                world.ask_to_join();
                start(world);
                State::Pending
            }
            ApproveForLater => {
                switch(world, |switches| switches.cluster_green = false);
                world.approve();
                State::Approved
            }
            Approve => {
                world
                    .machine
                    .firstboot_does("delay-ms=10 fail=storage error=disk is in use: LVM of \"old-vg\"");
                world.approve();
                State::Failed
            }
            ItComes => {
                world.machine.firstboot_does("delay-ms=10 hang=storage");
                switch(world, |_| {});
                State::Installing
            }
            Reject => {
                let path = format!("/v1/admin/cluster/joins/{}/reject", id(world).unwrap());
                world.admin("POST", &path, Some(json!({"reason": "wrong rack"})));
                State::Rejected
            }
            TimePasses => {
                world.founder.clock().advance_ms(2 * 24 * 3600 * 1000 + 60_000);
                State::Expired
            }
            FirstbootDies => {
                // Not before it hangs where it was told to.
                world
                    .machine
                    .wait_for("the step", |s| s.steps.iter().any(|step| step.name.as_str() == "storage"));
                world.machine.kill_firstboot_itself();
                State::Failed
            }
            RetryAndHang | RetryAndFinish => {
                let hang = turn == RetryAndHang;
                world.machine.firstboot_does(if hang { "delay-ms=10 hang=storage" } else { "delay-ms=10" });
                let path = format!("/v1/admin/cluster/joins/{}/retry", id(world).unwrap());
                world.admin("POST", &path, None);
                if hang { State::Installing } else { State::Joined }
            }
            AgentIsKilled => {
                let before = world.machine.snapshot().unwrap().state;
                world.machine.restart();
                if before == State::Registering {
                    world.machine.wait_for_fault("UPGRADE_RUNNING");
                }
                before
            }
        }
    }

    /// Waits until one version is seen everywhere; what it is, and how long that took from its first sight.
    fn agree(&self, on: State) -> (Snapshot, Duration) {
        let machine = &self.world.machine;
        machine.wait_for_state(on);
        let mut seen: Option<(u64, Instant)> = None;
        let mut last = String::new();
        let agreed = wait::until(crate::support::PATIENCE, || {
            let s = machine.snapshot().filter(|s| s.state == on)?;
            if seen.is_none_or(|(seq, _)| seq != s.seq) {
                seen = Some((s.seq, Instant::now()));
            }
            let since = seen.unwrap().1;
            match self.disagrees(&s) {
                // Another version may have come meanwhile.
                None if machine.snapshot()?.seq == s.seq => Some((s, since.elapsed())),
                None => None,
                Some(who) => {
                    last = who;
                    assert!(since.elapsed() < WITHIN, "seq {} of {on} is not seen everywhere: {last}", s.seq);
                    None
                }
            }
        });
        agreed.unwrap_or_else(|| panic!("no version of {on} is seen everywhere: {last}"))
    }

    /// Who does not say what this snapshot says.
    fn disagrees(&self, s: &Snapshot) -> Option<String> {
        let now = Now::read();
        let screen = self.console.text();
        if !shows(&screen, s, now) {
            let wanted = text_of(&draw(s, &view(now), (80, 24))).replace('#', " ");
            return Some(format!("the screen\n{screen}instead of\n{wanted}"));
        }
        let read = |path: &str| std::fs::read_to_string(self.world.machine.path(path)).unwrap_or_default();
        let minutes = [now, later(now, -60_000)];
        let issue = read("run/stratum-join/issue");
        if !minutes.iter().any(|now| issue == banner::issue(s, *now, StatusScreen::None)) {
            return Some(format!("the banner\n{issue}"));
        }
        let motd = read("run/stratum-join/motd");
        if !minutes.iter().any(|now| motd == banner::motd(s, *now, StatusScreen::None)) {
            return Some(format!("the motd\n{motd}"));
        }
        let status = self.status.lock().unwrap().clone();
        if status != banner::status_line(s) {
            return Some(format!("STATUS={status}"));
        }
        let told = Command::new(bin("stratum-join"))
            .args(["status", "--output", "json", "--root"])
            .arg(self.world.machine.root.path())
            .output()
            .unwrap();
        let told: Value = serde_json::from_slice(&told.stdout).unwrap();
        if told["seq"] != s.seq || told["state"] != s.state.word() {
            return Some(format!("status: {} {}", told["seq"], told["state"]));
        }
        self.founder_disagrees(s)
    }

    fn founder_disagrees(&self, s: &Snapshot) -> Option<String> {
        let id = s.registration.join_id.as_ref()?.as_str();
        let record = self.world.record(id);
        let code = s.pairing_code.as_ref().or(s.registration.last_pairing_code.as_ref());
        let state = s.state_raw.as_ref().map(|word| word.as_str());
        let same_code = code.is_none_or(|code| record["pairingCode"] == code.as_str());
        (record["state"].as_str() != state || record["state"] != s.state.word() || !same_code)
            .then(|| format!("the founder's record: {record}"))
    }
}

// === private ===

fn later(now: Now, ms: i64) -> Now {
    let boot_ms = now.boot_ms.saturating_add_signed(ms);
    Now { boot_ms, wall: now.wall + jiff::SignedDuration::from_millis(ms) }
}

fn view(now: Now) -> View {
    View { leave: Leave::Quit, login_comes_back: false, liveness: Liveness::Alive, ..View::new(now) }
}

/// Whether a screen is that of this snapshot, to the last cell, at an instant of the last 3 s.
fn shows(screen: &str, s: &Snapshot, now: Now) -> bool {
    (0..60).any(|n| {
        let wanted = text_of(&draw(s, &view(later(now, -50 * n)), (80, 24)));
        // A pixel of the big code is a space there.
        let same = |(a, b): (&str, &str)| a == b || a == b.replace('#', " ").trim_end();
        screen.lines().count() == wanted.lines().count() && screen.lines().zip(wanted.lines()).all(same)
    })
}

/// One walk; the turns that were taken and the slowest agreement.
fn walk(seed: u64, most: usize) -> (Vec<Turn>, Duration) {
    let mut walk = Walk::begin();
    let (mut state, mut turns, mut slowest) = (None, Vec::new(), Duration::ZERO);
    let mut random = seed;
    while turns.len() < most {
        let may = Turn::of(state);
        if may.is_empty() {
            break;
        }
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let turn = may[(random >> 33) as usize % may.len()];
        println!("{state:?}: {turn:?}");
        let next = walk.take(turn);
        turns.push(turn);
        let (s, took) = walk.agree(next);
        println!("    seq {} of {next} after {} ms", s.seq, took.as_millis());
        slowest = slowest.max(took);
        state = Some(next);
    }
    (turns, slowest)
}

#[test]
fn every_place_that_shows_the_join_shows_one_version_within_two_seconds_wherever_it_goes() {
    let anywhere = std::iter::once(None).chain(State::ALL.iter().copied().map(Some));
    let mut missed: Vec<Turn> = anywhere.flat_map(Turn::of).copied().collect();
    // Two short walks of many that together take every turn.
    for seed in [27, 103] {
        let (turns, slowest) = walk(seed, 9);
        println!("walk {seed}: {} turns, slowest {} ms", turns.len(), slowest.as_millis());
        missed.retain(|turn| !turns.contains(turn));
    }
    assert!(missed.is_empty(), "no walk took {missed:?}");
}
