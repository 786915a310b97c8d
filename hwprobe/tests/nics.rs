//! NICs of captured machines.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

mod support;

use hwprobe::{Code, Inventory, LinkState, Nic, NicKind};
use support::{Tree, texts};

const ADDR: &str = r#"[
 {"ifindex":1,"ifname":"lo","flags":["LOOPBACK","UP"],"mtu":65536,"link_type":"loopback","address":"00:00:00:00:00:00",
  "addr_info":[{"family":"inet","local":"127.0.0.1","prefixlen":8}]},
 {"ifindex":3,"ifname":"ens11","altnames":["enp1s11"],"flags":["UP"],"mtu":9000,"link_type":"ether","master":"bond0",
  "address":"02:00:00:00:00:01","permaddr":"02:00:00:00:00:0b","addr_info":[]},
 {"ifindex":2,"ifname":"ens3","flags":["UP"],"mtu":9000,"link_type":"ether","master":"bond0",
  "address":"02:00:00:00:00:01","addr_info":[]},
 {"ifindex":4,"ifname":"bond0","flags":["UP"],"mtu":9000,"link_type":"ether","linkinfo":{"info_kind":"bond"},
  "address":"02:00:00:00:00:01","addr_info":[{"family":"inet","local":"192.0.2.9","prefixlen":24},
   {"family":"inet","local":"192.0.2.10","prefixlen":32},{"family":"inet6","local":"fe80::1","prefixlen":64,"scope":"link"},
   {"family":"inet6","local":"2001:db8::1234","prefixlen":64,"scope":"global","temporary":true},
   {"family":"inet6","local":"2001:db8::a","prefixlen":64,"scope":"global"},{"family":"inet6","local":"2001:db8::9","prefixlen":128,"scope":"global"}]},
 {"ifindex":5,"ifname":"bond0.7","link":"bond0","flags":["UP"],"mtu":9000,"link_type":"ether",
  "linkinfo":{"info_kind":"vlan"},"address":"02:00:00:00:00:01","addr_info":[]},
 {"ifindex":6,"ifname":"veth0","flags":["UP"],"mtu":1500,"link_type":"ether","linkinfo":{"info_kind":"veth"},
  "address":"02:00:00:00:00:06","addr_info":[]},
 {"ifindex":7,"ifname":"docker0","flags":["UP"],"mtu":1500,"link_type":"ether","linkinfo":{"info_kind":"bridge"},
  "address":"02:00:00:00:00:07","addr_info":[{"family":"inet","local":"172.17.0.1","prefixlen":16}]},
 {"ifindex":8,"ifname":"ens4","flags":[],"mtu":1500,"link_type":"ether","address":"02:00:00:00:00:04","addr_info":[]}
]"#;

const ROUTE: &str = r#"[
 {"dst":"default","gateway":"192.0.2.1","dev":"bond0","flags":[]},
 {"dst":"192.0.2.0/24","dev":"bond0","flags":["linkdown"]},
 {"dst":"198.51.100.7","nexthops":[{"dev":"bond0"},{"dev":"bond0.7"}]},
 {"type":"blackhole","dst":"10.0.0.0/8"},
 {"type":"6","dst":"10.1.0.0/16"},
 {"dst":"10.2.0.0/16","nhid":7,"flags":[]},
 {"dst":"10.3.0.0/16","table":"100","dev":"bond0"}
]"#;

fn machine() -> Tree {
    let t = Tree::bare();
    for (name, at) in [("ens3", "0000:00:03.0"), ("ens4", "0000:00:04.0"), ("ens11", "0000:00:0b.0")] {
        t.dir(&format!("sys/devices/pci0000:00/{at}/net/{name}"));
        t.link(&format!("sys/class/net/{name}"), &format!("../../devices/pci0000:00/{at}/net/{name}"));
        t.link(&format!("sys/class/net/{name}/device"), &format!("../../../{at}"));
        t.put(&format!("sys/class/net/{name}/carrier"), "1\n")
            .put(&format!("sys/class/net/{name}/speed"), "10000\n");
    }
    for name in ["lo", "bond0", "bond0.7", "veth0", "docker0"] {
        t.put(&format!("sys/class/net/{name}/carrier"), "0\n");
    }
    t.put("capture/ip-addr.json", ADDR).put("capture/ip-route.json", ROUTE);
    t
}

