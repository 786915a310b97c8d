//! The reader's rules: how big, how new, how old a snapshot may be.
//!
//! Reads one file and asks the kernel about one process id. Must never block on what it opens (no fifo, no device).

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::{FileType, Mode, OFlags};
use serde::Deserialize;

use super::{SCHEMA, Snapshot, State};
use crate::clock::Now;
use crate::text::Safe;

/// The largest snapshot, bytes.
pub const MAX_BYTES: usize = 64 * 1024;

/// A longer heartbeat than this is not believed: nobody waits that long in front of a frozen screen.
const MAX_HEARTBEAT_MS: u64 = 5 * 60 * 1000;
/// A snapshot may be this far ahead of the reader's clock reading; more is one of another boot.
const FUTURE_MS: u64 = 2000;

/// Why a snapshot cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// There is none yet.
    #[error("no snapshot at {}", path.display())]
    Missing {
        /// Where it should be.
        path: PathBuf,
    },
    /// It is there and cannot be read.
    #[error("cannot read the snapshot {}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Over [`MAX_BYTES`].
    #[error("the snapshot is larger than 64 KiB")]
    TooLarge,
    /// Not JSON, or JSON cut short. A reader keeps its last good snapshot.
    #[error("the snapshot is not valid JSON")]
    Parse(#[source] serde_json::Error),
    /// Of a newer agent, or with a field missing. `headline` and `next` may still be shown.
    #[error("the snapshot has schema {schema}, this reader knows {SCHEMA}")]
    Foreign {
        /// Its schema; 0 when it has none.
        schema: u64,
        /// The state in one line, when there is one.
        headline: Option<Safe<80>>,
        /// What a person does next.
        next: Vec<Safe<76>>,
        /// What did not fit, when the schema is ours.
        #[source]
        source: Option<serde_json::Error>,
    },
}

/// Can what a snapshot says still be believed?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// Yes.
    Alive,
    /// The agent missed a write; what is shown gets its age.
    Late,
    /// The agent does not answer: what is shown may be out of date.
    Gone,
}

/// The part that every version keeps.
#[derive(Deserialize)]
struct Core {
    #[serde(default)]
    schema: u64,
    #[serde(default)]
    headline: Option<Safe<80>>,
    #[serde(default)]
    next: Vec<Safe<76>>,
}

// === impl Snapshot ===

impl Snapshot {
    /// Reads one snapshot by the reader's rules: at most 64 KiB, unknown fields ignored, unknown words `unknown`.
    pub fn parse(raw: &[u8]) -> Result<Self, ReadError> {
        if raw.len() > MAX_BYTES {
            return Err(ReadError::TooLarge);
        }
        match serde_json::from_slice::<Self>(raw) {
            Ok(snapshot) if snapshot.schema == SCHEMA => Ok(snapshot),
            Ok(snapshot) => Err(ReadError::Foreign {
                schema: snapshot.schema.into(),
                headline: Some(snapshot.headline),
                next: snapshot.next.into_iter().take(3).collect(),
                source: None,
            }),
            Err(error) if error.is_data() => match serde_json::from_slice::<Core>(raw) {
                Ok(core) => Err(ReadError::Foreign {
                    schema: core.schema,
                    headline: core.headline,
                    next: core.next.into_iter().take(3).collect(),
                    source: (core.schema == u64::from(SCHEMA)).then_some(error),
                }),
                Err(_) => Err(ReadError::Parse(error)),
            },
            Err(error) => Err(ReadError::Parse(error)),
        }
    }

    /// Reads the snapshot file. Never blocks: what is not a regular file is refused.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        let io = |source: std::io::Error| ReadError::Io { path: path.to_owned(), source };
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file: OwnedFd = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(file) => file,
            Err(rustix::io::Errno::NOENT) => return Err(ReadError::Missing { path: path.to_owned() }),
            Err(errno) => return Err(io(errno.into())),
        };
        let meta = rustix::fs::fstat(&file).map_err(|errno| io(errno.into()))?;
        if FileType::from_raw_mode(meta.st_mode) != FileType::RegularFile {
            return Err(io(std::io::Error::other("not a regular file")));
        }
        let mut raw = Vec::new();
        File::from(file).take(MAX_BYTES as u64 + 1).read_to_end(&mut raw).map_err(io)?;
        Self::parse(&raw)
    }

    /// The one judgement of age that every reader uses.
    ///
    /// `Late` when older than `heartbeatMs` + 10 s, `Gone` when older than 2 x `heartbeatMs` + 20 s (at the usual 5 s the
    /// documented 15 s and 30 s). `Gone` at once when `agent.exit` is set, or when `agent.pid` is no process any more
    /// (`pid_alive`, asked only if the pid is not 0), or when it was written in another boot. A joined agent ends by
    /// design: its last snapshot stays true.
    pub fn liveness(&self, now_boot_ms: u64, pid_alive: impl FnOnce(u32) -> bool) -> Liveness {
        if self.state == State::Joined {
            return Liveness::Alive;
        }
        if self.agent.exit.is_some() || self.written_mono > now_boot_ms.saturating_add(FUTURE_MS) {
            return Liveness::Gone;
        }
        if self.agent.pid != 0 && !pid_alive(self.agent.pid) {
            return Liveness::Gone;
        }
        let age = self.age_ms(now_boot_ms);
        let heartbeat = self.heartbeat_ms.min(MAX_HEARTBEAT_MS);
        if age > 2 * heartbeat + 20_000 {
            Liveness::Gone
        } else if age > heartbeat + 10_000 {
            Liveness::Late
        } else {
            Liveness::Alive
        }
    }

    /// The instant it was written, by its own two clocks; the epoch where it does not say.
    pub fn written(&self) -> Now {
        let wall = self.written_at.as_str().parse().unwrap_or(Timestamp::UNIX_EPOCH);
        Now { boot_ms: self.written_mono, wall }
    }

    /// Milliseconds since it was written.
    pub fn age_ms(&self, now_boot_ms: u64) -> u64 {
        now_boot_ms.saturating_sub(self.written_mono)
    }
}

