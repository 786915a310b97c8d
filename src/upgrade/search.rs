//! What to ask a source for, until a release is verified or refused (docs/upgrade.md, "Signatures"). Touches nothing: whoever holds the
//! connection asks [`Search::next`], and tells [`Search::answer`].
//!
//! Signatures come first, because they are small and say who signed: an OS from before a key rotation learns it from two requests. A signature
//! that does not hold is fetched once more together with its manifest, past every cache: a mirror may have been caught between the two.

use super::fault::Code;
use super::manifest::{MANIFEST, MAX_MANIFEST};
use super::refusal::{Refusal, Rule};
use super::signature::{MAX_SIGNATURE, SignatureName, Signatures};
use super::verify::{self, Check, Kind, Verified};

/// What to do next.
#[derive(Debug)]
pub enum Next {
    /// Fetch this, whole and without a range, then tell [`Search::answer`].
    Get(Get),
    /// It is decided.
    Verdict(Box<Result<Verified, Refusal>>),
}

/// One small request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Get {
    /// Where in the release.
    pub path: String,
    /// Bytes that may come; one more is enough to tell that it is too long.
    pub most: usize,
    /// Ask for `Cache-Control: no-cache`.
    pub fresh: bool,
}

/// What came of a [`Get`]. Other answers (no connection, a status that is neither) are the caller's to name.
#[derive(Debug)]
pub enum Answer {
    /// The body, at most one byte more than asked for.
    Body(Vec<u8>, Kind),
    /// 404 or 410.
    Absent,
}

/// A search in progress.
pub struct Search {
    check: Check,
    found: Signatures,
    at: At,
    fresh: bool,
}

/// What is asked for now.
enum At {
    Signature(SignatureName),
    Manifest,
    Done(Box<Result<Verified, Refusal>>),
}

// === impl Search ===

impl Search {
    /// Begins with the primary signature.
    pub fn new(check: Check) -> Self {
        Self { check, found: Signatures::default(), at: At::Signature(SignatureName::Primary), fresh: false }
    }

    /// What to do now. The same until [`Search::answer`].
    pub fn next(&self) -> Next {
        let (path, most) = match &self.at {
            At::Signature(name) => (name.path(), MAX_SIGNATURE),
            At::Manifest => (MANIFEST.to_owned(), MAX_MANIFEST),
            At::Done(verdict) => return Next::Verdict(verdict.clone()),
        };
        Next::Get(Get { path, most, fresh: self.fresh })
    }

    /// What came of it.
    pub fn answer(&mut self, answer: Answer) {
        let next = match (&self.at, answer) {
            (At::Done(_), _) => return,
            (At::Signature(name), answer) => self.signature(*name, answer),
            (At::Manifest, Answer::Absent) => Err(self.absent()),
            (At::Manifest, Answer::Body(bytes, kind)) => {
                verify::verify(&self.check, &bytes, kind, &self.found)
                    .map(|verified| At::Done(Box::new(Ok(verified))))
            }
        };
        self.at = match next {
            Ok(at) => at,
            Err(refusal) if refusal.fault.code == Code::SigBad && !self.fresh => {
                self.found = Signatures::default();
                self.fresh = true;
                At::Signature(SignatureName::Primary)
            }
            Err(refusal) => At::Done(Box::new(Err(refusal))),
        };
    }

    fn signature(&mut self, name: SignatureName, answer: Answer) -> Result<At, Refusal> {
        if let Answer::Body(bytes, kind) = answer {
            self.found.add(name, &bytes, kind);
            verify::signatures_look_right(&self.check, &self.found)?;
        }
        let signers = self.found.signers(&self.check.keys);
        if signers.len() >= self.check.keys.threshold() {
            return Ok(At::Manifest);
        }
        // The file of each of our keys in order, but not of one that signed already.
        let mut keys = self.check.keys.keys().iter().map(|key| key.id());
        if let SignatureName::Of(asked) = name {
            keys.by_ref().find(|id| *id == asked);
        }
        match keys.find(|id| !signers.contains(id)) {
            Some(id) => Ok(At::Signature(SignatureName::Of(id))),
            None => verify::signed(&self.check, &self.found).map(|()| At::Manifest),
        }
    }

    fn absent(&self) -> Refusal {
        Refusal::new(
            Rule::M1,
            Code::SourceStatus,
            format!("{} has no {MANIFEST}.", self.check.host),
            "Check that the release is complete on the mirror, or in the founder's release directory.",
        )
    }
}
