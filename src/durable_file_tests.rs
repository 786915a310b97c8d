//! Facts about the file discipline, on real files in a temporary directory.

use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

const POINT: &str = "test";

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn names(dir: &Path) -> Vec<String> {
    let mut all: Vec<_> =
        std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    all.sort();
    all
}

#[test]
fn what_is_written_is_read_back_with_its_mode_and_nothing_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.json");
    write(&path, b"one", 0o600, POINT).unwrap();
    write(&path, b"two", 0o600, POINT).unwrap();
    assert_eq!(read_private(&path, 16).unwrap().unwrap(), b"two");
    assert_eq!(mode(&path), 0o600);
    write_volatile(&path, b"three", 0o644, POINT).unwrap();
    assert_eq!(mode(&path), 0o644);
    assert_eq!(names(dir.path()), ["journal.json"]);
}

#[test]
fn missing_is_none_also_when_the_directory_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    assert!(read_private(&dir.path().join("no"), 16).unwrap().is_none());
    assert!(read_private(&dir.path().join("no/such"), 16).unwrap().is_none());
    assert!(read_public(&dir.path().join("no/such"), 16).unwrap().is_none());
    remove(&dir.path().join("no/such"), POINT).unwrap();
}

/// Its name, and what puts it there, given the directory and the path.
type Plant = (&'static str, fn(&Path, &Path));

/// What can be planted under a name of ours. Each is refused by both private readers, and left where it is.
fn plants() -> Vec<Plant> {
    fn put(path: &Path, bytes: &[u8], mode: u32) {
        super::write(path, bytes, mode, POINT).unwrap();
    }
    vec![
        ("a link to a secret of ours", |dir, path| {
            put(&dir.join("other"), b"x", 0o600);
            symlink(dir.join("other"), path).unwrap();
        }),
        ("a relative link", |dir, path| {
            put(&dir.join("other"), b"x", 0o600);
            symlink("other", path).unwrap();
        }),
        ("a link out of the directory", |_, path| symlink("../../../../etc/hostname", path).unwrap()),
        ("a link to nothing", |_, path| symlink("nowhere", path).unwrap()),
        ("a magic link", |_, path| symlink("/proc/self/environ", path).unwrap()),
        ("a hard link", |dir, path| {
            put(&dir.join("other"), b"x", 0o600);
            std::fs::hard_link(dir.join("other"), path).unwrap();
        }),
        ("a directory", |_, path| std::fs::create_dir(path).unwrap()),
        ("a fifo", |_, path| {
            nix::unistd::mkfifo(path, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        }),
    ]
}

/// The files of the state directory that are read as private ones.
const STATE_FILES: [&str; 3] = ["request.json", "journal.json", "key.pem"];

#[test]
fn twenty_four_planted_links_are_refused_and_left() {
    let mut count = 0;
    for name in STATE_FILES {
        for (what, plant) in plants() {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join(name);
            plant(dir.path(), &path);
            let before = std::fs::symlink_metadata(&path).unwrap();
            for result in [read_private(&path, 64), read_own(&path, 64)] {
                let error = result.expect_err(what);
                assert!(error.is_tampered(), "{what}: {error}");
                assert!(error.to_string().contains(name), "{what}: {error}");
            }
            assert_eq!(std::fs::symlink_metadata(&path).unwrap().ino(), before.ino(), "{what}");
            count += 1;
        }
    }
    assert_eq!(count, 24);
}

#[test]
fn a_write_replaces_a_planted_link_and_never_its_target() {
    let dir = tempfile::tempdir().unwrap();
    let victim = dir.path().join("victim");
    write(&victim, b"untouched", 0o600, POINT).unwrap();
    let path = dir.path().join("journal.json");
    symlink(&victim, &path).unwrap();
    write(&path, b"mine", 0o600, POINT).unwrap();
    assert_eq!(std::fs::read(&victim).unwrap(), b"untouched");
    assert_eq!(read_private(&path, 16).unwrap().unwrap(), b"mine");
}

#[test]
fn a_link_under_the_name_of_the_temporary_file_is_never_written_through() {
    let dir = tempfile::tempdir().unwrap();
    let victim = dir.path().join("victim");
    write(&victim, b"untouched", 0o600, POINT).unwrap();
    let next = COUNTER.load(Ordering::Relaxed);
    for n in next..next + 40 {
        symlink(&victim, dir.path().join(format!(".journal.json.{}-{n}.tmp", std::process::id()))).unwrap();
    }
    let path = dir.path().join("journal.json");
    write(&path, b"mine", 0o600, POINT).unwrap();
    assert_eq!(std::fs::read(&victim).unwrap(), b"untouched");
    assert_eq!(read_private(&path, 16).unwrap().unwrap(), b"mine");
}

#[test]
fn the_mode_holds_whatever_the_umask_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("issue");
    // No usual umask leaves both of these bits.
    write_volatile(&path, b"x", 0o666, POINT).unwrap();
    assert_eq!(mode(&path), 0o666);
}

#[test]
fn a_directory_that_is_a_link_is_refused_for_reading_and_writing() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("real")).unwrap();
    symlink("real", dir.path().join("link")).unwrap();
    let path = dir.path().join("link/journal.json");
    assert!(write(&path, b"x", 0o600, POINT).unwrap_err().is_tampered());
    assert!(read_private(&path, 16).unwrap_err().is_tampered());
    assert!(make_dir(&dir.path().join("link"), 0o700).unwrap_err().is_tampered());
    assert_eq!(names(&dir.path().join("real")), [""; 0]);
}

