//! The raw read of the first and the last 4 MiB of a disk.
//!
//! May touch: the device node, read-only and without `O_EXCL` (live); `capture/ends` (captured). Must never: open for
//! writing, wait longer than its deadline, or answer "all zero" for bytes that it did not read.

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

use crate::blockdev::Dev;
use crate::finding::Missing;
use crate::roots::Roots;

/// Bytes that are looked at at each end. One MiB would miss VMFS, whose labels are at 1 MiB and 2 MiB.
pub(crate) const END: u64 = 4 * 1024 * 1024;
/// Read at once.
const CHUNK: usize = 128 * 1024;
/// Compared with, which is faster than looking at each byte.
static ZERO: [u8; 4096] = [0; 4096];
/// Disks that are read at the same time.
const AT_ONCE: usize = 64;

/// The disk to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Name below `/dev`.
    pub node: String,
    /// Device number that sysfs gives; a node with another one is another disk.
    pub dev: Option<Dev>,
    /// Bytes, as sysfs gives them.
    pub size: u64,
}

/// What was seen at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Every byte is zero.
    pub all_zero: bool,
    /// SHA-256 of what is not zero and of where it is: two paths to one disk look the same.
    pub digest: [u8; 32],
}

/// Why the ends are not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadFailure {
    /// Reason of the warning.
    pub missing: Missing,
    /// What happened, for people (`EIO`, `2 of 5 bytes`).
    pub what: String,
}

/// Where the ends come from. Called in a thread of its own that may hang for ever.
pub trait Ends: Send + Sync + 'static {
    /// Looks at both ends.
    ///
    /// # Errors
    /// Anything that kept it from reading every byte of both ends.
    fn look(&self, target: &Target) -> Result<Look, ReadFailure>;
}

/// Device nodes of the running machine.
#[derive(Debug)]
pub(crate) struct LiveEnds(pub(crate) Roots);

/// Image files in one directory, read by the code that reads the nodes of the running machine: for tests.
#[doc(hidden)]
#[derive(Debug)]
pub struct ImageEnds(pub Roots);

/// `capture/ends/<name>.head` and `.tail` of a captured tree.
#[derive(Debug)]
pub(crate) struct CapturedEnds(pub(crate) Roots);

// === impl LiveEnds ===

impl Ends for LiveEnds {
    fn look(&self, target: &Target) -> Result<Look, ReadFailure> {
        let path = format!("dev/{}", target.node);
        let fd = self.0.open(&path, OFlags::RDONLY).map_err(failure)?;
        let stat = rustix::fs::fstat(&fd).map_err(failure)?;
        let dev = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
        if FileType::from_raw_mode(stat.st_mode) != FileType::BlockDevice || Some(dev) != target.dev {
            return Err(ReadFailure {
                missing: Missing::Vanished,
                what: format!("/dev/{} is another device now", target.node),
            });
        }
        look_at(&fd, target.size)
    }
}

// === impl ImageEnds ===

impl Ends for ImageEnds {
    fn look(&self, target: &Target) -> Result<Look, ReadFailure> {
        look_at(&self.0.open(&target.node, OFlags::RDONLY).map_err(failure)?, target.size)
    }
}

// === impl CapturedEnds ===

impl Ends for CapturedEnds {
    fn look(&self, target: &Target) -> Result<Look, ReadFailure> {
        let name = target.node.replace('/', "!");
        let read = |end: &str| self.0.read_long(&format!("capture/ends/{name}.{end}"));
        let want = usize::try_from(target.size.min(END)).unwrap_or(usize::MAX);
        match (read("head"), read("tail")) {
            // A tree that holds the ends of other disks has lost those of this one.
            (Err(Missing::Absent), Err(Missing::Absent)) if !self.0.exists("capture/ends") => {
                Err(ReadFailure { missing: Missing::NotCaptured, what: "not captured".to_owned() })
            }
            (Ok(head), Ok(tail)) if head.len() == want && tail.len() == want => {
                let mut seen = Seen::default();
                seen.add(&head);
                seen.add(&tail);
                Ok(seen.look())
            }
            (Err(Missing::Permission), _) | (_, Err(Missing::Permission)) => {
                Err(ReadFailure { missing: Missing::Permission, what: "EACCES".to_owned() })
            }
            _ => {
                Err(ReadFailure { missing: Missing::Invalid, what: "captured ends are not whole".to_owned() })
            }
        }
    }
}

