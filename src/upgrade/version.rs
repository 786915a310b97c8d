//! Which release may replace which: rules V1 to V7 (docs/upgrade.md, "Versions").
//!
//! Touches nothing. Must never ask the wall clock: the cluster names the release, and the floor keeps it from naming an old one.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

use super::fault::{Code, UpgradeFault};
use super::manifest::About;
use super::refusal::{Refusal, Rule};
use super::running::RunningOs;
use crate::protocol::release::Release;

/// Longest release name, bytes.
pub const MAX_VERSION: usize = 32;
/// Highest sequence: what every JSON reader keeps exactly.
pub const MAX_SEQUENCE: u64 = (1 << 53) - 1;

/// A release name `N.N.N[-pre]` in SemVer order: no build, at most [`MAX_VERSION`] bytes, each N of at most five digits. Two are equal exactly
/// when their texts are.
#[derive(Clone, PartialEq, Eq)]
pub struct Version {
    text: String,
    order: Release,
}

/// Why a text is no release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a release: N.N.N[-pre] of at most {MAX_VERSION} bytes")]
pub struct BadVersion;

/// The highest release ever accepted on this machine. An upgrade goes below neither of the two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Floor {
    /// Its name.
    pub release: Version,
    /// Its sequence.
    pub sequence: u64,
}

/// What an offer comes to before anything is fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Offer {
    /// Upgrade to this release.
    Upgrade(Version),
    /// Made for a release that no longer runs here (V2): register again.
    Stale,
    /// It runs already (V3): register again.
    Installed,
}

// === impl Version ===

impl Version {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for Version {
    type Err = BadVersion;

    fn from_str(text: &str) -> Result<Self, BadVersion> {
        let core = text.split('-').next().unwrap_or_default();
        let short = core.split('.').all(|n| n.len() <= 5);
        if text.len() > MAX_VERSION || text.contains('+') || !short {
            return Err(BadVersion);
        }
        let order = Release::parse(text).ok_or(BadVersion)?;
        Ok(Self { text: text.to_owned(), order })
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.order.cmp(&other.order)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

// === impl Floor ===

impl Floor {
    /// What counts: the higher of what `floor.json` says and of what runs. A missing or broken file says nothing; it lies below a directory of
    /// root and is written whole.
    pub fn of(file: Option<&[u8]>, running: &RunningOs) -> Self {
        #[derive(Deserialize)]
        struct File {
            release: String,
            sequence: u64,
        }
        let running = Self { release: running.release.clone(), sequence: running.sequence };
        let read = file.and_then(|bytes| serde_json::from_slice::<File>(bytes).ok());
        let Some((Ok(release), sequence)) = read.map(|f| (f.release.parse::<Version>(), f.sequence)) else {
            return running;
        };
        Self { release: release.max(running.release), sequence: sequence.max(running.sequence) }
    }
}

/// V2, V3 and the half of V4 that needs no manifest. `from` and `to` are the offer's.
pub fn offered(from: &str, to: &str, os: &RunningOs, floor: &Floor) -> Result<Offer, UpgradeFault> {
    if from != os.release.as_str() {
        return Ok(Offer::Stale);
    }
    if to == os.release.as_str() {
        return Ok(Offer::Installed);
    }
    let Ok(to) = to.parse::<Version>() else {
        return Err(UpgradeFault::new(
            Code::WrongRelease,
            format!("The cluster asked for `{to}`, which is not the name of a release."),
            "Correct the release of the cluster.",
        ));
    };
    if to <= os.release || to < floor.release {
        return Err(older(&to, &floor.release).fault);
    }
    Ok(Offer::Upgrade(to))
}

/// M8, which is V7: product and processor.
pub(super) fn fits(about: &About, os: &RunningOs) -> Result<(), Refusal> {
    if about.product == os.product && about.arch == os.arch {
        return Ok(());
    }
    Err(Refusal::new(
        Rule::M8,
        Code::WrongRelease,
        format!(
            "The source holds {} {} {}; this machine needs {} {}.",
            about.product, about.release, about.arch, os.product, os.arch
        ),
        format!("Point the mirror at the release of {} for {}.", os.product, os.arch),
    ))
}

/// M10: V1, V4, V5, V6. Without `to` (the helper, which is told no release) V1 is not asked.
pub(super) fn follows(
    about: &About,
    os: &RunningOs,
    floor: &Floor,
    to: Option<&Version>,
) -> Result<(), Refusal> {
    let About { release, sequence, .. } = about;
    if let Some(to) = to.filter(|to| *to != release) {
        let what = format!(
            "The source holds {} {release} {}; the cluster asked for {to}.",
            about.product, about.arch
        );
        return Err(Refusal::new(Rule::M10, Code::WrongRelease, what, format!("Point the mirror at {to}.")));
    }
    if *release <= os.release || *release < floor.release {
        return Err(older(release, &floor.release));
    }
    // A sequence rises with every release: an equal one is the same release under another name.
    if *sequence <= os.sequence || *sequence < floor.sequence {
        let what = format!(
            "{release} is older than its name says: its sequence is {sequence}, and {} ran here. Not installed.",
            floor.sequence.max(os.sequence)
        );
        return Err(Refusal::new(
            Rule::M10,
            Code::Downgrade,
            what,
            "Make the release again with a higher --sequence.",
        ));
    }
    if os.release < about.min_upgrade_from {
        let what = format!(
            "{release} accepts upgrades from {}; this machine runs {}.",
            about.min_upgrade_from, os.release
        );
        return Err(Refusal::new(Rule::M10, Code::TooOld, what, "Install from a newer ISO."));
    }
    Ok(())
}

fn older(release: &Version, highest: &Version) -> Refusal {
    let what = if release == highest {
        format!("{release} runs here already. Not installed.")
    } else {
        format!("{release} is older than {highest}, which ran here. Not installed.")
    };
    let todo = format!("Use a cluster on {highest} or newer, or reinstall from the ISO.");
    Refusal::new(Rule::M10, Code::Downgrade, what, todo)
}
