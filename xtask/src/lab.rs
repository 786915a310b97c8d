//! One founder and one joiner on this machine: what a demo and a bench drive, through the same programs a person uses.
//!
//! Writes only below the directory it is given. Must never print the join code or the admin token.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::children::{self, Child, Signals};
use crate::snapshot::{self, Step, View};

/// How long the founder, or a mirror, may take to listen.
const FOUNDER_START: Duration = Duration::from_secs(30);
/// How long the agent may take to answer a key.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// The release both sides run. Stage 1 writes the joiner's; a developer's machine has none.
pub(crate) const RELEASE: &str = "0.7.0";
/// The release of a joiner that has to upgrade itself first, and its place in the sequence.
pub(crate) const OLDER: &str = "0.6.0";
const OLDER_SEQUENCE: u32 = 60;

/// The programs of one build.
#[derive(Clone)]
pub(crate) struct Programs {
    dir: PathBuf,
}

/// A running lab founder.
pub(crate) struct Founder {
    pub(crate) process: Child,
    programs: Programs,
    config: PathBuf,
    endpoint: String,
    log: PathBuf,
}

/// A running mirror of a release directory.
pub(crate) struct Mirror {
    pub(crate) process: Child,
    pub(crate) url: String,
    /// The authority of its certificate.
    pub(crate) ca: PathBuf,
}

/// A machine to be joined: a root directory, and the agent that runs on it.
pub(crate) struct Joiner {
    programs: Programs,
    root: PathBuf,
    log: PathBuf,
    /// Its OS is installed and restarted on paper only.
    recorded_os: bool,
    /// Of its last simulated start.
    boot_id: Option<String>,
}

/// One start of a machine, as `lab-founder restart` tells it.
pub(crate) struct Boot {
    pub(crate) slot: String,
    pub(crate) release: String,
    entry: String,
    pub(crate) came: bool,
}

/// One line of `joins list`.
pub(crate) struct Listed {
    pub(crate) id: String,
    pub(crate) state: String,
    pub(crate) pairing: String,
}

// === impl Programs ===

impl Programs {
    pub(crate) fn in_dir(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// The path of one program.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// A command of one that has to end with this process.
    fn command(&self, name: &str) -> Command {
        let mut command = children::command(&self.path(name));
        command.stdin(Stdio::null());
        command
    }
}

// === impl Founder ===

impl Founder {
    /// Starts a founder on free loopback ports with its state below `dir`, and waits until it listens.
    pub(crate) fn start(programs: &Programs, dir: &Path, args: &[&str], signals: &Signals) -> Result<Self> {
        let log = dir.join("founder.log");
        let mut command = programs.command("lab-founder");
        command.arg("run").arg("--dir").arg(dir.join("founder"));
        command.args(["--release", RELEASE]).args(args).stdout(Stdio::piped()).stderr(append(&log)?);
        let mut process = Child::start("the lab founder", command)?;
        let ready = ready(&mut process, &log, signals)?;
        let dir = ready["dir"].as_str().context("the lab founder's ready line names no dir")?;
        let endpoint =
            ready["join"].as_str().context("the lab founder's ready line names no join address")?;
        let config = Path::new(dir).join("stratumctl.json");
        Ok(Self { process, programs: programs.clone(), config, endpoint: endpoint.to_owned(), log })
    }

    /// Address and port of the join listener.
    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// `stratumctl` set up for this founder.
    pub(crate) fn ctl(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.programs.path("stratumctl"));
        command.arg("--config").arg(&self.config).args(args).stdin(Stdio::null());
        command
    }

    /// The last lines of its log.
    pub(crate) fn log_tail(&self) -> String {
        tail(&self.log, 20)
    }

    /// Makes a join code. It is a secret: it goes to the installer's standard input and nowhere else.
    pub(crate) fn join_code(&self) -> Result<String> {
        let out = output(&mut self.ctl(&["admin", "nodes", "join-codes", "create", "--output", "json"]))?;
        let made: Value = serde_json::from_str(&out).context("answer of join-codes create")?;
        Ok(made["code"].as_str().context("join-codes create answered without a code")?.to_owned())
    }

    /// `joins list` exactly as a person sees it.
    pub(crate) fn list(&self) -> Result<String> {
        output(&mut self.ctl(&["admin", "nodes", "joins", "list"]))
    }

