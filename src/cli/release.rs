//! `stratum-join release fetch`: what a joiner does before it upgrades itself, for those who make and serve releases. The engine is the agent's.
//!
//! Touches the directory it is given, the network, and the terminal. Installs nothing.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use console::text::Safe;
use serde::Serialize;

use super::Output;
use crate::durable_file;
use crate::upgrade::FileEntry;
use crate::upgrade::fault::{Code, UpgradeFault};
use crate::upgrade::fetch::{Fetched, Options, Phase, Progress, fetch};
use crate::upgrade::keys::{KeyRing, Owner};
use crate::upgrade::manifest::{About, Form, MANIFEST, MAX_MANIFEST, Statement};
use crate::upgrade::plan::Waiting;
use crate::upgrade::running::RunningOs;
use crate::upgrade::source::{Mirror, MirrorSettings, Source};
use crate::upgrade::stage::{Stage, StageError, size_words};
use crate::upgrade::verify::{Check, Verified};
use crate::upgrade::version::{Floor, Version};

/// Largest file with authorities.
const MAX_CA: u64 = 64 * 1024;
/// Where there is no terminal, a line this often.
const LINE_EVERY_SECS: u64 = 30;
/// Ended by Ctrl-C, as a shell would say it.
const INTERRUPTED: u8 = 130;

/// Arguments of `release`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Fetch a release from a mirror as a joiner would, and verify every byte of it
    ///
    /// Can be broken off at any time: run again, it goes on where it was. Exit code: 0 complete; 2 the address is not allowed; 3 the mirror cannot
    /// be reached; 4 a signature, a key or a certificate is not trusted; 5 the mirror does not hold what was signed; 6 the release does not fit;
    /// 8 this machine's disk or files; 130 broken off.
    Fetch(FetchArgs),
}

/// Arguments of `release fetch`.
#[derive(Debug, clap::Args)]
struct FetchArgs {
    /// The release directory on the mirror
    #[arg(long, value_name = "URL")]
    source: String,
    /// The release keys (*.pub, threshold): those of the OS that shall upgrade
    #[arg(long, value_name = "DIR")]
    keys: PathBuf,
    /// Where the files go; what is there already is kept
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// The mirror's certificate authorities (PEM) instead of the system's
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The release that must be there
    #[arg(long, value_name = "N.N.N")]
    release: Option<Version>,
    /// The release of the joiner; the lowest that may upgrade, without it
    #[arg(long, value_name = "N.N.N")]
    from: Option<Version>,
    /// Only what a joiner installs of this form; every file of the release, without it
    #[arg(long, value_enum)]
    form: Option<FormArg>,
    /// A proxy, http://HOST:PORT; the environment is not asked
    #[arg(long, value_name = "URL")]
    proxy: Option<String>,
    /// Take http:// too: everybody on the way sees what is fetched
    #[arg(long)]
    allow_http: bool,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// How a joiner installs.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum FormArg {
    /// Two slots with a boot loader
    Ab,
    /// bootc
    Oci,
}

/// What is printed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    good: bool,
    /// One sentence.
    verdict: String,
    /// The row of the table of faults.
    code: Option<&'static str>,
    /// What you can do.
    advice: Option<String>,
    release: Option<String>,
    manifest_sha256: Option<String>,
    files: usize,
    /// Bytes: of all files, verified, here before, received.
    total: u64,
    done: u64,
    kept: u64,
    fetched: u64,
    seconds: f64,
    exit: u8,
}

