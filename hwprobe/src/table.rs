//! The inventory as a table for a technician.
//!
//! May touch: nothing. Must never: cut a key, or print text that is not [`Text`](crate::Text).

use std::fmt::Write as _;

use crate::inventory::{CpuVirtualization, Disk, Inventory, LinkState, Nic, NotAssignable};

/// Shortest that a column is cut to.
const MIN_CUT: usize = 10;
/// Before what stands below a row or goes on from the line above.
const INDENT: &str = "    ";

/// The whole table, lines ended with `\n`, as wide as its content and, but for single words, at most `width` columns: KEY, then STATE of the
/// disks and ROUTES, then ADDRESSES of the NICs go to lines of their own below their row, MODEL is cut with `...`. A key never is. No colour.
#[must_use]
pub fn render(inventory: &Inventory, width: usize) -> String {
    let mut out = String::new();
    head(inventory, width, &mut out);
    out.push_str("\nDISKS\n");
    if inventory.disks.is_empty() {
        out.push_str("none\n");
    } else {
        let head = ["NAME", "SIZE", "MODEL", "SERIAL", "LINK", "STATE", "KEY"];
        Rows::new(&head, inventory.disks.iter().map(disk_row)).print(
            &["KEY", "STATE"],
            Some("MODEL"),
            width,
            &mut out,
        );
    }
    out.push_str("\nNICS\n");
    if inventory.nics.is_empty() {
        out.push_str("none\n");
    } else {
        let head = ["NAME", "LINK", "SPEED", "DRIVER", "MAC", "ADDRESSES", "ROUTES"];
        Rows::new(&head, inventory.nics.iter().map(nic_row)).print(
            &["ROUTES", "ADDRESSES"],
            None,
            width,
            &mut out,
        );
    }
    let warnings = warnings(inventory);
    let n = warnings.len();
    if n > 0 {
        let _ = write!(out, "\n{n} {}:", if n == 1 { "warning" } else { "warnings" });
        out.push('\n');
        for warning in &warnings {
            wrap("  ", warning, width, &mut out);
        }
    }
    if inventory.cpu_virtualization != CpuVirtualization::Absent && inventory.kvm == Some(false) {
        let what =
            "virtualization flag present, /dev/kvm missing: check the firmware setting and the kvm module";
        wrap("", what, width, &mut out);
    }
    out
}

/// One line for each thing that is to be said, with all devices it is said of: `disks/sda sdb: not reported: wwn`.
fn warnings(inventory: &Inventory) -> Vec<String> {
    let mut lines: Vec<(String, String, String)> = Vec::new();
    for warning in &inventory.warnings {
        let at = if warning.at.is_empty() { "machine" } else { &warning.at };
        let what = warning.detail.as_deref().map_or_else(|| warning.facts.join(", "), str::to_owned);
        let (place, name) = at.split_once('/').unwrap_or(("", at));
        match lines.iter_mut().find(|(p, _, w)| p == place && *w == what && !place.is_empty()) {
            Some((_, names, _)) => drop(write!(names, " {name}")),
            None => lines.push((place.to_owned(), at.to_owned(), what)),
        }
    }
    lines.into_iter().map(|(_, names, what)| format!("{names}: {what}")).collect()
}

fn head(inventory: &Inventory, width: usize, out: &mut String) {
    let host = &inventory.host;
    let dash = |t: Option<&str>| t.unwrap_or("-").to_owned();
    let layout = inventory.os_disk_layout.map(|l| word(&l));
    let parts = [
        dash(host.hostname.as_deref()),
        format!("serial {}", dash(host.serial.as_deref())),
        format!("release {}", dash(host.release.as_deref())),
        format!("OS disks: {}", dash(layout.as_deref())),
    ];
    join(&parts, width, out);
    let cpu = match inventory.cpu_virtualization {
        CpuVirtualization::Absent => "no virtualization flag".to_owned(),
        flag => word(&flag),
    };
    let kvm = match inventory.kvm {
        Some(true) => "yes",
        Some(false) => "no",
        None => "unknown",
    };
    let memory = inventory.memory_bytes.map_or_else(|| "unknown".to_owned(), size);
    let hypervisor = inventory.hypervisor.map_or_else(|| "unknown".to_owned(), |h| word(&h));
    let parts =
        [format!("CPU {cpu}, KVM {kvm}"), format!("memory {memory}"), format!("hypervisor {hypervisor}")];
    join(&parts, width, out);
}

/// Parts beside each other, as many as fit into a line.
fn join(parts: &[String], width: usize, out: &mut String) {
    let mut used = 0;
    for part in parts {
        let wide = part.chars().count();
        if used > 0 && used + 2 + wide > width {
            out.push('\n');
            used = 0;
        }
        if used > 0 {
            out.push_str("  ");
            used += 2;
        }
        out.push_str(part);
        used += wide;
    }
    out.push('\n');
}

