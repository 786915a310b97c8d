//! A machine as rows, so that two accounts of it can be laid beside each other: one row a fact.
//!
//! Pure. What is only written otherwise (units, names of columns) is made the same here; what is *said* otherwise is left as it is.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

/// Where (`disks/sda`, `disks/sda/stack/md127`, `nics/eno1`) and what (`sizeBytes`).
pub type Key = (String, &'static str);
/// All facts. The fact `listed` is there for each place.
pub type Rows = BTreeMap<Key, Value>;

/// Facts of the inventory that `lsblk` or `ip` have a word for, too: of a disk, of one of its partitions, of what stands on it, of a NIC.
const DISK: &[&str] = &[
    "path",
    "sizeBytes",
    "logicalBlockSize",
    "physicalBlockSize",
    "rotational",
    "removable",
    "readOnly",
    "model",
    "vendor",
    "serial",
    "wwn",
    "transport",
    "partitionTable",
    "holds",
    "mounts",
];
const PARTITION: &[&str] = &["startBytes", "sizeBytes", "type", "label", "uuid", "holds", "mounts"];
const STACK: &[&str] = &["path", "kind", "sizeBytes", "depth", "holds", "mounts"];
const NIC: &[&str] = &[
    "altNames",
    "mac",
    "currentMac",
    "kind",
    "mtu",
    "link",
    "ipv4",
    "ipv6",
    "routes",
    "master",
    "parent",
    "bus",
];

/// What the probe says.
pub fn of_inventory(inventory: &Value) -> Rows {
    let mut rows = Rows::new();
    let mut add = |at: String, from: &Value, facts: &[&'static str]| {
        rows.insert((at.clone(), "listed"), json!(true));
        rows.extend(facts.iter().map(|fact| ((at.clone(), *fact), from[*fact].clone())));
    };
    for disk in list(&inventory["disks"]) {
        let at = format!("disks/{}", text(&disk["name"]));
        add(at.clone(), disk, DISK);
        for partition in list(&disk["partitions"]) {
            add(format!("{at}/partitions/{}", text(&partition["name"])), partition, PARTITION);
        }
        for item in list(&disk["stack"]) {
            add(format!("{at}/stack/{}", text(&item["name"])), item, STACK);
        }
    }
    for nic in list(&inventory["nics"]) {
        add(format!("nics/{}", text(&nic["name"])), nic, NIC);
    }
    rows
}

/// What `lsblk -J -b -O` says.
pub fn of_lsblk(lsblk: &Value) -> Rows {
    let mut rows = Rows::new();
    for disk in list(&lsblk["blockdevices"]) {
        let at = format!("disks/{}", text(&disk["kname"]));
        let partitions: Vec<&Value> = children(disk).filter(|child| child["type"] == "part").collect();
        let mut holds: Vec<Value> = vec![disk["pttype"].clone(), disk["fstype"].clone()];
        holds.extend(partitions.iter().map(|partition| partition["fstype"].clone()));
        let mut add = |fact, value: Value| rows.insert((at.clone(), fact), value);
        add("listed", json!(true));
        for (fact, column) in [
            ("path", "path"),
            ("sizeBytes", "size"),
            ("logicalBlockSize", "log-sec"),
            ("physicalBlockSize", "phy-sec"),
            ("rotational", "rota"),
            ("removable", "rm"),
            ("readOnly", "ro"),
            ("model", "model"),
            ("vendor", "vendor"),
            ("serial", "serial"),
            ("wwn", "wwn"),
            ("transport", "tran"),
            ("partitionTable", "pttype"),
        ] {
            add(fact, disk[column].clone());
        }
        add("holds", known(holds));
        add("mounts", mounts(disk));
        for partition in &partitions {
            let at = format!("{at}/partitions/{}", text(&partition["kname"]));
            let mut add = |fact, value: Value| rows.insert((at.clone(), fact), value);
            add("listed", json!(true));
            // The kernel's sectors have 512 bytes whatever the disk's have.
            add("startBytes", partition["start"].as_u64().map_or(Value::Null, |start| json!(start * 512)));
            add("sizeBytes", partition["size"].clone());
            add("type", partition["parttype"].clone());
            add("label", partition["partlabel"].clone());
            add("uuid", partition["partuuid"].clone());
            add("holds", known(vec![partition["fstype"].clone()]));
            add("mounts", mounts(partition));
            above(partition, &at_of_stack(&at), 1, &mut rows);
        }
        for child in children(disk).filter(|child| child["type"] != "part") {
            item(child, &format!("{at}/stack"), 1, &mut rows);
        }
    }
    rows
}

/// What `ip -j -d addr` and `ip -j route show table main` say.
pub fn of_ip(addresses: &Value, routes: &Value) -> Rows {
    let mut rows = Rows::new();
    for nic in list(addresses) {
        let name = text(&nic["ifname"]);
        let at = format!("nics/{name}");
        let mut add = |fact, value: Value| rows.insert((at.clone(), fact), value);
        add("listed", json!(true));
        let flag = |flag: &str| list(&nic["flags"]).iter().any(|set| set == flag);
        let permanent = if nic["permaddr"].is_null() { &nic["address"] } else { &nic["permaddr"] };
        add("altNames", sorted(list(&nic["altnames"]).to_vec()));
        add("mac", permanent.clone());
        add("currentMac", if permanent == &nic["address"] { Value::Null } else { nic["address"].clone() });
        let kind = &nic["linkinfo"]["info_kind"];
        let plain = if nic["link_type"] == "ether" { json!("ethernet") } else { nic["link_type"].clone() };
        add("kind", if kind.is_null() { plain } else { kind.clone() });
        add("mtu", nic["mtu"].clone());
        let link = match (flag("UP"), flag("LOWER_UP")) {
            (false, _) => "unknown",
            (true, carrier) => {
                if carrier {
                    "up"
                } else {
                    "down"
                }
            }
        };
        add("link", json!(link));
        let addresses = |family: &'static str| {
            let mine = list(&nic["addr_info"]).iter().filter(move |address| address["family"] == family);
            // Link-local ones and those for a day are not the machine's to be found by.
            let lasting =
                mine.filter(|a| a["family"] == "inet" || (a["scope"] != "link" && a["temporary"] != true));
            sorted(lasting.map(|a| json!(format!("{}/{}", text(&a["local"]), a["prefixlen"]))).collect())
        };
        add("ipv4", addresses("inet"));
        add("ipv6", addresses("inet6"));
        // A route without a type is a unicast one, and a destination without a length is a host.
        let mine = list(routes).iter().filter(|route| {
            route["dev"] == name
                && route["dst"] != "default"
                && (route["type"].is_null() || route["type"] == "unicast")
        });
        let cidr = |dst: &str| if dst.contains('/') { dst.to_owned() } else { format!("{dst}/32") };
        add("routes", sorted(mine.map(|route| json!(cidr(text(&route["dst"])))).collect()));
        add("master", nic["master"].clone());
        add("parent", nic["link"].clone());
        add("bus", nic["parentdev"].clone());
    }
    rows
}

