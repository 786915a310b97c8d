//! The processes a demo or a bench starts: each in its own group, each ended before this command ends.
//!
//! Sends signals only to processes it started itself.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// How often a wait looks again.
const TICK: Duration = Duration::from_millis(10);
/// How long a process gets to end by itself.
const GRACE: Duration = Duration::from_secs(3);
/// A stock program that lets a child end with its parent, whatever the parent died of.
const SETPRIV: &str = "/usr/bin/setpriv";

/// A person pressed Ctrl-C, or the terminal went away.
#[derive(Debug)]
pub(crate) struct Interrupted;

/// Set once Ctrl-C, SIGTERM or SIGHUP arrived.
#[derive(Clone)]
pub(crate) struct Signals(Arc<AtomicBool>);

/// A running child.
pub(crate) struct Child {
    name: &'static str,
    inner: std::process::Child,
    shares_terminal: bool,
    ended_with: Option<ExitStatus>,
}

// === impl Interrupted ===

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

// === impl Signals ===

impl Signals {
    /// From now on these signals ask for an orderly end instead of killing this process.
    pub(crate) fn register() -> Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, flag.clone()).context("signal handler")?;
        }
        Ok(Self(flag))
    }

    /// An error once a signal came.
    pub(crate) fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) { Err(Interrupted.into()) } else { Ok(()) }
    }

    /// One short wait of a polling loop.
    pub(crate) fn tick(&self) -> Result<()> {
        self.check()?;
        std::thread::sleep(TICK);
        self.check()
    }

    /// A wait that a signal ends.
    pub(crate) fn wait(&self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.tick()?;
        }
        Ok(())
    }
}

// === impl Child ===

impl Child {
    /// Starts a background program in a process group of its own, so that Ctrl-C reaches this command first and the
    /// order of ending is ours.
    pub(crate) fn start(name: &'static str, mut command: Command) -> Result<Self> {
        command.process_group(0);
        let inner = command.spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Self { name, inner, shares_terminal: false, ended_with: None })
    }

    /// Starts a program that owns the terminal, which only this command's own group may do.
    pub(crate) fn start_on_terminal(name: &'static str, mut command: Command) -> Result<Self> {
        let inner = command.spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Self { name, inner, shares_terminal: true, ended_with: None })
    }

    /// What it is called in messages.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.inner.id()
    }

    /// Its standard output, once, when it was piped.
    pub(crate) fn take_stdout(&mut self) -> Option<std::process::ChildStdout> {
        self.inner.stdout.take()
    }

    /// True when it has ended. It is not reaped yet, so its id still names it.
    pub(crate) fn ended(&self) -> bool {
        if self.ended_with.is_some() {
            return true;
        }
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        !matches!(waitid(WaitId::Pid(self.id()), look), Ok(None))
    }

    /// Ends it: SIGTERM, and SIGKILL after three seconds; whatever it left in its group goes with it.
    pub(crate) fn stop(&mut self) -> Option<ExitStatus> {
        if self.ended_with.is_some() {
            return self.ended_with;
        }
        if !self.ended() {
            self.signal(Signal::TERM);
            let end = Instant::now() + GRACE;
            while !self.ended() && Instant::now() < end {
                std::thread::sleep(TICK);
            }
        }
        if !self.shares_terminal || !self.ended() {
            self.signal(Signal::KILL);
        }
        self.ended_with = self.inner.wait().ok();
        self.ended_with
    }

    /// Waits until it has ended by itself, at most `time`; `None` when it did not.
    pub(crate) fn ended_within(&mut self, time: Duration, signals: &Signals) -> Result<Option<ExitStatus>> {
        let end = Instant::now() + time;
        while !self.ended() {
            if Instant::now() > end {
                return Ok(None);
            }
            signals.tick()?;
        }
        Ok(self.stop())
    }

    fn id(&self) -> Pid {
        Pid::from_child(&self.inner)
    }

    fn signal(&self, signal: Signal) {
        // It may have ended in between: then there is nothing to end.
        let _ = if self.shares_terminal {
            rustix::process::kill_process(self.id(), signal)
        } else {
            kill_process_group(self.id(), signal)
        };
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.stop();
    }
}

/// How a process ended, in words.
pub(crate) fn ending(status: Option<ExitStatus>) -> String {
    match status {
        Some(status) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => status.to_string(),
        },
        None => "unknown".to_owned(),
    }
}

/// A command whose process the kernel ends should this one be killed and have no time to clean up.
pub(crate) fn command(program: &Path) -> Command {
    if !Path::new(SETPRIV).exists() {
        return Command::new(program);
    }
    let mut command = Command::new(SETPRIV);
    command.args(["--pdeathsig", "TERM", "--"]).arg(program);
    command
}

#[cfg(test)]
mod tests {
    use std::io::BufRead;
    use std::process::Stdio;

    use super::*;

    fn never() -> Signals {
        Signals(Arc::new(AtomicBool::new(false)))
    }

    fn shell(script: &str) -> Child {
        let mut sh = command(Path::new("/bin/sh"));
        sh.args(["-c", script]).stdout(Stdio::piped());
        Child::start("shell", sh).unwrap()
    }

    fn first_line(child: &mut Child) -> String {
        let mut line = String::new();
        std::io::BufReader::new(child.take_stdout().unwrap()).read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// Ended, or a zombie nobody reads any more.
    fn is_gone(pid: &str) -> bool {
        match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
            Ok(stat) => stat.contains(") Z ") || stat.contains(") X "),
            Err(_) => true,
        }
    }

    #[test]
    fn stopping_a_child_ends_what_it_started_too() {
        let mut child = shell("sleep 600 & echo $!; wait");
        let grandchild = first_line(&mut child);
        child.stop();
        while !is_gone(&grandchild) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_an_ended_child_left_behind_is_ended_on_drop() {
        let mut child = shell("sleep 600 & echo $!");
        let grandchild = first_line(&mut child);
        while !child.ended() {
            std::thread::yield_now();
        }
        assert!(!is_gone(&grandchild));
        drop(child);
        while !is_gone(&grandchild) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn an_ending_is_told_as_code_or_signal() {
        let mut child = shell("exit 3");
        let status = child.ended_within(Duration::from_secs(10), &never()).unwrap();
        assert_eq!(ending(status), "exit code 3");
        let mut child = shell("kill -9 $$");
        let status = child.ended_within(Duration::from_secs(10), &never()).unwrap();
        assert_eq!(ending(status), "signal 9");
    }

    #[test]
    fn a_signal_ends_a_wait() {
        let signals = never();
        signals.0.store(true, Ordering::Relaxed);
        assert!(signals.wait(Duration::from_secs(600)).unwrap_err().is::<Interrupted>());
    }
}
