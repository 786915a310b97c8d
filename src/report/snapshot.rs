//! `snapshot`: state and facts in, everything that may be shown out. Pure.

use console::snapshot as shown;
use console::text::Safe;
use data_encoding::HEXLOWER;

use super::machine::Machine;
use super::{upgrade, words};
use crate::diagnosis::rows::{self, RowName};
use crate::join::advice::{Advice, Context, advice, advice_of_stop};
use crate::join::event::Now;
use crate::join::fault::{Class, Code, Fault};
use crate::join::state::{Handoff, Lane, Phase, Proof, Slot, Stage, State, Trouble};
use crate::protocol::wire::StepStatus;

/// A network fault is shown from this many in a row (docs/protocol.md, retry).
const SHOWN_FROM: u32 = 3;
/// An answer that makes no sense is shown from this many in a row.
const NONSENSE_FROM: u32 = 5;

/// What does not come from the state.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// This process.
    pub agent: Agent,
    /// The hardware, once read.
    pub machine: Machine,
    /// The last lines for the log screen, oldest first.
    pub log: Vec<shown::LogLine>,
    /// The longest gap until the next write.
    pub heartbeat_ms: u64,
    /// Whether the clock is synchronised.
    pub synced: shown::Synced,
    /// The journal cannot be written.
    pub journal_fault: Option<Fault>,
    /// The saved request cannot be read.
    pub request_fault: Option<Fault>,
    /// The control socket is open: the keys of the console reach this agent.
    pub control: bool,
    /// The chassis has a light that can be asked for.
    pub light: bool,
}

/// The process that writes the snapshot.
#[derive(Debug, Clone, Default)]
pub struct Agent {
    /// Its version.
    pub version: &'static str,
    /// Its process id.
    pub pid: u32,
    /// When it started, boot clock in milliseconds.
    pub started_mono: u64,
    /// How often it was started before in this boot.
    pub restarts: u32,
}

