//! The matrix of real machines that the hardware probe is compared on: with `lsblk` and `ip`, with what is known of each machine, and with
//! itself as others run it.

pub mod answer;
pub mod compare;
pub mod differences;
pub mod machines;
pub mod plug;
pub mod rows;
pub mod views;
