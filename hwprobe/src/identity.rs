//! What a disk is called: WWN, links, serial, and which of them may be its key.
//!
//! May touch: sysfs, and links below `dev/disk` (live). Must never: offer as a key what another disk has too, what a
//! firmware gives to everybody, or what cannot be typed.

use std::collections::{BTreeMap, HashMap};

use crate::blockdev::{BlockDev, Dev};
use crate::facts::Facts;
use crate::finding::{Finding, Missing};
use crate::inventory::{Disk, NotAssignable};
use crate::roots::Roots;
use crate::text::Text;
use crate::udevdb::Properties;
use crate::warning::{Code, Warnings};

/// `by-id` links of one disk.
const MAX_BY_ID: usize = 32;
/// `by-path` links of one disk.
const MAX_BY_PATH: usize = 8;
/// Keys of one disk.
const MAX_KEYS: usize = 34;
const BY_ID: &str = "/dev/disk/by-id/";
const BY_PATH: &str = "/dev/disk/by-path/";

/// Whether the WWN is one that a firmware gives to everybody.
pub(crate) fn is_junk_wwn(wwn: &str) -> bool {
    let lower = wwn.to_ascii_lowercase();
    let zero = |s: &str| s.bytes().all(|b| b == b'0' || b == b'-' || b == b'.');
    if let Some(digits) = lower.strip_prefix("0x") {
        return digits.len() < 16
            || !digits.bytes().all(|b| b.is_ascii_hexdigit())
            || zero(digits)
            || digits.bytes().all(|b| b == b'f')
            || digits == "5000000000000001"
            || digits == "5001480000000000";
    }
    for prefix in ["eui.", "uuid.", "nvme."] {
        if let Some(rest) = lower.strip_prefix(prefix) {
            return rest.is_empty() || zero(rest) || rest.bytes().all(|b| matches!(b, b'f' | b'-' | b'.'));
        }
    }
    true
}

/// Whether a disk's serial number is a placeholder.
pub(crate) fn is_junk_disk_serial(serial: &str) -> bool {
    let lower = serial.trim().to_ascii_lowercase();
    one_character(&lower) || matches!(lower.as_str(), "unknown" | "none" | "n/a" | "0123456789abcdef")
}

/// Whether text is one character, repeated or not.
pub(crate) fn one_character(text: &str) -> bool {
    let mut chars = text.chars();
    match chars.next() {
        None => true,
        Some(first) => chars.all(|c| c == first),
    }
}

/// The world wide name: NVMe `wwid`; SCSI and ATA from udev, the long form first, else `device/wwid`.
pub(crate) fn wwn(roots: &Roots, dev: &BlockDev, udev: Option<&Properties>) -> Finding<String> {
    let nvme = dev.name.starts_with("nvme");
    let found = if nvme {
        roots.line(&format!("{}/wwid", dev.dir)).map(|w| w.split_whitespace().collect::<String>())
    } else {
        let long = |key| udev.and_then(|p| p.text(key)).map(str::to_owned);
        match long("ID_WWN_WITH_EXTENSION").or_else(|| long("ID_WWN")) {
            Some(wwn) => Ok(wwn),
            None => match roots.line(&format!("{}/device/wwid", dev.dir)) {
                Ok(wwid) => wwid.strip_prefix("naa.").map(|d| format!("0x{d}")).ok_or(Missing::Absent),
                // ENXIO: the disk has no page of identifiers, EINVAL: none that counts (scsi_vpd_lun_id() in drivers/scsi/scsi_lib.c).
                // Neither says that the disk went away.
                Err(Missing::Vanished | Missing::NotSupported) => Err(Missing::Absent),
                Err(missing) => Err(missing),
            },
        }
    }?;
    let found = found.to_ascii_lowercase();
    if is_junk_wwn(&found) { Err(Missing::Junk) } else { Ok(found) }
}

