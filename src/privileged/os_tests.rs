//! Facts about the verbs for the OS, over the recording backend: what is checked whatever the caller says, and what a machine looks like afterwards.
//!
//! As tests.rs this file is two modules: the verbs done here, and asked for through the helper's socket.

#![allow(clippy::disallowed_methods, reason = "tests; their files need not survive a power cut")]

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock};

use lab_founder::release::{AbInput, SecretKey, Spec, SysextInput, make, sign_text};
use rustix::io::Errno;
use serde_json::Value;
use tokio::sync::mpsc;

use super::THROUGH_HELPER;
use super::tests::World;
use crate::durable_file::{self, Lock};
use crate::install::recorded::Trouble;
use crate::install::recorded::boot::{Boot, Outcome, boot, boot_until_up};
use crate::install::*;
use crate::privileged::helper::Served;
use crate::privileged::*;
use crate::upgrade::CHUNK;
use crate::upgrade::fault::Code as Why;
use crate::upgrade::manifest::{Form, Manifest};

const BOOT: &str = "11111111-2222-3333-4444-555555555555";

/// A release as an engineer makes it, in memory.
#[derive(Clone)]
struct Release {
    manifest: Vec<u8>,
    signature: String,
    /// The number of the key, as minisign prints it.
    key: String,
    blobs: HashMap<Digest, Vec<u8>>,
}

/// A key that is always the same.
fn key(letter: u8) -> SecretKey {
    SecretKey::from_seed([letter; 32], [letter; 8])
}

/// What is in the slot after a good install of `release`: a chunk and a bit; only the bit, where its name says so.
fn root_image(release: &str) -> Vec<u8> {
    let len = if release.ends_with("-small") { 0 } else { CHUNK as usize };
    let mut image = vec![7; len];
    image.extend_from_slice(release.as_bytes());
    image
}

/// Signed by the key of this letter.
fn release_by(letter: u8, spec: &Spec) -> Release {
    static MADE: OnceLock<Mutex<HashMap<String, Release>>> = OnceLock::new();
    let name = format!("{letter} {spec:?}");
    let made = MADE.get_or_init(Mutex::default);
    if let Some(release) = made.lock().unwrap().get(&name) {
        return release.clone();
    }
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let mut spec = spec.clone();
    spec.ab = Some(AbInput {
        root: file("root", &root_image(&spec.release)),
        fstype: "erofs".into(),
        linux: file("linux", b"kernel\n"),
        initrds: vec![file("initrd", b"initrd\n")],
        cmdline: vec!["quiet".into()],
    });
    let sysext = SysextInput { name: "stratum-ceph".into(), file: file("ext", b"sysext\n"), required: true };
    spec.sysexts = vec![sysext];
    let out = dir.path().join("release");
    make(&spec, &out).unwrap();
    let manifest = std::fs::read(out.join("payload/manifest.json")).unwrap();
    let read = Manifest::read(&manifest).unwrap();
    let blob = |file: &crate::upgrade::FileEntry| {
        (file.sha256, std::fs::read(out.join(file.path.as_str())).unwrap())
    };
    let key = key(letter);
    let release = Release {
        signature: sign_text(&key, &manifest, &read.about.trusted_comment()),
        blobs: read.files.iter().map(blob).collect(),
        manifest,
        key: key.id().to_string(),
    };
    made.lock().unwrap().insert(name, release.clone());
    release
}

fn release(name: &str, sequence: u64) -> Release {
    release_by(b'A', &Spec::named(name, sequence, "0.1.0"))
}

impl Release {
    fn sha256(&self) -> Digest {
        Digest::of(&self.manifest)
    }

    fn root(&self) -> Digest {
        Digest::of(&root_image(Manifest::read(&self.manifest).unwrap().about.release.as_str()))
    }
}

/// A machine at 0.6.0 that knows key A.
struct Machine {
    world: World,
    boot: String,
    trouble: Trouble,
}

impl Machine {
    fn new() -> Self {
        let machine = Self { world: World::new(), boot: BOOT.into(), trouble: Trouble::None };
        let paths = machine.paths();
        put(&paths.os_release()[0], b"ID=stratum\nVERSION_ID=0.6.0\nSTRATUM_SEQUENCE=60\n");
        put(&paths.release_keys_dir().join("a.pub"), key(b'A').public_text().as_bytes());
        machine
    }

    fn paths(&self) -> &Paths {
        &self.world.paths
    }

    fn at(&self, name: &str) -> PathBuf {
        self.paths().os_recorded().join(name)
    }

    fn verbs(&self) -> Box<dyn Privileged> {
        self.verbs_telling(mpsc::unbounded_channel().0)
    }

    /// `ended` is told what came of each connection to the helper.
    fn verbs_telling(&self, ended: mpsc::UnboundedSender<Served>) -> Box<dyn Privileged> {
        let runner = FirstbootRunner::Command { program: "/no/such".into() };
        let mut verbs = InProcess::new(self.paths().clone(), runner, &*self.boot).with_recorded_os();
        verbs.os_trouble = self.trouble.clone();
        if THROUGH_HELPER { Box::new(self.world.helper_telling(verbs, ended)) } else { Box::new(verbs) }
    }

