//! `step` and `resume`: one event in, the new state and what to do out.
//!
//! A step first notes what the event says, then starts whatever each free lane may do next. So a restart needs no code of its own: `resume` puts
//! the durable part back and the same rules derive what is outstanding. Touches nothing.

use console::text::Safe;

use super::advice::NEEDS_PIN;
use super::backoff;
use super::effect::{Effect, Timer};
use super::event::{Event, IdentityView, Now, ProbeView, RequestView};
use super::fault::{Class, Code, Fault};
use super::notice::Notice;
use super::state::{
    Binding, Call, Durable, Env, Joined, Lane, Post, Proof, Slot, Start, State, Trouble, Verb, Volatile,
};
use crate::protocol::encoding::B64;

/// More starts than this in [`LOOP_WINDOW_MS`] delay the network part.
const LOOP_STARTS: usize = 5;
/// The crash-loop damper looks back this far.
const LOOP_WINDOW_MS: u64 = 600_000;

/// The decision of one event.
#[derive(Debug)]
pub struct Step {
    /// The state after it. Its durable part is on disk before any effect runs.
    pub state: State,
    /// What to do, in this order.
    pub effects: Vec<Effect>,
}

/// Decides what one event means.
pub fn step(state: State, event: Event, now: Now) -> Step {
    let before = state.phase();
    let mut turn = Turn { s: state, out: Vec::new(), now };
    turn.apply(event);
    turn.drive();
    if turn.s.phase() != before {
        turn.s.v.state_since_ms = now.boot_ms;
    }
    Step { state: turn.s, effects: turn.out }
}

/// The first step of a run of the agent: derives what is outstanding from what is on disk.
pub fn resume(durable: Durable, env: Env, now: Now) -> Step {
    let mut turn = Turn { s: State { d: durable, v: Volatile::new(env, now) }, out: Vec::new(), now };
    turn.note_start();
    // The marker outlives a journal that was lost: a member never registers again.
    if turn.s.v.env.marked_joined {
        turn.s.d.joined.get_or_insert(Joined { wall_ms: now.wall_ms });
    }
    // A start is one more try of what only a start, the settings or this machine's system can have changed.
    if turn.s.d.stop.as_ref().is_some_and(|stop| may_retry(stop.code) || stop.code == Code::UrlMalformed) {
        turn.s.d.stop = None;
    }
    turn.resume_handoff();
    turn.resume_upgrade();
    if turn.s.d.joined.is_some() && turn.s.v.env.marked_joined {
        turn.s.v.finished = true;
        turn.out.push(Effect::Exit);
    }
    turn.drive();
    Step { state: turn.s, effects: turn.out }
}

/// One step in the making.
pub(super) struct Turn {
    pub(super) s: State,
    pub(super) out: Vec<Effect>,
    pub(super) now: Now,
}

impl Turn {
    fn apply(&mut self, event: Event) {
        match event {
            Event::Request(view) => self.request(view),
            Event::MayUpgrade(may) => self.may_upgrade(may),
            Event::Retry => self.retry(),
            Event::Check => self.check(),
            Event::Diagnosed(found) => self.diagnosed(found),
            Event::NetworkChanged => self.network_changed(),
            Event::HardwareChanged { disks } => self.hardware_changed(disks),
            Event::Identity(answer) => self.identity(answer),
            Event::Probed(answer) => self.probed(answer),
            Event::CaAnswered(pin) => self.ca_answered(pin),
            Event::Observed(answer) => self.observed(answer),
            Event::Proven(answer) => self.proven(answer),
            Event::Confirmed(answer) => self.confirmed(answer),
            Event::Registered(answer) => self.registered(answer),
            Event::Polled(answer) => self.polled(answer),
            Event::Acked(answer) => self.acked(answer),
            Event::CodeErased(answer) => self.code_erased(answer),
            Event::DeliveryWritten(answer) => self.delivery_written(answer),
            Event::FirstbootRunning => self.firstboot_running(),
            Event::FirstbootStep(report) => self.firstboot_step(report),
            Event::FirstbootLog { lines, cursor } => self.firstboot_log(lines, cursor),
            Event::FirstbootEnded(end) => self.firstboot_ended(end),
            Event::ProgressSent(answer) => self.progress_sent(answer),
            Event::LogSent(answer) => self.log_sent(answer),
            Event::JoinedMarked(answer) => self.joined_marked(answer),
            Event::Upgrade(done) => self.upgrade_done(done),
            Event::Timer(timer) => self.timer(timer),
        }
    }

