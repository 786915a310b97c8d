//! Settings: fragments -> merged -> validated [`Settings`].
//!
//! Reads `join.yaml` and `join.d/*.yaml` of the three settings directories and nothing else; writes nothing. An error names the file and
//! the key, never the text around it.
//!
//! `/usr/lib/stratum` is weakest, then `/run/stratum`, then `/etc/stratum`. First every `join.yaml` in that order, then the drop-ins in the
//! order of their names; a drop-in replaces one of the same name in a weaker directory, also when it is empty or a link to /dev/null. Each
//! key is set by the last fragment that names it; `null` is the default.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::durable_file::{self, FileError};
use crate::paths::Paths;
use crate::yaml::{self, YamlError};

/// Largest fragment in bytes.
pub const MAX_FRAGMENT: u64 = 64 * 1024;
/// Most fragments.
pub const MAX_FRAGMENTS: usize = 32;
/// Bounds of `pollWaitSeconds`: the founder holds an answer for at most 60 s.
pub const POLL_WAIT: std::ops::RangeInclusive<u64> = 1..=60;

/// What the log tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    /// State changes and faults.
    Info,
    /// Requests too: method, path, status, duration. Never a body.
    Debug,
}

/// Settings of the self-upgrade.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpgradeSettings {
    /// `upgrade.enabled`: this machine may upgrade itself to the cluster's release.
    pub enabled: bool,
    /// `upgrade.bootc`: use the bootc backend although it has no automatic fallback.
    pub bootc: bool,
    /// `upgrade.mirror.caFile`: replaces the system's roots for the release mirror.
    pub mirror_ca_file: Option<PathBuf>,
    /// `upgrade.mirror.allowHttp`: lab only.
    pub mirror_allow_http: bool,
    /// `upgrade.mirror.proxy`: `http://host:port`.
    pub mirror_proxy: Option<String>,
}

/// The merged and checked settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// `requirePin`: refuse a join request without a pin.
    pub require_pin: bool,
    /// `log`.
    pub log: LogLevel,
    /// `pollWaitSeconds`: how long the founder may hold a long-poll.
    pub poll_wait_seconds: u64,
    /// `upgrade`.
    pub upgrade: UpgradeSettings,
    /// Which file each key that is set came from, e.g. `upgrade.mirror.proxy`.
    pub sources: BTreeMap<&'static str, PathBuf>,
}

/// Why the settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A fragment cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// A settings directory cannot be listed.
    #[error("cannot list {}", dir.display())]
    List {
        /// Which.
        dir: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// More than [`MAX_FRAGMENTS`].
    #[error("{} is one fragment too many: at most {MAX_FRAGMENTS} are read", path.display())]
    TooMany {
        /// The first too many.
        path: PathBuf,
    },
    /// Not YAML, or not within the budget.
    #[error("{} {why}", path.display())]
    Yaml {
        /// Which fragment.
        path: PathBuf,
        /// What and where; no text of the file.
        why: YamlError,
    },
    /// A key that does not exist.
    #[error("{}: there is no setting `{key}`; known are {}", path.display(), KEYS.join(", "))]
    UnknownKey {
        /// Which fragment.
        path: PathBuf,
        /// The key as written, with those above it; cleaned.
        key: String,
    },
    /// A value of the wrong kind or out of bounds.
    #[error("{}: `{key}` must be {want}", path.display())]
    Value {
        /// Which fragment.
        path: PathBuf,
        /// Which key.
        key: &'static str,
        /// What is taken.
        want: &'static str,
    },
}

/// Every key, dotted, in the order people read them.
pub const KEYS: [&str; 8] = [
    "log",
    "pollWaitSeconds",
    "requirePin",
    "upgrade.enabled",
    "upgrade.bootc",
    "upgrade.mirror.caFile",
    "upgrade.mirror.allowHttp",
    "upgrade.mirror.proxy",
];

// === impl Settings ===

impl Default for Settings {
    fn default() -> Self {
        Self {
            require_pin: false,
            log: LogLevel::Info,
            poll_wait_seconds: 50,
            upgrade: UpgradeSettings {
                enabled: true,
                bootc: false,
                mirror_ca_file: None,
                mirror_allow_http: false,
                mirror_proxy: None,
            },
            sources: BTreeMap::new(),
        }
    }
}

