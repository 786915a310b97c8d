//! One record as text. Pure. Every text of a machine is cleaned.

use console::text::Safe;
use serde_json::Value;

use crate::disk::{Disk, Verdict};

/// Log lines that `show` prints.
const LOG_LINES: usize = 20;

/// `joins show`.
pub(super) fn join(join: &Value) -> String {
    let mut out = String::new();
    for (label, value) in [
        ("ID", "id"),
        ("State", "state"),
        ("Pairing code", "pairingCode"),
        ("Host name", "hostname"),
        ("Serial", "serial"),
        ("Release", "release"),
        ("Source", "sourceAddress"),
        ("Key", "keyFingerprint"),
        ("Node", "nodeId"),
        ("Waiting for", "waitReason"),
        ("Reason", "reason"),
        ("Registered", "registeredAt"),
        ("Last seen", "lastSeenAt"),
        ("Expires", "expiresAt"),
    ] {
        line(&mut out, label, &cell(&join[value]));
    }
    if join["state"] == "needs-upgrade" {
        let (from, to) = (cell(&join["upgrade"]["from"]), cell(&join["upgrade"]["to"]));
        line(&mut out, "Upgrade", &format!("from {from} to {to}, by itself"));
    }
    if join["stalled"] == true {
        line(&mut out, "Stalled", "silent for 10 minutes");
    }
    if !join["failedStep"].is_null() {
        line(
            &mut out,
            "Failed at",
            &format!("{} ({})", cell(&join["failedStepTitle"]), cell(&join["failedStep"])),
        );
        line(&mut out, "Error", &cell(&join["failedError"]));
    }
    hardware(&mut out, &join["inventory"]);
    section(&mut out, "Steps", &join["steps"], |step| {
        let error = cell(&step["error"]);
        let tail = if error.is_empty() { String::new() } else { format!(": {error}") };
        format!("{:8} {}{tail}", cell(&step["status"]), cell(&step["title"]))
    });
    let log = join["log"].as_array().map(Vec::as_slice).unwrap_or_default();
    let last = Value::from(log[log.len().saturating_sub(LOG_LINES)..].to_vec());
    section(&mut out, "Last log lines", &last, cell);
    out
}

/// What an operator needs to write an assignment: keys, and what a disk holds.
fn hardware(out: &mut String, inventory: &Value) {
    section(out, "Disks", &inventory["disks"], |disk| {
        let read = Disk::read(disk);
        let clean = |text: &str| Safe::<1024>::clean(text).ascii();
        let key = read.keys().first().map_or_else(|| "-".to_owned(), |key| clean(key));
        let gigabytes = disk["sizeBytes"].as_u64().unwrap_or(0) / 1_000_000_000;
        let state = match read.verdict() {
            Verdict::Refused(why) => format!("cannot be assigned: {}", clean(&why)),
            Verdict::NeedsConfirm(data) => format!("holds data: {}", clean(&data)),
            Verdict::Blank => "blank".to_owned(),
        };
        format!("{:10} {gigabytes:6} GB  {state}\n             key {key}", cell(&disk["name"]))
    });
    section(out, "NICs", &inventory["nics"], |nic| {
        let addresses = nic["ipv4"].as_array().map(Vec::as_slice).unwrap_or_default();
        let addresses = addresses.iter().map(cell).collect::<Vec<_>>().join(", ");
        format!("{:15} {:8} {addresses}", cell(&nic["name"]), cell(&nic["link"])).trim_end().to_owned()
    });
}

/// `joins approve`.
pub(super) fn approved(join: &Value) -> String {
    let mut out = done(join, "approved and queued");
    let assignment = &join["assignment"];
    line(&mut out, "Node", &format!("{} ({})", cell(&assignment["name"]), cell(&join["nodeId"])));
    let mgmt = &assignment["mgmt"];
    line(&mut out, "Management", &format!("{} on {}", cell(&mgmt["address"]), cell(&mgmt["interface"])));
    section(&mut out, "Notes", &assignment["copyNotes"], cell);
    out
}

/// What became of a record.
pub(super) fn done(join: &Value, what: &str) -> String {
    format!("{} ({}) is {what}.\n", cell(&join["id"]), cell(&join["hostname"]))
}

/// `join-codes create`: the only time that the code is shown.
pub(super) fn created(code: &Value) -> String {
    let mut out = String::new();
    line(&mut out, "Code", &cell(&code["code"]));
    line(&mut out, "URL", &cell(&code["url"]));
    line(&mut out, "Expires", &cell(&code["expiresAt"]));
    line(&mut out, "ID", &cell(&code["id"]));
    out.push_str("The code is shown this once. The URL also names the cluster's key: prefer it.\n");
    out
}

/// A founder's text for a terminal.
pub(super) fn cell(value: &Value) -> String {
    Safe::<1024>::clean(value.as_str().unwrap_or_default()).ascii()
}

fn line(out: &mut String, label: &str, value: &str) {
    if !value.is_empty() {
        out.push_str(&format!("{label:13} {value}\n"));
    }
}

fn section(out: &mut String, title: &str, list: &Value, text: impl Fn(&Value) -> String) {
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    if list.is_empty() {
        return;
    }
    out.push_str(&format!("{title}\n"));
    for item in list {
        out.push_str(&format!("  {}\n", text(item)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_record_shows_what_an_approval_needs() {
        let record = json!({
            "id": "nj-8w2k4m1p", "state": "pending", "pairingCode": "4F7-K2Q", "hostname": "node-2\u{1b}[2J",
            "inventory": {
                "disks": [{ "name": "sda", "keys": ["0x5000c500a1b2c3d4"], "sizeBytes": 8_001_563_222_016_u64, "holds": ["ext4"], "mounts": [],
                    "notAssignable": [] }, { "name": "sdb", "keys": ["k"], "mounts": [], "notAssignable": [] }, { "name": "sdc" }],
                "nics": [{ "name": "eno1", "link": "up", "ipv4": ["192.0.2.12/24"] }],
            },
            "log": ["a", "b"],
        });
        let text = join(&record);
        for expected in [
            "Pairing code  4F7-K2Q",
            "holds data: ext4",
            "holds data: the machine did not say what",
            "cannot be assigned: the machine did not say whether the disk is mounted",
            "key 0x5000c500a1b2c3d4",
            "192.0.2.12/24",
            "  b\n",
        ] {
            assert!(text.contains(expected), "{expected} in\n{text}");
        }
        assert!(!text.contains('\u{1b}') && !text.contains("blank"));
    }
}
