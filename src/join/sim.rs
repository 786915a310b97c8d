//! A whole join without I/O, for the property tests: the core, a toy founder that follows docs/protocol.md, a toy helper, a disk, a clock.
//! Anything may be lost, refused, cut or restarted between any two steps; what must never happen is noted as a violation.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};

use console::text::Safe;

use super::effect::{Effect, Timer};
use super::event::*;
use super::fault::{Code, Fault};
use super::notice::Notice;
use super::sim_os::ToyOs;
use super::state::*;
use super::upgrade::{Do, Done, Upgrade};
use super::{Step, resume, step};
use crate::diagnosis::facts::Past;
use crate::diagnosis::rows::{Diagnosis, Row, RowName};
use crate::protocol::encoding::{B64, Pin};
use crate::protocol::{pairing, wire};
use crate::upgrade::fault::Code as UpgradeCode;

/// The founder that knows the code, and one that does not.
pub(super) const GOOD: Pin = Pin([1; 32]);
pub(super) const IMPOSTOR: Pin = Pin([2; 32]);

#[derive(Debug, Clone)]
pub(super) struct ToyRecord {
    pub(super) client_fp: [u8; 32],
    pub(super) commit: B64<32>,
    pub(super) n_f: B64<32>,
    pub(super) join_id: wire::JoinId,
    pub(super) state: &'static str,
    pub(super) attempt: u64,
    pub(super) pairing_code: String,
    pub(super) last_seq: u64,
    pub(super) last_line: u64,
    /// The upgrade that is offered in `needs-upgrade`: from, to.
    pub(super) offer: Option<(String, &'static str)>,
    /// Reports of the upgrade, in order.
    pub(super) told: Vec<String>,
}

#[derive(Debug, Default)]
pub(super) struct ToyFounder {
    pub(super) records: Vec<ToyRecord>,
    proofs: BTreeMap<[u8; 16], ([u8; 32], bool)>,
    /// nonce -> what it was revealed for.
    revealed: BTreeMap<[u8; 32], (String, [u8; 32])>,
    count: u64,
}

/// firstboot in one boot of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unit {
    Running,
    Ended(FirstbootEnd),
}

/// What one action does with an outstanding effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Deliver,
    LoseRequest,
    LoseAnswer,
    Refuse(Code),
}

pub(super) struct World {
    pub(super) state: State,
    pub(super) disk: Durable,
    pub(super) code_saved: bool,
    pub(super) request_no: u8,
    pub(super) key: Option<[u8; 32]>,
    keys_made: u8,
    /// What is in the machine; two that differ in the low four bits differ in their cables only.
    pub(super) hardware: u8,
    pub(super) boot: u32,
    pub(super) boot_ms: u64,
    pub(super) timers: BTreeMap<Timer, u64>,
    pub(super) outstanding: Vec<Effect>,
    /// The way to the founder is being looked at.
    pub(super) look: Option<Box<Past>>,
    pub(super) founder: ToyFounder,
    /// Who answers at the address now.
    pub(super) at_address: Pin,
    delivered: BTreeSet<(String, u64)>,
    units: BTreeMap<String, Unit>,
    pub(super) starts: BTreeMap<String, u32>,
    in_hand: Option<String>,
    marker: bool,
    pub(super) exited: bool,
    pub(super) violations: Vec<String>,
    /// What was to be logged.
    pub(super) said: Vec<Notice>,
    random: u64,
    /// The OS side; a machine that cannot upgrade itself when `None`.
    pub(super) os: Option<ToyOs>,
    /// The settings allow a self-upgrade.
    may: bool,
    /// What the cluster runs.
    pub(super) cluster: &'static str,
    /// Effects so far, and when the upgrade last came forward.
    serial: u64,
    polled: u64,
    came_forward: u64,
    /// The cluster has said after that that it still wants the upgrade.
    fresh: bool,
}

impl World {
    pub(super) fn new() -> Self {
        Self::with(None)
    }

    /// A machine of an older release that can upgrade itself.
    pub(super) fn older() -> Self {
        Self::with(Some(ToyOs::new("0.6.0")))
    }

    fn with(os: Option<ToyOs>) -> Self {
        let mut world = Self {
            state: State { d: Durable::default(), v: Volatile::new(env(0, false, false), now(1_000, 0)) },
            disk: Durable::default(),
            code_saved: true,
            request_no: 1,
            key: None,
            hardware: 0x30,
            keys_made: 0,
            boot: 0,
            boot_ms: 1_000,
            timers: BTreeMap::new(),
            outstanding: Vec::new(),
            look: None,
            founder: ToyFounder::default(),
            at_address: GOOD,
            delivered: BTreeSet::new(),
            units: BTreeMap::new(),
            starts: BTreeMap::new(),
            in_hand: None,
            marker: false,
            exited: false,
            violations: Vec::new(),
            said: Vec::new(),
            random: 7,
            may: os.is_some(),
            os,
            cluster: "0.7.0",
            serial: 0,
            polled: 0,
            came_forward: 0,
            fresh: false,
        };
        world.start();
        world
    }

