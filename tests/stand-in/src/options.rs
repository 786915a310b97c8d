//! What the stand-in is told to do: `STRATUM_STAND_IN`, or a file `stand-in` beside node.yaml, which wins because it can be changed
//! between two attempts.
//!
//! Touches that file and that variable. Unknown words are errors, so that a misspelt test does not pass.
//!
//! `key=value` pairs, separated by blanks, commas or lines; `error=` takes the rest of its line:
//!
//! | Option | Does |
//! |---|---|
//! | `delay-ms=200` | how long a step takes; 150 when not given |
//! | `fail=<step>` | tells the founder and the agent that this step failed, and exits 1 |
//! | `error=<text>` | with that error |
//! | `hang=<step>` | never leaves this step |
//! | `silent-exit=<step>` | exits 1 in this step without a word to anybody |
//! | `log-lines=<n>` | that many more log lines in each step |
//! | `print-secrets` | prints every text of the bundle: what a redaction must survive |

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};

use crate::steps::STEPS;

/// How the steps are walked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// Length of a step.
    pub(crate) delay: Duration,
    /// Step to fail in.
    pub(crate) fail: Option<String>,
    /// Its error.
    pub(crate) error: Option<String>,
    /// Step to hang in.
    pub(crate) hang: Option<String>,
    /// Step to leave without a word.
    pub(crate) silent_exit: Option<String>,
    /// More lines.
    pub(crate) log_lines: u32,
    /// Print the bundle.
    pub(crate) print_secrets: bool,
}

// === impl Options ===

impl Default for Options {
    fn default() -> Self {
        Self {
            delay: Duration::from_millis(150),
            fail: None,
            error: None,
            hang: None,
            silent_exit: None,
            log_lines: 0,
            print_secrets: false,
        }
    }
}

impl Options {
    /// The file beside `config`, else the variable, else the defaults.
    pub(crate) fn read(config: &Path) -> anyhow::Result<Self> {
        let file = config.with_file_name("stand-in");
        #[expect(
            clippy::disallowed_methods,
            reason = "the stand-in is steered from outside; it is no product"
        )]
        let variable = std::env::var("STRATUM_STAND_IN").unwrap_or_default();
        match std::fs::read_to_string(&file) {
            Ok(text) => Self::parse(&text).with_context(|| format!("in {}", file.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Self::parse(&variable).context("in STRATUM_STAND_IN")
            }
            Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
        }
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let mut options = Self::default();
        for line in text.lines() {
            let (line, error) = match line.split_once("error=") {
                Some((line, error)) => (line, Some(error.trim().to_owned())),
                None => (line, None),
            };
            options.error = error.or(options.error);
            for word in line.split([' ', ',', '\t']).filter(|word| !word.is_empty()) {
                options.set(word)?;
            }
        }
        Ok(options)
    }

    fn set(&mut self, word: &str) -> anyhow::Result<()> {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let step = || match STEPS.iter().any(|step| step.name == value) {
            true => Ok(Some(value.to_owned())),
            false => {
                bail!("there is no step `{value}`; known are {}", STEPS.map(|step| step.name).join(", "))
            }
        };
        match key {
            "delay-ms" => {
                self.delay = Duration::from_millis(value.parse().context("delay-ms must be a number")?)
            }
            "fail" => self.fail = step()?,
            "hang" => self.hang = step()?,
            "silent-exit" => self.silent_exit = step()?,
            "log-lines" => self.log_lines = value.parse().context("log-lines must be a number")?,
            "print-secrets" if value.is_empty() => self.print_secrets = true,
            _ => bail!("there is no option `{key}`"),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_from_one_line_or_many() {
        let want = Options {
            delay: Duration::ZERO,
            fail: Some("join/raft-openbao".to_owned()),
            error: Some("no quorum, 1 of 3".to_owned()),
            ..Options::default()
        };
        assert_eq!(
            Options::parse("delay-ms=0,fail=join/raft-openbao error=no quorum, 1 of 3").unwrap(),
            want
        );
        assert_eq!(
            Options::parse("delay-ms=0\nfail=join/raft-openbao\nerror=no quorum, 1 of 3\n").unwrap(),
            want
        );
        assert_eq!(Options::parse("").unwrap(), Options::default());
    }

    #[test]
    fn a_misspelt_option_is_an_error() {
        for text in ["fial=storage", "fail=stroage", "delay-ms=x", "print-secrets=1", "log-lines"] {
            assert!(Options::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_file_beside_the_config_wins() {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("node.yaml");
        #[expect(clippy::disallowed_methods, reason = "a test's own file")]
        std::fs::write(dir.path().join("stand-in"), "log-lines=3\n").unwrap();
        assert_eq!(Options::read(&config).unwrap().log_lines, 3);
    }
}
