//! Captured trees that are made to harm whoever reads them: links out of the tree, files that never end or never answer, devices that stand
//! on each other, names that are no text, ten thousand devices. Each through the program itself, which must end, say what it is told, and
//! come to no disk as blank or free that is in doubt.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::hardware::room;

/// Virtual memory that the program may have, in KiB: a file of 1 GiB must not be read into it. A thread alone counts 8 MiB.
const MEMORY: u64 = 900_000;
/// Seconds after which it hangs.
const HANGS: u64 = 60;
/// What lies outside of the tree and must not be read.
const CANARY: &str = "canary-outside-of-the-tree";

/// A machine: `sda` is the system disk, `sdb` holds something, `sdc` is blank.
struct Machine(TempDir);

impl Machine {
    fn new() -> Self {
        let machine = Self(room());
        for (name, number) in [("sda", 0), ("sdb", 16), ("sdc", 32)] {
            machine.put(&format!("sys/block/{name}/dev"), format!("8:{number}\n"));
            machine.put(
                &format!("sys/block/{name}/uevent"),
                format!("MAJOR=8\nMINOR={number}\nDEVNAME={name}\nDEVTYPE=disk\n"),
            );
            machine.put(&format!("sys/block/{name}/size"), "16\n");
            for dir in ["holders", "slaves", "queue", "device"] {
                machine.dir(&format!("sys/block/{name}/{dir}"));
            }
            machine.put(&format!("sys/block/{name}/device/type"), "0\n");
            for end in ["head", "tail"] {
                machine.put(&format!("capture/ends/{name}.{end}"), vec![u8::from(name != "sdc"); 8192]);
            }
            let found = if name == "sdb" { "E:ID_FS_TYPE=ext4\n" } else { "" };
            machine.put(
                &format!("run/udev/data/b8:{number}"),
                format!("I:1\nE:ID_WWN=0x5000c500a1b2c3{number:02}\n{found}"),
            );
        }
        machine.put("proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n");
        machine.put("proc/1/mountinfo", "2 1 8:0 / / rw - ext4 /dev/sda rw\n");
        machine.put("proc/cpuinfo", "processor\t: 0\nmodel name\t: Example\nflags\t\t: fpu\n");
        machine.put("proc/sys/kernel/hostname", "node-2\n");
        machine.dir("sys/class/net");
        machine
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn dir(&self, path: &str) {
        fs::create_dir_all(self.at(path)).unwrap();
    }

    fn put(&self, path: &str, bytes: impl AsRef<[u8]>) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// Puts something else in the place of a file, a directory or nothing.
    fn replace(&self, path: &str, with: impl FnOnce(&Path)) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if path.is_dir() && !path.is_symlink() {
            fs::remove_dir_all(&path).unwrap();
        } else {
            let _ = fs::remove_file(&path);
        }
        with(&path);
    }

    /// What the program says, as JSON; its table is looked at too.
    fn probe(&self) -> Value {
        let json = self.run(&["--output", "json"], None);
        let table = self.run(&[], None);
        for out in [&json, &table] {
            let text = std::str::from_utf8(&out.stdout).unwrap();
            assert!(!text.contains(CANARY), "{text}");
            let foul = |c: char| {
                (c.is_control() && c != '\n')
                    || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}')
            };
            assert!(!text.contains(foul), "{text:?}");
        }
        serde_json::from_slice(&json.stdout).unwrap()
    }

    fn run(&self, args: &[&str], uid: Option<(&Path, u32)>) -> Output {
        let program =
            uid.map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_stratum-join")), |(p, _)| p.to_owned());
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", &HANGS.to_string(), "sh", "-c"]);
        command.arg(format!("ulimit -v {MEMORY}; exec \"$0\" \"$@\""));
        command.arg(program).args(["probe", "--root"]).arg(self.0.path()).args(args);
        if let Some((_, uid)) = uid {
            command.uid(uid).gid(uid);
        }
        let out = command.output().unwrap();
        let err = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success() && err.is_empty(), "{}: {err}", out.status);
        out
    }

    /// Probes, and sees that `sda` and `sdb` are as they were: the one mounted, the other held, however little of them can be read.
    fn stays_safe(&self, what: &str) -> Value {
        let inventory = self.probe();
        for disk in inventory["disks"].as_array().unwrap() {
            let empty = |field: &str| disk[field].as_array().unwrap().is_empty();
            match disk["name"].as_str().unwrap() {
                "sda" => assert!(!empty("mounts") && !empty("holds"), "{what}: {disk}"),
                "sdb" => assert!(!empty("holds"), "{what}: {disk}"),
                _ => {}
            }
        }
        inventory
    }
}

