//! What must hold at any moment of any join, whatever was killed when.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use stratum_join::identity;

use super::World;

/// What a machine knew at some moment, and must not change afterwards.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    /// Fingerprint of the client key, once there is one.
    pub key: Option<String>,
    /// Join id and pairing code, once it is registered.
    pub pairing: Option<(String, String)>,
}

impl World {
    /// Looks at a machine whose agent is dead: no file is torn. Gives what it knew.
    pub fn look_at_the_dead(&self) -> Known {
        no_torn_file(self.machine.root.path());
        let state = self.machine.path("var/lib/stratum/join");
        let key = identity::load(&state.join("identity")).unwrap();
        let journal = fs::read(state.join("journal.json")).ok();
        let journal: Value = journal.map_or(Value::Null, |bytes| serde_json::from_slice(&bytes).unwrap());
        let record = &journal["registration"];
        let text = |name: &str| record[name].as_str().map(str::to_owned);
        Known {
            key: key.map(|key| data_encoding::HEXLOWER.encode(&key.client_fp())),
            pairing: text("joinId").zip(text("pairingCode")),
        }
    }

    /// Looks at a machine that has joined, and at the founder: one record, of that key and that pairing code; firstboot ran once for each
    /// attempt; the join code is in no log; nothing half-written is left.
    pub fn look_at_the_joined(&self, known: &Known, code: &str) {
        let attempts = self.look_at_the_pair(known, code);
        assert_eq!(
            self.machine.starts(),
            (1..=attempts).collect::<Vec<_>>(),
            "firstboot runs once for each attempt"
        );
    }

    /// The same without the starts of firstboot. Gives the last attempt.
    pub fn look_at_the_pair(&self, known: &Known, code: &str) -> u64 {
        let joins = self.joins();
        assert_eq!(joins.len(), 1, "one machine is one registration: {joins:?}");
        let record = &joins[0];
        assert_eq!(record["state"], "joined");
        if let Some(key) = &known.key {
            assert_eq!(record["keyFingerprint"], key.as_str(), "the client key changed");
        }
        let shown = self.machine.snapshot().unwrap();
        let pairing =
            (shown.registration.join_id.unwrap().to_string(), shown.pairing_code.unwrap().to_string());
        assert_eq!(record["id"], pairing.0.as_str());
        assert_eq!(record["pairingCode"], pairing.1.as_str(), "the two screens show different pairing codes");
        if let Some(known) = &known.pairing {
            assert_eq!(*known, pairing, "the pairing code changed");
        }
        let root = self.machine.root.path();
        no_torn_file(root);
        let left: Vec<PathBuf> = files(root).into_iter().filter(|path| is_temp(path)).collect();
        assert!(left.is_empty(), "left behind: {left:?}");
        let log = self.machine.log();
        for written in [code.to_owned(), code.replace('-', "")] {
            assert!(!log.contains(&written), "the join code is in the log");
        }
        record["attempt"].as_u64().unwrap()
    }
}

/// Every file of ours under its own name is whole.
pub fn no_torn_file(root: &Path) {
    for path in files(root).iter().filter(|path| !is_temp(path)) {
        let name = path.file_name().unwrap().to_string_lossy();
        if name.ends_with(".json") {
            let text = fs::read(path).unwrap();
            let read = serde_json::from_slice::<Value>(&text);
            assert!(read.is_ok(), "{} is torn: {}", path.display(), String::from_utf8_lossy(&text));
        } else if name.ends_with(".pem") {
            let text = fs::read_to_string(path).unwrap();
            let whole = text.starts_with("-----BEGIN") && text.trim_end().ends_with("-----");
            assert!(whole, "{} is torn", path.display());
        }
    }
}

fn is_temp(path: &Path) -> bool {
    let name = path.file_name().unwrap().to_string_lossy();
    name.ends_with(".tmp")
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        // A run that lives may move its files meanwhile: what is gone is not torn.
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files(&entry.path())),
            Ok(kind) if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
    found
}
