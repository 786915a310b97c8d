//! Facts about the verbs, with a shell script as firstboot: it counts its starts and does what node.yaml says behind `# do: `.
//!
//! This file is two modules: the verbs done here, and the same ones asked for through the helper's socket.

use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;

use super::THROUGH_HELPER;
use crate::durable_file;
use crate::handoff::{Delivery, fixture};
use crate::privileged::delivery::Attempt;
use crate::privileged::helper::{Callers, Served, ThroughHelper, serve};
use crate::privileged::run::Run;
use crate::privileged::*;

const BOOT: &str = "11111111-2222-3333-4444-555555555555";

/// One script for all tests, written before the first of them can fork: a file that is open for writing cannot be executed.
fn script() -> PathBuf {
    static SCRIPT: OnceLock<tempfile::TempDir> = OnceLock::new();
    let dir = SCRIPT.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let text = "#!/bin/sh\necho start >> \"$2.count\"\neval \"$(sed -n 's/^# do: //p' \"$2\")\"\n";
        durable_file::write_volatile(&dir.path().join("firstboot"), text.as_bytes(), 0o755, "test").unwrap();
        dir
    });
    dir.path().join("firstboot")
}

pub(super) struct World {
    _dir: tempfile::TempDir,
    pub(super) paths: Paths,
}

impl World {
    pub(super) fn new() -> Self {
        script();
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::under(dir.path());
        durable_file::make_dir(&paths.state_dir(), 0o700).unwrap();
        durable_file::make_dir(&paths.public_dir(), 0o755).unwrap();
        Self { _dir: dir, paths }
    }

    fn verbs(&self) -> Box<dyn Privileged> {
        self.verbs_in(BOOT)
    }

    fn verbs_in(&self, boot: &str) -> Box<dyn Privileged> {
        self.verbs_with(boot, script())
    }

    fn verbs_with(&self, boot: &str, program: PathBuf) -> Box<dyn Privileged> {
        let verbs = InProcess::new(self.paths.clone(), FirstbootRunner::Command { program }, boot);
        if THROUGH_HELPER { Box::new(self.helper(verbs)) } else { Box::new(verbs) }
    }

    /// A helper for each connection, as systemd would start one.
    pub(super) fn helper(&self, verbs: InProcess) -> ThroughHelper {
        self.helper_telling(verbs, mpsc::unbounded_channel().0)
    }

    /// The same, and `ended` is told what came of each connection.
    pub(super) fn helper_telling(
        &self,
        verbs: InProcess,
        ended: mpsc::UnboundedSender<Served>,
    ) -> ThroughHelper {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let socket = self.paths.root().join(format!("helper-{}", COUNT.fetch_add(1, Ordering::Relaxed)));
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        let callers = Callers { agent: rustix::process::geteuid().as_raw() };
        #[expect(
            clippy::disallowed_methods,
            reason = "the tests' own helper; it ends with the test's runtime"
        )]
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let (verbs, ended) = (verbs.clone(), ended.clone());
                tokio::spawn(async move {
                    let _ = ended.send(serve(connection, callers, &verbs).await);
                });
            }
        });
        ThroughHelper::at(socket)
    }

    /// Writes a delivery whose firstboot does `what`; gives its digest.
    async fn deliver(&self, attempt: Option<u64>, what: &str) -> String {
        let yaml = format!("{}# do: {what}\n", fixture::NODE_YAML);
        let delivery = Delivery::new(yaml.into_bytes(), fixture::bundle().to_string().into_bytes()).unwrap();
        self.verbs().write_delivery(attempt, &delivery).await.unwrap()
    }

    fn starts(&self) -> usize {
        let count = self.paths.node_yaml().with_extension("yaml.count");
        std::fs::read_to_string(count).unwrap_or_default().lines().count()
    }

    /// A named pipe that holds a script up until it is opened for writing.
    fn gate(&self) -> PathBuf {
        let path = self.paths.root().join("gate");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        path
    }
}

/// What the verb told, besides its answer.
#[derive(Default)]
struct Told {
    running: usize,
    lines: Vec<String>,
    batches: Vec<usize>,
    cursor: Option<String>,
}

