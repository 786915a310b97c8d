//! `cargo xtask bench join`: the agent's figures.
//!
//! Measures the release build on loopback below a temporary directory that goes away. Medians over the runs.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::boot_clock;
use crate::children::{Child, Signals};
use crate::lab::{Founder, Joiner, Programs};
use crate::packages;
use crate::procfs;
use crate::snapshot::View;
use crate::workspace::{Profile, Workspace};

use super::table::{Row, Table};

/// Longest wait for any state.
const STATE_WITHIN: Duration = Duration::from_secs(60);
/// From the pairing code to the first look at the memory: the poll is then open and nothing else runs.
const SETTLE: Duration = Duration::from_secs(2);
/// From the pairing code to the count of wakeups: threads that only the start needed have ended by then.
const IDLE: Duration = Duration::from_secs(15);
/// Rounds of the key stretch (docs/protocol.md, section 3.2).
const STRETCH_ROUNDS: &str = "200000";
/// The founder answers a proof no earlier than its floor; this takes the floor away, so that what is left is work.
const NO_FLOOR: &[&str] = &["--proof-floor-ms", "0"];

/// Measure the agent.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Joins per figure.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// How long the waiting agent is watched, in seconds. Shorter than a poll is no measurement.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(60..))]
    idle_secs: u64,
    /// Install missing Debian packages without asking.
    #[arg(long)]
    yes: bool,
}

/// What one join gave.
#[derive(Default)]
struct Sample {
    registered_ms: u64,
    /// From the start of the approving command to the agent's first state after it.
    delivered_ms: u64,
    peak_kib: u64,
    idle_kib: u64,
}

/// Builds, measures, prints.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let workspace = Workspace::find()?;
    packages::ensure(&[packages::BUILD], args.yes)?;
    super::build(&workspace)?;
    let signals = Signals::register()?;
    let programs = Programs::in_dir(workspace.bin_dir(Profile::Release));
    let dir = tempfile::Builder::new().prefix("stratum-bench-").tempdir().context("temporary directory")?;
    let bench = Bench { programs: &programs, dir: dir.path(), signals: &signals };

    println!(
        "bench: {} joins with the founder's floor, {} without, then {} s of waiting",
        args.runs, args.runs, args.idle_secs
    );
    let usual = bench.samples("usual", args.runs, &[])?;
    let quick = bench.samples("quick", args.runs, NO_FLOOR)?;
    let wakeups = bench.wakeups(args.idle_secs)?;
    let size = std::fs::metadata(programs.path("stratum-join")).context("size of stratum-join")?.len();

    let pick = |samples: &[Sample], field: fn(&Sample) -> u64| samples.iter().map(field).collect::<Vec<_>>();
    let mut table = Table::default();
    table.add(
        Row::new("start to registered, no founder's floor", "ms", pick(&quick, |s| s.registered_ms))
            .at_most(150),
    );
    match stretch_by_openssl(args.runs) {
        Some(times) => table.add(Row::new("  peer: the key stretch alone, by OpenSSL", "ms", times)),
        None => table.note("  peer: none (no `openssl` with `kdf` here)"),
    }
    table.add(Row::new("start to registered, floor of 250 ms", "ms", pick(&usual, |s| s.registered_ms)));
    table.add(
        Row::new("approval to delivery seen, approving included", "ms", pick(&quick, |s| s.delivered_ms))
            .at_most(50),
    );
    table.add(
        Row::new("peak memory up to the long-poll (VmHWM)", "KiB", pick(&usual, |s| s.peak_kib))
            .at_most(12 * 1024),
    );
    table.add(
        Row::new("memory in the long-poll (VmRSS)", "KiB", pick(&usual, |s| s.idle_kib)).at_most(12 * 1024),
    );
    table.add(Row::new("wakeups of a thread per minute of waiting", "", vec![wakeups]).at_most(4));
    table.add(Row::new("size of stratum-join", "KiB", vec![size.div_ceil(1024)]).at_most(6 * 1024));
    table.note("  peer of the other figures: none; no other program does this work");
    print!("\n{table}");
    Ok(if table.all_reached() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Where a run happens.
struct Bench<'a> {
    programs: &'a Programs,
    dir: &'a Path,
    signals: &'a Signals,
}

// === impl Bench ===

