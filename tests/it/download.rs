//! The download of a release: from mirrors that lie, break off or stand still, over a stage that was damaged, through power cuts. Bytes are right, or the
//! fault has a name.

mod broken;
mod catalogue;
mod clock;
mod command;
mod cuts;
mod disk;
mod founder;
mod mirror;
mod release;
mod scripts;
mod stage;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use lab_founder::mirror::Fault;
use lab_founder::{EvilMirror, MirrorConfig, MirrorFault};
use stratum_join::upgrade::fault::{Code, UpgradeFault};
use stratum_join::upgrade::fetch::{Fetched, Options, Progress, fetch};
use stratum_join::upgrade::source::{Mirror, MirrorSettings, Source};
use stratum_join::upgrade::stage::Stage;
use stratum_join::upgrade::{CHUNK, Digest, FileEntry};
use tempfile::TempDir;

use crate::support::{PATIENCE, wait};

/// A clock on which an attempt's ten minutes are two seconds; and one for those that shall see that time pass.
const FAST: Pace = Pace { now: fast, speed: 300 };
const STEADY: Pace = Pace { now: steady, speed: 60 };

#[derive(Clone, Copy)]
struct Pace {
    now: fn() -> u64,
    speed: u32,
}

static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

fn fast() -> u64 {
    millis() * 300
}

fn steady() -> u64 {
    millis() * 60
}

fn millis() -> u64 {
    u64::try_from(BEGAN.elapsed().as_millis()).unwrap()
}

/// A directory of files, a stage, and what is wanted.
struct Lab {
    dir: TempDir,
    wants: Vec<FileEntry>,
}

impl Lab {
    /// Three chunks and a bit, exactly one chunk, a few bytes.
    fn new() -> Self {
        Self::with(&[("os/root", 3 * CHUNK + 5), ("os/kernel", CHUNK), ("sysext/small.raw", 7)])
    }