    fn now(&mut self) -> Now {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        now(self.boot_ms, self.random >> 11)
    }

    fn start(&mut self) {
        self.start_agent();
        let view = self.request();
        self.feed(Event::Request(Some(view)));
    }

    fn start_agent(&mut self) {
        let now = self.now();
        let first = resume(self.disk.clone(), env(self.boot, self.marker, self.may), now);
        self.take(first);
    }

    pub(super) fn request(&self) -> RequestView {
        RequestView {
            endpoint: Safe::clean("192.0.2.240:9444"),
            has_code: self.code_saved,
            code_hint: None,
            code_check_fits: true,
            pins: Vec::new(),
            id: [self.request_no; 32],
        }
    }

    pub(super) fn feed(&mut self, event: Event) {
        if self.exited {
            return;
        }
        let now = self.now();
        let state = std::mem::replace(
            &mut self.state,
            State { d: Durable::default(), v: Volatile::new(env(0, false, false), now) },
        );
        let next = step(state, event, now);
        self.take(next);
    }

    fn take(&mut self, next: Step) {
        self.state = next.state;
        // Written before any effect.
        self.disk = self.state.d.clone();
        for effect in next.effects {
            match effect {
                Effect::Arm(timer, after) => drop(self.timers.insert(timer, self.boot_ms + after)),
                Effect::Disarm(timer) => drop(self.timers.remove(&timer)),
                Effect::CancelMain => self.outstanding.retain(|e| !is_main(e)),
                Effect::Say(notice) => self.said.push(notice),
                Effect::Upgrade(Do::Cancel) => self.outstanding.retain(|e| !may_be_cut(e)),
                // It goes on beside everything else and brings no join forward.
                Effect::Diagnose(past) => {
                    if self.look.replace(past).is_some() {
                        self.violate("the way is looked at twice at once");
                    }
                }
                Effect::Exit => {
                    if self.state.word() != Some("joined") {
                        self.violations.push("exit before joined".to_owned());
                    }
                    self.exited = true;
                }
                effect => {
                    self.serial += 1;
                    if matches!(effect, Effect::Poll { .. }) {
                        self.polled = self.serial;
                    }
                    self.check_effect(&effect);
                    self.outstanding.push(effect);
                }
            }
        }
        self.check_state();
    }

    fn violate(&mut self, text: impl Into<String>) {
        self.violations.push(text.into());
    }

    fn check_effect(&mut self, effect: &Effect) {
        if (is_main(effect) || is_post(effect)) && self.key.is_none() {
            self.violate(format!("P2: {effect:?} before the key is durable"));
        }
        let inventory = matches!(effect, Effect::Register { .. } | Effect::Reregister { .. });
        if inventory && self.state.d.trust.is_none() {
            self.violate("P2: inventory before the founder proved the code");
        }
        // The driver takes it into the verb at once; what comes later does not change it.
        if let Effect::WriteDelivery { sha256, .. } = effect
            && self.in_hand.as_ref() != Some(sha256)
        {
            self.violate("P4: a delivery that is not in hand is written");
        }
        if self.state.word() == Some("needs-upgrade")
            && matches!(effect, Effect::WriteDelivery { .. } | Effect::StartFirstboot { .. })
        {
            self.violate("P6: a machine in needs-upgrade is changed");
        }
        if inventory && self.os.as_ref().is_some_and(ToyOs::on_trial) {
            self.violate("P6: the cluster is told of an OS that is on trial");
        }
        if let Effect::Upgrade(what @ (Do::Write(_) | Do::Arm(_) | Do::Restart)) = effect {
            let trial = *what == Do::Restart && self.os.as_ref().is_some_and(ToyOs::on_trial);
            if !std::mem::take(&mut self.fresh) && !trial {
                self.violate(format!("P6: {what:?} without a fresh word of the cluster"));
            }
        }
        let working = |e: &Effect| matches!(e, Effect::Upgrade(what) if *what != Do::Os);
        if working(effect) && self.outstanding.iter().any(working) {
            self.violate("P3: two things at once for one upgrade");
        }
        if is_main(effect) && self.outstanding.iter().any(is_main) {
            self.violate("P3: two calls of the main lane");
        }
    }