    /// The steps that a machine has reported.
    pub(crate) fn steps(&self, id: &str) -> Result<Vec<Step>> {
        let out = output(&mut self.ctl(&["admin", "nodes", "joins", "show", id, "--output", "json"]))?;
        let record: Value = serde_json::from_str(&out).context("answer of joins show")?;
        Ok(snapshot::reported(&record))
    }

    /// Approves one registration, naming the pairing code that was compared.
    pub(crate) fn approve(&self, id: &str, pairing: &str) -> Result<String> {
        output(&mut self.ctl(&approve_args(id, pairing)))
    }
}

/// The arguments of the approval.
pub(crate) fn approve_args<'a>(id: &'a str, pairing: &'a str) -> [&'a str; 7] {
    ["admin", "nodes", "joins", "approve", id, "--pairing", pairing]
}

// === impl Mirror ===

impl Mirror {
    /// Serves `release` on a free loopback port, its certificates below `dir`; `rate` bytes per second on each connection, 0 is no limit.
    pub(crate) fn start(
        programs: &Programs,
        dir: &Path,
        release: &Path,
        rate: u64,
        signals: &Signals,
    ) -> Result<Self> {
        let log = dir.join("mirror.log");
        let mut command = programs.command("lab-founder");
        command.arg("mirror").arg("--dir").arg(release).arg("--certs").arg(dir.join("mirror"));
        command.args(["--rate", &rate.to_string()]);
        command.stdout(Stdio::piped()).stderr(append(&log)?);
        let mut process = Child::start("the mirror", command)?;
        let ready = ready(&mut process, &log, signals)?;
        let url = ready["url"].as_str().context("the mirror's ready line names no url")?.to_owned();
        let ca = ready["ca"].as_str().context("the mirror's ready line names no ca")?.into();
        Ok(Self { process, url, ca })
    }
}

// === impl Joiner ===

impl Joiner {
    /// A fresh machine below `dir`: what stage 1 leaves behind, and nothing of an agent.
    pub(crate) fn prepare(programs: &Programs, dir: &Path, name: &str) -> Result<Self> {
        let root = dir.join(name);
        let etc = root.join("etc");
        std::fs::create_dir_all(&etc).with_context(|| format!("create {}", etc.display()))?;
        let mut release = File::create(etc.join("os-release")).context("os-release of the joiner")?;
        writeln!(release, "NAME=Stratum\nID=stratum\nVERSION_ID={RELEASE}")?;
        let log = dir.join(format!("{name}.log"));
        Ok(Self { programs: programs.clone(), root, log, recorded_os: false, boot_id: None })
    }

