//! A stand-in for firstboot: reads what the join agent delivered, walks the documented steps, installs nothing.
//!
//! Touches its standard output, the progress socket and, when it is told to fail, the founder's join-failed call. Writes no file.
//! It keeps the contract of docs/firstboot.md, so that the agent cannot tell the difference.

mod delivered;
mod founder;
mod options;
mod progress;
mod steps;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use delivered::Delivered;
use options::Options;
use progress::{Report, Status};
use steps::{STEPS, Step};

/// A stand-in for firstboot. It installs nothing.
#[derive(Parser)]
#[command(name = "firstboot-stand-in")]
struct Args {
    /// The node.yaml that the join agent delivered
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

fn main() -> ExitCode {
    let args = Args::parse();
    say(
        "stand-in",
        "this is firstboot-stand-in, a stand-in for firstboot: it walks the steps and installs nothing",
    );
    match run(&args.config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say("stand-in", &format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// One log line: `<time> <step>: <text>`.
fn say(step: &str, text: &str) {
    println!("{} {step}: {text}", jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ"));
}

fn run(config: &Path) -> anyhow::Result<()> {
    let options = Options::read(config)?;
    let progress = progress::Sender::from_environment();
    let delivered = match Delivered::read(config) {
        Ok(delivered) => delivered,
        Err(error) => {
            let text = format!("{error:#}");
            progress.send(&Report::of(&STEPS[0], Status::Failed, Some(&text)));
            return Err(error);
        }
    };
    say("stand-in", &delivered.summary());
    if options.print_secrets {
        delivered.strings().iter().for_each(|text| say("stand-in", text));
    }
    for step in &STEPS {
        walk(step, &options, &progress, &delivered)?;
    }
    say("stand-in", "every step is done");
    Ok(())
}

/// One step: reported, logged, and left in the way the options ask for.
fn walk(
    step: &Step,
    options: &Options,
    progress: &progress::Sender,
    delivered: &Delivered,
) -> anyhow::Result<()> {
    progress.send(&Report::of(step, Status::Running, None));
    for line in step.lines {
        say(step.name, line);
        std::thread::sleep(options.delay / u32::try_from(step.lines.len()).unwrap_or(1));
    }
    for n in 0..options.log_lines {
        say(step.name, &format!("line {n} of many"));
    }
    if options.hang.as_deref() == Some(step.name) {
        say(step.name, "hanging here, as asked");
        loop {
            std::thread::sleep(Duration::from_secs(3600));
        }
    }
    if options.silent_exit.as_deref() == Some(step.name) {
        anyhow::bail!("ending in step {} without a report, as asked", step.name);
    }
    if options.fail.as_deref() == Some(step.name) {
        let error = options.error.clone().unwrap_or_else(|| format!("{}: told to fail here", step.name));
        say(step.name, &error);
        match founder::join_failed(delivered, step.name, &error) {
            Ok(state) => {
                say(step.name, &format!("the founder was told that the join failed; the member is {state}"))
            }
            Err(problem) => {
                say(step.name, &format!("the founder could not be told that the join failed: {problem:#}"))
            }
        }
        progress.send(&Report::of(step, Status::Failed, Some(&error)));
        anyhow::bail!("failed at {}", step.name);
    }
    progress.send(&Report::of(step, Status::Done, None));
    Ok(())
}
