//! Where secrets could end up, and the search for them: each secret raw, in base64, in hex.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use data_encoding::{BASE64, BASE64URL_NOPAD, HEXLOWER};
use serde_json::Value;

use super::{World, bin, told};

/// A secret and what it is called.
#[derive(Clone)]
pub struct Canary {
    pub name: String,
    pub value: String,
}

/// Something that a person, a program or a founder could read.
pub struct Place {
    pub name: String,
    pub text: String,
}

/// Samples the command lines and environments of all processes that have to do with one machine.
pub struct Processes {
    stop: mpsc::Sender<()>,
    thread: JoinHandle<BTreeSet<String>>,
}

// === impl Canary ===

impl Canary {
    pub fn new(name: &str, value: impl Into<String>) -> Self {
        Self { name: name.to_owned(), value: value.into() }
    }

    /// The spellings of a join code.
    pub fn of_code(code: &str) -> Vec<Self> {
        told::spellings(code).into_iter().map(|value| Self::new("join code", value)).collect()
    }

    /// The lines of a PEM private key.
    pub fn of_pem(name: &str, pem: &str) -> Vec<Self> {
        pem.lines()
            .filter(|line| !line.starts_with("--") && line.len() >= 8)
            .map(|line| Self::new(name, line))
            .collect()
    }

    /// Every secret field of a bundle. Fields whose value is public are named here and nowhere else.
    pub fn of_bundle(bundle: &Value) -> Vec<Self> {
        const SECRET: [&str; 7] = [
            "nodeKey",
            "postgresPassword",
            "adminPassword",
            "openBaoToken",
            "openBaoNodeToken",
            "axdnsdEncryptionKey",
            "openBaoUnsealKey",
        ];
        SECRET
            .iter()
            .flat_map(|name| {
                let value = bundle[name].as_str().unwrap_or_else(|| panic!("the bundle has no {name}"));
                if value.starts_with("-----BEGIN") {
                    Self::of_pem(name, value)
                } else {
                    vec![Self::new(name, value)]
                }
            })
            .collect()
    }

    fn spellings(&self) -> Vec<String> {
        let bytes = self.value.as_bytes();
        // Of base64 only the part that does not depend on what stands around it.
        let whole = &bytes[..bytes.len() / 3 * 3];
        vec![self.value.clone(), BASE64.encode(whole), BASE64URL_NOPAD.encode(whole), HEXLOWER.encode(bytes)]
    }
}

// === impl Processes ===

impl Processes {
    pub fn watch(root: &Path) -> Self {
        let root = root.display().to_string();
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut seen = BTreeSet::new();
            while let Err(mpsc::RecvTimeoutError::Timeout) = stopped.recv_timeout(Duration::from_millis(10)) {
                sample(&root, &mut seen);
            }
            // Once more, so that what runs now was seen.
            sample(&root, &mut seen);
            seen
        });
        Self { stop, thread }
    }

    /// Everything that was seen.
    pub fn stop(self) -> Place {
        drop(self.stop);
        let seen = self.thread.join().unwrap();
        Place { name: "processes".to_owned(), text: seen.into_iter().collect::<Vec<_>>().join("\n") }
    }
}

fn sample(root: &str, seen: &mut BTreeSet<String>) {
    let own = std::process::id().to_string();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let pid = entry.file_name().to_string_lossy().into_owned();
        if !pid.bytes().all(|b| b.is_ascii_digit()) || pid == own {
            continue;
        }
        let read = |what: &str| {
            let bytes = fs::read(entry.path().join(what)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).replace('\0', " ")
        };
        let (line, environment) = (read("cmdline"), read("environ"));
        if line.contains(root) || environment.contains(root) {
            seen.insert(format!("argv: {line}"));
            seen.insert(format!("environment: {environment}"));
        }
    }
}

/// Every file below the machine's root, what the commands print, what the founder has, and what was left in temporary directories.
pub fn places(world: &World, since: SystemTime) -> Vec<Place> {
    let mut places = Vec::new();
    let root = world.machine.path("");
    for path in files(&root) {
        let name = path.strip_prefix(&root).unwrap().display().to_string();
        places.push(Place { name, text: text_of(&path) });
    }
    for args in [&[][..], &["--output", "json"][..]] {
        let out = Command::new(bin("stratum-join"))
            .args(["status", "--root"])
            .arg(&root)
            .args(args)
            .output()
            .unwrap();
        let name = format!("status {}", args.join(" ")).trim().to_owned();
        places.push(Place {
            name,
            text: String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned(),
        });
    }
    let check = world.machine.installer(&["--check"], "");
    let text = String::from_utf8_lossy(&[check.stdout, check.stderr].concat()).into_owned();
    places.push(Place { name: "join --check".to_owned(), text });

    for request in world.founder.core().received() {
        let name = match (request.method.as_str(), request.path.as_str()) {
            ("POST", "/v1/join/registrations") => "founder: registration",
            (_, path) if path.ends_with("/progress") => "founder: progress",
            (_, path) if path.ends_with("/log") => "founder: log",
            (_, path) if path.ends_with("/join-failed") => "founder: join-failed",
            _ => "founder: other calls",
        };
        let text = String::from_utf8_lossy(&told::heap(&[request])).into_owned();
        places.push(Place { name: name.to_owned(), text });
    }
    for join in world.joins() {
        let record = world.record(join["id"].as_str().unwrap());
        places.push(Place { name: "founder: record".to_owned(), text: record.to_string() });
    }
    for dir in ["/tmp", "/var/tmp", "/dev/shm"] {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let fresh = entry
                .metadata()
                .is_ok_and(|m| m.is_file() && m.len() < 4 << 20 && m.modified().is_ok_and(|at| at >= since));
            if fresh {
                places.push(Place {
                    name: format!("{dir} {:?}", entry.file_name()),
                    text: text_of(&entry.path()),
                });
            }
        }
    }
    places
}

/// `<canary> in <place>` for every find that `may` does not allow.
pub fn search(places: &[Place], canaries: &[Canary], may: impl Fn(&str, &str) -> bool) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for canary in canaries {
        let spellings = canary.spellings();
        for place in places.iter().filter(|place| !may(&canary.name, &place.name)) {
            if spellings.iter().any(|spelling| place.text.contains(spelling.as_str())) {
                found.insert(format!("{} in {}", canary.name, place.name));
            }
        }
    }
    found
}

fn text_of(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files(&entry.path())),
            Ok(kind) if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
    found
}
