//! Time as people read it: one instant in both clocks, and the few ways it is written.
//!
//! Reads the two kernel clocks, only in [`Now::read`]. The wall clock is for showing, never for a decision.

use jiff::{SignedDuration, Timestamp};
use rustix::time::{ClockId, clock_gettime};

/// One instant, in boot time for spans and in wall time for clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// CLOCK_BOOTTIME, milliseconds.
    pub boot_ms: u64,
    /// Wall time, UTC.
    pub wall: Timestamp,
}

// === impl Now ===

impl Now {
    /// Reads both clocks.
    pub fn read() -> Self {
        let boot = clock_gettime(ClockId::Boottime);
        let wall = clock_gettime(ClockId::Realtime);
        let boot_ms = u64::try_from(boot.tv_sec).unwrap_or(0) * 1000
            + u64::try_from(boot.tv_nsec).unwrap_or(0) / 1_000_000;
        let nanos = i32::try_from(wall.tv_nsec).unwrap_or(0);
        Self { boot_ms, wall: Timestamp::new(wall.tv_sec, nanos).unwrap_or(Timestamp::UNIX_EPOCH) }
    }

    /// The wall time of a boot time, by the clock as it stands now: a clock step moves past instants along.
    pub fn wall_of(&self, mono: u64) -> Timestamp {
        let delta = i64::try_from(i128::from(mono) - i128::from(self.boot_ms)).unwrap_or(0);
        self.wall.checked_add(SignedDuration::from_millis(delta)).unwrap_or(self.wall)
    }

    /// Milliseconds since a boot time; 0 if it is still to come.
    pub fn since(&self, mono: u64) -> u64 {
        self.boot_ms.saturating_sub(mono)
    }

    /// Milliseconds until a boot time; 0 if it has passed.
    pub fn until(&self, mono: u64) -> u64 {
        mono.saturating_sub(self.boot_ms)
    }
}

/// `00:12:44`, hours growing as needed.
pub(crate) fn hms(ms: u64) -> String {
    let s = ms / 1000;
    format!("{:02}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
}

/// `04:53`, or `01:04:53` from an hour on.
pub(crate) fn ms(ms: u64) -> String {
    let s = ms / 1000;
    if s >= 3600 { hms(ms) } else { format!("{:02}:{:02}", s / 60, s % 60) }
}

/// `2 s`, `5 min`, `3 h`, `4 d`: an age for the corner of an eye.
pub(crate) fn short(ms: u64) -> String {
    match ms / 1000 {
        s @ 0..=119 => format!("{s} s"),
        s @ 120..=7199 => format!("{} min", s / 60),
        s @ 7200..=172_799 => format!("{} h", s / 3600),
        s => format!("{} d", s / 86400),
    }
}

/// `35 h 14 min`, or `14 min` under an hour.
pub(crate) fn hours_minutes(seconds: i64) -> String {
    let minutes = seconds.max(0) / 60;
    if minutes >= 60 { format!("{} h {} min", minutes / 60, minutes % 60) } else { format!("{minutes} min") }
}

/// `10:55:15Z`.
pub(crate) fn time_of_day(at: Timestamp) -> String {
    at.strftime("%H:%M:%SZ").to_string()
}

/// `10:55Z`.
pub(crate) fn minute_of_day(at: Timestamp) -> String {
    at.strftime("%H:%MZ").to_string()
}

/// `2026-11-30 22:10Z`.
pub(crate) fn date_minute(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%MZ").to_string()
}

/// `2026-11-29 10:55:15Z`.
pub(crate) fn date_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_read_as_the_screens_show_them() {
        assert_eq!(hms(764_000), "00:12:44");
        assert_eq!(hms(360_000_000), "100:00:00");
        assert_eq!(ms(293_000), "04:53");
        assert_eq!(ms(3_893_000), "01:04:53");
        assert_eq!((short(2_900), short(600_000)), ("2 s".into(), "10 min".into()));
        assert_eq!(hours_minutes(126_885), "35 h 14 min");
        assert_eq!(hours_minutes(-5), "0 min");
    }

    #[test]
    fn a_boot_time_becomes_a_wall_time_in_both_directions() {
        let now = Now { boot_ms: 60_000, wall: "2026-11-29T10:55:15Z".parse().unwrap() };
        assert_eq!(time_of_day(now.wall_of(0)), "10:54:15Z");
        assert_eq!(time_of_day(now.wall_of(75_000)), "10:55:30Z");
        assert_eq!(now.wall_of(u64::MAX), now.wall, "what cannot be told is not invented");
    }
}
