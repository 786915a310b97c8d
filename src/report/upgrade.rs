//! The self-upgrade as it is shown: its six steps, its figures, its fault. Pure.

use console::snapshot as shown;
use console::text::{Safe, Text};

use crate::join::event::Now;
use crate::join::state::{Lane, Phase, State};
use crate::join::upgrade::{Ask, Failed, Figures, UpgradeStep};
use crate::protocol::wire::StepStatus;
use crate::upgrade::fetch;
use crate::upgrade::plan::Waiting;

/// An upgrade is under way or waited for here.
pub(super) fn is_ours(state: &State, phase: Phase) -> bool {
    phase == Phase::NeedsUpgrade && state.d.upgrade.is_some()
}

/// An attempt is under way, or something of it is being taken back: not a time to power the machine off.
pub(super) fn is_at_work(state: &State) -> bool {
    let waits = state.d.upgrade.as_ref().is_some_and(|upgrade| upgrade.failure.is_some());
    !waits || matches!(state.v.upgrading.lane, Lane::Busy(..))
}

/// The offer, the attempt and the source.
pub(super) fn about(state: &State) -> Option<shown::Upgrade> {
    let view = state.v.view.as_deref().and_then(|view| view.upgrade.as_ref());
    let ours = state.d.upgrade.as_ref();
    let (from, to) = match (view, ours) {
        (Some(offer), _) => (&offer.from, &offer.to),
        (None, Some(upgrade)) => (&upgrade.from, &upgrade.to),
        (None, None) => return None,
    };
    let mirror = view.is_some_and(|offer| !offer.source.is_empty());
    let download = match &state.v.upgrading.figures {
        Some(Figures::Download(progress)) => Some(progress),
        _ => None,
    };
    Some(shown::Upgrade {
        from: Safe::clean(from.as_str()),
        to: Safe::clean(to.as_str()),
        source: if mirror { shown::ReleaseSource::Mirror } else { shown::ReleaseSource::Founder },
        attempt: ours.map_or(0, |upgrade| upgrade.attempt),
        host: state.v.upgrading.host.as_ref().map(|host| Safe::clean(host.as_str())),
        boot_failures: ours.map_or(0, |upgrade| upgrade.boot_failures),
        kept: download.map_or(0, |progress| progress.kept),
        streams: download.map_or(0, |progress| u32::try_from(progress.streams).unwrap_or(u32::MAX)),
        waiting: match (state.v.upgrading.lane, download.and_then(|progress| progress.waiting)) {
            (Lane::Delayed(_), _) => Some(shown::UpgradeWait::Retry),
            (_, Some(Waiting::Busy)) => Some(shown::UpgradeWait::FounderBusy),
            (_, Some(Waiting::Source)) => Some(shown::UpgradeWait::Source),
            _ => asks_cluster(state).then_some(shown::UpgradeWait::FounderAnswer),
        },
    })
}

/// One line: what it does, or how it failed.
pub(super) fn headline(state: &State) -> String {
    let Some(upgrade) = &state.d.upgrade else { return String::new() };
    if let Some(failed) = &upgrade.failure {
        return format!("upgrade attempt {} failed: {}", upgrade.attempt, failed.step.title());
    }
    let step = state.v.upgrading.steps.last().and_then(|line| Some((line.step.index()?, line.step.title())));
    let step = step.map_or(String::new(), |(index, title)| {
        format!(", step {index} of {}: {title}", UpgradeStep::ALL.len())
    });
    format!("upgrading this machine {} -> {}{step}", upgrade.from, upgrade.to)
}

fn asks_cluster(state: &State) -> bool {
    matches!(state.v.upgrading.ask, Ask::Due | Ask::Sent)
}