/// Everything above `node`; a partition of an array counts as the array itself.
fn above(node: &Value, stack: &str, depth: u32, rows: &mut Rows) {
    for child in children(node) {
        item(child, stack, depth, rows);
    }
}

fn item(node: &Value, stack: &str, depth: u32, rows: &mut Rows) {
    if node["type"] == "part" && !text(&node["kname"]).starts_with("dm-") {
        return above(node, stack, depth, rows);
    }
    let at = format!("{stack}/{}", text(&node["kname"]));
    // By the longest way, when there are several.
    let longest = rows.get(&(at.clone(), "depth")).and_then(Value::as_u64).unwrap_or(0).max(depth.into());
    let mut add = |fact, value: Value| rows.insert((at.clone(), fact), value);
    add("listed", json!(true));
    add("path", node["path"].clone());
    add("kind", node["type"].clone());
    add("sizeBytes", node["size"].clone());
    add("depth", json!(longest));
    add("holds", known(vec![node["pttype"].clone(), node["fstype"].clone()]));
    add("mounts", mounts(node));
    above(node, stack, depth + 1, rows);
}

fn at_of_stack(partition: &str) -> String {
    let disk = partition.split("/partitions/").next().unwrap_or_default();
    format!("{disk}/stack")
}

/// Mount points of a device and of all that stands on it.
fn mounts(node: &Value) -> Value {
    fn collect(node: &Value, into: &mut BTreeSet<String>) {
        into.extend(list(&node["mountpoints"]).iter().filter_map(Value::as_str).map(str::to_owned));
        children(node).for_each(|child| collect(child, into));
    }
    let mut all = BTreeSet::new();
    collect(node, &mut all);
    json!(all)
}

