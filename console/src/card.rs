//! The card: one snapshot on a terminal that cannot be drawn on. `stratum-join status`, serial lines, dumb terminals.
//!
//! Pure. Printable ASCII, no colour, no cursor addressing, rows of at most 78 columns.

use crate::clock::{self, Now};
use crate::draw;
use crate::facts;
use crate::layout::{cut, wrap};
use crate::screen;
use crate::snapshot::{Identity, Liveness, Snapshot, State};
use crate::text::ascii;
use crate::view::{Feed, Leave, Screen, View};

const WIDTH: usize = 78;
/// Column of the values.
const VALUE: usize = 15;

/// The card of a snapshot, rows ended by `\n`. `keys` are the words of its last rule, if there is a keyboard.
pub fn card(s: &Snapshot, liveness: Liveness, now: Now, keys: Option<&str>) -> String {
    let host =
        s.machine.hostname.as_ref().map(|name| format!("  {}", cut(name.as_str(), 40))).unwrap_or_default();
    let mut rows = vec![rule(&format!("STRATUM JOIN  {}{host}", clock::date_time(now.wall)))];
    let headline = facts::headline(s, &now);
    let fact = facts::fact(s, &now);
    let alone = fact.long.is_empty() || fact.long.starts_with("pairing code");
    let (own, theirs) = facts::own_part(&headline.text);
    let state = if alone { own.to_owned() } else { format!("{own}, {}", fact.long) };
    let age = clock::hms(s.age_ms(now.boot_ms));
    match liveness {
        Liveness::Gone => {
            let how = facts::exit_words(s).map(|how| format!(" ({how})")).unwrap_or_default();
            let gone = facts::gone(s);
            value(&mut rows, "STATE", &format!("{gone}{how}, last update {age} ago"), 2);
            value(&mut rows, "LAST", &format!("{state} <- may be out of date"), 2);
        }
        Liveness::Late => value(&mut rows, "STATE", &format!("{state} (last update {age} ago)"), 2),
        Liveness::Alive => value(&mut rows, "STATE", &state, 2),
    }
    if let Some(theirs) = theirs {
        foreign(&mut rows, "", theirs);
    }
    if let (Some(code), true) = (&s.pairing_code, s.state != State::Joined) {
        let say = crate::glyphs::spoken(code.as_str()).map(|say| format!("     {say}")).unwrap_or_default();
        rows.push(cut(&format!(" PAIRING CODE  {code}{say}"), WIDTH));
    }
    if let Some((index, _)) =
        facts::current_step(s).filter(|_| s.state.changes_machine() || s.state == State::NeedsUpgrade)
        && let Some(step) = s.steps.iter().find(|step| step.index == index)
    {
        value(&mut rows, "STEP", &format!("{index} {}", step.title), 1);
    }
    if let (Some(reason), State::Approved) = (&s.registration.wait_reason, s.state) {
        foreign(&mut rows, "WAITING FOR", reason.as_str());
    }
    if let Some(error) = facts::error(s) {
        foreign(&mut rows, "ERROR", error);
    }
    if let (Some(fault), true) = (&s.fault, facts::failed_step(s).is_some()) {
        foreign(&mut rows, "ALSO", fault.message.as_str());
    }
    if let (Some(reason), State::Rejected) = (&s.registration.reject_reason, s.state) {
        foreign(&mut rows, "REASON", reason.as_str());
    }
    // Before the hardware is read there is nothing to say, and "unknown" would read as if something were wrong.
    if s.machine.serial.is_some() || s.machine.release.is_some() || s.network.primary.is_some() {
        value(&mut rows, "MACHINE", &machine(s), 2);
    }
    value(&mut rows, "CLUSTER", &cluster(s), 2);
    if let Some(since) = s.network.failing_since_mono.filter(|_| s.state != State::Joined) {
        let age = clock::hms(now.since(since));
        value(&mut rows, "NETWORK", &format!("no contact with the cluster for {age}"), 1);
    }
    let mut label = "DO";
    let advice = match liveness {
        Liveness::Gone => vec![facts::gone_command(s).into()],
        _ if facts::wants_new_code(s) => facts::remarks(s).into_iter().chain(facts::new_code(s)).collect(),
        _ => facts::advice(s),
    };
    for line in advice.iter().take(4) {
        if facts::is_command(line) {
            // A command stays in one piece, even if it leaves the column of the values for it.
            let column = VALUE.min(WIDTH.saturating_sub(line.len())).max(label.len() + 2);
            rows.push(cut(&format!("{:<column$}{line}", format!(" {label}")), WIDTH));
        } else {
            value(&mut rows, label, line, 2);
        }
        label = "";
    }
    rows.push(keys.map_or_else(|| "=".repeat(WIDTH), rule));
    rows.iter().flat_map(|row| [row.trim_end(), "\n"]).collect()
}