/// Text in lines of at most `width` columns, broken at spaces; a longer word stays whole, because it may be a key.
fn wrap(first: &str, text: &str, width: usize, out: &mut String) {
    out.push_str(first);
    let mut used = first.chars().count();
    let mut fresh = true;
    for word in text.split(' ') {
        let wide = word.chars().count();
        if !fresh && used + 1 + wide > width {
            out.push('\n');
            out.push_str(INDENT);
            used = INDENT.len();
            fresh = true;
        }
        if !fresh {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += wide;
        fresh = false;
    }
    out.push('\n');
}

fn disk_row(disk: &Disk) -> Vec<String> {
    let dash = |t: Option<&str>| t.unwrap_or("-").to_owned();
    vec![
        disk.name.to_string(),
        size(disk.size_bytes),
        dash(disk.model.as_deref()),
        dash(disk.serial.as_deref()),
        disk.transport.map_or_else(|| "-".to_owned(), |t| word(&t)),
        state(disk),
        dash(disk.keys.first().map(|k| k.as_str())),
    ]
}

/// What a person may do with the disk, the strongest reason first.
fn state(disk: &Disk) -> String {
    if !disk.mounts.is_empty() {
        let shown: Vec<&str> = disk.mounts.iter().take(4).map(|m| m.as_str()).collect();
        let more = disk.mounts.len().saturating_sub(shown.len());
        let tail = if more > 0 { format!(" and {more} more") } else { String::new() };
        return format!("system: {}{tail}", shown.join(" "));
    }
    if !disk.not_assignable.is_empty() {
        let reasons: Vec<&str> = disk
            .not_assignable
            .iter()
            .map(|r| match r {
                NotAssignable::DuplicateIdentity => "another disk has the same identity",
                NotAssignable::HostManagedZoned => "host-managed zones",
                NotAssignable::Mounted => "mounted",
                NotAssignable::NoStableKey => "no stable key",
                NotAssignable::ReadOnly => "read-only",
            })
            .collect();
        return format!("cannot be assigned: {}", reasons.join(", "));
    }
    if disk.holds.is_empty() {
        return "blank".to_owned();
    }
    format!("holds {}", disk.holds.iter().map(|h| h.as_str()).collect::<Vec<_>>().join(" "))
}

fn nic_row(nic: &Nic) -> Vec<String> {
    let list = |l: Option<&Vec<crate::Text<18>>>| match l {
        None => "unknown".to_owned(),
        Some(l) if l.is_empty() => "-".to_owned(),
        Some(l) => l.iter().map(|t| t.as_str()).collect::<Vec<_>>().join(" "),
    };
    let link = match nic.link {
        LinkState::Up => "up",
        LinkState::Down => "down",
        LinkState::Unknown => "unknown",
    };
    vec![
        nic.name.to_string(),
        link.to_owned(),
        nic.speed_mbps.map_or_else(|| "-".to_owned(), speed),
        nic.driver.as_deref().unwrap_or("-").to_owned(),
        nic.mac.as_deref().unwrap_or("-").to_owned(),
        list(nic.ipv4.as_ref()),
        list(nic.routes.as_ref()),
    ]
}

/// Rows of equal length under a head.
struct Rows {
    head: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

// === impl Rows ===

impl Rows {
    fn new(head: &[&'static str], rows: impl Iterator<Item = Vec<String>>) -> Self {
        Self { head: head.to_vec(), rows: rows.collect() }
    }

    /// Prints them. Where the rows are wider than `width`, the columns of `below` go below their rows, one after the other, until it is
    /// enough; before more than the first goes, the column `cut` is cut.
    fn print(&self, below: &[&str], cut: Option<&str>, width: usize, out: &mut String) {
        let mut moved: Vec<usize> = Vec::new();
        let mut below = below.iter().filter_map(|name| self.column(name));
        while self.total(&moved) > width {
            if !moved.is_empty()
                && cut.and_then(|c| self.column(c)).is_some_and(|c| self.room(c, &moved, width) >= MIN_CUT)
            {
                break;
            }
            let Some(next) = below.next() else { break };
            moved.push(next);
        }
        let cut = cut.and_then(|c| self.column(c)).filter(|_| self.total(&moved) > width);
        let cut = cut.map(|c| (c, self.room(c, &moved, width).max(MIN_CUT)));
        let widths: Vec<usize> = (0..self.head.len()).map(|c| self.wide(c)).collect();
        let heads = self.head.iter().map(|h| (*h).to_owned()).collect();
        for (n, row) in std::iter::once(&heads).chain(&self.rows).enumerate() {
            let mut line = String::new();
            for (c, (cell, wide)) in row.iter().zip(&widths).enumerate().filter(|(c, _)| !moved.contains(c)) {
                match cut {
                    Some((which, most)) if which == c => {
                        let _ = write!(line, "{:1$}  ", shorten(cell, most), most.min(*wide));
                    }
                    _ => drop(write!(line, "{cell:wide$}  ")),
                }
            }
            out.push_str(line.trim_end());
            out.push('\n');
            for c in moved.iter().rev().filter(|_| n > 0) {
                if let (Some(head), Some(cell)) = (self.head.get(*c), row.get(*c).filter(|cell| *cell != "-"))
                {
                    wrap(&format!("{INDENT}{} ", head.to_lowercase()), cell, width, out);
                }
            }
        }
    }

    fn column(&self, name: &str) -> Option<usize> {
        self.head.iter().position(|h| *h == name)
    }

    fn wide(&self, which: usize) -> usize {
        let cells = self.rows.iter().filter_map(|r| r.get(which)).map(|c| c.chars().count());
        cells.chain(self.head.get(which).map(|h| h.len())).max().unwrap_or(0)
    }

    fn total(&self, moved: &[usize]) -> usize {
        let left: Vec<usize> = (0..self.head.len()).filter(|c| !moved.contains(c)).collect();
        left.iter().map(|c| self.wide(*c)).sum::<usize>() + 2 * left.len().saturating_sub(1)
    }

    /// What is left for column `which` when all others are whole.
    fn room(&self, which: usize, moved: &[usize], width: usize) -> usize {
        width.saturating_sub(self.total(moved).saturating_sub(self.wide(which)))
    }
}

fn shorten(cell: &str, most: usize) -> String {
    if cell.chars().count() <= most {
        return cell.to_owned();
    }
    let kept: String = cell.chars().take(most.saturating_sub(3)).collect();
    format!("{}...", kept.trim_end())
}

/// Binary units, one decimal.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = u128::from(bytes) * 10;
    let mut unit = 0;
    while value >= 10_240 && unit + 1 < UNITS.len() {
        value = (value + 512) / 1024;
        unit += 1;
    }
    let name = UNITS.get(unit).unwrap_or(&"B");
    if unit == 0 { format!("{bytes} B") } else { format!("{}.{} {name}", value / 10, value % 10) }
}

fn speed(mbps: u32) -> String {
    match mbps {
        n if n % 1000 == 0 => format!("{} Gb/s", n / 1000),
        n if n > 1000 => format!("{}.{} Gb/s", n / 1000, n % 1000 / 100),
        n => format!("{n} Mb/s"),
    }
}

/// The wire name of an enum value.
fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(text)) => text,
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_speeds_read_as_people_say_them() {
        assert_eq!(size(2_000_398_934_016), "1.8 TiB");
        assert_eq!(size(512), "512 B");
        assert_eq!(size(u64::MAX), "16.0 EiB");
        assert_eq!(speed(1000), "1 Gb/s");
        assert_eq!(speed(2500), "2.5 Gb/s");
        assert_eq!(speed(100), "100 Mb/s");
    }

    fn printed(state: &str, model: &str, key: &str, width: usize) -> String {
        let head = ["NAME", "MODEL", "STATE", "KEY"];
        let row = ["sda", model, state, key].map(str::to_owned).to_vec();
        let mut out = String::new();
        Rows::new(&head, std::iter::once(row)).print(&["KEY", "STATE"], Some("MODEL"), width, &mut out);
        out
    }

    const KEY: &str =
        "nvme.1987-35303032364237323832303336303144-4b494e4753544f4e20534b433130303032343047-00000001";

    #[test]
    fn what_fits_stays_in_one_line() {
        assert_eq!(printed("blank", "Disk", "0x5", 40), "NAME  MODEL  STATE  KEY\nsda   Disk   blank  0x5\n");
    }

    #[test]
    fn a_key_that_makes_the_rows_too_wide_has_a_line_of_its_own_and_is_whole() {
        assert_eq!(
            printed("blank", "Disk", KEY, 80),
            format!("NAME  MODEL  STATE\nsda   Disk   blank\n    key {KEY}\n")
        );
        // No key, no line.
        let held = "holds a b c d e f g h i j k l m n o p q r s t u v w x y z";
        assert!(!printed(held, "Disk", "-", 64).contains("key"));
    }

    #[test]
    fn the_model_is_cut_before_the_state_leaves_its_row() {
        let text = printed("blank", "a very long model name that goes on", KEY, 40);
        assert!(
            text.starts_with("NAME  MODEL") && text.contains("\nsda   a very long model name t...  blank\n"),
            "{text}"
        );
        let held = "holds gpt vfat linux_raid_member LVM2_member ext4 xfs swap";
        let text = printed(held, "a very long model name that goes on", KEY, 60);
        assert!(text.contains("\nsda   a very long model name that goes on\n    state holds gpt"), "{text}");
        assert!(text.lines().all(|l| l.chars().count() <= 60 || l.contains(KEY)), "{text}");
    }

    #[test]
    fn text_is_wrapped_at_spaces_and_a_long_word_stays_whole() {
        let mut out = String::new();
        wrap("  ", &format!("disks/sda: another disk claims {KEY} too"), 30, &mut out);
        assert_eq!(out, format!("  disks/sda: another disk\n    claims\n    {KEY}\n    too\n"));
    }
}
