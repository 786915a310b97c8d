//! The decision: facts in, rows out. A row is judged only while none before it is red; the first red one is the cause. Pure.

mod founder;
mod way;

pub(crate) use self::founder::is_refusal;
pub(super) use self::way::nic_name;
use super::facts::Facts;
use super::rows::{Diagnosis, Row, RowName, Status};
use console::text::Safe;

/// What stands in a row behind the cause, and in one that nothing is known for yet.
const NOT_TRIED: &str = "not tried";

/// All rows, in their order.
pub fn decide(facts: &Facts, took_ms: u64) -> Diagnosis {
    let mut red = false;
    let rows = RowName::ALL.map(|name| {
        // These two need nothing of the way, and are never red.
        let row = match name {
            RowName::Clock => founder::clock(facts),
            RowName::Proxy => founder::proxy(facts),
            _ if red => Row::skipped(name, NOT_TRIED),
            name => judge(name, facts),
        };
        red |= row.status == Status::Failed;
        row
    });
    Diagnosis {
        endpoint: Safe::clean(facts.endpoint.to_string()),
        rows: rows.into(),
        timed_out: facts.timed_out,
        took_ms,
    }
}

fn judge(name: RowName, facts: &Facts) -> Row {
    let found = match name {
        RowName::Link => way::link(facts),
        RowName::Address => way::address(facts),
        RowName::Duplicate => way::duplicate(facts),
        RowName::Route => way::route(facts),
        RowName::Neighbour => way::neighbour(facts),
        RowName::Name => way::name(facts),
        RowName::Port => way::port(facts),
        RowName::Quality => way::quality(facts),
        RowName::PathMtu => founder::mtu(facts),
        RowName::Tls => founder::tls(facts),
        RowName::Founder => founder::founder(facts),
        RowName::Pin => founder::pin(facts),
        RowName::Proof => Some(founder::proof(facts)),
        RowName::Answer => founder::answer(facts),
        RowName::Proxy | RowName::Clock => None,
    };
    found.unwrap_or_else(|| match facts.timed_out {
        true => Row::unknown(name, "no time was left for it"),
        false => Row::skipped(name, NOT_TRIED),
    })
}

#[cfg(test)]
mod tests;
