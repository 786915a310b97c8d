//! A download: the planner's edges. The runtime's thread reads sockets; one thread beside it hashes and writes.
//!
//! Touches the network through `source` and the disk through `stage`. Pieces go to the writer through a channel of 2 MiB, so a slow disk slows the
//! sender down and memory stays flat. There is no limit on the whole time. Dropping the future stops everything within a moment; what is verified
//! stays.

mod figures;
#[cfg(test)]
mod tests;
mod verify;
mod writing;

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, mpsc};
use tokio::task::{AbortHandle, JoinSet};

use self::figures::Figures;
pub use self::figures::{Phase, Progress};
pub use self::verify::verify;
use self::writing::{Job, Told, Writing};
use super::FileEntry;
use super::fault::UpgradeFault;
use super::plan::{Act, BootMs, End, Ev, Head, Piece, Planner, Reason, StreamId};
use super::source::{Source, fault};
use super::stage::Stage;
use crate::clock;

/// Bytes of one write.
const BATCH: usize = 256 * 1024;
/// Pieces of bodies between the streams and the main loop.
const ARRIVALS: usize = 4;
/// Waiting for the disk longer than this stops the clocks of the streams.
const SLOW_DISK: Duration = Duration::from_millis(50);
/// Figures are given out at least this often while something happens.
const FIGURES: Duration = Duration::from_secs(1);

/// What a download may be told and asked.
pub struct Options {
    /// Spreads the retries of many machines.
    pub seed: u64,
    /// When there is too little room: remove what is not wanted before giving up. For a stage that is ours alone.
    pub may_clean: bool,
    /// The network came back (`notify_one`): try again at once.
    pub network: Arc<Notify>,
    /// Boot time; and how much faster than real time it runs, at least 1 (tests run it faster).
    pub now: fn() -> BootMs,
    /// See [`Options::now`].
    pub speed: u32,
}

/// What a download came to.
#[derive(Debug)]
pub struct Fetched {
    /// The stage, with every wanted file verified and durable.
    pub stage: Stage,
    /// The last figures.
    pub progress: Progress,
}

/// An arrival from one of the streams.
enum Arrival {
    Head(StreamId, Head),
    Body(StreamId, Bytes),
    End(StreamId, End),
}

/// Bytes of one chunk that are not yet given to the writer.
#[derive(Default)]
struct Batch {
    file: usize,
    at: u64,
    len: usize,
    data: Vec<Bytes>,
}

/// One parallel stream, as the main loop holds it.
#[derive(Default)]
struct Lane {
    open: Option<(StreamId, AbortHandle)>,
    batch: Batch,
}

// === impl Options ===

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: clock::now().random,
            may_clean: false,
            network: Arc::default(),
            now: clock::boot_ms,
            speed: 1,
        }
    }
}

/// Fetches what is missing of `wants` into `stage`: afterwards each of them is complete, verified and durable. `told` gets the figures, at most once a
/// second and at each change of phase.
pub async fn fetch(
    source: Arc<Source>,
    stage: Stage,
    mut wants: Vec<FileEntry>,
    options: Options,
    mut told: impl FnMut(&Progress),
) -> Result<Fetched, UpgradeFault> {
    // Two paths with one content are one file here.
    let mut known = HashSet::new();
    wants.retain(|want| known.insert(want.sha256));
    let total = wants.iter().map(|want| want.size).sum();
    let mut figures = Figures::new(total);
    let mut writing = Writing::start(stage, wants.clone(), options.may_clean)
        .map_err(|text| fault(&source.who(), &Reason::Io(text), |_| String::new(), 0, total))?;
    let ended = run(&source, &mut writing, &wants, &options, &mut figures, &mut told).await;
    let path = |file: usize| wants.get(file).map_or(String::new(), |want| want.path.to_string());
    match ended {
        Ok(()) => {
            let stage = writing.finish().await;
            told(&figures.progress);
            stage.map(|stage| Fetched { stage, progress: figures.progress }).ok_or_else(|| {
                fault(&source.who(), &Reason::Io("the writer stopped".to_owned()), path, 0, total)
            })
        }
        Err(reason) => Err(fault(&source.who(), &reason, path, figures.progress.done, total)),
    }
}

async fn run(
    source: &Arc<Source>,
    writing: &mut Writing,
    wants: &[FileEntry],
    options: &Options,
    figures: &mut Figures,
    told: &mut impl FnMut(&Progress),
) -> Result<(), Reason> {
    let have = scan(writing, figures, told).await?;
    let mut planner = Planner::new(wants, &have, source.streams(), options.seed);
    figures.begin(planner.done());
    let mut lanes: Vec<Lane> = (0..source.streams()).map(|_| Lane::default()).collect();
    let (arrive, mut arrivals) = mpsc::channel(ARRIVALS);
    // Dropped with this future, and every stream with it.
    let mut tasks = JoinSet::new();
    let mut tick = tokio::time::interval(FIGURES / options.speed);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let now = (options.now)();
        for act in planner.next(now) {
            match act {
                Act::Open { s, file, range } => {
                    let path = wants.get(file).map_or(String::new(), |want| want.path.to_string());
                    let stream = stream(s, Arc::clone(source), path, range, arrive.clone());
                    if let Some(lane) = lanes.get_mut(s.slot) {
                        lane.open = Some((s, tasks.spawn(stream)));
                    }
                }
                Act::Close(s) => {
                    if let Some(lane) = lanes.get_mut(s.slot).filter(|lane| lane.is(s)) {
                        lane.close();
                    }
                }
                Act::Seal(file) => {
                    hand_over(Job::Seal(file), &mut planner, writing, options).await?;
                }
                Act::Done => {
                    figures.update(&planner, now);
                    return Ok(());
                }
                Act::Fail(reason) => {
                    figures.update(&planner, now);
                    return Err(reason);
                }
            }
        }
        let wake = Duration::from_millis(planner.wake(now).saturating_sub(now)) / options.speed;
        let mut sleep = pin!(tokio::time::sleep(wake));
        tokio::select! {
            biased;
            verdict = writing.told() => match verdict {
                Some(Told::Event(event)) => planner.on(event, (options.now)()),
                Some(Told::Scanned(_) | Told::Read(_)) => {}
                None => return Err(Reason::Io("the writer stopped".to_owned())),
            },
            _ = tick.tick() => {
                figures.update(&planner, (options.now)());
                told(&figures.progress);
            }
            () = options.network.notified() => planner.on(Ev::Network, (options.now)()),
            Some(arrival) = arrivals.recv() => {
                take(arrival, &mut planner, &mut lanes, writing, wants, options).await?;
            }
            // Ended streams are only swept away; what they had to say has arrived.
            Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
            () = &mut sleep => {}
        }
    }
}

