//! Carries out effects: each becomes a task or a small piece of file work, and comes back as one message.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use console::text::Safe;
use hwprobe::{Changed, Inventory, MachinePart, NetworkPart, Roots};
use tokio::sync::mpsc::Sender;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use super::Options;
use super::upgrade::{Ports, Told, Upgrader};
use crate::config::UpgradeSettings;
use crate::control::Asked;
use crate::diagnosis::facts::Past;
use crate::diagnosis::rows::Diagnosis;
use crate::diagnosis::{self, Subject};
use crate::durable_file;
use crate::faults::{When, point};
use crate::founder::{Answered, Client, Proofs};
use crate::handoff::{Delivery, Redactor, check};
use crate::identity;
use crate::join::effect::{Effect, Timer};
use crate::join::event::{Event, IdentityView, ProbeView, StepReport};
use crate::join::fault::{Code, Fault};
use crate::join::state::State;
use crate::paths::Paths;
use crate::privileged::{self, Privileged};
use crate::protocol::encoding::Pin;
use crate::protocol::url::Endpoint;
use crate::protocol::wire::{self, RegistrationRequest};
use crate::report::Machine;
use crate::request::JoinRequest;
use crate::upgrade::source::FounderSource;

/// Between two wishes for the chassis light.
const BLINK_PAUSE: Duration = Duration::from_secs(10);

/// What tasks tell the driver.
pub(super) enum Msg {
    /// An event as it is.
    Event(Event),
    /// An answer to the main lane's call of this number; older ones are nobody's.
    Main(u64, Box<Main>),
    /// An answer to a post, with the CA that gave it.
    Post(Box<Event>, Option<Pin>),
    /// The probe ended.
    Probed(Result<Box<Probed>, Fault>),
    /// Addresses and links were read again.
    Network(Option<Box<NetworkPart>>),
    /// The kernel says that disks or the network may have changed.
    Changed(Changed),
    /// request.json changed.
    RequestChanged,
    /// The banner is written, or not.
    BannerDone(Result<(), Fault>),
    /// A key of the console.
    Asked(Asked),
    /// Of the self-upgrade.
    Upgrade(Told),
}

impl From<Asked> for Msg {
    fn from(asked: Asked) -> Self {
        Self::Asked(asked)
    }
}

/// An answer of the main lane.
pub(super) enum Main {
    Event(Event, Option<Pin>),
    Polled(Result<Answered<wire::Registration>, Fault>),
}

/// A finished probe.
pub(super) struct Probed {
    machine: MachinePart,
    network: NetworkPart,
}

/// The ports, and what they hold between two effects.
pub(super) struct Performer {
    options: Options,
    helper: Arc<dyn Privileged>,
    boot_id: String,
    tx: Sender<Msg>,
    tasks: JoinSet<()>,
    timers: BTreeMap<Timer, Instant>,
    main: Option<AbortHandle>,
    main_no: u64,
    request: Option<JoinRequest>,
    client: Option<Arc<Client>>,
    proofs: Arc<Proofs>,
    client_fp: [u8; 32],
    hardware: Option<MachinePart>,
    network: Option<NetworkPart>,
    inventory: Option<Arc<Inventory>>,
    /// What the cluster was told last, and how many inventories it was told in this boot of the agent.
    told: Option<([u8; 32], u64)>,
    machine: Machine,
    /// Addresses and links are being read again.
    looking: bool,
    delivery: Option<Delivery>,
    /// A delivery of this registration was handed over, in this run or in an earlier one.
    handed_over: bool,
    redactor: Redactor,
    /// When the chassis light was asked for.
    blinked: Option<Instant>,
    upgrader: Upgrader,
    exiting: bool,
}

// === impl Performer ===

impl Performer {
    pub(super) fn new(
        options: Options,
        helper: Arc<dyn Privileged>,
        boot_id: String,
        upgrade: UpgradeSettings,
        tx: Sender<Msg>,
    ) -> Self {
        Self {
            options,
            helper,
            boot_id,
            tx,
            tasks: JoinSet::new(),
            timers: BTreeMap::new(),
            main: None,
            main_no: 0,
            request: None,
            client: None,
            proofs: Arc::default(),
            client_fp: [0; 32],
            hardware: None,
            network: None,
            inventory: None,
            told: None,
            machine: Machine::default(),
            looking: false,
            delivery: None,
            handed_over: false,
            redactor: Redactor::new(),
            blinked: None,
            upgrader: Upgrader::new(upgrade),
            exiting: false,
        }
    }

