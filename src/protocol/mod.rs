//! `stratum-join/1`: wire types, join codes and URLs, the proof, the pairing code, problems.
//!
//! Pure: no network, no file, no clock. Everything received is checked here on the way in.

pub mod code;
pub mod encoding;
pub mod pairing;
pub mod pake;
pub mod proof;
pub mod release;
mod transcript;
pub mod url;
pub mod wire;
