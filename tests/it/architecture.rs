//! What ARCHITECTURE.md promises about who touches what, read from the sources: a module that reaches for what is not its own fails here.
//!
//! Only code counts: comments, strings and test modules may name anything.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where a rule holds (paths that begin so), what may not stand there, and which files may nevertheless.
struct Rule {
    under: &'static str,
    never: &'static [&'static str],
    but: &'static [&'static str],
}

/// What judges a release is handed its bytes.
const JUDGES_NEVER: &[&str] = &[
    "tokio",
    "reqwest",
    "rustls",
    "rustix",
    "nix",
    "TcpStream",
    "std::fs",
    "std::net",
    "std::process",
    "std::thread",
    "crate::paths",
    "crate::durable_file",
    "crate::founder",
    "crate::clock",
    "crate::join",
    "crate::driver",
    "Instant",
    "SystemTime",
    "rand",
];

const RULES: &[Rule] = &[
    // The decision: nothing but values.
    Rule {
        under: "src/join/",
        never: &[
            "tokio",
            "std::fs",
            "std::env",
            "std::net",
            "std::io",
            "std::process",
            "std::thread",
            "Instant",
            "SystemTime",
            "rand",
            "ring",
            "reqwest",
            "rustls",
            "rustix",
            "nix",
            "tracing",
            "tempfile",
            "crate::driver",
            "crate::founder",
            "crate::privileged",
            "crate::journal",
            "crate::durable_file",
            "crate::paths",
            "crate::clock",
            "crate::identity",
            "crate::report",
            "crate::telemetry",
            "crate::diagnosis::look",
            "crate::diagnosis::run",
        ],
        but: &[],
    },
    Rule {
        under: "src/protocol/",
        never: &[
            "tokio",
            "std::fs",
            "std::env",
            "std::process",
            "std::thread",
            "Instant",
            "SystemTime",
            "reqwest",
            "rustls",
            "rustix",
            "nix",
            "tracing",
            "TcpStream",
            "crate::driver",
            "crate::founder",
            "crate::join",
            "crate::paths",
        ],
        but: &[],
    },
    // The one random source of the protocol, for the PAKE.
    Rule { under: "src/protocol/", never: &["rand", "SystemRandom"], but: &["src/protocol/pake.rs"] },
    Rule {
        under: "src/report/",
        never: &[
            "tokio",
            "std::fs",
            "std::env",
            "Instant",
            "SystemTime",
            "reqwest",
            "rustls",
            "crate::driver",
            "crate::founder",
        ],
        but: &[],
    },
    // What was found is decided on without looking again.
    Rule {
        under: "src/diagnosis/",
        never: &[
            "std::process",
            "tempfile",
            "crate::driver",
            "crate::privileged",
            "crate::journal",
            "crate::durable_file",
            "crate::request",
            "OpenOptions",
            "JoinCode",
        ],
        but: &[],
    },
    Rule {
        under: "src/diagnosis/decide",
        never: &[
            "tokio",
            "std::fs",
            "std::env",
            "std::io",
            "Instant",
            "rustix",
            "nix",
            "TcpStream",
            "UdpSocket",
            "crate::founder",
            "crate::clock",
        ],
        but: &[],
    },
    Rule {
        under: "src/diagnosis/facts.rs",
        never: &["tokio", "std::fs", "std::io", "rustix", "nix", "crate::founder"],
        but: &[],
    },
    Rule {
        under: "src/diagnosis/rows.rs",
        never: &["tokio", "std::fs", "std::io", "rustix", "nix", "crate::founder"],
        but: &[],
    },
    // Only the diagnosis and the probe ask the kernel about its network.
    Rule {
        under: "src/",
        never: &["netlink_sys", "netlink_packet_route"],
        but: &["src/diagnosis/look/netlink.rs", "src/diagnosis/look/way.rs"],
    },
    Rule { under: "src/paths.rs", never: &["tokio", "std::fs", "std::env", "std::process"], but: &[] },
    Rule {
        under: "src/founder/",
        never: &[
            "std::fs",
            "std::env",
            "std::process",
            "crate::driver",
            "crate::privileged",
            "crate::journal",
            "crate::paths",
            "crate::durable_file",
        ],
        but: &[],
    },
    Rule {
        under: "src/identity/",
        never: &["reqwest", "std::env", "crate::founder", "crate::driver"],
        but: &[],
    },
    // Root's verbs know no network.
    Rule {
        under: "src/privileged/",
        never: &[
            "reqwest",
            "rustls",
            "TcpStream",
            "UdpSocket",
            "crate::founder",
            "crate::driver",
            "crate::identity",
        ],
        but: &[],
    },
    // What writes an OS knows no network, and nobody who could tell it a path.
    Rule {
        under: "src/install/",
        never: &[
            "tokio",
            "reqwest",
            "rustls",
            "std::net",
            "std::process",
            "crate::driver",
            "crate::join",
            "crate::founder",
            "crate::privileged",
            "crate::upgrade::fetch",
        ],
        but: &[],
    },
    Rule {
        under: "src/handoff/",
        never: &["reqwest", "TcpStream", "crate::founder", "crate::driver"],
        but: &[],
    },
    // What decides about a release: no network, no clock, and of the disk only the keys and os-release.
    Rule { under: "src/upgrade/manifest/", never: JUDGES_NEVER, but: &[] },
    Rule { under: "src/upgrade/refusal.rs", never: JUDGES_NEVER, but: &[] },
    Rule { under: "src/upgrade/search.rs", never: JUDGES_NEVER, but: &[] },
    Rule { under: "src/upgrade/signature.rs", never: JUDGES_NEVER, but: &[] },
    Rule { under: "src/upgrade/verify.rs", never: JUDGES_NEVER, but: &[] },
    Rule { under: "src/upgrade/version.rs", never: JUDGES_NEVER, but: &[] },
    Rule {
        under: "src/upgrade/keys.rs",
        never: &["tokio", "reqwest", "rustls", "TcpStream", "std::process", "OpenOptions", "OFlags::CREATE"],
        but: &[],
    },
    Rule {
        under: "src/upgrade/running.rs",
        never: &["tokio", "reqwest", "rustls", "TcpStream", "std::process", "std::fs", "OpenOptions"],
        but: &[],
    },
    // Signatures are checked in one place.
    Rule {
        under: "src/",
        never: &["minisign_verify"],
        but: &["src/upgrade/keys.rs", "src/upgrade/signature.rs"],
    },
    // One HTTP library in two places (a mirror is no founder: other trust, other addresses, no client key), no listener anywhere, one wall clock.
    Rule { under: "src/", never: &["reqwest"], but: &["src/founder/", "src/upgrade/source/"] },
    // What decides about a release decides by values.
    Rule {
        under: "src/upgrade/plan/",
        never: &[
            "tokio",
            "std::fs",
            "std::net",
            "std::io",
            "std::thread",
            "Instant",
            "rustix",
            "rand",
            "ring",
            "crate::clock",
            "crate::durable_file",
        ],
        but: &[],
    },
    // The disk knows no network, and the network no disk.
    Rule { under: "src/upgrade/stage/", never: &["tokio", "reqwest", "rustls", "std::net"], but: &[] },
    Rule { under: "src/upgrade/source/", never: &["std::fs", "crate::upgrade::fetch"], but: &[] },
    Rule { under: "src/", never: &["TcpListener"], but: &[] },
    Rule { under: "src/", never: &["SystemTime"], but: &["src/clock.rs"] },
    // Nothing about a release is decided by that clock. One sentence names its date: of a certificate that it does not like.
    Rule { under: "src/upgrade/", never: &["wall_ms"], but: &["src/upgrade/source/mirror.rs"] },
    // Random bits for the retries come with the time of day.
    Rule { under: "src/upgrade/", never: &["clock::now"], but: &["src/upgrade/fetch/mod.rs"] },
    Rule {
        under: "src/",
        never: &["std::process::Command", "tokio::process"],
        // The console's units need stock programs where no safe call exists.
        but: &["src/privileged/", "src/cli/secret_args.rs", "src/cli/console/programs.rs"],
    },
    // One place speaks D-Bus, one speaks to the helper, one hears the console; what is asked there runs and writes nothing by itself.
    Rule { under: "src/", never: &["zbus"], but: &["src/privileged/bus.rs"] },
    Rule {
        under: "src/",
        never: &["UnixStream"],
        but: &["src/privileged/helper/", "src/cli/helper.rs", "src/control.rs"],
    },
    Rule {
        under: "src/control.rs",
        never: &["std::process::Command", "durable_file", "crate::paths", "crate::join", "crate::driver"],
        but: &[],
    },
    Rule {
        under: "src/privileged/helper/",
        never: &["std::fs", "std::process", "tokio::process", "durable_file", "crate::paths"],
        but: &[],
    },
    // Who may have a join code in the clear: the file it is saved in, and the proof.
    Rule { under: "src/", never: &[".written()", ".password()"], but: &["src/protocol/", "src/request.rs"] },
    Rule {
        under: "src/",
        never: &["expose_secret"],
        but: &["src/identity/", "src/protocol/", "src/journal.rs", "src/handoff/", "src/privileged/"],
    },
    Rule {
        under: "console/src/",
        never: &[
            "hwprobe",
            "stratum_join",
            "tokio",
            "reqwest",
            "rustls",
            "TcpStream",
            "TcpListener",
            "UdpSocket",
            "rcgen",
            "ring",
        ],
        but: &[],
    },
    Rule {
        under: "hwprobe/src/",
        never: &[
            "tokio",
            "reqwest",
            "rustls",
            "stratum_join",
            "TcpStream",
            "TcpListener",
            "UdpSocket",
            "fs::write",
            "File::create",
            "create_dir",
            "create_dir_all",
            "remove_file",
            "remove_dir_all",
            "fs::rename",
            "OpenOptions",
            "std::process::Command",
        ],
        but: &[],
    },
];