/// The serial number, from the source that knows best.
pub(crate) fn serial(
    facts: &mut Facts<'_>,
    dev: &BlockDev,
    udev: Option<&Properties>,
    wwn: Option<&str>,
) -> Finding<Text<128>> {
    let from_udev = |key: &str| Some(udev?.bytes(key)?.to_vec());
    let digits = wwn.map(|w| w.trim_start_matches("0x").to_owned());
    // ID_SERIAL_SHORT of a SCSI disk is often its WWN again, which is no serial number.
    let short = || {
        from_udev("ID_SERIAL_SHORT").filter(|s| {
            let short = String::from_utf8_lossy(s).to_ascii_lowercase();
            digits.as_deref().is_none_or(|d| short.trim() != d && short.trim_start_matches(['3', ' ']) != d)
        })
    };
    // Of a SCSI disk without a WWN it is the end of a T10 identifier, where the number may be cut off; page 80 has all of it.
    let whole = |short: Vec<u8>| {
        let longer = from_udev("ID_SCSI_SERIAL").filter(|long| long.starts_with(&short));
        longer.unwrap_or(short)
    };
    let roots = facts.roots;
    let file = |file: &str, skip: usize| match roots.read(&format!("{}/{file}", dev.dir)) {
        Ok(bytes) => Ok(bytes.get(skip..).map(<[u8]>::to_vec)),
        Err(Missing::Absent) => Ok(None),
        Err(missing) => Err(missing),
    };
    // Asked one after another: most disks have told with the first.
    let sources: [&dyn Fn() -> Finding<Option<Vec<u8>>>; 7] = [
        &|| Ok(short().map(whole)),
        &|| Ok(from_udev("ID_SCSI_SERIAL")),
        &|| Ok(from_udev("SCSI_IDENT_SERIAL")),
        // Unit serial number page: four bytes of header (SPC-4, 7.8.15).
        &|| file("device/vpd_pg80", 4),
        &|| file("serial", 0),
        &|| file("device/serial", 0),
        &|| Ok(from_udev("ID_SERIAL").filter(|_| dev.name.starts_with("vd"))),
    ];
    let (mut unread, mut junk) = (None, false);
    for source in sources {
        match source() {
            Ok(Some(bytes)) => match facts.text::<128>("serial", &bytes) {
                Some(text) if !is_junk_disk_serial(&text) => return Ok(text),
                Some(_) => junk = true,
                None => {}
            },
            Ok(None) => {}
            Err(missing) => unread = Some(missing),
        }
    }
    Err(if junk { Missing::Junk } else { unread.unwrap_or(Missing::Absent) })
}

/// Links of one disk.
#[derive(Debug, Default)]
pub(crate) struct Links {
    pub(crate) by_id: Vec<String>,
    pub(crate) by_path: Vec<String>,
    /// Every link that udev claims for the disk, also one that leads to another disk at the moment.
    pub(crate) claimed: Vec<String>,
}

/// What udev says links to this disk. Live, a link counts only if it exists and leads here: several devices may claim
/// one link, and udev gives it to one. To which may change at any event, so the claim is kept: a link that two disks
/// claim is no name for either ([`drop_shared_links`]).
/// `same` holds every device number that is this disk: itself, its other paths and its multipath map.
pub(crate) fn links(roots: &Roots, same: &[Dev], udev: Option<&Properties>) -> Links {
    let mut found = Links::default();
    for link in udev.map(Properties::links).unwrap_or_default() {
        let (list, name) = if let Some(name) = link.strip_prefix(BY_ID) {
            (&mut found.by_id, name)
        } else if let Some(name) = link.strip_prefix(BY_PATH) {
            (&mut found.by_path, name)
        } else {
            continue;
        };
        let foreign = ["lvm-pv-uuid-", "dm-", "md-"].iter().any(|p| name.starts_with(p));
        if name.is_empty() || foreign || is_part(name) {
            continue;
        }
        found.claimed.push(link.clone());
        if !roots.is_live() || leads_to(roots, link, same) {
            list.push(link.clone());
        }
    }
    found
}

