//! Where a join stopped: refused, expired, rejected, failed, and an upgrade attempt that failed.

use super::*;

/// Column of the text behind `Step`, `Error`, `Do`.
const LABEL: usize = 10;

/// S4.
pub(super) fn upgrade(s: &Snapshot, view: &View, width: usize) -> Page {
    let mut body = Body::new(width);
    step_and_error(&mut body, s);
    body.blank();
    if let Some(why) = s.fault.as_ref().and_then(|fault| fault.why.as_ref()) {
        body.labelled("Why", LABEL, why.as_str());
    }
    advise(&mut body, s, view);
    let id = s.registration.join_id.as_ref().map_or("it".into(), facts::token);
    body.labelled("Stop", LABEL, &format!("Reject {id} in {}.", facts::ADMIN));
    body.blank();
    body.prose(
        0,
        "It tries again every 10 minutes until it is rejected. The old OS stays in use. Nothing is added to the cluster.",
    );
    Page::main(s, view, body)
}

/// An upgrade is wanted, and this agent does not do it.
pub(super) fn upgrade_stands(s: &Snapshot, view: &View, width: usize) -> Page {
    let mut body = Body::new(width);
    if let Some(upgrade) = &s.upgrade {
        let (from, to) = (facts::token(&upgrade.from), facts::token(&upgrade.to));
        body.labelled("Needs", LABEL, &format!("release {to}, this machine runs {from}"));
    }
    // What a fault on the way says is no advice about the upgrade.
    for (index, line) in facts::next(s).iter().enumerate() {
        body.labelled(if index == 0 { "Do" } else { "" }, LABEL, line);
    }
    body.blank();
    body.prose(0, "It cannot be approved until the upgrade is done. Nothing is added to the cluster.");
    Page::main(s, view, body)
}

/// S8.
pub(super) fn failed(s: &Snapshot, view: &View, width: usize) -> Page {
    let mut body = Body::new(width);
    step_and_error(&mut body, s);
    body.blank();
    if facts::advice(s).is_empty() || facts::failed_step(s).is_some() {
        body.labelled("Do", LABEL, "Correct the cause named above on this machine or in the approval.");
        body.labelled("", LABEL, &format!("Then retry it in {}.", facts::ADMIN));
    } else {
        advise(&mut body, s, view);
    }
    let (press, log) = ("press L, or run", "journalctl -u stratum-join -u stratum-firstboot");
    let row = format!("  Log     {press}   {log}");
    if row.len() <= width {
        body.push(Row::text(row));
    } else {
        body.labelled("Log", LABEL, &format!("{press}:"));
        body.command(8, log);
    }
    body.blank();
    // The cluster's own word is what it said last. While that is an install, it has not heard of the end.
    let unheard = matches!(s.state_raw.as_ref().map(|raw| raw.as_str()), Some("delivering" | "installing"));
    let known = if unheard {
        "The cluster has not heard of this yet. It is told as soon as it answers."
    } else {
        "The cluster knows about this failure. This machine waits for the retry."
    };
    body.prose(0, known);
    Page::main(s, view, body)
}

/// S9 and its variants.
pub(super) fn refused(s: &Snapshot, view: &View, width: usize) -> Page {
    let mut body = Body::new(width);
    let fault = s.fault.as_ref();
    let code = fault.map(|fault| fault.code.as_str()).unwrap_or_default();
    let about_the_code = facts::refused_code(code).is_some();
    if about_the_code && let Some(hint) = &s.code_hint {
        body.push(Row::text(format!("  Code    {hint}   (saved on this machine)")));
    }
    if let Some(fault) = fault {
        body.foreign("Error", LABEL, fault.message.as_str());
        if !fault.verified {
            body.labelled("", LABEL, "This answer could not be verified.");
        }
    }
    body.blank();
    if about_the_code {
        new_code(&mut body, s, view, &["stratum-installer join --check"]);
    } else {
        match code {
            "RELEASE_MISMATCH" => body.labelled("Do", LABEL, "Install this machine from the cluster's ISO:"),
            "JOIN_QUEUE_FULL" => {
                body.labelled("Do", LABEL, &format!("Approve or reject one in {}.", facts::ADMIN))
            }
            "UPGRADE_RUNNING" => body.labelled("Do", LABEL, "No action needed."),
            _ if facts::advice(s).is_empty() => body.labelled("Do", LABEL, "Read the log: press L."),
            _ => advise(&mut body, s, view),
        }
        if let Some(iso) = fault.and_then(|fault| fault.details.iso.as_ref()) {
            body.foreign("", LABEL, iso.as_str());
        }
    }
    body.blank();
    let retry = facts::retry_in(s, &view.now);
    match (code, retry) {
        ("RELEASE_MISMATCH", _) => body.prose(0, "Nothing was changed on the cluster."),
        // Nothing is lost, and nobody thinks of a reinstall.
        (_, Some(left)) => body.prose(0, &format!("It tries again by itself in {left}.")),
        (_, None) => body.prose(0, "Nothing else is lost: the node key stays, no reinstall is needed."),
    }
    Page::main(s, view, body)
}

