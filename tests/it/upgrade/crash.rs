//! The agent is killed at each crash point of an upgrade, its own and the helper's, and started again: it ends joined on the new release, as the
//! same machine, with the slot right.

use std::fs;

use console::snapshot::State;
use stratum_join::install::recorded::boot::Outcome;

use super::{Upgrade, restarts};
use crate::crash::run_all;
use crate::support::{PATIENCE, wait};

/// How an upgrade comes to the point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// It upgrades itself.
    Plain,
    /// Something is armed when the agent starts, in the same boot.
    Armed,
    /// The next attempt finds the slot written, and a byte of it is another one.
    Written,
}

use Way::{Armed, Plain, Written};

const ALL: &[&str] = &["before", "during", "after"];
const ENDS: &[&str] = &["before", "after"];

const TABLE: &[(&str, Way, &[&str])] = &[
    ("offer-store", Plain, ALL),
    ("upgrade-store", Plain, ALL),
    ("manifest-store", Plain, ALL),
    ("blob-create", Plain, ENDS),
    ("blob-chunk", Plain, &["after"]),
    ("blob-finish", Plain, ALL),
    ("installed-remove", Written, ALL),
    ("slot-clear", Plain, ALL),
    ("slot-write", Plain, ALL),
    ("installed-store", Plain, ALL),
    ("arming-store", Plain, ALL),
    ("armed-store", Plain, ALL),
    ("entry-write", Plain, ALL),
    ("entry-remove", Armed, ALL),
    ("armed-remove", Armed, ALL),
    ("disarmed-store", Armed, ALL),
    ("bless", Plain, ALL),
    ("floor-store", Plain, ALL),
    ("blessed-store", Plain, ALL),
    ("upgrade-clear", Plain, ALL),
];

/// Every point and moment of the table.
pub fn points() -> impl Iterator<Item = (String, String)> {
    TABLE
        .iter()
        .flat_map(|(point, _, when)| when.iter().map(|when| ((*point).to_owned(), (*when).to_owned())))
}

#[test]
fn killed_anywhere_in_an_upgrade() {
    let cases = TABLE.iter().flat_map(|(point, way, when)| when.iter().map(|when| (*point, *way, *when)));
    run_all("upgrade", cases.collect(), |point, way, when| killed(point, *way, when));
}

#[test]
fn a_power_cut_right_after_the_new_os_was_confirmed_does_not_keep_it_from_registering() {
    let mut upgrade = Upgrade::from_founder(1);
    upgrade.killed_at("blessed-store", "before");
    upgrade.boot(Outcome::Comes);
    upgrade.machine().wait_for_state(State::Pending);
    upgrade.world.finish();
    assert_eq!(upgrade.only_record()["release"], "0.7.0");
}

fn killed(point: &str, way: Way, when: &str) {
    let mut upgrade = Upgrade::from_founder(1);
    match way {
        Plain => {}
        Armed => upgrade.killed_at("entry-write", "after"),
        Written => {
            upgrade.killed_at("installed-store", "after");
            let slot = upgrade.machine().path("var/lib/stratum/os/recorded/slot-b.img");
            let mut bytes = fs::read(&slot).unwrap();
            bytes[4711] ^= 1;
            fs::write(&slot, bytes).unwrap();
        }
    }
    upgrade.killed_at(point, when);
    let known = upgrade.world.look_at_the_dead();
    upgrade.machine().start();
    while !upgrade.goes_on() {}
    let end = upgrade.machine().wait_for_end();
    assert!(end.success(), "{point}:{when}: {end:?}; {}", upgrade.machine().log());
    assert_eq!(upgrade.machine().snapshot().unwrap().state, State::Joined, "{point}:{when}");
    let record = upgrade.only_record();
    assert_eq!((&record["state"], &record["release"]), (&"joined".into(), &"0.7.0".into()), "{point}:{when}");
    if let Some((id, code)) = known.pairing {
        assert_eq!((&record["id"], &record["pairingCode"]), (&id.into(), &code.into()), "{point}:{when}");
    }
    upgrade.look_at_the_slot();
}

impl Upgrade {
    /// One step of a willing world; true when there is nothing more to do but to wait for the end.
    fn goes_on(&mut self) -> bool {
        let machine = &mut self.world.machine;
        let moment = wait::until(PATIENCE, || {
            let pending =
                machine.snapshot().is_some_and(|s| s.state == State::Pending && s.agent.pid == machine.pid());
            if !machine.running() || pending {
                return Some(false);
            }
            restarts(machine).then_some(true)
        });
        match moment {
            None => {
                panic!("it does not go on: {:?}; {}", machine.snapshot().map(|s| s.headline), machine.log())
            }
            Some(true) => {
                self.restart(Outcome::Comes);
                false
            }
            Some(false) if self.machine().running() => {
                self.world.approve();
                true
            }
            Some(false) => true,
        }
    }

    /// Runs until the agent has died there.
    fn killed_at(&mut self, point: &str, when: &str) {
        self.machine().set_env("STRATUM_FAULT", format!("crash:{point}:{when}"));
        self.machine().start();
        while self.machine().running() {
            if self.goes_on() {
                break;
            }
        }
        let died = self.machine().died_at_a_crash_point();
        assert!(died, "{point}:{when} was not reached: {}", self.machine().log());
        self.machine().unset_env("STRATUM_FAULT");
    }
}
