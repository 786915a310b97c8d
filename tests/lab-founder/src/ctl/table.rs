//! The lists, exactly as documented. Pure.

use console::text::Safe;
use serde_json::Value;

const JOINS: [(&str, usize); 8] = [
    ("ID", 11),
    ("STATE", 7),
    ("PAIRING", 7),
    ("HOSTNAME", 19),
    ("SERIAL", 9),
    ("SOURCE", 10),
    ("NODE", 4),
    ("WAITING FOR", 0),
];
const CODES: [(&str, usize); 7] =
    [("ID", 11), ("CODE", 4), ("STATE", 7), ("EXPIRES", 20), ("BAD", 3), ("OPEN", 4), ("NOTE", 0)];

/// `joins list`: columns as wide as the longest cell and at least as wide as the documented sample's, two spaces between, no trailing
/// blanks, `-` for empty. Machines that have not registered yet are not listed.
pub fn joins_table(answer: &Value) -> String {
    let joins = answer["joins"].as_array().into_iter().flatten().filter(|j| j["state"] != "registering");
    let rows = joins.map(|join| {
        let text = |name: &str| cell::<253>(&join[name]);
        vec![
            text("id"),
            text("state"),
            text("pairingCode"),
            text("hostname"),
            text("serial"),
            text("sourceAddress"),
            text("nodeId"),
            waiting_for(join),
        ]
    });
    table(&JOINS, rows.collect())
}

/// `join-codes list`. A code is known by its selector: the rest of it is kept nowhere.
pub fn codes_table(answer: &Value) -> String {
    let rows = answer["codes"].as_array().into_iter().flatten().map(|code| {
        let number = |name: &str| code[name].as_u64().unwrap_or(0).to_string();
        vec![
            cell::<64>(&code["id"]),
            format!("{}**-****-***", cell::<2>(&code["selector"])),
            cell::<32>(&code["state"]),
            cell::<32>(&code["expiresAt"]),
            number("badTries"),
            number("openTries"),
            cell::<200>(&code["note"]),
        ]
    });
    table(&CODES, rows.collect())
}

fn waiting_for(join: &Value) -> String {
    if join["state"] == "needs-upgrade" {
        let (from, to) = (cell::<64>(&join["upgrade"]["from"]), cell::<64>(&join["upgrade"]["to"]));
        let failed = cell::<200>(&join["failedStepTitle"]);
        let tail = if failed.is_empty() { String::new() } else { format!("; last try failed: {failed}") };
        return format!("upgrading itself from {from} to {to}{tail}");
    }
    cell::<400>(&join["waitReason"])
}

fn cell<const MAX: usize>(value: &Value) -> String {
    Safe::<MAX>::clean(value.as_str().unwrap_or_default()).ascii()
}

fn table(columns: &[(&str, usize)], rows: Vec<Vec<String>>) -> String {
    let header = columns.iter().map(|(name, _)| (*name).to_owned()).collect();
    let rows: Vec<Vec<String>> = std::iter::once(header).chain(rows).collect();
    let widths: Vec<usize> = columns
        .iter()
        .enumerate()
        .map(|(n, (_, least))| rows.iter().map(|row| shown(&row[n]).len()).max().unwrap_or(0).max(*least))
        .collect();
    let mut out = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(text, width)| format!("{:width$}", shown(text)));
        let line = cells.collect::<Vec<_>>().join("  ");
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

fn shown(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// From the product documentation, byte for byte.
    const SAMPLE: &str = "\
ID           STATE    PAIRING  HOSTNAME             SERIAL     SOURCE      NODE  WAITING FOR
nj-8w2k4m1p  pending  4F7-K2Q  node-2.example.com   SN0002     192.0.2.12  -     -
";

    fn documented() -> Value {
        json!({
            "id": "nj-8w2k4m1p", "state": "pending", "pairingCode": "4F7-K2Q", "hostname": "node-2.example.com",
            "serial": "SN0002", "sourceAddress": "192.0.2.12",
        })
    }

    #[test]
    fn the_documented_record_prints_the_documented_list() {
        assert_eq!(joins_table(&json!({ "joins": [documented()] })), SAMPLE);
    }

    #[test]
    fn a_machine_that_upgrades_itself_says_so() {
        let mut join = documented();
        join["state"] = json!("needs-upgrade");
        join["upgrade"] = json!({ "from": "0.6.0", "to": "0.7.0" });
        let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let list = joins_table(&json!({ "joins": [join.clone()] }));
        let row = "nj-8w2k4m1p needs-upgrade 4F7-K2Q node-2.example.com SN0002 192.0.2.12 - \
                   upgrading itself from 0.6.0 to 0.7.0";
        assert_eq!(squeezed(list.lines().nth(1).unwrap()), row);
        join["failedStepTitle"] = json!("Downloading the release");
        let list = joins_table(&json!({ "joins": [join] }));
        assert!(list.ends_with("to 0.7.0; last try failed: Downloading the release\n"), "{list}");
    }

    #[test]
    fn a_hostile_host_name_moves_no_cursor_and_no_column() {
        let mut join = documented();
        join["hostname"] = json!("a\u{1b}[2K\n\u{202e}b\u{3042}");
        let list = joins_table(&json!({ "joins": [join] }));
        assert_eq!(list.lines().count(), 2);
        assert!(list.chars().all(|c| c == '\n' || matches!(c, ' '..='~')));
        assert_eq!(list.lines().nth(1).unwrap().find("SN0002"), list.lines().next().unwrap().find("SERIAL"));
    }

    #[test]
    fn a_machine_that_has_not_registered_is_not_listed() {
        let list = joins_table(&json!({ "joins": [{ "id": "nj-1", "state": "registering" }] }));
        assert_eq!(list.lines().count(), 1);
        assert!(!list.contains(" \n"));
    }
}
