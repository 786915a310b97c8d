//! `stratum-join probe`: what this machine is, as the cluster will be told; and a copy of what that is read from.
//!
//! May touch: what the probe touches; with `--capture` the one new directory. Must never: leave half of it behind.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use hwprobe::{Capture, Node, Options, Roots, capture, probe, table};

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
    /// Look at once: do not wait, at most 30 s, until udev is done with devices that just came
    #[arg(long)]
    once: bool,
    /// Do not read any disk; every disk that looks blank is then `unreadable`
    #[arg(long)]
    no_read: bool,
    /// Write what is read into this new directory, as `--root` takes it; no disk is read
    #[arg(long, value_name = "DIR", conflicts_with_all = ["output", "no_read"])]
    capture: Option<PathBuf>,
    /// Replace serial numbers, WWNs, MAC addresses and host names in it by others of the same shape
    #[arg(long, requires = "capture")]
    redact: bool,
}

/// Prints it, or writes the copy. 0 done, with or without warnings; 1 could not print or write; 2 the root cannot be opened.
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
    if let Some(dir) = &args.capture {
        return write_capture(&capture(&roots, args.redact), dir);
    }
    let settle = Some(Options::SETTLE).filter(|_| !args.once);
    let inventory = probe(&roots, &Options { read_ends: !args.no_read, settle, ..Options::default() });
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

/// Writes the copy, says what it is good for, and reads it once as anybody will.
fn write_capture(captured: &Capture, dir: &Path) -> ExitCode {
    if let Err(error) = write_tree(captured, dir) {
        eprintln!("probe: cannot write the copy to {}: {error}", dir.display());
        return ExitCode::from(1);
    }
    println!(
        "{} entries written. See it with: stratum-join probe --root {}",
        captured.tree.len(),
        dir.display()
    );
    if captured.unreadable > 0 {
        println!("{} files could not be read and are empty in it; root can read more.", captured.unreadable);
    }
    match captured.digest {
        None => {
            println!("Serial numbers, WWNs, MAC addresses and host names are replaced; IP addresses are not.")
        }
        Some(digest) => {
            println!(
                "It has serial numbers, MAC and IP addresses; --redact replaces all but the IP addresses."
            );
            let again = Roots::under(dir).map(|roots| probe(&roots, &Options::default()).digest());
            if !again.is_ok_and(|again| again == digest) {
                println!(
                    "It does not give the same answer as the original: was something changed meanwhile?"
                );
            }
        }
    }
    ExitCode::SUCCESS
}

/// Writes beside `dir` and puts the whole in its place; on an error nothing stays.
fn write_tree(captured: &Capture, dir: &Path) -> io::Result<()> {
    match fs::read_dir(dir) {
        Ok(mut entries) => {
            if entries.next().is_some() {
                return Err(io::Error::new(io::ErrorKind::DirectoryNotEmpty, "the directory is not empty"));
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let name = dir
        .file_name()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no name for a directory"))?;
    let partial = dir.with_file_name(format!(".{}.{}.partial", name.display(), std::process::id()));
    DirBuilder::new().mode(0o700).create(&partial)?;
    let done = captured.tree.iter().try_for_each(|(path, node)| write_node(&partial.join(path), node));
    let done = done.and_then(|()| fs::rename(&partial, dir));
    if done.is_err() {
        // What cannot be removed either is named by the error that is told.
        let _ = fs::remove_dir_all(&partial);
    }
    done
}

fn write_node(path: &Path, node: &Node) -> io::Result<()> {
    let mut dirs = DirBuilder::new();
    let dirs = dirs.recursive(true).mode(0o755);
    dirs.create(path.parent().unwrap_or(path))?;
    match node {
        Node::Dir => dirs.create(path),
        Node::Link(target) => symlink(target, path),
        Node::File(bytes) => {
            OpenOptions::new().write(true).create_new(true).mode(0o644).open(path)?.write_all(bytes)
        }
    }
}

/// Columns of the terminal, or 80 where there is none.
fn width() -> usize {
    rustix::termios::tcgetwinsize(std::io::stdout()).map_or(80, |size| match size.ws_col {
        0 => 80,
        columns => usize::from(columns),
    })
}