impl Told {
    fn take(&mut self, event: Event) {
        match event {
            Event::FirstbootRunning => self.running += 1,
            Event::FirstbootLog { lines, cursor } => {
                self.batches.push(lines.len());
                self.lines.extend(lines.iter().map(ToString::to_string));
                self.cursor = Some(cursor);
            }
            other => panic!("not an event of the verb: {other:?}"),
        }
    }
}

async fn start(
    verbs: &dyn Privileged,
    attempt: Option<u64>,
    sha256: &str,
    cursor: Option<String>,
) -> (Result<FirstbootEnd, Fault>, Told) {
    let (events, mut inbox) = mpsc::channel(4);
    let mut told = Told::default();
    let verb = verbs.start_firstboot(attempt, sha256, cursor, events);
    tokio::pin!(verb);
    loop {
        tokio::select! {
            biased;
            Some(event) = inbox.recv() => told.take(event),
            answer = &mut verb => {
                while let Ok(event) = inbox.try_recv() {
                    told.take(event);
                }
                return (answer, told);
            }
        }
    }
}

fn failed(words: &str) -> FirstbootEnd {
    FirstbootEnd::Failed(console::text::Safe::clean(words))
}

// --- write-delivery ---

#[tokio::test]
async fn a_delivery_lies_where_it_belongs_byte_for_byte_and_for_nobody_else() {
    let world = World::new();
    let delivery = fixture::delivery();
    let digest = world.verbs().write_delivery(Some(3), &delivery).await.unwrap();
    assert_eq!(digest, delivery.sha256());
    let paths = &world.paths;
    assert_eq!(std::fs::read(paths.node_yaml()).unwrap(), delivery.node_yaml());
    assert_eq!(std::fs::read(paths.bundle()).unwrap(), delivery.bundle());
    for (path, mode) in [
        (paths.node_yaml(), 0o600),
        (paths.bundle(), 0o600),
        (paths.attempt(), 0o600),
        (paths.delivery_dir(), 0o700),
    ] {
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777,
            mode,
            "{}",
            path.display()
        );
    }
    let said: Attempt = serde_json::from_slice(&std::fs::read(paths.attempt()).unwrap()).unwrap();
    assert_eq!(said, Attempt { attempt: Some(3), sha256: digest, boot_id: BOOT.to_owned() });
    assert_eq!(world.verbs().write_delivery(Some(3), &delivery).await.unwrap(), delivery.sha256());
}

#[tokio::test]
async fn a_member_is_never_written_to() {
    let world = World::new();
    durable_file::write(&world.paths.joined_marker(), b"", 0o600, "test").unwrap();
    let fault = world.verbs().write_delivery(Some(1), &fixture::delivery()).await.unwrap_err();
    assert!(fault.detail.as_str().starts_with("this machine is a member already"), "{}", fault.detail);
    assert!(!world.paths.node_yaml().exists() && !world.paths.bundle().exists());
}

#[tokio::test]
async fn a_bad_delivery_is_not_written() {
    let world = World::new();
    let bad = Delivery::new(b"a: &x 1\n".to_vec(), b"{}".to_vec()).unwrap();
    assert_eq!(world.verbs().write_delivery(Some(1), &bad).await.unwrap_err().code, Code::DeliveryInvalid);
    assert!(!world.paths.etc_dir().exists() && !world.paths.delivery_dir().exists());
}

#[tokio::test]
async fn what_a_crash_left_is_swept() {
    let world = World::new();
    durable_file::make_dir(&world.paths.etc_dir(), 0o755).unwrap();
    let torn = world.paths.etc_dir().join(".node.yaml.77-0.tmp");
    durable_file::write(&torn, b"half a secr", 0o600, "test").unwrap();
    world.verbs().write_delivery(None, &fixture::delivery()).await.unwrap();
    assert!(!torn.exists());
}