    pub(super) fn paths(&self) -> &Paths {
        &self.options.paths
    }

    pub(super) fn machine(&self) -> &Machine {
        &self.machine
    }

    pub(super) fn exiting(&self) -> bool {
        self.exiting
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.timers.values().min().copied()
    }

    pub(super) fn due(&mut self) -> Vec<Timer> {
        let now = Instant::now();
        let due: Vec<Timer> = self.timers.iter().filter(|(_, at)| **at <= now).map(|(t, _)| *t).collect();
        for timer in &due {
            self.timers.remove(timer);
        }
        due
    }

    pub(super) fn set_request(&mut self, request: Option<JoinRequest>) {
        if let Some(code) = request.as_ref().and_then(|r| r.code.as_ref()) {
            self.proofs.warm(code);
        }
        self.request = request;
    }

    pub(super) fn set_upgrade(&mut self, settings: UpgradeSettings) {
        self.upgrader.set(settings);
    }

    fn upgrade(&mut self, what: crate::join::upgrade::Do, state: &State, pins: Vec<Pin>) {
        let endpoint = self.request.as_ref().map(|request| request.endpoint.clone());
        let join_id = state.d.registration.as_ref().map(|record| record.join_id.clone());
        let founder = match (self.client.clone(), endpoint, join_id) {
            (Some(client), Some(endpoint), Some(join_id)) => {
                Some(FounderSource::new(client, endpoint, pins, join_id))
            }
            _ => None,
        };
        let (paths, helper, tx) = (&self.options.paths, self.helper.clone(), self.tx.clone());
        self.upgrader.start(what, state, Ports { paths, helper, founder, tx, tasks: &mut self.tasks });
    }

    pub(super) fn clean_report(&self, report: StepReport) -> StepReport {
        self.redactor.clean_report(report)
    }

    /// Starts an effect. What is done at once gives its event at once.
    pub(super) fn start(&mut self, effect: Effect, state: &State) -> Vec<Event> {
        // A task that panicked would be an effect without an answer: a silent stall.
        while let Some(ended) = self.tasks.try_join_next() {
            if let Err(error) = ended
                && let Ok(panic) = error.try_into_panic()
            {
                std::panic::resume_unwind(panic);
            }
        }
        self.handed_over = state.d.handoff.is_some();
        let pins = state.d.pins();
        match effect {
            Effect::Arm(timer, ms) => {
                self.timers.insert(timer, Instant::now() + Duration::from_millis(ms));
            }
            Effect::Disarm(timer) => drop(self.timers.remove(&timer)),
            Effect::CancelMain => {
                self.main_no += 1;
                if let Some(main) = self.main.take() {
                    main.abort();
                }
            }
            Effect::Exit => self.exiting = true,
            Effect::Upgrade(what) => self.upgrade(what, state, pins),
            Effect::Say(_) => {}
            Effect::LoadIdentity => return vec![self.load_identity()],
            Effect::DiscardIdentity => {
                self.client = None;
                if let Err(error) = identity::discard(&self.paths().identity_dir()) {
                    return vec![Event::Identity(Err(error.fault()))];
                }
                return vec![self.load_identity()];
            }
            Effect::Probe { disks } => self.probe(disks),
            Effect::Diagnose(past) => self.diagnose(*past),
            Effect::EraseCode => {
                let ours = self.request.as_ref().map(|request| request.view().id);
                let erased = JoinRequest::erase_code(self.paths(), ours).map_err(Fault::from);
                if let (Ok(()), Some(request)) = (&erased, &mut self.request) {
                    request.forget_code();
                    self.proofs.forget();
                }
                return vec![Event::CodeErased(erased)];
            }
            Effect::WriteJoinedMarker => return vec![Event::JoinedMarked(self.mark_joined())],
            Effect::WriteDelivery { attempt, sha256 } => return self.write_delivery(attempt, &sha256),
            Effect::StartFirstboot { attempt, sha256, log_cursor } => {
                let (helper, tx) = (self.helper.clone(), self.tx.clone());
                let (events, mut forward) = tokio::sync::mpsc::channel(16);
                let to_driver = tx.clone();
                self.tasks.spawn(async move {
                    while let Some(event) = forward.recv().await {
                        let _ = to_driver.send(Msg::Event(event)).await;
                    }
                });
                self.tasks.spawn(async move {
                    point("firstboot-follow", When::Before);
                    let end = helper.start_firstboot(attempt, &sha256, log_cursor, events.clone()).await;
                    point("firstboot-follow", When::After);
                    // Through the same channel as the lines before it, so that it stays behind them.
                    let _ = events.send(Event::FirstbootEnded(end)).await;
                });
            }
            effect => {
                if state.v.trouble.is_some() {
                    self.look_at_network();
                }
                self.ask_founder(effect, pins);
            }
        }
        Vec::new()
    }

