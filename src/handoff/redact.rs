//! Log redaction that keeps no secret: of a delivery only salted hashes of its pieces are remembered.
//!
//! Touches nothing. Every line of firstboot's log, every step title and error passes here before it leaves this machine. Must never let
//! out a string of the delivery that is not one of the few public ones below.
//!
//! A text is cleaned first (what a terminal hides must not hide a secret), redacted, then cut: a cut before could leave half a secret.

use std::collections::HashSet;
use std::net::IpAddr;

use console::text::Safe;
use ring::digest::{Context, SHA256};
use ring::rand::SecureRandom;
use serde_json::Value;

use super::Delivery;
use crate::join::event::StepReport;
use crate::yaml;

/// What stands in the place of a secret.
pub const REMOVED: &str = "[removed]";

/// Shortest piece of an ordinary string that is removed; shorter ones are words of every log.
const MIN_PIECE: usize = 8;
/// Shortest value under a name that says it is secret.
const MIN_SECRET: usize = 4;
/// Longest value that is looked for as a whole.
const MAX_WHOLE: usize = 512;
/// Longest text that is looked at.
const MAX_LINE: usize = 4 * 1024;
/// Most lines that a `BEGIN ... KEY` without its end takes away.
const MAX_KEY_LINES: u32 = 200;
/// Most words in a row that are tried as one piece.
const MAX_WORDS: usize = 24;
/// A name with one of these says that its value is secret.
const SECRET_WORDS: [&str; 4] = ["password", "secret", "token", "unseal"];

/// Remembers what to remove, not the secrets themselves.
pub struct Redactor {
    salt: [u8; 32],
    pieces: HashSet<[u8; 32]>,
    /// Whole values, because a value may be made of pieces that are too short; and their lengths, to know what to try.
    wholes: HashSet<[u8; 32]>,
    lengths: Vec<usize>,
    /// Lines left of a private key that is being printed.
    in_key: u32,
}

// === impl Redactor ===

impl Default for Redactor {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Redactor({} pieces)", self.pieces.len())
    }
}

impl Redactor {
    /// Knows no delivery yet: only the rules for keys and for named secrets work.
    pub fn new() -> Self {
        let mut salt = [0; 32];
        // Without random bytes the hashes are unsalted, and still do not leave this process.
        let _ = ring::rand::SystemRandom::new().fill(&mut salt);
        Self { salt, pieces: HashSet::new(), wholes: HashSet::new(), lengths: Vec::new(), in_key: 0 }
    }

    /// Knows the strings of `delivery`.
    pub fn from_delivery(delivery: &Delivery) -> Self {
        let mut redactor = Self::new();
        redactor.learn(delivery);
        redactor
    }

    /// Learns the strings of one more delivery.
    pub fn learn(&mut self, delivery: &Delivery) {
        match serde_json::from_slice::<Value>(delivery.bundle()) {
            Ok(bundle) => self.learn_bundle(&bundle),
            // Not to be parsed is no reason to let it out: every quoted thing is a string.
            Err(_) => self.learn_text(&String::from_utf8_lossy(delivery.bundle()), MIN_PIECE),
        }
        if let Ok(tree) = yaml::parse(delivery.node_yaml()) {
            self.learn_named(&tree, false);
        }
    }

    /// The next line of a log. `None` when nothing of it may be told and the line before said so already.
    pub fn clean(&mut self, line: impl AsRef<[u8]>) -> Option<Safe<1024>> {
        let line = Safe::<MAX_LINE>::clean(line);
        let text = line.as_str();
        if self.in_key > 0 {
            self.in_key = if text.contains("-----END") { 0 } else { self.in_key - 1 };
            return None;
        }
        if let Some(begin) = text.find("-----BEGIN") {
            let rest = &text[begin..];
            // "-----BEGIN EC PRIVATE KEY-----"; a certificate is public.
            let label = rest.get(10..).and_then(|rest| rest.split("-----").next()).unwrap_or_default();
            if label.contains("KEY") || !rest[10..].contains("-----") {
                let ends = rest.contains("-----END");
                self.in_key = if ends { 0 } else { MAX_KEY_LINES };
                return Some(Safe::clean(format!("{}{REMOVED}", self.redact(&text[..begin]))));
            }
        }
        Some(Safe::clean(self.redact(text)))
    }

    /// A text that is no log line: a title, an error.
    pub fn clean_text<const MAX: usize>(&self, text: impl AsRef<[u8]>) -> Safe<MAX> {
        let text = Safe::<MAX_LINE>::clean(text);
        match text.as_str().find("-----BEGIN") {
            Some(begin) => Safe::clean(format!("{}{REMOVED}", self.redact(&text.as_str()[..begin]))),
            None => Safe::clean(self.redact(text.as_str())),
        }
    }

    /// A step report with its title and error cleaned.
    pub fn clean_report(&self, report: StepReport) -> StepReport {
        StepReport {
            title: self.clean_text(report.title.as_str()),
            error: report.error.map(|error| self.clean_text(error.as_str())),
            ..report
        }
    }