#[tokio::test]
async fn nothing_is_written_where_a_link_was_planted_and_the_text_names_it() {
    type Target = fn(&Paths) -> PathBuf;
    let targets: [Target; 5] = [Paths::node_yaml, Paths::bundle, Paths::attempt, Paths::issue, Paths::motd];
    for target in targets {
        for hard in [false, true] {
            let world = World::new();
            let paths = &world.paths;
            for dir in [paths.etc_dir(), paths.delivery_dir()] {
                durable_file::make_dir(&dir, 0o755).unwrap();
            }
            durable_file::write_volatile(&paths.snapshot(), &snapshot("pending"), 0o644, "test").unwrap();
            let victim = paths.root().join("victim");
            durable_file::write(&victim, b"untouched", 0o600, "test").unwrap();
            let path = target(paths);
            let planted = if hard {
                std::fs::hard_link(&victim, &path)
            } else {
                std::os::unix::fs::symlink(&victim, &path)
            };
            planted.unwrap();
            let fault = if path == paths.issue() || path == paths.motd() {
                world.verbs().reload_banner(true).await.unwrap_err()
            } else {
                world.verbs().write_delivery(None, &fixture::delivery()).await.unwrap_err()
            };
            let why = if hard { "has 2 hard links" } else { "is a symbolic link" };
            assert!(fault.detail.as_str().starts_with(&format!("{} {why}", path.display())), "{fault:?}");
            assert_eq!(std::fs::read(&victim).unwrap(), b"untouched", "{}", path.display());
        }
    }
}

#[tokio::test]
async fn a_directory_that_is_a_link_is_refused() {
    let world = World::new();
    let elsewhere = world.paths.root().join("elsewhere");
    durable_file::make_dir(&elsewhere, 0o755).unwrap();
    durable_file::make_dir(&world.paths.run_dir(), 0o755).unwrap();
    std::os::unix::fs::symlink(&elsewhere, world.paths.delivery_dir()).unwrap();
    let fault = world.verbs().write_delivery(None, &fixture::delivery()).await.unwrap_err();
    assert_eq!((fault.code, elsewhere.read_dir().unwrap().count()), (Code::Tampered, 0));
    assert!(fault.detail.as_str().ends_with("is not a directory"), "{}", fault.detail);
}

// --- start-firstboot ---

#[tokio::test]
async fn a_success_is_told_once_started_once_and_takes_the_bundle_away() {
    let world = World::new();
    let digest = world.deliver(Some(1), "echo one; printf two").await;
    let (end, told) = start(&*world.verbs(), Some(1), &digest, None).await;
    assert_eq!(end.unwrap(), FirstbootEnd::Done);
    assert_eq!((told.running, told.lines), (1, vec!["one".to_owned(), "two".to_owned()]));
    assert!(!world.paths.bundle().exists() && world.paths.node_yaml().exists());
    let (again, told) = start(&*world.verbs(), Some(1), &digest, told.cursor).await;
    assert_eq!((again.unwrap(), told.lines.len(), world.starts()), (FirstbootEnd::Done, 0, 1));
}

#[tokio::test]
async fn it_gets_its_config_its_bundle_and_its_socket_by_name() {
    let world = World::new();
    let what = "echo \"$1 $2\"; echo \"$STRATUM_JOIN_BUNDLE\"; echo \"$STRATUM_PROGRESS_SOCKET\"; pwd; ps -o sid= -p $$ | tr -d ' ' > \"$2.sid\"";
    let digest = world.deliver(Some(1), what).await;
    let (_, told) = start(&*world.verbs(), Some(1), &digest, None).await;
    let shown = |path: PathBuf| path.display().to_string();
    let want = [
        format!("--config {}", shown(world.paths.node_yaml())),
        shown(world.paths.bundle()),
        shown(world.paths.progress_socket()),
        "/".to_owned(),
    ];
    assert_eq!(told.lines, want);
}

#[tokio::test]
async fn a_failure_says_how_and_keeps_the_bundle() {
    for (what, words) in [
        ("exit 3", "exit status 3"),
        ("kill -9 $$", "signal 9"),
        ("kill -9 $PPID $$", "killed before it could say how it ended"),
    ] {
        let world = World::new();
        let digest = world.deliver(Some(1), what).await;
        let (end, _) = start(&*world.verbs(), Some(1), &digest, None).await;
        assert_eq!(end.unwrap(), failed(words), "{what}");
        assert!(world.paths.bundle().exists());
    }
}

#[tokio::test]
async fn a_program_that_is_not_there_is_a_failure_with_a_reason() {
    let world = World::new();
    let digest = world.deliver(Some(1), "true").await;
    let verbs = world.verbs_with(BOOT, "/no/such".into());
    let (end, _) = start(&*verbs, Some(1), &digest, None).await;
    assert_eq!(end.unwrap(), failed("exit status 127: the program could not be started"));
}

