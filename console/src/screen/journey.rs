//! The way of a join that goes well: registering, pending, upgrading, approved, installing, joined; and the word we do not know.

use super::*;
use crate::snapshot::{Progress, Step, StepStatus, Synced, Unit};

/// How long a joined console stays before the login comes back.
const STAYS_MS: u64 = 600_000;
/// Column of a step's elapsed time.
const ELAPSED: usize = 52;
/// Column of a running step's remark while registering.
const REMARK: usize = 61;

/// S1.
pub(super) fn registering(s: &Snapshot, view: &View, width: usize, room: usize) -> Page {
    let mut body = Body::new(width);
    let shown = window(&s.steps, room.saturating_sub(5).max(3));
    for row in &shown {
        match row {
            Shown::Step(step) => {
                let mut text = step.title.ascii();
                let remark = step.detail.as_ref().map(|detail| detail.ascii()).unwrap_or_default();
                if !remark.is_empty() && (step.status != StepStatus::Running || text.len() + 8 > REMARK) {
                    text = format!("{text}: {remark}");
                } else if !remark.is_empty() && text.len() + remark.len() + 8 <= width {
                    text = at_column(&text, REMARK - 7, &remark, width.saturating_sub(7));
                }
                body.push(Row::tagged(2, tag(step.status), text));
            }
            Shown::Many(tag, text) => body.push(Row::tagged(2, *tag, text)),
        }
    }
    if s.steps.is_empty() && s.fault.is_none() && !facts::nobody_asked(s) {
        body.prose(2, "The join agent is starting its work.");
    }
    if !body.rows.is_empty() {
        body.blank();
    }
    if let Some(fault) = &s.fault {
        body.foreign("Error", 10, fault.message.as_str());
        super::stopped::advise(&mut body, s, view);
    } else if s.next.is_empty() {
        body.prose(0, "No action needed. This usually takes less than 30 seconds.");
    } else if facts::nobody_asked(s) {
        super::stopped::say(&mut body, "Do", &facts::next(s), view);
    } else {
        facts::next(s).iter().for_each(|line| body.prose(0, line));
    }
    Page::main(s, view, body)
}

/// S2.
pub(super) fn pending(s: &Snapshot, view: &View, width: usize) -> Page {
    let mut body = Body::new(width);
    let Some(code) = &s.pairing_code else {
        body.blank();
        body.prose(0, "The pairing code is not agreed on yet.");
        body.prose(0, "Do not approve this machine before its code is shown here.");
        return Page::main(s, view, body);
    };
    body.push(Row::code(format!("PAIRING CODE  {code}")));
    body.blank();
    body.prose(0, "Approve the machine whose console shows THIS code:");
    let id =
        s.registration.join_id.as_ref().map(|id| format!("join id {}", facts::token(id))).unwrap_or_default();
    body.push(Row::text(at_column(&format!("  {}", facts::ADMIN), 49, &id, width)));
    body.prose(2, "or run   stratumctl admin nodes joins list");
    // A run of blanks is wrapped away; the command keeps its distance.
    if let Some(row) = body.rows.last_mut() {
        row.text = row.text.replacen("or run stratumctl", "or run   stratumctl", 1);
    }
    body.blank();
    if let Some(at) = &s.registration.expires_at {
        body.prose(0, &expires(at.as_str(), s, view));
    }
    let mut page = Page::main(s, view, body);
    page.big = Some(code.ascii());
    page
}

/// A registration that expires later than this, or has already, is one seen by a wrong clock: codes live for days.
const LONGEST: i64 = 60 * 24 * 3600;

/// `Expires 2026-11-30 22:10Z (in 35 h 14 min) if nobody approves it.`; no countdown by a clock that is wrong.
fn expires(at: &str, s: &Snapshot, view: &View) -> String {
    match at.parse::<jiff::Timestamp>() {
        Ok(at) => {
            let left = at.duration_since(view.now.wall).as_secs();
            if s.clock.synced == Synced::No || !(0..=LONGEST).contains(&left) {
                return format!("Expires {} if nobody approves it.", clock::date_minute(at));
            }
            format!(
                "Expires {} (in {}) if nobody approves it.",
                clock::date_minute(at),
                clock::hours_minutes(left)
            )
        }
        Err(_) => format!("Expires {at} if nobody approves it."),
    }
}