#[test]
fn a_secret_that_others_can_read_is_tampered() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("key.pem");
    for open in [0o640, 0o604, 0o610, 0o601] {
        write(&path, b"x", open, POINT).unwrap();
        let error = read_private(&path, 16).unwrap_err();
        assert!(error.to_string().contains("is open to others"), "{error}");
        assert!(read_own(&path, 16).is_ok());
    }
}

#[test]
fn a_file_of_another_user_is_tampered() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("snapshot.json");
    write(&path, b"x", 0o644, POINT).unwrap();
    let own = rustix::process::geteuid().as_raw();
    assert!(read_owned(&path, 16, own).unwrap().is_some());
    assert!(read_owned(&path, 16, own + 1).unwrap_err().is_tampered());
}

#[test]
fn a_file_over_its_cap_is_tampered_and_one_at_its_cap_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("request.json");
    write(&path, &[b'x'; 64], 0o600, POINT).unwrap();
    assert_eq!(read_private(&path, 64).unwrap().unwrap().len(), 64);
    for result in [read_private(&path, 63), read_public(&path, 63)] {
        assert_eq!(result.unwrap_err().to_string(), format!("{} is larger than 63 bytes", path.display()));
    }
}

#[test]
fn what_a_crash_left_is_swept_with_the_file_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("request.json");
    for name in
        [".request.json.77-0.tmp", ".journal.json.77-1.tmp", ".request.json.tmp", "request.json", "notes.tmp"]
    {
        super::write_volatile(&dir.path().join(name), b"x", 0o600, POINT).unwrap();
    }
    remove(&path, POINT).unwrap();
    assert_eq!(names(dir.path()), [".journal.json.77-1.tmp", ".request.json.tmp", "notes.tmp"]);
    sweep(dir.path()).unwrap();
    assert_eq!(names(dir.path()), [".request.json.tmp", "notes.tmp"]);
}

#[test]
fn a_second_lock_names_the_pid_and_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lock");
    let held = Lock::take(&path).unwrap();
    let error = Lock::take(&path).unwrap_err().to_string();
    let want =
        format!("another stratum-join agent (pid {}) owns {}", std::process::id(), dir.path().display());
    assert_eq!(error, want);
    drop(held);
    Lock::take(&path).unwrap();
}

#[test]
fn a_full_disk_and_a_missing_directory_say_so_in_plain_words() {
    let full = failed("write", Path::new("/var/x"), Errno::NOSPC);
    assert_eq!(full.to_string(), "cannot write /var/x: the disk is full");
    assert!(full.is_full() && !full.is_tampered());
    assert_eq!(full.fault().code, Code::Local);
    let dir = tempfile::tempdir().unwrap();
    let error = write(&dir.path().join("no/such"), b"x", 0o600, POINT).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("cannot open {}: no such file or directory", dir.path().join("no").display())
    );
    assert_eq!(plain(Errno::INTR), "interrupted system call");
}

#[test]
fn a_new_directory_has_its_mode_and_those_above_are_open() {
    let dir = tempfile::tempdir().unwrap();
    let deep = dir.path().join("var/lib/join");
    make_dir(&deep, 0o700).unwrap();
    make_dir(&deep, 0o700).unwrap();
    assert_eq!(mode(&deep), 0o700);
    assert_eq!(mode(&dir.path().join("var/lib")), 0o755);
}

#[test]
fn a_secret_is_overwritten_when_it_is_replaced_or_removed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("request.json");
    let watch = |path: &Path| File::open(path).unwrap();
    let content = |mut file: File| {
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        text
    };
    write(&path, b"code", 0o600, POINT).unwrap();
    let old = watch(&path);
    write_secret(&path, b"none", 0o600, POINT).unwrap();
    assert_eq!(content(old), "\0\0\0\0");
    let old = watch(&path);
    remove(&path, POINT).unwrap();
    assert_eq!(content(old), "\0\0\0\0");
}

#[test]
fn a_file_with_another_name_is_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("request.json");
    write(&path, b"code", 0o600, POINT).unwrap();
    std::fs::hard_link(&path, dir.path().join("kept")).unwrap();
    remove(&path, POINT).unwrap();
    assert_eq!(std::fs::read(dir.path().join("kept")).unwrap(), b"code");
}
