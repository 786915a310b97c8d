//! What a story is told with: the cluster, machines, and a folder for what they leave.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::accel::Accel;
use crate::artefacts::Artefacts;
use crate::board::{Board, SERVER};
use crate::founder::Founder;
use crate::image::Base;
use crate::qemu::{Disks, Start};
use crate::tree::Tree;
use crate::vm::Vm;

/// What `cargo xtask vm` hands over.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where `lab-founder`, `stratumctl` and `firstboot-stand-in` are.
    pub programs: PathBuf,
    /// Our package.
    pub deb: PathBuf,
    /// The same in an older version.
    pub previous: Option<PathBuf>,
    /// Where images and artefacts go: `target/vm`.
    pub dir: PathBuf,
    /// The repository: units of the stand-in, documents a story compares itself with.
    pub repository: PathBuf,
    /// Keep the disks.
    pub keep: bool,
    /// Write what a story would only compare.
    pub bless: bool,
}

/// One run of one story.
pub struct Lab {
    /// Its settings.
    pub settings: Settings,
    /// Its folder.
    pub artefacts: Artefacts,
    base: Base,
    accel: Accel,
    temp: tempfile::TempDir,
}

/// A machine that may be off: its disks, and how it is switched on.
pub struct Machine<'a> {
    lab: &'a Lab,
    disks: Disks,
    artefacts: Artefacts,
}

// === impl Lab ===

impl Lab {
    /// How the names of its temporary folders begin.
    pub const PREFIX: &str = "lab.";

    /// An empty folder below `settings.dir` named like the story.
    pub fn new(settings: &Settings, story: &str, base: &Base, accel: Accel) -> Result<Self> {
        let artefacts = Artefacts::fresh(settings.dir.join(story))?;
        let temp = tempfile::Builder::new()
            .prefix(Self::PREFIX)
            .tempdir_in(&settings.dir)
            .context("temporary directory")?;
        Ok(Self { settings: settings.clone(), artefacts, base: base.clone(), accel, temp })
    }

    /// A cluster of its own.
    pub fn founder(&self, name: &str) -> Result<Founder> {
        // A new one each time: a story that is told again has not met this cluster before.
        let dir = tempfile::Builder::new()
            .prefix(name)
            .tempdir_in(self.temp.path())
            .context("temporary directory")?;
        Founder::start(&self.settings.programs, &dir.keep(), &self.artefacts.path(&format!("{name}.log")))
    }

    /// Debian as it comes, without our package.
    pub fn debian(&self) -> Result<Tree> {
        Tree::unpack(&self.base, self.temp.path())
    }

    /// Debian with our package and firstboot's stand-in.
    pub fn node(&self) -> Result<Tree> {
        let tree = self.debian()?;
        tree.install(&self.settings.deb)?;
        self.add_stand_in(&tree)?;
        Ok(tree)
    }

    /// The stand-in as the product's firstboot, with its unit.
    pub fn add_stand_in(&self, tree: &Tree) -> Result<()> {
        tree.program(&self.settings.programs.join("firstboot-stand-in"), "usr/bin/firstboot")?;
        let unit = self.settings.repository.join("tests/stand-in/stratum-firstboot.service");
        let text = std::fs::read(&unit).with_context(|| format!("read {}", unit.display()))?;
        tree.write("usr/lib/systemd/system/stratum-firstboot.service", text)
    }

    /// Writes the file system on disks of a machine that has never been started. What it leaves goes to the folder of the story.
    pub fn machine(&self, tree: &Tree) -> Result<Machine<'_>> {
        let disks = tree.disks(&self.temp.path().join("disks"), SERVER)?;
        Ok(Machine { lab: self, disks, artefacts: self.artefacts.clone() })
    }

    /// The same for one case of a story that has several: a folder of its own below the story's.
    pub fn case(&self, name: &str, tree: &Tree) -> Result<Machine<'_>> {
        self.case_with(name, tree, SERVER)
    }

    /// The same with other devices.
    pub fn case_with(&self, name: &str, tree: &Tree, board: Board) -> Result<Machine<'_>> {
        let disks = tree.disks(&self.temp.path().join(name), board)?;
        Ok(Machine { lab: self, disks, artefacts: Artefacts::fresh(self.artefacts.path(name))? })
    }

    /// Ends it: the disks go, or are kept when that was asked for.
    pub fn finish(self) {
        if self.settings.keep {
            let kept = self.artefacts.path("disks");
            match std::fs::rename(self.temp.keep(), &kept) {
                Ok(()) => println!("  disks: {}", kept.display()),
                Err(error) => println!("  (the disks are lost: {error})"),
            }
        }
    }
}

// === impl Machine ===

impl Machine<'_> {
    /// Switches it on.
    pub fn switch_on(&self) -> Result<Vm> {
        self.switch_on_with(Start::default(), true)
    }

    /// The same with another clock or a cable that is not plugged in.
    pub fn switch_on_with(&self, start: Start<'_>, link: bool) -> Result<Vm> {
        Vm::switch_on(self.lab.accel, &self.disks, start, link, &self.artefacts)
            .context("switch the machine on")
    }
}