#[tokio::test]
async fn a_higher_attempt_runs_again_and_an_old_one_never() {
    let world = World::new();
    let first = world.deliver(Some(1), "exit 1").await;
    start(&*world.verbs(), Some(1), &first, None).await.0.unwrap();
    let second = world.deliver(Some(2), "exit 0").await;
    assert_eq!(start(&*world.verbs(), Some(2), &second, None).await.0.unwrap(), FirstbootEnd::Done);
    assert_eq!(start(&*world.verbs(), Some(1), &first, None).await.0.unwrap(), failed("exit status 1"));
    assert_eq!(world.starts(), 2);
}

#[tokio::test]
async fn without_attempts_a_digest_runs_once() {
    let world = World::new();
    let digest = world.deliver(None, "exit 0").await;
    start(&*world.verbs(), None, &digest, None).await.0.unwrap();
    start(&*world.verbs(), None, &digest, None).await.0.unwrap();
    assert_eq!(world.starts(), 1);
}

#[tokio::test]
async fn who_stops_following_can_follow_again_and_nothing_is_written_meanwhile() {
    let world = World::new();
    let gate = world.gate();
    let digest = world.deliver(Some(1), &format!("echo before; cat '{}'; echo after", gate.display())).await;
    let verbs = world.verbs();
    let (events, mut inbox) = mpsc::channel(64);
    let mut told = Told::default();
    {
        let following = verbs.start_firstboot(Some(1), &digest, None, events);
        tokio::pin!(following);
        while told.lines.is_empty() {
            tokio::select! {
                Some(event) = inbox.recv() => told.take(event),
                end = &mut following => panic!("ended early: {end:?}"),
            }
        }
    }
    let refused = world.verbs().write_delivery(Some(2), &fixture::delivery()).await.unwrap_err();
    assert_eq!(refused.detail, "firstboot is running: its files are not changed");
    let ((), (end, later)) = tokio::join!(open_gate(gate), async {
        start(&*world.verbs(), Some(1), &digest, told.cursor.clone()).await
    });
    assert_eq!((end.unwrap(), later.lines), (FirstbootEnd::Done, vec!["after".to_owned()]));
    assert_eq!(world.starts(), 1);
}

#[tokio::test]
async fn two_who_start_at_once_start_it_once() {
    let world = World::new();
    let digest = world.deliver(Some(1), "echo x").await;
    let verbs = world.verbs();
    let (one, two) =
        tokio::join!(start(&*verbs, Some(1), &digest, None), start(&*verbs, Some(1), &digest, None));
    assert_eq!((one.0.unwrap(), two.0.unwrap()), (FirstbootEnd::Done, FirstbootEnd::Done));
    assert_eq!(world.starts(), 1);
}

/// A run that is marked as started and not claimed by anybody, as a crash before the spawn leaves it.
fn marked(world: &World, digest: &str) -> Run {
    durable_file::make_dir(&world.paths.firstboot_dir(), 0o700).unwrap();
    let said = Attempt { attempt: Some(1), sha256: digest.to_owned(), boot_id: BOOT.to_owned() };
    let run = Run::of(&world.paths, Some(1), digest);
    run.mark_started(&said).unwrap();
    run
}

#[tokio::test]
async fn of_two_runners_of_one_run_one_goes_on() {
    let world = World::new();
    let digest = world.deliver(Some(1), "exit 0").await;
    let run = marked(&world, &digest);
    for _ in 0..2 {
        run.spawn(&script(), &world.paths).unwrap().wait().await.unwrap();
    }
    assert_eq!(world.starts(), 1);
}

#[tokio::test]
async fn a_run_that_was_not_claimed_is_not_started_with_another_delivery() {
    let world = World::new();
    let digest = world.deliver(Some(1), "exit 0").await;
    marked(&world, &digest);
    world.deliver(Some(2), "exit 0; true").await;
    let (fault, _) = start(&*world.verbs(), Some(1), &digest, None).await;
    assert_eq!(fault.unwrap_err().code, Code::Tampered);
    assert_eq!(world.starts(), 0);
}