    fn stage(&self) -> PathBuf {
        self.paths().upgrade_dir()
    }

    /// As the agent leaves it.
    fn staged(&self, release: &Release) -> Digest {
        self.staged_as(release.sha256(), release)
    }

    fn staged_as(&self, sha256: Digest, release: &Release) -> Digest {
        let dir = self.stage().join(format!("releases/{sha256}"));
        put(&dir.join("manifest.json"), &release.manifest);
        put(&dir.join(format!("sig/{}.minisig", release.key)), release.signature.as_bytes());
        for (digest, bytes) in &release.blobs {
            put(&self.stage().join(format!("blobs/{digest}")), bytes);
        }
        sha256
    }

    async fn write(&self, manifest: Digest) -> Result<Installed, UpgradeFault> {
        self.verbs().write_release(manifest, mpsc::channel(8).0).await
    }

    async fn os(&self) -> OsState {
        self.verbs().probe_os().await.unwrap()
    }

    fn starts(&mut self, outcome: Outcome) -> Boot {
        let boot = boot(self.paths().root(), outcome).unwrap();
        self.boot = boot.boot_id.clone();
        boot
    }

    /// The names of the boot entries.
    fn entries(&self) -> Vec<String> {
        names(&self.at("entries"))
    }

    /// What the record says was called, with what came of it.
    fn calls(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.at("record.jsonl")).unwrap_or_default();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let words = lines.filter_map(|line| {
            let did = line["did"].as_str().map(|did| format!("{} {did}", line["slot"].as_str().unwrap()));
            let ended = line["ended"].as_str().map(|call| match line["error"].as_str() {
                None => call.to_owned(),
                Some(error) => format!("{call}: {error}"),
            });
            did.or(ended).or_else(|| (line["call"] == "reboot").then(|| "reboot".to_owned()))
        });
        words.collect()
    }

    /// The machine is as it was: nothing but the running OS can be started, and nothing says that another was installed.
    async fn untouched(&self, what: &str) {
        assert!(
            self.entries().iter().all(|entry| entry == "stratum-0.6.0.conf"),
            "{what}: {:?}",
            self.entries()
        );
        let os = self.os().await;
        assert_eq!((os.armed, os.installed), (None, None), "{what}");
        let fault = self.verbs().reboot().await.unwrap_err();
        assert!(fault.detail.as_str().ends_with("this machine is not rebooted"), "{what}: {fault:?}");
        assert!(!self.at("restart-requested").exists(), "{what}");
    }

    /// Staged, written, armed.
    async fn armed(&self, release: &Release) -> Digest {
        let manifest = self.staged(release);
        self.write(manifest).await.unwrap();
        self.verbs().arm_release(manifest).await.unwrap();
        manifest
    }
}

fn put(path: &Path, bytes: &[u8]) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten();
    let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Two whole sentences, and the first of them says `word`.
fn says(fault: &UpgradeFault, code: Why, word: &str) {
    assert_eq!(fault.code, code, "{fault:?}");
    assert!(fault.what.as_str().contains(word), "{fault:?}");
    assert!(fault.what.as_str().ends_with('.') && !fault.todo.is_empty(), "{fault:?}");
}

// --- the good way ---

