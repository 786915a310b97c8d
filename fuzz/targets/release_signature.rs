//! `release_signature` of `stratum_join::fuzzing`, for libFuzzer: `cargo xtask fuzz release_signature`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| stratum_join::fuzzing::release_signature(bytes));
