//! From the first large packet to the refusal: the rows that the founder answers, and the two that only this machine knows. Pure.

use crate::diagnosis::facts::{Facts, MtuFact, ProofFact};
use crate::diagnosis::rows::{Row, RowName};
use crate::join::advice::{Context, JOIN_COMMAND, advice_of_stop};
use crate::join::fault::{Code, Fault};
use crate::protocol::encoding::Pin;
use console::snapshot::Synced;

/// Two clocks may differ by so much.
const CLOCK_SLACK_MS: u64 = 5 * 60 * 1_000;
/// 2026-01-01: no machine that runs this has an earlier date by right.
const NOT_BEFORE_MS: i64 = 1_767_225_600_000;

pub(super) fn mtu(facts: &Facts) -> Option<Row> {
    let name = RowName::PathMtu;
    Some(match facts.mtu? {
        MtuFact::Passes => Row::ok(name, "a request of 1,600 bytes is answered"),
        MtuFact::NotReached => Row::skipped(name, "it does not get as far as that"),
        MtuFact::Silent => Row::skipped(name, "nothing is answered, whatever the size of the packets"),
        MtuFact::Lost { passes } => {
            let nic = facts.nic_of_way().map_or("this machine's card".to_owned(), |nic| nic.name.to_string());
            Row::failed(
                name,
                format!("packets above {passes} bytes are lost: set MTU {passes} on {nic} or fix the path"),
                &[
                    "The MTU of a tunnel or a switch port on the way, or a firewall that drops ICMP.",
                    &format!("To go on at once: ip link set {nic} mtu {passes}"),
                ],
            )
        }
    })
}

pub(super) fn tls(facts: &Facts) -> Option<Row> {
    let name = RowName::Tls;
    let found = facts.founder.as_ref()?;
    let (None, Err(fault)) = (&found.ca, &found.answer) else {
        return Some(Row::ok(name, "TLS 1.3 with the chain of a join listener"));
    };
    let other =
        "Is this the address and the port of the cluster's join listener? Another service may own it.";
    Some(match fault.code {
        Code::TlsFailed => Row::failed(
            name,
            format!("{} does not speak the join protocol: {}", facts.endpoint, fault.detail),
            &[other],
        ),
        Code::Local => Row::unknown(name, format!("it could not be tried: {}", fault.detail)),
        _ => Row::failed(
            name,
            format!("{} takes the connection, then: {}", facts.endpoint, fault.detail),
            &["The founder itself: it may hang or be overloaded.", other],
        ),
    })
}

pub(super) fn founder(facts: &Facts) -> Option<Row> {
    let name = RowName::Founder;
    let found = facts.founder.as_ref()?;
    let portal = "A captive portal, a proxy or a load balancer in front of the founder, or another service at this port.";
    let fault = match &found.answer {
        Ok(_) => return Some(Row::ok(name, "it speaks stratum-join/1")),
        Err(fault) => fault,
    };
    found.ca?;
    Some(match (fault.code, fault.http) {
        (Code::ProtocolUnsupported, _) => Row::failed(
            name,
            "the cluster speaks another join protocol than this machine",
            &["Install this machine from an ISO of the cluster's release."],
        ),
        (_, Some(400..)) if fault.from_founder => Row::ok(name, "it answers as a founder does"),
        (_, Some(status @ 400..)) => Row::failed(
            name,
            format!("something else answers there: status {status}, and not as a founder does"),
            &[portal],
        ),
        (Code::AddressUnreachable, _) => Row::failed(
            name,
            format!("the founder does not answer the request: {}", fault.detail),
            &["The founder itself: it may hang or be overloaded."],
        ),
        _ => Row::failed(name, format!("something else answers there: {}", fault.detail), &[portal]),
    })
}

pub(super) fn pin(facts: &Facts) -> Option<Row> {
    let name = RowName::Pin;
    let seen = facts.founder.as_ref()?.ca?;
    let short = |pin: &Pin| format!("{}...", pin.short_hex(16));
    Some(match facts.past.pins.first() {
        None => Row::skipped(name, format!("no key is known yet; this one's is {}", short(&seen))),
        Some(_) if is_pinned(facts) => Row::ok(name, format!("the known key answers, {}", short(&seen))),
        Some(known) => Row::failed(
            name,
            format!(
                "another cluster answers at this address: its key is {}, the known one {}",
                short(&seen),
                short(known)
            ),
            &[
                "The address: which cluster has it now? If the cluster was made anew, give this machine its new join code:",
                JOIN_COMMAND,
            ],
        ),
    })
}

