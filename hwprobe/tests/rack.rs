//! The machine that `cargo xtask bench` measures on: the probe finds all of it, or the bench would measure something else.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::disallowed_methods, missing_docs)]

mod support;

use hwprobe::{Options, Roots, Transport, probe};
use support::{Tree, rack, texts};

#[test]
fn the_machine_of_the_bench_lacks_no_fact_of_its_disks() {
    let dir = Tree::room();
    rack::write(dir.path(), 30, 9).unwrap();
    let i = probe(&Roots::under(dir.path()).unwrap(), &Options::default());
    assert_eq!(i.disks.len(), 30);
    assert!(i.warnings.iter().all(|w| !w.at.starts_with("disks/")), "{:?}", i.warnings);
    let names: Vec<&str> = i.disks.iter().map(|d| d.name.as_str()).collect();
    assert_eq!(names[24..28], ["sdy", "sdz", "sdaa", "sdab"]);
    for (n, disk) in i.disks.iter().enumerate() {
        assert_eq!(texts(&disk.mounts), if n == 0 { vec!["/"] } else { vec![] });
        assert_eq!(texts(&disk.holds), ["gpt", "ext4"]);
        assert_eq!((disk.partitions.len(), disk.keys.len(), disk.by_path.len()), (9, 4, 1));
        assert_eq!(disk.serial.as_deref(), Some(format!("Z1Z{n:05}").as_str()));
        assert_eq!((disk.transport, disk.rotational), (Some(Transport::Sas), Some(true)));
        assert!(disk.partitions.iter().all(|p| p.uuid.is_some() && texts(&p.holds) == ["ext4"]));
    }
}

#[test]
fn no_two_devices_of_the_bench_have_one_number() {
    let dir = Tree::room();
    rack::write(dir.path(), 300, 1).unwrap();
    let devices = std::fs::read_dir(dir.path().join("sys/dev/block")).unwrap().count();
    assert_eq!(devices, 600);
}
