//! From the state to what may be shown: the snapshot. Pure but for `write`, which replaces one file in the run directory.
//!
//! Must never show a secret: no join code, no nonce, nothing of a delivery but the node's and the cluster's id.

mod machine;
mod snapshot;
mod upgrade;
mod words;

pub use machine::Machine;
pub use snapshot::{Agent, Facts, actions, rfc3339, snapshot};
pub use words::next_lines;
