//! Host, processor, hypervisor and hostile text of captured machines, and of the running one where another program knows better.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

mod support;

use std::process::Command;

use hwprobe::{Code, CpuVirtualization, Inventory, SerialSource};
use support::{Tree, many};

/// What a terminal, a log reader or a person could be fooled by.
fn is_foul(c: char) -> bool {
    (c.is_control() && c != '\n')
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' | '\u{e000}'..='\u{f8ff}')
}

fn warned(i: &Inventory, code: Code, at: &str, fact: &str) -> bool {
    i.warnings.iter().any(|w| w.code == code && w.at == at && w.facts.iter().any(|f| f == fact))
}

#[test]
fn the_hypervisor_is_the_one_that_systemd_finds() {
    let Ok(out) = Command::new("systemd-detect-virt").arg("--vm").output() else {
        return println!("skipped: no systemd-detect-virt here");
    };
    let roots = hwprobe::Roots::live().unwrap();
    let options = hwprobe::Options { read_ends: false, ..hwprobe::Options::default() };
    let have = serde_json::to_value(hwprobe::probe_machine(&roots, &options).hypervisor).unwrap();
    assert_eq!(have, String::from_utf8(out.stdout).unwrap().trim());
}

#[test]
fn virtualization_that_the_firmware_has_off_is_told_and_arm_needs_no_flag() {
    let t = Tree::bare();
    t.put("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu vmx\n").dir("dev");
    let i = t.probe();
    assert_eq!((i.cpu_virtualization, i.kvm), (CpuVirtualization::Vmx, Some(false)));
    let table = hwprobe::table::render(&i, 200);
    assert!(table.contains(
        "virtualization flag present, /dev/kvm missing: check the firmware setting and the kvm module"
    ));
    let t = Tree::bare();
    t.put("proc/cpuinfo", "processor\t: 0\nFeatures\t: fp asimd\n").put("dev/kvm", "");
    let i = t.probe();
    assert_eq!((serde_json::to_value(i.cpu_virtualization).unwrap(), i.kvm), ("".into(), Some(true)));
    assert!(!hwprobe::table::render(&i, 200).contains("firmware"));
}

#[test]
fn every_placeholder_of_a_serial_gives_way_to_the_next_source() {
    let sources = ["product_serial", "board_serial", "chassis_serial"];
    for junk in [
        "To be filled by O.E.M.",
        "Default string",
        "System Serial Number",
        "Not Specified",
        "None",
        "N/A",
        "0123456789",
        "OEM",
        "0000000",
        "........",
        "INVALID",
    ] {
        let t = Tree::bare();
        for file in sources {
            t.put(&format!("sys/class/dmi/id/{file}"), format!("{junk}\n"));
        }
        let i = t.probe();
        assert_eq!((i.host.serial.as_deref(), i.host.serial_source), (None, None), "{junk}");
        assert!(warned(&i, Code::Junk, "host", "serial"), "{junk}");
        t.put("sys/class/dmi/id/chassis_serial", "CH-1\n");
        let i = t.probe();
        assert_eq!(
            (i.host.serial.as_deref(), i.host.serial_source),
            (Some("CH-1"), Some(SerialSource::Chassis)),
            "{junk}"
        );
    }
}

/// What a device can say, and what a person would see of it on a bare terminal.
fn hostile() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("escape", b"a\x1b[2J\x1b]0;x\x07b".to_vec()),
        ("C1", "a\u{9b}31mb".as_bytes().to_vec()),
        ("bidi", "a\u{202e}gpj.exe\u{2066}".as_bytes().to_vec()),
        ("invisible", "a\u{200b}\u{feff}\u{e000}b".as_bytes().to_vec()),
        ("NUL", b"a\0b\x1b[31m".to_vec()),
        ("long", vec![0xff; 4096]),
        ("tab and feed", b"a\tb\r\nc".to_vec()),
    ]
}