/// S3.
pub(super) fn upgrading(s: &Snapshot, view: &View, width: usize, room: usize) -> Page {
    let mut body = Body::new(width);
    let budget = room.saturating_sub(if s.progress.is_some() { 7 } else { 5 }).max(3);
    let running = s.steps.iter().find(|step| step.status == StepStatus::Running);
    steps(&mut body, s, view, budget, |body, step| {
        if running.is_some_and(|running| std::ptr::eq(running, step))
            && let Some(progress) = s.progress
        {
            bar(body, 9, 50, progress, &percent(progress));
            body.push(Row::text(format!("         {}", amounts(progress))));
        }
    });
    body.blank();
    let code = s.pairing_code.as_ref().map(|code| format!(" {code}")).unwrap_or_default();
    body.prose(
        0,
        &format!(
            "Pairing code{code} stays the same after the restart. This machine can be approved when the upgrade is done. No action needed."
        ),
    );
    Page::main(s, view, body)
}

/// S5.
pub(super) fn approved(s: &Snapshot, view: &View, width: usize) -> Page {
    let mut body = Body::new(width);
    if let Some(at) = s.registration.approved_mono {
        body.labelled("Approved", 16, &format!("{} ago", clock::hms(view.now.since(at))));
    }
    match &s.registration.wait_reason {
        Some(reason) => body.foreign("Waiting for", 16, reason.as_str()),
        None => body.labelled("Waiting for", 16, "its turn"),
    }
    body.blank();
    body.prose(0, "Joins run one at a time, in approval order, while the cluster is green.");
    body.prose(0, "No action needed at this machine.");
    Page::main(s, view, body)
}

/// S6, delivering and installing.
pub(super) fn installing(s: &Snapshot, view: &View, width: usize, room: usize) -> Page {
    let mut body = Body::new(width);
    if s.steps.is_empty() {
        body.push(Row::tagged(2, Tag::Running, "receive and check the configuration"));
        body.blank();
        body.prose(0, "No action needed.");
    } else {
        steps(&mut body, s, view, room.saturating_sub(9).max(3), |_, _| {});
        body.blank();
        let total = facts::current_step(s).map_or(0, |(_, total)| total);
        let done = s.steps.iter().filter(|step| step.status == StepStatus::Done).count();
        let elapsed: u64 =
            s.steps.iter().map(|step| elapsed(step, s, view).unwrap_or(0)).fold(0, u64::saturating_add);
        let counted = s
            .progress
            .filter(|progress| progress.unit == Unit::Steps && progress.total > 0)
            .unwrap_or(Progress {
                unit: Unit::Steps,
                done: u64::try_from(done).unwrap_or(0),
                total: total.into(),
                ..Progress::default()
            });
        let caption =
            format!("{} of {} done, {}", counted.done.min(counted.total), counted.total, clock::ms(elapsed));
        bar(&mut body, 2, 42, counted, &caption);
    }
    if let Some(message) = &s.last_message {
        body.blank();
        let age = clock::short(view.now.since(message.at_mono));
        body.foreign(&format!("Last message {age} ago"), 25, without_time(message.text.as_str()));
    }
    Page::main(s, view, body)
}

/// S7.
pub(super) fn joined(s: &Snapshot, view: &View, width: usize) -> Page {
    let mut body = Body::new(width);
    let cluster =
        s.cluster.cluster_id.as_ref().map(|id| format!(" {}", facts::token(id))).unwrap_or_default();
    body.prose(2, &format!("This machine is a member of the cluster{cluster}."));
    body.prose(2, "You can unplug the screen and the keyboard.");
    body.blank();
    body.prose(2, "Manage it in the cluster's console: Admin > Metal.");
    body.blank();
    if view.login_comes_back {
        let left = clock::ms(view.now.until(s.state_since_mono.saturating_add(STAYS_MS)));
        body.prose(2, &format!("The login prompt comes back here in {left}, or press Enter now."));
    } else {
        body.prose(2, "Press Enter to leave this screen.");
    }
    let mut page = Page::main(s, view, body);
    let enter = if view.login_comes_back { "[Enter] login now" } else { "[Enter] leave" };
    page.keys = format!(" {enter}  [D]etails  [L]og  {}[R]edraw", page::identify_key(s));
    page
}

/// A state this console has no picture of.
pub(super) fn unknown(s: &Snapshot, view: &View, width: usize) -> Page {
    let mut body = Body::new(width);
    if s.state_raw.is_some() {
        body.foreign("Agent", 10, s.headline.as_str());
    }
    let advice = facts::advice(s);
    super::stopped::advise(&mut body, s, view);
    if let Some(fault) = &s.fault {
        body.foreign("Error", 10, fault.message.as_str());
    }
    body.blank();
    if advice.is_empty() {
        body.prose(0, "No action needed. This agent is older than the cluster.");
    }
    Page::main(s, view, body)
}

