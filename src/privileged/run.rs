//! One run of firstboot, as files: `/run/stratum/firstboot/<key>/`.
//!
//! Touches that directory and starts the program. Must never start a run twice, whatever is killed when.
//!
//! | File | Written by | Means |
//! |---|---|---|
//! | `started.json` | the verb, before the spawn | this attempt may be running from now on; in which boot |
//! | `log` | the verb, empty, 0600; then firstboot | standard output and error |
//! | `claim/` | the runner, first of all, with `mkdir` | somebody runs this: the one moment that decides |
//! | `claim/pid` | the runner | its pid, which is its process group, and its start time |
//! | `exit` | the runner, last | the exit status |
//!
//! **Why a spawn may be repeated.** Between `started.json` and the claim the verb cannot know whether a killed agent had spawned the
//! runner. It does not need to: `mkdir` succeeds for one process only, and a runner without the claim ends at once. So a run without a
//! claim is spawned (again); a run with a claim is followed and never spawned. A run of another boot is lost: its end cannot be known.
//!
//! The runner is a constant `sh` text; everything that varies is an argument. It lives in its own session, so that neither the death of
//! the agent nor a Ctrl-C on its terminal reaches it.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use console::text::Safe;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process_group};

use super::delivery::Attempt;
use crate::durable_file::{self, FileError};
use crate::join::event::FirstbootEnd;
use crate::join::fault::{Code, Fault};
use crate::paths::Paths;

/// `$1` the run's directory, then the program and its arguments. A trap that does nothing keeps the shell alive for the result when the
/// group is told to stop, and is not inherited.
const RUNNER: &str = r#"
dir=$1; shift
mkdir "$dir/claim" 2>/dev/null || exit 0
read -r _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ start _ < "/proc/$$/stat"
echo "$$ $start" > "$dir/claim/pid.tmp" && mv "$dir/claim/pid.tmp" "$dir/claim/pid"
trap : HUP INT TERM
cd / && "$@" </dev/null >>"$dir/log" 2>&1
code=$?
echo "$code" > "$dir/exit.tmp" && mv "$dir/exit.tmp" "$dir/exit"
"#;

/// Variables that firstboot must not inherit from the agent: its readiness socket, its crash points, key logs.
const NOT_INHERITED: &[&str] = &[
    "NOTIFY_SOCKET",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
    "LISTEN_FDS",
    "LISTEN_PID",
    "SSLKEYLOGFILE",
    #[cfg(feature = "faults")]
    "STRATUM_FAULT",
];

/// Largest of our small files.
const MAX_SMALL: u64 = 4 * 1024;

/// One run.
#[derive(Debug, Clone)]
pub(super) struct Run {
    dir: PathBuf,
}

/// Where a run stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nobody has claimed it.
    Unclaimed,
    /// Claimed, and the runner has not yet said who it is.
    ComingUp,
    /// The runner or something it started lives.
    Running,
    /// The exit status is there.
    Ended(i32),
    /// Claimed, nobody lives, and there is no exit status: it was killed.
    Vanished,
}

// === impl Run ===

impl Run {
    /// The run of a delivery. The digest is part of its name, because attempts are counted for each registration: a machine that was
    /// rejected and registers anew begins with attempt 1 again, in the same boot.
    pub(super) fn of(paths: &Paths, attempt: Option<u64>, sha256: &str) -> Self {
        let digest = sha256.get(..16).unwrap_or("none");
        let key = match attempt {
            Some(attempt) => format!("attempt-{attempt}-{digest}"),
            None => format!("digest-{digest}"),
        };
        Self { dir: paths.firstboot_dir().join(key) }
    }

    /// Name of the run in a log cursor.
    pub(super) fn key(&self) -> String {
        self.dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// The log file.
    pub(super) fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// What `started.json` says.
    pub(super) fn started(&self) -> Result<Option<Attempt>, Fault> {
        let path = self.dir.join("started.json");
        let Some(bytes) = durable_file::read_private(&path, MAX_SMALL)? else { return Ok(None) };
        let said = serde_json::from_slice(&bytes);
        said.map(Some)
            .map_err(|_| Fault::new(Code::Tampered, format!("{} is not what was written", path.display())))
    }

    /// Says that this run may be running from now on.
    pub(super) fn mark_started(&self, said: &Attempt) -> Result<(), FileError> {
        durable_file::make_dir(&self.dir, 0o700)?;
        durable_file::sweep(&self.dir)?;
        durable_file::write_volatile(&self.log(), b"", 0o600, "firstboot-log")?;
        let text = serde_json::to_vec(said).unwrap_or_default();
        durable_file::write(&self.dir.join("started.json"), &text, 0o600, "firstboot-marker")
    }

    /// One of the small files that a run by a unit keeps: [`super::unit`].
    pub(super) fn note(&self, name: &'static str) -> Result<Option<String>, Fault> {
        let bytes = durable_file::read_own(&self.dir.join(name), MAX_SMALL)?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned()))
    }

    /// Writes one.
    pub(super) fn write_note(&self, name: &'static str, text: &str) -> Result<(), FileError> {
        durable_file::make_dir(&self.dir, 0o700)?;
        durable_file::write_volatile(&self.dir.join(name), text.as_bytes(), 0o600, "firstboot-note")
    }

    /// Starts the runner; it claims the run or ends.
    pub(super) fn spawn(&self, program: &Path, paths: &Paths) -> Result<tokio::process::Child, Fault> {
        let mut command = Command::new("setsid");
        command.args(["sh", "-c", RUNNER, "stratum-firstboot-runner"]);
        command.arg(&self.dir).arg(program).arg("--config").arg(paths.node_yaml());
        for name in NOT_INHERITED {
            command.env_remove(name);
        }
        command.env("STRATUM_JOIN_BUNDLE", paths.bundle());
        command.env("STRATUM_PROGRESS_SOCKET", paths.progress_socket());
        command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut command = tokio::process::Command::from(command);
        command.kill_on_drop(false);
        command.spawn().map_err(|error| {
            let detail = format!(
                "cannot start {} through setsid: {}",
                program.display(),
                durable_file::plain_io(&error)
            );
            Fault::new(Code::Local, detail)
        })
    }

    /// Looks at the files and the process group.
    pub(super) fn stage(&self) -> Result<Stage, Fault> {
        if let Some(code) = self.exit_code()? {
            return Ok(Stage::Ended(code));
        }
        let claim = self.dir.join("claim");
        if std::fs::symlink_metadata(&claim).is_err() {
            return Ok(Stage::Unclaimed);
        }
        let Some(bytes) = durable_file::read_own(&claim.join("pid"), MAX_SMALL)? else {
            return Ok(Stage::ComingUp);
        };
        if is_alive(&String::from_utf8_lossy(&bytes)) {
            return Ok(Stage::Running);
        }
        // It may have ended between the two looks.
        Ok(self.exit_code()?.map_or(Stage::Vanished, Stage::Ended))
    }

    fn exit_code(&self) -> Result<Option<i32>, Fault> {
        let Some(bytes) = durable_file::read_own(&self.dir.join("exit"), MAX_SMALL)? else { return Ok(None) };
        Ok(Some(String::from_utf8_lossy(&bytes).trim().parse().unwrap_or(-1)))
    }

    /// Opens the log for reading.
    pub(super) fn open_log(&self) -> std::io::Result<File> {
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        let flags = i32::try_from(flags.bits()).unwrap_or(0);
        std::fs::OpenOptions::new().read(true).custom_flags(flags).open(self.log())
    }
}