#[tokio::test]
async fn a_signal_to_the_whole_group_is_reported_as_one() {
    let world = World::new();
    let digest = world.deliver(Some(1), "kill -TERM 0; sleep 60").await;
    assert_eq!(start(&*world.verbs(), Some(1), &digest, None).await.0.unwrap(), failed("signal 15"));
}

#[tokio::test]
async fn what_is_the_agents_own_is_not_inherited() {
    let world = World::new();
    world.deliver(Some(1), "env > \"$2.env\"; exit 3").await;
    let own = [("NOTIFY_SOCKET", "/x"), ("WATCHDOG_USEC", "1"), ("SSLKEYLOGFILE", "/y")];
    let status = follower_with(&world, &own).wait().unwrap();
    assert!(status.success());
    let seen = std::fs::read_to_string(world.paths.node_yaml().with_extension("yaml.env")).unwrap();
    assert!(seen.contains("STRATUM_JOIN_BUNDLE="), "{seen}");
    for (name, _) in own {
        assert!(!seen.contains(name), "{name} in {seen}");
    }
}

#[tokio::test]
async fn what_another_boot_started_or_wrote_is_lost() {
    let world = World::new();
    let digest = world.deliver(Some(1), "exit 0").await;
    let other = world.verbs_in("99999999-2222-3333-4444-555555555555");
    assert_eq!(start(&*other, Some(1), &digest, None).await.0.unwrap(), FirstbootEnd::Lost);
    assert_eq!(world.starts(), 0);
    start(&*world.verbs(), Some(1), &digest, None).await.0.unwrap();
    assert_eq!(start(&*other, Some(1), &digest, None).await.0.unwrap(), FirstbootEnd::Lost);
    std::fs::remove_dir_all(world.paths.run_dir()).unwrap();
    assert_eq!(start(&*world.verbs(), Some(1), &digest, None).await.0.unwrap(), FirstbootEnd::Lost);
    assert_eq!(world.starts(), 1);
}