/// What a crate may not depend on, besides what its sources may not name.
const NO_DEPENDENCY: &[(&str, &[&str])] = &[
    ("hwprobe/Cargo.toml", &["tokio", "reqwest", "rustls", "stratum-join", "console", "lab-founder"]),
    (
        "console/Cargo.toml",
        &["tokio", "reqwest", "rustls", "stratum-join", "hwprobe", "lab-founder", "rcgen", "ring"],
    ),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A source file: its path from the root, and its code.
struct Source {
    path: String,
    code: String,
}

fn sources(dir: &str) -> Vec<Source> {
    let mut found = Vec::new();
    let mut open = vec![root().join(dir)];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                let path = path.strip_prefix(root()).unwrap().display().to_string();
                found.push(Source { path, code: text });
            }
        }
    }
    let test_only = test_only(&found);
    found.retain(|source| !test_only.iter().any(|path| Path::new(&source.path).starts_with(path)));
    for source in &mut found {
        source.code = code_of(&source.code);
    }
    found
}

/// Files and directories of `#[cfg(test)] mod name;`.
fn test_only(sources: &[Source]) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for source in sources {
        let path = Path::new(&source.path);
        let dir = path.parent().unwrap();
        let dir = match path.file_stem().unwrap().to_str().unwrap() {
            "mod" | "lib" | "main" => dir.to_owned(),
            stem => dir.join(stem),
        };
        let lines: Vec<&str> = source.code.lines().map(str::trim).collect();
        for (at, line) in lines.iter().enumerate() {
            let name = line.split("mod ").nth(1).and_then(|rest| rest.strip_suffix(';'));
            // Attributes stand in between, e.g. the path of the file.
            let attributes: Vec<_> =
                lines[..at].iter().rev().take_while(|line| line.starts_with("#[")).collect();
            let (Some(name), true) = (name, attributes.iter().any(|line| **line == "#[cfg(test)]")) else {
                continue;
            };
            let given =
                attributes.iter().find_map(|line| line.strip_prefix("#[path = \"")?.strip_suffix("\"]"));
            match given {
                Some(file) => found.insert(path.parent().unwrap().join(file)),
                None => found.insert(dir.join(format!("{name}.rs"))) | found.insert(dir.join(name)),
            };
        }
    }
    found
}

