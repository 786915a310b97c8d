//! Facts about firstboot as a unit, with a fake of systemd and logind on the other end of a socket pair: a real one needs a machine that it
//! booted (tests/vm).

use std::sync::{Arc, Mutex};

use std::os::unix::net::UnixStream;
use tokio::sync::mpsc;
use zbus::object_server::SignalEmitter;
use zbus::{OwnedFd, OwnedObjectPath};

use super::super::bus::Bus;
use super::super::{FirstbootRunner, InProcess, Privileged};
use super::*;
use crate::durable_file;
use crate::handoff::{Delivery, fixture};
use crate::paths::Paths;

const BOOT: &str = "11111111-2222-3333-4444-555555555555";
const UNIT: &str = "/org/freedesktop/systemd1/unit/stratum_2dfirstboot_2eservice";

/// What the fake does and counts.
#[derive(Default)]
struct Fake {
    load: &'static str,
    active: &'static str,
    sub: &'static str,
    result: &'static str,
    status: i32,
    remains: bool,
    job: bool,
    starts: u8,
    stops: u8,
    subscribed: bool,
    /// Which of the next looks at the unit is not answered; 0 is none.
    away_at: u32,
    inhibited: usize,
    reboots: usize,
    /// How a start ends: `done` gives an invocation; anything else none.
    start: &'static str,
}

type Shared = Arc<Mutex<Fake>>;

#[derive(Debug, zbus::DBusError)]
#[zbus(prefix = "org.freedesktop.systemd1")]
enum Refused {
    AlreadySubscribed(String),
    Away(String),
    #[zbus(error)]
    ZBus(zbus::Error),
}

struct FakeManager(Shared);
struct FakeUnit(Shared);
struct FakeService(Shared);
struct FakeLogin(Shared);

fn path(text: &str) -> OwnedObjectPath {
    OwnedObjectPath::try_from(text.to_owned()).unwrap()
}

#[zbus::interface(name = "org.freedesktop.systemd1.Manager")]
impl FakeManager {
    /// As systemd's own: once for each connection.
    async fn subscribe(&self) -> Result<(), Refused> {
        let again = std::mem::replace(&mut self.0.lock().unwrap().subscribed, true);
        if again {
            Err(Refused::AlreadySubscribed("Client is already subscribed.".to_owned()))
        } else {
            Ok(())
        }
    }

    async fn load_unit(&self, name: &str) -> Result<OwnedObjectPath, Refused> {
        assert_eq!(name, FIRSTBOOT);
        let mut fake = self.0.lock().unwrap();
        let away = fake.away_at == 1;
        fake.away_at = fake.away_at.saturating_sub(1);
        if away { Err(Refused::Away("not now".to_owned())) } else { Ok(path(UNIT)) }
    }

    async fn start_unit(
        &self,
        name: &str,
        mode: &str,
        #[zbus(signal_emitter)] emitter: SignalEmitter<'_>,
    ) -> OwnedObjectPath {
        assert_eq!((name, mode), (FIRSTBOOT, "replace"));
        let how = {
            let mut fake = self.0.lock().unwrap();
            if fake.start == "done" && fake.active != "active" {
                fake.starts += 1;
                (fake.active, fake.sub, fake.result) = ("active", "running", "success");
            }
            fake.start
        };
        // The signal may overtake the answer.
        Self::job_removed(&emitter, 1, path("/job/1"), FIRSTBOOT.to_owned(), how.to_owned()).await.unwrap();
        path("/job/1")
    }

    async fn stop_unit(
        &self,
        _name: &str,
        _mode: &str,
        #[zbus(signal_emitter)] emitter: SignalEmitter<'_>,
    ) -> OwnedObjectPath {
        {
            let mut fake = self.0.lock().unwrap();
            fake.stops += 1;
            (fake.active, fake.sub) = ("inactive", "dead");
        }
        Self::job_removed(&emitter, 2, path("/job/2"), FIRSTBOOT.to_owned(), "done".to_owned())
            .await
            .unwrap();
        path("/job/2")
    }

    #[zbus(signal)]
    async fn job_removed(
        emitter: &SignalEmitter<'_>,
        id: u32,
        job: OwnedObjectPath,
        unit: String,
        result: String,
    ) -> zbus::Result<()>;
}