/// What a terminal that cannot be drawn on shows of a view: the card, or a side screen as plain text. Rows ended by `\n`.
pub fn card_of(s: &Snapshot, view: &View) -> String {
    let mut out = match (&view.feed, view.screen) {
        (Feed::NotYet { .. }, _) => without(view, "STARTING - THE JOIN AGENT IS NOT UP YET", None),
        (Feed::Unreadable(why), _) => {
            without(view, "THE JOIN AGENT'S STATE CANNOT BE READ", Some(why.as_str()))
        }
        (_, Screen::Main) => {
            let retry = if s.actions.retry { "T retry   " } else { "" };
            let keys = |leave: &str| format!("R repeat   {retry}D details   N network   L log   {leave}");
            let keys = match view.leave {
                Leave::HandBack => Some(keys("X login")),
                Leave::Quit => Some(keys("Q Q leave")),
                Leave::AltF2 | Leave::Nowhere => None,
            };
            card(s, view.liveness, view.now, keys.as_deref())
        }
        // Without its frame, and one row less than the smallest terminal has, so that the first row stays on it.
        _ => draw::text_of(&draw::draw(s, view, (78, 23))),
    };
    if let Some(notice) = &view.notice {
        out.push_str(&format!("{}\n", ascii(notice.as_str())));
    }
    out
}

/// One line for a log or a pipe: what changed, and nothing that does not.
pub fn line(s: &Snapshot, liveness: Liveness, now: Now) -> String {
    let time = clock::date_time(now.wall);
    let text = match liveness {
        Liveness::Gone => facts::gone(s).into(),
        _ => facts::headline(s, &now).text,
    };
    let step = match facts::current_step(s).filter(|_| s.state.changes_machine()) {
        Some((index, _)) => {
            s.steps.iter().find(|step| step.index == index).map(|step| format!(": {}", step.title.ascii()))
        }
        None => None,
    };
    let code = match (&s.pairing_code, s.state) {
        (Some(code), State::Pending) => format!(", pairing code {code}"),
        _ => String::new(),
    };
    let fault = s.fault.as_ref().map(|fault| format!(" > {}", fault.message.ascii())).unwrap_or_default();
    format!("{}\n", ascii(&format!("{time} {text}{}{code}{fault}", step.unwrap_or_default())))
}

// === private ===

/// The card of a machine whose agent has said nothing that could be shown.
fn without(view: &View, state: &str, why: Option<&str>) -> String {
    let mut rows = vec![rule(&format!("STRATUM JOIN  {}", clock::date_time(view.now.wall)))];
    value(&mut rows, "STATE", state, 2);
    if let Some(why) = why {
        foreign(&mut rows, "ERROR", why);
    }
    for (index, line) in screen::wait_for_agent().into_iter().enumerate() {
        value(&mut rows, if index == 0 { "DO" } else { "" }, line, 2);
    }
    rows.push("=".repeat(WIDTH));
    rows.iter().flat_map(|row| [row.as_str(), "\n"]).collect()
}

fn rule(text: &str) -> String {
    let text = cut(&format!("==== {text} "), WIDTH);
    format!("{text:=<WIDTH$}")
}

fn value(rows: &mut Vec<String>, label: &str, text: &str, most: usize) {
    let mut label = format!(" {label}");
    for line in wrap(text, WIDTH - VALUE, most) {
        rows.push(format!("{label:<VALUE$}{line}"));
        label.clear();
    }
}

fn foreign(rows: &mut Vec<String>, label: &str, text: &str) {
    let mut label = format!(" {label}");
    for line in wrap(text, WIDTH - VALUE - 2, 3) {
        rows.push(format!("{label:<VALUE$}> {line}"));
        label.clear();
    }
}

fn machine(s: &Snapshot) -> String {
    let mut parts = vec![facts::or_unknown(&s.machine.serial)];
    let maker = facts::maker(s);
    if !maker.is_empty() {
        parts.push(maker);
    }
    if let Some(nic) = &s.network.primary {
        let address = nic.address.as_ref().map_or("no address".into(), |address| address.ascii());
        parts.push(format!("{address} on {}", nic.nic.ascii()));
    }
    parts.push(format!("release {}", facts::or_unknown(&s.machine.release)));
    parts.join(", ")
}

fn cluster(s: &Snapshot) -> String {
    if s.cluster.endpoint.is_empty() {
        return "no address yet".into();
    }
    let identity = match s.cluster.identity {
        Identity::Proven => "identity proven",
        Identity::Unproven | Identity::Unknown => "identity not proven yet",
        Identity::Failed => "IDENTITY NOT PROVEN",
        Identity::Changed => "ANOTHER KEY THAN BEFORE",
    };
    let release = s
        .cluster
        .release
        .as_ref()
        .map(|release| format!(", release {}", facts::token(release)))
        .unwrap_or_default();
    format!("{}, {identity}{release}", s.cluster.endpoint.ascii())
}
