//! Stand-ins for what names one machine: serial numbers, WWNs, MAC addresses, the product UUID, the host name.
//!
//! May touch: nothing. Must never: give two values one stand-in, or one value two; change the length of a value; derive a stand-in from the
//! value: serial numbers and MAC addresses are few enough to try them all.

use std::collections::{BTreeMap, BTreeSet};

use ring::digest::{SHA256, digest};
use serde_json::Value;

use crate::capture::Node;
use crate::identity::{is_junk_disk_serial, is_junk_wwn};
use crate::inventory::Inventory;
use crate::machine::is_junk;

/// Shorter ones name nothing, and are part of too much else.
const MIN: usize = 4;
/// From this length on a value is replaced wherever it is; a shorter one only where it is a word of its own.
const LONG: usize = 8;
/// Properties of a udev record that name one device.
const PROPERTIES: [&str; 12] = [
    "ID_SERIAL",
    "ID_SERIAL_SHORT",
    "ID_SCSI_SERIAL",
    "SCSI_IDENT_SERIAL",
    "ID_WWN",
    "ID_WWN_WITH_EXTENSION",
    "ID_WWN_VENDOR_EXTENSION",
    "ID_NET_NAME_MAC",
    "ID_SAS_PATH",
    "DM_SERIAL",
    "DM_WWN",
    "ID_USB_SERIAL_SHORT",
];
/// Files that name one device or one machine, by their last name.
const FILES: [&str; 12] = [
    "serial",
    "wwid",
    "vpd_pg80",
    "product_serial",
    "board_serial",
    "chassis_serial",
    "serial-number",
    "product_uuid",
    "address",
    "perm_hwaddr",
    "hostname",
    "sas_address",
];

/// Replaces each secret by its stand-in.
#[derive(Debug, Default)]
pub(crate) struct Redactor {
    /// The longest first: one can contain another.
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
}

// === impl Redactor ===

impl Redactor {
    /// Collects the secrets of a captured tree.
    pub(crate) fn of(inventory: &Inventory, tree: &BTreeMap<String, Node>) -> Self {
        let mut secrets = Secrets::default();
        let host = &inventory.host;
        secrets.add(host.serial.as_deref());
        secrets.add(host.hostname.as_deref());
        for disk in &inventory.disks {
            secrets.add(disk.serial.as_deref());
            secrets.add_wwn(disk.wwn.as_deref());
        }
        for nic in &inventory.nics {
            secrets.add_mac(nic.mac.as_deref());
            secrets.add_mac(nic.current_mac.as_deref());
        }
        for (path, node) in tree {
            let Node::File(bytes) = node else { continue };
            let name = path.rsplit('/').next().unwrap_or_default();
            if path.starts_with("run/udev/data/") || path.starts_with("dev/") {
                secrets.add_record(bytes);
            } else if path == "capture/ip-addr.json" {
                secrets.add_addresses(bytes);
            } else if FILES.contains(&name) {
                let bytes = if name == "vpd_pg80" { bytes.get(4..).unwrap_or_default() } else { bytes };
                let text = String::from_utf8_lossy(bytes);
                let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
                match name {
                    "wwid" | "sas_address" => secrets.add_wwn(Some(text)),
                    "address" | "perm_hwaddr" => secrets.add_mac(Some(text)),
                    _ => secrets.add(Some(text)),
                }
            }
        }
        secrets.stand_ins()
    }

    /// The entry at `path` without secrets.
    pub(crate) fn node(&self, path: &str, node: Node) -> Node {
        match node {
            Node::Dir => Node::Dir,
            Node::File(bytes) => {
                let text = String::from_utf8_lossy(&bytes).trim().to_ascii_lowercase();
                let name = path.rsplit('/').next().unwrap_or_default();
                // Too short to be looked for elsewhere; here it is all there is.
                if FILES.contains(&name)
                    && (2..MIN).contains(&text.len())
                    && !is_junk(&text)
                    && bytes.is_ascii()
                {
                    return Node::File([stand_in(&text, 0, false), b"\n".to_vec()].concat());
                }
                Node::File(self.replace(&bytes))
            }
            Node::Link(target) => Node::Link(self.path(&target)),
        }
    }

