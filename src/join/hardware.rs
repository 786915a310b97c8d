//! The hardware after the first look: looked at again when the kernel says that something changed, until two looks agree; then the cluster
//! is told, while an operator may still decide. From the delivery on it is frozen: what was approved is what is installed.
//!
//! Touches nothing.

use console::text::Safe;

use super::effect::{Effect, Timer};
use super::event::ProbeView;
use super::fault::Fault;
use super::notice::Notice;
use super::state::{Call, Lane, Slot};
use super::step::Turn;

/// A burst of events is one: the look comes this long after the last of them, in milliseconds.
pub const QUIET_MS: u64 = 3_000;
/// And at most this long after the first.
pub const QUIET_MAX_MS: u64 = 15_000;
/// Two looks that differ are followed by a third after this long.
pub const AGAIN_MS: u64 = 2_000;
/// Most looks for one change; the last one counts, equal or not.
const LOOKS: u32 = 5;
/// The cluster is told at most this often.
pub const APART_MS: u64 = 60_000;
/// And of a cable that comes and goes at most this often.
pub const FLAP_MS: u64 = 600_000;

/// What is known about looking again.
#[derive(Debug, Clone, Default)]
pub struct Looks {
    /// The first event of the present burst, boot clock.
    since_ms: Option<u64>,
    /// The disks too, not only the network.
    disks: bool,
    /// A look is under way.
    busy: bool,
    /// Digest of the last look, when it was not that of the inventory.
    seen: Option<[u8; 32]>,
    /// Looks for the present change.
    count: u32,
    /// When the cluster was told of a change, boot clock.
    told_ms: Option<u64>,
}

// === impl Turn ===

impl Turn {
    /// The kernel says that disks, or only the network, may have changed.
    pub(super) fn hardware_changed(&mut self, disks: bool) {
        if !self.may_still_change() {
            return;
        }
        let now = self.now.boot_ms;
        let looks = &mut self.s.v.looks;
        looks.disks |= disks;
        let first = *looks.since_ms.get_or_insert(now);
        let due = (now + QUIET_MS).min(first.saturating_add(QUIET_MAX_MS));
        self.out.push(Effect::Arm(Timer::Hardware, due.saturating_sub(now)));
    }

    pub(super) fn look_again(&mut self) {
        let may = self.may_still_change();
        let looks = &mut self.s.v.looks;
        looks.since_ms = None;
        if may && !looks.busy {
            looks.busy = true;
            self.out.push(Effect::Probe { disks: looks.disks });
        }
    }

    /// Whether this answer belongs to a look after the first.
    pub(super) fn is_another_look(&self) -> bool {
        self.s.v.looks.busy && matches!(self.s.v.probe, Slot::Ready(_))
    }

    /// The answer of another look. Gives the inventory that the cluster has to be told.
    pub(super) fn looked_again(&mut self, answer: Result<ProbeView, Fault>) -> Option<ProbeView> {
        let now = self.now.boot_ms;
        let may = self.may_still_change();
        let looks = &mut self.s.v.looks;
        looks.busy = false;
        looks.count += 1;
        let last = looks.count >= LOOKS;
        let Slot::Ready(old) = &self.s.v.probe else { return None };
        let view = match answer {
            Ok(view) => view,
            Err(fault) => {
                let text = format!("the hardware could not be read again: {}", fault.chain);
                if last {
                    looks.forget();
                } else {
                    self.out.push(Effect::Arm(Timer::Hardware, APART_MS));
                }
                self.say(Notice::Info(Safe::clean(text)));
                return None;
            }
        };
        if view.digest == old.digest || !may {
            looks.forget();
            return None;
        }
        if looks.seen != Some(view.digest) && !last {
            looks.seen = Some(view.digest);
            self.out.push(Effect::Arm(Timer::Hardware, AGAIN_MS));
            return None;
        }
        let apart = if view.steady == old.steady { FLAP_MS } else { APART_MS };
        let wait = looks.told_ms.map_or(0, |told| told.saturating_add(apart).saturating_sub(now));
        if wait > 0 {
            // What is there then counts, not what is there now.
            looks.count = 0;
            looks.seen = None;
            self.out.push(Effect::Arm(Timer::Hardware, wait));
            return None;
        }
        looks.forget();
        looks.told_ms = Some(now);
        let what = match () {
            () if view.steady == old.steady => "links",
            () if view.hardware == old.hardware => "addresses",
            () => "hardware",
        };
        self.say(Notice::Info(Safe::clean(format!(
            "the {what} of this machine changed: the cluster is told"
        ))));
        // A poll would keep the news waiting for up to 50 s.
        if matches!(self.s.v.main, Lane::Busy(Call::Poll, _)) {
            self.cancel_main();
        }
        Some(view)
    }

    /// Until something was delivered. Before the first look there is nothing to look at again.
    fn may_still_change(&self) -> bool {
        let open =
            matches!(self.s.word(), None | Some("registering" | "needs-upgrade" | "pending" | "approved"));
        open && self.s.d.joined.is_none()
            && self.s.d.handoff.is_none()
            && matches!(self.s.v.probe, Slot::Ready(_))
    }
}

// === impl Looks ===

impl Looks {
    /// This change is dealt with. What came meanwhile is another one.
    fn forget(&mut self) {
        *self = Self { told_ms: self.told_ms, since_ms: self.since_ms, ..Self::default() };
    }
}
