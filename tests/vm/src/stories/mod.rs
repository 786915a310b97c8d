//! The stories. Each gets a laboratory of its own, and says what it measured.

mod boot;
mod clock;
mod console_crash;
mod join;
mod no_network;
mod package;
mod power_cut;
mod sentences;
mod wrong_code;

use anyhow::Result;

use crate::lab::Lab;

/// One story.
#[derive(Clone, Copy)]
pub struct Story {
    /// What it is called on the command line.
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
    /// How long that takes in emulation, at most, on two processors that have nothing else to do.
    pub minutes: u64,
    /// Tells it.
    pub tell: fn(&Lab) -> Result<()>,
}

/// All, in the order `all` tells them: what says most in the least time comes first.
pub const STORIES: &[Story] = &[
    Story {
        name: "join",
        about: "a fresh machine boots, shows its pairing code everywhere, is approved, and joins",
        minutes: 3,
        tell: join::tell,
    },
    Story {
        name: "package",
        about: "the package is installed, upgraded with a join under way, removed, installed again, purged",
        minutes: 4,
        tell: package::tell,
    },
    Story {
        name: "no-network",
        about: "no cable at first; it joins without help once there is one",
        minutes: 2,
        tell: no_network::tell,
    },
    Story {
        name: "wrong-code",
        about: "the code of another cluster; the right one is given inside the machine, without a reboot",
        minutes: 2,
        tell: wrong_code::tell,
    },
    Story {
        name: "console-crash",
        about: "the console is killed six times: the login comes back, the join goes on",
        minutes: 3,
        tell: console_crash::tell,
    },
    Story { name: "clock", about: "the clock says 1970, then 2039; it joins", minutes: 4, tell: clock::tell },
    Story {
        name: "power-cut",
        about: "the plug is pulled in each of five states; it boots again and joins with the same pairing code",
        minutes: 9,
        tell: power_cut::tell,
    },
    Story {
        name: "boot",
        about: "Debian without our package starts, and every channel of the harness works",
        minutes: 1,
        tell: boot::tell,
    },
];
