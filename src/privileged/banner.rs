//! `reload-banner`: the login banner and the motd, rendered of the snapshot file.
//!
//! Touches `issue` and `motd`, and on a real machine the login prompts. Takes no text and no path: what a person reads at a login
//! prompt is what the snapshot says, cleaned again on the way.

use std::process::{Command, Stdio};

use console::banner::StatusScreen;
use console::{Now, Snapshot, banner};

use super::delivery::refuse_link;
use crate::durable_file;
use crate::join::fault::{Code, Fault};
use crate::paths::Paths;

/// Largest snapshot in bytes.
const MAX_SNAPSHOT: u64 = 64 * 1024;
/// Largest text in bytes.
const MAX_TEXT: usize = 2 * 1024;

/// Renders and writes each text that changed. Without a good snapshot the files stay as they are.
///
/// `owner` is who writes the snapshot: a file of anybody else is no snapshot, and the directory is open to more than one.
pub(crate) fn reload(paths: &Paths, owner: u32, reload: bool) -> Result<(), Fault> {
    let invalid = |why: &str| {
        Fault::new(Code::Local, format!("{} {why}: the banner stays as it is", paths.snapshot().display()))
    };
    let read = || {
        let bytes = durable_file::read_owned(&paths.snapshot(), MAX_SNAPSHOT, owner)?;
        bytes.ok_or_else(|| invalid("is missing"))
    };
    settle(read, |bytes| {
        let snapshot = Snapshot::parse(bytes).map_err(|_| invalid("is not a snapshot"))?;
        let now = Now::read();
        // There while a console is on a virtual terminal: nobody is sent to a screen that is not there.
        let screen = if paths.console_note().exists() { StatusScreen::Tty1 } else { StatusScreen::None };
        write_changed(&paths.issue(), &banner::issue(&snapshot, now, screen))?;
        write_changed(&paths.motd(), &banner::motd(&snapshot, now, screen))
    })?;
    // Also when the file had this text already: a request without `reload`, sent for an older snapshot, may have written it. A prompt
    // that shows it is not drawn again (agetty compares).
    if reload {
        tell_login_prompts(paths);
    }
    Ok(())
}

// === private ===

/// Writes what was read until it is what is there: another helper may have written the banner of a newer snapshot meanwhile, and the older
/// one must not be what stays. Bounded, because the agent writes as often as it likes; each of its writes that matters asks for a banner.
fn settle(
    mut read: impl FnMut() -> Result<Vec<u8>, Fault>,
    mut write: impl FnMut(&[u8]) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut bytes = read()?;
    for _ in 0..5 {
        write(&bytes)?;
        let now = read()?;
        if now == bytes {
            break;
        }
        bytes = now;
    }
    Ok(())
}

fn write_changed(path: &std::path::Path, text: &str) -> Result<(), Fault> {
    if text.len() > MAX_TEXT {
        return Err(Fault::new(Code::Local, format!("the text for {} is longer than 2 KiB", path.display())));
    }
    refuse_link(path)?;
    // Whatever else is there that cannot be read as ours is replaced.
    if let Ok(Some(old)) = durable_file::read_own(path, MAX_TEXT as u64)
        && old == text.as_bytes()
    {
        return Ok(());
    }
    durable_file::sweep_of(path)?;
    durable_file::write_volatile(path, text.as_bytes(), 0o644, "banner-write")?;
    Ok(())
}

/// A login prompt that nobody types at is drawn anew (agetty(8), `--reload`). Only root can, and only a real machine has such prompts; that
/// it did not work is no fault of the join.
fn tell_login_prompts(paths: &Paths) {
    if !paths.is_system() || !rustix::process::geteuid().is_root() {
        return;
    }
    let agetty =
        ["/usr/sbin/agetty", "/sbin/agetty"].into_iter().find(|path| std::path::Path::new(path).exists());
    let Some(agetty) = agetty else { return };
    let done = Command::new(agetty)
        .arg("--reload")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !done.is_ok_and(|status| status.success()) {
        tracing::debug!(
            "agetty --reload did not work: the login prompts show the banner when they are drawn next"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_helper_that_was_overtaken_writes_the_newer_banner_once_more() {
        let mut there = [b"old", b"new", b"new"].into_iter();
        let mut written = Vec::new();
        let read = || Ok(there.next().unwrap().to_vec());
        settle(read, |bytes| {
            written.push(bytes.to_vec());
            Ok(())
        })
        .unwrap();
        assert_eq!(written, [b"old", b"new"]);
    }
}
