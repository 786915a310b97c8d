//! node.yaml from an assignment. Pure. Written by a serialiser, never by joining texts, and read back before it is used.

use serde::{Deserialize, Serialize};

use super::assignment::{Assignment, Bond, DiskChoice, Link, Mgmt, ProviderChoice};
use crate::config::Cluster;

/// The configuration of one node, as firstboot reads it. `network.connections` is the documented shape.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NodeYaml {
    node: Node,
    network: NodeNetwork,
    storage: Storage,
    ntp: Ntp,
    provider: ProviderChoice,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Node {
    id: String,
    name: String,
    role: String,
    cluster: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    rack: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    az: Option<String>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NodeNetwork {
    mgmt: Mgmt,
    connections: Vec<Connection>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Connection {
    name: String,
    kind: String,
    interface: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    parent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    vlan_id: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    controller: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    bond: Option<Bond>,
    addresses: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    mtu: Option<u32>,
    purposes: Vec<String>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Storage {
    disks: Vec<DiskChoice>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ntp {
    servers: Vec<String>,
}

/// The text could not be made.
#[derive(Debug, thiserror::Error)]
#[error("node.yaml does not read back as it was written")]
pub(crate) struct NotFaithful;

pub(crate) fn text(
    assignment: &Assignment,
    node_id: &str,
    cluster_id: &str,
    cluster: &Cluster,
) -> Result<String, NotFaithful> {
    let yaml = NodeYaml {
        node: Node {
            id: node_id.to_owned(),
            name: assignment.name.clone(),
            role: assignment.role.clone(),
            cluster: cluster_id.to_owned(),
            rack: assignment.rack.clone(),
            az: assignment.az.clone(),
        },
        network: NodeNetwork {
            mgmt: assignment.mgmt.clone(),
            connections: assignment.links.iter().map(connection).collect(),
        },
        storage: Storage { disks: assignment.disks.clone() },
        ntp: Ntp { servers: assignment.ntp_servers.clone().unwrap_or_else(|| cluster.ntp_servers.clone()) },
        provider: assignment.provider.clone(),
    };
    let text = serde_yaml::to_string(&yaml).map_err(|_| NotFaithful)?;
    let back: NodeYaml = serde_yaml::from_str(&text).map_err(|_| NotFaithful)?;
    if back == yaml { Ok(text) } else { Err(NotFaithful) }
}

fn connection(link: &Link) -> Connection {
    let link = link.clone();
    Connection {
        name: link.name,
        kind: link.kind,
        interface: link.interface,
        parent: link.parent,
        vlan_id: link.vlan_id,
        controller: link.controller,
        bond: link.bond,
        addresses: link.addresses,
        mtu: link.mtu,
        purposes: link.purposes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_yaml_takes_for_something_else_stay_texts() {
        for word in [
            "no",
            "1e3",
            "0o7",
            "2026-11-29",
            "null",
            "~",
            "a: b",
            "- x",
            "#c",
            "*a",
            "&a",
            "!t",
            "'",
            "\"",
            "{",
        ] {
            let assignment = Assignment {
                name: word.to_owned(),
                rack: Some(word.to_owned()),
                links: vec![Link { name: word.to_owned(), ..Link::default() }],
                ..Assignment::default()
            };
            let text = text(&assignment, "n-00000000", "cl-00000000", &Cluster::default());
            assert!(text.is_ok(), "{word}");
        }
    }
}