/// Everything that may be shown. `seq` counts content changes.
pub fn snapshot(state: &State, facts: &Facts, now: Now, seq: u64) -> shown::Snapshot {
    let phase = state.phase();
    let Present { fault, doing, retry_at } = present_fault(state, facts);
    let release = facts.machine.machine.release.as_ref().map_or("", |r| r.as_str());
    let request = state.v.request.as_ref();
    let context = Context {
        address: request.map_or("", |r| r.endpoint.as_str()),
        retry_secs: retry_at.map(|at| at.saturating_sub(now.boot_ms).div_ceil(1_000)),
        release,
        has_code: request.is_some_and(|r| r.has_code),
        code_looks_mistyped: request.is_some_and(|r| r.has_code && !r.code_check_fits),
    };
    let stopped = state.d.stop.as_ref().is_some_and(|stop| fault.as_ref() == Some(stop));
    let told =
        fault.as_ref().map(|f| if stopped { advice_of_stop(f, &context) } else { advice(f, &context) });
    let told = told.map(|told| match (&fault, &state.v.trouble) {
        (Some(fault), Some(trouble)) if trouble.fault == *fault && !stopped => {
            found_on_the_way(told, fault, state, context.address)
        }
        _ => told,
    });
    let failure = state.d.handoff.as_ref().and_then(|h| h.failure.clone());
    let handoff = state.d.handoff.as_ref();
    let steps = steps(state, phase, &facts.machine, now);
    let record = state.d.registration.as_ref();
    let view = state.v.view.as_deref();
    let over = matches!(phase, Phase::Rejected | Phase::Expired);
    let code = record.map(|r| r.pairing_code.clone()).filter(|_| agreed(state));

    shown::Snapshot {
        schema: shown::SCHEMA,
        seq,
        written_at: Safe::clean(rfc3339(now.wall_ms)),
        written_mono: now.boot_ms,
        heartbeat_ms: facts.heartbeat_ms,
        headline: Safe::clean(match upgrade::is_ours(state, phase) {
            true => upgrade::headline(state),
            false => words::headline(phase, told.as_ref(), &headline_more(state, phase)),
        }),
        next: next(state, phase, told.as_ref()),
        agent: shown::Agent {
            version: Safe::clean(facts.agent.version),
            pid: facts.agent.pid,
            started_mono: facts.agent.started_mono,
            restarts: facts.agent.restarts,
            exit: None,
        },
        degraded: state.v.degraded.clone(),
        clock: shown::Clock { synced: facts.synced },
        machine: facts.machine.machine.clone(),
        network: network(state, facts),
        cluster: cluster(state, phase),
        state: state_word(phase),
        state_raw: record.map(|r| Safe::clean(r.state.as_str())),
        state_since_mono: state.v.state_since_ms,
        pairing_code: if over { None } else { code.clone() },
        code_hint: request.and_then(|r| r.code_hint.clone()).map(|h| Safe::clean(h.as_str())),
        node_key: state.identity().map(|i| Safe::clean(HEXLOWER.encode(&i.client_fp[..16]))),
        registration: shown::Registration {
            join_id: record.map(|r| Safe::clean(r.join_id.as_str())),
            attempt: handoff
                .and_then(|h| h.attempt)
                .map_or(register_attempt(state), |a| u32::try_from(a).unwrap_or(u32::MAX)),
            registered_mono: state.v.registered_ms,
            expires_at: view.and_then(|v| v.expires_at.as_ref()).map(|t| Safe::clean(t.as_str())),
            approved_mono: state.v.approved_ms,
            wait_reason: view.and_then(|v| v.wait_reason.as_ref()).map(|t| Safe::clean(t.as_str())),
            reject_reason: reject_reason(state),
            node_id: handoff.and_then(|h| h.node_id.clone()),
            last_pairing_code: if over { code } else { None },
        },
        phase: match phase {
            Phase::NeedsUpgrade => shown::Phase::Upgrade,
            Phase::Delivering | Phase::Installing | Phase::Joined | Phase::Failed => shown::Phase::Install,
            _ => shown::Phase::Register,
        },
        progress: if upgrade::is_ours(state, phase) {
            upgrade::progress(state)
        } else {
            install_progress(handoff, phase)
        },
        upgrade: upgrade::about(state).filter(|_| phase == Phase::NeedsUpgrade),
        fault: shown_fault(state, phase, fault.as_ref(), told.as_ref(), failure, retry_at, doing),
        steps,
        last_message: state
            .v
            .last_line
            .as_ref()
            .filter(|_| matches!(phase, Phase::Installing | Phase::Failed))
            .map(|(text, at)| shown::LastMessage { text: text.clone(), at_mono: *at }),
        do_not_power_off: matches!(phase, Phase::Delivering | Phase::Installing)
            || (upgrade::is_ours(state, phase) && upgrade::is_at_work(state)),
        actions: actions(state, facts),
        hardware: facts.machine.hardware.clone(),
        log: facts.log.clone(),
    }
}

/// What the keys of the console can do now.
pub fn actions(state: &State, facts: &Facts) -> shown::Actions {
    let open = facts.control && state.d.joined.is_none();
    shown::Actions {
        retry: open && state.can_retry(),
        check: open && state.can_check(),
        identify: open && facts.light,
    }
}

/// What the diagnosis found says more than how the last call ended.
fn found_on_the_way(told: Advice, fault: &Fault, state: &State, address: &str) -> Advice {
    let Some(cause) = state.v.checks.last().and_then(|found| found.cause()) else { return told };
    let of_the_way = matches!(
        fault.code,
        Code::AddressUnreachable | Code::TlsFailed | Code::ResponseInvalid | Code::ResponseTooLarge
    );
    if !of_the_way {
        return told;
    }
    let what = match cause.name {
        name if name < RowName::Tls => format!("Nothing answers at {address}: {}.", cause.text),
        _ => told.what,
    };
    // With the number it has on the screen, so that the two are found together.
    let (number, title) = cause.name.check();
    let mut todo: Vec<String> = cause.look_at.iter().map(ToString::to_string).collect();
    if let Some(first) = todo.first_mut() {
        let rest = first.chars().skip(1);
        let lower: String = first.chars().take(1).flat_map(char::to_lowercase).chain(rest).collect();
        *first = format!("{number} {title}: {lower}");
    }
    Advice { what, todo, ..told }
}

