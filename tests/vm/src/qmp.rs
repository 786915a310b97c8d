//! QEMU's monitor: start, link up and down, keys, pictures of the screen.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// How long QEMU may take to answer; emulation holds its main loop up now and then.
const ANSWER: Duration = Duration::from_secs(60);

/// A connection to the monitor.
pub struct Qmp {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
}

// === impl Qmp ===

impl Qmp {
    /// Connects and agrees on capabilities.
    pub fn connect(socket: &Path) -> Result<Self> {
        let writer = UnixStream::connect(socket).with_context(|| format!("monitor {}", socket.display()))?;
        writer.set_read_timeout(Some(ANSWER)).context("monitor")?;
        let reader = BufReader::new(writer.try_clone().context("monitor")?);
        let mut qmp = Self { reader, writer };
        qmp.line().context("the monitor's greeting")?;
        qmp.execute("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    /// Lets a machine that was started paused run.
    pub fn cont(&mut self) -> Result<()> {
        self.execute("cont", json!({})).map(drop)
    }

    /// Plugs the network cable in or out.
    pub fn set_link(&mut self, nic: &str, up: bool) -> Result<()> {
        self.execute("set_link", json!({"name": nic, "up": up})).map(drop)
    }

    /// Plugs a device in: its driver, its `id` and its properties.
    pub fn device_add(&mut self, device: &Value) -> Result<()> {
        self.execute("device_add", device.clone()).map(drop)
    }

    /// Pulls a device out. It may be gone only later, when the guest has to let go of it first.
    pub fn device_del(&mut self, id: &str) -> Result<()> {
        self.execute("device_del", json!({"id": id})).map(drop)
    }

    /// How often the guest has read from the device on this drive; 0 when there is none.
    pub fn reads(&mut self, drive: &str) -> Result<u64> {
        let all = self.execute("query-blockstats", json!({}))?;
        let one = all.as_array().and_then(|all| all.iter().find(|one| one["node-name"] == drive));
        Ok(one.and_then(|one| one["stats"]["rd_operations"].as_u64()).unwrap_or(0))
    }

    /// Presses keys together, by QEMU's names for them.
    pub fn press(&mut self, keys: &[&str]) -> Result<()> {
        let keys: Vec<Value> = keys.iter().map(|key| json!({"type": "qcode", "data": key})).collect();
        self.execute("send-key", json!({"keys": keys})).map(drop)
    }

    /// A picture of what the monitor on the desk would show, as `png` or `ppm`.
    pub fn screendump(&mut self, to: &Path, format: &str) -> Result<()> {
        self.execute("screendump", json!({"filename": to, "format": format})).map(drop)
    }

    fn execute(&mut self, command: &str, arguments: Value) -> Result<Value> {
        let request = json!({"execute": command, "arguments": arguments});
        writeln!(self.writer, "{request}").with_context(|| format!("monitor: {command}"))?;
        loop {
            let answer = self.line().with_context(|| format!("monitor: {command}"))?;
            if let Some(error) = answer.get("error") {
                bail!("monitor: {command}: {}", error["desc"].as_str().unwrap_or("refused"));
            }
            if let Some(result) = answer.get("return") {
                return Ok(result.clone());
            }
            // Everything else is an event, which nobody here waits for.
        }
    }

    fn line(&mut self) -> Result<Value> {
        let mut line = String::new();
        if self.reader.read_line(&mut line).context("no answer")? == 0 {
            bail!("QEMU has closed it");
        }
        serde_json::from_str(&line).context("no JSON")
    }
}
