//! The console's own process on a terminal of its own, and what a person would see there.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use nix::pty::{Winsize, openpty};

const COLS: usize = 80;
const ROWS: usize = 24;

/// A running console.
pub struct Console {
    child: Child,
    cells: Arc<Mutex<Cells>>,
}

/// A terminal that knows what the console writes (docs/console.md) and fails on anything else.
struct Cells {
    rows: Vec<Vec<char>>,
    x: usize,
    y: usize,
}

// === impl Console ===

impl Console {
    /// The console of the machine below `root`.
    pub fn start(root: &Path) -> Self {
        let size = Winsize { ws_row: ROWS as u16, ws_col: COLS as u16, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(&size, None).unwrap();
        let child = Command::new(super::bin("stratum-join"))
            .args(["console", "--root"])
            .arg(root)
            .env("TERM", "xterm")
            .env_remove("NO_COLOR")
            .stdin(Stdio::from(pty.slave.try_clone().unwrap()))
            .stdout(Stdio::from(pty.slave))
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let cells = Arc::new(Mutex::new(Cells { rows: vec![vec![' '; COLS]; ROWS], x: 0, y: 0 }));
        let (into, mut master) = (cells.clone(), File::from(pty.master));
        std::thread::spawn(move || {
            let mut all = Vec::new();
            let mut some = [0; 4096];
            // The end of the console is an error of its terminal.
            while let Ok(read @ 1..) = master.read(&mut some) {
                all.extend_from_slice(&some[..read]);
                let done = into.lock().unwrap().write(&all);
                all.drain(..done);
            }
        });
        Self { child, cells }
    }

    /// The rows, without blanks at their ends.
    pub fn text(&self) -> String {
        let cells = self.cells.lock().unwrap();
        cells.rows.iter().map(|row| row.iter().collect::<String>().trim_end().to_owned() + "\n").collect()
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

// === impl Cells ===

impl Cells {
    /// Takes what is whole of these bytes; how many those were.
    fn write(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            match byte {
                0x1b => {
                    let Some(end) = bytes[at + 1..].iter().skip(1).position(|b| (0x40..=0x7e).contains(b))
                    else {
                        return at;
                    };
                    let end = at + 2 + end;
                    self.control(std::str::from_utf8(&bytes[at + 2..end]).unwrap(), bytes[end]);
                    at = end;
                }
                b'\r' => self.x = 0,
                b'\n' => self.y = (self.y + 1).min(ROWS - 1),
                b' '..=b'~' => {
                    self.rows[self.y][self.x] = char::from(*byte);
                    self.x = (self.x + 1).min(COLS - 1);
                }
                other => panic!("the console wrote {other:#x}"),
            }
            at += 1;
        }
        at
    }

    fn control(&mut self, parameters: &str, last: u8) {
        let number = |text: Option<&str>| text.and_then(|n| n.parse::<usize>().ok()).unwrap_or(1) - 1;
        match last {
            b'H' => {
                let mut numbers = parameters.split(';');
                (self.y, self.x) = (number(numbers.next()), number(numbers.next()));
            }
            b'J' => self.rows = vec![vec![' '; COLS]; ROWS],
            b'K' => self.rows[self.y][self.x..].fill(' '),
            // A pixel of the big code is a space in reverse video: told apart by the colours, which are not looked at here.
            b'm' | b'h' | b'l' => {}
            other => panic!("the console wrote ESC[{parameters}{}", char::from(other)),
        }
    }
}
