//! The helper's end: one request, one answer.
//!
//! Touches the one connection. What a verb does is `privileged`'s; here is who may ask, and what is a request.

use std::os::fd::AsFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::time::{interval, timeout};
use zeroize::Zeroizing;

use super::{
    Action, BannerArgs, DeliveryArgs, End, FirstbootArgs, InstallArgs, Line, MAX_REQUEST, ProbeArgs,
    Progress, Refusal, Request, Step, Told, VERSION, What,
};
use crate::handoff::Delivery;
use crate::join::event::{Event, FirstbootEnd};
use crate::join::fault::{Code, Fault};
use crate::privileged::{Answer, OsAnswer, Privileged};
use crate::upgrade::Digest;
use crate::upgrade::fault::UpgradeFault;

/// Longest wait for a request.
const READ: Duration = Duration::from_secs(10);
/// How often a verb that follows firstboot says that it lives. A caller that is gone is noticed by it: one that restarts every 2 s must not
/// fill the socket's four connections with helpers of its predecessors.
const ALIVE: Duration = Duration::from_secs(5);
/// How often a verb that can be broken off looks whether its caller is still there.
const LOOK: Duration = Duration::from_millis(250);
/// Longest wait until a line of an answer is taken. A caller that takes none keeps a connection and holds up the shutdown of the machine.
const TAKEN: Duration = Duration::from_secs(60);
/// Longest work of a verb that follows nothing: below the caller's patience, so that it is told what took so long, and so that
/// helpers that hang do not take all connections.
const WORK: Duration = Duration::from_secs(80);

/// Who may ask.
#[derive(Debug, Clone, Copy)]
pub struct Callers {
    /// The agent's uid. Root may always.
    pub agent: u32,
}

/// What came of a connection.
#[derive(Debug)]
pub enum Served {
    /// A verb was done or refused by itself; an error answer is an answer.
    Answered,
    /// It was no request, or its sender may not ask. The text was the answer.
    Refused(String),
    /// The caller is gone.
    Gone,
}

/// Serves one connection. Nothing is read from who may not ask.
pub async fn serve(connection: UnixStream, callers: Callers, verbs: &dyn Privileged) -> Served {
    let mut to = Caller { connection };
    let request = match to.request(callers).await {
        Ok(request) => request,
        Err(why) => {
            let _ = to.tell(&Line::Error(Refusal::bad_request(&why))).await;
            return Served::Refused(why);
        }
    };
    match answer(request, verbs, &mut to).await {
        Ok(line) => match to.tell(&line).await {
            Ok(()) => Served::Answered,
            Err(_) => Served::Gone,
        },
        Err(Stop::Refused(why)) => {
            let _ = to.tell(&Line::Error(Refusal::bad_request(&why))).await;
            Served::Refused(why)
        }
        Err(Stop::Gone) => Served::Gone,
    }
}

/// Why there is no answer of a verb.
enum Stop {
    Refused(String),
    Gone,
}

/// The other side.
struct Caller {
    connection: UnixStream,
}

// === impl Caller ===

impl Caller {
    /// The one request of who may ask.
    async fn request(&mut self, callers: Callers) -> Result<Request, String> {
        let peer = self.connection.peer_cred().map_err(|error| format!("who asks is not known: {error}"))?;
        if peer.uid() != callers.agent && peer.uid() != 0 {
            return Err(format!(
                "uid {} may not ask the helper: only the agent (uid {}) and root may",
                peer.uid(),
                callers.agent
            ));
        }
        let mut bytes = Zeroizing::new(Vec::new());
        let limit = MAX_REQUEST as u64 + 1;
        let mut connection = (&mut self.connection).take(limit);
        match timeout(READ, connection.read_to_end(&mut bytes)).await {
            Err(_) => return Err(format!("no whole request came within {} s", READ.as_secs())),
            Ok(Err(error)) => return Err(format!("the request cannot be read: {error}")),
            Ok(Ok(_)) if bytes.len() > MAX_REQUEST => {
                return Err(format!("the request is larger than {MAX_REQUEST} bytes"));
            }
            Ok(Ok(_)) => {}
        }
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
            return Err("the request does not end with its line".to_owned());
        };
        let (line, more) = bytes.split_at(end + 1);
        if !more.is_empty() {
            return Err("there is a second request: one connection is one request".to_owned());
        }
        let request: Request = parse(line).map_err(|why| format!("the request is not one: {why}"))?;
        if request.v != VERSION {
            return Err(format!("the request is of version {}, this helper of version {VERSION}", request.v));
        }
        Ok(request)
    }

    async fn tell(&mut self, line: &Line) -> std::io::Result<()> {
        let mut bytes = serde_json::to_vec(line)?;
        bytes.push(b'\n');
        timeout(TAKEN, self.connection.write_all(&bytes)).await?
    }

    /// What changes the next start is done only for who waits for it: an agent that comes after it has decided anew.
    fn still_there(&self) -> Result<(), Stop> {
        if self.hung_up() { Err(Stop::Gone) } else { Ok(()) }
    }

    /// Whether nobody will read an answer: the other side has closed both ends (poll(2)).
    fn hung_up(&self) -> bool {
        let mut ask = [PollFd::new(self.connection.as_fd(), PollFlags::empty())];
        let gone = PollFlags::POLLHUP | PollFlags::POLLERR;
        poll(&mut ask, PollTimeout::ZERO).is_ok()
            && ask[0].revents().is_some_and(|found| found.intersects(gone))
    }
}

