//! The founder's reading of a machine's inventory: only what an approval is checked against. Pure.
//!
//! What may become of a disk is said in one other place, [`crate::disk`].

use serde::Deserialize;

use crate::disk::Disk;

/// What an approval is checked against. Other fields are kept in the stored text and not read here.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Inventory {
    /// Whole disks.
    #[serde(default)]
    pub(crate) disks: Vec<Disk>,
    /// Network interfaces.
    #[serde(default)]
    pub(crate) nics: Vec<Nic>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Nic {
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) link: String,
    #[serde(default)]
    ipv4: Option<Vec<String>>,
}

/// Why a key names no disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoDisk {
    Unknown,
    /// More than one disk answers to it: it is no key.
    Two,
}

// === impl Inventory ===

impl Inventory {
    pub(crate) fn parse(json: &str) -> Result<Self, serde_json::Error> {
        // The whole text first: an inventory that does not fit here must still be one JSON object.
        serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(json)?;
        serde_json::from_str(json)
    }

    pub(crate) fn nic(&self, name: &str) -> Option<&Nic> {
        self.nics.iter().find(|n| n.name == name)
    }

    /// The one disk of a key.
    pub(crate) fn disk(&self, key: &str) -> Result<&Disk, NoDisk> {
        let mut found = self.disks.iter().filter(|d| d.has_key(key));
        match (found.next(), found.next()) {
            (None, _) => Err(NoDisk::Unknown),
            (Some(_), Some(_)) => Err(NoDisk::Two),
            (Some(disk), None) => Ok(disk),
        }
    }
}

// === impl Nic ===

impl Nic {
    /// The CIDR of an address that the NIC holds.
    pub(crate) fn cidr_of(&self, address: &str) -> Option<&str> {
        self.addresses().find(|cidr| cidr.split('/').next() == Some(address))
    }

    /// Its IPv4 CIDRs.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = &str> {
        self.ipv4.iter().flatten().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_names_one_disk() {
        let inventory =
            Inventory::parse(r#"{"disks":[{"name":"sda","keys":["a","twin"]},{"keys":["twin"]}]}"#).unwrap();
        assert_eq!(inventory.disk("a").map(|d| d.name.as_str()), Ok("sda"));
        assert_eq!(inventory.disk("twin").err(), Some(NoDisk::Two));
        assert_eq!(inventory.disk("").err(), Some(NoDisk::Unknown));
    }

    #[test]
    fn a_doubled_field_is_refused() {
        assert!(Inventory::parse(r#"{"disks":[{"holds":["ext4"],"holds":[]}]}"#).is_err());
        assert!(Inventory::parse("[]").is_err());
    }
}
