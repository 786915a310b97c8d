//! The listing of `journalctl -u stratum-join -o short` in docs/journal.md: taken from a real join, so that it cannot go stale.
//!
//! What differs from one join to the next (times, ids, codes, addresses) is replaced by stand-ins; the lines are what is compared. Not
//! their order, because what two processes and the cluster do at once is told as it comes; and not the tries before a network was there.

use anyhow::{Context, Result, bail};

use crate::artefacts::write;
use crate::lab::Lab;
use crate::tree::HOST_NAME;
use crate::vm::Vm;

/// Where it stands.
const DOCUMENT: &str = "docs/journal.md";
const BEGIN: &str = "<!-- listing: written by `cargo xtask vm join --bless` -->\n```text\n";
const END: &str = "```\n<!-- end of listing -->\n";

/// Compares this join's listing with the document; writes it there when that was asked for.
pub fn is_the_one_in_the_documents(lab: &Lab, vm: &mut Vm) -> Result<()> {
    let listing = vm.guest.sh("journalctl --sync; journalctl -b -u stratum-join -o short --no-hostname")?;
    vm.keep_text("journal-short.txt", &listing)?;
    let ours = stand_ins(&listing);
    let path = lab.settings.repository.join(DOCUMENT);
    let document = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let (before, rest) =
        document.split_once(BEGIN).context("docs/journal.md has no place for the listing")?;
    let (theirs, after) = rest.split_once(END).context("docs/journal.md has no end of the listing")?;
    if !lab.settings.bless && told(theirs) == told(&ours) {
        return Ok(());
    }
    if lab.settings.bless {
        println!("  wrote the listing in {DOCUMENT}");
        return write(&path, format!("{before}{BEGIN}{ours}{END}{after}"));
    }
    vm.keep_text("journal.md.listing", &ours)?;
    bail!(
        "the listing in {DOCUMENT} is not what this join gave{}\nIf that is wanted: cargo xtask vm join --bless",
        difference(&told(theirs), &told(&ours))
    );
}

/// What must be the same in every join, sorted.
fn told(listing: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = listing
        .lines()
        .map(|line| line.get(16..).unwrap_or(line))
        .filter(|line| !(line.contains("registering failed:") && line.contains("; next try in ")))
        .collect();
    lines.sort_unstable();
    lines
}

/// The lines that only one of them has.
fn difference(theirs: &[&str], ours: &[&str]) -> String {
    let only = |sign: &str, these: &[&str], those: &[&str]| {
        let lines = these.iter().filter(|line| !those.contains(line));
        lines.map(|line| format!("\n  {sign} {line}")).collect::<String>()
    };
    format!(":{}{}", only("-", theirs, ours), only("+", ours, theirs))
}

/// The lines with everything replaced that another join would have otherwise.
fn stand_ins(listing: &str) -> String {
    let lines = listing.lines().filter(|line| !line.starts_with("-- "));
    lines.enumerate().map(|(number, line)| format!("{}\n", stand_in(number, line))).collect()
}

fn stand_in(number: usize, line: &str) -> String {
    // `Nov 29 20:23:12 ` is as long in every month.
    let text = line.get(16..).unwrap_or(line);
    let words: Vec<String> = text.split(' ').map(word).collect();
    let mut text = words.join(" ");
    // Durations: a number before its unit.
    text = durations(&text);
    format!("Nov 29 10:{:02}:{:02} {HOST_NAME} {text}", 42 + number / 60, number % 60)
}

/// One word, or its stand-in of the same width.
fn word(word: &str) -> String {
    let (core, tail) = split_punctuation(word);
    let (lead, core) = core.strip_prefix('(').map_or(("", core), |rest| ("(", rest));
    let new = if core.starts_with("stratum-join[") {
        "stratum-join[412]:".to_owned()
    } else if let Some(rest) = core.strip_prefix("nj-") {
        same_width("nj-", "8w2k4m1p", rest)
    } else if let Some(rest) = core.strip_prefix("n-") {
        same_width("n-", "msst0002", rest)
    } else if let Some(rest) = core.strip_prefix("cl-") {
        same_width("cl-", "3vin6yzz", rest)
    } else if core.len() == 7
        && core.as_bytes()[3] == b'-'
        && core.bytes().all(|b| b == b'-' || b.is_ascii_digit() || b.is_ascii_uppercase())
    {
        "4F7-K2Q".to_owned()
    } else if core.starts_with("10.0.2.2:") {
        "192.0.2.240:9444".to_owned()
    } else if core.len() >= 16
        && core.trim_end_matches('.').trim_start_matches("sha256:").bytes().all(|b| b.is_ascii_hexdigit())
    {
        core.chars().scan(0, |seen, c| Some(digit(core, seen, c))).collect()
    } else {
        return word.to_owned();
    };
    let tail = if core.starts_with("stratum-join[") { "" } else { tail };
    format!("{lead}{new}{tail}")
}

