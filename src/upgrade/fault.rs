//! What can go wrong with an upgrade, and what a person reads about it (docs/upgrade.md, "When it fails"). Touches nothing.

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
            Code::Helper => "HELPER",
        }
    }
}

// === impl UpgradeFault ===

impl UpgradeFault {
    /// With both sentences.
    pub fn new(code: Code, what: impl AsRef<str>, todo: impl AsRef<str>) -> Self {
        Self { code, what: Safe::clean(what.as_ref()), todo: Safe::clean(todo.as_ref()) }
    }
}
