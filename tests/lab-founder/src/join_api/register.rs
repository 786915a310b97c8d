//! Registration and re-registration (docs/protocol.md 3.4 and 3.5).
//!
//! A joiner never sets its role, name or state: it says what it is, and the founder decides.

use serde_json::value::RawValue;
use stratum_join::protocol::encoding::B64;
use stratum_join::protocol::pairing::{commitment, pairing_code};
use stratum_join::protocol::wire::{FieldError, JoinId, MAX_INVENTORY, RegistrationRequest};
use subtle::ConstantTimeEq;

use super::release_rules::{Verdict, judge};
use super::{body, own_join, view};
use crate::approve::inventory::Inventory;
use crate::approve::{check, rules};
use crate::founder::{Founder, lock};
use crate::http::{Handled, Peer, Refusal, Request, Response, Stop, field, refuse};
use crate::model::{Join, JoinState};
use crate::store::Tx;

/// What came of it: an answer, or a refusal whose effects stay.
type Outcome = Result<Response, Refusal>;

pub(crate) fn post(founder: &Founder, now: i64, peer: Peer, request: &Request) -> Handled {
    let data: RegistrationRequest = body(request)?;
    let (Some(proof_id), Some(nonce)) = (data.proof_id, data.pairing_nonce) else {
        return Err(refuse::invalid(vec![field("", "proofId and pairingNonce are needed")]).into());
    };
    let join_id = lock(&founder.proofs)
        .registration(now, &proof_id, &peer.client_fp)
        .ok_or_else(refuse::proof_expired)?;
    let inventory = checked(&data)?;
    let done = founder.store.tx(|tx| -> Handled<Outcome> {
        let mut join = tx.join(&join_id)?.ok_or_else(refuse::proof_expired)?;
        if !bool::from(commitment(&nonce).0.ct_eq(&join.commit.0)) {
            return Err(refuse::invalid(vec![field("pairingNonce", "does not open the commitment")]).into());
        }
        let first = join.state == JoinState::Registering;
        if first {
            pair(founder, &mut join, nonce)?;
            join.registered_ms = Some(now);
            join.source_address = peer.addr.to_canonical().to_string();
            join.state = JoinState::Pending;
        }
        update(founder, tx, now, &peer, join, &data, &inventory, if first { 201 } else { 200 })
    })?;
    Ok(done?)
}

pub(crate) fn put(founder: &Founder, now: i64, peer: Peer, id: &str, request: &Request) -> Handled {
    let done = founder.store.tx(|tx| -> Handled<Outcome> {
        // First whose it is: a foreign key learns nothing from how its body is judged.
        let join = own_join(tx, &peer, id)?;
        let data: RegistrationRequest = body(request)?;
        if data.proof_id.is_some() || data.pairing_nonce.is_some() {
            return Err(refuse::invalid(vec![field(
                "",
                "proofId and pairingNonce belong to the first registration",
            )])
            .into());
        }
        let inventory = checked(&data)?;
        if join.state == JoinState::Registering {
            return Err(refuse::conflict(join.state).into());
        }
        update(founder, tx, now, &peer, join, &data, &inventory, 200)
    })?;
    Ok(done?)
}

/// Reveals the joiner's nonce and fixes the pairing code.
fn pair(founder: &Founder, join: &mut Join, nonce: B64<32>) -> Handled<()> {
    // The id is our own; a row that does not parse is a broken database.
    let id = JoinId::parse(&join.id).map_err(|_| refuse::unavailable())?;
    join.joiner_nonce = Some(nonce);
    join.pairing_code = Some(pairing_code(&founder.pin, &join.client_fp.0, &id, &nonce, &join.founder_nonce));
    Ok(())
}

