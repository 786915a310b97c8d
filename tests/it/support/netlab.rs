//! A laboratory of network faults: a joiner, a router and a founder, each in a network namespace of its own, joined by cables that can be pulled.
//!
//! ```text
//! joiner eth0 192.0.2.12/24 --- r0 [bridge br0 192.0.2.1] router r1 198.51.100.1 --- 198.51.100.240/24 eth0 founder
//! ```
//! Needs unshare(1), nsenter(1) and ip(8); as an ordinary user also the right to make user namespaces. What is made here is gone with the
//! processes that hold it. Nothing of the machine outside is touched.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::bin;

/// The joiner's address.
pub const JOINER: &str = "192.0.2.12";
/// The router's, on the joiner's side.
pub const ROUTER: &str = "192.0.2.1";
/// The founder's.
pub const FOUNDER: &str = "198.51.100.240";
/// Where it listens.
pub const ENDPOINT: &str = "198.51.100.240:9444";

/// One machine: a network and a mount namespace, held by a process.
pub struct Node {
    holder: Child,
    in_user_namespace: bool,
}

/// The three, and what they keep on disk.
pub struct NetLab {
    pub joiner: Node,
    pub router: Node,
    pub founder: Node,
    /// Who else is plugged in.
    others: Vec<Node>,
    running: Option<Child>,
    /// What the founder said when it was ready.
    pub ready: Value,
    dir: TempDir,
}

// === impl Node ===

