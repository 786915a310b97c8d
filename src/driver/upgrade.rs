//! Carries out what the core asks for an upgrade: finds the release, moves its bytes into the stage, asks the helper for the rest.
//!
//! Touches the source, the stage and the helper. Decides nothing: what was checked is told, and every file is checked again by whoever uses it.

use std::collections::HashSet;
use std::sync::Arc;

use console::text::Safe;
use tokio::sync::{Notify, mpsc};
use tokio::task::{AbortHandle, JoinSet};

use super::perform::Msg;
use crate::config::UpgradeSettings;
use crate::durable_file;
use crate::join::event::Event;
use crate::join::state::State;
use crate::join::upgrade::{Checked, Do, Done, Figures};
use crate::paths::Paths;
use crate::privileged::Privileged;
use crate::protocol::wire::UpgradeOffer;
use crate::upgrade::fault::{Code, UpgradeFault};
use crate::upgrade::fetch::{self, Options, fetch};
use crate::upgrade::keys::KeyRing;
use crate::upgrade::manifest::Form;
use crate::upgrade::running::RunningOs;
use crate::upgrade::source::{FounderSource, FounderTime, Mirror, MirrorSettings, Source};
use crate::upgrade::stage::{Stage, StageError};
use crate::upgrade::verify::{Check, Verified};
use crate::upgrade::version::{self, Floor, Offer};
use crate::upgrade::{Digest, FileEntry};

/// Largest file with authorities, and largest `floor.json`.
const MAX_CA: u64 = 64 * 1024;
const MAX_FLOOR: u64 = 4 * 1024;

/// A release that was found and checked.
#[derive(Debug)]
pub(super) struct Release {
    source: Arc<Source>,
    wants: Vec<FileEntry>,
}

/// An answer of an upgrade's work.
pub(super) struct Told {
    /// Of which work; older ones are nobody's.
    no: u64,
    done: Done,
    release: Option<Arc<Release>>,
}

/// What an upgrade holds between two of its parts.
pub(super) struct Upgrader {
    settings: UpgradeSettings,
    work: Option<AbortHandle>,
    no: u64,
    release: Option<Arc<Release>>,
    network: Arc<Notify>,
}

/// What the parts need of the rest of the driver.
pub(super) struct Ports<'a> {
    pub(super) paths: &'a Paths,
    pub(super) helper: Arc<dyn Privileged>,
    pub(super) founder: Option<FounderSource>,
    pub(super) tx: mpsc::Sender<Msg>,
    pub(super) tasks: &'a mut JoinSet<()>,
}

// === impl Upgrader ===

impl Upgrader {
    pub(super) fn new(settings: UpgradeSettings) -> Self {
        Self { settings, work: None, no: 0, release: None, network: Arc::default() }
    }

    pub(super) fn set(&mut self, settings: UpgradeSettings) {
        self.settings = settings;
    }

    /// The network came back: what waits for it tries again at once.
    pub(super) fn network_changed(&self) {
        self.network.notify_one();
    }

    pub(super) fn start(&mut self, what: Do, state: &State, ports: Ports<'_>) {
        let Ports { paths, helper, founder, tx, tasks } = ports;
        if what == Do::Cancel {
            self.no += 1;
            if let Some(work) = self.work.take() {
                work.abort();
            }
            return;
        }
        if what == Do::Os {
            tasks.spawn(async move {
                let done = Done::Os(Box::new(helper.probe_os().await));
                let _ = tx.send(Msg::Event(Event::Upgrade(done))).await;
            });
            return;
        }
        self.no += 1;
        let no = self.no;
        let teller = Teller { no, tx };
        let (paths, release) = (paths.clone(), self.release.clone());
        let network = Arc::clone(&self.network);
        let found = match &what {
            Do::Check(offer) => Some(Looking {
                offer: offer.clone(),
                settings: self.settings.clone(),
                founder,
                time: founder_time(state),
                form: state.v.upgrading.os().and_then(|os| os.form),
            }),
            _ => None,
        };
        self.work = Some(tasks.spawn(async move {
            let (done, release) = match (what, found) {
                (Do::Check(_), Some(looking)) => match looking.look(&paths).await {
                    Ok((checked, release)) => (Done::Check(Ok(checked)), release),
                    Err(fault) => (Done::Check(Err(fault)), None),
                },
                (Do::Fetch, _) => (Done::Fetch(download(&paths, release, network, &teller).await), None),
                (Do::Verify, _) => (Done::Verify(look_again(&paths, release, &teller).await), None),
                (Do::Write(manifest), _) => {
                    let (figures, heard) = mpsc::channel(4);
                    let written = helper.write_release(manifest, figures);
                    let (written, ()) = tokio::join!(written, teller.forward(heard));
                    (Done::Write(written.map(|installed| installed.slot)), None)
                }
                (Do::Arm(manifest), _) => (Done::Arm(helper.arm_release(manifest).await), None),
                (Do::Restart, _) => {
                    let asked = helper.reboot().await;
                    (Done::Restart(asked.map_err(|fault| UpgradeFault::helper(&fault.chain))), None)
                }
                (Do::Disarm, _) => (Done::Disarm(helper.disarm_release().await), None),
                (Do::Bless, _) => (Done::Bless(helper.bless().await), None),
                (Do::Clean, _) => (Done::Clean(empty(&paths).await), None),
                (Do::Check(_) | Do::Os | Do::Cancel, _) => return,
            };
            let _ = teller.tx.send(Msg::Upgrade(Told { no, done, release })).await;
        }));
    }

