//! What udev knows of a block device: its properties and links.
//!
//! May touch: libudev's database (live), `run/udev/data` and text files below `dev` (captured). Must never: read a
//! device node, or take "udev does not answer" for "nothing is there".

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::blockdev::BlockDev;
use crate::roots::Roots;

/// The record of one device. A device without a record, or not initialised, has no answer at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    map: BTreeMap<String, Vec<u8>>,
    links: Vec<String>,
}

/// Where the records come from.
pub trait DeviceDb {
    /// The record of `dev`; `None` when udev has none or has not finished with the device.
    fn properties(&self, dev: &BlockDev) -> Option<Properties>;
}

/// libudev of the running machine.
#[derive(Debug)]
pub(crate) struct LiveDb;

/// The files of a captured tree.
#[derive(Debug)]
pub(crate) struct CapturedDb(pub(crate) Roots);

// === impl Properties ===

impl Properties {
    /// The bytes of a property, if there and not empty.
    #[must_use]
    pub fn bytes(&self, key: &str) -> Option<&[u8]> {
        self.map.get(key).map(Vec::as_slice).filter(|v| !v.is_empty())
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
        for (key, value) in &self.map {
            text.extend_from_slice(format!("E:{key}=").as_bytes());
            text.extend_from_slice(value);
            text.push(b'\n');
        }
        text
    }

    /// Builds a record; `DEVLINKS` becomes the links.
    pub fn from_pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Self {
        let mut record = Self::default();
        for (key, value) in pairs {
            if key == "DEVLINKS" {
                record
                    .links
                    .extend(String::from_utf8_lossy(value).split_ascii_whitespace().map(str::to_owned));
            } else {
                record.map.insert(key.to_owned(), value.to_owned());
            }
        }
        record.links.sort_unstable();
        record.links.dedup();
        record
    }
}

// === impl LiveDb ===

impl DeviceDb for LiveDb {
    fn properties(&self, dev: &BlockDev) -> Option<Properties> {
        let device = udev::Device::from_syspath(Path::new(&format!("/{}", dev.dir))).ok()?;
        // The directory can have become another device since it was listed.
        let number = device.devnum()?;
        if dev.dev != Some((rustix::fs::major(number), rustix::fs::minor(number))) || !device.is_initialized()
        {
            return None;
        }
        let pairs: Vec<(String, Vec<u8>)> = device
            .properties()
            .filter_map(|p| Some((p.name().to_str()?.to_owned(), p.value().as_bytes().to_owned())))
            .collect();
        Some(Properties::from_pairs(pairs.iter().map(|(k, v)| (k.as_str(), v.as_slice()))))
    }
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
    record.links.sort_unstable();
    record.links.dedup();
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
    fn a_record_that_udev_has_not_finished_is_no_answer() {
        assert_eq!(parse_record(b"E:ID_MODEL=x\n"), None);
        assert_eq!(parse_record(b""), None);
        assert_eq!(parse_pairs(b"garbage"), None);
    }
}