fn nic<'a>(i: &'a Inventory, name: &str) -> &'a Nic {
    i.nics.iter().find(|n| n.name == name).unwrap_or_else(|| panic!("no NIC {name}"))
}

#[test]
fn hardware_and_what_reaches_it_is_listed_and_nothing_else() {
    let i = machine().probe();
    let names: Vec<&str> = i.nics.iter().map(|n| n.name.as_str()).collect();
    assert_eq!(names, ["bond0", "bond0.7", "ens3", "ens4", "ens11"]);
    assert_eq!(
        (nic(&i, "bond0").kind, texts(&nic(&i, "bond0").lower)),
        (NicKind::Bond, vec!["ens3", "ens11"])
    );
    let vlan = nic(&i, "bond0.7");
    assert_eq!(
        (vlan.kind, vlan.parent.as_deref(), texts(&vlan.lower)),
        (NicKind::Vlan, Some("bond0"), vec!["bond0"])
    );
    assert_eq!(nic(&i, "ens3").master.as_deref(), Some("bond0"));
    assert_eq!(nic(&i, "ens11").bus.as_deref(), Some("0000:00:0b.0"));
}

#[test]
fn a_bond_member_shows_its_own_address() {
    let i = machine().probe();
    let n = nic(&i, "ens11");
    assert_eq!(n.mac.as_deref(), Some("02:00:00:00:00:0b"));
    assert_eq!(n.current_mac.as_deref(), Some("02:00:00:00:00:01"));
}

#[test]
fn addresses_and_routes_are_cidrs_in_numeric_order_without_the_default() {
    let i = machine().probe();
    let bond = nic(&i, "bond0");
    assert_eq!(texts(bond.ipv4.as_ref().unwrap()), ["192.0.2.9/24", "192.0.2.10/32"]);
    assert_eq!(
        texts(bond.ipv6.as_ref().unwrap()),
        ["2001:db8::9/128", "2001:db8::a/64"],
        "neither link-local nor temporary"
    );
    assert_eq!(texts(bond.routes.as_ref().unwrap()), ["192.0.2.0/24", "198.51.100.7/32"]);
    assert_eq!(texts(nic(&i, "bond0.7").routes.as_ref().unwrap()), ["198.51.100.7/32"]);
    assert_eq!(texts(nic(&i, "ens3").routes.as_ref().unwrap()), Vec::<&str>::new());
    assert!(i.warnings.iter().any(|w| w.code == Code::NexthopObject));
}

#[test]
fn a_switched_off_interface_has_no_link_and_no_speed() {
    let i = machine().probe();
    assert_eq!((nic(&i, "ens4").link, nic(&i, "ens4").speed_mbps), (LinkState::Unknown, None));
    assert_eq!((nic(&i, "bond0").link, nic(&i, "bond0").speed_mbps), (LinkState::Down, None));
    assert_eq!((nic(&i, "ens3").link, nic(&i, "ens3").speed_mbps), (LinkState::Up, Some(10_000)));
}

#[test]
fn a_driver_that_cannot_tell_its_speed_is_no_error() {
    let t = machine();
    for text in ["-1\n", "0\n", "65535\n", "4294967295\n", "", "fast\n"] {
        t.put("sys/class/net/ens3/speed", text);
        let i = t.probe();
        assert_eq!(nic(&i, "ens3").speed_mbps, None, "{text}");
        assert_eq!(nic(&i, "ens3").link, LinkState::Up);
        assert!(i.warnings.iter().any(|w| w.at == "nics/ens3" && w.facts.contains(&"speedMbps".to_owned())));
    }
}

#[test]
fn without_a_capture_addresses_and_routes_are_null_not_empty() {
    let t = machine();
    std::fs::remove_dir_all(t.path().join("capture")).unwrap();
    t.put("sys/class/net/ens3/address", "02:00:00:00:00:03\n").put("sys/class/net/ens3/flags", "0x1003\n");
    let i = t.probe();
    let n = nic(&i, "ens3");
    assert_eq!((n.ipv4.as_ref(), n.ipv6.as_ref(), n.routes.as_ref()), (None, None, None));
    assert_eq!((n.mac.as_deref(), n.link), (Some("02:00:00:00:00:03"), LinkState::Up));
    assert!(i.warnings.iter().any(|w| w.code == Code::NotCaptured && w.facts == ["ipv4", "ipv6", "routes"]));
}