#[zbus::interface(name = "org.freedesktop.systemd1.Unit")]
impl FakeUnit {
    #[zbus(property)]
    async fn load_state(&self) -> String {
        self.0.lock().unwrap().load.to_owned()
    }
    #[zbus(property)]
    async fn active_state(&self) -> String {
        self.0.lock().unwrap().active.to_owned()
    }
    #[zbus(property)]
    async fn sub_state(&self) -> String {
        self.0.lock().unwrap().sub.to_owned()
    }
    #[zbus(property)]
    async fn job(&self) -> (u32, OwnedObjectPath) {
        if self.0.lock().unwrap().job { (7, path("/org/freedesktop/systemd1/job/7")) } else { (0, path("/")) }
    }
    #[zbus(property, name = "InvocationID")]
    async fn invocation_id(&self) -> Vec<u8> {
        match self.0.lock().unwrap().starts {
            0 => Vec::new(),
            n => vec![n; 16],
        }
    }
}

#[zbus::interface(name = "org.freedesktop.systemd1.Service")]
impl FakeService {
    #[zbus(property)]
    async fn result(&self) -> String {
        self.0.lock().unwrap().result.to_owned()
    }
    #[zbus(property)]
    async fn exec_main_status(&self) -> i32 {
        self.0.lock().unwrap().status
    }
    #[zbus(property)]
    async fn remain_after_exit(&self) -> bool {
        self.0.lock().unwrap().remains
    }
}

#[zbus::interface(name = "org.freedesktop.login1.Manager")]
impl FakeLogin {
    async fn inhibit(&self, what: &str, _who: &str, _why: &str, mode: &str) -> OwnedFd {
        assert_eq!((what, mode), ("shutdown", "block"));
        self.0.lock().unwrap().inhibited += 1;
        OwnedFd::from(std::os::fd::OwnedFd::from(std::fs::File::open("/dev/null").unwrap()))
    }
    async fn reboot(&self, _interactive: bool) {
        self.0.lock().unwrap().reboots += 1;
    }
}

struct World {
    _dir: tempfile::TempDir,
    paths: Paths,
    fake: Shared,
    _systemd: zbus::Connection,
    bus: Bus,
}

impl World {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::under(dir.path());
        let fake: Shared = Arc::new(Mutex::new(Fake {
            load: "loaded",
            active: "inactive",
            sub: "dead",
            result: "success",
            remains: true,
            start: "done",
            ..Fake::default()
        }));
        let (here, there) = UnixStream::pair().unwrap();
        let guid = zbus::Guid::generate();
        let server = zbus::connection::Builder::unix_stream(there)
            .server(guid)
            .p2p()
            .serve_at("/org/freedesktop/systemd1", FakeManager(fake.clone()))
            .serve_at(UNIT, FakeUnit(fake.clone()))
            .serve_at(UNIT, FakeService(fake.clone()))
            .serve_at("/org/freedesktop/login1", FakeLogin(fake.clone()))
            .build();
        let client = zbus::connection::Builder::unix_stream(here).p2p().build();
        let (server, client) = tokio::join!(server, client);
        let bus = Bus::over(client.unwrap());
        Self { _dir: dir, paths, fake, _systemd: server.unwrap(), bus }
    }

    fn verbs(&self) -> InProcess {
        self.verbs_in(BOOT)
    }

    fn verbs_in(&self, boot: &str) -> InProcess {
        let mut verbs = InProcess::new(self.paths.clone(), FirstbootRunner::Unit, boot);
        verbs.bus = Some(self.bus.clone());
        verbs
    }

    async fn deliver(&self, attempt: u64) -> String {
        let yaml = format!("{}# {attempt}\n", fixture::NODE_YAML);
        let delivery = Delivery::new(yaml.into_bytes(), fixture::bundle().to_string().into_bytes()).unwrap();
        self.verbs().write_delivery(Some(attempt), &delivery).await.unwrap()
    }

    /// The verb, with firstboot ending as `sub`, `result` and `status` say once it is told to run.
    async fn run(&self, attempt: u64, sha256: &str, end: (&'static str, &'static str, i32)) -> FirstbootEnd {
        let (events, mut told) = mpsc::channel(8);
        let verbs = self.verbs();
        let verb = verbs.start_firstboot(Some(attempt), sha256, None, events);
        let ending = async {
            while let Some(event) = told.recv().await {
                if matches!(event, Event::FirstbootRunning) {
                    self.end(end);
                }
            }
        };
        tokio::join!(verb, ending).0.unwrap()
    }

    fn end(&self, (active, result, status): (&'static str, &'static str, i32)) {
        let mut fake = self.fake.lock().unwrap();
        if fake.sub == "running" {
            (fake.active, fake.sub, fake.result, fake.status) = (active, "exited", result, status);
        }
    }

    fn starts(&self) -> u8 {
        self.fake.lock().unwrap().starts
    }

    async fn refused(&self, attempt: u64, sha256: &str) -> String {
        let (events, _told) = mpsc::channel(8);
        let fault = self.verbs().start_firstboot(Some(attempt), sha256, None, events).await.unwrap_err();
        fault.detail.to_string()
    }
}

