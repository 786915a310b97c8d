//! The recording backend: no OS is installed and no machine restarted, and everything else is done. For development, the demo and tests, below a
//! temporary root; a real backend needs a machine with two slots and a boot loader.
//!
//! It keeps what a machine would have in `recorded/`: the slots as files, boot entries with counters, what was started last. It does what a backend
//! has to do, in the order in which it has to be done, and writes down every call. [`boot`](boot::boot) is the firmware and the boot loader.
//!
//! | Name | What |
//! |---|---|
//! | `slot-a.img`, `slot-b.img` | the slots |
//! | `slot-a.os-release`, ... | the os-release in each of them |
//! | `entries/stratum-0.7.0+3.conf` | boot entries |
//! | `esp/linux-<16 hex>`, `esp/initrd-<16 hex>` | kernels and initrds |
//! | `booted.json` | what the boot loader started last; without it slot a, as from the factory |
//! | `record.jsonl` | every call and every start, in order |
//! | `restart-requested` | there when the machine would restart now |
//! | `slot-bytes` | put there: the size of a slot; an image that is larger does not fit |
//! | `default-entry` | put there: the entry that somebody fixed by hand |

pub mod boot;
mod entry;
mod slot;
mod trouble;

use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};

use console::text::Safe;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::entry::{Count, Entry};
use self::slot::Target;
pub(crate) use self::trouble::Trouble;
use super::records::{self, InstalledRecord};
use super::state::{Armed, Backend, Booted, Installed, LastTrial, OsState, Slot, Trial};
use super::{OsInstaller, Progress, ReleaseFiles, disk_fault};
use crate::durable_file::{self, plain_io};
use crate::faults::{When, point};
use crate::paths::Paths;
use crate::upgrade::FileEntry;
use crate::upgrade::fault::UpgradeFault;
use crate::upgrade::manifest::{Ab, Form, Manifest};
use crate::upgrade::running::RunningOs;
use crate::upgrade::stage::size_words;
use crate::upgrade::verify::Verified;
use crate::upgrade::version::Version;

/// Largest of the small files that are read here.
const MAX: u64 = 64 * 1024;

/// The backend.
#[derive(Debug, Clone)]
pub struct Recorded {
    paths: Paths,
    boot_id: String,
    trouble: Trouble,
}

/// `booted.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LastStart {
    slot: Slot,
    boot_id: String,
    /// The counter in the name of the entry that was started: it was a trial.
    count: Option<Count>,
}

/// How far a write is.
struct Meter<'p, 'c> {
    progress: &'p mut Progress<'c>,
    done: u64,
    total: u64,
}

// === impl Meter ===

impl Meter<'_, '_> {
    /// So many bytes more. Ends the work when nobody wants it any more.
    fn add(&mut self, bytes: u64) -> Result<(), UpgradeFault> {
        self.done += bytes;
        if (self.progress)(self.done, self.total) {
            Ok(())
        } else {
            Err(UpgradeFault::helper("whoever asked for the install is gone"))
        }
    }
}

// === impl Recorded ===

impl Recorded {
    /// For the machine below `paths`, in this boot.
    pub fn new(paths: Paths, boot_id: impl Into<String>) -> Self {
        Self { paths, boot_id: boot_id.into(), trouble: Trouble::default() }
    }

    /// A disk that fails as told: the tests'.
    #[cfg(test)]
    pub(crate) fn with_trouble(mut self, trouble: Trouble) -> Self {
        self.trouble = trouble;
        self
    }

    /// What a machine does when it restarts, but for restarting.
    pub fn request_restart(&self) -> Result<(), UpgradeFault> {
        self.note(json!({"call": "reboot"}))?;
        let path = self.file("restart-requested");
        durable_file::write(&path, self.boot_id.as_bytes(), 0o644, "restart-request")
            .map_err(|e| disk_fault(&e))
    }

    // --- private ---

    fn file(&self, name: &str) -> PathBuf {
        self.paths.os_recorded().join(name)
    }

    fn entries(&self) -> Result<Vec<Entry>, UpgradeFault> {
        entry::list(&self.file("entries"))
    }

