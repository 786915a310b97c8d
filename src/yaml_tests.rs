//! Eighty-odd bad documents, made by a small generator, and the few good ones that must stay good.

use super::*;

/// Every bad document with what it tries. The marker `s3cret-neighbour` must not come back in an error.
pub(crate) fn bad_documents() -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<(String, Vec<u8>)> = Vec::new();
    let mut add = |what: &str, text: String| {
        let text = format!("before: s3cret-neighbour\n{text}");
        all.push((what.to_owned(), text.into_bytes()));
    };
    // Anchors and aliases, in every place they can stand.
    for (what, value) in [
        ("an anchor on a scalar", "&a 1"),
        ("an anchor on a flow map", "&a {x: 1}"),
        ("an anchor on a flow sequence", "&a [1]"),
        ("an anchor on nothing", "&a"),
        ("an alias without anchor", "*a"),
        ("an alias in a sequence", "[*a]"),
        ("an alias as a key", "{*a : 1}"),
        ("an anchor and its alias", "[&a 1, *a]"),
        ("a recursive anchor", "&a [*a]"),
    ] {
        add(what, format!("k: {value}\n"));
        add(&format!("{what}, nested"), format!("k:\n  deep:\n    - {value}\n"));
    }
    for levels in [3, 9, 20] {
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
        for level in 1..=levels {
            let refs = vec![format!("*a{}", level - 1); 9].join(", ");
            bomb.push_str(&format!("a{level}: &a{level} [{refs}]\n"));
        }
        add(&format!("an alias bomb of {levels} levels"), bomb);
    }
    // Merge keys.
    for value in ["{a: 1}", "[{a: 1}]", "&m {a: 1}", "*m", "1", "[]"] {
        add("a merge key", format!("k:\n  <<: {value}\n"));
    }
    // Tags.
    for tag in [
        "!x",
        "!!python/object:os.system",
        "!!python/name:os",
        "!ruby/object:Gem",
        "!!java.net.URL",
        "!<tag:example.com,2026:x>",
        "!include",
        "!secret",
        "!!js/function",
        "!vault",
        "!!set",
        "!!unknown",
    ] {
        add("a tag on a scalar", format!("k: {tag} v\n"));
        add("a tag on a map", format!("k: {tag} {{a: 1}}\n"));
    }
    // Doubled keys.
    for text in [
        "a: 1\na: 2\n",
        "{a: 1, a: 2}",
        "k: {a: 1, 'a': 2}\n",
        "k:\n  a: 1\n  \"a\": 2\n",
        "k: [{a: 1, a: 1}]\n",
    ] {
        add("a doubled key", format!("top:\n  {}\n", text.trim_end().replace('\n', "\n  ")));
    }
    // More than one document, and what is not a document.
    for text in ["---\na: 1\n", "...\n---\na: 1\n", "---\n---\n", "...\na: 1\n"] {
        add("a second document", text.to_owned());
    }
    // Depth and size.
    for depth in [80, 1000, 50_000] {
        add("deep brackets", format!("k: {}{}\n", "[".repeat(depth), "]".repeat(depth)));
        add("deep braces", format!("k: {}1{}\n", "{a: ".repeat(depth), "}".repeat(depth)));
        add("open brackets", format!("k: {}\n", "[".repeat(depth)));
    }
    add("deep dashes", format!("k:\n{}1\n", "- ".repeat(500)));
    add("too many nodes", format!("k: [{}]\n", "1,".repeat(20_000)));
    add("too many keys", (0..11_000).map(|n| format!("k{n}: 1\n")).collect());
    // Broken text.
    for text in [
        "k: [1, 2\n",
        "k: {a: 1\n",
        "k: \"open\n",
        "k: 'open\n",
        "k: @x\n",
        "k: `x`\n",
        "k: a: b\n",
        "\tk: 1\n",
        "k:\n\t- 1\n",
        "- 1\n",
        "k: %x\n- 2\n",
        "k: ]\n",
        "k: }\n",
        "%YAML 9.9\n---\nk: 1\n",
        "k: |\n x\n  y\n z: 1\nw\n",
        "k: \"\\q\"\n",
        "k: \"\\ud800\"\n",
    ] {
        add("broken text", text.to_owned());
    }
    for control in ['\0', '\x07', '\x1b', '\x7f', '\u{9b}'] {
        add("a control character", format!("k: a{control}b\n"));
    }
    for bytes in [&b"k: \xff\xfe\n"[..], b"\xff\xfek\0:\0", b"k: \xc0\xaf\n", b"k: \xed\xa0\x80\n"] {
        all.push(("bytes that are not UTF-8".to_owned(), bytes.to_vec()));
    }
    all
}

#[test]
fn eighty_bad_yaml_documents_are_refused_fast_and_without_their_text() {
    let all = bad_documents();
    assert!(all.len() >= 80, "only {}", all.len());
    for (what, text) in all {
        let shown = String::from_utf8_lossy(&text[..text.len().min(200)]).into_owned();
        let error = match parse(&text) {
            Err(error) => error.to_string(),
            Ok(value) => panic!(
                "{what} was taken: {shown:?} as {}",
                value.to_string().chars().take(200).collect::<String>()
            ),
        };
        assert!(!error.contains("s3cret"), "{what}: {error}");
        assert!(error.len() < 100 && !error.contains('\n'), "{what}: {error}");
    }
}

#[test]
fn ordinary_documents_are_taken() {
    let text = "# node\nmode: join\nhostname: node-2.example.com\nno: \"no\"\nlist:\n  - {name: eno1, mtu: 9000}\nnote: |\n  two\n  lines\n";
    let value = parse(text.as_bytes()).unwrap();
    assert_eq!(value["mode"], "join");
    assert_eq!(value["list"][0]["mtu"], 9000);
    assert_eq!(parse(b"---\na: 1\n").unwrap()["a"], 1);
    assert_eq!(parse("\u{feff}a: \u{e9}\r\n".as_bytes()).unwrap()["a"], "\u{e9}");
    assert_eq!(parse(b"a: !!str 1\n").unwrap()["a"], "1");
    assert_eq!(parse(b"").unwrap_or(Value::Null), Value::Null);
}

#[test]
fn an_error_says_what_and_where() {
    let error = parse(b"a: 1\nb: &x 2\n").unwrap_err();
    assert_eq!(error.why, "uses an anchor");
    assert_eq!(error.place.map(|(line, _)| line), Some(2));
    assert_eq!(parse(b"a: 1\na: 2\n").unwrap_err().why, "names a key twice");
    assert_eq!(
        parse(b"a: 1\n\nb: \x1b[0m").unwrap_err().to_string(),
        "holds a control character at line 3, column 4"
    );
}
