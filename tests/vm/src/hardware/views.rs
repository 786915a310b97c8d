//! The same machine seen by others: by the agent through its helper, by an ordinary user, from a copy, by a person at a terminal.
//!
//! Pure. Each may know less than root, and then says so; none may say something else.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};
use serde_json::Value;

use super::compare::has;
use super::rows::{list, text};

/// Columns of a terminal nobody has made wider.
const COLUMNS: usize = 80;
/// What a disk is called and may be used for: it depends on whether two disks are one, which only their contents tell.
const IDENTITY: [&str; 6] = ["byId", "byPath", "keys", "wwn", "paths", "notAssignable"];

/// Facts by place and name, as `disks/sda` and `holds`.
type Facts = BTreeMap<(String, String), Value>;

/// One fact that two inventories tell in two ways; null where it is not told at all.
struct Differing {
    at: String,
    fact: String,
    ours: Value,
    theirs: Value,
}

/// What the agent has registered is what root sees, warnings and all.
pub fn the_agents_is_the_same(root: &Value, agent: &Value) -> Result<()> {
    let (mut root, mut agent) = (root.clone(), agent.clone());
    for inventory in [&mut root, &mut agent] {
        inventory["generation"] = Value::Null;
    }
    let odd: Vec<String> = differing(&root, &agent).iter().map(Differing::line).collect();
    ensure!(odd.is_empty(), "the agent has registered something else than root sees:{}", odd.concat());
    ensure!(
        root["warnings"] == agent["warnings"],
        "root is warned of {}\nthe agent of {}",
        root["warnings"],
        agent["warnings"]
    );
    Ok(())
}

/// An ordinary user sees the same but for what only root may read, and is told of each such fact; no disk is blank for it.
pub fn an_ordinary_users_is_the_same(root: &Value, user: &Value) -> Result<usize> {
    let odd: Vec<Differing> = differing(root, user);
    let unexplained = odd.iter().filter(|seen| {
        let unread = warned(user, &seen.at, "unreadable", "holds");
        // Whether two ports lead to one disk is told by its contents.
        let ports = is_of_two_ports(root, &seen.at);
        !match seen.fact.as_str() {
            "serial" | "serialSource" if seen.at == "host" => warned(user, "host", "permission", "serial"),
            "holds" => unread && has(&seen.theirs, "unreadable"),
            "partitionTable" => unread && seen.theirs.is_null(),
            "listed" => ports && unread,
            fact => ports && unread && IDENTITY.contains(&fact),
        }
    });
    let unexplained: Vec<String> = unexplained.map(Differing::line).collect();
    ensure!(
        unexplained.is_empty(),
        "an ordinary user sees something else than root:{}",
        unexplained.concat()
    );
    let blank = list(&user["disks"]).iter().find(|disk| list(&disk["holds"]).is_empty());
    ensure!(blank.is_none(), "blank for somebody who could not read it: {}", blank.unwrap_or(&Value::Null));
    Ok(odd.len())
}

/// A copy of the machine gives the same answer, but for what is told by the ends of its disks, which are in no copy. The places that differ.
pub fn the_copys_is_the_same(root: &Value, copy: &Value) -> Result<BTreeSet<String>> {
    let odd = differing(root, copy);
    let twins = |at: &str| {
        let disk =
            list(&root["disks"]).iter().find(|disk| at.strip_prefix("disks/") == disk["name"].as_str());
        disk.is_some_and(|disk| has(&disk["notAssignable"], "duplicateIdentity"))
    };
    let unexplained = odd.iter().filter(|seen| {
        let ends = warned(copy, &seen.at, "notCaptured", "holds");
        !match seen.fact.as_str() {
            "holds" | "partitionTable" => ends || twins(&seen.at),
            "listed" => twins(&seen.at),
            fact => twins(&seen.at) && IDENTITY.contains(&fact),
        }
    });
    let unexplained: Vec<String> = unexplained.map(Differing::line).collect();
    ensure!(unexplained.is_empty(), "a copy of the machine gives another answer:{}", unexplained.concat());
    Ok(odd.into_iter().map(|seen| seen.at).collect())
}

/// Nothing in the table moves a cursor or turns a line around, and it is as wide as a terminal.
pub fn the_table_is_for_people(table: &str) -> Result<()> {
    let unsafe_one = |c: &char| (c.is_control() && *c != '\n') || ('\u{200b}'..='\u{202e}').contains(c);
    let found: Vec<char> = table.chars().filter(unsafe_one).collect();
    ensure!(found.is_empty(), "the table has control characters: {found:?}");
    // A key is never cut, and neither is any other word.
    let wide = table.lines().find(|line| line.chars().count() > COLUMNS && line.trim().contains("  "));
    ensure!(wide.is_none(), "the table is wider than {COLUMNS} columns: {}", wide.unwrap_or_default());
    Ok(())
}

