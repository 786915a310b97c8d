//! The parsers of what a device, a file or another program says, each with what must hold whatever the bytes are: for the targets in `fuzz/`
//! and the test that replays their corpus. Not for users of this crate.
//!
//! May touch: nothing. Must never: accept less than the probe itself does.

use serde_json::Value;

use crate::inventory::CpuVirtualization;
use crate::text::Text;
use crate::warning::Warnings;
use crate::{hypervisor, install_record, machine, mounts, namer, netcapture, system, udevdb};

/// A name and what it does with bytes.
pub type Target = (&'static str, fn(&[u8]));

/// All of them. Each panics when something does not hold.
pub const TARGETS: [Target; 7] = [
    ("udev_db", udev_db),
    ("mountinfo", mountinfo),
    ("ip_json", ip_json),
    ("cpuinfo", cpuinfo),
    ("wipefs_json", wipefs_json),
    ("install_record", install_record),
    ("hw_text", hw_text),
];

/// A record of `run/udev/data`, and `KEY=value` lines.
///
/// # Panics
/// A record without its end mark has an answer, or a value is no safe text.
pub fn udev_db(bytes: &[u8]) {
    let record = udevdb::parse_record(bytes);
    let done = bytes.split(|b| *b == b'\n').any(|line| line.starts_with(b"I:"));
    assert_eq!(record.is_some(), done);
    for record in [record, udevdb::parse_pairs(bytes)].into_iter().flatten() {
        for key in ["ID_MODEL_ENC", "ID_VENDOR_ENC", "ID_SERIAL_SHORT", "ID_FS_TYPE", "ID_FS_AMBIVALENT"] {
            record.bytes(key).into_iter().for_each(hw_text);
            record.decoded(key).iter().for_each(|value| {
                assert!(record.bytes(key).is_some_and(|raw| value.len() <= raw.len()));
                hw_text(value);
            });
        }
    }
}

/// A mount table.
///
/// # Panics
/// A line is neither a mount nor a doubt.
pub fn mountinfo(bytes: &[u8]) {
    let lines = bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty()).count();
    let (mounts, whole) = mounts::parse_mountinfo(bytes);
    assert!(mounts.len() <= lines);
    assert!(!whole || mounts.len() == lines);
    assert!(!whole || bytes.is_empty() || bytes.ends_with(b"\n"));
}

/// `ip -j addr` and, after a NUL, `ip -j route`.
///
/// # Panics
/// What comes out is more than what went in.
pub fn ip_json(bytes: &[u8]) {
    let (links, routes) = match bytes.iter().position(|b| *b == 0) {
        Some(at) => (bytes.get(..at).unwrap_or_default(), bytes.get(at + 1..).unwrap_or_default()),
        None => (bytes, bytes),
    };
    let list = |json: &[u8]| serde_json::from_slice::<Vec<Value>>(json).unwrap_or_default();
    let (links, routes) = (list(links), list(routes));
    assert!(netcapture::links_in(&links).len() <= links.len());
    assert!(netcapture::routes_in(&links, &routes).len() <= routes.len());
    let _ = netcapture::addresses_in(&links);
}

/// `proc/cpuinfo` and, after a NUL each, `proc/meminfo` and `sys/devices/system/cpu/online`.
///
/// # Panics
/// Something comes out that did not go in.
pub fn cpuinfo(bytes: &[u8]) {
    let mut parts = bytes.splitn(3, |b| *b == 0);
    let mut part = || parts.next().unwrap_or_default();
    let text = String::from_utf8_lossy(part()).into_owned();
    let has = |word: &str| text.contains(word);
    match machine::virtualization(&text) {
        CpuVirtualization::Vmx => assert!(has("vmx")),
        CpuVirtualization::Svm => assert!(has("svm")),
        CpuVirtualization::Absent => {}
    }
    let lines = text.lines().count();
    assert!(machine::count_processors(&text).is_none_or(|n| (1..=lines).contains(&(n as usize))));
    for value in
        [system::model_name(&text), hypervisor::field(&text, "vendor_id"), hypervisor::field(&text, "flags")]
    {
        assert!(value.iter().all(|value| has(value) && !value.contains('\n')));
        value.iter().for_each(|value| hw_text(value.as_bytes()));
    }
    let memory = system::mem_total(part());
    assert!(memory.is_err() || memory.is_ok_and(|bytes| bytes % 1024 == 0 || bytes == u64::MAX));
    let online = String::from_utf8_lossy(part()).into_owned();
    assert!(machine::count_ranges(&online).is_none_or(|n| n > 0));
}

/// The output of `wipefs --json`.
///
/// # Panics
/// A name comes twice, or is no safe text.
pub fn wipefs_json(bytes: &[u8]) {
    let names = namer::parse(bytes);
    for (n, name) in names.iter().enumerate() {
        assert!(names.iter().skip(n + 1).all(|other| other != name));
        hw_text(name.as_bytes());
    }
}

/// The install record.
///
/// # Panics
/// An id comes out that is no id, or a warning that is no safe text.
pub fn install_record(bytes: &[u8]) {
    let mut warnings = Warnings::default();
    let record = install_record::parse(bytes, &mut warnings);
    assert!(record.install_id.is_none_or(|id| (1..=64).contains(&id.len()) && id.is_ascii()));
    for warning in warnings.into_list() {
        warning.detail.iter().for_each(|detail| hw_text(detail.as_bytes()));
    }
}

/// Text of a device.
///
/// # Panics
/// It is empty, too long, can move a cursor or hide a character, or is not clean when cleaned again.
pub fn hw_text(bytes: &[u8]) {
    let Some(clean) = Text::<32>::from_bytes(bytes) else { return };
    let text = clean.text.as_str();
    assert!((1..=32).contains(&text.chars().count()));
    let bad = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    assert!(!text.contains(bad), "{text:?}");
    let again = Text::<32>::from_bytes(text.as_bytes());
    assert_eq!(again.as_ref().map(|c| c.text.as_str()), Some(text));
    assert!(again.is_some_and(|c| !c.altered));
}
