//! Natural order of device names: `sda`, `sdb`, `sdaa`; `ens3`, `ens11`.
//!
//! May touch: nothing. Must never: call two different names equal.

use std::cmp::Ordering;

/// Compares by runs: digits as numbers, letters of `sd`-like names shorter first, anything else bytewise.
pub(crate) fn natural(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (runs(a), runs(b));
    loop {
        let order = match (left.next(), right.next()) {
            (None, None) => return a.cmp(b),
            (None, Some(_)) => Ordering::Less,
            (Some(_), None) => Ordering::Greater,
            (Some(x), Some(y)) => compare_run(x, y),
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

fn compare_run(x: &str, y: &str) -> Ordering {
    let digits = |s: &str| s.starts_with(|c: char| c.is_ascii_digit());
    match (digits(x), digits(y)) {
        (true, true) => {
            let (x, y) = (x.trim_start_matches('0'), y.trim_start_matches('0'));
            x.len().cmp(&y.len()).then_with(|| x.cmp(y))
        }
        (false, false) if same_driver(x, y) => x.len().cmp(&y.len()).then_with(|| x.cmp(y)),
        _ => x.cmp(y),
    }
}

/// Drivers that count in letters: `sda` .. `sdz`, `sdaa`.
fn same_driver(x: &str, y: &str) -> bool {
    ["sd", "vd", "xvd", "hd"].iter().any(|p| x.starts_with(p) && y.starts_with(p))
}

fn runs(s: &str) -> impl Iterator<Item = &str> {
    let mut rest = s;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let digit = first.is_ascii_digit();
        let end = rest.find(|c: char| c.is_ascii_digit() != digit).unwrap_or(rest.len());
        let (run, tail) = rest.split_at(end);
        rest = tail;
        Some(run)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sorted(mut names: Vec<&str>) -> Vec<&str> {
        names.sort_by(|a, b| natural(a, b));
        names
    }

    #[test]
    fn disks_and_nics_sort_as_people_count() {
        assert_eq!(sorted(vec!["sdaa", "sdb", "sda"]), ["sda", "sdb", "sdaa"]);
        assert_eq!(sorted(vec!["ens11", "ens3"]), ["ens3", "ens11"]);
        assert_eq!(sorted(vec!["nvme10n1", "nvme0n10", "nvme0n2"]), ["nvme0n2", "nvme0n10", "nvme10n1"]);
    }

    proptest! {
        #[test]
        fn the_order_is_total(a in "[a-d0-3]{0,6}", b in "[a-d0-3]{0,6}", c in "[a-d0-3]{0,6}") {
            prop_assert_eq!(natural(&a, &b), natural(&b, &a).reverse());
            prop_assert_eq!(natural(&a, &b) == Ordering::Equal, a == b);
            if natural(&a, &b).is_lt() && natural(&b, &c).is_lt() {
                prop_assert!(natural(&a, &c).is_lt());
            }
        }
    }
}
