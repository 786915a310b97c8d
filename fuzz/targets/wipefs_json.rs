//! `wipefs_json` of `hwprobe::fuzzing`, for libFuzzer: `cargo xtask fuzz wipefs_json`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hwprobe::fuzzing::wipefs_json(bytes));
