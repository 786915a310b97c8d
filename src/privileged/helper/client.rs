//! The agent's end: [`Privileged`] by asking the helper.
//!
//! Touches the helper's socket. Waits for no answer for ever, and keeps none that is larger than it may be.

use std::path::PathBuf;
use std::time::Duration;

use hwprobe::MachinePart;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::mpsc::Sender;
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::{
    Action, BannerArgs, DeliveryArgs, End, FirstbootArgs, InstallArgs, Line, MAX_ANSWER, ProbeArgs, Progress,
    Refusal, Request, Told, VERSION, What,
};
use crate::handoff::Delivery;
use crate::install::{Installed, OsState};
use crate::join::event::{Event, FirstbootEnd};
use crate::join::fault::{Code, Fault};
use crate::privileged::{Answer, OsAnswer, Privileged};
use crate::upgrade::Digest;
use crate::upgrade::fault::UpgradeFault;

/// Longest wait until the helper has taken a request.
const SEND: Duration = Duration::from_secs(10);
/// Longest silence of a helper at work. One that follows firstboot says every 5 s that it lives; a probe may wait for sleeping disks.
const SILENCE: Duration = Duration::from_secs(90);

/// The verbs, done by the helper process behind its socket.
#[derive(Debug, Clone)]
pub struct ThroughHelper {
    socket: PathBuf,
}

// === impl ThroughHelper ===

impl ThroughHelper {
    /// The helper that listens at `socket`.
    pub fn at(socket: PathBuf) -> Self {
        Self { socket }
    }

    fn fault(&self, what: impl std::fmt::Display) -> Fault {
        Fault::new(Code::Local, format!("the helper at {} {what}", self.socket.display()))
    }

    /// What it has to say of its end is not in our own log.
    fn gone(&self, what: impl std::fmt::Display) -> Fault {
        self.fault(format_args!("{what}; look at: journalctl -b -u 'stratum-join-helper*'"))
    }

    /// A verb of the hand-over or of the machine.
    async fn ask<T: DeserializeOwned>(&self, verb: &str, args: Option<&impl Serialize>) -> Result<T, Fault> {
        self.follow(verb, args, Listener::Nobody).await.map_err(Trouble::into_fault)
    }

    /// A verb about the OS.
    async fn ask_os<T: DeserializeOwned>(
        &self,
        verb: &str,
        args: Option<&impl Serialize>,
    ) -> Result<T, UpgradeFault> {
        self.follow(verb, args, Listener::Nobody).await.map_err(Trouble::into_upgrade_fault)
    }

    /// Asks, passes on what is told meanwhile, and gives the answer.
    async fn follow<T: DeserializeOwned>(
        &self,
        verb: &str,
        args: Option<&impl Serialize>,
        listener: Listener<'_>,
    ) -> Result<T, Trouble> {
        let mut connection = timeout(SEND, UnixStream::connect(&self.socket))
            .await
            .map_err(|_| self.fault("takes no connection"))?
            .map_err(|error| {
                let why = plain(&error);
                self.fault(format_args!(
                    "is not there: {why}; look at: systemctl status stratum-join-helper.socket"
                ))
            })?;
        let line =
            request(verb, args).map_err(|error| self.fault(format_args!("cannot be asked: {error}")))?;
        let send = async {
            connection.write_all(&line).await?;
            connection.shutdown().await
        };
        // One that refuses without reading has answered all the same.
        let _ = timeout(SEND, send).await.map_err(|_| self.fault("does not take the request"))?;
        drop(line);
        let mut answers = BufReader::new(connection);
        loop {
            let line = timeout(SILENCE, self.line(&mut answers)).await;
            match line.map_err(|_| self.fault("does not answer"))?? {
                Line::Progress(told) => listener.tell(told).await,
                Line::Ok(value) => {
                    let answer = serde_json::from_str(value.get());
                    return answer.map_err(|error| {
                        self.fault(format_args!("gives no answer of {verb}: {error}")).into()
                    });
                }
                Line::Error(refusal) => return Err(Trouble::Refused(refusal)),
            }
        }
    }

    async fn line(&self, answers: &mut BufReader<UnixStream>) -> Result<Line, Fault> {
        let mut line = Zeroizing::new(Vec::new());
        let read = answers.take(MAX_ANSWER as u64).read_until(b'\n', &mut line).await;
        match read {
            Ok(_) if line.ends_with(b"\n") => {}
            Ok(len) if len >= MAX_ANSWER => return Err(self.fault("answers without an end")),
            Ok(_) => return Err(self.gone("ended before it answered")),
            Err(error) => {
                return Err(self.gone(format_args!("went away: {}", plain(&error))));
            }
        }
        serde_json::from_slice(&line).map_err(|_| self.fault("gives an answer that is none"))
    }
}

