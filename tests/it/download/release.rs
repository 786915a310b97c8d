//! Whole releases, signed and served: what is accepted, and what a mirror cannot pass off.

use lab_founder::release::{AbInput, SecretKey, Spec, make, sign};
use stratum_join::upgrade::keys::{KeyRing, Owner};
use stratum_join::upgrade::manifest::Form;
use stratum_join::upgrade::running::RunningOs;
use stratum_join::upgrade::verify::{Check, Verified};
use stratum_join::upgrade::version::Floor;

use super::*;

/// Keys of an OS, and releases.
struct Maker {
    dir: TempDir,
}

impl Maker {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn release(&self, name: &str, sequence: u64, keys: &[SecretKey]) -> PathBuf {
        let input = |of: &str, size| {
            let path = self.dir.path().join(format!("{of}-{name}"));
            fs::write(&path, noise(&format!("{of}{name}"), size)).unwrap();
            path
        };
        let spec = Spec {
            ab: Some(AbInput {
                root: input("root", 2 * CHUNK + 3),
                fstype: "erofs".to_owned(),
                linux: input("linux", 1000),
                initrds: vec![input("initrd", 10)],
                cmdline: Vec::new(),
            }),
            ..Spec::named(name, sequence, "0.5.0")
        };
        let out = self.dir.path().join(format!("release-{name}"));
        make(&spec, &out).unwrap();
        if !keys.is_empty() {
            sign(&out, keys).unwrap();
        }
        out
    }

    fn os_keys(&self, keys: &[&SecretKey]) -> KeyRing {
        let dir = self.dir.path().join(format!("keys-{}", keys.len()));
        fs::create_dir_all(&dir).unwrap();
        for key in keys {
            fs::write(dir.join(format!("{}.pub", key.id())), key.public_text()).unwrap();
        }
        KeyRing::load_dir(&dir, Owner::Anybody).unwrap()
    }
}

fn check(keys: KeyRing, to: &str) -> Check {
    let os = RunningOs {
        release: "0.6.0".parse().unwrap(),
        sequence: 60,
        product: "stratum".to_owned(),
        arch: std::env::consts::ARCH.to_owned(),
    };
    Check {
        keys,
        floor: Floor::of(None, &os),
        os,
        to: Some(to.parse().unwrap()),
        form: Some(Form::Ab),
        host: String::new(),
        url: String::new(),
    }
}

fn key(n: u8) -> SecretKey {
    SecretKey::from_seed([n; 32], [n; 8])
}

fn find(mirror: &EvilMirror, check: Check) -> Result<Verified, UpgradeFault> {
    block_on(source(&settings(mirror)).unwrap().release(check))
}

#[test]
fn a_good_release_is_two_small_requests_and_then_its_files() {
    let maker = Maker::new();
    let release = maker.release("0.7.0", 70, &[key(1)]);
    let mirror = EvilMirror::of(&release, &[]).unwrap();
    let verified = find(&mirror, check(maker.os_keys(&[&key(1)]), "0.7.0")).unwrap();
    assert_eq!(mirror.seen().len(), 2);
    let wants: Vec<FileEntry> = verified.wanted(Form::Ab).into_iter().cloned().collect();
    let lab = Lab { dir: tempfile::tempdir().unwrap(), wants };
    lab.fetch_and_look(&mirror, STEADY);
}

#[test]
fn an_iso_from_before_a_key_rotation_learns_it_from_two_small_requests() {
    let maker = Maker::new();
    let release = maker.release("0.7.0", 70, &[key(2)]);
    let mirror = EvilMirror::of(&release, &[]).unwrap();
    let fault = find(&mirror, check(maker.os_keys(&[&key(1)]), "0.7.0")).unwrap_err();
    says(&fault, Code::KeyUnknown, "This ISO is from before a release-signing key rotation", "newer ISO");
    assert_eq!(mirror.seen().len(), 2);
    assert!(mirror.sent() < 4096);
}

#[test]
fn a_release_by_the_old_and_the_new_key_is_accepted_with_either() {
    let maker = Maker::new();
    let release = maker.release("0.7.0", 70, &[key(1), key(2)]);
    let mirror = EvilMirror::of(&release, &[]).unwrap();
    for n in [1, 2] {
        let keys = maker.dir.path().join("one");
        let _ = fs::remove_dir_all(&keys);
        fs::create_dir(&keys).unwrap();
        fs::write(keys.join("k.pub"), key(n).public_text()).unwrap();
        let ring = KeyRing::load_dir(&keys, Owner::Anybody).unwrap();
        assert!(find(&mirror, check(ring, "0.7.0")).is_ok(), "{n}");
    }
}

