//! Waiting until udev is done with what it knows of: `udevadm settle`.
//!
//! May touch: one child process, which only waits. Must never: wait longer than its bound, or fail where there is no udev.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Where `udevadm` lives.
const PROGRAMS: [&str; 4] = ["/usr/bin/udevadm", "/bin/udevadm", "/usr/sbin/udevadm", "/sbin/udevadm"];
/// The socket of a udev that runs.
const CONTROL: &str = "/run/udev/control";
/// How long `udevadm` may take beyond its own timeout: it asks the daemon first, with a timeout of its own.
const GRACE: Duration = Duration::from_secs(2);

/// Waits until udev's queue is empty, at most `limit` and a little. A machine without udev has nothing to wait for.
///
/// # Errors
/// It is not empty, or `udevadm` failed; in words.
pub(crate) fn settle(limit: Duration) -> Result<(), String> {
    match PROGRAMS.iter().map(Path::new).find(|p| p.exists()) {
        Some(program) if Path::new(CONTROL).exists() => settle_with(program, limit, GRACE),
        _ => Ok(()),
    }
}

fn settle_with(program: &Path, limit: Duration, grace: Duration) -> Result<(), String> {
    let began = Instant::now();
    let child = Command::new(program)
        .args(["settle", &format!("--timeout={}", limit.as_secs())])
        .env_clear()
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut child = child.map_err(|error| format!("udevadm cannot be started: {error}"))?;
    let mut pause = Duration::from_millis(1);
    let why = loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(_)) => return Err(format!("udev was still busy after {} s", began.elapsed().as_secs())),
            Err(error) => break format!("udevadm was lost: {error}"),
            Ok(None) if began.elapsed() > limit + grace => {
                break format!("udevadm settle did not end within {} s", limit.as_secs());
            }
            Ok(None) => std::thread::sleep(pause),
        }
        pause = (pause * 2).min(Duration::from_millis(50));
    };
    let _ = child.kill();
    // One that hangs in the kernel is not waited for.
    for _ in 0..20 {
        if !matches!(child.try_wait(), Ok(None)) {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(why)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn program(script: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("udevadm");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        (dir, path)
    }

    /// Whether what the script said is so; another thread that forks while it is written keeps it busy for a moment.
    fn run(script: &str, limit: Duration) -> Result<(), String> {
        let (_dir, path) = program(script);
        loop {
            match settle_with(&path, limit, Duration::from_millis(50)) {
                Err(why) if why.contains("Text file busy") => {}
                other => return other,
            }
        }
    }

    #[test]
    fn a_quiet_udev_is_waited_for_with_the_bound_and_without_our_environment() {
        let says = r#"[ "$1 $2 $#" = "settle --timeout=30 2" ] && [ -z "$HOME" ] && [ "$LC_ALL" = C ]"#;
        assert_eq!(run(says, Duration::from_secs(30)), Ok(()));
    }

    #[test]
    fn a_udev_that_stays_busy_is_told() {
        let why = run("exit 1", Duration::from_secs(30)).unwrap_err();
        assert!(why.contains("still busy"), "{why}");
    }

    #[test]
    fn a_udevadm_that_hangs_is_ended_at_its_bound() {
        let (dir, path) = program("echo $$ > $0.pid; exec sleep 600");
        let limit = Duration::from_millis(300);
        let began = Instant::now();
        let why = settle_with(&path, limit, Duration::from_millis(200)).unwrap_err();
        assert!(why.contains("did not end") || why.contains("Text file busy"), "{why}");
        assert!(began.elapsed() < Duration::from_secs(20));
        // Killed; how soon it is gone is the kernel's.
        let Ok(pid) = std::fs::read_to_string(dir.path().join("udevadm.pid")) else { return };
        let lives = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
            !stat.is_empty() && !stat.contains(") Z ")
        };
        while lives() {
            assert!(began.elapsed() < Duration::from_secs(30), "{pid} runs on");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_program_that_cannot_be_started_is_told() {
        assert!(settle_with(Path::new("/nonexistent/udevadm"), GRACE, GRACE).is_err());
    }
}
