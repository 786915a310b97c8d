//! The one type that carries text from hardware, kernel, disk or file.
//!
//! May touch: nothing but bytes. Must never: hold a control, bidi or invisible character, be empty, or be longer
//! than its bound; a terminal, a log and a JSON document may print it as it is.

use std::fmt;
use std::ops::Deref;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Text that came from outside: at most `MAX` characters, never empty, safe for a terminal by construction.
///
/// ```
/// let clean = hwprobe::Text::<9>::from_bytes(b"  a\x1b[31mred  ").unwrap();
/// assert_eq!(clean.text.as_str(), "a\u{fffd}[31mred");
/// assert!(clean.altered);
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text<const MAX: usize>(String);

/// What [`Text::from_bytes`] made of its input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cleaned<const MAX: usize> {
    /// The safe text.
    pub text: Text<MAX>,
    /// Whether a character was replaced or the end was cut (`hostileText`). Trimmed white space does not count.
    pub altered: bool,
}

// === impl Text ===

impl<const MAX: usize> Text<MAX> {
    /// Cleans `bytes`: lossy UTF-8, cut at the first NUL, trimmed, dangerous characters replaced by U+FFFD (runs of it
    /// become one), cut to `MAX` characters. `None` when nothing is left.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Cleaned<MAX>> {
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        let lossy = String::from_utf8_lossy(bytes.get(..end).unwrap_or_default());
        let mut altered = matches!(lossy, std::borrow::Cow::Owned(_));
        let mut out = String::new();
        let mut count = 0;
        let mut last = None;
        for c in lossy.trim().chars() {
            let replaced = is_dangerous(c);
            altered |= replaced;
            let c = if replaced { char::REPLACEMENT_CHARACTER } else { c };
            if c == char::REPLACEMENT_CHARACTER && last == Some(c) {
                altered = true;
                continue;
            }
            if count == MAX {
                altered = true;
                break;
            }
            out.push(c);
            count += 1;
            last = Some(c);
        }
        let kept = out.trim_end().len();
        out.truncate(kept);
        (!out.is_empty()).then_some(Cleaned { text: Self(out), altered })
    }

    /// Cleans a string that this crate made itself, where a note about alteration has no reader.
    pub(crate) fn of(text: &str) -> Option<Self> {
        Self::from_bytes(text.as_bytes()).map(|clean| clean.text)
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<const MAX: usize> Deref for Text<MAX> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<const MAX: usize> AsRef<str> for Text<MAX> {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl<const MAX: usize> fmt::Display for Text<MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl<const MAX: usize> fmt::Debug for Text<MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl<const MAX: usize> PartialEq<str> for Text<MAX> {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl<const MAX: usize> PartialEq<&str> for Text<MAX> {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl<const MAX: usize> Serialize for Text<MAX> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de, const MAX: usize> Deserialize<'de> for Text<MAX> {
    /// Cleans again: what comes through a socket is no safer than what comes from a disk.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = String::deserialize(deserializer)?;
        Self::of(&raw).ok_or_else(|| serde::de::Error::custom("empty text"))
    }
}

/// Characters that can move a cursor, reorder a line, hide themselves or mean something else on every screen.
fn is_dangerous(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{3164}' | '\u{ffa0}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e000}'..='\u{f8ff}'
            | '\u{e0000}'..='\u{e0fff}'
            | '\u{f0000}'..='\u{10ffff}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn clean(bytes: &[u8]) -> Option<(String, bool)> {
        Text::<10>::from_bytes(bytes).map(|c| (c.text.to_string(), c.altered))
    }

    #[test]
    fn padding_is_trimmed_without_a_note() {
        assert_eq!(clean(b"  SN 1 \n\0rest"), Some(("SN 1".into(), false)));
    }

    #[test]
    fn nothing_left_is_none() {
        for bytes in [&b""[..], b"   ", b"\0abc", b"\n\t"] {
            assert_eq!(clean(bytes), None);
        }
    }

    #[test]
    fn escapes_bidi_and_bad_utf8_become_one_replacement() {
        assert_eq!(clean(b"a\x1b\x9b\xffb"), Some(("a\u{fffd}b".into(), true)));
        assert_eq!(clean("a\u{202e}\u{200b}b".as_bytes()), Some(("a\u{fffd}b".into(), true)));
    }

    #[test]
    fn too_long_is_cut_at_a_character() {
        assert_eq!(clean("ääääääääääää".as_bytes()), Some(("ä".repeat(10), true)));
    }

    proptest! {
        #[test]
        fn any_bytes_give_bounded_printable_text(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(c) = Text::<10>::from_bytes(&bytes) {
                let n = c.text.chars().count();
                prop_assert!((1..=10).contains(&n));
                prop_assert!(!c.text.chars().any(is_dangerous));
                prop_assert_eq!(c.text.trim(), c.text.as_str());
                let again = Text::<10>::from_bytes(c.text.as_bytes()).unwrap();
                prop_assert_eq!(again, Cleaned { text: c.text, altered: false });
            }
        }

        #[test]
        fn any_characters_survive_json_unchanged(s in "\\PC{1,20}") {
            if let Some(t) = Text::<10>::of(&s) {
                let json = serde_json::to_string(&t).unwrap();
                prop_assert_eq!(serde_json::from_str::<Text<10>>(&json).unwrap(), t);
            }
        }
    }
}
