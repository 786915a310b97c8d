//! The installer command line.
fn main() {}
