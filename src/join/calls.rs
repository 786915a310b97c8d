//! The main lane: observe, prove, confirm, register, poll, acknowledge; and what each answer of the founder means. Touches nothing.

use console::text::Safe;

use super::backoff::{self, MINUTE_MS};
use super::effect::Effect;
use super::event::{DeliveryView, FounderProven, Observed};
use super::fault::{Class, Code, Details, Fault};
use super::notice::Notice;
use super::state::{
    Call, ClusterView, FITS, Joined, Lane, Pairing, Proof, Record, Revealed, Slot, Stage, Trust, Verb,
};
use super::step::Turn;
use crate::protocol::encoding::{B64, Pin};
use crate::protocol::{pairing, wire};

/// Polls answered faster than this with nothing new are damped to one a second.
const FAST_POLL_MS: u64 = 1_000;
/// So many fast answers in a row are taken before the damping, so that approval, delivery and the first step follow each other at once.
const FAST_POLLS: u32 = 8;

impl Turn {
    pub(super) fn drive_main(&mut self) {
        if self.s.v.main != Lane::Idle {
            return;
        }
        let (Some(identity), Slot::Ready(_)) = (self.s.identity(), &self.s.v.probe) else { return };
        let Some(request) = &self.s.v.request else { return };
        if self.s.registration_waits() {
            return;
        }
        if let Some(stop) = &self.s.d.stop {
            // Only look whether another cluster answers at the address; no new try against the same one.
            if stop.looks_out() {
                let pins = self.accepted(&request.pins);
                self.call(Call::Observe, Effect::Observe { pins });
            }
            return;
        }
        let (has_code, pins) = (request.has_code, self.accepted(&request.pins));
        if let Some(record) = &self.s.d.registration {
            let join_id = record.join_id.clone();
            let state = record.state.as_str().to_owned();
            self.drive_registered(join_id, state);
            return;
        }
        match self.s.v.proof.clone() {
            Proof::None if !has_code => {
                let fault = Fault::new(Code::JoinNotFound, "no join code is saved on this machine");
                self.stop("registering", fault);
            }
            Proof::None => self.call(Call::Observe, Effect::Observe { pins }),
            Proof::Observed(ca) => self.call(Call::Prove, Effect::StartProof { ca }),
            Proof::Proven(proof_id) => {
                // Pin and nonce became durable with the step that set `Proven`.
                let (Some(trust), Some(pairing)) = (&self.s.d.trust, &self.s.d.pairing) else {
                    self.s.v.proof = Proof::None;
                    return self.drive_main();
                };
                let (ca, commit) = (trust.pin, pairing::commitment(&pairing.nonce.0));
                self.call(Call::Confirm, Effect::Confirm { ca, proof_id, commit });
            }
            Proof::Confirmed(proof_id) => {
                let Some(nonce) = self.s.d.pairing.as_ref().map(|p| p.nonce.clone()) else {
                    self.s.v.proof = Proof::None;
                    return self.drive_main();
                };
                debug_assert!(self.s.d.pairing.as_ref().is_some_and(|p| p.client_fp.0 == identity.client_fp));
                let fit = FITS[self.s.v.fit.min(1)];
                let self_upgrade = self.s.self_upgrade();
                self.call(Call::Register, Effect::Register { proof_id, nonce, fit, self_upgrade });
            }
        }
    }

    /// Whose answer is taken before a proof: who proved the code already, else who the URL names, else anybody.
    fn accepted(&self, url_pins: &[Pin]) -> Vec<Pin> {
        if self.s.d.trust.is_some() { self.s.d.pins() } else { url_pins.to_vec() }
    }

