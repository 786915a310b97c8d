//! Releases that are right but for one thing, or two, made in code from the committed one. What signs them is the lab founder's maker; what
//! judges them is the verifier that ships.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests; their files need not survive a power cut"
)]

mod example;
mod keys;
mod order;
mod rules;
mod search;
mod signatures;
mod versions;

use std::collections::BTreeMap;
use std::path::Path;

use lab_founder::release::{SecretKey, sign_text};
use serde_json::Value;
use tempfile::TempDir;

use super::fault::Code;
use super::keys::{KeyId, KeyRing, Owner};
use super::manifest::Form;
use super::refusal::{Refusal, Rule};
use super::running::RunningOs;
use super::signature::{SignatureName, Signatures};
use super::verify::{Check, Kind, Verified, verify};
use super::version::Floor;

const EXAMPLE: &[u8] = include_bytes!("../../../tests/fixtures/manifests/ok/manifest.json");
const EXAMPLE_SIGNATURE: &[u8] = include_bytes!("../../../tests/fixtures/manifests/ok/manifest.json.minisig");
const COMMENT: &str = "stratum-release/1 product=stratum release=0.7.0 arch=x86_64";

/// The key of a letter: always the same.
fn key(letter: u8) -> SecretKey {
    SecretKey::from_seed([letter; 32], [letter; 8])
}

/// Its number. Through its bytes: to the maker this crate is another one than the one under test.
fn id(letter: u8) -> KeyId {
    KeyId::of_bytes(key(letter).id().bytes())
}

/// An OS with the keys of these letters.
fn ring(letters: &[u8], threshold: usize) -> KeyRing {
    let dir = TempDir::new().unwrap();
    for letter in letters {
        let name = format!("{}.pub", char::from(*letter));
        std::fs::write(dir.path().join(name), key(*letter).public_text()).unwrap();
    }
    std::fs::write(dir.path().join("threshold"), format!("{threshold}\n")).unwrap();
    KeyRing::load_dir(dir.path(), Owner::Anybody).unwrap()
}

fn os(release: &str, sequence: u64) -> RunningOs {
    RunningOs {
        release: release.parse().unwrap(),
        sequence,
        product: "stratum".into(),
        arch: "x86_64".into(),
    }
}

/// A machine of 0.6.0 that was asked to go to 0.7.0.
fn machine(keys: KeyRing) -> Check {
    let os = os("0.6.0", 60);
    Check {
        keys,
        floor: Floor::of(None, &os),
        os,
        to: Some("0.7.0".parse().unwrap()),
        form: Some(Form::Ab),
        host: "mirror.example".into(),
        url: "https://mirror.example/stratum/0.7.0".into(),
    }
}

fn found(signatures: &[(SignatureName, &[u8])]) -> Signatures {
    let mut all = Signatures::default();
    for (name, bytes) in signatures {
        all.add(*name, bytes, Kind::File);
    }
    all
}

fn example() -> Value {
    serde_json::from_slice(EXAMPLE).unwrap()
}

/// The comment that belongs to what the text says of itself, when it can be read.
fn comment_of(text: &str) -> String {
    let json: Value = serde_json::from_str(text).unwrap_or_default();
    let field = |name: &str| json[name].as_str().unwrap_or_default().to_owned();
    format!(
        "stratum-release/1 product={} release={} arch={}",
        field("product"),
        field("release"),
        field("arch")
    )
}

/// Signed by A and given to a machine that knows A.
fn judge(text: &str) -> Result<Verified, Refusal> {
    let signature = sign_text(&key(b'A'), text.as_bytes(), &comment_of(text));
    let signatures = found(&[(SignatureName::Primary, signature.as_bytes())]);
    verify(&machine(ring(b"A", 1)), text.as_bytes(), Kind::File, &signatures)
}

/// Two whole sentences without anything left to fill in.
fn reads_well(refusal: &Refusal) {
    for text in [refusal.fault.what.as_str(), refusal.fault.todo.as_str()] {
        // What is cut ends otherwise.
        let whole = text.ends_with('.') && !text.contains('{');
        assert!(whole, "{text}");
    }
}
