//! Why a release is refused: the rule, and the two sentences for people (docs/upgrade.md, "What is checked"). Touches nothing.

use std::fmt;

use super::fault::{Code, UpgradeFault};

/// The rules in the order in which they are checked: a given bad release always breaks the same one first.
#[allow(missing_docs, reason = "docs/upgrade.md has the table; each is named where it is checked")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[rustfmt::skip]
pub enum Rule {
    M1, M2, M3, M4, M5, M6, M7, M8, M9, M10, M11, M12, M13, M14, M15, M16, M17, M18, M19, M20, M21,
}

/// A release that is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{rule}: {fault}")]
pub struct Refusal {
    /// The first rule it breaks.
    pub rule: Rule,
    /// What a person and the founder are told.
    pub fault: UpgradeFault,
}

// === impl Rule ===

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

// === impl Refusal ===

impl Refusal {
    /// With both sentences.
    pub fn new(rule: Rule, code: Code, what: impl AsRef<str>, todo: impl AsRef<str>) -> Self {
        Self { rule, fault: UpgradeFault::new(code, what, todo) }
    }

    /// A signed manifest that does not keep to its schema. `detail` names the field and the value.
    pub fn invalid(rule: Rule, detail: impl fmt::Display) -> Self {
        Self::new(
            rule,
            Code::ManifestInvalid,
            format!("The signed manifest breaks rule {rule}: {detail}."),
            "Report it to whoever made the release.",
        )
    }
}

impl From<Refusal> for UpgradeFault {
    fn from(refusal: Refusal) -> Self {
        refusal.fault
    }
}