/// Does the verb.
async fn answer(request: Request, verbs: &dyn Privileged, to: &mut Caller) -> Result<Line, Stop> {
    let args = request.args;
    match request.verb.as_str() {
        "probe" => {
            let args: ProbeArgs = arguments("probe", args)?;
            Ok(match args.what {
                What::Machine => within("probe", verbs.probe()).await,
                What::Os => within_os("probe", verbs.probe_os()).await,
            })
        }
        "install-release" => {
            let args: InstallArgs = arguments("install-release", args)?;
            match (args.action, args.manifest_sha256) {
                (Action::Write, Some(manifest)) => write_release(manifest, verbs, to).await,
                (Action::Arm, Some(manifest)) => {
                    to.still_there()?;
                    Ok(within_os("install-release", verbs.arm_release(manifest)).await)
                }
                (Action::Disarm, None) => Ok(within_os("install-release", verbs.disarm_release()).await),
                _ => Err(Stop::Refused(
                    "install-release takes the manifestSha256 of what it writes or arms".to_owned(),
                )),
            }
        }
        "bless" => {
            no_args("bless", args)?;
            Ok(within_os("bless", verbs.bless()).await)
        }
        "identify-led" => {
            no_args("identify-led", args)?;
            Ok(within("identify-led", verbs.identify_led()).await)
        }
        "reboot" => {
            no_args("reboot", args)?;
            to.still_there()?;
            Ok(within("reboot", verbs.reboot()).await)
        }
        "reload-banner" => {
            let args: BannerArgs = arguments("reload-banner", args)?;
            Ok(within("reload-banner", verbs.reload_banner(args.reload)).await)
        }
        "write-delivery" => {
            let args: DeliveryArgs = arguments("write-delivery", args)?;
            let delivery = Delivery::new(args.node_yaml.into_bytes(), args.bundle.into_bytes());
            Ok(match delivery {
                Ok(delivery) => within("write-delivery", verbs.write_delivery(args.attempt, &delivery)).await,
                Err(fault) => line(Err::<(), _>(fault)),
            })
        }
        "start-firstboot" => {
            let args: FirstbootArgs = arguments("start-firstboot", args)?;
            // A part of it names a directory.
            if !is_digest(&args.sha256) {
                return Err(Stop::Refused(
                    "the sha256 of start-firstboot is not 64 digits of hex".to_owned(),
                ));
            }
            start_firstboot(args, verbs, to).await
        }
        other => Err(Stop::Refused(format!("there is no verb {:?}", shortened(other)))),
    }
}

/// Passes on what happens until firstboot has ended, or the caller is gone: firstboot runs on, and the verb is sent again to follow it.
async fn start_firstboot(args: FirstbootArgs, verbs: &dyn Privileged, to: &mut Caller) -> Result<Line, Stop> {
    let (events, mut told) = mpsc::channel(16);
    let verb = verbs.start_firstboot(args.attempt, &args.sha256, args.log_cursor, events);
    tokio::pin!(verb);
    let mut alive = interval(ALIVE);
    alive.tick().await;
    loop {
        let progress = tokio::select! {
            biased;
            Some(event) = told.recv() => match progress(event) {
                Some(progress) => progress,
                None => continue,
            },
            _ = alive.tick() => Told::Other(Progress::Alive),
            end = &mut verb => {
                while let Ok(event) = told.try_recv() {
                    if let Some(progress) = progress(event) {
                        to.tell(&Line::Progress(progress)).await.map_err(|_| Stop::Gone)?;
                    }
                }
                return Ok(line(end.map(|end| match end {
                    FirstbootEnd::Done => End::Done,
                    FirstbootEnd::Failed(how) => End::Failed(how),
                    FirstbootEnd::Lost => End::Lost,
                })));
            }
        };
        to.tell(&Line::Progress(progress)).await.map_err(|_| Stop::Gone)?;
    }
}

