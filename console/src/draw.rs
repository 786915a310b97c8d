//! Lays a page out on a terminal of any size, into a buffer of cells. Pure: the same snapshot, view and size give the same cells.
//!
//! Only printable ASCII and, with `View::boxes`, the eight box characters reach a cell. Never panics at any size.

use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style};

use crate::canvas::{Canvas, bold, style_of};
use crate::clock;
use crate::facts;
use crate::layout::{Row, Tag, cut, first_fit, two_sided, wrap};
use crate::screen::{self, Page};
use crate::snapshot::{Liveness, Snapshot, State, Synced};
use crate::view::{Feed, View};

/// A size of 0 in either axis is drawn as this: serial lines and fresh terminals report it.
pub const FALLBACK: (u16, u16) = (80, 24);
/// Larger terminals are drawn in their upper left corner.
const LARGEST: (u16, u16) = (500, 200);

/// Sentences are no wider than this on larger terminals: what stands a hand's breadth away from what it belongs to is not read with it,
/// and a viewer's window often shows only the left part. The log keeps all there is.
const WIDEST: usize = 96;

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
    let whole = cols - 4;
    let width = whole.min(WIDEST);
    // Rows are counted from 0 here: frame on 0 and rows - 2, identity on the three rows above the latter.
    let identity = rows - 5;
    let main = |page: &Page| if page.state.is_some() { 4 } else { 1 };
    let mut page = screen::page(s, view, width, identity - 4);
    let top = main(&page);
    if top == 1 {
        page = screen::page(s, view, whole, identity - 1 - usize::from(page.footer.is_some()));
    }
    canvas.frame(rows - 1, &title(&page, view, s));
    if let Some((tag, state, fact)) = &page.state {
        canvas.state(2, 2, width, *tag, state, &fact.long, fact.alarm);
    }
    let end = identity - usize::from(page.footer.is_some());
    canvas.body(2, top, end, whole, &page, view);
    if let Some(footer) = &page.footer {
        canvas.row(2, identity - 1, whole, footer);
    }
    if let Some(row) = screen::overlay(s, view, &page, width) {
        canvas.clear(1, identity - 2, cols - 2);
        canvas.row(2, identity - 2, width, &row);
    }
    for (offset, text) in identity_rows(s, view, width).iter().enumerate() {
        canvas.put(2, identity + offset, text, identity_style(offset));
    }
    canvas.put(0, rows - 1, &keys(&page, view, cols), Style::new());
}

fn plain(canvas: &mut Canvas, s: &Snapshot, view: &View) {
    let (cols, rows) = (canvas.cols, canvas.rows);
    let identity = rows - 3;
    let mut page = screen::page(s, view, cols, identity - 3);
    let (name, time) = title(&page, view, s);
    canvas.put(0, 0, &two_sided(&name, &time, cols), bold());
    let mut top = 1;
    if let Some((tag, state, fact)) = &page.state {
        // The code has a row of its own here, so that a long state cannot push it out.
        let long = if fact.long.starts_with("pairing code") { "" } else { &fact.long };
        let alone = long.is_empty() && facts::own_part(state).1.is_none();
        let mut lines = wrap(state, cols - 5, if alone { 2 } else { 1 }).into_iter();
        canvas.state(0, 1, cols, *tag, &lines.next().unwrap_or_default(), long, fact.alarm);
        if let Some(line) = lines.next() {
            canvas.put(5, 2, &line, bold());
            top += 1;
        }
        top += 2;
        if let (Some(code), None) = (code_line(s, view), &page.big) {
            canvas.put(0, top - 1, &code, bold());
            // Once is enough.
            page.footer.take_if(|footer| footer.text.starts_with("Pairing code") && footer.text.len() < 25);
        }
    }
    let end = identity - usize::from(page.footer.is_some());
    canvas.body(0, top, end, cols, &page, view);
    if let Some(footer) = &page.footer {
        canvas.row(0, identity - 1, cols, footer);
    }
    if let Some(row) = screen::overlay(s, view, &page, cols) {
        canvas.clear(0, end - 1, cols);
        canvas.row(0, end - 1, cols, &row);
    }
    for (offset, text) in two_identity_rows(s, view, cols).iter().enumerate() {
        canvas.put(0, identity + offset, text, identity_style(offset));
    }
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
        let mut lines = wrap(state, room, if facts::own_part(state).1.is_some() { 1 } else { 3 }).into_iter();
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
        let body = small_body(s, view, width, identity.saturating_sub(top));
        canvas.body(2, top, identity, width, &Page { body, ..page.shallow() }, view);
    }
    canvas.put(2, identity, &short_identity(s, width), identity_style(0));
    let keys = match (screen::overlay(s, view, &page, cols - 3), &view.notice) {
        (Some(row), None) => format!(" {}", row.shown()),
        _ => keys(&page, view, cols),
    };
    canvas.put(0, rows - 1, &cut(keys.trim_end(), cols.saturating_sub(2)), Style::new());
}

