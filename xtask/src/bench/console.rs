//! `cargo xtask bench console`: what the status screen costs while a machine waits, and how soon a change of the state is on the terminal.
//!
//! Measures the release build on a pseudo-terminal, with a snapshot file that this command writes in the agent's place below a temporary
//! directory. No agent, no founder, no virtual terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::pty::{Winsize, openpty};
use serde_json::Value;

use crate::boot_clock;
use crate::children::{Child, Signals, command};
use crate::procfs;

use super::table::{Row, Table};

/// A machine that waits for its approval.
const PENDING: &str = include_str!("../../../console/tests/fixtures/pending.json");
/// What the screen of each state has in row 3. Both rows are drawn in different colours, so that all of it is written at a change.
const STATES: [(&str, &str); 2] = [("pending", "WAITING FOR APPROVAL"), ("failed", "JOIN FAILED")];
/// Longest wait for any picture.
const SHOWN_WITHIN: Duration = Duration::from_secs(10);
/// A waiting agent writes this often at most (docs/console.md).
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Measure the console.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Changes of the state.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(100..))]
    changes: u32,
    /// How long the waiting console is watched, in seconds.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(15..))]
    idle_secs: u64,
    /// Measure this `stratum-join` and build none.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Install missing Debian packages without asking.
    #[arg(long)]
    yes: bool,
}

/// A console on a pseudo-terminal, and the snapshot it draws.
struct Shown<'a> {
    child: Child,
    bytes: Receiver<Vec<u8>>,
    run: PathBuf,
    snapshot: Value,
    signals: &'a Signals,
}

/// Builds, measures, prints.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let program = super::program(args.program.as_deref(), args.yes)?;
    let signals = Signals::register()?;
    let dir = tempfile::Builder::new().prefix("stratum-bench-").tempdir().context("temporary directory")?;
    println!("bench: {} s of waiting, then {} changes of the state", args.idle_secs, args.changes);
    let mut shown = Shown::start(&program, dir.path(), &signals)?;
    let cpu = shown.wait(args.idle_secs)?;
    let memory = procfs::memory(shown.child.pid())?;
    let mut changes = (1..=args.changes).map(|n| shown.change(n)).collect::<Result<Vec<u64>>>()?;
    shown.child.stop();

    changes.sort_unstable();
    let at =
        |hundredths: usize| changes.get((changes.len() * hundredths / 100).min(changes.len() - 1)).copied();
    let ms = |us: Option<u64>| us.unwrap_or(u64::MAX).div_ceil(1000);
    let mut table = Table::default();
    table.add(Row::new("processor time per minute of waiting", "ms", vec![cpu]).at_most(60));
    table.add(Row::new("memory while waiting (VmRSS)", "KiB", vec![memory.now_kib]).at_most(8 * 1024));
    table.add(Row::new("peak memory (VmHWM)", "KiB", vec![memory.peak_kib]));
    let name = format!("snapshot to screen, 99th of {} changes", args.changes);
    table.add(Row::new(name, "ms", vec![ms(at(99))]).at_most(250));
    table.add(Row::new("  half of them within", "us", vec![at(50).unwrap_or(u64::MAX)]));
    table.add(Row::new("  the slowest", "us", vec![at(100).unwrap_or(u64::MAX)]));
    table.note("  peer: none; no other program draws this");
    print!("\n{table}");
    Ok(if table.all_reached() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

// === impl Shown ===

impl<'a> Shown<'a> {
    /// Starts it, up to its first picture.
    fn start(program: &Path, root: &Path, signals: &'a Signals) -> Result<Self> {
        let run = root.join("run/stratum-join");
        std::fs::create_dir_all(&run).context("the directory of the snapshot")?;
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(&size, None).context("pseudo-terminal")?;
        let mut console = command(program);
        // As on the first virtual terminal of a machine, with box lines.
        console.args(["console", "--root"]).arg(root).env("TERM", "linux").env_remove("NO_COLOR");
        console.stdin(Stdio::from(pty.slave.try_clone()?)).stdout(Stdio::from(pty.slave));
        let (tell, bytes) = channel();
        let mut master = File::from(pty.master);
        std::thread::spawn(move || {
            let mut some = [0; 8192];
            // The end of the console is an error of its terminal.
            while let Ok(read @ 1..) = master.read(&mut some) {
                if tell.send(some[..read].to_vec()).is_err() {
                    return;
                }
            }
        });
        let mut snapshot: Value =
            serde_json::from_str(PENDING).context("the snapshot of a waiting machine")?;
        snapshot["agent"]["pid"] = std::process::id().into();
        snapshot["heartbeatMs"] = 300_000.into();
        let now = boot_clock::now_ms();
        snapshot["stateSinceMono"] = now.into();
        snapshot["registration"]["registeredMono"] = now.into();
        snapshot["cluster"]["lastContactMono"] = now.into();
        let mut shown = Self { child: Child::start("the console", console)?, bytes, run, snapshot, signals };
        shown.write()?;
        shown.until(STATES[0].1)?;
        Ok(shown)
    }

    /// Writes the snapshot as the agent does: beside it, then renamed.
    fn write(&mut self) -> Result<()> {
        self.snapshot["writtenMono"] = boot_clock::now_ms().into();
        let next = self.run.join(".snapshot.json.new");
        File::create(&next)
            .and_then(|mut file| file.write_all(self.snapshot.to_string().as_bytes()))
            .and_then(|()| std::fs::rename(&next, self.run.join("snapshot.json")))
            .context("the snapshot")
    }

    /// Reads until this has been written to the terminal.
    fn until(&mut self, wanted: &str) -> Result<()> {
        let end = Instant::now() + SHOWN_WITHIN;
        let mut seen = Vec::new();
        while !seen.windows(wanted.len()).any(|window| window == wanted.as_bytes()) {
            self.signals.check()?;
            match self.bytes.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(more) => seen.extend(more),
                Err(_) => bail!("the console does not show {wanted:?}"),
            }
        }
        Ok(())
    }

    /// What the console uses of the processors while nothing changes but the clock and the heartbeat, in milliseconds per minute.
    fn wait(&mut self, seconds: u64) -> Result<u64> {
        // The start is over once the clock has moved.
        self.signals.wait(Duration::from_secs(2))?;
        let (begin, before) = (Instant::now(), procfs::cpu_ns(self.child.pid())?);
        let end = begin + Duration::from_secs(seconds);
        while Instant::now() < end {
            self.signals.wait(HEARTBEAT.min(end.saturating_duration_since(Instant::now())))?;
            self.write()?;
        }
        let used = procfs::cpu_ns(self.child.pid())?.saturating_sub(before);
        while self.bytes.try_recv().is_ok() {}
        Ok((used as f64 * 60.0 / begin.elapsed().as_secs_f64() / 1e6).ceil() as u64)
    }

    /// From the rename of a snapshot with another state to its row on the terminal, in microseconds.
    fn change(&mut self, n: u32) -> Result<u64> {
        let (state, row) = STATES[n as usize % STATES.len()];
        self.snapshot["state"] = state.into();
        self.snapshot["seq"] = (100 + n).into();
        // The console sleeps again by then.
        self.signals.tick()?;
        while self.bytes.try_recv().is_ok() {}
        let begin = Instant::now();
        self.write()?;
        self.until(row)?;
        Ok(u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX))
    }
}
