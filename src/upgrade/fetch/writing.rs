//! The thread that reads, hashes and writes. Touches the stage; hears jobs, tells events.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::upgrade::FileEntry;
use crate::upgrade::plan::{Ev, Reason, StreamId};
use crate::upgrade::stage::{Stage, StageError, Stopped, Writer};

/// Jobs on their way: with pieces of 256 KiB, 2 MiB.
const JOBS: usize = 8;

/// What the thread does.
pub(super) enum Job {
    Write { s: StreamId, file: usize, at: u64, data: Vec<Bytes> },
    Seal(usize),
}

/// What it says.
pub(super) enum Told {
    /// So many more bytes were looked at.
    Read(u64),
    /// Which chunks of which file are here.
    Scanned(Result<Vec<Vec<bool>>, Reason>),
    /// Something for the planner.
    Event(Ev),
}

/// The thread, as the runtime sees it. Dropping it stops the thread at its next step.
pub(super) struct Writing {
    jobs: Option<mpsc::Sender<Job>>,
    told: mpsc::UnboundedReceiver<Told>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Stage>>,
}

// === impl Writing ===

impl Writing {
    /// Starts it: it scans the stage, says so, and then waits for jobs.
    pub(super) fn start(stage: Stage, wants: Vec<FileEntry>, may_clean: bool) -> Result<Self, String> {
        let (jobs, todo) = mpsc::channel(JOBS);
        let (tell, told) = mpsc::unbounded_channel();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("stage".to_owned())
            .spawn(move || work(stage, wants, may_clean, todo, &tell, &stopped))
            .map_err(|error| format!("starting the writer: {error}"))?;
        Ok(Self { jobs: Some(jobs), told, stop, thread: Some(thread) })
    }

    /// Hands a job over, once there is room for it. `false`: the thread is gone.
    pub(super) async fn send(&self, job: Job) -> bool {
        match &self.jobs {
            Some(jobs) => jobs.send(job).await.is_ok(),
            None => false,
        }
    }

    /// The next thing it says.
    pub(super) async fn told(&mut self) -> Option<Told> {
        self.told.recv().await
    }

    /// Ends it and takes the stage back.
    pub(super) async fn finish(mut self) -> Option<Stage> {
        self.jobs = None;
        // It says nothing more, and the channel ends when it has.
        while self.told.recv().await.is_some() {}
        self.thread.take()?.join().ok()
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn work(
    stage: Stage,
    wants: Vec<FileEntry>,
    may_clean: bool,
    mut todo: mpsc::Receiver<Job>,
    tell: &mpsc::UnboundedSender<Told>,
    stop: &AtomicBool,
) -> Stage {
    let stopped = || stop.load(Ordering::Relaxed);
    let found = scan(&stage, &wants, may_clean, tell, &stopped);
    let good = found.is_ok();
    // Nobody listening is the same as being told to stop.
    if tell.send(Told::Scanned(found)).is_err() || !good {
        return stage;
    }
    let mut writer = Writer::new(stage, wants);
    while let Some(job) = todo.blocking_recv() {
        if stopped() {
            break;
        }
        let event = match job {
            Job::Write { s, file, at, data } => writer.write(s, file, at, &data),
            Job::Seal(file) => writer.seal(file),
        };
        if let Some(event) = event
            && tell.send(Told::Event(event)).is_err()
        {
            break;
        }
    }
    writer.into_stage()
}

fn scan(
    stage: &Stage,
    wants: &[FileEntry],
    may_clean: bool,
    tell: &mpsc::UnboundedSender<Told>,
    stopped: &dyn Fn() -> bool,
) -> Result<Vec<Vec<bool>>, Reason> {
    let reason = |error| match error {
        StageError::Full(text) => Reason::NoSpace(text),
        StageError::Failed(text) => Reason::Io(text),
    };
    let mut have = Vec::with_capacity(wants.len());
    for want in wants {
        let mut read = |bytes| tell.send(Told::Read(bytes)).is_ok() && !stopped();
        let found = stage.scan(want, &mut read).map_err(|error| match error {
            Stopped::Told => Reason::Io("given up".to_owned()),
            Stopped::Stage(error) => reason(error),
        })?;
        have.push(found.into_chunks(want.chunks.len()));
    }
    if let Err(full) = stage.room(wants) {
        if !may_clean {
            return Err(reason(full));
        }
        let wanted = wants.iter().map(|want| want.sha256).collect();
        // Old manifests are small, and the one that is wanted is not known here.
        stage.clean_files(&wanted).map_err(reason)?;
        stage.room(wants).map_err(reason)?;
    }
    Ok(have)
}
