//! Boot entries with a counter in their names, as systemd-boot has them (Boot Loader Specification, "Boot counting"): `stratum-0.7.0+2-1.conf` has
//! two starts left of three. Touches the directory it is told.

use std::fmt::Write as _;
use std::path::Path;

use super::wrong;
use crate::durable_file;
use crate::install::state::{Booted, LastTrial, Slot, Trial};
use crate::upgrade::Digest;
use crate::upgrade::fault::UpgradeFault;
use crate::upgrade::manifest::Ab;
use crate::upgrade::version::Version;

/// Starts that a new OS gets.
pub(super) const TRIES: u8 = 3;
/// Largest entry that is read.
const MAX: u64 = 16 * 1024;

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) release: Version,
    /// `None`: confirmed.
    pub(super) count: Option<Count>,
    pub(super) slot: Slot,
}

/// Its counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct Count {
    pub(super) left: u8,
    pub(super) done: u8,
}

// === impl Count ===

impl Count {
    pub(super) const NEW: Count = Count { left: TRIES, done: 0 };

    pub(super) fn trial(self) -> Trial {
        Trial::Counting { left: self.left, done: self.done }
    }

    /// One start less.
    pub(super) fn started(self) -> Self {
        Self { left: self.left.saturating_sub(1), done: self.done.saturating_add(u8::from(self.left > 0)) }
    }
}

// === impl Entry ===

impl Entry {
    /// Its file: `stratum-<release>[+<left>[-<done>]].conf`.
    pub(super) fn file(&self) -> String {
        let mut name = format!("stratum-{}", self.release);
        match self.count {
            None => {}
            Some(Count { left, done: 0 }) => drop(write!(name, "+{left}")),
            Some(Count { left, done }) => drop(write!(name, "+{left}-{done}")),
        }
        name + ".conf"
    }

    fn parse(file: &str, text: &str) -> Option<Self> {
        let name = file.strip_prefix("stratum-")?.strip_suffix(".conf")?;
        let (release, count) = match name.split_once('+') {
            None => (name, None),
            Some((release, count)) => {
                let (left, done) = count.split_once('-').unwrap_or((count, "0"));
                (release, Some(Count { left: left.parse().ok()?, done: done.parse().ok()? }))
            }
        };
        let options = text.lines().find_map(|line| line.strip_prefix("options"))?;
        let slot = match options.split_whitespace().find_map(|token| token.strip_prefix("stratum.slot="))? {
            "a" => Slot::A,
            "b" => Slot::B,
            _ => return None,
        };
        Some(Self { release: release.parse().ok()?, count, slot })
    }

    /// What became of it, when it was armed in an earlier boot.
    pub(super) fn last_trial(&self) -> LastTrial {
        match self.count {
            None => LastTrial::Good,
            Some(Count { done: 0, .. }) => LastTrial::NotTried,
            Some(Count { left: 0, done }) => LastTrial::Exhausted { tries: done },
            Some(Count { left, done }) => LastTrial::Interrupted { done, left },
        }
    }
}

/// All that can be read. Nobody but this backend writes here.
pub(super) fn list(dir: &Path) -> Result<Vec<Entry>, UpgradeFault> {
    let names = match std::fs::read_dir(dir) {
        Ok(names) => names,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(wrong(dir, &error)),
    };
    let mut found = Vec::new();
    for name in names {
        let name = name.map_err(|error| wrong(dir, &error))?.file_name();
        let Some(name) = name.to_str() else { continue };
        let text = durable_file::read_own(&dir.join(name), MAX).ok().flatten().unwrap_or_default();
        found.extend(Entry::parse(name, &String::from_utf8_lossy(&text)));
    }
    Ok(found)
}

/// The next to start: the newest that has not used up its starts; of those that have, the newest.
pub(super) fn next(entries: &[Entry]) -> Option<&Entry> {
    let bad = |entry: &Entry| entry.count.is_some_and(|count| count.left == 0);
    entries.iter().max_by(|a, b| bad(b).cmp(&bad(a)).then_with(|| a.release.cmp(&b.release)))
}