/// Only a code that both sides agreed on is shown.
fn agreed(state: &State) -> bool {
    state.d.registration.as_ref().is_some_and(|r| r.state.as_str() != "registering")
        && state.d.stop.as_ref().is_none_or(|f| f.code != Code::PairingMismatch)
}

/// Why it was rejected, in the founder's words; after a restart from what was kept.
fn reject_reason(state: &State) -> Option<console::text::Text> {
    let told = state.v.view.as_deref().and_then(|view| view.reason.as_ref()).map(|t| Safe::clean(t.as_str()));
    let stop = state.d.stop.as_ref().filter(|s| s.code == Code::JoinRejected && s.from_founder);
    told.or_else(|| stop.map(|stop| Safe::clean(stop.detail.as_str())))
}

fn state_word(phase: Phase) -> shown::State {
    match phase {
        Phase::NoRequest | Phase::Starting => shown::State::Starting,
        Phase::Registering => shown::State::Registering,
        Phase::NeedsUpgrade => shown::State::NeedsUpgrade,
        Phase::Pending => shown::State::Pending,
        Phase::Approved => shown::State::Approved,
        Phase::Delivering => shown::State::Delivering,
        Phase::Installing => shown::State::Installing,
        Phase::Joined => shown::State::Joined,
        Phase::Failed => shown::State::Failed,
        Phase::Rejected => shown::State::Rejected,
        Phase::Expired => shown::State::Expired,
        Phase::Refused => shown::State::Refused,
        Phase::IdentityFailed => shown::State::IdentityFailed,
        Phase::Unknown => shown::State::Unknown,
    }
}

/// The fault a person must hear of, what was being done, and when that is tried again.
#[derive(Default)]
struct Present {
    fault: Option<Fault>,
    doing: &'static str,
    /// Boot clock; `None` while it is under way, and where nothing comes by itself.
    retry_at: Option<u64>,
}

fn present_fault(state: &State, facts: &Facts) -> Present {
    let of = |fault: &Fault, doing, retry_at| Present { fault: Some(fault.clone()), doing, retry_at };
    if let Some(fault) = &facts.journal_fault {
        return of(fault, "writing the journal", None);
    }
    // With a request in hand the join goes on with that one.
    if let (Some(fault), None) = (&facts.request_fault, &state.v.request) {
        return of(fault, "reading the join request", None);
    }
    if let Some(stop) = &state.d.stop {
        return of(stop, "joining", None);
    }
    if let Some(fault) = &state.v.prepare_fault {
        let later = [later(&state.v.identity), later(&state.v.probe), delayed(state.v.erasing)];
        return of(fault, "preparing the join", later.into_iter().flatten().min());
    }
    let due = |t: &&Trouble| {
        let from = match t.fault.code {
            Code::AddressUnreachable | Code::TlsFailed | Code::ServerError | Code::Unavailable => SHOWN_FROM,
            Code::ResponseInvalid | Code::ResponseTooLarge => NONSENSE_FROM,
            Code::JoinStateConflict | Code::ProofExpired => SHOWN_FROM,
            _ => 1,
        };
        t.attempts >= from
    };
    let main = state.v.trouble.as_ref().filter(due).map(|t| (t, delayed(state.v.main)));
    let helper = || state.v.privileged_trouble.as_ref().map(|t| (t, delayed(state.v.privileged)));
    main.or_else(helper).map_or_else(Present::default, |(t, at)| of(&t.fault, t.doing, at))
}

fn delayed<T>(lane: Lane<T>) -> Option<u64> {
    if let Lane::Delayed(at) = lane { Some(at) } else { None }
}

