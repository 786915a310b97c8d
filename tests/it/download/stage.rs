//! A stage that was damaged or planted: it heals a chunk at a time, and nothing outside of it is touched.

use std::os::unix::fs::{FileExt, MetadataExt, symlink};

use super::*;

/// A lab whose first file is complete but for what `damage` does to its part.
fn damaged(damage: impl FnOnce(&fs::File, &Lab)) -> Lab {
    let lab = Lab::with(&[("os/root", 4 * CHUNK + 9)]);
    fs::create_dir_all(lab.stage().join("parts")).unwrap();
    fs::write(lab.part(0), lab.served(0)).unwrap();
    let part = fs::File::options().write(true).read(true).open(lab.part(0)).unwrap();
    damage(&part, &lab);
    lab
}

/// Bytes that the download of a healthy mirror fetched.
fn healed(lab: &Lab) -> u64 {
    let mirror = lab.mirror(&[]);
    let progress = lab.fetch_and_look(&mirror, STEADY);
    assert_eq!(progress.fetched, mirror.sent());
    progress.fetched
}

#[test]
fn a_tail_of_zeros_after_a_power_cut_costs_its_chunks() {
    let zeros = vec![0; 1024 * 1024];
    let at = 4 * CHUNK + 9 - zeros.len() as u64;
    let lab = damaged(|part, _| part.write_all_at(&zeros, at).unwrap());
    assert_eq!(healed(&lab), CHUNK + 9);
}

#[test]
fn a_flipped_bit_in_what_is_here_costs_its_chunk() {
    let lab = damaged(|part, lab| {
        let at = CHUNK + 12345;
        part.write_all_at(&[lab.served(0)[usize::try_from(at).unwrap()] ^ 4], at).unwrap();
    });
    assert_eq!(healed(&lab), CHUNK);
}

#[test]
fn a_flipped_bit_in_a_complete_file_costs_its_chunk() {
    let lab = damaged(|_, _| {});
    assert_eq!(healed(&lab), 0);
    let blob = fs::File::options().write(true).open(lab.blob(0)).unwrap();
    blob.write_all_at(&[lab.served(0)[0] ^ 1], 0).unwrap();
    assert_eq!(healed(&lab), CHUNK);
}

#[test]
fn a_part_of_any_length_is_used_as_far_as_it_is_right() {
    for (len, missing) in [
        (0, 4 * CHUNK + 9),
        (1, 4 * CHUNK + 9),
        (CHUNK, 3 * CHUNK + 9),
        (3 * CHUNK + 77, CHUNK + 9),
        (4 * CHUNK + 8, 9),
    ] {
        let lab = damaged(|part, _| part.set_len(len).unwrap());
        assert_eq!(healed(&lab), missing, "{len}");
    }
    let lab = damaged(|part, _| part.write_all_at(b"glued on", 4 * CHUNK + 9).unwrap());
    assert_eq!(healed(&lab), 0);
}

#[test]
fn another_files_content_costs_what_differs() {
    let other = noise("another", 2 * CHUNK);
    let lab = damaged(|part, _| part.write_all_at(&other, CHUNK).unwrap());
    assert_eq!(healed(&lab), 2 * CHUNK);
}

#[test]
fn a_hole_is_missing_unless_zeros_are_what_belongs_there() {
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = noise("with zeros", 5 * CHUNK);
    let zeros = usize::try_from(CHUNK).unwrap()..usize::try_from(2 * CHUNK).unwrap();
    bytes[zeros].fill(0);
    fs::create_dir_all(dir.path().join("release/os")).unwrap();
    fs::write(dir.path().join("release/os/root"), &bytes).unwrap();
    let lab = Lab { wants: vec![entry("os/root", &bytes)], dir };
    fs::create_dir_all(lab.stage().join("parts")).unwrap();
    // Nothing but holes: the length alone.
    fs::File::create(lab.part(0)).unwrap().set_len(5 * CHUNK).unwrap();
    assert_eq!(healed(&lab), 4 * CHUNK);
}

