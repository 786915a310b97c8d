//! Which releases may join (docs/protocol.md 3.4). Pure.

use std::cmp::Ordering;

use crate::config::Supply;
use crate::founder::ReleaseFacts;
use crate::model::Upgrade;

/// What a registration of a release gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// `pending`.
    Same,
    /// `needs-upgrade` with this offer.
    Older(Upgrade),
    /// `RELEASE_MISMATCH`.
    Refused,
}

pub(crate) fn judge(reported: &str, self_upgrade: bool, facts: &ReleaseFacts) -> Verdict {
    if reported == facts.release {
        return Verdict::Same;
    }
    let (Some(r), Some(c)) = (Version::parse(reported), Version::parse(&facts.release)) else {
        return Verdict::Refused;
    };
    let allowed = Version::parse(&facts.min_upgrade_from).is_some_and(|least| r >= least);
    if r >= c || !self_upgrade || !allowed {
        return Verdict::Refused;
    }
    let (source, from_founder) = match &facts.supply {
        Supply::None => return Verdict::Refused,
        Supply::Mirror(url) => (url.clone(), false),
        Supply::Founder => (String::new(), true),
    };
    Verdict::Older(Upgrade { from: reported.to_owned(), to: facts.release.clone(), source, from_founder })
}

/// `N.N.N[-pre]` in SemVer order.
#[derive(Debug, PartialEq, Eq)]
struct Version<'a> {
    numbers: [u32; 3],
    pre: Option<&'a str>,
}

// === impl Version ===

impl<'a> Version<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let (numbers, pre) = text.split_once('-').map_or((text, None), |(n, p)| (n, Some(p)));
        let mut parts = numbers.split('.');
        let mut number = || {
            let part = parts.next()?;
            let plain = (1..=5).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
            let no_leading_zero = part == "0" || !part.starts_with('0');
            if plain && no_leading_zero { part.parse().ok() } else { None }
        };
        let numbers = [number()?, number()?, number()?];
        let pre_ok = pre.is_none_or(|p| {
            p.split('.').all(|i| !i.is_empty() && i.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'))
        });
        (parts.next().is_none() && pre_ok).then_some(Self { numbers, pre })
    }
}

impl PartialOrd for Version<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Version<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.numbers.cmp(&other.numbers).then_with(|| match (self.pre, other.pre) {
            (None, None) => Ordering::Equal,
            (None, Some(_)) => Ordering::Greater,
            (Some(_), None) => Ordering::Less,
            (Some(a), Some(b)) => pre_order(a, b),
        })
    }
}

/// Identifier by identifier: numbers by value and below words, words by bytes, fewer below more.
fn pre_order(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.split('.'), b.split('.'));
    loop {
        let order = match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(a), Some(b)) => match (a.parse::<u64>(), b.parse::<u64>()) {
                (Ok(a), Ok(b)) => a.cmp(&b),
                (Ok(_), Err(_)) => Ordering::Less,
                (Err(_), Ok(_)) => Ordering::Greater,
                (Err(_), Err(_)) => a.cmp(b),
            },
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(supply: Supply) -> ReleaseFacts {
        ReleaseFacts {
            release: "0.7.0".to_owned(),
            min_upgrade_from: "0.5.0".to_owned(),
            iso: "stratum-0.7.0.iso".to_owned(),
            supply,
        }
    }

    #[test]
    fn the_release_table_holds() {
        let mirror = || facts(Supply::Mirror("https://mirror.example/0.7.0/bundle".to_owned()));
        let older = |r, can, facts| matches!(judge(r, can, &facts), Verdict::Older(_));
        assert_eq!(judge("0.7.0", false, &mirror()), Verdict::Same);
        assert!(older("0.6.0", true, mirror()));
        assert!(older("0.5.0", true, facts(Supply::Founder)));
        assert!(older("0.7.0-rc.1", true, mirror()));
        for (release, can, facts) in [
            ("0.6.0", false, mirror()),
            ("0.6.0", true, facts(Supply::None)),
            ("0.4.9", true, mirror()),
            ("0.8.0", true, mirror()),
            ("12", true, mirror()),
            ("", true, mirror()),
            ("0.06.0", true, mirror()),
            ("0.6.0-", true, mirror()),
        ] {
            assert_eq!(judge(release, can, &facts), Verdict::Refused, "{release}");
        }
    }

    #[test]
    fn a_release_that_is_no_version_still_fits_the_same_text() {
        let mut facts = facts(Supply::None);
        facts.release = "12".to_owned();
        assert_eq!(judge("12", false, &facts), Verdict::Same);
    }

    #[test]
    fn versions_order_as_semver_says() {
        let order =
            ["1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0"];
        for pair in order.windows(2) {
            assert!(Version::parse(pair[0]) < Version::parse(pair[1]), "{pair:?}");
        }
    }
}
