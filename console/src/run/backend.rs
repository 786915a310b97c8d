//! The thin `Backend` between our buffers and the terminal: which bytes may be written at all.
//!
//! Those are `CUP`, `ED 2`, `EL`, `SGR` with reset, bold, reverse and five colours, hide and show of the cursor, `ESC[13]` on a virtual
//! terminal, printable ASCII and eight box characters. An unchanged frame writes nothing. ratatui's own `Terminal` is not used:
//! it asks for the cursor position, and its diff cannot be told that somebody else wrote to the screen.

use std::convert::Infallible;
use std::io::Write;

use ratatui::backend::{Backend, ClearType, WindowSize};
use ratatui::buffer::{Buffer, Cell};
use ratatui::crossterm::cursor::{Hide, MoveTo, Show};
use ratatui::crossterm::queue;
use ratatui::crossterm::style::Print;
use ratatui::crossterm::terminal::{Clear, ClearType as Erase};
use ratatui::layout::{Position, Size};
use ratatui::style::{Color, Modifier};

use super::RunError;
use super::terminal::Tty;

/// The box characters a UTF-8 virtual terminal has in every font.
pub(crate) const BOXES: &str = "─│┌┐└┘├┤";

/// Cells in, bytes out. Infallible: it writes to memory.
pub(crate) struct Cells {
    bytes: Vec<u8>,
    size: Size,
    cursor: Position,
    pen: Option<Pen>,
    next: Option<(u16, u16)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Pen {
    color: Color,
    bold: bool,
    reverse: bool,
}

// === impl Cells ===

impl Cells {
    pub(crate) fn new(size: Size) -> Self {
        Self { bytes: Vec::new(), size, cursor: Position::new(0, 0), pen: None, next: None }
    }

    pub(crate) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// Where the next printed character goes, if that is known.
    fn go_to(&mut self, x: u16, y: u16) {
        if self.next != Some((x, y)) {
            let _ = queue!(self.bytes, MoveTo(x, y));
        }
    }

    fn print(&mut self, x: u16, y: u16, cell: &Cell) {
        self.go_to(x, y);
        self.pen(cell);
        let _ = queue!(self.bytes, Print(printable(cell.symbol())));
        self.next = Some((x + 1, y));
    }

    /// Erases the rest of a row, in the plain colours.
    fn erase_row_from(&mut self, x: u16, y: u16) {
        self.go_to(x, y);
        self.pen(&Cell::EMPTY);
        let _ = queue!(self.bytes, Clear(Erase::UntilNewLine));
        self.next = Some((x, y));
    }

    fn pen(&mut self, cell: &Cell) {
        let pen = Pen {
            color: cell.fg,
            bold: cell.modifier.contains(Modifier::BOLD),
            reverse: cell.modifier.contains(Modifier::REVERSED),
        };
        if self.pen == Some(pen) {
            return;
        }
        self.pen = Some(pen);
        let mut sgr = String::from("\x1b[0");
        if pen.bold {
            sgr.push_str(";1");
        }
        if pen.reverse {
            sgr.push_str(";7");
        }
        // crossterm would write 38;5;n, which old terminals print.
        match pen.color {
            Color::Red => sgr.push_str(";31"),
            Color::Green => sgr.push_str(";32"),
            Color::Yellow => sgr.push_str(";33"),
            Color::Cyan => sgr.push_str(";36"),
            Color::White => sgr.push_str(";37"),
            _ => {}
        }
        sgr.push('m');
        self.bytes.extend_from_slice(sgr.as_bytes());
    }
}

/// What of a cell may be printed.
fn printable(symbol: &str) -> &str {
    let one = symbol.chars().count() == 1;
    let good = |c: char| matches!(c, ' '..='~') || BOXES.contains(c);
    if one && symbol.chars().all(good) { symbol } else { "?" }
}

impl Backend for Cells {
    type Error = Infallible;