    fn last_start(&self) -> Result<LastStart, UpgradeFault> {
        let factory = LastStart { slot: Slot::A, boot_id: self.boot_id.clone(), count: None };
        let Some(bytes) = self.small("booted.json")? else { return Ok(factory) };
        serde_json::from_slice(&bytes)
            .map_err(|_| UpgradeFault::helper("booted.json is not what was written"))
    }

    fn small(&self, name: &str) -> Result<Option<Vec<u8>>, UpgradeFault> {
        durable_file::read_own(&self.file(name), MAX).map_err(|error| disk_fault(&error))
    }

    /// As [`Recorded::small`], of text.
    fn word(&self, name: &str) -> Result<Option<String>, UpgradeFault> {
        let text = self.small(name)?.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned());
        Ok(text.filter(|text| !text.is_empty()))
    }

    fn store(&self, name: &str, bytes: &[u8]) -> Result<(), UpgradeFault> {
        durable_file::write(&self.file(name), bytes, 0o644, "recorded-write").map_err(|e| disk_fault(&e))
    }

    fn os(&self) -> Result<RunningOs, UpgradeFault> {
        RunningOs::load(&self.paths).map_err(|error| UpgradeFault::unsupported(error, None))
    }

    /// The slots as the installer of the ISO left them, once.
    fn factory(&self) -> Result<LastStart, UpgradeFault> {
        for dir in [self.paths.os_recorded(), self.file("entries"), self.file("esp")] {
            durable_file::make_dir(&dir, 0o755).map_err(|error| disk_fault(&error))?;
        }
        let start = self.last_start()?;
        let own = format!("slot-{}.os-release", start.slot.letter());
        if self.small(&own)?.is_none() {
            self.store(&own, self.os_release()?.as_bytes())?;
        }
        if !self.entries()?.iter().any(|entry| entry.slot == start.slot) {
            let release = self.os()?.release;
            let text = entry::text(&release, start.slot, None, &[]);
            let file = Entry { release, count: None, slot: start.slot }.file();
            self.store(&format!("entries/{file}"), text.as_bytes())?;
        }
        Ok(start)
    }

    fn os_release(&self) -> Result<String, UpgradeFault> {
        for path in self.paths.os_release() {
            if let Some(bytes) = durable_file::read_public(&path, MAX).map_err(|e| disk_fault(&e))? {
                return Ok(String::from_utf8_lossy(&bytes).into_owned());
            }
        }
        Ok(String::new())
    }

    /// A line of the record.
    fn note(&self, mut what: Value) -> Result<(), UpgradeFault> {
        what["bootId"] = self.boot_id.as_str().into();
        let dir = self.paths.os_recorded();
        durable_file::make_dir(&dir, 0o755).map_err(|error| disk_fault(&error))?;
        let path = dir.join("record.jsonl");
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::open(&path, flags, Mode::from_raw_mode(0o644));
        let written = fd
            .map_err(std::io::Error::from)
            .and_then(|fd| std::fs::File::from(fd).write_all(format!("{what}\n").as_bytes()));
        written.map_err(|error| wrong(&path, &error))
    }

    /// Writes down that it is called, does it, writes down what came of it.
    fn recorded<T>(
        &self,
        call: &str,
        release: Option<&Verified>,
        work: impl FnOnce() -> Result<T, UpgradeFault>,
    ) -> Result<T, UpgradeFault> {
        let mut line = json!({ "call": call });
        if let Some(release) = release {
            line["manifestSha256"] = release.sha256().to_string().into();
            line["release"] = release.manifest().about.release.as_str().into();
        }
        self.note(line)?;
        let done = work();
        let error = done.as_ref().err().map(|fault| fault.code.as_str());
        self.note(json!({ "ended": call, "error": error }))?;
        done
    }

    fn slot(&self, slot: Slot) -> Target {
        let letter = slot.letter();
        Target::new(self.file(&format!("slot-{letter}.img")), format!("slot {letter}"), self.trouble.clone())
    }

    /// The slot that may be written: never that of an OS that may still be needed.
    fn free_slot(&self) -> Result<(LastStart, Slot), UpgradeFault> {
        let start = self.factory()?;
        match entry::trial(&self.entries()?, start.slot, start.count) {
            Trial::No => Ok((start.clone(), start.slot.other())),
            _ => Err(UpgradeFault::helper(
                "the running OS is on trial: until it is confirmed the other one is what this machine falls back to",
            )),
        }
    }

    fn remove_entries(&self, which: impl Fn(&Entry) -> bool) -> Result<(), UpgradeFault> {
        for entry in self.entries()?.iter().filter(|entry| which(entry)) {
            let path = self.file("entries").join(entry.file());
            durable_file::remove(&path, "entry-remove").map_err(|error| disk_fault(&error))?;
        }
        Ok(())
    }

    fn write_now(
        &self,
        release: &Verified,
        files: &mut dyn ReleaseFiles,
        progress: &mut Progress<'_>,
    ) -> Result<Installed, UpgradeFault> {
        let (_, slot) = self.free_slot()?;
        let manifest = release.manifest();
        let (ab, root) = root_of(manifest)?;
        self.fits(root)?;
        let total = release.wanted(Form::Ab).iter().map(|file| file.size).sum();
        let mut meter = Meter { progress, done: 0, total };
        meter.add(0)?;
        let version = &manifest.about.release;
        // From here on only the running OS can be started, until all of it is armed again.
        self.remove_entries(|entry| {
            entry.slot == slot || (entry.release == *version && entry.count.is_some())
        })?;
        records::remove_armed(&self.paths)?;
        let target = self.slot(slot);
        let record =
            InstalledRecord { manifest: release.sha256(), release: version.as_str().to_owned(), slot };
        let known = records::installed(&self.paths)?.is_some_and(|known| known == record);
        if known && target.holds(root, &mut meter)? {
            self.note(json!({"slot": slot, "did": "kept"}))?;
            meter.add(root.size)?;
        } else {
            records::remove_installed(&self.paths)?;
            self.note(json!({"slot": slot, "did": "written"}))?;
            target.write(root, files, &mut meter)?;
            if !target.holds(root, &mut meter)? {
                return Err(target.differs());
            }
        }
        self.sysexts(manifest, slot, files, &mut meter)?;
        for (kind, file) in boot_files(manifest, ab) {
            let name = entry::boot_file(kind, &file.sha256).replacen("/stratum/", "esp/", 1);
            let place = Target::new(self.file(&name), "the boot partition", self.trouble.clone());
            place.place(file, files, &mut meter)?;
        }
        let os_release = new_os_release(&self.os_release()?, manifest);
        self.store(&format!("slot-{}.os-release", slot.letter()), os_release.as_bytes())?;
        records::store_installed(&self.paths, &record)?;
        Ok(Installed { slot })
    }

    /// Only those of this release: an old one on a new OS would keep it from starting.
    fn sysexts(
        &self,
        manifest: &Manifest,
        slot: Slot,
        files: &mut dyn ReleaseFiles,
        meter: &mut Meter<'_, '_>,
    ) -> Result<(), UpgradeFault> {
        let dir = self.paths.os_sysexts().join(slot.letter());
        durable_file::make_dir(&dir, 0o755).map_err(|error| disk_fault(&error))?;
        let required = || manifest.sysexts.iter().filter(|ext| ext.required);
        for name in std::fs::read_dir(&dir).map_err(|error| wrong(&dir, &error))? {
            let path = name.map_err(|error| wrong(&dir, &error))?.path();
            let keep = |ext: &str| path.file_name().is_some_and(|name| *name == *format!("{ext}.raw"));
            if !required().any(|ext| keep(&ext.name)) {
                std::fs::remove_file(&path).map_err(|error| wrong(&path, &error))?;
            }
        }
        for ext in required() {
            let Some(file) = manifest.file(&ext.path) else { continue };
            let path = dir.join(format!("{}.raw", ext.name));
            Target::new(path, dir.display().to_string(), self.trouble.clone()).place(file, files, meter)?;
        }
        Ok(())
    }

    fn fits(&self, root: &FileEntry) -> Result<(), UpgradeFault> {
        let Some(have) = self.word("slot-bytes")?.and_then(|text| text.parse::<u64>().ok()) else {
            return Ok(());
        };
        if root.size <= have {
            return Ok(());
        }
        Err(UpgradeFault::no_space("the slot of the OS", size_words(root.size), size_words(have)))
    }

    fn arm_now(&self, release: &Verified) -> Result<(), UpgradeFault> {
        let (_, slot) = self.free_slot()?;
        let manifest = release.manifest();
        let version = &manifest.about.release;
        let installed = records::installed(&self.paths)?;
        if !installed.is_some_and(|known| known.manifest == release.sha256() && known.slot == slot) {
            return Err(UpgradeFault::helper(format_args!(
                "{version} was not written to slot {}, so it is not armed",
                slot.letter()
            )));
        }
        let (ab, root) = root_of(manifest)?;
        let target = self.slot(slot);
        if !target.ends_right(root)? {
            return Err(target.differs());
        }
        if let Some(fixed) = self.word("default-entry")?.filter(|fixed| !fixed.starts_with("stratum-")) {
            return Err(UpgradeFault::default_override(Safe::<64>::clean(fixed)));
        }
        let armed = Armed {
            manifest: release.sha256(),
            release: Safe::clean(version.as_str()),
            slot,
            boot_id: self.boot_id.clone(),
        };
        let entry = Entry { release: version.clone(), count: Some(Count::NEW), slot };
        let entries = self.entries()?;
        let mut others = entries.iter().filter(|other| other.slot == slot);
        if records::armed(&self.paths)?.as_ref() == Some(&armed) && others.all(|other| *other == entry) {
            if entries.contains(&entry) {
                return Ok(());
            }
        } else {
            records::store_armed(&self.paths, &armed)?;
        }
        // `x.conf` beside `x+3.conf` would break the confirmation (systemd #33504).
        self.remove_entries(|other| *other != entry && (other.slot == slot || other.release == *version))?;
        let digests: Vec<_> = boot_files(manifest, ab).map(|(kind, file)| (kind, file.sha256)).collect();
        let text = entry::text(version, slot, Some(ab), &digests);
        let path = self.file("entries").join(entry.file());
        durable_file::write(&path, text.as_bytes(), 0o644, "entry-write").map_err(|error| disk_fault(&error))
    }

    fn disarm_now(&self) -> Result<(), UpgradeFault> {
        let start = self.last_start()?;
        // One that was confirmed is a good OS, and what this machine falls back to.
        self.remove_entries(|entry| entry.slot != start.slot && entry.count.is_some())?;
        if records::armed(&self.paths)?.is_some_and(|armed| armed.slot == start.slot) {
            return Ok(());
        }
        records::remove_armed(&self.paths)
    }

    fn bless_now(&self) -> Result<(), UpgradeFault> {
        let start = self.last_start()?;
        let refuse = |why: String| Err(UpgradeFault::helper(why));
        let Some(count) = start.count else { return refuse("the running OS is not on trial".to_owned()) };
        let os = self.os()?;
        let entries = self.entries()?;
        let mut own = entries.iter().filter(|entry| entry.slot == start.slot);
        let Some(tried) = own.clone().find(|entry| entry.count == Some(count)).or_else(|| own.next()) else {
            return refuse("the entry that was started is gone".to_owned());
        };
        if tried.release != os.release {
            return refuse(format!("{} runs, and the entry is that of {}", os.release, tried.release));
        }
        if tried.count.is_some() {
            point("bless", When::Before);
            self.remove_entries(|other| other.slot == start.slot && other != tried)?;
            point("bless", When::During);
            let dir = self.file("entries");
            let good = Entry { count: None, ..tried.clone() };
            std::fs::rename(dir.join(tried.file()), dir.join(good.file()))
                .and_then(|()| std::fs::File::open(&dir)?.sync_all())
                .map_err(|error| UpgradeFault::install_io("the boot partition", plain_io(&error)))?;
            point("bless", When::After);
        }
        records::raise_floor(&self.paths, &os)
    }
}