impl Bench<'_> {
    /// Whole joins, one after another, each with a founder and a machine of its own.
    fn samples(&self, name: &str, runs: u32, founder_args: &[&str]) -> Result<Vec<Sample>> {
        (1..=runs).map(|run| self.sample(&format!("{name}-{run}"), founder_args)).collect()
    }

    fn sample(&self, name: &str, founder_args: &[&str]) -> Result<Sample> {
        let (founder, joiner, mut agent) = self.start(name, founder_args)?;
        let pending =
            self.wait_for(&joiner, &mut agent, |view| view.state == "pending" && view.pairing.is_some())?;
        self.signals.wait(SETTLE)?;
        let memory = procfs::memory(agent.pid())?;
        let (id, code) =
            (pending.join_id.clone().unwrap_or_default(), pending.pairing.clone().unwrap_or_default());
        let approve = boot_clock::now_ms();
        founder.approve(&id, &code)?;
        // The snapshot of a short state may never be written; the next one then gives an upper bound.
        let delivered = self.wait_for(&joiner, &mut agent, |view| {
            matches!(view.state.as_str(), "delivering" | "installing" | "joined")
        })?;
        self.wait_for(&joiner, &mut agent, |view| view.state == "joined")?;
        agent.ended_within(STATE_WITHIN, self.signals)?;
        Ok(Sample {
            registered_ms: pending.registered_after_ms().context("the snapshot has no registration time")?,
            delivered_ms: delivered.state_since_ms.saturating_sub(approve),
            peak_kib: memory.peak_kib,
            idle_kib: memory.now_kib,
        })
    }

    /// Wakeups per minute of an agent that waits for its approval, rounded up.
    fn wakeups(&self, seconds: u64) -> Result<u64> {
        let (_founder, joiner, mut agent) = self.start("idle", &[])?;
        self.wait_for(&joiner, &mut agent, |view| view.state == "pending")?;
        self.signals.wait(IDLE)?;
        let begin = Instant::now();
        let mut sleeps = procfs::Sleeps::since_now(agent.pid())?;
        while begin.elapsed() < Duration::from_secs(seconds) {
            self.signals.wait(Duration::from_secs(1))?;
            sleeps.look(agent.pid())?;
        }
        Ok((sleeps.total() as f64 * 60.0 / begin.elapsed().as_secs_f64()).ceil() as u64)
    }

    fn start(&self, name: &str, founder_args: &[&str]) -> Result<(Founder, Joiner, Child)> {
        let dir = self.dir.join(name);
        std::fs::create_dir(&dir).with_context(|| format!("create {}", dir.display()))?;
        let founder = Founder::start(self.programs, &dir, founder_args, self.signals)?;
        let joiner = Joiner::prepare(self.programs, &dir, "joiner")?;
        joiner.request(founder.endpoint(), &founder.join_code()?)?;
        let agent = joiner.start_agent()?;
        Ok((founder, joiner, agent))
    }

    fn wait_for(&self, joiner: &Joiner, agent: &mut Child, until: impl Fn(&View) -> bool) -> Result<View> {
        let end = Instant::now() + STATE_WITHIN;
        loop {
            let ended = agent.ended();
            match joiner.view() {
                Some(view) if until(&view) => return Ok(view),
                Some(view) if view.is_stuck() || ended || Instant::now() > end => {
                    bail!("the join does not go on: {}{}", view.headline, joiner.log_tail())
                }
                None if ended || Instant::now() > end => {
                    bail!("the agent shows nothing{}", joiner.log_tail())
                }
                _ => self.signals.tick()?,
            }
        }
    }
}

/// The same stretch by another implementation: its time less the start of the program, milliseconds.
fn stretch_by_openssl(runs: u32) -> Option<Vec<u64>> {
    let time = |rounds: &str| {
        let begin = Instant::now();
        let status = Command::new("openssl")
            .args(["kdf", "-keylen", "32", "-kdfopt", "digest:SHA256", "-kdfopt", "pass:4F7K2Q9MAB"])
            .args(["-kdfopt", "salt:stratum-join/1 pw|4F", "-kdfopt", &format!("iter:{rounds}"), "PBKDF2"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        status.is_ok_and(|status| status.success()).then(|| begin.elapsed())
    };
    (0..runs)
        .map(|_| {
            let start = time("1000")?;
            let both = time(STRETCH_ROUNDS)?;
            u64::try_from(both.saturating_sub(start).as_millis()).ok()
        })
        .collect()
}
