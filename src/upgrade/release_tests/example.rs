//! The committed example, which Debian's minisign signed with a key that was thrown away.

use super::*;

fn check() -> Check {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/manifests/ok");
    machine(KeyRing::load_dir(&dir, Owner::Anybody).unwrap())
}

fn signatures() -> Signatures {
    found(&[(SignatureName::Primary, EXAMPLE_SIGNATURE)])
}

#[test]
fn the_example_of_the_documentation_is_accepted_as_it_is_committed() {
    let digest = "f97380080766a0e7a1aaaca09614974759bd337c8f09510dc6dfc9b10e64f765";
    let verified = verify(&check(), EXAMPLE, Kind::File, &signatures()).unwrap();
    assert_eq!(verified.sha256().to_string(), digest);
    assert_eq!(verified.bytes(), EXAMPLE);
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
    let (check, signatures) = (check(), signatures());
    let mut bytes = EXAMPLE.to_vec();
    for at in 0..bytes.len() {
        let flip = 1 << (at % 8);
        bytes[at] ^= flip;
        let refusal = verify(&check, &bytes, Kind::File, &signatures).unwrap_err();
        // Without its first brace it does not look like a manifest.
        let expected = if at == 0 { (Rule::M2, Code::NotARelease) } else { (Rule::M4, Code::SigBad) };
        assert_eq!((refusal.rule, refusal.fault.code), expected, "byte {at} with {flip:#x}");
        bytes[at] ^= flip;
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
