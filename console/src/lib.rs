//! Draws one snapshot of a join on one terminal.
//!
//! Home of what may be shown: the [`Snapshot`] schema, the [`text::Safe`] text type, and the banner and card texts as pure
//! functions of a snapshot. Touches one snapshot file, one control socket and one terminal. Knows no network, no keys, no
//! founder types and not the agent; a console that hangs, panics or loses its terminal never stops a join.

pub mod snapshot;
pub mod text;

pub use snapshot::{Liveness, ReadError, Snapshot};
