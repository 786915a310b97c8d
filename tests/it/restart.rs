//! The agent starts again: at any moment, with a broken or lost journal, beside another agent, too often, and after it has joined.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use console::snapshot::State;

use crate::support::invariants::Known;
use crate::support::{World, bin};

/// Moments of the random kills, in milliseconds after the start of the agent: a whole join takes about as long.
const KILLS: u64 = 30;
const LATEST_MS: u64 = 700;
const SEED: u64 = 0x5eed_2026;

#[test]
fn killed_at_thirty_random_moments_every_join_ends_well() {
    let moments: Vec<u64> = random(SEED).take(KILLS as usize).map(|n| n % LATEST_MS).collect();
    let failed: Vec<&u64> = std::thread::scope(|scope| {
        let halves: Vec<_> = moments
            .chunks(moments.len() / 2)
            .map(|half| {
                scope.spawn(|| {
                    let fails = |ms: &&u64| catch_unwind(AssertUnwindSafe(|| killed_after(**ms))).is_err();
                    half.iter().filter(fails).collect::<Vec<_>>()
                })
            })
            .collect();
        halves.into_iter().flat_map(|half| half.join().unwrap()).collect()
    });
    assert!(failed.is_empty(), "seed {SEED:#x}: failed when killed after {failed:?} ms");
}

fn killed_after(ms: u64) {
    let mut world = World::new();
    let code = world.code();
    world.machine.ask_to_join(&world.endpoint(), &code);
    world.machine.firstboot_does("delay-ms=20");
    world.machine.start();
    world.operate_until(Instant::now() + Duration::from_millis(ms));
    world.machine.kill();
    let known = world.look_at_the_dead();
    world.machine.start();
    let end = world.operate();
    assert!(end.success(), "{end:?}; {}", world.machine.log());
    world.look_at_the_joined(&known, &code);
}

/// A machine that is pending, its agent dead.
fn pending() -> (World, String, Known) {
    let mut world = World::new();
    let code = world.code();
    world.machine.firstboot_does("delay-ms=0");
    world.machine.ask_to_join(&world.endpoint(), &code);
    world.machine.start();
    world.machine.wait_for_state(State::Pending);
    world.machine.kill();
    let known = world.look_at_the_dead();
    (world, code, known)
}

#[test]
fn a_journal_broken_before_the_registration_is_kept_and_the_same_key_joins() {
    for (broken, why) in [
        (&b""[..], "is not a journal"),
        (b"{\"version\":1,\"trust", "is not a journal"),
        (b"\0\0\0\0", "is not a journal"),
    ] {
        let mut world = World::new();
        let code = world.code();
        world.machine.firstboot_does("delay-ms=0");
        world.machine.ask_to_join(&world.endpoint(), &code);
        world.machine.start_to_crash("confirm-send", "before");
        assert!(world.machine.died_at_a_crash_point());
        let known = world.look_at_the_dead();
        assert!(known.key.is_some());
        fs::write(world.machine.path("var/lib/stratum/join/journal.json"), broken).unwrap();
        world.machine.start();
        let end = world.operate();
        assert!(end.success(), "{end:?}; {}", world.machine.log());
        world.look_at_the_joined(&known, &code);
        assert_eq!(fs::read(world.machine.path("var/lib/stratum/join/journal.json.bad-1")).unwrap(), broken);
        let log = world.machine.log();
        assert!(
            log.contains("the journal cannot be used") && log.contains(why) && log.contains("bad-1"),
            "{log}"
        );
    }
}

