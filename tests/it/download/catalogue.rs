//! The table of what a release may meet, in docs/testing.md, against the sources: every test that it names is there, and every fault that the lab knows
//! stands in it.

use std::collections::BTreeSet;

use clap::ValueEnum;
use lab_founder::mirror::fault_names;
use lab_founder::release::Breakage;

use super::*;

/// The section of the table.
fn section() -> String {
    let text = fs::read_to_string(root().join("docs/testing.md")).unwrap();
    let from = text.split("\n## What a release may meet\n").nth(1).expect("the section is there");
    from.split("\n## ").next().unwrap().to_owned()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What stands in backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// The cells of each row of the table.
fn rows(section: &str) -> Vec<Vec<String>> {
    let row = |line: &str| line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect();
    section.lines().filter(|line| line.starts_with("| ") && !line.ends_with("| Tests |")).map(row).collect()
}

/// Every test of these directories: `module::name`, the module as its file or directory is called.
fn tests() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open: Vec<PathBuf> = ["src/upgrade", "tests/it/download"].map(|dir| root().join(dir)).to_vec();
    while let Some(dir) = open.pop() {
        for path in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                open.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let name = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_owned();
            let module = match name(&path) {
                stem if stem == "tests" || stem == "mod" => name(path.parent().unwrap()),
                stem => stem,
            };
            let mut is_test = false;
            for line in text.lines().map(str::trim) {
                if line == "#[test]" {
                    is_test = true;
                } else if let Some(rest) = line.strip_prefix("fn ").filter(|_| is_test) {
                    found.insert(format!("{module}::{}", rest.split('(').next().unwrap()));
                    is_test = false;
                }
            }
        }
    }
    found
}

#[test]
fn every_test_of_the_table_is_there_and_every_row_has_one() {
    let (section, tests) = (section(), tests());
    let rows = rows(&section);
    assert!(rows.len() > 40, "{}", rows.len());
    for row in rows {
        assert_eq!(row.len(), 4, "{row:?}");
        let named = quoted(&row[3]);
        assert!(!named.is_empty(), "{row:?}");
        for name in named {
            assert!(tests.contains(name), "there is no test {name}");
        }
    }
}

#[test]
fn every_fault_of_the_lab_stands_in_the_table() {
    let section = section();
    let known: Vec<String> = rows(&section)
        .iter()
        .flat_map(|row| quoted(&row[1]).into_iter().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let damages =
        Breakage::value_variants().iter().map(|how| how.to_possible_value().unwrap().get_name().to_owned());
    let faults = fault_names().map(str::to_owned);
    let all: BTreeSet<String> = damages.chain(faults).collect();
    for name in &all {
        assert!(known.contains(name), "{name} stands in no row");
    }
    for name in &known {
        assert!(all.contains(name), "the lab knows no {name}");
    }
}