    /// Makes it a machine of an older ISO: with its release, the key that its releases are signed with, and perhaps the authority of a mirror.
    pub(crate) fn make_older(&mut self, key: &Path, mirror_ca: Option<&Path>) -> Result<()> {
        self.recorded_os = true;
        let etc = self.root.join("etc");
        let text =
            format!("NAME=Stratum\nID=stratum\nVERSION_ID={OLDER}\nSTRATUM_SEQUENCE={OLDER_SEQUENCE}\n");
        public_file(&etc.join("os-release"), &text)?;
        let key = std::fs::read_to_string(key).with_context(|| format!("read {}", key.display()))?;
        public_file(&self.root.join("usr/share/stratum/release-keys.d/demo.pub"), &key)?;
        if let Some(ca) = mirror_ca {
            let settings = format!("upgrade: {{mirror: {{caFile: {}}}}}\n", ca.display());
            public_file(&etc.join("stratum/join.yaml"), &settings)?;
        }
        Ok(())
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// What a technician does in stage 1: the address and the code, the latter on standard input.
    pub(crate) fn request(&self, endpoint: &str, code: &str) -> Result<String> {
        let mut command = Command::new(self.programs.path("stratum-installer"));
        command.args(["join", "--endpoint", endpoint, "--code-file", "-", "--root"]).arg(&self.root);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot start stratum-installer")?;
        if let Some(mut stdin) = child.stdin.take() {
            writeln!(stdin, "{code}").context("hand the code to stratum-installer")?;
        }
        let out = child.wait_with_output().context("stratum-installer")?;
        let said = clean(&String::from_utf8_lossy(&out.stdout));
        if !out.status.success() {
            let why = clean(&String::from_utf8_lossy(&out.stderr));
            bail!("stratum-installer join: {}: {}{}", children::ending(Some(out.status)), said, why);
        }
        Ok(said.trim().to_owned())
    }

    /// Starts the agent; its log goes to a file beside the root.
    pub(crate) fn start_agent(&self) -> Result<Child> {
        let mut command = self.programs.command("stratum-join");
        command.arg("agent").arg("--root").arg(&self.root);
        command.arg("--firstboot").arg(self.programs.path("firstboot-stand-in"));
        command.args(self.recorded_os.then_some("--recorded-os"));
        command.envs(self.boot_id.as_ref().map(|id| ("STRATUM_BOOT_ID", id)));
        command.stdout(append(&self.log)?).stderr(append(&self.log)?);
        Child::start("the agent", command)
    }

    /// The console on this terminal.
    pub(crate) fn start_console(&self) -> Result<Child> {
        let mut command = Command::new(self.programs.path("stratum-join"));
        command.arg("console").arg("--root").arg(&self.root);
        Child::start_on_terminal("the console", command)
    }

    /// A file that is there while the machine has been asked to restart.
    pub(crate) fn restart_asked(&self) -> PathBuf {
        self.recorded().join("restart-requested")
    }

    /// The contents of one of its two slots.
    pub(crate) fn slot(&self, slot: &str) -> PathBuf {
        self.recorded().join(format!("slot-{slot}.img"))
    }

    fn recorded(&self) -> PathBuf {
        self.root.join("var/lib/stratum/os/recorded")
    }

    /// Starts the machine anew while no agent runs on it: what the boot loader does with an OS on trial, to the OS that comes up.
    pub(crate) fn restart(&mut self, trial: &str) -> Result<Vec<Boot>> {
        let mut command = Command::new(self.programs.path("lab-founder"));
        command.args(["restart", "--trial", trial, "--root"]).arg(&self.root).stdin(Stdio::null());
        let said = output(&mut command)?;
        let mut boots = Vec::new();
        for line in said.lines() {
            let value: Value = serde_json::from_str(line).context("answer of lab-founder restart")?;
            let word = |name: &str| {
                let word =
                    value[name].as_str().with_context(|| format!("lab-founder restart told no {name}"));
                word.map(str::to_owned)
            };
            self.boot_id = Some(word("bootId")?);
            boots.push(Boot {
                slot: word("slot")?,
                release: word("release")?,
                entry: word("entry")?,
                came: value["came"] == true,
            });
        }
        Ok(boots)
    }

    /// Presses the console's key `T`: a wait is over now.
    pub(crate) fn retry(&self) -> Result<()> {
        let path = self.root.join("run/stratum-join/control.sock");
        let mut answer = String::new();
        let mut socket = UnixStream::connect(&path).with_context(|| format!("connect {}", path.display()))?;
        socket.set_read_timeout(Some(ANSWER_WITHIN)).context("control socket")?;
        writeln!(socket, r#"{{"v":1,"op":"retry"}}"#).context("control socket")?;
        BufReader::new(socket).read_line(&mut answer).context("control socket")?;
        let value: Value = serde_json::from_str(&answer).context("control socket")?;
        if value["ok"] != true {
            bail!("the agent does not retry: {}", clean(answer.trim()));
        }
        Ok(())
    }

    /// What the agent shows now.
    pub(crate) fn view(&self) -> Option<View> {
        View::read(&self.root.join("run/stratum-join/snapshot.json"))
    }

    /// The last lines of the agent's log.
    pub(crate) fn log_tail(&self) -> String {
        tail(&self.log, 20)
    }
}

// === impl Listed ===

impl Listed {
    /// The line of `id` in the table: columns ID, STATE, PAIRING come first and hold no blanks.
    pub(crate) fn find(table: &str, id: &str) -> Option<Self> {
        table.lines().find_map(|line| {
            let mut cells = line.split_whitespace();
            let (first, state, pairing) = (cells.next()?, cells.next()?, cells.next()?);
            (first == id).then(|| Self { id: first.into(), state: state.into(), pairing: pairing.into() })
        })
    }
}

// === impl Boot ===

impl Boot {
    /// `slot b, 0.7.0 (stratum-0.7.0+2-1.conf): comes up`.
    pub(crate) fn line(&self) -> String {
        let Self { slot, release, entry, came } = self;
        let how = if *came { "comes up" } else { "its kernel panics" };
        format!("slot {slot}, {release} ({entry}): {how}")
    }
}

/// Runs a command to its end; its output, or an error with what it said.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let out = command.output().with_context(|| format!("cannot start {:?}", command.get_program()))?;
    let said = clean(&String::from_utf8_lossy(&out.stdout));
    if !out.status.success() {
        let name = Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy();
        let why = clean(&String::from_utf8_lossy(&out.stderr));
        bail!("{name}: {}: {}", children::ending(Some(out.status)), format!("{said}{why}").trim());
    }
    Ok(said)
}

/// True when both are a listener on this machine: a demo never talks to another one.
pub(crate) fn is_loopback(endpoint: &str) -> bool {
    endpoint.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_loopback())
}

