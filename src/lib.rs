//! The on-node join agent of a Stratum cluster.
//!
//! Decide in one pure function; touch the world through named ports; write down before acting; show only what is written. ARCHITECTURE.md is the
//! map: it says of every module what it is and what it may touch, and `tests/it/architecture.rs` holds it to that.

pub mod cli;
pub mod clock;
pub mod config;
pub mod control;
pub mod diagnosis;
pub mod driver;
pub mod durable_file;
pub mod faults;
pub mod founder;
#[doc(hidden)]
pub mod fuzzing;
pub mod handoff;
pub mod identity;
pub mod install;
pub mod join;
pub mod journal;
pub mod paths;
pub mod privileged;
pub mod protocol;
pub mod report;
pub mod request;
pub mod telemetry;
pub mod upgrade;
pub mod yaml;

#[cfg(test)]
mod test_support;
