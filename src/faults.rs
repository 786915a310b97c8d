//! Named crash points for the kill tests. Compiled to nothing without feature `faults`; the shipped binary has none.
//!
//! `STRATUM_FAULT=crash:<point>:<before|during|after>` ends the process with SIGKILL at that moment, as a power cut would; `:<n>` behind it
//! waits for the n-th time.

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
    use std::sync::atomic::{AtomicU32, Ordering};
    static WANTED: OnceLock<Option<Wanted>> = OnceLock::new();
    static PASSED: AtomicU32 = AtomicU32::new(0);
    let wanted = WANTED.get_or_init(|| {
        #[expect(clippy::disallowed_methods, reason = "the seam of the kill tests; not in a shipped binary")]
        let text = std::env::var("STRATUM_FAULT").ok()?;
        wanted(&text)
    });
    if let Some(wanted) = wanted
        && wanted.name == name
        && wanted.when == when
        && PASSED.fetch_add(1, Ordering::Relaxed) + 1 == wanted.nth
    {
        // A SIGKILL to ourselves cannot fail and does not return.
        let _ = nix::sys::signal::kill(nix::unistd::Pid::this(), nix::sys::signal::Signal::SIGKILL);
    }
}

/// What `STRATUM_FAULT` asks for.
#[cfg(feature = "faults")]
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    name: String,
    when: When,
    /// From 1.
    nth: u32,
}

#[cfg(feature = "faults")]
fn wanted(text: &str) -> Option<Wanted> {
    let mut words = text.strip_prefix("crash:")?.split(':');
    let name = words.next()?.to_owned();
    let when = match words.next()? {
        "before" => When::Before,
        "during" => When::During,
        "after" => When::After,
        _ => return None,
    };
    let nth = words.next().map_or(Some(1), |n| n.parse().ok())?;
    words.next().is_none().then_some(Wanted { name, when, nth })
}

/// Does nothing: this build has no crash points.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub fn point(_name: &str, _when: When) {}

#[cfg(all(test, feature = "faults"))]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_a_point_a_moment_and_perhaps_a_number() {
        let want = |name: &str, when, nth| Some(Wanted { name: name.to_owned(), when, nth });
        assert_eq!(wanted("crash:pin-store:during"), want("pin-store", When::During, 1));
        assert_eq!(wanted("crash:pin-store:after:3"), want("pin-store", When::After, 3));
        for bad in
            ["", "crash:pin-store", "crash:pin-store:later", "crash:pin-store:after:x", "crash:a:after:1:2"]
        {
            assert_eq!(wanted(bad), None, "{bad}");
        }
    }
}