/// The line of JSON by which a server says that it listens.
fn ready(process: &mut Child, log: &Path, signals: &Signals) -> Result<Value> {
    let lines = lines_of(process)?;
    let end = Instant::now() + FOUNDER_START;
    loop {
        match lines.try_recv() {
            Ok(line) => {
                return serde_json::from_str(&line)
                    .with_context(|| format!("the ready line of {}", process.name()));
            }
            Err(_) if process.ended() || Instant::now() > end => {
                bail!("{} does not start{}", process.name(), tail(log, 20));
            }
            Err(_) => signals.tick()?,
        }
    }
}

/// A file of the joiner that nobody else may write, in a directory that nobody else may write, whatever the umask is.
fn public_file(path: &Path, text: &str) -> Result<()> {
    let dir = path.parent().context("a file has a directory")?;
    let made = || -> std::io::Result<()> {
        std::fs::create_dir_all(dir)?;
        std::fs::set_permissions(dir, Permissions::from_mode(0o755))?;
        let mut file = File::create(path)?;
        file.set_permissions(Permissions::from_mode(0o644))?;
        file.write_all(text.as_bytes())
    };
    made().with_context(|| format!("write {}", path.display()))
}

/// The lines a child prints, read to the end so that it never blocks on a full pipe.
fn lines_of(child: &mut Child) -> Result<mpsc::Receiver<String>> {
    let stdout = child.take_stdout().with_context(|| format!("{} has no output", child.name()))?;
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            // Nobody listens after the ready line; reading goes on all the same.
            let _ = send.send(line);
        }
    });
    Ok(receive)
}

fn append(path: &Path) -> Result<File> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .with_context(|| format!("open {}", path.display()))
}

/// The last `count` lines of a log as an indented block, or nothing.
fn tail(path: &Path, count: usize) -> String {
    let text = clean(&String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()));
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(count);
    if lines.is_empty() { String::new() } else { format!("; it said:\n  | {}", lines[from..].join("\n  | ")) }
}

/// Without control characters but the line feed.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
ID           STATE    PAIRING  HOSTNAME             SERIAL     SOURCE      NODE  WAITING FOR
nj-8w2k4m1p  pending  4F7-K2Q  node-2.example.com   SN0002     192.0.2.12  -     -
";

    #[test]
    fn the_pairing_code_is_read_from_the_line_of_this_registration() {
        let line = Listed::find(TABLE, "nj-8w2k4m1p").unwrap();
        assert_eq!((line.state.as_str(), line.pairing.as_str()), ("pending", "4F7-K2Q"));
        assert!(Listed::find(TABLE, "nj-8w2k4m1").is_none());
        assert!(Listed::find("", "nj-8w2k4m1p").is_none());
    }

    #[test]
    fn only_a_loopback_address_is_one() {
        assert!(is_loopback("127.0.0.1:9444") && is_loopback("[::1]:9444"));
        assert!(!is_loopback("192.0.2.240:9444") && !is_loopback("localhost.example.com:1"));
    }

    #[test]
    fn a_failing_program_is_reported_with_what_it_said() {
        let error = output(Command::new("sh").args(["-c", "echo no such join >&2; exit 4"])).unwrap_err();
        assert_eq!(error.to_string(), "sh: exit code 4: no such join");
    }
}
