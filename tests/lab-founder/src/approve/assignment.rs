//! The assignment: everything about a joiner that is chosen on the founder (documented names). Plain data.

use serde::{Deserialize, Serialize};

/// What a joiner becomes. As stored it is complete: every default is filled in.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Assignment {
    /// Display name.
    pub name: String,
    /// Always `hybrid`.
    pub role: String,
    /// The `topology.rack` label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
    /// Availability zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub az: Option<String>,
    /// The management link.
    pub mgmt: Mgmt,
    /// Other links.
    pub links: Vec<Link>,
    /// Data disks.
    pub disks: Vec<DiskChoice>,
    /// Only when they differ from the cluster's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ntp_servers: Option<Vec<String>>,
    /// The VM uplink.
    pub provider: ProviderChoice,
    /// The node it was copied from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copied_from: Option<String>,
    /// What the founder chose in a way that an operator should look at.
    pub copy_notes: Vec<String>,
}

/// The management link.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Mgmt {
    /// A NIC of the joiner.
    pub interface: String,
    /// A CIDR.
    pub address: String,
    /// Its gateway, when the address is new on the NIC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// Its resolvers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns: Option<Vec<String>>,
}

/// One link: an ethernet NIC, a bond, or a VLAN on either.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Link {
    /// Its name in the assignment.
    pub name: String,
    /// ethernet, bond, vlan.
    pub kind: String,
    /// The device.
    pub interface: String,
    /// A VLAN's parent device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// 1 to 4094.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan_id: Option<u32>,
    /// The bond this ethernet link is a member of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
    /// A bond's settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bond: Option<Bond>,
    /// Static CIDRs.
    pub addresses: Vec<String>,
    /// The founder picked the addresses.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub addresses_allocated: bool,
    /// Bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// mgmt, storage, overlay, provider, oob.
    pub purposes: Vec<String>,
}

/// A bond's settings.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Bond {
    /// `active-backup`, `802.3ad`...
    pub mode: String,
    /// `layer2`, `layer3+4`...
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xmit_hash_policy: Option<String>,
    /// Link monitoring in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub miimon_ms: Option<u32>,
    /// slow or fast.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lacp_rate: Option<String>,
}

/// What a disk becomes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DiskChoice {
    /// WWN or a by-id path.
    pub key: String,
    /// compute or ceph-osd.
    pub role: String,
    /// A compute disk's pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The pool's storage class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<String>,
    /// The typed wipe confirmation: the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirm: Option<String>,
}

/// The VM uplink.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProviderChoice {
    /// The cluster's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<String>,
    /// The joiner's NIC or bond.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream_interface: Option<String>,
    /// The cluster's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u32>,
}

/// An approve request as it was sent: nothing is filled in.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asked {
    pub(crate) name: Option<String>,
    pub(crate) role: Option<String>,
    pub(crate) rack: Option<String>,
    pub(crate) az: Option<String>,
    pub(crate) mgmt: AskedMgmt,
    pub(crate) links: Option<Vec<Link>>,
    pub(crate) disks: Vec<DiskChoice>,
    pub(crate) ntp_servers: Option<Vec<String>>,
    pub(crate) provider: ProviderChoice,
    pub(crate) copy_from: Option<String>,
}

/// The management link as it was asked for.
#[derive(Debug, Clone, Default)]
pub(crate) struct AskedMgmt {
    pub(crate) interface: Option<String>,
    pub(crate) address: Option<String>,
    pub(crate) gateway: Option<String>,
    pub(crate) dns: Option<Vec<String>>,
}