    /// Turns a message into events; late answers are dropped.
    pub(super) fn understand(&mut self, msg: Msg) -> Vec<Event> {
        let seen = |pin: Option<Pin>| pin.map(Event::CaAnswered);
        match msg {
            Msg::Event(event) => vec![event],
            Msg::Post(event, pin) => seen(pin).into_iter().chain([*event]).collect(),
            Msg::Main(no, _) if no != self.main_no => Vec::new(),
            Msg::Main(_, answer) => match *answer {
                Main::Event(mut event, pin) => {
                    if let Event::Registered(Ok(view)) = &mut event {
                        self.redact(view);
                    }
                    seen(pin).into_iter().chain([event]).collect()
                }
                Main::Polled(answer) => self.polled(answer),
            },
            Msg::Probed(answer) => vec![Event::Probed(answer.map(|probed| self.probed(*probed)))],
            Msg::Network(network) => self.networked(network.map(|network| *network)),
            Msg::Changed(changed) => {
                if changed.network {
                    self.look_at_network();
                }
                if changed.devices { vec![Event::HardwareChanged { disks: true }] } else { Vec::new() }
            }
            Msg::Upgrade(told) => self.upgrader.understand(told).into_iter().collect(),
            Msg::RequestChanged | Msg::BannerDone(_) | Msg::Asked(_) => Vec::new(),
        }
    }

    // --- identity, hardware, files ------------------------------------------------------------

    fn load_identity(&mut self) -> Event {
        Event::Identity(match identity::load_or_create(&self.paths().identity_dir()) {
            Ok(loaded) => {
                if let Some(notice) = &loaded.notice {
                    tracing::warn!("{notice}");
                }
                self.client_fp = loaded.identity.client_fp();
                self.client = Some(Arc::new(Client::with(Arc::new(loaded.identity), self.proofs.clone())));
                Ok(IdentityView { client_fp: self.client_fp, made: loaded.made })
            }
            Err(error) => Err(error.fault()),
        })
    }

    /// The machine is the helper's to read, the network is ours: a helper without one sees no NIC.
    fn probe(&mut self, disks: bool) {
        let (helper, tx, tree) = (self.helper.clone(), self.tx.clone(), self.options.probe_root.clone());
        let known = self.hardware.clone().filter(|_| !disks);
        self.tasks.spawn(async move {
            point("probe", When::Before);
            let network = tokio::task::spawn_blocking(move || network(tree.as_deref()));
            let machine = match known {
                Some(machine) => Ok(machine),
                None => helper.probe().await,
            };
            let network = network
                .await
                .unwrap_or_else(|_| Err(Fault::new(Code::Local, "reading the network broke off")));
            let probed = machine.and_then(|machine| Ok(Box::new(Probed { machine, network: network? })));
            point("probe", When::After);
            let _ = tx.send(Msg::Probed(probed)).await;
        });
    }

    /// Blinks, and tells who asked. Only once in 10 s: the light blinks for a minute anyway.
    pub(super) fn identify(&mut self, asked: Asked) {
        if self.blinked.is_some_and(|at| at.elapsed() < BLINK_PAUSE) {
            return asked.answer(Err("it blinks already".to_owned()));
        }
        self.blinked = Some(Instant::now());
        let helper = self.helper.clone();
        self.tasks.spawn(async move {
            let done = helper.identify_led().await;
            if let Err(fault) = &done {
                tracing::warn!("the chassis light does not blink: {}", fault.chain);
            }
            asked.answer(done.map_err(|fault| fault.detail.to_string()));
        });
    }

    /// Looks at the way to the founder, beside everything else. It ends by itself.
    fn diagnose(&mut self, past: Past) {
        let tx = self.tx.clone();
        let Some(endpoint) = self.request.as_ref().map(|request| request.endpoint.clone()) else {
            // The core does not ask without one; the request file may have gone meanwhile.
            let nothing =
                Diagnosis { endpoint: Safe::default(), rows: Vec::new(), timed_out: false, took_ms: 0 };
            self.tasks.spawn(async move {
                let _ = tx.send(Msg::Event(Event::Diagnosed(Box::new(nothing)))).await;
            });
            return;
        };
        let subject = Subject { endpoint, past, synced: diagnosis::synced(self.paths()) };
        self.tasks.spawn(async move {
            let found = diagnosis::run(subject).await;
            let _ = tx.send(Msg::Event(Event::Diagnosed(Box::new(found)))).await;
        });
    }