/// Code, error, step and advice in `room` rows. The advice is what gives way to nothing: an error is cut to one row for it.
fn small_body(s: &Snapshot, view: &View, width: usize, room: usize) -> Vec<Row> {
    let mut body: Vec<Row> = code_line(s, view).map(Row::text).into_iter().collect();
    let all = short_advice(s, view);
    let mut advice = advice_rows(&all, width);
    if body.len() + advice.len() >= room && facts::wants_new_code(s) {
        // What the agent remarks gives way to the command.
        advice = advice_rows(&all[all.len().saturating_sub(2)..], width);
    }
    let step = facts::current_step(s).filter(|_| facts::keep_powered(s)).and_then(|(index, _)| {
        let step = s.steps.iter().find(|step| step.index == index)?;
        Some(Row::text(format!("{index} {}", step.title)))
    });
    let left = room.saturating_sub(body.len() + advice.len() + usize::from(step.is_some()));
    if let (Some(error), true) = (facts::error(s), view.feed == Feed::Live && view.liveness != Liveness::Gone)
    {
        let lines = wrap(error, width - 2, left.clamp(1, 3));
        body.extend(lines.iter().map(|line| Row::text(format!("> {line}"))));
    }
    body.extend(step);
    body.extend(advice);
    body
}

fn advice_rows(lines: &[String], width: usize) -> Vec<Row> {
    let mut out = Vec::new();
    for line in lines {
        let command = facts::is_command(line);
        for (index, part) in wrap(line, width - 2, 5).into_iter().enumerate() {
            // A command is seen to go on.
            out.push(Row::text(if command && index > 0 { format!("  {part}") } else { part }));
        }
    }
    out
}

