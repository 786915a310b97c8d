//! Waiting for a condition with a deadline. Nothing in this crate sleeps for a fixed time and hopes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// How often a wait looks again.
const TICK: Duration = Duration::from_millis(100);

static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on Ctrl-C, SIGTERM and SIGHUP end the wait in progress, so that everything started is ended in order.
pub fn register_signals() -> Result<()> {
    let flag = STOP.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, flag.clone()).context("signal handler")?;
    }
    Ok(())
}

/// An error once a signal asked this program to end.
pub fn check_signals() -> Result<()> {
    if STOP.get().is_some_and(|flag| flag.load(Ordering::Relaxed)) {
        bail!("stopped by a signal");
    }
    Ok(())
}

/// Looks until there is something, at most for `limit`. `what` completes the sentence "waited 60 s for ...".
pub fn until<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let end = Instant::now() + limit;
    loop {
        check_signals()?;
        if let Some(found) = look().with_context(|| format!("while waiting for {what}"))? {
            return Ok(found);
        }
        if Instant::now() > end {
            bail!("waited {} s for {what}", limit.as_secs());
        }
        pause()?;
    }
}

/// One short pause of a loop that has a deadline of its own.
pub fn pause() -> Result<()> {
    std::thread::sleep(TICK);
    check_signals()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_comes_is_named_with_the_time_waited() {
        let error = until::<()>("a miracle", Duration::ZERO, || Ok(None)).unwrap_err();
        assert_eq!(error.to_string(), "waited 0 s for a miracle");
    }

    #[test]
    fn what_is_there_is_returned_without_a_wait() {
        assert_eq!(until("it", Duration::ZERO, || Ok(Some(3))).unwrap(), 3);
    }
}
