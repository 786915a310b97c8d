//! The inventory as a table for a technician.
//!
//! May touch: nothing. Must never: cut a key, or print text that is not [`Text`](crate::Text).

use std::fmt::Write as _;

use crate::inventory::{CpuVirtualization, Disk, Inventory, LinkState, Nic, NotAssignable};

/// Shortest that a column is cut to.
const MIN_CUT: usize = 8;

/// The whole table, lines ended with `\n`, as wide as its content. Over `width` columns MODEL, then ROUTES are cut with
/// `...`; KEY never is. No colour.
#[must_use]
pub fn render(inventory: &Inventory, width: usize) -> String {
    let mut out = String::new();
    head(inventory, &mut out);
    out.push_str("\nDISKS\n");
    if inventory.disks.is_empty() {
        out.push_str("none\n");
    } else {
        let mut rows =
            vec![["NAME", "SIZE", "MODEL", "SERIAL", "LINK", "STATE", "KEY"].map(str::to_owned).to_vec()];
        rows.extend(inventory.disks.iter().map(disk_row));
        fit(&mut rows, 2, width);
        table(&rows, &mut out);
    }
    out.push_str("\nNICS\n");
    if inventory.nics.is_empty() {
        out.push_str("none\n");
    } else {
        let mut rows = vec![
            ["NAME", "LINK", "SPEED", "DRIVER", "MAC", "ADDRESSES", "ROUTES"].map(str::to_owned).to_vec(),
        ];
        rows.extend(inventory.nics.iter().map(nic_row));
        fit(&mut rows, 6, width);
        table(&rows, &mut out);
    }
    let n = inventory.warnings.len();
    if n > 0 {
        let _ = write!(out, "\n{n} {}:", if n == 1 { "warning" } else { "warnings" });
        out.push(if n == 1 { ' ' } else { '\n' });
        for warning in &inventory.warnings {
            let at = if warning.at.is_empty() { "machine" } else { &warning.at };
            let what = warning.detail.as_deref().map_or_else(|| warning.facts.join(", "), str::to_owned);
            let _ = writeln!(out, "{}{at}: {what}", if n == 1 { "" } else { "  " });
        }
    }
    if inventory.cpu_virtualization != CpuVirtualization::Absent && inventory.kvm == Some(false) {
        out.push_str(
            "virtualization flag present, /dev/kvm missing: check the firmware setting and the kvm module\n",
        );
    }
    out
}

fn head(inventory: &Inventory, out: &mut String) {
    let host = &inventory.host;
    let dash = |t: Option<&str>| t.unwrap_or("-").to_owned();
    let layout = inventory.os_disk_layout.map(|l| word(&l));
    let _ = writeln!(
        out,
        "{}  serial {}  release {}  OS disks: {}",
        dash(host.hostname.as_deref()),
        dash(host.serial.as_deref()),
        dash(host.release.as_deref()),
        dash(layout.as_deref()),
    );
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
    let _ = writeln!(out, "CPU {cpu}, KVM {kvm}   memory {memory}   hypervisor {hypervisor}");
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

/// Cuts column `which` so that the widest row fits, if that is enough of a cut.
fn fit(rows: &mut [Vec<String>], which: usize, width: usize) {
    let over = total(rows).saturating_sub(width);
    let wide = column(rows, which);
    if over == 0 || wide <= MIN_CUT {
        return;
    }
    let target = wide.saturating_sub(over).max(MIN_CUT);
    for cell in rows.iter_mut().filter_map(|r| r.get_mut(which)) {
        if cell.chars().count() > target {
            let kept: String = cell.chars().take(target.saturating_sub(3)).collect();
            *cell = format!("{}...", kept.trim_end());
        }
    }
}

fn column(rows: &[Vec<String>], which: usize) -> usize {
    rows.iter().filter_map(|r| r.get(which)).map(|c| c.chars().count()).max().unwrap_or(0)
}

fn total(rows: &[Vec<String>]) -> usize {
    let columns = rows.first().map_or(0, Vec::len);
    (0..columns).map(|c| column(rows, c)).sum::<usize>() + 2 * columns.saturating_sub(1)
}

fn table(rows: &[Vec<String>], out: &mut String) {
    let columns = rows.first().map_or(0, Vec::len);
    let widths: Vec<usize> = (0..columns).map(|c| column(rows, c)).collect();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:width$}  ");
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
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

    #[test]
    fn only_the_named_column_is_cut() {
        let row = |m: &str| {
            vec!["a".to_owned(), m.to_owned(), "0123456789012345678901234567890123456789".to_owned()]
        };
        let mut rows = vec![row("MODEL"), row("a very long model name that goes on")];
        fit(&mut rows, 1, 60);
        assert_eq!(rows[1], row("a very long..."));
        assert_eq!(rows[1][2].len(), 40);
    }
}