// === private ===

/// A line of a log without the instant it begins with: how long ago that was stands before it.
fn without_time(line: &str) -> &str {
    match line.split_once(' ') {
        Some((first, rest)) if first.parse::<jiff::Timestamp>().is_ok() => rest.trim_start(),
        _ => line,
    }
}

pub(super) fn tag(status: StepStatus) -> Tag {
    match status {
        StepStatus::Waiting => Tag::Todo,
        StepStatus::Running => Tag::Running,
        StepStatus::Done => Tag::Ok,
        StepStatus::Failed => Tag::Stopped,
        StepStatus::Unknown => Tag::Unknown,
    }
}

/// A step, or several in one row.
enum Shown<'a> {
    Step(&'a Step),
    Many(Tag, String),
}

/// At most `budget` rows of steps, the current one among them, with what is left out told in a row of its own.
fn window(steps: &[Step], budget: usize) -> Vec<Shown<'_>> {
    let declared = steps.iter().map(|step| step.total).max().unwrap_or(0);
    let last = steps.last().map_or(0, |step| step.index);
    let missing = (declared > last && last > 0).then_some((last + 1, declared));
    let all = steps.len() + usize::from(missing.is_some());
    let follow = |from: u32, to: u32| {
        Shown::Many(
            Tag::Todo,
            if from == to { format!("{from} follows") } else { format!("{from} to {to} follow") },
        )
    };
    let mut out: Vec<Shown<'_>> = Vec::new();
    if all <= budget {
        out.extend(steps.iter().map(Shown::Step));
        out.extend(missing.map(|(from, to)| follow(from, to)));
        return out;
    }
    let current = steps
        .iter()
        .position(|step| matches!(step.status, StepStatus::Running | StepStatus::Failed))
        .or_else(|| steps.iter().position(|step| step.status == StepStatus::Waiting))
        .unwrap_or(steps.len().saturating_sub(1));
    // One row for what follows, one for what went before once it scrolls, one of what comes next in sight.
    let body = budget.saturating_sub(1).max(1);
    let (first, count) = if current + 1 < body {
        (0, body)
    } else {
        ((current + 2).saturating_sub(body.saturating_sub(1).max(1)), body.saturating_sub(1).max(1))
    };
    let mut first = first.min(current);
    let mut end = (first + count).min(steps.len()).max(current + 1);
    if missing.is_none() && end + 1 >= steps.len() {
        // Nothing is left to follow, or only one that takes no more room than saying so.
        end = steps.len();
        first = first.max(1).min(end.saturating_sub(body)).min(current).max(usize::from(first > 0));
    }
    if first > 0 {
        let before = &steps[..first];
        let done = before.iter().all(|step| step.status == StepStatus::Done);
        let (from, to) = (before[0].index, before[first - 1].index);
        let range = if from == to { format!("{from}") } else { format!("{from} to {to}") };
        out.push(if done {
            Shown::Many(Tag::Ok, format!("{range} done"))
        } else {
            Shown::Many(Tag::Skipped, format!("{range} not shown"))
        });
    }
    out.extend(steps[first..end].iter().map(Shown::Step));
    if end < steps.len() || missing.is_some() {
        let from = steps.get(end).map_or(last + 1, |step| step.index);
        out.push(follow(from, declared.max(last)));
    }
    out
}

fn steps(body: &mut Body, s: &Snapshot, view: &View, budget: usize, after: impl Fn(&mut Body, &Step)) {
    let width = body.width();
    for row in window(&s.steps, budget) {
        match row {
            Shown::Step(step) => {
                let time = elapsed(step, s, view).map(clock::ms).unwrap_or_default();
                let text = format!("{} {}", step.index, step.title.ascii());
                let text = at_column(&text, ELAPSED - 7, &time, width.saturating_sub(7));
                body.push(Row::tagged(2, tag(step.status), text));
                after(body, step);
            }
            Shown::Many(tag, text) => body.push(Row::tagged(2, tag, text)),
        }
    }
}

/// A step's time; a running one's goes on between two snapshots.
fn elapsed(step: &Step, s: &Snapshot, view: &View) -> Option<u64> {
    let age = if step.status == StepStatus::Running { s.age_ms(view.now.boot_ms) } else { 0 };
    (step.status != StepStatus::Waiting).then_some(step.elapsed_ms?.saturating_add(age))
}