    /// A path without secrets. Names of the kernel are no secrets, whatever a device calls itself.
    pub(crate) fn path(&self, path: &str) -> String {
        let part = |part: &str| {
            let told = part.len() >= LONG && part.bytes().any(|b| b.is_ascii_digit());
            if told {
                String::from_utf8_lossy(&self.replace(part.as_bytes())).into_owned()
            } else {
                part.to_owned()
            }
        };
        path.split('/').map(part).collect::<Vec<_>>().join("/")
    }

    fn replace(&self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let before = at.checked_sub(1).and_then(|n| bytes.get(n));
            let hit = self.pairs.iter().find(|(secret, _)| {
                let word = |b: Option<&u8>| !b.is_some_and(u8::is_ascii_alphanumeric);
                rest.get(..secret.len()).is_some_and(|found| found.eq_ignore_ascii_case(secret))
                    && (secret.len() >= LONG || (word(before) && word(rest.get(secret.len()))))
            });
            match hit {
                Some((secret, stand_in)) => {
                    let found = rest.get(..secret.len()).unwrap_or_default();
                    out.extend(found.iter().zip(stand_in).map(|(old, new)| {
                        if old.is_ascii_uppercase() { new.to_ascii_uppercase() } else { *new }
                    }));
                    at += secret.len();
                }
                None => {
                    out.extend(rest.first());
                    at += 1;
                }
            }
        }
        out
    }
}

/// Secrets in lower case.
#[derive(Default)]
struct Secrets(BTreeSet<String>);

// === impl Secrets ===

impl Secrets {
    fn add(&mut self, text: Option<&str>) {
        let text = text.unwrap_or_default().trim();
        if text.len() >= MIN
            && text.is_ascii()
            && !is_junk(text)
            && !is_junk_disk_serial(text)
            && text != "localhost"
        {
            self.0.insert(text.to_ascii_lowercase());
        }
    }

    /// The part of a WWN that is no prefix.
    fn add_wwn(&mut self, wwn: Option<&str>) {
        let wwn = wwn.unwrap_or_default().trim().to_ascii_lowercase();
        for prefix in ["0x", "naa.", "eui.", "uuid.", "nvme.", "t10."] {
            if let Some(rest) = wwn.strip_prefix(prefix) {
                let known = if prefix == "naa." { format!("0x{rest}") } else { wwn.clone() };
                if prefix == "t10." || !is_junk_wwn(&known) {
                    self.add(Some(rest));
                }
            }
        }
    }

    /// A MAC address, also as it is in the name of an interface (`enx02fc00000001`).
    fn add_mac(&mut self, mac: Option<&str>) {
        let mac = mac.unwrap_or_default().trim();
        let digits: String = mac.chars().filter(|c| *c != ':').collect();
        if digits.len() < 12
            || digits.chars().all(|c| c == '0')
            || digits.chars().all(|c| matches!(c, 'f' | 'F'))
        {
            return;
        }
        self.add(Some(mac));
        self.add(Some(&digits));
    }

    fn add_record(&mut self, bytes: &[u8]) {
        for line in String::from_utf8_lossy(bytes).lines() {
            let line = line.strip_prefix("E:").unwrap_or(line);
            let Some((key, value)) = line.split_once('=').filter(|(key, _)| PROPERTIES.contains(key)) else {
                continue;
            };
            if key.contains("WWN") { self.add_wwn(Some(value)) } else { self.add(Some(value)) }
        }
    }

    fn add_addresses(&mut self, bytes: &[u8]) {
        for link in serde_json::from_slice::<Vec<Value>>(bytes).unwrap_or_default() {
            for key in ["address", "permaddr"] {
                self.add_mac(link.get(key).and_then(Value::as_str));
            }
        }
    }

