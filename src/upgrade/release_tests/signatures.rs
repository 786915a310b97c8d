//! Who may sign: rotation, thresholds, and everything that must not count.

use lab_founder::release::legacy_text;

use super::*;

/// The example signed by these keys, each in the file of its number, the first also as the primary one.
fn signed(letters: &[u8]) -> Signatures {
    let mut all = Signatures::default();
    for letter in letters {
        let key = key(*letter);
        let text = sign_text(&key, EXAMPLE, COMMENT);
        if *letter == letters[0] {
            all.add(SignatureName::Primary, text.as_bytes(), Kind::File);
        }
        all.add(SignatureName::Of(id(*letter)), text.as_bytes(), Kind::File);
    }
    all
}

fn judge_with(keys: KeyRing, signatures: &Signatures) -> Result<Verified, Refusal> {
    verify(&machine(keys), EXAMPLE, Kind::File, signatures)
}

fn refused(keys: KeyRing, signatures: &Signatures) -> (Rule, Code) {
    let refusal = judge_with(keys, signatures).unwrap_err();
    reads_well(&refusal);
    (refusal.rule, refusal.fault.code)
}

fn primary(text: &str) -> Signatures {
    found(&[(SignatureName::Primary, text.as_bytes())])
}

#[test]
fn a_release_is_taken_by_every_os_that_knows_one_of_its_keys_and_by_no_other() {
    for os in [&b"A"[..], b"AB", b"B"] {
        for release in [&b"A"[..], b"AB", b"B"] {
            let common = os.iter().any(|letter| release.contains(letter));
            match judge_with(ring(os, 1), &signed(release)) {
                Ok(verified) => {
                    assert!(common, "{os:?} {release:?}");
                    assert!(verified.signatures().iter().all(|(by, _)| os.iter().any(|l| id(*l) == *by)));
                }
                Err(refusal) => {
                    assert!(!common, "{os:?} {release:?}");
                    assert_eq!(refusal.fault.code, Code::KeyUnknown);
                    let what = refusal.fault.what.as_str();
                    assert!(what.contains(&id(release[0]).to_string()) && what.contains("0.6.0"), "{what}");
                    assert!(refusal.fault.todo.as_str().contains("newer ISO"));
                }
            }
        }
    }
}

#[test]
fn as_many_different_keys_must_have_signed_as_the_os_asks_for() {
    assert!(judge_with(ring(b"AB", 2), &signed(b"AB")).is_ok());
    assert!(judge_with(ring(b"ABC", 2), &signed(b"CB")).is_ok());
    assert_eq!(refused(ring(b"AB", 2), &signed(b"A")), (Rule::M3, Code::KeyUnknown));
    assert_eq!(refused(ring(b"AB", 2), &signed(b"AC")), (Rule::M3, Code::KeyUnknown));
    assert_eq!(refused(ring(b"ABC", 3), &signed(b"AB")), (Rule::M3, Code::KeyUnknown));
}

#[test]
fn one_key_counts_once_however_often_it_signed() {
    let mut signatures = signed(b"A");
    let again = sign_text(&key(b'A'), EXAMPLE, COMMENT).replace("signature from", "another signature from");
    signatures.add(SignatureName::Of(id(b'B')), again.as_bytes(), Kind::File);
    signatures.add(SignatureName::Primary, again.as_bytes(), Kind::File);
    assert_eq!(refused(ring(b"AB", 2), &signatures), (Rule::M3, Code::KeyUnknown));
}

#[test]
fn a_signature_in_the_file_of_another_key_counts_for_nothing() {
    let text = sign_text(&key(b'A'), EXAMPLE, COMMENT);
    let signatures = found(&[(SignatureName::Of(id(b'B')), text.as_bytes())]);
    assert_eq!(refused(ring(b"B", 1), &signatures), (Rule::M3, Code::KeyUnknown));
    let refusal = judge_with(ring(b"A", 1), &signatures).unwrap_err();
    assert_eq!(refusal.rule, Rule::M3);
}

