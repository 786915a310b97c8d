//! Warnings: why a fact is null, or what is odd about a device.
//!
//! May touch: nothing. Must never: hold two entries for one code and place.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::finding::Missing;
use crate::text::Text;

/// At most this many warnings are kept (schema 1).
const MAX_WARNINGS: usize = 2048;

/// One warning of the inventory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Warning {
    /// What kind of doubt.
    pub code: Code,
    /// `""`, `host`, `disks/<name>` or `nics/<name>`.
    pub at: String,
    /// The fields that are concerned, sorted.
    pub facts: Vec<String>,
    /// For people; not part of the digest.
    pub detail: Option<Text<256>>,
}

/// The kinds of warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the names are the documentation; the meaning of each is in docs/hardware.md")]
pub enum Code {
    Absent,
    Permission,
    IoError,
    Invalid,
    Vanished,
    Timeout,
    NotCaptured,
    NotSupported,
    Junk,
    SharedWwn,
    SharedLink,
    DuplicateIdentity,
    MultipathInactive,
    PhantomPartitions,
    Ambivalent,
    Unreadable,
    UdevIncomplete,
    HostileText,
    HostileName,
    NexthopObject,
    NoMedium,
    Truncated,
    InstallRecordInvalid,
}

impl From<Missing> for Code {
    fn from(missing: Missing) -> Self {
        match missing {
            Missing::Absent => Self::Absent,
            Missing::Permission => Self::Permission,
            Missing::IoError => Self::IoError,
            Missing::Invalid => Self::Invalid,
            Missing::Vanished => Self::Vanished,
            Missing::Timeout => Self::Timeout,
            Missing::NotCaptured => Self::NotCaptured,
            Missing::NotSupported => Self::NotSupported,
            Missing::Junk => Self::Junk,
            Missing::Truncated => Self::Truncated,
        }
    }
}

/// Collects warnings: one per code and place, facts merged and sorted.
#[derive(Debug, Default)]
pub(crate) struct Warnings {
    entries: BTreeMap<(String, Code), (BTreeSet<String>, Option<String>)>,
}

// === impl Warnings ===

impl Warnings {
    /// Notes that `fact` at `at` is in doubt. The first detail given for a code and place stays.
    pub(crate) fn note(&mut self, at: &str, code: impl Into<Code>, fact: &str, detail: &str) {
        let entry = self.entries.entry((at.to_owned(), code.into())).or_default();
        if !fact.is_empty() {
            entry.0.insert(fact.to_owned());
        }
        if entry.1.is_none() && !detail.is_empty() {
            entry.1 = Some(detail.to_owned());
        }
    }

    /// Like [`Self::note`], and this detail wins: it says what a person can do.
    pub(crate) fn replace_detail(&mut self, at: &str, code: Code, fact: &str, detail: &str) {
        let entry = self.entries.entry((at.to_owned(), code)).or_default();
        entry.0.insert(fact.to_owned());
        entry.1 = Some(detail.to_owned());
    }

    /// The list, by place, then by code.
    pub(crate) fn into_list(self) -> Vec<Warning> {
        let mut list: Vec<Warning> = self
            .entries
            .into_iter()
            .map(|((at, code), (facts, detail))| {
                let facts: Vec<String> = facts.into_iter().collect();
                let detail = detail.or_else(|| default_detail(code, &facts));
                Warning { code, at, facts, detail: detail.and_then(|d| Text::of(&d)) }
            })
            .collect();
        if list.len() > MAX_WARNINGS {
            list.truncate(MAX_WARNINGS - 1);
            list.push(Warning {
                code: Code::Truncated,
                at: String::new(),
                facts: vec!["warnings".to_owned()],
                detail: Text::of("more than 2,048 warnings"),
            });
        }
        list
    }
}

/// Words for the reasons that need no words of their own.
fn default_detail(code: Code, facts: &[String]) -> Option<String> {
    let why = match code {
        Code::Absent => "not reported",
        Code::Permission => "not allowed to read",
        Code::IoError => "read failed",
        Code::Invalid => "not a valid value",
        Code::Vanished => "went away while it was read",
        Code::Timeout => "no answer in time",
        Code::NotCaptured => "not in the captured tree",
        Code::NotSupported => "not offered by the driver",
        Code::Junk => "a placeholder was refused",
        Code::HostileText => "unsafe characters replaced or text cut",
        Code::Truncated => "too many",
        _ => return None,
    };
    Some(format!("{why}: {}", facts.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_entry_per_code_and_place_with_sorted_facts() {
        let mut w = Warnings::default();
        w.note("disks/sda", Missing::Absent, "wwn", "");
        w.note("disks/sda", Missing::Absent, "model", "");
        w.note("disks/sda", Missing::Absent, "wwn", "");
        let list = w.into_list();
        assert_eq!(list.len(), 1);
        assert_eq!(list[0].facts, ["model", "wwn"]);
        assert_eq!(list[0].detail.as_ref().map(Text::as_str), Some("not reported: model, wwn"));
    }

    #[test]
    fn the_list_is_bounded_and_says_so() {
        let mut w = Warnings::default();
        for n in 0..3000 {
            w.note(&format!("disks/sd{n}"), Code::Junk, "wwn", "");
        }
        let list = w.into_list();
        assert_eq!(list.len(), MAX_WARNINGS);
        assert_eq!(list.last().map(|w| w.code), Some(Code::Truncated));
    }
}
