//! The operator's command line of the lab founder. A shim: everything is in the library.

use std::process::ExitCode;

use clap::Parser;
use lab_founder::ctl;

fn main() -> ExitCode {
    let args = ctl::Args::parse();
    match ctl::run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("stratumctl: {e:#}");
            ExitCode::FAILURE
        }
    }
}