/// Writes a release, and says how far it is, until it is written or the caller is gone: then the work ends before its next chunk.
async fn write_release(manifest: Digest, verbs: &dyn Privileged, to: &mut Caller) -> Result<Line, Stop> {
    let (progress, mut told) = mpsc::channel(4);
    let verb = verbs.write_release(manifest, progress);
    tokio::pin!(verb);
    let (mut alive, mut look) = (interval(ALIVE), interval(LOOK));
    alive.tick().await;
    loop {
        let told = tokio::select! {
            biased;
            answer = &mut verb => return Ok(os_line(answer)),
            Some((done, total)) = told.recv() => Told::Step { step: Step::Write, done, total },
            _ = alive.tick() => Told::Other(Progress::Alive),
            _ = look.tick() => {
                if to.hung_up() {
                    return Err(Stop::Gone);
                }
                continue;
            }
        };
        to.tell(&Line::Progress(told)).await.map_err(|_| Stop::Gone)?;
    }
}

// === private ===

fn progress(event: Event) -> Option<Told> {
    match event {
        Event::FirstbootRunning => Some(Told::Other(Progress::Running)),
        Event::FirstbootLog { lines, cursor } => Some(Told::Other(Progress::Log { lines, cursor })),
        _ => None,
    }
}

async fn within<T: Serialize>(verb: &str, work: Answer<'_, T>) -> Line {
    let answer = timeout(WORK, work).await;
    line(answer.unwrap_or_else(|_| Err(Fault::new(Code::Local, late(verb)))))
}

async fn within_os<T: Serialize>(verb: &str, work: OsAnswer<'_, T>) -> Line {
    let answer = timeout(WORK, work).await;
    os_line(answer.unwrap_or_else(|_| Err(UpgradeFault::helper(late(verb)))))
}

fn late(verb: &str) -> String {
    format!("{verb} did not end within {} s: a disk or systemd does not answer", WORK.as_secs())
}

fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

fn line(answer: Result<impl Serialize, Fault>) -> Line {
    answered(answer.map_err(|fault| Refusal::of(&fault)))
}

fn os_line(answer: Result<impl Serialize, UpgradeFault>) -> Line {
    answered(answer.map_err(|fault| Refusal::of_upgrade(&fault)))
}

fn answered(answer: Result<impl Serialize, Refusal>) -> Line {
    match answer.map(|value| serde_json::value::to_raw_value(&value)) {
        Ok(Ok(value)) => Line::Ok(value),
        Ok(Err(error)) => Line::Error(Refusal::bad_request(format!("the answer cannot be written: {error}"))),
        Err(refusal) => Line::Error(refusal),
    }
}

fn no_args(verb: &str, args: Option<Box<RawValue>>) -> Result<(), Stop> {
    if args.is_some() { Err(Stop::Refused(format!("{verb} takes no arguments"))) } else { Ok(()) }
}

fn arguments<T: DeserializeOwned>(verb: &str, args: Option<Box<RawValue>>) -> Result<T, Stop> {
    let args = args.ok_or_else(|| Stop::Refused(format!("{verb} needs its arguments")))?;
    let args = Zeroizing::new(Box::<str>::from(args).into_string());
    parse(args.as_bytes())
        .map_err(|why| Stop::Refused(format!("the arguments of {verb} are not such: {why}")))
}

/// serde_json's own words name fields and positions. What it quotes of the text (an unknown field, a wrong value) may be a secret, so only the
/// kind and the place are told.
fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|error| {
        let kind = match error.classify() {
            serde_json::error::Category::Data => "a field is unknown, missing or of another kind",
            serde_json::error::Category::Eof => "it is cut off",
            serde_json::error::Category::Syntax | serde_json::error::Category::Io => "it is not JSON",
        };
        format!("{kind}, at column {}", error.column())
    })
}

fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}