    /// An address that came after the start is shown, and sent with the registration: while nothing answers, and before what is tried next, the
    /// network is read again. The disks are not.
    fn look_at_network(&mut self) {
        if self.looking || self.hardware.is_none() {
            return;
        }
        self.looking = true;
        let (tx, tree) = (self.tx.clone(), self.options.probe_root.clone());
        self.tasks.spawn_blocking(move || {
            let network = network(tree.as_deref());
            let _ = tx.blocking_send(Msg::Network(network.ok().map(Box::new)));
        });
    }

    /// An address that comes or goes ends a wait, and is told to the cluster. What the kernel only repeats is nothing.
    fn networked(&mut self, network: Option<NetworkPart>) -> Vec<Event> {
        self.looking = false;
        let (Some(machine), Some(network)) = (self.hardware.clone(), network) else { return Vec::new() };
        if self.network.as_ref() == Some(&network) {
            return Vec::new();
        }
        self.assemble(machine, network);
        self.upgrader.network_changed();
        vec![Event::NetworkChanged, Event::HardwareChanged { disks: false }]
    }

    fn assemble(&mut self, machine: MachinePart, network: NetworkPart) -> Arc<Inventory> {
        let local = self.request.as_ref().and_then(|r| local_address(&r.endpoint));
        self.network = Some(network.clone());
        let inventory = Arc::new(Inventory::assemble(machine, network));
        self.machine = Machine::of(&inventory, local);
        self.inventory = Some(inventory.clone());
        inventory
    }

    fn probed(&mut self, probed: Probed) -> ProbeView {
        let text = |text: &Option<String>| text.as_ref().map(Safe::clean);
        let (product_uuid, install_id) =
            (text(&probed.machine.product_uuid), text(&probed.machine.install_id));
        self.hardware = Some(probed.machine.clone());
        let inventory = self.assemble(probed.machine, probed.network);
        ProbeView {
            digest: inventory.digest(),
            steady: inventory.steady_digest(),
            hardware: inventory.hardware_digest(),
            product_uuid,
            install_id,
            release: inventory.host.release.as_ref().map(|r| Safe::clean(r.as_str())),
        }
    }

    /// The marker comes last: once it is there nobody comes back to remove what a member must not keep.
    fn mark_joined(&mut self) -> Result<(), Fault> {
        if let Err(error) = JoinRequest::erase_code(self.paths(), None) {
            tracing::warn!("the join code could not be removed: {error}");
        }
        identity::discard(&self.paths().identity_dir()).map_err(|e| e.fault())?;
        durable_file::write(&self.paths().joined_marker(), b"", 0o600, "joined-mark").map_err(|e| e.fault())
    }

    fn write_delivery(&mut self, attempt: Option<u64>, sha256: &str) -> Vec<Event> {
        let Some(delivery) = self.delivery.clone().filter(|d| d.sha256() == sha256) else {
            let fault = Fault::new(Code::DeliveryMismatch, "the delivery in hand is another one");
            return vec![Event::DeliveryWritten(Err(fault))];
        };
        let (helper, tx) = (self.helper.clone(), self.tx.clone());
        self.tasks.spawn(async move {
            let written = helper.write_delivery(attempt, &delivery).await;
            let _ = tx.send(Msg::Event(Event::DeliveryWritten(written))).await;
        });
        Vec::new()
    }

    fn polled(&mut self, answer: Result<Answered<wire::Registration>, Fault>) -> Vec<Event> {
        let Answered { mut value, ca } = match answer {
            Ok(answered) => answered,
            Err(fault) => return vec![Event::Polled(Err(fault))],
        };
        let delivery = match value.delivery.take().map(Delivery::from_wire) {
            None => None,
            Some(Err(fault)) => return vec![Event::CaAnswered(ca), Event::Polled(Err(fault))],
            Some(Ok(delivery)) => {
                point("delivery-receive", When::Before);
                self.redactor.learn(&delivery);
                point("delivery-receive", When::During);
                let view = check(&delivery);
                self.delivery = Some(delivery);
                point("delivery-receive", When::After);
                Some(view)
            }
        };
        self.redact(&mut value);
        vec![Event::CaAnswered(ca), Event::Polled(Ok((Box::new(value), delivery)))]
    }

