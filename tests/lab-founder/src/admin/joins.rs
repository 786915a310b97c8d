//! Registrations as an operator sees them, and the operator's yes, no and again.

use serde::Deserialize;
use serde_json::{Value, json};
use subtle::ConstantTimeEq;

use crate::approve::addresses::Held;
use crate::approve::check::{Ground, check};
use crate::approve::decode::approve_request;
use crate::approve::inventory::Inventory;
use crate::approve::node_yaml;
use crate::founder::Founder;
use crate::http::{Handled, Request, Response, field, refuse};
use crate::join_api::body;
use crate::model::{Join, JoinState, Member, MemberState};
use crate::scheduler::name;
use crate::store::{StoreError, Tx};
use crate::time::rfc3339;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reject {
    reason: String,
}

pub(super) fn list(founder: &Founder) -> Handled {
    founder.store.tx(|tx| {
        let joins: Vec<Value> = tx.joins()?.iter().map(record).collect();
        Ok(Response::json(200, &json!({ "joins": joins })))
    })
}

pub(super) fn show(founder: &Founder, id: &str) -> Handled {
    founder.store.tx(|tx| Ok(Response::json(200, &full_record(tx, &find(tx, id)?)?)))
}

pub(super) fn approve(founder: &Founder, id: &str, request: &Request) -> Handled {
    let asked = approve_request(&request.body).map_err(refuse::invalid)?;
    founder.store.tx(|tx| {
        let mut join = find(tx, id)?;
        if !matches!(join.state, JoinState::Pending | JoinState::Approved) {
            return Err(refuse::conflict(join.state).into());
        }
        let inventory = tx.inventory(&join.id)?.unwrap_or_else(|| "{}".to_owned());
        let inventory = Inventory::parse(&inventory).map_err(StoreError::from)?;
        let mut errors = Vec::new();
        if let Some(seen) = request.query_value("pairing") {
            let own = join.pairing_code.as_deref().unwrap_or_default();
            if !bool::from(seen.as_bytes().ct_eq(own.as_bytes())) {
                errors.push(field("", "the pairing code does not match"));
            }
        }
        let assignment = match check(&asked, &ground(founder, tx, &join, &inventory)?) {
            Ok(assignment) if errors.is_empty() => assignment,
            Ok(_) => return Err(refuse::approval_refused(errors).into()),
            Err(found) => {
                errors.extend(found);
                return Err(refuse::approval_refused(errors).into());
            }
        };
        let node_id = match join.node_id.take() {
            Some(id) => id,
            None => new_node_id(founder, tx)?,
        };
        // What firstboot could not read is refused now, not when its turn has come.
        node_yaml::text(&assignment, &node_id, &founder.secrets.cluster_id, &founder.config.cluster)
            .map_err(|e| refuse::approval_refused(vec![field("", e.to_string())]))?;
        join.assignment = Some(assignment);
        join.node_id = Some(node_id);
        if join.approved_order.is_none() {
            join.approved_order = Some(i64::try_from(tx.next("approvals")?).unwrap_or(i64::MAX));
        }
        join.state = JoinState::Approved;
        join.wait_reason = None;
        tx.put_join(&join)?;
        Ok(Response::json(200, &full_record(tx, &join)?))
    })
}

fn new_node_id(founder: &Founder, tx: &Tx<'_>) -> Handled<String> {
    loop {
        let id = founder.entropy.id("n-")?;
        if tx.member(&id)?.is_none() && tx.use_id(&id)? {
            return Ok(id);
        }
    }
}

/// Whoever else holds an address or a name: members that are not out, and other approved, running or failed joins (documented).
fn ground<'a>(
    founder: &'a Founder,
    tx: &Tx<'_>,
    join: &'a Join,
    inventory: &'a Inventory,
) -> Result<Ground<'a>, StoreError> {
    let mut held = Held::default();
    let mut names = Vec::new();
    let own = join.node_id.as_deref();
    let members: Vec<Member> =
        tx.members()?.into_iter().filter(|m| Some(m.node_id.as_str()) != own).collect();
    for member in members.iter().filter(|m| m.state != MemberState::Decommissioned) {
        held.add(&member.mgmt_ip, member.name.as_str());
        for binding in member.networks.values() {
            held.add(&binding.ip, member.name.as_str());
        }
        names.push(member.name.clone());
    }
    let mut queued = 0;
    for other in tx.joins()?.iter().filter(|j| j.id != join.id) {
        let counts =
            other.state == JoinState::Approved || other.state.runs() || other.state == JoinState::Failed;
        let Some(assignment) = other.assignment.as_ref().filter(|_| counts) else { continue };
        held.add(&assignment.mgmt.address, name(other));
        for address in assignment.links.iter().flat_map(|l| &l.addresses) {
            held.add(address, name(other));
        }
        names.push(assignment.name.clone());
        queued += usize::from(other.state == JoinState::Approved);
    }
    let vips = serde_json::to_value(&founder.config.cluster.vips)?;
    for (vip, address) in vips.as_object().into_iter().flatten() {
        held.add(address.as_str().unwrap_or_default(), format!("the virtual address {vip}"));
    }
    let inside = |m: &&Member| matches!(m.state, MemberState::Joining | MemberState::Active);
    Ok(Ground {
        cluster: &founder.config.cluster,
        inventory,
        hostname: &join.hostname,
        source: &join.source_address,
        held,
        names,
        control_planes: members.iter().filter(inside).count() + queued,
        most_control_planes: founder.config.limits.control_planes,
        previous: join.assignment.as_ref(),
    })
}