    /// What nobody wants is taken back at once; where the helper fails at that, within seconds.
    fn check_armed(&mut self) {
        let s = &self.state;
        let may_start = self.os.as_ref().is_some_and(ToyOs::may_start_another);
        if !may_start || s.v.upgrading.os().is_none() || s.registration_waits() {
            return;
        }
        let at_it =
            |e: &Effect| matches!(e, Effect::Upgrade(Do::Disarm | Do::Write(_) | Do::Arm(_) | Do::Restart));
        let soon = self.timers.get(&Timer::Upgrade).is_some_and(|at| *at <= self.boot_ms + 10_000);
        let asks = s.d.stop.is_none()
            && s.offer().is_some()
            && s.d.upgrade.as_ref().is_some_and(|u| u.failure.is_none());
        if !self.outstanding.iter().any(at_it) && !soon && !asks {
            let text = format!("P6: armed, and nobody wants it: {:?}", s.v.upgrading);
            self.violate(text);
        }
    }

    fn check_state(&mut self) {
        self.check_armed();
        let s = &self.state;
        if s.is_terminal() || s.is_parked() {
            return;
        }
        // Another look at the hardware brings no join forward, nor does the wait for it.
        let looked = matches!(s.v.probe, Slot::Ready(_));
        let under_way = |effect: &Effect| !(looked && matches!(effect, Effect::Probe { .. }));
        let waiting =
            self.outstanding.iter().any(under_way) || self.timers.keys().any(|t| *t != Timer::Hardware);
        if !waiting {
            let text = format!("P1: silent stall in {:?}", s.phase());
            return self.violate(text);
        }
        let ready = s.identity().is_some() && matches!(s.v.probe, Slot::Ready(_)) && s.d.joined.is_none();
        let handing =
            s.d.handoff.as_ref().is_some_and(|h| h.stage == Stage::Received) && s.v.privileged != Lane::Idle;
        if ready && s.v.main == Lane::Idle && !handing && !s.registration_waits() {
            let text = format!("P1: nobody asks the founder in {:?}", s.phase());
            self.violate(text);
        }
        let polls = self.outstanding.iter().filter(|e| matches!(e, Effect::Poll { .. })).count();
        if polls > 1 {
            self.violate("P3: two polls");
        }
    }

    // --- what may happen ----------------------------------------------------------------------

    /// The process dies; the machine does not.
    pub(super) fn crash(&mut self) {
        if self.exited {
            return;
        }
        self.die();
        self.look = None;
        self.timers.clear();
        self.in_hand = None;
        self.boot_ms += 2_000;
        self.start();
    }

    /// The process dies, and the saved request is gone when it starts again.
    pub(super) fn crash_without_request(&mut self) {
        self.die();
        self.timers.clear();
        self.start_agent();
        self.feed(Event::Request(None));
    }

    /// The machine restarts.
    pub(super) fn reboot(&mut self) {
        self.restart(ToyOs::boot);
    }

    /// The machine restarts into the OS that was confirmed.
    pub(super) fn pass_over(&mut self) {
        self.restart(ToyOs::pass_over);
    }

    /// What was on tmpfs is gone, firstboot is dead, the boot clock starts anew.
    fn restart(&mut self, loader: impl FnOnce(&mut ToyOs)) {
        if self.exited {
            return;
        }
        self.units.clear();
        self.die();
        self.boot += 1;
        self.boot_ms = 500;
        if let Some(os) = &mut self.os {
            loader(os);
        }
        self.crash();
    }

    /// The settings are read again.
    pub(super) fn settings(&mut self, may: bool) {
        if self.os.is_some() {
            self.may = may;
            self.feed(Event::MayUpgrade(may));
        }
    }

    /// What the helper does for us may be done before it hears that we are gone.
    fn die(&mut self) {
        let boot = self.boot;
        for effect in std::mem::take(&mut self.outstanding) {
            let done = self.now().random.is_multiple_of(2);
            if let (Effect::Upgrade(what @ (Do::Write(_) | Do::Arm(_) | Do::Disarm | Do::Bless)), true) =
                (&effect, done)
            {
                self.helper_does(what, boot);
            }
        }
    }

    fn helper_does(&mut self, what: &Do, boot: u32) -> Option<Done> {
        match self.os.as_mut()?.carry_out(what, boot) {
            Ok(done) => Some(done),
            Err(violation) => {
                self.violate(violation);
                None
            }
        }
    }

    /// The earliest timer runs out. False when none is armed.
    pub(super) fn fire(&mut self) -> bool {
        let Some((&timer, &at)) = self.timers.iter().min_by_key(|(_, at)| **at) else { return false };
        self.timers.remove(&timer);
        self.boot_ms = self.boot_ms.max(at);
        self.feed(Event::Timer(timer));
        true
    }

