//! The order of the rules: a release that breaks two of them is told the first, whichever two.

use serde_json::json;

use super::rules::add_file;
use super::*;

const ALL: [Rule; 21] = [
    Rule::M1,
    Rule::M2,
    Rule::M3,
    Rule::M4,
    Rule::M5,
    Rule::M6,
    Rule::M7,
    Rule::M8,
    Rule::M9,
    Rule::M10,
    Rule::M11,
    Rule::M12,
    Rule::M13,
    Rule::M14,
    Rule::M15,
    Rule::M16,
    Rule::M17,
    Rule::M18,
    Rule::M19,
    Rule::M20,
    Rule::M21,
];

/// What breaks these rules, each in a way that leaves the others alone.
fn broken(rules: &[Rule]) -> Result<Verified, Refusal> {
    let breaks = |rule| rules.contains(&rule);
    let mut m = example();
    for rule in rules {
        match rule {
            Rule::M6 => m["critical"] = json!(["delta"]),
            Rule::M7 => m["created"] = json!(5),
            Rule::M8 => m["product"] = json!("granite"),
            Rule::M10 => m["sequence"] = json!(1),
            Rule::M11 => _ = add_file(&mut m, "sysext/STRATUM-ceph.raw"),
            Rule::M12 => _ = add_file(&mut m, "os/.x"),
            Rule::M13 => _ = add_file(&mut m, "etc/x"),
            Rule::M14 => {
                let at = add_file(&mut m, "os/empty");
                m["files"][at]["size"] = json!(0);
            }
            Rule::M15 => {
                let at = add_file(&mut m, "os/short");
                m["files"][at]["sha256"] = json!("00");
            }
            Rule::M16 => {
                let at = add_file(&mut m, "os/chunks");
                m["files"][at]["chunks"] = json!("");
            }
            Rule::M17 => m["os"]["versionId"] = json!("0.6.0"),
            Rule::M18 => m["os"]["ab"]["root"]["format"] = json!("zstd"),
            Rule::M19 => m["os"]["ab"]["cmdline"] = json!(["init=/x"]),
            Rule::M20 => m["sysexts"][0]["name"] = json!("Ceph"),
            _ => {}
        }
    }
    let mut text = m.to_string();
    if breaks(Rule::M5) {
        text = text.replacen("\"arch\":", "\"arch\":\"x86_64\",\"arch\":", 1);
    }
    let comment = if breaks(Rule::M9) { "release".to_owned() } else { comment_of(&text) };
    let signer = if breaks(Rule::M3) { b'B' } else { b'A' };
    let mut signature = sign_text(&key(signer), text.as_bytes(), &comment);
    if breaks(Rule::M4) {
        signature = signature.replace("trusted comment: ", "trusted comment: x");
        signature = signature.replacen("untrusted comment: x", "untrusted comment: ", 1);
    }
    let mut signatures = found(&[(SignatureName::Primary, signature.as_bytes())]);
    if breaks(Rule::M1) {
        signatures.add(SignatureName::Of(id(b'A')), b"", Kind::File);
    }
    let kind = if breaks(Rule::M2) { Kind::Html } else { Kind::File };
    let mut machine = machine(ring(b"A", 1));
    if breaks(Rule::M21) {
        machine.form = Some(Form::Oci);
    }
    verify(&machine, text.as_bytes(), kind, &signatures)
}

#[test]
fn of_two_broken_rules_the_first_is_told() {
    broken(&[]).unwrap();
    for (n, first) in ALL.iter().enumerate() {
        let refusal = broken(&[*first]).unwrap_err();
        assert_eq!(refusal.rule, *first, "{refusal}");
        reads_well(&refusal);
        for second in &ALL[n + 1..] {
            let refusal = broken(&[*second, *first]).unwrap_err();
            assert_eq!(refusal.rule, *first, "with {second}: {refusal}");
        }
    }
    assert_eq!(broken(&ALL).unwrap_err().rule, Rule::M1);
}

/// The names of the causes, as the founder and programs know them.
#[test]
fn every_rule_has_its_code() {
    for rule in ALL {
        let code = match rule {
            Rule::M1 | Rule::M2 => Code::NotARelease,
            Rule::M3 => Code::KeyUnknown,
            Rule::M4 | Rule::M9 => Code::SigBad,
            Rule::M8 => Code::WrongRelease,
            Rule::M10 => Code::Downgrade,
            Rule::M21 => Code::Unsupported,
            _ => Code::ManifestInvalid,
        };
        assert_eq!(broken(&[rule]).unwrap_err().fault.code, code, "{rule}");
    }
}
