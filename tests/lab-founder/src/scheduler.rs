//! What moves by itself: expiry, places that come free, stalled flags, the end of a join, and the queue (docs/protocol.md 4).
//!
//! One join at a time, in the order of approval, only on a green cluster whose members all applied the generation (documented).

use crate::approve::deliver;
use crate::founder::Founder;
use crate::http::Handled;
use crate::model::{Join, JoinState, Member, MemberState, Switches};
use crate::store::{StoreError, Tx};
use crate::time::{DAY, MINUTE, rfc3339};

/// A proven machine that does not register gives its place back after this.
const REGISTER_MS: i64 = 15 * MINUTE;
/// A running join is flagged after this silence (documented).
const SILENT_MS: i64 = 10 * MINUTE;
/// Ended codes keep their `w` this long, so that only who knows a code learns its fate.
const KEEP_CODE_MS: i64 = 7 * DAY;

/// True when something changed that somebody may wait for.
pub(crate) fn advance(founder: &Founder, tx: &Tx<'_>, now: i64) -> Handled<bool> {
    let mut changed = forget_codes(tx, now)?;
    let switches: Switches = tx.meta("switches")?.unwrap_or_default();
    if founder.config.members_apply_at_once {
        changed |= apply_everywhere(tx)?;
    }
    let mut joins = tx.joins()?;
    let gone = |join: &Join| join.state == JoinState::Registering && now - join.proven_ms >= REGISTER_MS;
    for join in joins.iter().filter(|j| gone(j)) {
        tx.delete_join(&join.id)?;
        changed = true;
    }
    joins.retain(|join| !gone(join));
    for join in &mut joins {
        changed |= age(tx, now, join)?;
        changed |= finish(founder, tx, join)?;
    }
    changed |= queue(founder, tx, now, &switches, &mut joins)?;
    Ok(changed)
}

fn forget_codes(tx: &Tx<'_>, now: i64) -> Result<bool, StoreError> {
    for code in tx.codes()? {
        if code.dead_since(now).is_some_and(|since| now - since >= KEEP_CODE_MS) {
            tx.delete_code(&code.id)?;
        }
    }
    Ok(false)
}

fn age(tx: &Tx<'_>, now: i64, join: &mut Join) -> Result<bool, StoreError> {
    if join.state.waits() && now >= join.expires_ms() {
        join.state = JoinState::Expired;
        tx.put_join(join)?;
        return Ok(true);
    }
    if join.state.runs() && !join.stalled && now - join.last_seen_ms >= SILENT_MS {
        join.stalled = true;
        tx.put_join(join)?;
        return Ok(true);
    }
    Ok(false)
}

/// Every member but a joining one has applied the newest generation.
fn apply_everywhere(tx: &Tx<'_>) -> Result<bool, StoreError> {
    let generation = tx.generation()?;
    let mut changed = false;
    for mut member in tx.members()? {
        if member.state == MemberState::Active && member.applied_generation < generation {
            member.applied_generation = generation;
            tx.put_member(&member)?;
            changed = true;
        }
    }
    Ok(changed)
}

/// A join is done when every member in joining or active applied its generation (documented).
fn finish(founder: &Founder, tx: &Tx<'_>, join: &mut Join) -> Result<bool, StoreError> {
    let (JoinState::Installing, Some(node_id), Some(generation)) =
        (join.state, join.node_id.clone(), join.generation)
    else {
        return Ok(false);
    };
    let Some(mut own) = tx.member(&node_id)? else { return Ok(false) };
    if join.firstboot_done && founder.config.joiner_applies_when_done && own.applied_generation < generation {
        own.applied_generation = tx.generation()?;
        tx.put_member(&own)?;
    }
    if lagging(&tx.members()?, generation).is_some() {
        return Ok(false);
    }
    own.state = MemberState::Active;
    own.applied_generation = tx.next("generation")?;
    tx.put_member(&own)?;
    join.state = JoinState::Joined;
    join.stalled = false;
    tx.put_join(join)?;
    tx.delete_delivery(&join.id)?;
    if founder.config.members_apply_at_once {
        apply_everywhere(tx)?;
    }
    Ok(true)
}

fn queue(founder: &Founder, tx: &Tx<'_>, now: i64, switches: &Switches, joins: &mut [Join]) -> Handled<bool> {
    let mut changed = false;
    let running = joins.iter().find(|j| j.state.runs()).map(|j| name(j).to_owned());
    let members = tx.members()?;
    let generation = tx.generation()?;
    let mut queued: Vec<&mut Join> = joins.iter_mut().filter(|j| j.state == JoinState::Approved).collect();
    queued.sort_by_key(|j| j.approved_order);
    let removing = members.iter().any(|m| m.state == MemberState::Removing);
    let mut first = if !switches.cluster_green {
        Some("the cluster is not green".to_owned())
    } else if let Some(name) = running {
        Some(format!("join of {name} is running"))
    } else if switches.removal_running || removing {
        Some("a removal is running".to_owned())
    } else {
        lagging(&members, generation).map(|m| format!("{} has not applied generation {generation}", m.name))
    };
    let mut place = 1;
    for join in queued {
        let reason = match &first {
            None => {
                deliver::start(founder, tx, now, join)?;
                changed = true;
                if join.state.runs() {
                    first = Some(format!("join of {} is running", name(join)));
                }
                continue;
            }
            Some(reason) if place == 1 => reason.clone(),
            Some(_) => format!("place {place} in the queue"),
        };
        place += 1;
        if join.wait_reason.as_deref() != Some(&reason) {
            join.wait_reason = Some(reason);
            tx.put_join(join)?;
            changed = true;
        }
    }
    Ok(changed)
}

/// The first member that has not applied a generation.
fn lagging(members: &[Member], generation: u64) -> Option<&Member> {
    let counts = |m: &&Member| matches!(m.state, MemberState::Joining | MemberState::Active);
    members.iter().filter(counts).find(|m| m.applied_generation < generation)
}

/// A running join stops: its member row is out of every peer list, under a new generation.
pub(crate) fn fail(tx: &Tx<'_>, now: i64, join: &mut Join) -> Result<(), StoreError> {
    join.state = JoinState::Failed;
    join.stalled = false;
    let Some(node_id) = &join.node_id else { return Ok(()) };
    if let Some(member) = tx.member(node_id)?.filter(|m| m.state == MemberState::Joining) {
        let failed = join.failed.as_ref();
        fail_member(tx, now, member, failed.map(|f| f.step.as_str()), failed.map(|f| f.error.as_str()))?;
    }
    Ok(())
}

/// Moves a joining member to failed.
pub(crate) fn fail_member(
    tx: &Tx<'_>,
    now: i64,
    mut member: Member,
    step: Option<&str>,
    error: Option<&str>,
) -> Result<Member, StoreError> {
    member.state = MemberState::Failed;
    member.failed_step = step.map(str::to_owned);
    member.failed_error = error.map(str::to_owned);
    // The lab has no rafts, so it is done at once.
    member.raft_cleanup_at = Some(rfc3339(now));
    tx.next("generation")?;
    tx.put_member(&member)?;
    Ok(member)
}

/// What a join is called in texts.
pub(crate) fn name(join: &Join) -> &str {
    join.assignment.as_ref().map_or(join.hostname.as_str(), |a| a.name.as_str())
}