    /// The operator gives a new code.
    pub(super) fn new_request(&mut self) {
        self.request_no = self.request_no.wrapping_add(1).max(1);
        self.code_saved = true;
        let view = self.request();
        self.feed(Event::Request(Some(view)));
    }

    pub(super) fn record(&mut self) -> Option<&mut ToyRecord> {
        let key = self.key?;
        self.founder.records.iter_mut().rev().find(|r| r.client_fp == key)
    }

    pub(super) fn answer(&mut self, index: usize, outcome: Outcome) {
        if self.outstanding.is_empty() {
            return;
        }
        let index = index % self.outstanding.len();
        if let Effect::StartFirstboot { sha256, .. } = &self.outstanding[index] {
            let sha256 = sha256.clone();
            return self.firstboot(index, &sha256, outcome);
        }
        let effect = self.outstanding.remove(index);
        self.boot_ms += 5;
        if let Effect::Upgrade(what) = &effect {
            let what = what.clone();
            return self.upgrade(&what, outcome);
        }
        let event = self.carry_out(effect, outcome);
        self.feed(event);
    }

    fn upgrade(&mut self, what: &Do, outcome: Outcome) {
        let boot = self.boot;
        let done = match outcome {
            Outcome::LoseRequest => ToyOs::failed(what, UpgradeCode::SourceUnreachable),
            Outcome::Refuse(code) => {
                ToyOs::failed(what, UpgradeCode::ALL[code as usize % UpgradeCode::ALL.len()])
            }
            Outcome::LoseAnswer => {
                self.helper_does(what, boot);
                ToyOs::failed(what, UpgradeCode::Helper)
            }
            Outcome::Deliver => match self.helper_does(what, boot) {
                Some(done) => done,
                None => return,
            },
        };
        self.came_forward = self.serial;
        self.fresh = false;
        let goes_down = matches!(done, Done::Restart(Ok(())));
        self.feed(Event::Upgrade(done));
        if goes_down {
            self.reboot();
        }
    }

    /// The look at the way ends.
    pub(super) fn looked(&mut self, red: bool) {
        if let Some(past) = self.look.take() {
            self.feed(Event::Diagnosed(Box::new(diagnosis(&past, red))));
        }
    }

    fn firstboot(&mut self, index: usize, sha256: &str, outcome: Outcome) {
        let unit = self.units.get(sha256).cloned();
        match unit {
            None => {
                // Not started in this boot: start it.
                let starts = self.starts.entry(sha256.to_owned()).or_default();
                *starts += 1;
                if *starts > 1 {
                    let text = format!(
                        "P4: firstboot started {starts} times for {}",
                        sha256.trim_start_matches('0')
                    );
                    self.violate(text);
                }
                if !self.delivered.iter().any(|(sha, _)| sha == sha256) {
                    self.violate("P4: firstboot started without a delivery on our registration");
                }
                self.units.insert(sha256.to_owned(), Unit::Running);
                self.feed(Event::FirstbootRunning);
            }
            Some(Unit::Running) => match outcome {
                Outcome::Deliver => {
                    self.units.insert(sha256.to_owned(), Unit::Ended(FirstbootEnd::Done));
                }
                Outcome::LoseRequest => {
                    self.feed(Event::FirstbootStep(report("storage", 1, wire::StepStatus::Running)))
                }
                Outcome::LoseAnswer => {
                    let lines = vec![Safe::clean("a line"); 3];
                    self.feed(Event::FirstbootLog { lines, cursor: self.boot_ms.to_string() });
                }
                Outcome::Refuse(_) => {
                    self.feed(Event::FirstbootStep(report("storage", 1, wire::StepStatus::Failed)));
                    let end = FirstbootEnd::Failed(Safe::clean("exit status 1"));
                    self.units.insert(sha256.to_owned(), Unit::Ended(end));
                }
            },
            Some(Unit::Ended(end)) => {
                self.outstanding.remove(index);
                self.feed(Event::FirstbootEnded(Ok(end)));
            }
        }
    }

