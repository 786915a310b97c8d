//! firstboot's progress: one JSON datagram per step change (docs/protocol.md section 3.12).
//!
//! Touches its socket file. Must never take a datagram of a stranger, and never let a bad one stop the others.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use console::text::Safe;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg, sockopt};
use serde::Deserialize;
use tokio::io::Interest;
use tokio::net::UnixDatagram as Socket;

use crate::join::event::StepReport;
use crate::protocol::wire::StepStatus;

/// Largest datagram in bytes.
pub const MAX_DATAGRAM: usize = 8 * 1024;

/// The bound socket. The file stays when this is dropped: the next agent replaces it.
#[derive(Debug)]
pub struct ProgressSocket {
    socket: Socket,
    senders: Senders,
    warned: bool,
}

/// Whose datagrams count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Senders {
    /// Root alone: on a node.
    Root,
    /// Root, and who we are: where the agent starts firstboot itself.
    RootAndSelf,
}

/// Why the socket is not there.
#[derive(Debug, thiserror::Error)]
#[error("cannot make the progress socket {}", path.display())]
pub struct SocketError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

// === impl ProgressSocket ===

impl ProgressSocket {
    /// Binds `path`, 0600, replacing what an earlier agent left. A firstboot that sends meanwhile finds the old socket or the new one.
    ///
    /// Must be called inside a tokio runtime.
    pub fn bind(path: &Path, senders: Senders) -> Result<Self, SocketError> {
        let made = || -> io::Result<Socket> {
            // Bound under another name, because its mode is right only after the bind. The name is short: sun_path has 108 bytes.
            let temp = path.with_file_name(format!(".p{}", std::process::id()));
            let _ = std::fs::remove_file(&temp);
            let socket = UnixDatagram::bind(&temp)?;
            let ready = || -> io::Result<()> {
                std::fs::set_permissions(&temp, std::fs::Permissions::from_mode(0o600))?;
                sockopt::set_socket_passcred(&socket, true)?;
                socket.set_nonblocking(true)?;
                std::fs::rename(&temp, path)
            };
            if let Err(error) = ready() {
                let _ = std::fs::remove_file(&temp);
                return Err(error);
            }
            Socket::from_std(socket)
        };
        let socket = made().map_err(|source| SocketError { path: path.to_owned(), source })?;
        Ok(Self { socket, senders, warned: false })
    }

    /// The next good report. Bad datagrams are dropped, the first with a warning. Cancel safe.
    pub async fn recv(&mut self) -> io::Result<StepReport> {
        loop {
            self.socket.readable().await?;
            let received = match self.socket.try_io(Interest::READABLE, || receive(&self.socket)) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error),
            };
            match received.and_then(|(bytes, uid)| accept(&bytes, uid, self.senders)) {
                Ok(report) => return Ok(report),
                Err(why) => self.warn(why),
            }
        }
    }

    fn warn(&mut self, why: &'static str) {
        if !self.warned {
            self.warned = true;
            tracing::warn!("a progress message was dropped: {why}; more are dropped silently");
        }
    }
}

// === private ===

type Datagram = (Vec<u8>, u32);

/// One datagram and its sender's uid as the kernel says, or why it does not count.
fn receive(socket: &Socket) -> io::Result<Result<Datagram, &'static str>> {
    let mut bytes = vec![0; MAX_DATAGRAM];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = recvmsg(socket, &mut [io::IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::empty())?;
    let uid = control.drain().find_map(|part| match part {
        RecvAncillaryMessage::ScmCredentials(sender) => Some(sender.uid.as_raw()),
        _ => None,
    });
    if message.flags.contains(ReturnFlags::TRUNC) {
        return Ok(Err("it is larger than 8 KiB"));
    }
    bytes.truncate(message.bytes);
    Ok(uid.map(|uid| (bytes, uid)).ok_or("its sender is not known"))
}

/// The rules of docs/protocol.md sections 3.8 and 3.12 for one datagram.
fn accept(bytes: &[u8], uid: u32, senders: Senders) -> Result<StepReport, &'static str> {
    let own = rustix::process::geteuid().as_raw();
    if uid != 0 && !(senders == Senders::RootAndSelf && uid == own) {
        return Err("its sender is neither root nor this agent");
    }
    let raw: Raw = serde_json::from_slice(bytes).map_err(|_| "it is not a step report")?;
    let step_ok = (1..=128).contains(&raw.step.len())
        && raw
            .step
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'/' | b'_' | b'-'));
    if !step_ok {
        return Err("its step is not 1 to 128 of a-z, 0-9, /, _ and -");
    }
    if raw.title.is_empty() {
        return Err("it has no title");
    }
    let counts = |n: Option<u32>| n.is_none_or(|n| (1..=999).contains(&n));
    let in_order = raw.index.zip(raw.total).is_none_or(|(index, total)| index <= total);
    if !(counts(raw.index) && counts(raw.total) && in_order) {
        return Err("its numbers are not 1 to 999 in order");
    }
    let error = match (raw.status, raw.error) {
        // Losing the name of a failed step would be worse than a thin error.
        (StepStatus::Failed, None) => Some(Safe::clean("firstboot gave no error text")),
        (_, error) => error,
    };
    Ok(StepReport {
        step: Safe::clean(&raw.step),
        title: raw.title,
        index: raw.index,
        total: raw.total,
        status: raw.status,
        error,
    })
}

