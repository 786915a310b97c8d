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
    /// Hashes of the public names: they stay even where an unknown field repeats one.
    public: HashSet<[u8; 32]>,
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
        Self {
            salt,
            pieces: HashSet::new(),
            wholes: HashSet::new(),
            lengths: Vec::new(),
            public: HashSet::new(),
            in_key: 0,
        }
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
        let mut public: Vec<&Value> =
            ["clusterId", "role", "parentDomain"].iter().filter_map(|name| map.get(*name)).collect();
        if let Some(Value::Array(nodes)) = map.get("nodes") {
            public.extend(
                nodes.iter().flat_map(|node| ["nodeId", "role", "az"].map(|name| node.get(name))).flatten(),
            );
        }
        for name in public.into_iter().filter_map(plain_name) {
            self.public.insert(self.hash(name));
        }
        for (name, value) in map {
            match name.as_str() {
                // The names and addresses of members stand in every useful line of a log.
                "nodes" | "vips" | "dnsUpstreamServers" => self.learn_but_addresses(value),
                _ if names_secret(name) || name.ends_with("Key") => self.learn_value(value, MIN_SECRET),
                _ => self.learn_value(value, MIN_PIECE),
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
            // The frame of a PEM block is no secret, and its words are everybody's.
            if line.starts_with("-----") {
                continue;
            }
            for piece in line.split(is_split) {
                for piece in [piece, bare(piece)] {
                    let hash = self.hash(piece);
                    let public = self.public.contains(&hash) || piece.parse::<IpAddr>().is_ok();
                    if piece.len() >= min && (min < MIN_PIECE || !public) {
                        self.pieces.insert(hash);
                    }
                }
            }
            if (min..=MAX_WHOLE).contains(&line.len()) && line.contains(is_split) {
                let hash = self.hash(line);
                self.wholes.insert(hash);
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
fn plain_name(value: &Value) -> Option<&str> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.');
    value.as_str().filter(|text| text.len() <= 253 && text.bytes().all(plain))
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
#[path = "redact_tests.rs"]
mod tests;
