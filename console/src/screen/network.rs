//! The network: what was checked on the way to the cluster, and a cluster that did not prove to be it.

use super::*;
use crate::layout::{at_column, cut, wrap};
use crate::snapshot::{Check, CheckStatus, Contact, Link};

/// Column of a check's detail.
const DETAIL: usize = 19;

/// Rows of the one that failed.
const CAUSE_ROWS: usize = 3;

/// S12, and a plain form of it while there is no diagnosis. Where its rows do not fit into `room`, what was not tried is one of them.
pub(super) fn page(s: &Snapshot, view: &View, width: usize, room: usize) -> Page {
    let whole = body(s, width, false);
    let body = if whole.rows.iter().filter(|row| !row.is_blank()).count() > room {
        body(s, width, true)
    } else {
        whole
    };
    let mut page = Page::main(s, view, body);
    page.title = "NETWORK";
    page.state = Some(state(s, view));
    let code = match &s.pairing_code {
        Some(code) => format!("Pairing code {code}."),
        None => "Pairing code: not yet.".into(),
    };
    page.footer = Some(Row::text(match s.network.failing_since_mono {
        Some(_) if s.actions.check => format!("{code} The machine keeps trying; press C to try now."),
        Some(_) => format!("{code} The machine keeps trying."),
        None => code,
    }));
    page.keys = page::side_keys(view, if s.actions.check { "[C] check now  [L]og" } else { "[L]og" });
    page
}

fn body(s: &Snapshot, width: usize, fold: bool) -> Body {
    let mut body = Body::new(width);
    let checks: Vec<&Check> = s.network.checks.iter().take(10).collect();
    let room = width.saturating_sub(DETAIL);
    let mut at = 0;
    while let Some(check) = checks.get(at).copied() {
        let alike = |other: &&&Check| other.status == CheckStatus::Skipped && other.detail == check.detail;
        let many = checks[at..].iter().take_while(alike).count();
        let detail = check.detail.as_ref().map(|detail| detail.ascii()).unwrap_or_default();
        let tag = match check.status {
            CheckStatus::Ok => Tag::Ok,
            CheckStatus::Failed => Tag::Stopped,
            CheckStatus::Skipped => Tag::Skipped,
            CheckStatus::Running => Tag::Running,
            CheckStatus::Unknown => Tag::Unknown,
        };
        let (left, taken) = match many {
            2.. if fold => (format!("{} to {}", at + 1, at + many), many),
            _ => (format!("{} {}", at + 1, cut(check.title.as_str(), 10)), 1),
        };
        // The cause is told whole; of the others the first words will do.
        let lines = match check.status {
            CheckStatus::Failed => wrap(&detail, room, CAUSE_ROWS),
            _ => vec![cut(&detail, room)],
        };
        let mut lines = lines.into_iter();
        let first = lines.next().unwrap_or_default();
        body.push(Row::tagged(2, tag, format!("{left:<0$}{first}", DETAIL - 7).trim_end()));
        for line in lines {
            body.push(Row::text(format!("{:DETAIL$}{line}", "")));
        }
        at += taken;
    }
    if let (true, Some(fault)) = (s.network.checks.is_empty(), &s.fault) {
        body.foreign("Error", 10, fault.message.as_str());
        if let Some(why) = &fault.why {
            body.labelled("Why", 10, why.as_str());
        }
    }
    if s.network.failing_since_mono.is_some() || s.fault.is_some() {
        if !body.rows.is_empty() {
            body.blank();
        }
        let mut label = "Look at";
        let mut advice = facts::advice(s);
        if advice.is_empty() && s.network.checks.is_empty() {
            advice.push(
                "the cable, the switch port, the address, and a firewall on the way (port 9444).".into(),
            );
        }
        for line in advice {
            body.labelled(label, 12, &line);
            label = "";
        }
    }
    let others: Vec<String> = s.network.nics.iter().map(other).collect();
    if !others.is_empty() {
        body.push(Row::text(at_column("  Others", 12, &others.join("   "), width)));
    }
    body
}

