//! Which files of an OS are keys.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::super::keys::KeysError;
use super::*;
use crate::paths::Paths;

fn dir(files: &[(&str, &str)]) -> TempDir {
    let dir = TempDir::new().unwrap();
    for (name, text) in files {
        fs::write(dir.path().join(name), text).unwrap();
        fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(0o644)).unwrap();
    }
    dir
}

fn public(letter: u8) -> String {
    key(letter).public_text()
}

/// As the OS's own are read, under our own name.
fn load(dir: &TempDir) -> Result<KeyRing, KeysError> {
    KeyRing::load_dir(dir.path(), Owner::Uid(rustix::process::geteuid().as_raw()))
}

fn ids(ring: &KeyRing) -> Vec<KeyId> {
    ring.keys().iter().map(|key| key.id()).collect()
}

#[test]
fn a_key_has_the_number_that_minisign_prints() {
    let ring = KeyRing::load_dir(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/manifests/ok"),
        Owner::Anybody,
    );
    let id = ids(&ring.unwrap())[0];
    assert_eq!(id.to_string(), "A5988A4BC8B1D6D2");
    assert_eq!("A5988A4BC8B1D6D2".parse(), Ok(id));
    for bad in ["a5988a4bc8b1d6d2", "A5988A4BC8B1D6D", "", "A5988A4BC8B1D6D2 "] {
        assert!(bad.parse::<KeyId>().is_err(), "{bad}");
    }
}

#[test]
fn keys_are_taken_in_order_of_their_files_and_what_is_none_is_named() {
    let (a, b) = (public(b'A'), public(b'B'));
    let long = format!("{a}{}", "\n".repeat(2000));
    let dir = dir(&[
        ("2.pub", &a),
        ("1.pub", &b),
        ("3.pub", "hello\n"),
        ("4.pub", &long),
        ("5.txt", &a),
        ("6.pub", ""),
    ]);
    let ring = load(&dir).unwrap();
    assert_eq!(ids(&ring), [id(b'B'), id(b'A')]);
    assert_eq!(ring.threshold(), 1);
    assert_eq!(ring.warnings().len(), 3, "{:?}", ring.warnings());
    assert!(ring.warnings()[0].contains("3.pub is not a public key"));
}

#[test]
fn one_key_under_two_numbers_is_one_key() {
    let twin = SecretKey::from_seed([b'A'; 32], [b'Z'; 8]).public_text();
    let same_number = SecretKey::from_seed([b'Q'; 32], [b'A'; 8]).public_text();
    let files = [("1.pub", &*public(b'A')), ("2.pub", &*twin), ("3.pub", &*same_number)];
    let ring = load(&dir(&files)).unwrap();
    assert_eq!(ids(&ring), [id(b'A')]);
    assert_eq!(ring.warnings().len(), 2);
    // So that two signatures by it can never be two.
    let asks_two = [&files[..], &[("threshold", "2")]].concat();
    assert!(matches!(load(&dir(&asks_two)), Err(KeysError::Threshold { keys: 1, .. })));
}

#[test]
fn no_more_than_eight_keys_count() {
    let texts: Vec<(String, String)> = (0..9).map(|n| (format!("{n}.pub"), public(b'A' + n))).collect();
    let files: Vec<(&str, &str)> = texts.iter().map(|(name, text)| (&**name, &**text)).collect();
    let ring = load(&dir(&files)).unwrap();
    assert_eq!((ring.keys().len(), ring.warnings().len()), (8, 1));
}

#[test]
fn a_key_that_somebody_else_could_have_put_there_is_none() {
    let written = dir(&[("1.pub", &public(b'A')), ("2.pub", &public(b'B'))]);
    fs::set_permissions(written.path().join("1.pub"), fs::Permissions::from_mode(0o664)).unwrap();
    assert_eq!(ids(&load(&written).unwrap()), [id(b'B')]);

    let linked = dir(&[("1.pub", &public(b'A')), ("real", &public(b'B'))]);
    symlink("real", linked.path().join("2.pub")).unwrap();
    fs::create_dir(linked.path().join("3.pub")).unwrap();
    let ring = load(&linked).unwrap();
    assert_eq!((ids(&ring), ring.warnings().len()), (vec![id(b'A')], 2));

    let open = dir(&[("1.pub", &public(b'A'))]);
    fs::set_permissions(open.path(), fs::Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(load(&open), Err(KeysError::NotTrusted { .. })));

    let stranger = dir(&[("1.pub", &public(b'A'))]);
    let other = rustix::process::geteuid().as_raw().wrapping_add(1);
    let error = KeyRing::load_dir(stranger.path(), Owner::Uid(other)).unwrap_err();
    assert!(error.to_string().contains("belongs to uid"), "{error}");
}

/// OSTree keeps the files of an image as hard links.
#[test]
fn a_key_with_two_links_is_a_key() {
    let dir = dir(&[("1.pub", &public(b'A'))]);
    fs::hard_link(dir.path().join("1.pub"), dir.path().join("object")).unwrap();
    assert_eq!(load(&dir).unwrap().keys().len(), 1);
}

#[test]
fn without_a_key_or_with_a_threshold_that_cannot_be_reached_nothing_is_trusted() {
    assert!(matches!(load(&dir(&[])), Err(KeysError::None { .. })));
    let gone = dir(&[]);
    let none = KeyRing::load_dir(&gone.path().join("none"), Owner::Anybody);
    assert!(matches!(none, Err(KeysError::None { .. })));
    for bad in ["0", "2", "9", "10", "one", "", "-1", "1 1"] {
        let dir = dir(&[("1.pub", &public(b'A')), ("threshold", bad)]);
        assert!(matches!(load(&dir), Err(KeysError::Threshold { .. })), "{bad}");
    }
    assert_eq!(load(&dir(&[("1.pub", &public(b'A')), ("threshold", " 1\n")])).unwrap().threshold(), 1);
}

#[test]
fn the_running_os_is_read_from_its_image_below_the_root() {
    let root = TempDir::new().unwrap();
    let paths = Paths::under(root.path());
    assert!(matches!(KeyRing::load(&paths), Err(KeysError::None { .. })));
    assert_eq!(RunningOs::load(&paths).unwrap_err().to_string(), "os-release has no VERSION_ID");
    fs::create_dir_all(paths.release_keys_dir()).unwrap();
    fs::create_dir_all(root.path().join("usr/lib")).unwrap();
    fs::write(paths.release_keys_dir().join("a.pub"), public(b'A')).unwrap();
    fs::write(root.path().join("usr/lib/os-release"), "VERSION_ID=\"0.6.0\"\nSTRATUM_SEQUENCE=60\n").unwrap();
    assert_eq!(ids(&KeyRing::load(&paths).unwrap()), [id(b'A')]);
    let os = RunningOs::load(&paths).unwrap();
    assert_eq!((os.release.as_str(), os.sequence, os.arch.as_str()), ("0.6.0", 60, std::env::consts::ARCH));
    // What an administrator put into /etc comes first, as everywhere.
    fs::create_dir_all(root.path().join("etc")).unwrap();
    fs::write(root.path().join("etc/os-release"), "VERSION_ID=0.6.1\n").unwrap();
    assert_eq!(RunningOs::load(&paths).unwrap().release.as_str(), "0.6.1");
}
