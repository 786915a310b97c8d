//! Why an attempt failed, in sentences: what happened, what a person can do. Touches nothing.

use crate::upgrade::fault::{Code, UpgradeFault};
use crate::upgrade::plan::Reason;
use crate::upgrade::stage::size_words;

/// Whom to name.
pub(in crate::upgrade) struct Who {
    /// Host, and port where it is not the usual one.
    pub(super) host: String,
    /// It is the founder, not a mirror.
    pub(super) founder: bool,
    /// Where its manifest is.
    pub(super) manifest: String,
}

/// The fault of a reason. `path` names a file by its index; `done` of `total` bytes are verified.
pub(in crate::upgrade) fn fault(
    who: &Who,
    reason: &Reason,
    path: impl Fn(usize) -> String,
    done: u64,
    total: u64,
) -> UpgradeFault {
    let Who { host, founder, manifest } = who;
    let founder = *founder;
    match reason {
        Reason::Status { file, status } => UpgradeFault::new(
            Code::SourceStatus,
            format!("{host} answered {status} for {}.", path(*file)),
            if founder {
                "Check that the release is complete in the founder's release directory."
            } else {
                "Check that the release is complete on the mirror."
            },
        ),
        Reason::NotARelease(meaning) => UpgradeFault::new(
            Code::NotARelease,
            format!("{host} did not answer with a Stratum release: {meaning}. A login page or a proxy?"),
            format!("Open {manifest} from another machine; check proxies."),
        ),
        Reason::Stalled(status) => {
            let last = status.map_or(String::new(), |status| format!(" (its last answer was {status})"));
            UpgradeFault::new(
                Code::Stalled,
                format!(
                    "No new data from {host} for 10 minutes{last}; {} of {} are here.",
                    size_words(done),
                    size_words(total)
                ),
                format!("Check the link to {host}."),
            )
        }
        Reason::Unreachable(why) => UpgradeFault::new(
            Code::SourceUnreachable,
            format!("{host} cannot be reached: {why}."),
            if founder {
                "Check the network and the founder. Run `stratum-join diagnose`."
            } else {
                "Check the network and the mirror. Run `stratum-join diagnose`."
            },
        ),
        Reason::Tls(why) if founder => UpgradeFault::new(
            Code::SourceTls,
            format!("The key of {host} is not the pinned one: {why}."),
            "Check which cluster answers at this address.",
        ),
        Reason::Tls(why) => UpgradeFault::new(
            Code::SourceTls,
            format!("The certificate of {host} is not trusted: {why}."),
            "Put the mirror's CA in `upgrade.mirror.caFile`.",
        ),
        Reason::Certificate(why) => UpgradeFault::new(
            Code::SourceTls,
            format!("The certificate of {host} is not trusted: {why}."),
            "Give the mirror a certificate that is valid now, for the name in its address.",
        ),
        Reason::Clock(date) => UpgradeFault::new(
            Code::Clock,
            format!("The system clock says {date}; the certificate of {host} cannot be checked."),
            "Set the hardware clock or NTP.",
        ),
        Reason::Refused(rule) => UpgradeFault::new(
            Code::SourceRefused,
            format!("The download address is not allowed: {rule}."),
            if founder {
                "Check what answers at the founder's address."
            } else {
                "Correct the release mirror's URL on the cluster."
            },
        ),
        Reason::Hash(file) => UpgradeFault::new(
            Code::Hash,
            format!("{} from {host} does not match the signed manifest.", path(*file)),
            if founder { "Repair the founder's release directory." } else { "Repair the mirror." },
        ),
        Reason::NoSpace(text) => UpgradeFault::new(
            Code::NoSpace,
            format!("There is no room for the release: {text}."),
            "Free space, or reinstall with a larger disk.",
        ),
        Reason::Io(text) => UpgradeFault::new(
            Code::Io,
            format!("The disk failed: {text}."),
            "Check the disk (`smartctl`); replace it.",
        ),
    }
}

/// An answer that is none of a release.
pub(super) fn not_a_release(host: &str, url: &str) -> UpgradeFault {
    UpgradeFault::new(
        Code::NotARelease,
        format!("{host} did not answer with a Stratum release (a login page or a proxy?)."),
        format!("Open {url} from another machine; check proxies."),
    )
}