#[test]
fn a_release_of_another_day_is_not_the_one_that_was_asked_for() {
    let maker = Maker::new();
    let old = maker.release("0.5.5", 55, &[key(1)]);
    let mirror = EvilMirror::of(&old, &[]).unwrap();
    let keys = || maker.os_keys(&[&key(1)]);
    let fault = find(&mirror, check(keys(), "0.7.0")).unwrap_err();
    says(&fault, Code::WrongRelease, "0.5.5", "0.7.0");
    // And named by a cluster that was rolled back, it is older than what runs.
    let fault = find(&mirror, check(keys(), "0.5.5")).unwrap_err();
    says(&fault, Code::Downgrade, "0.5.5 is older than 0.6.0", "0.6.0");
}

#[test]
fn the_files_of_one_release_under_the_manifest_of_another_do_not_pass() {
    let maker = Maker::new();
    let good = maker.release("0.7.0", 70, &[key(1)]);
    let other = maker.release("0.8.0", 80, &[key(1)]);
    let of = |dir: &Path| -> Vec<FileEntry> {
        let mirror = EvilMirror::of(dir, &[]).unwrap();
        let to = if dir == good { "0.7.0" } else { "0.8.0" };
        let verified = find(&mirror, check(maker.os_keys(&[&key(1)]), to)).unwrap();
        verified.wanted(Form::Ab).into_iter().cloned().collect()
    };
    let (wants, others) = (of(&good), of(&other));
    for (want, other_file) in wants.iter().zip(&others) {
        let _ = other_file;
        let theirs = others.iter().find(|o| o.size == want.size).unwrap();
        fs::copy(other.join(theirs.path.as_str()), good.join(want.path.as_str())).unwrap();
    }
    let lab = Lab { dir: tempfile::tempdir().unwrap(), wants };
    let fault = lab.fetch(&EvilMirror::of(&good, &[]).unwrap(), FAST).unwrap_err();
    says(&fault, Code::Hash, "does not match the signed manifest", "Repair the mirror.");
    assert_eq!(fs::read_dir(lab.stage().join("blobs")).unwrap().count(), 0);
}

#[test]
fn a_manifest_that_was_replaced_between_two_requests_is_fetched_again_past_caches() {
    let maker = Maker::new();
    let release = maker.release("0.7.0", 70, &[key(1)]);
    let keys = || maker.os_keys(&[&key(1)]);
    let mirror =
        EvilMirror::of(&release, &[Fault::times(MirrorFault::WrongByte(9), 1).at("manifest.json")]).unwrap();
    // The first answer is a signature with a changed comment; the next ones are right.
    assert!(find(&mirror, check(keys(), "0.7.0")).is_ok());
    let mirror = EvilMirror::of(&release, &[Fault::always(MirrorFault::WrongByte(600))]).unwrap();
    let fault = find(&mirror, check(keys(), "0.7.0")).unwrap_err();
    says(&fault, Code::SigBad, "The manifest is damaged or was changed", "treat the mirror as hostile");
    let fresh = |seen: &lab_founder::mirror::Seen| seen.headers.iter().any(|name| name == "cache-control");
    assert_eq!(mirror.seen().iter().filter(|seen| fresh(seen)).count(), 2);
}

#[test]
fn what_is_no_manifest_is_no_release() {
    let maker = Maker::new();
    let release = maker.release("0.7.0", 70, &[key(1)]);
    for fault in [
        MirrorFault::Html,
        MirrorFault::Endless,
        MirrorFault::Empty,
        MirrorFault::Gzip,
        MirrorFault::Status(403),
    ] {
        let mirror = EvilMirror::of(&release, &[Fault::always(fault.clone())]).unwrap();
        let found = find(&mirror, check(maker.os_keys(&[&key(1)]), "0.7.0")).unwrap_err();
        says(
            &found,
            Code::NotARelease,
            "did not answer with a Stratum release",
            "from another machine; check proxies",
        );
    }
}

#[test]
fn a_manifest_behind_trouble_that_passes_is_fetched_and_one_behind_lasting_trouble_is_said() {
    let maker = Maker::new();
    let release = maker.release("0.7.0", 70, &[key(1)]);
    let keys = || maker.os_keys(&[&key(1)]);
    let passing = [Fault::times(MirrorFault::Reset(3), 1), Fault::times(MirrorFault::Status(500), 1)];
    let mirror = EvilMirror::of(&release, &passing).unwrap();
    assert!(find(&mirror, check(keys(), "0.7.0")).is_ok());
    let mirror = EvilMirror::of(&release, &[Fault::always(MirrorFault::Status(500))]).unwrap();
    let fault = find(&mirror, check(keys(), "0.7.0")).unwrap_err();
    says(
        &fault,
        Code::SourceStatus,
        "answered 500 for payload/manifest.json.minisig",
        "complete on the mirror",
    );
}