    fn drive(&mut self) {
        if self.s.v.finished {
            return;
        }
        if self.s.d.joined.is_none() {
            self.take_waiting_request();
            self.drive_prepare();
        }
        // Before the main lane: what it wants to know is asked next.
        self.drive_upgrade();
        if self.s.d.joined.is_none() {
            self.drive_main();
        }
        self.drive_erase();
        self.drive_privileged();
        self.drive_post();
        self.drive_heartbeat();
    }

    // --- operator and network -----------------------------------------------------------------

    fn request(&mut self, view: Option<RequestView>) {
        if self.s.d.joined.is_some() {
            // Shown, and nothing else.
            self.s.v.request = view.or_else(|| self.s.v.request.take());
            return;
        }
        let Some(view) = view else {
            self.cancel_main();
            self.s.v.request = None;
            self.s.v.proof = Proof::None;
            return;
        };
        let id = B64(view.id);
        // The same code given once more is a new proof where only a new proof helps.
        let changed = self.s.v.trouble.as_ref().is_some_and(|t| t.fault.code == Code::FounderKeyChanged);
        if changed && view.has_code && self.s.v.request.is_some() && !self.s.installs() {
            self.s.d.request = None;
        }
        if self.s.d.request != Some(id) {
            // A new code must not disturb an install that runs: what it wrote half-way would be lost.
            let installing = self.s.installs();
            let unknown = self.s.v.trouble.as_ref().is_some_and(|t| t.fault.code == Code::JoinNotFound);
            if installing && !unknown && self.s.d.stop.is_none() {
                self.say(Notice::Info(Safe::clean("a new join request is not taken while the install runs")));
                self.s.v.request = Some(view);
                return;
            }
            let replaced = self.s.d.request.is_some();
            self.cancel_main();
            let d = &mut self.s.d;
            d.request = Some(id);
            d.stop = None;
            d.unproven = None;
            d.trust = None;
            d.registration = None;
            let v = &mut self.s.v;
            v.proof = Proof::None;
            v.registered_now = false;
            v.view = None;
            v.cluster = None;
            v.expired_proofs = 0;
            v.fit = 0;
            v.state_since_ms = self.now.boot_ms;
            self.clear_trouble();
            // What the helper was to try again was the old request's.
            self.settle_privileged();
            self.forget_checks();
            self.upgrade_asked_again();
            if replaced {
                self.say(Notice::Info(Safe::clean(format!("new join request for {}", view.endpoint))));
            }
        }
        // The same request given once more is the operator's wish to try again.
        if self.s.d.request == Some(id) && self.s.v.request.is_some() && view.has_code {
            self.s.d.stop = None;
            self.s.d.unproven = None;
            self.network_changed();
            self.upgrade_asked_again();
        }
        if self.s.v.env.require_pin && view.pins.is_empty() && self.s.d.stop.is_none() {
            self.stop("reading the join request", Fault::new(Code::UrlMalformed, NEEDS_PIN));
        }
        self.s.v.request = Some(view);
    }

    /// A request that came during an install is taken when that is over.
    fn take_waiting_request(&mut self) {
        let waits = |view: &RequestView, s: &State| s.d.request != Some(B64(view.id)) && !s.installs();
        if let Some(view) = self.s.v.request.clone().filter(|view| waits(view, &self.s)) {
            self.request(Some(view));
        }
    }

    fn retry(&mut self) {
        self.network_changed();
        if self.s.d.stop.as_ref().is_some_and(|f| may_retry(f.code)) {
            self.s.d.stop = None;
            self.s.v.fit = 0;
        }
        self.timer(Timer::Prepare);
        self.retry_upgrade();
        if let Lane::Delayed(_) = self.s.v.privileged {
            self.out.push(Effect::Disarm(Timer::Privileged));
            self.s.v.privileged = Lane::Idle;
        }
    }

    /// Ends the current wait, except the look-out after a proof that failed: each proof costs a try.
    fn network_changed(&mut self) {
        self.s.v.failures = 0;
        self.s.v.refusals = 0;
        self.s.v.post_failures = 0;
        self.checks_outdated();
        if matches!(self.s.v.main, Lane::Delayed(_)) && self.s.v.degraded.is_none() {
            self.out.push(Effect::Disarm(Timer::Main));
            self.s.v.main = Lane::Idle;
        }
        if matches!(self.s.v.post, Lane::Delayed(_)) {
            self.out.push(Effect::Disarm(Timer::Post));
            self.s.v.post = Lane::Idle;
        }
    }

