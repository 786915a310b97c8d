//! `content_range` of `stratum_join::fuzzing`, for libFuzzer: `cargo xtask fuzz content_range`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| stratum_join::fuzzing::content_range(bytes));
