//! Two accounts of one machine, laid beside each other.
//!
//! Pure. A difference that is not on the list of [`DIFFERENCES`] is an error, and so is an entry of the list that no machine shows: the list
//! stays short and true.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use serde_json::Value;

use super::differences::DIFFERENCES;
use super::rows::{Rows, list, of_inventory, of_ip, of_lsblk, text};

/// One fact that is told in two ways.
#[derive(Debug)]
pub struct Seen<'a> {
    /// Where: `disks/sda`, `disks/sda/stack/md127`, `nics/eno1`.
    pub at: &'a str,
    /// What: `sizeBytes`, or `listed`.
    pub field: &'a str,
    /// What the probe says; null also when it does not list this at all.
    pub ours: &'a Value,
    /// What lsblk or ip says; the same.
    pub theirs: &'a Value,
    /// All that the probe says.
    pub inventory: &'a Value,
}

/// Why a fact may be told in two ways.
#[derive(Debug)]
pub struct Difference {
    /// The facts it is about.
    pub fields: &'static [&'static str],
    /// The reason, for docs/hardware.md.
    pub why: &'static str,
    /// Whether it is this one.
    pub applies: fn(&Seen<'_>) -> bool,
}

/// The entries of the list that were met so far, over all machines.
#[derive(Debug, Default)]
pub struct Met(BTreeSet<usize>);

// === impl Seen ===

impl Seen<'_> {
    /// The disk it is about.
    pub fn disk(&self) -> &Value {
        let name = self.at.strip_prefix("disks/").and_then(|rest| rest.split('/').next()).unwrap_or_default();
        let disks = list(&self.inventory["disks"]);
        disks.iter().find(|disk| disk["name"] == name).unwrap_or(&Value::Null)
    }

    /// True when the probe says more than they do, about what they do not see.
    pub fn only_ours(&self) -> bool {
        nothing(self.theirs) && !nothing(self.ours)
    }

    /// True when the probe says nothing about it.
    pub fn only_theirs(&self) -> bool {
        nothing(self.ours) && !nothing(self.theirs)
    }
}

fn nothing(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}

// === impl Met ===

impl Met {
    /// Compares one machine. Every difference without a reason is told.
    pub fn compare(
        &mut self,
        inventory: &Value,
        lsblk: &Value,
        addresses: &Value,
        routes: &Value,
    ) -> Result<usize> {
        let ours = of_inventory(inventory);
        let mut theirs = of_lsblk(lsblk);
        theirs.extend(of_ip(addresses, routes));
        let mut unknown = Vec::new();
        let keys: BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
        for (at, field) in keys {
            // What only one of them lists is one difference, not one for each of its facts.
            if *field != "listed" && !(is_listed(&ours, at) && is_listed(&theirs, at)) {
                continue;
            }
            let key = &(at.clone(), *field);
            let value = |rows: &Rows| rows.get(key).cloned().unwrap_or(Value::Null);
            let (ours, theirs) = (value(&ours), value(&theirs));
            if ours == theirs {
                continue;
            }
            let seen = Seen { at, field, ours: &ours, theirs: &theirs, inventory };
            let reason = DIFFERENCES.iter().position(|d| d.fields.contains(field) && (d.applies)(&seen));
            match reason {
                Some(reason) => drop(self.0.insert(reason)),
                None => unknown.push(format!("{at} {field}: the probe says {ours}, they say {theirs}")),
            }
        }
        if !unknown.is_empty() {
            bail!("differences that nobody has explained:\n  {}", unknown.join("\n  "));
        }
        Ok(ours.len())
    }

    /// An error when an entry of the list was never met.
    pub fn all_were_met(&self) -> Result<()> {
        let idle: Vec<_> =
            (0..DIFFERENCES.len()).filter(|n| !self.0.contains(n)).map(|n| DIFFERENCES[n].why).collect();
        if !idle.is_empty() {
            bail!(
                "no machine shows these differences any more, so they go off the list:\n  {}",
                idle.join("\n  ")
            );
        }
        Ok(())
    }
}

fn is_listed(rows: &Rows, at: &str) -> bool {
    rows.contains_key(&(at.to_owned(), "listed"))
}

/// Whether one of the texts of a list is this one.
pub fn has(values: &Value, wanted: &str) -> bool {
    list(values).iter().any(|value| text(value) == wanted)
}
#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn compare(ours: &Value, theirs: &Value, met: &mut Met) -> Result<usize> {
        let inventory = json!({"disks": [ours], "nics": [], "warnings": []});
        met.compare(&inventory, &json!({"blockdevices": [theirs]}), &json!([]), &json!([]))
    }

    #[test]
    fn a_difference_without_a_reason_is_told_with_both_sides() {
        let (ours, theirs) = (
            json!({"name": "sda", "sizeBytes": 512, "holds": [], "mounts": []}),
            json!({"kname": "sda", "size": 4096}),
        );
        let error = compare(&ours, &theirs, &mut Met::default()).unwrap_err().to_string();
        assert!(error.contains("disks/sda sizeBytes: the probe says 512, they say 4096"), "{error}");
    }

    #[test]
    fn a_disk_that_only_one_of_them_lists_is_one_difference() {
        let (ours, theirs) =
            (json!({"name": "sda", "holds": [], "mounts": []}), json!({"kname": "sdb", "size": 4096}));
        let error = compare(&ours, &theirs, &mut Met::default()).unwrap_err().to_string();
        assert_eq!(error.lines().count(), 3, "{error}");
        assert!(error.contains("disks/sdb listed"), "{error}");
    }

    #[test]
    fn a_reason_that_was_never_needed_is_told_and_one_that_was_is_not() {
        let mut met = Met::default();
        let theirs = json!({"kname": "vda", "vendor": "0x1af4"});
        compare(&json!({"name": "vda", "vendor": null, "holds": [], "mounts": []}), &theirs, &mut met)
            .unwrap();
        let error = met.all_were_met().unwrap_err().to_string();
        assert!(error.contains("floppy") && !error.contains("PCI number"), "{error}");
    }
}
