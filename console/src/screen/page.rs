//! A page: what one screen says, before any terminal's size is known beyond its width.

use super::*;
use crate::layout::{Body, Row, Tag};

/// One screen's content.
pub(crate) struct Page {
    /// Behind `STRATUM JOIN` on row 1: `NETWORK`, `LOG`, `DETAILS` or nothing.
    pub(crate) title: &'static str,
    /// Row 3; side screens without a state of their own have none and start on row 2.
    pub(crate) state: Option<(Tag, String, Fact)>,
    /// The pairing code to draw big on top of the body.
    pub(crate) big: Option<String>,
    /// The middle.
    pub(crate) body: Vec<Row>,
    /// The row above the identity.
    pub(crate) footer: Option<Row>,
    /// Row 24.
    pub(crate) keys: String,
    /// Rows of the body that follow the scroll position.
    pub(crate) scrolled: bool,
}

impl Page {
    /// The main page of a state.
    pub(crate) fn main(s: &Snapshot, view: &View, body: Body) -> Self {
        let headline = facts::headline(s, &view.now);
        let fact = facts::fact(s, &view.now);
        Self {
            title: "",
            state: Some((headline.tag, headline.text, fact)),
            big: None,
            body: body.rows,
            footer: None,
            keys: keys(s, view),
            scrolled: false,
        }
    }
}

/// The key for the LED, where the agent can do it: a key that does nothing is not offered.
pub(crate) fn identify_key(s: &Snapshot) -> &'static str {
    if s.actions.identify { "[I] blink LED  " } else { "" }
}

/// The keys of a main screen. With `retry` there is no room for `[R]edraw`; any unmapped key does the same.
pub(crate) fn keys(s: &Snapshot, view: &View) -> String {
    let (retry, redraw) = if s.actions.retry { ("[T] retry now  ", "") } else { ("", "[R]edraw  ") };
    format!(" {retry}[D]etails  [N]etwork  [L]og  {}{redraw}{}", identify_key(s), leave(view))
        .trim_end()
        .to_owned()
}

/// The keys of a side screen. Where the state itself opened it there is no way back, so none is offered.
pub(crate) fn side_keys(view: &View, own: &str) -> String {
    let back = if view.screen == Screen::Main { "[D]etails" } else { "[Esc] back" };
    format!(" {back}  {own}  [R]edraw  {}", leave(view)).trim_end().to_owned()
}

/// How the way to a shell is told in a sentence: `Press Alt+F2, log in as root,` or `Log in as root`.
pub(crate) fn login(view: &View) -> &'static str {
    match view.leave {
        Leave::AltF2 => "Press Alt+F2, log in as root, and run:",
        Leave::HandBack => "Press X, then Y, log in as root, and run:",
        Leave::Quit | Leave::Nowhere => "Log in as root, and run:",
    }
}

/// The same after a comma.
pub(crate) fn login_then(view: &View) -> &'static str {
    match view.leave {
        Leave::AltF2 => "press Alt+F2, log in as root, and run:",
        Leave::HandBack => "press X, then Y, log in as root, and run:",
        Leave::Quit | Leave::Nowhere => "log in as root, and run:",
    }
}

pub(crate) fn leave(view: &View) -> &'static str {
    match view.leave {
        Leave::AltF2 => "Alt+F2 login",
        Leave::HandBack => "[X][Y] login",
        Leave::Quit => "[Q][Q] leave",
        Leave::Nowhere => "",
    }
}
