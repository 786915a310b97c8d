//! The agent's control socket: what the keys of the console ask for (docs/console.md, "The control socket").
//!
//! One connection is one request: a JSON line of at most 4 KiB, answered with a JSON line, both within 2 s. It carries no secret and no text for
//! a person. The kernel decides at `connect` who may ask: systemd makes the socket for root and the console alone; below a temporary root the
//! agent makes it, for its own user alone.
//!
//! Touches the socket. Never holds up the driver: each connection is a task, and one that does not read its answer is closed.

use std::collections::VecDeque;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener as StdListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::{Instant, timeout};

/// The version of the form.
const VERSION: u32 = 1;
/// Longest request, in bytes.
const MAX_REQUEST: u64 = 4 * 1024;
/// For reading the request, for the answer, and for writing it.
const PATIENCE: Duration = Duration::from_secs(2);
/// Connections at once; more wait in the kernel.
const MOST_AT_ONCE: usize = 8;
/// So many requests within a second are taken.
const PER_SECOND: usize = 2;
/// Pause after an accept that failed: without descriptors it fails at once, again and again.
const AFTER_ERROR: Duration = Duration::from_secs(1);

/// What can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// End the present wait.
    Retry,
    /// Look at the network now.
    Check,
    /// Make the machine blink.
    Identify,
}

/// A request, and the way back. Dropped without an answer, the caller hears `BUSY`.
#[derive(Debug)]
pub struct Asked {
    /// What for.
    pub op: Op,
    back: oneshot::Sender<Result<(), String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    v: u32,
    op: Op,
}

#[derive(Serialize)]
struct Answer {
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// When the last requests came.
#[derive(Debug, Default)]
struct Pace(VecDeque<Instant>);

// === impl Asked ===

impl Asked {
    /// Done, or why not, in a few plain words.
    pub fn answer(self, answer: Result<(), String>) {
        // Who asked may have gone.
        let _ = self.back.send(answer);
    }
}

// === impl Pace ===

impl Pace {
    fn takes_one_more(&mut self, now: Instant) -> bool {
        while self.0.front().is_some_and(|at| now.duration_since(*at) >= Duration::from_secs(1)) {
            self.0.pop_front();
        }
        let takes = self.0.len() < PER_SECOND;
        if takes {
            self.0.push_back(now);
        }
        takes
    }
}

/// The listening socket that systemd hands over (sd_listen_fds(3)); `None` when it hands over none.
pub fn from_systemd() -> io::Result<Option<StdListener>> {
    listenfd::ListenFd::from_env().take_unix_listener(0)
}

/// A listening socket of our own, 0600. One that an agent before us has left there is replaced: the caller holds the agent's lock.
pub fn bind(path: &Path) -> io::Result<StdListener> {
    let temp = path.with_extension(format!("sock.{}", std::process::id()));
    let _ = std::fs::remove_file(&temp);
    let listener = StdListener::bind(&temp)?;
    // Under its name only once nobody else can connect.
    let ready = std::fs::set_permissions(&temp, Permissions::from_mode(0o600));
    match ready.and_then(|()| std::fs::rename(&temp, path)) {
        Ok(()) => Ok(listener),
        Err(error) => {
            let _ = std::fs::remove_file(&temp);
            Err(error)
        }
    }
}

/// Answers until the driver's end of `to_driver` is gone.
pub async fn serve<M: From<Asked> + Send + 'static>(listener: StdListener, to_driver: mpsc::Sender<M>) {
    let listener = match listener.set_nonblocking(true).and_then(|()| UnixListener::from_std(listener)) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::warn!("the keys of the console do nothing: the control socket cannot be used: {error}");
            return;
        }
    };
    let room = Arc::new(Semaphore::new(MOST_AT_ONCE));
    let mut pace = Pace::default();
    let mut tasks = tokio::task::JoinSet::new();
    while let Ok(place) = room.clone().acquire_owned().await {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(_) => {
                    tokio::time::sleep(AFTER_ERROR).await;
                    continue;
                }
            },
            () = to_driver.closed() => return,
        };
        while tasks.try_join_next().is_some() {}
        let (to_driver, takes) = (to_driver.clone(), pace.takes_one_more(Instant::now()));
        tasks.spawn(async move {
            // Nobody is told of a caller that went away: it is its own loss.
            let _ = timeout(3 * PATIENCE, exchange(stream, takes, to_driver)).await;
            drop(place);
        });
    }
}

// === private ===