    fn timer(&mut self, timer: Timer) {
        let v = &mut self.s.v;
        match timer {
            Timer::Main if matches!(v.main, Lane::Delayed(_)) => {
                v.main = Lane::Idle;
                v.degraded = None;
            }
            Timer::Post if matches!(v.post, Lane::Delayed(_)) => v.post = Lane::Idle,
            Timer::Privileged if matches!(v.privileged, Lane::Delayed(_)) => v.privileged = Lane::Idle,
            Timer::Prepare => {
                if let Slot::Later(_) = v.identity {
                    v.identity = Slot::Empty;
                }
                if let Slot::Later(_) = v.probe {
                    v.probe = Slot::Empty;
                }
                if let Slot::Later(_) = v.upgrading.os {
                    v.upgrading.os = Slot::Empty;
                }
                if let Lane::Delayed(_) = v.erasing {
                    v.erasing = Lane::Idle;
                }
            }
            Timer::Hardware => self.look_again(),
            Timer::Upgrade => self.upgrade_timer(),
            Timer::Heartbeat => {
                v.heartbeat = false;
                self.heartbeat();
            }
            _ => {}
        }
    }

    // --- start, identity, hardware ------------------------------------------------------------

    /// Crash-loop damper: systemd cannot lengthen its restart delay, so we do.
    fn note_start(&mut self) {
        let boot_id = self.s.v.env.boot_id.clone();
        let starts = &mut self.s.d.starts;
        starts.retain(|s| s.boot_id == boot_id);
        starts.push(Start { boot_id, boot_ms: self.now.boot_ms });
        let surplus = starts.len().saturating_sub(10);
        starts.drain(..surplus);
        let recent =
            starts.iter().filter(|s| s.boot_ms.saturating_add(LOOP_WINDOW_MS) > self.now.boot_ms).count();
        if recent > LOOP_STARTS && self.s.d.joined.is_none() {
            let text = format!("restarted {} times in 10 minutes", recent - 1);
            self.s.v.degraded = Some(Safe::clean(text));
            self.delay_main(backoff::MINUTE_MS);
        }
    }

    fn drive_prepare(&mut self) {
        // A new OS on trial is judged whoever asks to join: nobody else would leave it, or keep it.
        if self.s.v.request.is_none() && !self.s.armed_before() {
            return;
        }
        self.ask_os();
        // The probe first: it tells whether the identity on disk belongs to this machine.
        if matches!(self.s.v.probe, Slot::Empty) {
            self.s.v.probe = Slot::Busy;
            self.out.push(Effect::Probe { disks: true });
        }
        if matches!(self.s.v.identity, Slot::Empty) && matches!(self.s.v.probe, Slot::Ready(_)) {
            self.s.v.identity = Slot::Busy;
            // A discarding that failed, or that a crash cut off, is made up for before any key is used.
            let discard = self.s.d.discard_identity;
            self.out.push(if discard { Effect::DiscardIdentity } else { Effect::LoadIdentity });
        }
    }

    fn probed(&mut self, answer: Result<ProbeView, Fault>) {
        let answer = if self.is_another_look() {
            let Some(view) = self.looked_again(answer) else { return };
            Ok(view)
        } else {
            answer
        };
        let view = match answer {
            Ok(view) => view,
            Err(fault) => {
                let delay = self.prepare_failed("reading the hardware", fault);
                self.s.v.probe = Slot::Later(self.now.boot_ms + delay);
                return;
            }
        };
        let machine =
            Binding { product_uuid: view.product_uuid.clone(), install_id: view.install_id.clone() };
        let changed = matches!(&self.s.v.probe, Slot::Ready(old) if old.digest != view.digest);
        self.s.v.probe = Slot::Ready(view);
        if changed {
            self.s.v.registered_now = false;
        }
        let clash = |a: &Option<Safe<64>>, b: &Option<Safe<64>>| a.is_some() && b.is_some() && a != b;
        match self.s.d.binding.take() {
            Some(old) if clash(&old.product_uuid, &machine.product_uuid) => {
                self.foreign_state(machine, "another machine (its product UUID differs)");
            }
            Some(old) if clash(&old.install_id, &machine.install_id) => {
                self.foreign_state(machine, "another installation (its install id differs)");
            }
            Some(old) => {
                self.s.d.binding = Some(Binding {
                    product_uuid: machine.product_uuid.or(old.product_uuid),
                    install_id: machine.install_id.or(old.install_id),
                });
            }
            None => self.s.d.binding = Some(machine),
        }
    }

