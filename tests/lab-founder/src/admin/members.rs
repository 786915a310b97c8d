//! Members, networks, and the report of a failed join.

use serde_json::{Value, json};

use crate::founder::Founder;
use crate::http::{Handled, Request, Response, field, refuse};
use crate::join_api::{JoinFailed, body};
use crate::model::{Failed, JoinState, Member, MemberState};
use crate::scheduler;
use crate::store::Tx;

pub(crate) fn list(founder: &Founder) -> Handled {
    founder.store.tx(|tx| {
        let members: Vec<Value> = tx.members()?.iter().map(view).collect();
        Ok(Response::json(200, &json!({ "generation": tx.generation()?, "members": members })))
    })
}

pub(crate) fn networks(founder: &Founder) -> Response {
    let cluster = &founder.config.cluster;
    Response::json(
        200,
        &json!({
            "networks": cluster.networks,
            "providerTopology": cluster.provider.topology,
            "providerVlan": cluster.provider.vlan,
            "providerUpstreamInterface": cluster.provider.upstream_interface,
            "providerUpstreamPurpose": cluster.provider.upstream_purpose,
        }),
    )
}

pub(crate) fn report_join_failed(founder: &Founder, now: i64, node_id: &str, request: &Request) -> Handled {
    founder.store.tx(|tx| {
        tx.member(node_id)?.ok_or_else(refuse::not_found)?;
        join_failed(tx, now, node_id, &body(request)?)
    })
}

/// Only a joining member moves; any other record is answered as it is (documented).
pub(crate) fn join_failed(tx: &Tx<'_>, now: i64, node_id: &str, report: &JoinFailed) -> Handled {
    let mut errors = Vec::new();
    if !crate::approve::rules::step_name(&report.step) {
        errors.push(field("step", "must be 1 to 128 of a-z 0-9 / _ -"));
    }
    if report.error.chars().count() > 2048 {
        errors.push(field("error", "must be at most 2048 characters"));
    }
    if !errors.is_empty() {
        return Err(refuse::invalid(errors).into());
    }
    let member = tx.member(node_id)?.ok_or_else(refuse::not_found)?;
    if member.state != MemberState::Joining {
        return Ok(Response::json(200, &view(&member)));
    }
    let member = scheduler::fail_member(tx, now, member, Some(&report.step), Some(&report.error))?;
    for mut join in tx.joins()? {
        if join.node_id.as_deref() == Some(node_id) && join.state.runs() {
            let known = join.steps.iter().find(|s| s.name == report.step);
            let title = known.map_or(report.step.as_str(), |s| s.title.as_str()).to_owned();
            join.failed = Some(Failed { step: report.step.clone(), title, error: report.error.clone() });
            join.state = JoinState::Failed;
            join.stalled = false;
            tx.put_join(&join)?;
        }
    }
    Ok(Response::json(200, &view(&member)))
}

/// The documented member record: no key, and the rack beside its label.
pub(crate) fn view(member: &Member) -> Value {
    let mut value = json!(member);
    if let Some(map) = value.as_object_mut() {
        map.remove("nodeKey");
        if let Some(rack) = member.labels.get("topology.rack") {
            map.insert("rack".to_owned(), json!(rack));
        }
    }
    value
}
