//! The blank decision: what holds data on a disk. Empty means blank, and a blank disk can be wiped without a typed
//! confirmation.
//!
//! May touch: nothing; it decides from [`DiskFacts`]. Must never: come out empty when something is in doubt. No other
//! code decides.

use crate::text::Text;

/// A name of something that holds data.
pub type Token = Text<64>;
/// Tokens of one disk; over that the last is dropped, never the first.
const MAX_TOKENS: usize = 64;

/// What the two ends of a disk look like.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum EndsAnswer {
    /// Nobody looked.
    #[default]
    NotAsked,
    /// Both ends were read whole and every byte is zero.
    AllZero,
    /// There is a byte that is not zero; with the names that were found there, if any.
    Data(Vec<Token>),
    /// They could not be read whole.
    Unreadable,
    /// A captured tree that does not hold them.
    NotCaptured,
}

/// What the decision is made from.
#[derive(Clone, Debug, Default)]
pub struct DiskFacts {
    /// udev knows the disk and has finished with it.
    pub udev: bool,
    /// The type of the partition table, from udev.
    pub table: Option<Token>,
    /// Signatures of the disk itself, from udev.
    pub own: Vec<Token>,
    /// What each partition holds, by number.
    pub partitions: Vec<Vec<Token>>,
    /// The kernel shows partitions, trusted or not.
    pub kernel_partitions: bool,
    /// Something stands on the disk or a partition, or that could not be told.
    pub holders: bool,
    /// The disk or something stacked on it is mounted or swapped on, or that could not be told.
    pub mounted: bool,
    /// What the ends look like; asked only when [`needs_ends`] says so.
    pub ends: EndsAnswer,
}

/// Whether only the ends can tell: nothing else says that the disk holds something.
#[must_use]
pub fn needs_ends(facts: &DiskFacts) -> bool {
    known(facts).is_empty()
}

/// What holds data on the disk, in the order in which it was found. Empty: blank.
///
/// Steps a to f are what udev and the kernel say; step g is the raw read, which is the last word on a disk that looks
/// blank: udev gives no type for two signatures at once, nothing for a lone backup GPT, and does not know every
/// member.
#[must_use]
pub fn decide(facts: &DiskFacts) -> Vec<Token> {
    let mut tokens = known(facts);
    if tokens.is_empty() {
        match &facts.ends {
            EndsAnswer::AllZero => {}
            EndsAnswer::Data(names) if names.is_empty() => tokens.push(ours("unknown-data")),
            EndsAnswer::Data(names) => add(&mut tokens, names),
            EndsAnswer::NotCaptured if facts.udev => {}
            EndsAnswer::NotAsked | EndsAnswer::Unreadable | EndsAnswer::NotCaptured => {
                tokens.push(ours("unreadable"));
            }
        }
    }
    tokens.truncate(MAX_TOKENS);
    tokens
}

/// Steps a to f.
fn known(facts: &DiskFacts) -> Vec<Token> {
    let mut tokens = Vec::new();
    add(&mut tokens, facts.table.as_slice());
    for own in facts.own.iter().filter(|own| *own != "mpath_member") {
        // A label at the end of the last partition is also at the end of the disk: named once, below.
        let in_partition = facts.table.is_some() && facts.partitions.iter().any(|p| p.contains(own));
        if !in_partition {
            add(&mut tokens, std::slice::from_ref(own));
        }
    }
    for partition in &facts.partitions {
        add(&mut tokens, partition);
    }
    if tokens.is_empty() && facts.kernel_partitions {
        tokens.push(ours("partitions"));
    }
    if tokens.is_empty() && (facts.holders || facts.mounted) {
        tokens.push(ours("in-use"));
    }
    tokens
}

fn add(tokens: &mut Vec<Token>, more: &[Token]) {
    for token in more {
        if !tokens.contains(token) {
            tokens.push(token.clone());
        }
    }
}

