//! One turn: event, step, journal, effects, in this order and no other. Sync; touches only the store it is given.

use std::collections::VecDeque;

use crate::join::effect::Effect;
use crate::join::event::{Event, Now};
use crate::join::fault::Fault;
use crate::join::state::{Durable, Env, State};
use crate::join::upgrade::{Do, Done};
use crate::join::{Step, resume, step};
use crate::upgrade::fault::{Code as UpgradeCode, UpgradeFault};

/// Where the durable part is kept.
pub trait Store {
    /// Replaces it durably; when this returns `Ok`, a power cut cannot take it back.
    fn store(&mut self, durable: &Durable, point: &'static str) -> Result<(), Fault>;
}

/// The state and what of it is on disk. No effect leaves before the journal holds what it depends on.
#[derive(Debug)]
pub struct Turns<S> {
    state: Option<State>,
    on_disk: Durable,
    /// Decided, but the journal could not be written yet.
    held: VecDeque<Effect>,
    /// Why it could not.
    fault: Option<Fault>,
    /// Answers of what was held for too long to be done.
    outdated: Vec<Event>,
    store: S,
}

// === impl Turns ===

impl<S: Store> Turns<S> {
    /// The first turn of a run, from what the journal holds.
    pub fn begin(on_disk: Durable, env: Env, now: Now, store: S) -> (Self, Vec<Effect>) {
        let first = resume(on_disk.clone(), env, now);
        let mut turns =
            Self { state: None, on_disk, held: VecDeque::new(), fault: None, outdated: Vec::new(), store };
        let effects = turns.settle(first);
        (turns, effects)
    }

    /// Takes one event and gives the effects that may run now.
    pub fn feed(&mut self, event: Event, now: Now) -> Vec<Effect> {
        match self.state.take() {
            Some(state) => {
                let next = step(state, event, now);
                self.settle(next)
            }
            None => Vec::new(),
        }
    }

    /// Tries again to write the journal; gives the effects that were held back when it works.
    pub fn write_again(&mut self) -> Vec<Effect> {
        self.release()
    }

    /// The answers of what was held back and is not done any more, to be fed next.
    pub fn outdated(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.outdated)
    }

    /// The present state.
    pub fn state(&self) -> &State {
        self.state.as_ref().expect("a turn always puts the state back")
    }

    /// Settings read again: the seconds of a poll, and whether the next request must have a pin.
    pub fn set(&mut self, poll_wait: u64, require_pin: bool) {
        if let Some(state) = &mut self.state {
            (state.v.env.poll_wait, state.v.env.require_pin) = (poll_wait, require_pin);
        }
    }

    /// Why nothing goes on: the journal cannot be written.
    pub fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    fn settle(&mut self, next: Step) -> Vec<Effect> {
        self.state = Some(next.state);
        self.held.extend(next.effects);
        self.release()
    }

    fn release(&mut self) -> Vec<Effect> {
        let durable = &self.state().d;
        if *durable != self.on_disk {
            let (durable, point) = (durable.clone(), self.on_disk.point(durable));
            match self.store.store(&durable, point) {
                Ok(()) => self.on_disk = durable,
                Err(fault) => {
                    self.fault = Some(fault);
                    return Vec::new();
                }
            }
        }
        let held = self.fault.take();
        let mut effects = Vec::new();
        for effect in self.held.drain(..) {
            match held.as_ref().and_then(|fault| needs_fresh_word(&effect, fault)) {
                Some(answer) => self.outdated.push(answer),
                None => effects.push(effect),
            }
        }
        effects
    }
}

