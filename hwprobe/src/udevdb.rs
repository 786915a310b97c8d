//! What udev knows of a block device: its properties and links.
//!
//! May touch: `run/udev/data`; libudev (live), text files below `dev` (captured). Must never: read a
//! device node, or take "udev does not answer" for "nothing is there".

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::blockdev::BlockDev;
use crate::finding::Missing;
use crate::roots::Roots;

/// The record of one device. A device without a record, or not initialised, has no answer at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    /// Keys and values, one behind the other: a machine of 10,000 devices has half a million of them.
    text: Vec<u8>,
    /// Where they are, by key. Each key once.
    pairs: Vec<Pair>,
    links: Vec<String>,
}

/// One property: the key is `start..value` of the text, the value `value..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pair {
    start: u32,
    value: u32,
    end: u32,
}

/// Where the records come from.
pub trait DeviceDb {
    /// The record of `dev`; `None` when udev has none or has not finished with the device.
    fn properties(&self, dev: &BlockDev) -> Option<Properties>;
}

/// udev of the running machine.
#[derive(Debug)]
pub(crate) struct LiveDb {
    roots: Roots,
    database: Database,
}

/// Where udev's knowledge is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Database {
    /// No udev is here: every device is "not initialised".
    Absent,
    /// One file a device, as every udev has written them since 2012, and with `V:1` since 247. Asking libudev for a device takes sixty system
    /// calls, most of them to walk its path.
    Files,
    /// Somewhere that only libudev knows.
    Library,
}

/// The files of a captured tree.
#[derive(Debug)]
pub(crate) struct CapturedDb(pub(crate) Roots);

// === impl Properties ===

impl Properties {
    /// The bytes of a property, if there and not empty.
    #[must_use]
    pub fn bytes(&self, key: &str) -> Option<&[u8]> {
        let at = self.pairs.binary_search_by(|pair| self.key(*pair).cmp(key.as_bytes())).ok()?;
        self.pairs.get(at).map(|pair| self.value(*pair)).filter(|v| !v.is_empty())
    }

    fn key(&self, pair: Pair) -> &[u8] {
        self.text.get(pair.start as usize..pair.value as usize).unwrap_or_default()
    }

    fn value(&self, pair: Pair) -> &[u8] {
        self.text.get(pair.value as usize..pair.end as usize).unwrap_or_default()
    }

    /// A property as text; bytes that are not UTF-8 are no text.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&str> {
        self.bytes(key).and_then(|b| std::str::from_utf8(b).ok()).map(str::trim).filter(|s| !s.is_empty())
    }

    /// The device links, `/dev/...`.
    #[must_use]
    pub fn links(&self) -> &[String] {
        &self.links
    }

    /// A property in the `\xNN` spelling of udev's `_ENC` values, decoded.
    #[must_use]
    pub fn decoded(&self, key: &str) -> Option<Vec<u8>> {
        let raw = self.bytes(key)?;
        let mut out = Vec::with_capacity(raw.len());
        let mut rest = raw;
        while let Some((first, tail)) = rest.split_first() {
            if let [b'\\', b'x', high, low, after @ ..] = rest
                && let (Some(high), Some(low)) = (hex(*high), hex(*low))
            {
                out.push(high * 16 + low);
                rest = after;
            } else {
                out.push(*first);
                rest = tail;
            }
        }
        Some(out)
    }

    /// The record as a file of `run/udev/data`, with the links that `keep` takes.
    pub(crate) fn to_record(&self, keep: impl Fn(&str) -> bool) -> Vec<u8> {
        let mut text = Vec::new();
        for link in self.links.iter().filter(|link| keep(link)) {
            text.extend_from_slice(format!("S:{}\n", link.trim_start_matches("/dev/")).as_bytes());
        }
        text.extend_from_slice(b"I:1\n");
        for pair in &self.pairs {
            text.extend_from_slice(b"E:");
            text.extend_from_slice(self.key(*pair));
            text.push(b'=');
            text.extend_from_slice(self.value(*pair));
            text.push(b'\n');
        }
        text
    }

    /// Builds a record; `DEVLINKS` becomes the links. Of a key that comes twice the last value counts.
    pub fn from_pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Self {
        let mut record = Self::default();
        let mut all: Vec<(&str, &[u8])> = Vec::new();
        for (key, value) in pairs {
            if key == "DEVLINKS" {
                record
                    .links
                    .extend(String::from_utf8_lossy(value).split_ascii_whitespace().map(str::to_owned));
            } else {
                all.push((key, value));
            }
        }
        // The sort is stable: of equal keys the later one comes later.
        all.sort_by_key(|(key, _)| *key);
        let last = |n: usize, key: &str| all.get(n + 1).is_none_or(|(next, _)| *next != key);
        let kept = || all.iter().enumerate().filter(|(n, (key, _))| last(*n, key)).map(|(_, pair)| pair);
        record.text.reserve_exact(kept().map(|(key, value)| key.len() + value.len()).sum());
        record.pairs.reserve_exact(kept().count());
        // What lies beyond 4 GiB is no property of anything; it reads as empty.
        let at = |text: &Vec<u8>| u32::try_from(text.len()).unwrap_or(u32::MAX);
        for (key, value) in kept() {
            let start = at(&record.text);
            record.text.extend_from_slice(key.as_bytes());
            let middle = at(&record.text);
            record.text.extend_from_slice(value);
            record.pairs.push(Pair { start, value: middle, end: at(&record.text) });
        }
        record.settle_links();
        record
    }

    fn settle_links(&mut self) {
        self.links.sort_unstable();
        self.links.dedup();
        self.links.shrink_to_fit();
    }
}

