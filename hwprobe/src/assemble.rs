//! Putting the two parts together, the digest, and making an inventory fit a bound.
//!
//! May touch: nothing. Must never: lose `holds`, `mounts`, `keys` or the names of a stack of a disk that stays.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io;

use ring::digest::{SHA256, digest};
use serde_json::Value;

use crate::inventory::{Inventory, MachinePart, NetworkPart, NotAssignable};
use crate::text::Text;
use crate::warning::{Code, Warning};

/// Routes kept by [`Inventory::fit`], over all NICs.
const FIT_ROUTES: usize = 512;

/// Loses one kind of fact.
type LossStep = fn(&mut Inventory);

// === impl Inventory ===

impl Inventory {
    /// The inventory of both parts, `generation` 1. The only place that decides whether a disk may be assigned.
    #[must_use]
    pub fn assemble(machine: MachinePart, network: NetworkPart) -> Self {
        let mut disks = machine.disks;
        for disk in &mut disks {
            let mut reasons: BTreeSet<NotAssignable> = disk
                .not_assignable
                .iter()
                .copied()
                .filter(|r| matches!(r, NotAssignable::HostManagedZoned | NotAssignable::DuplicateIdentity))
                .collect();
            if !disk.mounts.is_empty() {
                reasons.insert(NotAssignable::Mounted);
            }
            if disk.keys.is_empty() {
                reasons.insert(NotAssignable::NoStableKey);
            }
            if disk.read_only {
                reasons.insert(NotAssignable::ReadOnly);
            }
            disk.not_assignable = reasons.into_iter().collect();
        }
        let mut warnings = machine.warnings;
        warnings.extend(network.warnings);
        warnings.sort_by(|a, b| (&a.at, a.code).cmp(&(&b.at, b.code)));
        Self {
            schema_version: 1,
            generation: 1,
            host: machine.host,
            cpu_virtualization: machine.cpu_virtualization,
            kvm: machine.kvm,
            hypervisor: machine.hypervisor,
            memory_bytes: machine.memory_bytes,
            os_disk_layout: machine.os_disk_layout,
            disks,
            nics: network.nics,
            warnings,
        }
    }

