//! Where the probe says something else than `lsblk` and `ip`, and why. docs/hardware.md tells the same to people.

use serde_json::{Value, json};

use super::compare::{Difference, Seen, has};
use super::rows::{list, text};

/// All of them. One that no machine of the matrix shows is an error.
pub const DIFFERENCES: &[Difference] = &[
    Difference {
        fields: &["listed"],
        why: "a floppy is no disk that could be assigned",
        applies: |seen| seen.at.starts_with("disks/fd") && seen.only_theirs(),
    },
    Difference {
        fields: &["listed"],
        why: "two ways to one disk are one disk, with both in `paths`; lsblk lists each, and all that stands on it",
        applies: |seen| seen.only_theirs() && is_a_path(seen),
    },
    Difference {
        fields: &["listed"],
        why: "`stack` has md arrays and device-mapper devices; a bcache device is only walked through",
        applies: |seen| seen.at.contains("/stack/bcache") && seen.only_theirs(),
    },
    Difference {
        fields: &["listed"],
        why: "an interface that no hardware is below is no NIC: loopback, an empty bridge",
        applies: |seen| seen.at.starts_with("nics/") && seen.only_theirs(),
    },
    Difference {
        fields: &["vendor"],
        why: "lsblk shows the blanks that fill the field up",
        applies: |seen| !seen.ours.is_null() && text(seen.ours) == text(seen.theirs).trim(),
    },
    Difference {
        fields: &["vendor"],
        why: "the vendor of a virtio disk is a PCI number, which names nobody",
        applies: |seen| seen.only_theirs() && text(seen.theirs).starts_with("0x"),
    },
    Difference {
        fields: &["model"],
        why: "lsblk does not know the product name of a card",
        applies: |seen| seen.only_ours() && seen.at.starts_with("disks/mmcblk"),
    },
    Difference {
        fields: &["serial"],
        why: "a number that is the same on many devices is no serial number",
        applies: |seen| seen.only_theirs() && warned(seen, "junk"),
    },
    Difference {
        fields: &["serial"],
        why: "lsblk prints what udev made of it, control characters included; the probe what the disk says, with a mark for each",
        applies: |seen| warned(seen, "hostileText") && !text(seen.ours).chars().any(char::is_control),
    },
    Difference {
        fields: &["wwn"],
        why: "what two disks have in common names neither",
        applies: |seen| {
            seen.only_theirs() && (warned(seen, "sharedWwn") || warned(seen, "duplicateIdentity"))
        },
    },
    Difference {
        fields: &["transport"],
        why: "lsblk has no word for virtio, MegaRAID, SCSI of a virtual machine, or a card",
        applies: |seen| seen.only_ours() && ["virtio", "raid", "scsi", "sd"].contains(&text(seen.ours)),
    },
    Difference {
        fields: &["removable"],
        why: "a USB disk and a card can be taken out, also where the kernel's flag, which is about media, says no",
        applies: |seen| *seen.ours == json!(true) && ["usb", "sd"].contains(&text(&seen.disk()["transport"])),
    },
    Difference {
        fields: &["holds"],
        why: "lsblk does not read the disk: there are bytes at its ends that no program has a name for",
        applies: |seen| seen.only_ours() && *seen.ours == json!(["unknown-data"]),
    },
    Difference {
        fields: &["holds", "partitionTable"],
        why: "lsblk does not read the disk: the second copy of a partition table is left at its end",
        applies: |seen| seen.only_ours() && seen.disk()["holds"] == json!(["gpt"]) && no_partitions(seen),
    },
    Difference {
        fields: &["holds"],
        why: "something stands on the disk, and nothing on it says so: dm-crypt without a header",
        applies: |seen| seen.only_ours() && *seen.ours == json!(["in-use"]),
    },
    Difference {
        fields: &["holds", "partitionTable"],
        why: "a path of a multipath disk holds what the map over it shows; `mpath_member` is no data",
        applies: |seen| !list(&seen.disk()["paths"]).is_empty() && !has(seen.ours, "mpath_member"),
    },
    Difference {
        fields: &["kind"],
        why: "lsblk calls a partition of a multipath map `part`, and the container of an external metadata format `md`",
        applies: |seen| {
            let pair = (text(seen.ours), text(seen.theirs));
            pair == ("mpath-part", "part") || pair == ("container", "md")
        },
    },
    Difference {
        fields: &["mounts"],
        why: "lsblk shows the mount of a file system on several disks at one of them; all are in use",
        applies: |seen| seen.only_ours() && has(&seen.disk()["holds"], "btrfs"),
    },
    Difference {
        fields: &["bus"],
        why: "ip names the virtio device, the probe the PCI device it is on",
        applies: |seen| text(seen.theirs).starts_with("virtio") && text(seen.ours).contains(':'),
    },
];

/// Whether the disk is only another way to one that is listed.
fn is_a_path(seen: &Seen<'_>) -> bool {
    let name = seen.at.split('/').nth(1).unwrap_or_default();
    let paths = list(&seen.inventory["disks"]).iter().flat_map(|disk| list(&disk["paths"]));
    paths.into_iter().any(|path| path["name"] == name)
}

/// Whether the inventory has a warning of this kind about this fact.
fn warned(seen: &Seen<'_>, code: &str) -> bool {
    let about = |warning: &Value| {
        warning["code"] == code
            && warning["at"] == seen.at
            && (code == "duplicateIdentity" || has(&warning["facts"], seen.field))
    };
    list(&seen.inventory["warnings"]).iter().any(about)
}

fn no_partitions(seen: &Seen<'_>) -> bool {
    list(&seen.disk()["partitions"]).is_empty()
}