// === impl LiveDb ===

impl LiveDb {
    pub(crate) fn of(roots: &Roots) -> Self {
        let there = |path: &str| roots.open(path, OFlags::PATH).map(drop);
        let database = match (there("run/udev/data"), there("run/udev")) {
            (Ok(()), _) => Database::Files,
            (_, Err(Errno::NOENT)) => Database::Absent,
            _ => Database::Library,
        };
        Self { roots: roots.clone(), database }
    }
}

impl DeviceDb for LiveDb {
    fn properties(&self, dev: &BlockDev) -> Option<Properties> {
        let (major, minor) = dev.dev?;
        match self.database {
            Database::Absent => return None,
            Database::Library => return ask_libudev(dev),
            Database::Files => {}
        }
        // The directory can have become another device since it was listed.
        let now = self.roots.read_unseen(&format!("{}/dev", dev.dir)).ok()?;
        if now.trim_ascii() != format!("{major}:{minor}").as_bytes() {
            return None;
        }
        match self.roots.read_unseen(&format!("run/udev/data/b{major}:{minor}")) {
            Ok(record) if is_known(&record) => parse_record(&record),
            Err(Missing::Absent) => None,
            _ => ask_libudev(dev),
        }
    }
}

/// Whether a record is of the version that [`parse_record`] reads; older ones have none.
fn is_known(record: &[u8]) -> bool {
    let mut versions = record.split(|b| *b == b'\n').filter_map(|line| line.strip_prefix(b"V:"));
    versions.all(|version| version == b"1")
}

fn ask_libudev(dev: &BlockDev) -> Option<Properties> {
    let device = udev::Device::from_syspath(Path::new(&format!("/{}", dev.dir))).ok()?;
    let number = device.devnum()?;
    if dev.dev != Some((rustix::fs::major(number), rustix::fs::minor(number))) || !device.is_initialized() {
        return None;
    }
    let pairs: Vec<(String, Vec<u8>)> = device
        .properties()
        .filter_map(|p| Some((p.name().to_str()?.to_owned(), p.value().as_bytes().to_owned())))
        .collect();
    Some(Properties::from_pairs(pairs.iter().map(|(k, v)| (k.as_str(), v.as_slice()))))
}

// === impl CapturedDb ===

impl DeviceDb for CapturedDb {
    fn properties(&self, dev: &BlockDev) -> Option<Properties> {
        let record =
            dev.dev.and_then(|(major, minor)| self.0.read(&format!("run/udev/data/b{major}:{minor}")).ok());
        if let Some(record) = record {
            return parse_record(&record);
        }
        let text = self.0.read(&format!("dev/{}", dev.node_name())).ok()?;
        parse_pairs(&text)
    }
}

