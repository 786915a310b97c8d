//! The founder's reading of a machine's inventory: only what an approval is checked against. Pure.
//!
//! Safe towards the disk: what a machine did not say counts as the worse case. A disk without a list of mounts may be mounted, one
//! without a list of what it holds holds data.

use serde::Deserialize;

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
pub(crate) struct Disk {
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default)]
    by_id: Vec<String>,
    keys: Option<Vec<String>>,
    wwn: Option<String>,
    mounts: Option<Vec<String>>,
    holds: Option<Vec<String>>,
    #[serde(default)]
    partitions: Vec<Part>,
    #[serde(default)]
    stack: Vec<Part>,
    #[serde(default)]
    not_assignable: Vec<String>,
}

/// A partition or something stacked on the disk.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Part {
    #[serde(default)]
    name: String,
    #[serde(default)]
    mounts: Vec<String>,
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

    /// Every disk that answers to a key. More than one means that the key is no key.
    pub(crate) fn disks_by_key<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a Disk> {
        self.disks.iter().filter(move |d| d.has_key(key))
    }
}

// === impl Disk ===

impl Disk {
    /// Documented keys are the WWN and the by-id paths. A probe that says which of them are good is believed.
    fn has_key(&self, key: &str) -> bool {
        match &self.keys {
            Some(keys) => keys.iter().any(|k| k == key),
            None => self.wwn.as_deref() == Some(key) || self.by_id.iter().any(|k| k == key),
        }
    }

    /// Why it must not be assigned at all, confirmed or not.
    pub(crate) fn forbidden(&self) -> Option<String> {
        let parts = self.partitions.iter().chain(&self.stack);
        let mounted = parts.flat_map(|p| &p.mounts).chain(self.mounts.iter().flatten()).next();
        if let Some(at) = mounted {
            return Some(format!("the disk is mounted at {at}: it is a system disk"));
        }
        if self.mounts.is_none() {
            return Some("the machine did not say whether the disk is mounted".to_owned());
        }
        self.not_assignable
            .first()
            .map(|why| format!("the machine says that the disk cannot be assigned: {why}"))
    }

    /// What is on it that a wipe would destroy; `None` only when the machine said that it is blank.
    pub(crate) fn data(&self) -> Option<String> {
        let Some(holds) = &self.holds else { return Some("the machine did not say what".to_owned()) };
        let stacked = self.partitions.iter().chain(&self.stack).map(|p| &p.name);
        let found: Vec<&str> = holds.iter().chain(stacked).map(String::as_str).collect();
        if found.is_empty() { None } else { Some(found.join(", ")) }
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

    fn disk(json: &str) -> Disk {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn what_a_machine_does_not_say_counts_as_the_worse_case() {
        assert!(disk("{}").forbidden().is_some());
        assert!(disk(r#"{"mounts":[]}"#).data().is_some());
        let blank = disk(r#"{"mounts":[],"holds":[]}"#);
        assert_eq!(blank.forbidden(), None);
        assert_eq!(blank.data(), None);
    }

    #[test]
    fn a_partition_or_an_array_is_data_whatever_holds_says() {
        for json in [
            r#"{"mounts":[],"holds":[],"partitions":[{"name":"sda1"}]}"#,
            r#"{"mounts":[],"holds":[],"stack":[{"name":"md127"}]}"#,
        ] {
            assert!(disk(json).data().is_some(), "{json}");
        }
    }

    #[test]
    fn a_mount_anywhere_on_the_disk_forbids_it() {
        for json in [
            r#"{"mounts":["/"],"holds":[]}"#,
            r#"{"mounts":[],"partitions":[{"mounts":["/boot"]}]}"#,
            r#"{"mounts":[],"stack":[{"name":"md0","mounts":["/srv"]}]}"#,
            r#"{"mounts":[],"notAssignable":["readOnly"]}"#,
        ] {
            assert!(disk(json).forbidden().is_some(), "{json}");
        }
    }

    #[test]
    fn a_key_that_the_probe_left_out_is_no_key() {
        let disk = disk(r#"{"keys":["a"],"wwn":"w","byId":["b"]}"#);
        assert!(disk.has_key("a"));
        assert!(!disk.has_key("w") && !disk.has_key("b"));
    }

    #[test]
    fn a_doubled_field_is_refused() {
        assert!(Inventory::parse(r#"{"disks":[{"holds":["ext4"],"holds":[]}]}"#).is_err());
        assert!(Inventory::parse("[]").is_err());
    }
}