fn is_part(name: &str) -> bool {
    name.rsplit_once("-part").is_some_and(|(_, n)| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

fn leads_to(roots: &Roots, link: &str, same: &[Dev]) -> bool {
    roots
        .stat(link.trim_start_matches('/'))
        .is_ok_and(|stat| same.contains(&(rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev))))
}

/// Removes links that two disks claim from both, whichever of them the link leads to now. `claimed` has no doubles.
pub(crate) fn drop_shared_links(all: &mut [(String, Links)], warnings: &mut Warnings) {
    let mut owners: HashMap<String, usize> = HashMap::new();
    for link in all.iter().flat_map(|(_, l)| &l.claimed) {
        *owners.entry(link.clone()).or_default() += 1;
    }
    let shared = |link: &String| owners.get(link).is_some_and(|n| *n > 1);
    for (name, links) in all {
        // Told at every disk that claims it: which one has the link may change with any event, and the digest must not.
        if let Some(first) = links.claimed.iter().find(|link| shared(link)) {
            let detail = format!("another disk claims {first} too");
            warnings.note(&format!("disks/{name}"), Code::SharedLink, "byId", &detail);
        }
        for list in [&mut links.by_id, &mut links.by_path] {
            list.retain(|link| !shared(link));
            list.sort_unstable();
        }
    }
}

/// Fills `byId`, `byPath` and `keys` of one disk.
pub(crate) fn fill_keys(disk: &mut Disk, links: &Links, nvme: NvmeNames, facts: &mut Facts<'_>) {
    disk.by_id = links.by_id.iter().filter_map(|l| facts.text("byId", l.as_bytes())).collect();
    disk.by_path = links.by_path.iter().filter_map(|l| facts.text("byPath", l.as_bytes())).collect();
    for (list, max, fact) in
        [(&mut disk.by_id, MAX_BY_ID, "byId"), (&mut disk.by_path, MAX_BY_PATH, "byPath")]
    {
        list.dedup();
        if list.len() > max {
            list.truncate(max);
            facts.warnings.note(&facts.at, Code::Truncated, fact, "");
        }
    }
    let mut ranked: BTreeMap<(u8, String), ()> = BTreeMap::new();
    for link in disk.by_id.iter().filter(|l| can_be_typed(l)) {
        let name = link.trim_start_matches(BY_ID);
        if let Some(rank) = rank(name, &disk.by_id, nvme) {
            ranked.insert((rank, link.to_string()), ());
        }
    }
    let wwn = disk.wwn.as_ref().filter(|w| can_be_typed(w)).and_then(|w| Text::of(w));
    let links = ranked.into_keys().filter_map(|(_, link)| Text::of(&link));
    disk.keys = wwn.into_iter().chain(links).take(MAX_KEYS).collect();
}

/// How many namespaces stand behind the NVMe name of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NvmeNames {
    /// One, or no NVMe disk.
    One,
    /// Several: the link without a namespace number moves between them.
    Several,
}

/// Place of a link among the keys; `None`: not to be offered.
fn rank(name: &str, all: &[Text<300>], nvme: NvmeNames) -> Option<u8> {
    let starts = |list: &[&str]| list.iter().any(|p| name.starts_with(p));
    if starts(&["nvme-eui.", "nvme-uuid.", "nvme-nvme.", "wwn-"]) {
        let wwn = name.strip_prefix("wwn-").or_else(|| name.strip_prefix("nvme-")).unwrap_or(name);
        return (!is_junk_wwn(wwn)).then_some(2);
    }
    if starts(&["nvme-"]) {
        // `<model>_<serial>_<nsid>` is there beside `<model>_<serial>`.
        let numbered = name.rsplit_once('_').is_some_and(|(base, n)| {
            n.bytes().all(|b| b.is_ascii_digit()) && all.iter().any(|l| l.trim_start_matches(BY_ID) == base)
        });
        return match (numbered, nvme) {
            (true, _) => Some(3),
            (false, NvmeNames::One) => Some(4),
            (false, NvmeNames::Several) => None,
        };
    }
    if let Some(rest) = name.strip_prefix("usb-") {
        // `usb-<vendor>_<model>_<serial>-<h>:<l>`: a bridge's own number is no disk's.
        let serial = rest.rsplit_once('-').map_or(rest, |(head, _)| head);
        let serial = serial.rsplit('_').next().unwrap_or(serial);
        let placeholder = is_junk_disk_serial(serial) || serial.bytes().all(|b| b == b'0');
        return (!placeholder).then_some(5);
    }
    if starts(&["ata-", "scsi-3", "scsi-S", "scsi-0", "scsi-1", "virtio-", "mmc-", "dasd-", "ccw-"]) {
        return Some(5);
    }
    Some(6)
}