    // --- learning ---

    fn learn_bundle(&mut self, bundle: &Value) {
        let Value::Object(map) = bundle else { return self.learn_value(bundle, MIN_PIECE) };
        for (name, value) in map {
            match name.as_str() {
                "clusterId" | "role" | "parentDomain" if is_plain_name(value) => {}
                "nodes" => self.learn_nodes(value),
                "vips" | "dnsUpstreamServers" => self.learn_but_addresses(value),
                _ if names_secret(name) || name.ends_with("Key") => self.learn_value(value, MIN_SECRET),
                _ => self.learn_value(value, MIN_PIECE),
            }
        }
    }

    /// The names and addresses of members stand in every useful line of a log.
    fn learn_nodes(&mut self, nodes: &Value) {
        let Value::Array(nodes) = nodes else { return self.learn_value(nodes, MIN_PIECE) };
        for node in nodes {
            let Value::Object(map) = node else {
                self.learn_value(node, MIN_PIECE);
                continue;
            };
            for (name, value) in map {
                match name.as_str() {
                    "nodeId" | "role" | "az" if is_plain_name(value) => {}
                    _ => self.learn_but_addresses(value),
                }
            }
        }
    }

    fn learn_but_addresses(&mut self, value: &Value) {
        match value {
            Value::String(text) if text.parse::<IpAddr>().is_ok() => {}
            Value::Array(list) => list.iter().for_each(|value| self.learn_but_addresses(value)),
            Value::Object(map) => map.values().for_each(|value| self.learn_but_addresses(value)),
            other => self.learn_value(other, MIN_PIECE),
        }
    }

    fn learn_value(&mut self, value: &Value, min: usize) {
        match value {
            Value::String(text) => self.learn_text(text, min),
            Value::Array(list) => list.iter().for_each(|value| self.learn_value(value, min)),
            Value::Object(map) => map.values().for_each(|value| self.learn_value(value, min)),
            // A number that is secret (a PIN) is one only under a secret name.
            Value::Number(number) if min < MIN_PIECE => self.learn_text(&number.to_string(), min),
            Value::Number(_) | Value::Bool(_) | Value::Null => {}
        }
    }

    /// Of node.yaml only what is under a secret name: the rest are the settings a log talks about.
    fn learn_named(&mut self, value: &Value, secret: bool) {
        match value {
            Value::Object(map) => {
                for (name, value) in map {
                    self.learn_named(value, secret || names_secret(name) || names_key(name));
                }
            }
            Value::Array(list) => list.iter().for_each(|value| self.learn_named(value, secret)),
            _ if secret => self.learn_value(value, MIN_SECRET),
            _ => {}
        }
    }

    fn learn_text(&mut self, text: &str, min: usize) {
        for line in text.lines() {
            let line = Safe::<MAX_LINE>::clean(line);
            let line = line.as_str();
            for piece in line.split(is_split) {
                for piece in [piece, bare(piece)] {
                    if piece.len() >= min {
                        self.pieces.insert(self.hash(piece));
                    }
                }
            }
            if (min..=MAX_WHOLE).contains(&line.len()) && line.contains(is_split) {
                self.wholes.insert(self.hash(line));
                if let Err(at) = self.lengths.binary_search_by(|len| line.len().cmp(len)) {
                    self.lengths.insert(at, line.len());
                }
            }
        }
    }

    fn hash(&self, piece: &str) -> [u8; 32] {
        let mut context = Context::new(&SHA256);
        context.update(&self.salt);
        context.update(piece.as_bytes());
        let mut hash = [0; 32];
        hash.copy_from_slice(context.finish().as_ref());
        hash
    }

    // --- removing ---

    fn redact(&self, text: &str) -> String {
        let cut = text.chars().count() >= MAX_LINE;
        let text = self.without_wholes(text);
        let text = self.without_pieces(&text);
        let mut text = without_user_info(&without_named(&text));
        if cut {
            // The last piece may be half a secret, which no hash knows.
            text.truncate(text.floor_char_boundary(text.len().saturating_sub(MAX_WHOLE)));
        }
        text
    }

    /// Whole values, longest first, wherever a word begins.
    fn without_wholes(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        let mut at_word = true;
        while let Some(first) = rest.chars().next() {
            let found = at_word.then(|| self.lengths.iter().find(|len| self.is_whole(rest, **len))).flatten();
            let step = found.copied().unwrap_or(first.len_utf8());
            out.push_str(if found.is_some() { REMOVED } else { &rest[..step] });
            at_word = found.is_some() || !first.is_alphanumeric();
            rest = &rest[step..];
        }
        out
    }

    fn is_whole(&self, text: &str, len: usize) -> bool {
        text.get(..len).is_some_and(|head| self.wholes.contains(&self.hash(head)))
    }