/// The six, each as it stands.
pub(super) fn steps(state: &State, now: Now) -> Vec<shown::Step> {
    let lines = &state.v.upgrading.steps;
    // Until the OS that runs after a restart is judged, the restart is what is under way.
    let restarted = lines.is_empty() && state.d.upgrade.as_ref().is_some_and(|upgrade| upgrade.is_armed());
    let restarted = restarted.then_some(UpgradeStep::Boot);
    let failed = state.d.upgrade.as_ref().and_then(|upgrade| Some(upgrade.failure.as_ref()?.step));
    let reached = lines.iter().map(|line| line.step).chain(failed).chain(restarted);
    let last = reached.filter_map(UpgradeStep::index).max().unwrap_or(0);
    let total = UpgradeStep::ALL.len() as u32;
    UpgradeStep::ALL
        .into_iter()
        .zip(1..)
        .map(|(step, index)| {
            let line = lines.iter().find(|line| line.step == step);
            let status = match line.map(|line| line.status) {
                Some(StepStatus::Running) => shown::StepStatus::Running,
                Some(StepStatus::Done) => shown::StepStatus::Done,
                Some(StepStatus::Failed) => shown::StepStatus::Failed,
                None if restarted == Some(step) => shown::StepStatus::Running,
                // After a restart only this is known of the attempt.
                None if failed == Some(step) => shown::StepStatus::Failed,
                // On a trial boot those before it are behind us.
                None if index < last => shown::StepStatus::Done,
                None => shown::StepStatus::Waiting,
            };
            shown::Step {
                name: Safe::clean(step.name()),
                title: Safe::clean(step.title()),
                index,
                total,
                status,
                elapsed_ms: line
                    .map(|line| line.ended_ms.unwrap_or(now.boot_ms).saturating_sub(line.began_ms)),
                detail: detail(state, step).filter(|_| status == shown::StepStatus::Running),
            }
        })
        .collect()
}

fn detail(state: &State, step: UpgradeStep) -> Option<Text> {
    let text = match (&state.v.upgrading.figures, step) {
        (Some(Figures::Download(progress)), UpgradeStep::Download) => {
            match (progress.waiting, progress.phase) {
                (Some(Waiting::Busy), _) => "founder busy, waiting",
                (Some(Waiting::Source), _) => "no answer, trying again",
                (None, fetch::Phase::Checking) => "looking at what is here",
                (None, fetch::Phase::Downloading) => return None,
            }
        }
        _ if asks_cluster(state) => "asking the cluster once more",
        _ => return None,
    };
    Some(Safe::clean(text))
}

/// Bytes, in the steps that have some.
pub(super) fn progress(state: &State) -> Option<shown::Progress> {
    let (done, total, rate_per_sec, eta_sec) = match state.v.upgrading.figures.as_ref()? {
        Figures::Download(progress) if progress.phase == fetch::Phase::Checking => {
            (progress.checked, progress.total, None, None)
        }
        Figures::Download(progress) => (progress.done, progress.total, progress.rate, progress.eta),
        Figures::Plain(done, total) => (*done, *total, None, None),
    };
    Some(shown::Progress { unit: shown::Unit::Bytes, done, total, rate_per_sec, eta_sec })
}

/// How the last attempt failed, and when the next one begins.
pub(super) fn fault(state: &State) -> Option<shown::Fault> {
    let Failed { step, fault, at_boot_ms, wait_ms, .. } = state.d.upgrade.as_ref()?.failure.as_ref()?;
    let due = at_boot_ms.saturating_add(*wait_ms);
    // Not before the cluster has said again that it wants it.
    let retry_at_mono = matches!(state.v.upgrading.lane, Lane::Delayed(_)).then_some(due);
    let (what, why) = sentences(fault.what.as_str());
    Some(shown::Fault {
        code: Safe::clean(fault.code.as_str()),
        kind: shown::FaultKind::Local,
        verified: true,
        step: Some(Safe::clean(step.name())),
        step_title: Some(Safe::clean(step.title())),
        message: Safe::clean(what),
        why: (!why.is_empty()).then(|| Safe::clean(why)),
        what_to_do: vec![Safe::clean(fault.todo.as_str())],
        retry_at_mono,
        details: shown::FaultDetails::default(),
    })
}

/// The first sentence and the rest.
fn sentences(text: &str) -> (&str, &str) {
    text.split_once(". ").map_or((text, ""), |(first, rest)| (first, rest))
}
