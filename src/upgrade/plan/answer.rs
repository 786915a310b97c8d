//! What the head of an answer means for the bytes that follow. Pure; the one place with the rules for 200, 206 and 416.

use std::fmt;

use crate::upgrade::source::ContentRange;

/// The head of an answer, redirects followed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Head {
    /// HTTP status.
    pub status: u16,
    /// `Content-Range`, when there is one that can be read.
    pub range: Option<ContentRange>,
    /// `Content-Length`.
    pub len: Option<u64>,
    /// There is a `Content-Encoding` other than `identity`.
    pub encoded: bool,
    /// `Content-Type` is `text/html`.
    pub html: bool,
    /// `Content-Type` is `multipart/...`.
    pub multipart: bool,
    /// `Retry-After` in seconds.
    pub retry_after: Option<u64>,
    /// 503 with the code `RELEASE_BUSY`.
    pub busy: bool,
}

/// What follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// The body is the file from this offset on.
    Body {
        /// In bytes; never behind what was asked for.
        at: u64,
    },
    /// Come back later: the source serves others.
    Busy,
    /// Come back later: the source has a problem.
    Later,
    /// No, and it will stay so.
    Refused,
    /// The body is compressed, which nobody asked for.
    Encoded,
    /// A web page where a file should be.
    WebPage,
    /// 206 without a range that can be used: none, another file's size, behind what was asked, several at once.
    WrongRange,
    /// The whole file, and its length is another.
    WrongLength,
    /// 416: the file at the source is not as long as it should be.
    TooShort,
    /// A status that makes no sense here.
    Strange,
}

// === impl Meaning ===

impl fmt::Display for Meaning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Meaning::Body { .. } => "the file",
            Meaning::Busy => "it is busy",
            Meaning::Later => "it has a problem",
            Meaning::Refused => "it refuses",
            Meaning::Encoded => "the answer is compressed, which nobody asked for",
            Meaning::WebPage => "a web page came instead of the file",
            Meaning::WrongRange => "the answer is for other bytes than were asked for",
            Meaning::WrongLength => "the file has another length than the release says",
            Meaning::TooShort => "the file is shorter than the release says",
            Meaning::Strange => "the status makes no sense for a file",
        })
    }
}

/// Judges an answer to a request for `asked` (first and last byte; the whole file if `None`) of a file of `size` bytes.
pub fn meaning(head: &Head, asked: Option<(u64, u64)>, size: u64) -> Meaning {
    match head.status {
        200 | 206 if head.encoded => Meaning::Encoded,
        // A proxy's page comes without the length of the file. With it, the hash decides: some mirrors label everything text/html.
        200 | 206 if head.html && head.len.is_none() => Meaning::WebPage,
        200 => match head.len {
            Some(len) if len != size && head.html => Meaning::WebPage,
            Some(len) if len != size => Meaning::WrongLength,
            _ => Meaning::Body { at: 0 },
        },
        206 if head.multipart => Meaning::WrongRange,
        206 => match (head.range, asked) {
            (Some(ContentRange::Bytes { first, last, total }), Some((from, _)))
                if first <= from
                    && last >= from
                    && total.is_none_or(|total| total == size)
                    && last < size =>
            {
                Meaning::Body { at: first }
            }
            _ => Meaning::WrongRange,
        },
        416 => Meaning::TooShort,
        503 if head.busy => Meaning::Busy,
        408 | 425 | 429 | 500..=599 => Meaning::Later,
        300..=499 => Meaning::Refused,
        _ => Meaning::Strange,
    }
}