#[tokio::test]
async fn a_good_release_is_written_armed_started_and_confirmed() {
    let mut machine = Machine::new();
    let new = release("0.7.0", 70);
    let manifest = machine.staged(&new);
    let before = machine.os().await;
    assert_eq!((before.backend, before.supported, before.form), (Backend::Recorded, None, Some(Form::Ab)));
    assert_eq!((before.booted.slot, before.booted.trial), (Some(Slot::A), Trial::No));

    assert_eq!(machine.write(manifest).await.unwrap(), Installed { slot: Slot::B });
    assert_eq!(Digest::of(&std::fs::read(machine.at("slot-b.img")).unwrap()), new.root());
    assert_eq!(names(&machine.paths().os_sysexts().join("b")), ["stratum-ceph.raw"]);
    let esp = names(&machine.at("esp"));
    assert!(esp.len() == 2 && esp[0].starts_with("initrd-") && esp[1].starts_with("linux-"), "{esp:?}");
    assert_eq!(machine.entries(), ["stratum-0.6.0.conf"]);
    let written = machine.os().await;
    assert_eq!((written.installed, written.armed), (Some(manifest), None));

    machine.verbs().arm_release(manifest).await.unwrap();
    assert_eq!(machine.entries(), ["stratum-0.6.0.conf", "stratum-0.7.0+3.conf"]);
    let armed = machine.os().await.armed.unwrap();
    assert_eq!((armed.manifest, armed.release.as_str(), armed.slot), (manifest, "0.7.0", Slot::B));
    assert_eq!(armed.boot_id, BOOT);
    machine.verbs().reboot().await.unwrap();
    assert!(machine.at("restart-requested").exists());

    let boot = machine.starts(Outcome::Comes);
    assert_eq!((boot.slot, boot.release.as_str(), boot.came), (Slot::B, "0.7.0", true));
    assert!(!machine.at("restart-requested").exists() && boot.boot_id != BOOT);
    let trial = machine.os().await;
    assert_eq!((trial.booted.slot, trial.booted.release.as_str()), (Some(Slot::B), "0.7.0"));
    assert_eq!(
        (trial.booted.trial, trial.last_trial),
        (Trial::Counting { left: 2, done: 1 }, LastTrial::None)
    );

    machine.verbs().bless().await.unwrap();
    assert_eq!(machine.entries(), ["stratum-0.6.0.conf", "stratum-0.7.0.conf"]);
    let good = machine.os().await;
    assert_eq!((good.booted.trial, good.last_trial), (Trial::No, LastTrial::Good));
    let floor: Value = serde_json::from_slice(&std::fs::read(machine.paths().os_floor()).unwrap()).unwrap();
    assert_eq!((&floor["release"], &floor["sequence"]), (&"0.7.0".into(), &70.into()));
    assert_eq!(machine.calls(), ["b written", "write", "arm", "reboot", "bless"]);
    let text = std::fs::read_to_string(&machine.paths().os_release()[0]).unwrap();
    assert_eq!(text, "ID=stratum\nVERSION_ID=0.7.0\nSTRATUM_SEQUENCE=70\n");
}

#[tokio::test]
async fn every_verb_can_be_repeated() {
    let mut machine = Machine::new();
    let manifest = machine.staged(&release("0.7.0", 70));
    for _ in 0..2 {
        machine.write(manifest).await.unwrap();
    }
    for _ in 0..2 {
        machine.verbs().arm_release(manifest).await.unwrap();
    }
    for _ in 0..2 {
        machine.verbs().disarm_release().await.unwrap();
    }
    assert_eq!((machine.entries(), machine.os().await.armed), (vec!["stratum-0.6.0.conf".to_owned()], None));
    machine.verbs().arm_release(manifest).await.unwrap();
    machine.verbs().reboot().await.unwrap();
    machine.verbs().reboot().await.unwrap();
    machine.starts(Outcome::Comes);
    for _ in 0..2 {
        machine.verbs().bless().await.unwrap();
    }
    // What is in the slot already is read back, and not written again.
    assert_eq!(
        machine.calls(),
        [
            "b written",
            "write",
            "b kept",
            "write",
            "arm",
            "arm",
            "disarm",
            "disarm",
            "arm",
            "reboot",
            "reboot",
            "bless",
            "bless"
        ]
    );
}

#[tokio::test]
async fn the_next_upgrade_goes_into_the_other_slot_and_takes_what_is_there_away() {
    let mut machine = Machine::new();
    machine.armed(&release("0.7.0", 70)).await;
    machine.starts(Outcome::Comes);
    machine.verbs().bless().await.unwrap();
    put(&machine.paths().os_sysexts().join("a/old.raw"), b"old");
    machine.armed(&release("0.8.0", 80)).await;
    assert_eq!(machine.entries(), ["stratum-0.7.0.conf", "stratum-0.8.0+3.conf"]);
    assert_eq!(names(&machine.paths().os_sysexts().join("a")), ["stratum-ceph.raw"]);
    assert_eq!(machine.starts(Outcome::Comes).slot, Slot::A);
}

#[tokio::test]
async fn a_write_tells_how_far_it_is() {
    let machine = Machine::new();
    let new = release("0.7.0", 70);
    let manifest = machine.staged(&new);
    let (progress, mut told) = mpsc::channel(64);
    machine.verbs().write_release(manifest, progress).await.unwrap();
    let total = new.blobs.values().map(|blob| blob.len() as u64).sum();
    let mut figures = Vec::new();
    while let Some(figure) = told.recv().await {
        figures.push(figure);
    }
    assert_eq!(figures.first(), Some(&(0, total)));
    assert!(figures.iter().all(|(done, all)| done <= all && *all == total), "{figures:?}");
    assert!(figures.is_sorted(), "{figures:?}");
}

// --- what the caller may not get ---