#[tokio::test]
async fn a_marker_without_a_claim_is_started() {
    let world = World::new();
    let digest = world.deliver(Some(1), "exit 0").await;
    durable_file::make_dir(&world.paths.firstboot_dir(), 0o700).unwrap();
    let said = Attempt { attempt: Some(1), sha256: digest.clone(), boot_id: BOOT.to_owned() };
    Run::of(&world.paths, Some(1), &digest).mark_started(&said).unwrap();
    assert_eq!(start(&*world.verbs(), Some(1), &digest, None).await.0.unwrap(), FirstbootEnd::Done);
    assert_eq!(world.starts(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_claim_without_a_life_is_a_failure_and_never_started_again() {
    let world = World::new();
    let digest = world.deliver(Some(1), "exit 0").await;
    durable_file::make_dir(&world.paths.firstboot_dir(), 0o700).unwrap();
    let said = Attempt { attempt: Some(1), sha256: digest.clone(), boot_id: BOOT.to_owned() };
    Run::of(&world.paths, Some(1), &digest).mark_started(&said).unwrap();
    let claim = world.paths.firstboot_dir().join(format!("attempt-1-{}/claim", &digest[..16]));
    std::fs::DirBuilder::new().mode(0o700).create(claim).unwrap();
    assert_eq!(
        start(&*world.verbs(), Some(1), &digest, None).await.0.unwrap(),
        failed("killed before it began")
    );
    assert_eq!(world.starts(), 0);
}

#[tokio::test]
async fn files_that_changed_since_are_not_started() {
    let world = World::new();
    let digest = world.deliver(Some(1), "exit 0").await;
    durable_file::write(&world.paths.node_yaml(), b"other: 1\n", 0o600, "test").unwrap();
    let (fault, _) = start(&*world.verbs(), Some(1), &digest, None).await;
    assert_eq!(fault.unwrap_err().code, Code::Tampered);
    let other = world.deliver(Some(2), "exit 0").await;
    let (fault, _) = start(&*world.verbs(), Some(1), &other, None).await;
    assert!(fault.unwrap_err().detail.as_str().starts_with("another delivery was written after this one"));
    assert_eq!(world.starts(), 0);
}

// --- the log ---

#[tokio::test]
async fn log_lines_come_redacted_in_batches_with_a_cursor_to_go_on_from() {
    let world = World::new();
    let what = "seq 450; echo pw canary-postgres-1 end; printf 'bad \\033[2J\\377 line\\n'";
    let digest = world.deliver(Some(1), what).await;
    let (end, told) = start(&*world.verbs(), Some(1), &digest, None).await;
    assert_eq!(end.unwrap(), FirstbootEnd::Done);
    assert!(told.batches.iter().all(|len| *len <= 200), "{:?}", told.batches);
    assert_eq!((told.lines.len(), told.lines[449].as_str()), (452, "450"));
    assert_eq!(told.lines[450], "pw [removed] end");
    assert_eq!(told.lines[451], "bad \u{fffd} line");
    assert!(told.cursor.unwrap().starts_with(&format!("attempt-1-{}:", &digest[..16])));
    let log = world.paths.firstboot_dir().join(format!("attempt-1-{}/log", &digest[..16]));
    assert_eq!(std::fs::metadata(log).unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn a_log_that_cannot_be_redacted_any_more_is_not_told() {
    let world = World::new();
    let digest = world.deliver(Some(1), "echo canary-postgres-1; echo b; exit 0").await;
    start(&*world.verbs(), Some(1), &digest, None).await.0.unwrap();
    let (_, told) = start(&*world.verbs(), Some(1), &digest, None).await;
    assert_eq!(told.lines.len(), 1);
    assert!(told.lines[0].starts_with("[the rest of this log stays on the machine"), "{:?}", told.lines);
}

#[tokio::test]
async fn an_endless_line_is_told_once_and_cut() {
    let world = World::new();
    let digest = world.deliver(Some(1), "head -c 300000 /dev/zero | tr '\\0' x; echo; echo next").await;
    let (_, told) = start(&*world.verbs(), Some(1), &digest, None).await;
    assert_eq!((told.lines.len(), told.lines[1].as_str()), (2, "next"));
    assert_eq!(told.lines[0].chars().count(), 1024);
}

#[tokio::test]
async fn a_cursor_of_another_run_reads_from_the_beginning() {
    let world = World::new();
    let digest = world.deliver(Some(2), "echo a; exit 1").await;
    let own = format!("attempt-2-{}", &digest[..16]);
    for cursor in
        ["attempt-1:1".to_owned(), format!("{own}:x"), format!("{own}:999999"), String::new(), "7".to_owned()]
    {
        let (_, told) = start(&*world.verbs(), Some(2), &digest, Some(cursor.clone())).await;
        assert_eq!(told.lines, ["a"], "{cursor}");
    }
    let (_, told) = start(&*world.verbs(), Some(2), &digest, Some(format!("{own}:2"))).await;
    assert_eq!(told.lines, [""; 0]);
}

// --- a killed agent ---

const FOLLOWER_ROOT: &str = "STRATUM_TEST_FOLLOWER_ROOT";

/// Not a test: the process that the test below kills. It starts firstboot and follows it, and does nothing without its variable.
#[tokio::test]
async fn follower_process() {
    #[expect(clippy::disallowed_methods, reason = "how the test below tells its child what to do")]
    let Ok(root) = std::env::var(FOLLOWER_ROOT) else { return };
    let (program, root) = root.split_once(':').unwrap();
    let paths = Paths::under(root);
    let said: Attempt = serde_json::from_slice(&std::fs::read(paths.attempt()).unwrap()).unwrap();
    let runner = FirstbootRunner::Command { program: program.into() };
    let verbs = InProcess::new(paths, runner, BOOT);
    let _ = start(&verbs, said.attempt, &said.sha256, None).await;
}

/// The name of that test in this module.
fn follower_name() -> &'static str {
    let path = concat!(module_path!(), "::follower_process");
    path.split_once("::").map_or(path, |(_, name)| name)
}

fn follower(world: &World) -> std::process::Child {
    follower_with(world, &[])
}

fn follower_with(world: &World, variables: &[(&str, &str)]) -> std::process::Child {
    let exe = std::env::current_exe().unwrap();
    let root = format!("{}:{}", script().display(), world.paths.root().display());
    let mut command = Command::new(exe);
    command.args(["--exact", follower_name()]).env(FOLLOWER_ROOT, root).envs(variables.iter().copied());
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[tokio::test]
async fn killing_the_follower_neither_kills_nor_restarts_firstboot() {
    let world = World::new();
    let gate = world.gate();
    let digest = world.deliver(Some(1), &format!("echo up; cat '{}'; exit 4", gate.display())).await;
    let log = world.paths.firstboot_dir().join(format!("attempt-1-{}/log", &digest[..16]));
    for _ in 0..3 {
        let mut child = follower(&world);
        // The script's own line says that it runs; every further follower finds it running.
        until(|| std::fs::read(&log).is_ok_and(|text| text == b"up\n")).await;
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let ((), (end, told)) =
        tokio::join!(open_gate(gate), async { start(&*world.verbs(), Some(1), &digest, None).await });
    assert_eq!((end.unwrap(), told.lines), (failed("exit status 4"), vec!["up".to_owned()]));
    assert_eq!(world.starts(), 1);
}

#[tokio::test]
async fn firstboot_that_ends_while_nobody_follows_is_reported_later() {
    let world = World::new();
    let digest = world.deliver(Some(1), "exit 5").await;
    let mut child = follower(&world);
    let exit = world.paths.firstboot_dir().join(format!("attempt-1-{}/exit", &digest[..16]));
    until(|| exit.exists()).await;
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(start(&*world.verbs(), Some(1), &digest, None).await.0.unwrap(), failed("exit status 5"));
    assert_eq!(world.starts(), 1);
}

/// Opens a gate: waits for its reader, and lets it go on.
async fn open_gate(gate: PathBuf) {
    let open = move || drop(std::fs::OpenOptions::new().write(true).open(gate).unwrap());
    tokio::task::spawn_blocking(open).await.unwrap();
}

async fn until(done: impl Fn() -> bool) {
    let since = std::time::Instant::now();
    while !done() {
        assert!(since.elapsed().as_secs() < 60, "it never came");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

// --- reload-banner ---

fn snapshot(state: &str) -> Vec<u8> {
    let text = include_str!("../../console/tests/fixtures/pending.json");
    let mut value: serde_json::Value = serde_json::from_str(text).unwrap();
    value["state"] = state.into();
    serde_json::to_vec(&value).unwrap()
}

#[tokio::test]
async fn the_banner_is_what_the_snapshot_says() {
    let world = World::new();
    let paths = &world.paths;
    durable_file::write_volatile(&paths.snapshot(), &snapshot("pending"), 0o644, "test").unwrap();
    world.verbs().reload_banner(true).await.unwrap();
    let issue = std::fs::read_to_string(paths.issue()).unwrap();
    assert!(issue.contains("Stratum join:") && issue.contains("Pairing code"), "{issue}");
    assert!(std::fs::read_to_string(paths.motd()).unwrap().contains("stratum-installer join --check"));
    assert_eq!(std::fs::metadata(paths.issue()).unwrap().permissions().mode() & 0o777, 0o644);
}

#[tokio::test]
async fn a_snapshot_that_is_none_leaves_the_banner() {
    let world = World::new();
    let paths = &world.paths;
    let before = |path: &Path| std::fs::read(path).unwrap();
    durable_file::write_volatile(&paths.issue(), b"as it was", 0o644, "test").unwrap();
    assert!(world.verbs().reload_banner(true).await.unwrap_err().detail.as_str().contains("is missing"));
    for text in [&b""[..], b"{", b"\x1b[2J", &[b' '; 70_000]] {
        durable_file::write_volatile(&paths.snapshot(), text, 0o644, "test").unwrap();
        assert!(world.verbs().reload_banner(true).await.is_err());
    }
    assert_eq!(before(&paths.issue()), b"as it was");
}

#[tokio::test]
async fn a_snapshot_of_somebody_else_is_none() {
    let world = World::new();
    let paths = &world.paths;
    durable_file::write_volatile(&paths.snapshot(), &snapshot("pending"), 0o644, "test").unwrap();
    let uid = rustix::process::geteuid().as_raw();
    let verbs = InProcess::new(paths.clone(), FirstbootRunner::Unit, BOOT).for_agent(uid + 1);
    let fault = verbs.reload_banner(false).await.unwrap_err();
    assert!(fault.detail.as_str().contains(&format!("belongs to uid {uid}")), "{}", fault.detail);
    assert!(!paths.issue().exists());
}

// --- reboot ---

#[tokio::test]
async fn nothing_reboots_a_machine_on_which_no_upgrade_was_armed_in_this_boot() {
    let world = World::new();
    let armed = world.paths.os_dir().join("armed.json");
    let why = async || world.verbs().reboot().await.unwrap_err().detail.to_string();
    assert!(why().await.ends_with("is not there: this machine is not rebooted"));
    durable_file::make_dir(&world.paths.os_dir(), 0o755).unwrap();
    durable_file::write(&armed, br#"{"bootId":"of-another-boot"}"#, 0o644, "test").unwrap();
    assert!(why().await.contains("is of another boot"));
    durable_file::write(&armed, b"{", 0o644, "test").unwrap();
    assert!(why().await.contains("is not what was written"));
}

#[tokio::test]
async fn an_unchanged_motd_is_not_written_again() {
    let world = World::new();
    let paths = &world.paths;
    durable_file::write_volatile(&paths.snapshot(), &snapshot("joined"), 0o644, "test").unwrap();
    world.verbs().reload_banner(false).await.unwrap();
    let inode = |path: PathBuf| std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).unwrap());
    let first = inode(paths.motd());
    world.verbs().reload_banner(false).await.unwrap();
    assert_eq!(inode(paths.motd()), first);
}

/// Every torn moment of the verb that starts: afterwards it is started once, whatever was killed when.
#[cfg(feature = "faults")]
#[tokio::test]
async fn a_crash_at_any_moment_of_the_start_leaves_one_start() {
    use std::os::unix::process::ExitStatusExt;
    for point in ["firstboot-start", "firstboot-marker", "firstboot-log"] {
        for moment in ["before", "during", "after"] {
            let world = World::new();
            let digest = world.deliver(Some(1), "exit 0").await;
            let fault = format!("crash:{point}:{moment}");
            let mut child = follower_with(&world, &[("STRATUM_FAULT", &fault)]);
            assert_eq!(child.wait().unwrap().signal(), Some(9), "{fault} was not reached");
            let (end, _) = start(&*world.verbs(), Some(1), &digest, None).await;
            assert_eq!((end.unwrap(), world.starts()), (FirstbootEnd::Done, 1), "{fault}");
        }
    }
}

#[tokio::test]
async fn a_machine_that_may_be_a_member_is_not_written_to() {
    let world = World::new();
    // The marker cannot be looked for: nobody knows.
    std::fs::remove_dir_all(world.paths.state_dir()).unwrap();
    durable_file::write_volatile(&world.paths.state_dir(), b"", 0o600, "test").unwrap();
    let fault = world.verbs().write_delivery(Some(1), &fixture::delivery()).await.unwrap_err();
    assert!(fault.detail.as_str().contains("cannot be told"), "{}", fault.detail);
    assert!(!world.paths.node_yaml().exists() && !world.paths.bundle().exists());
}

#[tokio::test]
async fn a_member_starts_no_firstboot_whatever_was_written_before() {
    let world = World::new();
    let digest = world.deliver(Some(1), "true").await;
    durable_file::write_volatile(&world.paths.joined_marker(), b"", 0o600, "test").unwrap();
    let (answer, _) = start(&*world.verbs(), Some(1), &digest, None).await;
    let detail = answer.unwrap_err().detail;
    assert!(detail.as_str().contains("is a member already"), "{detail}");
    assert_eq!(world.starts(), 0);
}

#[tokio::test]
async fn who_follows_an_earlier_attempt_late_leaves_the_next_ones_bundle() {
    let world = World::new();
    let first = world.deliver(Some(1), "true").await;
    assert_eq!(start(&*world.verbs(), Some(1), &first, None).await.0.unwrap(), FirstbootEnd::Done);
    let second = world.deliver(Some(2), "true; true").await;
    assert_eq!(start(&*world.verbs(), Some(1), &first, None).await.0.unwrap(), FirstbootEnd::Done);
    assert!(world.paths.bundle().exists());
    assert_eq!(start(&*world.verbs(), Some(2), &second, None).await.0.unwrap(), FirstbootEnd::Done);
    assert!(!world.paths.bundle().exists());
}