    fn carry_out(&mut self, effect: Effect, outcome: Outcome) -> Event {
        let local = || Fault::new(Code::Local, "disk full");
        let lost = outcome != Outcome::Deliver;
        match effect {
            Effect::LoadIdentity if lost => Event::Identity(Err(local())),
            Effect::LoadIdentity => {
                let made = self.key.is_none();
                let key = match self.key {
                    Some(key) => key,
                    None => self.make_key(),
                };
                Event::Identity(Ok(IdentityView { client_fp: key, made }))
            }
            Effect::DiscardIdentity if lost => Event::Identity(Err(local())),
            Effect::DiscardIdentity => {
                let key = self.make_key();
                Event::Identity(Ok(IdentityView { client_fp: key, made: true }))
            }
            Effect::Probe { .. } if lost => Event::Probed(Err(local())),
            Effect::Probe { .. } => Event::Probed(Ok(ProbeView {
                digest: [self.hardware; 32],
                steady: [self.hardware / 16; 32],
                hardware: [self.hardware / 32; 32],
                product_uuid: Some(Safe::clean("uuid-1")),
                install_id: None,
                release: Some(Safe::clean("0.7.0")),
            })),
            Effect::EraseCode if lost => Event::CodeErased(Err(local())),
            Effect::EraseCode => {
                self.code_saved = false;
                Event::CodeErased(Ok(()))
            }
            Effect::WriteJoinedMarker if lost => Event::JoinedMarked(Err(local())),
            Effect::WriteJoinedMarker => {
                self.marker = true;
                Event::JoinedMarked(Ok(()))
            }
            Effect::WriteDelivery { .. } if lost => Event::DeliveryWritten(Err(local())),
            Effect::WriteDelivery { sha256, .. } => Event::DeliveryWritten(Ok(sha256)),
            effect => self.carry_to_founder(effect, outcome),
        }
    }

    fn make_key(&mut self) -> [u8; 32] {
        self.keys_made += 1;
        let key = [self.keys_made.wrapping_add(100); 32];
        self.key = Some(key);
        key
    }

    fn carry_to_founder(&mut self, effect: Effect, outcome: Outcome) -> Event {
        let unreachable = Fault::new(Code::AddressUnreachable, "connection refused");
        let fault = match outcome {
            Outcome::LoseRequest => Some(unreachable.clone()),
            Outcome::Refuse(code) => {
                let mut fault = Fault::new(code, "scripted");
                fault.http = Some(400);
                fault.verified = !matches!(effect, Effect::Observe { .. } | Effect::StartProof { .. });
                Some(fault)
            }
            _ => self.wrong_founder(&effect),
        };
        if let Some(fault) = fault {
            return effect.failed(fault).unwrap();
        }
        let event = self.founder_answers(&effect);
        if outcome == Outcome::LoseAnswer {
            return effect.failed(unreachable).unwrap();
        }
        if let (Effect::Poll { .. }, Event::Polled(Ok((view, _)))) = (&effect, &event) {
            let fits = |upgrade: &Upgrade| view.upgrade.as_ref().is_some_and(|offer| offer.to == upgrade.to);
            let wanted = self.state.d.upgrade.as_ref().is_some_and(fits);
            self.fresh = wanted && self.polled > self.came_forward;
        }
        if let (Effect::Poll { .. }, Event::Polled(Ok((_, Some(delivery))))) = (&effect, &event) {
            self.in_hand = Some(delivery.sha256.clone());
        }
        event
    }

    /// What the pins say of whoever answers at the address.
    fn wrong_founder(&mut self, effect: &Effect) -> Option<Fault> {
        let here = self.at_address;
        let fault = |code| Some(Fault::new(code, "other key"));
        match effect {
            Effect::Observe { pins } if pins.is_empty() || pins.contains(&here) => None,
            Effect::Observe { .. } => fault(Code::FounderKeyChanged),
            Effect::StartProof { ca } | Effect::Confirm { ca, .. } if *ca != here => fault(Code::TlsFailed),
            Effect::StartProof { .. } if here == IMPOSTOR => fault(Code::CodeNotProven),
            Effect::StartProof { .. } | Effect::Confirm { .. } => None,
            _ if self.state.d.pins().contains(&here) => None,
            _ => fault(Code::FounderKeyChanged),
        }
    }