#[test]
fn a_key_that_only_says_it_is_ours_is_not() {
    let impostor = SecretKey::from_seed([9; 32], [b'A'; 8]);
    let signatures = primary(&sign_text(&impostor, EXAMPLE, COMMENT));
    assert_eq!(refused(ring(b"A", 1), &signatures), (Rule::M4, Code::SigBad));
}

/// minisign -l signs the text itself: the same key could be made to sign a text that is somebody's hash.
#[test]
fn a_signature_of_the_old_kind_is_refused() {
    let legacy = legacy_text(&key(b'A'), EXAMPLE, COMMENT);
    assert_eq!(refused(ring(b"A", 1), &primary(&legacy)), (Rule::M4, Code::SigBad));
}

#[test]
fn a_signature_over_other_bytes_is_refused() {
    let other = sign_text(&key(b'A'), b"{}", COMMENT);
    assert_eq!(refused(ring(b"A", 1), &primary(&other)), (Rule::M4, Code::SigBad));
    // One good signature makes no bad one good.
    let mut signatures = signed(b"B");
    signatures.add(SignatureName::Of(id(b'A')), other.as_bytes(), Kind::File);
    assert_eq!(refused(ring(b"AB", 1), &signatures), (Rule::M4, Code::SigBad));
}

#[test]
fn a_comment_of_another_release_is_refused_signed_or_not() {
    let comment = COMMENT.replace("0.7.0", "0.8.0");
    let signed = sign_text(&key(b'A'), EXAMPLE, &comment);
    assert_eq!(refused(ring(b"A", 1), &primary(&signed)), (Rule::M9, Code::SigBad));
    let swapped = sign_text(&key(b'A'), EXAMPLE, COMMENT).replace("0.7.0", "0.8.0");
    assert_eq!(refused(ring(b"A", 1), &primary(&swapped)), (Rule::M4, Code::SigBad));
    for comment in ["", "timestamp:1\tfile:manifest.json", &format!("{COMMENT} "), &format!(" {COMMENT}")] {
        let signed = sign_text(&key(b'A'), EXAMPLE, comment);
        assert_eq!(refused(ring(b"A", 1), &primary(&signed)), (Rule::M9, Code::SigBad), "{comment:?}");
    }
}

#[test]
fn what_is_no_signature_is_told_apart_from_an_unknown_key() {
    let long = "x".repeat(16 * 1024 + 1);
    for (text, rule, code) in [
        ("", Rule::M1, Code::NotARelease),
        (&*long, Rule::M1, Code::NotARelease),
        ("\n<html>log in</html>", Rule::M2, Code::NotARelease),
        ("not a signature\n", Rule::M3, Code::SigBad),
        ("untrusted comment: x\nAAAA\ntrusted comment: y\nAAAA\n", Rule::M3, Code::SigBad),
    ] {
        assert_eq!(refused(ring(b"A", 1), &primary(text)), (rule, code), "{text:.20}");
    }
    assert_eq!(refused(ring(b"A", 1), &Signatures::default()), (Rule::M3, Code::SourceStatus));
    let mut page = Signatures::default();
    page.add(SignatureName::Primary, sign_text(&key(b'A'), EXAMPLE, COMMENT).as_bytes(), Kind::Html);
    assert_eq!(refused(ring(b"A", 1), &page), (Rule::M2, Code::NotARelease));
}

/// Only the comment that minisign itself calls untrusted may be anything.
#[test]
fn no_byte_of_a_signature_can_be_changed() {
    let text = sign_text(&key(b'A'), EXAMPLE, COMMENT);
    let first = text.find('\n').unwrap();
    let machine = machine(ring(b"A", 1));
    let mut bytes = text.into_bytes();
    for at in first..bytes.len() - 1 {
        for flip in [0x01, 0x20, 0x80] {
            bytes[at] ^= flip;
            let signatures = found(&[(SignatureName::Primary, &bytes)]);
            assert!(verify(&machine, EXAMPLE, Kind::File, &signatures).is_err(), "byte {at} with {flip:#x}");
            bytes[at] ^= flip;
        }
    }
}