#[tokio::test]
async fn a_release_that_breaks_a_rule_is_refused_whoever_asks_and_nothing_is_written() {
    type Prepare = fn(&Machine) -> Digest;
    let cases: &[(&str, Prepare, Why)] = &[
        (
            "not in the stage",
            |machine| {
                machine.staged(&release("0.7.0", 70));
                Digest([7; 32])
            },
            Why::Hash,
        ),
        (
            "a forged manifest",
            |machine| {
                let mut forged = release("0.7.0", 70);
                let at = forged.manifest.len() - 3;
                forged.manifest.insert(at, b' ');
                machine.staged(&forged)
            },
            Why::SigBad,
        ),
        (
            "another manifest under the name of a good one",
            |machine| machine.staged_as(release("0.7.0", 70).sha256(), &release("0.7.1", 71)),
            Why::Hash,
        ),
        (
            "signed by a stranger",
            |machine| machine.staged(&release_by(b'B', &Spec::named("0.7.0", 70, "0.1.0"))),
            Why::KeyUnknown,
        ),
        (
            "no signature",
            |machine| {
                let manifest = machine.staged(&release("0.7.0", 70));
                std::fs::remove_dir_all(machine.stage().join(format!("releases/{manifest}/sig"))).unwrap();
                manifest
            },
            Why::SourceStatus,
        ),
        ("an old release, signed well", |machine| machine.staged(&release("0.5.0", 50)), Why::Downgrade),
        ("the release that runs", |machine| machine.staged(&release("0.6.0", 60)), Why::Downgrade),
        (
            "a higher name and a lower sequence",
            |machine| machine.staged(&release("0.7.0", 59)),
            Why::Downgrade,
        ),
        (
            "below what ran here",
            |machine| {
                put(&machine.paths().os_floor(), br#"{"release":"0.8.0","sequence":80}"#);
                machine.staged(&release("0.7.0", 70))
            },
            Why::Downgrade,
        ),
        (
            "this OS is too old for it",
            |machine| machine.staged(&release_by(b'A', &Spec::named("0.7.0", 70, "0.6.1"))),
            Why::TooOld,
        ),
        (
            "of another product",
            |machine| {
                let spec = Spec { product: "other".into(), ..Spec::named("0.7.0", 70, "0.1.0") };
                machine.staged(&release_by(b'A', &spec))
            },
            Why::WrongRelease,
        ),
        (
            "no keys",
            |machine| {
                std::fs::remove_dir_all(machine.paths().release_keys_dir()).unwrap();
                machine.staged(&release("0.7.0", 70))
            },
            Why::KeyUnknown,
        ),
    ];
    for (what, prepare, code) in cases {
        let machine = Machine::new();
        let manifest = prepare(&machine);
        let fault = machine.write(manifest).await.unwrap_err();
        assert_eq!(fault.code, *code, "{what}: {fault:?}");
        assert_eq!(machine.verbs().arm_release(manifest).await.unwrap_err().code, *code, "{what}");
        assert!(!machine.at("slot-b.img").exists() && machine.entries().is_empty(), "{what}");
        machine.untouched(what).await;
    }
}

#[tokio::test]
async fn what_was_planted_in_the_stage_is_neither_followed_nor_waited_for() {
    type Plant = fn(&Path, &Path);
    let link: Plant = |path, victim| std::os::unix::fs::symlink(victim, path).unwrap();
    let fifo: Plant = |path, _| nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRUSR).unwrap();
    let hard: Plant = |path, victim| std::fs::hard_link(victim, path).unwrap();
    let dir: Plant = |path, _| std::fs::create_dir(path).unwrap();
    let none: Plant = |_, _| {};
    let short: Plant = |path, victim| std::fs::write(path, &std::fs::read(victim).unwrap()[1..]).unwrap();
    let long: Plant =
        |path, victim| std::fs::write(path, [&std::fs::read(victim).unwrap()[..], b"x"].concat()).unwrap();
    // The path of a socket is short.
    let socket: Plant = |path, victim| {
        let short = victim.with_extension("s");
        drop(std::os::unix::net::UnixListener::bind(&short).unwrap());
        std::fs::rename(short, path).unwrap();
    };
    let plants = [
        ("link", link),
        ("fifo", fifo),
        ("hard link", hard),
        ("directory", dir),
        ("nothing", none),
        ("short", short),
        ("long", long),
        ("socket", socket),
    ];
    let new = release("0.7.0-small", 70);
    let manifest = new.sha256();
    let files = [
        format!("blobs/{}", new.root()),
        format!("blobs/{}", Digest::of(b"kernel\n")),
        format!("releases/{manifest}/manifest.json"),
        format!("releases/{manifest}/sig/{}.minisig", new.key),
    ];
    let machine = Machine::new();
    for file in &files {
        for (what, plant) in plants {
            machine.staged(&new);
            let path = machine.stage().join(file);
            // What a link leads to is the right file: it is refused for being a link.
            let victim = machine.paths().root().join("victim");
            std::fs::rename(&path, &victim).unwrap();
            plant(&path, &victim);
            let fault = machine.write(manifest).await.unwrap_err();
            let signature = file.ends_with(".minisig");
            let code = match what {
                "nothing" if signature => Why::SourceStatus,
                "short" | "long" if signature => Why::SigBad,
                _ => Why::Hash,
            };
            // A comment that begins one letter late is no signature at all.
            assert!(
                fault.code == code || (signature && fault.code == Why::SourceStatus),
                "{file} {what}: {fault:?}"
            );
            machine.untouched(what).await;
            if path.is_dir() {
                std::fs::remove_dir(&path).unwrap()
            } else {
                let _ = std::fs::remove_file(&path);
            }
        }
    }
    // The directories on the way.
    for name in ["blobs", &format!("releases/{manifest}/sig"), &format!("releases/{manifest}"), "."] {
        machine.staged(&new);
        let path = if name == "." { machine.stage() } else { machine.stage().join(name) };
        let victim = machine.paths().root().join("victims");
        std::fs::rename(&path, &victim).unwrap();
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        says(&machine.write(manifest).await.unwrap_err(), Why::Hash, "is a symbolic link");
        machine.untouched(name).await;
        std::fs::remove_file(&path).unwrap();
        std::fs::rename(&victim, &path).unwrap();
    }
    machine.write(manifest).await.unwrap();
}