/// Is there such a process? Asks with signal 0, so that a hidden `/proc` (`hidepid`) does not look like a dead agent:
/// another user's process answers EPERM, and exists.
pub fn pid_alive(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) else { return false };
    !matches!(rustix::process::test_kill_process(pid), Err(rustix::io::Errno::SRCH))
}

#[cfg(test)]
mod tests {
    use super::super::*;
    use super::*;

    const PENDING: &str = include_str!("../../tests/fixtures/pending.json");
    const UPGRADE_FAILED: &str = include_str!("../../tests/fixtures/upgrade-failed.json");

    fn written_at(mono: u64, heartbeat_ms: u64) -> Snapshot {
        let agent = Agent { pid: 7, ..Agent::default() };
        Snapshot { written_mono: mono, heartbeat_ms, agent, state: State::Pending, ..Snapshot::default() }
    }

    #[test]
    fn the_documented_examples_parse_and_round_trip() {
        for raw in [PENDING, UPGRADE_FAILED] {
            let snapshot = Snapshot::parse(raw.as_bytes()).unwrap();
            assert_eq!(snapshot.heartbeat_ms, 5000);
            assert_eq!(Snapshot::parse(&snapshot.encode()).unwrap(), snapshot);
            let mut before: serde_json::Value = serde_json::from_str(raw).unwrap();
            before["heartbeatMs"] = 5000.into();
            assert_eq!(serde_json::to_value(&snapshot).unwrap(), before, "no field is lost or renamed");
        }
    }

    #[test]
    fn a_default_snapshot_round_trips() {
        let snapshot = Snapshot::default();
        assert_eq!(Snapshot::parse(&snapshot.encode()).unwrap(), snapshot);
    }

    #[test]
    fn unknown_words_and_fields_do_not_stop_a_reader() {
        let raw = PENDING
            .replace("\"state\":\"pending\"", "\"state\":\"teleporting\",\"novel\":{\"a\":[1]}")
            .replace("\"synced\":\"yes\"", "\"synced\":\"perhaps\"");
        let snapshot = Snapshot::parse(raw.as_bytes()).unwrap();
        assert_eq!((snapshot.state, snapshot.clock.synced), (State::Unknown, Synced::Unknown));
    }

    #[test]
    fn every_word_round_trips() {
        for state in State::ALL {
            let json = serde_json::to_string(state).unwrap();
            assert_eq!(json, format!("\"{state}\""));
            assert_eq!(serde_json::from_str::<State>(&json).unwrap(), *state);
        }
    }

    #[test]
    fn a_newer_schema_still_gives_headline_and_next() {
        let raw = PENDING.replace("\"schema\":1", "\"schema\":2");
        let Err(ReadError::Foreign { schema: 2, headline, next, .. }) = Snapshot::parse(raw.as_bytes())
        else {
            panic!()
        };
        assert_eq!(headline.unwrap(), "waiting for approval");
        assert_eq!(next.len(), 1);
        let raw = br#"{"schema":3,"headline":"new\u001b[2J world","next":["do","it"],"state":{"deep":1}}"#;
        let Err(ReadError::Foreign { schema: 3, headline, next, .. }) = Snapshot::parse(raw) else {
            panic!()
        };
        assert_eq!((headline.unwrap().as_str(), next.len()), ("new world", 2));
    }

    #[test]
    fn a_missing_field_is_told_from_broken_json() {
        let raw = PENDING.replace("\"doNotPowerOff\":false,", "");
        assert!(matches!(Snapshot::parse(raw.as_bytes()), Err(ReadError::Foreign { schema: 1, .. })));
        assert!(matches!(Snapshot::parse(&PENDING.as_bytes()[..900]), Err(ReadError::Parse(_))));
        assert!(matches!(Snapshot::parse(b""), Err(ReadError::Parse(_))));
        assert!(matches!(Snapshot::parse(b"\xff\xfe"), Err(ReadError::Parse(_))));
        assert!(Snapshot::parse(b"[]").is_err());
    }

