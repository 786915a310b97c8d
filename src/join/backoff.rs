//! Full jitter: sleep uniformly in 0..min(60 s, 1 s * 2^n), never under 200 ms (docs/protocol.md, retry). Touches nothing.

use super::fault::{Code, Fault};

/// Longest delay between two tries, in milliseconds.
pub const CAP_MS: u64 = 60_000;
/// Shortest delay, in milliseconds.
pub const FLOOR_MS: u64 = 200;
/// Delay where the table says 60 s: look-outs, a full queue, an upgrade of the cluster.
pub const MINUTE_MS: u64 = 60_000;

/// Delay before try `n + 1` after `n + 1` failures in a row (`n` starts at 0).
pub fn jittered_ms(n: u32, random: u64) -> u64 {
    let ceiling = CAP_MS.min(1_000u64.saturating_mul(1 << n.min(6)));
    (random % ceiling).max(FLOOR_MS)
}

/// The delay the table of docs/protocol.md 2.4 gives for `fault` after `failures` in a row (at least 1), in milliseconds.
pub fn delay_ms(fault: &Fault, failures: u32, random: u64) -> u64 {
    if let Some(asked) = fault.retry_after() {
        let asked = u64::try_from(asked.as_millis()).unwrap_or(u64::MAX);
        let extra =
            if fault.code == Code::ReleaseBusy { random % 5_000 } else { random % (asked / 10).max(1) };
        return asked.saturating_add(extra);
    }
    match fault.code {
        Code::RateLimited => 30_000 + random % 3_000,
        Code::JoinQueueFull | Code::UpgradeRunning => MINUTE_MS + random % 6_000,
        Code::ReleaseBusy => 5_000 + random % 5_000,
        Code::FounderKeyChanged | Code::PinMismatch | Code::CodeNotProven => MINUTE_MS,
        _ => jittered_ms(failures.saturating_sub(1), random),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(crate::test_support::config())]

        #[test]
        fn a_delay_is_never_under_200_ms_nor_over_a_minute(n in any::<u32>(), random in any::<u64>()) {
            let delay = jittered_ms(n, random);
            prop_assert!((FLOOR_MS..=CAP_MS).contains(&delay));
        }

        #[test]
        fn retry_after_wins_and_gets_at_most_a_tenth_more(secs in 1u32..=600, random in any::<u64>(), n in 1u32..20) {
            let mut fault = Fault::new(Code::Unavailable, "busy");
            fault.retry_after = Some(secs);
            let asked = u64::from(secs) * 1_000;
            prop_assert!((asked..=asked + asked / 10).contains(&delay_ms(&fault, n, random)));
        }
    }

    #[test]
    fn the_first_retry_waits_at_most_a_second() {
        assert!(jittered_ms(0, 999) <= 1_000);
        assert_eq!(jittered_ms(0, 5), FLOOR_MS);
    }
}
