//! `install_record` of `hwprobe::fuzzing`, for libFuzzer: `cargo xtask fuzz install_record`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hwprobe::fuzzing::install_record(bytes));
