//! What is plugged into a machine: its disks, adapters and NICs. Only the root disk, the uplink and the harness's own channels are not here.
//!
//! Data, no process and no file.

/// What a machine has besides its root disk and its uplink.
#[derive(Clone, Copy, Debug)]
pub struct Board {
    /// Mebibytes.
    pub memory: u32,
    /// What the devices keep their data in.
    pub drives: &'static [Drive],
    /// The arguments that put devices in place, in this order; `drive=<id>` names a drive.
    pub devices: &'static [&'static str],
    /// Routers are heard on the first NIC: addresses then come when they come, which no listing of a join can have in it.
    pub ipv6: bool,
}

/// A disk: a sparse file of the host.
#[derive(Clone, Copy, Debug)]
pub struct Drive {
    /// What it is called among the devices.
    pub id: &'static str,
    /// Mebibytes.
    pub size: u32,
    /// The drive whose file this one has, too: two ways to one disk.
    pub same_as: Option<&'static str>,
    /// It cannot be written.
    pub read_only: bool,
    /// What is written at its beginning.
    pub data: &'static str,
}

/// A small server with a disk of each common kind: what every story has unless it says otherwise.
pub const SERVER: Board = Board {
    memory: 1024,
    ipv6: false,
    drives: &[Drive::new("nvme", 2048), Drive::new("scsi", 2048), Drive::new("virtio", 2048)],
    devices: &[
        "-device",
        "nvme,drive=nvme,serial=NVME0001",
        "-device",
        "virtio-scsi-pci,id=scsi0",
        "-device",
        "scsi-hd,bus=scsi0.0,drive=scsi,serial=SCSI0001",
        "-device",
        "virtio-blk-pci,drive=virtio,serial=VIRT0001",
    ],
};

// === impl Drive ===

impl Drive {
    /// A disk of its own.
    pub const fn new(id: &'static str, size: u32) -> Self {
        Self { id, size, same_as: None, read_only: false, data: "" }
    }

    /// Another way to a disk that is there.
    pub const fn again(id: &'static str, of: &'static str) -> Self {
        Self { same_as: Some(of), ..Self::new(id, 0) }
    }

    /// A disk that cannot be written.
    pub const fn read_only(id: &'static str, size: u32) -> Self {
        Self { read_only: true, ..Self::new(id, size) }
    }

    /// A disk that somebody has written something on.
    pub const fn with(id: &'static str, size: u32, data: &'static str) -> Self {
        Self { data, ..Self::new(id, size) }
    }

    /// The file its data is in.
    pub fn file(&self) -> String {
        format!("{}.img", self.same_as.unwrap_or(self.id))
    }
}
