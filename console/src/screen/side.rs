//! The side screens: log and details.

use super::*;
use crate::layout::{cut, two_sided};
use crate::snapshot::{Level, Link, LogLine, Nic, Synced};

/// S15. `view.scroll` rows up from the end.
pub(super) fn log(s: &Snapshot, view: &View, width: usize, room: usize) -> Page {
    let rows = room.max(1);
    let total = s.log.len();
    let up = view.scroll.min(total.saturating_sub(rows));
    let end = total - up;
    let start = end.saturating_sub(rows);
    let mut body = Body::new(width);
    for line in &s.log[start..end] {
        body.push(Row::text(cut(&log_line(line), width)));
    }
    if total == 0 {
        body.prose(0, "The agent has not logged anything yet.");
    }
    let mut page = Page::main(s, view, body);
    let place = if total == 0 { "no lines".into() } else { format!("lines {}-{end} of {total}", start + 1) };
    let mode = if up == 0 { "following" } else { "F follows again" };
    page.title = "LOG";
    page.state = None;
    page.footer = Some(Row::text(two_sided(&place, mode, width)));
    page.keys = page::side_keys(view, "[U] up  [J] down  [F] follow");
    page
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
    let put = |body: &mut Body, text: String| body.push(Row::text(cut(&text, width)));
    let since = clock::time_of_day(view.now.wall_of(s.state_since_mono));
    let id = s.registration.join_id.as_ref().map_or("none yet".into(), |id| id.ascii());
    put(&mut body, format!("Join id     {id:<31}state {} since {since}", s.state));
    let code = s.pairing_code.as_ref().map_or("not yet".into(), |code| code.ascii());
    let say = crate::glyphs::spoken(&code).map(|say| format!("     say: {say}")).unwrap_or_default();
    put(&mut body, format!("Pairing     {code}{say}"));
    let print = |hex: &Option<crate::text::Name>| match hex {
        Some(hex) => format!("{}   (first 128 bits)", facts::fingerprint(hex.as_str())),
        None => "none yet".into(),
    };
    put(&mut body, format!("Node key    {}", print(&s.node_key)));
    put(&mut body, format!("Cluster pin {}", print(&s.cluster.pin)));
    let clock = match s.clock.synced {
        Synced::Yes => "clock synchronised",
        Synced::No => "clock NOT synchronised",
        Synced::Unknown => "clock perhaps not synchronised",
    };
    let up = clock::hms(view.now.since(s.agent.started_mono));
    let agent = format!("{}, up {up}, restarts {}", s.agent.version.ascii(), s.agent.restarts);
    put(&mut body, format!("Agent       {agent:<37}{clock}"));
    body.blank();
    let maker = facts::maker(s);
    let chassis =
        [maker, format!("serial {}", facts::or_unknown(&s.machine.serial)), s.hardware.chassis.ascii()];
    let chassis: Vec<String> = chassis.into_iter().filter(|part| !part.is_empty()).collect();
    put(&mut body, format!("Chassis     {}", chassis.join(", ")));
    put(&mut body, format!("CPU         {}", s.hardware.cpu.ascii()));
    put(&mut body, format!("Memory      {}", s.hardware.memory.ascii()));
    body.blank();
    let mut label = "Disk";
    for disk in &s.hardware.disks {
        let (name, size, usage) =
            (cut(disk.name.as_str(), 8), cut(disk.size.as_str(), 8), cut(disk.usage.as_str(), 15));
        put(&mut body, format!("{label:<12}{name:<9}{size:>8}  {usage:<16}{}", disk.model.ascii()));
        label = "";
    }
    label = "NIC";
    for nic in s.network.primary.iter().chain(&s.network.nics) {
        put(&mut body, format!("{label:<12}{}", nic_row(nic)));
        label = "";
    }
    let mut page = Page::main(s, view, body);
    page.title = "DETAILS";
    page.state = None;
    page.scrolled = true;
    page.keys = page::side_keys(view, format!("[U] up  [J] down  {}", page::identify_key(s)).trim_end());
    page
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