/// One of our own tokens.
pub(crate) fn ours(token: &'static str) -> Token {
    Text::of(token).expect("a literal is not empty")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn t(name: &'static str) -> Token {
        ours(name)
    }

    fn zero() -> DiskFacts {
        DiskFacts { udev: true, ends: EndsAnswer::AllZero, ..DiskFacts::default() }
    }

    #[test]
    fn zero_ends_and_nothing_known_is_blank() {
        assert!(decide(&zero()).is_empty());
        assert!(decide(&DiskFacts { udev: false, ..zero() }).is_empty());
    }

    #[test]
    fn a_disk_that_nobody_read_is_not_blank() {
        for ends in [EndsAnswer::NotAsked, EndsAnswer::Unreadable] {
            assert_eq!(decide(&DiskFacts { ends, ..zero() }), [t("unreadable")]);
        }
        assert_eq!(decide(&DiskFacts::default()), [t("unreadable")]);
    }

    #[test]
    fn ends_that_were_not_captured_need_a_udev_record() {
        let facts = DiskFacts { ends: EndsAnswer::NotCaptured, ..zero() };
        assert!(decide(&facts).is_empty());
        assert_eq!(decide(&DiskFacts { udev: false, ..facts }), [t("unreadable")]);
    }

    #[test]
    fn data_without_a_name_is_unknown_data() {
        assert_eq!(decide(&DiskFacts { ends: EndsAnswer::Data(vec![]), ..zero() }), [t("unknown-data")]);
        assert_eq!(decide(&DiskFacts { ends: EndsAnswer::Data(vec![t("gpt")]), ..zero() }), [t("gpt")]);
    }

    #[test]
    fn each_step_alone_is_enough() {
        assert_eq!(decide(&DiskFacts { table: Some(t("gpt")), ..zero() }), [t("gpt")]);
        assert_eq!(decide(&DiskFacts { own: vec![t("ext4")], ..zero() }), [t("ext4")]);
        assert_eq!(decide(&DiskFacts { partitions: vec![vec![], vec![t("xfs")]], ..zero() }), [t("xfs")]);
        assert_eq!(decide(&DiskFacts { kernel_partitions: true, ..zero() }), [t("partitions")]);
        assert_eq!(decide(&DiskFacts { holders: true, ..zero() }), [t("in-use")]);
        assert_eq!(decide(&DiskFacts { mounted: true, ..zero() }), [t("in-use")]);
    }

    #[test]
    fn a_multipath_member_is_no_holder() {
        assert!(needs_ends(&DiskFacts { own: vec![t("mpath_member")], ..zero() }));
    }

    #[test]
    fn a_label_of_the_last_partition_is_named_once() {
        let facts = DiskFacts {
            table: Some(t("gpt")),
            own: vec![t("zfs_member")],
            partitions: vec![vec![t("vfat")], vec![t("zfs_member")]],
            ..zero()
        };
        assert_eq!(decide(&facts), [t("gpt"), t("vfat"), t("zfs_member")]);
    }

    fn tokens() -> impl Strategy<Value = Vec<Token>> {
        proptest::collection::vec("[a-z]{1,8}", 0..3)
            .prop_map(|v| v.iter().filter_map(|s| Text::of(s)).collect())
    }

    fn facts() -> impl Strategy<Value = DiskFacts> {
        let ends = prop_oneof![
            Just(EndsAnswer::NotAsked),
            Just(EndsAnswer::AllZero),
            tokens().prop_map(EndsAnswer::Data),
            Just(EndsAnswer::Unreadable),
            Just(EndsAnswer::NotCaptured),
        ];
        (
            any::<bool>(),
            tokens(),
            tokens(),
            proptest::collection::vec(tokens(), 0..3),
            any::<[bool; 3]>(),
            ends,
        )
            .prop_map(
                |(udev, table, own, partitions, [kernel_partitions, holders, mounted], ends)| DiskFacts {
                    udev,
                    table: table.into_iter().next(),
                    own,
                    partitions,
                    kernel_partitions,
                    holders,
                    mounted,
                    ends,
                },
            )
    }

    proptest! {
        #[test]
        fn blank_needs_every_single_fact_to_agree(facts in facts()) {
            let blank = decide(&facts).is_empty();
            let agreed = facts.table.is_none()
                && facts.own.is_empty()
                && facts.partitions.iter().all(Vec::is_empty)
                && !facts.kernel_partitions
                && !facts.holders
                && !facts.mounted
                && (facts.ends == EndsAnswer::AllZero || (facts.ends == EndsAnswer::NotCaptured && facts.udev));
            prop_assert_eq!(blank, agreed);
        }

        #[test]
        fn no_token_is_named_twice(facts in facts()) {
            let mut tokens = decide(&facts);
            let n = tokens.len();
            tokens.sort();
            tokens.dedup();
            prop_assert_eq!(tokens.len(), n);
        }
    }
}