    /// What an answer means; nothing when it is of work that was broken off.
    pub(super) fn understand(&mut self, told: Told) -> Option<Event> {
        if told.no != self.no {
            return None;
        }
        if told.release.is_some() {
            self.release = told.release;
        }
        Some(Event::Upgrade(told.done))
    }
}

/// Whether the settings and the keys of this OS allow an upgrade; the helper says whether one can be installed.
pub fn may_upgrade(paths: &Paths, settings: &UpgradeSettings) -> bool {
    if !settings.enabled {
        return false;
    }
    match KeyRing::load(paths) {
        Ok(keys) => {
            for warning in keys.warnings() {
                tracing::warn!("{warning}");
            }
            true
        }
        Err(crate::upgrade::keys::KeysError::None { .. }) => false,
        Err(error) => {
            tracing::warn!("this machine does not upgrade itself: {error}");
            false
        }
    }
}

/// The founder's clock, which came over the pinned channel.
fn founder_time(state: &State) -> Option<FounderTime> {
    let said = state.v.view.as_deref()?.server_time.as_ref()?;
    let time: jiff::Timestamp = said.as_str().parse().ok()?;
    Some(FounderTime {
        unix_secs: u64::try_from(time.as_second()).ok()?,
        at_boot_ms: state.v.last_contact_ms?,
    })
}

/// Figures on their way to the driver. One that finds no room is out of date soon anyway.
struct Teller {
    no: u64,
    tx: mpsc::Sender<Msg>,
}

impl Teller {
    fn tell(&self, figures: Figures) {
        let told = Told { no: self.no, done: Done::Figures(figures), release: None };
        let _ = self.tx.try_send(Msg::Upgrade(told));
    }

    async fn forward(&self, mut heard: mpsc::Receiver<(u64, u64)>) {
        while let Some((done, total)) = heard.recv().await {
            self.tell(Figures::Plain(done, total));
        }
    }
}

/// What is needed to find a release.
struct Looking {
    offer: UpgradeOffer,
    settings: UpgradeSettings,
    founder: Option<FounderSource>,
    time: Option<FounderTime>,
    form: Option<Form>,
}

impl Looking {
    async fn look(self, paths: &Paths) -> Result<(Checked, Option<Arc<Release>>), UpgradeFault> {
        let os = RunningOs::load(paths).map_err(|error| {
            UpgradeFault::new(Code::Unsupported, format!("{error}."), "Install from a newer ISO.")
        })?;
        let file = durable_file::read_public(&paths.os_dir().join("floor.json"), MAX_FLOOR).ok().flatten();
        let floor = Floor::of(file.as_deref(), &os);
        let to = match version::offered(self.offer.from.as_str(), self.offer.to.as_str(), &os, &floor)? {
            Offer::Stale => return Ok((Checked::Stale, None)),
            Offer::Installed => return Ok((Checked::Installed, None)),
            Offer::Upgrade(to) => to,
        };
        let keys = KeyRing::load(paths).map_err(|error| {
            UpgradeFault::new(Code::KeyUnknown, format!("{error}."), "Install from a newer ISO.")
        })?;
        let form = self.form;
        let source = Arc::new(self.source(paths)?);
        let check = Check { keys, os, floor, to: Some(to), form, host: String::new(), url: String::new() };
        let verified = source.release(check).await?;
        let wants: Vec<FileEntry> = match form {
            Some(form) => verified.wanted(form).into_iter().cloned().collect(),
            None => verified.manifest().files.clone(),
        };
        keep(paths, verified.clone(), &wants).await?;
        let host = Safe::clean(source.host());
        let checked = Checked::Release { manifest: verified.sha256(), host };
        Ok((checked, Some(Arc::new(Release { source, wants }))))
    }

