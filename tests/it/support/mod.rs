//! What the stories share: a world of one founder and one machine, both real, both under temporary directories.

pub mod actions;
pub mod firstboot;
pub mod helper;
pub mod invariants;
pub mod joiner;
pub mod leaks;
pub mod netlab;
pub mod operator;
pub mod raw_tls;
pub mod screen;
pub mod told;
pub mod wait;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use console::Snapshot;
use console::snapshot::State;
use lab_founder::{Config, LabFounder, Request};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Long enough for a slow machine under load; a test that needs it all has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// The release of both sides.
pub const RELEASE: &str = "0.7.0";

/// A binary of this workspace. `cargo test --workspace` builds them all.
pub fn bin(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_stratum-join")).with_file_name(name);
    assert!(path.exists(), "{} is not built: run cargo build --workspace first", path.display());
    path
}

/// Takes a port of loopback, 0 for a free one, and listens to nobody there: who connects is refused, and no other test gets the port.
pub fn closed_port(port: u16) -> (SocketAddr, OwnedFd) {
    use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
    let fd = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&fd, &SocketAddr::from(([127, 0, 0, 1], port))).unwrap();
    let address = getsockname(&fd).unwrap().try_into().unwrap();
    (address, fd)
}

/// One machine: its root, and its agent when it runs.
pub struct Machine {
    pub root: TempDir,
    agent: Option<Child>,
    /// Environment of the agent: fault points, the boot id, what the stand-in does.
    pub env: Vec<(String, String)>,
    /// Extra arguments of the agent.
    pub args: Vec<String>,
    /// The agent does no privileged verb itself.
    pub through_helper: bool,
    boots: u32,
    /// Runs the agent elsewhere: a program and its arguments, before the agent's own.
    pub through: Vec<std::ffi::OsString>,
}

/// A founder and a machine.
pub struct World {
    pub founder: LabFounder,
    pub machine: Machine,
}

// === impl Machine ===

impl Default for Machine {
    fn default() -> Self {
        Self::new()
    }
}

