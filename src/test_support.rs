//! What the unit tests share. Only in test builds.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

use proptest::test_runner::Config;

/// How many cases a property runs: 256, or 10,000 with `STRATUM_TEST_CASES=10000` (what `cargo xtask test` sets).
pub(crate) fn test_cases() -> u32 {
    #[expect(
        clippy::disallowed_methods,
        reason = "how long the tests run is the test runner's wish, not a setting of the product"
    )]
    let wanted = std::env::var("STRATUM_TEST_CASES").ok();
    wanted.and_then(|text| text.parse().ok()).unwrap_or(256)
}

/// A property's configuration with that many cases. Failures are printed; regressions belong into a unit test with a name.
pub(crate) fn config() -> Config {
    Config { cases: test_cases(), failure_persistence: None, ..Config::default() }
}

/// A file of `../shared` beside the repository. Prints why and gives `None` when it is not there.
pub(crate) fn shared(path: &str) -> Option<PathBuf> {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared").join(path);
    if file.exists() {
        return Some(file);
    }
    println!("skipped: ../shared/{path} not found");
    None
}
