//! `stratum-join probe` on captured machines. They are public and lie beside the repository (`../shared/hwdata`, whose INDEX.md says what each
//! must give), because of their licences; a checkout without them skips these tests, and says so.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

/// A folder of what lies beside the repository.
fn shared(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared").join(name);
    if path.exists() {
        return Some(path);
    }
    println!("skipped: ../shared/{name} not found");
    None
}

/// Runs a program of the machine; `None`, and a word, when it is not there or fails.
fn tool(command: &mut Command) -> Option<()> {
    match command.output() {
        Ok(out) if out.status.success() => Some(()),
        Ok(out) => panic!("{command:?}: {}", String::from_utf8_lossy(&out.stderr)),
        Err(error) => {
            println!("skipped: {}: {error}", command.get_program().display());
            None
        }
    }
}

/// A directory for thousands of small files: in memory where that is possible.
pub fn room() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { TempDir::new_in(memory).unwrap() } else { TempDir::new().unwrap() }
}

/// Unpacks an archive into a directory of its own.
fn unpack(archive: &Path) -> Option<TempDir> {
    let dir = room();
    tool(Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(dir.path()))?;
    Some(dir)
}

/// The tree that a recorded machine becomes.
fn tree_of(machine: &Path) -> Option<TempDir> {
    let converter = shared("tools/probert2tree.py")?;
    let dir = room();
    tool(Command::new("python3").arg(converter).arg(machine).arg(dir.path()))?;
    Some(dir)
}

/// What the program says of the tree at `root`.
fn probe(root: &Path) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stratum-join"));
    let out = command.args(["probe", "--output", "json", "--root"]).arg(root).output().unwrap();
    assert!(out.status.success(), "{}: {}", root.display(), String::from_utf8_lossy(&out.stderr));
    assert!(out.stdout.ends_with(b"}\n") && out.stderr.is_empty());
    serde_json::from_slice(&out.stdout).unwrap()
}

/// Every key that `want` gives is equal, lists have the same length and order; what `want` does not give is not compared. Notes each
/// difference.
fn compare(at: &str, want: &Value, have: &Value, differences: &mut Vec<String>) {
    match (want, have) {
        (Value::Object(want), Value::Object(have)) => {
            for (key, want) in want {
                compare(&format!("{at}.{key}"), want, have.get(key).unwrap_or(&Value::Null), differences);
            }
        }
        (Value::Array(want), Value::Array(have)) if want.len() == have.len() => {
            for (n, (want, have)) in want.iter().zip(have).enumerate() {
                compare(&format!("{at}[{n}]"), want, have, differences);
            }
        }
        (want, have) if want == have => {}
        (want, have) => differences.push(format!("{at}: want {want}, have {have}")),
    }
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect()
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|item| item.as_str().unwrap()).collect()
}

#[test]
fn every_recorded_machine_gives_its_expected_answer() {
    let Some(machines) = shared("hwdata/subiquity-machines") else { return };
    let (mut differences, mut seen) = (Vec::new(), 0);
    for entry in std::fs::read_dir(machines.join("expected")).unwrap() {
        let file = entry.unwrap().file_name();
        let Some(tree) = tree_of(&machines.join(&file)) else { return };
        let want =
            serde_json::from_slice(&std::fs::read(machines.join("expected").join(&file)).unwrap()).unwrap();
        compare(&file.to_string_lossy(), &want, &probe(tree.path()), &mut differences);
        seen += 1;
    }
    assert!(seen >= 15 && differences.is_empty(), "{seen} machines\n{}", differences.join("\n"));
}

#[test]
fn a_whole_captured_tree_lists_its_disks_with_their_mounts() {
    let Some(dumps) = shared("hwdata/util-linux/lsblk-dumps") else { return };
    for name in ["simple-lvm", "simple-nvme"] {
        let Some(dir) = unpack(&dumps.join(format!("{name}.tar.xz"))) else { return };
        let inventory = probe(&dir.path().join(name));
        let disks = inventory["disks"].as_array().unwrap();
        let mounts: Vec<_> =
            disks.iter().map(|d| (d["name"].as_str().unwrap(), texts(&d["mounts"]))).collect();
        let want = [
            ("nvme0n1", vec!["/home", "/home/test"]),
            ("sda", vec!["/", "/boot", "/boot/efi"]),
            ("sdb", vec!["/home/archive"]),
        ];
        assert_eq!(mounts, want, "{name}");
        assert_eq!(disks[0]["serial"], "50026B728203601D");
        // Without udev nothing tells them; sysfs has only half of the model.
        assert_eq!((&disks[1]["wwn"], &disks[2]["wwn"]), (&Value::Null, &Value::Null));
        assert!(disks.iter().all(|d| d["holds"] != Value::Array(Vec::new())), "{name}");
    }
}