    fn founder_answers(&mut self, effect: &Effect) -> Event {
        if self.at_address == IMPOSTOR && !matches!(effect, Effect::Observe { .. }) {
            self.violate(format!("P2: an impostor gets {effect:?}"));
        }
        let key = self.key.unwrap();
        match effect {
            Effect::Observe { .. } => Event::Observed(Ok(Observed { ca: self.at_address })),
            Effect::StartProof { ca } => {
                self.founder.count += 1;
                let count = self.founder.count;
                let mut id = [0; 16];
                id[..8].copy_from_slice(&count.to_be_bytes());
                self.founder.proofs.insert(id, (key, false));
                let mut fresh = [9; 32];
                fresh[..8].copy_from_slice(&count.to_be_bytes());
                let resume_commit = self.live(key).map(|r| r.commit);
                Event::Proven(Ok(FounderProven {
                    ca: *ca,
                    proof_id: B64(id),
                    resume_commit,
                    fresh_nonce: Nonce(B64(fresh)),
                }))
            }
            Effect::Confirm { proof_id, commit, .. } => self.confirm(key, proof_id, commit),
            Effect::Register { proof_id, nonce, self_upgrade, .. } => {
                self.register(key, proof_id, nonce, *self_upgrade)
            }
            Effect::Reregister { join_id, self_upgrade, .. } => {
                match self.known(key, join_id).map(|r| r.state) {
                    None => Event::Registered(Err(Fault::new(Code::JoinNotFound, "unknown"))),
                    Some(state @ ("registering" | "joined")) => {
                        let mut fault = Fault::new(Code::JoinStateConflict, "conflict");
                        fault.details.state = Some(Safe::clean(state));
                        Event::Registered(Err(fault))
                    }
                    Some("rejected") => Event::Registered(Err(Fault::new(Code::JoinRejected, ""))),
                    Some("expired") => Event::Registered(Err(Fault::new(Code::JoinExpired, ""))),
                    Some("pending" | "needs-upgrade") if self.is_refused(*self_upgrade) => {
                        Event::Registered(Err(Fault::new(Code::ReleaseMismatch, "")))
                    }
                    Some(_) => {
                        let (join_id, can) = (join_id.clone(), *self_upgrade);
                        self.compare_releases(key, &join_id, can);
                        Event::Registered(Ok(view(self.known(key, &join_id).unwrap())))
                    }
                }
            }
            Effect::Poll { join_id, skip_delivery, .. } => self.poll(key, join_id, *skip_delivery),
            Effect::Ack { join_id, .. } => match self.known(key, join_id).map(|r| r.state) {
                None => Event::Acked(Err(Fault::new(Code::JoinNotFound, "unknown"))),
                Some(state @ ("delivering" | "installing")) => {
                    Event::Acked(Ok(wire::AckAnswer { state: Safe::clean(state) }))
                }
                Some(state) => {
                    let mut fault = Fault::new(Code::JoinStateConflict, "conflict");
                    fault.details.state = Some(Safe::clean(state));
                    Event::Acked(Err(fault))
                }
            },
            Effect::SendProgress { join_id, body } => self.progress(key, join_id, body),
            Effect::SendLog { join_id, body } => match self.known(key, join_id) {
                None => Event::LogSent(Err(Fault::new(Code::JoinNotFound, "unknown"))),
                Some(record) => {
                    record.last_line = record.last_line.max(body.first + body.lines.len() as u64 - 1);
                    Event::LogSent(Ok(wire::LogAnswer { last_line: record.last_line }))
                }
            },
            other => panic!("not for the founder: {other:?}"),
        }
    }

    /// Another release that does not upgrade itself.
    fn is_refused(&self, can: bool) -> bool {
        !can && self.os.as_ref().is_some_and(|os| os.running != self.cluster)
    }

    /// The release rules of the founder (docs/protocol.md).
    fn compare_releases(&mut self, key: [u8; 32], join_id: &wire::JoinId, can: bool) {
        let (running, cluster) = (self.os.as_ref().map(|os| os.running.clone()), self.cluster);
        let Some(running) = running else { return };
        let Some(record) = self.known(key, join_id) else { return };
        match record.state {
            "pending" | "needs-upgrade" if running != cluster && can => {
                record.state = "needs-upgrade";
                record.offer = Some((running, cluster));
            }
            "needs-upgrade" if running == cluster => (record.state, record.offer) = ("pending", None),
            _ => {}
        }
    }

    fn known(&mut self, key: [u8; 32], join_id: &wire::JoinId) -> Option<&mut ToyRecord> {
        self.founder.records.iter_mut().find(|r| r.client_fp == key && r.join_id == *join_id)
    }

    fn live(&mut self, key: [u8; 32]) -> Option<&mut ToyRecord> {
        let over = |state: &str| matches!(state, "rejected" | "expired");
        self.founder.records.iter_mut().find(|r| r.client_fp == key && !over(r.state))
    }

    fn confirm(&mut self, key: [u8; 32], proof_id: &B64<16>, commit: &B64<32>) -> Event {
        match self.founder.proofs.get_mut(&proof_id.0) {
            Some((owner, confirmed)) if *owner == key && !*confirmed => *confirmed = true,
            _ => return Event::Confirmed(Err(Fault::new(Code::ProofExpired, "proof"))),
        }
        let count = self.founder.count;
        let record = match self.live(key) {
            Some(record) if record.commit != *commit => {
                return Event::Confirmed(Err(Fault::new(Code::PairingConflict, "commit")));
            }
            Some(record) => record.clone(),
            None => {
                let record = ToyRecord {
                    client_fp: key,
                    commit: *commit,
                    n_f: B64([count as u8; 32]),
                    join_id: wire::JoinId::parse(&format!("nj-{count:08}")).unwrap(),
                    state: "registering",
                    attempt: 0,
                    pairing_code: String::new(),
                    last_seq: 0,
                    last_line: 0,
                    offer: None,
                    told: Vec::new(),
                };
                self.founder.records.push(record.clone());
                record
            }
        };
        Event::Confirmed(Ok(wire::ConfirmAnswer {
            cluster_release: Safe::clean("0.7.0"),
            min_upgrade_from: Safe::clean("0.5.0"),
            iso: None,
            accepting: true,
            refusal: None,
            code_expires_at: None,
            server_time: None,
            join_id: Some(record.join_id),
            founder_nonce: Some(record.n_f),
        }))
    }

