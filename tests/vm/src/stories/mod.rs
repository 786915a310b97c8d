//! The stories. Each gets a laboratory of its own, and says what it measured.

mod boot;
mod clock;
mod console_crash;
mod hardware;
mod join;
mod no_network;
mod package;
mod power_cut;
mod probe_cost;
mod screens;
mod sentences;
mod wrong_code;

use anyhow::Result;

use crate::image::Image;
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
    /// Which packages its machines have.
    pub image: Image,
    /// Tells it.
    pub tell: fn(&Lab) -> Result<()>,
}

/// All, in the order `all` tells them: what says most in the least time comes first.
pub const STORIES: &[Story] = &[
    Story {
        name: "join",
        about: "a fresh machine boots, shows its pairing code everywhere, is approved, and joins",
        minutes: 3,
        image: Image::Plain,
        tell: join::tell,
    },
    Story {
        name: "package",
        about: "the package is installed, upgraded with a join under way, removed, installed again, purged",
        minutes: 4,
        image: Image::Plain,
        tell: package::tell,
    },
    Story {
        name: "no-network",
        about: "no cable at first; it joins without help once there is one",
        minutes: 2,
        image: Image::Plain,
        tell: no_network::tell,
    },
    Story {
        name: "wrong-code",
        about: "the code of another cluster; the right one is given inside the machine, without a reboot",
        minutes: 2,
        image: Image::Plain,
        tell: wrong_code::tell,
    },
    Story {
        name: "console-crash",
        about: "the console is killed six times: the login comes back, the join goes on",
        minutes: 3,
        image: Image::Plain,
        tell: console_crash::tell,
    },
    Story {
        name: "clock",
        about: "the clock says 1970, then 2039; it joins",
        minutes: 4,
        image: Image::Plain,
        tell: clock::tell,
    },
    Story {
        name: "power-cut",
        about: "the plug is pulled in each of five states; it boots again and joins with the same pairing code",
        minutes: 9,
        image: Image::Plain,
        tell: power_cut::tell,
    },
    Story {
        name: "hardware",
        about: "machines with every kind of disk and NIC: the probe says what lsblk and ip say",
        minutes: 5,
        image: Image::Storage,
        tell: hardware::tell,
    },
    Story {
        name: "screens",
        about: "each screen as a person sees it, in two fonts, with others writing to the terminal",
        minutes: 6,
        image: Image::Fonts,
        tell: screens::tell,
    },
    Story {
        name: "boot",
        about: "Debian without our package starts, and every channel of the harness works",
        minutes: 1,
        image: Image::Plain,
        tell: boot::tell,
    },
];

/// Not told with `all`: they measure, and prove nothing.
pub const MEASUREMENTS: &[Story] = &[Story {
    name: "probe-cost",
    about: "what the hardware probe costs with 24 disks and a running udev; for `cargo xtask bench hwprobe`",
    minutes: 10,
    image: Image::Measure,
    tell: probe_cost::tell,
}];
