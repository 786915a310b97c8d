//! The driver's clock: boot time for every timer, wall time for display, random bits for jitter. The only module that reads them.

use std::time::SystemTime;

use ring::rand::{SecureRandom, SystemRandom};
use rustix::time::{ClockId, clock_gettime};

use crate::join::event::Now;

/// This instant.
pub fn now() -> Now {
    let mut random = [0; 8];
    // Without random bits the jitter is only less even.
    let _ = SystemRandom::new().fill(&mut random);
    Now { boot_ms: boot_ms(), wall_ms: wall_ms(), random: u64::from_ne_bytes(random) }
}

/// CLOCK_BOOTTIME in milliseconds: monotonic, counts suspend.
pub fn boot_ms() -> u64 {
    u64::try_from(millis(ClockId::Boottime)).unwrap_or(0)
}

/// Wall clock in milliseconds since 1970. May be any value: nothing is decided by it. The one that TLS asks, too, so that a sentence about a
/// certificate's dates names the date that was compared.
pub fn wall_ms() -> i64 {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
    let now = SystemTime::now();
    let millis = |since: std::time::Duration| i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
    match now.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => millis(since),
        Err(before) => millis(before.duration()).saturating_neg(),
    }
}

fn millis(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec.saturating_mul(1_000).saturating_add(time.tv_nsec / 1_000_000)
}