async fn exchange<M: From<Asked>>(
    mut stream: UnixStream,
    takes: bool,
    to_driver: mpsc::Sender<M>,
) -> io::Result<()> {
    let mut line = Vec::new();
    let (read, mut write) = stream.split();
    let mut read = BufReader::new(read.take(MAX_REQUEST));
    let read = timeout(PATIENCE, read.read_until(b'\n', &mut line)).await;
    let whole = matches!(read, Ok(Ok(_))) && line.ends_with(b"\n");
    let answer = match serde_json::from_slice::<Request>(&line) {
        Ok(Request { v: VERSION, op }) if whole && takes => ask(op, &to_driver).await,
        Ok(Request { v: VERSION, .. }) if whole => Err("BUSY".to_owned()),
        _ => Err("bad request".to_owned()),
    };
    let answer = Answer { ok: answer.is_ok(), error: answer.err() };
    let mut line = serde_json::to_vec(&answer)?;
    line.push(b'\n');
    timeout(PATIENCE, write.write_all(&line)).await?
}

async fn ask<M: From<Asked>>(op: Op, to_driver: &mpsc::Sender<M>) -> Result<(), String> {
    let busy = || "BUSY".to_owned();
    let (back, answer) = oneshot::channel();
    let asked = async {
        to_driver.send(M::from(Asked { op, back })).await.ok()?;
        answer.await.ok()
    };
    timeout(PATIENCE, asked).await.ok().flatten().ok_or_else(busy)?
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods)]

    use super::*;

    /// A control socket, and the driver's end, which answers `Ok` to everything but `identify`.
    async fn served() -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        let listener = bind(&path).unwrap();
        let (tx, mut rx) = mpsc::channel::<Asked>(4);
        tokio::spawn(serve(listener, tx));
        tokio::spawn(async move {
            while let Some(asked) = rx.recv().await {
                let answer = if asked.op == Op::Identify { Err("no light".to_owned()) } else { Ok(()) };
                asked.answer(answer);
            }
        });
        (dir, path)
    }

    async fn say(path: &Path, what: &[u8]) -> String {
        let mut stream = UnixStream::connect(path).await.unwrap();
        // One that is refused before it has said all may find the door closed.
        let _ = stream.write_all(what).await;
        let _ = stream.shutdown().await;
        let mut answer = String::new();
        // A line, as the console reads it: behind the answer to what was not read whole comes a reset.
        BufReader::new(stream).read_line(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn a_request_is_answered_with_what_the_driver_says() {
        let (_dir, path) = served().await;
        assert_eq!(say(&path, b"{\"v\":1,\"op\":\"retry\"}\n").await, "{\"ok\":true}\n");
        let no = say(&path, b"{\"v\":1,\"op\":\"identify\"}\n").await;
        assert_eq!(no, "{\"ok\":false,\"error\":\"no light\"}\n");
    }

    #[tokio::test]
    async fn what_is_no_request_is_a_bad_one() {
        let bad = "{\"ok\":false,\"error\":\"bad request\"}\n";
        let long = [b"{\"v\":1,\"op\":\"retry\"".as_slice(), &[b' '; 4096], b"}\n"].concat();
        let requests: [&[u8]; 7] = [
            b"",
            b"\n",
            b"{\"v\":1,\"op\":\"retry\"}",
            b"{\"v\":2,\"op\":\"retry\"}\n",
            b"{\"v\":1,\"op\":\"join\",\"code\":\"x\"}\n",
            b"\xff\xfe{}\n",
            &long,
        ];
        for request in requests {
            // A socket each: the pace is not what is asked here.
            let (_dir, path) = served().await;
            assert_eq!(say(&path, request).await, bad, "{:?}", String::from_utf8_lossy(request));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_third_request_within_a_second_is_refused_and_the_next_second_takes_two_more() {
        let mut pace = Pace::default();
        let takes = |pace: &mut Pace| pace.takes_one_more(Instant::now());
        assert!(takes(&mut pace) && takes(&mut pace) && !takes(&mut pace));
        tokio::time::advance(Duration::from_millis(999)).await;
        assert!(!takes(&mut pace));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(takes(&mut pace) && takes(&mut pace) && !takes(&mut pace));
    }

    #[tokio::test]
    async fn nine_callers_who_say_nothing_do_not_keep_the_tenth_out_for_ever() {
        let (_dir, path) = served().await;
        let mut idle = Vec::new();
        for _ in 0..9 {
            idle.push(UnixStream::connect(&path).await.unwrap());
        }
        // They are sent away after 2 s; the pace has forgotten them by then.
        assert!(say(&path, b"{\"v\":1,\"op\":\"check\"}\n").await.ends_with("}\n"));
    }

    #[tokio::test]
    async fn a_driver_that_does_not_answer_is_busy() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        let (tx, mut rx) = mpsc::channel::<Asked>(4);
        tokio::spawn(serve(bind(&path).unwrap(), tx));
        tokio::spawn(async move { drop(rx.recv().await) });
        assert_eq!(say(&path, b"{\"v\":1,\"op\":\"retry\"}\n").await, "{\"ok\":false,\"error\":\"BUSY\"}\n");
    }

    #[tokio::test]
    async fn a_socket_of_our_own_is_for_our_own_user_alone_and_replaces_one_that_was_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        drop(bind(&path).unwrap());
        let _second = bind(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
