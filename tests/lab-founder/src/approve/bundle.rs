//! The join bundle: what a joiner adopts from its cluster (docs/protocol.md 4.2). Holds secrets.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::config::Vips;
use crate::founder::Founder;
use crate::model::{Binding, Join, Member, MemberState};
use crate::tls::Leaf;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Bundle<'a> {
    cluster_id: &'a str,
    role: &'a str,
    nodes: Vec<Node<'a>>,
    parent_domain: &'a str,
    region: &'a str,
    dns_upstream_servers: &'a [String],
    ca_cert: String,
    node_cert: &'a str,
    node_key: &'a str,
    postgres_password: &'a str,
    admin_email: &'a str,
    admin_password: &'a str,
    open_bao_token: &'a str,
    open_bao_node_token: String,
    axdnsd_encryption_key: &'a str,
    open_bao_unseal_key: &'a str,
    generation: u64,
    vips: &'a Vips,
    lab_founder: LabFounderPart,
}

/// Where a stand-in firstboot reports a failed join, with its node certificate. No real founder sends this.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LabFounderPart {
    /// `https://` URL of the documented join-failed call for this node.
    join_failed_url: String,
    /// PEM of the CA behind that listener.
    ca_cert: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Node<'a> {
    node_id: &'a str,
    role: &'a str,
    az: &'a str,
    mgmt_ip: &'a str,
    networks: &'a BTreeMap<String, Binding>,
    labels: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    boot_state: Option<&'static str>,
}

/// The bundle's text. `members` are all rows, this node's included.
pub(crate) fn text(
    founder: &Founder,
    join: &Join,
    node_id: &str,
    members: &[Member],
    generation: u64,
    leaf: &Leaf,
    node_token: String,
) -> Result<String, serde_json::Error> {
    let cluster = &founder.config.cluster;
    let secrets = &founder.secrets;
    let peers = members.iter().filter(|m| matches!(m.state, MemberState::Joining | MemberState::Active));
    let bundle = Bundle {
        cluster_id: &secrets.cluster_id,
        role: join.assignment.as_ref().map_or("hybrid", |a| &a.role),
        nodes: peers
            .map(|m| Node {
                node_id: &m.node_id,
                role: &m.role,
                az: &m.az,
                mgmt_ip: &m.mgmt_ip,
                networks: &m.networks,
                labels: &m.labels,
                boot_state: (m.state == MemberState::Active).then_some("ready"),
            })
            .collect(),
        parent_domain: &cluster.parent_domain,
        region: &cluster.region,
        dns_upstream_servers: &cluster.dns_upstream,
        ca_cert: founder.cluster_ca.cert_pem(),
        node_cert: &leaf.cert_pem,
        node_key: &leaf.key_pem,
        postgres_password: &secrets.postgres_password,
        admin_email: "admin@cloud.internal",
        admin_password: &secrets.admin_password,
        open_bao_token: &secrets.openbao_token,
        open_bao_node_token: node_token,
        axdnsd_encryption_key: &secrets.axdnsd_key,
        open_bao_unseal_key: &secrets.unseal_key,
        generation,
        vips: &cluster.vips,
        lab_founder: LabFounderPart {
            join_failed_url: format!(
                "https://{}/v1/admin/cluster/members/{node_id}/join-failed",
                founder.advertise()
            ),
            ca_cert: founder.join_ca.cert_pem(),
        },
    };
    serde_json::to_string(&bundle)
}