fn later<T>(slot: &Slot<T>) -> Option<u64> {
    if let Slot::Later(at) = slot { Some(*at) } else { None }
}

fn next(state: &State, phase: Phase, told: Option<&Advice>) -> Vec<Safe<76>> {
    let upgrades = upgrade::is_ours(state, phase);
    if let (Some(fault), None, true) = (upgrade::fault(state), told, upgrades) {
        let todo: Vec<String> = fault.what_to_do.iter().map(ToString::to_string).collect();
        return words::next_lines(&todo);
    }
    match told {
        Some(advice) if !advice.todo.is_empty() && phase != Phase::Failed => words::next_lines(&advice.todo),
        Some(advice) if matches!(phase, Phase::Refused | Phase::IdentityFailed | Phase::Registering) => {
            words::next_lines(std::slice::from_ref(&advice.next))
        }
        _ => words::next_lines(&words::phase_next(phase, upgrades)),
    }
}

fn headline_more(state: &State, phase: Phase) -> String {
    match phase {
        Phase::Installing => {
            let steps = state.d.handoff.as_ref().map(|h| h.steps.as_slice()).unwrap_or_default();
            match steps.last().map(|l| (l.report.index, l.report.total)) {
                Some((Some(index), Some(total))) => format!("step {index} of {total}"),
                _ => String::new(),
            }
        }
        Phase::Joined => state
            .d
            .handoff
            .as_ref()
            .and_then(|h| h.node_id.as_ref())
            .map_or(String::new(), |n| format!("as {n}")),
        Phase::Failed => {
            let step = state.d.handoff.as_ref().and_then(|h| h.failure.as_ref()).map(|f| f.title.clone());
            step.map_or(String::new(), |s| format!("at: {s}"))
        }
        Phase::Unknown => state.word().map_or(String::new(), |w| format!("({w})")),
        _ => String::new(),
    }
}

fn network(state: &State, facts: &Facts) -> shown::Network {
    let nics = &facts.machine.nics;
    let trouble = state.v.trouble.as_ref().filter(|t| t.fault.http.is_none());
    shown::Network {
        primary: nics.first().cloned(),
        nics: nics.iter().skip(1).cloned().collect(),
        checks: match state.v.checks.last() {
            // Who asked sees that something happens.
            _ if state.v.checks.is_awaited() => rows::running(),
            Some(found) => found.checks(),
            None => Vec::new(),
        },
        failing_since_mono: trouble.map(|t| t.since_ms),
        next_try_mono: trouble.and_then(|t| t.retry_at_ms),
    }
}

fn cluster(state: &State, phase: Phase) -> shown::Cluster {
    let contact = match (&state.v.trouble, state.v.last_contact_ms) {
        (Some(t), _) if t.fault.http.is_none() => shown::Contact::Failing,
        (_, Some(_)) => shown::Contact::Ok,
        _ => shown::Contact::Never,
    };
    let changed = [state.d.stop.as_ref(), state.v.trouble.as_ref().map(|t| &t.fault)]
        .into_iter()
        .flatten()
        .any(|f| matches!(f.code, Code::FounderKeyChanged | Code::PinMismatch));
    let identity = match phase {
        Phase::IdentityFailed if changed => shown::Identity::Changed,
        Phase::IdentityFailed => shown::Identity::Failed,
        _ if state.d.trust.is_some() => shown::Identity::Proven,
        _ => shown::Identity::Unproven,
    };
    shown::Cluster {
        endpoint: state.v.request.as_ref().map_or(Safe::clean(""), |r| Safe::clean(r.endpoint.as_str())),
        contact,
        last_contact_mono: state.v.last_contact_ms,
        identity,
        // Who was restarted has not been told; the offer says it too.
        release: match (&state.v.cluster, state.offer()) {
            (Some(cluster), _) => Some(Safe::clean(cluster.release.as_str())),
            (None, offer) => offer.map(|offer| Safe::clean(offer.to.as_str())),
        },
        pin: state.d.trust.as_ref().map(|t| Safe::clean(t.pin.short_hex(32))),
        cluster_id: state.d.handoff.as_ref().and_then(|h| h.cluster_id.clone()),
    }
}

