//! The clock of the snapshot's `...Mono` fields. Reads it; sets nothing.

use rustix::time::{ClockId, clock_gettime};

/// CLOCK_BOOTTIME, milliseconds.
pub(crate) fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
}
