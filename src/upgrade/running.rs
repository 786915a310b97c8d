//! Which OS runs here: release, sequence, product, processor (docs/upgrade.md, "Versions").
//!
//! Reads os-release. Must never take these facts from anything that the cluster says.

use crate::durable_file::{self, FileError};
use crate::paths::Paths;

use super::version::{MAX_SEQUENCE, Version};

/// The product of an OS that names none.
const PRODUCT: &str = "stratum";
/// Longest os-release, bytes.
const MAX_OS_RELEASE: u64 = 64 * 1024;

/// What runs here, of the booted os-release and the processor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningOs {
    /// `VERSION_ID`.
    pub release: Version,
    /// `STRATUM_SEQUENCE`, 0 when absent.
    pub sequence: u64,
    /// `STRATUM_PRODUCT`, `stratum` when absent.
    pub product: String,
    /// The processor, as Rust names it: `x86_64`.
    pub arch: String,
}

/// Why an os-release cannot be upgraded from.
#[derive(Debug, thiserror::Error)]
pub enum BadOs {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] FileError),
    /// There is none, or it names no release.
    #[error("os-release has no VERSION_ID")]
    NoVersion,
    /// A field that is not what it must be.
    #[error("{field} in os-release is `{value}`, which is no {what}")]
    Field {
        /// Its name.
        field: &'static str,
        /// What stands there.
        value: String,
        /// What should.
        what: &'static str,
    },
}

// === impl RunningOs ===

impl RunningOs {
    /// The running OS.
    pub fn load(paths: &Paths) -> Result<Self, BadOs> {
        for path in paths.os_release() {
            if let Some(bytes) = durable_file::read_public(&path, MAX_OS_RELEASE)? {
                return Self::of_os_release(&String::from_utf8_lossy(&bytes));
            }
        }
        Err(BadOs::NoVersion)
    }

    /// Of the text of an os-release(5) file, on this processor.
    pub fn of_os_release(text: &str) -> Result<Self, BadOs> {
        let version = field(text, "VERSION_ID").ok_or(BadOs::NoVersion)?;
        let bad = |field, value: &str, what| BadOs::Field { field, value: value.to_owned(), what };
        let release = version.parse().map_err(|_| bad("VERSION_ID", version, "release N.N.N[-pre]"))?;
        let sequence = match field(text, "STRATUM_SEQUENCE") {
            None => 0,
            Some(value) => number(value).ok_or_else(|| bad("STRATUM_SEQUENCE", value, "number"))?,
        };
        let product = field(text, "STRATUM_PRODUCT").unwrap_or(PRODUCT);
        if !is_product(product) {
            return Err(bad("STRATUM_PRODUCT", product, "name of [a-z0-9-]"));
        }
        Ok(Self { release, sequence, product: product.to_owned(), arch: std::env::consts::ARCH.to_owned() })
    }
}

/// The value of the last assignment, without the quotes of the shell.
fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let value = |line: &'t str| line.trim().strip_prefix(name)?.strip_prefix('=');
    let raw = text.lines().rev().find_map(value)?.trim();
    let quoted = |q: char| raw.strip_prefix(q).and_then(|r| r.strip_suffix(q));
    Some(quoted('"').or_else(|| quoted('\'')).unwrap_or(raw)).filter(|value| !value.is_empty())
}

fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten().filter(|n| *n <= MAX_SEQUENCE)
}

/// Nothing that the trusted comment of a signature could be read two ways with.
fn is_product(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=64).contains(&text.len()) && text.bytes().all(inner)
}
