//! The look at everything once more, after the download: each file as a whole against its signed digest. Reads the stage.
//!
//! Every chunk was verified when it came, so this finds what a disk lost meanwhile, and a manifest that contradicts itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::mpsc;

use crate::upgrade::FileEntry;
use crate::upgrade::fault::{Code, UpgradeFault};
use crate::upgrade::stage::{Stage, StageError, Stopped, Verified};

/// Stops the thread when nobody waits for it any more.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Reads and hashes every wanted file, on a thread of its own. `told` gets the bytes that were looked at so far, of [`FileEntry::size`] in all.
/// Dropping the future stops it.
pub async fn verify(
    stage: Stage,
    wants: Vec<FileEntry>,
    mut told: impl FnMut(u64),
) -> Result<Stage, UpgradeFault> {
    let stop = StopOnDrop(Arc::default());
    let stopped = Arc::clone(&stop.0);
    let (tell, mut heard) = mpsc::unbounded_channel();
    let thread = std::thread::Builder::new().name("verify".to_owned()).spawn(move || {
        let mut read = |bytes| tell.send(bytes).is_ok() && !stopped.load(Ordering::Relaxed);
        for want in &wants {
            one(&stage, want, &mut read)?;
        }
        Ok(stage)
    });
    let thread = thread.map_err(|error| io(format!("starting the reader: {error}")))?;
    let mut done = 0;
    while let Some(bytes) = heard.recv().await {
        done += bytes;
        told(done);
    }
    thread.join().unwrap_or_else(|_| Err(io("the reader stopped".to_owned())))
}

fn one(stage: &Stage, want: &FileEntry, read: &mut dyn FnMut(u64) -> bool) -> Result<(), UpgradeFault> {
    let path = &want.path;
    if stage.whole(want, read).map_err(|error| stopped(&error))? {
        return Ok(());
    }
    // Which of the two is wrong?
    let chunks = stage.scan(want, &mut |_| true).map_err(|error| stopped(&error))?;
    Err(match chunks {
        Verified::Blob => UpgradeFault::new(
            Code::ManifestInvalid,
            format!(
                "The signed manifest contradicts itself: the chunks of {path} are right and its SHA-256 is another."
            ),
            "Report it to whoever made the release.",
        ),
        Verified::Chunks(_) => UpgradeFault::new(
            Code::Hash,
            format!("{path} was right when it was written and is not now."),
            "It is fetched again by itself. If it persists, check the disk (`smartctl`).",
        ),
    })
}

fn stopped(error: &Stopped) -> UpgradeFault {
    match error {
        Stopped::Stage(error) => error.into(),
        other => io(other.to_string()),
    }
}

fn io(text: String) -> UpgradeFault {
    (&StageError::Failed(text)).into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods)]
    use super::*;
    use crate::upgrade::{CHUNK, Digest};

    /// A stage with one complete file of two chunks.
    fn staged() -> (tempfile::TempDir, Vec<u8>, FileEntry) {
        let dir = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..CHUNK + 100).map(|n| u8::try_from(n % 251).unwrap()).collect();
        let chunks = bytes.chunks(usize::try_from(CHUNK).unwrap()).map(Digest::of).collect();
        let want = FileEntry {
            path: "os/root".parse().unwrap(),
            size: bytes.len() as u64,
            sha256: Digest::of(&bytes),
            chunks,
        };
        (dir, bytes, want)
    }

    fn look(dir: &std::path::Path, bytes: &[u8], want: &FileEntry) -> (Result<Stage, UpgradeFault>, u64) {
        let stage = Stage::open(&dir.join("stage")).unwrap();
        std::fs::write(stage.blob_path(&want.sha256), bytes).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut last = 0;
        let found = runtime.block_on(verify(stage, vec![want.clone()], |done| last = done));
        (found, last)
    }

    #[test]
    fn a_file_that_is_what_was_signed_passes_and_every_byte_was_read() {
        let (dir, bytes, want) = staged();
        let (found, last) = look(dir.path(), &bytes, &want);
        assert!(found.is_ok());
        assert_eq!(last, want.size);
    }

    #[test]
    fn a_bit_that_flipped_on_the_disk_is_found_and_heals_with_the_next_download() {
        let (dir, mut bytes, want) = staged();
        bytes[7] ^= 1;
        let fault = look(dir.path(), &bytes, &want).0.unwrap_err();
        assert_eq!(fault.code, Code::Hash);
        assert_eq!(fault.what.as_str(), "os/root was right when it was written and is not now.");
        let stage = Stage::open(&dir.path().join("stage")).unwrap();
        let found = stage.scan(&want, &mut |_| true).unwrap();
        assert_eq!(found, Verified::Chunks(vec![false, true]));
    }

    #[test]
    fn a_manifest_that_contradicts_itself_is_told_from_a_disk_that_does() {
        let (dir, bytes, want) = staged();
        let wrong = FileEntry { sha256: Digest::of(b"another"), ..want };
        let fault = look(dir.path(), &bytes, &wrong).0.unwrap_err();
        assert_eq!(fault.code, Code::ManifestInvalid);
        assert!(fault.what.as_str().contains("contradicts itself"), "{fault:?}");
    }
}
