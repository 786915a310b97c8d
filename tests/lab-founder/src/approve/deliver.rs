//! Starts a join whose turn has come: the member row, the node's certificate, node.yaml and the bundle, all in one transaction.

use stratum_join::protocol::encoding::B64;

use super::addresses::Cidr;
use super::assignment::Assignment;
use super::{bundle, node_yaml};
use crate::founder::Founder;
use crate::http::{Handled, refuse};
use crate::model::{Binding, Failed, Join, JoinState, Member, MemberState};
use crate::store::{Delivery, Tx};
use crate::tls::{CertError, Leaf};

pub(crate) fn start(founder: &Founder, tx: &Tx<'_>, now: i64, join: &mut Join) -> Handled<()> {
    // Approval sets both; a row without them is a broken database and the join stays where it is.
    let (Some(assignment), Some(node_id)) = (join.assignment.clone(), join.node_id.clone()) else {
        return Err(refuse::unavailable().into());
    };
    // Everything that can fail comes first, so that a join that cannot be prepared fails alone and the queue goes on.
    let prepared =
        node_yaml::text(&assignment, &node_id, &founder.secrets.cluster_id, &founder.config.cluster)
            .map_err(|e| e.to_string())
            .and_then(|yaml| Ok((yaml, leaf(founder, &node_id).map_err(|e| e.to_string())?)));
    let (node_yaml, (key, leaf)) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            join.state = JoinState::Failed;
            let title = "Preparing the node's configuration".to_owned();
            join.failed = Some(Failed { step: "join".to_owned(), title, error });
            return Ok(tx.put_join(join)?);
        }
    };
    let generation = tx.next("generation")?;
    tx.put_member(&member(tx, &node_id, &assignment, B64(key))?)?;
    let token = format!("hvs.{}", founder.entropy.hex64()?);
    let members = tx.members()?;
    let bundle = bundle::text(founder, join, &node_id, &members, generation, &leaf, token)
        .map_err(crate::store::StoreError::from)?;
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

fn leaf(founder: &Founder, node_id: &str) -> Result<([u8; 32], Leaf), CertError> {
    let leaf = founder.cluster_ca.node_leaf(node_id)?;
    Ok((leaf.fingerprint()?, leaf))
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