impl Machine {
    pub fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let etc = root.path().join("etc");
        fs::create_dir(&etc).unwrap();
        fs::write(etc.join("os-release"), format!("VERSION_ID=\"{RELEASE}\"\n")).unwrap();
        firstboot::install(root.path());
        Self {
            root,
            agent: None,
            env: Vec::new(),
            args: Vec::new(),
            through_helper: false,
            boots: 0,
            through: Vec::new(),
        }
    }

    pub fn path(&self, below: &str) -> PathBuf {
        self.root.path().join(below)
    }

    pub fn set_env(&mut self, name: &str, value: impl Into<String>) {
        self.env.retain(|(n, _)| n != name);
        self.env.push((name.to_owned(), value.into()));
    }

    pub fn unset_env(&mut self, name: &str) {
        self.env.retain(|(n, _)| n != name);
    }

    /// `stratum-installer join` with these arguments, the code on standard input.
    pub fn installer(&self, args: &[&str], stdin: &str) -> Output {
        let mut child = Command::new(bin("stratum-installer"))
            .arg("join")
            .arg("--root")
            .arg(self.root.path())
            .args(args)
            .envs(self.env.iter().map(|(n, v)| (n, v)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A refused request does not read it.
        let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
        child.wait_with_output().unwrap()
    }

    /// Saves a join request.
    pub fn ask_to_join(&self, endpoint: &str, code: &str) {
        let out = self.installer(&["--endpoint", endpoint, "--code-file", "-"], code);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }

    /// Starts the agent; its log is appended to `agent.log` in the root.
    pub fn start(&mut self) {
        self.start_with(std::iter::empty::<&str>());
    }

    pub fn start_with<S: AsRef<OsStr>>(&mut self, args: impl IntoIterator<Item = S>) {
        assert!(self.agent.is_none(), "the agent runs already");
        let log = File::options().create(true).append(true).open(self.path("agent.log")).unwrap();
        let mut command = match self.through.split_first() {
            Some((program, args)) => {
                let mut command = Command::new(program);
                command.args(args).arg(bin("stratum-join"));
                command
            }
            None => Command::new(bin("stratum-join")),
        };
        command.arg("agent").arg("--root").arg(self.root.path());
        if !self.through_helper {
            command.arg("--firstboot").arg(self.path("firstboot"));
        }
        let child = command
            .args(&self.args)
            .args(args)
            .envs(self.env.iter().map(|(n, v)| (n, v)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.agent = Some(child);
    }

    /// A power cut for the agent.
    pub fn kill(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            let _ = agent.kill();
            let _ = agent.wait();
        }
    }

    /// Waits until the agent has ended by itself.
    pub fn wait_for_end(&mut self) -> ExitStatus {
        let mut agent = self.agent.take().expect("the agent was started");
        let ended = wait::until(PATIENCE, || agent.try_wait().unwrap());
        ended.unwrap_or_else(|| {
            let _ = agent.kill();
            panic!("the agent did not end; its log:\n{}", self.log())
        })
    }

    /// Whether the last agent ended by SIGKILL, as at a crash point.
    pub fn died_at_a_crash_point(&mut self) -> bool {
        self.wait_for_end().signal() == Some(9)
    }

    pub fn running(&mut self) -> bool {
        self.agent.as_mut().is_some_and(|a| a.try_wait().unwrap().is_none())
    }

    /// SIGHUP: the settings are read again.
    pub fn hang_up(&self) {
        let pid = i32::try_from(self.pid()).ok().and_then(rustix::process::Pid::from_raw).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    }

    pub fn pid(&self) -> u32 {
        self.agent.as_ref().expect("the agent was started").id()
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.path("agent.log")).unwrap_or_default()
    }

    pub fn snapshot(&self) -> Option<Snapshot> {
        Snapshot::read(&self.path("run/stratum-join/snapshot.json")).ok()
    }

    pub fn journal(&self) -> Value {
        let text = fs::read(self.path("var/lib/stratum/join/journal.json")).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    /// Waits for a snapshot that satisfies `wanted`; while an agent runs, for one of that agent's.
    pub fn wait_for(&self, what: &str, wanted: impl Fn(&Snapshot) -> bool) -> Snapshot {
        let own = |s: &Snapshot| self.agent.as_ref().is_none_or(|agent| agent.id() == s.agent.pid);
        let found = wait::until(PATIENCE, || self.snapshot().filter(|s| own(s) && wanted(s)));
        found.unwrap_or_else(|| {
            let last = self.snapshot().map(|s| format!("{} ({:?}) {:?}", s.state, s.headline, s.fault));
            panic!("waited for {what}; last snapshot: {last:?}; the agent's log:\n{}", self.log())
        })
    }

    pub fn wait_for_state(&self, state: State) -> Snapshot {
        self.wait_for(state.word(), |s| s.state == state)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.kill();
        // firstboot outlives an agent by design: a test's must not outlive the test.
        self.kill_firstboot();
    }
}

// === impl World ===

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

impl World {
    pub fn new() -> Self {
        Self::with(Config::for_tests())
    }

    pub fn with(mut config: Config) -> Self {
        config.cluster.release = RELEASE.to_owned();
        let founder = LabFounder::start_now(config).unwrap();
        Self { founder, machine: Machine::new() }
    }

    /// A world whose machine has asked to join and whose agent runs.
    pub fn joining() -> Self {
        let mut world = Self::new();
        world.ask_to_join();
        world.machine.start();
        world
    }

    pub fn endpoint(&self) -> String {
        self.founder.join_addr().to_string()
    }

    /// A new join code.
    pub fn code(&self) -> String {
        let made = self.admin("POST", "/v1/admin/cluster/join-codes", Some(json!({})));
        made["code"].as_str().unwrap().to_owned()
    }

    pub fn ask_to_join(&self) {
        self.machine.ask_to_join(&self.endpoint(), &self.code());
    }

    /// A call of the admin API; panics on a refusal.
    pub fn admin(&self, method: &str, path: &str, body: Option<Value>) -> Value {
        let (status, answer) = self.try_admin(method, path, body);
        assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
        answer
    }

    pub fn try_admin(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let (path, query) = path.split_once('?').map_or((path, None), |(p, q)| (p, Some(q.to_owned())));
        let request = Request {
            method: method.to_owned(),
            path: path.to_owned(),
            query,
            body: body.map_or(Vec::new(), |b| b.to_string().into_bytes()),
            bearer: Some(self.founder.token().to_owned()),
            ..Request::default()
        };
        let response = self.founder.core().dispatch_admin(self.founder.now_ms(), &request);
        (response.status, serde_json::from_slice(&response.body).unwrap_or(Value::Null))
    }

    /// The founder's records, in the order of their registration.
    pub fn joins(&self) -> Vec<Value> {
        self.admin("GET", "/v1/admin/cluster/joins", None)["joins"].as_array().unwrap().clone()
    }

    /// One record with log and inventory.
    pub fn record(&self, id: &str) -> Value {
        self.admin("GET", &format!("/v1/admin/cluster/joins/{id}"), None)
    }

    /// Approves the one waiting machine after comparing the two pairing codes. Gives its id.
    pub fn approve(&self) -> String {
        let shown = self.machine.wait_for_state(State::Pending);
        let id = shown.registration.join_id.as_ref().unwrap().to_string();
        let code = shown.pairing_code.as_ref().unwrap().to_string();
        self.admin("POST", &format!("/v1/admin/cluster/joins/{id}/approve?pairing={code}"), Some(json!({})));
        id
    }

    /// Goes through what is left of a join: approves when asked for, waits for the end.
    pub fn finish(&mut self) {
        let state = self.machine.wait_for("pending or later", |s| {
            !matches!(s.state, State::Starting | State::Registering | State::Unknown)
        });
        if state.state == State::Pending {
            self.approve();
        }
        let end = self.machine.wait_for_end();
        assert!(end.success(), "{end:?}; {}", self.machine.log());
        assert_eq!(self.machine.snapshot().unwrap().state, State::Joined);
    }
}
