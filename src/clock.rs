//! The driver's clock: boot time for every timer, wall time for display, random bits for jitter. The only module that reads them.

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

/// Wall clock in milliseconds since 1970. May be any value: nothing is decided by it.
pub fn wall_ms() -> i64 {
    millis(ClockId::Realtime)
}

fn millis(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec.saturating_mul(1_000).saturating_add(time.tv_nsec / 1_000_000)
}
