//! `lab-founder release`: the words on the command line. Prints; everything else is in the modules beside it.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Subcommand;
use stratum_join::paths::Paths;

use super::{AbInput, Against, Breakage, SecretKey, Spec, SysextInput};

/// Make, sign and check the releases that joiners upgrade to.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a signing key without a password: for labs and tests
    Keygen(Keygen),
    /// Lay out a release directory of given files
    Make(Box<Make>),
    /// Sign a release directory
    Sign(Sign),
    /// Say of a release directory what a joiner would say
    Check(Check),
    /// Copy a release directory and damage the copy, for tests
    Break(Break),
}

#[derive(Debug, clap::Args)]
struct Keygen {
    /// Where to write NAME.key and NAME.pub
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Name of the two files
    #[arg(long, default_value = "release")]
    name: String,
}

#[derive(Debug, clap::Args)]
struct Make {
    /// The directory to make
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// N.N.N[-pre]
    #[arg(long)]
    release: String,
    /// Higher than that of every earlier release
    #[arg(long, value_name = "N")]
    sequence: u64,
    /// Lowest release that may upgrade to it
    #[arg(long, value_name = "RELEASE")]
    min_upgrade_from: String,
    #[arg(long, default_value = "stratum")]
    product: String,
    #[arg(long, default_value = std::env::consts::ARCH)]
    arch: String,
    /// When it was made; without it SOURCE_DATE_EPOCH counts
    #[arg(long, value_name = "RFC3339")]
    created: Option<String>,
    /// Until when it is meant to be used; joiners warn after it and install all the same
    #[arg(long, value_name = "RFC3339")]
    not_after: Option<String>,
    /// Image of the root file system, for two slots
    #[arg(long, value_name = "FILE", requires_all = ["fstype", "linux"])]
    root: Option<PathBuf>,
    /// Its file system: erofs, squashfs or ext4
    #[arg(long, requires = "root")]
    fstype: Option<String>,
    /// Its kernel
    #[arg(long, value_name = "FILE", requires = "root")]
    linux: Option<PathBuf>,
    /// Its initrd; may be given again
    #[arg(long, value_name = "FILE", requires = "root")]
    initrd: Vec<PathBuf>,
    /// An argument for the kernel; may be given again
    #[arg(long, value_name = "TOKEN", requires = "root", allow_hyphen_values = true)]
    cmdline: Vec<String>,
    /// An OCI layout with one image
    #[arg(long, value_name = "DIR")]
    oci: Option<PathBuf>,
    /// A system extension; may be given again. Optional ones are not fetched by joiners
    #[arg(long, value_name = "NAME=FILE[,optional]", value_parser = sysext)]
    sysext: Vec<SysextInput>,
}

#[derive(Debug, clap::Args)]
struct Sign {
    /// The release
    dir: PathBuf,
    /// A secret key; the first is the primary one, further ones are for OSes that know other keys
    #[arg(long, value_name = "FILE", required = true)]
    key: Vec<PathBuf>,
    /// Write nothing; print the commands that do it with minisign itself, for keys with a password
    #[arg(long)]
    print_minisign: bool,
}

#[derive(Debug, clap::Args)]
struct Check {
    /// The release
    dir: PathBuf,
    /// The release keys of the joiner's OS; without it those of this machine
    #[arg(long, value_name = "DIR")]
    os_keys: Option<PathBuf>,
    /// The joiner's release; without it the lowest that may upgrade
    #[arg(long, value_name = "RELEASE")]
    from: Option<String>,
    /// The joiner's sequence
    #[arg(long, value_name = "N", default_value_t = 0)]
    from_sequence: u64,
    /// The release that the cluster asks for; without it what the directory holds
    #[arg(long, value_name = "RELEASE")]
    to: Option<String>,
}

#[derive(Debug, clap::Args)]
struct Break {
    /// The release
    dir: PathBuf,
    /// What to damage
    #[arg(long, value_enum)]
    how: Breakage,
    /// The copy to make
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Keys to sign the copy with
    #[arg(long, value_name = "FILE")]
    key: Vec<PathBuf>,
}

/// Runs it. The exit code is 1 when a check finds something.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        Command::Keygen(Keygen { out, name }) => {
            let (key, path) = super::keygen(&out, &name)?;
            println!("{} {}", key.id(), path.display());
        }
        Command::Make(args) => {
            let out = args.out.clone();
            let made = super::make(&spec(*args)?, &out)?;
            println!(
                "made {}: {} files, {} bytes; manifest {}",
                out.display(),
                made.files,
                made.bytes,
                made.manifest_sha256
            );
        }
        Command::Sign(Sign { dir, key, print_minisign: true }) => {
            print!("{}", super::print_minisign(&dir, &key)?);
        }
        Command::Sign(Sign { dir, key, print_minisign: false }) => {
            let keys = keys(&key)?;
            let ids: Vec<String> = super::sign(&dir, &keys)?.iter().map(ToString::to_string).collect();
            println!("signed {} with {}", dir.display(), ids.join(", "));
        }
        Command::Check(Check { dir, os_keys, from, from_sequence, to }) => {
            let os_keys = os_keys.unwrap_or_else(|| Paths::system().release_keys_dir());
            let report = super::check(&dir, &Against { os_keys, from, from_sequence, to })?;
            for line in report.lines() {
                println!("{line}");
            }
            return Ok(if report.good() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        Command::Break(Break { dir, how, out, key }) => {
            super::break_release(&dir, how, &keys(&key)?, &out)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn keys(paths: &[PathBuf]) -> anyhow::Result<Vec<SecretKey>> {
    paths.iter().map(|path| SecretKey::read(path)).collect()
}

fn spec(args: Make) -> anyhow::Result<Spec> {
    let created = match args.created {
        Some(text) => text.parse::<jiff::Timestamp>().with_context(|| format!("--created {text}"))?,
        None => epoch()?,
    };
    if let Some(text) = &args.not_after {
        text.parse::<jiff::Timestamp>().with_context(|| format!("--not-after {text}"))?;
    }
    let ab = match (args.root, args.fstype, args.linux) {
        (Some(root), Some(fstype), Some(linux)) => {
            Some(AbInput { root, fstype, linux, initrds: args.initrd, cmdline: args.cmdline })
        }
        _ => None,
    };
    Ok(Spec {
        release: args.release,
        sequence: args.sequence,
        min_upgrade_from: args.min_upgrade_from,
        product: args.product,
        arch: args.arch,
        created: created.to_string(),
        not_after: args.not_after,
        ab,
        oci: args.oci,
        sysexts: args.sysext,
    })
}

/// <https://reproducible-builds.org/specs/source-date-epoch/>
#[expect(
    clippy::disallowed_methods,
    reason = "SOURCE_DATE_EPOCH is an environment variable by its own standard"
)]
fn epoch() -> anyhow::Result<jiff::Timestamp> {
    let text = std::env::var("SOURCE_DATE_EPOCH").ok().context(
        "give --created or set SOURCE_DATE_EPOCH: a release made again must have the same bytes, whenever that is",
    )?;
    let seconds = text.parse().ok().and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    seconds.with_context(|| format!("SOURCE_DATE_EPOCH is `{text}`, which is no number of seconds"))
}

fn sysext(text: &str) -> Result<SysextInput, String> {
    let (name, file) = text.split_once('=').ok_or("expected NAME=FILE[,optional]")?;
    let (file, required) = match file.strip_suffix(",optional") {
        Some(file) => (file, false),
        None => (file, true),
    };
    Ok(SysextInput { name: name.to_owned(), file: file.into(), required })
}