    fn drive_registered(&mut self, join_id: wire::JoinId, state: String) {
        if !self.s.v.registered_now {
            let fit = FITS[self.s.v.fit.min(1)];
            let self_upgrade = self.s.self_upgrade();
            return self.call(Call::Reregister, Effect::Reregister { join_id, fit, self_upgrade });
        }
        if let Some(handoff) = &self.s.d.handoff {
            if handoff.stage == Stage::Written {
                let (attempt, sha256) = (handoff.attempt, handoff.sha256.clone());
                return self.call(Call::Ack, Effect::Ack { join_id, attempt, sha256 });
            }
            // The acknowledgement comes next: a poll now would keep it waiting. Not so while the helper is in trouble or an older attempt still
            // runs: what the founder decides meanwhile must be heard.
            let placing = matches!(self.s.v.privileged, Lane::Idle | Lane::Busy(Verb::WriteDelivery, _));
            if placing
                && handoff.stage == Stage::Received
                && self.s.v.in_hand.as_ref() == Some(&handoff.sha256)
            {
                return;
            }
        }
        let started = |stage: Stage| (Stage::Acked..=Stage::Done).contains(&stage);
        let skip_delivery =
            self.s.v.in_hand.is_some() && self.s.d.handoff.as_ref().is_some_and(|h| started(h.stage));
        self.s.v.skipped = skip_delivery;
        // The first poll of a run asks at once: the answer to the registration carries no delivery. So does one after a failure: whether the
        // founder is there again must not be told only when a held poll ends.
        let asked = self.upgrade_asks();
        let at_once = self.s.v.view.is_none() || self.wants_delivery() || self.s.v.trouble.is_some() || asked;
        let wait = if at_once { 0 } else { self.s.v.env.poll_wait };
        self.call(Call::Poll, Effect::Poll { join_id, wait, state, skip_delivery });
    }

    /// A delivery is due and is not in the driver's hand.
    fn wants_delivery(&self) -> bool {
        let attempt = self.s.v.view.as_ref().and_then(|view| view.attempt);
        matches!(self.s.word(), Some("delivering" | "installing"))
            && match &self.s.d.handoff {
                None => true,
                Some(h) if attempt > h.attempt => true,
                Some(h) => h.stage == Stage::Received && self.s.v.in_hand.as_ref() != Some(&h.sha256),
            }
    }

    pub(super) fn ca_answered(&mut self, pin: Pin) {
        let Some(trust) = &mut self.s.d.trust else { return };
        if trust.pin.same(&pin) || !trust.next_pins.iter().any(|p| p.same(&pin)) {
            return;
        }
        *trust = Trust { pin, next_pins: Vec::new() };
        let text = format!("the cluster's announced key is in use: pin {}... stored", pin.short_hex(16));
        self.say(Notice::Security(Safe::clean(text)));
    }

    pub(super) fn observed(&mut self, answer: Result<Observed, Fault>) {
        if self.take_call(&[Call::Observe]).is_none() {
            return;
        }
        let looking_out = self.s.d.stop.is_some();
        match answer {
            Ok(Observed { ca }) if looking_out => {
                if self.s.d.unproven.is_some_and(|known| known.same(&ca)) {
                    return self.delay_main(MINUTE_MS);
                }
                self.s.d.stop = None;
                self.s.d.unproven = None;
                self.s.v.proof = Proof::Observed(ca);
                let text = "another cluster answers at the address: the code is tried with it";
                self.say(Notice::Info(Safe::clean(text)));
            }
            Ok(Observed { ca }) => self.s.v.proof = Proof::Observed(ca),
            Err(_) if looking_out => self.delay_main(MINUTE_MS),
            Err(fault) => self.main_fault("reaching the cluster", Call::Observe, fault),
        }
    }

    pub(super) fn proven(&mut self, answer: Result<FounderProven, Fault>) {
        if self.take_call(&[Call::Prove]).is_none() {
            return;
        }
        let Proof::Observed(ca) = self.s.v.proof else { return };
        let proven = match answer {
            Ok(proven) if proven.ca.same(&ca) => proven,
            Ok(_) => {
                let fault = Fault::new(Code::TlsFailed, "chain changed");
                return self.main_fault("proving the join code", Call::Prove, fault);
            }
            Err(fault) => {
                self.main_fault("proving the join code", Call::Prove, fault);
                if self.s.d.stop.as_ref().is_some_and(Fault::looks_out) {
                    self.s.d.unproven = Some(ca);
                }
                return;
            }
        };
        let Some(identity) = self.s.identity() else { return };
        let client_fp = B64(identity.client_fp);
        let stored = self.s.d.pairing.take().filter(|p| p.ca.same(&ca) && p.client_fp == client_fp);
        let pairing = match proven.resume_commit {
            None => Pairing { nonce: proven.fresh_nonce, ca, client_fp, revealed: None },
            Some(commit) => match stored {
                Some(pairing) if pairing::commitment(&pairing.nonce.0) == commit => pairing,
                _ => return self.new_identity("the founder holds another commitment"),
            },
        };
        let next_pins = Vec::new();
        if self.s.d.trust.as_ref().map(|t| t.pin) != Some(ca) {
            self.s.d.trust = Some(Trust { pin: ca, next_pins });
        }
        self.s.d.pairing = Some(pairing);
        self.s.v.proof = Proof::Proven(proven.proof_id);
        self.say(Notice::Proven { pin: ca });
    }

