//! What a source is asked for, in which order and how often.

use super::super::search::{Answer, Get, Next, Search};
use super::*;

/// A source: what lies where. Asked again past the caches it may have something else.
#[derive(Default, Clone)]
struct Source {
    files: BTreeMap<String, Vec<u8>>,
    fresh: Option<BTreeMap<String, Vec<u8>>>,
    html: bool,
}

impl Source {
    fn signed(manifest: &[u8], letters: &[u8]) -> Self {
        let mut source = Self::default();
        source.put("payload/manifest.json", manifest);
        let comment = comment_of(std::str::from_utf8(manifest).unwrap());
        for letter in letters {
            let text = sign_text(&key(*letter), manifest, &comment);
            source.put(&SignatureName::Of(id(*letter)).path(), text.as_bytes());
            if *letter == letters[0] {
                source.put(&SignatureName::Primary.path(), text.as_bytes());
            }
        }
        source
    }

    fn put(&mut self, path: &str, bytes: &[u8]) {
        self.files.insert(path.to_owned(), bytes.to_vec());
    }

    /// Drives a search to its end: the verdict, and what was asked for.
    fn search(&self, check: Check) -> (Result<Verified, Refusal>, Vec<Get>) {
        let mut search = Search::new(check);
        let mut asked = Vec::new();
        loop {
            let get = match search.next() {
                Next::Verdict(verdict) => return (*verdict, asked),
                Next::Get(get) => get,
            };
            let files = self.fresh.as_ref().filter(|_| get.fresh).unwrap_or(&self.files);
            let kind = if self.html { Kind::Html } else { Kind::File };
            search.answer(files.get(&get.path).map_or(Answer::Absent, |b| Answer::Body(b.clone(), kind)));
            asked.push(get);
            assert!(asked.len() < 30, "it never ends: {asked:?}");
        }
    }
}

fn paths(asked: &[Get]) -> Vec<&str> {
    asked.iter().map(|get| get.path.strip_prefix("payload/manifest.json").unwrap()).collect()
}

fn of(letter: u8) -> String {
    format!(".{}.minisig", id(letter))
}

#[test]
fn a_release_signed_by_our_key_takes_two_requests() {
    let (verdict, asked) = Source::signed(EXAMPLE, b"A").search(machine(ring(b"A", 1)));
    assert_eq!(paths(&asked), [".minisig", ""]);
    assert!(asked.iter().all(|get| !get.fresh));
    assert_eq!((asked[0].most, asked[1].most), (16 << 10, 4 << 20));
    verdict.unwrap();
}

/// Done when, 4: the message, and what it costs.
#[test]
fn an_iso_from_before_a_key_rotation_learns_it_from_two_small_requests() {
    let (verdict, asked) = Source::signed(EXAMPLE, b"B").search(machine(ring(b"A", 1)));
    assert_eq!(paths(&asked), [".minisig".to_owned(), of(b'A')]);
    let refusal = verdict.unwrap_err();
    assert_eq!((refusal.rule, refusal.fault.code), (Rule::M3, Code::KeyUnknown));
    assert_eq!(
        refusal.fault.what.as_str(),
        "Release key 4242424242424242 is not on this ISO (0.6.0). This ISO is from before a release-signing key rotation."
    );
    assert_eq!(
        refusal.fault.todo.as_str(),
        "Install from a newer ISO, that of release 0.7.0. Retrying does not help."
    );
}

#[test]
fn during_a_rotation_old_and_new_isos_take_the_same_release() {
    let source = Source::signed(EXAMPLE, b"BA");
    for (os, asks) in [
        (&b"A"[..], vec![".minisig".to_owned(), of(b'A'), String::new()]),
        (b"B", vec![".minisig".to_owned(), String::new()]),
    ] {
        let (verdict, asked) = source.search(machine(ring(os, 1)));
        assert_eq!(paths(&asked), asks);
        verdict.unwrap();
    }
}

#[test]
fn an_os_of_several_keys_asks_for_each_in_order_until_it_has_enough() {
    let source = Source::signed(EXAMPLE, b"ADC");
    let (verdict, asked) = source.search(machine(ring(b"ABCD", 2)));
    assert_eq!(paths(&asked), [".minisig".to_owned(), of(b'B'), of(b'C'), String::new()]);
    assert_eq!(verdict.unwrap().signatures().len(), 2);
    let (verdict, asked) = source.search(machine(ring(b"ABCD", 4)));
    assert_eq!(paths(&asked), [".minisig".to_owned(), of(b'B'), of(b'C'), of(b'D')]);
    assert_eq!(verdict.unwrap_err().fault.code, Code::KeyUnknown);
}

/// <https://github.com/systemd/systemd/issues/38774>
#[test]
fn a_mirror_caught_between_two_files_is_asked_once_more_past_its_caches() {
    let whole = Source::signed(EXAMPLE, b"A");
    let mut torn = Source::signed(b"{}", b"A");
    torn.put("payload/manifest.json", EXAMPLE);
    let healing = Source { fresh: Some(whole.files), ..torn.clone() };
    let (verdict, asked) = healing.search(machine(ring(b"A", 1)));
    assert_eq!(paths(&asked), [".minisig", "", ".minisig", ""]);
    assert_eq!(asked.iter().map(|get| get.fresh).collect::<Vec<_>>(), [false, false, true, true]);
    verdict.unwrap();
    let (verdict, asked) = torn.search(machine(ring(b"A", 1)));
    assert_eq!((asked.len(), verdict.unwrap_err().fault.code), (4, Code::SigBad));
}

#[test]
fn a_login_page_is_known_from_one_request() {
    let mut source = Source::default();
    source.put(&SignatureName::Primary.path(), b"<!DOCTYPE html><title>Hotel</title>");
    let (verdict, asked) = source.search(machine(ring(b"A", 1)));
    let refusal = verdict.unwrap_err();
    assert_eq!((asked.len(), refusal.rule, refusal.fault.code), (1, Rule::M2, Code::NotARelease));
    assert!(refusal.fault.what.as_str().contains("mirror.example"));
    assert!(refusal.fault.todo.as_str().contains("https://mirror.example/stratum/0.7.0/payload/"));
    let source = Source { html: true, ..Source::signed(EXAMPLE, b"A") };
    assert_eq!(source.search(machine(ring(b"A", 1))).0.unwrap_err().rule, Rule::M2);
}

#[test]
fn a_directory_without_signature_or_manifest_is_named_as_such() {
    let (verdict, asked) = Source::default().search(machine(ring(b"AB", 1)));
    let refusal = verdict.unwrap_err();
    assert_eq!((asked.len(), refusal.fault.code), (3, Code::SourceStatus));
    assert!(refusal.fault.what.as_str().contains("payload/manifest.json.minisig"));
    let mut source = Source::signed(EXAMPLE, b"A");
    source.files.remove("payload/manifest.json");
    let refusal = source.search(machine(ring(b"A", 1))).0.unwrap_err();
    assert_eq!(refusal.fault.code, Code::SourceStatus);
    reads_well(&refusal);
}

#[test]
fn only_the_own_file_of_a_key_is_there_and_that_is_enough() {
    let mut source = Source::signed(EXAMPLE, b"A");
    source.files.remove(&SignatureName::Primary.path());
    source.search(machine(ring(b"BA", 1))).0.unwrap();
}
