//! Whole releases, signed and served: what is accepted, and what a mirror cannot pass off.

use lab_founder::release::{AbInput, SecretKey, Spec, make, sign};
use stratum_join::upgrade::keys::{KeyRing, Owner};
use stratum_join::upgrade::manifest::Form;
use stratum_join::upgrade::running::RunningOs;
use stratum_join::upgrade::verify::{Check, Verified};
use stratum_join::upgrade::version::Floor;

use super::*;

/// Keys of an OS, and releases.
pub(super) struct Maker {
    dir: TempDir,
}

impl Maker {
    pub(super) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(super) fn release(&self, name: &str, sequence: u64, keys: &[SecretKey]) -> PathBuf {
        self.release_as(name, keys, Spec::named(name, sequence, "0.5.0"))
    }

    /// The same with another head.
    pub(super) fn release_as(&self, name: &str, keys: &[SecretKey], spec: Spec) -> PathBuf {
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
            ..spec
        };
        let out = self.dir.path().join(format!("release-{name}"));
        make(&spec, &out).unwrap();
        if !keys.is_empty() {
            sign(&out, keys).unwrap();
        }
        out
    }

    pub(super) fn os_keys(&self, keys: &[&SecretKey]) -> KeyRing {
        self.os_keys_of(keys, 1)
    }

    /// An OS that asks for that many signatures.
    pub(super) fn os_keys_of(&self, keys: &[&SecretKey], threshold: usize) -> KeyRing {
        let dir = self.at("os-keys");
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).unwrap();
        for key in keys {
            fs::write(dir.join(format!("{}.pub", key.id())), key.public_text()).unwrap();
        }
        fs::write(dir.join("threshold"), threshold.to_string()).unwrap();
        KeyRing::load_dir(&dir, Owner::Anybody).unwrap()
    }
}

pub(super) fn check(keys: KeyRing, to: &str) -> Check {
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

pub(super) fn key(n: u8) -> SecretKey {
    SecretKey::from_seed([n; 32], [n; 8])
}

pub(super) fn find(mirror: &EvilMirror, check: Check) -> Result<Verified, UpgradeFault> {
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

/// OS with the keys of these numbers; signed by these; what is asked for when it is refused.
#[test]
fn a_release_is_taken_by_every_os_that_knows_one_of_its_keys_and_costs_any_other_two_small_requests() {
    let maker = Maker::new();
    for signers in [&[1][..], &[1, 2], &[2]] {
        let name = format!("0.7.{}", signers.iter().sum::<u8>());
        let keys: Vec<SecretKey> = signers.iter().map(|n| key(*n)).collect();
        let release = maker.release(&name, 70, &keys);
        for os in [&[1][..], &[1, 2], &[2]] {
            let known: Vec<SecretKey> = os.iter().map(|n| key(*n)).collect();
            let mirror = EvilMirror::of(&release, &[]).unwrap();
            let found = find(&mirror, check(maker.os_keys(&known.iter().collect::<Vec<_>>()), &name));
            let seen = mirror.seen();
            assert!(seen.iter().all(|seen| seen.path.starts_with("payload/")), "{seen:?}");
            assert!(seen.len() <= 2 + os.len() && mirror.sent() < 8192, "{seen:?}");
            if os.iter().any(|n| signers.contains(n)) {
                let taken = found.unwrap();
                assert_eq!(taken.bytes(), fs::read(release.join("payload/manifest.json")).unwrap());
                continue;
            }
            let fault = found.map(drop).unwrap_err();
            let what = format!(
                "Release key {} is not on this ISO (0.6.0). This ISO is from before a release-signing key rotation.",
                key(signers[0]).id()
            );
            let todo = format!("Install from a newer ISO, that of release {name}. Retrying does not help.");
            says(&fault, Code::KeyUnknown, &what, &todo);
            // The signature, and the one that its own key would have: the manifest is not even asked for.
            assert_eq!(seen.len(), 2);
            assert!(seen.iter().all(|seen| seen.path.ends_with(".minisig")), "{seen:?}");
            assert!(mirror.sent() < 1024, "{seen:?}");
        }
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