    /// SHA-256 over the compact JSON with sorted keys, without `generation` and without the details of warnings.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        self.digest_but(&[])
    }

    /// The same without what a bad cable changes from one minute to the next: link, speed and routes of the NICs, and the warnings.
    #[must_use]
    pub fn steady_digest(&self) -> [u8; 32] {
        self.digest_but(&["link", "speedMbps", "routes"])
    }

    /// The same without addresses, too: what is in the machine.
    #[must_use]
    pub fn hardware_digest(&self) -> [u8; 32] {
        self.digest_but(&["link", "speedMbps", "routes", "ipv4", "ipv6"])
    }

    fn digest_but(&self, flapping: &[&str]) -> [u8; 32] {
        let mut value = serde_json::to_value(self).expect("plain data always becomes JSON");
        if let Some(top) = value.as_object_mut() {
            top.remove("generation");
            if !flapping.is_empty() {
                top.remove("warnings");
            }
            for nic in top.get_mut("nics").and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(nic) = nic.as_object_mut() {
                    flapping.iter().for_each(|name| drop(nic.remove(*name)));
                }
            }
            for warning in top.get_mut("warnings").and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(warning) = warning.as_object_mut() {
                    warning.remove("detail");
                }
            }
        }
        let mut text = String::new();
        write_sorted(&value, &mut text);
        let mut out = [0; 32];
        out.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
        out
    }

    /// Bytes of the compact JSON.
    #[must_use]
    pub fn json_len(&self) -> usize {
        let mut counted = Counter(0);
        serde_json::to_writer(&mut counted, self).map_or(usize::MAX, |()| counted.0)
    }

    /// The inventory within `max_bytes` of compact JSON, losing the least important first and whole disks last. What
    /// was lost is in one `truncated` warning. A disk that is left out cannot be assigned, so loss is safe. When even
    /// the mounted disks do not fit, the result is larger than `max_bytes`.
    #[must_use]
    pub fn fit(mut self, max_bytes: usize) -> Self {
        let mut lost: BTreeSet<String> = BTreeSet::new();
        let steps: [(&str, LossStep); 6] = [
            ("disks.byPath", |i| i.disks.iter_mut().for_each(|d| d.by_path.clear())),
            ("disks.paths", |i| {
                for path in i.disks.iter_mut().flat_map(|d| &mut d.paths) {
                    path.path = None;
                    path.state = None;
                }
            }),
            ("disks.partitions", |i| {
                for partition in i.disks.iter_mut().flat_map(|d| &mut d.partitions) {
                    partition.label = None;
                    partition.uuid = None;
                    partition.type_code = None;
                }
            }),
            ("warnings", |i| i.warnings.retain(|w| w.code != Code::Absent)),
            ("disks.byId", |i| {
                for disk in &mut i.disks {
                    let keys = &disk.keys;
                    disk.by_id.retain(|link| keys.contains(link));
                }
            }),
            ("nics.routes", |i| {
                let mut left = FIT_ROUTES;
                for routes in i.nics.iter_mut().filter_map(|n| n.routes.as_mut()) {
                    routes.truncate(left);
                    left -= routes.len();
                }
            }),
        ];
        for (fact, step) in steps {
            if self.json_len() <= max_bytes {
                return self;
            }
            step(&mut self);
            lost.insert(fact.to_owned());
            self.say_lost(&lost, "");
        }
        let mut dropped = 0;
        loop {
            let mut over = self.json_len().saturating_sub(max_bytes);
            if over == 0 {
                return self;
            }
            // As many disks as make up the excess, then the whole is measured again.
            while over > 0 {
                let blank = self.disks.iter().rposition(|d| d.mounts.is_empty() && d.holds.is_empty());
                let Some(at) = blank.or_else(|| self.disks.iter().rposition(|d| d.mounts.is_empty())) else {
                    return self;
                };
                let gone = self.disks.remove(at);
                let place = format!("disks/{}", gone.name);
                self.warnings.retain(|w| w.at != place);
                dropped += 1;
                over = over.saturating_sub(serde_json::to_vec(&gone).map_or(1, |v| v.len()));
            }
            lost.insert("disks".to_owned());
            self.say_lost(&lost, &format!("{dropped} disks left out"));
        }
    }

    fn say_lost(&mut self, lost: &BTreeSet<String>, detail: &str) {
        let at_top = |w: &Warning| w.code == Code::Truncated && w.at.is_empty();
        let mut facts = lost.clone();
        if let Some(old) = self.warnings.iter().position(at_top) {
            facts.extend(self.warnings.remove(old).facts);
        }
        self.warnings.insert(
            0,
            Warning {
                code: Code::Truncated,
                at: String::new(),
                facts: facts.into_iter().collect(),
                detail: Text::of(detail).or_else(|| Text::of("shortened to fit")),
            },
        );
    }
}

/// Counts what is written and keeps none of it.
struct Counter(usize);

impl io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Compact JSON with the keys of every object in bytewise order, whatever map type the build uses.
fn write_sorted(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<&String> = map.keys().collect();
            keys.sort_unstable();
            out.push('{');
            for (n, key) in keys.into_iter().enumerate() {
                if n > 0 {
                    out.push(',');
                }
                let _ = write!(out, "{}:", Value::from(key.as_str()));
                write_sorted(map.get(key).unwrap_or(&Value::Null), out);
            }
            out.push('}');
        }
        Value::Array(list) => {
            out.push('[');
            for (n, item) in list.iter().enumerate() {
                if n > 0 {
                    out.push(',');
                }
                write_sorted(item, out);
            }
            out.push(']');
        }
        scalar => {
            let _ = write!(out, "{scalar}");
        }
    }
}
