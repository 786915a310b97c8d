//! Waiting for a condition, without sleeping for a guess: looks again at short intervals until it holds or the patience is over.

use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(10);

/// The first `Some` that `look` gives within `patience`.
pub fn until<T>(patience: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let (_keep, never) = mpsc::channel::<()>();
    let end = Instant::now() + patience;
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if Instant::now() >= end {
            return None;
        }
        let _ = never.recv_timeout(LOOK);
    }
}
