//! The self-upgrade up to a verified, staged release (docs/upgrade.md): offer, manifest and signature, download, verify.
//!
//! `manifest`, `keys`, `version` and `plan` are pure; `fetch`, `stage` and `source` move bytes. Agent, helper and the tools of release
//! engineers link the same checks. Nothing here writes outside the stage, and nothing that was not verified leaves it.

pub mod fault;
pub mod fetch;
pub mod keys;
pub mod manifest;
pub mod plan;
pub mod refusal;
pub mod running;
pub mod search;
pub mod signature;
pub mod source;
pub mod stage;
pub mod verify;
pub mod version;

#[cfg(test)]
mod release_tests;

use std::fmt;
use std::str::FromStr;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes of a chunk: what is hashed, resumed and fetched again as one piece (schema `stratum.release/1`).
pub const CHUNK: u64 = 4 * 1024 * 1024;
/// Longest path of a file in a release, bytes.
pub const MAX_PATH: usize = 255;
/// Most segments of a path.
const MAX_SEGMENTS: usize = 6;
/// Longest segment, bytes.
const MAX_SEGMENT: usize = 128;

/// A SHA-256 digest; 64 lower-case hex digits in text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

/// Where a file lies in a release directory: `os/blobs/sha256/<hex>`, `sysext/<name>.raw`. It never becomes a path on this machine; there a file
/// is named by its digest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelPath(String);

/// One fetchable file of a release, as its signed manifest has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEntry {
    /// Where.
    pub path: RelPath,
    /// Bytes, 1 to 64 GiB.
    pub size: u64,
    /// Of the whole file.
    pub sha256: Digest,
    /// Of each [`CHUNK`] in order, the last one shorter; one, equal to `sha256`, for a file of at most one chunk.
    pub chunks: Vec<Digest>,
}

/// Why a text is no path of a release (rule M12).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a path of a release: up to {MAX_SEGMENTS} segments of [A-Za-z0-9._+-] that begin with a letter or digit"
)]
pub struct BadPath;

/// Why a text is no digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a SHA-256: 64 lower-case hex digits")]
pub struct BadDigest;

// === impl Digest ===

impl Digest {
    /// Of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let mut out = [0; 32];
        out.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, bytes).as_ref());
        Self(out)
    }
}

impl FromStr for Digest {
    type Err = BadDigest;

    fn from_str(text: &str) -> Result<Self, BadDigest> {
        let bytes = HEXLOWER.decode(text.as_bytes()).map_err(|_| BadDigest)?;
        bytes.try_into().map(Self).map_err(|_| BadDigest)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

// === impl RelPath ===

impl RelPath {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for RelPath {
    type Err = BadPath;

    fn from_str(text: &str) -> Result<Self, BadPath> {
        let inner = |b: &u8| b.is_ascii_alphanumeric() || b"._+-".contains(b);
        let segment = |s: &str| {
            s.len() <= MAX_SEGMENT
                && s.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric)
                && s.as_bytes().iter().all(inner)
        };
        let good =
            text.len() <= MAX_PATH && text.split('/').count() <= MAX_SEGMENTS && text.split('/').all(segment);
        if good { Ok(Self(text.to_owned())) } else { Err(BadPath) }
    }
}

impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl FileEntry ===

impl FileEntry {
    /// Bytes of chunk `i`; 0 beyond the end.
    pub fn chunk_len(&self, i: usize) -> u64 {
        let start = (i as u64).saturating_mul(CHUNK);
        self.size.saturating_sub(start).min(CHUNK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_a_release_climbs_nowhere_and_hides_nothing() {
        for good in ["os/blobs/sha256/00ff", "sysext/stratum-ceph.raw", "a", "a/b/c/d/e/f", "os/x+y_z"] {
            assert!(good.parse::<RelPath>().is_ok(), "{good}");
        }
        let long = "a".repeat(129);
        for bad in [
            "",
            "/",
            "/etc/passwd",
            "a//b",
            "a/",
            "./a",
            "a/../b",
            "..",
            "a/.hidden",
            "-a",
            "a b",
            "a%2f",
            "a\\b",
            "a\0",
            "ä",
            "~a",
            "a/b/c/d/e/f/g",
            long.as_str(),
        ] {
            assert_eq!(bad.parse::<RelPath>(), Err(BadPath), "{bad:?}");
        }
    }

    #[test]
    fn a_digest_is_lower_case_hex_of_its_whole_length() {
        let text = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").to_string(), text);
        assert_eq!(text.parse(), Ok(Digest::of(b"")));
        for bad in [&text[1..], &text.to_uppercase(), &format!("{text}0"), ""] {
            assert_eq!(bad.parse::<Digest>(), Err(BadDigest));
        }
    }

    #[test]
    fn the_last_chunk_is_what_is_left() {
        let file =
            |size| FileEntry { path: RelPath("a".into()), size, sha256: Digest([0; 32]), chunks: Vec::new() };
        assert_eq!((file(1).chunk_len(0), file(1).chunk_len(1)), (1, 0));
        assert_eq!((file(CHUNK).chunk_len(0), file(CHUNK).chunk_len(1)), (CHUNK, 0));
        assert_eq!((file(CHUNK + 4).chunk_len(0), file(CHUNK + 4).chunk_len(1)), (CHUNK, 4));
    }
}
