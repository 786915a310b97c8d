//! NICs as the kernel tells of them, in a network namespace of the test's own: against `ip` and against a capture of the same moment.
//!
//! The hardware is made of one end of each veth pair: the tree gives it a device.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

mod support;

use std::collections::BTreeMap;
use std::process::Command;

use hwprobe::{Code, NetworkPart, NicKind, Options, Roots, Sources};
use serde_json::Value;
use support::{Tree, texts};

const INSIDE: &str = "HWPROBE_TEST_IN_NETNS";

fn ip(args: &str) -> bool {
    Command::new("ip").args(args.split(' ')).output().is_ok_and(|out| out.status.success())
}

fn ip_json(args: &str) -> (String, Value) {
    let out = Command::new("ip").args(args.split(' ')).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let json = serde_json::from_str(&text).unwrap();
    (text, json)
}

fn names(part: &NetworkPart) -> Vec<&str> {
    part.nics.iter().map(|n| n.name.as_str()).collect()
}

#[test]
fn what_the_kernel_says_of_nics_is_what_ip_says_and_what_a_capture_says() {
    if std::env::var(INSIDE).is_err() {
        let name = "what_the_kernel_says_of_nics_is_what_ip_says_and_what_a_capture_says";
        let mut inside = Command::new("unshare");
        inside.args(["--net", "--"]).arg(std::env::current_exe().unwrap());
        match inside.args(["--exact", name, "--nocapture"]).env(INSIDE, "1").output() {
            Ok(out) if String::from_utf8_lossy(&out.stderr).starts_with("unshare:") => {
                println!("skipped: no network namespace can be made here (not root?)");
            }
            Ok(out) => {
                print!("{}", String::from_utf8_lossy(&out.stdout));
                assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
            }
            Err(error) => println!("skipped: unshare: {error}"),
        }
        return;
    }
    inside();
}

fn inside() {
    if !ip("link add ens3 type veth peer name far3") || !ip("link add ens11 type veth peer name far11") {
        return println!("skipped: this kernel or machine makes no veth");
    }
    let mut want = vec!["br0", "ens3", "ens11"];
    // A bridge that reaches hardware; one without ports; what is never listed.
    assert!(
        ip("link add br0 type bridge") && ip("link set ens11 master br0") && ip("link add br1 type bridge")
    );
    ip("tuntap add dev tun0 mode tun");
    if ip("link add link ens3 name ens3.7 type vlan id 7") {
        want.insert(2, "ens3.7");
    } else {
        println!("not compared: VLANs, which this kernel does not have");
    }
    for link in ["ens3", "far3", "br0", "br1", "ens11", "far11"] {
        assert!(ip(&format!("link set {link} up")));
    }
    assert!(ip("addr add 192.0.2.10/24 dev ens3") && ip("addr add 192.0.2.9/24 dev ens3"));
    assert!(ip("addr add 198.51.100.1/25 dev br0"));
    // Beside the link-local address that each interface makes itself.
    let v6 = ip("-6 addr add 2001:db8::9/64 dev ens3 nodad");
    if !v6 {
        println!("not compared: IPv6, which this kernel does not have");
    }
    for route in [
        "default via 192.0.2.1 dev ens3",
        "203.0.113.7/32 via 192.0.2.1 dev ens3",
        "10.1.0.0/16 nexthop via 192.0.2.2 dev ens3 nexthop via 198.51.100.2 dev br0",
        "blackhole 10.2.0.0/16",
        "unreachable 10.3.0.0/16",
        "prohibit 10.4.0.0/16",
        "10.5.0.0/16 via 192.0.2.1 dev ens3 table 100",
        "10.6.0.0/16 via 192.0.2.1 dev ens3 table 70000",
        "multicast 224.1.0.0/16 dev ens3",
    ] {
        assert!(ip(&format!("route add {route}")) || route.starts_with("multicast"), "{route}");
    }
    let object = ip("nexthop add id 7 via 192.0.2.3 dev ens3")
        && std::fs::write("/proc/sys/net/ipv4/nexthop_compat_mode", "0").is_ok()
        && ip("route add 10.7.0.0/16 nhid 7");
    if !object {
        println!("not compared: nexthop objects, which this kernel does not have");
    }

    let t = Tree::bare();
    for nic in ["ens3", "ens11"] {
        t.dir(&format!("sys/class/net/{nic}/device"));
    }
    let roots = Roots::under(t.path()).unwrap();
    let mut live = Sources::of(&roots);
    live.net = Sources::of(&Roots::live().unwrap()).net;
    let told = hwprobe::probe_network_with(&roots, &live, &Options::default());
    assert_eq!(names(&told), want);
    let nic = |name: &str| told.nics.iter().find(|n| n.name == name).unwrap();
    assert_eq!((nic("br0").kind, texts(&nic("br0").lower)), (NicKind::Bridge, vec!["ens11"]));
    assert_eq!(nic("ens11").master.as_deref(), Some("br0"));
    assert_eq!(texts(nic("ens3").ipv4.as_ref().unwrap()), ["192.0.2.9/24", "192.0.2.10/24"]);
    let want_v6: &[&str] = if v6 { &["2001:db8::9/64"] } else { &[] };
    assert_eq!(texts(nic("ens3").ipv6.as_ref().unwrap()), want_v6);
    assert_eq!(
        texts(nic("ens3").routes.as_ref().unwrap()),
        ["10.1.0.0/16", "192.0.2.0/24", "203.0.113.7/32"]
    );
    assert_eq!(texts(nic("br0").routes.as_ref().unwrap()), ["10.1.0.0/16", "198.51.100.0/25"]);
    assert_eq!(told.warnings.iter().any(|w| w.code == Code::NexthopObject), object);

    // Another program's reading of the same.
    let (routes, json) = ip_json("-j -N -d route show table main");
    let mut by_nic: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for route in json.as_array().unwrap() {
        let unicast = route["type"].as_str().is_none_or(|t| t == "unicast" || t == "1");
        let to = route["dst"].as_str().unwrap();
        if !unicast || to == "default" || route["nhid"].is_u64() {
            continue;
        }
        let to = if to.contains('/') { to.to_owned() } else { format!("{to}/32") };
        let hops = route["nexthops"].as_array().into_iter().flatten();
        for dev in hops.chain([route]).filter_map(|hop| hop["dev"].as_str()) {
            by_nic.entry(dev).or_default().push(to.clone());
        }
    }
    for nic in &told.nics {
        let mut want = by_nic.remove(nic.name.as_str()).unwrap_or_default();
        want.sort();
        let mut have: Vec<String> = nic.routes.iter().flatten().map(|r| r.as_str().to_owned()).collect();
        have.sort();
        assert_eq!(have, want, "{}", nic.name);
    }

    // And the same machine as a capture has it.
    let (addresses, _) = ip_json("-j -d addr show");
    t.put("capture/ip-addr.json", addresses).put("capture/ip-route.json", routes);
    let mut captured = hwprobe::probe_network_with(&roots, &Sources::of(&roots), &Options::default());
    // A capture has no word of the kernel beside it where sysfs was not copied.
    for (nic, told) in captured.nics.iter_mut().zip(&told.nics) {
        (nic.link, nic.speed_mbps, nic.driver) = (told.link, told.speed_mbps, told.driver.clone());
    }
    assert_eq!(captured.nics, told.nics);
}