/// S10.
pub(super) fn expired(s: &Snapshot, view: &View, width: usize) -> Page {
    let mut body = Body::new(width);
    let id = s.registration.join_id.as_ref().map_or("a join".into(), facts::token);
    let until = match &s.registration.expires_at {
        Some(at) => {
            let at = at.as_str().parse().map_or_else(|_| at.ascii(), clock::date_minute);
            format!(" until {at}")
        }
        None => String::new(),
    };
    body.prose(2, &format!("It waited as {id}{until}."));
    if let Some(code) = last_code(s) {
        body.prose(2, &format!("Its pairing code {code} is no longer valid."));
    }
    body.blank();
    new_code(&mut body, s, view, &[]);
    without_code_fact(Page::main(s, view, body))
}

/// S11.
pub(super) fn rejected(s: &Snapshot, view: &View, width: usize) -> Page {
    let mut body = Body::new(width);
    let id = s.registration.join_id.as_ref().map_or("a join".into(), facts::token);
    let code =
        last_code(s).map(|code| format!(", pairing code {code} (no longer valid)")).unwrap_or_default();
    body.labelled("Was", LABEL, &format!("{id}{code}"));
    match &s.registration.reject_reason {
        Some(reason) => body.foreign("Reason", LABEL, reason.as_str()),
        None => body.labelled("Reason", LABEL, "none was given"),
    }
    body.blank();
    let login = page::login_then(view);
    body.labelled("Do", LABEL, &format!("To join after all: make a new join code on the cluster, {login}"));
    body.command(8, &facts::join_command(s));
    body.labelled("", LABEL, "Otherwise switch the machine off.");
    without_code_fact(Page::main(s, view, body))
}

// === private ===

fn step_and_error(body: &mut Body, s: &Snapshot) {
    if let Some(step) = facts::failed_step(s) {
        body.labelled("Step", LABEL, &format!("{} - {}", step.name, step.title));
        return body.foreign(
            "Error",
            LABEL,
            step.detail.as_ref().map_or("no error text", |detail| detail.as_str()),
        );
    }
    let Some(fault) = &s.fault else {
        return body.labelled("Error", LABEL, "The agent gave no reason; press L for the log.");
    };
    let name = fault.step.as_ref().map(|step| step.ascii());
    let title = fault.step_title.as_ref().map(|title| title.ascii());
    match (name, title) {
        (Some(name), Some(title)) => body.labelled("Step", LABEL, &format!("{name} - {title}")),
        (Some(one), None) | (None, Some(one)) => body.labelled("Step", LABEL, &one),
        (None, None) => {}
    }
    body.foreign("Error", LABEL, fault.message.as_str());
}

pub(super) fn advise(body: &mut Body, s: &Snapshot, view: &View) {
    say(body, "Do", &facts::advice(s), view);
}

/// Sentences and commands. A command that only root can give is preceded by the way to a shell.
pub(super) fn say(body: &mut Body, label: &str, lines: &[String], view: &View) {
    let mut label = label;
    for (index, line) in lines.iter().enumerate() {
        let leads = line.ends_with(':') && lines.get(index + 1).is_some_and(|next| is_roots(next));
        let own = line.strip_suffix("then run:").or(line.strip_suffix("Then run:"));
        match own {
            _ if facts::is_command(line) => body.command(8, line),
            Some(own) if leads => {
                body.labelled(label, LABEL, format!("{own}{}", page::login_then(view)).trim());
            }
            _ if leads => {
                body.labelled(label, LABEL, line);
                body.labelled("", LABEL, page::login(view));
            }
            _ => body.labelled(label, LABEL, line),
        }
        label = "";
    }
}

fn is_roots(line: &str) -> bool {
    line.starts_with("stratum-installer ")
}

/// The way to another join code.
fn new_code(body: &mut Body, s: &Snapshot, view: &View, more: &[&str]) {
    let mut label = "Do";
    for remark in facts::remarks(s) {
        body.labelled(label, LABEL, &remark);
        label = "";
    }
    body.labelled(label, LABEL, "1. Make a new join code on the cluster.");
    body.labelled("", LABEL, &format!("2. {}", page::login(view)));
    body.command(8, &facts::join_command(s));
    for line in more {
        body.command(8, line);
    }
}

fn last_code(s: &Snapshot) -> Option<String> {
    s.registration.last_pairing_code.as_ref().or(s.pairing_code.as_ref()).map(|code| code.ascii())
}

/// A code that is no longer valid is said to be so in the body, and nowhere else.
fn without_code_fact(mut page: Page) -> Page {
    if let Some((_, _, fact)) = &mut page.state
        && !fact.alarm
    {
        *fact = Fact::default();
    }
    page
}