/// Who hears what is told before the answer.
enum Listener<'a> {
    Nobody,
    Firstboot(&'a Sender<Event>),
    Write(&'a Sender<(u64, u64)>),
}

// === impl Listener ===

impl Listener<'_> {
    async fn tell(&self, told: Told) {
        match (self, told) {
            (Listener::Firstboot(events), Told::Other(progress)) => {
                if let Some(event) = event(progress) {
                    // Who receives is gone only when the agent ends; firstboot runs on.
                    let _ = events.send(event).await;
                }
            }
            (Listener::Write(figures), Told::Step { done, total, .. }) => {
                // Those that nobody has taken yet are out of date.
                let _ = figures.try_send((done, total));
            }
            _ => {}
        }
    }
}

/// Why there is no answer.
enum Trouble {
    /// On the way to the helper.
    Way(Fault),
    /// The helper said so.
    Refused(Refusal),
}

// === impl Trouble ===

impl Trouble {
    fn into_fault(self) -> Fault {
        match self {
            Trouble::Way(fault) => fault,
            Trouble::Refused(refusal) => refusal.into_fault(),
        }
    }

    fn into_upgrade_fault(self) -> UpgradeFault {
        match self {
            Trouble::Way(fault) => UpgradeFault::helper(&fault.detail),
            Trouble::Refused(refusal) => refusal.into_upgrade_fault(),
        }
    }
}

impl From<Fault> for Trouble {
    fn from(fault: Fault) -> Self {
        Trouble::Way(fault)
    }
}

impl Privileged for ThroughHelper {
    fn probe(&self) -> Answer<'_, MachinePart> {
        Box::pin(async move { self.ask("probe", Some(&ProbeArgs { what: What::Machine })).await })
    }

    fn write_delivery(&self, attempt: Option<u64>, delivery: &Delivery) -> Answer<'_, String> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec());
        let args = text(delivery.node_yaml())
            .and_then(|node_yaml| Ok(DeliveryArgs { attempt, node_yaml, bundle: text(delivery.bundle())? }));
        Box::pin(async move {
            let args =
                args.map_err(|_| Fault::new(Code::DeliveryInvalid, "the delivery is not UTF-8 text"))?;
            self.ask("write-delivery", Some(&args)).await
        })
    }

    fn start_firstboot<'a>(
        &'a self,
        attempt: Option<u64>,
        sha256: &'a str,
        log_cursor: Option<String>,
        events: Sender<Event>,
    ) -> Answer<'a, FirstbootEnd> {
        Box::pin(async move {
            let args = FirstbootArgs { attempt, sha256: sha256.to_owned(), log_cursor };
            let end = self.follow("start-firstboot", Some(&args), Listener::Firstboot(&events)).await;
            Ok(match end.map_err(Trouble::into_fault)? {
                End::Done => FirstbootEnd::Done,
                End::Failed(how) => FirstbootEnd::Failed(how),
                End::Lost => FirstbootEnd::Lost,
            })
        })
    }

    fn reload_banner(&self, reload: bool) -> Answer<'_, ()> {
        Box::pin(async move { self.ask("reload-banner", Some(&BannerArgs { reload })).await })
    }

    fn identify_led(&self) -> Answer<'_, ()> {
        Box::pin(self.ask("identify-led", None::<&()>))
    }

    fn reboot(&self) -> Answer<'_, ()> {
        Box::pin(self.ask("reboot", None::<&()>))
    }

    fn probe_os(&self) -> OsAnswer<'_, OsState> {
        Box::pin(async move { self.ask_os("probe", Some(&ProbeArgs { what: What::Os })).await })
    }

    fn write_release<'a>(
        &'a self,
        manifest: Digest,
        progress: Sender<(u64, u64)>,
    ) -> OsAnswer<'a, Installed> {
        Box::pin(async move {
            let args = install(Action::Write, Some(manifest));
            let answer = self.follow("install-release", Some(&args), Listener::Write(&progress)).await;
            answer.map_err(Trouble::into_upgrade_fault)
        })
    }

    fn arm_release(&self, manifest: Digest) -> OsAnswer<'_, ()> {
        let args = install(Action::Arm, Some(manifest));
        Box::pin(async move { self.ask_os("install-release", Some(&args)).await })
    }

    fn disarm_release(&self) -> OsAnswer<'_, ()> {
        let args = install(Action::Disarm, None);
        Box::pin(async move { self.ask_os("install-release", Some(&args)).await })
    }

    fn bless(&self) -> OsAnswer<'_, ()> {
        Box::pin(self.ask_os("bless", None::<&()>))
    }
}

fn install(action: Action, manifest_sha256: Option<Digest>) -> InstallArgs {
    InstallArgs { action, manifest_sha256 }
}

fn event(progress: Progress) -> Option<Event> {
    match progress {
        Progress::Alive => None,
        Progress::Running => Some(Event::FirstbootRunning),
        Progress::Log { lines, cursor } => Some(Event::FirstbootLog { lines, cursor }),
    }
}

/// The system's words without its number.
fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

/// The request line, wiped when it was sent.
fn request(verb: &str, args: Option<&impl Serialize>) -> serde_json::Result<Zeroizing<Vec<u8>>> {
    let args: Option<Box<RawValue>> = args.map(serde_json::value::to_raw_value).transpose()?;
    let mut line = Zeroizing::new(serde_json::to_vec(&Request { v: VERSION, verb: verb.to_owned(), args })?);
    line.push(b'\n');
    Ok(line)
}
