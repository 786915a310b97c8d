//! Draws one snapshot of a join on one terminal.
//!
//! Home of what may be shown: the [`Snapshot`] schema, the [`text::Safe`] text type, and the banner and card texts as pure
//! functions of a snapshot. Touches one snapshot file, one control socket and one terminal. Knows no network, no keys, no
//! founder types and not the agent; a console that hangs, panics or loses its terminal never stops a join.

pub mod banner;
mod canvas;
mod card;
mod clock;
mod draw;
mod facts;
mod glyphs;
mod layout;
mod run;
mod screen;
pub mod snapshot;
pub mod text;
mod view;

pub use card::{card, line};
pub use clock::Now;
pub use draw::{FALLBACK, draw, effective_size, text_of};
pub use glyphs::ALPHABET;
pub use run::{ExitReason, Options, RunError, check_name, run};
pub use snapshot::{Liveness, ReadError, Snapshot};
pub use view::{Feed, Leave, Screen, View};

/// A snapshot as text, for tests, documents and terminals that cannot be drawn on: the screen at `cols` x `rows`, or the card.
/// Its age is judged by `now` alone; no process is asked for.
pub fn render_text(snapshot: &Snapshot, cols: u16, rows: u16, as_card: bool, now: Now) -> String {
    let liveness = snapshot.liveness(now.boot_ms, |_| true);
    if as_card {
        return card(snapshot, liveness, now, None);
    }
    let view = View { liveness, ..View::new(now) };
    text_of(&draw(snapshot, &view, (cols, rows)))
}