    pub(super) fn confirmed(&mut self, answer: Result<wire::ConfirmAnswer, Fault>) {
        if self.take_call(&[Call::Confirm]).is_none() {
            return;
        }
        let Proof::Proven(proof_id) = self.s.v.proof else { return };
        let answer = match answer {
            Ok(answer) => answer,
            Err(fault) => return self.main_fault("proving the join code", Call::Confirm, fault),
        };
        self.s.v.cluster = Some(ClusterView {
            release: answer.cluster_release,
            iso: answer.iso,
            min_upgrade_from: answer.min_upgrade_from,
            code_expires_at: answer.code_expires_at,
        });
        let (Some(join_id), Some(founder_nonce)) = (answer.join_id, answer.founder_nonce) else {
            let fault = Fault::new(Code::ResponseInvalid, "joinId or founderNonce is missing").verified();
            return self.main_fault("proving the join code", Call::Confirm, fault);
        };
        let revealed = Revealed { join_id, founder_nonce };
        let Some(pairing) = &mut self.s.d.pairing else { return };
        match &pairing.revealed {
            // One nonce opens for one answer only: a second reveal would let the founder choose the pairing code.
            Some(earlier) if *earlier != revealed => {
                return self.new_identity("the founder gave another answer for a nonce it has seen");
            }
            _ => pairing.revealed = Some(revealed),
        }
        self.s.v.proof = Proof::Confirmed(proof_id);
    }

    pub(super) fn registered(&mut self, answer: Result<Box<wire::Registration>, Fault>) {
        let Some((call, _)) = self.take_call(&[Call::Register, Call::Reregister]) else { return };
        let view = match answer {
            Ok(view) => view,
            Err(fault) => return self.main_fault("registering", call, fault),
        };
        if call == Call::Register {
            let Some(record) = self.new_record(&view) else { return };
            if self.s.d.handoff.as_ref().is_some_and(|h| h.join_id != record.join_id) {
                self.s.d.handoff = None;
                self.s.v.in_hand = None;
                self.clear_posts();
            }
            self.s.d.registration = Some(record);
            self.s.v.registered_ms.get_or_insert(self.now.boot_ms);
        }
        self.s.v.proof = Proof::None;
        self.s.v.registered_now = true;
        self.s.v.expired_proofs = 0;
        self.s.v.fit = 0;
        self.contact();
        self.apply_view(view, None, call);
    }

    /// The record of a fresh registration; `None` when the answer cannot be trusted (the fault is then noted).
    fn new_record(&mut self, view: &wire::Registration) -> Option<Record> {
        let pairing = self.s.d.pairing.as_ref()?;
        let revealed = pairing.revealed.as_ref()?;
        if view.join_id != revealed.join_id {
            self.new_identity("the founder gave another join id for a nonce it has seen");
            return None;
        }
        let code = pairing::pairing_code(
            &pairing.ca,
            &pairing.client_fp.0,
            &revealed.join_id,
            &pairing.nonce.0,
            &revealed.founder_nonce,
        );
        let record = Record {
            join_id: revealed.join_id.clone(),
            client_fp: pairing.client_fp,
            pairing_code: Safe::clean(code),
            state: Safe::clean("registering"),
            registered_wall_ms: self.now.wall_ms,
        };
        if view.pairing_code.is_none() {
            let fault = Fault::new(Code::ResponseInvalid, "pairingCode is missing").verified();
            self.main_fault("registering", Call::Register, fault);
            return None;
        }
        Some(record)
    }

