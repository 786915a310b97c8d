//! The on-node join agent of a Stratum cluster. ARCHITECTURE.md is the map.

pub mod faults;
pub mod join;
pub mod protocol;

#[cfg(test)]
mod test_support;
