//! `ip_json` of `hwprobe::fuzzing`, for libFuzzer: `cargo xtask fuzz ip_json`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hwprobe::fuzzing::ip_json(bytes));