/// Files of every kind that the program reads.
const FILES: [&str; 16] = [
    "sys/block/sda/uevent",
    "sys/block/sda/dev",
    "sys/block/sda/size",
    "sys/block/sdb/device/type",
    "sys/block/sdb/device/model",
    "sys/block/sdb/queue/logical_block_size",
    "run/udev/data/b8:0",
    "run/udev/data/b8:16",
    "proc/1/mountinfo",
    "proc/swaps",
    "proc/cpuinfo",
    "proc/meminfo",
    "proc/devices",
    "proc/sys/kernel/hostname",
    "sys/class/dmi/id/product_serial",
    "capture/ip-addr.json",
];
/// Directories of every kind that it lists.
const DIRS: [&str; 5] =
    ["sys/block/sda/holders", "sys/block/sdb", "sys/block", "sys/class/net", "sys/fs/btrfs"];

#[test]
fn the_machine_of_these_tests_has_a_mounted_a_held_and_a_blank_disk() {
    let machine = Machine::new();
    let inventory = machine.stays_safe("nothing broken");
    let disks = inventory["disks"].as_array().unwrap();
    assert_eq!(disks.len(), 3);
    assert_eq!(disks[0]["mounts"], serde_json::json!(["/"]));
    assert_eq!(disks[1]["holds"], serde_json::json!(["ext4"]));
    assert_eq!(disks[2]["holds"], serde_json::json!([]));
}

#[test]
fn no_link_leads_out_of_the_tree() {
    let outside = room();
    let canary = outside.path().join("canary");
    // As every file could be wanted: one line, a record, a number.
    fs::write(&canary, format!("{CANARY}\nI:1\nE:ID_MODEL={CANARY}\nE:ID_FS_TYPE={CANARY}\n")).unwrap();
    fs::create_dir(outside.path().join("dir")).unwrap();
    fs::write(outside.path().join("dir/model"), CANARY).unwrap();
    let up = "../".repeat(40);
    let inside = canary.strip_prefix("/").unwrap();
    for path in FILES.iter().chain(&DIRS) {
        let machine = Machine::new();
        let target = if DIRS.contains(path) { outside.path().join("dir") } else { canary.clone() };
        machine.replace(path, |at| symlink(&target, at).unwrap());
        machine.stays_safe(path);
        machine.replace(path, |at| symlink(Path::new(&up).join(inside), at).unwrap());
        machine.stays_safe(path);
        // A link to itself, and two that lead to each other.
        machine.replace(path, |at| symlink(at.file_name().unwrap(), at).unwrap());
        machine.stays_safe(path);
    }
    // A process of this machine, by its magic link.
    let machine = Machine::new();
    machine.replace("sys/block/sdb/device/model", |at| symlink("/proc/self/cwd/Cargo.toml", at).unwrap());
    machine.replace("proc/1/mountinfo", |at| symlink("/proc/self/mountinfo", at).unwrap());
    machine.stays_safe("magic links");
}