    /// The state directory was copied from elsewhere: nothing of it may be used, least of all its key.
    fn foreign_state(&mut self, machine: Binding, whose: &str) {
        self.say(Notice::Security(Safe::clean(format!(
            "the saved join state belongs to {whose}: key and registration are discarded, a new key is made"
        ))));
        self.cancel_main();
        let d = &mut self.s.d;
        let (request, starts) = (d.request.take(), std::mem::take(&mut d.starts));
        *d =
            Durable { request, starts, binding: Some(machine), discard_identity: true, ..Durable::default() };
        let v = &mut self.s.v;
        v.proof = Proof::None;
        v.registered_now = false;
        v.view = None;
        v.next_seq = 0;
        v.identity = Slot::Busy;
        self.clear_posts();
        self.out.push(Effect::DiscardIdentity);
    }

    fn identity(&mut self, answer: Result<IdentityView, Fault>) {
        if !matches!(self.s.v.identity, Slot::Busy) {
            return;
        }
        match answer {
            Ok(view) => {
                self.s.v.identity = Slot::Ready(view);
                self.s.v.prepare_failures = 0;
                self.s.v.prepare_fault = None;
                self.s.d.discard_identity = false;
                let fp = B64(view.client_fp);
                if view.made {
                    let hex = data_encoding::HEXLOWER.encode(&view.client_fp[..8]);
                    self.say(Notice::Info(Safe::clean(format!("made the client key, fingerprint {hex}..."))));
                }
                // A registration is bound to its key: with another key it is not ours any more.
                if self.s.d.registration.as_ref().is_some_and(|r| r.client_fp != fp) {
                    self.s.d.registration = None;
                    self.s.d.pairing = None;
                    self.s.v.registered_now = false;
                    let text =
                        "the client key is not the one that registered: this machine registers as a new one";
                    self.say(Notice::Security(Safe::clean(text)));
                }
            }
            Err(fault) => {
                let delay = self.prepare_failed("making the client key", fault);
                self.s.v.identity = Slot::Later(self.now.boot_ms + delay);
            }
        }
    }

    pub(super) fn prepare_failed(&mut self, doing: &'static str, fault: Fault) -> u64 {
        self.s.v.prepare_failures += 1;
        let attempt = self.s.v.prepare_failures;
        let delay = backoff::delay_ms(&fault, attempt, self.now.random);
        self.s.v.prepare_fault = Some(fault.clone());
        self.say(Notice::Fault { doing, fault: Box::new(fault), retry_ms: Some(delay), attempt });
        self.out.push(Effect::Arm(Timer::Prepare, delay));
        delay
    }

    /// Fresh key, fresh nonce, start over: where the rules of the pairing code ask for it.
    pub(super) fn new_identity(&mut self, why: &str) {
        self.say(Notice::Security(Safe::clean(format!("new machine key: {why}"))));
        self.s.d.registration = None;
        self.s.d.pairing = None;
        self.s.d.discard_identity = true;
        if let Some(upgrade) = &mut self.s.d.upgrade {
            upgrade.client_fp = None;
        }
        self.s.v.proof = Proof::None;
        self.s.v.registered_now = false;
        self.s.v.identity = Slot::Busy;
        self.out.push(Effect::DiscardIdentity);
    }

    // --- the saved code -----------------------------------------------------------------------

    fn drive_erase(&mut self) {
        let over = matches!(
            self.s.word(),
            Some("approved" | "delivering" | "installing" | "joined" | "failed" | "rejected" | "expired")
        ) || self.s.d.stop.as_ref().is_some_and(|f| f.code.class() == Class::Final);
        let ours = self.s.d.request;
        let saved = self.s.v.request.as_ref().is_some_and(|r| r.has_code && ours == Some(B64(r.id)));
        if over && saved && self.s.v.erasing == Lane::Idle {
            self.s.v.erasing = Lane::Busy((), self.now.boot_ms);
            self.out.push(Effect::EraseCode);
        }
    }

    fn code_erased(&mut self, answer: Result<(), Fault>) {
        match answer {
            Ok(()) => {
                if matches!(self.s.v.identity, Slot::Ready(_)) {
                    self.s.v.prepare_failures = 0;
                    self.s.v.prepare_fault = None;
                }
                self.s.v.erasing = Lane::Idle;
                if let Some(request) = &mut self.s.v.request {
                    request.has_code = false;
                }
            }
            Err(fault) => {
                let delay = self.prepare_failed("removing the join code", fault);
                self.s.v.erasing = Lane::Delayed(self.now.boot_ms + delay);
            }
        }
    }

    // --- helpers ------------------------------------------------------------------------------

    pub(super) fn say(&mut self, notice: Notice) {
        self.out.push(Effect::Say(notice));
    }