impl OsInstaller for Recorded {
    fn probe(&self) -> Result<OsState, UpgradeFault> {
        let os = RunningOs::load(&self.paths);
        let (start, entries) = (self.last_start()?, self.entries()?);
        let booted = Booted {
            slot: Some(start.slot),
            release: os.as_ref().map(|os| Safe::clean(os.release.as_str())).unwrap_or_default(),
            trial: entry::trial(&entries, start.slot, start.count),
            boot_id: self.boot_id.clone(),
        };
        let armed = records::armed(&self.paths)?;
        let last_trial = match &armed {
            Some(armed) if armed.boot_id != self.boot_id => {
                entry::last_trial(&entries, armed.release.as_str(), armed.slot, &booted)
            }
            _ => LastTrial::None,
        };
        let has_entry = |armed: &Armed| {
            entries.iter().any(|e| e.slot == armed.slot && e.release.as_str() == armed.release.as_str())
        };
        let installed = records::installed(&self.paths)?.filter(|known| known.slot != start.slot);
        let failed = matches!(last_trial, LastTrial::Exhausted { .. } | LastTrial::Interrupted { .. });
        Ok(OsState {
            backend: Backend::Recorded,
            supported: os.err().map(|error| Safe::clean(error.to_string())),
            booted,
            armed: armed.filter(has_entry),
            installed: installed.map(|known| known.manifest),
            last_trial,
            last_error: if failed { self.word("last-error")?.map(Safe::clean) } else { None },
            form: Some(Form::Ab),
        })
    }

