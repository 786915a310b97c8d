//! `stratum-join status`: the state as the console shows it, for a shell and for scripts.

use std::io::Write;
use std::process::ExitCode;

use console::snapshot::{Liveness, State, pid_alive};
use console::{Now, Snapshot, card};

use super::{Output, RootArg};
use crate::clock;

/// Arguments of `status`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    root: RootArg,
    /// How to print it
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// What to say of a machine that shows no state. A member's agent does not run any more, and after a reboot there is no snapshot.
fn without_snapshot(args: &Args, error: &str) -> ExitCode {
    // Not everybody may look: the marker lies in the agent's own directory.
    if args.root.paths().joined_marker().exists() {
        let text = match args.output {
            Output::Text => "This machine has joined its cluster. The join agent does not run any more.\n",
            Output::Json => "{\"state\":\"joined\"}\n",
        };
        return match std::io::stdout().write_all(text.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::from(1),
        };
    }
    eprintln!("error: {error}");
    eprintln!("help: is the agent running? systemctl status stratum-join");
    eprintln!("      On a machine that has joined it is not; root is told so here.");
    ExitCode::from(3)
}

/// Prints it. 0 running or joined; 1 failed, refused, rejected, expired, identity-failed; 3 no snapshot, or one that is too old.
pub fn run(args: &Args) -> ExitCode {
    let path = args.root.paths().snapshot();
    let snapshot = match Snapshot::read(&path) {
        Ok(snapshot) => snapshot,
        Err(error) => return without_snapshot(args, &error.to_string()),
    };
    let liveness = snapshot.liveness(clock::boot_ms(), pid_alive);
    let text = match args.output {
        Output::Text => card(&snapshot, liveness, Now::read(), None),
        Output::Json => String::from_utf8_lossy(&snapshot.encode()).into_owned(),
    };
    if std::io::stdout().write_all(text.as_bytes()).is_err() {
        return ExitCode::from(1);
    }
    match snapshot.state {
        State::Joined => ExitCode::SUCCESS,
        _ if liveness == Liveness::Gone => ExitCode::from(3),
        State::Failed | State::Refused | State::Rejected | State::Expired | State::IdentityFailed => {
            ExitCode::from(1)
        }
        _ => ExitCode::SUCCESS,
    }
}
