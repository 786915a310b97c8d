//! What can go wrong with an upgrade, and what a person reads about it (docs/upgrade.md, "When it fails"). Touches nothing.

use std::fmt;

use console::text::Safe;

/// Names of the causes; stable, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// The cluster named a download address that is not allowed.
    SourceRefused,
    /// No connection.
    SourceUnreachable,
    /// The mirror's certificate is not trusted.
    SourceTls,
    /// The clock is so wrong that no certificate can be checked.
    Clock,
    /// An answer other than the file.
    SourceStatus,
    /// An answer that is no release: a login page, a proxy.
    NotARelease,
    /// No new byte for ten minutes.
    Stalled,
    /// Signed by no key of this OS.
    KeyUnknown,
    /// A signature by one of our keys that does not fit.
    SigBad,
    /// Signed, and against the rules all the same.
    ManifestInvalid,
    /// Another release, product or architecture than asked for.
    WrongRelease,
    /// Older than what ran here.
    Downgrade,
    /// This machine is too old for it.
    TooOld,
    /// This machine could not fall back.
    Unsupported,
    /// No room.
    NoSpace,
    /// A file that is not what the manifest says.
    Hash,
    /// The disk failed.
    Io,
    /// The cluster did not confirm the upgrade.
    FounderSilent,
    /// The new OS could not be written.
    InstallIo,
    /// A boot entry that was fixed by hand would keep the new OS from ever being started.
    DefaultOverride,
    /// The new OS did not come up.
    BootFailed,
    /// The new OS was never started.
    NotTried,
    /// The trial of the new OS was cut short.
    Interrupted,
    /// The new OS came up and does not work.
    Health,
    /// Another install is at work.
    Busy,
    /// The helper failed.
    Helper,
}

/// One failure of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct UpgradeFault {
    /// Which.
    pub code: Code,
    /// What happened: a whole sentence that names the address, the path, the figures.
    pub what: Safe<400>,
    /// What a person can do: a whole sentence.
    pub todo: Safe<200>,
}

// === impl Code ===

impl Code {
    /// As it is told to the founder and to programs.
    pub fn as_str(self) -> &'static str {
        match self {
            Code::SourceRefused => "SOURCE_REFUSED",
            Code::SourceUnreachable => "SOURCE_UNREACHABLE",
            Code::SourceTls => "SOURCE_TLS",
            Code::Clock => "CLOCK",
            Code::SourceStatus => "SOURCE_STATUS",
            Code::NotARelease => "NOT_A_RELEASE",
            Code::Stalled => "STALLED",
            Code::KeyUnknown => "KEY_UNKNOWN",
            Code::SigBad => "SIG_BAD",
            Code::ManifestInvalid => "MANIFEST_INVALID",
            Code::WrongRelease => "WRONG_RELEASE",
            Code::Downgrade => "DOWNGRADE",
            Code::TooOld => "TOO_OLD",
            Code::Unsupported => "UNSUPPORTED",
            Code::NoSpace => "NO_SPACE",
            Code::Hash => "HASH",
            Code::Io => "IO",
            Code::FounderSilent => "FOUNDER_SILENT",
            Code::InstallIo => "INSTALL_IO",
            Code::DefaultOverride => "DEFAULT_OVERRIDE",
            Code::BootFailed => "BOOT_FAILED",
            Code::NotTried => "NOT_TRIED",
            Code::Interrupted => "INTERRUPTED",
            Code::Health => "HEALTH",
            Code::Busy => "BUSY",
            Code::Helper => "HELPER",
        }
    }

    /// The reverse of [`Code::as_str`].
    pub fn from_wire(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == text)
    }

    /// All of them.
    #[rustfmt::skip]
    pub const ALL: &'static [Code] = &[
        Code::SourceRefused, Code::SourceUnreachable, Code::SourceTls, Code::Clock, Code::SourceStatus, Code::NotARelease, Code::Stalled,
        Code::KeyUnknown, Code::SigBad, Code::ManifestInvalid, Code::WrongRelease, Code::Downgrade, Code::TooOld, Code::Unsupported,
        Code::NoSpace, Code::Hash, Code::Io, Code::FounderSilent, Code::InstallIo, Code::DefaultOverride, Code::BootFailed, Code::NotTried,
        Code::Interrupted, Code::Health, Code::Busy, Code::Helper,
    ];
}