    fn draw<'a, I>(&mut self, content: I) -> Result<(), Infallible>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        for (x, y, cell) in content {
            self.print(x, y, cell);
        }
        Ok(())
    }

    fn hide_cursor(&mut self) -> Result<(), Infallible> {
        let _ = queue!(self.bytes, Hide);
        Ok(())
    }

    fn show_cursor(&mut self) -> Result<(), Infallible> {
        let _ = queue!(self.bytes, Show);
        Ok(())
    }

    fn get_cursor_position(&mut self) -> Result<Position, Infallible> {
        Ok(self.cursor)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> Result<(), Infallible> {
        self.cursor = position.into();
        let _ = queue!(self.bytes, MoveTo(self.cursor.x, self.cursor.y));
        self.next = None;
        Ok(())
    }

    fn clear(&mut self) -> Result<(), Infallible> {
        self.pen = None;
        self.next = None;
        let _ = self.bytes.write_all(b"\x1b[0m");
        let _ = queue!(self.bytes, Clear(Erase::All));
        Ok(())
    }

    fn clear_region(&mut self, _: ClearType) -> Result<(), Infallible> {
        self.clear()
    }

    fn size(&self) -> Result<Size, Infallible> {
        Ok(self.size)
    }

    fn window_size(&mut self) -> Result<WindowSize, Infallible> {
        Ok(WindowSize { columns_rows: self.size, pixels: Size::new(0, 0) })
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

/// Brings a terminal from the last picture to the next.
pub(super) struct Painter<'tty> {
    tty: &'tty Tty,
    cells: Cells,
    shown: Option<Buffer>,
    unblank: bool,
}

// === impl Painter ===

impl<'tty> Painter<'tty> {
    pub(super) fn new(tty: &'tty Tty) -> Self {
        Self { tty, cells: Cells::new(Size::new(0, 0)), shown: None, unblank: false }
    }

    /// The next picture is written whole.
    pub(super) fn forget(&mut self) {
        if let Some(shown) = &mut self.shown {
            // No cell is ever this, so all of them differ; the size stays known.
            for cell in &mut shown.content {
                cell.set_symbol("");
            }
        }
    }

    /// A blanked virtual terminal comes back with the next picture.
    pub(super) fn unblank(&mut self) {
        self.unblank = self.tty.is_vt();
    }

    /// Writes what differs. A picture the terminal does not take is dropped, and the next one is whole.
    pub(super) fn paint(&mut self, next: &Buffer, park: Option<(u16, u16)>) -> Result<(), RunError> {
        if self.unblank {
            self.cells.bytes.extend_from_slice(b"\x1b[13]");
            self.unblank = false;
        }
        frame(&mut self.cells, self.shown.as_ref(), next, park);
        let bytes = self.cells.take();
        if bytes.is_empty() {
            return Ok(());
        }
        if self.tty.write(&bytes)? {
            self.shown = Some(next.clone());
        } else {
            self.tty.discard_output();
            self.shown = None;
        }
        Ok(())
    }
}

/// The bytes that bring a terminal from one picture to the next, as the console writes them; from none for one that shows anything.
pub fn bytes_between(shown: Option<&Buffer>, next: &Buffer) -> Vec<u8> {
    let mut cells = Cells::new(Size::new(0, 0));
    frame(&mut cells, shown, next, None);
    cells.take()
}

/// A run of so many blanks is erased rather than written, and one of so many that are erased already is jumped over: what the
/// sequences for it cost.
const ERASE: u16 = 16;
const JUMP: u16 = 9;

/// How many plain blanks a row begins with.
fn blanks(row: &[&Cell]) -> u16 {
    let plain = |cell: &&&Cell| cell.symbol() == " " && cell.modifier.is_empty() && cell.fg == Color::Reset;
    u16::try_from(row.iter().take_while(plain).count()).unwrap_or(0)
}

/// The bytes from one picture to the next.
fn frame(cells: &mut Cells, shown: Option<&Buffer>, next: &Buffer, park: Option<(u16, u16)>) {
    cells.size = Size::new(next.area.width, next.area.height);
    // Whoever else writes to the terminal moves its cursor and leaves colours behind.
    (cells.pen, cells.next) = (None, None);
    let last = (next.area.width.saturating_sub(1), next.area.height.saturating_sub(1));
    let known = shown.filter(|shown| shown.area == next.area);
    if known.is_none() {
        let Ok(()) = cells.clear();
    }
    let at = |x, y| known.and_then(|known| known.cell((x, y)));
    // Written whole, a row's blanks are erased and jumped over: a third of the bytes, and nothing of what was there stays.
    let whole = known.is_none_or(|known| known.content.iter().all(|cell| cell.symbol().is_empty()));
    let mut any = false;
    for y in 0..next.area.height {
        let row: Vec<&Cell> = (0..next.area.width).filter_map(|x| next.cell((x, y))).collect();
        let mut erased = false;
        let mut x = 0;
        while let Some(cell) = row.get(usize::from(x)) {
            let blanks = if whole { blanks(&row[usize::from(x)..]) } else { 0 };
            if blanks >= if erased { JUMP } else { ERASE } {
                if !erased {
                    cells.erase_row_from(x, y);
                    erased = true;
                }
                x += blanks;
                any = true;
                continue;
            }
            // The very last cell is never written: some terminals scroll.
            if ((x, y) != last || last == (0, 0)) && at(x, y) != Some(*cell) {
                cells.print(x, y, cell);
                any = true;
            }
            x += 1;
        }
    }
    if !any {
        return;
    }
    if let Some((x, y)) = park {
        let Ok(()) = cells.set_cursor_position((x, y));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Now;
    use crate::{Snapshot, View, draw};

    fn pending() -> (Snapshot, View) {
        let snapshot = Snapshot::parse(include_bytes!("../../tests/fixtures/pending.json")).unwrap();
        let view = View::new(Now { boot_ms: 812_400, wall: "2026-11-29T10:55:15Z".parse().unwrap() });
        (snapshot, view)
    }

    #[test]
    fn a_terminal_shows_exactly_the_cells_that_were_drawn() {
        let (snapshot, view) = pending();
        let buffer = draw(&snapshot, &view, (80, 24));
        let mut screen = vt100::Parser::new(24.try_into().unwrap(), 80.try_into().unwrap(), 0);
        screen.process(&bytes_between(None, &buffer));
        for y in 0..24 {
            for x in 0..79 {
                let (cell, shown) = (buffer.cell((x, y)).unwrap(), screen.screen().cell(y, x).unwrap());
                let symbol = if shown.contents().is_empty() { " " } else { shown.contents() };
                assert_eq!(cell.symbol(), symbol, "{x} {y}");
                assert_eq!(cell.modifier.contains(Modifier::REVERSED), shown.inverse(), "{x} {y}");
            }
        }
    }

    #[test]
    fn frames_keep_their_byte_budgets() {
        let (snapshot, mut view) = pending();
        let first = draw(&snapshot, &view, (80, 24));
        assert!(
            bytes_between(None, &first).len() <= 3072,
            "full frame with the big code: {}",
            bytes_between(None, &first).len()
        );
        assert!(bytes_between(Some(&first), &first).is_empty(), "unchanged");
        view.now.wall = "2026-11-29T10:55:16Z".parse().unwrap();
        view.now.boot_ms += 1000;
        let second = draw(&snapshot, &view, (80, 24));
        assert!(
            bytes_between(Some(&first), &second).len() <= 60,
            "clock: {}",
            bytes_between(Some(&first), &second).len()
        );
    }

    #[test]
    fn a_whole_frame_repairs_whatever_was_written_between_also_colours_and_a_scrolled_screen() {
        let (snapshot, view) = pending();
        let buffer = draw(&snapshot, &view, (80, 24));
        let mut screen = vt100::Parser::new(24.try_into().unwrap(), 80.try_into().unwrap(), 0);
        let mut cells = Cells::new(Size::new(80, 24));
        frame(&mut cells, None, &buffer, None);
        screen.process(&cells.take());
        let before = screen.screen().contents_formatted();
        let message = [&b"\x1b[7;31mBUG: soft lockup"[..], &b"\r\n".repeat(30), b"and on"].concat();
        screen.process(&message);
        assert_ne!(screen.screen().contents_formatted(), before);
        let mut forgotten = buffer.clone();
        for cell in &mut forgotten.content {
            cell.set_symbol("");
        }
        frame(&mut cells, Some(&forgotten), &buffer, None);
        screen.process(&cells.take());
        assert_eq!(screen.screen().contents_formatted(), before);
    }

    #[test]
    fn a_hostile_cell_does_not_reach_the_terminal() {
        let mut buffer = Buffer::empty(ratatui::layout::Rect::new(0, 0, 4, 2));
        for (x, symbol) in ["\x1b[2J", "\u{202e}", "東", "é"].into_iter().enumerate() {
            buffer.cell_mut((u16::try_from(x).unwrap(), 0)).unwrap().set_symbol(symbol);
        }
        let bytes = bytes_between(None, &buffer);
        assert!(String::from_utf8(bytes).unwrap().contains("????"));
    }
}