#[tokio::test]
async fn one_wrong_byte_leaves_the_slot_without_a_beginning_and_nothing_to_start_it() {
    let machine = Machine::new();
    let new = release("0.7.0", 70);
    let manifest = machine.staged(&new);
    let path = machine.stage().join(format!("blobs/{}", new.root()));
    for at in [0, CHUNK as usize - 1, CHUNK as usize] {
        let mut bytes = root_image("0.7.0");
        bytes[at] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        says(&machine.write(manifest).await.unwrap_err(), Why::Hash, "does not match the signed manifest");
        let slot = std::fs::read(machine.at("slot-b.img")).unwrap();
        assert!(slot[..1024 * 1024].iter().all(|byte| *byte == 0), "{at}");
        says(&machine.verbs().arm_release(manifest).await.unwrap_err(), Why::Helper, "was not written");
        machine.untouched("a wrong byte").await;
    }
}

#[tokio::test]
async fn a_write_that_fails_leaves_nothing_armed_of_what_was_there_before() {
    let machine = Machine::new();
    machine.armed(&release("0.7.0", 70)).await;
    let newer = release("0.8.0", 80);
    let manifest = machine.staged(&newer);
    std::fs::remove_file(machine.stage().join(format!("blobs/{}", newer.root()))).unwrap();
    says(&machine.write(manifest).await.unwrap_err(), Why::Hash, "is not there");
    machine.untouched("the slot is garbage").await;
}

#[tokio::test]
async fn a_file_that_changes_all_the_time_is_never_written_wrong() {
    let machine = Machine::new();
    let new = release("0.7.0", 70);
    let manifest = machine.staged(&new);
    let path = machine.stage().join(format!("blobs/{}", new.root()));
    let end = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let swapper = std::thread::spawn({
        let (path, end) = (path.clone(), end.clone());
        move || {
            use std::os::unix::fs::FileExt;
            let other = path.with_extension("other");
            std::fs::write(&other, vec![9; CHUNK as usize + 5]).unwrap();
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            let mut swaps = 0;
            while !end.load(Ordering::Relaxed) {
                // In place, and by another file of this name.
                for byte in [9, 5] {
                    file.write_all_at(&[byte], 100).unwrap();
                    file.write_all_at(&[byte; 4096], CHUNK - 4096).unwrap();
                }
                std::fs::rename(&path, path.with_extension("mine")).unwrap();
                std::fs::rename(&other, &path).unwrap();
                std::fs::rename(&path, &other).unwrap();
                std::fs::rename(path.with_extension("mine"), &path).unwrap();
                swaps += 1;
            }
            swaps
        }
    });
    let mut wrong = 0;
    for _ in 0..10 {
        let _ = std::fs::remove_file(machine.paths().os_installed());
        match machine.write(manifest).await {
            Ok(_) => assert_eq!(Digest::of(&std::fs::read(machine.at("slot-b.img")).unwrap()), new.root()),
            Err(fault) => {
                assert_eq!(fault.code, Why::Hash, "{fault:?}");
                assert_eq!(machine.verbs().arm_release(manifest).await.unwrap_err().code, Why::Helper);
                wrong += 1;
            }
        }
    }
    end.store(true, Ordering::Relaxed);
    let swaps = swapper.join().unwrap();
    println!("{swaps} swaps; {wrong} of 10 writes were refused");
    machine.staged(&new);
    machine.write(manifest).await.unwrap();
}

#[tokio::test]
async fn only_what_was_written_is_armed() {
    let machine = Machine::new();
    let (new, newer) = (release("0.7.0", 70), release("0.8.0", 80));
    let (first, second) = (machine.staged(&new), machine.staged(&newer));
    says(
        &machine.verbs().arm_release(first).await.unwrap_err(),
        Why::Helper,
        "0.7.0 was not written to slot b",
    );
    machine.write(second).await.unwrap();
    says(
        &machine.verbs().arm_release(first).await.unwrap_err(),
        Why::Helper,
        "0.7.0 was not written to slot b",
    );
    // Somebody wrote to the slot since.
    for at in [0, CHUNK as usize] {
        let path = machine.at("slot-b.img");
        let right = std::fs::read(&path).unwrap();
        let mut bytes = right.clone();
        bytes[at] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        says(&machine.verbs().arm_release(second).await.unwrap_err(), Why::InstallIo, "read back differs");
        std::fs::write(&path, right).unwrap();
    }
    assert_eq!((machine.entries(), machine.os().await.armed), (vec!["stratum-0.6.0.conf".to_owned()], None));
    machine.verbs().arm_release(second).await.unwrap();
}

