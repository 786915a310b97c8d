//! `release_manifest` of `stratum_join::fuzzing`, for libFuzzer: `cargo xtask fuzz release_manifest`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| stratum_join::fuzzing::release_manifest(bytes));
