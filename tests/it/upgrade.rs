//! A whole self-upgrade: the real agent, a real founder, a real release over TLS; only the slots and the restart are recorded.

pub mod crash;
mod faults;

use std::fs;
use std::path::{Path, PathBuf};

use console::snapshot::{State, StepStatus};
use lab_founder::config::Supply;
use lab_founder::mirror::Fault;
use lab_founder::release::{AbInput, SecretKey, Spec, make, sign};
use lab_founder::{Config, EvilMirror};
use serde_json::Value;
use stratum_join::install::recorded::boot::{Outcome, boot_until_up};
use tempfile::TempDir;

use crate::support::helper::HelperSocket;
use crate::support::{Machine, PATIENCE, World, wait};

/// What the machine's ISO is.
const OLD: &str = "0.6.0";

/// An older machine, a cluster on 0.7.0, and its release.
struct Upgrade {
    world: World,
    dir: TempDir,
    mirror: Option<EvilMirror>,
    /// Who does the privileged verbs, when it is not the agent itself.
    helper: Option<HelperSocket>,
}

impl Upgrade {
    fn from_founder(chunks: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let release = release(dir.path(), "0.7.0", 70, chunks);
        let config = Config { supply: Supply::Founder, release_dir: Some(release), ..Config::for_tests() };
        Self::with(config, dir, None)
    }

    fn from_mirror(chunks: usize, faults: &[Fault]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mirror = EvilMirror::of(&release(dir.path(), "0.7.0", 70, chunks), faults).unwrap();
        let config = Config { supply: Supply::Mirror(mirror.url()), ..Config::for_tests() };
        let upgrade = Self::with(config, dir, Some(mirror));
        let ca = upgrade.world.machine.path("etc/stratum/mirror-ca.pem");
        fs::write(&ca, upgrade.mirror.as_ref().unwrap().ca_pem()).unwrap();
        let settings = format!("upgrade: {{mirror: {{caFile: {}}}}}\n", ca.display());
        fs::write(upgrade.world.machine.path("etc/stratum/join.yaml"), settings).unwrap();
        upgrade
    }

    fn with(config: Config, dir: TempDir, mirror: Option<EvilMirror>) -> Self {
        let mut world = World::with(config);
        older(&mut world.machine, dir.path());
        world.ask_to_join();
        Self { world, dir, mirror, helper: None }
    }

    /// The agent has no privilege of its own. One helper dies at `fault`.
    fn through_helper(mut self, fault: Option<&str>) -> Self {
        let machine = self.machine();
        machine.through_helper = true;
        machine.args.clear();
        let helper = HelperSocket::listen(machine.root.path(), fault);
        helper.record_the_os();
        self.helper = Some(helper);
        self
    }

    fn machine(&mut self) -> &mut Machine {
        &mut self.world.machine
    }

    /// Waits until the agent has asked for a restart, and starts the machine anew.
    fn restart(&mut self, trial: Outcome) {
        let machine = self.machine();
        let asked = wait::until(PATIENCE, || restarts(machine).then_some(()));
        assert!(asked.is_some(), "it does not restart; its log:\n{}", machine.log());
        machine.kill();
        self.boot(trial);
    }

    fn boot(&mut self, trial: Outcome) {
        let machine = self.machine();
        let boots = boot_until_up(machine.root.path(), trial).unwrap();
        let boot_id = boots.last().unwrap().boot_id.clone();
        if let Some(helper) = &self.helper {
            helper.booted(&boot_id);
        }
        let machine = self.machine();
        machine.set_env("STRATUM_BOOT_ID", boot_id);
        machine.start();
    }

    /// The slot that was written holds the release's image.
    fn look_at_the_slot(&self) {
        let slot = fs::read(self.world.machine.path("var/lib/stratum/os/recorded/slot-b.img")).unwrap();
        assert!(slot == fs::read(self.dir.path().join("root-0.7.0")).unwrap(), "slot b is not the release's");
    }

    fn only_record(&self) -> Value {
        let joins = self.world.joins();
        assert_eq!(joins.len(), 1, "{joins:?}");
        self.world.record(joins[0]["id"].as_str().unwrap())
    }
}

/// The machine would restart now.
fn restarts(machine: &Machine) -> bool {
    machine.path("var/lib/stratum/os/recorded/restart-requested").exists()
}

/// What an ISO of 0.6.0 leaves behind, with the key of its releases.
fn older(machine: &mut Machine, dir: &Path) {
    fs::write(machine.path("etc/os-release"), format!("VERSION_ID=\"{OLD}\"\nSTRATUM_SEQUENCE=60\n"))
        .unwrap();
    let keys = machine.path("usr/share/stratum/release-keys.d");
    fs::create_dir_all(&keys).unwrap();
    fs::create_dir_all(machine.path("etc/stratum")).unwrap();
    fs::copy(dir.join("release.pub"), keys.join("release.pub")).unwrap();
    machine.args.push("--recorded-os".to_owned());
    machine.firstboot_does("delay-ms=0");
}

/// A signed release whose root is so many chunks and a bit.
fn release(dir: &Path, name: &str, sequence: u64, chunks: usize) -> PathBuf {
    let key = SecretKey::from_seed([7; 32], [7; 8]);
    fs::write(dir.join("release.pub"), key.public_text()).unwrap();
    let input = |of: &str, size: usize| {
        let path = dir.join(format!("{of}-{name}"));
        let bytes: Vec<u8> = (0..size).map(|n| (n / 4096 + n % 251) as u8).collect();
        fs::write(&path, bytes).unwrap();
        path
    };
    let spec = Spec {
        ab: Some(AbInput {
            root: input("root", chunks * 4 * 1024 * 1024 + 5),
            fstype: "erofs".to_owned(),
            linux: input("linux", 70_000),
            initrds: vec![input("initrd", 50_000)],
            cmdline: vec!["quiet".to_owned()],
        }),
        ..Spec::named(name, sequence, "0.5.0")
    };
    let out = dir.join(format!("release-{name}"));
    make(&spec, &out).unwrap();
    sign(&out, &[key]).unwrap();
    out
}

#[test]
fn an_older_machine_upgrades_itself_from_a_mirror_and_joins_with_the_same_pairing_code() {
    joins(Upgrade::from_mirror(9, &[]));
}

#[test]
fn an_older_machine_upgrades_itself_from_the_founder_and_joins_with_the_same_pairing_code() {
    joins(Upgrade::from_founder(9));
}

#[test]
fn an_agent_without_privilege_upgrades_its_machine_through_the_helper_and_joins() {
    joins(Upgrade::from_founder(2).through_helper(None));
}

fn joins(mut upgrade: Upgrade) {
    upgrade.machine().start();
    let shown = upgrade.machine().wait_for("the upgrade", |s| s.upgrade.is_some() && !s.steps.is_empty());
    let code = shown.pairing_code.clone().unwrap();
    assert_eq!((shown.upgrade.as_ref().unwrap().from.as_str(), shown.do_not_power_off), (OLD, true));
    upgrade.restart(Outcome::Comes);
    let pending = upgrade.machine().wait_for_state(State::Pending);
    assert_eq!(pending.pairing_code, Some(code));
    assert_eq!(pending.machine.release.unwrap().as_str(), "0.7.0");
    let record = upgrade.only_record();
    assert_eq!(record["release"], "0.7.0");
    upgrade.world.finish();
    upgrade.look_at_the_slot();
    // Nothing of it stays in the stage.
    let blobs = fs::read_dir(upgrade.machine().path("var/lib/stratum/join/upgrade/blobs")).unwrap();
    assert_eq!(blobs.count(), 0);
}
