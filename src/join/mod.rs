//! The decision: `step(state, event, now)` and `resume(durable, now)`.
//!
//! Touches nothing: no tokio, no file, no environment, no clock, no randomness. What must hold is listed in docs/join.md and kept as property tests.

pub mod backoff;
pub mod effect;
pub mod event;
pub mod fault;
pub mod notice;
pub mod state;