impl Node {
    /// `first`: who has made the user namespace that all of them are in.
    fn new(first: Option<&Node>) -> Result<Self, String> {
        let root = rustix::process::geteuid().is_root();
        let mut command = match first.filter(|first| first.in_user_namespace) {
            Some(first) => first.enter(&["--user", "--preserve-credentials"], "unshare"),
            None => Command::new("unshare"),
        };
        let alone = first.is_none() && !root;
        if alone {
            command.args(["--user", "--map-root-user"]);
        }
        // sysfs shows the interfaces of the namespace that mounted it. The holder ends with the pipe, so with the test.
        let hold = "mount -t sysfs sysfs /sys && ip link set lo up && echo ready && exec cat >/dev/null";
        command.args(["--net", "--mount", "sh", "-c", hold]);
        let mut holder = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("unshare: {error}"))?;
        let mut line = String::new();
        let out = holder.stdout.take().expect("a pipe");
        let _ = BufReader::new(out).read_line(&mut line);
        if line.trim() == "ready" {
            return Ok(Self { holder, in_user_namespace: !root });
        }
        let mut why = String::new();
        let _ = holder.stderr.take().expect("a pipe").read_to_string(&mut why);
        let _ = holder.wait();
        Err(why.trim().to_owned())
    }

    fn enter(&self, what: &[&str], program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg("--target").arg(self.holder.id().to_string()).args(what).arg("--").arg(program);
        command
    }

    /// A program on this machine.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        match self.in_user_namespace {
            true => self.enter(&["--user", "--preserve-credentials", "--net", "--mount"], program),
            false => self.enter(&["--net", "--mount"], program),
        }
    }

    /// The same for a command without quotes; what it prints, or why it failed.
    pub fn try_run(&self, line: &str) -> Result<String, String> {
        let mut words = line.split_whitespace();
        let out =
            self.command(words.next().unwrap()).args(words).output().map_err(|error| error.to_string())?;
        if !out.status.success() {
            return Err(format!("{line}: {}", String::from_utf8_lossy(&out.stderr).trim()));
        }
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    }

    /// The same, and it must work.
    pub fn run(&self, line: &str) -> String {
        self.try_run(line).unwrap()
    }

    /// Puts `text` in the place of a file of this machine's, for this machine alone.
    pub fn put(&self, text: &str, over: &str, kept_in: &Path) {
        let file = kept_in.join(over.replace('/', "_"));
        fs::write(&file, text).unwrap();
        self.run(&format!("mount --bind {} {over}", file.display()));
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

// === impl NetLab ===

impl NetLab {
    /// `Err`: this machine does not let us; why, in its words.
    pub fn new() -> Result<Self, String> {
        let joiner = Node::new(None)?;
        let (router, founder) = (Node::new(Some(&joiner))?, Node::new(Some(&joiner))?);
        let (j, f) = (joiner.holder.id(), founder.holder.id());
        for line in [
            "ip link add br0 type bridge",
            &format!("ip link add r0 type veth peer name eth0 netns {j}"),
            &format!("ip link add r1 type veth peer name eth0 netns {f}"),
            "ip link set r0 master br0",
            "ip link set br0 up",
            "ip link set r0 up",
            "ip link set r1 up",
            &format!("ip addr add {ROUTER}/24 dev br0"),
            "ip addr add 198.51.100.1/24 dev r1",
            "sysctl -q -w net.ipv4.ip_forward=1",
        ] {
            router.try_run(line)?;
        }
        let lab = Self {
            joiner,
            router,
            founder,
            others: Vec::new(),
            running: None,
            ready: Value::Null,
            dir: tempfile::tempdir().unwrap(),
        };
        lab.connect_joiner();
        for line in [
            "ip link set eth0 up",
            &format!("ip addr add {FOUNDER}/24 dev eth0"),
            "ip route add default via 198.51.100.1",
        ] {
            lab.founder.try_run(line)?;
        }
        Ok(lab)
    }

    /// The joiner's network settings, as they are again after a fault.
    pub fn connect_joiner(&self) {
        for line in [
            "ip link set eth0 up",
            &format!("ip addr replace {JOINER}/24 dev eth0"),
            &format!("ip route replace default via {ROUTER}"),
        ] {
            self.joiner.run(line);
        }
    }

    /// One more machine at the joiner's switch.
    pub fn plug_in(&mut self, address: &str) {
        let node = Node::new(Some(&self.joiner)).unwrap();
        let name = format!("r{}", 2 + self.others.len());
        self.router.run(&format!("ip link add {name} type veth peer name eth0 netns {}", node.holder.id()));
        self.router.run(&format!("ip link set {name} master br0 up"));
        node.run("ip link set eth0 up");
        node.run(&format!("ip addr add {address}/24 dev eth0"));
        self.others.push(node);
    }

    /// A directory of the laboratory's.
    pub fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    /// The real lab founder, on the founder's machine. `cluster` names its state: another name is another cluster. Replaces the one that runs.
    pub fn run_founder(&mut self, cluster: &str, evil: &Value, more: &[&str]) {
        self.stop_founder();
        let script = self.path("evil.json");
        fs::write(&script, evil.to_string()).unwrap();
        let mut command = self.founder.command(bin("lab-founder"));
        command.arg("run").arg("--dir").arg(self.path(cluster)).args(["--join-listen", ENDPOINT]);
        command.args(["--release", super::RELEASE, "--evil"]).arg(&script).args(more);
        let log = fs::File::options().create(true).append(true).open(self.path("founder.log")).unwrap();
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        self.running = Some(child);
        let log = || fs::read_to_string(self.path("founder.log")).unwrap_or_default();
        self.ready =
            serde_json::from_str(&line).unwrap_or_else(|_| panic!("the founder did not start: {}", log()));
    }

    pub fn stop_founder(&mut self) {
        if let Some(mut child) = self.running.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// A new join code of the cluster: `code` and `url`.
    pub fn code(&self, cluster: &str) -> Value {
        let config = self.path(cluster).join("stratumctl.json");
        let mut command = self.founder.command(bin("stratumctl"));
        command.arg("--config").arg(config).args([
            "--output",
            "json",
            "admin",
            "nodes",
            "join-codes",
            "create",
        ]);
        let out = command.output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        serde_json::from_slice(&out.stdout).unwrap()
    }

    /// `stratum-join diagnose` on the joiner.
    pub fn diagnose(&self, args: &[&str]) -> Output {
        self.joiner.command(bin("stratum-join")).arg("diagnose").args(args).output().unwrap()
    }
}

impl Drop for NetLab {
    fn drop(&mut self) {
        self.stop_founder();
    }
}
