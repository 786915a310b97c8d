//! The integration tests: real processes, real TLS, real SQLite, under temporary roots. The module list is the table of contents.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs, unreachable_pub, reason = "tests")]

mod architecture;
mod check;
mod console_unit;
mod control;
mod crash;
mod diagnosis;
mod download;
mod founder;
mod handoff;
mod hardware;
mod helper;
mod hostile;
mod hostile_tree;
mod identity;
mod leak;
mod outage;
mod packaging;
mod pinning;
mod restart;
mod same_truth;
mod story;
mod support;
mod units;
mod upgrade;
