//! `cpuinfo` of `hwprobe::fuzzing`, for libFuzzer: `cargo xtask fuzz cpuinfo`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hwprobe::fuzzing::cpuinfo(bytes));
