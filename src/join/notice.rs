//! What the core wants journald to hear: one line per state change, one per new fault. Touches nothing.

use console::text::Safe;

use super::fault::Fault;
use super::upgrade::UpgradeStep;
use crate::protocol::encoding::Pin;
use crate::upgrade::fault::UpgradeFault;

/// One line for the journal (docs/journal.md).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// The state changed.
    State {
        /// Before, in the API's words.
        from: Safe<32>,
        /// After.
        to: Safe<32>,
        /// Why or what it waits for.
        why: Option<Safe<1024>>,
    },
    /// The cluster proved the join code.
    Proven {
        /// The pin stored.
        pin: Pin,
    },
    /// Something failed.
    Fault {
        /// What was being done, e.g. `registering`.
        doing: &'static str,
        /// What went wrong.
        fault: Box<Fault>,
        /// When it is tried again, in milliseconds from now; `None` waits for a person.
        retry_ms: Option<u64>,
        /// Which try in a row this was.
        attempt: u32,
    },
    /// It works again.
    Recovered {
        /// How long it did not, in milliseconds.
        after_ms: u64,
        /// How many tries.
        attempts: u32,
    },
    /// A step of firstboot ended or began.
    Step {
        /// The step's name.
        step: Safe<128>,
        /// Its title.
        title: Safe<200>,
        /// Its place.
        index: Option<u32>,
        /// Of how many.
        total: Option<u32>,
        /// `running`, `done`, `failed`.
        status: &'static str,
        /// Its error.
        error: Option<Safe<2048>>,
    },
    /// An attempt to upgrade this machine failed.
    Upgrade {
        /// Where.
        step: UpgradeStep,
        /// Why, and what a person can do.
        fault: Box<UpgradeFault>,
        /// When the next attempt begins, in milliseconds from now.
        retry_ms: u64,
        /// Which attempt with this release it was.
        attempt: u32,
    },
    /// A privileged verb ended.
    Verb {
        /// Its name.
        verb: &'static str,
        /// `ok` or the error.
        result: Safe<400>,
    },
    /// Trust: the identity was discarded, the pin rotated and the like, in plain words.
    Security(Safe<400>),
    /// The first thing on the way to the founder that does not work, and what to look at.
    Diagnosis(Safe<400>),
    /// Anything else worth one line.
    Info(Safe<400>),
}
