//! The operator command line of the lab founder.
fn main() {}
