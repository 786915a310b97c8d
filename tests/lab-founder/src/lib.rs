//! The founder's side of the documented API, for tests, demos and labs, and for those who implement a founder.
//!
//! [`Founder`] is the core: synchronous, handed its clock, no network. [`LabFounder`] puts it behind the two listeners.
//! Touches loopback or lab sockets and its SQLite file. Must never hold a real cluster's secret.

mod admin;
mod approve;
pub mod config;
pub mod ctl;
mod disk;
mod entropy;
pub mod evil;
mod evil_core;
mod founder;
mod http;
mod impostor;
mod join_api;
pub mod machine;
pub mod mirror;
pub mod model;
mod proxy;
mod relay;
pub mod release;
mod scheduler;
mod server;
mod store;
mod time;
pub mod tls;

pub use admin::codes::CreatedCode;
pub use approve::assignment::Assignment;
pub use config::Config;
pub use entropy::Seed;
pub use evil::{Evil, Scripted, Step};
pub use founder::{Founder, OpenError, Received};
pub use http::{FileBody, Hold, Peer, Request, Response};
pub use impostor::Impostor;
pub use mirror::{EvilMirror, Fault as MirrorFaultAt, MirrorConfig, MirrorFault};
pub use proxy::{FaultProxy, ProxyFault};
pub use relay::Relay;
pub use server::{CTL_FILE, LabFounder, StartError};
pub use store::Place;
pub use time::{Clock, rfc3339};
