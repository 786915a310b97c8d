//! Downloads onto a disk that fails. The disk is a fake and says so ([`Trouble`]); mirror and engine are real.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use lab_founder::EvilMirror;
use rustix::io::Errno;

use super::*;
use crate::durable_file::plain;
use crate::upgrade::CHUNK;
use crate::upgrade::Digest;
use crate::upgrade::fault::Code;
use crate::upgrade::source::{Mirror, MirrorSettings};
use crate::upgrade::stage::Op;

const SIZE: usize = 3 * 4 * 1024 * 1024;

/// One file of three chunks, fetched onto a disk that does this. Twice: the second time onto a healthy one.
fn onto(script: &[(Op, u32, Errno)]) -> (Result<Progress, UpgradeFault>, Progress, bool) {
    let dir = tempfile::tempdir().unwrap();
    let bytes: Vec<u8> = (0..SIZE).map(|n| u8::try_from((n / 1000 + n) % 251).unwrap()).collect();
    std::fs::create_dir_all(dir.path().join("release/os")).unwrap();
    std::fs::write(dir.path().join("release/os/root"), &bytes).unwrap();
    let want = FileEntry {
        path: "os/root".parse().unwrap(),
        size: bytes.len() as u64,
        sha256: Digest::of(&bytes),
        chunks: bytes.chunks(usize::try_from(CHUNK).unwrap()).map(Digest::of).collect(),
    };
    let mirror = EvilMirror::of(&dir.path().join("release"), &[]).unwrap();
    let source = Mirror::new(&MirrorSettings {
        url: mirror.url(),
        ca_pem: Some(mirror.ca_pem().as_bytes().to_vec()),
        allow_local: true,
        ..MirrorSettings::default()
    });
    let source = Arc::new(Source::Mirror(source.unwrap()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let at = dir.path().join("stage");
    let run = |script: &[(Op, u32, Errno)]| {
        let stage = Stage::open(&at).unwrap().with_trouble(script);
        let work = fetch(Arc::clone(&source), stage, vec![want.clone()], Options::default(), |_| {});
        runtime.block_on(work).map(|fetched| fetched.progress)
    };
    let first = run(script);
    let part_left = at.join("parts").join(want.sha256.to_string()).exists();
    let second = run(&[]).unwrap();
    let blob = std::fs::read(at.join("blobs").join(want.sha256.to_string())).unwrap();
    assert!(blob == bytes);
    (first, second, part_left)
}

#[test]
fn a_full_disk_ends_the_attempt_at_once_and_keeps_every_byte() {
    for (op, kept) in [(Op::Allocate, 0), (Op::LateWrite, 2)] {
        for errno in [Errno::NOSPC, Errno::DQUOT] {
            let (first, second, _) = onto(&[(op, 1, errno)]);
            let fault = first.unwrap_err();
            assert_eq!(fault.code, Code::NoSpace, "{fault:?}");
            assert!(fault.what.as_str().starts_with("There is no room for the release: "), "{fault:?}");
            let words = if errno == Errno::NOSPC { "the disk is full" } else { "the disk quota is used up" };
            assert!(fault.what.as_str().contains(words), "{fault:?}");
            assert_eq!(fault.todo.as_str(), "Free space, or reinstall with a larger disk.");
            assert!(second.kept >= kept * CHUNK, "{second:?}");
        }
    }
}

#[test]
fn a_read_only_file_system_ends_the_attempt_at_once() {
    let (first, second, left) = onto(&[(Op::LateWrite, 1, Errno::ROFS)]);
    let fault = first.unwrap_err();
    assert_eq!(fault.code, Code::Io);
    assert!(fault.what.as_str().contains("the file system is read-only"), "{fault:?}");
    assert!(left && second.kept >= 2 * CHUNK, "{second:?}");
}

#[test]
fn every_step_on_the_disk_with_every_error_of_it_is_named_and_leaves_nothing_in_the_way() {
    for op in [Op::Create, Op::Allocate, Op::Write, Op::Sync, Op::Rename] {
        for errno in [Errno::NOSPC, Errno::IO, Errno::ROFS, Errno::MFILE, Errno::ACCESS] {
            let (first, second, _) = onto(&[(op, 1, errno), (op, 2, errno)]);
            let fault = first.unwrap_err();
            let code = if errno == Errno::NOSPC { Code::NoSpace } else { Code::Io };
            assert_eq!(fault.code, code, "{op:?} {errno:?}: {fault:?}");
            assert!(fault.what.as_str().ends_with(&format!(": {}.", plain(errno))), "{fault:?}");
            assert!(fault.todo.as_str().ends_with('.'), "{fault:?}");
            // The disk is well again: `onto` has compared every byte.
            assert_eq!(second.done, SIZE as u64);
        }
    }
}

#[test]
fn after_an_error_of_the_disk_the_file_is_fetched_anew() {
    for op in [Op::Write, Op::Sync] {
        let (first, ..) = onto(&[(op, 1, Errno::IO)]);
        let progress = first.unwrap();
        assert_eq!(progress.done, SIZE as u64);
        // What a sync did not get to the disk was all received, and none of it counts.
        assert!(op != Op::Sync || progress.fetched == 2 * SIZE as u64, "{progress:?}");
    }
}

#[test]
fn a_second_error_of_the_disk_is_the_disks_fault_and_nothing_of_the_file_stays() {
    for (op, doing) in [(Op::Write, "writing"), (Op::Sync, "syncing")] {
        let (first, second, left) = onto(&[(op, 1, Errno::IO), (op, 2, Errno::IO)]);
        let fault = first.unwrap_err();
        assert_eq!(fault.code, Code::Io, "{fault:?}");
        let what = fault.what.as_str();
        assert!(what.starts_with(&format!("The disk failed: {doing} ")), "{what}");
        assert!(what.ends_with("the disk reports an input/output error."), "{what}");
        assert_eq!(fault.todo.as_str(), "Check the disk (`smartctl`); replace it.");
        assert!(!left);
        assert_eq!(second.kept, 0);
    }
}
