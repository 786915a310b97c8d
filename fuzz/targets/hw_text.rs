//! `hw_text` of `hwprobe::fuzzing`, for libFuzzer: `cargo xtask fuzz hw_text`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hwprobe::fuzzing::hw_text(bytes));
