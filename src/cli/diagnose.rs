//! `stratum-join diagnose`: why the founder cannot be reached, on the shell of the machine that cannot.
//!
//! May touch: what the diagnosis touches; reads the saved request and the journal. Must never: change either.

use std::io::Write;
use std::process::ExitCode;

use serde::Serialize;

use super::{Output, RootArg};
use crate::diagnosis::facts::Past;
use crate::diagnosis::rows::{Diagnosis, Row, Status};
use crate::diagnosis::{self, Subject};
use crate::join::advice::JOIN_COMMAND;
use crate::join::fault::{Code, Fault, chain_of};
use crate::join::past_of;
use crate::journal::{Found, Journal};
use crate::paths::Paths;
use crate::protocol::url::Endpoint;
use crate::request::JoinRequest;

/// Columns of the table: a serial line's.
const WIDTH: usize = 80;
/// Where the texts of the rows begin.
const INDENT: usize = 18;

/// Arguments of `diagnose`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Look for a founder there instead of where the saved join request says
    #[arg(long, value_name = "HOST[:PORT]")]
    endpoint: Option<String>,
    #[command(flatten)]
    root: RootArg,
    /// How to print it
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// Why there is nothing to look for.
struct Refused {
    what: String,
    todo: Vec<&'static str>,
    exit: u8,
}

/// What is printed as JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Printed<'a> {
    good: bool,
    /// The first red row.
    cause: Option<&'a Row>,
    #[serde(flatten)]
    diagnosis: &'a Diagnosis,
    exit: u8,
}

/// Looks, and prints it. 0 no red row; 3 a red row; 2 there is no request, or the address is none; 8 the request cannot be read.
pub fn run(args: &Args) -> ExitCode {
    let paths = args.root.paths();
    let subject = match subject(&paths, args.endpoint.as_deref()) {
        Ok(subject) => subject,
        Err(refused) => return refused.print(args.output),
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let what = format!("the diagnosis cannot run: {error}");
            return Refused { what, todo: Vec::new(), exit: 8 }.print(args.output);
        }
    };
    let diagnosis = runtime.block_on(diagnosis::run(subject));
    // A resolver that hangs is not waited for.
    runtime.shutdown_background();
    print(&diagnosis, args.output)
}

fn subject(paths: &Paths, given: Option<&str>) -> Result<Subject, Refused> {
    let given = given.map(Endpoint::parse).transpose().map_err(|error| Refused {
        what: format!("--endpoint: {}", error.reason()),
        todo: vec!["Give a host name or an address, with :PORT when it is not 9444."],
        exit: 2,
    })?;
    let synced = diagnosis::synced(paths);
    let saved = match JoinRequest::load(paths) {
        Ok(saved) => saved,
        // Where to look was given: what else is saved only says whom to expect.
        Err(_) if given.is_some() => None,
        Err(error) => {
            return Err(Refused {
                what: format!("the saved join request cannot be read: {}", chain_of(&error)),
                todo: vec![
                    "Run it as root, or give the address: stratum-join diagnose --endpoint HOST[:PORT]",
                ],
                exit: Fault::from(error).code.exit(),
            });
        }
    };
    match (given, saved) {
        (Some(endpoint), Some(saved)) if saved.endpoint != endpoint => {
            Ok(Subject { endpoint, past: Past::default(), synced })
        }
        (_, Some(saved)) => {
            let durable = match Journal::at(paths.journal()).peek() {
                Ok(Found::Good(durable)) => Some(durable),
                _ => None,
            };
            let view = saved.view();
            let mine = durable.filter(|durable| durable.request.is_some_and(|id| id.0 == view.id));
            let mut past = mine.map_or_else(Past::default, |durable| past_of(&durable, None));
            if past.pins.is_empty() {
                past.pins = saved.pins;
            }
            Ok(Subject { endpoint: saved.endpoint, past, synced })
        }
        (Some(endpoint), None) => Ok(Subject { endpoint, past: Past::default(), synced }),
        (None, None) => Err(Refused {
            what: "no join request is saved on this machine: there is no address to look for".to_owned(),
            todo: vec![
                "Give one: stratum-join diagnose --endpoint HOST[:PORT]",
                "or ask to join:",
                JOIN_COMMAND,
            ],
            exit: Code::CodeMalformed.exit(),
        }),
    }
}

fn print(diagnosis: &Diagnosis, output: Output) -> ExitCode {
    let cause = diagnosis.cause();
    let exit = if cause.is_some() { 3 } else { 0 };
    // A reader that went away changes nothing of what was found.
    let out = |text: String| drop(std::io::stdout().write_all(text.as_bytes()));
    match output {
        Output::Json => {
            let printed = Printed { good: cause.is_none(), cause, diagnosis, exit };
            out(serde_json::to_string(&printed).unwrap_or_default() + "\n");
        }
        Output::Text => {
            out(table(diagnosis));
            match cause {
                Some(cause) => {
                    eprintln!("error: {}", cause.text.ascii());
                    for line in &cause.look_at {
                        eprintln!("help: {}", line.ascii());
                    }
                }
                None => out(good(diagnosis)),
            }
        }
    }
    ExitCode::from(exit)
}

/// The rows, a line each or more.
fn table(diagnosis: &Diagnosis) -> String {
    let mut text = format!("the way to {}\n", diagnosis.endpoint.ascii());
    for row in &diagnosis.rows {
        let tag = match row.status {
            Status::Ok => "[ok]",
            Status::Failed => "[XX]",
            Status::Skipped => "[--]",
            Status::Unknown => "[??]",
        };
        let head = format!("  {tag} {:<11}", row.name.title());
        for (at, line) in wrap(&row.text.ascii(), WIDTH - INDENT).into_iter().enumerate() {
            let left = if at == 0 { head.as_str() } else { "" };
            text.push_str(format!("{left:<INDENT$}{line}").trim_end());
            text.push('\n');
        }
    }
    if diagnosis.timed_out {
        text.push_str("  It was stopped after 10 s: what it did not get to is marked.\n");
    }
    text
}

/// The last line where nothing is red, and what the amber rows ask to look at.
fn good(diagnosis: &Diagnosis) -> String {
    let seconds = diagnosis.took_ms.div_ceil(1_000);
    let amber = diagnosis.rows.iter().filter(|row| row.status == Status::Unknown).count();
    let but = match amber {
        0 => String::new(),
        1 => ", but one line is worth a look".to_owned(),
        n => format!(", but {n} lines are worth a look"),
    };
    let mut text = format!("nothing stands in the way{but} ({seconds} s)\n");
    for row in diagnosis.rows.iter().filter(|row| row.status == Status::Unknown) {
        for look in &row.look_at {
            text.push_str(&format!("note: {}: {}\n", row.name.title(), look.ascii()));
        }
    }
    text
}

fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().map(|line| line.len()).unwrap_or_default();
        if line > 0 && line + 1 + word.len() > width {
            lines.push(String::new());
        }
        if let Some(last) = lines.last_mut() {
            if !last.is_empty() {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    lines
}

// === impl Refused ===

impl Refused {
    fn print(&self, output: Output) -> ExitCode {
        match output {
            Output::Json => {
                let json = serde_json::json!({
                    "good": false, "error": self.what, "advice": self.todo, "exit": self.exit,
                });
                drop(std::io::stdout().write_all(format!("{json}\n").as_bytes()));
            }
            Output::Text => {
                eprintln!("error: {}", self.what);
                for line in &self.todo {
                    eprintln!("help: {line}");
                }
            }
        }
        ExitCode::from(self.exit)
    }
}
