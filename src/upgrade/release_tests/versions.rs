//! Rules V1 to V7, and what runs here.

use serde_json::json;

use super::super::version::{Offer, Version, offered};
use super::*;

/// A release, what runs, the floor, what is asked for; then what comes of it.
struct Row {
    release: (&'static str, u64),
    running: (&'static str, u64),
    floor: Option<&'static str>,
    to: Option<&'static str>,
    expected: Option<Code>,
}

const fn row(
    release: (&'static str, u64),
    running: (&'static str, u64),
    floor: Option<&'static str>,
    to: Option<&'static str>,
    expected: Option<Code>,
) -> Row {
    Row { release, running, floor, to, expected }
}

const BLESSED_070: Option<&str> = Some(r#"{"release":"0.7.0","sequence":70}"#);
const DOWN: Option<Code> = Some(Code::Downgrade);
const WRONG: Option<Code> = Some(Code::WrongRelease);

#[rustfmt::skip]
const TABLE: &[Row] = &[
    row(("0.7.0", 70), ("0.6.0", 60), None, Some("0.7.0"), None),
    row(("0.7.0", 70), ("0.5.0", 50), None, Some("0.7.0"), None),
    // The helper is not told what was asked for.
    row(("0.7.0", 70), ("0.6.0", 60), None, None, None),
    // An OS that has no sequence.
    row(("0.7.0", 1), ("0.6.0", 0), None, Some("0.7.0"), None),
    row(("0.7.0", 70), ("0.7.0-rc.1", 69), None, Some("0.7.0"), None),
    row(("0.10.0", 100), ("0.9.0", 90), None, Some("0.10.0"), None),
    // V1.
    row(("0.7.1", 71), ("0.6.0", 60), None, Some("0.7.0"), WRONG),
    row(("0.7.0-rc.1", 69), ("0.6.0", 60), None, Some("0.7.0"), WRONG),
    // V4: well signed and older, under its own name or a higher one.
    row(("0.5.0", 50), ("0.6.0", 60), None, Some("0.5.0"), DOWN),
    row(("0.6.0", 60), ("0.6.0", 60), None, None, DOWN),
    row(("0.6.0", 61), ("0.6.0", 60), None, None, DOWN),
    row(("0.7.0", 55), ("0.6.0", 60), None, Some("0.7.0"), DOWN),
    row(("0.7.0", 60), ("0.6.0", 60), None, Some("0.7.0"), DOWN),
    row(("0.7.0-rc.2", 71), ("0.7.0", 70), None, None, DOWN),
    // V5: fallen back to 0.6.0 after 0.7.0 was accepted once.
    row(("0.6.5", 65), ("0.6.0", 60), BLESSED_070, Some("0.6.5"), DOWN),
    // The same under a sequence that was made up: name and sequence both count.
    row(("0.6.5", 75), ("0.6.0", 60), BLESSED_070, Some("0.6.5"), DOWN),
    row(("0.7.0", 70), ("0.6.0", 60), BLESSED_070, Some("0.7.0"), None),
    row(("0.8.0", 65), ("0.6.0", 60), BLESSED_070, Some("0.8.0"), DOWN),
    row(("0.8.0", 80), ("0.6.0", 60), BLESSED_070, Some("0.8.0"), None),
    // A floor below what runs, or one that is broken, takes nothing away.
    row(("0.5.0", 50), ("0.6.0", 60), Some(r#"{"release":"0.1.0","sequence":1}"#), None, DOWN),
    row(("0.7.0", 70), ("0.6.0", 60), Some("{\"release\":"), Some("0.7.0"), None),
    row(("0.7.0", 70), ("0.6.0", 60), Some(r#"{"release":"x","sequence":99}"#), Some("0.7.0"), None),
    // V6.
    row(("0.7.0", 70), ("0.4.9", 49), None, Some("0.7.0"), Some(Code::TooOld)),
    row(("0.7.0", 70), ("0.5.0-rc.1", 49), None, Some("0.7.0"), Some(Code::TooOld)),
];

#[test]
fn a_release_replaces_an_older_one_and_nothing_else() {
    for Row { release, running, floor, to, expected } in TABLE {
        let mut manifest = example();
        manifest["release"] = json!(release.0);
        manifest["sequence"] = json!(release.1);
        manifest["os"]["versionId"] = json!(release.0);
        manifest["sysexts"][0]["versionId"] = json!(release.0);
        let text = manifest.to_string();
        let mut machine = machine(ring(b"A", 1));
        machine.os = os(running.0, running.1);
        machine.floor = Floor::of(floor.map(str::as_bytes), &machine.os);
        machine.to = to.map(|to| to.parse().unwrap());
        let signature = sign_text(&key(b'A'), text.as_bytes(), &comment_of(&text));
        let signatures = found(&[(SignatureName::Primary, signature.as_bytes())]);
        let verdict = verify(&machine, text.as_bytes(), Kind::File, &signatures);
        let code = verdict.as_ref().err().map(|refusal| refusal.fault.code);
        assert_eq!(code, *expected, "{release:?} over {running:?} {floor:?}: {verdict:?}");
        if let Err(refusal) = verdict {
            assert_eq!(refusal.rule, Rule::M10);
            assert!(refusal.fault.what.as_str().contains(release.0), "{refusal}");
            reads_well(&refusal);
        }
    }
}

#[test]
fn an_offer_is_judged_before_anything_is_fetched() {
    let running = os("0.6.0", 60);
    let floor = |text: Option<&str>| Floor::of(text.map(str::as_bytes), &running);
    let ask = |from, to, file| offered(from, to, &running, &floor(file));
    assert_eq!(ask("0.6.0", "0.7.0", None), Ok(Offer::Upgrade("0.7.0".parse().unwrap())));
    assert_eq!(ask("0.5.0", "0.7.0", None), Ok(Offer::Stale));
    assert_eq!(ask("", "0.7.0", None), Ok(Offer::Stale));
    assert_eq!(ask("0.6.0", "0.6.0", None), Ok(Offer::Installed));
    for (to, file, code) in [
        ("0.5.0", None, Code::Downgrade),
        ("0.6.0-rc.9", None, Code::Downgrade),
        ("0.6.5", BLESSED_070, Code::Downgrade),
        ("soon", None, Code::WrongRelease),
        ("", None, Code::WrongRelease),
        ("0.7.0+1", None, Code::WrongRelease),
    ] {
        assert_eq!(ask("0.6.0", to, file).unwrap_err().code, code, "{to}");
    }
}

#[test]
fn a_release_name_is_one_text_and_never_two() {
    for bad in ["0.7", "0.7.0+b", "00.7.0", "0.7.0-", "v1.0.0", "100000.0.0", " 0.7.0", "0.7.0 ", "1.0.0-01"]
    {
        assert!(bad.parse::<Version>().is_err(), "{bad}");
    }
    for good in ["0.0.0", "99999.99999.99999", "0.7.0-rc.1", "1.0.0-x-y"] {
        assert_eq!(good.parse::<Version>().unwrap().to_string(), good);
    }
    assert!(format!("1.0.0-{}", "a".repeat(27)).parse::<Version>().is_err());
}

#[test]
fn what_runs_is_read_from_os_release_as_a_shell_would() {
    let read = |text: &str| RunningOs::of_os_release(text).map_err(|e| e.to_string());
    let os = read("NAME=\"Stratum\"\nVERSION_ID=\"0.6.0\"\nSTRATUM_SEQUENCE=60\nSTRATUM_PRODUCT='granite'\n")
        .unwrap();
    assert_eq!((os.release.as_str(), os.sequence, os.product.as_str()), ("0.6.0", 60, "granite"));
    let os = read("VERSION_ID=0.5.0\n VERSION_ID=0.6.0\nXVERSION_ID=9.9.9\n").unwrap();
    assert_eq!((os.release.as_str(), os.sequence, os.product.as_str()), ("0.6.0", 0, "stratum"));
    assert_eq!(read("NAME=x\n").unwrap_err(), "os-release has no VERSION_ID");
    for bad in [
        "VERSION_ID=12\n",
        "VERSION_ID=0.6.0\nSTRATUM_SEQUENCE=-1\n",
        "VERSION_ID=0.6.0\nSTRATUM_SEQUENCE=99999999999999999999\n",
        "VERSION_ID=0.6.0\nSTRATUM_PRODUCT=\"a b\"\n",
    ] {
        assert!(read(bad).is_err(), "{bad}");
    }
}