#[test]
fn a_pipe_in_the_place_of_any_file_or_directory_stops_nothing() {
    let began = Instant::now();
    for path in FILES.iter().chain(&DIRS) {
        let machine = Machine::new();
        machine.replace(path, |at| {
            assert!(Command::new("mkfifo").arg(at).status().unwrap().success());
        });
        machine.stays_safe(path);
    }
    assert!(began.elapsed() < Duration::from_secs(HANGS));
}

#[test]
fn a_file_of_a_gibibyte_is_not_read_into_memory() {
    for path in
        FILES.iter().chain(&["capture/ends/sdb.head", "capture/unreadable.json", "etc/stratum/install.yaml"])
    {
        let machine = Machine::new();
        machine.replace(path, |at| File::create(at).unwrap().set_len(1 << 30).unwrap());
        machine.stays_safe(path);
    }
}

#[test]
fn devices_that_stand_on_each_other_in_a_ring_end() {
    let machine = Machine::new();
    for (n, name) in ["dm-0", "dm-1", "dm-2"].iter().enumerate() {
        machine.put(&format!("sys/block/{name}/dev"), format!("253:{n}\n"));
        machine.put(&format!("sys/block/{name}/size"), "16\n");
        machine.put(&format!("sys/block/{name}/dm/uuid"), "LVM-x\n");
        machine.put(&format!("sys/block/{name}/dm/name"), format!("{name}\n"));
        machine.dir(&format!("sys/block/{name}/holders"));
    }
    // A ring of three, one that holds itself, and a disk that stands on what stands on it.
    for (below, above) in [
        ("sdb", "dm-0"),
        ("dm-0", "dm-1"),
        ("dm-1", "dm-2"),
        ("dm-2", "dm-0"),
        ("dm-1", "dm-1"),
        ("dm-2", "sdb"),
        ("sdc", "sdc"),
    ] {
        symlink(format!("../../{above}"), machine.at(&format!("sys/block/{below}/holders/{above}"))).unwrap();
    }
    machine.put(
        "proc/1/mountinfo",
        "2 1 8:0 / / rw - ext4 /dev/sda rw\n3 1 253:1 / /ring rw - ext4 /dev/dm-1 rw\n",
    );
    let inventory = machine.stays_safe("a ring");
    let disks = inventory["disks"].as_array().unwrap();
    assert_eq!(disks[1]["mounts"], serde_json::json!(["/ring"]));
    assert_ne!(disks[2]["holds"], serde_json::json!([]), "something stands on it, if only itself");
}

#[test]
fn names_and_contents_that_are_no_text_stop_nothing_and_come_out_as_none() {
    let machine = Machine::new();
    for name in [&b"sd\xff"[..], b"sd\x1b[2J", b"nvme0n1\xe2\x80\xae", b"..\xc0\xaf", b"sd z", b"s\nd"] {
        let dir = machine.at("sys/block").join(OsStr::from_bytes(name));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("dev"), "8:240\n").unwrap();
        fs::write(dir.join("size"), "16\n").unwrap();
        fs::create_dir(machine.at("sys/block/sda").join(OsStr::from_bytes(name))).unwrap();
        fs::create_dir(machine.at("sys/class/net").join(OsStr::from_bytes(name))).unwrap();
        symlink("../../dm-0", machine.at("sys/block/sdb/holders").join(OsStr::from_bytes(name))).unwrap();
        fs::create_dir_all(machine.at("sys/fs/btrfs").join(OsStr::from_bytes(name)).join("devices")).unwrap();
    }
    machine.stays_safe("names");
    for path in FILES {
        let machine = Machine::new();
        machine.put(path, b"\xff\xfe\x1b]0;owned\x07\0\x9b31m\xc3\x28\n\xe2\x80\xaeE:ID_MODEL=\xff\n");
        machine.stays_safe(path);
    }
}