/// The nonce that the founder's record was opened with is lost with the journal, and the pairing code with it: the machine may not go on under
/// the old code, so it comes as a new one, and says so.
#[test]
fn a_journal_broken_after_the_registration_makes_a_new_machine_and_says_so() {
    let (mut world, _, known) = pending();
    let journal = world.machine.path("var/lib/stratum/join/journal.json");
    let whole = fs::read(&journal).unwrap();
    fs::write(&journal, &whole[..whole.len() / 2]).unwrap();
    world.machine.start();
    let shown = world.machine.wait_for_state(State::Pending);
    let kept = fs::read(world.machine.path("var/lib/stratum/join/journal.json.bad-1")).unwrap();
    assert_eq!(kept, whole[..whole.len() / 2]);
    let log = world.machine.log();
    assert!(log.contains("bad-1") && log.contains("new machine key"), "{log}");

    let (old_id, old_code) = known.pairing.unwrap();
    let (id, code) = (shown.registration.join_id.unwrap(), shown.pairing_code.unwrap());
    assert!(id.as_str() != old_id && code.as_str() != old_code);
    let joins = world.joins();
    assert_eq!(joins.len(), 2, "{joins:?}");
    assert_eq!(joins.iter().filter(|join| join["pairingCode"] == code.as_str()).count(), 1);
    world.finish();
    assert_eq!(world.machine.starts(), [1]);
}

#[test]
fn a_missing_journal_is_a_first_start() {
    let (mut world, _, _) = pending();
    fs::remove_file(world.machine.path("var/lib/stratum/join/journal.json")).unwrap();
    world.machine.start();
    world.machine.wait_for_state(State::Pending);
    assert!(!world.machine.log().contains("journal cannot be used"), "{}", world.machine.log());
    world.finish();
}

#[test]
fn a_second_agent_on_the_same_root_ends_with_the_first_ones_pid_and_the_first_goes_on() {
    let mut world = World::joining();
    world.machine.wait_for_state(State::Pending);
    let second = std::process::Command::new(bin("stratum-join"))
        .args(["agent", "--root"])
        .arg(world.machine.root.path())
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(1));
    let said = String::from_utf8_lossy(&second.stderr);
    let want = format!("another stratum-join agent (pid {}) owns", world.machine.pid());
    assert!(said.contains(&want), "{said}");
    world.machine.firstboot_does("delay-ms=0");
    world.finish();
}

#[test]
fn six_crashes_in_ten_minutes_are_shown_and_keep_the_network_quiet() {
    let mut world = World::new();
    world.ask_to_join();
    for n in 1..=6 {
        world.machine.start();
        let shown = world.machine.wait_for("a snapshot", |_| true);
        // The first five starts are nobody's business.
        assert_eq!(shown.degraded.is_some(), n > 5, "start {n}: {:?}", shown.degraded);
        world.machine.kill();
    }
    let asked = world.founder.core().received().len();
    world.machine.start();
    // The key is loaded and the hardware read: only the network waits.
    let shown = world.machine.wait_for_state(State::Registering);
    assert_eq!(shown.degraded.unwrap().as_str(), "restarted 6 times in 10 minutes");
    assert_eq!(world.founder.core().received().len(), asked);
    assert!(world.machine.running());
}

#[test]
fn after_it_has_joined_the_agent_ends_at_once_and_asks_nobody() {
    let mut world = World::joining();
    world.machine.firstboot_does("delay-ms=0");
    world.finish();
    let asked = world.founder.core().received().len();
    for reboot in [false, true] {
        if reboot {
            world.machine.reboot();
        }
        let began = Instant::now();
        world.machine.start();
        let end = world.machine.wait_for_end();
        let took = began.elapsed();
        assert!(end.success(), "{end:?}; {}", world.machine.log());
        assert!(took < Duration::from_secs(1), "it took {took:?}");
        let shown = world.machine.snapshot().unwrap();
        assert_eq!(shown.state, State::Joined);
        assert_eq!(shown.actions, Default::default());
    }
    assert_eq!(world.founder.core().received().len(), asked);
    assert_eq!(world.machine.starts(), [1]);
}

/// xorshift64*: the same moments in every run.
fn random(seed: u64) -> impl Iterator<Item = u64> {
    let mut state = seed;
    std::iter::repeat_with(move || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    })
}
