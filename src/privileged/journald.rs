//! firstboot's lines out of journald, by `journalctl` (journalctl(1), `--output=json`).
//!
//! Runs that program and reads what it prints. Gives nothing that is not redacted.

use std::process::Stdio;
use std::time::Duration;

use console::text::Safe;
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::mpsc::Sender;
use tokio::time::timeout;

use crate::handoff::Redactor;
use crate::join::event::Event;

/// Most lines in one event.
const MAX_LINES: usize = 200;
/// Longest entry read; journald itself cuts a line at 48 KiB (journald.conf(5), `LineMax=`), and JSON may write a byte as four.
const MAX_ENTRY: u64 = 1024 * 1024;
/// How long a batch waits for more lines.
const GATHER: Duration = Duration::from_millis(100);
/// Longest wait for journald, and then for each entry of the end of the log.
const LAST: Duration = Duration::from_secs(20);
/// Said once where the log can no longer be redacted.
pub(super) const UNREDACTABLE: &str =
    "[the rest of this log stays on the machine: what must be removed from it is no longer known]";

/// The lines of one run of a unit.
pub(super) struct UnitLog {
    invocation: String,
    cursor: Option<String>,
    redactor: Option<Redactor>,
    told: bool,
    live: Option<(Child, BufReader<ChildStdout>)>,
    /// A line that is being read, and lines that were and are not told: who is cut off goes on here.
    line: Vec<u8>,
    lines: Vec<Safe<1024>>,
}

/// What we read of an entry. A message that is no text comes as an array of bytes.
#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "__CURSOR")]
    cursor: String,
    #[serde(rename = "MESSAGE")]
    message: Option<Message>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Message {
    Text(String),
    Bytes(Vec<u8>),
    Other(serde::de::IgnoredAny),
}

// === impl UnitLog ===

impl UnitLog {
    /// The log of `invocation` (hex) behind `cursor`. One that is no cursor of journald's reads from the beginning.
    pub(super) fn new(invocation: &str, cursor: Option<String>, redactor: Option<Redactor>) -> Self {
        Self {
            invocation: invocation.to_owned(),
            cursor: cursor.filter(|cursor| is_cursor(cursor)),
            redactor,
            told: false,
            live: None,
            line: Vec::new(),
            lines: Vec::new(),
        }
    }

    /// The next lines, as they are written. Never ends by itself; when the log cannot be read it waits for ever, because firstboot goes on
    /// without its log. Cancel safe.
    pub(super) async fn next(&mut self) -> Event {
        while self.lines.is_empty() {
            match self.read().await {
                Some(entry) => self.take(entry),
                None => std::future::pending().await,
            }
        }
        while self.lines.len() < MAX_LINES {
            match timeout(GATHER, self.read()).await {
                Ok(Some(entry)) => self.take(entry),
                Ok(None) | Err(_) => break,
            }
        }
        self.event()
    }

    /// What is left when nobody writes any more. Told as it is read: after an agent that was away it may be the whole log of an install,
    /// which is not for our memory.
    pub(super) async fn rest(&mut self, events: &Sender<Event>) {
        self.live = None;
        self.line.clear();
        // Whoever asks is told of a unit's end before journald has taken its last lines.
        let mut sync = Command::new("journalctl");
        sync.arg("--sync").stdin(Stdio::null()).stdout(Stdio::null());
        let _ = timeout(LAST, quiet(&mut sync).status()).await;
        let mut child = self.spawn(false).ok();
        if let Some(out) = child.as_mut().and_then(|child| child.stdout.take()) {
            self.pass_on(&mut BufReader::new(out), events).await;
        }
        if !self.lines.is_empty() {
            let _ = events.send(self.event()).await;
        }
    }

    async fn pass_on(&mut self, out: &mut BufReader<impl AsyncRead + Unpin>, events: &Sender<Event>) {
        let mut line = Vec::new();
        while let Ok(Some(entry)) = timeout(LAST, read_entry(out, &mut line)).await {
            self.take(entry);
            if self.lines.len() >= MAX_LINES {
                let _ = events.send(self.event()).await;
            }
        }
    }

    async fn read(&mut self) -> Option<Entry> {
        if self.live.is_none() {
            let mut child = self.spawn(true).ok()?;
            let out = child.stdout.take()?;
            self.live = Some((child, BufReader::new(out)));
        }
        let (_, out) = self.live.as_mut()?;
        read_entry(out, &mut self.line).await
    }

    fn spawn(&self, follow: bool) -> std::io::Result<Child> {
        let mut command = Command::new("journalctl");
        command.args(["--quiet", "--no-pager", "--all", "--output=json", "--output-fields=MESSAGE"]);
        if follow {
            command.args(["--follow", "--no-tail"]);
        }
        if let Some(cursor) = &self.cursor {
            command.arg(format!("--after-cursor={cursor}"));
        }
        command.arg(format!("_SYSTEMD_INVOCATION_ID={}", self.invocation));
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        quiet(&mut command).kill_on_drop(true).spawn()
    }

