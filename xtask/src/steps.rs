//! A list of commands run one after another, each with its time, and one summary at the end.
//!
//! Runs what it is given with the terminal's own output, so that nothing a tool says is lost.

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Ok,
    Failed(String),
    Skipped(String),
}

/// The steps so far.
pub(crate) struct Steps {
    started: Instant,
    done: Vec<(&'static str, Duration, Outcome)>,
}

// === impl Steps ===

impl Steps {
    pub(crate) fn new() -> Self {
        Self { started: Instant::now(), done: Vec::new() }
    }

    /// Runs one command; true when it was green. A red step does not stop the others: one run shows all there is to mend.
    pub(crate) fn run(&mut self, name: &'static str, command: &mut Command) -> bool {
        println!("\n==> {name}: {}", words(command));
        let begin = Instant::now();
        let outcome = match command.status() {
            Ok(status) if status.success() => Outcome::Ok,
            Ok(status) => Outcome::Failed(status.to_string()),
            Err(error) => Outcome::Failed(format!("cannot start {}: {error}", words(command))),
        };
        self.note(name, begin.elapsed(), outcome)
    }

    /// Runs one check of our own.
    pub(crate) fn check(&mut self, name: &'static str, check: impl FnOnce() -> anyhow::Result<()>) -> bool {
        println!("\n==> {name}");
        let begin = Instant::now();
        let outcome = match check() {
            Ok(()) => Outcome::Ok,
            Err(error) => Outcome::Failed(format!("{error:#}")),
        };
        self.note(name, begin.elapsed(), outcome)
    }

    /// Says that a step was not run, and why.
    pub(crate) fn skip(&mut self, name: &'static str, why: impl Into<String>) {
        self.note(name, Duration::ZERO, Outcome::Skipped(why.into()));
    }

    fn note(&mut self, name: &'static str, took: Duration, outcome: Outcome) -> bool {
        let green = outcome == Outcome::Ok;
        if let Outcome::Failed(why) = &outcome {
            println!("==> {name}: FAILED ({why})");
        }
        self.done.push((name, took, outcome));
        green
    }

    /// Prints the summary. Success only when no step failed.
    pub(crate) fn summary(&self) -> ExitCode {
        println!("\n{:<12} {:>8}  result", "step", "time");
        for (name, took, outcome) in &self.done {
            let result = match outcome {
                Outcome::Ok => "ok".to_owned(),
                Outcome::Failed(why) => format!("FAILED: {why}"),
                Outcome::Skipped(why) => format!("not run: {why}"),
            };
            println!("{name:<12} {:>8}  {result}", time(*took));
        }
        let red = self.done.iter().filter(|(_, _, outcome)| matches!(outcome, Outcome::Failed(_))).count();
        let total = time(self.started.elapsed());
        if red == 0 {
            println!("{:<12} {total:>8}  green", "all");
            ExitCode::SUCCESS
        } else {
            println!("{:<12} {total:>8}  {red} FAILED", "all");
            ExitCode::FAILURE
        }
    }
}

/// The command as one would type it.
pub(crate) fn words(command: &Command) -> String {
    let mut text = String::new();
    for (key, value) in command.get_envs() {
        if let Some(value) = value {
            text.push_str(&format!("{}={} ", key.to_string_lossy(), quoted(&value.to_string_lossy())));
        }
    }
    let program = std::path::Path::new(command.get_program());
    text.push_str(&program.file_name().unwrap_or(command.get_program()).to_string_lossy());
    for arg in command.get_args() {
        text.push(' ');
        text.push_str(&quoted(&arg.to_string_lossy()));
    }
    text
}

/// A shell word: in quotes when it holds anything a shell would read.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

fn time(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    if seconds < 60.0 {
        format!("{seconds:.1} s")
    } else {
        format!("{}:{:02} min", duration.as_secs() / 60, duration.as_secs() % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_one_would_type_it() {
        let mut command = Command::new("/usr/bin/cargo");
        command.args(["test", "--", "it's"]).env("CASES", "10 000");
        assert_eq!(words(&command), r"CASES='10 000' cargo test -- 'it'\''s'");
    }

    #[test]
    fn a_red_step_makes_the_run_red_and_a_skipped_one_does_not() {
        let mut steps = Steps::new();
        assert!(steps.run("green", &mut Command::new("true")));
        steps.skip("skipped", "no reason");
        assert_eq!(steps.summary(), ExitCode::SUCCESS);
        assert!(!steps.run("red", &mut Command::new("false")));
        assert!(!steps.run("absent", &mut Command::new("/nonexistent/program")));
        assert_eq!(steps.summary(), ExitCode::FAILURE);
    }
}