const GOOD: (&str, &str, i32) = ("active", "success", 0);
const BAD: (&str, &str, i32) = ("failed", "exit-code", 3);

#[tokio::test]
async fn a_unit_that_ended_well_is_done_once_and_takes_the_bundle_away() {
    let world = World::new().await;
    let sha256 = world.deliver(1).await;
    assert_eq!(world.run(1, &sha256, GOOD).await, FirstbootEnd::Done);
    assert!(!world.paths.bundle().exists() && world.paths.node_yaml().exists());
    assert_eq!(world.run(1, &sha256, BAD).await, FirstbootEnd::Done);
    let fake = world.fake.lock().unwrap();
    assert_eq!((fake.starts, fake.inhibited), (1, 2));
}

#[tokio::test]
async fn how_a_unit_failed_is_told_in_words_and_told_again_after_a_reset() {
    for (end, words) in [
        (BAD, "exit status 3"),
        (("failed", "exit-code", 203), "exit status 203: the program could not be started"),
        (("failed", "signal", 9), "signal 9"),
        (("failed", "core-dump", 11), "signal 11"),
        (("failed", "oom-kill", 9), "the result oom-kill of its unit"),
        (("inactive", "success", 0), "a stop before it was done"),
    ] {
        let world = World::new().await;
        let sha256 = world.deliver(1).await;
        let failed = FirstbootEnd::Failed(Safe::clean(words));
        assert_eq!(world.run(1, &sha256, end).await, failed);
        assert!(world.paths.bundle().exists());
        // systemctl reset-failed, or a start by hand.
        world.fake.lock().unwrap().starts = 9;
        assert_eq!(world.run(1, &sha256, GOOD).await, failed);
        assert_eq!(world.starts(), 9);
    }
}

#[tokio::test]
async fn a_higher_attempt_starts_it_again_also_when_it_remains_from_the_last() {
    let world = World::new().await;
    let first = world.deliver(1).await;
    assert_eq!(world.run(1, &first, GOOD).await, FirstbootEnd::Done);
    let second = world.deliver(2).await;
    assert!(matches!(world.run(2, &second, BAD).await, FirstbootEnd::Failed(_)));
    let third = world.deliver(3).await;
    assert_eq!(world.run(3, &third, GOOD).await, FirstbootEnd::Done);
    let fake = world.fake.lock().unwrap();
    assert_eq!((fake.starts, fake.stops), (3, 1));
}

#[tokio::test]
async fn who_asks_while_it_runs_follows_it_and_nothing_is_written_meanwhile() {
    let world = World::new().await;
    let sha256 = world.deliver(1).await;
    let (events, mut told) = mpsc::channel(8);
    {
        let verbs = world.verbs();
        let verb = verbs.start_firstboot(Some(1), &sha256, None, events);
        tokio::pin!(verb);
        tokio::select! {
            event = told.recv() => assert!(matches!(event, Some(Event::FirstbootRunning))),
            end = &mut verb => panic!("ended early: {end:?}"),
        }
    }
    let refused = world.verbs().write_delivery(Some(2), &fixture::delivery()).await.unwrap_err();
    assert_eq!(refused.detail, "firstboot is running: its files are not changed");
    assert_eq!(world.run(1, &sha256, GOOD).await, FirstbootEnd::Done);
    assert_eq!(world.starts(), 1);
}

#[tokio::test]
async fn while_a_start_waits_in_systemds_queue_no_other_delivery_takes_its_place() {
    let world = World::new().await;
    let sha256 = world.deliver(1).await;
    world.fake.lock().unwrap().job = true;
    let refused = world.verbs().write_delivery(Some(2), &fixture::delivery()).await.unwrap_err();
    assert_eq!(refused.detail, "firstboot is running: its files are not changed");
    // A job that somebody else made is not joined.
    assert_eq!(
        world.refused(1, &sha256).await,
        "firstboot of another attempt still runs: a second is not started"
    );
    // Our own is.
    let run = Run::of(&world.paths, Some(1), &sha256);
    run.write_note("before", "").unwrap();
    world.verbs().mark_started(&run, Some(1), &sha256).unwrap();
    assert_eq!(world.run(1, &sha256, GOOD).await, FirstbootEnd::Done);
    assert_eq!(world.starts(), 1);
}