    fn write(
        &self,
        release: &Verified,
        files: &mut dyn ReleaseFiles,
        progress: &mut Progress<'_>,
    ) -> Result<Installed, UpgradeFault> {
        self.recorded("write", Some(release), || self.write_now(release, files, progress))
    }

    fn arm(&self, release: &Verified) -> Result<(), UpgradeFault> {
        self.recorded("arm", Some(release), || self.arm_now(release))
    }

    fn disarm(&self) -> Result<(), UpgradeFault> {
        self.recorded("disarm", None, || self.disarm_now())
    }

    fn bless(&self) -> Result<(), UpgradeFault> {
        self.recorded("bless", None, || self.bless_now())
    }
}

// === private ===

/// What of a release is for two slots. A verified one has it: rules M17 and M21.
fn root_of(manifest: &Manifest) -> Result<(&Ab, &FileEntry), UpgradeFault> {
    let ab = manifest.ab.as_ref();
    let root = ab.and_then(|ab| Some((ab, manifest.file(&ab.root)?)));
    root.ok_or_else(|| UpgradeFault::helper("the release has no image for two slots"))
}

/// The kernel and its initrds, with the word that the entry has for them.
fn boot_files<'m>(manifest: &'m Manifest, ab: &'m Ab) -> impl Iterator<Item = (&'static str, &'m FileEntry)> {
    let initrds = ab.initrds.iter().map(|path| ("initrd", path));
    let all = [("linux", &ab.linux)].into_iter().chain(initrds);
    all.filter_map(|(kind, path)| Some((kind, manifest.file(path)?)))
}

/// The os-release of the new OS: that of the running one, with the new release in it. A real image brings its own.
fn new_os_release(running: &str, manifest: &Manifest) -> String {
    let about = &manifest.about;
    let new = |line: &&str| !line.starts_with("VERSION_ID=") && !line.starts_with("STRATUM_SEQUENCE=");
    let kept: String = running.lines().filter(new).map(|line| format!("{line}\n")).collect();
    let release: &Version = &about.release;
    format!("{kept}VERSION_ID={release}\nSTRATUM_SEQUENCE={}\n", about.sequence)
}

fn wrong(path: &Path, error: &std::io::Error) -> UpgradeFault {
    let why: &dyn Display = &plain_io(error);
    UpgradeFault::install_io(path.display(), why)
}
