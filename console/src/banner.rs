//! What a login prompt says: the issue before it, the motd after it, and the service's `STATUS=` line.
//!
//! Pure functions of one snapshot, each at most 2 KiB, rows of at most 78 columns of printable ASCII. Instants come from the
//! snapshot's own two clocks, so that the same snapshot always gives the same text; only the `as of` stamp is told from outside.
//! Must never hold an agetty escape: `\` is doubled.

use crate::clock::{self, Now};
use crate::facts::{self, refused_code};
use crate::layout::{cut, two_sided, wrap};
use crate::snapshot::{FaultKind, Snapshot, State};
use crate::text::ascii;

/// Columns of a row, the leading blank included.
const WIDTH: usize = 78;
/// Columns of the row that carries the stamp, where that is enough.
const STAMPED: usize = 73;
/// Where the status screen is.
const SCREEN: &str = "status screen: Alt+F1";

/// Whether a status screen is up somewhere on this machine, for who stands at a login prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusScreen {
    /// On the first virtual terminal.
    Tty1,
    /// Nowhere: no console was started, or it gave its terminal back.
    None,
}

/// `/run/stratum-join/issue`: a blank line, up to 7 rows, a blank line; empty when there is nothing to say any more.
///
/// agetty expands backslashes and passes escape bytes through (util-linux agetty.c), so neither comes out of here single.
pub fn issue(s: &Snapshot, now: Now, screen: StatusScreen) -> String {
    let Some(mut rows) = rows(s, screen) else { return String::new() };
    stamp(&mut rows, now);
    // Doubling comes last and after cutting: half of a doubled backslash would be an escape.
    let lines: Vec<String> = rows.iter().map(|row| escape_row(row)).collect();
    format!("\n{}\n\n", lines.join("\n"))
}

/// The issue without its stamp: what is compared to know whether a login prompt must be told.
pub fn unstamped(s: &Snapshot) -> String {
    rows(s, StatusScreen::None).map(|rows| rows.join("\n")).unwrap_or_default()
}

/// `/run/stratum-join/motd`, after login: the same rows, plain, and two commands. Empty once joined.
pub fn motd(s: &Snapshot, now: Now, screen: StatusScreen) -> String {
    if s.state == State::Joined {
        return String::new();
    }
    let Some(mut rows) = rows(s, screen) else { return String::new() };
    stamp(&mut rows, now);
    rows.push(String::new());
    if !facts::nobody_asked(s) {
        rows.push(" stratum-installer join --check     check the saved join code".into());
    }
    rows.push(" stratum-join status                show this again".into());
    format!("\n{}\n\n", rows.iter().map(|row| row.trim_end()).collect::<Vec<_>>().join("\n"))
}

/// `STATUS=` of the service: row 1 in lower case, with the pairing code while a person must compare it.
pub fn status_line(s: &Snapshot) -> String {
    let mut text = first_row(s, str::to_lowercase);
    if let (State::Pending, Some(code)) = (s.state, &s.pairing_code) {
        text.push_str(&format!(", pairing code {code}"));
    }
    if let (State::Registering | State::NeedsUpgrade | State::Failed, Some(error), None) =
        (s.state, facts::error(s), &s.agent.exit)
    {
        text.push_str(&format!(" > {}", ascii(error)));
    }
    cut(&text, 200)
}

// === private ===

/// Puts `as of 10:55Z` at the end of the first row that has room for it: nothing is cut for a stamp.
fn stamp(rows: &mut Vec<String>, now: Now) {
    let stamp = format!("as of {}", clock::minute_of_day(now.wall));
    let used = |row: &String| row.len() + 1 + stamp.len();
    match rows.iter_mut().find(|row| used(row) <= WIDTH) {
        Some(row) => *row = two_sided(row, &stamp, if used(row) <= STAMPED { STAMPED } else { WIDTH }),
        None => rows.push(row(&stamp)),
    }
}

