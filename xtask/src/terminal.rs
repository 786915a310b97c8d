//! Puts the terminal back as it was, whatever a full-screen program did to it. Touches standard output only.

use std::io::Write;

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

/// The settings before a full-screen program took the terminal; `None` where there is none.
pub(crate) struct Terminal(Option<Termios>);

// === impl Terminal ===

impl Terminal {
    pub(crate) fn save() -> Self {
        Self(tcgetattr(std::io::stdout()).ok())
    }

    /// Line mode again, the cursor visible, plain colours, below what is on the screen.
    pub(crate) fn restore(&self) {
        if let Some(settings) = &self.0 {
            let mut out = std::io::stdout();
            // A terminal that is gone needs nothing.
            let _ = tcsetattr(&out, OptionalActions::Flush, settings);
            let _ = out.write_all(b"\x1b[0m\x1b[?25h\r\n").and_then(|()| out.flush());
        }
    }
}
