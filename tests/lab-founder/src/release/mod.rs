//! Releases as an engineer makes them: keys, the directory with its manifest, signatures, the check before publishing, and damaged copies
//! for tests (docs/upgrade.md).
//!
//! Touches the files and directories it is told. What it makes is judged by the agent's own verifier and never by rules of its own. Keys with a
//! password stay with minisign itself.

pub mod cli;

mod blob;
mod breakage;
mod check;
mod key;
mod make;
mod oci;
mod sign;
mod statement;

pub use breakage::{Breakage, break_release};
pub use check::{Against, Report, check};
pub use key::{KeyFileError, SecretKey, keygen};
pub use make::{AbInput, Made, Spec, SysextInput, make};
pub use sign::{legacy_text, print_minisign, sign, sign_text};
