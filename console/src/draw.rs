//! Lays a page out on a terminal of any size, into a buffer of cells. Pure: the same snapshot, view and size give the same cells.
//!
//! Only printable ASCII and, with `View::boxes`, the eight box characters reach a cell. Never panics at any size.

use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style};

use crate::canvas::{Canvas, bold, style_of};
use crate::clock;
use crate::facts;
use crate::layout::{Row, Tag, cut, two_sided, wrap};
use crate::screen::{self, Page};
use crate::snapshot::{Liveness, Snapshot, State, Synced};
use crate::view::{Feed, Screen, View};

/// A size of 0 in either axis is drawn as this: serial lines and fresh terminals report it.
pub const FALLBACK: (u16, u16) = (80, 24);
/// Larger terminals are drawn in their upper left corner.
const LARGEST: (u16, u16) = (500, 200);

/// How much fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// 80x24 and up: frame, three rows of identity.
    Full,
    /// 60x18 and up: no frame, two rows of identity.
    Plain,
    /// 40x10 and up: frame, state, code or advice, one row of identity.
    Small,
    /// Less: three lines.
    Tiny,
}

fn mode(cols: usize, rows: usize) -> Mode {
    match (cols, rows) {
        (80.., 24..) => Mode::Full,
        (60.., 18..) => Mode::Plain,
        (40.., 10..) => Mode::Small,
        _ => Mode::Tiny,
    }
}

/// The size that is drawn for a reported size.
pub fn effective_size((cols, rows): (u16, u16)) -> (u16, u16) {
    if cols == 0 || rows == 0 { FALLBACK } else { (cols.min(LARGEST.0), rows.min(LARGEST.1)) }
}

/// Draws a snapshot for a terminal of `size` columns and rows.
pub fn draw(snapshot: &Snapshot, view: &View, size: (u16, u16)) -> Buffer {
    let (cols, rows) = effective_size(size);
    let mut canvas = Canvas::new(cols, rows, view.boxes);
    match mode(canvas.cols, canvas.rows) {
        Mode::Full => full(&mut canvas, snapshot, view),
        Mode::Plain => plain(&mut canvas, snapshot, view),
        Mode::Small => small(&mut canvas, snapshot, view),
        Mode::Tiny => tiny(&mut canvas, snapshot, view),
    }
    canvas.buffer
}

