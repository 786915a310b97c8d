//! What the helper refuses, by text and by exit; what the agent makes of a helper that misbehaves.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use super::*;
use crate::durable_file;
use crate::handoff::fixture;
use crate::install::{Installed, OsState};
use crate::paths::Paths;
use crate::privileged::{FirstbootRunner, InProcess, OsAnswer, Privileged};

const BOOT: &str = "11111111-2222-3333-4444-555555555555";

struct World {
    dir: tempfile::TempDir,
    paths: Paths,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::under(dir.path());
        durable_file::make_dir(&paths.public_dir(), 0o755).unwrap();
        Self { dir, paths }
    }

    fn verbs(&self) -> InProcess {
        let runner = FirstbootRunner::Command { program: "/no/such".into() };
        InProcess::new(self.paths.clone(), runner, BOOT)
    }

    /// What the helper answers to these bytes; what came of it.
    async fn told(&self, bytes: &[u8]) -> (Value, Served) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let callers = Callers { agent: rustix::process::geteuid().as_raw() };
        let verbs = self.verbs();
        let ask = async {
            let (mut read, mut write) = ours.into_split();
            let send = async {
                let _ = write.write_all(bytes).await;
                let _ = write.shutdown().await;
            };
            let mut answer = Vec::new();
            let (_, read) = tokio::join!(send, read.read_to_end(&mut answer));
            // One that ends without reading everything resets the connection behind its answer.
            assert!(read.is_ok() || !answer.is_empty(), "{read:?}");
            serde_json::from_slice(&answer).unwrap()
        };
        tokio::join!(ask, serve(theirs, callers, &verbs))
    }

    /// The same for a request that has to be refused; gives the reason.
    async fn refused(&self, bytes: &[u8]) -> String {
        let (answer, served) = self.told(bytes).await;
        assert_eq!(answer["error"]["code"], "BAD_REQUEST", "{answer}");
        let Served::Refused(why) = served else { panic!("{served:?}") };
        assert_eq!(answer["error"]["detail"], why.as_str());
        assert!(!self.paths.etc_dir().exists() && !self.paths.run_dir().exists(), "something was done");
        why
    }
}

#[tokio::test]
async fn what_is_no_verb_is_refused_by_its_name() {
    let world = World::new();
    let why = world.refused(b"{\"v\":1,\"verb\":\"run-command\",\"args\":{\"argv\":[\"sh\"]}}\n").await;
    assert_eq!(why, "there is no verb \"run-command\"");
    // No escape sequence and no novel in the journal.
    let hostile = format!("{{\"v\":1,\"verb\":\"\\u001b[2J{}\"}}\n", "x".repeat(5_000));
    let why = world.refused(hostile.as_bytes()).await;
    assert!(!why.contains('\u{1b}') && why.len() < 80, "{why:?}");
}

#[tokio::test]
async fn a_second_request_is_refused_and_the_first_is_not_done() {
    let world = World::new();
    durable_file::write_volatile(
        &world.paths.snapshot(),
        include_bytes!("../../../console/tests/fixtures/pending.json"),
        0o644,
        "test",
    )
    .unwrap();
    let line = b"{\"v\":1,\"verb\":\"reload-banner\",\"args\":{\"reload\":false}}\n";
    let why = world.refused(&[&line[..], line].concat()).await;
    assert_eq!(why, "there is a second request: one connection is one request");
    assert!(!world.paths.issue().exists());
    let (answer, _) = world.told(line).await;
    assert!(answer.get("ok").is_some() && world.paths.issue().exists(), "{answer}");
}

#[tokio::test]
async fn what_changes_the_next_start_is_not_done_for_a_caller_that_is_gone() {
    let arm = format!(
        "{{\"v\":1,\"verb\":\"install-release\",\"args\":{{\"action\":\"arm\",\"manifestSha256\":\"{}\"}}}}\n",
        "0".repeat(64)
    );
    for line in [arm.as_str(), "{\"v\":1,\"verb\":\"reboot\"}\n"] {
        let world = World::new();
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.write_all(line.as_bytes()).await.unwrap();
        // The agent was killed, and another one decides anew; this helper starts late.
        drop(ours);
        let callers = Callers { agent: rustix::process::geteuid().as_raw() };
        let served = serve(theirs, callers, &world.verbs()).await;
        assert!(matches!(served, Served::Gone), "{served:?}");
        assert!(!world.paths.os_lock().exists(), "it was begun");
    }
}