/// Those that are not null, each once, in this order.
fn known(values: Vec<Value>) -> Value {
    let mut out: Vec<Value> = Vec::new();
    for value in values.into_iter().filter(|value| !value.is_null()) {
        if !out.contains(&value) {
            out.push(value);
        }
    }
    json!(out)
}

fn sorted(mut values: Vec<Value>) -> Value {
    // As numbers: 9 comes before 10.
    values.sort_by_cached_key(|value| {
        let digits = text(value).split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse::<u64>().ok());
        let v6 = text(value).split('/').next().and_then(|ip| ip.parse::<std::net::Ipv6Addr>().ok());
        (v6, digits.collect::<Vec<_>>(), text(value).to_owned())
    });
    json!(values)
}

fn children(node: &Value) -> impl Iterator<Item = &Value> {
    list(&node["children"]).iter()
}

/// The items of a list; none when it is none.
pub fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A text; empty when it is none.
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row<'a>(rows: &'a Rows, at: &str, fact: &'static str) -> &'a Value {
        rows.get(&(at.to_owned(), fact)).unwrap_or(&Value::Null)
    }

    #[test]
    fn what_stands_on_a_disk_is_as_deep_as_its_longest_way_and_its_mounts_are_the_disks() {
        let volume = json!({"kname": "dm-1", "type": "lvm", "mountpoints": ["/srv", null]});
        let pool = json!({"kname": "dm-0", "type": "lvm", "children": [volume.clone()]});
        let array = json!({"kname": "md0", "type": "raid1", "children": [
            {"kname": "md0p1", "type": "part", "children": [pool, volume]}]});
        let rows =
            of_lsblk(&json!({"blockdevices": [{"kname": "sda", "type": "disk", "children": [array]}]}));
        assert_eq!(row(&rows, "disks/sda", "mounts"), &json!(["/srv"]));
        assert_eq!(row(&rows, "disks/sda/stack/dm-1", "depth"), 3);
        assert_eq!(row(&rows, "disks/sda/stack/md0p1", "listed"), &Value::Null);
    }

    #[test]
    fn a_nic_has_the_unicast_routes_of_its_own_and_the_carrier_only_while_it_is_on() {
        let nic = |name: &str, flags: Value| json!({"ifname": name, "flags": flags, "link_type": "ether", "address": "02:00:00:00:00:01"});
        let addresses = json!([
            nic("a", json!(["UP", "LOWER_UP"])),
            nic("b", json!(["LOWER_UP"])),
            nic("c", json!(["UP"]))
        ]);
        let routes = json!([
            {"dst": "default", "dev": "a"}, {"dst": "192.0.2.7", "dev": "a"}, {"dst": "192.0.2.0/24", "dev": "c"},
            {"type": "blackhole", "dst": "10.0.0.0/8"},
        ]);
        let rows = of_ip(&addresses, &routes);
        assert_eq!(row(&rows, "nics/a", "routes"), &json!(["192.0.2.7/32"]));
        let links: Vec<&Value> =
            ["a", "b", "c"].iter().map(|nic| row(&rows, &format!("nics/{nic}"), "link")).collect();
        assert_eq!(links, ["up", "unknown", "down"]);
    }
}