/// `3q2f7ab1c04d9e66...` for every hexadecimal digest, its prefix left as it is.
fn digit(core: &str, seen: &mut usize, c: char) -> char {
    const DIGITS: &[u8] = b"3e27c0a94d81b65f";
    let at = *seen;
    *seen += 1;
    let prefix = if core.starts_with("sha256:") { 7 } else { 0 };
    if at < prefix || c == '.' { c } else { char::from(DIGITS[(at - prefix) % DIGITS.len()]) }
}

fn same_width(prefix: &str, stand_in: &str, instead_of: &str) -> String {
    let width = instead_of.chars().count();
    format!("{prefix}{}", stand_in.chars().cycle().take(width).collect::<String>())
}

fn split_punctuation(word: &str) -> (&str, &str) {
    let end = word.trim_end_matches([',', ')', ';', ':']).len();
    word.split_at(end)
}

/// `in 3 s`, `8.410s CPU time`: how long it took on another day.
fn durations(text: &str) -> String {
    let words: Vec<&str> = text.split(' ').collect();
    let mut out: Vec<String> = Vec::with_capacity(words.len());
    for (at, word) in words.iter().enumerate() {
        let next = words.get(at + 1).copied().unwrap_or_default().trim_end_matches([',', ')', ';', ':']);
        let number = word.starts_with(|c: char| c.is_ascii_digit())
            && word.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let cpu = word.ends_with('s') && next == "CPU";
        out.push(if number && (next == "s" || next == "ms") {
            "2".to_owned()
        } else if cpu {
            "2.000s".to_owned()
        } else {
            (*word).to_owned()
        });
    }
    out.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_joins_give_the_same_listing() {
        let one = "Nov 29 20:23:12 stratum-join[263]: registering -> pending (nj-3vg6ge9d, pairing 40B-TN2)";
        let other =
            "Jan  3 01:00:59 stratum-join[1263]: registering -> pending (nj-00000000, pairing ABC-DEF)";
        assert_eq!(stand_ins(one), stand_ins(other));
        assert_eq!(
            stand_ins(one),
            "Nov 29 10:42:00 node-2 stratum-join[412]: registering -> pending (nj-8w2k4m1p, pairing 4F7-K2Q)\n"
        );
    }

    #[test]
    fn digests_addresses_and_durations_have_stand_ins() {
        let line = "Nov 29 20:23:12 stratum-join[263]: pin sha256:a1e5012f6d999e75... of 10.0.2.2:40431; next try in 17 s";
        assert_eq!(
            stand_ins(line),
            "Nov 29 10:42:00 node-2 stratum-join[412]: pin sha256:3e27c0a94d81b65f... of 192.0.2.240:9444; next try in 2 s\n"
        );
        assert_eq!(durations("Consumed 8.410s CPU time."), "Consumed 2.000s CPU time.");
        assert_eq!(durations("step 4 of 9 done in 1.9 s: storage"), "step 4 of 9 done in 2 s: storage");
    }

    #[test]
    fn another_order_is_no_other_listing_and_another_line_is() {
        let one = "Nov 29 10:42:00 node-2 a: x\nNov 29 10:42:01 node-2 a: y\n";
        let other = "Nov 29 10:42:00 node-2 a: y\nNov 29 10:42:01 node-2 a: x\n";
        assert_eq!(told(one), told(other));
        let third = "Nov 29 10:42:00 node-2 a: x\nNov 29 10:42:01 node-2 a: z\n";
        assert_ne!(told(one), told(third));
        assert_eq!(difference(&told(one), &told(third)), ":\n  - node-2 a: y\n  + node-2 a: z");
    }

    #[test]
    fn what_is_the_same_in_every_join_is_left() {
        let line =
            "Nov 29 20:23:12 stratum-join[263]: step 4 of 9 done in 3 s: join/patroni (Joining Patroni)";
        assert!(stand_ins(line).ends_with("step 4 of 9 done in 2 s: join/patroni (Joining Patroni)\n"));
    }
}