#[tokio::test]
async fn a_start_that_was_cut_off_is_made_once() {
    // Killed after the marker and before systemd was asked.
    let world = World::new().await;
    let sha256 = world.deliver(1).await;
    let run = Run::of(&world.paths, Some(1), &sha256);
    run.write_note("before", "").unwrap();
    world.verbs().mark_started(&run, Some(1), &sha256).unwrap();
    assert_eq!(world.run(1, &sha256, GOOD).await, FirstbootEnd::Done);
    assert_eq!(world.starts(), 1);

    // Killed after systemd was asked and before that was written down; meanwhile it ended.
    let world = World::new().await;
    let sha256 = world.deliver(1).await;
    let run = Run::of(&world.paths, Some(1), &sha256);
    run.write_note("before", "").unwrap();
    world.verbs().mark_started(&run, Some(1), &sha256).unwrap();
    world.bus.start_firstboot(&world.bus.firstboot().await.unwrap()).await.unwrap();
    world.end(BAD);
    assert_eq!(world.run(1, &sha256, GOOD).await, FirstbootEnd::Failed(Safe::clean("exit status 3")));
    assert_eq!(world.starts(), 1);
}

#[tokio::test]
async fn a_systemd_that_is_away_for_a_moment_does_not_end_the_following() {
    let world = World::new().await;
    let sha256 = world.deliver(1).await;
    // The verb looks before the start, after it, once for the signals, and then whenever something may have changed.
    world.fake.lock().unwrap().away_at = 4;
    assert_eq!(world.run(1, &sha256, GOOD).await, FirstbootEnd::Done);
    assert_eq!((world.starts(), world.fake.lock().unwrap().away_at), (1, 0));
}

#[tokio::test]
async fn what_another_boot_started_is_lost() {
    let world = World::new().await;
    let sha256 = world.deliver(1).await;
    let (events, _told) = mpsc::channel(8);
    let other = world.verbs_in("99999999-2222-3333-4444-555555555555");
    let end = other.start_firstboot(Some(1), &sha256, None, events).await;
    assert_eq!((end.unwrap(), world.starts()), (FirstbootEnd::Lost, 0));
}

#[tokio::test]
async fn a_unit_that_would_forget_its_result_or_is_not_there_is_not_started() {
    let world = World::new().await;
    let sha256 = world.deliver(1).await;
    world.fake.lock().unwrap().remains = false;
    assert!(world.refused(1, &sha256).await.contains("lacks RemainAfterExit=yes"));
    world.fake.lock().unwrap().load = "not-found";
    assert_eq!(
        world.refused(1, &sha256).await,
        "stratum-firstboot.service is not installed: this image cannot become a node"
    );
    world.fake.lock().unwrap().load = "masked";
    assert!(world.refused(1, &sha256).await.contains("is masked"));
    assert_eq!(world.starts(), 0);
}

#[tokio::test]
async fn a_start_that_systemd_refuses_says_so_and_is_tried_again() {
    let world = World::new().await;
    let sha256 = world.deliver(1).await;
    for (how, words) in [("done-nothing", "could not start"), ("skipped", "a condition of the unit")] {
        world.fake.lock().unwrap().start = how;
        let why = world.refused(1, &sha256).await;
        assert!(why.contains(words), "{why}");
    }
    world.fake.lock().unwrap().start = "done";
    assert_eq!(world.run(1, &sha256, GOOD).await, FirstbootEnd::Done);
    assert_eq!(world.starts(), 1);
}

#[tokio::test]
async fn one_started_by_hand_is_not_taken_for_ours() {
    let world = World::new().await;
    let sha256 = world.deliver(1).await;
    {
        let mut fake = world.fake.lock().unwrap();
        (fake.starts, fake.active, fake.sub) = (1, "active", "running");
    }
    assert_eq!(
        world.refused(1, &sha256).await,
        "firstboot of another attempt still runs: a second is not started"
    );
    assert_eq!(world.starts(), 1);
}

#[tokio::test]
async fn a_reboot_needs_an_upgrade_that_was_armed_in_this_boot() {
    let world = World::new().await;
    assert!(world.verbs().reboot().await.is_err());
    durable_file::make_dir(&world.paths.os_dir(), 0o755).unwrap();
    let armed = format!("{{\"bootId\":\"{BOOT}\",\"release\":\"0.7.0\"}}");
    let path = world.paths.os_dir().join("armed.json");
    durable_file::write(&path, armed.as_bytes(), 0o644, "test").unwrap();
    world.verbs().reboot().await.unwrap();
    assert_eq!(world.fake.lock().unwrap().reboots, 1);
}
