//! A notice as one line with its fields (the table in docs/journal.md). Pure.

use jiff::Timestamp;

use super::Context;
use super::damper::Room;
use crate::join::event::Now;
use crate::join::fault::{Class, Code, Fault};
use crate::join::notice::Notice;
use console::text::Safe;

/// syslog(3) priorities that we use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// Trust is concerned.
    Crit,
    /// A person is needed.
    Err,
    /// It goes on by itself.
    Warning,
    /// A state change.
    Notice,
    /// A step, a verb.
    Info,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// `MESSAGE_ID`; empty for a line that has none.
    pub id: &'static str,
    /// `PRIORITY`.
    pub priority: Priority,
    /// `MESSAGE`.
    pub text: String,
    /// The other fields.
    pub fields: Fields,
    /// Which cap it counts towards.
    pub(super) room: Room,
}

/// The `STRATUM_*` fields of one line, besides those of every line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as the fields of docs/journal.md")]
pub struct Fields {
    pub state: Option<String>,
    pub previous: Option<String>,
    pub code: Option<&'static str>,
    pub detail: Option<String>,
    pub step: Option<String>,
    pub attempt: Option<u32>,
    pub next: Option<String>,
    pub chain: Option<String>,
    pub http: Option<u16>,
    pub request_id: Option<String>,
    pub verb: Option<&'static str>,
    pub result: Option<String>,
    pub ms: Option<u64>,
}

/// What the first line tells.
#[derive(Debug, Clone, Copy)]
pub struct Start<'a> {
    /// Version of the agent.
    pub version: &'a str,
    /// The running OS's release.
    pub release: Option<&'a str>,
    /// The state it resumes in, in the API's words.
    pub state: &'a str,
    /// How often it was started.
    pub start: u64,
}

macro_rules! ids {
    ($($name:ident = $id:literal),+ $(,)?) => { $(const $name: &str = concat!("5b1f0d3a6c5e4d0e9a0b7f0c2d1e4a", $id);)+ };
}
ids! {
    START = "01", STATE = "02", PROVEN = "03", FAULT = "04", RECOVERED = "05",
    STEP = "06", VERB = "07", DIAGNOSIS = "08", SECURITY = "09",
}

/// The line of a notice. `step_took` is how long the step that ended ran, in milliseconds.
pub(super) fn of(notice: &Notice, context: &Context<'_>, now: Now, step_took: Option<u64>) -> Message {
    match notice {
        Notice::State { from, to, why } => {
            let why =
                why.as_ref().filter(|why| !why.is_empty()).map(|why| format!(": {why}")).unwrap_or_default();
            let text = format!("{from} -> {to}{why}{}", who(context));
            let fields =
                Fields { state: Some(to.to_string()), previous: Some(from.to_string()), ..Fields::default() };
            Message { fields, room: Room::Always, ..plain(STATE, Priority::Notice, text) }
        }
        Notice::Proven { pin } => {
            let text =
                format!("the cluster proved the join code; pin sha256:{}... stored", pin.short_hex(16));
            Message { room: Room::Always, ..plain(PROVEN, Priority::Notice, text) }
        }
        Notice::Fault { doing, fault, retry_ms, attempt } => of_fault(doing, fault, *retry_ms, *attempt, now),
        Notice::Recovered { after_ms, attempts } => {
            let text = format!("the founder answers again after {} ({attempts} attempts)", span(*after_ms));
            plain(RECOVERED, Priority::Notice, text)
        }
        Notice::Step { step, title, index, total, status, error } => {
            let place = match (index, total) {
                (Some(index), Some(total)) => format!("step {index} of {total}"),
                (Some(index), None) => format!("step {index}"),
                _ => "step".to_owned(),
            };
            let took = step_took.map(|ms| format!(" in {}", took(ms))).unwrap_or_default();
            let took = if *status == "running" { String::new() } else { took };
            let error = error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
            let text = format!("{place} {status}{took}: {step} ({title}){error}");
            let priority = if *status == "failed" { Priority::Err } else { Priority::Info };
            let fields = Fields { step: Some(step.to_string()), ms: step_took, ..Fields::default() };
            let room = if *status == "failed" { Room::Always } else { Room::Step };
            Message { fields, room, ..plain(STEP, priority, text) }
        }
        Notice::Upgrade { step, fault, retry_ms, attempt } => {
            let next = now.wall_ms.saturating_add(i64::try_from(*retry_ms).unwrap_or(i64::MAX));
            let text = format!(
                "upgrade attempt {attempt} failed at {}: {} Next attempt at {}, what was downloaded is kept. What you can do: {}",
                step.name(),
                fault.what,
                minute(next),
                fault.todo
            );
            let fields = Fields {
                code: Some(fault.code.as_str()),
                step: Some(step.name().to_owned()),
                attempt: Some(*attempt),
                next: Some(rfc3339(next)),
                ..Fields::default()
            };
            Message { fields, room: Room::Always, ..plain(FAULT, Priority::Warning, text) }
        }
        Notice::Verb { verb, result } => {
            let text = format!("helper {verb}: {result}");
            let fields = Fields { verb: Some(verb), result: Some(result.to_string()), ..Fields::default() };
            let priority = if *result == "ok" { Priority::Info } else { Priority::Warning };
            Message { fields, ..plain(VERB, priority, text) }
        }
        Notice::Security(text) => {
            Message { room: Room::Always, ..plain(SECURITY, Priority::Crit, text.to_string()) }
        }
        Notice::Diagnosis(text) => plain(DIAGNOSIS, Priority::Warning, format!("network: {text}")),
        Notice::Info(text) => plain("", Priority::Info, text.to_string()),
    }
}