// === impl UpgradeFault ===

impl UpgradeFault {
    /// With both sentences.
    pub fn new(code: Code, what: impl AsRef<str>, todo: impl AsRef<str>) -> Self {
        Self { code, what: Safe::clean(what.as_ref()), todo: Safe::clean(todo.as_ref()) }
    }

    /// A machine on which a bad OS would not come back. `to`: the release that was to be installed, when it is known.
    pub fn unsupported(why: impl fmt::Display, to: Option<&str>) -> Self {
        let what = format!("This machine cannot fall back safely: {why}.");
        let iso =
            to.map_or_else(|| "the ISO of the cluster's release".to_owned(), |to| format!("the {to} ISO"));
        Self::new(Code::Unsupported, what, format!("Install from {iso}."))
    }

    /// No room: `place` needs `need`, has `have` (amounts with their units).
    pub fn no_space(place: impl fmt::Display, need: impl fmt::Display, have: impl fmt::Display) -> Self {
        let what = format!("{place} needs {need}, has {have}.");
        Self::new(Code::NoSpace, what, format!("Free space, or reinstall with a larger {place}."))
    }

    /// The new OS could not be written to `place`.
    pub fn install_io(place: impl fmt::Display, why: impl fmt::Display) -> Self {
        let what = format!("Writing the new OS to {place} failed: {why}. The old OS is untouched.");
        Self::new(Code::InstallIo, what, "Check the OS disk.")
    }

    /// The boot loader was told by hand what to start.
    pub fn default_override(entry: impl fmt::Display) -> Self {
        let what = format!("A boot entry is fixed by hand ({entry}); the new OS would never start.");
        Self::new(Code::DefaultOverride, what, "Run: bootctl set-default \"\" and retry.")
    }

    /// `to` was started `tries` times; `note` is what is known of why: a whole sentence, or nothing.
    pub fn boot_failed(to: &str, from: &str, tries: u8, note: &str) -> Self {
        let times = if tries == 1 { "once".to_owned() } else { format!("{tries} times") };
        let what = format!(
            "The new OS {to} was started {times} and did not come up. This machine runs {from} again. {note}"
        );
        let todo = "Look at the console at the next try; reject the machine on the cluster to stop it.";
        Self::new(Code::BootFailed, what, todo)
    }

    /// `to` was armed and never started.
    pub fn not_tried(to: &str) -> Self {
        let what = format!(
            "The firmware or boot menu never started the new OS {to}. Check the boot order: \"Linux Boot Manager\" must be first."
        );
        Self::new(Code::NotTried, what, "Correct the boot order in the firmware.")
    }

    /// The trial of `to` ended after `done` of `tries` starts, and nobody knows that it failed.
    pub fn interrupted(to: &str, done: u8, tries: u8) -> Self {
        let what = format!(
            "The start of {to} was cut short after {done} of {tries} tries (power cut, or the old entry was chosen by hand)."
        );
        Self::new(Code::Interrupted, what, "Leave the machine on.")
    }

    /// The new OS started, but `check` (a clause). `todo`: what to look at.
    pub fn health(check: &str, todo: &str) -> Self {
        Self::new(Code::Health, format!("The new OS started but {check}."), todo)
    }

    /// Somebody else installs: `holder` is who, as a clause.
    pub fn busy(holder: impl fmt::Display) -> Self {
        Self::new(Code::Busy, format!("Another install is at work: {holder}."), "Wait until it has ended.")
    }

    /// The way to root, or the process there. `detail` is a fragment without a full stop.
    pub fn helper(detail: impl fmt::Display) -> Self {
        let what = format!("The privileged helper failed: {detail}.");
        Self::new(Code::Helper, what, "Look at: journalctl -u stratum-join")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_known_again_by_its_name() {
        for code in Code::ALL {
            assert_eq!(Code::from_wire(code.as_str()), Some(*code));
        }
        assert_eq!(Code::from_wire("BAD_REQUEST"), None);
        // The last one: whoever adds a code and forgets the list is told here.
        assert_eq!(Code::ALL.len(), Code::Helper as usize + 1);
    }
}
