//! The three requests a console may send to the agent, one per connection.
//!
//! One JSON line each way, 2 s for the whole exchange, in a thread of its own: an agent that does not answer never holds up a
//! frame.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::time::Duration;

use serde::Deserialize;

use super::watch::Event;
use crate::text::Safe;

/// Time for sending, and again for the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest answer, bytes.
const MAX_ANSWER: u64 = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Retry,
    Check,
    Identify,
}

#[derive(Deserialize)]
struct Answer {
    ok: bool,
    #[serde(default)]
    error: Option<Safe<60>>,
}

/// Sends one request and tells the answer to the loop.
pub(super) fn send(path: PathBuf, op: Op, tell: Sender<Event>) {
    let work = move || {
        let answer = exchange(&path, op).unwrap_or_else(|_| Err("the agent does not answer".into()));
        let _ = tell.send(Event::Answered(answer));
    };
    // Without a thread there is no answer; the notice ends by itself.
    let _ = std::thread::Builder::new().name("control".into()).spawn(work);
}

fn exchange(path: &std::path::Path, op: Op) -> std::io::Result<Result<(), Safe<60>>> {
    let word = match op {
        Op::Retry => "retry",
        Op::Check => "check",
        Op::Identify => "identify",
    };
    let mut stream = UnixStream::connect(path)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(format!("{{\"v\":1,\"op\":\"{word}\"}}\n").as_bytes())?;
    let mut line = Vec::new();
    let mut byte = [0_u8; 256];
    let mut limited = (&mut stream).take(MAX_ANSWER);
    while !line.contains(&b'\n') {
        match limited.read(&mut byte)? {
            0 => break,
            n => line.extend_from_slice(&byte[..n]),
        }
    }
    let answer: Answer = serde_json::from_slice(line.trim_ascii())?;
    Ok(if answer.ok { Ok(()) } else { Err(answer.error.unwrap_or("the agent refused".into())) })
}
