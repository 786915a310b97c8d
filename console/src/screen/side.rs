//! The side screens: log and details.

use super::*;
use crate::layout::{cut, two_sided, wrap};
use crate::snapshot::{Disk, Level, Link, LogLine, Nic, Synced};

/// Columns of a log line's time and level.
const LOG_TEXT: usize = 15;
/// Rows of one line, at most.
const LINE_ROWS: usize = 8;
/// Column of the values on the details screen.
const VALUE: usize = 12;

/// S15. `view.scroll` rows up from the end. A long line goes on below itself: what it ends in is often the cause.
pub(super) fn log(s: &Snapshot, view: &View, width: usize, room: usize) -> Page {
    let room = room.max(1);
    let rows: Vec<(usize, String)> =
        (1..).zip(&s.log).flat_map(|(n, line)| wrapped(n, line, width, LINE_ROWS)).collect();
    let up = view.scroll.min(rows.len().saturating_sub(room));
    let end = rows.len() - up;
    let shown = &rows[end.saturating_sub(room)..end];
    let mut body = Body::new(width);
    for (_, text) in shown {
        body.push(Row::text(text));
    }
    let place = match (shown.first(), shown.last()) {
        (Some((first, _)), Some((last, _))) => format!("lines {first}-{last} of {}", s.log.len()),
        _ => "no lines".into(),
    };
    if shown.is_empty() {
        body.prose(0, "The agent has not logged anything yet.");
    }
    let mut page = Page::main(s, view, body);
    let mode = if up == 0 { "following" } else { "F follows again" };
    page.title = "LOG";
    page.state = None;
    page.footer = Some(Row::text(two_sided(&place, mode, width)));
    page.keys = page::side_keys(view, "[U] up  [J] down  [F] follow");
    page
}

/// The rows of line `n`, at most `most`, under its text rather than under its time.
pub(super) fn wrapped(n: usize, line: &LogLine, width: usize, most: usize) -> Vec<(usize, String)> {
    let text = log_line(line);
    if text.len() <= width {
        return vec![(n, text)];
    }
    let (head, text) = text.split_at(LOG_TEXT.min(width / 2));
    let indent = head.len();
    let parts = wrap(text, width.saturating_sub(indent), most);
    let row = |(index, part): (usize, &String)| {
        (n, if index == 0 { format!("{head}{part}") } else { format!("{:indent$}{part}", "") })
    };
    parts.iter().enumerate().map(row).collect()
}

/// `10:42:03 INFO  text`.
pub(super) fn log_line(line: &LogLine) -> String {
    let at = line.at.as_str().parse::<jiff::Timestamp>();
    let at = at
        .map_or_else(|_| format!("{:8}", cut(line.at.as_str(), 8)), |at| at.strftime("%H:%M:%S").to_string());
    let level = match line.level {
        Level::Info => "INFO ",
        Level::Warn => "WARN ",
        Level::Error => "ERROR",
        Level::Unknown => "?    ",
    };
    format!("{at} {level} {}", line.text.ascii())
}