/// The rows of the banner, each with its leading blank; `None` when a joined machine has booted again.
fn rows(s: &Snapshot, screen: StatusScreen) -> Option<Vec<String>> {
    if s.state == State::Joined {
        s.cluster.last_contact_mono?;
        return Some(vec![row(&first_row(s, str::to_owned))]);
    }
    let mut out = vec![row(&format!("Stratum join: {}", first_row(s, str::to_uppercase)))];
    let stopped = s.agent.exit.is_some();
    if let Some(code) = s.pairing_code.as_ref().map(|code| code.ascii()) {
        let code = format!(" Pairing code  {code}");
        let remark = match (stopped, screen) {
            (true, _) => "may be out of date",
            (false, StatusScreen::Tty1) => SCREEN,
            (false, StatusScreen::None) => "",
        };
        out.push(format!("{code:<43}{remark}").trim_end().to_owned());
    }
    let identity: Vec<String> = [
        s.machine.hostname.as_ref().map(|name| name.ascii()),
        s.machine.serial.as_ref().map(|serial| serial.ascii()),
        facts::bare_address(s),
        s.machine.release.as_ref().map(|release| format!("release {}", release.ascii())),
    ]
    .into_iter()
    .flatten()
    .collect();
    if !identity.is_empty() {
        out.push(row(&identity.join("  ")));
    }
    if stopped {
        out.push(row(facts::gone_command(s)));
        return Some(out);
    }
    match s.state {
        State::Pending => {
            out.push(row(&format!("Approve the machine that shows this code: {}", &facts::ADMIN[9..])))
        }
        State::Approved => {
            out.extend(s.registration.wait_reason.iter().flat_map(|reason| foreign(reason.as_str())))
        }
        State::Failed => {
            out.extend(facts::error(s).into_iter().flat_map(foreign));
            out.push(row("journalctl -u stratum-join"));
        }
        State::Starting if facts::nobody_asked(s) => out.extend(ours(s)),
        State::NeedsUpgrade if facts::upgrade_stands(s) => out.extend(ours(s)),
        State::NeedsUpgrade | State::Registering => {
            out.extend(s.fault.iter().flat_map(|fault| foreign(fault.message.as_str())));
            if facts::refused_for_now(s) {
                out.extend(ours(s));
            }
        }
        State::Refused | State::Expired | State::Rejected | State::IdentityFailed => {
            out.extend(s.fault.iter().flat_map(|fault| foreign(fault.message.as_str())));
            out.extend(s.registration.reject_reason.iter().flat_map(|reason| foreign(reason.as_str())));
            if facts::wants_new_code(s) {
                out.push(row(&facts::join_command(s)));
            } else {
                out.extend(ours(s));
            }
        }
        State::Unknown => out.extend(ours(s)),
        State::Starting | State::Delivering | State::Installing | State::Joined => {}
    }
    Some(out)
}

/// What is going on. `word` gives our own words their case; names and numbers keep theirs.
fn first_row(s: &Snapshot, word: fn(&str) -> String) -> String {
    if s.agent.exit.is_some() && s.state != State::Joined {
        let how = facts::exit_words(s).map(|how| format!(" ({how})")).unwrap_or_default();
        let at = s
            .written_at
            .as_str()
            .parse()
            .map(clock::minute_of_day)
            .map(|at| format!(" at {at}"))
            .unwrap_or_default();
        let last = facts::headline(s, &s.written()).text.to_lowercase();
        let text = |at: &str| ascii(&format!("{}{how}{at}. Last: {last}", word("agent stopped")));
        // The last state is worth more than the time, which stands in the stamp as well.
        let whole = text(&at);
        return if whole.len() > WIDTH - 15 { text("") } else { whole };
    }
    let off = if facts::keep_powered(s) { format!(". {}", word("do not power off")) } else { String::new() };
    let text = match s.state {
        State::Starting if facts::nobody_asked(s) => word(s.headline.as_str()),
        State::Starting if s.cluster.endpoint.is_empty() => word("starting"),
        State::Registering if facts::refused_for_now(s) => refused(s, word),
        State::Starting | State::Registering => registering(s, word),
        State::Pending => match since(s) {
            Some(at) => format!("{} since {at}", word("waiting for approval")),
            None => word("waiting for approval"),
        },
        State::NeedsUpgrade if facts::upgrade_stands(s) && !s.headline.is_empty() => {
            word(s.headline.as_str())
        }
        State::NeedsUpgrade => upgrading(s, word) + &off,
        State::Approved => format!("{}, waiting for its turn", word("approved")),
        State::Delivering => format!("{}, receiving its configuration{off}", word("approved")),
        State::Installing => {
            let step = match facts::current_step(s) {
                Some((index, 0)) => format!(" step {index}"),
                Some((index, total)) => format!(" step {index} of {total}"),
                None => String::new(),
            };
            let running =
                facts::current_step(s).and_then(|(index, _)| s.steps.iter().find(|step| step.index == index));
            let title =
                running.map(|step| format!(" ({})", cut(step.title.as_str(), 24))).unwrap_or_default();
            format!("{}{step}{title}{off}", word("installing"))
        }
        State::Joined => {
            let node = s
                .registration
                .node_id
                .as_ref()
                .map(|id| format!(" {}", facts::token(id)))
                .unwrap_or_default();
            match &s.cluster.cluster_id {
                Some(id) => format!("Stratum node{node}, member of cluster {}", facts::token(id)),
                None => format!("Stratum node{node}, member of the cluster"),
            }
        }
        State::Failed => {
            let at = s.fault.as_ref().and_then(|fault| fault.step.as_ref());
            let by_itself = facts::failed_step(s);
            let step =
                by_itself.or_else(|| s.steps.iter().find(|step| at.is_some_and(|at| *at == step.name)));
            let title = by_itself.map(|step| &step.title);
            let title = title.or(s.fault.as_ref().and_then(|fault| fault.step_title.as_ref()));
            let title = title.map(|title| cut(title.as_str(), 30));
            match (step, title) {
                (Some(step), Some(title)) => {
                    format!("{} at step {} of {} ({title})", word("failed"), step.index, step.total)
                }
                (None, Some(title)) => format!("{}: {title}", word("failed")),
                _ => word("failed"),
            }
        }
        State::Refused => refused(s, word),
        State::Expired => format!("{}, nobody approved it in time", word("expired")),
        State::Rejected => format!("{} by an administrator", word("rejected")),
        State::IdentityFailed => word("cluster not proven"),
        State::Unknown => match &s.state_raw {
            Some(raw) => format!("{} > {raw}", word("the cluster says")),
            None => format!("{} > {}", word("the agent says"), s.headline),
        },
    };
    ascii(&text)
}