/// A file of `run/udev/data`: `E:KEY=value`, `S:link`, `I:microseconds`. Without `I:` udev was not done with it.
pub(crate) fn parse_record(bytes: &[u8]) -> Option<Properties> {
    let mut pairs: Vec<(&str, &[u8])> = Vec::new();
    let mut links: Vec<String> = Vec::new();
    let mut initialized = false;
    for line in bytes.split(|b| *b == b'\n') {
        match line {
            [b'E', b':', rest @ ..] => pairs.extend(split_pair(rest)),
            [b'S', b':', rest @ ..] => links.push(format!("/dev/{}", String::from_utf8_lossy(rest))),
            [b'I', b':', ..] => initialized = true,
            _ => {}
        }
    }
    let mut record = Properties::from_pairs(pairs);
    record.links.extend(links);
    record.settle_links();
    initialized.then_some(record)
}

/// Plain `KEY=value` lines, as `udevadm info --query=property` prints them.
pub(crate) fn parse_pairs(bytes: &[u8]) -> Option<Properties> {
    let pairs: Vec<(&str, &[u8])> = bytes.split(|b| *b == b'\n').filter_map(split_pair).collect();
    (!pairs.is_empty()).then(|| Properties::from_pairs(pairs))
}

fn split_pair(line: &[u8]) -> Option<(&str, &[u8])> {
    let at = line.iter().position(|b| *b == b'=')?;
    let key = std::str::from_utf8(line.get(..at)?).ok()?;
    let plain = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    plain.then_some((key, line.get(at + 1..)?))
}

fn hex(c: u8) -> Option<u8> {
    char::from(c).to_digit(16).and_then(|d| u8::try_from(d).ok())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::blockdev::BlockTree;
    use crate::warning::Warnings;

    use super::*;

    #[test]
    fn a_record_gives_properties_and_links() {
        let p =
            parse_record(b"S:disk/by-id/wwn-0x1\nI:12\nE:ID_MODEL_ENC=A\\x20B\nE:ID_FS_TYPE=\nG:systemd\n")
                .unwrap();
        assert_eq!(p.links(), ["/dev/disk/by-id/wwn-0x1"]);
        assert_eq!(p.decoded("ID_MODEL_ENC").unwrap(), b"A B");
        assert_eq!(p.text("ID_FS_TYPE"), None);
    }

    #[test]
    fn a_record_of_another_version_is_left_to_libudev() {
        assert!(is_known(b"I:1\nE:A=V:2\nG:x\nV:1\n") && is_known(b"I:1\nE:A=1\n") && is_known(b""));
        assert!(!is_known(b"I:1\nV:2\n") && !is_known(b"V:\n"));
    }

    /// On a machine with udev; what this program may read of it differs from user to user.
    #[test]
    fn the_files_of_this_machine_tell_what_libudev_tells() {
        let roots = Roots::live().unwrap();
        let db = LiveDb::of(&roots);
        if db.database != Database::Files {
            println!("skipped: no /run/udev/data here");
            return;
        }
        let tree = BlockTree::read(&roots, &mut Warnings::default()).unwrap_or_default();
        for dev in &tree.devs {
            let (files, library) = (db.properties(dev), ask_libudev(dev));
            // A device that comes or goes meanwhile is told by one of them only.
            let (Some(files), Some(library)) = (files, library) else { continue };
            assert_eq!(files.links(), library.links(), "{}", dev.name);
            for pair in &files.pairs {
                let key = std::str::from_utf8(files.key(*pair)).unwrap();
                assert_eq!(files.bytes(key), library.bytes(key), "{} {key}", dev.name);
            }
        }
    }

    #[test]
    fn of_a_key_that_comes_twice_the_last_value_counts() {
        let p = Properties::from_pairs([("B", &b"1"[..]), ("A", b"2"), ("B", b"3"), ("AB", b"")]);
        assert_eq!([p.text("A"), p.text("B"), p.text("AB"), p.text("C")], [Some("2"), Some("3"), None, None]);
        assert_eq!(p.to_record(|_| true), b"I:1\nE:A=2\nE:AB=\nE:B=3\n");
    }

    #[test]
    fn a_record_that_udev_has_not_finished_is_no_answer() {
        assert_eq!(parse_record(b"E:ID_MODEL=x\n"), None);
        assert_eq!(parse_record(b""), None);
        assert_eq!(parse_pairs(b"garbage"), None);
    }
}
