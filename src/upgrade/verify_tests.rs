//! The signature rules on the committed fixture, which Debian's minisign signed with a key that was thrown away.

use std::path::Path;

use super::super::keys::{KeyRing, Owner};
use super::*;

const MANIFEST_BYTES: &[u8] = include_bytes!("../../tests/fixtures/manifests/ok/manifest.json");
const SIGNATURE: &[u8] = include_bytes!("../../tests/fixtures/manifests/ok/manifest.json.minisig");

fn check() -> Check {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/manifests/ok");
    let text = "VERSION_ID=0.6.0\nSTRATUM_SEQUENCE=60\n";
    let os = RunningOs { arch: "x86_64".into(), ..RunningOs::of_os_release(text).unwrap() };
    Check {
        keys: KeyRing::load_dir(&dir, Owner::Anybody).unwrap(),
        floor: Floor::of(None, &os),
        os,
        to: Some("0.7.0".parse().unwrap()),
        form: Some(Form::Ab),
        host: "mirror.example".into(),
        url: "https://mirror.example/stratum/0.7.0".into(),
    }
}

fn signatures(bytes: &[u8]) -> Signatures {
    let mut found = Signatures::default();
    found.add(SignatureName::Primary, bytes, Kind::File);
    found
}

#[test]
fn the_example_of_the_documentation_is_accepted_as_it_is_committed() {
    let digest = "f97380080766a0e7a1aaaca09614974759bd337c8f09510dc6dfc9b10e64f765";
    let verified = verify(&check(), MANIFEST_BYTES, Kind::File, &signatures(SIGNATURE)).unwrap();
    assert_eq!(verified.sha256().to_string(), digest);
    assert_eq!(verified.bytes(), MANIFEST_BYTES);
    assert_eq!(verified.manifest().about.release.as_str(), "0.7.0");
    assert_eq!(verified.signatures().len(), 1);
    assert_eq!(verified.signatures()[0].0.to_string(), "A5988A4BC8B1D6D2");
    let wanted: Vec<&str> = verified.wanted(Form::Ab).iter().map(|file| file.path.as_str()).collect();
    assert_eq!(wanted.len(), 4);
    assert_eq!(wanted[3], "sysext/stratum-ceph.raw");
    assert_eq!(verified.wanted(Form::Ab)[2].chunks.len(), 2);
}

/// Also the bytes that JSON would pass over.
#[test]
fn no_byte_of_a_signed_manifest_can_be_changed() {
    let (check, signatures) = (check(), signatures(SIGNATURE));
    let mut bytes = MANIFEST_BYTES.to_vec();
    for at in 0..bytes.len() {
        for flip in [0x01, 0x20, 0x80] {
            bytes[at] ^= flip;
            let refusal = verify(&check, &bytes, Kind::File, &signatures).unwrap_err();
            // Without its first brace it does not look like a manifest.
            let expected = if at == 0 { (Rule::M2, Code::NotARelease) } else { (Rule::M4, Code::SigBad) };
            assert_eq!((refusal.rule, refusal.fault.code), expected, "byte {at} with {flip:#x}");
            bytes[at] ^= flip;
        }
    }
    for cut in [1, bytes.len() - 1] {
        assert_eq!(
            verify(&check, &bytes[..cut], Kind::File, &signatures).unwrap_err().fault.code,
            Code::SigBad
        );
    }
    bytes.push(b'\n');
    assert_eq!(verify(&check, &bytes, Kind::File, &signatures).unwrap_err().fault.code, Code::SigBad);
}
