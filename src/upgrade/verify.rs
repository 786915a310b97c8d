//! The one check of a release, in its one order: M1 to M21 (docs/upgrade.md, "What is checked").
//!
//! Touches nothing and asks no clock. Agent, helper and the tools of release engineers call [`verify`]; only it makes a [`Verified`], so the
//! type is the proof.

use super::fault::Code;
use super::keys::{KeyId, KeyRing};
use super::manifest::{Form, MANIFEST, MAX_MANIFEST, Manifest, Statement};
use super::refusal::{Refusal, Rule};
use super::running::RunningOs;
use super::signature::{SignatureName, Signatures};
use super::version::{self, Floor, Version};
use super::{Digest, FileEntry};

/// What a release is checked against, and whom to name when it does not pass.
#[derive(Debug, Clone)]
pub struct Check {
    /// The keys of the running OS.
    pub keys: KeyRing,
    /// What runs here.
    pub os: RunningOs,
    /// Below which nothing is installed.
    pub floor: Floor,
    /// What the cluster asked for. The helper is told nothing, and takes any release that is signed and newer.
    pub to: Option<Version>,
    /// How this machine installs; `None` when nothing is to be installed.
    pub form: Option<Form>,
    /// Who serves the release, in the words of people: a host, `the founder`, a directory.
    pub host: String,
    /// Where its directory is, without a slash at the end.
    pub url: String,
}

/// What an answer was, besides its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A file, or an answer that says nothing else.
    File,
    /// `Content-Type: text/html`.
    Html,
}

/// A release that kept every rule: signed by enough of our keys, the one that was asked for, newer than what runs here.
#[derive(Debug, Clone)]
pub struct Verified {
    manifest: Manifest,
    sha256: Digest,
    bytes: Vec<u8>,
    signatures: Vec<(KeyId, Vec<u8>)>,
}

/// M1 to M21. `signatures` are those that were found; of the files nothing is read.
pub fn verify(
    check: &Check,
    manifest: &[u8],
    kind: Kind,
    signatures: &Signatures,
) -> Result<Verified, Refusal> {
    looks_right(check, manifest, kind, signatures)?;
    signed(check, signatures)?;
    let proven =
        signatures.prove(&check.keys, manifest).map_err(|id| bad(check, Rule::M4, &id.to_string()))?;
    let statement = Statement::parse(manifest)?;
    let about = statement.about();
    version::fits(about, &check.os)?;
    let comment = about.trusted_comment();
    if let Some(other) = proven.iter().find(|proven| proven.trusted_comment != comment) {
        let why = format!("made for `{}`", other.trusted_comment);
        return Err(bad(check, Rule::M9, &why));
    }
    version::follows(about, &check.os, &check.floor, check.to.as_ref())?;
    let sha256 = Digest::of(manifest);
    let manifest_bytes = manifest.to_vec();
    let manifest = statement.manifest()?;
    if let Some(form) = check.form.filter(|form| !manifest.has(*form)) {
        return Err(no_form(&manifest, form));
    }
    let mut kept: Vec<(KeyId, Vec<u8>)> = Vec::new();
    for proven in proven {
        if !kept.iter().any(|(id, _)| *id == proven.id) {
            kept.push((proven.id, proven.bytes.to_vec()));
        }
    }
    Ok(Verified { manifest, sha256, bytes: manifest_bytes, signatures: kept })
}

// === impl Verified ===

impl Verified {
    /// What it says.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Its identity everywhere: the digest of the manifest's bytes.
    pub fn sha256(&self) -> Digest {
        self.sha256
    }

    /// The manifest as it was signed.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// A signature of each of our keys that signed, as it was found.
    pub fn signatures(&self) -> &[(KeyId, Vec<u8>)] {
        &self.signatures
    }

    /// The files that this machine needs.
    pub fn wanted(&self, form: Form) -> Vec<&FileEntry> {
        self.manifest.wanted(form)
    }
}

// === impl Check ===

impl Check {
    /// The release in a sentence: its name when one was asked for.
    fn release(&self) -> String {
        self.to.as_ref().map_or_else(|| "the release".to_owned(), |to| format!("release {to}"))
    }
}

