//! The on-node join agent of a Stratum cluster. ARCHITECTURE.md is the map.

pub mod cli;
pub mod clock;
pub mod driver;
pub mod config;
pub mod durable_file;
pub mod faults;
pub mod founder;
pub mod identity;
pub mod handoff;
pub mod join;
pub mod paths;
pub mod journal;
pub mod report;
pub mod privileged;
pub mod protocol;
pub mod request;
pub mod telemetry;
pub mod yaml;

#[cfg(test)]
mod test_support;