/// Without comments, the text of strings, and the test module at the end.
fn code_of(text: &str) -> String {
    let text = text.split("\nmod tests {").next().unwrap();
    let mut code = String::new();
    for line in text.lines() {
        let mut in_string = false;
        let mut chars = line.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '/' if !in_string && chars.peek() == Some(&'/') => break,
                '\\' if in_string => drop(chars.next()),
                '"' => in_string = !in_string,
                '\'' if !in_string && chars.peek() == Some(&'"') => drop(chars.next()),
                c if !in_string => code.push(c),
                _ => {}
            }
        }
        code.push('\n');
    }
    code
}

/// Whether `word` stands in `code` as a word of its own.
fn names(code: &str, word: &str) -> bool {
    let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    code.match_indices(word).any(|(at, found)| {
        let (before, after) = (code[..at].chars().next_back(), code[at + found.len()..].chars().next());
        let open = !word.starts_with(|c: char| c.is_alphanumeric()) || !part(before);
        open && (word.ends_with(')') || !part(after))
    })
}

fn broken(sources: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for rule in RULES {
        for source in sources.iter().filter(|s| s.path.starts_with(rule.under)) {
            if rule.but.iter().any(|but| source.path.starts_with(but)) {
                continue;
            }
            let words = rule.never.iter().filter(|word| names(&source.code, word));
            found.extend(
                words.map(|word| format!("{} names {word}, which is not for {}", source.path, rule.under)),
            );
        }
    }
    found
}

