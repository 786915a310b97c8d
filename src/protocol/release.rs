//! Releases in SemVer order, and what a cluster says to a machine of another release. Touches nothing.

use std::cmp::Ordering;

/// A release name `N.N.N[-pre][+build]`, ordered as SemVer 2.0.0 orders (section 11; the build does not count).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    core: [u64; 3],
    pre: Vec<Identifier>,
}

/// One dot-separated part of a pre-release.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    /// Numbers come before words.
    Number(u64),
    Word(String),
}

/// What the founder's rules make of a joiner's release (docs/protocol.md, registration).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The same release: it waits for approval.
    Same,
    /// Older, and it may upgrade itself first.
    Upgrade,
    /// Older than the lowest release that may upgrade itself, or it cannot.
    TooOld,
    /// Newer than the cluster.
    TooNew,
    /// One of the names is not a release.
    Unreadable,
}

// === impl Release ===

impl Release {
    /// Parses a release name of at most 64 bytes; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > 64 {
            return None;
        }
        let (text, build) = match text.split_once('+') {
            Some((text, build)) => (text, Some(build)),
            None => (text, None),
        };
        if build.is_some_and(|build| !build.split('.').all(is_identifier)) {
            return None;
        }
        let (core, pre) = match text.split_once('-') {
            Some((core, pre)) => (core, Some(pre)),
            None => (text, None),
        };
        let mut numbers = core.split('.').map(number);
        let core = [numbers.next()??, numbers.next()??, numbers.next()??];
        if numbers.next().is_some() {
            return None;
        }
        let pre = pre.map_or(Some(Vec::new()), |pre| pre.split('.').map(identifier).collect())?;
        Some(Self { core, pre })
    }
}

impl PartialOrd for Release {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Release {
    fn cmp(&self, other: &Self) -> Ordering {
        let pre = match (self.pre.is_empty(), other.pre.is_empty()) {
            // A release comes after its own pre-releases.
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            _ => self.pre.cmp(&other.pre),
        };
        self.core.cmp(&other.core).then(pre)
    }
}

// === impl Verdict ===

impl Verdict {
    /// What a cluster of release `cluster`, which upgrades machines from `min_upgrade_from` on, says to `ours`.
    pub fn of(ours: &str, cluster: &str, min_upgrade_from: &str, self_upgrade: bool) -> Self {
        let (Some(ours), Some(cluster)) = (Release::parse(ours), Release::parse(cluster)) else {
            return Verdict::Unreadable;
        };
        match ours.cmp(&cluster) {
            Ordering::Equal => Verdict::Same,
            Ordering::Greater => Verdict::TooNew,
            Ordering::Less => match Release::parse(min_upgrade_from) {
                Some(lowest) if self_upgrade && ours >= lowest => Verdict::Upgrade,
                _ => Verdict::TooOld,
            },
        }
    }
}

fn is_identifier(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

fn number(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    plain.then(|| text.parse().ok()).flatten()
}

fn identifier(text: &str) -> Option<Identifier> {
    if !is_identifier(text) {
        return None;
    }
    if text.bytes().all(|b| b.is_ascii_digit()) {
        return number(text).map(Identifier::Number);
    }
    Some(Identifier::Word(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_ordered_as_semver_orders_them() {
        let rising = [
            "0.0.0",
            "0.5.0",
            "0.7.0-alpha",
            "0.7.0-alpha.1",
            "0.7.0-alpha.beta",
            "0.7.0-beta",
            "0.7.0-beta.2",
            "0.7.0-beta.11",
            "0.7.0-rc.1",
            "0.7.0",
            "0.7.1",
            "0.10.0",
            "1.0.0",
            "18446744073709551615.0.0",
        ];
        let parsed: Vec<Release> = rising.iter().map(|text| Release::parse(text).expect(text)).collect();
        for pair in parsed.windows(2) {
            assert!(pair[0] < pair[1], "{pair:?}");
        }
        assert_eq!(
            Release::parse("1.0.0+a").map(|r| r.cmp(&Release::parse("1.0.0+b").expect("a release"))),
            Some(Ordering::Equal)
        );
    }

    #[test]
    fn what_is_no_release_is_not_read_as_one() {
        let long = format!("1.0.0-{}", "a".repeat(60));
        for bad in [
            "",
            "1",
            "1.0",
            "1.0.0.0",
            "v1.0.0",
            "01.0.0",
            "1.0.0-",
            "1.0.0-a..b",
            "1.0.0-01",
            "1.0.0+",
            " 1.0.0",
            "1.0.x",
            "1.0.-1",
            "18446744073709551616.0.0",
            "1.0.0-\u{e4}",
            &long,
        ] {
            assert_eq!(Release::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_verdict_is_that_of_the_founders_table() {
        for (ours, cluster, lowest, can, verdict) in [
            ("0.7.0", "0.7.0", "0.5.0", false, Verdict::Same),
            ("0.6.0", "0.7.0", "0.5.0", true, Verdict::Upgrade),
            ("0.5.0", "0.7.0", "0.5.0", true, Verdict::Upgrade),
            ("0.4.9", "0.7.0", "0.5.0", true, Verdict::TooOld),
            ("0.6.0", "0.7.0", "0.5.0", false, Verdict::TooOld),
            ("0.6.0", "0.7.0", "soon", true, Verdict::TooOld),
            ("0.8.0", "0.7.0", "0.5.0", true, Verdict::TooNew),
            ("0.7.0-rc.1", "0.7.0", "0.5.0", true, Verdict::Upgrade),
            ("", "0.7.0", "0.5.0", true, Verdict::Unreadable),
            ("0.7.0", "now", "0.5.0", true, Verdict::Unreadable),
        ] {
            assert_eq!(Verdict::of(ours, cluster, lowest, can), verdict, "{ours} {cluster}");
        }
    }
}
