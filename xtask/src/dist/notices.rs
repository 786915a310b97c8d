//! Whose work is linked into the programs, and under which terms: their licences ask that the texts come along.
//!
//! Asks `cargo metadata`, reads the crates' own licence files where cargo keeps their sources; writes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::output_of;
use crate::workspace::Workspace;

/// How the files begin that hold terms.
const NAMES: [&str; 5] = ["license", "licence", "copying", "notice", "copyright"];
/// Largest file read, in bytes.
const MAX_TEXT: u64 = 256 * 1024;

/// A crate that is linked in.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Linked {
    name: String,
    version: String,
    licence: String,
    dir: PathBuf,
}

/// The whole text: first the list, then each text once, with the crates that bring it.
pub(super) fn text(workspace: &Workspace) -> Result<String> {
    let rustc = output_of(Command::new("rustc").arg("-vV"))?;
    let host = rustc.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc names no host")?;
    let mut metadata = workspace.cargo(&["metadata", "--locked", "--offline", "--format-version", "1"]);
    let metadata = output_of(metadata.args(["--filter-platform", host]))?;
    let linked = linked(&serde_json::from_str(&metadata).context("cargo metadata")?)?;
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut out =
        String::from("Crates that are linked into the programs of this package, and their licences.\n\n");
    for crate_ in &linked {
        out += &format!("{} {}: {}\n", crate_.name, crate_.version, crate_.licence);
        for text in texts_of(&crate_.dir)? {
            texts.entry(text).or_default().push(crate_.name.clone());
        }
    }
    let mut texts: Vec<(Vec<String>, String)> =
        texts.into_iter().map(|(text, names)| (names, text)).collect();
    texts.sort();
    for (mut names, text) in texts {
        names.dedup();
        out += &format!("\n{}\n{}\n\n{}\n", "=".repeat(78), names.join(", "), text.trim_end());
    }
    Ok(out)
}

/// Every crate but our own that `stratum-join` needs at run time, by name.
fn linked(metadata: &Value) -> Result<Vec<Linked>> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let packages = list(&metadata["packages"]);
    let by_id: BTreeMap<&str, &Value> =
        packages.iter().filter_map(|package| Some((package["id"].as_str()?, package))).collect();
    let nodes = list(&metadata["resolve"]["nodes"]);
    let needs: BTreeMap<&str, Vec<String>> = nodes
        .iter()
        .filter_map(|node| {
            let normal = |dep: &Value| list(&dep["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
            let deps = list(&node["deps"]).into_iter().filter(normal);
            Some((
                node["id"].as_str()?,
                deps.filter_map(|dep| Some(dep["pkg"].as_str()?.to_owned())).collect(),
            ))
        })
        .collect();
    let ours =
        packages.iter().find(|package| package["name"] == "stratum-join" && package["source"].is_null());
    let mut open = vec![ours.and_then(|p| p["id"].as_str()).context("stratum-join is not here")?.to_owned()];
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    while let Some(id) = open.pop() {
        if !seen.insert(id.clone()) {
            continue;
        }
        open.extend(needs.get(id.as_str()).into_iter().flatten().cloned());
        let package = by_id.get(id.as_str()).with_context(|| format!("cargo metadata does not know {id}"))?;
        if package["source"].is_null() {
            continue;
        }
        let word = |key: &str| package[key].as_str().unwrap_or("see its text").to_owned();
        let manifest = package["manifest_path"].as_str().context("a crate without a manifest")?;
        let dir = Path::new(manifest).parent().context("a manifest without a folder")?.to_owned();
        found.push(Linked { name: word("name"), version: word("version"), licence: word("license"), dir });
    }
    found.sort();
    Ok(found)
}

/// What a crate's own folder holds of terms.
fn texts_of(dir: &Path) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    for entry in std::fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let entry = entry.with_context(|| format!("cannot list {}", dir.display()))?;
        let name = entry.file_name().to_string_lossy().to_ascii_lowercase();
        let meta = entry.metadata().with_context(|| format!("cannot stat {}", entry.path().display()))?;
        if !NAMES.iter().any(|start| name.starts_with(start)) || !meta.is_file() || meta.len() > MAX_TEXT {
            continue;
        }
        let text =
            std::fs::read(entry.path()).with_context(|| format!("cannot read {}", entry.path().display()))?;
        texts.push(String::from_utf8_lossy(&text).replace('\r', ""));
    }
    texts.sort();
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_linked_is_listed_and_what_only_builds_or_tests_is_not() {
        let text = text(&Workspace::find().unwrap()).unwrap();
        let (list, texts) = text.split_once("\n=====").unwrap();
        for linked in ["ring ", "rustls ", "spake2 ", "ratatui ", "zbus "] {
            assert!(list.contains(&format!("\n{linked}")), "{linked}");
        }
        for not in ["proptest ", "rusqlite ", "stratum-join ", "clap_mangen "] {
            assert!(!list.contains(&format!("\n{not}")), "{not}");
        }
        assert!(!list.contains("see its text"), "a crate names no licence:\n{list}");
        // The two that are not MIT or Apache-2.0.
        assert!(texts.contains("ISC License") || texts.contains("ISC license"));
        assert!(texts.contains("Redistributions in binary form must reproduce"));
    }
}
