//! `Content-Range` (RFC 9110, 14.4), the one header that says where bytes belong. Touches nothing.

use std::str::FromStr;

/// What part of a file an answer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentRange {
    /// `bytes first-last/total`, with `first <= last < total`; `*` is no total.
    Bytes {
        /// Offset of the first byte.
        first: u64,
        /// Offset of the last byte.
        last: u64,
        /// Length of the whole file.
        total: Option<u64>,
    },
    /// `bytes */total`: none of it, as with status 416.
    None {
        /// Length of the whole file.
        total: u64,
    },
}

/// Why a text is no `Content-Range` of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a content range: bytes FIRST-LAST/TOTAL")]
pub struct BadRange;

// === impl ContentRange ===

impl FromStr for ContentRange {
    type Err = BadRange;

    /// Strict: the unit in any case, one blank behind it, plain decimal numbers, nothing before, between or after.
    fn from_str(text: &str) -> Result<Self, BadRange> {
        let (unit, rest) = text.split_once(' ').ok_or(BadRange)?;
        let (range, total) = rest.split_once('/').ok_or(BadRange)?;
        if !unit.eq_ignore_ascii_case("bytes") {
            return Err(BadRange);
        }
        let total = if total == "*" { None } else { Some(number(total)?) };
        if range == "*" {
            return total.map(|total| ContentRange::None { total }).ok_or(BadRange);
        }
        let (first, last) = range.split_once('-').ok_or(BadRange)?;
        let (first, last) = (number(first)?, number(last)?);
        if first > last || total.is_some_and(|total| last >= total) {
            return Err(BadRange);
        }
        Ok(ContentRange::Bytes { first, last, total })
    }
}

/// Digits only: `u64::from_str` would take a sign.
fn number(text: &str) -> Result<u64, BadRange> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if digits { text.parse().map_err(|_| BadRange) } else { Err(BadRange) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_range_is_read_as_rfc_9110_writes_it() {
        let bytes = |first, last, total| Ok(ContentRange::Bytes { first, last, total });
        for (text, read) in [
            ("bytes 0-0/1", bytes(0, 0, Some(1))),
            ("bytes 42-1233/1234", bytes(42, 1233, Some(1234))),
            ("Bytes 42-1233/*", bytes(42, 1233, None)),
            ("bytes */1234", Ok(ContentRange::None { total: 1234 })),
            ("bytes 0-18446744073709551614/18446744073709551615", bytes(0, u64::MAX - 1, Some(u64::MAX))),
        ] {
            assert_eq!(text.parse(), read, "{text}");
        }
    }

    #[test]
    fn anything_else_is_no_content_range() {
        for bad in [
            "",
            "bytes",
            "bytes ",
            "bytes=0-1/2",
            "bytes 0-1",
            "bytes 1-0/2",
            "bytes 0-2/2",
            "bytes +0-1/2",
            "bytes 0-1/+2",
            "bytes 0-1/-1",
            "bytes -1/2",
            "bytes 0-/2",
            "bytes */*",
            "items 0-1/2",
            " bytes 0-1/2",
            "bytes  0-1/2",
            "bytes 0-1/2 ",
            "bytes 0-1,3-4/5",
            "bytes 0-1/2/3",
            "bytes 0-18446744073709551616/*",
            "bytes 0x0-0x1/2",
            "bytes 0-1/\u{662}",
        ] {
            assert_eq!(bad.parse::<ContentRange>(), Err(BadRange), "{bad:?}");
        }
    }
}