impl Settings {
    /// Reads, merges and checks. No file at all is the default.
    pub fn load(paths: &Paths) -> Result<Self, ConfigError> {
        let mut merged: BTreeMap<&'static str, (Value, PathBuf)> = BTreeMap::new();
        for path in fragments(&paths.config_dirs())? {
            let Some(text) = read_fragment(&path)? else { continue };
            let tree = yaml::parse(&text).map_err(|why| ConfigError::Yaml { path: path.clone(), why })?;
            for (key, value) in leaves(&path, &tree)? {
                merged.insert(key, (value, path.clone()));
            }
        }
        let mut settings = Self::default();
        for (key, (value, path)) in merged {
            if value.is_null() {
                continue;
            }
            settings.set(key, &value).map_err(|want| ConfigError::Value { path: path.clone(), key, want })?;
            settings.sources.insert(key, path);
        }
        Ok(settings)
    }

    /// Sets one leaf, or says what it must be.
    fn set(&mut self, key: &str, value: &Value) -> Result<(), &'static str> {
        let switch = || value.as_bool().ok_or("true or false");
        let upgrade = &mut self.upgrade;
        match key {
            "requirePin" => self.require_pin = switch()?,
            "upgrade.enabled" => upgrade.enabled = switch()?,
            "upgrade.bootc" => upgrade.bootc = switch()?,
            "upgrade.mirror.allowHttp" => upgrade.mirror_allow_http = switch()?,
            "log" => {
                self.log = match value.as_str() {
                    Some("info") => LogLevel::Info,
                    Some("debug") => LogLevel::Debug,
                    _ => return Err("info or debug"),
                };
            }
            "pollWaitSeconds" => {
                let wait = value.as_u64().filter(|wait| POLL_WAIT.contains(wait));
                self.poll_wait_seconds = wait.ok_or("a whole number from 1 to 60")?;
            }
            "upgrade.mirror.caFile" => {
                let path = value.as_str().map(Path::new).filter(|path| path.is_absolute());
                upgrade.mirror_ca_file = Some(path.ok_or("the full path of a PEM file")?.to_owned());
            }
            "upgrade.mirror.proxy" => {
                let proxy = value.as_str().filter(|text| is_proxy(text));
                upgrade.mirror_proxy =
                    Some(proxy.ok_or("http://host:port, without user, path or query")?.to_owned());
            }
            // `KEYS` is the list; the test below keeps both together.
            _ => return Err("left out"),
        }
        Ok(())
    }
}

// === private ===

/// The fragments in the order they are applied.
fn fragments(dirs: &[PathBuf]) -> Result<Vec<PathBuf>, ConfigError> {
    let mut all: Vec<PathBuf> =
        dirs.iter().map(|dir| dir.join("join.yaml")).filter(|path| path.exists()).collect();
    let mut drop_ins: BTreeMap<std::ffi::OsString, PathBuf> = BTreeMap::new();
    for dir in dirs.iter().map(|dir| dir.join("join.d")) {
        let list = match std::fs::read_dir(&dir) {
            Ok(list) => list,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(source) => return Err(ConfigError::List { dir, source }),
        };
        for entry in list {
            let entry = entry.map_err(|source| ConfigError::List { dir: dir.clone(), source })?;
            let path = entry.path();
            let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
            if !hidden && path.extension().is_some_and(|ext| ext == "yaml") {
                drop_ins.insert(entry.file_name(), path);
            }
        }
    }
    all.extend(drop_ins.into_values());
    match all.get(MAX_FRAGMENTS) {
        Some(path) => Err(ConfigError::TooMany { path: path.clone() }),
        None => Ok(all),
    }
}

fn read_fragment(path: &Path) -> Result<Option<Vec<u8>>, ConfigError> {
    let masked = std::fs::canonicalize(path).is_ok_and(|real| real == Path::new("/dev/null"));
    if masked { Ok(None) } else { Ok(durable_file::read_public(path, MAX_FRAGMENT)?) }
}

/// The leaves of a fragment by their dotted key; anything that is not in [`KEYS`] is an error.
fn leaves(path: &Path, tree: &Value) -> Result<Vec<(&'static str, Value)>, ConfigError> {
    let mut found = Vec::new();
    match tree {
        Value::Null => {}
        Value::Object(map) => walk(path, "", map, &mut found)?,
        _ => {
            let why = YamlError { why: "is not a list of settings (`key: value`)", place: None };
            return Err(ConfigError::Yaml { path: path.to_owned(), why });
        }
    }
    Ok(found)
}

