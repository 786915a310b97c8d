//! Failure injection: whatever cannot be read, no disk becomes blank or unmounted that was not.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use hwprobe::Inventory;
use proptest::prelude::*;
use support::{Tree, files, hwdata, many};

/// Ways in which a file can be broken. A directory in its place cannot be read by anybody, root or not.
#[derive(Clone, Copy, Debug)]
enum Break {
    Remove,
    Empty,
    Unreadable,
    Garbage,
}

const ALL: [Break; 4] = [Break::Remove, Break::Empty, Break::Unreadable, Break::Garbage];

/// Breaks a file and gives back how to mend it.
fn break_file(path: &Path, how: Break) -> impl FnOnce() + use<> {
    let old_link = fs::read_link(path).ok();
    let old = if old_link.is_none() { fs::read(path).unwrap() } else { Vec::new() };
    fs::remove_file(path).unwrap();
    match how {
        Break::Remove => {}
        Break::Empty => fs::write(path, b"").unwrap(),
        Break::Unreadable => fs::create_dir(path).unwrap(),
        Break::Garbage => fs::write(path, b"\xff\x00garbage\n").unwrap(),
    }
    let path = path.to_owned();
    move || {
        match how {
            Break::Remove => {}
            Break::Unreadable => fs::remove_dir(&path).unwrap(),
            Break::Empty | Break::Garbage => fs::remove_file(&path).unwrap(),
        }
        match old_link {
            Some(target) => std::os::unix::fs::symlink(target, &path).unwrap(),
            None => fs::write(&path, old).unwrap(),
        }
    }
}

/// Every disk that is still listed is held and mounted if it was.
fn no_false_freedom(before: &Inventory, after: &Inventory, what: &dyn std::fmt::Debug) {
    for disk in &after.disks {
        let Some(old) = before.disks.iter().find(|d| d.name == disk.name) else { continue };
        assert!(!disk.holds.is_empty() || old.holds.is_empty(), "{} became blank: {what:?}", disk.name);
        assert!(!disk.mounts.is_empty() || old.mounts.is_empty(), "{} became unmounted: {what:?}", disk.name);
    }
}

#[test]
fn no_single_broken_file_frees_a_disk() {
    let tree = many();
    let before = tree.probe();
    assert!(before.disks.iter().filter(|d| !d.mounts.is_empty()).count() >= 4);
    for path in files(tree.path()) {
        for how in ALL {
            let mend = break_file(&path, how);
            no_false_freedom(&before, &tree.probe(), &(how, path.strip_prefix(tree.path()).unwrap()));
            mend();
        }
    }
    assert_eq!(tree.probe(), before);
}

/// Machines that lie beside the repository, each as a tree.
fn recorded_machines() -> Vec<tempfile::TempDir> {
    let Some(data) = hwdata() else { return Vec::new() };
    let machines = data.join("subiquity-machines");
    let mut trees = Vec::new();
    for name in ["multipath", "lp1999173-raid1", "existing-partitions", "nvme-over-tcp"] {
        let dir = Tree::room();
        let mut command = std::process::Command::new("python3");
        command
            .arg(data.join("../tools/probert2tree.py"))
            .arg(machines.join(format!("{name}.json")))
            .arg(dir.path());
        match command.status() {
            Ok(status) if status.success() => trees.push(dir),
            other => println!("skipped: {name}: probert2tree.py: {other:?}"),
        }
    }
    trees
}

#[test]
fn no_single_broken_file_frees_a_disk_of_a_recorded_machine() {
    for tree in recorded_machines() {
        let roots = || hwprobe::Roots::under(tree.path()).unwrap();
        let probe = || hwprobe::probe(&roots(), &hwprobe::Options::default());
        let before = probe();
        // What is not looked at changes nothing.
        for (path, _) in hwprobe::capture(&roots(), false).tree {
            let path = tree.path().join(path);
            if fs::symlink_metadata(&path).map_or(true, |meta| meta.is_dir()) {
                continue;
            }
            for how in ALL {
                let mend = break_file(&path, how);
                no_false_freedom(&before, &probe(), &(how, path.strip_prefix(tree.path()).unwrap()));
                mend();
            }
        }
        assert_eq!(probe(), before);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_set_of_broken_files_makes_a_held_disk_blank(
        picks in proptest::collection::vec((any::<prop::sample::Index>(), 0..4usize), 1..40)
    ) {
        TREE.with(|(tree, all, before)| {
            let broken: BTreeMap<&PathBuf, Break> =
                picks.iter().map(|(pick, how)| (&all[pick.index(all.len())], ALL[*how])).collect();
            // A link that was broken can have taken what was below it along.
            let there = broken.iter().filter(|(path, _)| fs::symlink_metadata(path).is_ok());
            let mends: Vec<_> = there.map(|(path, how)| break_file(path, *how)).collect();
            let after = tree.probe();
            mends.into_iter().rev().for_each(|mend| mend());
            for disk in &after.disks {
                let Some(old) = before.disks.iter().find(|d| d.name == disk.name) else { continue };
                // What only stands on a disk of zeros has two witnesses, `holders` and `slaves`; with both gone it is
                // not there. One broken file is the other test's business.
                if old.holds.iter().all(|h| h == "in-use") {
                    continue;
                }
                assert!(!disk.holds.is_empty() || old.holds.is_empty(), "{} became blank: {broken:?}", disk.name);
            }
        });
    }
}

thread_local! {
    static TREE: (Tree, Vec<PathBuf>, Inventory) = {
        let tree = many();
        let (all, before) = (files(tree.path()), tree.probe());
        (tree, all, before)
    };
}
