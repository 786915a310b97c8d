//! Every format that can hold a disk, as the contents of disks: none of them is ever blank. The images are public and lie beside the
//! repository.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

mod support;

use std::path::Path;
use std::process::Command;

use hwprobe::Code;
use proptest::prelude::*;
use serde_json::Value;
use support::images::{Contents, Disks, Image, Names, images};
use support::{END, MIB, texts};

/// One machine with a disk of each image.
fn all() -> Option<(&'static [Image], Disks)> {
    let images = images();
    if images.is_empty() {
        return None;
    }
    assert!(images.len() >= 142, "only {} images", images.len());
    let contents: Vec<&Contents> = images.iter().map(|image| &image.contents).collect();
    Some((images, Disks::new(&contents)))
}

/// What `wipefs` itself says of a file, or nothing where it is not installed.
fn wipefs(file: &Path) -> Option<Vec<String>> {
    let out = Command::new("/usr/sbin/wipefs").args(["--no-act", "--json"]).arg(file).output().ok()?;
    let json: Value = serde_json::from_str(&String::from_utf8_lossy(&out.stdout)).unwrap_or_default();
    let mut found: Vec<(u64, String)> = Vec::new();
    for signature in json["signatures"].as_array().into_iter().flatten() {
        let offset = signature["offset"].as_str().unwrap().trim_start_matches("0x");
        found
            .push((u64::from_str_radix(offset, 16).unwrap(), signature["type"].as_str().unwrap().to_owned()));
    }
    found.sort_by_key(|(offset, _)| *offset);
    let mut names: Vec<String> = Vec::new();
    for (_, name) in found {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Some(names)
}

#[test]
fn no_signature_image_is_ever_blank() {
    let Some((images, disks)) = all() else { return };
    for (image, (disk, _)) in images.iter().zip(disks.probe(Names::None)) {
        assert_eq!(texts(&disk.holds), ["unknown-data"], "{}", image.name);
    }
}

#[test]
fn a_signature_image_has_the_names_that_wipefs_gives_it() {
    let Some((images, disks)) = all() else { return };
    let mut named = 0;
    for (n, (disk, _)) in disks.probe(Names::Wipefs).into_iter().enumerate() {
        let Some(mut want) = wipefs(&disks.file(n)) else { return println!("skipped: no wipefs here") };
        named += usize::from(!want.is_empty());
        if want.is_empty() {
            want.push("unknown-data".to_owned());
        }
        assert_eq!(texts(&disk.holds), want, "{}", images[n].name);
    }
    assert!(named > 100, "only {named} have a name");
}

#[test]
fn what_udev_says_of_an_image_holds_it() {
    let Some((images, disks)) = all() else { return };
    let mut told = 0;
    for n in 0..images.len() {
        // The same library that udev asks, with the same question.
        let Ok(out) = Command::new("blkid").args(["-p", "-o", "udev"]).arg(disks.file(n)).output() else {
            return println!("skipped: no blkid here");
        };
        let text = String::from_utf8(out.stdout).unwrap();
        let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
        told += usize::from(!lines.is_empty());
        disks.udev(n, &lines);
    }
    assert!(told > 100, "only {told} are known to blkid");
    for (image, (disk, warnings)) in images.iter().zip(disks.probe(Names::Wipefs)) {
        let holds = texts(&disk.holds);
        assert!(!holds.is_empty(), "{}", image.name);
        let ambivalent = warnings.iter().any(|w| w.code == Code::Ambivalent);
        match image.name.as_str() {
            "ambivalent-ext4-over-zfs" => assert!(holds == ["ext4", "zfs_member"] && ambivalent, "{holds:?}"),
            "gpt-pmbr-primary-zeroed" => assert_eq!((holds[0], ambivalent), ("gpt", false)),
            "gpt-backup-only" => assert_eq!(holds, ["gpt"]),
            _ => {}
        }
    }
}

#[test]
fn a_lone_backup_table_and_two_signatures_are_named_when_wipefs_is_there_and_unknown_when_not() {
    for (name, want) in [
        ("gpt-backup-only", &["gpt"][..]),
        ("gpt-pmbr-primary-zeroed", &["PMBR", "gpt"]),
        ("ambivalent-ext4-over-zfs", &["ext4", "zfs_member"]),
    ] {
        let Some(image) = support::images::image(name) else { return };
        let disks = Disks::new(&[&image.contents]);
        assert_eq!(texts(&disks.probe(Names::None)[0].0.holds), ["unknown-data"], "{name}");
        if wipefs(&disks.file(0)).is_none() {
            return println!("skipped: no wipefs here");
        }
        let named = disks.probe(Names::Wipefs);
        let mut have = texts(&named[0].0.holds);
        have.sort_unstable();
        assert_eq!(have, want, "{name}");
    }
}

#[test]
fn zeros_of_every_size_are_blank_and_all_ones_are_data() {
    let sizes =
        [1, 2 * 1024, 4 * 1024 - 1, 4 * 1024, 6 * 1024, 8 * 1024, 16 * 1024 - 1, 16 * 1024, 24 * 1024];
    let zeros: Vec<Contents> = sizes.iter().map(|sectors| Contents::zeros(sectors * 512)).collect();
    let disks = Disks::new(&zeros.iter().collect::<Vec<_>>());
    assert!(disks.probe(Names::Wipefs).iter().all(|(disk, _)| disk.holds.is_empty()));
    let ones: Vec<Contents> = zeros
        .into_iter()
        .take(6)
        .map(|disk| {
            let n = usize::try_from(disk.size).unwrap();
            disk.write(0, &vec![0xFF; n])
        })
        .collect();
    let disks = Disks::new(&ones.iter().collect::<Vec<_>>());
    for (disk, _) in disks.probe(Names::Wipefs) {
        assert_eq!(texts(&disk.holds), ["unknown-data"], "{} bytes", disk.size_bytes);
    }
}

#[test]
fn what_lies_deeper_than_the_ends_is_what_udev_says_it_is() {
    // The middle of a disk is not read. What udev names holds all the same, wherever it found it.
    let deep = Contents::zeros(4 * END as u64).write(2 * END as u64, b"a signature");
    let disks = Disks::new(&[&deep, &deep]);
    disks.udev(0, &["ID_FS_TYPE=deep_member"]);
    let found: Vec<_> = disks.probe(Names::Wipefs).into_iter().map(|(disk, _)| disk.holds).collect();
    assert_eq!((texts(&found[0]), texts(&found[1])), (vec!["deep_member"], vec![]));
}

#[test]
fn no_known_format_has_its_signature_deeper_than_the_ends_of_a_large_disk() {
    // What of an image lies within the ends is enough: on a disk that is larger, and whose middle is zeros.
    let images = images();
    let size = 64 * MIB as u64;
    let mut large = Vec::new();
    for image in images {
        let end = END as u64;
        let head = image.contents.clone().resize(image.contents.size.min(end));
        let tail = Contents::zeros(end).lay(0, &tail_of(&image.contents, end));
        large.push(Contents::zeros(size).lay(0, &head).lay(size - end, &tail));
    }
    let disks = Disks::new(&large.iter().collect::<Vec<_>>());
    for (image, (disk, _)) in images.iter().zip(disks.probe(Names::None)) {
        assert!(!disk.holds.is_empty(), "{}", image.name);
    }
}

/// The last `n` bytes, or all of it.
fn tail_of(contents: &Contents, n: u64) -> Contents {
    let whole = Contents::zeros(n).lay(0, contents);
    if contents.size <= n {
        return whole.resize(contents.size);
    }
    contents.clone().shift(contents.size - n)
}

/// One way to make a disk of two images.
#[derive(Clone, Debug)]
enum Layout {
    /// The second over the first, both from the start.
    Over,
    /// The second at the end of the first.
    AtTheEnd,
    /// The first at the end of a disk that is larger, and zeros otherwise.
    Behind,
    /// The first moved away from the start of a disk that is larger.
    Shifted(u64),
    /// The first cut.
    Cut(u64),
    /// The first over bytes of any kind.
    OverNoise(Vec<u8>),
}

fn layout() -> impl Strategy<Value = Layout> {
    prop_oneof![
        Just(Layout::Over),
        Just(Layout::AtTheEnd),
        Just(Layout::Behind),
        (1..20_000_u64).prop_map(|sectors| Layout::Shifted(sectors * 512)),
        (1..20_000_u64).prop_map(|sectors| Layout::Cut(sectors * 512)),
        proptest::collection::vec(any::<u8>(), 1..2048).prop_map(Layout::OverNoise),
    ]
}

fn build(first: &Contents, second: &Contents, layout: &Layout) -> Contents {
    let size = first.size.max(second.size);
    match layout {
        Layout::Over => first.clone().resize(size).lay(0, second),
        Layout::AtTheEnd => first.clone().resize(size).lay(size - second.size, second),
        Layout::Behind => {
            let before = 3 * END as u64;
            Contents::zeros(before + first.size).lay(before, first)
        }
        Layout::Shifted(by) => Contents::zeros(first.size + 2 * by).lay(*by, first),
        Layout::Cut(to) => first.clone().resize(first.size.min(*to)),
        Layout::OverNoise(noise) => {
            let size = first.size + 2 * MIB as u64;
            let mut disk = Contents::zeros(size);
            for at in (0..size).step_by(MIB / 2) {
                disk = disk.write(at, noise);
            }
            disk.lay(0, first)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn no_image_over_any_other_is_blank(
        picks in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), layout()), 8)
    ) {
        let images = images();
        prop_assume!(!images.is_empty());
        let mut disks = Vec::new();
        for (a, b, layout) in &picks {
            let (a, b) = (&images[a.index(images.len())], &images[b.index(images.len())]);
            let contents = build(&a.contents, &b.contents, layout);
            // Cut or moved away from an end, there can be nothing of it to see. A whole image always shows.
            let shows = contents.shows();
            let whole = matches!(layout, Layout::Over | Layout::AtTheEnd | Layout::OverNoise(_));
            prop_assert!(shows || !whole, "{} {} {layout:?}", a.name, b.name);
            disks.push((contents, shows, format!("{} {} {layout:?}", a.name, b.name)));
        }
        let machine = Disks::new(&disks.iter().map(|(contents, ..)| contents).collect::<Vec<_>>());
        for ((disk, _), (_, shows, what)) in machine.probe(Names::None).iter().zip(&disks) {
            prop_assert_eq!(!disk.holds.is_empty(), *shows, "{}", what);
        }
    }

    #[test]
    fn one_byte_in_the_first_or_last_mebibyte_holds_a_disk(
        bytes in proptest::collection::vec((1..12_000_u64, 0..MIB as u64, 1..=255u8, any::<bool>()), 8)
    ) {
        let disk = |(sectors, at, byte, tail): &(u64, u64, u8, bool)| {
            let size = sectors * 512;
            let at = at % size;
            Contents::zeros(size).write(if *tail { size - 1 - at } else { at }, &[*byte])
        };
        let disks: Vec<Contents> = bytes.iter().map(disk).collect();
        let machine = Disks::new(&disks.iter().collect::<Vec<_>>());
        for (disk, _) in machine.probe(Names::None) {
            prop_assert_eq!(texts(&disk.holds), ["unknown-data"]);
        }
    }
}
