//! Public images of what can hold a disk, where they lie beside the repository. Captured machines: `tests/it/hardware.rs`.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

mod support;

use std::process::Command;

use support::{Tree, hwdata, texts};

#[test]
fn no_signature_image_is_ever_blank() {
    let Some(data) = hwdata() else { return };
    let mut seen = 0;
    for dir in ["util-linux/blkid/images/images-fs", "util-linux/blkid/images/images-pt", "derived"] {
        let Ok(entries) = std::fs::read_dir(data.join(dir)) else { continue };
        for path in entries.map(|e| e.unwrap().path()).filter(|p| p.extension().is_some_and(|e| e == "xz")) {
            let Ok(out) = Command::new("xz").args(["-dc", "--"]).arg(&path).output() else {
                println!("skipped: no xz here");
                return;
            };
            let mut bytes = out.stdout;
            bytes.resize(bytes.len().next_multiple_of(512).max(512), 0);
            let t = Tree::bare();
            t.disk("sda", "8:0", bytes.len() as u64 / 512).udev("8:0", &["ID_MODEL=x"]);
            t.ends("sda", &bytes);
            let i = t.probe();
            assert_eq!(texts(&i.disks[0].holds), ["unknown-data"], "{}", path.display());
            seen += 1;
        }
    }
    assert!(seen > 100, "only {seen} images");
}
