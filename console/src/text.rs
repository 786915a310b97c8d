//! `Safe`: the only way from received text to a person.
//!
//! Every founder text, firstboot text, certificate name, host name, DMI, disk and NIC string and file content passes
//! here before it reaches the snapshot, the banner, `STATUS=` or a log line, and once more when a snapshot is read.
//! Touches nothing but its argument. Must never let out a control character, an escape sequence, a bidi mark or a
//! zero-width character, and never more than `MAX` characters or columns.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use unicode_width::UnicodeWidthChar;

/// A name: host name, serial, NIC, release, id.
pub type Name = Safe<64>;
/// A sentence, a title, an address.
pub type Text = Safe<200>;
/// The message of a fault.
pub type Message = Safe<400>;

/// Cleaned text of at most `MAX` characters and `MAX` terminal columns.
///
/// Cleaning is a fixed point: `Safe::clean(Safe::clean(x)) == Safe::clean(x)`, also through JSON.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Safe<const MAX: usize>(String);

// === impl Safe ===

impl<const MAX: usize> Safe<MAX> {
    /// Cleans any bytes. In this order:
    /// 1. bytes to UTF-8, what is not becomes U+FFFD;
    /// 2. whole escape sequences are dropped (`ESC [`..final, `ESC ]`..BEL or ST, their C1 forms; of an unfinished
    ///    string only the introducer, so that it cannot swallow the message behind it);
    /// 3. TAB, CR, LF and every Unicode space become a space;
    /// 4. other C0, DEL, C1, the categories Cf, Zl, Zp, Co, Cs, Cn and everything of width 0 are dropped;
    /// 5. spaces are collapsed and trimmed;
    /// 6. what is longer than `MAX` characters or columns is cut, and ends in `~`.
    pub fn clean(raw: impl AsRef<[u8]>) -> Self {
        let text = String::from_utf8_lossy(raw.as_ref());
        let mut out = String::with_capacity(text.len().min(MAX.saturating_mul(4)));
        let mut fit = Fit::new(MAX);
        let mut gap = false;
        let mut rest = Printable::new(&text);
        for c in &mut rest {
            if c == ' ' {
                gap = !out.is_empty();
                continue;
            }
            if gap && !fit.push(&mut out, ' ') {
                break;
            }
            gap = false;
            if !fit.push(&mut out, c) {
                break;
            }
        }
        Self(out)
    }

    /// The cleaned text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True when nothing printable was in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The same text for another length; cut when `N` is smaller.
    pub fn fit<const N: usize>(&self) -> Safe<N> {
        Safe::clean(&self.0)
    }

    /// The text with every character outside printable ASCII as `?`: what may reach a terminal cell.
    pub fn ascii(&self) -> String {
        ascii(&self.0)
    }
}

impl<const MAX: usize> fmt::Display for Safe<MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl<const MAX: usize> fmt::Debug for Safe<MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl<const MAX: usize> From<&str> for Safe<MAX> {
    fn from(raw: &str) -> Self {
        Self::clean(raw)
    }
}

impl<const MAX: usize> From<String> for Safe<MAX> {
    fn from(raw: String) -> Self {
        Self::clean(raw)
    }
}

impl<const MAX: usize> AsRef<str> for Safe<MAX> {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl<const MAX: usize> PartialEq<str> for Safe<MAX> {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl<const MAX: usize> PartialEq<&str> for Safe<MAX> {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl<const MAX: usize> Serialize for Safe<MAX> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.0)
    }
}

impl<'de, const MAX: usize> Deserialize<'de> for Safe<MAX> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visitor<const MAX: usize>;
        impl<const MAX: usize> serde::de::Visitor<'_> for Visitor<MAX> {
            type Value = Safe<MAX>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_str<E: serde::de::Error>(self, raw: &str) -> Result<Self::Value, E> {
                Ok(Safe::clean(raw))
            }
        }
        from.deserialize_str(Visitor)
    }
}

/// Every character outside 0x20..=0x7E as `?`, so that each is exactly one column wide on every console font.
pub fn ascii(text: &str) -> String {
    text.chars().map(|c| if matches!(c, ' '..='~') { c } else { '?' }).collect()
}

// === private ===

/// Counts characters and columns against one limit, and cuts with `~`.
struct Fit {
    max: usize,
    chars: usize,
    columns: usize,
}

impl Fit {
    fn new(max: usize) -> Self {
        Self { max, chars: 0, columns: 0 }
    }

    /// Appends `c`; when it does not fit, makes room for `~` and returns false.
    fn push(&mut self, out: &mut String, c: char) -> bool {
        let width = c.width().unwrap_or(0);
        if self.chars < self.max && self.columns + width <= self.max {
            out.push(c);
            self.chars += 1;
            self.columns += width;
            return true;
        }
        while self.chars >= self.max || self.columns >= self.max {
            let Some(last) = out.pop() else { return false };
            self.chars -= 1;
            self.columns -= last.width().unwrap_or(0);
        }
        out.push('~');
        false
    }
}