fn state(s: &Snapshot, view: &View) -> (Tag, String, Fact) {
    let endpoint =
        if s.cluster.endpoint.is_empty() { "THE CLUSTER".into() } else { s.cluster.endpoint.ascii() };
    let plain = |long: String| Fact { short: long.clone(), long, alarm: false };
    if let Some(since) = s.network.failing_since_mono {
        let mut long = format!("for {}", clock::hms(view.now.since(since)));
        if let Some(at) = s.network.next_try_mono {
            long.push_str(&format!(", next try {}", clock::ms(view.now.until(at))));
        }
        let fact = Fact { long, short: clock::hms(view.now.since(since)), alarm: false };
        return (Tag::Trouble, format!("CANNOT REACH {endpoint}"), fact);
    }
    match (s.cluster.contact, s.cluster.last_contact_mono) {
        (Contact::Ok, Some(at)) => (
            Tag::Ok,
            format!("{endpoint} ANSWERS"),
            plain(format!("{} ago", clock::short(view.now.since(at)))),
        ),
        (Contact::Ok, None) => (Tag::Ok, format!("{endpoint} ANSWERS"), Fact::default()),
        (Contact::Failing, _) => (Tag::Trouble, format!("{endpoint} DOES NOT ANSWER"), Fact::default()),
        _ => (Tag::Running, format!("{endpoint} WAS NOT REACHED YET"), Fact::default()),
    }
}

fn other(nic: &crate::snapshot::Nic) -> String {
    let name = nic.nic.ascii();
    match (nic.link, &nic.address) {
        (Link::Down, _) => format!("{name} down"),
        (Link::Up, None) => format!("{name} up, no address"),
        (Link::Up, Some(address)) => format!("{name} up, {}", address.ascii()),
        (Link::Unknown, _) => format!("{name} unknown"),
    }
}

/// S13 and its variants.
pub(super) fn identity(s: &Snapshot, view: &View, width: usize) -> Page {
    let mut body = Body::new(width);
    let fault = s.fault.as_ref();
    let code = fault.map(|fault| fault.code.as_str()).unwrap_or_default();
    let seen = |body: &mut Body| {
        if let Some(fault) = fault {
            body.foreign("Seen", 10, fault.message.as_str());
        }
    };
    match code {
        "FOUNDER_KEY_CHANGED" | "PIN_MISMATCH" => {
            if let Some(pin) = &s.cluster.pin {
                let pin: String = pin.ascii().chars().take(16).collect();
                body.labelled("Had", 10, &facts::fingerprint(&pin));
            }
            seen(&mut body);
            body.blank();
            let login = page::login_then(view);
            let text =
                format!("Find out why the key changed. If this is expected, set a new join code: {login}");
            body.labelled("Do", 10, &text);
            body.command(8, &facts::join_command(s));
            body.blank();
            body.prose(0, "Nothing was sent. It tries again every 60 s, and accepts only the key it knows.");
        }
        "PAIRING_MISMATCH" => {
            if let Some(code) = s.pairing_code.as_ref().or(s.registration.last_pairing_code.as_ref()) {
                body.labelled("Here", 10, &format!("pairing code {code}"));
            }
            seen(&mut body);
            body.blank();
            let login = page::login_then(view);
            let text = format!("Do not approve. Reject the entry and use a new join code: {login}");
            body.labelled("Do", 10, &text);
            body.command(8, &facts::join_command(s));
        }
        _ => {
            body.prose(2, "Either the join code was mistyped or is not of this cluster,");
            body.prose(2, "or another machine answers at this address.");
            for (row, label) in body.rows.iter_mut().zip(["Either", "or"]) {
                row.text = row.text.replacen(&format!("  {label} "), &format!("  {label:<8}"), 1);
            }
            body.blank();
            if let Some(hint) = &s.code_hint {
                let why =
                    fault.and_then(|fault| fault.why.as_ref()).map(|why| why.ascii()).unwrap_or_default();
                // The row is the code's; a longer reason stands in the advice.
                let row = format!("  Code    {}   {why}", hint.ascii());
                let fits = row.len() <= width;
                body.push(Row::text(if fits {
                    row.trim_end()
                } else {
                    row[..row.len() - why.len()].trim_end()
                }));
            }
            seen(&mut body);
            body.blank();
            let login = page::login_then(view);
            body.labelled(
                "Do",
                10,
                &format!("Compare the address and the code with the cluster's, then {login}"),
            );
            body.command(8, &facts::join_command(s));
            body.blank();
            body.prose(
                0,
                "Nothing was sent or erased. It looks every 60 s whether another cluster answers, but does not use up more attempts of this code by itself.",
            );
        }
    }
    let mut page = Page::main(s, view, body);
    page.title = "NETWORK";
    page.keys = page::side_keys(view, if s.actions.check { "[C] check now  [L]og" } else { "[L]og" });
    page
}