#[test]
fn ten_thousand_devices_are_listed_in_time() {
    let machine = Machine::new();
    for disk in 0..1000 {
        let name = format!("vd{disk}");
        let dir = machine.at(&format!("sys/block/{name}"));
        fs::create_dir_all(&dir).unwrap();
        let (major, minor) = (300 + disk / 20, disk % 20 * 10);
        fs::write(dir.join("uevent"), format!("MAJOR={major}\nMINOR={minor}\nDEVTYPE=disk\n")).unwrap();
        fs::write(dir.join("size"), "20480\n").unwrap();
        for n in 1..=9 {
            let part = dir.join(format!("{name}p{n}"));
            fs::create_dir(&part).unwrap();
            let uevent = format!("MAJOR={major}\nMINOR={}\nDEVTYPE=partition\nPARTN={n}\n", minor + n);
            fs::write(part.join("uevent"), uevent).unwrap();
            fs::write(part.join("partition"), format!("{n}\n")).unwrap();
            fs::write(part.join("start"), format!("{}\n", n * 2048)).unwrap();
            fs::write(part.join("size"), "2048\n").unwrap();
        }
    }
    let began = Instant::now();
    let out = machine.run(&["--output", "json"], None);
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    let inventory: Value = serde_json::from_slice(&out.stdout).unwrap();
    let disks = inventory["disks"].as_array().unwrap();
    assert_eq!(disks.len(), 1003);
    let with_partitions = disks.iter().filter(|d| d["partitions"].as_array().unwrap().len() == 9);
    assert_eq!(with_partitions.count(), 1000);
}

/// The program where an ordinary user can start it; `None`, and a word, where no other user can be had.
fn for_users() -> Option<(TempDir, PathBuf)> {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can run a program as another user");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let program = dir.path().join("stratum-join");
    fs::copy(env!("CARGO_BIN_EXE_stratum-join"), &program).unwrap();
    Some((dir, program))
}

const NOBODY: u32 = 65534;

#[test]
fn files_that_a_user_may_not_read_free_no_disk() {
    let Some((_dir, program)) = for_users() else { return };
    for path in FILES.iter().chain(&DIRS).chain(&[
        "capture/ends/sdc.tail",
        "capture/ends",
        "sys/block/sdc",
        "run/udev/data",
    ]) {
        let machine = Machine::new();
        fs::set_permissions(machine.0.path(), Permissions::from_mode(0o755)).unwrap();
        if !machine.at(path).exists() {
            machine.put(path, "1\n");
        }
        let old = fs::metadata(machine.at(path)).unwrap().permissions();
        fs::set_permissions(machine.at(path), Permissions::from_mode(0o000)).unwrap();
        let out = machine.run(&["--output", "json"], Some((&program, NOBODY)));
        fs::set_permissions(machine.at(path), old).unwrap();
        let inventory: Value = serde_json::from_slice(&out.stdout).unwrap();
        for disk in inventory["disks"].as_array().unwrap() {
            let empty = |field: &str| disk[field].as_array().unwrap().is_empty();
            match disk["name"].as_str().unwrap() {
                "sda" => assert!(!empty("mounts") && !empty("holds"), "{path}: {disk}"),
                "sdc" if path.contains("ends") => assert!(!empty("holds"), "{path}: {disk}"),
                "sdc" => {}
                _ => assert!(!empty("holds"), "{path}: {disk}"),
            }
        }
    }
}

/// Notes each field in which the user's answer is another one, as (place of the warning that must name it, field).
fn differences(root: &Value, user: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut fields = |at: &str, root: &Value, user: &Value| {
        for (field, value) in root.as_object().unwrap() {
            if *value != user[field] && !["disks", "nics", "host", "warnings"].contains(&field.as_str()) {
                found.push((at.to_owned(), field.clone()));
            }
        }
    };
    fields("", root, user);
    fields("host", &root["host"], &user["host"]);
    for list in ["disks", "nics"] {
        let (root, user) = (root[list].as_array().unwrap(), user[list].as_array().unwrap());
        assert_eq!(root.len(), user.len(), "{list}");
        for (root, user) in root.iter().zip(user) {
            fields(&format!("{list}/{}", root["name"].as_str().unwrap()), root, user);
        }
    }
    found
}

