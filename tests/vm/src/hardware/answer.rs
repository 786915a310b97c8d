//! What is known of each machine of the matrix: `tests/vm/hardware/<machine>.json`, written by `--bless`.
//!
//! Kernel names change from one start to the next (`sda` is the disk that answered first), so that disks are called by their serial number
//! there, and what stands on them by its label. What depends on the computer that emulates the machine is left out.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::rows::{list, text};
use crate::artefacts::write;
use crate::lab::Lab;

/// Left out of `host` and of the whole: the emulator's processor and memory, and the kernel that Debian has today.
const HOST: [&str; 2] = ["cpuModel", "kernel"];
const WHOLE: [&str; 5] = ["generation", "cpuVirtualization", "kvm", "hypervisor", "memoryBytes"];

/// Compares with what is known; writes it when that was asked for.
pub fn is_the_known_one(lab: &Lab, machine: &str, inventory: &Value) -> Result<()> {
    let name = format!("tests/vm/hardware/{machine}.json");
    let path = lab.settings.repository.join(&name);
    let stable = stable(inventory);
    let ours = format!("{stable:#}\n");
    if lab.settings.bless {
        println!("  wrote {name}");
        return write(&path, ours);
    }
    let known = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    if serde_json::from_str::<Value>(&known).with_context(|| format!("read {}", path.display()))? == stable {
        return Ok(());
    }
    let only = |sign: &str, these: &str, those: &str| {
        let lines = these.lines().filter(|line| !those.lines().any(|other| other == *line));
        lines.map(|line| format!("\n  {sign} {line}")).collect::<String>()
    };
    lab.artefacts.write(&format!("{machine}.json"), &ours)?;
    bail!(
        "the machine is not the one of {name}:{}{}\nIf that is wanted: cargo xtask vm hardware --bless",
        only("-", &known, &ours),
        only("+", &ours, &known)
    )
}

/// The inventory with names that are the same after each start, sorted by them.
pub fn stable(inventory: &Value) -> Value {
    let names = names(inventory);
    let mut stable = renamed(inventory, &names);
    for fact in WHOLE {
        remove(&mut stable, fact);
    }
    for fact in HOST {
        remove(&mut stable["host"], fact);
    }
    sort(&mut stable["disks"], |disk| text(&disk["name"]).to_owned());
    for disk in stable["disks"].as_array_mut().into_iter().flatten() {
        if disk["transport"] == "nvme" && !list(&disk["paths"]).is_empty() {
            // By the controller that was there first.
            remove(disk, "byPath");
        }
        // Farthest first, as it was, then by name.
        sort(&mut disk["stack"], |item| {
            let near = u64::MAX - item["depth"].as_u64().unwrap_or(0);
            format!("{near:020} {}", text(&item["name"]))
        });
    }
    for nic in stable["nics"].as_array_mut().into_iter().flatten() {
        // What a router has announced by then.
        remove(nic, "ipv6");
    }
    for warning in stable["warnings"].as_array_mut().into_iter().flatten() {
        remove(warning, "detail");
    }
    sort(&mut stable["warnings"], |warning| format!("{} {}", text(&warning["at"]), text(&warning["code"])));
    stable
}

/// What each kernel name is called instead.
fn names(inventory: &Value) -> BTreeMap<String, String> {
    let disks = list(&inventory["disks"]);
    let unique = |disk: &Value, fact: &str| {
        let value = &disk[fact];
        let others = disks.iter().filter(|other| other[fact] == *value).count();
        (value.is_string() && others == 1).then(|| text(value).to_owned())
    };
    let mut names = BTreeMap::new();
    for disk in disks {
        let place = list(&disk["byPath"]).first().and_then(|path| text(path).rsplit('/').next());
        let name =
            unique(disk, "serial").or_else(|| unique(disk, "wwn")).or_else(|| place.map(str::to_owned));
        let name = name.unwrap_or_else(|| text(&disk["name"]).to_owned());
        for partition in list(&disk["partitions"]) {
            names.insert(text(&partition["name"]).to_owned(), format!("{name}-part{}", partition["number"]));
        }
        for (n, path) in list(&disk["paths"]).iter().enumerate() {
            names.insert(text(&path["name"]).to_owned(), format!("{name}, path {}", n + 1));
        }
        for item in list(&disk["stack"]).iter().filter(|item| item["label"].is_string()) {
            names.insert(text(&item["name"]).to_owned(), text(&item["label"]).to_owned());
        }
        names.insert(text(&disk["name"]).to_owned(), name);
    }
    names
}

fn renamed(value: &Value, names: &BTreeMap<String, String>) -> Value {
    match value {
        Value::String(text) => {
            let (before, name) = ["/dev/", "disks/"]
                .into_iter()
                .find_map(|before| Some((before, text.strip_prefix(before)?)))
                .unwrap_or(("", text));
            names.get(name).map_or_else(|| value.clone(), |new| Value::from(format!("{before}{new}")))
        }
        Value::Array(values) => values.iter().map(|value| renamed(value, names)).collect(),
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), renamed(value, names))).collect(),
        other => other.clone(),
    }
}

fn sort(values: &mut Value, key: impl Fn(&Value) -> String) {
    if let Some(values) = values.as_array_mut() {
        values.sort_by_cached_key(key);
    }
}

fn remove(value: &mut Value, fact: &str) {
    if let Some(map) = value.as_object_mut() {
        map.remove(fact);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_answer_does_not_depend_on_which_disk_was_there_first() {
        let machine = |one: &str, two: &str| {
            json!({"host": {"kernel": one}, "generation": one.len(), "disks": [
                {"name": one, "path": format!("/dev/{one}"), "serial": "A", "stack": [], "paths": [],
                 "partitions": [{"name": format!("{one}1"), "number": 1}]},
                {"name": two, "path": format!("/dev/{two}"), "serial": "B", "stack": [], "paths": [], "partitions": []},
            ], "warnings": [{"code": "absent", "at": format!("disks/{two}"), "detail": "today"}]})
        };
        let mut swapped = machine("sdb", "sda");
        swapped["disks"].as_array_mut().unwrap().reverse();
        assert_eq!(stable(&machine("sda", "sdb")), stable(&swapped));
        assert_eq!(stable(&swapped)["disks"][0]["partitions"][0]["name"], "A-part1");
    }
}