pub(super) fn proof(facts: &Facts) -> Row {
    let name = RowName::Proof;
    let answers = facts.founder.as_ref().and_then(|found| found.ca);
    match facts.past.proof {
        ProofFact::NotYet => Row::skipped(name, "not tried yet, and not tried here: each try counts"),
        ProofFact::Good => Row::ok(name, "the cluster proved the join code"),
        ProofFact::Failed(Some(who)) if answers.is_some_and(|ca| !ca.same(&who)) => {
            Row::skipped(name, "the one that did not prove the code is gone; it is tried anew with this one")
        }
        ProofFact::Failed(_) => Row::failed(
            name,
            "the cluster did not prove the join code: mistyped, or another cluster",
            &["Compare the address and the code with the cluster's. Then run:", JOIN_COMMAND],
        ),
    }
}

pub(super) fn answer(facts: &Facts) -> Option<Row> {
    let name = RowName::Answer;
    let fresh = match facts.founder.as_ref().map(|found| &found.answer) {
        Some(Err(fault)) if fault.from_founder => Some(fault),
        _ => None,
    };
    let Some(fault) = fresh.or(facts.past.refusal.as_ref()) else {
        return facts.founder.as_ref().map(|_| Row::ok(name, "nothing is refused"));
    };
    let address = facts.endpoint.to_string();
    let context = Context {
        address: &address,
        release: facts.past.release.as_str(),
        has_code: true,
        ..Context::default()
    };
    let told = advice_of_stop(fault, &context);
    let what = told.what.trim_end_matches('.');
    let text = match fault.http {
        Some(status @ 500..) => format!("the founder answers {status}: {}", lower(what)),
        _ => lower(what),
    };
    let todo: Vec<&str> = told.todo.iter().map(String::as_str).collect();
    Some(Row::failed(name, text, &todo))
}

pub(super) fn proxy(facts: &Facts) -> Row {
    match facts.proxy {
        Some(setting) => {
            Row::unknown(RowName::Proxy, format!("{setting} is set and not used for the founder"))
                .look_at(&["The founder is always reached directly: no proxy may be needed on the way."])
        }
        None => Row::skipped(RowName::Proxy, "none is set, none is used"),
    }
}

pub(super) fn clock(facts: &Facts) -> Row {
    let name = RowName::Clock;
    let time = |ms: i64| crate::report::rfc3339(ms).replace('T', " ");
    let hello = facts.founder.as_ref().and_then(|found| found.answer.as_ref().ok().copied());
    let told =
        hello.filter(|_| is_pinned(facts)).and_then(|hello| Some((hello.server_time_ms?, hello.our_time_ms)));
    let harmless = "the join does not depend on it";
    let look = ["The machine's clock battery, and the NTP servers of its network."];
    if let Some((theirs, ours)) = told {
        let apart = theirs.abs_diff(ours);
        if apart <= CLOCK_SLACK_MS {
            return Row::ok(name, format!("{}, as the cluster's", time(ours)));
        }
        let side = if theirs > ours { "behind" } else { "ahead" };
        let text = format!("this machine's clock is {} {side}; {harmless}", span(apart));
        return Row::unknown(name, text).look_at(&look);
    }
    let wall = facts.clock.wall_ms;
    if wall < NOT_BEFORE_MS {
        return Row::unknown(name, format!("{}: it is not set; {harmless}", time(wall))).look_at(&look);
    }
    match facts.clock.synced {
        Synced::Yes => Row::ok(name, format!("{}, synchronised", time(wall))),
        Synced::No => Row::unknown(name, format!("{}, not synchronised", time(wall))),
        Synced::Unknown => Row::skipped(name, format!("{}; nothing says whether it is right", time(wall))),
    }
}

// === private ===

/// Whether the key that answers is one that we know.
fn is_pinned(facts: &Facts) -> bool {
    let ca = facts.founder.as_ref().and_then(|found| found.ca);
    ca.is_some_and(|ca| facts.past.pins.iter().any(|pin| pin.same(&ca)))
}

/// A refusal that a diagnosis repeats: what the founder said of this machine, not what we found out about the way.
pub(crate) fn is_refusal(fault: &Fault) -> bool {
    let of_the_way = matches!(
        fault.code,
        Code::CodeNotProven
            | Code::PinMismatch
            | Code::FounderKeyChanged
            | Code::AddressUnreachable
            | Code::TlsFailed
            | Code::ResponseInvalid
            | Code::ResponseTooLarge
            | Code::ProtocolUnsupported
            | Code::Local
            | Code::Tampered
            | Code::CodeMalformed
            | Code::UrlMalformed
    );
    !of_the_way
}

fn lower(sentence: &str) -> String {
    let mut chars = sentence.chars();
    match chars.next() {
        Some(first) => first.to_lowercase().chain(chars).collect(),
        None => String::new(),
    }
}

/// `56 years`, `3 days`, `7 hours`, `6 minutes`.
fn span(ms: u64) -> String {
    let minutes = ms / 60_000;
    let (n, unit) = match minutes {
        0..120 => (minutes, "minute"),
        120..2_880 => (minutes / 60, "hour"),
        2_880..1_051_200 => (minutes / 1_440, "day"),
        _ => (minutes / 525_960, "year"),
    };
    if n == 1 { format!("1 {unit}") } else { format!("{n} {unit}s") }
}
