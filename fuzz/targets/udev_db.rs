//! `udev_db` of `hwprobe::fuzzing`, for libFuzzer: `cargo xtask fuzz udev_db`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hwprobe::fuzzing::udev_db(bytes));