/// Reads both ends of an open disk (or file) of `size` bytes; a disk up to 8 MiB is read whole.
///
/// # Errors
/// Any error of a read, a short read, or a disk of another size.
pub(crate) fn look_at(fd: &OwnedFd, size: u64) -> Result<Look, ReadFailure> {
    let end = rustix::fs::seek(fd, rustix::fs::SeekFrom::End(0)).map_err(failure)?;
    if end != size {
        let what = format!("the disk has {end} bytes now, {size} before");
        return Err(ReadFailure { missing: Missing::Vanished, what });
    }
    // Clean pages of an earlier read may be older than a disk that another machine writes too.
    let _ = rustix::fs::fadvise(fd, 0, None, rustix::fs::Advice::DontNeed);
    let mut seen = Seen::default();
    let head = size.min(END);
    let tail = size.saturating_sub(END).max(head);
    read_range(fd, 0..head, &mut seen)?;
    read_range(fd, tail..size, &mut seen)?;
    Ok(seen.look())
}

fn read_range(fd: impl AsFd, range: std::ops::Range<u64>, seen: &mut Seen) -> Result<(), ReadFailure> {
    let mut buffer = vec![0; CHUNK];
    let mut at = range.start;
    while at < range.end {
        let want = usize::try_from(range.end - at).unwrap_or(CHUNK).min(CHUNK);
        buffer.truncate(want);
        fill(&fd, &mut buffer, at)?;
        seen.add(&buffer);
        at += buffer.len() as u64;
    }
    Ok(())
}

