//! `stratum-vm`: tells stories. Started by `cargo xtask vm`, which builds what it needs; parses and prints, nothing else.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;
use stratum_vm::accel::Accel;
use stratum_vm::image::{Base, Image};
use stratum_vm::lab::{Lab, Settings};
use stratum_vm::stories::{MEASUREMENTS, STORIES, Story};
use stratum_vm::{qemu, wait};

/// Tells stories about a machine in QEMU.
#[derive(Parser)]
#[command(name = "stratum-vm")]
struct Args {
    /// Names of stories, `all`, or `list`
    #[arg(required = true)]
    stories: Vec<String>,
    /// Our package
    #[arg(long, value_name = "FILE")]
    deb: Option<PathBuf>,
    /// The same in an older version, for the story of the package
    #[arg(long, value_name = "FILE")]
    previous: Option<PathBuf>,
    /// Where lab-founder, stratumctl and firstboot-stand-in are
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
    /// Where images and artefacts go
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// The repository
    #[arg(long, value_name = "DIR")]
    repository: PathBuf,
    /// Tell each story this many times in a row
    #[arg(long, value_name = "N", default_value_t = 1)]
    repeat: u32,
    /// After the first story begin none that would not be over so many minutes from now; the ones left out are named
    #[arg(long, value_name = "MINUTES")]
    within: Option<u64>,
    /// Keep the machines' disks
    #[arg(long)]
    keep: bool,
    /// Write what a story would compare: the listing in docs/journal.md, the known answers in tests/vm/hardware
    #[arg(long)]
    bless: bool,
}

/// How one telling ended.
enum Outcome {
    Ok,
    Failed,
    NoTime,
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
    if args.stories == ["list"] {
        for story in STORIES.iter().chain(MEASUREMENTS) {
            println!("{:<14} {}", story.name, story.about);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let stories = chosen(&args.stories)?;
    wait::register_signals()?;
    std::fs::create_dir_all(&args.dir).with_context(|| format!("create {}", args.dir.display()))?;
    let _lock = alone(&args.dir)?;
    let cache = args.dir.join("base");
    let temp = tempfile::tempdir().context("temporary directory")?;
    let accel = Accel::find(qemu::PROGRAM.as_ref(), temp.path())?;
    println!("machine: {}", if accel == Accel::Kvm { "KVM" } else { "emulation (KVM does not work here)" });
    let settings = Settings {
        programs: args.programs.context("--programs is missing")?,
        deb: args.deb.context("--deb is missing")?,
        previous: args.previous,
        dir: args.dir,
        repository: args.repository,
        keep: args.keep,
        bless: args.bless,
    };
    let end = args.within.map(|minutes| Instant::now() + Duration::from_secs(60 * minutes));
    let mut told = Vec::new();
    for round in 1..=args.repeat {
        for story in &stories {
            let image = if story.image.is_made(&cache) { 0 } else { Image::MINUTES };
            let over = Instant::now() + Duration::from_secs(60 * (story.minutes + image));
            if !told.is_empty() && end.is_some_and(|end| over > end) {
                println!("\n==> {}: not told, there is no time left for it", story.name);
                told.push((story.name, round, Duration::ZERO, Outcome::NoTime));
                continue;
            }
            println!("\n==> {} ({round} of {}): {}", story.name, args.repeat, story.about);
            let base = Base::find_or_make(&cache, story.image)?;
            let begin = Instant::now();
            let result = tell(story, &settings, &base, accel);
            if let Err(error) = &result {
                println!("  FAILED: {error:#}");
            }
            wait::check_signals()?;
            let outcome = if result.is_ok() { Outcome::Ok } else { Outcome::Failed };
            told.push((story.name, round, begin.elapsed(), outcome));
        }
    }
    println!("\n{:<16} {:>5} {:>8}  result", "story", "round", "time");
    for (name, round, took, outcome) in &told {
        let result = match outcome {
            Outcome::Ok => "ok",
            Outcome::Failed => "FAILED",
            Outcome::NoTime => "not told: no time left",
        };
        println!("{name:<16} {round:>5} {:>6.1} s  {result}", took.as_secs_f64());
    }
    let failed = told.iter().any(|(.., outcome)| matches!(outcome, Outcome::Failed));
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// One at a time in this folder; what a killed run left of its machines is removed.
fn alone(dir: &Path) -> Result<File> {
    let path = dir.join(".lock");
    let lock = File::create(&path).with_context(|| format!("create {}", path.display()))?;
    if lock.try_lock().is_err() {
        bail!("another `cargo xtask vm` works in {}", dir.display());
    }
    for entry in std::fs::read_dir(dir).context("the folder of the stories")? {
        let entry = entry.context("the folder of the stories")?;
        if entry.file_name().to_string_lossy().starts_with(Lab::PREFIX) {
            std::fs::remove_dir_all(entry.path())
                .with_context(|| format!("remove {}", entry.path().display()))?;
        }
    }
    Ok(lock)
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

fn chosen(names: &[String]) -> Result<Vec<&'static Story>> {
    let mut chosen = Vec::new();
    for name in names {
        let named = |story: &&Story| story.name == name;
        let mut found: Vec<_> = STORIES.iter().filter(|story| name == "all" || named(story)).collect();
        found.extend(MEASUREMENTS.iter().filter(named));
        if found.is_empty() {
            let names: Vec<_> = STORIES.iter().chain(MEASUREMENTS).map(|story| story.name).collect();
            bail!("no story is called {name}; there are: {}", names.join(", "));
        }
        chosen.extend(found);
    }
    Ok(chosen)
}