    /// A secret with its stand-in. The n-th secret has the n-th stand-in of its shape.
    fn stand_ins(self) -> Redactor {
        let mut pairs: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let mut macs: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for (n, secret) in self.0.iter().enumerate() {
            let digits: String = secret.chars().filter(|c| *c != ':').collect();
            let mac = digits.len() >= 12 && digits.bytes().all(|b| b.is_ascii_hexdigit());
            // Both spellings of one address have one stand-in.
            let new = macs.entry(digits.clone()).or_insert_with(|| stand_in(&digits, n, mac));
            let mut next = new.iter().copied();
            let new =
                secret.bytes().map(|b| if b == b':' { b } else { next.next().unwrap_or(b'0') }).collect();
            pairs.push((secret.clone().into_bytes(), new));
        }
        pairs.sort_by(|a, b| b.0.len().cmp(&a.0.len()).then_with(|| a.0.cmp(&b.0)));
        Redactor { pairs }
    }
}

/// Text of the same shape: digits for digits, letters for letters, and hexadecimal ones where all are. The first two characters of a number
/// stay: they say what kind of WWN or MAC address it is.
fn stand_in(text: &str, n: usize, hex: bool) -> Vec<u8> {
    let mut stream = (0u32..).flat_map(|block| {
        let hash = digest(&SHA256, format!("stand-in {n} {block}").as_bytes());
        hash.as_ref().to_vec()
    });
    let one = |(at, old): (usize, u8)| {
        let random = stream.next().unwrap_or(0);
        match old {
            _ if hex && at < 2 => old,
            b'0'..=b'9' => b'0' + random % 10,
            b'a'..=b'z' if hex => b'a' + random % 6,
            b'a'..=b'z' => b'a' + random % 26,
            _ => old,
        }
    };
    text.bytes().enumerate().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redactor(secrets: &[&str]) -> Redactor {
        let mut all = Secrets::default();
        secrets.iter().for_each(|s| all.add(Some(s)));
        all.stand_ins()
    }

    #[test]
    fn a_secret_has_one_stand_in_of_its_shape_everywhere() {
        let r = redactor(&["ZA1ABCDE", "5000c500a1b2c3d4"]);
        let text = "ata-ST8000_ZA1ABCDE wwn-0x5000c500a1b2c3d4 35000C500A1B2C3D4 za1abcde";
        let new = String::from_utf8(r.replace(text.as_bytes())).unwrap();
        assert!(
            !new.to_lowercase().contains("za1abcde") && !new.to_lowercase().contains("a1b2c3d4"),
            "{new}"
        );
        assert_eq!(new.len(), text.len());
        let words: Vec<&str> = new.split(' ').collect();
        assert_eq!(words[0].split('_').nth(1).unwrap().to_lowercase(), words[3]);
        assert_eq!(
            words[1].strip_prefix("wwn-0x").unwrap(),
            words[2].strip_prefix('3').unwrap().to_lowercase()
        );
        assert!(words[1].starts_with("wwn-0x50"));
    }

    #[test]
    fn both_spellings_of_a_mac_address_stay_one() {
        let mut all = Secrets::default();
        all.add_mac(Some("02:fc:12:34:56:ab"));
        let r = all.stand_ins();
        let colons = String::from_utf8(r.replace(b"02:fc:12:34:56:ab")).unwrap();
        assert_ne!(colons, "02:fc:12:34:56:ab");
        assert_eq!(
            r.path("sys/class/net/enx02fc123456ab"),
            format!("sys/class/net/enx{}", colons.replace(':', ""))
        );
    }

    #[test]
    fn a_host_name_of_two_letters_is_replaced_in_its_own_file_alone() {
        let r = Redactor::default();
        let file = |path: &str| r.node(path, Node::File(b"vm\n".to_vec()));
        assert_ne!(file("proc/sys/kernel/hostname"), Node::File(b"vm\n".to_vec()));
        assert_eq!(file("proc/version"), Node::File(b"vm\n".to_vec()));
    }

    #[test]
    fn short_values_are_replaced_as_words_and_placeholders_not_at_all() {
        let r = redactor(&["node", "abc", "None", "0000000000"]);
        let text = "node.example nodes abc None 0000000000";
        let new = String::from_utf8(r.replace(text.as_bytes())).unwrap();
        assert!(!new.starts_with("node.") && new.ends_with(" nodes abc None 0000000000"), "{new}");
        assert_eq!(r.path("sys/node/x"), "sys/node/x");
    }
}
