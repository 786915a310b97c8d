//! What may become of a disk: the one place that says "blank", "needs a confirmation" or "not to be assigned". Pure.
//!
//! The check of an approval, the withdrawal of one and what stratumctl shows all ask here. Safe towards the disk: what a machine did not say,
//! or said in a way that is not understood, counts as the worse case. Must never: come to "blank" by leaving something out.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

/// The reasons of `notAssignable` that we know words for.
const REASONS: [(&str, &str); 5] = [
    ("mounted", "it is mounted"),
    ("noStableKey", "nothing addresses it that stays the same"),
    ("readOnly", "it is write-protected"),
    ("hostManagedZoned", "it is a host-managed zoned disk"),
    ("duplicateIdentity", "another disk says that it is the same"),
];

/// What an assignment of the disk needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It holds nothing: it is wiped without another question.
    Blank,
    /// It holds data, these or such that nobody can name: it is wiped when its key was typed as the confirmation.
    NeedsConfirm(String),
    /// No confirmation makes it assignable; why.
    Refused(String),
}

/// A whole disk of an inventory. Other fields are kept in the stored text and not read here.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Disk {
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default)]
    keys: Said<String>,
    #[serde(default)]
    mounts: Said<String>,
    #[serde(default)]
    holds: Said<String>,
    #[serde(default)]
    partitions: Said<Part>,
    #[serde(default)]
    stack: Said<Part>,
    #[serde(default)]
    not_assignable: Said<String>,
}

/// A partition or something stacked on the disk.
#[derive(Debug, Clone, Default, Deserialize)]
struct Part {
    #[serde(default)]
    name: String,
    #[serde(default)]
    mounts: Said<String>,
}

/// A list of an inventory. Never fails on a value of another kind: one strange field must not keep a machine from being seen.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(untagged)]
enum Said<T> {
    Is(Vec<T>),
    /// Null, no list, or a list of something else; also of objects that say a thing twice.
    Strange(IgnoredAny),
    /// There is no such field.
    #[default]
    #[serde(skip)]
    Missing,
}

// === impl Said ===

impl<T> Said<T> {
    fn list(&self) -> &[T] {
        match self {
            Self::Is(list) => list,
            Self::Missing | Self::Strange(_) => &[],
        }
    }

    fn is_said(&self) -> bool {
        matches!(self, Self::Is(_))
    }

    fn is_strange(&self) -> bool {
        matches!(self, Self::Strange(_))
    }
}

// === impl Disk ===

impl Disk {
    /// A disk as the API shows it. One that is none is a disk of which nothing is known.
    pub(crate) fn read(json: &Value) -> Self {
        serde_json::from_value(json.clone()).unwrap_or_default()
    }

    /// Whether `key` addresses it. What the machine does not offer as a key is none, whatever else has that text.
    pub(crate) fn has_key(&self, key: &str) -> bool {
        self.keys().iter().any(|k| k == key)
    }

    /// What addresses it, best first.
    pub(crate) fn keys(&self) -> &[String] {
        self.keys.list()
    }

    pub(crate) fn verdict(&self) -> Verdict {
        match (self.refused(), self.data()) {
            (Some(why), _) => Verdict::Refused(why),
            (None, Some(data)) => Verdict::NeedsConfirm(data),
            (None, None) => Verdict::Blank,
        }
    }

    fn refused(&self) -> Option<String> {
        let parts = || self.partitions.list().iter().chain(self.stack.list());
        let mounts = parts().map(|p| &p.mounts).chain([&self.mounts]);
        if let Some(at) = mounts.clone().flat_map(|m| m.list()).next() {
            return Some(format!("the disk is mounted at {at}: it is a system disk"));
        }
        let strange = mounts.into_iter().any(Said::is_strange);
        if strange || self.partitions.is_strange() || self.stack.is_strange() || !self.mounts.is_said() {
            return Some("the machine did not say whether the disk is mounted".to_owned());
        }
        if let Some(token) = self.not_assignable.list().first() {
            let known = REASONS.iter().find(|(name, _)| name == token);
            let words = known.map_or_else(
                || format!("{token}, which this founder does not know"),
                |(_, words)| (*words).to_owned(),
            );
            return Some(format!("the machine says that the disk cannot be assigned: {words}"));
        }
        if !self.not_assignable.is_said() {
            return Some("the machine did not say whether the disk can be assigned".to_owned());
        }
        self.keys().is_empty().then(|| "the machine offers no key of the disk".to_owned())
    }