    pub(super) fn polled(&mut self, answer: Result<(Box<wire::Registration>, Option<DeliveryView>), Fault>) {
        let Some((call, since)) = self.take_call(&[Call::Poll]) else { return };
        let (view, delivery) = match answer {
            Ok(answer) => answer,
            Err(fault) => {
                self.ask_again();
                return self.main_fault("asking for the state", call, fault);
            }
        };
        let before = self.s.d.registration.as_ref().map(|r| r.state.clone());
        let fast = self.now.boot_ms.saturating_sub(since) < FAST_POLL_MS;
        // An answer without the delivery that is due is a failure that goes on, not the end of one.
        self.s.v.last_contact_ms = Some(self.now.boot_ms);
        let incomplete = self.lacks_delivery(&view, delivery.as_ref());
        if !incomplete {
            self.contact();
        }
        self.apply_view(view, delivery, call);
        // A founder that answers at once for ever must not keep us busy.
        let same = before == self.s.d.registration.as_ref().map(|r| r.state.clone());
        self.s.v.fast_polls = if fast { self.s.v.fast_polls.saturating_add(1) } else { 0 };
        let first = self.s.v.fast_polls <= 1 || self.wants_delivery();
        if self.s.v.main == Lane::Idle && fast && ((same && !first) || self.s.v.fast_polls > FAST_POLLS) {
            let spent = self.now.boot_ms.saturating_sub(since);
            self.delay_main((FAST_POLL_MS - spent.min(FAST_POLL_MS)).max(backoff::FLOOR_MS));
        }
    }

    /// What the founder says of our registration now.
    fn apply_view(&mut self, mut view: Box<wire::Registration>, delivery: Option<DeliveryView>, call: Call) {
        let Some(record) = &mut self.s.d.registration else { return };
        if view.join_id != record.join_id {
            let fault = Fault::new(Code::ResponseInvalid, "joinId is another registration's").verified();
            return self.main_fault("asking for the state", call, fault);
        }
        if view.pairing_code.as_ref().is_some_and(|code| *code != record.pairing_code) {
            return self.stop(
                "comparing the pairing codes",
                Fault::new(Code::PairingMismatch, "the founder shows another code than this machine")
                    .verified(),
            );
        }
        view.next_pins.truncate(2);
        if let Some(trust) = &mut self.s.d.trust
            && trust.next_pins != view.next_pins
        {
            trust.next_pins.clone_from(&view.next_pins);
        }
        if view.state != record.state {
            let from = std::mem::replace(&mut record.state, view.state.clone());
            self.s.v.state_since_ms = self.now.boot_ms;
            let why = view
                .reason
                .clone()
                .or_else(|| view.wait_reason.clone())
                .or_else(|| view.failed_error_short());
            self.say(Notice::State { from, to: view.state.clone(), why });
        }
        let word = view.state.as_str().to_owned();
        match word.as_str() {
            "approved" | "delivering" | "installing" => {
                self.s.v.approved_ms.get_or_insert(self.now.boot_ms);
            }
            _ => self.s.v.approved_ms = None,
        }
        let (attempt, reason) = (view.attempt, view.reason.clone());
        self.s.v.view = Some(view);
        match word.as_str() {
            "rejected" | "expired" => {
                self.give_up_unstarted();
                let code = if word == "rejected" { Code::JoinRejected } else { Code::JoinExpired };
                let mut fault = Fault::new(code, reason.as_ref().map_or("", |r| r.as_str())).verified();
                fault.from_founder = reason.is_some();
                self.stop("waiting for approval", fault);
            }
            "joined" => self.finish_joined(),
            "failed" | "approved" | "pending" => self.give_up_unstarted(),
            "delivering" | "installing" if call == Call::Poll => self.delivery(attempt, delivery),
            _ => {}
        }
        self.heard_of_upgrade();
    }

    pub(super) fn finish_joined(&mut self) {
        self.cancel_main();
        self.clear_trouble();
        self.s.d.stop = None;
        self.s.d.joined = Some(Joined { wall_ms: self.now.wall_ms });
        if let Some(record) = &mut self.s.d.registration
            && record.state.as_str() != "joined"
        {
            record.state = Safe::clean("joined");
            self.s.v.state_since_ms = self.now.boot_ms;
        }
    }