#[tokio::test]
async fn nothing_restarts_a_machine_but_an_armed_release_and_an_os_on_trial() {
    let mut machine = Machine::new();
    machine.untouched("fresh").await;
    machine.armed(&release("0.7.0", 70)).await;
    machine.verbs().disarm_release().await.unwrap();
    assert!(machine.verbs().reboot().await.is_err());
    machine.armed(&release("0.7.0", 70)).await;
    // In the next boot that is no reason any more. But an OS that is not well may go, until it was confirmed.
    machine.starts(Outcome::Comes);
    machine.verbs().reboot().await.unwrap();
    machine.starts(Outcome::Comes);
    machine.verbs().bless().await.unwrap();
    assert!(machine.verbs().reboot().await.unwrap_err().detail.as_str().contains("is of another boot"));
}

#[tokio::test]
async fn only_an_os_on_trial_is_confirmed_and_while_it_is_the_other_slot_is_left_alone() {
    let mut machine = Machine::new();
    says(&machine.verbs().bless().await.unwrap_err(), Why::Helper, "is not on trial");
    machine.armed(&release("0.7.0", 70)).await;
    says(&machine.verbs().bless().await.unwrap_err(), Why::Helper, "is not on trial");
    assert!(!machine.paths().os_floor().exists());
    machine.starts(Outcome::Comes);
    let newer = machine.staged(&release("0.8.0", 80));
    says(&machine.write(newer).await.unwrap_err(), Why::Helper, "is on trial");
    says(&machine.verbs().arm_release(newer).await.unwrap_err(), Why::Helper, "is on trial");
    machine.verbs().disarm_release().await.unwrap();
    assert_eq!(machine.entries(), ["stratum-0.6.0.conf", "stratum-0.7.0+2-1.conf"]);
    machine.verbs().bless().await.unwrap();
    machine.write(newer).await.unwrap();
}

#[tokio::test]
async fn an_os_that_was_confirmed_is_not_disarmed() {
    let mut machine = Machine::new();
    machine.armed(&release("0.7.0", 70)).await;
    machine.starts(Outcome::Comes);
    machine.verbs().bless().await.unwrap();
    machine.verbs().disarm_release().await.unwrap();
    assert_eq!(machine.entries(), ["stratum-0.6.0.conf", "stratum-0.7.0.conf"]);
}

// --- the next start ---

#[tokio::test]
async fn an_os_that_does_not_come_up_is_left_after_three_starts_and_may_be_armed_again() {
    let mut machine = Machine::new();
    let manifest = machine.armed(&release("0.7.0", 70)).await;
    let boots = boot_until_up(machine.paths().root(), Outcome::Panics).unwrap();
    let seen: Vec<(&str, bool)> = boots.iter().map(|boot| (boot.entry.as_str(), boot.came)).collect();
    assert_eq!(
        seen,
        [
            ("stratum-0.7.0+2-1.conf", false),
            ("stratum-0.7.0+1-2.conf", false),
            ("stratum-0.7.0+0-3.conf", false),
            ("stratum-0.6.0.conf", true)
        ]
    );
    machine.boot = boots[3].boot_id.clone();
    let os = machine.os().await;
    assert_eq!((os.booted.release.as_str(), os.booted.trial), ("0.6.0", Trial::No));
    assert_eq!(os.last_trial, LastTrial::Exhausted { tries: 3 });
    assert!(os.last_error.unwrap().as_str().starts_with("Kernel panic"));
    assert_eq!((os.installed, os.armed.unwrap().boot_id.as_str()), (Some(manifest), BOOT));
    assert!(machine.verbs().reboot().await.is_err());
    // No byte is written for the next try.
    machine.write(manifest).await.unwrap();
    machine.verbs().arm_release(manifest).await.unwrap();
    assert!(machine.calls().contains(&"b kept".to_owned()));
    assert_eq!(machine.entries(), ["stratum-0.6.0.conf", "stratum-0.7.0+3.conf"]);
    assert_eq!(machine.os().await.last_trial, LastTrial::None);
    assert_eq!(machine.starts(Outcome::Comes).slot, Slot::B);
}