/// The answer of an effect that was held back by `fault`, if it may only follow a fresh word of the cluster: that has grown old meanwhile.
fn needs_fresh_word(effect: &Effect, fault: &Fault) -> Option<Event> {
    let Effect::Upgrade(what) = effect else { return None };
    let fault = || {
        let what = format!("The disk failed: this machine could not write its journal: {}.", fault.detail);
        UpgradeFault::new(UpgradeCode::Io, what, "Free space, or check the disk (smartctl).")
    };
    Some(Event::Upgrade(match what {
        Do::Write(_) => Done::Write(Err(fault())),
        Do::Arm(_) => Done::Arm(Err(fault())),
        Do::Restart => Done::Restart(Err(fault())),
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::event::{IdentityView, Observed, ProbeView, RequestView};
    use crate::join::fault::Code;
    use crate::protocol::encoding::Pin;
    use crate::test_support::config;
    use console::text::Safe;
    use proptest::prelude::*;

    /// Records what was written, and fails when told to.
    #[derive(Debug, Default)]
    struct Recorder {
        written: Durable,
        fail: Vec<bool>,
    }

    impl Store for Recorder {
        fn store(&mut self, durable: &Durable, _: &'static str) -> Result<(), Fault> {
            if self.fail.pop().unwrap_or(false) {
                return Err(Fault::new(Code::Local, "disk full"));
            }
            self.written = durable.clone();
            Ok(())
        }
    }

    fn event(n: u8) -> Event {
        let fault = || Fault::new(Code::AddressUnreachable, "refused");
        match n % 9 {
            0 => Event::Request(Some(RequestView {
                endpoint: Safe::clean("192.0.2.1:9444"),
                has_code: true,
                code_hint: None,
                code_check_fits: true,
                pins: Vec::new(),
                id: [n; 32],
            })),
            1 => Event::Identity(Ok(IdentityView { client_fp: [n; 32], made: true })),
            2 => Event::Probed(Ok(ProbeView {
                digest: [n; 32],
                steady: [n; 32],
                hardware: [n; 32],
                product_uuid: Some(Safe::clean(n.to_string())),
                install_id: None,
                release: None,
            })),
            3 => Event::Observed(Ok(Observed { ca: Pin([n; 32]) })),
            4 => Event::Proven(Err(Fault::new(Code::CodeNotProven, "x"))),
            5 => Event::Observed(Err(fault())),
            6 => Event::Retry,
            7 => Event::Confirmed(Err(fault())),
            _ => Event::Timer(crate::join::effect::Timer::Main),
        }
    }

    #[test]
    fn what_a_bad_disk_held_back_is_not_armed_on_an_old_word_of_the_cluster() {
        let env = Env {
            boot_id: "b".into(),
            poll_wait: 50,
            require_pin: false,
            marked_joined: false,
            may_upgrade: true,
        };
        let now = Now { boot_ms: 1, wall_ms: 0, random: 3 };
        let recorder = Recorder { written: Durable::default(), fail: vec![true] };
        let (mut turns, first) = Turns::begin(Durable::default(), env, now, recorder);
        assert!(first.is_empty());
        let manifest = crate::upgrade::Digest::of(b"x");
        let kept = [Effect::Upgrade(Do::Disarm), Effect::CancelMain];
        turns.held.extend([Effect::Upgrade(Do::Arm(manifest)), Effect::Upgrade(Do::Restart)]);
        turns.held.extend(kept.clone());
        let effects = turns.write_again();
        assert!(effects.ends_with(&kept), "{effects:?}");
        assert!(
            !effects.iter().any(|e| matches!(e, Effect::Upgrade(Do::Arm(_) | Do::Restart))),
            "{effects:?}"
        );
        let answers = turns.outdated();
        assert!(
            matches!(answers[..], [Event::Upgrade(Done::Arm(Err(_))), Event::Upgrade(Done::Restart(Err(_)))]),
            "{answers:?}"
        );
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn p8_no_effect_runs_before_the_journal_holds_what_it_depends_on(
            events in prop::collection::vec(any::<u8>(), 1..60),
            fail in prop::collection::vec(any::<bool>(), 0..60),
        ) {
            let env = Env { boot_id: "b".into(), poll_wait: 50, require_pin: false, marked_joined: false, may_upgrade: false };
            let now = Now { boot_ms: 1, wall_ms: 0, random: 3 };
            let recorder = Recorder { written: Durable::default(), fail };
            let (mut turns, first) = Turns::begin(Durable::default(), env, now, recorder);
            let mut batches = vec![first];
            prop_assert!(batches[0].is_empty() || turns.store.written == turns.state().d);
            for n in events {
                let effects = turns.feed(event(n), now);
                if !effects.is_empty() {
                    prop_assert_eq!(&turns.store.written, &turns.state().d);
                }
                batches.push(effects);
            }
            // Nothing is lost: once the disk is well, what was held back comes.
            turns.store.fail.clear();
            turns.write_again();
            prop_assert!(turns.held.is_empty());
            prop_assert!(turns.fault().is_none());
        }
    }
}
