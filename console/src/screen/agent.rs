//! When the agent itself is the news: not up yet, gone, not readable, newer than this console.

use super::*;

/// After this long without a first snapshot something is wrong.
const STARTS_WITHIN_MS: u64 = 60_000;
/// Column of the text behind `Unit`, `Last`, `Do`.
const LABEL: usize = 10;

/// Rows of each of its last words.
const LOG_ROWS: usize = 3;

/// What to do about an agent that is not up yet, where there is little room.
pub(crate) fn wait_for_agent() -> [&'static str; 3] {
    [
        "Nothing: it starts by itself.",
        "If it stays for 5 minutes, log in as root:",
        "journalctl -u stratum-join -b",
    ]
}

/// S14 and its variants.
pub(super) fn page(s: &Snapshot, view: &View, width: usize) -> Page {
    let mut body = Body::new(width);
    let (tag, state, fact) = match &view.feed {
        Feed::NotYet { since_mono } => {
            let waited = view.now.since(*since_mono);
            let late = waited >= STARTS_WITHIN_MS;
            body.labelled("Unit", LABEL, "stratum-join.service has not written anything yet");
            let fact = if late { format!("for {}", clock::hms(waited)) } else { String::new() };
            (if late { Tag::Trouble } else { Tag::Running }, "STARTING - THE JOIN AGENT IS NOT UP YET", fact)
        }
        Feed::Unreadable(why) => {
            body.foreign("Why", LABEL, why.as_str());
            (Tag::Trouble, "THE JOIN AGENT'S STATE CANNOT BE READ", String::new())
        }
        _ => {
            body.labelled("Unit", LABEL, &unit(s, view));
            match &s.pairing_code {
                // It is the same in the new OS; the rest of the last state is over.
                Some(code) if facts::restarts(s) => {
                    body.labelled("Code", LABEL, &format!("{code} stays the same after the restart"));
                }
                code => {
                    let last = facts::headline(s, &view.now).text;
                    let code = code.as_ref().map(|code| format!(", pairing code {code}")).unwrap_or_default();
                    last_row(&mut body, &format!("{last}{code}"), width);
                }
            }
            let age = clock::hms(s.age_ms(view.now.boot_ms));
            // What systemd starts again is trouble; what somebody stopped waits for a person.
            let tag = match (facts::restarts(s), facts::was_stopped(s)) {
                (true, _) => Tag::Running,
                (false, true) => Tag::Stopped,
                (false, false) => Tag::Trouble,
            };
            (tag, facts::gone(s), format!("last update {age} ago"))
        }
    };
    body.blank();
    let [patience, _, look] = wait_for_agent();
    let (patience, else_do, command) = match view.feed {
        Feed::NotYet { .. } => (patience, "If it stays for 5 minutes", look),
        Feed::Live if facts::restarts(s) => {
            ("Nothing: the new OS starts by itself.", "If it stays for 5 minutes", look)
        }
        Feed::Live if facts::was_stopped(s) => {
            ("It does not start again by itself before the next boot.", "To start it", facts::gone_command(s))
        }
        _ => ("Usually nothing: it is started again by itself.", "If it stays for 5 minutes", look),
    };
    body.labelled("Do", LABEL, patience);
    body.labelled("", LABEL, &format!("{else_do}: {}", page::login_then(view)));
    body.command(8, command);
    body.blank();
    for line in s.log.iter().rev().take(2).rev() {
        for (_, text) in side::wrapped(0, line, width.saturating_sub(2), LOG_ROWS) {
            body.push(Row::text(format!("  {text}")));
        }
    }
    let mut page = Page::main(s, view, body);
    let keys = if view.feed == Feed::Live { page.keys } else { format!(" [R]edraw  {}", page::leave(view)) };
    page.keys = keys.trim_end().to_owned();
    let short = fact.split(' ').find(|word| word.contains(':')).unwrap_or_default().to_owned();
    page.state = Some((tag, state.into(), Fact { long: fact, short, alarm: false }));
    page
}

/// A snapshot of a newer agent: its own line and advice, nothing else.
pub(super) fn foreign(s: &Snapshot, view: &View, width: usize, schema: u64) -> Page {
    let mut body = Body::new(width);
    body.foreign("State", LABEL, s.headline.as_str());
    for line in &s.next {
        body.foreign("Do", LABEL, line.as_str());
    }
    body.blank();
    body.prose(
        0,
        &format!("Its snapshot has schema {schema}; this console draws only the state and the advice of it."),
    );
    let mut page = Page::main(s, view, body);
    page.state = Some((Tag::Unknown, "THE JOIN AGENT IS NEWER THAN THIS CONSOLE".into(), Fact::default()));
    page.keys = format!(" [R]edraw  {}", page::leave(view)).trim_end().to_owned();
    page
}

/// What became of the process.
fn unit(s: &Snapshot, view: &View) -> String {
    let restarts = match s.agent.restarts {
        0 => String::new(),
        n => format!(", restart {n}"),
    };
    match facts::exit_words(s) {
        None if facts::restarts(s) => "stratum-join.service has ended, as it has to for a restart".into(),
        None if facts::was_stopped(s) => "stratum-join.service was stopped".into(),
        Some(how) => format!("stratum-join.service ended: {how}{restarts}"),
        None if !view.agent_alive => {
            format!("stratum-join.service: process {} is no more{restarts}", s.agent.pid)
        }
        None => format!("stratum-join.service runs but writes nothing{restarts}"),
    }
}

/// The last known state, with the warning always in sight.
fn last_row(body: &mut Body, last: &str, width: usize) {
    const WARNING: &str = "  <- may be out of date";
    let whole = format!("{last}{WARNING}");
    if LABEL + whole.len() <= width {
        body.push(Row::text(format!("  Last    {whole}")));
    } else {
        match facts::own_part(last) {
            (own, None) => body.labelled("Last", LABEL, own),
            (_, Some(_)) => body.push(Row::text(crate::layout::cut(&format!("  Last    {last}"), width))),
        }
        body.push(Row::text(format!("{:LABEL$}{}", "", WARNING.trim_start())));
    }
}
