//! The words of the snapshot: closed sets whose unknown member is always readable.
//!
//! A word this console does not know becomes `Unknown`, so that an older console still draws a newer agent's snapshot.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Declares a set of words with one spelling for JSON and for people.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal),+ $(,)? } default $default:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $word)] $variant,)+
            /// A word this reader does not know.
            #[serde(rename = "unknown", other)]
            Unknown,
        }

        impl $name {
            /// Every member, `Unknown` last.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+ Self::Unknown];

            /// The word on the wire.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                    Self::Unknown => "unknown",
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.word())
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::$default
            }
        }
    };
}

words! {
    /// Where the join stands. From `NeedsUpgrade` to `Expired` the founder's words, the others are the agent's own.
    State {
        /// The agent runs but has not tried anything yet.
        Starting = "starting",
        /// Not registered yet: proof, registration, pairing.
        Registering = "registering",
        /// The cluster refused the registration; see `fault`.
        Refused = "refused",
        /// The address did not prove to be the cluster.
        IdentityFailed = "identity-failed",
        /// Registered, upgrading itself first.
        NeedsUpgrade = "needs-upgrade",
        /// Registered, waits for an administrator.
        Pending = "pending",
        /// Approved, waits for its turn.
        Approved = "approved",
        /// The configuration is on its way.
        Delivering = "delivering",
        /// firstboot runs.
        Installing = "installing",
        /// Member of the cluster.
        Joined = "joined",
        /// The join failed at a step.
        Failed = "failed",
        /// An administrator said no.
        Rejected = "rejected",
        /// Nobody approved in time.
        Expired = "expired",
    } default Starting
}

words! {
    /// Is the machine's clock synchronised?
    Synced {
        /// By a time server.
        Yes = "yes",
        /// Known not to be.
        No = "no",
    } default Unknown
}

words! {
    /// Where an address came from.
    AddressSource {
        /// Configured.
        Static = "static",
        /// Leased.
        Dhcp = "dhcp",
    } default Unknown
}

words! {
    /// Carrier of a NIC.
    Link {
        /// There is a carrier.
        Up = "up",
        /// There is none.
        Down = "down",
    } default Unknown
}

words! {
    /// Result of one network check.
    CheckStatus {
        /// Good.
        Ok = "ok",
        /// Bad.
        Failed = "failed",
        /// Not needed or not tried.
        Skipped = "skipped",
        /// Being tried.
        Running = "running",
    } default Unknown
}

words! {
    /// Did the founder answer?
    Contact {
        /// Not since the agent started.
        Never = "never",
        /// The last exchange worked.
        Ok = "ok",
        /// The last exchange did not.
        Failing = "failing",
    } default Never
}

words! {
    /// Did the founder prove that it is the cluster?
    Identity {
        /// Not tried yet.
        Unproven = "unproven",
        /// It proved the join code, and its key is pinned.
        Proven = "proven",
        /// It did not prove the code.
        Failed = "failed",
        /// It shows another key than the pinned one.
        Changed = "changed",
    } default Unproven
}

words! {
    /// What `steps` are about.
    Phase {
        /// The agent's own steps up to the pairing code.
        Register = "register",
        /// The self-upgrade.
        Upgrade = "upgrade",
        /// firstboot's steps.
        Install = "install",
    } default Register
}

words! {
    /// Where a step stands.
    StepStatus {
        /// Not begun.
        Waiting = "waiting",
        /// Now.
        Running = "running",
        /// Finished well.
        Done = "done",
        /// Finished badly.
        Failed = "failed",
    } default Waiting
}

words! {
    /// What `progress` counts.
    Unit {
        /// Bytes.
        Bytes = "bytes",
        /// Steps.
        Steps = "steps",
    } default Unknown
}

words! {
    /// Where the release comes from.
    ReleaseSource {
        /// The release mirror.
        Mirror = "mirror",
        /// The founder's own directory.
        Founder = "founder",
    } default Unknown
}

words! {
    /// What an upgrade waits for.
    UpgradeWait {
        /// The founder serves others.
        FounderBusy = "founder-busy",
        /// No source can give the release now.
        Source = "source",
        /// The network.
        Network = "network",
        /// The next attempt's time.
        Retry = "retry",
        /// The founder's answer.
        FounderAnswer = "founder-answer",
    } default Unknown
}

words! {
    /// Class of a fault.
    FaultKind {
        /// Tried again by itself.
        Transient = "transient",
        /// The cluster said no.
        Refused = "refused",
        /// Something is not what it must be; never retried past a check.
        Tampered = "tampered",
        /// This machine.
        Local = "local",
    } default Unknown
}

words! {
    /// Severity of a log line.
    Level {
        /// As expected.
        Info = "info",
        /// Handled, worth knowing.
        Warn = "warn",
        /// Not handled.
        Error = "error",
    } default Info
}

// === impl State ===

impl State {
    /// True where only a person can bring the join forward.
    pub const fn needs_person(self) -> bool {
        matches!(
            self,
            Self::Refused
                | Self::IdentityFailed
                | Self::Pending
                | Self::Failed
                | Self::Rejected
                | Self::Expired
        )
    }

    /// True where the machine is being changed and must keep its power, whatever `doNotPowerOff` says.
    pub const fn changes_machine(self) -> bool {
        matches!(self, Self::Delivering | Self::Installing)
    }
}
