//! `stratum-installer join`: gives this machine the cluster's address and a join code, or checks them.
#![allow(clippy::result_large_err, reason = "run once by a person: a fault of some 250 bytes is nothing")]

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use console::Snapshot;
use console::snapshot::{Liveness, State, pid_alive};
use zeroize::Zeroizing;

use super::check::{self, Report};
use super::{Output, RootArg};
use crate::clock;
use crate::durable_file;
use crate::join::advice::{Context, JOIN_COMMAND};
use crate::join::fault::{Code, Fault};
use crate::paths::Paths;
use crate::protocol::code::JoinCode;
use crate::protocol::encoding::Pin;
use crate::protocol::url::{Endpoint, JoinUrl, UrlError};
use crate::request::JoinRequest;

/// Largest code file read, in bytes.
const MAX_INPUT: u64 = 1024;

/// Arguments of `join`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    root: RootArg,
    /// The cluster's address: host or host:port (9444 without one)
    #[arg(long, value_name = "ADDRESS", conflicts_with = "url")]
    endpoint: Option<String>,
    /// The join code. Other users can see it: --code-file keeps it private
    #[arg(long, value_name = "CODE", conflicts_with_all = ["url", "code_file"], requires = "endpoint")]
    code: Option<String>,
    /// Read the join code from FILE, or from standard input with -
    #[arg(long, value_name = "FILE", conflicts_with = "url", requires = "endpoint")]
    code_file: Option<PathBuf>,
    /// The stratum-join:// URL, or - to read it from standard input
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Only check: saves nothing. Without address and code, checks what is saved
    #[arg(long)]
    check: bool,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// Where to and with what.
pub(super) struct Target {
    pub(super) endpoint: Endpoint,
    pub(super) code: Option<JoinCode>,
    pub(super) pins: Vec<Pin>,
}

/// Runs it. Exit codes: docs/protocol.md 6.1.
pub fn run(args: Args) -> ExitCode {
    let paths = args.root.paths();
    let output = args.output;
    let report = match target(&args) {
        Err(report) => *report,
        Ok(None) if args.check => check::saved(&paths),
        Ok(None) => {
            let advice = [JOIN_COMMAND, "or: stratum-installer join --url <URL>"];
            Report::said(Code::UrlMalformed, "no address and no join code are given", &advice)
        }
        Ok(Some(target)) if args.check => check::given(&paths, &target),
        Ok(Some(target)) => save(&paths, target),
    };
    report.print(output)
}

/// What was asked for; or what is wrong with it, before anything is sent or written.
fn target(args: &Args) -> Result<Option<Target>, Box<Report>> {
    if let Some(url) = &args.url {
        let text = if url == "-" { read_secret(None)? } else { Zeroizing::new(url.clone()) };
        let url = JoinUrl::parse(text.trim()).map_err(url_fault)?;
        return Ok(Some(Target { endpoint: url.endpoint, code: Some(url.code), pins: url.pins }));
    }
    let Some(address) = &args.endpoint else { return Ok(None) };
    // The field "cluster's address" takes a whole URL too (documented).
    if address.contains("://") {
        let url = JoinUrl::parse(address.trim()).map_err(url_fault)?;
        return Ok(Some(Target { endpoint: url.endpoint, code: Some(url.code), pins: url.pins }));
    }
    let endpoint = Endpoint::parse(address).map_err(|error| {
        let advice =
            ["Give host, host:port or a whole stratum-join:// URL. The port is 9444 when none is given."];
        Box::new(Report::said(Code::UrlMalformed, format!("The address cannot be right: {error}."), &advice))
    })?;
    let typed = match (&args.code, &args.code_file) {
        (Some(code), _) => {
            eprintln!("{}", super::secret_args::WARNING);
            Zeroizing::new(code.clone())
        }
        (None, Some(file)) if file.as_os_str() == "-" => read_secret(None)?,
        (None, Some(file)) => read_secret(Some(file))?,
        (None, None) => {
            let advice = ["Give it with --code-file FILE, or with --code-file - on standard input."];
            return Err(Box::new(Report::said(Code::CodeMalformed, "no join code is given", &advice)));
        }
    };
    let code =
        JoinCode::parse(&typed).map_err(|e| refused(&Fault::new(Code::CodeMalformed, e.to_string())))?;
    Ok(Some(Target { endpoint, code: Some(code), pins: Vec::new() }))
}

fn refused(fault: &Fault) -> Box<Report> {
    Box::new(Report::refused(fault, &Context::default()))
}

fn url_fault(error: UrlError) -> Box<Report> {
    match error {
        UrlError::Code(code) => refused(&Fault::new(Code::CodeMalformed, code.to_string())),
        other => refused(&Fault::new(Code::UrlMalformed, other.to_string())),
    }
}

fn read_secret(file: Option<&PathBuf>) -> Result<Zeroizing<String>, Box<Report>> {
    let mut text = Zeroizing::new(String::new());
    let read = match file {
        Some(path) => std::fs::File::open(path).and_then(|f| f.take(MAX_INPUT).read_to_string(&mut text)),
        None => std::io::stdin().lock().take(MAX_INPUT).read_to_string(&mut text),
    };
    match read {
        Ok(_) => Ok(text),
        Err(error) => {
            let from = file.map_or("standard input".to_owned(), |p| p.display().to_string());
            let cause = match error.kind() {
                std::io::ErrorKind::InvalidData => "it is not text".to_owned(),
                _ => durable_file::plain_io(&error),
            };
            let verdict = format!("the join code cannot be read from {from}: {cause}");
            Err(Box::new(Report::said(
                Code::CodeMalformed,
                verdict,
                &["Name a file with nothing but the code."],
            )))
        }
    }
}

/// Saves the request; a running agent takes it within 2 s.
fn save(paths: &Paths, target: Target) -> Report {
    if paths.joined_marker().exists() {
        let advice = ["To join another cluster, install this machine anew."];
        return Report::said(
            Code::Local,
            "this machine has joined a cluster already; nothing is changed",
            &advice,
        );
    }
    if let Ok(snapshot) = Snapshot::read(&paths.snapshot())
        && matches!(snapshot.state, State::Delivering | State::Installing)
        && snapshot.liveness(clock::boot_ms(), pid_alive) != Liveness::Gone
    {
        let advice = ["Wait for its end: stratum-join status"];
        return Report::said(Code::Local, "an install is running here; nothing is changed", &advice);
    }
    let saved = durable_file::make_dir(&paths.state_dir(), 0o700)
        .map_err(|e| e.fault())
        .and_then(|()| JoinRequest::new(target.endpoint, target.code, target.pins).map_err(Fault::from))
        .and_then(|request| request.store(paths).map_err(Fault::from));
    match saved {
        Ok(request) => Report::saved(paths, &request),
        Err(fault) => Report::refused(&fault, &Context::default()),
    }
}
