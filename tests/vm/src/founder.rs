//! The cluster on this side: a lab founder on the host's loopback, operated by `stratumctl` as an administrator would.
//!
//! Must never print a join code or the admin token.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::child::{Child, output};
use crate::tree::RELEASE;
use crate::wait;

/// How long it may take to listen.
const START: Duration = Duration::from_secs(30);

/// A running lab founder.
pub struct Founder {
    process: Child,
    stratumctl: PathBuf,
    config: PathBuf,
    join: SocketAddr,
}

/// One machine that wants to join, as `stratumctl ... joins list` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its join id.
    pub id: String,
    /// Its state.
    pub state: String,
    /// Its pairing code.
    pub pairing: String,
}

// === impl Founder ===

impl Founder {
    /// Starts one on a free port with its state below `dir`.
    pub fn start(programs: &Path, dir: &Path, log: &Path) -> Result<Self> {
        let log = File::options().create(true).append(true).open(log).context("founder.log")?;
        let mut process = Child::start("the lab founder", &programs.join("lab-founder"), |command| {
            command.arg("run").arg("--dir").arg(dir).args(["--release", RELEASE]);
            command.stdout(Stdio::piped()).stderr(log);
        })?;
        let stdout = process.take_stdout().context("the lab founder has no output")?;
        let (send, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // Nobody listens after the first line; reading goes on so that it never blocks on a full pipe.
                let _ = send.send(line);
            }
        });
        let ready = wait::until("the lab founder to listen", START, || {
            process.must_run()?;
            Ok(lines.try_recv().ok())
        })?;
        let ready: Value = serde_json::from_str(&ready).context("the lab founder's ready line")?;
        let join = ready["join"].as_str().and_then(|text| text.parse().ok());
        Ok(Self {
            process,
            stratumctl: programs.join("stratumctl"),
            config: dir.join("stratumctl.json"),
            join: join.context("the lab founder's ready line names no join address")?,
        })
    }

    /// Its address as the machine sees it: QEMU's user network puts the host's loopback at 10.0.2.2.
    pub fn endpoint(&self) -> String {
        format!("10.0.2.2:{}", self.join.port())
    }

    /// A fresh join code. It is a secret: it goes to `stratum-installer` and nowhere else.
    pub fn join_code(&self) -> Result<String> {
        let out = self.nodes(&["join-codes", "create", "--output", "json"])?;
        let made: Value = serde_json::from_str(&out).context("answer of join-codes create")?;
        Ok(made["code"].as_str().context("join-codes create answered without a code")?.to_owned())
    }

    /// `joins list` as a person sees it.
    pub fn list(&self) -> Result<String> {
        self.nodes(&["joins", "list"])
    }

    /// One registration as a person sees it.
    pub fn show(&self, id: &str) -> Result<String> {
        self.nodes(&["joins", "show", id])
    }

    /// The hardware that one machine has registered last.
    pub fn inventory(&self, id: &str) -> Result<Value> {
        let shown = self.nodes(&["joins", "show", id, "--output", "json"])?;
        let mut shown: Value = serde_json::from_str(&shown).context("answer of joins show")?;
        Ok(shown["inventory"].take())
    }

    /// All registrations.
    pub fn joins(&self) -> Result<Vec<Listed>> {
        Ok(Listed::all(&self.list()?))
    }

    /// The state of one registration.
    pub fn state(&self, id: &str) -> Result<Option<String>> {
        Ok(self.joins()?.into_iter().find(|join| join.id == id).map(|join| join.state))
    }

    /// Waits until one registration is in this state.
    pub fn wait_for(&self, id: &str, state: &str, limit: Duration) -> Result<()> {
        wait::until(&format!("{id} to be {state} for the founder"), limit, || {
            self.process.must_run()?;
            Ok((self.state(id)?.as_deref() == Some(state)).then_some(()))
        })
    }

    /// Approves, naming the pairing code that was compared.
    pub fn approve(&self, join: &Listed) -> Result<()> {
        self.nodes(&["joins", "approve", &join.id, "--pairing", &join.pairing]).map(drop)
    }

    /// Queues a failed join again.
    pub fn retry(&self, id: &str) -> Result<()> {
        self.nodes(&["joins", "retry", id]).map(drop)
    }

    /// Turns the cluster green or not: while it is not, what is approved waits for its turn. The lab's own switch, so there is no
    /// command for it.
    pub fn set_green(&self, green: bool) -> Result<()> {
        let config =
            std::fs::read(&self.config).with_context(|| format!("read {}", self.config.display()))?;
        let config: Value = serde_json::from_slice(&config).context("stratumctl.json")?;
        let (server, token) = (config["server"].as_str(), config["token"].as_str());
        let address =
            server.and_then(|url| url.strip_prefix("http://")).context("stratumctl.json names no server")?;
        let body = json!({ "clusterGreen": green }).to_string();
        let mut stream =
            TcpStream::connect(address.trim_end_matches('/')).context("the founder's admin listener")?;
        stream.set_read_timeout(Some(START)).context("the founder's admin listener")?;
        write!(
            stream,
            "PUT /v1/lab/switches HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            token.unwrap_or_default(),
            body.len()
        )
        .context("the founder's admin listener")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).context("the founder's admin listener")?;
        let status = answer.lines().next().unwrap_or_default();
        ensure!(status.contains(" 200 "), "the founder's switches: {status}");
        Ok(())
    }

    fn nodes(&self, args: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.stratumctl);
        output(command.arg("--config").arg(&self.config).args(["admin", "nodes"]).args(args))
    }
}

// === impl Listed ===

impl Listed {
    /// The rows of the table: ID, STATE and PAIRING come first and hold no blanks.
    fn all(table: &str) -> Vec<Self> {
        table
            .lines()
            .filter(|line| line.starts_with("nj-"))
            .filter_map(|line| {
                let mut cells = line.split_whitespace().map(str::to_owned);
                Some(Self { id: cells.next()?, state: cells.next()?, pairing: cells.next()? })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_of_the_table_are_the_registrations() {
        let table =
            "ID           STATE    PAIRING  HOSTNAME\nnj-8w2k4m1p  pending  4F7-K2Q  node-2  SN0002\n";
        let listed = Listed::all(table);
        assert_eq!(listed.len(), 1);
        assert_eq!((listed[0].state.as_str(), listed[0].pairing.as_str()), ("pending", "4F7-K2Q"));
    }
}
