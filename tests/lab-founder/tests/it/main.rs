//! The lab founder's behaviour, call by call: the core without a network, then the listeners, the faults and the command line.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

mod approve;
mod codes;
mod faults;
mod lifecycle;
mod machine;
mod network;
mod registration;
mod release;
mod reports;
mod restart;
mod support;