/// As sent. Fields of a newer firstboot are ignored.
#[derive(Deserialize)]
struct Raw {
    step: String,
    title: Safe<200>,
    #[serde(default)]
    index: Option<u32>,
    #[serde(default)]
    total: Option<u32>,
    status: StepStatus,
    #[serde(default)]
    error: Option<Safe<2048>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "{\"step\":\"join/patroni\",\"title\":\"Joining Patroni\",\"index\":4,\"total\":9,\"status\":\"running\"}";

    fn own() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    #[tokio::test]
    async fn a_report_arrives_and_bad_ones_before_it_do_not_stop_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("progress.sock");
        let mut socket = ProgressSocket::bind(&path, Senders::RootAndSelf).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let sender = UnixDatagram::unbound().unwrap();
        // Good, if it were cut at 8 KiB.
        let long = format!("{}{}", GOOD.replace("patroni", "too-long"), " ".repeat(MAX_DATAGRAM));
        for bad in [&b""[..], b"{", b"\xff", long.as_bytes(), b"{\"step\":\"x\"}"] {
            sender.send_to(bad, &path).unwrap();
        }
        sender.send_to(GOOD.as_bytes(), &path).unwrap();
        let report = socket.recv().await.unwrap();
        assert_eq!((report.step.as_str(), report.index, report.total), ("join/patroni", Some(4), Some(9)));
        assert!(socket.warned);
    }

    #[tokio::test]
    async fn the_next_agent_takes_the_name_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("progress.sock");
        let first = ProgressSocket::bind(&path, Senders::RootAndSelf).unwrap();
        let mut second = ProgressSocket::bind(&path, Senders::RootAndSelf).unwrap();
        drop(first);
        UnixDatagram::unbound().unwrap().send_to(GOOD.as_bytes(), &path).unwrap();
        assert_eq!(second.recv().await.unwrap().title, "Joining Patroni");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn progress_from_another_uid_is_dropped() {
        let stranger = own() + 1000;
        assert!(accept(GOOD.as_bytes(), stranger, Senders::RootAndSelf).is_err());
        assert!(accept(GOOD.as_bytes(), stranger, Senders::Root).is_err());
        assert!(accept(GOOD.as_bytes(), 0, Senders::Root).is_ok());
        assert!(accept(GOOD.as_bytes(), own(), Senders::RootAndSelf).is_ok());
        assert_eq!(accept(GOOD.as_bytes(), own(), Senders::Root).is_ok(), own() == 0);
    }

    #[test]
    fn another_shape_is_dropped() {
        let taken = |text: String| accept(text.as_bytes(), 0, Senders::Root);
        for (from, to) in [
            ("join/patroni", ""),
            ("join/patroni", "Join/Patroni"),
            ("join/patroni", "join patroni"),
            ("Joining Patroni", ""),
            ("Joining Patroni", "\\u001b[0m"),
            ("\"index\":4", "\"index\":0"),
            ("\"index\":4", "\"index\":10"),
            ("\"index\":4", "\"index\":-1"),
            ("\"total\":9", "\"total\":1000"),
            ("running", "started"),
            ("\"step\"", "\"steps\""),
            ("\"index\":4", "\"index\":4,\"index\":4"),
        ] {
            assert!(taken(GOOD.replacen(from, to, 1)).is_err(), "{from} -> {to}");
        }
        assert!(taken(GOOD.replacen("join/patroni", &"x".repeat(129), 1)).is_err());
        assert!(taken(GOOD.replacen("\"index\":4", "\"new\":{}", 1)).is_ok());
    }

    #[test]
    fn hostile_text_in_a_report_is_cleaned() {
        let text = GOOD
            .replacen("Joining Patroni", "\\u001b[2JJoin\\u202eing\\n", 1)
            .replacen("running", "failed", 1);
        let report = accept(text.as_bytes(), 0, Senders::Root).unwrap();
        assert_eq!(report.title, "Joining");
        assert_eq!(report.error.unwrap(), "firstboot gave no error text");
    }
}
