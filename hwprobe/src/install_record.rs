//! The install record of stage 1: `/etc/stratum/install.yaml`.
//!
//! May touch: that file, read-only. Must never: guess the layout from partitions, or quote the file in an error.

use serde::Deserialize;

use crate::finding::Missing;
use crate::inventory::OsDiskLayout;
use crate::roots::Roots;
use crate::warning::{Code, Warnings};

pub(crate) const PATH: &str = "etc/stratum/install.yaml";
/// Longest install id.
const MAX_ID: usize = 64;

/// The two keys that we read. The record is the installer's and holds more.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    os_disk_layout: Option<String>,
    install_id: Option<String>,
}

/// What the record says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct InstallRecord {
    pub(crate) os_disk_layout: Option<OsDiskLayout>,
    pub(crate) install_id: Option<String>,
}

fn bad(warnings: &mut Warnings, fact: &str, what: &str) {
    warnings.note("", Code::InstallRecordInvalid, fact, &format!("/{PATH}: {what}"));
}

/// Reads the record. No record, or one without the keys, is normal; a broken one is a warning.
pub(crate) fn read(roots: &Roots, warnings: &mut Warnings) -> InstallRecord {
    match roots.read(PATH) {
        Ok(bytes) => parse(&bytes, warnings),
        Err(Missing::Absent) => InstallRecord::default(),
        Err(missing) => {
            let what = match missing {
                Missing::Truncated => "larger than 64 KiB",
                Missing::Permission => "may not be read",
                _ => "cannot be read",
            };
            bad(warnings, "osDiskLayout", what);
            InstallRecord::default()
        }
    }
}

/// What the bytes of a record say.
pub(crate) fn parse(bytes: &[u8], warnings: &mut Warnings) -> InstallRecord {
    let record: Record = match std::str::from_utf8(bytes) {
        Ok(text) if text.trim().is_empty() => return InstallRecord::default(),
        Ok(text) => match serde_yaml::from_str_with_options(text, options()) {
            Ok(record) => record,
            Err(_) => {
                bad(warnings, "osDiskLayout", "not the YAML of an install record");
                return InstallRecord::default();
            }
        },
        Err(_) => {
            bad(warnings, "osDiskLayout", "not UTF-8 text");
            return InstallRecord::default();
        }
    };
    let os_disk_layout = match record.os_disk_layout.as_deref() {
        None => None,
        Some("compute-tail") => Some(OsDiskLayout::ComputeTail),
        Some("whole-disk") => Some(OsDiskLayout::WholeDisk),
        Some(other) => {
            let short: String = other.chars().take(32).collect();
            bad(
                warnings,
                "osDiskLayout",
                &format!("osDiskLayout is \"{short}\": use compute-tail or whole-disk"),
            );
            None
        }
    };
    let install_id = record.install_id.filter(|id| {
        let good = (1..=MAX_ID).contains(&id.len())
            && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
        if !good {
            bad(
                warnings,
                "installId",
                "installId must be 1 to 64 of letters, digits, dot, dash and underscore",
            );
        }
        good
    });
    InstallRecord { os_disk_layout, install_id }
}

/// A record that says the same to us, and nothing else: the installer's has more, and not for other eyes. One that is broken stays broken.
pub(crate) fn only_ours(bytes: &[u8]) -> Vec<u8> {
    let mut warnings = Warnings::default();
    let record = parse(bytes, &mut warnings);
    if !warnings.into_list().is_empty() {
        return b"{ left out: [\n".to_vec();
    }
    let layout = record.os_disk_layout.map(|layout| match layout {
        OsDiskLayout::ComputeTail => "osDiskLayout: compute-tail\n".to_owned(),
        OsDiskLayout::WholeDisk => "osDiskLayout: whole-disk\n".to_owned(),
    });
    let id = record.install_id.map(|id| format!("installId: '{id}'\n"));
    [layout, id].into_iter().flatten().collect::<String>().into_bytes()
}

fn options() -> serde_yaml::Options {
    serde_yaml::options! {
        budget: serde_yaml::budget! {
            max_depth: 16,
            max_nodes: 10_000,
            max_aliases: 0,
            max_anchors: 0,
            max_documents: 1,
            max_total_scalar_bytes: 64 * 1024,
        },
        duplicate_keys: serde_yaml::DuplicateKeyPolicy::Error,
        strict_booleans: true,
        with_snippet: false,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::*;

    /// The record read from `text`, and whether a warning came with it.
    fn record(text: &[u8]) -> (InstallRecord, bool) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("etc/stratum")).unwrap();
        std::fs::write(dir.path().join(PATH), text).unwrap();
        let mut warnings = Warnings::default();
        let record = read(&Roots::under(dir.path()).unwrap(), &mut warnings);
        (record, !warnings.into_list().is_empty())
    }

    #[test]
    fn both_layouts_and_the_id_are_read() {
        let (r, warned) = record(b"osDiskLayout: compute-tail\ninstallId: 5f3a9c1e\nmore: [1, 2]\n");
        assert!(!warned);
        assert_eq!(r.os_disk_layout, Some(OsDiskLayout::ComputeTail));
        assert_eq!(r.install_id.as_deref(), Some("5f3a9c1e"));
        assert_eq!(record(b"osDiskLayout: whole-disk").0.os_disk_layout, Some(OsDiskLayout::WholeDisk));
    }

    #[test]
    fn no_key_is_no_layout_and_no_warning() {
        for text in [&b""[..], b"other: 1\n", b"{}"] {
            assert_eq!(record(text), (InstallRecord::default(), false));
        }
    }

    #[test]
    fn a_broken_record_is_absent_with_a_warning() {
        let large = vec![b'#'; 70_000];
        let anchor = b"a: &x 1\nosDiskLayout: whole-disk\n";
        let twice = b"osDiskLayout: whole-disk\nosDiskLayout: compute-tail\n";
        let deep = [vec![b'['; 50_000], vec![b']'; 50_000]].concat();
        let bad: [&[u8]; 9] = [
            b"osDiskLayout: half",
            b": : :",
            b"\xff",
            b"[1]",
            b"osDiskLayout: [x]",
            &large,
            anchor,
            twice,
            &deep,
        ];
        for text in bad {
            let (r, warned) = record(text);
            assert!(warned, "{:?}", String::from_utf8_lossy(text.get(..20).unwrap_or(text)));
            assert_eq!(r.os_disk_layout, None);
        }
    }

    #[test]
    fn an_id_that_is_too_long_or_strange_is_no_id() {
        for id in ["x".repeat(65), "'a b'".to_owned(), "''".to_owned()] {
            let (r, warned) = record(format!("installId: {id}").as_bytes());
            assert!(warned);
            assert_eq!(r.install_id, None);
        }
        assert_eq!(
            record(format!("installId: {}", "x".repeat(64)).as_bytes()).0.install_id,
            Some("x".repeat(64))
        );
    }
}
