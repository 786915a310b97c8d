//! Whole machines as an installer recorded them, turned into trees, against hand-made expectations.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

mod support;

use serde_json::{Map, Value, json};
use support::{Tree, hwdata};

fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str)
}

/// The tree that the record describes: sysfs from paths and attributes, udev from the properties.
fn tree(record: &Value) -> Tree {
    let t = Tree::bare();
    let devices = record["storage"]["blockdev"].as_object().unwrap();
    for device in devices.values() {
        block(&t, device);
    }
    let disk_dir = |node: &str| {
        let name = node.trim_start_matches("/dev/");
        let path = text(&devices[node], "DEVPATH").unwrap();
        let whole = text(&devices[node], "DEVTYPE") == Some("disk");
        let parent = path.rsplit('/').nth(1).unwrap();
        if whole { name.to_owned() } else { format!("{parent}/{name}") }
    };
    let storage = &record["storage"];
    let mut edges: Vec<(String, String)> = Vec::new();
    for (above, raid) in storage["raid"].as_object().unwrap_or(&Map::new()) {
        let members = raid["devices"].as_array().cloned().unwrap_or_default();
        edges.extend(members.iter().map(|m| (disk_dir(m.as_str().unwrap()), above[5..].to_owned())));
    }
    let volumes = storage["lvm"]["physical_volumes"].as_object().cloned().unwrap_or_default();
    for members in volumes.values().filter_map(Value::as_array) {
        edges.extend(members.iter().map(|m| (disk_dir(m.as_str().unwrap()), "dm-0".to_owned())));
    }
    let mapped = storage["multipath"]["maps"].as_array().is_some_and(|m| !m.is_empty());
    let paths = storage["multipath"]["paths"].as_array().cloned().unwrap_or_default();
    for path in paths.iter().filter(|_| mapped) {
        edges.push((text(path, "device").unwrap().to_owned(), "dm-0".to_owned()));
        if t.path().join("sys/block/dm-0/holders/dm-1").symlink_metadata().is_err() {
            edges.push(("dm-0".to_owned(), "dm-1".to_owned()));
            t.dir("sys/block/dm-0/holders").link("sys/block/dm-0/holders/dm-1", "../../dm-1");
        }
    }
    for (below, above) in edges {
        if t.path().join(format!("sys/block/{below}/holders/{above}")).symlink_metadata().is_err() {
            t.link(&format!("sys/block/{below}/holders/{above}"), &format!("../../{above}"));
        }
    }
    for (name, controller) in storage["nvme"].as_object().unwrap_or(&Map::new()) {
        let attrs = &controller["attrs"];
        let (path, transport) = (text(controller, "DEVPATH").unwrap(), text(attrs, "transport").unwrap());
        t.put(&format!("sys{path}/transport"), transport);
        // The kernel links the controllers of a subsystem into it, and each namespace to its subsystem.
        if text(attrs, "cntrltype") != Some("discovery") {
            let subsystem = "sys/devices/virtual/nvme-subsystem/nvme-subsys1";
            t.link(&format!("{subsystem}/{name}"), &format!("/sys{path}"));
            t.link(&format!("{subsystem}/nvme1n1/device"), "..");
        }
    }
    network(&t, &record["network"]);
    t
}

fn block(t: &Tree, device: &Value) {
    let path = text(device, "DEVPATH").unwrap();
    let name = path.rsplit('/').next().unwrap();
    let dir = format!("sys{path}");
    for (key, value) in device["attrs"].as_object().unwrap() {
        match (key.as_str(), value.as_str()) {
            // Bytes there, sectors in sysfs.
            ("size", Some(bytes)) => {
                t.put(&format!("{dir}/size"), (bytes.parse::<u64>().unwrap() / 512).to_string());
            }
            ("subsystem" | "device", _) | (_, None) => {}
            (key, Some(value)) => {
                t.put(&format!("{dir}/{key}"), value);
            }
        }
    }
    if text(device, "DEVTYPE") == Some("disk") {
        t.link(&format!("sys/block/{name}"), &format!("..{path}"));
    }
    let number = text(&device["attrs"], "dev").unwrap();
    let pairs =
        device.as_object().unwrap().iter().filter_map(|(k, v)| Some(format!("E:{k}={}", v.as_str()?)));
    let text: Vec<String> = pairs.collect();
    t.put(&format!("run/udev/data/b{number}"), format!("I:1\n{}\n", text.join("\n")));
    if let Some(uuid) = device.get("DM_UUID").and_then(Value::as_str) {
        t.put(&format!("{dir}/dm/uuid"), uuid);
        t.put(&format!("{dir}/dm/name"), device["DM_NAME"].as_str().unwrap());
    }
    if let Some(level) = device.get("MD_LEVEL").and_then(Value::as_str) {
        t.put(&format!("{dir}/md/level"), level);
    }
}

