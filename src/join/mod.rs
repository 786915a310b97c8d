//! The decision: `step(state, event, now)` and `resume(durable, env, now)`.
//!
//! Touches nothing: no tokio, no file, no environment, no clock, no randomness. What must hold, kept as property tests in `properties.rs`:
//!
//! 1. Every state that is not terminal and waits for no person has an outstanding effect or an armed timer.
//! 2. Nothing reaches the founder before the key is durable; no code and no inventory before the founder proved the code.
//! 3. At most one poll is outstanding.
//! 4. A hand-off happens only from a delivery on the channel pinned to our registration; firstboot is started at most once per attempt.
//! 5. Crash after any step, then `resume`: the same end is reached.
//! 6. A machine in needs-upgrade is handed nothing; nothing is written, armed or started that the cluster did not want a moment before, and the
//!    running release never goes down.
//! 7. Every state and every fault gives a snapshot whose `next` line is not empty.
//! 8. The journal is written before the effect (the driver's).
//! 9. No call and no wait lasts longer than 90 s, unless the founder asked for it (`Retry-After`) or the
//!    next attempt of an upgrade is waited for (10 minutes; the founder is polled meanwhile).

pub mod advice;
pub mod backoff;
mod calls;
pub mod checks;
#[cfg(test)]
mod checks_tests;
pub mod effect;
pub mod event;
pub mod fault;
pub mod hardware;
#[cfg(test)]
mod hardware_tests;
mod install;
#[cfg(test)]
mod install_tests;
pub mod notice;
mod posts;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod restart_tests;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod sim;
#[cfg(test)]
mod sim_os;
pub mod state;
mod step;
#[cfg(test)]
mod trust_tests;
pub mod upgrade;

pub use checks::past_of;
pub use step::{Step, may_retry, resume, step};