/// Keys are typed by people, as the wipe confirmation.
fn can_be_typed(key: &str) -> bool {
    key.bytes().all(|b| b.is_ascii_alphanumeric() || b"#+-.:=@_/".contains(&b))
}

/// Voids a WWN that several disks have, and marks disks whose identity cannot be told apart.
pub(crate) fn settle_shared(disks: &mut [Disk], warnings: &mut Warnings) {
    let mut by_wwn: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (n, disk) in disks.iter().enumerate() {
        if let Some(wwn) = &disk.wwn {
            by_wwn.entry(wwn.to_string()).or_default().push(n);
        }
    }
    for (wwn, sharers) in by_wwn.into_iter().filter(|(_, s)| s.len() > 1) {
        let twins = |a: usize| {
            let same = |d: &&Disk| {
                disks.get(a).is_some_and(|a| {
                    a.serial.is_some() && a.serial == d.serial && a.size_bytes == d.size_bytes
                })
            };
            sharers.iter().filter_map(|s| disks.get(*s)).filter(same).count() > 1
        };
        // The same disk twice, or two disks that say they are one: neither can be addressed.
        let duplicates: Vec<usize> = sharers.iter().copied().filter(|s| twins(*s)).collect();
        for n in sharers {
            let Some(disk) = disks.get_mut(n) else { continue };
            let at = format!("disks/{}", disk.name);
            disk.wwn = None;
            disk.keys.retain(|key| **key != *wwn && !is_link_of_wwn(key));
            warnings.note(&at, Code::SharedWwn, "wwn", &format!("another disk has the WWN {wwn} too"));
            if duplicates.contains(&n) {
                mark_duplicate(disk, warnings, "another disk has the same WWN, serial and size");
            }
        }
    }
    let mut by_key: HashMap<String, usize> = HashMap::new();
    for key in disks.iter().flat_map(|d| &d.keys) {
        *by_key.entry(key.to_string()).or_default() += 1;
    }
    for disk in disks.iter_mut() {
        let before = disk.keys.len();
        disk.keys.retain(|key| by_key.get(key.as_str()) == Some(&1));
        if before > 0 && disk.keys.is_empty() {
            mark_duplicate(disk, warnings, "another disk has the same keys");
        }
    }
}

fn mark_duplicate(disk: &mut Disk, warnings: &mut Warnings, why: &str) {
    if !disk.not_assignable.contains(&NotAssignable::DuplicateIdentity) {
        disk.not_assignable.push(NotAssignable::DuplicateIdentity);
    }
    warnings.note(&format!("disks/{}", disk.name), Code::DuplicateIdentity, "keys", why);
}

