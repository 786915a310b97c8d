//! Starts a join whose turn has come: the member row, the node's certificate, node.yaml and the bundle, all in one transaction.

use stratum_join::protocol::encoding::B64;

use super::addresses::Cidr;
use super::assignment::Assignment;
use super::{bundle, node_yaml};
use crate::founder::{Founder, tracing_line};
use crate::http::{Handled, refuse};
use crate::model::{Binding, Join, JoinState, Member, MemberState};
use crate::store::{Delivery, Tx};

pub(crate) fn start(founder: &Founder, tx: &Tx<'_>, now: i64, join: &mut Join) -> Handled<()> {
    // Approval sets both; a row without them is a broken database and the join stays where it is.
    let (Some(assignment), Some(node_id)) = (join.assignment.clone(), join.node_id.clone()) else {
        return Err(refuse::unavailable().into());
    };
    let generation = tx.next("generation")?;
    let leaf = founder.cluster_ca.node_leaf(&node_id).and_then(|leaf| Ok((leaf.fingerprint()?, leaf)));
    let (key, leaf) = leaf.map_err(|e| {
        tracing_line("no node certificate", &e);
        refuse::unavailable()
    })?;
    tx.put_member(&member(tx, &node_id, &assignment, B64(key))?)?;
    // The founder and the other members apply at once, or a test says when.
    let token = format!("hvs.{}", founder.entropy.hex64()?);
    let members = tx.members()?;
    let bundle = bundle::text(founder, join, &node_id, &members, generation, &leaf, token)
        .map_err(crate::store::StoreError::from)?;
    let yaml = node_yaml::text(&assignment, &node_id, &founder.secrets.cluster_id, &founder.config.cluster);
    let node_yaml = yaml.map_err(|e| {
        tracing_line("no node.yaml", &e);
        refuse::unavailable()
    })?;
    join.attempt += 1;
    join.state = JoinState::Delivering;
    join.generation = Some(generation);
    join.wait_reason = None;
    join.failed = None;
    join.acked = None;
    join.steps.clear();
    join.firstboot_done = false;
    join.stalled = false;
    // The silence that flags a running join is counted from here.
    join.last_seen_ms = now;
    tx.put_delivery(&join.id, &Delivery { attempt: join.attempt, node_yaml, bundle })?;
    tx.put_join(join)?;
    Ok(())
}

fn member(tx: &Tx<'_>, node_id: &str, assignment: &Assignment, key: B64<32>) -> Handled<Member> {
    let order = tx.members()?.iter().map(|m| m.join_order).max().unwrap_or(0) + 1;
    let mut networks = std::collections::BTreeMap::new();
    for link in &assignment.links {
        let purposes = link.purposes.iter().filter(|p| matches!(p.as_str(), "storage" | "overlay"));
        for (purpose, address) in purposes.zip(&link.addresses) {
            networks.insert(
                purpose.clone(),
                Binding { ip: bare(address), interface: Some(link.interface.clone()) },
            );
        }
    }
    let labels = assignment.rack.iter().map(|rack| ("topology.rack".to_owned(), rack.clone())).collect();
    Ok(Member {
        node_id: node_id.to_owned(),
        state: MemberState::Joining,
        role: assignment.role.clone(),
        mgmt_ip: bare(&assignment.mgmt.address),
        networks,
        labels,
        az: assignment.az.clone().unwrap_or_default(),
        name: assignment.name.clone(),
        join_order: order,
        applied_generation: 0,
        failed_step: None,
        failed_error: None,
        raft_cleanup_at: None,
        node_key: Some(key),
    })
}

fn bare(cidr: &str) -> String {
    Cidr::parse(cidr).map_or_else(|| cidr.to_owned(), |c| c.address.to_string())
}
