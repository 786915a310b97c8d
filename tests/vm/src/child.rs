//! A program that never outlives this one: killed when its owner is dropped, and by the kernel should this process be killed.
//!
//! Sends signals only to what it started itself.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

/// A stock program that lets a child end with its parent, whatever the parent died of.
const SETPRIV: &str = "/usr/bin/setpriv";

/// A running program in a process group of its own.
pub struct Child {
    name: &'static str,
    inner: std::process::Child,
    reaped: bool,
}

// === impl Child ===

impl Child {
    /// Starts `program`; `with` adds arguments and redirections.
    pub fn start(name: &'static str, program: &Path, with: impl FnOnce(&mut Command)) -> Result<Self> {
        let mut command = Command::new(SETPRIV);
        command.args(["--pdeathsig", "KILL", "--"]).arg(program).stdin(Stdio::null()).process_group(0);
        with(&mut command);
        let inner = command.spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Self { name, inner, reaped: false })
    }

    /// True when it has ended; its id still names it.
    pub fn ended(&self) -> bool {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        self.reaped || !matches!(waitid(WaitId::Pid(Pid::from_child(&self.inner)), look), Ok(None))
    }

    /// The signal that ended it, if one did.
    pub fn ended_by_signal(&self) -> Option<i32> {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        waitid(WaitId::Pid(Pid::from_child(&self.inner)), look).ok()??.terminating_signal()
    }

    /// An error when it has ended.
    pub fn must_run(&self) -> Result<()> {
        if self.ended() {
            bail!("{} has ended by itself", self.name);
        }
        Ok(())
    }

    /// SIGKILL, now, to it and to all it started. What it had not written is lost, as with the plug pulled.
    pub fn kill(&mut self) -> Option<ExitStatus> {
        if self.reaped {
            return None;
        }
        // It may have ended in between: then there is nothing to end.
        let _ = kill_process_group(Pid::from_child(&self.inner), Signal::KILL);
        self.reaped = true;
        self.inner.wait().ok()
    }

    /// Its standard output, once, when it was piped.
    pub fn take_stdout(&mut self) -> Option<std::process::ChildStdout> {
        self.inner.stdout.take()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs a command to its end; its output, or an error with what it said.
pub fn output(command: &mut Command) -> Result<String> {
    let name =
        Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let out = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {name}"))?;
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    if !out.status.success() {
        let why = String::from_utf8_lossy(&out.stderr);
        bail!(
            "{name}: {}: {}",
            out.status,
            format!("{}{}", last_lines(&said, 20), last_lines(&why, 20)).trim()
        );
    }
    Ok(said)
}

/// The end of a text: what failed is told last.
pub fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;

    #[test]
    fn a_dropped_child_is_gone_with_what_it_started() {
        let mut child = Child::start("shell", Path::new("/bin/sh"), |command| {
            command.args(["-c", "sleep 600 & echo $!; wait"]).stdout(Stdio::piped());
        })
        .unwrap();
        let mut line = String::new();
        BufReader::new(child.take_stdout().unwrap()).read_line(&mut line).unwrap();
        let stat = format!("/proc/{}/stat", line.trim());
        assert!(!child.ended());
        drop(child);
        // Gone, or a zombie that nobody has reaped yet.
        while std::fs::read_to_string(&stat).is_ok_and(|text| !text.contains(") Z ")) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_failing_program_is_reported_with_what_it_said() {
        let error = output(Command::new("sh").args(["-c", "echo no such disk >&2; exit 4"])).unwrap_err();
        assert_eq!(error.to_string(), "sh: exit status: 4: no such disk");
    }
}