fn register_attempt(state: &State) -> u32 {
    state.v.trouble.as_ref().map_or(1, |t| t.attempts.saturating_add(1))
}

fn steps(state: &State, phase: Phase, machine: &Machine, now: Now) -> Vec<shown::Step> {
    match phase {
        Phase::NoRequest | Phase::Starting | Phase::Registering => register_steps(state, machine),
        Phase::Delivering | Phase::Installing | Phase::Joined | Phase::Failed => install_steps(state, now),
        Phase::NeedsUpgrade if state.d.upgrade.is_some() => upgrade::steps(state, now),
        _ => Vec::new(),
    }
}

/// The six lines of the registering screen.
fn register_steps(state: &State, machine: &Machine) -> Vec<shown::Step> {
    use shown::StepStatus::{Done, Running, Waiting};
    let hardware_read = matches!(state.v.probe, Slot::Ready(_));
    let reached = !matches!(state.v.proof, Proof::None) || state.d.trust.is_some();
    let proven = state.d.trust.is_some();
    let registered = state.d.registration.is_some();
    let endpoint = state.v.request.as_ref().map_or("", |r| r.endpoint.as_str());
    let summary = &machine.hardware.summary;
    let hardware =
        if hardware_read { format!("read the hardware: {summary}") } else { "read the hardware".to_owned() };
    let list = [
        ("register/hardware", hardware, hardware_read),
        ("register/key", "make the node key".to_owned(), state.identity().is_some()),
        ("register/reach", format!("reach the cluster at {endpoint}"), reached),
        ("register/prove", "the cluster proves the join code".to_owned(), proven),
        ("register/send", "send hardware, release, host name and serial".to_owned(), registered),
        ("register/pair", "agree on the pairing code".to_owned(), registered),
    ];
    let asked = state.v.request.is_some();
    let current = list.iter().position(|(_, _, done)| !done);
    let total = list.len() as u32;
    list.into_iter()
        .enumerate()
        .map(|(place, (name, title, done))| shown::Step {
            name: Safe::clean(name),
            title: Safe::clean(title),
            index: place as u32 + 1,
            total,
            status: match (done, current == Some(place) && asked) {
                (true, _) => Done,
                (false, true) => Running,
                (false, false) => Waiting,
            },
            elapsed_ms: None,
            detail: None,
        })
        .collect()
}

fn install_steps(state: &State, now: Now) -> Vec<shown::Step> {
    let Some(handoff) = &state.d.handoff else { return Vec::new() };
    let lines = handoff.steps.iter().enumerate();
    lines
        .map(|(place, line)| {
            let report = &line.report;
            let status = match report.status {
                StepStatus::Running => shown::StepStatus::Running,
                StepStatus::Done => shown::StepStatus::Done,
                StepStatus::Failed => shown::StepStatus::Failed,
            };
            shown::Step {
                name: Safe::clean(report.step.as_str()),
                title: report.title.clone(),
                index: report.index.unwrap_or(place as u32 + 1),
                total: report.total.unwrap_or(handoff.steps.len() as u32),
                status,
                elapsed_ms: Some(line.ended_ms.unwrap_or(now.boot_ms).saturating_sub(line.began_ms)),
                detail: report.error.as_ref().map(|e| Safe::clean(e.as_str())),
            }
        })
        .collect()
}

fn install_progress(handoff: Option<&Handoff>, phase: Phase) -> Option<shown::Progress> {
    if phase != Phase::Installing {
        return None;
    }
    let steps = &handoff?.steps;
    let done = steps.iter().filter(|l| l.report.status == StepStatus::Done).count() as u64;
    let total = steps.iter().filter_map(|l| l.report.total).max().map_or(0, u64::from).max(done);
    Some(shown::Progress { unit: shown::Unit::Steps, done, total, rate_per_sec: None, eta_sec: None })
}