    /// What is on it that a wipe would destroy; `None` only when the machine said that there is nothing.
    fn data(&self) -> Option<String> {
        if !self.holds.is_said() {
            return Some("the machine did not say what".to_owned());
        }
        let parts = self.partitions.list().iter().chain(self.stack.list()).map(|p| &p.name);
        let found: Vec<&str> = self.holds.list().iter().chain(parts).map(String::as_str).collect();
        if found.is_empty() { None } else { Some(found.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A blank disk with one field changed, or left out.
    fn with(field: &str, value: Option<Value>) -> Verdict {
        let mut disk =
            json!({ "name": "sda", "keys": ["k"], "mounts": [], "holds": [], "notAssignable": [] });
        let fields = disk.as_object_mut().unwrap();
        match value {
            Some(value) => drop(fields.insert(field.to_owned(), value)),
            None => drop(fields.remove(field)),
        }
        Disk::read(&disk).verdict()
    }

    fn refused(field: &str, value: Option<Value>) -> bool {
        matches!(with(field, value), Verdict::Refused(_))
    }

    #[test]
    fn only_a_disk_of_which_all_is_said_and_nothing_found_is_blank() {
        assert_eq!(with("name", Some(json!("sda"))), Verdict::Blank);
        assert_eq!(
            with("holds", Some(json!(["ext4", "lvm"]))),
            Verdict::NeedsConfirm("ext4, lvm".to_owned())
        );
        assert!(matches!(Disk::default().verdict(), Verdict::Refused(_)));
        for none in [json!(null), json!([]), json!("sda"), json!(7)] {
            assert!(matches!(Disk::read(&none).verdict(), Verdict::Refused(_)), "{none}");
        }
    }

    #[test]
    fn what_a_disk_holds_that_is_not_said_is_data() {
        for strange in [
            None,
            Some(json!(null)),
            Some(json!("")),
            Some(json!({})),
            Some(json!(0)),
            Some(json!([null])),
            Some(json!([[]])),
        ] {
            let verdict = with("holds", strange.clone());
            assert_eq!(
                verdict,
                Verdict::NeedsConfirm("the machine did not say what".to_owned()),
                "{strange:?}"
            );
        }
    }

    #[test]
    fn mounts_that_are_not_said_refuse_the_disk() {
        for strange in [None, Some(json!(null)), Some(json!(false)), Some(json!("")), Some(json!([1]))] {
            assert!(refused("mounts", strange.clone()), "{strange:?}");
        }
        for inside in [json!(null), json!("/srv"), json!({})] {
            assert!(refused("partitions", Some(json!([{ "name": "sda1", "mounts": inside }]))), "{inside}");
        }
    }

    #[test]
    fn a_mount_anywhere_on_the_disk_refuses_it() {
        assert!(refused("mounts", Some(json!(["/"]))));
        assert!(refused("mounts", Some(json!(["[UNKNOWN]"]))));
        assert!(refused("partitions", Some(json!([{ "mounts": ["/boot"] }]))));
        assert!(refused("stack", Some(json!([{ "name": "md0", "mounts": ["/srv"] }]))));
    }

    #[test]
    fn every_reason_of_the_machine_refuses_the_disk_also_one_that_nobody_knows() {
        for token in
            ["mounted", "noStableKey", "readOnly", "hostManagedZoned", "duplicateIdentity", "onFire", ""]
        {
            assert!(refused("notAssignable", Some(json!([token]))), "{token}");
        }
        for strange in [None, Some(json!(null)), Some(json!("")), Some(json!(false)), Some(json!([null]))] {
            assert!(refused("notAssignable", strange.clone()), "{strange:?}");
        }
    }

    #[test]
    fn a_partition_or_an_array_is_data_whatever_holds_says() {
        for (field, value) in [
            ("partitions", json!([{ "name": "sda1" }])),
            ("stack", json!([{ "name": "md127" }])),
            ("partitions", json!([{}])),
        ] {
            assert!(matches!(with(field, Some(value.clone())), Verdict::NeedsConfirm(_)), "{field} {value}");
        }
        // What is not understood could be mounted.
        for (field, value) in [("partitions", json!("sda1")), ("stack", json!([5])), ("stack", json!(null))] {
            assert!(refused(field, Some(value.clone())), "{field} {value}");
        }
        let twice = r#"{"keys":["k"],"mounts":[],"holds":[],"notAssignable":[],
            "partitions":[{"name":"sda1","mounts":["/"],"mounts":[]}]}"#;
        let twice: Disk = serde_json::from_str(twice).unwrap();
        assert!(matches!(twice.verdict(), Verdict::Refused(_)));
    }

    #[test]
    fn what_the_machine_does_not_offer_as_a_key_is_none() {
        let disk = Disk::read(
            &json!({ "keys": ["a"], "wwn": "w", "byId": ["b"], "serial": "s", "path": "/dev/sda" }),
        );
        assert!(disk.has_key("a"));
        for other in ["w", "b", "s", "/dev/sda", "A", ""] {
            assert!(!disk.has_key(other), "{other}");
        }
        for strange in [None, Some(json!(null)), Some(json!([])), Some(json!("k")), Some(json!([1, "k"]))] {
            assert!(refused("keys", strange.clone()), "{strange:?}");
        }
        assert!(!Disk::read(&json!({ "wwn": "w", "byId": ["b"] })).has_key("w"), "no list of keys: no key");
    }
}