/// `[####----]  caption`. Full only when all is done.
fn bar(body: &mut Body, indent: usize, cells: usize, progress: Progress, caption: &str) {
    if progress.total == 0 {
        body.push(Row::text(format!("{:indent$}{caption}", "")));
        return;
    }
    let cells = cells.min(body.width().saturating_sub(indent + 4 + caption.len())).max(4);
    let done = progress.done.min(progress.total);
    let filled = if done == progress.total {
        cells
    } else {
        let scaled = u128::from(done) * (cells as u128 - 1) / u128::from(progress.total);
        usize::try_from(scaled).unwrap_or(0)
    };
    body.push(Row::text(format!(
        "{:indent$}[{}{}]  {caption}",
        "",
        "#".repeat(filled),
        "-".repeat(cells - filled)
    )));
}

fn percent(progress: Progress) -> String {
    if progress.total == 0 {
        return String::new();
    }
    let percent = u128::from(progress.done.min(progress.total)) * 100 / u128::from(progress.total);
    format!("{percent}%")
}

/// `682 of 1843 MiB   41.2 MiB/s   about 28 s left`.
fn amounts(progress: Progress) -> String {
    let done = progress.done.min(progress.total.max(progress.done));
    let mut out = match progress.unit {
        Unit::Bytes => format!("{} of {} MiB", done >> 20, progress.total >> 20),
        _ => format!("{done} of {}", progress.total),
    };
    if let (Unit::Bytes, Some(rate)) = (progress.unit, progress.rate_per_sec) {
        let tenths = u128::from(rate) * 10 / (1 << 20);
        out.push_str(&format!("   {}.{} MiB/s", tenths / 10, tenths % 10));
    }
    if let Some(eta) = progress.eta_sec {
        out.push_str(&format!("   about {} left", clock::short(eta.saturating_mul(1000))));
    }
    out
}

use crate::layout::at_column;

#[cfg(test)]
mod tests {
    use super::*;

    fn nine(current: u32) -> Vec<Step> {
        let status = |index| match u32::cmp(&index, &current) {
            std::cmp::Ordering::Less => StepStatus::Done,
            std::cmp::Ordering::Equal => StepStatus::Running,
            std::cmp::Ordering::Greater => StepStatus::Waiting,
        };
        (1..=9).map(|index| Step { index, total: 9, status: status(index), ..Step::default() }).collect()
    }

    fn shown(steps: &[Step], budget: usize) -> String {
        let one = |row: &Shown<'_>| match row {
            Shown::Step(step) => step.index.to_string(),
            Shown::Many(_, text) => text.clone(),
        };
        window(steps, budget).iter().map(one).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn the_current_step_and_the_next_one_are_always_in_sight() {
        assert_eq!(shown(&nine(1), 6), "1, 2, 3, 4, 5, 6 to 9 follow");
        assert_eq!(shown(&nine(4), 6), "1, 2, 3, 4, 5, 6 to 9 follow");
        assert_eq!(shown(&nine(5), 6), "1 to 2 done, 3, 4, 5, 6, 7 to 9 follow");
        assert_eq!(shown(&nine(7), 6), "1 to 4 done, 5, 6, 7, 8, 9");
        assert_eq!(shown(&nine(9), 6), "1 to 4 done, 5, 6, 7, 8, 9");
        assert_eq!(shown(&nine(3), 9), "1, 2, 3, 4, 5, 6, 7, 8, 9");
        assert_eq!(shown(&nine(3)[..3], 9), "1, 2, 3, 4 to 9 follow");
        for current in 1..=9 {
            for budget in 1..=9 {
                let steps = nine(current);
                let rows = window(&steps, budget);
                assert!(
                    rows.iter().any(|row| matches!(row, Shown::Step(step) if step.index == current)),
                    "{current} {budget}"
                );
                assert!(rows.len() <= budget.max(3), "{current} {budget} {}", rows.len());
            }
        }
    }

    #[test]
    fn a_bar_is_full_only_when_all_is_done_and_never_overflows() {
        let draw = |done, total| {
            let mut body = Body::new(76);
            bar(&mut body, 2, 10, Progress { done, total, ..Progress::default() }, "");
            body.rows[0].text.clone()
        };
        assert_eq!(draw(0, 10).trim(), "[----------]");
        assert_eq!(draw(999, 1000).trim(), "[########--]");
        assert_eq!(draw(u64::MAX, 10).trim(), "[##########]");
        assert_eq!(draw(u64::MAX - 1, u64::MAX).trim(), "[########--]");
        assert_eq!(draw(3, 0).trim(), "");
    }
}