#[tokio::test]
async fn what_became_of_a_trial_is_read_from_its_entry() {
    type Then = fn(&mut Machine);
    let cases: [(Then, LastTrial); 4] = [
        (|_| {}, LastTrial::NotTried),
        (|machine| drop(machine.starts(Outcome::Panics)), LastTrial::Interrupted { done: 1, left: 2 }),
        (
            |machine| {
                machine.starts(Outcome::Comes);
            },
            LastTrial::Interrupted { done: 1, left: 2 },
        ),
        (
            |machine| std::fs::remove_file(machine.at("entries/stratum-0.7.0+3.conf")).unwrap(),
            LastTrial::Lost,
        ),
    ];
    for (then, expected) in cases {
        let mut machine = Machine::new();
        machine.armed(&release("0.7.0", 70)).await;
        then(&mut machine);
        assert_eq!(machine.starts(Outcome::PassedOver).release, "0.6.0");
        let os = machine.os().await;
        assert_eq!(os.last_trial, expected);
        assert_eq!(os.armed.is_some(), expected != LastTrial::Lost);
    }
}

#[tokio::test]
async fn an_entry_that_was_fixed_by_hand_is_told_before_a_restart_for_nothing() {
    let machine = Machine::new();
    let manifest = machine.staged(&release("0.7.0", 70));
    machine.write(manifest).await.unwrap();
    put(&machine.at("default-entry"), b"rescue.conf\n");
    says(&machine.verbs().arm_release(manifest).await.unwrap_err(), Why::DefaultOverride, "(rescue.conf)");
    assert_eq!(machine.os().await.armed, None);
    put(&machine.at("default-entry"), b"stratum-*\n");
    machine.verbs().arm_release(manifest).await.unwrap();
}

// --- trouble ---

#[tokio::test]
async fn a_disk_that_fails_is_named_and_nothing_is_armed() {
    let write = |errno| Trouble::Write(errno, Arc::default());
    for (trouble, code, word) in [
        (write(Errno::NOSPC), Why::NoSpace, "the disk is full"),
        (write(Errno::IO), Why::InstallIo, "input/output error"),
        (Trouble::Sync(Errno::IO), Why::InstallIo, "input/output error"),
        (Trouble::ReadBack, Why::InstallIo, "to slot b failed: read back differs"),
    ] {
        let mut machine = Machine::new();
        let manifest = machine.staged(&release("0.7.0", 70));
        machine.trouble = trouble;
        says(&machine.write(manifest).await.unwrap_err(), code, word);
        machine.untouched(word).await;
        machine.trouble = Trouble::None;
        machine.write(manifest).await.unwrap();
    }
}

#[tokio::test]
async fn an_image_that_is_larger_than_the_slot_is_refused_before_anything_is_touched() {
    let machine = Machine::new();
    let manifest = machine.staged(&release("0.7.0", 70));
    put(&machine.at("slot-bytes"), b"4194304\n");
    says(
        &machine.write(manifest).await.unwrap_err(),
        Why::NoSpace,
        "the slot of the OS needs 4.0 MiB, has 4.0 MiB",
    );
    assert!(!machine.at("slot-b.img").exists());
    machine.untouched("too small").await;
}

#[tokio::test(start_paused = true)]
async fn a_second_install_at_once_is_told_that_there_is_one() {
    let machine = Machine::new();
    let manifest = machine.staged(&release("0.7.0", 70));
    durable_file::make_dir(&machine.paths().os_dir(), 0o755).unwrap();
    let lock = Lock::take(&machine.paths().os_lock()).unwrap();
    says(&machine.write(manifest).await.unwrap_err(), Why::Busy, "Another install is at work");
    says(&machine.verbs().arm_release(manifest).await.unwrap_err(), Why::Busy, "holds");
    says(&machine.verbs().disarm_release().await.unwrap_err(), Why::Busy, "holds");
    says(&machine.verbs().probe_os().await.unwrap_err(), Why::Busy, "holds");
    says(&machine.verbs().bless().await.unwrap_err(), Why::Busy, "holds");
    assert!(
        machine.verbs().reboot().await.unwrap_err().detail.as_str().contains("Another install is at work")
    );
    drop(lock);
    machine.write(manifest).await.unwrap();
}

#[tokio::test]
#[expect(clippy::await_holding_lock, reason = "the write's own thread waits for it, not this one")]
async fn a_write_that_nobody_waits_for_any_more_ends_before_its_next_chunk() {
    let mut machine = Machine::new();
    let manifest = machine.staged(&release("0.7.0", 70));
    let gate = Arc::new(Mutex::new(()));
    machine.trouble = Trouble::Gate(gate.clone());
    let closed = gate.lock().unwrap();
    let (ended, mut connections) = mpsc::unbounded_channel();
    let verbs = machine.verbs_telling(ended);
    let (progress, mut told) = mpsc::channel(8);
    {
        let write = verbs.write_release(manifest, progress);
        tokio::pin!(write);
        tokio::select! {
            _ = told.recv() => {}
            answer = &mut write => panic!("it ended: {answer:?}"),
        }
    }
    if THROUGH_HELPER {
        // It sees by itself that its caller is gone.
        assert!(matches!(connections.recv().await, Some(Served::Gone)));
    }
    drop(closed);
    // Waits until the work has let go of the lock.
    let os = machine.os().await;
    assert_eq!((os.installed, os.armed), (None, None));
    assert_eq!(machine.calls().last().map(String::as_str), Some("write: HELPER"));
    machine.untouched("cancelled").await;
    machine.write(manifest).await.unwrap();
}

