//! The disks of an approval. Pure. The rule that matters: a disk that holds data is wiped only when its key was typed twice.

use super::assignment::DiskChoice;
use super::check::Problems;
use super::inventory::{Inventory, NoDisk};
use super::rules;
use crate::disk::{Disk, Verdict};

pub(crate) fn check(choices: &[DiskChoice], inventory: &Inventory, problems: &mut Problems) {
    let mut chosen: Vec<&Disk> = Vec::new();
    for (n, choice) in choices.iter().enumerate() {
        let at = |name: &str| format!("disks[{n}].{name}");
        if let Some(disk) = find(choice, inventory, problems, at) {
            if chosen.iter().any(|c| std::ptr::eq(*c, disk)) {
                problems.add(at("key"), format!("{} is the same disk as another entry", disk.name));
            }
            chosen.push(disk);
        }
        if !matches!(choice.role.as_str(), "compute" | "ceph-osd") {
            problems.add(at("role"), "must be compute or ceph-osd");
        }
        for (name, value) in [("pool", &choice.pool), ("storageClass", &choice.storage_class)] {
            match value {
                Some(_) if choice.role != "compute" => problems.add(at(name), "belongs to a compute disk"),
                Some(text) if !rules::plain_name(text) => {
                    problems.add(at(name), "must be 1 to 63 letters, digits, dots, dashes and underscores");
                }
                _ => {}
            }
        }
    }
}

/// The one disk of a key, if it may be assigned as it was asked.
fn find<'a>(
    choice: &DiskChoice,
    inventory: &'a Inventory,
    problems: &mut Problems,
    at: impl Fn(&str) -> String,
) -> Option<&'a Disk> {
    let key = &choice.key;
    let disk = match inventory.disk(key) {
        Ok(disk) => disk,
        Err(NoDisk::Unknown) => {
            problems.add(at("key"), format!("the machine has no disk {key}"));
            return None;
        }
        Err(NoDisk::Two) => {
            problems.add(at("key"), format!("the machine has two disks {key}: take another key"));
            return None;
        }
    };
    match (disk.verdict(), &choice.confirm) {
        (Verdict::Refused(why), _) => {
            problems.add(at("key"), why);
            return None;
        }
        (_, Some(confirm)) if confirm != key => {
            problems.add(at("confirm"), format!("must be the disk's key, {key}"));
        }
        (Verdict::NeedsConfirm(data), None) => {
            let message =
                format!("{} holds data ({data}) and would be wiped: set confirm to {key}", disk.name);
            problems.add(at("confirm"), message);
        }
        (Verdict::Blank | Verdict::NeedsConfirm(_), _) => {}
    }
    Some(disk)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(choices: &[DiskChoice]) -> Vec<String> {
        let inventory = Inventory::parse(
            r#"{"disks":[
                {"name":"sda","keys":["blank"],"mounts":[],"holds":[],"notAssignable":[]},
                {"name":"sdb","keys":["full","also-full"],"mounts":[],"holds":["ext4"],"notAssignable":[]},
                {"name":"sdc","keys":["system"],"mounts":["/"],"holds":["ext4"],"notAssignable":[]},
                {"name":"sdd","keys":["twin"],"mounts":[],"holds":[],"notAssignable":[]},
                {"name":"sde","keys":["twin"],"mounts":[],"holds":[],"notAssignable":[]}]}"#,
        )
        .unwrap();
        let mut problems = Problems::default();
        check(choices, &inventory, &mut problems);
        problems.into_fields()
    }

    fn choice(key: &str, confirm: Option<&str>) -> DiskChoice {
        DiskChoice {
            key: key.to_owned(),
            role: "ceph-osd".to_owned(),
            confirm: confirm.map(str::to_owned),
            ..DiskChoice::default()
        }
    }

    #[test]
    fn a_disk_with_data_needs_its_key_as_confirmation() {
        assert_eq!(errors(&[choice("full", None)]), ["disks[0].confirm"]);
        assert_eq!(errors(&[choice("full", Some("yes"))]), ["disks[0].confirm"]);
        assert_eq!(
            errors(&[choice("full", Some("also-full"))]),
            ["disks[0].confirm"],
            "the key as it was written"
        );
        assert!(errors(&[choice("full", Some("full"))]).is_empty());
        assert!(errors(&[choice("blank", None)]).is_empty());
        assert_eq!(
            errors(&[choice("blank", Some("full"))]),
            ["disks[0].confirm"],
            "a slip is never let through"
        );
    }

    #[test]
    fn no_confirmation_makes_a_system_disk_or_a_doubtful_key_assignable() {
        assert_eq!(errors(&[choice("system", Some("system"))]), ["disks[0].key"]);
        assert_eq!(errors(&[choice("twin", Some("twin"))]), ["disks[0].key"]);
        assert_eq!(errors(&[choice("gone", Some("gone"))]), ["disks[0].key"]);
        let twice = [choice("full", Some("full")), choice("also-full", Some("also-full"))];
        assert_eq!(errors(&twice), ["disks[1].key"], "one disk under two of its keys");
    }

    #[test]
    fn only_a_compute_disk_has_a_pool() {
        let pool = DiskChoice { pool: Some("fast".to_owned()), ..choice("blank", None) };
        assert_eq!(errors(std::slice::from_ref(&pool)), ["disks[0].pool"]);
        assert!(errors(&[DiskChoice { role: "compute".to_owned(), ..pool }]).is_empty());
        assert_eq!(
            errors(&[DiskChoice { role: "cache".to_owned(), ..choice("blank", None) }]),
            ["disks[0].role"]
        );
    }
}