    fn with(files: &[(&str, u64)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let wants = files.iter().map(|(path, size)| {
            let at = dir.path().join("release").join(path);
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            let bytes = noise(path, *size);
            fs::write(&at, &bytes).unwrap();
            entry(path, &bytes)
        });
        let wants = wants.collect();
        Self { dir, wants }
    }

    fn release(&self) -> PathBuf {
        self.dir.path().join("release")
    }

    fn stage(&self) -> PathBuf {
        self.dir.path().join("stage")
    }

    fn part(&self, file: usize) -> PathBuf {
        self.stage().join("parts").join(self.wants[file].sha256.to_string())
    }

    fn blob(&self, file: usize) -> PathBuf {
        self.stage().join("blobs").join(self.wants[file].sha256.to_string())
    }

    fn served(&self, file: usize) -> Vec<u8> {
        fs::read(self.release().join(self.wants[file].path.as_str())).unwrap()
    }

    fn mirror(&self, faults: &[Fault]) -> EvilMirror {
        EvilMirror::of(&self.release(), faults).unwrap()
    }

    fn total(&self) -> u64 {
        self.wants.iter().map(|want| want.size).sum()
    }

    fn fetch(&self, mirror: &EvilMirror, pace: Pace) -> Result<Fetched, UpgradeFault> {
        self.fetch_from(source(&settings(mirror)).unwrap(), pace, |_| {})
    }

    fn fetch_from(
        &self,
        source: Source,
        pace: Pace,
        told: impl FnMut(&Progress),
    ) -> Result<Fetched, UpgradeFault> {
        let stage = Stage::open(&self.stage()).unwrap();
        let fetched = block_on(fetch(Arc::new(source), stage, self.wants.clone(), options(pace), told));
        if fetched.is_err() {
            // A thread that was told to stop may still finish what it had begun; the stage is opened when it is gone.
            drop(Stage::open(&self.stage()).unwrap());
        }
        self.nothing_wrong_is_complete();
        fetched
    }

    /// Whatever came of a download: what is called complete is what was signed, and no page of a proxy is anywhere.
    fn nothing_wrong_is_complete(&self) {
        for want in &self.wants {
            if let Ok(bytes) = fs::read(self.stage().join("blobs").join(want.sha256.to_string())) {
                assert!(Digest::of(&bytes) == want.sha256, "{} was accepted and is wrong", want.path);
            }
        }
        self.nowhere("guest network");
    }

    /// Fetches over an ordinary mirror, and looks.
    fn fetch_and_look(&self, mirror: &EvilMirror, pace: Pace) -> Progress {
        let fetched = self.fetch(mirror, pace).unwrap_or_else(|fault| panic!("{fault:?}"));
        self.look();
        fetched.progress
    }

    /// Every file is there, right, and nothing else is.
    fn look(&self) {
        for want in &self.wants {
            let bytes = fs::read(self.stage().join("blobs").join(want.sha256.to_string())).unwrap();
            assert!(Digest::of(&bytes) == want.sha256, "{} is wrong", want.path);
        }
        let names = |sub: &str| -> BTreeSet<String> {
            let entries = fs::read_dir(self.stage().join(sub)).unwrap();
            entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
        };
        let wanted: BTreeSet<String> = self.wants.iter().map(|want| want.sha256.to_string()).collect();
        assert_eq!(names("blobs"), wanted);
        assert_eq!(names("parts"), BTreeSet::new());
    }

    /// No file of the stage holds this text where a request's first bytes go.
    fn nowhere(&self, text: &str) {
        for sub in ["parts", "blobs"] {
            for entry in fs::read_dir(self.stage().join(sub)).unwrap().flatten() {
                if !entry.file_type().unwrap().is_file() {
                    continue;
                }
                let bytes = fs::read(entry.path()).unwrap();
                for chunk in bytes.chunks(usize::try_from(CHUNK).unwrap()) {
                    let begin = &chunk[..chunk.len().min(4096)];
                    assert!(!begin.windows(text.len()).any(|w| w == text.as_bytes()), "{text} was written");
                }
            }
        }
    }

    /// The fault of a download from a mirror that does this always. When it does so no longer, the next attempt gets every byte.
    fn fails(&self, fault: MirrorFault) -> UpgradeFault {
        self.fails_and(fault, || {})
    }

    /// The same; `then` looks at the stage before the mirror is repaired.
    fn fails_and(&self, fault: MirrorFault, then: impl FnOnce()) -> UpgradeFault {
        let mirror = self.mirror(&[Fault::always(fault)]);
        let fault = self.fetch(&mirror, FAST).expect_err("it must fail");
        then();
        mirror.set_faults(&[]);
        self.fetch_and_look(&mirror, STEADY);
        fault
    }

    /// Nothing is complete.
    fn look_empty(&self) {
        assert_eq!(fs::read_dir(self.stage().join("blobs")).unwrap().count(), 0);
    }
}

fn entry(path: &str, bytes: &[u8]) -> FileEntry {
    FileEntry {
        path: path.parse().unwrap(),
        size: bytes.len() as u64,
        sha256: Digest::of(bytes),
        chunks: bytes.chunks(usize::try_from(CHUNK).unwrap()).map(Digest::of).collect(),
    }
}

/// Bytes that follow from the name, none of them alike over long stretches.
fn noise(name: &str, size: u64) -> Vec<u8> {
    let mut state = name
        .bytes()
        .fold(0x9e37_79b9_7f4a_7c15_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    let mut bytes = vec![0; usize::try_from(size).unwrap()];
    for word in bytes.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let random = state.to_le_bytes();
        word.copy_from_slice(&random[..word.len()]);
    }
    bytes
}

fn options(pace: Pace) -> Options {
    Options { seed: 7, now: pace.now, speed: pace.speed, ..Options::default() }
}

fn settings(mirror: &EvilMirror) -> MirrorSettings {
    MirrorSettings {
        url: mirror.url(),
        ca_pem: Some(mirror.ca_pem().as_bytes().to_vec()),
        allow_local: true,
        ..MirrorSettings::default()
    }
}

fn source(settings: &MirrorSettings) -> Result<Source, UpgradeFault> {
    Mirror::new(settings).map(Source::Mirror)
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let done = runtime.block_on(work);
    runtime.shutdown_background();
    done
}

/// The code, and words of both sentences.
fn says(fault: &UpgradeFault, code: Code, what: &str, todo: &str) {
    assert_eq!(fault.code, code, "{fault:?}");
    assert!(fault.what.as_str().contains(what), "{fault:?}");
    assert!(fault.todo.as_str().contains(todo), "{fault:?}");
    reads_well(fault);
}

fn mirror_of(dir: &Path) -> MirrorConfig {
    MirrorConfig::of(dir)
}

/// Two whole sentences without anything left to fill in.
fn reads_well(fault: &UpgradeFault) {
    for text in [fault.what.as_str(), fault.todo.as_str()] {
        assert!(text.ends_with(['.', '?']) && text.contains(' ') && !text.contains('{'), "{fault:?}");
    }
}

/// Waits for something that happens soon.
fn soon(what: &str, mut found: impl FnMut() -> bool) {
    assert!(wait::until(PATIENCE, || found().then_some(())).is_some(), "waited for {what}");
}