#[tokio::test]
async fn a_request_over_its_size_is_refused_without_an_end() {
    let world = World::new();
    let why = world.refused(&vec![b'{'; MAX_REQUEST + 100_000]).await;
    assert_eq!(why, format!("the request is larger than {MAX_REQUEST} bytes"));
}

#[tokio::test]
async fn the_largest_delivery_fits_into_a_request() {
    let world = World::new();
    // Everything that JSON escapes with one more byte, in both parts.
    let yaml = format!("a: '{}'\n", "\\".repeat(crate::protocol::wire::MAX_NODE_YAML - 8));
    let mut bundle = fixture::bundle();
    bundle["more"] = "\\".repeat((crate::protocol::wire::MAX_BUNDLE - 4_000) / 2).into();
    let delivery = crate::handoff::Delivery::new(yaml.into_bytes(), bundle.to_string().into_bytes()).unwrap();
    let args = DeliveryArgs {
        attempt: None,
        node_yaml: String::from_utf8(delivery.node_yaml().to_vec()).unwrap(),
        bundle: String::from_utf8(delivery.bundle().to_vec()).unwrap(),
    };
    let args = Some(serde_json::value::to_raw_value(&args).unwrap());
    let line = serde_json::to_vec(&Request { v: VERSION, verb: "write-delivery".to_owned(), args }).unwrap();
    assert!(line.len() < MAX_REQUEST, "{}", line.len());
    let (answer, _) = world.told(&[&line[..], b"\n"].concat()).await;
    assert_eq!(answer["ok"], delivery.sha256(), "{answer}");
}

#[tokio::test]
async fn what_is_not_a_request_is_refused_in_words_that_repeat_nothing_of_it() {
    let world = World::new();
    for (bytes, words) in [
        (&b""[..], "does not end with its line"),
        (b"{\"v\":1,\"verb\":\"probe\"}", "does not end with its line"),
        (b"\n", "cut off"),
        (b"canary\n", "not JSON"),
        (b"\xff\xfe\n", "not JSON"),
        (b"{\"v\":1}\n", "missing"),
        (b"{\"v\":1,\"verb\":\"probe\",\"canary\":1}\n", "a field is unknown"),
        (b"{\"v\":2,\"verb\":\"probe\"}\n", "version 2"),
        (b"{\"v\":1,\"verb\":\"probe\"}\n", "probe needs its arguments"),
        (b"{\"v\":1,\"verb\":\"bless\",\"args\":{}}\n", "bless takes no arguments"),
        (
            b"{\"v\":1,\"verb\":\"install-release\",\"args\":{\"action\":\"arm\"}}\n",
            "takes the manifestSha256 of what it writes or arms",
        ),
        (b"{\"v\":1,\"verb\":\"reboot\",\"args\":7}\n", "reboot takes no arguments"),
        (b"{\"v\":1,\"verb\":\"reload-banner\"}\n", "needs its arguments"),
        (b"{\"v\":1,\"verb\":\"reload-banner\",\"args\":{\"reload\":\"canary\"}}\n", "of another kind"),
        (
            b"{\"v\":1,\"verb\":\"reload-banner\",\"args\":{\"reload\":true,\"path\":\"canary\"}}\n",
            "a field is unknown",
        ),
        (
            b"{\"v\":1,\"verb\":\"write-delivery\",\"args\":{\"attempt\":-1,\"nodeYaml\":\"canary\",\"bundle\":\"\"}}\n",
            "of another kind",
        ),
    ] {
        let why = world.refused(bytes).await;
        assert!(why.contains(words) && !why.contains("canary"), "{why}");
    }
}