    fn without_pieces(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while !rest.is_empty() {
            let end = rest.find(is_split).unwrap_or(rest.len());
            let (piece, tail) = rest.split_at(end);
            self.push_piece(&mut out, piece);
            let split = tail.chars().next().map_or(0, char::len_utf8);
            out.push_str(&tail[..split]);
            rest = &tail[split..];
        }
        out
    }

    /// A piece, or what is left of it: a secret may be glued to its neighbours by a full stop, a dash, a percent sign.
    fn push_piece(&self, out: &mut String, piece: &str) {
        if self.is_piece(piece) {
            return out.push_str(REMOVED);
        }
        let words: Vec<(usize, usize)> = piece
            .split(|c: char| !c.is_alphanumeric())
            .filter(|word| !word.is_empty())
            .map(|word| (word.as_ptr() as usize - piece.as_ptr() as usize, word.len()))
            .collect();
        let mut told = 0;
        let mut from = 0;
        while let Some((start, _)) = words.get(from) {
            let window = &words[from..words.len().min(from + MAX_WORDS)];
            let found = window.iter().rposition(|(at, len)| self.is_piece(&piece[*start..at + len]));
            if let Some(last) = found {
                let (at, len) = window[last];
                out.push_str(&piece[told..*start]);
                out.push_str(REMOVED);
                told = at + len;
                from += last;
            }
            from += 1;
        }
        out.push_str(&piece[told..]);
    }

    fn is_piece(&self, piece: &str) -> bool {
        piece.len() >= MIN_SECRET && self.pieces.contains(&self.hash(piece))
    }
}

// === private ===

/// Where a log puts borders into a value.
fn is_split(c: char) -> bool {
    c.is_whitespace() || "\"'=,:;/@()[]{}<>|`".contains(c)
}

/// A piece without the marks around it, as it is found in the middle of a sentence.
fn bare(piece: &str) -> &str {
    piece.trim_matches(|c: char| !c.is_alphanumeric())
}

fn names_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_WORDS.iter().any(|word| name.contains(word))
}

/// `apiKey`, `private_key`, `passphrase`, `hash`: names in node.yaml that may hold a secret too.
fn names_key(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name == "key"
        || ["_key", "-key", "privatekey", "apikey", "passphrase", "hash", "credential"]
            .iter()
            .any(|word| name.contains(word))
}

/// A documented public name: an id, a role, a zone, a domain.
fn is_plain_name(value: &Value) -> bool {
    value.as_str().is_some_and(|text| {
        text.len() <= 253
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.'))
    })
}

/// `password=x`, `"token": "x"`, `unseal key: x`: the value is removed whatever it is.
fn without_named(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    while let Some((start, end)) = named_value(&lower, done) {
        out.push_str(&text[done..start]);
        out.push_str(REMOVED);
        done = end;
    }
    out.push_str(&text[done..]);
    out
}

/// Where the next value under a secret name begins and ends, from byte `from` on. `lower` has the byte positions of the text.
fn named_value(lower: &str, from: usize) -> Option<(usize, usize)> {
    let mut at = from;
    loop {
        let word = SECRET_WORDS
            .iter()
            .filter_map(|word| lower[at..].find(word).map(|pos| at + pos + word.len()))
            .min()?;
        at = word;
        let rest = &lower[word..];
        // The rest of the name: `passwords`, `token_id`, `unseal key`.
        let rest = rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
        let rest = rest.strip_prefix(" key").map_or(rest, |rest| rest.strip_prefix('s').unwrap_or(rest));
        let rest = rest.trim_start_matches(['"', '\'', ' ', '\\']);
        let Some(rest) = rest.strip_prefix(['=', ':']) else { continue };
        let rest = rest.trim_start_matches(['=', ' ']);
        let quote = rest.trim_start_matches('\\').chars().next().filter(|c| matches!(c, '"' | '\''));
        let value = rest.trim_start_matches(['"', '\'', '\\']);
        let end = match quote {
            Some(quote) => value.find(quote),
            None => value.find(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | '"' | '\'' | '}')),
        };
        let value = value[..end.unwrap_or(value.len())].trim_end_matches('\\');
        if value.is_empty() {
            continue;
        }
        let start = value.as_ptr() as usize - lower.as_ptr() as usize;
        return Some((start, start + value.len()));
    }
}

/// `https://user:secret@host` loses `secret`.
fn without_user_info(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (head, tail) = rest.split_at(at + 3);
        out.push_str(head);
        let authority = &tail
            [..tail.find(|c: char| c.is_whitespace() || matches!(c, '/' | '"' | '\'')).unwrap_or(tail.len())];
        rest = tail;
        if let Some((user, _host)) = authority.rsplit_once('@') {
            let shown = user.split(':').next().unwrap_or_default();
            out.push_str(shown);
            if user.len() > shown.len() {
                out.push(':');
                out.push_str(REMOVED);
            }
            rest = &tail[user.len()..];
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
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
        let one = redactor
            .clean("k=\"-----BEGIN PRIVATE KEY-----\\nAAAA\\n-----END PRIVATE KEY-----\\n\" x")
            .unwrap();
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
}