    /// A call of the main lane failed.
    pub(super) fn main_fault(&mut self, doing: &'static str, call: Call, fault: Fault) {
        let proving = matches!(call, Call::Observe | Call::Prove | Call::Confirm | Call::Register);
        if proving {
            self.s.v.proof = Proof::None;
        }
        let fault = if matches!(call, Call::Observe | Call::Prove) { not_his_to_say(fault) } else { fault };
        match fault.code {
            Code::JoinNotFound if !proving => self.record_lost(doing, fault),
            Code::JoinStateConflict if !proving => self.state_conflict(doing, call, fault),
            Code::ProofExpired => {
                self.s.v.expired_proofs += 1;
                if self.s.v.expired_proofs > 1 {
                    self.again(doing, fault);
                }
            }
            // During an install the hardware is told for the record only: that it was refused must not leave the install alone.
            Code::InvalidInput
            | Code::InventoryTooLarge
            | Code::InventoryInvalid
            | Code::Unsupported
            | Code::ReleaseMismatch
                if call == Call::Reregister && self.s.installs() =>
            {
                self.s.v.registered_now = true;
                self.say(Notice::Fault { doing, fault: Box::new(fault), retry_ms: None, attempt: 1 });
            }
            Code::PairingConflict => self.new_identity("the cluster holds another pairing for this machine"),
            Code::DeliveryMismatch if self.s.d.handoff.as_ref().is_some_and(|h| h.stage <= Stage::Acked) => {
                self.s.d.handoff = None;
                self.s.v.in_hand = None;
                self.again(doing, fault);
            }
            Code::InventoryTooLarge | Code::InventoryInvalid if self.s.v.fit == 0 => {
                self.s.v.fit = 1;
                self.again_in(doing, fault, backoff::FLOOR_MS);
            }
            Code::InventoryTooLarge | Code::InventoryInvalid => self.stop(doing, fault),
            // Three tries, however often nobody answered before them.
            Code::OtherRefusal | Code::JoinNotFound | Code::JoinStateConflict => {
                self.s.v.refusals += 1;
                if self.s.v.refusals > 2 { self.stop(doing, fault) } else { self.again(doing, fault) }
            }
            Code::FounderKeyChanged | Code::PinMismatch => self.again_in(doing, fault, MINUTE_MS),
            code if code.class() == Class::Retry => self.again(doing, fault),
            _ => self.stop(doing, fault),
        }
    }

    /// The founder does not know our registration: with a saved code it is proven and registered again, without one a person has to help;
    /// meanwhile look every minute, for a founder restored from a backup may get the record back.
    fn record_lost(&mut self, doing: &'static str, fault: Fault) {
        let has_code = self.s.v.request.as_ref().is_some_and(|r| r.has_code);
        if has_code && !self.s.firstboot_open() {
            self.s.d.registration = None;
            self.s.v.registered_now = false;
            self.s.v.view = None;
            self.again(doing, fault);
        } else {
            if self.s.word() == Some("needs-upgrade") {
                // Nobody wants an upgrade of a machine that is not known.
                self.s.v.view = None;
            }
            self.again_in(doing, fault, MINUTE_MS);
        }
    }

    fn state_conflict(&mut self, doing: &'static str, call: Call, fault: Fault) {
        match fault.details.state.as_ref().map(|s| s.as_str()) {
            Some("joined") => return self.finish_joined(),
            // The record waits for its registration to be finished, which needs a proof.
            Some("registering") if call == Call::Reregister => {
                self.s.d.registration = None;
                self.s.v.registered_now = false;
            }
            _ => {
                self.s.v.registered_now = true;
                if call == Call::Ack
                    && let Some(handoff) = &mut self.s.d.handoff
                    && handoff.stage == Stage::Written
                {
                    // The attempt may be over at the founder. What it wants now, the poll tells; if it is this one after all, it is placed anew.
                    handoff.stage = Stage::Received;
                    self.s.v.in_hand = None;
                }
            }
        }
        // Poll at once the first time, by backoff when it goes on.
        if self.s.v.failures == 0 {
            self.s.v.failures = 1;
        } else {
            self.again(doing, fault);
        }
    }

    pub(super) fn acked(&mut self, answer: Result<wire::AckAnswer, Fault>) {
        if self.take_call(&[Call::Ack]).is_none() {
            return;
        }
        match answer {
            Ok(_) => {
                self.contact();
                if let Some(handoff) = &mut self.s.d.handoff
                    && handoff.stage == Stage::Written
                {
                    handoff.stage = Stage::Acked;
                }
            }
            Err(fault) => self.main_fault("acknowledging the delivery", Call::Ack, fault),
        }
    }
}

/// Who has not proved the code may delay us. What ends a registration or asks for a new key is the cluster's to say alone, and so are the facts
/// that stand in our own sentences.
fn not_his_to_say(mut fault: Fault) -> Fault {
    if !fault.is_unproven() {
        return fault;
    }
    fault.details = Details::default();
    if matches!(
        fault.code,
        Code::JoinRejected
            | Code::JoinExpired
            | Code::PairingConflict
            | Code::JoinNotFound
            | Code::JoinStateConflict
            | Code::DeliveryMismatch
            | Code::InventoryTooLarge
            | Code::InventoryInvalid
    ) {
        fault.code = Code::OtherRefusal;
    }
    fault
}