/// The characters of a text that may be shown; what counts as a space comes out as `' '`.
struct Printable<'a> {
    rest: &'a str,
    /// Set once a string sequence was found without its end: looking again would make cleaning quadratic.
    unterminated: bool,
}

impl<'a> Printable<'a> {
    fn new(text: &'a str) -> Self {
        Self { rest: text, unterminated: false }
    }

    /// Behind a whole escape sequence whose introducer was just read, as ECMA-48 section 5.4 and 5.6 bound it.
    fn skip_sequence(&mut self, kind: Sequence) {
        match kind {
            Sequence::Csi => {
                let body = self.rest.trim_start_matches(|c| matches!(c, '\x30'..='\x3f'));
                let body = body.trim_start_matches(|c| matches!(c, '\x20'..='\x2f'));
                self.rest = body.strip_prefix(|c| matches!(c, '\x40'..='\x7e')).unwrap_or(body);
            }
            Sequence::String if self.unterminated => {}
            Sequence::String => match end_of_string(self.rest) {
                Some(end) => self.rest = &self.rest[end..],
                None => self.unterminated = true,
            },
            Sequence::Short => {
                let body = self.rest.trim_start_matches(|c| matches!(c, '\x20'..='\x2f'));
                self.rest = body.strip_prefix(|c| matches!(c, '\x30'..='\x7e')).unwrap_or(body);
            }
        }
    }
}

enum Sequence {
    Csi,
    String,
    Short,
}

impl Iterator for Printable<'_> {
    type Item = char;

    fn next(&mut self) -> Option<char> {
        loop {
            let mut chars = self.rest.chars();
            let c = chars.next()?;
            self.rest = chars.as_str();
            match c {
                '\x1b' => {
                    let kind = match chars.next() {
                        Some('[') => Sequence::Csi,
                        Some(']' | 'P' | 'X' | '^' | '_') => Sequence::String,
                        _ => {
                            self.skip_sequence(Sequence::Short);
                            continue;
                        }
                    };
                    self.rest = chars.as_str();
                    self.skip_sequence(kind);
                }
                '\u{9b}' => self.skip_sequence(Sequence::Csi),
                '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => self.skip_sequence(Sequence::String),
                '\t' | '\r' | '\n' => return Some(' '),
                c if c.is_control() => {}
                // Zl and Zp are dropped, every other Unicode space is a space.
                '\u{2028}' | '\u{2029}' => {}
                c if c.is_whitespace() => return Some(' '),
                c if c.width().unwrap_or(0) == 0 || !is_shown(c) => {}
                c => return Some(c),
            }
        }
    }
}

/// The index behind BEL or ST (`ESC \` or U+009C).
fn end_of_string(text: &str) -> Option<usize> {
    let mut previous = '\0';
    for (at, c) in text.char_indices() {
        if c == '\x07' || c == '\u{9c}' || (c == '\\' && previous == '\x1b') {
            return Some(at + c.len_utf8());
        }
        previous = c;
    }
    None
}

