//! Programs that do the same work, run in turns, and what each of them cost.
//!
//! Runs what it is given with the output thrown away. Wall and processor time are taken together, in turns; memory and system calls in runs of
//! their own, because counting costs time.

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

use crate::children::Signals;
use crate::steps::quoted;

/// One way to do the work: commands that run one after another.
pub(crate) struct Contender {
    pub(crate) name: &'static str,
    commands: Vec<Vec<String>>,
    /// Takes part in every so many rounds: what needs a minute need not run twenty times.
    every: u32,
}

/// What one contender cost.
pub(crate) struct Cost {
    pub(crate) name: &'static str,
    /// Microseconds, one value a round.
    pub(crate) wall: Vec<u64>,
    /// Of all processes, user and system together, microseconds.
    pub(crate) cpu: Vec<u64>,
    /// Of the largest process.
    pub(crate) peak_kib: u64,
    pub(crate) calls: u64,
}

/// What was measured in one place.
pub(crate) struct Contest {
    pub(crate) costs: Vec<Cost>,
}

// === impl Contender ===

impl Contender {
    /// `lines`: words separated by single spaces; no shell reads them.
    pub(crate) fn new(name: &'static str, lines: &[&str]) -> Self {
        let words = |line: &&str| line.split(' ').map(str::to_owned).collect();
        Self { name, commands: lines.iter().map(words).collect(), every: 1 }
    }

    /// Takes part only in every `n`th round.
    pub(crate) fn every(mut self, n: u32) -> Self {
        self.every = n.max(1);
        self
    }

    /// As one would type it.
    fn words(&self) -> String {
        let line = |words: &Vec<String>| words.iter().map(|w| quoted(w)).collect::<Vec<_>>().join(" ");
        self.commands.iter().map(line).collect::<Vec<_>>().join(" && ")
    }

    /// Runs it; wall and processor time.
    fn run(&self) -> Result<(u64, u64)> {
        let (begin, before) = (Instant::now(), children()?);
        for words in &self.commands {
            run(words)?;
        }
        let wall = u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX);
        Ok((wall, children()?.saturating_sub(before)))
    }

    /// Memory of the largest process. GNU time is small itself: what a process had before it became the program counts too.
    fn peak_kib(&self, scratch: &Path) -> Result<u64> {
        let file = scratch.join("peak");
        let mut peak = 0;
        for words in &self.commands {
            let mut all = command_words(&["/usr/bin/time", "--format=%M", "--output"]);
            all.push(file.display().to_string());
            all.extend(words.iter().cloned());
            run(&all)?;
            let text = fs::read_to_string(&file).context("what `time` says")?;
            peak = peak.max(text.trim().parse().with_context(|| format!("`time` says {text}"))?);
        }
        Ok(peak)
    }

    /// System calls of all processes and threads.
    fn calls(&self, scratch: &Path) -> Result<u64> {
        let file = scratch.join("calls");
        let mut calls = 0;
        for words in &self.commands {
            let mut all = command_words(&["strace", "-f", "-c", "-o"]);
            all.push(file.display().to_string());
            all.extend(words.iter().cloned());
            run(&all)?;
            let text = fs::read_to_string(&file).context("what strace counted")?;
            calls += total_calls(&text).context("strace counted nothing")?;
        }
        Ok(calls)
    }
}

// === impl Contest ===

impl Contest {
    /// Runs the contenders in turns, `rounds` times, after one round that is not counted.
    pub(crate) fn run(
        contenders: &[Contender],
        rounds: u32,
        scratch: &Path,
        signals: &Signals,
    ) -> Result<Self> {
        for contender in contenders {
            println!("  {:<24} {}", contender.name, contender.words());
        }
        let empty =
            |c: &Contender| Cost { name: c.name, wall: Vec::new(), cpu: Vec::new(), peak_kib: 0, calls: 0 };
        let mut costs: Vec<Cost> = contenders.iter().map(empty).collect();
        for (contender, cost) in contenders.iter().zip(&mut costs) {
            signals.wait(Duration::ZERO)?;
            // The first run is not timed: it finds the caches as somebody left them.
            cost.peak_kib = contender.peak_kib(scratch)?;
            cost.calls = contender.calls(scratch)?;
        }
        for round in 0..rounds {
            for (contender, cost) in contenders.iter().zip(&mut costs) {
                if round % contender.every == 0 {
                    signals.wait(Duration::ZERO)?;
                    let (wall, cpu) = contender.run()?;
                    cost.wall.push(wall);
                    cost.cpu.push(cpu);
                }
            }
        }
        Ok(Self { costs })
    }