    fn register(&mut self, key: [u8; 32], proof_id: &B64<16>, nonce: &Nonce, can: bool) -> Event {
        if !matches!(self.founder.proofs.get(&proof_id.0), Some((owner, true)) if *owner == key) {
            return Event::Registered(Err(Fault::new(Code::ProofExpired, "proof")));
        }
        let refused = self.is_refused(can);
        let Some(record) = self.live(key) else {
            return Event::Registered(Err(Fault::new(Code::JoinNotFound, "gone")));
        };
        if pairing::commitment(&nonce.0) != record.commit {
            self.violate("the nonce does not open the commitment");
            return Event::Registered(Err(Fault::new(Code::InvalidInput, "pairingNonce")));
        }
        let told = (record.join_id.to_string(), record.n_f.0);
        if refused {
            return Event::Registered(Err(Fault::new(Code::ReleaseMismatch, "")));
        }
        record.pairing_code = pairing::pairing_code(&GOOD, &key, &record.join_id, &nonce.0, &record.n_f);
        if record.state == "registering" {
            record.state = "pending";
        }
        let join_id = record.join_id.clone();
        self.compare_releases(key, &join_id, can);
        let Some(record) = self.live(key) else {
            return Event::Registered(Err(Fault::new(Code::JoinNotFound, "gone")));
        };
        let answer = view(record);
        if self.founder.revealed.entry(nonce.0.0).or_insert_with(|| told.clone()) != &told {
            self.violate("a nonce is revealed for two answers");
        }
        Event::Registered(Ok(answer))
    }

    fn poll(&mut self, key: [u8; 32], join_id: &wire::JoinId, skip: bool) -> Event {
        let Some(record) = self.known(key, join_id) else {
            return Event::Polled(Err(Fault::new(Code::JoinNotFound, "unknown")));
        };
        if record.state == "approved" {
            record.state = "delivering";
            record.attempt += 1;
        }
        let (answer, attempt) = (view(record), record.attempt);
        let carries = matches!(record.state, "delivering" | "installing") && !skip;
        let shown = self.state.d.registration.as_ref().map(|r| r.pairing_code.as_str().to_owned());
        if shown.is_some_and(|shown| answer.pairing_code.as_ref().is_some_and(|c| c.as_str() != shown)) {
            self.violate("I4: the two screens show different pairing codes");
        }
        let delivery = carries.then(|| {
            let sha256 = format!("{}{attempt:032}", &hex(join_id)[..32]);
            self.delivered.insert((sha256.clone(), attempt));
            DeliveryView { sha256, problem: None, cluster_id: None, node_id: None }
        });
        Event::Polled(Ok((answer, delivery)))
    }

    fn progress(&mut self, key: [u8; 32], join_id: &wire::JoinId, body: &wire::ProgressRequest) -> Event {
        let Some(record) = self.known(key, join_id) else {
            return Event::ProgressSent(Err(Fault::new(Code::JoinNotFound, "unknown")));
        };
        let upgrade = body.step.starts_with("upgrade");
        // The last words of an upgrade may come after the new release was heard of.
        let waits = matches!(record.state, "needs-upgrade" | "pending" | "approved");
        if !(waits && upgrade || matches!(record.state, "delivering" | "installing" | "failed" | "joined")) {
            return Event::ProgressSent(Err(Fault::new(Code::JoinStateConflict, "state")));
        }
        let late = body.attempt.is_some_and(|attempt| attempt < record.attempt);
        if body.seq > record.last_seq && late {
            record.last_seq = body.seq;
        } else if body.seq > record.last_seq {
            record.last_seq = body.seq;
            if waits {
                record.told.push(format!("{} {:?}", body.step, body.status));
            }
            match (record.state, body.status, body.step.as_str()) {
                ("delivering" | "installing", wire::StepStatus::Failed, _) => record.state = "failed",
                ("delivering" | "installing", wire::StepStatus::Done, "join") => record.state = "joined",
                ("delivering", ..) => record.state = "installing",
                _ => {}
            }
        }
        let state = Safe::clean(record.state);
        Event::ProgressSent(Ok(wire::ProgressAnswer { state, last_seq: record.last_seq }))
    }

