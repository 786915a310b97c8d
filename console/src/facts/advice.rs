//! What a person does about a state: the agent's advice, spelt out for this machine. Pure.

use super::*;

/// The advice, or what a person does in such a state anyway: never nothing where only a person can go on.
pub(crate) fn advice_or_default(s: &Snapshot) -> Vec<String> {
    let advice = advice(s);
    if !advice.is_empty() {
        return advice;
    }
    vec![match s.state {
        State::Pending => format!("Approve the machine whose console shows this code: {ADMIN}."),
        State::Failed => format!("Correct the cause, then retry it in {ADMIN}."),
        State::Refused if s.fault.as_ref().is_some_and(|fault| fault.retry_at_mono.is_some()) => {
            "No action needed.".into()
        }
        State::Expired | State::Rejected | State::IdentityFailed => join_command(s),
        State::Refused if wants_new_code(s) => join_command(s),
        State::Refused => "Read the log: press L.".into(),
        State::Joined => "You can unplug the screen and the keyboard.".into(),
        _ => "No action needed.".into(),
    }]
}

/// True for a line of advice that is a command.
pub(crate) fn is_command(line: &str) -> bool {
    ["stratum-installer ", "stratumctl ", "stratum-join ", "journalctl ", "systemctl "]
        .iter()
        .any(|start| line.starts_with(start))
}

/// The advice of the fault, or of the snapshot.
pub(crate) fn advice(s: &Snapshot) -> Vec<String> {
    // Beside a step that failed, the fault is about the way to the cluster, and its advice would name the wrong cause.
    let fault = s.fault.iter().filter(|_| failed_step(s).is_none());
    let fault: Vec<String> = fault
        .flat_map(|fault| &fault.what_to_do)
        .filter(|line| !line.is_empty())
        .map(|line| spelt_out(s, &line.ascii()))
        .collect();
    if fault.is_empty() { next(s) } else { fault }
}

/// `next` as sentences: the agent wraps them at 76 columns, and most places here have other widths.
pub(crate) fn next(s: &Snapshot) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for line in &s.next {
        let line = spelt_out(s, &line.ascii());
        match out.last_mut() {
            Some(open) if !open.ends_with(['.', ':']) && !is_command(open) && !is_command(&line) => {
                open.push(' ');
                open.push_str(&line);
            }
            _ => out.push(line),
        }
    }
    out
}

/// The join command as it is typed on this machine: the agent leaves the address open, which is known here.
fn spelt_out(s: &Snapshot, line: &str) -> String {
    if line.starts_with("stratum-installer join --endpoint <address>") {
        join_command(s)
    } else {
        line.to_owned()
    }
}

/// True where another join code is the way on, and not another release or a word with the administrator.
pub(crate) fn wants_new_code(s: &Snapshot) -> bool {
    match (s.state, &s.fault) {
        (State::Expired | State::Rejected | State::IdentityFailed, _) | (State::Refused, None) => true,
        (State::Refused, Some(fault)) => refused_code(fault.code.as_str()).is_some(),
        _ => false,
    }
}

/// The way to another join code, in our words; the last line is the command.
pub(crate) fn new_code(s: &Snapshot) -> [String; 2] {
    ["Make a new join code on the cluster, then run:".into(), join_command(s)]
}

/// What the agent remarks beside the way to another join code: that the code looks mistyped, that somebody tried it out.
pub(crate) fn remarks(s: &Snapshot) -> Vec<String> {
    let told = s.fault.iter().flat_map(|fault| &fault.what_to_do);
    let unverified = |line: &str| line.starts_with("This answer came before");
    told.map(|line| line.ascii())
        .filter(|line| line.ends_with('.') && !is_command(line) && !unverified(line))
        .collect()
}