#[test]
fn captures_of_other_tools_list_their_disks_and_nothing_more() {
    let Some(data) = shared("hwdata") else { return };
    let machines: [(&str, &str, &[&str], &[&str]); 12] = [
        ("ghw-snapshots/linux-amd64-415ee03b8c4d1c4f07ae2e9d8b3d3d6d.tar.gz", "", &["nvme0n1"], &[]),
        ("ghw-snapshots/linux-amd64-8581cf3a529e5d8b97ea876eade2f60d.tar.gz", "", &["sda"], &[]),
        ("ghw-snapshots/linux-amd64-accel.tar.gz", "", &["vda"], &[]),
        ("ghw-snapshots/linux-amd64-accel-nvidia.tar.gz", "", &["sda"], &[]),
        ("ghw-snapshots/linux-arm64-c288e0776090cd558ef793b2a4e61939.tar.gz", "", &["nvme0n1"], &[]),
        ("ghw-snapshots/linux-amd64-offlineCPUs.tar.gz", "", &[], &[]),
        ("hwloc/2pa-pcidomain32bits.tar.bz2", "2pa-pcidomain32bits", &["vda"], &["ens3"]),
        ("hwloc/40intel64-2g2n4c+pcilocality.tar.bz2", "40intel64-2g2n4c+pci", &["sda"], &[]),
        ("hwloc/32intel64-2p8co2t+8ve.tar.bz2", "32intel64-2p8co2t+8ve", &[], &["enp96s0f0", "enp96s0f1"]),
        ("hwloc/nvidia-dgx-gb10.tar.bz2", "nvidia-dgx-gb10", &[], &[]),
        // sdb to sde, and all of the next one's, have no size: size unknown is no disk.
        ("prometheus-procfs/fixtures-unpacked.tar.xz", "fixtures", &["sda"], &["eth0"]),
        ("prometheus-node_exporter/sys-unpacked.tar.xz", "", &[], &[]),
    ];
    for (archive, root, disks, nics) in machines {
        let Some(dir) = unpack(&data.join(archive)) else { return };
        let inventory = probe(&dir.path().join(root));
        assert_eq!(names(&inventory["disks"]), disks, "{archive}");
        if !nics.is_empty() {
            assert_eq!(names(&inventory["nics"]), nics, "{archive}");
        }
        // None of them was captured with its mount table and udev: nothing may look free.
        for disk in inventory["disks"].as_array().unwrap() {
            assert_ne!(disk["holds"], Value::Array(Vec::new()), "{archive}");
        }
    }
}

