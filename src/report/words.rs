//! The sentences of a snapshot: headline, and what a person does next. Pure.

use console::text::Safe;

use crate::join::advice::{Advice, JOIN_COMMAND};
use crate::join::state::Phase;

/// Width of a line of `next`.
const WIDTH: usize = 76;

/// At most three lines of 76 columns; never none.
pub fn next_lines(texts: &[String]) -> Vec<Safe<76>> {
    let mut lines: Vec<String> = Vec::new();
    for text in texts {
        let mut line = String::new();
        for word in text.split_whitespace() {
            if !line.is_empty() && line.len() + 1 + word.len() > WIDTH {
                lines.push(std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        if !line.is_empty() {
            lines.push(line);
        }
    }
    if lines.is_empty() {
        lines.push("No action needed.".to_owned());
    }
    lines.truncate(3);
    lines.into_iter().map(Safe::clean).collect()
}

/// What to do in a phase that has no fault.
pub(super) fn phase_next(phase: Phase, can_upgrade: bool) -> Vec<String> {
    let texts: &[&str] = match phase {
        Phase::NoRequest => &["Give this machine the cluster's address and a join code:", JOIN_COMMAND],
        Phase::Pending => &[
            "Approve the machine whose console shows this code:",
            "Console: Admin > Metal, Joining nodes, or stratumctl admin nodes joins list",
        ],
        Phase::Approved => &["No action needed at this machine. Joins run one at a time."],
        Phase::NeedsUpgrade if !can_upgrade => {
            &["This agent cannot upgrade the machine: install it from an ISO of the cluster's release."]
        }
        Phase::NeedsUpgrade | Phase::Delivering | Phase::Installing => {
            &["No action needed. Do not power it off."]
        }
        Phase::Joined => &["You can unplug the screen and the keyboard. Manage it in Admin > Metal."],
        Phase::Failed => &[
            "Correct the cause named above on this machine or in the approval.",
            "Then retry it in Console: Admin > Metal, Joining nodes.",
        ],
        Phase::Unknown => &["No action needed. This agent is older than the cluster."],
        Phase::Starting | Phase::Registering => {
            &["No action needed. This usually takes less than 30 seconds."]
        }
        Phase::Rejected | Phase::Expired | Phase::Refused | Phase::IdentityFailed => {
            &["Give this machine another join code:", JOIN_COMMAND]
        }
    };
    texts.iter().map(|t| (*t).to_owned()).collect()
}

/// One line that says it all, for the banner, `STATUS=` and old consoles.
pub(super) fn headline(phase: Phase, advice: Option<&Advice>, more: &str) -> String {
    let base = match phase {
        Phase::NoRequest => "no join was asked for",
        Phase::Starting => "starting",
        Phase::Registering => "registering with the cluster",
        Phase::NeedsUpgrade => "this machine's release is older than the cluster's",
        Phase::Pending => "waiting for approval",
        Phase::Approved => "approved, waiting for its turn",
        Phase::Delivering => "approved, receiving its configuration",
        Phase::Installing => "installing",
        Phase::Joined => "joined",
        Phase::Failed => "failed",
        Phase::Rejected => "rejected by an administrator of the cluster",
        Phase::Expired => "expired: nobody approved this machine in time",
        Phase::Refused => "the cluster refused this machine",
        Phase::IdentityFailed => "the cluster did not prove its identity",
        Phase::Unknown => "the cluster is in a state this agent does not know",
    };
    let faulty = matches!(
        phase,
        Phase::NoRequest | Phase::Refused | Phase::IdentityFailed | Phase::Starting | Phase::Registering
    );
    match advice {
        Some(advice) if faulty => advice.what.clone(),
        _ if more.is_empty() => base.to_owned(),
        _ => format!("{base} {more}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_is_wrapped_at_76_columns_and_never_empty() {
        assert_eq!(next_lines(&[]), vec![Safe::<76>::clean("No action needed.")]);
        let lines = next_lines(&["word ".repeat(40)]);
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|l| l.as_str().len() <= WIDTH));
    }
}
