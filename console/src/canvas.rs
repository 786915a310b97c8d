//! Cells, and the only way into them: what is not printable ASCII or one of the eight box characters cannot be put.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

use crate::glyphs;
use crate::layout::{Row, Tag, cut, two_sided};
use crate::screen::Page;
use crate::view::View;

/// Cells, and the only way into them.
pub(crate) struct Canvas {
    pub(crate) buffer: Buffer,
    pub(crate) cols: usize,
    pub(crate) rows: usize,
    boxes: bool,
}

impl Canvas {
    pub(crate) fn new(cols: u16, rows: u16, boxes: bool) -> Self {
        let buffer = Buffer::empty(Rect::new(0, 0, cols, rows));
        Self { buffer, cols: cols.into(), rows: rows.into(), boxes }
    }

    pub(crate) fn set(&mut self, x: usize, y: usize, symbol: char, style: Style) {
        let (Ok(x), Ok(y)) = (u16::try_from(x), u16::try_from(y)) else { return };
        if let Some(cell) = self.buffer.cell_mut((x, y)) {
            cell.set_char(symbol).set_style(style);
        }
    }

    /// Text; what is not printable ASCII becomes `?`, what does not fit is left out.
    pub(crate) fn put(&mut self, x: usize, y: usize, text: &str, style: Style) {
        for (offset, c) in text.chars().enumerate() {
            self.set(x + offset, y, if matches!(c, ' '..='~') { c } else { '?' }, style);
        }
    }

    pub(crate) fn clear(&mut self, x: usize, y: usize, width: usize) {
        for offset in 0..width {
            self.set(x + offset, y, ' ', Style::reset());
        }
    }

    pub(crate) fn row(&mut self, x: usize, y: usize, width: usize, row: &Row) {
        self.put(x, y, &cut(&row.shown(), width), Style::new());
        if let Some((at, tag)) = row.tag
            && at + 4 <= width
        {
            self.put(x + at, y, tag.text(), style_of(tag));
        }
    }

    /// Row 3: tag, state, one fact at the right; reverse all over when the join has stopped.
    #[expect(clippy::too_many_arguments, reason = "one row, one call")]
    pub(crate) fn state(
        &mut self,
        x: usize,
        y: usize,
        width: usize,
        tag: Tag,
        state: &str,
        fact: &str,
        alarm: bool,
    ) {
        let text = two_sided(&format!("{} {state}", tag.text()), fact, width);
        if tag == Tag::Stopped {
            // Not bold: a virtual terminal keeps the bright bit on the letters, and dark grey on grey cannot be read.
            return self.put(x, y, &text, Style::new().fg(Color::White).add_modifier(Modifier::REVERSED));
        }
        self.put(x, y, &text, bold());
        self.put(x, y, &cut(tag.text(), width), style_of(tag));
        if alarm {
            let at = width - fact.len().min(width);
            self.put(x + at, y, &cut(fact, width), style_of(Tag::Trouble));
        }
    }

    /// The frame down to row `bottom - 1`, title and clock in its upper edge.
    pub(crate) fn frame(&mut self, bottom: usize, (name, time): &(String, String)) {
        let [h, v, tl, tr, bl, br] = if self.boxes {
            ['─', '│', '┌', '┐', '└', '┘']
        } else {
            ['-', '|', '+', '+', '+', '+']
        };
        let right = self.cols.saturating_sub(1);
        for x in 0..self.cols {
            self.set(x, 0, h, Style::new());
            self.set(x, bottom.saturating_sub(1), h, Style::new());
        }
        for y in 1..bottom.saturating_sub(1) {
            self.set(0, y, v, Style::new());
            self.set(right, y, v, Style::new());
        }
        self.set(0, 0, tl, Style::new());
        self.set(right, 0, tr, Style::new());
        self.set(0, bottom.saturating_sub(1), bl, Style::new());
        self.set(right, bottom.saturating_sub(1), br, Style::new());
        let time = format!(" {time} ");
        self.put(2, 0, &format!(" {name} "), bold());
        self.put(self.cols.saturating_sub(2 + time.len()), 0, &time, Style::new());
    }

    /// The body between rows `top` and `end` (not included): big code first, then the rows; blank rows go first when it is tight.
    pub(crate) fn body(&mut self, x: usize, top: usize, end: usize, width: usize, page: &Page, view: &View) {
        let mut y = top;
        if let Some(pixels) = page.big.as_deref().and_then(glyphs::pixels)
            && let Some(scale) = glyphs::scale(self.cols, self.rows)
        {
            // Centred in what the frame leaves free.
            let inner = self.cols.saturating_sub(2);
            let left = 1 + inner.saturating_sub(glyphs::CODE_WIDTH * scale.w) / 2;
            let pixel = Style::new().add_modifier(Modifier::REVERSED);
            for (row, line) in pixels.iter().enumerate() {
                for (column, _) in line.iter().enumerate().filter(|(_, lit)| **lit) {
                    for dy in 0..scale.h {
                        for dx in 0..scale.w {
                            self.set(left + column * scale.w + dx, y + row * scale.h + dy, ' ', pixel);
                        }
                    }
                }
            }
            y += glyphs::CODE_HEIGHT * scale.h;
            if self.rows >= 18 {
                y += 1;
            }
        }
        let room = end.saturating_sub(y);
        let mut rows: Vec<&Row> = page.body.iter().collect();
        let all = rows.iter().filter(|row| !row.is_blank()).count();
        if page.scrolled && rows.len() > room {
            let shown = room.saturating_sub(1);
            let from = view.scroll.min(rows.len() - shown);
            let below = rows.len() - from - shown;
            for (offset, row) in rows[from..from + shown].iter().enumerate() {
                self.row(x, y + offset, width, row);
            }
            let more =
                if below > 0 { format!("and {below} more rows (press J)") } else { "end (press U)".into() };
            let indent = if width < 60 { 0 } else { 12 };
            self.put(x + indent, y + shown, &cut(&more, width.saturating_sub(indent)), Style::new());
            return;
        }
        while rows.len() > room {
            match rows.iter().rposition(|row| row.is_blank()) {
                Some(at) => drop(rows.remove(at)),
                None => rows.truncate(room),
            }
        }
        // Text that goes on where nobody sees it must not read as if it ended here.
        let marked = (rows.len() < all).then(|| rows.pop()).flatten().map(|last| {
            let text = if last.text.len() + 2 <= width { &last.text } else { &cut(&last.text, width - 1) };
            Row { text: format!("{} ~", text.trim_end_matches('~')), ..last.clone() }
        });
        rows.extend(&marked);
        for row in rows {
            if row.code {
                let left = self.cols.saturating_sub(row.text.len()) / 2;
                self.put(left, y, &cut(&row.text, self.cols.saturating_sub(left + 1)), bold());
            } else {
                self.row(x, y, width, row);
            }
            y += 1;
        }
    }
}

pub(crate) fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

pub(crate) fn style_of(tag: Tag) -> Style {
    let color = |color| Style::new().fg(color);
    match tag {
        Tag::Ok => color(Color::Green),
        Tag::Running => color(Color::Cyan),
        Tag::Act | Tag::Trouble | Tag::Unknown => color(Color::Yellow).add_modifier(Modifier::BOLD),
        Tag::Stopped => color(Color::Red).add_modifier(Modifier::BOLD),
        Tag::Todo | Tag::Skipped => Style::new(),
    }
}
