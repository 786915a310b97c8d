//! `stratum-join probe`: what this machine is, as the cluster will be told.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use hwprobe::{Options, Roots, probe, table};

/// Most bytes of JSON printed.
const MAX_JSON: usize = 4 * 1024 * 1024;

/// How the inventory is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum ProbeOutput {
    /// A table for people.
    #[default]
    Table,
    /// The inventory as the cluster gets it, one line.
    Json,
}

/// Arguments of `probe`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How to print it
    #[arg(long, value_enum, default_value_t)]
    output: ProbeOutput,
    /// Read a captured tree instead of this machine
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Do not read any disk; every disk that looks blank is then `unreadable`
    #[arg(long)]
    no_read: bool,
}

/// Prints it. 0 printed, with or without warnings; 1 could not print; 2 the root cannot be opened.
pub fn run(args: &Args) -> ExitCode {
    let roots = match &args.root {
        Some(dir) => Roots::under(dir),
        None => Roots::live(),
    };
    let roots = match roots {
        Ok(roots) => roots,
        Err(error) => {
            let what = args.root.as_ref().map_or_else(|| "/".to_owned(), |dir| dir.display().to_string());
            eprintln!("probe: cannot open {what}: {error}");
            return ExitCode::from(2);
        }
    };
    let inventory = probe(&roots, &Options { read_ends: !args.no_read, ..Options::default() });
    let text = match args.output {
        ProbeOutput::Table => table::render(&inventory, width()),
        ProbeOutput::Json => match serde_json::to_string(&inventory.fit(MAX_JSON)) {
            Ok(json) => json + "\n",
            Err(error) => {
                eprintln!("probe: cannot print: {error}");
                return ExitCode::from(1);
            }
        },
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(1),
    }
}

/// Columns of the terminal, or 80 where there is none.
fn width() -> usize {
    rustix::termios::tcgetwinsize(std::io::stdout()).map_or(80, |size| match size.ws_col {
        0 => 80,
        columns => usize::from(columns),
    })
}
