//! The inventory: what the probe reports, in the exact wire form of schema 1.
//!
//! May touch: nothing. Must never: leave out a field (only `osDiskLayout` may be absent) or carry text that is not
//! [`Text`].

use serde::{Deserialize, Serialize};

use crate::text::Text;
use crate::warning::Warning;

/// What one machine is. Unknown is `null` with a warning, never a guess.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Inventory {
    /// 1. A new field does not raise it; a changed meaning does.
    pub schema_version: u32,
    /// Counts the inventories of one boot, from 1; set by the agent. Not part of the digest.
    pub generation: u64,
    /// Name, serial, release and processor.
    pub host: Host,
    /// Virtualization flag of the processor; empty when there is none.
    pub cpu_virtualization: CpuVirtualization,
    /// Whether `/dev/kvm` is there.
    pub kvm: Option<bool>,
    /// What this machine runs on; `none` is bare metal.
    pub hypervisor: Option<Hypervisor>,
    /// Usable memory in bytes (`MemTotal`), not what is installed.
    pub memory_bytes: Option<u64>,
    /// From the install record; absent on a machine that has none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub os_disk_layout: Option<OsDiskLayout>,
    /// Whole disks, in natural order of their names.
    pub disks: Vec<Disk>,
    /// Physical NICs and the bonds, VLANs and bridges above them, in natural order of their names.
    pub nics: Vec<Nic>,
    /// What is in doubt.
    pub warnings: Vec<Warning>,
}

/// Facts about the host itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Host {
    /// Kernel host name; placeholders such as `localhost` are null.
    pub hostname: Option<Text<253>>,
    /// Serial number of the machine; placeholders are null.
    pub serial: Option<Text<64>>,
    /// Which record the serial came from.
    pub serial_source: Option<SerialSource>,
    /// DMI `sys_vendor`.
    pub manufacturer: Option<Text<128>>,
    /// DMI `product_name`, or the device tree's `model`.
    pub product: Option<Text<128>>,
    /// `VERSION_ID` of `os-release`.
    pub release: Option<Text<64>>,
    /// `uname -m`.
    pub architecture: Option<Text<64>>,
    /// Kernel release.
    pub kernel: Option<Text<128>>,
    /// Processor model.
    pub cpu_model: Option<Text<128>>,
    /// Processors that are online.
    pub cpu_count: Option<u32>,
}

/// Where `host.serial` was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SerialSource {
    /// DMI `product_serial`.
    Product,
    /// DMI `board_serial`.
    Board,
    /// DMI `chassis_serial`.
    Chassis,
    /// Device tree `serial-number`.
    Devicetree,
}

/// Virtualization flag of the processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CpuVirtualization {
    /// Intel VT-x.
    Vmx,
    /// AMD-V.
    Svm,
    /// Neither flag; on processors that have no such flag too.
    #[default]
    #[serde(rename = "")]
    Absent,
}

/// What the machine runs on, in the names of `systemd-detect-virt --vm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "product names")]
pub enum Hypervisor {
    None,
    Kvm,
    Amazon,
    Qemu,
    Bochs,
    Xen,
    Uml,
    Vmware,
    Oracle,
    Microsoft,
    Zvm,
    Parallels,
    Bhyve,
    Qnx,
    Acrn,
    Apple,
    Sre,
    Google,
    #[serde(rename = "vm-other")]
    Other,
}

/// How stage 1 laid out the OS disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OsDiskLayout {
    /// The end of the OS disk was left free for compute.
    ComputeTail,
    /// The OS has the whole disk.
    WholeDisk,
}