fn is_link_of_wwn(key: &str) -> bool {
    let name = key.trim_start_matches(BY_ID);
    ["wwn-", "nvme-eui.", "nvme-uuid.", "nvme-nvme.", "scsi-3"].iter().any(|p| name.starts_with(p))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_two_disks_claim_is_told_at_both_wherever_it_leads() {
        let link = "/dev/disk/by-id/wwn-0x5".to_owned();
        let claims = |has: bool| Links {
            by_id: has.then(|| link.clone()).into_iter().collect(),
            claimed: vec![link.clone()],
            ..Links::default()
        };
        let mut all = [("sda".to_owned(), claims(false)), ("sdb".to_owned(), claims(true))];
        let mut warnings = Warnings::default();
        drop_shared_links(&mut all, &mut warnings);
        let at: Vec<String> = warnings.into_list().into_iter().map(|w| w.at).collect();
        assert_eq!(at, ["disks/sda", "disks/sdb"]);
        assert!(all.iter().all(|(_, links)| links.by_id.is_empty()));
    }

    #[test]
    fn placeholder_wwns_are_junk() {
        for wwn in [
            "0x0000000000000000",
            "0x5000000000000001",
            "0x5001480000000000",
            "0x1234",
            "eui.0000000000000000",
            "uuid.00000000-0000-0000-0000-000000000000",
            "eui.",
            "naa.5000c500a1b2c3d4",
            "0xzzzzzzzzzzzzzzzz",
            "",
        ] {
            assert!(is_junk_wwn(wwn), "{wwn}");
        }
        for wwn in [
            "0x5000c500a1b2c3d4",
            "0x600508b1001c2d3e4f5a6b7c8d9e0f1a",
            "eui.002538b111b00001",
            "nvme.1d0f-766f",
        ] {
            assert!(!is_junk_wwn(wwn), "{wwn}");
        }
    }

    #[test]
    fn placeholder_serials_are_junk() {
        for serial in ["", "0000000000", "unknown", "NONE", "xxxx", "0123456789ABCDEF"] {
            assert!(is_junk_disk_serial(serial), "{serial}");
        }
        assert!(!is_junk_disk_serial("ZA1ABCDE"));
    }

    fn ranks(names: &[&str], nvme: NvmeNames) -> Vec<Option<u8>> {
        let all: Vec<Text<300>> = names.iter().filter_map(|n| Text::of(&format!("{BY_ID}{n}"))).collect();
        names.iter().map(|n| rank(n, &all, nvme)).collect()
    }

    #[test]
    fn the_link_without_namespace_is_no_key_when_there_are_several() {
        let names = ["nvme-M_S_1", "nvme-M_S", "nvme-eui.002538b111b00001"];
        assert_eq!(ranks(&names, NvmeNames::One), [Some(3), Some(4), Some(2)]);
        assert_eq!(ranks(&names, NvmeNames::Several), [Some(3), None, Some(2)]);
    }

    #[test]
    fn a_bridge_serial_is_no_key() {
        let names =
            ["usb-Gen_Disk_0123456789ABCDEF-0:0", "usb-Gen_Disk_000000000000-0:0", "usb-Gen_Disk_AA12B-0:0"];
        assert_eq!(ranks(&names, NvmeNames::One), [None, None, Some(5)]);
    }

    #[test]
    fn junk_wwn_links_are_no_keys() {
        assert_eq!(
            ranks(&["wwn-0x0000000000000000", "nvme-eui.0000000000000000"], NvmeNames::One),
            [None, None]
        );
    }

    #[test]
    fn a_link_that_leads_to_one_of_two_claimants_is_a_key_of_neither() {
        let links = |by_id: &[&str], claimed: &[&str]| Links {
            by_id: by_id.iter().map(|l| (*l).to_owned()).collect(),
            by_path: Vec::new(),
            claimed: claimed.iter().map(|l| (*l).to_owned()).collect(),
        };
        // As on a running machine: udev gave `same` to the first disk, for now.
        let mut all = [
            ("sda".to_owned(), links(&["same", "own"], &["own", "same"])),
            ("sdb".to_owned(), links(&[], &["same"])),
        ];
        let mut warnings = Warnings::default();
        drop_shared_links(&mut all, &mut warnings);
        assert_eq!(all.map(|(_, l)| l.by_id), [vec!["own".to_owned()], Vec::new()]);
    }

    #[test]
    fn a_key_must_survive_typing() {
        assert!(can_be_typed("/dev/disk/by-id/ata-A+B=C#1"));
        for bad in ["a b", "a\u{fffd}", "a\\x20b", "ä"] {
            assert!(!can_be_typed(bad), "{bad}");
        }
    }

    #[test]
    fn partitions_are_recognised_by_their_ending_only() {
        assert!(is_part("wwn-0x5-part12"));
        assert!(!is_part("ata-part-time"));
        assert!(!is_part("ata-x-part"));
    }
}