/// The text of the entry of an OS in `slot`.
pub(super) fn text(release: &Version, slot: Slot, ab: Option<&Ab>, boot: &[(&str, Digest)]) -> String {
    // systemd sorts 0.7.0~rc.1 before 0.7.0, and 0.7.0-rc.1 behind it.
    let version = release.as_str().replacen('-', "~", 1);
    let mut text = format!("title      Stratum {release}\nsort-key   stratum\nversion    {version}\n");
    for (kind, digest) in boot {
        let _ = writeln!(text, "{kind:<10} {}", boot_file(kind, digest));
    }
    let letter = slot.letter();
    let fstype = ab.map_or("erofs", |ab| &ab.fstype);
    let _ = write!(
        text,
        "options    root=PARTLABEL=stratum-root-{letter} ro rootfstype={fstype} rootwait stratum.slot={letter} stratum.release={release} panic=10 rd.shell=0 rd.emergency=reboot"
    );
    for token in ab.iter().flat_map(|ab| &ab.cmdline) {
        let _ = write!(text, " {token}");
    }
    text.push('\n');
    text
}

/// Where a kernel or an initrd lies: named by its content, so that no file of the running OS is ever overwritten.
pub(super) fn boot_file(kind: &str, digest: &Digest) -> String {
    format!("/stratum/{kind}-{:.16}", digest.to_string())
}

/// Whether the running OS is on trial, and how its entry stands now.
pub(super) fn trial(entries: &[Entry], booted: Slot, count: Option<Count>) -> Trial {
    let Some(count) = count else { return Trial::No };
    let mut own = entries.iter().filter(|entry| entry.slot == booted);
    match own.clone().find(|entry| entry.count == Some(count)) {
        Some(_) => count.trial(),
        None if own.any(|entry| entry.count.is_none()) => Trial::No,
        None => Trial::NotCounted,
    }
}

/// What became of the trial of an earlier boot, of an OS that does not run.
pub(super) fn last_trial(entries: &[Entry], release: &str, slot: Slot, booted: &Booted) -> LastTrial {
    if booted.slot == Some(slot) {
        return if booted.trial == Trial::No { LastTrial::Good } else { LastTrial::None };
    }
    let own = entries.iter().find(|entry| entry.slot == slot && entry.release.as_str() == release);
    own.map_or(LastTrial::Lost, Entry::last_trial)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn entry(release: &str, count: Option<(u8, u8)>) -> Entry {
        let count = count.map(|(left, done)| Count { left, done });
        Entry { release: release.parse().unwrap(), count, slot: Slot::B }
    }

    #[test]
    fn an_entry_is_what_its_name_and_its_text_say() {
        for (count, file) in [
            (None, "stratum-0.7.0-rc.1.conf"),
            (Some((3, 0)), "stratum-0.7.0-rc.1+3.conf"),
            (Some((2, 1)), "stratum-0.7.0-rc.1+2-1.conf"),
            (Some((0, 3)), "stratum-0.7.0-rc.1+0-3.conf"),
        ] {
            let entry = entry("0.7.0-rc.1", count);
            assert_eq!(entry.file(), file);
            let text = text(&entry.release, Slot::B, None, &[("linux", Digest([7; 32]))]);
            assert_eq!(Entry::parse(file, &text), Some(entry));
            assert!(
                text.contains("version    0.7.0~rc.1\nlinux      /stratum/linux-0707070707070707\n"),
                "{text}"
            );
        }
        for file in ["stratum-0.7.0+x.conf", "stratum-0.7.0.conf.tmp", "loader.conf", "stratum-7.conf"] {
            assert_eq!(Entry::parse(file, "options stratum.slot=b\n"), None, "{file}");
        }
    }

    #[test]
    fn the_newest_starts_until_its_starts_are_used_up() {
        let old = entry("0.6.0", None);
        for (new, first) in [
            (entry("0.7.0", Some((3, 0))), "0.7.0"),
            (entry("0.7.0", Some((1, 2))), "0.7.0"),
            (entry("0.7.0", Some((0, 3))), "0.6.0"),
            (entry("0.7.0", None), "0.7.0"),
            (entry("0.6.0-rc.1", None), "0.6.0"),
        ] {
            for both in [[old.clone(), new.clone()], [new.clone(), old.clone()]] {
                assert_eq!(next(&both).unwrap().release.as_str(), first, "{new:?}");
            }
        }
        // Where every OS has failed, the loader still starts one.
        assert!(next(&[entry("0.7.0", Some((0, 3)))]).is_some());
    }

    #[test]
    fn a_start_counts_down_once() {
        let mut count = Count::NEW;
        let mut seen = Vec::new();
        for _ in 0..4 {
            count = count.started();
            seen.push((count.left, count.done));
        }
        assert_eq!(seen, [(2, 1), (1, 2), (0, 3), (0, 3)]);
    }
}