/// One whole disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Disk {
    /// Kernel name (`sda`).
    pub name: Text<64>,
    /// `/dev/` and the name; for people. A disk is addressed by a key.
    pub path: Text<80>,
    /// Links below `/dev/disk/by-id/` that are this disk's alone, bytewise order.
    pub by_id: Vec<Text<300>>,
    /// Links below `/dev/disk/by-path/`; never a key.
    pub by_path: Vec<Text<300>>,
    /// What may be used as the disk's key and typed as the wipe confirmation, best first.
    pub keys: Vec<Text<300>>,
    /// World wide name, lower case; placeholders and shared ones are null.
    pub wwn: Option<Text<128>>,
    /// Model.
    pub model: Option<Text<64>>,
    /// Vendor.
    pub vendor: Option<Text<64>>,
    /// Serial number; never a key by itself.
    pub serial: Option<Text<128>>,
    /// Bytes.
    pub size_bytes: u64,
    /// Bytes.
    pub logical_block_size: Option<u32>,
    /// Bytes.
    pub physical_block_size: Option<u32>,
    /// The kernel says that it spins. Virtual disks, RAID volumes and USB flash lie.
    pub rotational: Option<bool>,
    /// How it is attached.
    pub transport: Option<Transport>,
    /// Can be pulled out by hand.
    pub removable: bool,
    /// The kernel refuses writes.
    pub read_only: bool,
    /// Mount points of the disk and of everything stacked on it, `[SWAP]` for active swap, and `[UNKNOWN]` when the
    /// mount table could not be read whole. Not empty: the disk is in use by this system.
    pub mounts: Vec<Text<1024>>,
    /// What holds data on the disk. **Empty means blank**, and nothing else does.
    pub holds: Vec<Text<64>>,
    /// `gpt`, `dos`, ...
    pub partition_table: Option<Text<64>>,
    /// Partitions by number.
    pub partitions: Vec<Partition>,
    /// Bytes free after the last partition; null without a partition table.
    pub tail_free_bytes: Option<u64>,
    /// md arrays and device-mapper devices built on the disk, farthest from the disk first.
    pub stack: Vec<StackItem>,
    /// The paths of a disk that is reached by several; empty for one path.
    pub paths: Vec<DiskPath>,
    /// Why this disk cannot be assigned; empty when it can. Set by [`Inventory::assemble`].
    pub not_assignable: Vec<NotAssignable>,
}

/// How a disk is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "names of buses")]
pub enum Transport {
    Nvme,
    NvmeTcp,
    NvmeRdma,
    NvmeFc,
    Virtio,
    Xen,
    Mmc,
    Sd,
    Dasd,
    Pmem,
    Usb,
    Fc,
    Iscsi,
    Sas,
    Sata,
    Ata,
    Scsi,
    Raid,
}

/// Why a disk cannot be assigned. The order is that of the tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NotAssignable {
    /// Another disk has the same keys.
    DuplicateIdentity,
    /// Zoned disk that must be written in order.
    HostManagedZoned,
    /// This system uses it, or that could not be ruled out.
    Mounted,
    /// No WWN and no `/dev/disk/by-id` link.
    NoStableKey,
    /// The kernel refuses writes.
    ReadOnly,
}

/// One partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Partition {
    /// Kernel name.
    pub name: Text<64>,
    /// Partition number.
    pub number: u32,
    /// First byte on the disk.
    pub start_bytes: u64,
    /// Bytes.
    pub size_bytes: u64,
    /// Type code or GUID, lower case.
    #[serde(rename = "type")]
    pub type_code: Option<Text<64>>,
    /// Partition name.
    pub label: Option<Text<128>>,
    /// Partition UUID.
    pub uuid: Option<Text<64>>,
    /// What the partition itself holds.
    pub holds: Vec<Text<64>>,
    /// Where it, or what is stacked on it, is mounted.
    pub mounts: Vec<Text<1024>>,
}

/// One md array or device-mapper device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StackItem {
    /// Kernel name (`dm-0`, `md127`).
    pub name: Text<64>,
    /// `/dev/mapper/<label>` or `/dev/<name>`.
    pub path: Text<300>,
    /// What it is.
    pub kind: StackKind,
    /// Device-mapper name, or array name.
    pub label: Option<Text<128>>,
    /// Bytes; 0 for a container.
    pub size_bytes: u64,
    /// Longest way from the disk, from 1.
    pub depth: u32,
    /// What it holds itself.
    pub holds: Vec<Text<64>>,
    /// Where it is mounted.
    pub mounts: Vec<Text<1024>>,
}