    /// Starts a call of the main lane.
    pub(super) fn call(&mut self, call: Call, effect: Effect) {
        self.s.v.main = Lane::Busy(call, self.now.boot_ms);
        self.out.push(effect);
    }

    pub(super) fn delay_main(&mut self, ms: u64) {
        self.s.v.main = Lane::Delayed(self.now.boot_ms + ms);
        self.out.push(Effect::Arm(Timer::Main, ms));
    }

    pub(super) fn cancel_main(&mut self) {
        match self.s.v.main {
            Lane::Busy(..) => {
                self.ask_again();
                self.out.push(Effect::CancelMain);
            }
            Lane::Delayed(_) => {
                self.s.v.degraded = None;
                self.out.push(Effect::Disarm(Timer::Main));
            }
            Lane::Idle => {}
        }
        self.s.v.main = Lane::Idle;
    }

    pub(super) fn delay_post(&mut self, ms: u64) {
        self.s.v.post = Lane::Delayed(self.now.boot_ms + ms);
        self.out.push(Effect::Arm(Timer::Post, ms));
    }

    /// The call that is answered, if it is the one under way; a late answer is nobody's.
    pub(super) fn take_call(&mut self, calls: &[Call]) -> Option<(Call, u64)> {
        match self.s.v.main {
            Lane::Busy(call, since) if calls.contains(&call) => {
                self.s.v.main = Lane::Idle;
                Some((call, since))
            }
            _ => None,
        }
    }

    pub(super) fn take_post(&mut self, post: Post) -> bool {
        let mine = matches!(self.s.v.post, Lane::Busy(p, _) if p == post);
        if mine {
            self.s.v.post = Lane::Idle;
        }
        mine
    }

    pub(super) fn take_verb(&mut self, verb: Verb) -> bool {
        let mine = matches!(self.s.v.privileged, Lane::Busy(v, _) if v == verb);
        if mine {
            self.s.v.privileged = Lane::Idle;
        }
        mine
    }

    /// Waits for a person.
    pub(super) fn stop(&mut self, doing: &'static str, fault: Fault) {
        self.clear_trouble();
        self.s.v.state_since_ms = self.now.boot_ms;
        self.s.d.stop = Some(fault.clone());
        let looks_out = fault.looks_out();
        self.say(Notice::Fault { doing, fault: Box::new(fault), retry_ms: None, attempt: 1 });
        if looks_out {
            self.delay_main(backoff::MINUTE_MS);
        }
    }

    /// Tries again by itself after the delay of the table.
    pub(super) fn again(&mut self, doing: &'static str, fault: Fault) {
        self.s.v.failures += 1;
        let delay = backoff::delay_ms(&fault, self.s.v.failures, self.now.random);
        self.again_in(doing, fault, delay);
    }

    pub(super) fn again_in(&mut self, doing: &'static str, fault: Fault, delay: u64) {
        let old = self.s.v.trouble.take();
        let attempts = old.as_ref().map_or(0, |t| t.attempts) + 1;
        let since_ms = old.map_or(self.now.boot_ms, |t| t.since_ms);
        let retry_at_ms = Some(self.now.boot_ms + delay);
        self.say(Notice::Fault {
            doing,
            fault: Box::new(fault.clone()),
            retry_ms: Some(delay),
            attempt: attempts,
        });
        self.s.v.trouble = Some(Trouble { fault, doing, since_ms, attempts, retry_at_ms });
        self.check_after_failure();
        self.delay_main(delay);
    }

    /// The founder answered as it should.
    pub(super) fn contact(&mut self) {
        self.s.v.last_contact_ms = Some(self.now.boot_ms);
        self.s.v.failures = 0;
        self.s.v.refusals = 0;
        if let Some(trouble) = self.s.v.trouble.take() {
            let after_ms = self.now.boot_ms.saturating_sub(trouble.since_ms);
            self.say(Notice::Recovered { after_ms, attempts: trouble.attempts });
            self.forget_checks();
        }
    }

    pub(super) fn clear_trouble(&mut self) {
        self.s.v.failures = 0;
        self.s.v.refusals = 0;
        self.s.v.trouble = None;
    }
}

/// Whether the operator's `retry` may clear this stop. Not where another code or another decision is needed, and never where a retry would
/// use up a try of the join code.
pub fn may_retry(code: Code) -> bool {
    matches!(
        code,
        Code::ReleaseMismatch
            | Code::ProtocolUnsupported
            | Code::InvalidInput
            | Code::InventoryTooLarge
            | Code::InventoryInvalid
            | Code::OtherRefusal
            | Code::Unsupported
    )
}