/// False for Cf, Co, Cs and Cn, and for what is assigned but never seen.
///
/// std has no category lookup, but `str::escape_debug` escapes exactly the characters of the categories Cc, Cf, Cs, Co, Cn,
/// Zl, Zp and Zs (library/core/src/unicode/printable.py); a leading letter keeps grapheme extenders out of it.
fn is_shown(c: char) -> bool {
    if c.is_ascii() {
        return true;
    }
    // Hangul and Khmer fillers and the Braille blank: letters and symbols to Unicode, empty to the eye.
    if matches!(c, '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' | '\u{17b4}' | '\u{17b5}' | '\u{2800}') {
        return false;
    }
    let mut buffer = [0_u8; 8];
    buffer[0] = b'a';
    let end = 1 + c.encode_utf8(&mut buffer[1..]).len();
    std::str::from_utf8(&buffer[..end]).is_ok_and(|text| text.escape_debug().nth(1) == Some(c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn clean(raw: impl AsRef<[u8]>) -> String {
        Safe::<40>::clean(raw).to_string()
    }

    #[test]
    fn plain_text_is_unchanged() {
        assert_eq!(clean("eno1 up, 25G full duplex"), "eno1 up, 25G full duplex");
        assert_eq!(clean("Zürich 東京"), "Zürich 東京");
    }

    #[test]
    fn whole_escape_sequences_go_not_only_the_escape() {
        assert_eq!(clean("a\x1b[31;1mred\x1b[0m"), "ared");
        assert_eq!(clean("a\x1b]0;title\x07b\x1b]8;;http://x\x1b\\c"), "abc");
        assert_eq!(clean("a\u{9b}2Jb\u{9d}0;t\u{9c}c\u{90}q\x1b\\d"), "abcd");
        assert_eq!(clean("a\x1b(0b\x1bcd\x1b"), "abd");
    }

    #[test]
    fn an_unfinished_sequence_does_not_swallow_the_message() {
        assert_eq!(clean("\x1b]disk in use"), "disk in use");
        assert_eq!(clean("disk\x1b[12"), "disk");
    }

    #[test]
    fn many_unfinished_sequences_are_cleaned_in_linear_time() {
        let hostile = "\x1b]".repeat(500_000);
        let start = std::time::Instant::now();
        assert_eq!(clean(hostile), "");
        assert!(start.elapsed().as_secs() < 5);
    }

    #[test]
    fn bad_utf8_is_marked_and_kept_in_place() {
        assert_eq!(clean(b"a\xffb"), "a\u{fffd}b");
        assert_eq!(clean(b"a\x9b31mb"), "a\u{fffd}31mb");
    }

    #[test]
    fn white_space_is_one_space_and_trimmed() {
        assert_eq!(clean("\t a \r\n\u{a0}b  \n"), "a b");
        assert_eq!(clean("a\x0bb\x0cc\0d\x7fe\u{85}f"), "abcdef");
    }

    #[test]
    fn invisible_characters_are_dropped() {
        assert_eq!(clean("a\u{202e}b\u{200b}c\u{feff}d\u{2066}e\u{ad}f"), "abcdef");
        assert_eq!(clean("a\u{2028}b\u{e000}c\u{378}d\u{e0041}e\u{fe0f}f\u{34f}g\u{2800}h"), "abcdefgh");
    }

    #[test]
    fn what_is_too_long_ends_in_a_tilde() {
        assert_eq!(Safe::<5>::clean("12345").as_str(), "12345");
        assert_eq!(Safe::<5>::clean("123456").as_str(), "1234~");
        assert_eq!(Safe::<5>::clean("東京都").as_str(), "東京~");
        assert_eq!(Safe::<4>::clean("東京都").as_str(), "東~");
        assert_eq!(Safe::<5>::clean("1234   ").as_str(), "1234");
        assert_eq!(Safe::<5>::clean("1234 6").as_str(), "1234~");
        assert_eq!(Safe::<1>::clean("東").as_str(), "~");
        assert_eq!(Safe::<0>::clean("x").as_str(), "");
    }

    #[test]
    fn json_is_cleaned_on_the_way_in() {
        let text: Safe<64> = serde_json::from_str("\"a\\u001b[31mb\\u202ec\"").unwrap();
        assert_eq!(text, "abc");
        assert_eq!(serde_json::to_string(&text).unwrap(), "\"abc\"");
        assert!(serde_json::from_str::<Safe<64>>("7").is_err());
    }

    #[test]
    fn formatting_pads_like_a_str() {
        assert_eq!(
            format!("{:<5}|{:>4}|{:.2}", Safe::<9>::from("ab"), Safe::<9>::from("c"), Safe::<9>::from("def")),
            "ab   |   c|de"
        );
        assert_eq!(format!("{:?}", Safe::<9>::from("a\"b")), "\"a\\\"b\"");
    }

    /// Bytes with a bias to what is dangerous.
    fn hostile() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            any::<char>().prop_map(|c| c.to_string().into_bytes()),
            "[ -~]{0,12}".prop_map(String::into_bytes),
            proptest::collection::vec(any::<u8>(), 0..8),
            prop::sample::select(vec![
                "\x1b",
                "\x1b[",
                "\x1b]",
                "\x07",
                "\x1b\\",
                "\u{9b}",
                "\u{9c}",
                "\u{9d}",
                "\u{202e}",
                "\u{200b}",
                "\u{200d}",
                "\r\n",
                "  ",
                "東",
                "e\u{301}",
                "\u{1f469}\u{200d}\u{1f692}",
                "\u{fe0f}",
                "m",
                "~"
            ])
            .prop_map(|s| s.as_bytes().to_vec()),
        ];
        proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
    }

    fn check<const MAX: usize>(raw: &[u8]) {
        let once = Safe::<MAX>::clean(raw);
        let text = once.as_str();
        assert_eq!(Safe::<MAX>::clean(text), once, "cleaning twice changes nothing");
        assert!(text.chars().count() <= MAX);
        assert!(text.chars().map(|c| c.width().unwrap_or(0)).sum::<usize>() <= MAX);
        assert_eq!(text.trim(), text);
        assert!(!text.contains("  "));
        for c in text.chars() {
            assert!(!c.is_control(), "{c:?}");
            assert!(c.width().unwrap_or(0) > 0, "{c:?}");
            assert!(c == ' ' || !c.is_whitespace(), "{c:?}");
            let bidi = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
            assert!(
                !bidi && !matches!(c, '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{206f}' | '\u{feff}'),
                "{c:?}"
            );
        }
        let json = serde_json::to_string(&once).unwrap();
        assert_eq!(serde_json::from_str::<Safe<MAX>>(&json).unwrap(), once);
    }

    proptest! {
        #[test]
        fn anything_comes_out_clean_and_stays_so(raw in hostile()) {
            check::<0>(&raw);
            check::<1>(&raw);
            check::<7>(&raw);
            check::<64>(&raw);
            check::<400>(&raw);
        }
    }
}