/// What a stacked device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "names of the kernel's and device-mapper's own")]
pub enum StackKind {
    Lvm,
    Crypt,
    Mpath,
    MpathPart,
    Dmraid,
    Vdo,
    Dm,
    Linear,
    Raid0,
    Raid1,
    Raid4,
    Raid5,
    Raid6,
    Raid10,
    Container,
    Md,
}

/// One path to a disk that has several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiskPath {
    /// Kernel name.
    pub name: Text<64>,
    /// `/dev/` and the name; null for NVMe paths, which have no node.
    pub path: Option<Text<80>>,
    /// `device/state`.
    pub state: Option<Text<64>>,
}

/// One NIC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Nic {
    /// Interface name.
    pub name: Text<15>,
    /// Other names of the interface.
    pub alt_names: Vec<Text<128>>,
    /// Permanent address, lower case with colons.
    pub mac: Option<Text<64>>,
    /// The address in use, when it is another one.
    pub current_mac: Option<Text<64>>,
    /// What it is.
    pub kind: NicKind,
    /// Kernel driver.
    pub driver: Option<Text<64>>,
    /// Mbit/s; null unless the link is up.
    pub speed_mbps: Option<u32>,
    /// Bytes.
    pub mtu: Option<u32>,
    /// Carrier.
    pub link: LinkState,
    /// IPv4 addresses as CIDR; empty: asked and none, null: could not ask.
    pub ipv4: Option<Vec<Text<18>>>,
    /// IPv6 addresses as CIDR, without link-local and temporary ones; empty: asked and none, null: could not ask.
    pub ipv6: Option<Vec<Text<43>>>,
    /// IPv4 destinations that the main table sends out of this NIC, as CIDR, without the default route; null: could
    /// not ask.
    pub routes: Option<Vec<Text<18>>>,
    /// The bond, bridge or team that it belongs to.
    pub master: Option<Text<15>>,
    /// The NIC below a VLAN.
    pub parent: Option<Text<15>>,
    /// Members, ports or parent.
    pub lower: Vec<Text<15>>,
    /// SR-IOV virtual function.
    pub vf: bool,
    /// Nearest PCI or USB device.
    pub bus: Option<Text<64>>,
}

/// What a NIC is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the usual words")]
pub enum NicKind {
    Ethernet,
    Wifi,
    Infiniband,
    Bond,
    Team,
    Vlan,
    Bridge,
    Other,
}

/// Carrier of a NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkState {
    /// Carrier.
    Up,
    /// No carrier.
    Down,
    /// The interface is switched off, or the driver does not tell.
    Unknown,
}

/// What needs the devices and root: disks, DMI, CPU, memory. Passed as JSON by the helper, at most 4 MiB.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachinePart {
    /// DMI product UUID, lower case; placeholders are null. Not in the inventory: the agent binds its identity to it.
    pub product_uuid: Option<String>,
    /// `installId` of the install record. Not in the inventory.
    pub install_id: Option<String>,
    /// See [`Inventory::host`].
    pub host: Host,
    /// See [`Inventory::cpu_virtualization`].
    pub cpu_virtualization: CpuVirtualization,
    /// See [`Inventory::kvm`].
    pub kvm: Option<bool>,
    /// See [`Inventory::hypervisor`].
    pub hypervisor: Option<Hypervisor>,
    /// See [`Inventory::memory_bytes`].
    pub memory_bytes: Option<u64>,
    /// See [`Inventory::os_disk_layout`].
    pub os_disk_layout: Option<OsDiskLayout>,
    /// See [`Inventory::disks`].
    pub disks: Vec<Disk>,
    /// Warnings of this part.
    pub warnings: Vec<Warning>,
}

/// What needs the network namespace and no privilege.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPart {
    /// See [`Inventory::nics`].
    pub nics: Vec<Nic>,
    /// Warnings of this part.
    pub warnings: Vec<Warning>,
}
