//! What the core asks the driver to do. Every effect can be repeated; every one answers with exactly one event (named beside it), except
//! where it says otherwise. Touches nothing.

use super::event::{Event, Nonce};
use super::fault::Fault;
use super::notice::Notice;
use super::upgrade::Do;
use crate::diagnosis::facts::Past;
use crate::protocol::encoding::{B64, Pin};
use crate::protocol::wire;

/// A named timer; arming it again replaces it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// The main lane's next try.
    Main,
    /// The post lane's next try (progress, log).
    Post,
    /// The running step must be repeated to the founder (at most 120 s apart).
    Heartbeat,
    /// The privileged verb's next try.
    Privileged,
    /// The next try to make the identity or to probe.
    Prepare,
    /// The next look at the hardware after a change.
    Hardware,
    /// The next attempt of an upgrade, the cluster's word on it, the restart.
    Upgrade,
}

/// Something to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Load the client key and certificate, or make them once -> `Identity`.
    LoadIdentity,
    /// Throw the identity away and make a new one -> `Identity`.
    DiscardIdentity,
    /// Read the hardware -> `Probed`.
    Probe {
        /// Everything; else only the network, with the disks as they were seen last.
        disks: bool,
    },
    /// Look at the way to the founder, whatever else goes on -> `Diagnosed`.
    Diagnose(Box<Past>),
    /// `GET /v1/join` with the observing client -> `Observed`.
    Observe {
        /// Accept only these; empty before a pin is known.
        pins: Vec<Pin>,
    },
    /// PAKE and the first proof call with the saved code -> `Proven`.
    StartProof {
        /// The CA that was observed; another one ends the handshake.
        ca: Pin,
    },
    /// The second proof call -> `Confirmed`.
    Confirm {
        /// The CA that proved the code.
        ca: Pin,
        /// Which proof.
        proof_id: B64<16>,
        /// Commitment to the stored pairing nonce.
        commit: B64<32>,
    },
    /// POST the registration: hardware, release, host name, serial -> `Registered`.
    Register {
        /// The confirmed proof.
        proof_id: B64<16>,
        /// Opens the commitment.
        nonce: Nonce,
        /// Send the inventory shrunk to this many bytes.
        fit: usize,
        /// This machine can upgrade itself.
        self_upgrade: bool,
    },
    /// PUT the registration -> `Registered`.
    Reregister {
        /// Our registration.
        join_id: wire::JoinId,
        /// Send the inventory shrunk to this many bytes.
        fit: usize,
        /// This machine can upgrade itself.
        self_upgrade: bool,
    },
    /// Long-poll -> `Polled`.
    Poll {
        /// Our registration.
        join_id: wire::JoinId,
        /// Seconds the founder may hold the answer; 0 asks at once.
        wait: u64,
        /// The state last seen, as the founder spells it.
        state: String,
        /// The delivery is already ours: leave it out.
        skip_delivery: bool,
    },
    /// Acknowledge the delivery -> `Acked`.
    Ack {
        /// Our registration.
        join_id: wire::JoinId,
        /// The delivery's attempt.
        attempt: Option<u64>,
        /// Its digest.
        sha256: String,
    },
    /// -> `ProgressSent`.
    SendProgress {
        /// Our registration.
        join_id: wire::JoinId,
        /// What to send.
        body: wire::ProgressRequest,
    },
    /// -> `LogSent`.
    SendLog {
        /// Our registration.
        join_id: wire::JoinId,
        /// What to send.
        body: wire::LogRequest,
    },
    /// Remove the code from the saved request -> `CodeErased`.
    EraseCode,
    /// Privileged: place node.yaml and the bundle that the last poll brought -> `DeliveryWritten`.
    WriteDelivery {
        /// The delivery's attempt.
        attempt: Option<u64>,
        /// Its digest; another one in the driver's hand is a fault.
        sha256: String,
    },
    /// Privileged: start firstboot for this attempt, or follow it when it was started -> `FirstbootRunning`, any number of `FirstbootStep` and
    /// `FirstbootLog`, then one `FirstbootEnded`.
    StartFirstboot {
        /// The delivery's attempt.
        attempt: Option<u64>,
        /// Its digest.
        sha256: String,
        /// Go on reading the log here.
        log_cursor: Option<String>,
    },
    /// Write the joined marker and remove the client key -> `JoinedMarked`.
    WriteJoinedMarker,
    /// For the self-upgrade -> `Upgrade`.
    Upgrade(Do),
    /// Forget the call of the main lane that is under way; no answer, not even a late one.
    CancelMain,
    /// Run a timer -> `Timer` after that many milliseconds.
    Arm(Timer, u64),
    /// Stop a timer; no answer.
    Disarm(Timer),
    /// Tell journald; no answer.
    Say(Notice),
    /// Leave with exit code 0: only in `joined`; no answer.
    Exit,
}

// === impl Effect ===

impl Effect {
    /// The answer of a call to the founder that failed with `fault`; `None` for an effect that asks no founder.
    pub fn failed(&self, fault: Fault) -> Option<Event> {
        Some(match self {
            Effect::Observe { .. } => Event::Observed(Err(fault)),
            Effect::StartProof { .. } => Event::Proven(Err(fault)),
            Effect::Confirm { .. } => Event::Confirmed(Err(fault)),
            Effect::Register { .. } | Effect::Reregister { .. } => Event::Registered(Err(fault)),
            Effect::Poll { .. } => Event::Polled(Err(fault)),
            Effect::Ack { .. } => Event::Acked(Err(fault)),
            Effect::SendProgress { .. } => Event::ProgressSent(Err(fault)),
            Effect::SendLog { .. } => Event::LogSent(Err(fault)),
            _ => return None,
        })
    }
}