/// The text of a buffer, one line per row, without trailing blanks. A pixel of the big code is `#`.
pub fn text_of(buffer: &Buffer) -> String {
    let mut out = String::new();
    for y in 0..buffer.area.height {
        let mut line = String::new();
        for x in 0..buffer.area.width {
            let Some(cell) = buffer.cell((x, y)) else { continue };
            let pixel =
                cell.symbol() == " " && cell.modifier == Modifier::REVERSED && cell.fg == Color::Reset;
            line.push_str(if pixel { "#" } else { cell.symbol() });
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// Where the plain pairing code stands, for the cursor to park on: a screen reader follows it.
pub(crate) fn code_position(buffer: &Buffer, snapshot: &Snapshot) -> Option<(u16, u16)> {
    let code = snapshot.pairing_code.as_ref()?.ascii();
    let width = u16::try_from(code.len()).ok()?;
    let at = |x: u16, y: u16| {
        code.chars()
            .zip(x..)
            .all(|(c, x)| buffer.cell((x, y)).is_some_and(|cell| cell.symbol().starts_with(c)))
    };
    (0..buffer.area.height)
        .flat_map(|y| (0..=buffer.area.width.saturating_sub(width)).map(move |x| (x, y)))
        .find(|(x, y)| at(*x, *y))
}

// === the four modes ===

fn full(canvas: &mut Canvas, s: &Snapshot, view: &View) {
    let (cols, rows) = (canvas.cols, canvas.rows);
    let width = cols - 4;
    // Rows are counted from 0 here: frame on 0 and rows - 2, identity on the three rows above the latter.
    let identity = rows - 5;
    let main = |page: &Page| if page.state.is_some() { 4 } else { 1 };
    let mut page = screen::page(s, view, width, identity - 4);
    let top = main(&page);
    if top == 1 {
        page = screen::page(s, view, width, identity - 1 - usize::from(page.footer.is_some()));
    }
    canvas.frame(rows - 1, &title(&page, view, s));
    if let Some((tag, state, fact)) = &page.state {
        canvas.state(2, 2, width, *tag, state, &fact.long, fact.alarm);
    }
    let end = identity - usize::from(page.footer.is_some());
    canvas.body(2, top, end, width, &page, view);
    if let Some(footer) = &page.footer {
        canvas.row(2, identity - 1, width, footer);
    }
    if let Some(row) = screen::overlay(s, view, &page) {
        canvas.clear(1, identity - 2, cols - 2);
        canvas.row(2, identity - 2, width, &row);
    }
    for (offset, text) in identity_rows(s, view, width).iter().enumerate() {
        canvas.put(2, identity + offset, text, Style::new());
    }
    canvas.put(0, rows - 1, &keys(&page, view, cols), Style::new());
}

fn plain(canvas: &mut Canvas, s: &Snapshot, view: &View) {
    let (cols, rows) = (canvas.cols, canvas.rows);
    let identity = rows - 3;
    let page = screen::page(s, view, cols, identity - 3);
    let (name, time) = title(&page, view, s);
    canvas.put(0, 0, &two_sided(&name, &time, cols), bold());
    let mut top = 1;
    if let Some((tag, state, fact)) = &page.state {
        // The code has a row of its own here, so that a long state cannot push it out.
        let long = if fact.long.starts_with("pairing code") { "" } else { &fact.long };
        canvas.state(0, 1, cols, *tag, state, long, fact.alarm);
        top = 3;
        if let (Some(code), None) = (code_line(s, view), &page.big) {
            canvas.put(0, 2, &code, bold());
        }
    }
    let end = identity - usize::from(page.footer.is_some());
    canvas.body(0, top, end, cols, &page, view);
    if let Some(footer) = &page.footer {
        canvas.row(0, identity - 1, cols, footer);
    }
    if let Some(row) = screen::overlay(s, view, &page) {
        canvas.clear(0, end - 1, cols);
        canvas.row(0, end - 1, cols, &row);
    }
    let lines = identity_rows(s, view, cols);
    canvas.put(0, identity, &lines[0], Style::new());
    canvas.put(0, identity + 1, &lines[2], Style::new());
    canvas.put(0, rows - 1, &keys(&page, view, cols), Style::new());
}

fn small(canvas: &mut Canvas, s: &Snapshot, view: &View) {
    let (cols, rows) = (canvas.cols, canvas.rows);
    let width = cols - 4;
    let page = screen::page(s, view, width, rows.saturating_sub(6));
    canvas.frame(rows, &title(&page, view, s));
    for x in 0..cols {
        canvas.put(x, rows - 1, " ", Style::new());
    }
    let identity = rows - 2;
    let mut top = 1;
    if let Some((tag, state, fact)) = &page.state {
        // Half a state is no state: what does not fit beside the fact goes on below.
        let mut room = width.saturating_sub(5);
        let mut short = fact.short.as_str();
        if state.len() + 1 + short.len() > room {
            short = "";
        }
        room = room.saturating_sub(if short.is_empty() { 0 } else { short.len() + 1 });
        // Their word for a state must not go on in a row without its `> `.
        let mut lines = wrap(state, room, if state.contains("> ") { 1 } else { 3 }).into_iter();
        canvas.state(2, 1, width, *tag, &lines.next().unwrap_or_default(), short, false);
        top = 2;
        for line in lines {
            canvas.put(7, top, &line, bold());
            top += 1;
        }
        if fact.alarm {
            canvas.put(7, top, &cut(&fact.long, room), style_of(Tag::Trouble));
            top += 1;
        }
    }
    if page.state.is_none() {
        canvas.body(2, top, identity, width, &page, view);
    } else if page.big.is_some() {
        let code = code_line(s, view).map(|code| Row { text: code, tag: None, code: false });
        let body = code.into_iter().collect();
        canvas.body(2, top, identity, width, &Page { body, ..page.shallow() }, view);
    } else {
        let mut body: Vec<Row> = code_line(s, view).map(Row::text).into_iter().collect();
        if let (Some(fault), true) = (&s.fault, view.feed == Feed::Live) {
            body.extend(
                wrap(fault.message.as_str(), width - 2, 2).iter().map(|line| Row::text(format!("> {line}"))),
            );
        }
        if let Some((index, _)) = facts::current_step(s).filter(|_| facts::keep_powered(s))
            && let Some(step) = s.steps.iter().find(|step| step.index == index)
        {
            body.push(Row::text(format!("{index} {}", step.title)));
        }
        for line in short_advice(s, view) {
            body.extend(wrap(&line, width, 5).into_iter().map(Row::text));
        }
        canvas.body(2, top, identity, width, &Page { body, ..page.shallow() }, view);
    }
    canvas.put(2, identity, &short_identity(s, width), Style::new());
    let keys = match (screen::overlay(s, view, &page), &view.notice) {
        (Some(row), None) => format!(" {}", row.shown()),
        (_, Some(_)) => keys(&page, view, cols),
        (None, None) if s.state == State::Joined && view.screen == Screen::Main => keys(&page, view, cols),
        (None, None) if view.screen == Screen::Main => format!(" [D]etails  [R]edraw  {}", short_leave(view)),
        (None, None) => format!(" [Esc] back  [R]edraw  {}", short_leave(view)),
    };
    canvas.put(0, rows - 1, &cut(keys.trim_end(), cols.saturating_sub(2)), Style::new());
}

fn tiny(canvas: &mut Canvas, s: &Snapshot, view: &View) {
    let cols = canvas.cols;
    let state = match (&view.feed, view.liveness) {
        (Feed::NotYet { .. }, _) => "the join agent is not up yet".into(),
        (Feed::Unreadable(_), _) => "the state cannot be read".into(),
        (Feed::Live, Liveness::Gone) => "THE AGENT DOES NOT ANSWER".into(),
        (Feed::Live, Liveness::Late) => format!("{} (old)", s.headline.ascii()),
        _ => s.headline.ascii(),
    };
    let mut lines = vec![format!("STRATUM {state}")];
    if let Some(code) = code_line(s, view) {
        // The code alone is worth more than its label.
        let code = code.replace("PAIRING CODE  ", "PAIRING CODE ");
        let bare = s.pairing_code.as_ref().map(|code| code.ascii()).unwrap_or_default();
        // The very last cell is left alone.
        let room = if canvas.rows == 2 { cols - 1 } else { cols };
        lines.push(if code.len() <= room || bare.len() > room { code } else { bare });
    }
    let identity: Vec<String> = [
        s.machine.serial.as_ref().map(|serial| serial.ascii()),
        s.machine.hostname.as_ref().map(|name| name.ascii()),
        bare_address(s),
    ]
    .into_iter()
    .flatten()
    .collect();
    lines.push(identity.join(" "));
    if canvas.rows > lines.len() {
        lines.extend(short_advice(s, view).iter().flat_map(|line| wrap(line, cols, 5)));
    }
    for (y, line) in lines.iter().take(canvas.rows).enumerate() {
        let last = y + 1 == canvas.rows;
        // The very last cell of a terminal is never written: some scroll.
        canvas.put(0, y, &cut(line, if last { cols.saturating_sub(1).max(1) } else { cols }), Style::new());
    }
}

// === what the modes share ===

impl Page {
    /// The page without its body.
    fn shallow(&self) -> Self {
        Self {
            title: self.title,
            state: None,
            big: self.big.clone(),
            body: Vec::new(),
            footer: None,
            keys: self.keys.clone(),
            scrolled: false,
        }
    }
}

/// Title and clock of row 1.
fn title(page: &Page, view: &View, s: &Snapshot) -> (String, String) {
    let name =
        if page.title.is_empty() { "STRATUM JOIN".into() } else { format!("STRATUM JOIN - {}", page.title) };
    let mut time = clock::time_of_day(view.now.wall);
    if s.clock.synced == Synced::No {
        time.push('?');
    }
    (name, time)
}

/// The plain pairing code wherever it means something. A joined machine has no use for it.
fn code_line(s: &Snapshot, view: &View) -> Option<String> {
    let code = s.pairing_code.as_ref()?.ascii();
    if s.state == State::Joined || view.feed != Feed::Live {
        return None;
    }
    Some(format!("PAIRING CODE  {code}"))
}

fn keys(page: &Page, view: &View, cols: usize) -> String {
    let room = cols.saturating_sub(2).min(78);
    let mut text = match &view.notice {
        Some(notice) => format!(" {notice}"),
        None => page.keys.clone(),
    };
    // What another key does as well goes first; the way out stays.
    for spare in ["[I] blink LED  ", "[R]edraw  ", "[F] follow  ", "[N]etwork  ", "[L]og  "] {
        if text.len() > room {
            text = text.replace(spare, "");
        }
    }
    cut(&text, room)
}

fn short_leave(view: &View) -> &'static str {
    match view.leave {
        crate::view::Leave::AltF2 => "Alt+F2 login",
        crate::view::Leave::Quit => "[Q][Q] leave",
        crate::view::Leave::Nowhere => "",
    }
}

fn identity_rows(s: &Snapshot, view: &View, width: usize) -> [String; 3] {
    let row = |left: String, right: String| two_sided(&left, &cut(&right, width * 3 / 5), width);
    [
        row(format!("This node  {}", facts::or_unknown(&s.machine.hostname)), facts::serial_and_maker(s)),
        row(
            format!("Address    {}", facts::address(s)),
            format!("release {}", facts::or_unknown(&s.machine.release)),
        ),
        row(format!("Cluster    {}", facts::cluster(s, &view.now)), facts::cluster_release(s)),
    ]
}

fn short_identity(s: &Snapshot, width: usize) -> String {
    let host = s.machine.hostname.as_ref().map(|name| name.ascii());
    let host = host.map(|name| name.split('.').next().unwrap_or_default().to_owned());
    let parts: Vec<String> = [s.machine.serial.as_ref().map(|serial| serial.ascii()), host, bare_address(s)]
        .into_iter()
        .flatten()
        .collect();
    cut(&parts.join(" "), width)
}

fn bare_address(s: &Snapshot) -> Option<String> {
    let address = s.network.primary.as_ref()?.address.as_ref()?.ascii();
    Some(address.split('/').next().unwrap_or_default().to_owned())
}

/// What a person does, for terminals without room for the whole screen.
fn short_advice(s: &Snapshot, view: &View) -> Vec<String> {
    if view.feed == Feed::Live && view.liveness == Liveness::Gone {
        let last = facts::headline(s, &view.now).text;
        let last = facts::own_part(&last).0;
        return vec![format!("Last: {last} (may be out of date)"), "journalctl -u stratum-join -b".into()];
    }
    if view.feed != Feed::Live || !s.next.is_empty() {
        return s.next.iter().map(|line| line.ascii()).collect();
    }
    facts::advice_or_default(s)
}