/// Every text of the inventory.
pub fn has_no_control_characters(inventory: &Value) -> Result<()> {
    match inventory {
        Value::String(text) => ensure!(!text.chars().any(char::is_control), "control characters in {text:?}"),
        Value::Array(values) => values.iter().try_for_each(has_no_control_characters)?,
        Value::Object(map) => map.values().try_for_each(has_no_control_characters)?,
        _ => {}
    }
    Ok(())
}

// === impl Differing ===

impl Differing {
    fn line(&self) -> String {
        format!("\n  {} {}: {} and {}", self.at, self.fact, self.ours, self.theirs)
    }
}

/// The facts that are not the same, but for the warnings; of what only one lists, that.
fn differing(ours: &Value, theirs: &Value) -> Vec<Differing> {
    let (ours, theirs) = (facts(ours), facts(theirs));
    let listed = |facts: &Facts, at: &str| facts.contains_key(&(at.to_owned(), "listed".to_owned()));
    let keys: BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
    let told =
        |key: &&&(String, String)| key.1 == "listed" || (listed(&ours, &key.0) && listed(&theirs, &key.0));
    let value = |facts: &Facts, key: &(String, String)| facts.get(key).cloned().unwrap_or(Value::Null);
    let seen = |key: &(String, String)| Differing {
        at: key.0.clone(),
        fact: key.1.clone(),
        ours: value(&ours, key),
        theirs: value(&theirs, key),
    };
    keys.iter().filter(told).map(|key| seen(key)).filter(|seen| seen.ours != seen.theirs).collect()
}

fn facts(inventory: &Value) -> Facts {
    let mut facts = Facts::new();
    let mut add = |at: &str, from: &Value| {
        facts.insert((at.to_owned(), "listed".to_owned()), Value::Bool(true));
        let all = from.as_object().into_iter().flatten();
        let own = all.filter(|(fact, _)| !["disks", "nics", "host", "warnings"].contains(&fact.as_str()));
        facts.extend(own.map(|(fact, value)| ((at.to_owned(), fact.clone()), value.clone())));
    };
    add("", inventory);
    add("host", &inventory["host"]);
    for kind in ["disks", "nics"] {
        for one in list(&inventory[kind]) {
            add(&format!("{kind}/{}", text(&one["name"])), one);
        }
    }
    facts
}

fn warned(inventory: &Value, at: &str, code: &str, fact: &str) -> bool {
    let about = |w: &&Value| w["code"] == code && w["at"] == at && has(&w["facts"], fact);
    list(&inventory["warnings"]).iter().any(|warning| about(&warning))
}

/// Whether this is one of the ways to a disk without a multipath map.
fn is_of_two_ports(root: &Value, at: &str) -> bool {
    let name = at.strip_prefix("disks/").unwrap_or_default();
    list(&root["disks"]).iter().any(|disk| {
        let place = format!("disks/{}", text(&disk["name"]));
        warned(root, &place, "multipathInactive", "paths")
            && list(&disk["paths"]).iter().any(|path| path["name"] == name)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn machine(holds: &Value, warnings: &Value) -> Value {
        json!({"host": {"serial": "S"}, "disks": [{"name": "sda", "holds": holds, "model": "M"}], "nics": [], "warnings": warnings})
    }

    #[test]
    fn a_fact_that_a_user_may_not_read_has_to_be_named() {
        let root = machine(&json!([]), &json!([]));
        let silent = machine(&json!(["unreadable"]), &json!([]));
        assert!(an_ordinary_users_is_the_same(&root, &silent).is_err());
        let told = json!([{"code": "unreadable", "at": "disks/sda", "facts": ["holds"]}]);
        assert_eq!(an_ordinary_users_is_the_same(&root, &machine(&json!(["unreadable"]), &told)).unwrap(), 1);
        // Blank is never right, whatever is told.
        assert!(an_ordinary_users_is_the_same(&root, &machine(&json!([]), &told)).is_err());
    }

    #[test]
    fn a_table_with_a_control_character_is_refused() {
        assert!(the_table_is_for_people("NAME  MODEL\nsda   \u{fffd}[31mR\n").is_ok());
        assert!(the_table_is_for_people("sda \u{1b}[31m").is_err());
        assert!(the_table_is_for_people("sda \u{202e}fdp").is_err());
    }
}
