//! Signatures of a manifest, made by minisign: rules M3 and M4 (docs/upgrade.md, "Signatures"). Touches nothing.
//!
//! Only the prehashed kind counts. Who signed is decided by the number in the signature, before anything is computed; a signature in the file
//! of another key counts for nothing.

use std::collections::BTreeSet;

use data_encoding::BASE64;
use minisign_verify::Signature;

use super::keys::{KeyId, KeyRing};
use super::manifest::MANIFEST;
use super::refusal::Rule;
use super::verify::Kind;

/// Longest signature, bytes.
pub const MAX_SIGNATURE: usize = 16 * 1024;

/// Which of the signatures of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SignatureName {
    /// `manifest.json.minisig`: of any key.
    Primary,
    /// `manifest.json.<KEYID>.minisig`: of this one only.
    Of(KeyId),
}

/// A signature that could be read; nothing is proven yet.
pub struct SignatureFile {
    name: SignatureName,
    id: KeyId,
    signature: Signature,
    bytes: Vec<u8>,
}

/// Why a text is no signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a signature of minisign")]
pub struct BadSignature;

/// All that was found beside a manifest.
#[derive(Default)]
pub struct Signatures {
    read: Vec<SignatureFile>,
    unreadable: bool,
    odd: Option<Odd>,
}

/// What no signature can be, whoever made it: M1 or M2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Odd {
    pub(super) rule: Rule,
    pub(super) name: SignatureName,
    pub(super) why: &'static str,
}

/// A signature by one of our keys that holds for the bytes it was checked with.
pub(crate) struct Proven<'s> {
    pub(crate) id: KeyId,
    pub(crate) trusted_comment: &'s str,
    pub(crate) bytes: &'s [u8],
}

// === impl SignatureName ===

impl SignatureName {
    /// Where it lies in a release.
    pub fn path(self) -> String {
        match self {
            SignatureName::Primary => format!("{MANIFEST}.minisig"),
            SignatureName::Of(id) => format!("{MANIFEST}.{id}.minisig"),
        }
    }
}

// === impl SignatureFile ===

impl SignatureFile {
    /// Reads the four lines of minisign.
    pub fn parse(name: SignatureName, bytes: &[u8]) -> Result<Self, BadSignature> {
        let text = std::str::from_utf8(bytes).map_err(|_| BadSignature)?;
        let mut lines = text.lines();
        let comment = lines.next().ok_or(BadSignature)?;
        let line = lines.next().ok_or(BadSignature)?;
        // The comment of the trusted line, and its signature.
        let rest = lines.skip(2);
        if !comment.starts_with("untrusted comment:") || rest.into_iter().any(|line| !line.trim().is_empty())
        {
            return Err(BadSignature);
        }
        let head = BASE64.decode(line.as_bytes()).map_err(|_| BadSignature)?;
        let id = head.get(2..10).and_then(|id| id.try_into().ok()).ok_or(BadSignature)?;
        let signature = Signature::decode(text).map_err(|_| BadSignature)?;
        Ok(Self { name, id: KeyId::of_bytes(id), signature, bytes: bytes.to_vec() })
    }

    /// Whose it says it is.
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// What its maker wrote into it; true once the signature is proven.
    pub fn trusted_comment(&self) -> &str {
        self.signature.trusted_comment()
    }

    /// Whether it may count at all where it was found.
    fn at_home(&self) -> bool {
        match self.name {
            SignatureName::Primary => true,
            SignatureName::Of(id) => self.id == id,
        }
    }
}

// === impl Signatures ===

impl Signatures {
    /// Adds one that was found, of at most one byte more than [`MAX_SIGNATURE`].
    pub fn add(&mut self, name: SignatureName, bytes: &[u8], kind: Kind) {
        let odd = |rule, why| Some(Odd { rule, name, why });
        let odd = match bytes.len() {
            0 => odd(Rule::M1, "it is empty"),
            n if n > MAX_SIGNATURE => odd(Rule::M1, "it is too long"),
            _ if kind == Kind::Html || bytes.trim_ascii_start().starts_with(b"<") => {
                odd(Rule::M2, "it is a web page")
            }
            _ => None,
        };
        match (odd, SignatureFile::parse(name, bytes)) {
            (Some(odd), _) if self.odd.is_none_or(|first| odd.rule < first.rule) => self.odd = Some(odd),
            (Some(_), _) => {}
            (None, Ok(signature)) => self.read.push(signature),
            (None, Err(BadSignature)) => self.unreadable = true,
        }
    }

    /// One that cannot be a signature.
    pub(super) fn odd(&self) -> Option<Odd> {
        self.odd
    }

    /// The keys of `ring` that say they signed.
    pub fn signers(&self, ring: &KeyRing) -> BTreeSet<KeyId> {
        let at_home = self.read.iter().filter(|signature| signature.at_home());
        at_home.map(SignatureFile::id).filter(|id| ring.find(*id).is_some()).collect()
    }

    /// The keys that say they signed and are not ours.
    pub fn strangers(&self, ring: &KeyRing) -> BTreeSet<KeyId> {
        self.read.iter().map(SignatureFile::id).filter(|id| ring.find(*id).is_none()).collect()
    }

    /// Whether one of them could not be read.
    pub fn any_unreadable(&self) -> bool {
        self.unreadable
    }

    /// Every signature by a key of `ring`, checked against `manifest`; `Err` is the first that does not hold. A key may have signed twice.
    pub(crate) fn prove(&self, ring: &KeyRing, manifest: &[u8]) -> Result<Vec<Proven<'_>>, KeyId> {
        let mut proven = Vec::new();
        for signature in self.read.iter().filter(|signature| signature.at_home()) {
            let Some(key) = ring.find(signature.id) else { continue };
            // The legacy kind signs the text itself and not its hash: never taken.
            key.key().verify(manifest, &signature.signature, false).map_err(|_| signature.id)?;
            proven.push(Proven {
                id: signature.id,
                trusted_comment: signature.signature.trusted_comment(),
                bytes: &signature.bytes,
            });
        }
        Ok(proven)
    }
}
