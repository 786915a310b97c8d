//! When the way to the founder is looked at, and what of it is shown: by itself once the third try in a row failed, again while that lasts, and
//! whenever an operator asks. How it is looked at, the driver and `diagnosis` know.
//!
//! Touches nothing.

use console::text::Safe;

use super::effect::Effect;
use super::fault::{Code, Fault};
use super::notice::Notice;
use super::state::{Durable, Trouble};
use super::step::Turn;
use crate::diagnosis::decide::is_refusal;
use crate::diagnosis::facts::{Past, ProofFact};
use crate::diagnosis::rows::Diagnosis;

/// Failed tries in a row before the way is looked at.
pub const AFTER: u32 = 3;
/// While it goes on failing, the way is looked at again this long after the last look, in milliseconds.
pub const AGAIN_MS: u64 = 60_000;

/// What is known about the way to the founder.
#[derive(Debug, Clone, Default)]
pub struct Checks {
    /// The last look that is still true.
    last: Option<Box<Diagnosis>>,
    /// A look is under way.
    busy: bool,
    /// An operator waits for it.
    asked: bool,
    /// When the last one ended, boot clock.
    ended_ms: Option<u64>,
    /// The network changed since.
    stale: bool,
    /// The cause that journald was told last.
    told: Option<Safe<400>>,
}

// === impl Checks ===

impl Checks {
    /// What is shown of the way; `None` when nothing is known of it.
    pub fn last(&self) -> Option<&Diagnosis> {
        self.last.as_deref()
    }

    /// Whether it is being looked at, and somebody waits for that or nothing else is known.
    pub fn is_awaited(&self) -> bool {
        self.busy && (self.asked || self.last.is_none())
    }
}

// === impl Turn ===

impl Turn {
    /// An operator asks. A look that is under way is the answer.
    pub(super) fn check(&mut self) {
        if self.s.can_check() {
            self.s.v.checks.asked = true;
            self.look_at_way();
        }
    }

    /// A try failed, and its trouble is noted.
    pub(super) fn check_after_failure(&mut self) {
        let Some(trouble) = &self.s.v.trouble else { return };
        let checks = &self.s.v.checks;
        let again = checks.stale
            || checks.ended_ms.is_none_or(|ended| self.now.boot_ms >= ended.saturating_add(AGAIN_MS))
            || checks.last.is_none();
        if trouble.attempts >= AFTER && is_of_the_way(trouble) && again && self.s.v.request.is_some() {
            self.look_at_way();
        }
    }

    /// The network changed: what was found is of the old one.
    pub(super) fn checks_outdated(&mut self) {
        self.s.v.checks.stale = true;
        if self.s.v.trouble.is_none() {
            self.s.v.checks.last = None;
        }
    }

    /// The founder answers after all, or somebody else is asked from now on: what was red is red no more.
    pub(super) fn forget_checks(&mut self) {
        let checks = &mut self.s.v.checks;
        checks.last = None;
        checks.told = None;
        checks.stale = true;
    }

    pub(super) fn diagnosed(&mut self, found: Box<Diagnosis>) {
        let checks = &mut self.s.v.checks;
        checks.busy = false;
        checks.ended_ms = Some(self.now.boot_ms);
        // What began while nobody answered says nothing once somebody did, unless it was asked for.
        let in_time = std::mem::take(&mut checks.asked) || self.s.v.trouble.is_some();
        let asked = self.s.v.request.as_ref().map(|request| request.endpoint.as_str());
        if asked != Some(found.endpoint.as_str()) || self.s.d.joined.is_some() || !in_time {
            return;
        }
        let cause = found.cause().map(|cause| Safe::clean(sentence(cause.text.as_str(), &cause.look_at)));
        checks.last = Some(found);
        if checks.told != cause {
            checks.told.clone_from(&cause);
            if let Some(cause) = cause {
                self.say(Notice::Diagnosis(cause));
            }
        }
    }

    fn look_at_way(&mut self) {
        if std::mem::replace(&mut self.s.v.checks.busy, true) {
            return;
        }
        self.s.v.checks.stale = false;
        let trouble = self.s.v.trouble.as_ref().map(|trouble| &trouble.fault);
        let mut past = past_of(&self.s.d, trouble);
        if past.pins.is_empty() {
            past.pins = self.s.v.request.as_ref().map_or_else(Vec::new, |request| request.pins.clone());
        }
        if let super::state::Slot::Ready(probe) = &self.s.v.probe {
            past.release = probe.release.clone().unwrap_or_default();
        }
        self.out.push(Effect::Diagnose(Box::new(past)));
    }
}

/// Whether this is a trouble of the way, or of who answers at its end; not one that the founder itself explains.
fn is_of_the_way(trouble: &Trouble) -> bool {
    let fault = &trouble.fault;
    let may_be = matches!(
        fault.code,
        Code::AddressUnreachable
            | Code::TlsFailed
            | Code::ResponseInvalid
            | Code::ResponseTooLarge
            | Code::ServerError
            | Code::Unavailable
            | Code::RateLimited
    );
    may_be && !fault.from_founder
}

fn sentence(what: &str, look_at: &[Safe<200>]) -> String {
    match look_at.first() {
        Some(look) => format!("{what}. Look at: {look}"),
        None => what.to_owned(),
    }
}

/// What earlier tries have shown: of the saved state, and of the trouble of the moment.
pub fn past_of(durable: &Durable, trouble: Option<&Fault>) -> Past {
    let stop = durable.stop.as_ref();
    let proof = match (&durable.unproven, &durable.trust) {
        (Some(who), _) => ProofFact::Failed(Some(*who)),
        (None, _) if stop.is_some_and(|stop| stop.code == Code::CodeNotProven) => ProofFact::Failed(None),
        (None, Some(_)) => ProofFact::Good,
        (None, None) => ProofFact::NotYet,
    };
    let refusal = [stop, trouble].into_iter().flatten().find(|fault| is_refusal(fault));
    Past { pins: durable.pins(), proof, refusal: refusal.cloned().map(Box::new), ..Past::default() }
}