fn walk(
    path: &Path,
    above: &str,
    map: &serde_json::Map<String, Value>,
    found: &mut Vec<(&'static str, Value)>,
) -> Result<(), ConfigError> {
    for (name, value) in map {
        let key = format!("{above}{name}");
        if let Some(known) = KEYS.iter().find(|known| **known == key) {
            found.push((known, value.clone()));
            continue;
        }
        let group = format!("{key}.");
        let is_group = !name.contains('.') && KEYS.iter().any(|known| known.starts_with(&group));
        match value {
            Value::Object(inner) if is_group => walk(path, &group, inner, found)?,
            Value::Null if is_group => {}
            _ => {
                let key = console::text::Safe::<64>::clean(&key).to_string();
                return Err(ConfigError::UnknownKey { path: path.to_owned(), key });
            }
        }
    }
    Ok(())
}

/// `http://host:port`. The host is checked again by the client that dials it.
fn is_proxy(text: &str) -> bool {
    let Some((host, port)) = text.strip_prefix("http://").and_then(|rest| rest.rsplit_once(':')) else {
        return false;
    };
    let host_ok = !host.is_empty()
        && host.len() <= 253
        && host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'[' | b']' | b':'));
    host_ok && port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Dirs(tempfile::TempDir);

    impl Dirs {
        fn with(files: &[(&str, &str)]) -> Self {
            let dir = tempfile::tempdir().unwrap();
            for (name, text) in files {
                let path = dir.path().join(name);
                durable_file::make_dir(path.parent().unwrap(), 0o755).unwrap();
                durable_file::write_volatile(&path, text.as_bytes(), 0o644, "test").unwrap();
            }
            Self(dir)
        }

        fn load(&self) -> Result<Settings, ConfigError> {
            Settings::load(&Paths::under(self.0.path()))
        }

        fn error(&self) -> String {
            self.load().unwrap_err().to_string().replace(&self.0.path().display().to_string(), "")
        }
    }

    #[test]
    fn without_a_file_the_defaults_hold() {
        assert_eq!(Dirs::with(&[]).load().unwrap(), Settings::default());
    }

    #[test]
    fn the_last_fragment_wins_and_says_where_a_value_came_from() {
        let dirs = Dirs::with(&[
            ("usr/lib/stratum/join.yaml", "requirePin: true\npollWaitSeconds: 10\nlog: debug\n"),
            ("etc/stratum/join.yaml", "pollWaitSeconds: 20\n"),
            ("run/stratum/join.d/50-lab.yaml", "upgrade: {mirror: {allowHttp: true}}\n"),
            ("etc/stratum/join.d/40-poll.yaml", "pollWaitSeconds: 30\nlog: null\n"),
            ("etc/stratum/join.d/README", "not read"),
            ("etc/stratum/join.d/.hidden.yaml", "not read"),
        ]);
        let settings = dirs.load().unwrap();
        assert!(settings.require_pin && settings.upgrade.mirror_allow_http);
        assert_eq!((settings.poll_wait_seconds, settings.log), (30, LogLevel::Info));
        let source =
            |key| settings.sources.get(key).map(|path| path.strip_prefix(dirs.0.path()).unwrap().to_owned());
        assert_eq!(source("pollWaitSeconds").unwrap(), Path::new("etc/stratum/join.d/40-poll.yaml"));
        assert_eq!(source("requirePin").unwrap(), Path::new("usr/lib/stratum/join.yaml"));
        assert_eq!(source("log"), None);
    }

    #[test]
    fn a_drop_in_replaces_the_weaker_one_of_its_name_also_by_nothing() {
        let dirs = Dirs::with(&[
            ("usr/lib/stratum/join.d/10-a.yaml", "requirePin: true\npollWaitSeconds: 5\n"),
            ("etc/stratum/join.d/10-a.yaml", "pollWaitSeconds: 6\n"),
            ("usr/lib/stratum/join.d/20-b.yaml", "log: debug\n"),
        ]);
        std::os::unix::fs::symlink("/dev/null", dirs.0.path().join("etc/stratum/join.d/20-b.yaml")).unwrap();
        let settings = dirs.load().unwrap();
        assert_eq!((settings.require_pin, settings.poll_wait_seconds), (false, 6));
        assert_eq!(settings.log, LogLevel::Info);
    }

    #[test]
    fn an_unknown_key_is_named_with_its_file_and_the_known_ones() {
        let dirs = Dirs::with(&[("etc/stratum/join.yaml", "requirePin: true\nrequirePins: true\n")]);
        let error = dirs.error();
        assert!(
            error.starts_with("/etc/stratum/join.yaml: there is no setting `requirePins`; known are log, "),
            "{error}"
        );
        let nested = Dirs::with(&[("etc/stratum/join.yaml", "upgrade: {mirror: {url: x}}\n")]).error();
        assert!(nested.contains("`upgrade.mirror.url`"), "{nested}");
        let dotted = Dirs::with(&[("etc/stratum/join.yaml", "upgrade.mirror: {allowHttp: true}\n")]).error();
        assert!(dotted.contains("there is no setting `upgrade.mirror`"), "{dotted}");
    }

    #[test]
    fn a_wrong_value_is_named_with_what_is_taken() {
        for (text, want) in [
            ("pollWaitSeconds: 0", "`pollWaitSeconds` must be a whole number from 1 to 60"),
            ("pollWaitSeconds: 61", "`pollWaitSeconds` must be a whole number from 1 to 60"),
            ("pollWaitSeconds: 1.5", "`pollWaitSeconds` must be a whole number from 1 to 60"),
            ("pollWaitSeconds: '5'", "`pollWaitSeconds` must be a whole number from 1 to 60"),
            ("requirePin: yes", "`requirePin` must be true or false"),
            ("requirePin: 1", "`requirePin` must be true or false"),
            ("log: trace", "`log` must be info or debug"),
            (
                "upgrade: {mirror: {caFile: ca.pem}}",
                "`upgrade.mirror.caFile` must be the full path of a PEM file",
            ),
            (
                "upgrade: {mirror: {proxy: 'http://u:p@h:1'}}",
                "`upgrade.mirror.proxy` must be http://host:port, without",
            ),
            (
                "upgrade: {mirror: {proxy: 'http://h:0'}}",
                "`upgrade.mirror.proxy` must be http://host:port, without",
            ),
        ] {
            let error = Dirs::with(&[("etc/stratum/join.yaml", text)]).error();
            assert!(error.starts_with(&format!("/etc/stratum/join.yaml: {want}")), "{text}: {error}");
        }
    }

    #[test]
    fn broken_yaml_is_told_by_place_and_never_by_its_text() {
        let text = "log: info\nsecret: hunter2hunter2\nrequirePin: [\n";
        let error = Dirs::with(&[("etc/stratum/join.d/1.yaml", text)]).error();
        assert!(error.starts_with("/etc/stratum/join.d/1.yaml is not valid YAML at line "), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
        let list = Dirs::with(&[("etc/stratum/join.yaml", "- a\n")]).error();
        assert_eq!(list, "/etc/stratum/join.yaml is not a list of settings (`key: value`)");
    }

    #[test]
    fn a_huge_fragment_and_a_thirty_third_are_refused() {
        let huge = format!("log: info\n#{}\n", "x".repeat(70_000));
        let error = Dirs::with(&[("etc/stratum/join.yaml", &huge)]).error();
        assert_eq!(error, "/etc/stratum/join.yaml is larger than 65536 bytes");
        let names: Vec<String> = (0..33).map(|n| format!("etc/stratum/join.d/{n:02}.yaml")).collect();
        let files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "log: info\n")).collect();
        assert!(
            Dirs::with(&files).error().starts_with("/etc/stratum/join.d/32.yaml is one fragment too many")
        );
        assert!(Dirs::with(&files[..32]).load().is_ok());
    }

    #[test]
    fn every_known_key_can_be_set() {
        let value = |key: &str| match key {
            "log" => Value::from("debug"),
            "pollWaitSeconds" => Value::from(7),
            "upgrade.mirror.caFile" => Value::from("/etc/ca.pem"),
            "upgrade.mirror.proxy" => Value::from("http://proxy.example:3128"),
            _ => Value::from(true),
        };
        for key in KEYS {
            assert_eq!(Settings::default().set(key, &value(key)), Ok(()), "{key}");
        }
    }
}
