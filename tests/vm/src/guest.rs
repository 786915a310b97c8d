//! The inside of the machine, through its QEMU guest agent: commands with their output, and files.
//!
//! The agent is not part of what is tested: it runs as root beside it and uses no network.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use data_encoding::BASE64;
use serde_json::{Value, json};

use crate::child::last_lines;
use crate::wait;

/// How long one command in the machine may take when nothing else is said.
const COMMAND: Duration = Duration::from_secs(120);
/// How long the agent may take to answer one call.
const ANSWER: Duration = Duration::from_secs(60);
/// How long one try to reach an agent that may not run yet lasts. What was asked before it runs is answered when it does; a busy machine
/// may take seconds for it.
const TRY: Duration = Duration::from_secs(5);

/// Commands find their programs, and speak the language the tests read.
const ENVIRONMENT: [&str; 4] =
    ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "SYSTEMD_COLORS=0", "SYSTEMD_PAGER=cat"];

/// A connection to the guest agent.
pub struct Guest {
    socket: PathBuf,
    link: Option<(BufReader<UnixStream>, UnixStream)>,
    syncs: u64,
}

/// How a command in the machine ended.
#[derive(Debug)]
pub struct Output {
    /// Exit code; `None` after a signal.
    pub code: Option<i64>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

// === impl Guest ===

impl Guest {
    /// Of the machine whose guest channel is `socket`. Connects when it is first needed.
    pub fn new(socket: PathBuf) -> Self {
        Self { socket, link: None, syncs: 0 }
    }

    /// Waits until the agent answers: the machine has booted that far.
    pub fn wait_until_it_answers(&mut self, limit: Duration) -> Result<()> {
        wait::until("the machine's guest agent", limit, || Ok(self.sync(TRY).ok()))
    }

    /// Runs a program; any exit code is a result.
    pub fn run(&mut self, program: &str, args: &[&str]) -> Result<Output> {
        self.run_within(COMMAND, program, args)
    }

    /// The same with a limit of its own.
    pub fn run_within(&mut self, limit: Duration, program: &str, args: &[&str]) -> Result<Output> {
        let (code, stdout, stderr) = self.exec(limit, program, args)?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(Output { code, stdout: text(stdout), stderr: text(stderr) })
    }

    /// Runs a shell script; its output, or an error with what it said when it fails.
    pub fn sh(&mut self, script: &str) -> Result<String> {
        let out = self.run("/bin/sh", &["-euc", script])?;
        if out.code != Some(0) {
            let said = format!("{}{}", last_lines(&out.stdout, 20), last_lines(&out.stderr, 20));
            bail!("in the machine: {script}: ended with {}: {}", out.ending(), said.trim());
        }
        Ok(out.stdout)
    }

    /// A file's text, or `None` when it is not there.
    pub fn read(&mut self, path: &str) -> Result<Option<String>> {
        let out = self.run("/bin/cat", &[path])?;
        Ok((out.code == Some(0)).then_some(out.stdout))
    }

    /// Writes a file, as root, 0644.
    pub fn write(&mut self, path: &str, text: &str) -> Result<()> {
        let file = self.call("guest-file-open", json!({"path": path, "mode": "w"}))?;
        let data = BASE64.encode(text.as_bytes());
        self.call("guest-file-write", json!({"handle": file, "buf-b64": data}))?;
        self.call("guest-file-close", json!({"handle": file})).map(drop)
    }

    /// A program's standard output as bytes.
    pub fn bytes(&mut self, program: &str, args: &[&str]) -> Result<Vec<u8>> {
        let (code, stdout, stderr) = self.exec(COMMAND, program, args)?;
        if code != Some(0) {
            bail!("in the machine: {program} {args:?}: {}", String::from_utf8_lossy(&stderr).trim());
        }
        Ok(stdout)
    }

    fn exec(
        &mut self,
        limit: Duration,
        program: &str,
        args: &[&str],
    ) -> Result<(Option<i64>, Vec<u8>, Vec<u8>)> {
        let request = json!({"path": program, "arg": args, "capture-output": true, "env": ENVIRONMENT});
        let pid = self.call("guest-exec", request)?["pid"].clone();
        let end = Instant::now() + limit;
        loop {
            let status = self.call("guest-exec-status", json!({"pid": pid}))?;
            if status["exited"] == true {
                let bytes = |key: &str| BASE64.decode(status[key].as_str().unwrap_or("").as_bytes());
                let stdout = bytes("out-data").context("output of a command")?;
                let stderr = bytes("err-data").context("output of a command")?;
                return Ok((status["exitcode"].as_i64(), stdout, stderr));
            }
            if Instant::now() > end {
                bail!("in the machine: {program} {args:?} still runs after {} s", limit.as_secs());
            }
            wait::pause()?;
        }
    }

    /// Calls the agent; connects first when needed.
    fn call(&mut self, command: &str, arguments: Value) -> Result<Value> {
        if self.link.is_none() {
            self.sync(ANSWER)?;
        }
        let answer = self.exchange(&json!({"execute": command, "arguments": arguments}), ANSWER);
        let answer = answer.with_context(|| format!("guest agent: {command}"))?;
        match (&answer["error"]["desc"], answer.get("return")) {
            (Value::String(why), _) => bail!("guest agent: {command}: {why}"),
            (_, Some(result)) => Ok(result.clone()),
            _ => bail!("guest agent: {command}: neither result nor error"),
        }
    }

    /// A fresh connection on which both sides know where a message begins.
    fn sync(&mut self, limit: Duration) -> Result<()> {
        self.link = None;
        let writer = UnixStream::connect(&self.socket).context("guest agent")?;
        let reader = BufReader::new(writer.try_clone().context("guest agent")?);
        self.link = Some((reader, writer));
        self.syncs += 1;
        let id = self.syncs + 1_000_000 * u64::from(std::process::id());
        let end = Instant::now() + limit;
        let mut answer = self.exchange(&json!({"execute": "guest-sync", "arguments": {"id": id}}), limit);
        // Answers to what an earlier connection asked may still be on their way.
        while answer.as_ref().is_ok_and(|answer| answer["return"] != id) && Instant::now() < end {
            answer = self.answer(limit);
        }
        if let Err(error) = answer {
            self.link = None;
            return Err(error);
        }
        Ok(())
    }

    fn exchange(&mut self, request: &Value, limit: Duration) -> Result<Value> {
        let (_, writer) = self.link.as_mut().context("not connected")?;
        writeln!(writer, "{request}").context("cannot send")?;
        self.answer(limit)
    }

    fn answer(&mut self, limit: Duration) -> Result<Value> {
        let (reader, writer) = self.link.as_mut().context("not connected")?;
        writer.set_read_timeout(Some(limit)).context("no time limit")?;
        let mut line = String::new();
        let read = reader.read_line(&mut line);
        if !matches!(read, Ok(1..)) {
            // Half a line is lost: the next call starts anew.
            self.link = None;
        }
        match read {
            Ok(0) => bail!("the machine is gone"),
            Ok(_) => {}
            Err(_) => bail!("no answer in {} ms", limit.as_millis()),
        }
        serde_json::from_str(&line).context("no JSON")
    }
}

// === impl Output ===

impl Output {
    /// The exit code in words.
    pub fn ending(&self) -> String {
        self.code.map_or("a signal".to_owned(), |code| format!("exit code {code}"))
    }

    /// True for exit code 0.
    pub fn is_ok(&self) -> bool {
        self.code == Some(0)
    }
}