    #[test]
    fn duplicate_keys_are_refused() {
        let raw = PENDING.replacen("\"seq\":41", "\"seq\":41,\"seq\":42", 1);
        assert!(Snapshot::parse(raw.as_bytes()).is_err());
    }

    #[test]
    fn more_than_64_kib_is_refused_before_parsing() {
        let padded = |len: usize| format!("{PENDING}{}", " ".repeat(len - PENDING.len()));
        assert!(Snapshot::parse(padded(65_536).as_bytes()).is_ok());
        assert!(matches!(Snapshot::parse(padded(65_537).as_bytes()), Err(ReadError::TooLarge)));
    }

    #[test]
    fn a_writer_cannot_make_a_snapshot_no_reader_takes() {
        let line = LogLine { text: Safe::clean("\"\\".repeat(100)), ..LogLine::default() };
        let disk = Disk {
            usage: Safe::clean("\\".repeat(200)),
            model: Safe::clean("\"".repeat(200)),
            ..Disk::default()
        };
        let step = Step {
            title: Safe::clean("\"".repeat(200)),
            detail: Some(Safe::clean("\\".repeat(200))),
            ..Step::default()
        };
        let snapshot = Snapshot {
            log: vec![line; 300],
            steps: vec![step; 64],
            hardware: Hardware { disks: vec![disk; 64], ..Hardware::default() },
            ..Snapshot::default()
        };
        let bytes = snapshot.encode();
        assert!(bytes.len() <= MAX_BYTES);
        assert_eq!(Snapshot::parse(&bytes).unwrap().steps.len(), 64);
    }

    #[test]
    fn the_newest_log_lines_are_kept() {
        let log =
            (0..150).map(|n| LogLine { text: Safe::clean(n.to_string()), ..LogLine::default() }).collect();
        let back = Snapshot::parse(&Snapshot { log, ..Snapshot::default() }.encode()).unwrap();
        assert_eq!((back.log.len(), back.log[99].text.as_str()), (100, "149"));
    }

    #[test]
    fn five_seconds_of_heartbeat_give_the_documented_15_and_30() {
        let s = written_at(100_000, 5000);
        assert_eq!(s.liveness(115_000, |_| true), Liveness::Alive);
        assert_eq!(s.liveness(115_001, |_| true), Liveness::Late);
        assert_eq!(s.liveness(130_000, |_| true), Liveness::Late);
        assert_eq!(s.liveness(130_001, |_| true), Liveness::Gone);
    }

    #[test]
    fn a_slower_heartbeat_is_given_its_time_but_not_any_time() {
        let s = written_at(0, 60_000);
        assert_eq!(s.liveness(70_000, |_| true), Liveness::Alive);
        assert_eq!(s.liveness(140_000, |_| true), Liveness::Late);
        assert_eq!(s.liveness(140_001, |_| true), Liveness::Gone);
        assert_eq!(written_at(0, u64::MAX).liveness(u64::MAX, |_| true), Liveness::Gone);
    }

    #[test]
    fn a_dead_agent_is_gone_at_once_and_pid_0_is_not_asked() {
        let mut s = written_at(100_000, 60_000);
        assert_eq!(s.liveness(100_001, |pid| pid != 7), Liveness::Gone);
        s.agent.pid = 0;
        assert_eq!(s.liveness(100_001, |_| false), Liveness::Alive);
        s.agent.exit = Some(AgentExit::default());
        assert_eq!(s.liveness(100_001, |_| true), Liveness::Gone);
    }

    #[test]
    fn a_snapshot_of_another_boot_is_gone() {
        assert_eq!(written_at(100_000, 5000).liveness(99_000, |_| true), Liveness::Alive);
        assert_eq!(written_at(100_000, 5000).liveness(50_000, |_| true), Liveness::Gone);
    }

    #[test]
    fn joined_stays_true_without_an_agent() {
        let mut s = written_at(0, 5000);
        s.state = State::Joined;
        assert_eq!(s.liveness(u64::MAX, |_| false), Liveness::Alive);
    }

    #[test]
    fn a_process_of_another_user_is_alive_and_a_free_pid_is_not() {
        assert!(pid_alive(1));
        assert!(pid_alive(std::process::id()));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert!(!pid_alive(child.id()));
        assert!(!pid_alive(u32::MAX));
    }

    #[test]
    fn what_is_not_a_regular_file_is_refused_without_blocking() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("snapshot.json");
        assert!(matches!(Snapshot::read(&fifo), Err(ReadError::Missing { .. })));
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRUSR).unwrap();
        assert!(matches!(Snapshot::read(&fifo), Err(ReadError::Io { .. })));
    }
}