pub(super) fn of_start(start: &Start<'_>, context: &Context<'_>) -> Message {
    let release = start.release.unwrap_or("unknown");
    let endpoint = context.endpoint.unwrap_or("not set");
    let text = format!(
        "stratum-join {} started: release {release}, state {}, endpoint {endpoint}, start {}",
        start.version, start.state, start.start
    );
    let fields = Fields { state: Some(start.state.to_owned()), ..Fields::default() };
    Message { fields, room: Room::Always, ..plain(START, Priority::Notice, text) }
}

pub(super) fn of_suppressed(lines: u64) -> Message {
    let what = if lines == 1 { "line" } else { "lines" };
    plain("", Priority::Warning, format!("suppressed {lines} {what}"))
}

/// RFC 3339 in seconds, UTC.
pub(super) fn rfc3339(wall_ms: i64) -> String {
    let at = Timestamp::from_millisecond(wall_ms).unwrap_or(Timestamp::UNIX_EPOCH);
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// `10:02Z`.
pub(super) fn minute(wall_ms: i64) -> String {
    let at = Timestamp::from_millisecond(wall_ms).unwrap_or(Timestamp::UNIX_EPOCH);
    at.strftime("%H:%MZ").to_string()
}

// === private ===

fn plain(id: &'static str, priority: Priority, text: String) -> Message {
    Message { id, priority, text, fields: Fields::default(), room: Room::Minute }
}

fn of_fault(doing: &str, fault: &Fault, retry_ms: Option<u64>, attempt: u32, now: Now) -> Message {
    let trust = matches!(fault.code, Code::FounderKeyChanged | Code::PinMismatch | Code::PairingMismatch);
    let next = match retry_ms {
        Some(ms) => format!("; next try in {} (attempt {attempt})", span(ms)),
        None => "; this waits for a person".to_owned(),
    };
    let code = fault.code.as_str();
    let text = if trust {
        let seen = |pin: &Option<Safe<64>>| {
            pin.as_ref().map_or("unknown".to_owned(), |pin| format!("sha256:{pin}..."))
        };
        match (&fault.details.expected_pin, &fault.details.seen_pin) {
            // The hardware was sent by then, to whoever proved the code.
            _ if fault.code == Code::PairingMismatch => format!("{code}: {}; do not approve", fault.detail),
            (None, None) => format!("{code}: {}; nothing was sent", fault.detail),
            (expected, found) => {
                format!("{code}: expected {}, got {}; nothing was sent", seen(expected), seen(found))
            }
        }
    } else if fault.from_founder {
        format!("{doing} failed: {code}: the founder says: > {}{next}", fault.detail)
    } else {
        let cause = [&fault.chain, &fault.detail].into_iter().find(|text| !text.is_empty());
        format!("{doing} failed: {}{next}", cause.map_or(code, Safe::as_str))
    };
    let priority = match fault.code.class() {
        _ if trust => Priority::Crit,
        Class::Retry => Priority::Warning,
        Class::Operator | Class::Final => Priority::Err,
    };
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let fields = Fields {
        code: Some(code),
        detail: some(fault.detail.as_str()),
        attempt: Some(attempt),
        next: retry_ms.map(|ms| rfc3339(now.wall_ms.saturating_add(i64::try_from(ms).unwrap_or(i64::MAX)))),
        chain: some(fault.chain.as_str()),
        http: fault.http,
        request_id: fault.request_id.as_ref().map(ToString::to_string),
        ..Fields::default()
    };
    let id = if trust { SECURITY } else { FAULT };
    let room = if trust { Room::Always } else { Room::Minute };
    Message { fields, room, ..plain(id, priority, text) }
}

/// ` (nj-8w2k4m1p, pairing 4F7-K2Q)`, as far as it is known.
fn who(context: &Context<'_>) -> String {
    match (context.join_id, context.pairing) {
        (Some(id), Some(pairing)) => format!(" ({id}, pairing {pairing})"),
        (Some(id), None) => format!(" ({id})"),
        (None, Some(pairing)) => format!(" (pairing {pairing})"),
        (None, None) => String::new(),
    }
}

/// How long something took: `0.4 s`, else as [`span`].
fn took(ms: u64) -> String {
    if ms < 10_000 { format!("{}.{} s", ms / 1000, ms % 1000 / 100) } else { span(ms) }
}

/// `130 s`, `4 min 10 s`, `3 h 2 min`.
fn span(ms: u64) -> String {
    match ms.div_ceil(1000) {
        s @ 0..=239 => format!("{s} s"),
        s @ 240..=7199 => format!("{} min {} s", s / 60, s % 60),
        s => format!("{} h {} min", s / 3600, s / 60 % 60),
    }
}