#[test]
fn no_module_reaches_for_what_its_row_forbids() {
    let sources: Vec<Source> = ["src", "console/src", "hwprobe/src"].into_iter().flat_map(sources).collect();
    for rule in RULES {
        assert!(sources.iter().any(|s| s.path.starts_with(rule.under)), "nothing is under {}", rule.under);
    }
    let broken = broken(&sources);
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn the_rules_see_a_violation_and_only_in_code() {
    let source = |path: &str, text: &str| Source { path: path.to_owned(), code: code_of(text) };
    let cases = [
        ("src/join/step.rs", "use tokio::sync::mpsc;", 1),
        ("src/join/step.rs", "let at = std::time::Instant::now();", 1),
        ("src/join/step.rs", "// tokio, std::fs\nlet x = \"std::env\";", 0),
        ("src/join/step.rs", "fn randomly() {}", 0),
        ("src/join/step.rs", "fn f() {}\n#[cfg(test)]\nmod tests {\n use std::fs;\n}", 0),
        ("src/protocol/pake.rs", "use ring::rand::SystemRandom;", 0),
        ("src/protocol/code.rs", "use ring::rand::SystemRandom;", 2),
        ("src/driver/mod.rs", "let code = code.written();", 1),
        ("src/request.rs", "let code = code.written();", 0),
        ("src/driver/mod.rs", "let x = reqwest::get(1); TcpListener::bind(2)", 2),
        ("console/src/draw.rs", "use hwprobe::Inventory;", 1),
        ("hwprobe/src/lib.rs", "std::fs::write(path, b\"x\")", 1),
    ];
    for (path, text, expected) in cases {
        assert_eq!(broken(&[source(path, text)]).len(), expected, "{path}: {text}");
    }
}

#[test]
fn the_test_only_files_are_told_apart() {
    let source = |path: &str, text: &str| Source { path: path.to_owned(), code: text.to_owned() };
    let found = test_only(&[
        source("src/join/mod.rs", "pub mod step;\n#[cfg(test)]\nmod sim;\n"),
        source("src/yaml.rs", "#[cfg(test)]\n#[path = \"yaml_tests.rs\"]\nmod tests;\n"),
        source("src/founder/mod.rs", "#[cfg(test)]\nmod peer;\nmod check;\n"),
    ]);
    let found: Vec<_> = found.iter().map(|path| path.to_str().unwrap()).collect();
    assert_eq!(
        found,
        ["src/founder/peer", "src/founder/peer.rs", "src/join/sim", "src/join/sim.rs", "src/yaml_tests.rs"]
    );
}

#[test]
fn hwprobe_and_console_know_neither_each_other_nor_the_agent() {
    for (manifest, never) in NO_DEPENDENCY {
        let text = fs::read_to_string(root().join(manifest)).unwrap();
        let section = text.split("\n[dependencies]\n").nth(1).unwrap().split("\n[").next().unwrap();
        let names: Vec<&str> = section
            .lines()
            .map(|line| line.split(['.', ' ', '=']).next().unwrap())
            .filter(|n| !n.is_empty())
            .collect();
        assert!(!names.is_empty(), "{manifest}");
        for name in *never {
            assert!(!names.contains(name), "{manifest} depends on {name}");
        }
    }
}

#[test]
fn every_crate_forbids_unsafe_and_every_file_says_what_it_is() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    assert!(manifest.contains("unsafe_code = \"forbid\""));
    for member in [".", "hwprobe", "console", "tests/lab-founder", "tests/stand-in", "xtask"] {
        let text = fs::read_to_string(root().join(member).join("Cargo.toml")).unwrap();
        assert!(text.contains("[lints]\nworkspace = true"), "{member} does not take the workspace's lints");
    }
    for dir in [
        "src",
        "console/src",
        "hwprobe/src",
        "tests/it",
        "tests/lab-founder/src",
        "tests/stand-in/src",
        "xtask/src",
    ] {
        for entry in walk(&root().join(dir)) {
            let text = fs::read_to_string(&entry).unwrap();
            assert!(text.starts_with("//! "), "{} does not begin with what it is", entry.display());
        }
    }
}

fn walk(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        match entry.path() {
            path if path.is_dir() => found.extend(walk(&path)),
            path if path.extension().is_some_and(|e| e == "rs") => found.push(path),
            _ => {}
        }
    }
    found
}

/// A path of the machine that something was written on is true nowhere else.
#[test]
fn no_tracked_file_names_a_folder_of_the_machine_it_was_written_on() {
    let listed = Command::new("git").arg("-C").arg(root()).args(["ls-files", "-z"]).output();
    let Some(listed) = listed.ok().filter(|out| out.status.success()) else {
        println!("skipped: this is no git checkout");
        return;
    };
    // In two pieces, because this file is tracked as well.
    let never = [concat!("/wo", "rk/"), concat!("/ro", "ot/")];
    let mut found = Vec::new();
    for name in String::from_utf8(listed.stdout).unwrap().split('\0').filter(|name| !name.is_empty()) {
        // A file may be deleted and not yet committed so.
        let Ok(bytes) = fs::read(root().join(name)) else { continue };
        let text = String::from_utf8_lossy(&bytes);
        for (number, line) in text.lines().enumerate() {
            if never.iter().any(|path| line.contains(path)) {
                found.push(format!("{name}:{}: {line}", number + 1));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
