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

pub use card::{card, card_of, line};
pub use clock::Now;
pub use draw::{FALLBACK, draw, effective_size, text_of};
pub use glyphs::ALPHABET;
pub use run::{ExitReason, Options, REPAINT, RunError, bytes_between, check_name, run};
pub use snapshot::{Liveness, ReadError, Snapshot};
pub use view::{Feed, Leave, Screen, View};

/// What a picture is drawn on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A terminal of so many columns and rows; 0 in either is drawn as [`FALLBACK`].
    Cells(u16, u16),
    /// A serial line or a dumb terminal.
    Card,
}

/// The bytes of a snapshot file as a person saw them at the instant it was written: the same bytes always give the same text, on any
/// machine and at any time. A pixel of the big pairing code is `#`. Of a newer agent's snapshot its own line and advice are shown.
///
/// # Errors
/// The snapshot cannot be used; see [`ReadError`]. Never [`ReadError::Missing`] or [`ReadError::Io`].
pub fn picture(raw: &[u8], screen: Screen, shape: Shape) -> Result<String, ReadError> {
    let (snapshot, feed) =
        Snapshot::parse(raw).map_or_else(Feed::of_newer, |snapshot| Ok((snapshot, Feed::Live)))?;
    let now = snapshot.written();
    let liveness = snapshot.liveness(now.boot_ms, |_| true);
    Ok(match shape {
        Shape::Card => card(&snapshot, liveness, now, None),
        Shape::Cells(cols, rows) => {
            let view = View { screen, feed, liveness, ..View::new(now) };
            text_of(&draw(&snapshot, &view, (cols, rows)))
        }
    })
}

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