fn network(t: &Tree, network: &Value) {
    let mut links: Vec<Value> = Vec::new();
    for link in network["links"].as_array().unwrap() {
        let (net, udev) = (&link["netlink_data"], &link["udev_data"]);
        let name = text(net, "name").unwrap();
        let path = text(udev, "DEVPATH").unwrap();
        for (key, value) in udev["attrs"].as_object().unwrap() {
            if let (false, Some(value)) = (["subsystem", "device"].contains(&key.as_str()), value.as_str()) {
                t.put(&format!("sys{path}/{key}"), value);
            }
        }
        t.dir(&format!("sys{path}")).link(&format!("sys/class/net/{name}"), &format!("../..{path}"));
        if udev["attrs"].as_object().unwrap().contains_key("device") {
            t.link(&format!("sys{path}/device"), "../..");
        }
        if let Some(driver) = text(udev, "ID_NET_DRIVER") {
            t.dir(&format!("sys/bus/drivers/{driver}"));
            let device = path.rsplit_once("/net/").unwrap().0;
            t.link(&format!("sys{device}/driver"), &format!("/sys/bus/drivers/{driver}"));
        }
        let up = net["flags"].as_u64().unwrap() & 1 == 1;
        let addresses = link["addresses"].as_array().unwrap().iter().filter(|a| a["family"] == 2).map(|a| {
            let (ip, prefix) = text(a, "address").unwrap().split_once('/').unwrap();
            json!({"family": "inet", "local": ip, "prefixlen": prefix.parse::<u8>().unwrap()})
        });
        let addresses: Vec<Value> = addresses.collect();
        links.push(json!({
            "ifindex": net["ifindex"], "ifname": name, "flags": if up { vec!["UP"] } else { vec![] },
            "mtu": text(&udev["attrs"], "mtu").and_then(|m| m.parse::<u32>().ok()),
            "link_type": if net["arptype"] == 1 { "ether" } else { "loopback" },
            "address": text(&udev["attrs"], "address"), "addr_info": addresses,
        }));
    }
    let name = |index: &Value| links.iter().find(|l| &l["ifindex"] == index).map(|l| l["ifname"].clone());
    let routes: Vec<Value> = network["routes"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|r| r["family"] == 2)
        .map(|r| {
            json!({"dst": r["dst"], "dev": name(&r["ifindex"]), "table": r["table"].to_string(),
                   "type": r["type"].to_string()})
        })
        .collect();
    t.put("capture/ip-addr.json", Value::from(links.clone()).to_string());
    t.put("capture/ip-route.json", Value::from(routes).to_string());
}

/// Every key that `want` gives is equal; lists have the same length and order. Adds each difference.
fn compare(at: &str, want: &Value, have: &Value, out: &mut Vec<String>) {
    match (want, have) {
        (Value::Object(want), Value::Object(have)) => {
            for (key, want) in want {
                compare(&format!("{at}.{key}"), want, have.get(key).unwrap_or(&Value::Null), out);
            }
        }
        (Value::Array(want), Value::Array(have)) if want.len() == have.len() => {
            for (n, (want, have)) in want.iter().zip(have).enumerate() {
                compare(&format!("{at}[{n}]"), want, have, out);
            }
        }
        (want, have) if want == have => {}
        (want, have) => out.push(format!("{at}: want {want}, have {have}")),
    }
}

#[test]
fn recorded_machines_come_out_as_expected() {
    let Some(data) = hwdata() else { return };
    let dir = data.join("subiquity-machines");
    let mut wrong = Vec::new();
    let mut seen = 0;
    for entry in std::fs::read_dir(dir.join("expected")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let read = |path: &std::path::Path| -> Value {
            serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
        };
        let want = read(&dir.join("expected").join(&name));
        let have = serde_json::to_value(tree(&read(&dir.join(&name))).probe()).unwrap();
        compare(&name, &want, &have, &mut wrong);
        seen += 1;
    }
    assert!(seen > 10 && wrong.is_empty(), "{seen} machines\n{}", wrong.join("\n"));
}