/// Reads `slot` whole: what is seen must not depend on how a disk cuts its answers.
fn fill(fd: impl AsFd, mut slot: &mut [u8], mut at: u64) -> Result<(), ReadFailure> {
    while !slot.is_empty() {
        match rustix::io::pread(&fd, &mut *slot, at) {
            Ok(0) => {
                let what = format!("end of data at byte {at}");
                return Err(ReadFailure { missing: Missing::IoError, what });
            }
            Ok(n) => {
                slot = slot.get_mut(n..).unwrap_or_default();
                at += n as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(failure(errno)),
        }
    }
    Ok(())
}

/// What was read so far.
struct Seen {
    non_zero: bool,
    /// Bytes.
    so_far: u64,
    digest: ring::digest::Context,
}

impl Default for Seen {
    fn default() -> Self {
        Self { non_zero: false, so_far: 0, digest: ring::digest::Context::new(&ring::digest::SHA256) }
    }
}

// === impl Seen ===

impl Seen {
    fn add(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(ZERO.len()) {
            if ZERO.get(..chunk.len()) != Some(chunk) {
                self.non_zero = true;
                // Zeros are not worth the time: most disks that are read have nothing else.
                self.digest.update(&self.so_far.to_le_bytes());
                self.digest.update(chunk);
            }
            self.so_far += chunk.len() as u64;
        }
    }

    fn look(self) -> Look {
        let mut digest = [0; 32];
        digest.copy_from_slice(self.digest.finish().as_ref());
        Look { all_zero: !self.non_zero, digest }
    }
}

fn failure(errno: Errno) -> ReadFailure {
    let name = match errno {
        Errno::IO => "EIO".to_owned(),
        Errno::ACCESS => "EACCES".to_owned(),
        Errno::PERM => "EPERM".to_owned(),
        Errno::BUSY => "EBUSY".to_owned(),
        Errno::NXIO => "ENXIO".to_owned(),
        Errno::NODEV => "ENODEV".to_owned(),
        Errno::NOENT => "ENOENT".to_owned(),
        other => other.to_string(),
    };
    ReadFailure { missing: Missing::of(errno), what: name }
}

/// Looks at all `targets` at once, at most 64 at a time, each with its own deadline and all within `total`. A read
/// that hangs in the kernel is left behind; its disk gets `Timeout`.
pub(crate) fn look_at_all(
    ends: &Arc<dyn Ends>,
    targets: Vec<Target>,
    each: Duration,
    total: Duration,
) -> Vec<Result<Look, ReadFailure>> {
    let timeout =
        || Err(ReadFailure { missing: Missing::Timeout, what: "the disk did not answer in time".to_owned() });
    let mut answers: Vec<Option<Result<Look, ReadFailure>>> = vec![None; targets.len()];
    let mut started: Vec<Option<Instant>> = vec![None; targets.len()];
    let (tell, told) = mpsc::channel();
    let begin = Instant::now();
    let mut waiting = targets.into_iter().enumerate();
    let mut running = 0;
    loop {
        while running < AT_ONCE && begin.elapsed() < total {
            let Some((index, target)) = waiting.next() else { break };
            let (ends, tell) = (Arc::clone(ends), tell.clone());
            let work = move || {
                let answer = ends.look(&target);
                let _ = tell.send((index, answer));
            };
            match std::thread::Builder::new().name("ends".to_owned()).spawn(work) {
                Ok(_) => {
                    set(&mut started, index, Instant::now());
                    running += 1;
                }
                Err(_) => {
                    let what = "no thread to read with".to_owned();
                    set(&mut answers, index, Err(ReadFailure { missing: Missing::IoError, what }));
                }
            }
        }
        // The next moment at which somebody is too late.
        let open = |i: usize| answers.get(i).is_some_and(Option::is_none);
        let late = started
            .iter()
            .enumerate()
            .filter(|(i, _)| open(*i))
            .filter_map(|(_, s)| *s)
            .map(|s| s + each)
            .min();
        let Some(late) = late else { break };
        let late = late.min(begin + total);
        match told.recv_timeout(late.saturating_duration_since(Instant::now())) {
            Ok((index, answer)) => {
                // An answer that came after its deadline stays late.
                if answers.get(index).is_some_and(Option::is_none) {
                    set(&mut answers, index, answer);
                    running -= 1;
                }
            }
            Err(_) => {
                let now = Instant::now();
                for (slot, start) in answers.iter_mut().zip(&started) {
                    let over = start.is_some_and(|s| now >= s + each || now >= begin + total);
                    if slot.is_none() && over {
                        *slot = Some(timeout());
                        running -= 1;
                    }
                }
            }
        }
    }
    answers.into_iter().map(|a| a.unwrap_or_else(timeout)).collect()
}

fn set<T>(list: &mut [Option<T>], index: usize, value: T) {
    if let Some(slot) = list.get_mut(index) {
        *slot = Some(value);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::FileExt;

    use proptest::prelude::*;

    use super::*;

    fn disk(size: u64, bytes: &[(u64, u8)]) -> OwnedFd {
        let file = tempfile::tempfile().unwrap();
        file.set_len(size).unwrap();
        for (at, byte) in bytes {
            file.write_at(&[*byte], *at).unwrap();
        }
        file.into()
    }

    #[test]
    fn zero_disks_of_every_awkward_size_are_all_zero() {
        for size in [512, END, END + 512, 2 * END - 1, 2 * END, 2 * END + 1, 3 * END] {
            assert!(look_at(&disk(size, &[]), size).unwrap().all_zero, "{size}");
        }
    }

    #[test]
    fn the_outermost_bytes_of_both_ends_are_seen() {
        let size = 4 * END;
        for at in [0, END - 1, 3 * END, size - 1] {
            assert!(!look_at(&disk(size, &[(at, 1)]), size).unwrap().all_zero, "{at}");
        }
        assert!(look_at(&disk(size, &[(END, 1), (3 * END - 1, 1)]), size).unwrap().all_zero);
    }

    #[test]
    fn what_is_not_zero_and_where_it_is_makes_two_disks_look_different() {
        let size = 4 * END;
        let look = |bytes: &[(u64, u8)]| look_at(&disk(size, bytes), size).unwrap().digest;
        let all =
            [look(&[]), look(&[(0, 1)]), look(&[(4096, 1)]), look(&[(size - 4096, 1)]), look(&[(0, 2)])];
        for (n, one) in all.iter().enumerate() {
            assert_eq!(all.iter().filter(|other| *other == one).count(), 1, "{n}");
        }
        assert_eq!(look(&[(5, 1), (size - 1, 7)]), look(&[(5, 1), (size - 1, 7), (END, 9)]));
    }

    #[test]
    fn a_disk_of_another_size_is_not_read() {
        for (real, said) in [(END, 2 * END), (2 * END, END)] {
            assert_eq!(look_at(&disk(real, &[]), said).unwrap_err().missing, Missing::Vanished);
        }
    }

    /// On a machine whose block devices this test may open; a name is reused when disks come and go.
    #[test]
    fn a_node_with_another_number_is_another_disk() {
        let roots = Roots::live().unwrap();
        let number = |node: &str| {
            let fd = roots.open(&format!("dev/{node}"), OFlags::RDONLY).ok()?;
            let stat = rustix::fs::fstat(&fd).ok()?;
            let block = FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice;
            block.then(|| (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev)))
        };
        let nodes = roots.list("sys/class/block").unwrap_or_default();
        let found = nodes.into_iter().find_map(|node| Some((number(&node)?, node)));
        let Some(((major, minor), node)) = found else {
            println!("skipped: no block device can be opened here");
            return;
        };
        for dev in [Some((major, minor + 1)), None] {
            let target = Target { node: node.clone(), dev, size: 0 };
            let failure = LiveEnds(roots.clone()).look(&target).unwrap_err();
            assert!(failure.what.ends_with("is another device now"), "{failure:?}");
        }
    }

    /// Answers for node `good`, hangs for ever for any other.
    struct Hanging(std::sync::Mutex<Option<mpsc::Receiver<()>>>);

    impl Ends for Hanging {
        fn look(&self, target: &Target) -> Result<Look, ReadFailure> {
            if target.node != "good" {
                let never = self.0.lock().unwrap().take();
                let _ = never.map(|n| n.recv());
            }
            Ok(Look { all_zero: true, digest: [0; 32] })
        }
    }

    #[test]
    fn a_disk_that_hangs_is_a_timeout_and_the_others_answer() {
        let (_keep, never) = mpsc::channel();
        let ends: Arc<dyn Ends> = Arc::new(Hanging(std::sync::Mutex::new(Some(never))));
        let target = |node: &str| Target { node: node.to_owned(), dev: None, size: 1 };
        let answers = look_at_all(
            &ends,
            vec![target("bad"), target("good")],
            Duration::from_millis(50),
            Duration::from_secs(60),
        );
        assert_eq!(answers[0].as_ref().unwrap_err().missing, Missing::Timeout);
        assert!(answers[1].as_ref().unwrap().all_zero);
    }

    #[test]
    fn no_time_at_all_is_a_timeout_for_all() {
        let ends: Arc<dyn Ends> = Arc::new(Hanging(std::sync::Mutex::new(None)));
        let target = Target { node: "good".to_owned(), dev: None, size: 1 };
        let answers = look_at_all(&ends, vec![target; 3], Duration::from_secs(1), Duration::ZERO);
        assert!(answers.iter().all(|a| a.as_ref().is_err_and(|e| e.missing == Missing::Timeout)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn any_byte_in_either_end_is_seen(size in 1..4 * END, at in 0..END, byte in 1..=255u8, tail: bool) {
            let at = at.min(size - 1);
            let at = if tail { size - 1 - at } else { at };
            prop_assert!(!look_at(&disk(size, &[(at, byte)]), size).unwrap().all_zero);
        }
    }
}