/// What is here already.
async fn scan(
    writing: &mut Writing,
    figures: &mut Figures,
    told: &mut impl FnMut(&Progress),
) -> Result<Vec<Vec<bool>>, Reason> {
    told(&figures.progress);
    let mut last = tokio::time::Instant::now();
    loop {
        match writing.told().await {
            Some(Told::Read(bytes)) => {
                figures.progress.checked += bytes;
                if last.elapsed() >= FIGURES {
                    last = tokio::time::Instant::now();
                    told(&figures.progress);
                }
            }
            Some(Told::Scanned(found)) => return found,
            Some(Told::Event(_)) => {}
            None => return Err(Reason::Io("the writer stopped".to_owned())),
        }
    }
}

async fn take(
    arrival: Arrival,
    planner: &mut Planner,
    lanes: &mut [Lane],
    writing: &Writing,
    wants: &[FileEntry],
    options: &Options,
) -> Result<(), Reason> {
    let now = (options.now)();
    match arrival {
        Arrival::Head(s, head) => planner.on(Ev::Head(s, head), now),
        Arrival::End(s, why) => planner.on(Ev::Ended(s, why), now),
        Arrival::Body(s, mut data) => {
            let pieces = planner.body(s, data.len(), now);
            let Some(lane) = lanes.get_mut(s.slot).filter(|lane| lane.is(s)) else { return Ok(()) };
            for piece in pieces {
                match piece {
                    Piece::Skip(len) => drop(data.split_to(len)),
                    Piece::Write { file, at, len } => {
                        let end = at + len as u64;
                        lane.add(file, at, data.split_to(len));
                        // A chunk is given over at its end, so that its verdict does not wait for the next one.
                        let whole = end.is_multiple_of(super::CHUNK)
                            || wants.get(file).is_some_and(|w| w.size == end);
                        if whole || lane.batch.len >= BATCH {
                            let Batch { file, at, data, .. } = std::mem::take(&mut lane.batch);
                            hand_over(Job::Write { s, file, at, data }, planner, writing, options).await?;
                        }
                    }
                }
            }
        }
    }
    Ok(())
}

/// Gives the writer something to do. When that has to wait for the disk, the streams' clocks stand still meanwhile.
async fn hand_over(
    job: Job,
    planner: &mut Planner,
    writing: &Writing,
    options: &Options,
) -> Result<(), Reason> {
    let before = (options.now)();
    if !writing.send(job).await {
        return Err(Reason::Io("the writer stopped".to_owned()));
    }
    let now = (options.now)();
    let waited = now.saturating_sub(before);
    if u128::from(waited) >= SLOW_DISK.as_millis() {
        planner.on(Ev::Paused(waited), now);
    }
    Ok(())
}

/// One request, from its opening to the end of its body. Whoever listens may be gone: then so is this, soon.
async fn stream(
    s: StreamId,
    source: Arc<Source>,
    path: String,
    range: Option<(u64, u64)>,
    arrive: mpsc::Sender<Arrival>,
) {
    let end = match source.open(&path, range, false).await {
        Ok(mut answer) => {
            let good = matches!(answer.head.status, 200 | 206);
            if arrive.send(Arrival::Head(s, answer.head.clone())).await.is_err() || !good {
                return;
            }
            loop {
                match answer.chunk().await {
                    Ok(Some(piece)) => {
                        if arrive.send(Arrival::Body(s, piece)).await.is_err() {
                            return;
                        }
                    }
                    Ok(None) => break End::Eof,
                    Err(end) => break end,
                }
            }
        }
        Err(end) => end,
    };
    let _ = arrive.send(Arrival::End(s, end)).await;
}

// === impl Lane ===

impl Lane {
    fn is(&self, s: StreamId) -> bool {
        self.open.as_ref().is_some_and(|(open, _)| *open == s)
    }

    /// Ends the request. What of its last chunk is not written yet is of no use.
    fn close(&mut self) {
        if let Some((_, task)) = self.open.take() {
            task.abort();
        }
        self.batch = Batch::default();
    }

    fn add(&mut self, file: usize, at: u64, data: Bytes) {
        if self.batch.len == 0 {
            (self.batch.file, self.batch.at) = (file, at);
        }
        self.batch.len += data.len();
        self.batch.data.push(data);
    }
}