#[test]
fn whatever_a_device_calls_itself_no_table_and_no_json_carries_it_out() {
    let with = |key: &str, bytes: &[u8]| [key.as_bytes(), b"=", bytes].concat();
    for (what, bytes) in hostile() {
        // A line feed ends a property of udev; udev writes it as \x0a.
        let line: Vec<u8> = bytes.iter().copied().filter(|b| *b != b'\n').collect();
        let escaped: String = bytes.iter().map(|b| format!("\\x{b:02x}")).collect();
        let t = many();
        let mut record = b"I:1000\n".to_vec();
        for entry in [
            with("E:ID_SERIAL_SHORT", &line),
            with("E:ID_MODEL_ENC", escaped.as_bytes()),
            with("E:ID_VENDOR", &line),
            with("E:ID_FS_TYPE", &line),
            with("E:ID_WWN", &line),
            [b"S:disk/by-id/ata-", &*line].concat(),
        ] {
            record.extend(entry);
            record.push(b'\n');
        }
        t.put("run/udev/data/b8:16", record);
        t.put(
            "run/udev/data/b8:1",
            [b"I:1\nE:ID_PART_ENTRY_NAME=".to_vec(), escaped.clone().into_bytes(), b"\n".to_vec()].concat(),
        );
        t.put("sys/block/dm-0/dm/name", &bytes)
            .put("sys/block/sdc/device/model", &bytes)
            .put("sys/block/sdc/serial", &bytes);
        for file in [
            "sys/class/dmi/id/product_serial",
            "sys/class/dmi/id/sys_vendor",
            "proc/sys/kernel/hostname",
            "proc/sys/kernel/osrelease",
        ] {
            t.put(file, &bytes);
        }
        t.put("proc/cpuinfo", with("processor : 0\nmodel name :", &line));
        t.put("etc/os-release", with("VERSION_ID", &line));
        t.put("etc/stratum/install.yaml", with("osDiskLayout: ", &line));
        let i = t.probe();
        let out = format!("{}{}", serde_json::to_string(&i).unwrap(), hwprobe::table::render(&i, 80));
        let found = out.chars().find(|c| is_foul(*c));
        assert_eq!(found, None, "{what}");
        let d = support::disk(&i, "sdb");
        assert!(d.keys.iter().all(|key| !key.contains('\u{fffd}')), "{what}: {:?}", d.keys);
        assert!(d.serial.as_ref().is_none_or(|s| s.chars().count() <= 128));
        // What follows a NUL is no text, as every string of firmware has it; it is left out without a word.
        let told = ["model", "serial"].iter().any(|f| warned(&i, Code::HostileText, "disks/sdb", f));
        assert!(told || what == "NUL", "{what}: {d:?}");
        assert!(!d.holds.is_empty());
    }
}

#[test]
fn the_order_of_a_directory_changes_nothing() {
    let plain = many();
    // The same machine with everything made in the opposite order; what a directory lists first is what was made last, or first.
    let shuffled = Tree::room();
    let mut dirs = vec![plain.path().to_owned()];
    while let Some(dir) = dirs.pop() {
        let mut entries: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap()).collect();
        entries.sort_by_key(|e| std::cmp::Reverse(e.file_name()));
        for entry in entries {
            let (from, kind) = (entry.path(), entry.file_type().unwrap());
            let to = shuffled.path().join(from.strip_prefix(plain.path()).unwrap());
            if kind.is_dir() {
                std::fs::create_dir(to).unwrap();
                dirs.push(from);
            } else if kind.is_symlink() {
                std::os::unix::fs::symlink(std::fs::read_link(from).unwrap(), to).unwrap();
            } else {
                std::fs::write(to, std::fs::read(from).unwrap()).unwrap();
            }
        }
    }
    let list = |dir: &std::path::Path| -> Vec<_> {
        std::fs::read_dir(dir.join("sys/block")).unwrap().map(|e| e.unwrap().file_name()).collect()
    };
    if list(plain.path()) == list(shuffled.path()) {
        println!("this file system lists its entries in an order of its own");
    }
    let again =
        hwprobe::probe(&hwprobe::Roots::under(shuffled.path()).unwrap(), &hwprobe::Options::default());
    assert_eq!(again.digest(), plain.probe().digest());
}