#[test]
fn planted_names_are_neither_followed_nor_waited_for() {
    let lab = Lab::with(&[
        ("os/a", 9),
        ("os/b", 9),
        ("os/c", 9),
        ("os/d", 9),
        ("os/e", 2 * CHUNK),
        ("os/f", 9),
        ("os/g", 9),
    ]);
    let victim = lab.dir.path().join("victim");
    fs::write(&victim, b"precious").unwrap();
    for sub in ["parts", "blobs"] {
        fs::create_dir_all(lab.stage().join(sub)).unwrap();
    }
    let mkfifo = |path: &Path| {
        let done = std::process::Command::new("mkfifo").arg(path).status().unwrap();
        assert!(done.success());
    };
    symlink(&victim, lab.part(0)).unwrap();
    symlink(&victim, lab.blob(1)).unwrap();
    mkfifo(&lab.part(2));
    mkfifo(&lab.blob(3));
    fs::hard_link(&victim, lab.part(4)).unwrap();
    fs::create_dir(lab.part(5)).unwrap();
    fs::write(lab.part(5).join("inside"), b"x").unwrap();
    let socket = std::os::unix::net::UnixListener::bind(lab.blob(6)).unwrap();
    symlink("/dev/zero", lab.part(6)).unwrap();
    lab.fetch_and_look(&lab.mirror(&[]), STEADY);
    drop(socket);
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
    assert_eq!(fs::metadata(&victim).unwrap().nlink(), 1);
}

#[test]
fn a_stage_behind_a_link_is_no_stage() {
    let lab = Lab::new();
    let real = lab.dir.path().join("real");
    fs::create_dir(&real).unwrap();
    symlink(&real, lab.stage()).unwrap();
    assert!(Stage::open(&lab.stage()).is_err());
    fs::remove_file(lab.stage()).unwrap();
    fs::create_dir(lab.stage()).unwrap();
    symlink(&real, lab.stage().join("parts")).unwrap();
    assert!(Stage::open(&lab.stage()).is_err());
    assert_eq!(fs::read_dir(&real).unwrap().count(), 0);
}

#[test]
fn cleaning_keeps_what_is_wanted_and_nothing_else() {
    let lab = Lab::new();
    lab.fetch_and_look(&lab.mirror(&[]), STEADY);
    let victim = lab.dir.path().join("victim");
    fs::create_dir(&victim).unwrap();
    fs::write(victim.join("file"), b"precious").unwrap();
    let other = Digest::of(b"another").to_string();
    for sub in ["parts", "blobs"] {
        fs::write(lab.stage().join(sub).join(&other), b"x").unwrap();
        fs::write(lab.stage().join(sub).join("notes.txt"), b"x").unwrap();
        symlink(&victim, lab.stage().join(sub).join("link")).unwrap();
        fs::create_dir_all(lab.stage().join(sub).join("dir/deep")).unwrap();
    }
    let stage = Stage::open(&lab.stage()).unwrap();
    stage.clean_files(&lab.wants.iter().map(|want| want.sha256).collect()).unwrap();
    drop(stage);
    lab.look();
    assert_eq!(fs::read(victim.join("file")).unwrap(), b"precious");
}

#[test]
fn a_second_download_into_the_same_stage_is_told_of_the_first() {
    let lab = Lab::new();
    let held = Stage::open(&lab.stage()).unwrap();
    let out = std::process::Command::new(crate::support::bin("stratum-join"))
        .args(["release", "fetch", "--source", "https://127.0.0.1:1", "--keys", "/nonexistent", "--to"])
        .arg(lab.stage())
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(8), "keys come first");
    // The same process waits for its own; another one is refused at once.
    drop(held);
    assert!(Stage::open(&lab.stage()).is_ok());
}

#[test]
fn too_little_room_is_said_before_the_first_byte_with_both_figures() {
    let lab = Lab::new();
    let mut wants = lab.wants.clone();
    wants[0].size = 1 << 50;
    let stage = Stage::open(&lab.stage()).unwrap();
    let full = stage.room(&wants).unwrap_err().to_string();
    assert!(full.contains("needs 1024.0 TiB, has "), "{full}");
    assert!(stage.room(&lab.wants).is_ok());
}