#[tokio::test]
async fn a_delivery_that_is_not_acceptable_is_refused_with_the_reason_and_not_written() {
    let world = World::new();
    let bundle = fixture::bundle().to_string();
    for (yaml, bundle, words) in [
        ("a: &x 1\nb: *x\n", bundle.as_str(), "node.yaml"),
        ("- no\n- map\n", bundle.as_str(), "node.yaml"),
        ("a: 1\n", "[]", "bundle"),
        ("a: 1\n", "{}", "bundle"),
        ("", bundle.as_str(), "node.yaml"),
    ] {
        let args = serde_json::json!({ "attempt": 1, "nodeYaml": yaml, "bundle": bundle });
        let line = serde_json::json!({ "v": 1, "verb": "write-delivery", "args": args });
        let (answer, _) = world.told(format!("{line}\n").as_bytes()).await;
        let detail = answer["error"]["detail"].as_str().unwrap();
        assert!(detail.contains(words), "{detail}");
        assert!(!world.paths.node_yaml().exists() && !world.paths.bundle().exists());
    }
}

#[tokio::test(start_paused = true)]
async fn who_sends_nothing_is_not_waited_for_for_ever() {
    let world = World::new();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let callers = Callers { agent: rustix::process::geteuid().as_raw() };
    let Served::Refused(why) = serve(theirs, callers, &world.verbs()).await else { panic!() };
    assert_eq!(why, "no whole request came within 10 s");
    drop(ours);
}

#[tokio::test]
async fn a_digest_that_is_none_names_no_directory() {
    let world = World::new();
    for digest in ["", "../../../../etc/x", &"A".repeat(64), &"a".repeat(65)] {
        let args = serde_json::json!({ "attempt": 1, "sha256": digest, "logCursor": null });
        let line = serde_json::json!({ "v": 1, "verb": "start-firstboot", "args": args });
        let why = world.refused(format!("{line}\n").as_bytes()).await;
        assert_eq!(why, "the sha256 of start-firstboot is not 64 digits of hex");
    }
}

// --- verbs that take their time ---

/// A disk that never answers, and a firstboot that never stops talking.
struct Endless;

impl Privileged for Endless {
    fn probe(&self) -> crate::privileged::Answer<'_, hwprobe::MachinePart> {
        Box::pin(std::future::pending())
    }
    fn write_delivery(
        &self,
        _: Option<u64>,
        _: &crate::handoff::Delivery,
    ) -> crate::privileged::Answer<'_, String> {
        Box::pin(std::future::pending())
    }
    fn start_firstboot<'a>(
        &'a self,
        _: Option<u64>,
        _: &'a str,
        _: Option<String>,
        events: tokio::sync::mpsc::Sender<crate::join::event::Event>,
    ) -> crate::privileged::Answer<'a, crate::join::event::FirstbootEnd> {
        Box::pin(async move {
            loop {
                let lines = vec![Safe::clean("x".repeat(1024)); 200];
                let event = crate::join::event::Event::FirstbootLog { lines, cursor: String::new() };
                let _ = events.send(event).await;
            }
        })
    }
    fn reload_banner(&self, _: bool) -> crate::privileged::Answer<'_, ()> {
        Box::pin(std::future::pending())
    }
    fn identify_led(&self) -> crate::privileged::Answer<'_, ()> {
        Box::pin(std::future::pending())
    }
    fn reboot(&self) -> crate::privileged::Answer<'_, ()> {
        Box::pin(std::future::pending())
    }
    fn probe_os(&self) -> OsAnswer<'_, OsState> {
        Box::pin(std::future::pending())
    }
    fn write_release<'a>(
        &'a self,
        _: Digest,
        _: tokio::sync::mpsc::Sender<(u64, u64)>,
    ) -> OsAnswer<'a, Installed> {
        Box::pin(std::future::pending())
    }
    fn arm_release(&self, _: Digest) -> OsAnswer<'_, ()> {
        Box::pin(std::future::pending())
    }
    fn disarm_release(&self) -> OsAnswer<'_, ()> {
        Box::pin(std::future::pending())
    }
    fn bless(&self) -> OsAnswer<'_, ()> {
        Box::pin(std::future::pending())
    }
}

/// Sends a request to [`Endless`]; gives what came of it, and our end, which has read nothing.
async fn ask_endless(request: String) -> (Served, UnixStream) {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    ours.write_all(request.as_bytes()).await.unwrap();
    ours.shutdown().await.unwrap();
    let callers = Callers { agent: rustix::process::geteuid().as_raw() };
    (serve(theirs, callers, &Endless).await, ours)
}