    fn source(self, paths: &Paths) -> Result<Source, UpgradeFault> {
        if self.offer.source.is_empty() {
            let gone =
                || UpgradeFault::new(Code::SourceUnreachable, "The join request is gone.", "Give it again.");
            return self.founder.map(Source::Founder).ok_or_else(gone);
        }
        let ca_pem = match &self.settings.mirror_ca_file {
            None => None,
            Some(path) => {
                let bad = |why: String| {
                    let what = format!("The mirror's authorities cannot be read: {why}.");
                    UpgradeFault::new(Code::SourceTls, what, "Correct upgrade.mirror.caFile in join.yaml.")
                };
                let read = durable_file::read_public(path, MAX_CA).map_err(|error| bad(error.to_string()))?;
                Some(read.ok_or_else(|| bad(format!("{} does not exist", path.display())))?)
            }
        };
        Mirror::new(&MirrorSettings {
            url: self.offer.source.as_str().to_owned(),
            ca_pem,
            allow_http: self.settings.mirror_allow_http,
            proxy: self.settings.mirror_proxy,
            // Below a temporary root the whole cluster is on this machine.
            allow_local: !paths.is_system(),
            time: self.time,
        })
        .map(Source::Mirror)
    }
}

/// Opens the stage, which waits for the work before it.
async fn stage(paths: &Paths) -> Result<Stage, UpgradeFault> {
    let dir = paths.upgrade_dir();
    blocking(move || Stage::open(&dir)).await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StageError> + Send + 'static,
) -> Result<T, UpgradeFault> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|error| UpgradeFault::from(&error)),
        Err(_) => Err(UpgradeFault::from(&StageError::Failed("the work on the stage broke off".to_owned()))),
    }
}

/// Keeps the manifest beside what is staged, and of that only what this release wants.
async fn keep(paths: &Paths, verified: Verified, wants: &[FileEntry]) -> Result<(), UpgradeFault> {
    let stage = stage(paths).await?;
    let wanted: HashSet<Digest> = wants.iter().map(|want| want.sha256).collect();
    blocking(move || {
        let sha256 = verified.sha256();
        let signatures: Vec<(String, Vec<u8>)> =
            verified.signatures().iter().map(|(id, bytes)| (id.to_string(), bytes.clone())).collect();
        stage.keep_manifest(&sha256, verified.bytes(), &signatures)?;
        stage.clean_manifests(&HashSet::from([sha256]))?;
        stage.clean_files(&wanted)
    })
    .await
}

async fn empty(paths: &Paths) -> Result<(), UpgradeFault> {
    if !paths.upgrade_dir().exists() {
        return Ok(());
    }
    let stage = stage(paths).await?;
    blocking(move || stage.clean_manifests(&HashSet::new()).and_then(|()| stage.clean_files(&HashSet::new())))
        .await
}

async fn download(
    paths: &Paths,
    release: Option<Arc<Release>>,
    network: Arc<Notify>,
    teller: &Teller,
) -> Result<(), UpgradeFault> {
    let release = release.ok_or_else(lost)?;
    let stage = stage(paths).await?;
    let options = Options { may_clean: true, network, ..Options::default() };
    let told = |progress: &fetch::Progress| teller.tell(Figures::Download(progress.clone()));
    fetch(Arc::clone(&release.source), stage, release.wants.clone(), options, told).await.map(drop)
}

async fn look_again(
    paths: &Paths,
    release: Option<Arc<Release>>,
    teller: &Teller,
) -> Result<(), UpgradeFault> {
    let release = release.ok_or_else(lost)?;
    let stage = stage(paths).await?;
    let total = release.wants.iter().map(|want| want.size).sum();
    let told = |done| teller.tell(Figures::Plain(done, total));
    fetch::verify(stage, release.wants.clone(), told).await.map(drop)
}

/// The core asks for a download only after a release was found in the same run.
fn lost() -> UpgradeFault {
    UpgradeFault::helper("the release that was found is not known any more")
}