/// S16. `view.scroll` rows down.
pub(super) fn details(s: &Snapshot, view: &View, width: usize) -> Page {
    let mut body = Body::new(width);
    let put = |body: &mut Body, label: &str, text: String| {
        let row = format!("{label:<VALUE$}{text}");
        if row.len() <= width {
            return body.push(Row::text(row));
        }
        // A narrow terminal gets the same in more rows.
        for (index, part) in wrap(&text, width.saturating_sub(VALUE), 6).iter().enumerate() {
            let label = if index == 0 { label } else { "" };
            body.push(Row::text(cut(&format!("{label:<VALUE$}{part}"), width)));
        }
    };
    let since = clock::time_of_day(view.now.wall_of(s.state_since_mono));
    let id = s.registration.join_id.as_ref().map_or("none yet".into(), |id| id.ascii());
    put(&mut body, "Join id", format!("{id:<31}state {} since {since}", s.state));
    let code = s.pairing_code.as_ref().map_or("not yet".into(), |code| code.ascii());
    let say = crate::glyphs::spoken(&code).map(|say| format!("     say: {say}")).unwrap_or_default();
    put(&mut body, "Pairing", format!("{code}{say}"));
    let print = |hex: &Option<crate::text::Name>| match hex {
        Some(hex) => format!("{}   (first 128 bits)", facts::fingerprint(hex.as_str())),
        None => "none yet".into(),
    };
    put(&mut body, "Node key", print(&s.node_key));
    put(&mut body, "Cluster pin", print(&s.cluster.pin));
    let clock = match s.clock.synced {
        Synced::Yes => "clock synchronised",
        Synced::No => "clock NOT synchronised",
        Synced::Unknown => "clock perhaps not synchronised",
    };
    let up = clock::hms(view.now.since(s.agent.started_mono));
    let agent = format!("{}, up {up}, restarts {}", s.agent.version.ascii(), s.agent.restarts);
    // Where both do not fit beside each other, the clock goes below.
    let column = width.saturating_sub(VALUE + clock.len()).clamp(agent.len() + 2, 37.max(agent.len() + 2));
    put(&mut body, "Agent", format!("{agent:<column$}{clock}"));
    body.blank();
    let maker = facts::maker(s);
    // An agent that knows nothing of the firmware names the maker there.
    let firmware = Some(s.hardware.chassis.ascii()).filter(|text| *text != maker).unwrap_or_default();
    let chassis = [maker, format!("serial {}", facts::or_unknown(&s.machine.serial)), firmware];
    let chassis: Vec<String> = chassis.into_iter().filter(|part| !part.is_empty()).collect();
    put(&mut body, "Chassis", chassis.join(", "));
    put(&mut body, "CPU", s.hardware.cpu.ascii());
    put(&mut body, "Memory", s.hardware.memory.ascii());
    body.blank();
    let mut label = "Disk";
    for disk in &s.hardware.disks {
        put(&mut body, label, disk_row(disk, width.saturating_sub(VALUE)));
        label = "";
    }
    label = "NIC";
    for nic in s.network.primary.iter().chain(&s.network.nics) {
        put(&mut body, label, nic_row(nic));
        label = "";
    }
    let mut page = Page::main(s, view, body);
    page.title = "DETAILS";
    page.state = None;
    page.scrolled = true;
    page.keys = page::side_keys(view, format!("[U] up  [J] down  {}", page::identify_key(s)).trim_end());
    page
}

/// What a disk holds may cost data; its model gives way to it.
fn disk_row(disk: &Disk, width: usize) -> String {
    let (name, size) = (cut(disk.name.as_str(), 8), cut(disk.size.as_str(), 8));
    let head = format!("{name:<9}{size:>8}  ");
    let usage = match width.saturating_sub(head.len()) {
        room @ 24.. => cut(disk.usage.as_str(), room),
        // It goes on in the next row.
        _ => disk.usage.ascii(),
    };
    let row = format!("{head}{usage:<15} ");
    let model = disk.model.ascii();
    match width.saturating_sub(row.len()) {
        // Half a model is no help when it is a few letters.
        room if model.len() <= room || room >= 8 => format!("{row}{}", cut(&model, room)),
        _ => row.trim_end().to_owned(),
    }
}

fn nic_row(nic: &Nic) -> String {
    let link = match nic.link {
        Link::Up => "up",
        Link::Down => "down",
        Link::Unknown => "?",
    };
    let speed = if nic.link == Link::Up { facts::speed(nic) } else { String::new() };
    // A dash stands where the unit would.
    let speed = if speed.is_empty() { "- ".into() } else { speed };
    let address = nic.address.as_ref().map_or("-".into(), |address| address.ascii());
    format!("{:<10}{link:<4}{speed:>4}  {:<19}{address}", cut(nic.nic.as_str(), 9), cut(nic.mac.as_str(), 18))
}
