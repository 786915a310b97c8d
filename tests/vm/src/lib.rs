//! Boots a whole Debian machine with our package in QEMU, gives it a cluster, and tells stories about it.
//!
//! Needs root to make the machine's file system, and writes only below the directory it is given and a temporary one. Opens no port
//! but the founder's on loopback; everything it starts ends before it does.

pub mod accel;
pub mod artefacts;
pub mod board;
pub mod checks;
pub mod child;
pub mod founder;
pub mod guest;
pub mod hardware;
pub mod image;
pub mod lab;
pub mod listing;
pub mod picture;
pub mod qemu;
pub mod qmp;
pub mod screen;
pub mod serial;
pub mod stories;
pub mod tree;
pub mod vm;
pub mod wait;
