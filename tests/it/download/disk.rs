//! Disks that are really full, and one that really fails: file systems of their own on loop devices, made and mounted by root. What a fake disk can
//! show better lies beside the engine (`src/upgrade/fetch/tests.rs`).

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::process::Command;

use rustix::fs::{MemfdFlags, SealFlags};

use super::*;

/// A mounted file system, unmounted with this value.
struct Volume {
    at: PathBuf,
    _dir: TempDir,
}

impl Volume {
    /// In memory, of so many MiB. `None`, said plainly, where nothing can be mounted.
    fn memory(mib: u64) -> Option<Self> {
        let size = format!("size={mib}m");
        Self::mount(&["-t", "tmpfs", "-o", &size, "tmpfs"])
    }

    /// ext2 on a device of so many MiB that lies in `file`: a file system that reserves nothing beforehand, so that writes meet its end.
    fn device(file: &File, mib: u64) -> Option<Self> {
        file.set_len(mib << 20).unwrap();
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        if !done(Command::new("mkfs.ext2").args(["-q", "-F", "-m", "0", &path])) {
            println!("skipped: mkfs.ext2 is not here");
            return None;
        }
        Self::mount(&["-t", "ext2", "-o", "loop", &path])
    }

    fn mount(what: &[&str]) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("volume");
        fs::create_dir(&at).unwrap();
        if !done(Command::new("mount").args(what).arg(&at)) {
            println!("skipped: no file system can be mounted here");
            return None;
        }
        Some(Self { at, _dir: dir })
    }

    /// Takes all the room there is.
    fn fill(&self) {
        let mut filler = File::create(self.at.join("filler")).unwrap();
        let zeros = vec![0; 1 << 20];
        while filler.write_all(&zeros).is_ok() {}
    }

    fn empty(&self) {
        fs::remove_file(self.at.join("filler")).unwrap();
    }

    /// A download into this volume.
    fn fetch(
        &self,
        lab: &Lab,
        mirror: &EvilMirror,
        told: impl FnMut(&Progress),
    ) -> Result<Progress, UpgradeFault> {
        let source = Arc::new(source(&settings(mirror)).unwrap());
        let stage = Stage::open(&self.at.join("stage")).unwrap();
        let fetched = block_on(fetch(source, stage, lab.wants.clone(), options(STEADY), told));
        for want in &lab.wants {
            let blob = fs::read(self.at.join("stage/blobs").join(want.sha256.to_string()));
            assert!(blob.is_err() || blob.is_ok_and(|bytes| Digest::of(&bytes) == want.sha256));
        }
        fetched.map(|fetched| fetched.progress)
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let _ = done(Command::new("umount").arg("-l").arg(&self.at));
    }
}

fn done(command: &mut Command) -> bool {
    command.output().is_ok_and(|out| out.status.success())
}

fn memory(name: &str) -> File {
    rustix::fs::memfd_create(name, MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC).unwrap().into()
}

#[test]
fn a_small_file_system_is_refused_before_the_first_byte() {
    let lab = Lab::new();
    let Some(volume) = Volume::memory(68) else { return };
    let mirror = lab.mirror(&[]);
    let fault = volume.fetch(&lab, &mirror, |_| {}).unwrap_err();
    says(&fault, Code::NoSpace, "needs 80.0 MiB, has 6", "Free space");
    assert_eq!(mirror.connections(), 0);
}

#[test]
fn room_that_somebody_took_meanwhile_is_missed_before_the_next_file() {
    let lab = Lab::with(&[("os/root", 2 * CHUNK), ("os/kernel", CHUNK)]);
    let Some(volume) = Volume::memory(100) else { return };
    let mirror = lab.mirror(&[Fault::times(MirrorFault::Silent, 1).at("kernel")]);
    let mut full = false;
    let fault = volume.fetch(&lab, &mirror, |progress| {
        if progress.done == 2 * CHUNK && !std::mem::replace(&mut full, true) {
            volume.fill();
        }
    });
    says(&fault.unwrap_err(), Code::NoSpace, "needs 68.0 MiB, has 0 B", "Free space");
    volume.empty();
    let progress = volume.fetch(&lab, &mirror, |_| {}).unwrap();
    assert_eq!((progress.kept, progress.fetched), (2 * CHUNK, CHUNK));
}

#[test]
fn a_disk_that_is_full_in_the_middle_of_a_file_ends_the_attempt_and_keeps_what_is_verified() {
    let lab = Lab::with(&[("os/root", 5 * CHUNK)]);
    let file = memory("full");
    let Some(volume) = Volume::device(&file, 100) else { return };
    // The rest comes when the disk is full.
    let mirror = lab.mirror(&[Fault::times(MirrorFault::Stall(2 * CHUNK + 9), 1)]);
    let mut full = false;
    let fault = volume.fetch(&lab, &mirror, |progress| {
        if progress.done == 2 * CHUNK && !std::mem::replace(&mut full, true) {
            volume.fill();
        }
    });
    says(&fault.unwrap_err(), Code::NoSpace, ": the disk is full.", "Free space");
    assert!(full);
    volume.empty();
    let progress = volume.fetch(&lab, &mirror, |_| {}).unwrap();
    assert_eq!((progress.kept, progress.done), (2 * CHUNK, lab.total()));
}

/// The device lies in memory that is sealed: from then on it reads, and every write to it fails.
#[test]
fn a_disk_that_fails_when_it_is_synced_is_named_and_nothing_of_the_file_counts() {
    let lab = Lab::with(&[("os/root", 2 * CHUNK)]);
    let file = memory("failing");
    let Some(volume) = Volume::device(&file, 100) else { return };
    drop(Stage::open(&volume.at.join("stage")).unwrap());
    let mirror = lab.mirror(&[]);
    let source = Arc::new(source(&settings(&mirror)).unwrap());
    let stage = Stage::open(&volume.at.join("stage")).unwrap();
    rustix::fs::fcntl_add_seals(&file, SealFlags::WRITE).unwrap();
    let fault = block_on(fetch(source, stage, lab.wants.clone(), options(STEADY), |_| {})).unwrap_err();
    says(&fault, Code::Io, "The disk failed: syncing ", "Check the disk (`smartctl`); replace it.");
    says(&fault, Code::Io, ": the disk reports an input/output error.", "");
    // Once more, because the first copy could not be trusted; and not a third time.
    assert_eq!(mirror.sent(), 2 * lab.total());
    for sub in ["parts", "blobs"] {
        assert_eq!(fs::read_dir(volume.at.join("stage").join(sub)).unwrap().count(), 0, "{sub}");
    }
}
