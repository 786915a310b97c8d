//! One datagram per step change to the join agent.
//!
//! Touches the socket that `STRATUM_PROGRESS_SOCKET` names. An agent that is away (killed, restarting, upgrading itself) is waited for: it
//! is no reason to stop an install.

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::say;
use crate::steps::{STEPS, Step};

/// How long one datagram is tried.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);

/// Status of a step.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    /// It runs.
    Running,
    /// It is done.
    Done,
    /// It failed.
    Failed,
}

/// One datagram.
#[derive(Serialize)]
pub(crate) struct Report<'a> {
    step: &'a str,
    title: &'a str,
    index: u32,
    total: usize,
    status: Status,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

/// Where the datagrams go.
pub(crate) struct Sender {
    path: Option<PathBuf>,
}

// === impl Report ===

impl<'a> Report<'a> {
    /// What is told of a step.
    pub(crate) fn of(step: &'a Step, status: Status, error: Option<&'a str>) -> Self {
        Self { step: step.name, title: step.title, index: step.index, total: STEPS.len(), status, error }
    }
}

// === impl Sender ===

impl Sender {
    /// The agent's socket; without the variable nothing is sent.
    pub(crate) fn from_environment() -> Self {
        #[expect(clippy::disallowed_methods, reason = "the variable is the contract with the agent")]
        let path = std::env::var_os("STRATUM_PROGRESS_SOCKET").map(PathBuf::from);
        if path.is_none() {
            say("stand-in", "STRATUM_PROGRESS_SOCKET is not set: progress is only logged");
        }
        Self { path }
    }

    /// Sends, again and again while the socket is away, for at most 60 s.
    pub(crate) fn send(&self, report: &Report<'_>) {
        let Some(path) = &self.path else { return };
        let text = serde_json::to_vec(report).unwrap_or_default();
        let since = Instant::now();
        loop {
            // A new socket each time: the agent may be another one now.
            let sent = UnixDatagram::unbound().and_then(|socket| {
                socket.set_write_timeout(Some(Duration::from_secs(1)))?;
                socket.send_to(&text, path)
            });
            match sent {
                Ok(_) => return,
                Err(error) if since.elapsed() > PATIENCE => {
                    return say(
                        report.step,
                        &format!("the agent could not be told about this step: {error}"),
                    );
                }
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_waits_for_a_socket_that_is_away() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("progress.sock");
        let sender = Sender { path: Some(path.clone()) };
        let sending = std::thread::spawn(move || sender.send(&Report::of(&STEPS[3], Status::Running, None)));
        let socket = UnixDatagram::bind(&path).unwrap();
        let mut bytes = [0; 1024];
        let len = socket.recv(&mut bytes).unwrap();
        sending.join().unwrap();
        let want =
            r#"{"step":"join/patroni","title":"Joining Patroni","index":4,"total":9,"status":"running"}"#;
        assert_eq!(std::str::from_utf8(&bytes[..len]).unwrap(), want);
    }
}
