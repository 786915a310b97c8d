//! Releases that are wrong in themselves, on a mirror that is honest: each damage that `lab-founder release break` knows, through the search for the
//! release and the download, as a joiner goes.

use clap::ValueEnum;
use lab_founder::release::{Breakage, Spec, break_release};
use stratum_join::upgrade::keys::KeyRing;
use stratum_join::upgrade::manifest::Form;

use super::release::{Maker, check, find, key};
use super::*;

/// What a person reads of a damage: code, words of what happened, words of what can be done. `None`: nothing of it is fetched.
fn expected(how: Breakage) -> Option<(Code, &'static str, &'static str)> {
    let changed = (Code::SigBad, "The manifest is damaged or was changed", "treat the mirror as hostile");
    let portal = (Code::NotARelease, "(a login page or a proxy?)", "from another machine; check proxies");
    let rule = |what| (Code::ManifestInvalid, what, "Report it to whoever made the release.");
    Some(match how {
        Breakage::ExtraFile => return None,
        Breakage::FlipBit => (Code::Hash, "does not match the signed manifest", "Repair the mirror."),
        Breakage::ShortFile | Breakage::LongFile => {
            (Code::NotARelease, "for other bytes than were asked for", "check proxies")
        }
        Breakage::MissingFile => (Code::SourceStatus, "answered 404 for os/blobs/", "complete on the mirror"),
        Breakage::HtmlManifest | Breakage::EmptyManifest => portal,
        Breakage::FlipManifest | Breakage::LegacySig | Breakage::WrongComment => changed,
        Breakage::NoSignature => {
            (Code::SourceStatus, "has no signature of release 0.7.0", "publish it again")
        }
        Breakage::UnknownKey => (Code::KeyUnknown, "before a release-signing key rotation", "newer ISO"),
        Breakage::DupKeySig => (Code::KeyUnknown, "1 of the keys on this ISO signed", "with more keys"),
        Breakage::OtherRelease => (Code::WrongRelease, "99.0.0", "0.7.0"),
        Breakage::OldSequence => {
            (Code::Downgrade, "its sequence is 1, and 60 ran here", "a higher --sequence")
        }
        Breakage::PathDotdot => rule("rule M12: `os/../../etc/cron.d/x`"),
        Breakage::PathAbsolute => rule("rule M12: `/etc/cron.d/x`"),
        Breakage::PathCase => rule("rule M11:"),
        Breakage::DuplicatePath => rule("rule M11:"),
        Breakage::DuplicateKey => rule("rule M5:"),
        Breakage::NewerSchema => rule("newer installer"),
    })
}

/// As a joiner does it: the release, then its files.
fn upgrade(mirror: &EvilMirror, keys: KeyRing, stage: &TempDir) -> Result<Lab, UpgradeFault> {
    let verified = find(mirror, check(keys, "0.7.0"))?;
    let wants = verified.wanted(Form::Ab).into_iter().cloned().collect();
    let lab = Lab { dir: tempfile::tempdir_in(stage.path()).unwrap(), wants };
    let at = stage.path().join("stage");
    let fetched = block_on(fetch(
        Arc::new(source(&settings(mirror))?),
        Stage::open(&at).unwrap(),
        lab.wants.clone(),
        options(FAST),
        |_| {},
    ));
    if fetched.is_err() {
        drop(Stage::open(&at).unwrap());
    }
    std::os::unix::fs::symlink(&at, lab.stage()).unwrap();
    lab.nothing_wrong_is_complete();
    fetched.map(|_| lab)
}

#[test]
fn each_named_damage_is_refused_in_words_and_nothing_of_it_is_taken() {
    let maker = Maker::new();
    let good = maker.release("0.7.0", 70, &[key(1), key(2)]);
    let mut refused = 0;
    for how in Breakage::value_variants() {
        let copy = maker.at(how.to_possible_value().unwrap().get_name());
        break_release(&good, *how, &[key(1), key(2)], &copy).unwrap();
        let threshold = if *how == Breakage::DupKeySig { 2 } else { 1 };
        let keys = || maker.os_keys_of(&[&key(1), &key(2)], threshold);
        let mirror = EvilMirror::of(&copy, &[]).unwrap();
        let stage = tempfile::tempdir().unwrap();
        let ended = upgrade(&mirror, keys(), &stage);
        let Some((code, what, todo)) = expected(*how) else {
            ended.unwrap().look();
            assert!(mirror.seen().iter().all(|seen| seen.path != "os/extra"));
            continue;
        };
        let fault = ended.map(drop).expect_err(copy.to_str().unwrap());
        says(&fault, code, what, todo);
        refused += 1;
        let of_files = matches!(
            how,
            Breakage::FlipBit | Breakage::ShortFile | Breakage::LongFile | Breakage::MissingFile
        );
        if !of_files {
            let seen = mirror.seen();
            assert!(seen.iter().all(|seen| seen.path.starts_with("payload/")), "{how:?}: {seen:?}");
            assert!(seen.len() <= 5, "{how:?}: {seen:?}");
            assert_eq!(fs::read_dir(stage.path()).unwrap().count(), 0, "{how:?}");
        }
        // Published again, it is taken, over what is left of the first attempt.
        upgrade(&EvilMirror::of(&good, &[]).unwrap(), keys(), &stage).unwrap().look();
    }
    assert_eq!(refused, Breakage::value_variants().len() - 1);
}

/// The catalogue has these two beside the damages: well made, well signed, for somebody else.
#[test]
fn a_release_of_another_product_or_processor_is_not_ours() {
    let other_arch = if std::env::consts::ARCH == "aarch64" { "x86_64" } else { "aarch64" };
    let named = || Spec::named("0.7.0", 70, "0.5.0");
    for (spec, what) in [
        (Spec { product: "granite".to_owned(), ..named() }, "holds granite 0.7.0"),
        (Spec { arch: other_arch.to_owned(), ..named() }, &*format!("holds stratum 0.7.0 {other_arch}")),
    ] {
        let maker = Maker::new();
        let release = maker.release_as("0.7.0", &[key(1)], spec);
        let mirror = EvilMirror::of(&release, &[]).unwrap();
        let stage = tempfile::tempdir().unwrap();
        let fault = upgrade(&mirror, maker.os_keys(&[&key(1)]), &stage).map(drop).unwrap_err();
        says(&fault, Code::WrongRelease, what, "Point the mirror at the release of stratum for ");
        assert_eq!(mirror.seen().len(), 2);
    }
}

/// A mirror that publishes one file after the other, and the signature never.
#[test]
fn a_signature_over_other_bytes_is_asked_for_once_more_and_then_refused() {
    let maker = Maker::new();
    let release = maker.release("0.7.0", 70, &[key(1)]);
    let newer = maker.release_as("newer", &[key(1)], Spec::named("0.7.0", 71, "0.5.0"));
    let manifest = "payload/manifest.json";
    fs::copy(newer.join(manifest), release.join(manifest)).unwrap();
    let mirror = EvilMirror::of(&release, &[]).unwrap();
    let stage = tempfile::tempdir().unwrap();
    let keys = || maker.os_keys(&[&key(1)]);
    let fault = upgrade(&mirror, keys(), &stage).map(drop).unwrap_err();
    says(&fault, Code::SigBad, "The signature of release 0.7.0 is wrong", "Publish the release again.");
    assert_eq!(mirror.seen().len(), 4);
}
