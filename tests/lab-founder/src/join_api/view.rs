//! What a joiner sees of its registration, and the long-poll (docs/protocol.md 3.6).

use console::text::Safe;
use serde_json::value::RawValue;
use stratum_join::protocol::wire::{DeliveryWire, JoinId, Registration, UpgradeOffer};

use super::own_join;
use crate::founder::Founder;
use crate::http::{Handled, Hold, Peer, Request, Response, field, refuse};
use crate::model::{Join, JoinState};
use crate::store::{StoreError, Tx};
use crate::time::rfc3339;

/// `lastSeenAt` is written no more often than this, so that a poll costs no disk write.
const SEEN_MS: i64 = 15_000;

pub(crate) fn poll(founder: &Founder, now: i64, peer: Peer, id: &str, request: &Request) -> Handled {
    founder.store.tx(|tx| {
        let mut join = own_join(tx, &peer, id)?;
        let wait = match request.query_value("wait") {
            None => 0,
            Some(text) => text.parse::<u64>().map_err(|_| {
                refuse::invalid(vec![field("wait", "must be a number of seconds, at most 60")])
            })?,
        };
        if join.stalled || now - join.last_seen_ms >= SEEN_MS {
            join.last_seen_ms = now;
            join.stalled = false;
            tx.put_join(&join)?;
        }
        let with_delivery = request.query_value("delivery") != Some("0");
        let registration = registration(tx, now, &join, with_delivery)?;
        let mut response = Response::json(200, &registration);
        let state = join.state.as_str();
        let wait = wait.min(founder.config.limits.wait_secs);
        if wait > 0 && request.query_value("state").unwrap_or(state) == state {
            response.hold = Some(Hold { join_id: join.id, state: state.to_owned(), secs: wait });
        }
        Ok(response)
    })
}

/// The joiner's view. The delivery is in it only in the states that have one.
pub(crate) fn registration(
    tx: &Tx<'_>,
    now: i64,
    join: &Join,
    with_delivery: bool,
) -> Result<Registration, StoreError> {
    let delivery = if with_delivery && join.state.runs() { tx.delivery(&join.id)? } else { None };
    let delivery = match delivery {
        Some(kept) => Some(DeliveryWire {
            node_yaml: Some(kept.node_yaml),
            bundle: Some(RawValue::from_string(kept.bundle)?),
        }),
        None => None,
    };
    let failed = join.failed.as_ref();
    let unapproved = join.state.waits();
    Ok(Registration {
        join_id: join_id(&join.id)?,
        state: join.state.as_str().into(),
        pairing_code: safe(&join.pairing_code),
        reason: safe(&join.reason),
        wait_reason: safe(&join.wait_reason),
        upgrade: join.upgrade.as_ref().filter(|_| join.state == JoinState::NeedsUpgrade).map(|u| {
            UpgradeOffer {
                from: u.from.as_str().into(),
                to: u.to.as_str().into(),
                source: u.source.as_str().into(),
                from_founder: u.from_founder,
            }
        }),
        attempt: Some(join.attempt).filter(|n| *n > 0),
        delivery,
        failed_step: failed.map(|f| f.step.as_str().into()),
        failed_step_title: failed.map(|f| f.title.as_str().into()),
        failed_error: failed.map(|f| f.error.as_str().into()),
        code_expires_at: Some(rfc3339(join.code_expires_ms).into()),
        expires_at: unapproved.then(|| rfc3339(join.expires_ms()).into()),
        server_time: Some(rfc3339(now).into()),
        next_pins: Vec::new(),
    })
}

fn safe<const MAX: usize>(text: &Option<String>) -> Option<Safe<MAX>> {
    text.as_deref().map(Safe::from)
}

fn join_id(text: &str) -> Result<JoinId, StoreError> {
    // Our own row: anything else is a broken database.
    Ok(serde_json::from_value(serde_json::Value::from(text))?)
}
