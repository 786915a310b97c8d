//! The sources of a running machine on real block devices: loop devices with known contents. Only where root may make some.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use hwprobe::{Missing, Roots, Sources, Target};
use support::images::Contents;
use support::{END, MIB, Tree, texts};

/// A loop device, for as long as it lives.
struct Loop(PathBuf);

impl Loop {
    fn over(file: &Path) -> Option<Self> {
        let out =
            Command::new("losetup").args(["--find", "--show", "--read-only"]).arg(file).output().ok()?;
        let node = String::from_utf8(out.stdout).unwrap();
        out.status.success().then(|| Self(PathBuf::from(node.trim())))
    }

    fn target(&self, size: u64) -> Target {
        let node = self.0.file_name().unwrap().to_string_lossy().into_owned();
        let dev = std::fs::read_to_string(format!("/sys/block/{node}/dev")).unwrap();
        let (major, minor) = dev.trim().split_once(':').unwrap();
        Target { dev: Some((major.parse().unwrap(), minor.parse().unwrap())), node, size }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

#[test]
fn block_devices_are_read_at_both_ends_and_named_by_wipefs() {
    let room = Tree::room();
    let size = 24 * MIB as u64;
    let sources = Sources::of(&Roots::live().unwrap());
    let mut disks: Vec<(Contents, bool, Option<&str>)> = vec![
        (Contents::zeros(size), true, None),
        (Contents::zeros(512), true, None),
        (Contents::zeros(size).write(0, &[1]), false, None),
        (Contents::zeros(size).write(size - 1, &[1]), false, None),
        // Not looked at: the middle.
        (Contents::zeros(size).write(END as u64, &[1]), true, None),
    ];
    for (image, name) in
        [("gpt-backup-only", "gpt"), ("lvm2", "LVM2_member"), ("mdraid", "linux_raid_member")]
    {
        disks.extend(support::images::image(image).map(|i| (i.contents, false, Some(name))));
    }
    for (n, (contents, blank, name)) in disks.iter().enumerate() {
        let file = room.path().join(n.to_string());
        contents.put(&file);
        let Some(device) = Loop::over(&file) else {
            return println!("skipped: no loop device can be made here");
        };
        let target = device.target(contents.size);
        assert_eq!(sources.ends.look(&target).unwrap().all_zero, *blank, "disk {n}");
        if let Some(name) = name
            && Path::new("/usr/sbin/wipefs").exists()
        {
            assert_eq!(texts(&sources.namer.names(&target.node)), [*name]);
        }
        // A device of another size or number is another disk: it went away, and this one has its name.
        for other in
            [Target { size: target.size + 512, ..target.clone() }, Target { dev: Some((8, 0)), ..target }]
        {
            assert_eq!(sources.ends.look(&other).unwrap_err().missing, Missing::Vanished);
        }
    }
}