/// The end in the words of a person.
pub(super) fn end_of(code: i32) -> FirstbootEnd {
    match code {
        0 => FirstbootEnd::Done,
        // A shell reports a signal as 128 and its number.
        129..=192 => FirstbootEnd::Failed(Safe::clean(format!("signal {}", code - 128))),
        126 | 127 => {
            FirstbootEnd::Failed(Safe::clean(format!("exit status {code}: the program could not be started")))
        }
        code => FirstbootEnd::Failed(Safe::clean(format!("exit status {code}"))),
    }
}

/// Whether any run of this machine lives.
pub(super) fn any_running(paths: &Paths) -> Result<bool, Fault> {
    let dir = paths.firstboot_dir();
    let list = match std::fs::read_dir(&dir) {
        Ok(list) => list,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) => {
            return Err(Fault::new(
                Code::Local,
                format!("cannot list {}: {}", dir.display(), durable_file::plain_io(&error)),
            ));
        }
    };
    for entry in list.flatten().filter(|entry| entry.path().is_dir()) {
        if (Run { dir: entry.path() }).stage()? == Stage::Running {
            return Ok(true);
        }
    }
    Ok(false)
}

// === private ===

/// `<pid> <start time>`: does the process group live? While it does the kernel gives its number to nobody else; a leader with another start
/// time is somebody else's.
fn is_alive(said: &str) -> bool {
    let mut words = said.split_whitespace();
    let pid = words.next().and_then(|word| word.parse().ok()).and_then(Pid::from_raw);
    let (Some(pid), Some(start)) = (pid, words.next()) else { return false };
    if matches!(test_kill_process_group(pid), Err(Errno::SRCH)) {
        return false;
    }
    match std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())) {
        Ok(stat) => start_and_state(&stat).is_none_or(|(found, state)| found == start && state != "Z"),
        // The leader is gone, its group is not: what firstboot started still works.
        Err(_) => true,
    }
}

/// Fields 22 and 3 of proc_pid_stat(5); the name in field 2 may hold anything, so they are counted from its last bracket.
fn start_and_state(stat: &str) -> Option<(&str, &str)> {
    let rest = stat.rsplit_once(')')?.1;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?;
    fields.nth(18).map(|start| (start, state))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_told_in_words() {
        assert_eq!(end_of(0), FirstbootEnd::Done);
        assert_eq!(end_of(1), FirstbootEnd::Failed(Safe::clean("exit status 1")));
        assert_eq!(end_of(137), FirstbootEnd::Failed(Safe::clean("signal 9")));
        assert_eq!(
            end_of(127),
            FirstbootEnd::Failed(Safe::clean("exit status 127: the program could not be started"))
        );
        assert_eq!(end_of(-1), FirstbootEnd::Failed(Safe::clean("exit status -1")));
    }

    #[test]
    fn a_name_with_brackets_does_not_hide_the_start_time() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 1 1";
        assert_eq!(start_and_state(stat), Some(("4711", "S")));
    }

    #[test]
    fn another_start_time_is_another_process() {
        // Our own process group may not be led by us, so the test looks at the leader's.
        let group = rustix::process::getpgrp();
        let stat =
            std::fs::read_to_string(format!("/proc/{}/stat", group.as_raw_nonzero())).unwrap_or_default();
        let Some((start, _)) = start_and_state(&stat) else { return };
        assert!(is_alive(&format!("{} {start}\n", group.as_raw_nonzero())));
        assert!(!is_alive(&format!("{} 1{start}\n", group.as_raw_nonzero())));
        assert!(!is_alive("") && !is_alive("x y") && !is_alive("0 1"));
    }
}