fn registering(s: &Snapshot, word: fn(&str) -> String) -> String {
    let with = format!("{} with {}", word("registering"), facts::endpoint_host(s));
    match s.registration.attempt {
        0 | 1 => with,
        attempt => format!("{with} (attempt {attempt})"),
    }
}

fn upgrading(s: &Snapshot, word: fn(&str) -> String) -> String {
    let Some(upgrade) = &s.upgrade else { return word("upgrading") };
    if let Some(fault) = s.fault.as_ref().filter(|_| facts::upgrade_failed(s)) {
        let step = fault.step.as_ref().map(|step| format!(" at {}", step.ascii())).unwrap_or_default();
        let retry = fault
            .retry_at_mono
            .and_then(|at| wall(s, at))
            .map(|at| format!(", retry {at}"))
            .unwrap_or_default();
        return format!("{} {} {}{step}{retry}", word("upgrade attempt"), upgrade.attempt, word("failed"));
    }
    let step = match facts::current_step(s) {
        Some((index, total)) if total > 0 => format!(", step {index} of {total}"),
        _ => String::new(),
    };
    format!("{} {} -> {}{step}", word("upgrading"), facts::token(&upgrade.from), facts::token(&upgrade.to))
}

fn refused(s: &Snapshot, word: fn(&str) -> String) -> String {
    let Some(fault) = &s.fault else { return word("refused") };
    let why = match fault.code.as_str() {
        "JOIN_QUEUE_FULL" => "too many machines are waiting".into(),
        "UPGRADE_RUNNING" => "the cluster is being upgraded".into(),
        "RELEASE_MISMATCH" => {
            let there = fault.details.cluster_release.as_ref().map_or("another release".into(), facts::token);
            format!("the cluster runs {there}")
        }
        code => match refused_code(code) {
            Some("wrong") => "the join code is wrong".into(),
            Some("expired") => "the join code is expired".into(),
            Some(why) => format!("the join code was {why}"),
            None if fault.kind == FaultKind::Transient => "for now".into(),
            None => return word("refused"),
        },
    };
    format!("{}: {why}", word("refused"))
}

/// `10:42Z`: when the state began, or the registration when the state is pending.
fn since(s: &Snapshot) -> Option<String> {
    wall(s, s.registration.registered_mono.unwrap_or(s.state_since_mono))
}

fn wall(s: &Snapshot, mono: u64) -> Option<String> {
    let now = s.written();
    (now.wall != jiff::Timestamp::UNIX_EPOCH).then(|| clock::minute_of_day(now.wall_of(mono)))
}

fn row(text: &str) -> String {
    cut(&format!(" {}", ascii(text)), WIDTH)
}

/// What to do, in our words, at most three rows.
fn ours(s: &Snapshot) -> Vec<String> {
    let rows = facts::next(s).into_iter().flat_map(|line| match facts::is_command(&line) {
        true => vec![row(&line)],
        false => wrap(&line, WIDTH - 1, 2).iter().map(|line| row(line)).collect(),
    });
    rows.take(3).collect()
}

/// Their words, at most two rows behind `> `.
fn foreign(text: &str) -> Vec<String> {
    wrap(text, WIDTH - 3, 2).into_iter().map(|line| format!(" > {line}")).collect()
}

/// Doubles every backslash and keeps the row within [`WIDTH`].
fn escape_row(row: &str) -> String {
    let mut out = String::new();
    let row = row.trim_end();
    for (at, c) in row.char_indices() {
        let piece: &str = if c == '\\' { "\\\\" } else { &row[at..at + c.len_utf8()] };
        if out.len() + piece.len() > WIDTH - usize::from(at + 1 < row.len()) {
            out.push('~');
            break;
        }
        out.push_str(piece);
    }
    out
}
