//! A release and the wall clock: in 1970 and in 2039 the same release is taken and the same one refused. The clock is set by Debian's
//! libfaketime, for the processes that are started here alone; boot time, by which the engine waits, goes on as it does.

use std::process::{Command, Output, Stdio};
use std::time::SystemTime;

use lab_founder::MirrorConfig;

use super::release::{Maker, key};
use super::*;
use crate::support::bin;

/// A board without a battery; after the seconds of 32 bits, and after every certificate of today.
const DATES: [(&str, &str); 2] = [("1970-01-01 00:02:00", "1970"), ("2039-02-01 00:00:00", "2039")];
/// Tells a test that runs in another year which one that is.
const YEAR: &str = "STRATUM_TEST_YEAR";
/// What is run again at each date: whole releases, the rotation of keys, every named damage, the founder as the source.
const AGAIN: [&str; 5] = [
    "download::release::",
    "download::broken::",
    "download::founder::a_release_that_the_founder_gives",
    "download::mirror::the_founders_clock",
    "download::clock::the_year_is",
];

/// The library; `None`, said plainly, where it is not installed.
fn libfaketime() -> Option<PathBuf> {
    let found = fs::read_dir("/usr/lib").unwrap().flatten().find_map(|entry| {
        let path = entry.path().join("faketime/libfaketimeMT.so.1");
        path.exists().then_some(path)
    });
    if found.is_none() {
        println!("skipped: libfaketime is not installed");
    }
    found
}

/// A program whose wall clock begins at this date.
fn at(date: &str, library: &Path, program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", library).env("FAKETIME", format!("@{date}")).env("TZ", "UTC");
    command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("NO_FAKE_STAT", "1");
    command
}

fn year() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    // Days of a mean year: exact enough away from the new year.
    1970 + now.as_secs() / 31_556_952
}

/// Not a fact of the product: that the runs below are what they say.
#[test]
fn the_year_is_the_one_that_was_set() {
    if let Ok(wanted) = std::env::var(YEAR) {
        assert_eq!(year().to_string(), wanted);
    }
}

#[test]
fn releases_are_taken_and_refused_in_1970_and_in_2039_as_they_are_today() {
    let Some(library) = libfaketime() else { return };
    let again = DATES.map(|(date, year)| {
        let mut command = at(date, &library, &std::env::current_exe().unwrap());
        command.args(AGAIN).env(YEAR, year).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
    });
    for (child, (date, _)) in again.into_iter().zip(DATES) {
        let out = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout);
        assert!(out.status.success(), "{date}:\n{text}");
        for name in ["clock::the_year_is_the_one_that_was_set", "broken::each_named_damage"] {
            assert!(text.contains(&format!("test download::{name}")), "{text}");
        }
    }
}

/// `release fetch` from a mirror with a certificate of these years.
fn fetch_at(
    (date, library): (&str, &Path),
    maker: &Maker,
    release: &Path,
    valid: (i32, i32),
) -> (Option<i32>, serde_json::Value) {
    let mirror = EvilMirror::start(MirrorConfig { valid, ..mirror_of(release) }).unwrap();
    let to = tempfile::tempdir().unwrap();
    let ca = to.path().join("ca.pem");
    fs::write(&ca, mirror.ca_pem()).unwrap();
    let mut command = at(date, library, &bin("stratum-join"));
    command.args(["release", "fetch", "--output", "json", "--source", &mirror.url(), "--from", "0.6.0"]);
    command.arg("--keys").arg(maker.at("os-keys")).arg("--ca").arg(&ca);
    let Output { status, stdout, stderr } = command.arg("--to").arg(to.path().join("to")).output().unwrap();
    let report: serde_json::Value =
        serde_json::from_slice(&stdout).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&stderr)));
    if report["good"] == true {
        let blobs = fs::read_dir(to.path().join("to/blobs")).unwrap();
        for blob in blobs.map(|blob| blob.unwrap()) {
            let digest = Digest::of(&fs::read(blob.path()).unwrap()).to_string();
            assert_eq!(blob.file_name().to_str().unwrap(), digest);
            assert!(release.join("os/blobs/sha256").join(digest).exists());
        }
    }
    (status.code(), report)
}

#[test]
fn the_command_takes_a_release_at_any_date_and_names_a_date_at_which_the_mirrors_certificate_does_not_hold() {
    let Some(library) = libfaketime() else { return };
    let maker = Maker::new();
    let release = maker.release("0.7.0", 70, &[key(1)]);
    maker.os_keys(&[&key(1)]);
    for (date, _) in DATES {
        let (code, report) = fetch_at((date, &library), &maker, &release, (1970, 9999));
        assert_eq!((code, &report["good"]), (Some(0), &serde_json::json!(true)), "{date}: {report}");
    }
    for (date, code, verdict, advice) in [
        (
            DATES[0].0,
            "CLOCK",
            "The system clock says 1970-01-01; the certificate of ",
            "Set the hardware clock or NTP.",
        ),
        (
            DATES[1].0,
            "SOURCE_TLS",
            "it has expired by this machine's clock, which says 2039-02-01.",
            "Give the mirror a certificate that is valid now",
        ),
    ] {
        let (exit, report) = fetch_at((date, &library), &maker, &release, (2026, 2030));
        assert_eq!((exit, report["code"].as_str()), (Some(4), Some(code)), "{report}");
        assert!(report["verdict"].as_str().unwrap().contains(verdict), "{report}");
        assert!(report["advice"].as_str().unwrap().contains(advice), "{report}");
    }
}