#[tokio::test(start_paused = true)]
async fn a_verb_that_hangs_is_told_by_its_name_and_frees_its_connection() {
    let (served, mut ours) =
        ask_endless("{\"v\":1,\"verb\":\"probe\",\"args\":{\"what\":\"machine\"}}\n".to_owned()).await;
    assert!(matches!(served, Served::Answered), "{served:?}");
    let mut answer = String::new();
    ours.read_to_string(&mut answer).await.unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let detail = answer["error"]["detail"].as_str().unwrap();
    assert_eq!(detail, "probe did not end within 80 s: a disk or systemd does not answer");
}

#[tokio::test(start_paused = true)]
async fn a_verb_about_the_os_that_hangs_is_told_as_trouble_of_the_helper() {
    let (_, mut ours) = ask_endless("{\"v\":1,\"verb\":\"bless\"}\n".to_owned()).await;
    let mut answer = String::new();
    ours.read_to_string(&mut answer).await.unwrap();
    let Line::Error(refusal) = serde_json::from_str(&answer).unwrap() else { panic!("{answer}") };
    let fault = refusal.into_upgrade_fault();
    let what =
        "The privileged helper failed: bless did not end within 80 s: a disk or systemd does not answer.";
    assert_eq!((fault.code, fault.what.as_str()), (UpgradeCode::Helper, what));
    assert_eq!(fault.todo, "Look at: journalctl -u stratum-join");
}

