//! Machines that libstorage-ng recorded, against its own reading of them (the devicegraph): disks with their sizes, partitions, what stands on
//! each disk, and what is mounted.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use hwprobe::{Disk, Options, Roots};
use serde::Deserialize;
use support::{Tree, hwdata, texts};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Expected {
    disks: Vec<Wanted>,
    /// Devices of the graph that can be in a stack; hidden volumes of LVM are in none.
    known: BTreeSet<String>,
    mounts: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wanted {
    name: String,
    /// The multipath map that it is a path of.
    map: Option<String>,
    size_bytes: u64,
    /// Something is on it.
    holds: bool,
    /// Starts and sizes in bytes.
    partitions: Vec<(u64, u64)>,
    stack: Vec<String>,
}

/// Where we say something else than the graph, and why we are right.
const DEVIATIONS: [(&str, &str); 3] = [
    // The spare of a container is no member of its volumes; the graph has an edge from the container to each.
    ("md-ddf1 sdc stack", r#"["md127"] not ["md125", "md126", "md127"]"#),
    // multipathd takes the partitions away from the paths. They are in the stack, and hold the disk.
    ("multipath1 sda partitions", "[] not [(1048576, 536870912)]"),
    // The graph leaves out what it cannot handle. A protective MBR without a GPT is not nothing.
    ("unsupported1 sdd holds", r#"["PMBR"] not []"#),
];

/// What the tree `name` below `dir` gives otherwise than its graph.
fn differences(dir: &Path, name: &str) -> Vec<(String, String)> {
    let want = std::fs::read(dir.join(format!("{name}.json"))).unwrap();
    let want: Expected = serde_json::from_slice(&want).unwrap();
    let have = hwprobe::probe(&Roots::under(&dir.join(name)).unwrap(), &Options::default());
    let mut differences = Vec::new();
    let mut compare = |what: String, have: String, want: String| {
        if have != want {
            differences.push((format!("{name} {what}"), format!("{have} not {want}")));
        }
    };
    // The paths of one map are one disk.
    let mut wanted: BTreeMap<&str, &Wanted> = BTreeMap::new();
    for disk in &want.disks {
        let first = want.disks.iter().filter(|d| d.map.is_some() && d.map == disk.map).map(|d| &d.name).min();
        if first.is_none_or(|first| *first == disk.name) {
            wanted.insert(&disk.name, disk);
        }
    }
    let found: BTreeMap<&str, &Disk> = have.disks.iter().map(|d| (d.name.as_str(), d)).collect();
    compare("disks".to_owned(), format!("{:?}", found.keys()), format!("{:?}", wanted.keys()));
    for (disk, want_disk) in &wanted {
        let Some(have) = found.get(disk) else { continue };
        compare(format!("{disk} size"), have.size_bytes.to_string(), want_disk.size_bytes.to_string());
        let mut partitions: Vec<_> = have.partitions.iter().map(|p| (p.start_bytes, p.size_bytes)).collect();
        partitions.sort_unstable();
        compare(
            format!("{disk} partitions"),
            format!("{partitions:?}"),
            format!("{:?}", want_disk.partitions),
        );
        let mut stack: Vec<_> = have.stack.iter().map(|s| s.name.as_str()).collect();
        stack.retain(|name| want.known.contains(*name));
        stack.sort_unstable();
        compare(format!("{disk} stack"), format!("{stack:?}"), format!("{:?}", want_disk.stack));
        if have.holds.is_empty() == want_disk.holds {
            compare(
                format!("{disk} holds"),
                format!("{:?}", texts(&have.holds)),
                (if want_disk.holds { "something" } else { "[]" }).to_owned(),
            );
        }
    }
    let mounts: BTreeSet<&str> = have.disks.iter().flat_map(|d| texts(&d.mounts)).collect();
    compare(
        "mounts".to_owned(),
        format!("{mounts:?}"),
        format!("{:?}", want.mounts.iter().collect::<BTreeSet<_>>()),
    );
    differences
}

#[test]
fn machines_of_libstorage_ng_come_out_as_its_own_graphs_of_them() {
    let Some(data) = hwdata() else { return };
    let room = Tree::room();
    let archive = data.join("libstorage-ng/probe-mockups-and-devicegraphs.tar.xz");
    let unpacked = Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(room.path()).status();
    if !unpacked.is_ok_and(|status| status.success()) {
        return println!("skipped: the recorded machines cannot be unpacked here");
    }
    let trees = Tree::room();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/mockup2tree.py");
    let mut converter = Command::new("python3");
    match converter.arg(script).arg(room.path().join("probe")).arg(trees.path()).output() {
        Ok(out) => assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr)),
        Err(error) => return println!("skipped: python3: {error}"),
    }
    let (mut found, mut seen) = (Vec::new(), 0);
    for entry in std::fs::read_dir(trees.path()).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.extend(differences(trees.path(), &entry.file_name().to_string_lossy()));
            seen += 1;
        }
    }
    found.sort();
    let known: Vec<_> =
        DEVIATIONS.iter().map(|(what, how)| ((*what).to_owned(), (*how).to_owned())).collect();
    assert_eq!(found, known);
    assert!(seen >= 28, "only {seen} machines");
}
