//! The parsers of what a source of releases says, each with what must hold whatever the bytes are: for the targets in `fuzz/` and the test that
//! replays their corpus. Not for users of this crate.
//!
//! May touch: nothing. Must never: accept less than the agent itself does.

use std::sync::LazyLock;

use crate::upgrade::CHUNK;
use crate::upgrade::keys::{KeyRing, ReleaseKey};
use crate::upgrade::manifest::{Form, MAX_FILES, MAX_SIZE, Manifest};
use crate::upgrade::plan::{Head, Meaning, meaning};
use crate::upgrade::refusal::Rule;
use crate::upgrade::signature::{SignatureFile, SignatureName, Signatures};
use crate::upgrade::source::ContentRange;
use crate::upgrade::verify::Kind;

/// A name and what it does with bytes.
pub type Target = (&'static str, fn(&[u8]));

/// All of them. Each panics when something does not hold.
pub const TARGETS: &[Target] = &[
    ("release_manifest", release_manifest),
    ("release_signature", release_signature),
    ("content_range", content_range),
];

/// The committed example.
const MANIFEST: &[u8] = include_bytes!("../tests/fixtures/manifests/ok/manifest.json");
const SIGNATURE: &str = include_str!("../tests/fixtures/manifests/ok/manifest.json.minisig");
const KEY: &[u8] = include_bytes!("../tests/fixtures/manifests/ok/release.pub");

static RING: LazyLock<KeyRing> =
    LazyLock::new(|| KeyRing::of_one(ReleaseKey::parse(KEY).expect("the committed key is one")));

/// A manifest that need not be signed.
///
/// # Panics
/// What is accepted breaks a rule that can be said in one line, or what is refused says too little.
pub fn release_manifest(bytes: &[u8]) {
    let manifest = match Manifest::read(bytes) {
        Ok(manifest) => manifest,
        Err(refusal) => {
            assert!((Rule::M5..=Rule::M20).contains(&refusal.rule));
            assert!(refusal.fault.what.as_str().contains(&format!("rule {}", refusal.rule)));
            return;
        }
    };
    assert!((1..=MAX_FILES).contains(&manifest.files.len()));
    assert!(manifest.files.is_sorted_by(|a, b| a.path < b.path));
    let sizes: Vec<u64> = manifest.files.iter().map(|file| file.size).collect();
    assert!(sizes.iter().all(|size| *size > 0) && sizes.iter().sum::<u64>() <= MAX_SIZE);
    for file in &manifest.files {
        let path = file.path.as_str();
        assert!(path.starts_with("os/") || path.starts_with("sysext/"));
        assert!(path.split('/').all(|part| !part.is_empty() && !part.starts_with('.')));
        assert_eq!(file.chunks.len() as u64, file.size.div_ceil(CHUNK));
        assert_eq!((0..file.chunks.len()).map(|i| file.chunk_len(i)).sum::<u64>(), file.size);
        assert!(file.size > CHUNK || file.chunks.first() == Some(&file.sha256));
        assert_eq!(manifest.file(&file.path), Some(file));
    }
    assert!(manifest.has(Form::Ab) || manifest.has(Form::Oci));
    let required = manifest.sysexts.iter().filter(|ext| ext.required).count();
    for form in [Form::Ab, Form::Oci] {
        let wanted = manifest.wanted(form);
        assert!(wanted.is_sorted_by(|a, b| a.path < b.path));
        assert!(!manifest.has(form) || wanted.len() >= 2);
        assert!(manifest.has(form) || wanted.len() <= required);
    }
    // Two readers of one text.
    assert!(serde_json::from_slice::<serde_json::Value>(bytes).is_ok());
}

/// A signature or a public key.
///
/// # Panics
/// A signature holds for the committed manifest that is not the one that its key made.
pub fn release_signature(bytes: &[u8]) {
    if let Ok(key) = ReleaseKey::parse(bytes) {
        assert_eq!(key.id().to_string().parse(), Ok(key.id()));
    }
    let parsed = SignatureFile::parse(SignatureName::Primary, bytes);
    let mut found = Signatures::default();
    found.add(SignatureName::Primary, bytes, Kind::File);
    let (ours, others) = (found.signers(&RING).len(), found.strangers(&RING).len());
    assert!(ours.saturating_add(others) <= usize::from(parsed.is_ok()));
    if found.prove(&RING, MANIFEST).is_ok_and(|proven| !proven.is_empty()) {
        // All but the comment that nobody has to trust.
        let lines = |text: &str| text.lines().skip(1).take(3).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(lines(&String::from_utf8_lossy(bytes)), lines(SIGNATURE));
    }
}

/// A `Content-Range`, and what an answer with it means.
///
/// # Panics
/// A byte would be put where it does not belong.
pub fn content_range(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(range) = text.parse::<ContentRange>() else { return };
    let written = match range {
        ContentRange::Bytes { first, last, total } => {
            assert!(first <= last && total.is_none_or(|total| last < total));
            format!("bytes {first}-{last}/{}", total.map_or("*".to_owned(), |total| total.to_string()))
        }
        ContentRange::None { total } => format!("bytes */{total}"),
    };
    assert_eq!(written.parse(), Ok(range));
    for (asked, size) in [((0, 0), 1), ((CHUNK, 2 * CHUNK - 1), 2 * CHUNK), ((4, 9), 1 << 40)] {
        let head = Head { status: 206, range: Some(range), ..Head::default() };
        if let Meaning::Body { at } = meaning(&head, Some(asked), size) {
            let ContentRange::Bytes { first, last, total } = range else { panic!("bytes of no range") };
            assert!(at == first && first <= asked.0 && asked.0 <= last && last < size);
            assert!(total.is_none_or(|total| total == size));
        }
        assert!(!matches!(meaning(&head, None, size), Meaning::Body { .. }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_input_of_the_corpus_keeps_what_its_target_promises() {
        let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
        for (name, target) in TARGETS {
            let mut inputs = 0;
            for entry in std::fs::read_dir(corpus.join(name)).unwrap() {
                let path = entry.unwrap().path();
                println!("{}", path.display());
                target(&std::fs::read(path).unwrap());
                inputs += 1;
            }
            assert!(inputs > 0, "{name} has no input");
        }
    }

    #[test]
    fn the_committed_example_is_read_by_both() {
        assert!(Manifest::read(MANIFEST).is_ok());
        let mut found = Signatures::default();
        found.add(SignatureName::Primary, SIGNATURE.as_bytes(), Kind::File);
        assert_eq!(found.prove(&RING, MANIFEST).map(|proven| proven.len()), Ok(1));
    }
}