    fn take(&mut self, entry: Entry) {
        self.cursor = Some(entry.cursor);
        let text = match entry.message {
            Some(Message::Text(text)) => text.into_bytes(),
            Some(Message::Bytes(bytes)) => bytes,
            Some(Message::Other(_)) | None => return,
        };
        match &mut self.redactor {
            Some(redactor) => self.lines.extend(redactor.clean(text)),
            None if self.told => {}
            None => {
                self.told = true;
                self.lines.push(Safe::clean(UNREDACTABLE));
            }
        }
    }

    fn event(&mut self) -> Event {
        let lines = std::mem::take(&mut self.lines);
        Event::FirstbootLog { lines, cursor: self.cursor.clone().unwrap_or_default() }
    }
}

// === private ===

/// The next entry; `None` at the end. What is no entry is skipped. `line` keeps what was read when this is cut off.
async fn read_entry(out: &mut BufReader<impl AsyncRead + Unpin>, line: &mut Vec<u8>) -> Option<Entry> {
    loop {
        let room = MAX_ENTRY.saturating_sub(line.len() as u64);
        let read = out.take(room).read_until(b'\n', line).await;
        if !matches!(read, Ok(n) if n > 0) {
            return None;
        }
        let entry = serde_json::from_slice(line).ok();
        line.clear();
        if entry.is_some() {
            return entry;
        }
    }
}

fn quiet(command: &mut Command) -> &mut Command {
    command.stderr(Stdio::null()).env_remove("NOTIFY_SOCKET")
}

/// `s=...;i=...;b=...`: letters, digits, `=` and `;` only, so that it can be nothing else to `journalctl`.
fn is_cursor(text: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'=' || byte == b';';
    text.starts_with("s=") && text.len() <= 512 && text.bytes().all(good)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handoff::fixture;

    fn entry(text: &str) -> Entry {
        serde_json::from_str(text).expect("an entry")
    }

    #[test]
    fn a_message_is_redacted_whether_it_comes_as_text_or_as_bytes() {
        let redactor = Redactor::from_delivery(&fixture::delivery());
        let mut log = UnitLog::new("00", None, Some(redactor));
        log.take(entry(r#"{"__CURSOR":"s=1;i=2","MESSAGE":"pw canary-postgres-1 end"}"#));
        let bytes: Vec<String> = b"canary-postgres-1\xff".iter().map(ToString::to_string).collect();
        let raw = format!(r#"{{"__CURSOR":"s=1;i=3","MESSAGE":[{}]}}"#, bytes.join(","));
        log.take(entry(&raw));
        log.take(entry(r#"{"__CURSOR":"s=1;i=4","MESSAGE":null}"#));
        assert_eq!(log.lines[0].as_str(), "pw [removed] end");
        assert!(!log.lines[1].as_str().contains("canary"), "{}", log.lines[1]);
        assert_eq!((log.lines.len(), log.cursor.as_deref()), (2, Some("s=1;i=4")));
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_long_log_is_told_while_it_is_read() {
        use tokio::io::AsyncWriteExt;

        let (mut journalctl, out) = tokio::io::duplex(64 * 1024);
        let (events, mut told) = tokio::sync::mpsc::channel(1);
        let redactor = Redactor::from_delivery(&fixture::delivery());
        let mut log = UnitLog::new("00", None, Some(redactor));
        let read = async move {
            log.pass_on(&mut BufReader::new(out), &events).await;
            log.lines.len()
        };
        let write = async {
            let entries = |n: usize| "{\"__CURSOR\":\"s=1\",\"MESSAGE\":\"line\"}\n".repeat(n);
            journalctl.write_all(entries(MAX_LINES + 1).as_bytes()).await.unwrap();
            let Some(Event::FirstbootLog { lines, .. }) = told.recv().await else { panic!("no lines") };
            assert_eq!(lines.len(), MAX_LINES);
            journalctl.write_all(entries(1).as_bytes()).await.unwrap();
            drop(journalctl);
        };
        assert_eq!(tokio::join!(read, write).0, 2);
    }

    #[test]
    fn without_the_delivery_no_line_is_told_but_one_that_says_so() {
        let mut log = UnitLog::new("00", None, None);
        for _ in 0..3 {
            log.take(entry(r#"{"__CURSOR":"s=1","MESSAGE":"canary-postgres-1"}"#));
        }
        assert_eq!(log.lines.iter().map(Safe::as_str).collect::<Vec<_>>(), [UNREDACTABLE]);
    }

    #[test]
    fn only_journalds_own_cursor_reaches_its_command_line() {
        assert!(is_cursor("s=0a1b;i=4f;b=77;m=1;t=2;x=3"));
        for bad in ["", "attempt-1-aa:7", "s=1 --file=/etc/shadow", "s=1\n", "--since=now", "x=1"] {
            assert!(!is_cursor(bad), "{bad}");
        }
    }
}