/// Each difference is named by a warning of the user's that root does not have; what follows from another field is named with that.
fn explained(root: &Value, user: &Value) -> Vec<(String, String)> {
    let found = differences(root, user);
    let warnings = |of: &Value| of["warnings"].as_array().unwrap().clone();
    let (old, new) = (warnings(root), warnings(user));
    for (at, field) in &found {
        let named = match field.as_str() {
            "serialSource" => "serial",
            "partitionTable" | "tailFreeBytes" => "holds",
            field => field,
        };
        let names = |w: &&Value| {
            let why = w["code"] == "permission" || w["code"] == "unreadable";
            why && w["at"] == at.as_str() && w["facts"].as_array().unwrap().iter().any(|f| f == named)
        };
        let told = new.iter().find(names).filter(|w| !old.contains(w));
        assert!(told.is_some(), "{at} {field} differs without a word: {user}");
    }
    found
}

#[test]
fn an_ordinary_user_is_told_the_same_but_for_what_it_may_not_read_and_that_is_named() {
    let Some((_dir, program)) = for_users() else { return };
    // A machine whose files are as the kernel has them: serial numbers and disks are root's alone.
    let machine = Machine::new();
    fs::set_permissions(machine.0.path(), Permissions::from_mode(0o755)).unwrap();
    for (file, text) in
        [("product_serial", "SN0002\n"), ("product_uuid", "4c4c4544-0042-3010-8056-b7c04f503232\n")]
    {
        machine.put(&format!("sys/class/dmi/id/{file}"), text);
        fs::set_permissions(machine.at(&format!("sys/class/dmi/id/{file}")), Permissions::from_mode(0o400))
            .unwrap();
    }
    machine.put("sys/class/dmi/id/sys_vendor", "Example\n");
    for file in fs::read_dir(machine.at("capture/ends")).unwrap() {
        fs::set_permissions(file.unwrap().path(), Permissions::from_mode(0o600)).unwrap();
    }
    let json =
        |uid| -> Value { serde_json::from_slice(&machine.run(&["--output", "json"], uid).stdout).unwrap() };
    let (root, user) = (json(None), json(Some((program.as_path(), NOBODY))));
    let found = explained(&root, &user);
    let of = |at: &str, field: &str| (at.to_owned(), field.to_owned());
    assert_eq!(found, [of("host", "serial"), of("host", "serialSource"), of("disks/sdc", "holds")]);
    assert_eq!(
        user["disks"][2]["holds"],
        serde_json::json!(["unreadable"]),
        "a disk that could not be read is never blank"
    );
    let uuid = |w: &&Value| {
        w["code"] == "permission" && w["at"] == "host" && w["facts"].to_string().contains("productUuid")
    };
    assert!(user["warnings"].as_array().unwrap().iter().any(|w| uuid(&w)));
}

#[test]
fn this_machine_is_told_to_an_ordinary_user_as_to_root_but_for_what_is_named() {
    let Some((_dir, program)) = for_users() else { return };
    let probe = |uid: u32| -> Value {
        let mut command = Command::new(&program);
        command.args(["probe", "--output", "json", "--once"]).uid(uid).gid(uid);
        let out = command.output().unwrap();
        assert!(out.status.success() && out.stderr.is_empty(), "{}", String::from_utf8_lossy(&out.stderr));
        serde_json::from_slice(&out.stdout).unwrap()
    };
    let (root, user) = (probe(0), probe(NOBODY));
    println!("differs: {:?}", explained(&root, &user));
    let disks = user["disks"].as_array().unwrap();
    assert!(
        disks.iter().all(|disk| disk["holds"] != serde_json::json!([])),
        "a disk that nobody read is blank"
    );
}
