//! `mountinfo` of `hwprobe::fuzzing`, for libFuzzer: `cargo xtask fuzz mountinfo`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hwprobe::fuzzing::mountinfo(bytes));