#[test]
fn an_error_about_the_os_keeps_its_code_and_is_cleaned_once_more() {
    let read = |text: &str| match serde_json::from_str(text).unwrap() {
        Line::Error(refusal) => refusal.into_upgrade_fault(),
        _ => panic!("{text}"),
    };
    let fault = read(r#"{"error":{"code":"HASH","detail":"a\u001b[2Jb\u202e.","todo":"c\u0007d."}}"#);
    assert_eq!((fault.code, fault.what.as_str(), fault.todo.as_str()), (UpgradeCode::Hash, "ab.", "cd."));
    let fault = read(r#"{"error":{"code":"BAD_REQUEST","detail":"there is no verb \"x\""}}"#);
    assert_eq!(fault.what, "The privileged helper failed: there is no verb \"x\".");
    let written =
        serde_json::to_string(&Line::Error(Refusal::of_upgrade(&UpgradeFault::busy("it")))).unwrap();
    let expected = r#"{"error":{"code":"BUSY","detail":"Another install is at work: it.","todo":"Wait until it has ended."}}"#;
    assert_eq!(written, expected);
}

#[test]
fn what_a_write_tells_is_its_step_and_its_bytes() {
    let line = Line::Progress(Told::Step { step: Step::Write, done: 1, total: 2 });
    let text = serde_json::to_string(&line).unwrap();
    assert_eq!(text, r#"{"progress":{"step":"write","done":1,"total":2}}"#);
    let again = serde_json::from_str(&text).unwrap();
    assert!(matches!(again, Line::Progress(Told::Step { step: Step::Write, done: 1, total: 2 })));
    let alive = serde_json::from_str(r#"{"progress":"alive"}"#).unwrap();
    assert!(matches!(alive, Line::Progress(Told::Other(Progress::Alive))));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_reads_nothing_holds_no_helper_for_ever() {
    let args = serde_json::json!({ "attempt": 1, "sha256": "a".repeat(64), "logCursor": null });
    let line = serde_json::json!({ "v": 1, "verb": "start-firstboot", "args": args });
    let (served, _ours) = ask_endless(format!("{line}\n")).await;
    assert!(matches!(served, Served::Gone), "{served:?}");
}

// --- another uid ---

const STRANGER_SOCKET: &str = "STRATUM_TEST_STRANGER_SOCKET";

/// Not a test: the process of another uid, started by the test below. It does nothing without its variable.
#[test]
fn stranger_process() {
    use std::io::Read;
    #[expect(clippy::disallowed_methods, reason = "how the test below tells its child what to do")]
    let Ok(socket) = std::env::var(STRANGER_SOCKET) else { return };
    let mut connection = std::os::unix::net::UnixStream::connect(socket).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    println!("ANSWER {answer}");
}

#[tokio::test]
async fn a_caller_with_another_uid_is_told_why_before_a_byte_is_read() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can start a process of another uid");
        return;
    }
    let world = World::new();
    // A place that nobody can reach: the program too.
    std::fs::set_permissions(world.dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = world.dir.path().join("stranger");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let socket = world.dir.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o666)).unwrap();
    let child = stranger(&program, &socket);
    let (connection, _) = listener.accept().await.unwrap();
    let served = serve(connection, Callers { agent: 4711 }, &world.verbs()).await;
    let Served::Refused(why) = served else { panic!("{served:?}") };
    assert_eq!(why, "uid 65534 may not ask the helper: only the agent (uid 4711) and root may");
    let out = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap();
    assert!(String::from_utf8_lossy(&out.stdout).contains("uid 65534 may not ask"), "{out:?}");
}

fn stranger(program: &Path, socket: &Path) -> std::process::Child {
    let path = concat!(module_path!(), "::stranger_process");
    let name = path.split_once("::").map_or(path, |(_, name)| name);
    let mut command = Command::new(program);
    command.args(["--exact", name, "--nocapture"]).env(STRANGER_SOCKET, socket);
    command.uid(65534).gid(65534).stdout(Stdio::piped()).spawn().unwrap()
}

// --- the agent's side ---

/// A helper that answers with these bytes, whatever it is asked.
fn false_helper(dir: &Path, answer: Vec<u8>) -> ThroughHelper {
    let socket: PathBuf = dir.join("false.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    #[expect(clippy::disallowed_methods, reason = "the test's own helper; it ends with the test's runtime")]
    tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        let mut asked = Vec::new();
        connection.read_to_end(&mut asked).await.unwrap();
        connection.write_all(&answer).await.unwrap();
    });
    ThroughHelper::at(socket)
}

#[tokio::test]
async fn a_helper_that_is_not_there_ends_early_or_talks_nonsense_is_a_fault_of_this_machine() {
    let absent = ThroughHelper::at("/no/such/helper.sock".into()).reload_banner(true).await.unwrap_err();
    assert_eq!(absent.code, Code::Local);
    assert_eq!(
        absent.detail,
        "the helper at /no/such/helper.sock is not there: no such file or directory; \
         look at: systemctl status stratum-join-helper.socket"
    );
    for (answer, words) in [
        (&b""[..], "ended before it answered"),
        (b"{\"ok\":null}", "ended before it answered"),
        (b"hello\n", "gives an answer that is none"),
        (b"{\"ok\":7}\n", "gives no answer of reload-banner"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let fault = false_helper(dir.path(), answer.to_vec()).reload_banner(true).await.unwrap_err();
        assert!(fault.detail.as_str().contains(words), "{}", fault.detail);
    }
    let dir = tempfile::tempdir().unwrap();
    let endless = false_helper(dir.path(), vec![b'x'; MAX_ANSWER + 1]).reload_banner(true).await;
    assert!(endless.unwrap_err().detail.as_str().ends_with("answers without an end"));
}

#[tokio::test]
async fn a_refusal_keeps_its_code_its_text_and_its_chain() {
    let dir = tempfile::tempdir().unwrap();
    let line = br#"{"error":{"code":"TAMPERED","detail":"x is a link","chain":"x is a link: y"}}"#;
    let fault = false_helper(dir.path(), [&line[..], b"\n"].concat()).reload_banner(true).await.unwrap_err();
    assert_eq!((fault.code, fault.detail.as_str()), (Code::Tampered, "x is a link"));
    assert_eq!(fault.chain.as_str(), "x is a link: y");
}

#[tokio::test(start_paused = true)]
async fn a_helper_that_falls_silent_is_not_waited_for_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("silent.sock");
    let _listener = UnixListener::bind(&socket).unwrap();
    let fault = ThroughHelper::at(socket).probe().await.unwrap_err();
    assert!(fault.detail.as_str().ends_with("does not answer"), "{}", fault.detail);
}

#[tokio::test]
async fn an_inventory_comes_through_as_it_is() {
    let tree = tempfile::tempdir().unwrap();
    let world = World::new();
    let here = world.verbs().probing(Some(tree.path().to_owned()));
    let (ours, theirs) = (here.probe().await.unwrap(), serde_json::to_vec(&here.probe().await.unwrap()));
    let dir = tempfile::tempdir().unwrap();
    let line = [&b"{\"ok\":"[..], &theirs.unwrap(), b"}\n"].concat();
    assert_eq!(false_helper(dir.path(), line).probe().await.unwrap(), ours);
}