/// M1 and M2 of the signatures alone.
pub(super) fn signatures_look_right(check: &Check, signatures: &Signatures) -> Result<(), Refusal> {
    match signatures.odd() {
        Some(odd) => Err(no_release(check, odd.rule, &odd.name.path(), odd.why)),
        None => Ok(()),
    }
}

/// M3: enough of our keys say that they signed.
pub(super) fn signed(check: &Check, signatures: &Signatures) -> Result<(), Refusal> {
    let (keys, release) = (&check.keys, check.release());
    let signers = signatures.signers(keys).len();
    if signers >= keys.threshold() {
        return Ok(());
    }
    let refuse = |code, what: String, todo: String| Err(Refusal::new(Rule::M3, code, what, todo));
    if signers > 0 {
        return refuse(
            Code::KeyUnknown,
            format!(
                "{signers} of the keys on this ISO signed {release}, and it asks for {}.",
                keys.threshold()
            ),
            format!("Sign {release} with more keys, or install from a newer ISO. Retrying does not help."),
        );
    }
    let strangers: Vec<String> = signatures.strangers(keys).iter().map(KeyId::to_string).collect();
    if !strangers.is_empty() {
        let (s, are) = if strangers.len() == 1 { ("", "is") } else { ("s", "are") };
        return refuse(
            Code::KeyUnknown,
            format!(
                "Release key{s} {} {are} not on this ISO ({}). This ISO is from before a release-signing key rotation.",
                strangers.join(", "),
                check.os.release
            ),
            format!("Install from a newer ISO, that of {release}. Retrying does not help."),
        );
    }
    if signatures.any_unreadable() {
        return Err(bad(check, Rule::M3, "not one that minisign made"));
    }
    refuse(
        Code::SourceStatus,
        format!("{} has no signature of {release} ({}).", check.host, SignatureName::Primary.path()),
        format!("Sign {release} where it was made and publish it again."),
    )
}

/// M1, then M2, of both.
fn looks_right(check: &Check, manifest: &[u8], kind: Kind, signatures: &Signatures) -> Result<(), Refusal> {
    let long = match manifest.len() {
        0 => Some("it is empty"),
        n if n > MAX_MANIFEST => Some("it is too long"),
        _ => None,
    };
    if let Some(why) = long {
        return Err(no_release(check, Rule::M1, MANIFEST, why));
    }
    if signatures.odd().is_some_and(|odd| odd.rule == Rule::M1) {
        signatures_look_right(check, signatures)?;
    }
    // The spaces of JSON.
    let first = manifest.iter().find(|b| !b" \t\r\n".contains(b));
    if kind == Kind::Html || first != Some(&b'{') {
        return Err(no_release(check, Rule::M2, MANIFEST, "it is not a manifest"));
    }
    signatures_look_right(check, signatures)
}

fn no_release(check: &Check, rule: Rule, path: &str, why: &str) -> Refusal {
    Refusal::new(
        rule,
        Code::NotARelease,
        format!(
            "{} did not answer with a Stratum release (a login page or a proxy?): {path}: {why}.",
            check.host
        ),
        format!("Open {}/{path} from another machine; check proxies.", check.url),
    )
}

/// M4 and M9.
fn bad(check: &Check, rule: Rule, whose: &str) -> Refusal {
    Refusal::new(
        rule,
        Code::SigBad,
        format!(
            "The signature of {} is wrong ({whose}). The manifest is damaged or was changed.",
            check.release()
        ),
        "Publish the release again. If it persists, treat the mirror as hostile.",
    )
}

/// M21.
fn no_form(manifest: &Manifest, form: Form) -> Refusal {
    let release = &manifest.about.release;
    let lacks = match form {
        Form::Ab => "an image for two slots (os.ab)",
        Form::Oci => "an image in the OCI form (os.oci)",
    };
    Refusal::new(
        Rule::M21,
        Code::Unsupported,
        format!("This machine installs {lacks}, and release {release} has none."),
        format!("Install from the {release} ISO."),
    )
}
