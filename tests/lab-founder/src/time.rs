//! The founder's clock and how it writes times.
//!
//! The one place that reads the wall clock. Everything else is given `now` in milliseconds since 1970.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// A wall clock that tests can move. Clones share the offset.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    offset_ms: Arc<AtomicI64>,
}

// === impl Clock ===

impl Clock {
    /// The system's clock, `offset_ms` ahead.
    pub fn with_offset(offset_ms: i64) -> Self {
        Self { offset_ms: Arc::new(AtomicI64::new(offset_ms)) }
    }

    /// Milliseconds since 1970.
    pub fn now_ms(&self) -> i64 {
        #[expect(clippy::disallowed_methods, reason = "the founder's clock; handed in everywhere else")]
        let now = SystemTime::now();
        let now =
            now.duration_since(UNIX_EPOCH).map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX));
        now.saturating_add(self.offset_ms.load(Ordering::SeqCst))
    }

    /// Moves the clock forward (or back).
    pub fn advance_ms(&self, by: i64) {
        self.offset_ms.fetch_add(by, Ordering::SeqCst);
    }
}

/// RFC 3339 in UTC, whole seconds.
pub fn rfc3339(ms: i64) -> String {
    jiff::Timestamp::from_second(ms.div_euclid(1000)).unwrap_or(jiff::Timestamp::UNIX_EPOCH).to_string()
}

/// One minute in milliseconds.
pub(crate) const MINUTE: i64 = 60_000;
/// One day in milliseconds.
pub(crate) const DAY: i64 = 24 * 60 * MINUTE;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_whole_seconds_with_a_z() {
        assert_eq!(rfc3339(1_795_949_127_999), "2026-11-29T10:45:27Z");
        assert_eq!(rfc3339(-1), "1969-12-31T23:59:59Z");
    }

    #[test]
    fn clones_of_a_clock_move_together() {
        let clock = Clock::default();
        let other = clock.clone();
        let before = other.now_ms();
        clock.advance_ms(DAY);
        assert!(other.now_ms() >= before + DAY);
    }
}
