//! Facts about the redaction: what must go, what must stay.

use super::super::fixture::{bundle, delivery};
use super::*;

fn clean(line: &str) -> String {
    Redactor::from_delivery(&delivery()).clean(line).map(|line| line.to_string()).unwrap_or_default()
}

#[test]
fn every_secret_of_the_bundle_is_removed_from_a_line() {
    for secret in
        ["canary-postgres-1", "s.canary-openbao-2", "a:b@c/d", "canary-tomorrow-3", "yaml-canary-77"]
    {
        for line in [
            secret.to_owned(),
            format!("psql --set x={secret} done"),
            format!("postgres://admin:{secret}@192.0.2.11:5432/db"),
            format!("value ({secret})."),
            format!("[{secret}],<{secret}>!"),
            format!("{{\"x\":\"{secret}\"}}"),
            format!("x=\u{1b}[0m{secret}\u{1b}[1m"),
            format!("x {}\u{200b}{}", &secret[..3], &secret[3..]),
        ] {
            let cleaned = clean(&line);
            assert!(!cleaned.contains(secret), "{line}: {cleaned}");
        }
    }
}

#[test]
fn a_field_of_tomorrow_is_removed_from_eight_bytes_on() {
    let mut bundle = bundle();
    bundle["aFieldOfTomorrow"] = serde_json::json!(["zq81xk2w", "zq81xk2"]);
    let delivery = super::super::fixture::delivery_of(&bundle);
    let cleaned = Redactor::from_delivery(&delivery).clean("a zq81xk2w b zq81xk2").unwrap();
    assert_eq!(cleaned.as_str(), "a [removed] b zq81xk2");
}

#[test]
fn a_secret_at_the_end_of_a_long_line_is_not_cut_in_half() {
    for pad in 1000..1030 {
        let cleaned = clean(&format!("{} canary-postgres-1", "x".repeat(pad)));
        assert!(!cleaned.contains("canary"), "{pad}: {cleaned}");
    }
}

#[test]
fn the_words_of_an_ordinary_log_stay() {
    for line in [
        "patroni: replica is streaming, lag 412 MiB",
        "2026-11-29T11:09:33Z storage: creating pool on /dev/disk/by-id/nvme-X",
        "n-msst0002 joins cl-3vin6yzz as control-plane through 192.0.2.11:8443",
        "reading the certificate -----BEGIN CERTIFICATE----- of n-msst0002",
        "tokens are renewed, passwords are set",
    ] {
        assert_eq!(clean(line), line);
    }
}

#[test]
fn a_private_key_is_removed_with_all_its_lines() {
    let mut redactor = Redactor::new();
    let key = "got: -----BEGIN EC PRIVATE KEY-----\nAAAA\nBBBB\n-----END EC PRIVATE KEY-----\nnext";
    let lines: Vec<String> =
        key.lines().filter_map(|line| redactor.clean(line)).map(|l| l.to_string()).collect();
    assert_eq!(lines, ["got: [removed]", "next"]);
    let one =
        redactor.clean("k=\"-----BEGIN PRIVATE KEY-----\\nAAAA\\n-----END PRIVATE KEY-----\\n\" x").unwrap();
    assert_eq!(one, "k=\"[removed]");
    assert_eq!(redactor.clean("-----BEGIN CERTIFICATE-----").unwrap(), "-----BEGIN CERTIFICATE-----");
    assert_eq!(redactor.clean("after").unwrap(), "after");
}

#[test]
fn a_key_without_its_end_takes_at_most_two_hundred_lines() {
    let mut redactor = Redactor::new();
    redactor.clean("-----BEGIN PRIVATE KEY-----");
    let dropped = (0..300).filter(|n| redactor.clean(format!("line {n}")).is_none()).count();
    assert_eq!(dropped, 200);
}

#[test]
fn the_value_of_a_secret_name_is_removed_whatever_it_is() {
    let redactor = Redactor::new();
    for (line, want) in [
        ("password=hunter2 user=x", "password=[removed] user=x"),
        ("PGPASSWORD=hunter2", "PGPASSWORD=[removed]"),
        ("password: hunter2, next", "password: [removed], next"),
        ("{\"adminPassword\":\"a b\",\"x\":1}", "{\"adminPassword\":\"[removed]\",\"x\":1}"),
        ("{\\\"token\\\": \\\"abc\\\"}", "{\\\"token\\\": \\\"[removed]\\\"}"),
        ("unseal key: abcd", "unseal key: [removed]"),
        ("client_secret = 'x y' z", "client_secret = '[removed]' z"),
        ("https://u:p@h/x and http://u@h", "https://u:[removed]@h/x and http://u@h"),
        ("token: a token: b", "token: [removed] token: [removed]"),
        ("token:", "token:"),
    ] {
        assert_eq!(redactor.clean_text::<400>(line), want, "{line}");
    }
}

#[test]
fn no_line_of_the_node_key_passes() {
    let key = bundle();
    let delivery = super::super::fixture::delivery_of(&key);
    let mut redactor = Redactor::from_delivery(&delivery);
    for line in key["nodeKey"].as_str().unwrap().lines().filter(|line| !line.starts_with("-----")) {
        assert_eq!(redactor.clean(format!("> {line}")).unwrap(), "> [removed]");
    }
}

#[test]
fn a_step_report_is_cleaned_too() {
    let report: StepReport = serde_json::from_value(serde_json::json!({
        "step": "join/patroni", "title": "Joining canary-postgres-1", "status": "failed", "error": "psql: token=abc"
    }))
    .unwrap();
    let cleaned = Redactor::from_delivery(&delivery()).clean_report(report);
    assert_eq!(cleaned.title, "Joining [removed]");
    assert_eq!(cleaned.error.unwrap(), "psql: token=[removed]");
}

proptest::proptest! {
    #![proptest_config(crate::test_support::config())]

    #[test]
    fn no_line_makes_it_panic_and_none_comes_out_too_long(line in ".{0,300}") {
        let mut redactor = Redactor::from_delivery(&delivery_once());
        if let Some(cleaned) = redactor.clean(&line) {
            proptest::prop_assert!(cleaned.as_str().chars().count() <= 1024);
        }
    }

    #[test]
    fn a_secret_is_removed_between_any_borders(before in "[ =:/@,;\"'(\\[<]", after in "[-%+ =:/@,;\"')\\]>.!]") {
        for secret in ["canary-postgres-1", "canary-tomorrow-3"] {
            let mut redactor = Redactor::from_delivery(&delivery_once());
            let cleaned = redactor.clean(format!("x{before}{secret}{after}y")).unwrap_or_default();
            proptest::prop_assert!(!cleaned.as_str().contains(secret), "{}", cleaned);
        }
    }
}

fn delivery_once() -> Delivery {
    static ONCE: std::sync::OnceLock<Delivery> = std::sync::OnceLock::new();
    ONCE.get_or_init(delivery).clone()
}
