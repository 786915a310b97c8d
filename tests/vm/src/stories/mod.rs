//! The stories. Each gets a laboratory of its own, and says what it measured.

mod boot;

use anyhow::Result;

use crate::lab::Lab;

/// One story.
#[derive(Clone, Copy)]
pub struct Story {
    /// What it is called on the command line.
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
    /// Tells it.
    pub tell: fn(&Lab) -> Result<()>,
}

/// All, in the order `all` tells them.
pub const STORIES: &[Story] = &[Story {
    name: "boot",
    about: "Debian without our package starts, and every channel of the harness works",
    tell: boot::tell,
}];
