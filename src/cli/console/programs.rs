//! The stock programs that do what no safe call offers: `setlogcons`, `busctl`, `systemctl`.
//!
//! Starts them with fixed arguments and waits for them. Never starts one below a temporary root: there it only says what it would do.

use std::process::{Command, Stdio};

use console::text::Safe;

use crate::durable_file;
use crate::paths::Paths;

/// Runs a program: its name and its arguments; what it printed, or why it did not work.
type Run = Box<dyn FnMut(&str, &[&str]) -> Result<String, String>>;

/// The programs of this machine, or a stand-in for them.
pub(super) struct Programs(Run);

// === impl Programs ===

impl Programs {
    /// This machine's on the real root, none below another.
    pub(super) fn of(paths: &Paths) -> Self {
        if paths.is_system() { Self(Box::new(start)) } else { Self(Box::new(would)) }
    }

    /// Others, for tests.
    #[cfg(test)]
    pub(super) fn with(run: impl FnMut(&str, &[&str]) -> Result<String, String> + 'static) -> Self {
        Self(Box::new(run))
    }

    /// Standard output without the blanks around it; an exit other than 0 is an error, with the last line of standard error.
    pub(super) fn run(&mut self, program: &str, arguments: &[&str]) -> Result<String, String> {
        (self.0)(program, arguments)
    }
}

// === private ===

fn start(program: &str, arguments: &[&str]) -> Result<String, String> {
    // The unit's PATH is systemd's; these are looked for where a distribution puts them, and nowhere else.
    let found = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"]
        .iter()
        .map(|dir| std::path::Path::new(dir).join(program))
        .find(|path| path.exists())
        .ok_or_else(|| format!("{program} is not installed"))?;
    let done = Command::new(found)
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{program}: {}", durable_file::plain_io(&error)))?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    let last: Safe<200> = Safe::clean(said.lines().last().unwrap_or_default());
    let last = if last.as_str().is_empty() { done.status.to_string() } else { last.to_string() };
    Err(format!("{program}: {last}"))
}

fn would(program: &str, arguments: &[&str]) -> Result<String, String> {
    Err(format!("not on a machine of its own, so this is not run: {program} {}", arguments.join(" ")))
}