    /// firstboot tells the founder of a failed step itself (documented), and its error comes back to us: what it printed of the delivery is not
    /// for our log and screen.
    ///
    /// After a restart the founder gives no delivery in `failed`, so what must not be shown is not known: then its text is left at the cluster.
    fn redact(&self, view: &mut wire::Registration) {
        let blind = self.handed_over && self.delivery.is_none();
        let left = || Safe::clean("the cluster has the text; it is not repeated here after a restart");
        view.failed_error = view
            .failed_error
            .take()
            .map(|error| if blind { left() } else { self.redactor.clean_text(error.as_str()) });
        view.failed_step_title =
            view.failed_step_title.take().map(|title| self.redactor.clean_text(title.as_str()));
    }

    // --- the founder ----------------------------------------------------------------------------

    fn registration(
        &mut self,
        proof: Option<(crate::protocol::encoding::B64<16>, crate::protocol::encoding::B64<32>)>,
        fit: usize,
        self_upgrade: bool,
    ) -> Result<RegistrationRequest, Fault> {
        let inventory =
            self.inventory.clone().ok_or_else(|| Fault::new(Code::Local, "the hardware was not read"))?;
        let digest = inventory.digest();
        let generation = match self.told {
            Some((told, generation)) if told == digest => generation,
            Some((_, generation)) => generation + 1,
            None => 1,
        };
        self.told = Some((digest, generation));
        let fitted = Inventory { generation, ..Inventory::clone(&inventory) }.fit(fit);
        let inventory =
            serde_json::value::to_raw_value(&fitted).map_err(|e| Fault::from_error(Code::Local, &e))?;
        let host = &fitted.host;
        let release = host.release.as_ref().map(|r| r.as_str().to_owned());
        let release = release
            .ok_or_else(|| Fault::new(Code::Unsupported, "this system's os-release has no VERSION_ID"))?;
        let hex = data_encoding::HEXLOWER.encode(&self.client_fp[..4]);
        let hostname = host.hostname.as_ref().map(|h| h.as_str().to_owned()).filter(|h| is_host_name(h));
        let serial = host.serial.as_ref().map_or("", |s| s.as_str());
        let printable = |c: char| if c.is_ascii_graphic() || c == ' ' { c } else { '?' };
        Ok(RegistrationRequest {
            proof_id: proof.map(|(id, _)| id),
            pairing_nonce: proof.map(|(_, nonce)| nonce),
            release,
            self_upgrade,
            hostname: hostname.unwrap_or_else(|| format!("node-{hex}")),
            serial: serial.chars().map(printable).take(128).collect(),
            agent: env!("CARGO_PKG_VERSION").to_owned(),
            boot_id: self.boot_id.clone(),
            inventory,
        })
    }