pub(super) fn reject(founder: &Founder, id: &str, request: &Request) -> Handled {
    let asked: Reject = body(request)?;
    let printable = !asked.reason.chars().any(char::is_control);
    if !(1..=1024).contains(&asked.reason.chars().count()) || !printable {
        return Err(refuse::invalid(vec![field("reason", "must be 1 to 1024 characters on one line")]).into());
    }
    founder.store.tx(|tx| {
        let mut join = find(tx, id)?;
        match join.state {
            JoinState::NeedsUpgrade | JoinState::Pending | JoinState::Approved | JoinState::Failed => {}
            state => return Err(refuse::conflict(state).into()),
        }
        join.state = JoinState::Rejected;
        join.reason = Some(asked.reason);
        join.approved_order = None;
        join.wait_reason = None;
        tx.delete_delivery(&join.id)?;
        tx.put_join(&join)?;
        Ok(Response::json(200, &full_record(tx, &join)?))
    })
}

/// Queues a failed join again with the addresses it has (documented).
pub(super) fn retry(founder: &Founder, id: &str) -> Handled {
    founder.store.tx(|tx| {
        let mut join = find(tx, id)?;
        if join.state != JoinState::Failed {
            return Err(refuse::conflict(join.state).into());
        }
        let inventory = tx.inventory(&join.id)?.unwrap_or_else(|| "{}".to_owned());
        let inventory = Inventory::parse(&inventory).map_err(StoreError::from)?;
        let lost = join.assignment.as_ref().and_then(|a| crate::approve::check::lost_hardware(a, &inventory));
        if let Some(what) = lost {
            return Err(refuse::approval_refused(vec![field("", format!("{what}: approve it again"))]).into());
        }
        join.state = JoinState::Approved;
        join.failed = None;
        join.approved_order = Some(i64::try_from(tx.next("approvals")?).unwrap_or(i64::MAX));
        tx.put_join(&join)?;
        Ok(Response::json(200, &full_record(tx, &join)?))
    })
}

/// A registration that an operator may see: a machine that has not registered yet is none.
fn find(tx: &Tx<'_>, id: &str) -> Handled<Join> {
    Ok(tx.join(id)?.ok_or_else(refuse::not_found)?)
}

/// The record without inventory and log.
fn record(join: &Join) -> Value {
    let failed = join.failed.as_ref();
    let mut value = json!({
        "id": join.id,
        "state": join.state,
        "pairingCode": join.pairing_code,
        "hostname": join.hostname,
        "serial": join.serial,
        "release": join.release,
        "sourceAddress": join.source_address,
        "keyFingerprint": crate::tls::hex(&join.client_fp.0),
        "assignment": join.assignment,
        "nodeId": join.node_id,
        "upgrade": join.upgrade,
        "waitReason": join.wait_reason,
        "stalled": join.stalled,
        "failedStep": failed.map(|f| &f.step),
        "failedStepTitle": failed.map(|f| &f.title),
        "failedError": failed.map(|f| &f.error),
        "steps": join.steps,
        "reason": join.reason,
        "expiresAt": join.state.waits().then(|| rfc3339(join.expires_ms())),
        "acked": join.acked.as_ref().is_some_and(|a| a.attempt == join.attempt),
        "attempt": join.attempt,
        "agent": join.agent,
        "registeredAt": join.registered_ms.map(rfc3339),
        "lastSeenAt": rfc3339(join.last_seen_ms),
    });
    if let Some(map) = value.as_object_mut() {
        map.retain(|_, v| !v.is_null());
    }
    value
}

fn full_record(tx: &Tx<'_>, join: &Join) -> Result<Value, StoreError> {
    let mut value = record(join);
    if let Some(inventory) = tx.inventory(&join.id)? {
        value["inventory"] = serde_json::from_str(&inventory)?;
    }
    value["log"] = json!(tx.log(&join.id)?);
    Ok(value)
}