/// Does what was asked.
pub fn run(args: Args) -> ExitCode {
    let What::Fetch(args) = args.what;
    let began = Instant::now();
    let mut report = Report {
        good: false,
        verdict: String::new(),
        code: None,
        advice: None,
        release: None,
        manifest_sha256: None,
        files: 0,
        total: 0,
        done: 0,
        kept: 0,
        fetched: 0,
        seconds: 0.0,
        exit: 0,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = match runtime {
        Ok(runtime) => {
            let ended = runtime.block_on(async {
                tokio::select! {
                    ended = work(&args, &mut report) => Some(ended),
                    _ = tokio::signal::ctrl_c() => None,
                }
            });
            // A name that is being resolved holds a thread; nobody waits for it.
            runtime.shutdown_background();
            ended
        }
        Err(error) => Some(Err(local(format!("cannot start: {}", durable_file::plain_io(&error))))),
    };
    match ended {
        Some(Ok(())) => report.good = true,
        Some(Err(fault)) => {
            report.verdict = fault.what.as_str().to_owned();
            report.advice = Some(advice(&fault));
            report.code = Some(fault.code.as_str());
            report.exit = exit(fault.code);
        }
        None => {
            report.verdict = "Broken off; what is verified stays.".to_owned();
            report.advice = Some("Run it again to go on.".to_owned());
            report.exit = INTERRUPTED;
        }
    }
    report.seconds = (began.elapsed().as_secs_f64() * 10.0).round() / 10.0;
    report.print(args.output)
}

async fn work(args: &FetchArgs, report: &mut Report) -> Result<(), UpgradeFault> {
    let keys = KeyRing::load_dir(&args.keys, Owner::Anybody).map_err(|error| local(error.to_string()))?;
    for warning in keys.warnings() {
        eprintln!("warning: {warning}");
    }
    let ca_pem = match &args.ca {
        None => None,
        Some(path) => {
            let read = durable_file::read_public(path, MAX_CA).map_err(|error| local(error.to_string()))?;
            Some(read.ok_or_else(|| local(format!("{} does not exist", path.display())))?)
        }
    };
    let mirror = Mirror::new(&MirrorSettings {
        url: args.source.clone(),
        ca_pem,
        allow_http: args.allow_http,
        proxy: args.proxy.clone(),
        allow_local: true,
        time: None,
    })?;
    let source = Arc::new(Source::Mirror(mirror));
    let os = joiner(&source, args.from.as_ref()).await?;
    let check = Check {
        keys,
        floor: Floor::of(None, &os),
        os,
        to: args.release.clone(),
        form: args.form.map(Form::from),
        host: String::new(),
        url: String::new(),
    };
    let verified = source.release(check).await?;
    let wants = wanted(&verified, args.form);
    report.release = Some(verified.manifest().about.release.to_string());
    report.manifest_sha256 = Some(verified.sha256().to_string());
    report.files = wants.len();
    // A terminal may have many lines; the release is named once.
    eprintln!(
        "release {} by {}: {} in {} files",
        verified.manifest().about.release,
        signers(&verified),
        size_words(wants.iter().map(|want| want.size).sum()),
        wants.len()
    );
    let stage = Stage::open(&args.to).map_err(|error| disk(&error))?;
    let signatures: Vec<(String, Vec<u8>)> =
        verified.signatures().iter().map(|(id, bytes)| (id.to_string(), bytes.clone())).collect();
    stage.keep_manifest(&verified.sha256(), verified.bytes(), &signatures).map_err(|error| disk(&error))?;
    let mut shown = Shown { last: Instant::now(), open: false };
    let fetched = fetch(source, stage, wants, Options::default(), |progress| {
        shown.show(progress);
        report.take(progress);
    })
    .await;
    shown.end();
    let Fetched { progress, .. } = fetched?;
    report.take(&progress);
    report.verdict = format!(
        "release {} is complete in {}: {} verified, {} of it were here, {} fetched",
        verified.manifest().about.release,
        args.to.display(),
        size_words(progress.done),
        size_words(progress.kept),
        size_words(progress.fetched)
    );
    Ok(())
}

/// Whom the release is checked for. Product and processor are its own, so that a release for another machine can be tried here; so is the lowest
/// release that may upgrade, where none is named. All of it is read again from the manifest that is verified.
async fn joiner(source: &Source, from: Option<&Version>) -> Result<RunningOs, UpgradeFault> {
    let manifest = source.small(MANIFEST, MAX_MANIFEST, false).await?;
    let about: Option<About> = manifest
        .as_ref()
        .and_then(|small| Statement::parse(&small.bytes).ok().map(|statement| statement.about().clone()));
    let lowest = || about.as_ref().map(|about| about.min_upgrade_from.clone());
    let release = from.cloned().or_else(lowest).or_else(|| "0.0.0".parse().ok());
    Ok(RunningOs {
        release: release.ok_or_else(|| local("no release to upgrade from".to_owned()))?,
        sequence: 0,
        product: about.as_ref().map_or_else(|| "stratum".to_owned(), |about| about.product.clone()),
        arch: about.as_ref().map_or_else(|| std::env::consts::ARCH.to_owned(), |about| about.arch.clone()),
    })
}

fn wanted(verified: &Verified, form: Option<FormArg>) -> Vec<FileEntry> {
    match form {
        Some(form) => verified.wanted(form.into()).into_iter().cloned().collect(),
        None => verified.manifest().files.clone(),
    }
}

fn signers(verified: &Verified) -> String {
    let ids: Vec<String> = verified.signatures().iter().map(|(id, _)| id.to_string()).collect();
    ids.join(", ")
}

/// What you can do, where the setting of a joiner is an argument here.
fn advice(fault: &UpgradeFault) -> String {
    fault
        .todo
        .as_str()
        .replace("`upgrade.mirror.caFile`", "`--ca FILE` (of a joiner: `upgrade.mirror.caFile`)")
}

fn local(what: String) -> UpgradeFault {
    UpgradeFault::new(Code::Io, what, "Check the arguments.")
}

fn disk(error: &StageError) -> UpgradeFault {
    let fault = UpgradeFault::from(error);
    match fault.code {
        // Here somebody chose the directory.
        Code::Io => UpgradeFault { todo: Safe::clean("Check the directory and the disk it is on."), ..fault },
        _ => fault,
    }
}

fn exit(code: Code) -> u8 {
    match code {
        Code::SourceRefused => 2,
        Code::SourceUnreachable | Code::Stalled => 3,
        Code::SourceTls | Code::Clock | Code::KeyUnknown | Code::SigBad => 4,
        Code::SourceStatus | Code::NotARelease | Code::Hash => 5,
        Code::ManifestInvalid | Code::WrongRelease | Code::Downgrade | Code::TooOld | Code::Unsupported => 6,
        _ => 8,
    }
}

// === impl FormArg ===

impl From<FormArg> for Form {
    fn from(form: FormArg) -> Self {
        match form {
            FormArg::Ab => Form::Ab,
            FormArg::Oci => Form::Oci,
        }
    }
}

// === impl Report ===

impl Report {
    fn take(&mut self, progress: &Progress) {
        (self.total, self.done) = (progress.total, progress.done);
        (self.kept, self.fetched) = (progress.kept, progress.fetched);
    }

    fn print(&self, output: Output) -> ExitCode {
        // A reader that went away changes nothing of the verdict.
        let print = |text: String| drop(std::io::stdout().write_all(text.as_bytes()));
        match output {
            Output::Json => print(serde_json::to_string(self).unwrap_or_default() + "\n"),
            Output::Text if self.good => print(format!("{}\n", self.verdict)),
            Output::Text => {
                eprintln!("error: {}", self.verdict);
                if let Some(advice) = &self.advice {
                    eprintln!("help: {advice}");
                }
            }
        }
        ExitCode::from(self.exit)
    }
}

/// The progress on standard error: one line that changes on a terminal, a line now and then elsewhere.
struct Shown {
    last: Instant,
    open: bool,
}

// === impl Shown ===

impl Shown {
    fn show(&mut self, progress: &Progress) {
        let mut err = std::io::stderr();
        if err.is_terminal() {
            // To the end of the line is cleared, and the cursor stays.
            let _ = write!(err, "\r{}\u{1b}[K", line(progress));
            let _ = err.flush();
            self.open = true;
        } else if self.last.elapsed().as_secs() >= LINE_EVERY_SECS {
            self.last = Instant::now();
            let _ = writeln!(err, "{}", line(progress));
        }
    }

    fn end(&mut self) {
        if std::mem::take(&mut self.open) {
            eprintln!();
        }
    }
}

fn line(progress: &Progress) -> String {
    if progress.phase == Phase::Checking {
        return format!("reading what is here: {}", size_words(progress.checked));
    }
    let mut line = format!("{} of {} verified", size_words(progress.done), size_words(progress.total));
    match progress.waiting {
        Some(Waiting::Busy) => line.push_str(", the source is busy, waiting"),
        Some(Waiting::Source) => line.push_str(", the source does not answer, trying again"),
        None => {
            if let Some(rate) = progress.rate {
                line.push_str(&format!(", {}/s", size_words(rate)));
            }
            if let Some(secs) = progress.eta {
                line.push_str(&format!(", {} left", time_words(secs)));
            }
        }
    }
    line
}

fn time_words(secs: u64) -> String {
    match secs {
        0..60 => format!("{secs} s"),
        60..3600 => format!("{} min {} s", secs / 60, secs % 60),
        _ => format!("{} h {} min", secs / 3600, secs % 3600 / 60),
    }
}
