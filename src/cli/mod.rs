//! The command lines: one file per subcommand. They parse, call the library and print; they decide nothing about a join.

pub mod agent;
pub mod arguments;
pub mod check;
pub mod console;
pub mod diagnose;
pub mod helper;
pub mod join;
pub mod probe;
pub mod release;
pub mod secret_args;
pub mod status;

use std::path::PathBuf;

use crate::paths::Paths;

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Output {
    /// For people.
    #[default]
    Text,
    /// One JSON object on standard output.
    Json,
}

/// The root below which everything lies.
#[derive(Debug, Clone, clap::Args)]
pub struct RootArg {
    /// Use the files below DIR instead of this machine's (development and tests)
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
}

// === impl RootArg ===

impl RootArg {
    /// The paths below it.
    pub fn paths(&self) -> Paths {
        self.root.as_ref().map_or_else(Paths::system, Paths::under)
    }
}
