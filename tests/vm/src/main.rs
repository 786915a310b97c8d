//! `stratum-vm`: tells stories. Started by `cargo xtask vm`, which builds what it needs; parses and prints, nothing else.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Parser;
use stratum_vm::accel::Accel;
use stratum_vm::image::Base;
use stratum_vm::lab::{Lab, Settings};
use stratum_vm::stories::{STORIES, Story};
use stratum_vm::{qemu, wait};

/// Tells stories about a machine in QEMU.
#[derive(Parser)]
#[command(name = "stratum-vm")]
struct Args {
    /// A story's name, `all`, or `list`
    story: String,
    /// Our package
    #[arg(long, value_name = "FILE")]
    deb: PathBuf,
    /// The same in an older version, for the story of the package
    #[arg(long, value_name = "FILE")]
    previous: Option<PathBuf>,
    /// Where lab-founder, stratumctl and firstboot-stand-in are
    #[arg(long, value_name = "DIR")]
    programs: PathBuf,
    /// Where images and artefacts go
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// The repository
    #[arg(long, value_name = "DIR")]
    repository: PathBuf,
    /// Tell each story this many times in a row
    #[arg(long, value_name = "N", default_value_t = 1)]
    repeat: u32,
    /// Keep the machines' disks
    #[arg(long)]
    keep: bool,
    /// Write the listing in docs/journal.md instead of comparing it
    #[arg(long)]
    bless: bool,
}

fn main() -> ExitCode {
    match run(Args::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: Args) -> Result<ExitCode> {
    if args.story == "list" {
        for story in STORIES {
            println!("{:<14} {}", story.name, story.about);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let stories = chosen(&args.story)?;
    wait::register_signals()?;
    std::fs::create_dir_all(&args.dir).with_context(|| format!("create {}", args.dir.display()))?;
    let base = Base::find_or_make(&args.dir.join("base"))?;
    let temp = tempfile::tempdir().context("temporary directory")?;
    let accel = Accel::find(qemu::PROGRAM.as_ref(), temp.path())?;
    println!("machine: {}", if accel == Accel::Kvm { "KVM" } else { "emulation (KVM does not work here)" });
    let settings = Settings {
        programs: args.programs,
        deb: args.deb,
        previous: args.previous,
        dir: args.dir,
        repository: args.repository,
        keep: args.keep,
        bless: args.bless,
    };
    let mut told = Vec::new();
    for round in 1..=args.repeat {
        for story in &stories {
            println!("\n==> {} ({round} of {}): {}", story.name, args.repeat, story.about);
            let begin = Instant::now();
            let result = tell(story, &settings, &base, accel);
            if let Err(error) = &result {
                println!("  FAILED: {error:#}");
            }
            wait::check_signals()?;
            told.push((story.name, round, begin.elapsed(), result.is_ok()));
        }
    }
    println!("\n{:<16} {:>5} {:>8}  result", "story", "round", "time");
    for (name, round, took, ok) in &told {
        let result = if *ok { "ok" } else { "FAILED" };
        println!("{name:<16} {round:>5} {:>6.1} s  {result}", took.as_secs_f64());
    }
    Ok(if told.iter().all(|(.., ok)| *ok) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn tell(story: &Story, settings: &Settings, base: &Base, accel: Accel) -> Result<()> {
    qemu::in_spite_of_crashes(|| {
        let lab = Lab::new(settings, story.name, base, accel)?;
        let result = (story.tell)(&lab);
        println!("  artefacts: {}", lab.artefacts.dir().display());
        lab.finish();
        result
    })
}

fn chosen(name: &str) -> Result<Vec<&'static Story>> {
    let found: Vec<_> = STORIES.iter().filter(|story| name == "all" || story.name == name).collect();
    if found.is_empty() {
        let names: Vec<_> = STORIES.iter().map(|story| story.name).collect();
        bail!("no story is called {name}; there are: {}", names.join(", "));
    }
    Ok(found)
}