    /// The cost of a contender.
    pub(crate) fn cost(&self, name: &str) -> Result<&Cost> {
        self.costs.iter().find(|cost| cost.name == name).with_context(|| format!("{name} was not measured"))
    }
}

impl fmt::Display for Contest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "  {:<24} {:>10} {:>21} {:>10} {:>21} {:>11} {:>9}",
            "median of", "wall", "least - most", "CPU", "least - most", "peak memory", "calls"
        )?;
        for cost in &self.costs {
            let spread = |values: &[u64]| {
                let [least, most] =
                    [values.iter().min(), values.iter().max()].map(|v| v.copied().unwrap_or(0));
                format!("{} - {}", time(least), time(most))
            };
            writeln!(
                f,
                "  {:<24} {:>10} {:>21} {:>10} {:>21} {:>11} {:>9}",
                cost.name,
                time(median(&cost.wall)),
                spread(&cost.wall),
                time(median(&cost.cpu)),
                spread(&cost.cpu),
                format!("{:.1} MiB", cost.peak_kib as f64 / 1024.0),
                cost.calls,
            )?;
        }
        Ok(())
    }
}

/// The middle value; of an even number of them the greater of the two in the middle.
pub(crate) fn median(values: &[u64]) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or(0)
}

/// Microseconds as people read them.
fn time(micros: u64) -> String {
    match micros {
        0..10_000 => format!("{:.2} ms", micros as f64 / 1e3),
        10_000..1_000_000 => format!("{:.0} ms", micros as f64 / 1e3),
        _ => format!("{:.2} s", micros as f64 / 1e6),
    }
}

fn command_words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Runs a program to its end with the output thrown away.
fn run(words: &[String]) -> Result<()> {
    let (program, args) = words.split_first().context("no program")?;
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status().with_context(|| format!("cannot start {program}"))?;
    if !status.success() {
        bail!("{}: {status}", words.join(" "));
    }
    Ok(())
}

/// Processor time of all children that have ended, microseconds.
fn children() -> Result<u64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("getrusage")?;
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    u64::try_from(micros).context("getrusage")
}

/// The number of calls in the last line of `strace -c`.
fn total_calls(text: &str) -> Option<u64> {
    let line = text.lines().rev().find(|line| line.trim_end().ends_with(" total"))?;
    line.split_whitespace().nth(3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calls_are_those_of_the_last_line_of_strace() {
        let text = "% time     seconds  usecs/call     calls    errors syscall\n\
                    ------ ----------- ----------- --------- --------- ----------------\n \
                    60.00    0.000120           3        38         1 openat\n\
                    ------ ----------- ----------- --------- --------- ----------------\n\
                    100.00    0.000200           1       171        12 total\n";
        assert_eq!(total_calls(text), Some(171));
        assert_eq!(total_calls("nothing"), None);
    }

    #[test]
    fn processor_time_is_that_of_the_children_and_grows() {
        let before = children().unwrap();
        let (wall, cpu) = Contender::new("true", &["true", "true"]).run().unwrap();
        assert!(wall > 0 && children().unwrap() >= before + cpu);
        assert!(Contender::new("false", &["false"]).run().is_err());
    }

    #[test]
    fn times_are_shown_as_people_read_them() {
        assert_eq!([time(1234), time(45_600), time(39_000_000)], ["1.23 ms", "46 ms", "39.00 s"]);
    }
}