fn tiny(canvas: &mut Canvas, s: &Snapshot, view: &View) {
    let (cols, rows) = (canvas.cols, canvas.rows);
    let state = match (&view.feed, view.liveness) {
        (Feed::NotYet { .. }, _) => "the join agent is not up yet".into(),
        (Feed::Unreadable(_), _) => "the state cannot be read".into(),
        (Feed::Live, Liveness::Gone) => facts::gone(s).replace("JOIN ", ""),
        (Feed::Live, Liveness::Late) => format!("{} (old)", s.headline.ascii()),
        _ => s.headline.ascii(),
    };
    let code = code_line(s, view).map(|line| {
        let bare = s.pairing_code.as_ref().map(|code| code.ascii()).unwrap_or_default();
        (line.replace("PAIRING CODE  ", "PAIRING CODE "), bare)
    });
    // The state is worth more than the product's name.
    let named = format!("STRATUM {state}");
    let state = if named.len() <= cols { named } else { state };
    let mut lines: Vec<String>;
    if let (Some((_, bare)), true) = (&code, rows == 1) {
        // Half a code is worth nothing.
        let room = cols.saturating_sub(1).saturating_sub(bare.len() + 1);
        lines = vec![if room > 1 { format!("{bare} {}", cut(&state, room)) } else { bare.clone() }];
    } else {
        // As many rows of it as leave one for the code and one for the machine.
        let most = rows.saturating_sub(1 + usize::from(code.is_some())).clamp(1, 2);
        lines = wrap(&state, cols, most);
        if let Some((line, bare)) = code {
            // The code alone is worth more than its label. The very last cell is left alone.
            let room = if rows == lines.len() + 1 { cols.saturating_sub(1) } else { cols };
            lines.push(if line.len() <= room || bare.len() > room { line } else { bare });
        }
        lines.push(short_identity(s, cols));
        if facts::keep_powered(s) && view.feed == Feed::Live {
            lines.push("DO NOT POWER OFF".into());
        } else if rows > lines.len() {
            lines.extend(short_advice(s, view).iter().flat_map(|line| wrap(line, cols, 5)));
        }
    }
    lines.retain(|line| !line.is_empty());
    if let (Some(notice), true) = (&view.notice, rows >= 4) {
        // A question that nobody sees must not be answered by chance.
        lines.truncate(rows - 1);
        lines.push(notice.ascii());
    }
    for (y, line) in lines.iter().take(rows).enumerate() {
        let last = y + 1 == rows;
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

/// Row 24. What another key does as well goes first, and the way out last; nothing is cut in half.
fn keys(page: &Page, view: &View, cols: usize) -> String {
    let room = cols.saturating_sub(2).min(78);
    if let Some(notice) = &view.notice {
        return cut(&format!(" {notice}"), room);
    }
    let mut keys: Vec<&str> = page.keys.split("  ").map(str::trim).filter(|key| !key.is_empty()).collect();
    let length = |keys: &[&str]| 1 + keys.join("  ").len();
    for spare in ["[I]", "[F]", "[N]", "[L]", "[R]", "[D]", "Alt+F2", "[Q]", "[X]"] {
        if length(&keys) > room {
            keys.retain(|key| !key.starts_with(spare));
        }
    }
    cut(&format!(" {}", keys.join("  ")), room)
}

/// The longest words that fit beside `right`; without `right` when not even the shortest do.
fn identity_row(label: &str, left: &[String], right: &str, width: usize) -> String {
    let right = cut(right, width * 3 / 5);
    let room = width.saturating_sub(label.len());
    let beside = room.saturating_sub(right.len() + usize::from(!right.is_empty()));
    let shown = first_fit(left, beside);
    if shown.len() <= beside {
        return two_sided(&format!("{label}{shown}"), &right, width);
    }
    let alone = first_fit(left, room);
    // A name that is cut either way leaves the other its place.
    let right = if alone.len() <= room { "" } else { &right };
    two_sided(&format!("{label}{alone}"), right, width)
}

/// Name and serial number are what a person looks for who stands before a row of machines: as bright as the state and the code.
fn identity_style(row: usize) -> Style {
    if row == 0 { bold() } else { Style::new() }
}

/// The same three rows on every full screen.
fn identity_rows(s: &Snapshot, view: &View, width: usize) -> [String; 3] {
    let release = format!("release {}", facts::or_unknown(&s.machine.release));
    let host = [facts::or_unknown(&s.machine.hostname)];
    [
        identity_row("This node  ", &host, &facts::serial_and_maker(s), width),
        identity_row("Address    ", &facts::address(s), &release, width),
        identity_row("Cluster    ", &facts::cluster(s, &view.now), &facts::cluster_release(s), width),
    ]
}

/// Where there is no room for three: name, address and serial, which the approver sees as well, and the cluster.
fn two_identity_rows(s: &Snapshot, view: &View, width: usize) -> [String; 2] {
    let host = facts::or_unknown(&s.machine.hostname);
    let serial = format!("serial {}", facts::or_unknown(&s.machine.serial));
    let node = match facts::bare_address(s) {
        Some(address) => {
            let short = host.split('.').next().unwrap_or_default().to_owned();
            vec![format!("{host}  {address}"), format!("{short}  {address}"), format!("{short} {address}")]
        }
        None => vec![host],
    };
    [
        identity_row("This node  ", &node, &serial, width),
        identity_row("Cluster    ", &facts::cluster(s, &view.now), &facts::cluster_release(s), width),
    ]
}

/// Serial, name, address, as the approver sees them; the domain goes first, then the name.
fn short_identity(s: &Snapshot, width: usize) -> String {
    let serial = s.machine.serial.as_ref().map(|serial| serial.ascii());
    let host = s.machine.hostname.as_ref().map(|name| name.ascii());
    let host = host.map(|name| name.split('.').next().unwrap_or_default().to_owned());
    let address = facts::bare_address(s);
    let join = |parts: [&Option<String>; 3]| {
        parts.into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join(" ")
    };
    let forms =
        [join([&serial, &host, &address]), join([&serial, &None, &address]), join([&serial, &host, &None])];
    cut(first_fit(&forms, width), width)
}

/// What a person does, for terminals without room for the whole screen.
fn short_advice(s: &Snapshot, view: &View) -> Vec<String> {
    if view.feed == Feed::Live && view.liveness == Liveness::Gone {
        if facts::restarts(s) {
            return vec![facts::gone_command(s).into()];
        }
        let last = facts::headline(s, &view.now).text;
        let last = facts::own_part(&last).0;
        return vec![format!("Last: {last} (may be out of date)"), facts::gone_command(s).into()];
    }
    match view.feed {
        Feed::NotYet { .. } | Feed::Unreadable(_) => screen::wait_for_agent().map(String::from).to_vec(),
        Feed::Foreign { .. } => facts::next(s),
        Feed::Live if facts::wants_new_code(s) => {
            let [_, command] = facts::new_code(s);
            let how = ["Make a new join code, then run:".into(), command];
            facts::remarks(s).into_iter().take(1).chain(how).collect()
        }
        // That it must keep its power stands in a row of its own.
        Feed::Live if facts::keep_powered(s) => vec!["No action needed.".into()],
        Feed::Live => facts::advice_or_default(s),
    }
}
