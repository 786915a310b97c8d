//! A notice as one readable line, for the log screen and for standard error. Pure.

use console::snapshot::Level;

use crate::join::fault::Class;
use crate::join::notice::Notice;

/// Level and text of a notice.
pub fn line(notice: &Notice) -> (Level, String) {
    match notice {
        Notice::State { from, to, why } => {
            let why = why.as_ref().filter(|w| !w.is_empty()).map_or(String::new(), |w| format!(": {w}"));
            (Level::Info, format!("{from} -> {to}{why}"))
        }
        Notice::Proven { pin } => {
            (Level::Info, format!("the cluster proved the join code; pin {}... stored", pin.short_hex(16)))
        }
        Notice::Fault { doing, fault, retry_ms, attempt } => {
            let next = match retry_ms {
                Some(ms) => format!("; next try in {} s (attempt {attempt})", ms.div_ceil(1_000)),
                None => "; waits for a person".to_owned(),
            };
            let level = if fault.code.class() == Class::Retry { Level::Warn } else { Level::Error };
            let detail = if fault.detail.is_empty() { String::new() } else { format!(": {}", fault.detail) };
            (level, format!("{doing} failed: {}{detail}{next}", fault.code.as_str()))
        }
        Notice::Recovered { after_ms, attempts } => (
            Level::Info,
            format!("the founder answers again after {} s ({attempts} attempts)", after_ms / 1_000),
        ),
        Notice::Step { step, title, index, total, status, error } => {
            let place = match (index, total) {
                (Some(index), Some(total)) => format!("step {index} of {total}"),
                _ => "step".to_owned(),
            };
            let error = error.as_ref().map_or(String::new(), |e| format!(": {e}"));
            let level = if *status == "failed" { Level::Error } else { Level::Info };
            (level, format!("{place} {status}: {step} ({title}){error}"))
        }
        Notice::Verb { verb, result } => (Level::Info, format!("helper {verb}: {result}")),
        Notice::Security(text) => (Level::Warn, text.as_str().to_owned()),
        Notice::Info(text) => (Level::Info, text.as_str().to_owned()),
    }
}
