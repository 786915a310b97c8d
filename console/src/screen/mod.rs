//! The screens: which page a snapshot gives, and what it says.
//!
//! Pure. Text from the founder, firstboot or hardware stands only behind `> `, at most 3 rows of it.

mod agent;
mod journey;
mod network;
mod page;
mod side;
mod stopped;

pub(crate) use agent::wait_for_agent;
pub(crate) use page::Page;

use crate::clock;
use crate::facts::{self, Fact};
use crate::layout::{Body, Row, Tag, first_fit};
use crate::snapshot::{Actions, Liveness, Snapshot, State};
use crate::view::{Feed, Leave, Screen, View};

/// Before registration the network diagnosis opens by itself after this long.
const NETWORK_OPENS_MS: u64 = 30_000;

/// The page of a snapshot; `width` columns of text, `room` rows for the body.
pub(crate) fn page(s: &Snapshot, view: &View, width: usize, room: usize) -> Page {
    // No key is offered that needs an agent that is not there.
    let without_keys;
    let s = if view.liveness == Liveness::Gone && s.actions != Actions::default() {
        without_keys = Snapshot { actions: Actions::default(), ..s.clone() };
        &without_keys
    } else {
        s
    };
    let mut page = of(s, view, width, room);
    if let Some((_, state, fact)) = &mut page.state {
        fact.fit(width.saturating_sub(state.len() + 6));
    }
    // Wherever the screen itself has no place for the code, the row above the identity has.
    if let Some(code) = s.pairing_code.as_ref().filter(|_| page.state.is_some() && page.footer.is_none()) {
        let code = code.ascii();
        let fact = page.state.as_ref().is_some_and(|(_, _, fact)| fact.long.contains(&code));
        let shown = fact || page.body.iter().any(|row| row.text.contains(&code));
        if !shown && s.state != State::Joined && view.feed == Feed::Live {
            page.footer = Some(Row::text(format!("Pairing code {code}")));
        }
    }
    page
}

fn of(s: &Snapshot, view: &View, width: usize, room: usize) -> Page {
    match (view.screen, &view.feed) {
        (_, Feed::NotYet { .. } | Feed::Unreadable(_)) => agent::page(s, view, width),
        (_, Feed::Foreign { schema }) => agent::foreign(s, view, width, *schema),
        (Screen::Details, _) => side::details(s, view, width),
        (Screen::Log, _) => side::log(s, view, width, room),
        (Screen::Network, _) => network::page(s, view, width, room),
        (Screen::Main, _) if view.liveness == Liveness::Gone => agent::page(s, view, width),
        (Screen::Main, _) => main(s, view, width, room),
    }
}

fn main(s: &Snapshot, view: &View, width: usize, room: usize) -> Page {
    match s.state {
        State::Starting | State::Registering if network_opens(s, view) => network::page(s, view, width, room),
        State::Registering if facts::refused_for_now(s) => stopped::refused(s, view, width),
        State::Starting | State::Registering => journey::registering(s, view, width, room),
        State::Pending => journey::pending(s, view, width),
        State::NeedsUpgrade if facts::upgrade_failed(s) => stopped::upgrade(s, view, width),
        State::NeedsUpgrade if facts::upgrade_stands(s) => stopped::upgrade_stands(s, view, width),
        State::NeedsUpgrade => journey::upgrading(s, view, width, room),
        State::Approved => journey::approved(s, view, width),
        State::Delivering | State::Installing => journey::installing(s, view, width, room),
        State::Joined => journey::joined(s, view, width),
        State::Failed => stopped::failed(s, view, width),
        State::Refused => stopped::refused(s, view, width),
        State::Expired => stopped::expired(s, view, width),
        State::Rejected => stopped::rejected(s, view, width),
        State::IdentityFailed => network::identity(s, view, width),
        State::Unknown => journey::unknown(s, view, width),
    }
}

/// True when the endpoint has not answered for so long that nothing else matters; never over a registration.
fn network_opens(s: &Snapshot, view: &View) -> bool {
    s.network.failing_since_mono.is_some_and(|since| view.now.since(since) >= NETWORK_OPENS_MS)
}

/// The line that lies over row 18: the most urgent thing the state itself does not say, in at most `width` columns where it can be
/// said so shortly.
pub(crate) fn overlay(s: &Snapshot, view: &View, page: &Page, width: usize) -> Option<Row> {
    if view.feed != Feed::Live || page.title == "NETWORK" && view.liveness == Liveness::Alive {
        return None;
    }
    let trouble = |forms: &[String]| Row::tagged(0, Tag::Trouble, first_fit(forms, width.saturating_sub(5)));
    if view.liveness == Liveness::Late {
        let age = clock::hms(s.age_ms(view.now.boot_ms));
        return Some(trouble(&[format!("last update {age} ago")]));
    }
    if view.liveness == Liveness::Gone || s.state == State::Joined {
        return None;
    }
    if let Some(since) = s.network.failing_since_mono {
        let age = clock::hms(view.now.since(since));
        return Some(trouble(&[
            format!("no contact with the cluster for {age}"),
            format!("no contact for {age}"),
        ]));
    }
    // A fault that the screen itself has no place for.
    let silent = match s.state {
        State::Pending | State::Approved | State::Delivering | State::Installing => true,
        State::NeedsUpgrade => !facts::upgrade_failed(s),
        State::Failed => facts::failed_step(s).is_some(),
        _ => false,
    };
    if let Some(fault) = s.fault.as_ref().filter(|_| silent) {
        return Some(trouble(&[format!("> {}", fault.message)]));
    }
    let text = s.degraded.as_ref()?;
    Some(trouble(&[format!("the join agent: {text}"), format!("agent: {text}"), text.to_string()]))
}