    fn ask_founder(&mut self, effect: Effect, pins: Vec<Pin>) {
        let request = self.request.clone();
        let (Some(client), Some(request)) = (self.client.clone(), request) else {
            let fault = Fault::new(Code::Local, "the join request is gone");
            return self.answer_at_once(&effect, fault);
        };
        let endpoint = request.endpoint;
        let posts = matches!(effect, Effect::SendProgress { .. } | Effect::SendLog { .. });
        let tx = self.tx.clone();
        if posts {
            self.tasks.spawn(async move {
                let (event, pin) = match effect {
                    Effect::SendProgress { join_id, body } => {
                        let (answer, pin) = split(client.progress(&endpoint, &pins, &join_id, &body).await);
                        (Event::ProgressSent(answer), pin)
                    }
                    Effect::SendLog { join_id, body } => {
                        let (answer, pin) = split(client.log(&endpoint, &pins, &join_id, &body).await);
                        (Event::LogSent(answer), pin)
                    }
                    _ => return,
                };
                let _ = tx.send(Msg::Post(Box::new(event), pin)).await;
            });
            return;
        }
        self.main_no += 1;
        let no = self.main_no;
        let body = match &effect {
            Effect::Register { proof_id, nonce, fit, self_upgrade } => {
                self.registration(Some((*proof_id, nonce.0)), *fit, *self_upgrade).map(Some)
            }
            Effect::Reregister { fit, self_upgrade, .. } => {
                self.registration(None, *fit, *self_upgrade).map(Some)
            }
            _ => Ok(None),
        };
        let body = match body {
            Ok(body) => body,
            Err(fault) => return self.answer_at_once(&effect, fault),
        };
        let code = request.code;
        let handle = self.tasks.spawn(async move {
            let main = match (effect, body) {
                (Effect::Observe { pins: accepted }, _) => {
                    let pinned = !pins.is_empty();
                    let answer = client.observe(&endpoint, &accepted).await;
                    // Against the URL's pin it is another key than the URL says; against a proven one the cluster's key changed.
                    let answer = answer.map_err(|mut fault| {
                        if pinned && fault.code == Code::PinMismatch {
                            fault.code = Code::FounderKeyChanged;
                        }
                        fault
                    });
                    Main::Event(Event::Observed(answer), None)
                }
                (Effect::StartProof { ca }, _) => {
                    let answer = match &code {
                        Some(code) => client.prove(&endpoint, ca, code, wire::Intent::Register).await,
                        None => Err(Fault::new(Code::JoinNotFound, "no join code is saved on this machine")),
                    };
                    Main::Event(Event::Proven(answer), None)
                }
                (Effect::Confirm { ca, proof_id, commit }, _) => {
                    let answer = client.confirm(&endpoint, ca, proof_id, Some(commit)).await;
                    Main::Event(Event::Confirmed(answer), None)
                }
                (Effect::Register { .. }, Some(body)) => {
                    let (answer, pin) = split(client.register(&endpoint, &pins, &body).await);
                    Main::Event(Event::Registered(answer.map(Box::new)), pin)
                }
                (Effect::Reregister { join_id, .. }, Some(body)) => {
                    let (answer, pin) = split(client.reregister(&endpoint, &pins, &join_id, &body).await);
                    Main::Event(Event::Registered(answer.map(Box::new)), pin)
                }
                (Effect::Poll { join_id, wait, state, skip_delivery }, _) => {
                    Main::Polled(client.poll(&endpoint, &pins, &join_id, wait, &state, skip_delivery).await)
                }
                (Effect::Ack { join_id, attempt, sha256 }, _) => {
                    let body = wire::AckRequest { attempt, sha256 };
                    let (answer, pin) = split(client.ack(&endpoint, &pins, &join_id, &body).await);
                    Main::Event(Event::Acked(answer), pin)
                }
                _ => return,
            };
            let _ = tx.send(Msg::Main(no, Box::new(main))).await;
        });
        self.main = Some(handle);
    }

    /// The call cannot even be made: its answer is that fault.
    fn answer_at_once(&mut self, effect: &Effect, fault: Fault) {
        let Some(event) = effect.failed(fault) else { return };
        let tx = self.tx.clone();
        self.tasks.spawn(async move {
            let _ = tx.send(Msg::Event(event)).await;
        });
    }
}

fn split<T>(answer: Result<Answered<T>, Fault>) -> (Result<T, Fault>, Option<Pin>) {
    match answer {
        Ok(Answered { value, ca }) => (Ok(value), Some(ca)),
        Err(fault) => (Err(fault), None),
    }
}

/// NICs, addresses and routes of this machine or of the captured tree.
fn network(tree: Option<&Path>) -> Result<NetworkPart, Fault> {
    Ok(hwprobe::probe_network(&privileged::roots(tree)?, &hwprobe::Options::default()))
}

/// `VERSION_ID` of the running OS: of the root when it has one, else of this machine.
pub fn release(paths: &Paths) -> Option<String> {
    let of = |roots: std::io::Result<Roots>| hwprobe::release(&roots.ok()?).map(|r| r.as_str().to_owned());
    of(Roots::under(paths.root())).or_else(|| of(Roots::live()))
}

/// Our address towards the founder, as the kernel's routes say. Connecting a UDP socket sends nothing.
fn local_address(endpoint: &Endpoint) -> Option<IpAddr> {
    let crate::protocol::url::Host::Ip(ip) = endpoint.host else { return None };
    let any = if ip.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(SocketAddr::new(ip, endpoint.port)).ok()?;
    socket.local_addr().ok().map(|a| a.ip())
}

/// RFC 1123: labels of letters, digits and inner hyphens, 1 to 63 each, 253 in all.
fn is_host_name(name: &str) -> bool {
    let label = |l: &str| {
        (1..=63).contains(&l.len())
            && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !l.starts_with('-')
            && !l.ends_with('-')
    };
    name.len() <= 253 && !name.is_empty() && name.split('.').all(label)
}
