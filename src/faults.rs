//! Named crash points for the kill tests. Compiled to nothing without feature `faults`; the shipped binary has none.
//!
//! `STRATUM_FAULT=crash:<point>:<before|during|after>` ends the process with SIGKILL at that moment, as a power cut would.

/// Which moment of a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Nothing of it has happened.
    Before,
    /// The torn moment: half the bytes written, or sent and no answer read.
    During,
    /// All of it has happened, nobody was told.
    After,
}

/// Ends the process with SIGKILL when this point and moment were asked for.
#[cfg(feature = "faults")]
pub fn point(name: &str, when: When) {
    use std::sync::OnceLock;
    static WANTED: OnceLock<Option<(String, When)>> = OnceLock::new();
    let wanted = WANTED.get_or_init(|| {
        #[expect(clippy::disallowed_methods, reason = "the seam of the kill tests; not in a shipped binary")]
        let text = std::env::var("STRATUM_FAULT").ok()?;
        let rest = text.strip_prefix("crash:")?;
        let (name, when) = rest.rsplit_once(':')?;
        let when = match when {
            "before" => When::Before,
            "during" => When::During,
            "after" => When::After,
            _ => return None,
        };
        Some((name.to_owned(), when))
    });
    if wanted.as_ref().is_some_and(|(n, w)| n == name && *w == when) {
        // A SIGKILL to ourselves cannot fail and does not return.
        let _ = nix::sys::signal::kill(nix::unistd::Pid::this(), nix::sys::signal::Signal::SIGKILL);
    }
}

/// Does nothing: this build has no crash points.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub fn point(_name: &str, _when: When) {}