// --- a killed helper ---

/// Not a test: the process that the test below kills. It installs, or confirms what is on trial, and does nothing without its variable.
#[tokio::test]
async fn installing_process() {
    let Ok(told) = std::env::var(INSTALLER) else { return };
    let [root, boot, manifest] = told.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let runner = FirstbootRunner::Command { program: "/no/such".into() };
    let verbs = InProcess::new(Paths::under(root), runner, boot).with_recorded_os();
    install(&verbs, manifest.parse().unwrap()).await;
}

const INSTALLER: &str = "STRATUM_TEST_INSTALLER";

/// All that can be done to an OS, to its end.
async fn install(verbs: &dyn Privileged, manifest: Digest) {
    if verbs.probe_os().await.unwrap().booted.trial != Trial::No {
        return verbs.bless().await.unwrap();
    }
    verbs.write_release(manifest, mpsc::channel(1).0).await.unwrap();
    verbs.arm_release(manifest).await.unwrap();
    verbs.disarm_release().await.unwrap();
    verbs.arm_release(manifest).await.unwrap();
    verbs.reboot().await.unwrap();
}

/// The moment before a point is the one after the point before it. After it the running OS is the next to start, or the whole new one; and asked again, everything ends well.
#[cfg(feature = "faults")]
#[tokio::test]
async fn a_helper_that_is_killed_at_any_moment_leaves_an_os_that_starts() {
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};
    if THROUGH_HELPER {
        // The process that is killed does the verbs itself.
        return;
    }
    let installing = [
        "armed-remove",
        "installed-remove",
        "slot-clear",
        "slot-write",
        "recorded-write",
        "installed-store",
        "armed-store",
        "entry-write",
        "entry-remove",
        "restart-request",
    ];
    let confirming = ["bless", "floor-store"];
    let name = concat!(module_path!(), "::installing_process").split_once("::").unwrap().1;
    let new = release("0.7.0-small", 70);
    let cases = installing.iter().chain(&confirming).flat_map(|p| ["during", "after"].map(|when| (*p, when)));
    for (point, when) in cases {
        let mut machine = Machine::new();
        let manifest = machine.staged(&new);
        if confirming.contains(&point) {
            machine.armed(&new).await;
            machine.starts(Outcome::Comes);
        }
        let fault = format!("crash:{point}:{when}");
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", name]).env("STRATUM_FAULT", &fault);
        child.env(INSTALLER, format!("{} {} {manifest}", machine.paths().root().display(), machine.boot));
        let end = child.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        assert_eq!(end.signal(), Some(9), "{fault} was not reached: {end:?}");

        if machine.entries().iter().any(|entry| entry.contains("0.7.0")) {
            assert_eq!(Digest::of(&std::fs::read(machine.at("slot-b.img")).unwrap()), new.root(), "{fault}");
        }
        if !confirming.contains(&point) {
            install(&*machine.verbs(), manifest).await;
            machine.starts(Outcome::Comes);
        }
        machine.verbs().bless().await.unwrap();
        let os = machine.os().await;
        assert_eq!((os.booted.release.as_str(), os.booted.trial), ("0.7.0-small", Trial::No), "{fault}");
        assert_eq!(machine.entries(), ["stratum-0.6.0.conf", "stratum-0.7.0-small.conf"], "{fault}");
        assert!(machine.paths().os_floor().exists(), "{fault}");
    }
}

// --- without a backend ---

#[tokio::test]
async fn where_no_backend_is_built_in_nothing_is_installed_and_that_is_said() {
    let machine = Machine::new();
    let manifest = machine.staged(&release("0.7.0", 70));
    let verbs = InProcess::new(machine.paths().clone(), FirstbootRunner::Unit, BOOT);
    let verbs: Box<dyn Privileged> =
        if THROUGH_HELPER { Box::new(machine.world.helper(verbs)) } else { Box::new(verbs) };
    let os = verbs.probe_os().await.unwrap();
    let why = "this version installs no OS by itself yet: the backend for this machine is not built in";
    assert_eq!((os.backend, os.supported.unwrap().as_str(), os.form), (Backend::None, why, None));
    assert_eq!((os.booted.release.as_str(), os.booted.boot_id.as_str()), ("0.6.0", BOOT));
    for answer in [
        verbs.write_release(manifest, mpsc::channel(1).0).await.map(|_| ()),
        verbs.arm_release(manifest).await,
        verbs.bless().await,
    ] {
        says(&answer.unwrap_err(), Why::Unsupported, why);
    }
    verbs.disarm_release().await.unwrap();
    assert!(!machine.paths().os_recorded().exists());
}
