//! The lab founder.
fn main() {}
