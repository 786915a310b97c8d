//! `stratum-join console --render`: one screen of a snapshot file as text, for documents, support and tests.
//!
//! Reads the file it is given, or standard input; needs no agent, no terminal and no privilege. The clock of the picture is the
//! snapshot's own: the same file always gives the same text.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use console::snapshot::MAX_BYTES;
use console::{Screen, Shape};

use super::USAGE;
use crate::durable_file::plain_io;
use crate::join::fault::chain_of;

/// Not a snapshot (sysexits EX_DATAERR).
const NO_SNAPSHOT: u8 = 65;
/// The file cannot be read (EX_NOINPUT).
const NO_INPUT: u8 = 66;
/// The text cannot be written (EX_IOERR).
const NO_OUTPUT: u8 = 74;
/// Larger pictures are of no terminal.
const LARGEST: (u16, u16) = (500, 200);

/// What to print.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(super) struct Args {
    /// Print one screen of this snapshot as text, as it was when the snapshot was written; - is standard input
    #[arg(long, value_name = "SNAPSHOT", conflicts_with_all = ["tty", "root", "exit_when_joined"])]
    render: Option<PathBuf>,
    /// The terminal's size for --render; 0x0 is one that does not know its size [default: 80x24]
    #[arg(long, value_name = "COLSxROWS", requires = "render")]
    size: Option<String>,
    /// The card of a serial line instead of a screen
    #[arg(long, requires = "render")]
    card: bool,
    /// Which screen to print
    #[arg(long, value_enum, default_value_t, requires = "render", conflicts_with = "card")]
    screen: Which,
}

/// The screens a person can look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Which {
    /// The one that the state asks for
    #[default]
    Main,
    /// Hardware, keys, identities
    Details,
    /// The network diagnosis
    Network,
    /// The last lines of the agent's log
    Log,
}

/// Columns and rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size(u16, u16);

// === impl Args ===

impl Args {
    /// Prints the picture, if one was asked for.
    pub(super) fn run(&self) -> Option<ExitCode> {
        let path = self.render.as_deref()?;
        Some(match self.text(path) {
            Ok(text) => match std::io::stdout().lock().write_all(text.as_bytes()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => fail(NO_OUTPUT, &format!("cannot print the screen: {}", plain_io(&error))),
            },
            Err((code, why)) => fail(code, &why),
        })
    }

    fn text(&self, path: &Path) -> Result<String, (u8, String)> {
        let size = self.size.as_deref().map_or(Ok(Size(80, 24)), str::parse).map_err(|why| (USAGE, why))?;
        let shape = if self.card { Shape::Card } else { Shape::Cells(size.0, size.1) };
        let raw = read(path)
            .map_err(|error| (NO_INPUT, format!("cannot read {}: {}", Named(path), plain_io(&error))))?;
        console::picture(&raw, self.screen.into(), shape)
            .map_err(|error| (NO_SNAPSHOT, format!("{}: {}", Named(path), chain_of(&error))))
    }
}

// === impl Size ===

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number =
            |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u16>().ok())?;
        let size =
            text.split_once(['x', 'X']).and_then(|(cols, rows)| Some(Self(number(cols)?, number(rows)?)));
        match size {
            Some(size) if size.0 <= LARGEST.0 && size.1 <= LARGEST.1 => Ok(size),
            Some(_) => Err(format!("the size {text} is larger than {}x{}", LARGEST.0, LARGEST.1)),
            None => {
                let text = console::text::Name::from(text);
                Err(format!("not a size: {text}; give COLSxROWS, for example 80x24"))
            }
        }
    }
}

// === impl Which ===

impl From<Which> for Screen {
    fn from(which: Which) -> Self {
        match which {
            Which::Main => Self::Main,
            Which::Details => Self::Details,
            Which::Network => Self::Network,
            Which::Log => Self::Log,
        }
    }
}

// === private ===

/// How the file is called in an error.
struct Named<'a>(&'a Path);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if is_stdin(self.0) { f.write_str("standard input") } else { self.0.display().fmt(f) }
    }
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == OsStr::new("-")
}

/// One byte more than a snapshot may have, so that a longer one is told from a whole one.
fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let source: Box<dyn Read> =
        if is_stdin(path) { Box::new(std::io::stdin().lock()) } else { Box::new(File::open(path)?) };
    let mut raw = Vec::new();
    source.take(MAX_BYTES as u64 + 1).read_to_end(&mut raw)?;
    Ok(raw)
}

fn fail(code: u8, why: &str) -> ExitCode {
    eprintln!("stratum-join console: {why}");
    ExitCode::from(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_two_numbers_with_an_x_between() {
        for (text, size) in [("80x24", Size(80, 24)), ("0x0", Size(0, 0)), ("128X48", Size(128, 48))] {
            assert_eq!(text.parse(), Ok(size));
        }
        for bad in [
            "",
            "80",
            "x",
            "80x",
            "x24",
            "80x24x1",
            "-1x5",
            "+8x5",
            " 80x24",
            "80*24",
            "70000x10",
            "80x2\u{1b}[2J",
        ] {
            let why = bad.parse::<Size>().unwrap_err();
            assert!(why.starts_with("not a size: ") && !why.contains('\u{1b}'), "{bad}: {why}");
        }
        assert_eq!("501x10".parse::<Size>().unwrap_err(), "the size 501x10 is larger than 500x200");
    }
}