fn shown_fault(
    state: &State,
    phase: Phase,
    fault: Option<&Fault>,
    told: Option<&Advice>,
    failure: Option<crate::join::event::StepReport>,
    retry_at: Option<u64>,
    doing: &'static str,
) -> Option<shown::Fault> {
    let mistyped = state.v.request.as_ref().is_some_and(|r| r.has_code && !r.code_check_fits);
    let view = state.v.view.as_deref();
    let by_founder = || {
        let view = view?;
        Some((view.failed_step.clone()?, view.failed_step_title.clone()?, view.failed_error.clone()))
    };
    let ours = failure
        .filter(|_| state.d.handoff.as_ref().is_some_and(|h| h.stage == Stage::Failed))
        .map(|f| (f.step, f.title, f.error));
    let failed_step = if phase == Phase::Failed { ours.or_else(by_founder) } else { None };
    // A failed install stays what is shown: that the founder is away for a moment is told beside it.
    let passing = failed_step.is_some()
        && fault.is_some_and(|f| f.code.class() == Class::Retry && f.code != Code::Local);
    if let (Some(fault), Some(told)) = (fault.filter(|_| !passing), told) {
        let kind = match (fault.code, fault.code.class()) {
            (Code::Local, _) => shown::FaultKind::Local,
            (Code::Tampered | Code::FounderKeyChanged | Code::PinMismatch | Code::PairingMismatch, _) => {
                shown::FaultKind::Tampered
            }
            (_, Class::Retry) => shown::FaultKind::Transient,
            _ => shown::FaultKind::Refused,
        };
        // The founder's own words stand in the quoted area; ours name the cause otherwise.
        // The reason of a rejection has a place of its own.
        let quoted = fault.from_founder && fault.code != Code::JoinRejected;
        let message =
            if quoted && !fault.detail.is_empty() { fault.detail.as_str() } else { told.what.as_str() };
        return Some(shown::Fault {
            code: Safe::clean(fault.code.as_str()),
            kind,
            verified: fault.verified || fault.http.is_none(),
            step: None,
            step_title: (!doing.is_empty()).then(|| Safe::clean(doing)),
            message: Safe::clean(message),
            why: Some(match fault.code {
                Code::CodeNotProven if mistyped => Safe::clean("its last character does not fit: mistyped?"),
                Code::CodeNotProven => Safe::clean("the check character fits"),
                _ => Safe::clean(&told.next),
            }),
            what_to_do: told.todo.iter().map(Safe::clean).collect(),
            retry_at_mono: retry_at,
            details: shown::FaultDetails {
                cluster_release: fault.details.cluster_release.as_ref().map(|r| Safe::clean(r.as_str())),
                iso: fault.details.iso.as_ref().map(|i| Safe::clean(i.as_str())),
            },
        });
    }
    if upgrade::is_ours(state, phase) {
        return upgrade::fault(state);
    }
    let (step, title, error) = failed_step?;
    Some(shown::Fault {
        code: Safe::clean("STEP_FAILED"),
        kind: shown::FaultKind::Local,
        verified: true,
        step: Some(Safe::clean(step.as_str())),
        step_title: Some(title),
        message: Safe::clean(error.as_ref().map_or("no error text", |e| e.as_str())),
        why: None,
        what_to_do: words::phase_next(Phase::Failed, false).iter().map(Safe::clean).collect(),
        retry_at_mono: None,
        details: shown::FaultDetails::default(),
    })
}

/// RFC 3339 in UTC with whole seconds; empty for a time that cannot be written.
pub fn rfc3339(wall_ms: i64) -> String {
    jiff::Timestamp::from_second(wall_ms.div_euclid(1_000)).map(|t| t.to_string()).unwrap_or_default()
}

#[cfg(test)]
#[path = "snapshot_tests.rs"]
mod tests;