    // --- a fair world ----------------------------------------------------------------------------

    /// Everything works and the operator is willing: true when the join ends in `joined` within a bounded number of steps.
    pub(super) fn run_fairly(&mut self) -> bool {
        self.at_address = GOOD;
        self.settings(true);
        for _ in 0..4_000 {
            if self.exited {
                return true;
            }
            if self.state.is_parked() || self.state.d.stop.is_some() {
                self.new_request();
            }
            if let Some(record) = self.record() {
                match record.state {
                    "needs-upgrade" if record.offer.is_some() => {}
                    "pending" | "failed" | "needs-upgrade" | "quarantined" => record.state = "approved",
                    _ => {}
                }
            }
            // Without a code a lost record needs a person.
            let lost = self.state.v.trouble.as_ref().is_some_and(|t| t.fault.code == Code::JoinNotFound);
            if lost && !self.code_saved {
                self.new_request();
            }
            if self.outstanding.is_empty() {
                if !self.fire() {
                    return self.exited;
                }
            } else {
                self.answer(0, Outcome::Deliver);
            }
            // Posts share the world with the poll: let both go on, and let time pass.
            if self.outstanding.len() > 1 {
                self.answer(1, Outcome::Deliver);
            }
            self.fire_due();
        }
        self.exited
    }

    fn fire_due(&mut self) {
        self.boot_ms += 1_500;
        let due: Vec<Timer> =
            self.timers.iter().filter(|(_, at)| **at <= self.boot_ms).map(|(t, _)| *t).collect();
        for timer in due {
            self.timers.remove(&timer);
            self.feed(Event::Timer(timer));
        }
    }
}

fn env(boot: u32, marked_joined: bool, may_upgrade: bool) -> Env {
    Env { boot_id: format!("boot-{boot}"), poll_wait: 50, require_pin: false, marked_joined, may_upgrade }
}

fn now(boot_ms: u64, random: u64) -> Now {
    Now { boot_ms, wall_ms: 1_764_412_927_000, random }
}

fn hex(join_id: &wire::JoinId) -> String {
    data_encoding::HEXLOWER
        .encode(ring::digest::digest(&ring::digest::SHA256, join_id.as_str().as_bytes()).as_ref())
}

/// A look at the way: red when the founder is away.
pub(super) fn diagnosis(past: &Past, red: bool) -> Diagnosis {
    let row = match red {
        true => Row::failed(RowName::Link, "no cable on any of: eth0", &["The cable."]),
        false => Row::ok(RowName::Link, format!("{} pins", past.pins.len())),
    };
    Diagnosis { endpoint: Safe::clean("192.0.2.240:9444"), rows: vec![row], timed_out: false, took_ms: 3 }
}

pub(super) fn report(step: &str, index: u32, status: wire::StepStatus) -> StepReport {
    let error = (status == wire::StepStatus::Failed).then(|| Safe::clean("no disk"));
    StepReport {
        step: Safe::clean(step),
        title: Safe::clean("Preparing"),
        index: Some(index),
        total: Some(9),
        status,
        error,
    }
}

pub(super) fn is_main(effect: &Effect) -> bool {
    matches!(
        effect,
        Effect::Observe { .. }
            | Effect::StartProof { .. }
            | Effect::Confirm { .. }
            | Effect::Register { .. }
            | Effect::Reregister { .. }
            | Effect::Poll { .. }
            | Effect::Ack { .. }
    )
}

/// What [`Do::Cancel`] ends.
fn may_be_cut(effect: &Effect) -> bool {
    matches!(effect, Effect::Upgrade(Do::Check(_) | Do::Fetch | Do::Verify | Do::Write(_)))
}

fn is_post(effect: &Effect) -> bool {
    matches!(effect, Effect::SendProgress { .. } | Effect::SendLog { .. })
}

pub(super) fn view(record: &ToyRecord) -> Box<wire::Registration> {
    Box::new(wire::Registration {
        join_id: record.join_id.clone(),
        state: Safe::clean(record.state),
        pairing_code: Some(Safe::clean(&record.pairing_code)),
        reason: None,
        wait_reason: None,
        upgrade: record.offer.as_ref().map(|(from, to)| wire::UpgradeOffer {
            from: Safe::clean(from),
            to: Safe::clean(*to),
            source: Safe::clean("https://mirror.example/stratum"),
            from_founder: false,
        }),
        attempt: (record.attempt > 0).then_some(record.attempt),
        delivery: None,
        failed_step: None,
        failed_step_title: None,
        failed_error: None,
        code_expires_at: None,
        expires_at: None,
        server_time: None,
        next_pins: Vec::new(),
    })
}
