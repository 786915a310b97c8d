//! What the tests of trust, refusals and secrets do with a machine and its founder.

use std::fs;
use std::process::Output;

use console::Snapshot;
use console::snapshot::State;
use lab_founder::Config;
use serde_json::{Value, json};
use stratum_join::protocol::code::JoinCode;

use super::{Machine, PATIENCE, World, wait};

/// What a command said and how it ended.
pub struct Said {
    pub exit: i32,
    pub out: String,
    pub err: String,
}

// === impl Said ===

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("what we print is UTF-8");
        Self { exit: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }
}

impl Said {
    /// The one JSON object of `--output json`.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {}{}", self.out, self.err))
    }
}

// === impl Machine ===

impl Machine {
    /// Waits until this fault is shown.
    pub fn wait_for_fault(&self, code: &str) -> Snapshot {
        self.wait_for(code, |s| s.fault.as_ref().is_some_and(|f| f.code.as_str() == code))
    }

    /// Waits until the agent's log holds this text.
    pub fn wait_for_log(&self, text: &str) {
        let found = wait::until(PATIENCE, || self.log().contains(text).then_some(()));
        assert!(found.is_some(), "waited for {text:?} in the agent's log:\n{}", self.log());
    }

    /// A power cut for the agent, and its next start, up to its first snapshot.
    pub fn restart(&mut self) {
        self.kill();
        self.start();
        let pid = self.pid();
        self.wait_for("the agent's next start", |s| s.agent.pid == pid && s.state != State::Starting);
    }

    /// `stratum-installer join --check` with address and code.
    pub fn check(&self, endpoint: &str, code: &str) -> Said {
        self.installer(&["--check", "--endpoint", endpoint, "--code-file", "-"], code).into()
    }

    /// The same with the result as JSON.
    pub fn check_json(&self, endpoint: &str, code: &str) -> (i32, Value) {
        let args = ["--check", "--endpoint", endpoint, "--code-file", "-", "--output", "json"];
        let said = Said::from(self.installer(&args, code));
        (said.exit, said.json())
    }

    /// The client key's file.
    pub fn client_key(&self) -> String {
        fs::read_to_string(self.path("var/lib/stratum/join/identity/key.pem")).unwrap()
    }

    /// The saved join request.
    pub fn request(&self) -> Value {
        serde_json::from_slice(&fs::read(self.path("var/lib/stratum/join/request.json")).unwrap()).unwrap()
    }

    /// Another product UUID than the real machine's.
    pub fn set_product_uuid(&self, uuid: &str) {
        let dir = self.path("sys/class/dmi/id");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("product_uuid"), format!("{uuid}\n")).unwrap();
    }
}

// === impl World ===

impl World {
    /// A power cut for the founder; it comes back on the same port with this change.
    pub fn with_founder_restarted(self, change: impl FnOnce(&mut Config)) -> Self {
        let Self { founder, machine } = self;
        Self { founder: founder.restart_with(change).unwrap(), machine }
    }

    /// A new join code: `id`, `code`, `url`, `expiresAt`.
    pub fn new_code(&self, ttl_seconds: u64) -> Value {
        self.admin("POST", "/v1/admin/cluster/join-codes", Some(json!({ "ttlSeconds": ttl_seconds })))
    }

    /// The row of a join code in the list.
    pub fn code_row(&self, id: &str) -> Value {
        let codes = self.admin("GET", "/v1/admin/cluster/join-codes", None);
        codes["codes"].as_array().unwrap().iter().find(|c| c["id"] == id).unwrap().clone()
    }
}

/// A code with the same selector and another secret, as a person mistypes it: its last character does not fit.
pub fn mistyped(code: &str) -> String {
    let mut text = JoinCode::parse(code).unwrap().written().replace('-', "").into_bytes();
    text[6] = if text[6] == b'7' { b'8' } else { b'7' };
    String::from_utf8(text).unwrap()
}