#[expect(clippy::too_many_arguments, reason = "one place for both calls; each argument is a different thing")]
fn update(
    founder: &Founder,
    tx: &Tx<'_>,
    now: i64,
    peer: &Peer,
    mut join: Join,
    data: &RegistrationRequest,
    inventory: &Inventory,
    status: u16,
) -> Handled<Outcome> {
    join.last_seen_ms = now;
    match join.state {
        JoinState::Registering | JoinState::Joined => return Err(refuse::conflict(join.state).into()),
        JoinState::Rejected => return Err(refuse::rejected(join.reason.as_deref()).into()),
        JoinState::Expired => return Err(refuse::expired().into()),
        JoinState::Delivering | JoinState::Installing | JoinState::Failed => {}
        JoinState::NeedsUpgrade | JoinState::Pending => {
            take_over(&mut join, data);
            join.source_address = peer.addr.to_canonical().to_string();
            if let Err(refusal) = apply_release(founder, tx, &mut join)? {
                return Ok(Err(refusal));
            }
        }
        JoinState::Approved => {
            take_over(&mut join, data);
            let fresh = join.attempt == 0;
            let lost = join.assignment.as_ref().and_then(|a| {
                let endangered = || check::endangered_disk(a, inventory).filter(|_| fresh);
                check::lost_hardware(a, inventory).or_else(endangered)
            });
            if let Some(what) = lost {
                join.wait_reason = Some(format!("hardware changed since approval: {what}; approve again"));
                back_to_pending(&mut join, now);
            } else if join.release != founder.release(tx)?.release {
                // A fallback after a cluster upgrade: what was approved is not what would run.
                back_to_pending(&mut join, now);
                if let Err(refusal) = apply_release(founder, tx, &mut join)? {
                    return Ok(Err(refusal));
                }
            }
        }
    }
    tx.put_inventory(&join.id, data.inventory.get())?;
    tx.put_join(&join)?;
    let registration = view::registration(tx, now, &join, false)?;
    Ok(Ok(Response::json(status, &registration)))
}

fn take_over(join: &mut Join, data: &RegistrationRequest) {
    join.release.clone_from(&data.release);
    join.self_upgrade = data.self_upgrade;
    join.hostname.clone_from(&data.hostname);
    join.serial.clone_from(&data.serial);
    join.agent.clone_from(&data.agent);
    join.boot_id.clone_from(&data.boot_id);
}

/// The approval is withdrawn. Whoever was approved late gets a day to be approved again.
fn back_to_pending(join: &mut Join, now: i64) {
    join.state = JoinState::Pending;
    join.approved_order = None;
    join.code_expires_ms = join.code_expires_ms.max(now);
}

/// `pending`, `needs-upgrade`, or the record and its place are gone.
fn apply_release(founder: &Founder, tx: &Tx<'_>, join: &mut Join) -> Result<Result<(), Refusal>, Stop> {
    let facts = founder.release(tx)?;
    match judge(&join.release, join.self_upgrade, &facts) {
        Verdict::Same => {
            if join.state == JoinState::NeedsUpgrade {
                join.failed = None;
            }
            join.state = JoinState::Pending;
            join.upgrade = None;
            Ok(Ok(()))
        }
        Verdict::Older(upgrade) => {
            join.state = JoinState::NeedsUpgrade;
            join.upgrade = Some(upgrade);
            Ok(Ok(()))
        }
        Verdict::Refused => {
            tx.delete_join(&join.id)?;
            Ok(Err(refuse::release_mismatch(
                &join.release,
                &facts.release,
                &facts.iso,
                &facts.min_upgrade_from,
            )))
        }
    }
}

/// The fields' bounds, all at once; then the inventory.
fn checked(data: &RegistrationRequest) -> Result<Inventory, Refusal> {
    let mut errors: Vec<FieldError> = Vec::new();
    let mut must = |ok: bool, name: &str, what: &str| {
        if !ok {
            errors.push(field(name, what));
        }
    };
    let printable = |text: &str, bounds: std::ops::RangeInclusive<usize>| {
        bounds.contains(&text.len()) && text.bytes().all(|b| matches!(b, b' '..=b'~'))
    };
    must(printable(&data.release, 1..=64), "release", "must be 1 to 64 printable ASCII characters");
    must(rules::host_name(&data.hostname), "hostname", "must be an RFC 1123 host name");
    must(printable(&data.serial, 0..=128), "serial", "must be 0 to 128 printable ASCII characters");
    must(printable(&data.agent, 1..=32), "agent", "must be 1 to 32 printable ASCII characters");
    must(boot_id(&data.boot_id), "bootId", "must be a kernel boot id in lower case");
    if !errors.is_empty() {
        return Err(refuse::invalid(errors));
    }
    usable_inventory(&data.inventory)
}

fn usable_inventory(raw: &RawValue) -> Result<Inventory, Refusal> {
    if raw.get().len() > MAX_INVENTORY {
        return Err(refuse::inventory_too_large());
    }
    Inventory::parse(raw.get()).map_err(|e| refuse::inventory_invalid(&e.to_string()))
}

fn boot_id(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, b)| match at {
            8 | 13 | 18 | 23 => b == b'-',
            _ => matches!(b, b'0'..=b'9' | b'a'..=b'f'),
        })
}
