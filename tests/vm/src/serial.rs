//! The machine's first serial line: what it says goes to `serial.log` and to whoever waits for a text; typing goes the other way.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::wait;

/// The line, from the harness's end.
pub struct Serial {
    line: UnixStream,
    heard: Arc<Mutex<Vec<u8>>>,
    log: PathBuf,
}

/// A place in what was heard: waits look only at what comes after it. The default is the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark(usize);

// === impl Serial ===

impl Serial {
    /// Listens on QEMU's end of the line from now on, and appends all of it to `log`.
    pub fn connect(socket: &Path, log: &Path) -> Result<Self> {
        let line =
            UnixStream::connect(socket).with_context(|| format!("serial line {}", socket.display()))?;
        let mut reader = line.try_clone().context("serial line")?;
        let mut file = OpenOptions::new().create(true).append(true).open(log).context("serial.log")?;
        let heard = Arc::new(Mutex::new(Vec::new()));
        let shared = heard.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // Ends with QEMU: the line is closed then.
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                // A full disk loses the file, not the story.
                let _ = file.write_all(&buffer[..count]);
                shared.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&buffer[..count]);
            }
        });
        Ok(Self { line, heard, log: log.to_owned() })
    }

    /// Here and now.
    pub fn mark(&self) -> Mark {
        Mark(self.bytes(Mark(0)).len())
    }

    /// What was heard since, without the sequences that only move a cursor or change a colour.
    pub fn text_since(&self, mark: Mark) -> String {
        plain(&String::from_utf8_lossy(&self.bytes(mark)))
    }

    /// Waits until `text` was heard after `mark`; gives all that was heard since.
    pub fn wait_for(&self, mark: Mark, text: &str, limit: Duration) -> Result<String> {
        wait::until(&format!("{text:?} on the serial line ({})", self.log.display()), limit, || {
            let said = self.text_since(mark);
            Ok(said.contains(text).then_some(said))
        })
    }

    /// Types a line and Enter.
    pub fn type_line(&self, text: &str) -> Result<()> {
        let mut line = &self.line;
        line.write_all(format!("{text}\r").as_bytes()).context("type on the serial line")
    }

    fn bytes(&self, mark: Mark) -> Vec<u8> {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.get(mark.0..).unwrap_or_default().to_vec()
    }
}

/// Without escape sequences and carriage returns.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => match chars.next() {
                // CSI: parameters up to a final letter.
                Some('[') => while chars.next().is_some_and(|c| !('\u{40}'..='\u{7e}').contains(&c)) {},
                // OSC: a text up to BEL or ESC \.
                Some(']') => while chars.next().is_some_and(|c| c != '\u{7}' && c != '\\') {},
                _ => {}
            },
            '\r' => {}
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_and_cursor_moves_are_no_text() {
        assert_eq!(plain("\u{1b}[1;32mlogin\u{1b}[0m: \r\n\u{1b}]0;title\u{7}x"), "login: \nx");
        assert_eq!(plain("cut \u{1b}["), "cut ");
    }
}