#[test]
fn udev_records_of_a_real_machine_are_understood_beside_any_tree() {
    let Some(data) = shared("hwdata") else { return };
    let Some(dir) = unpack(&data.join("prometheus-node_exporter/udev-unpacked.tar.xz")) else { return };
    std::fs::create_dir(dir.path().join("run")).unwrap();
    std::fs::rename(dir.path().join("udev"), dir.path().join("run/udev")).unwrap();
    let put = |path: &str, text: &str| {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    for (name, number) in [("sda", "8:0"), ("sdb", "8:16"), ("sdc", "8:32"), ("nvme0n1", "259:0")] {
        put(&format!("sys/block/{name}/dev"), number);
        put(&format!("sys/block/{name}/size"), "2048");
    }
    let inventory = probe(dir.path());
    for disk in inventory["disks"].as_array().unwrap() {
        assert_ne!((&disk["model"], &disk["serial"]), (&Value::Null, &Value::Null), "{}", disk["name"]);
        assert_ne!(disk["keys"], Value::Array(Vec::new()), "{}", disk["name"]);
    }
    assert_eq!(names(&inventory["disks"]), ["nvme0n1", "sda", "sdb", "sdc"]);
}

#[test]
fn a_captured_tree_is_read_without_a_socket_to_the_kernel_and_without_another_program() {
    let Some(machines) = shared("hwdata/subiquity-machines") else { return };
    let Some(tree) = tree_of(&machines.join("multipath.json")) else { return };
    let trace = tree.path().join("trace");
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-e", "trace=socket,execve,openat2", "-o"]).arg(&trace);
    command.arg(env!("CARGO_BIN_EXE_stratum-join")).args(["probe", "--root"]).arg(tree.path());
    if tool(&mut command).is_none() {
        return;
    }
    let trace = std::fs::read_to_string(trace).unwrap();
    let count = |what: &str| trace.lines().filter(|l| l.contains(what)).count();
    assert_eq!((count("socket("), count("execve(")), (0, 1));
    assert!(count("openat2(") > 20 && count("openat2(") == count("RESOLVE_IN_ROOT"));
}

#[test]
fn this_machine_is_read_without_a_file_opened_for_writing_or_alone() {
    let room = room();
    let trace = room.path().join("trace");
    let mut command = Command::new("strace");
    command.args([
        "-f",
        "-qq",
        "-e",
        "trace=open,openat,openat2,creat,ioctl,mount,unlink,rename,init_module",
    ]);
    command.arg("-o").arg(&trace).arg(env!("CARGO_BIN_EXE_stratum-join")).args(["probe", "--output", "json"]);
    if tool(&mut command).is_none() {
        return;
    }
    let trace = std::fs::read_to_string(trace).unwrap();
    let (ioctls, calls): (Vec<&str>, Vec<&str>) = trace.lines().partition(|l| l.contains("ioctl("));
    for word in ["O_WRONLY", "O_RDWR", "O_CREAT", "O_EXCL", "O_TRUNC", "creat(", "mount(", "unlink", "rename"]
    {
        // What a child says to nobody goes there.
        let found = calls.iter().find(|l| l.contains(word) && !l.contains("\"/dev/null\""));
        assert_eq!(found, None, "{word}");
    }
    // `wipefs` asks a disk how large it is and what it is; whoever prints asks whether that is a terminal.
    let questions = [
        "GETSIZE",
        "SSZGET",
        "PBSZGET",
        "BLKIOOPT",
        "BLKIOMIN",
        "BLKALIGNOFF",
        "BLKGET",
        "CDROM_GET",
        "TCGETS",
    ];
    let other = ioctls.iter().find(|l| !questions.iter().any(|question| l.contains(question)));
    assert_eq!(other, None);
    assert!(calls.len() > 50);
}

#[test]
fn one_look_at_a_captured_tree_is_what_every_look_at_it_is() {
    let root = room();
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stratum-join"));
        let out = command.args(["probe", "--output", "json", "--root"]).arg(root.path()).args(args).output();
        out.unwrap().stdout
    };
    assert!(!run(&[]).is_empty());
    assert_eq!(run(&["--once"]), run(&[]));
}

/// `stratum-join probe --root ROOT --capture DIR`, with more arguments.
fn capture(root: &Path, dir: &Path, more: &[&str]) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stratum-join"));
    command.args(["probe", "--root"]).arg(root).arg("--capture").arg(dir).args(more).output().unwrap()
}

#[test]
fn a_copy_of_each_recorded_machine_gives_the_same_answer() {
    let Some(machines) = shared("hwdata/subiquity-machines") else { return };
    for name in ["multipath", "nvme-over-tcp", "existing-partitions", "many-nics-and-disks"] {
        let Some(tree) = tree_of(&machines.join(format!("{name}.json"))) else { return };
        let room = room();
        let copy = room.path().join("copy");
        let out = capture(tree.path(), &copy, &[]);
        let said = String::from_utf8(out.stdout).unwrap();
        assert!(
            out.status.success() && out.stderr.is_empty() && !said.contains("does not give"),
            "{name}: {said}"
        );
        assert_eq!(probe(&copy), probe(tree.path()), "{name}");
        assert_eq!(std::fs::read_dir(room.path()).unwrap().count(), 1, "something stayed beside the copy");
    }
}

#[test]
fn a_copy_is_made_in_a_new_or_empty_directory_alone_and_is_its_owners() {
    use std::os::unix::fs::PermissionsExt;
    let (root, room) = (room(), room());
    let full = room.path().join("full");
    std::fs::create_dir(&full).unwrap();
    std::fs::write(full.join("mine"), "keep").unwrap();
    let out = capture(root.path(), &full, &[]);
    assert_eq!(out.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&out.stderr).contains("the directory is not empty"));
    let out = capture(root.path(), &room.path().join("no/where"), &[]);
    assert_eq!(out.status.code(), Some(1));
    let empty = room.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    assert!(capture(root.path(), &empty, &["--redact"]).status.success());
    assert_eq!(std::fs::metadata(&empty).unwrap().permissions().mode() & 0o777, 0o700);
    let mut left: Vec<_> = std::fs::read_dir(room.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["empty", "full"]);
    assert_eq!(std::fs::read_to_string(full.join("mine")).unwrap(), "keep");
}
