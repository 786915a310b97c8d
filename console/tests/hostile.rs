//! Any text in any field: no escape byte but ours, no other cell than the one that was meant, no row out of its place.
//!
//! The fields are found by walking the snapshot's own JSON, so that a new one is covered on the day it is added.

#![allow(clippy::unwrap_used)]

mod common;

use std::sync::OnceLock;

use console::banner::StatusScreen;
use console::snapshot::*;
use console::{
    Liveness, Screen, Snapshot, View, banner, bytes_between, card_of, draw, effective_size, line, text_of,
};
use proptest::prelude::*;
use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};
use serde_json::Value;

/// What a founder, a disk or a DMI table might say to take over a screen.
const NASTY: [&str; 10] = [
    "\x1b[2J\x1b[1;1HPAIRING CODE AAA-AAA",
    "\x1b]0;title\x07\x1bP1$q\x1b\\\x1b]8;;http://x\x1b\\",
    "\u{9b}31m\u{9d}52;c;x\u{9c}\u{90}q\u{84}\u{85}",
    "\r\n\r\n[XX] JOIN FAILED\n\x0b\x0c\x08\x08\x7f\0",
    "\u{202e}321-CBA\u{2066}\u{200b}\u{200d}\u{feff}\u{ad}",
    "東京都\u{1f469}\u{200d}\u{1f692}e\u{301}\u{fe0f}\u{1100}\u{1161}",
    "\\4\\6\\t\\\\\\n\\",
    "│┌┐└┘─├┤ +---+ | [ok] This node  node-1  Cluster 10.0.0.1",
    "\x0e\x0f\x1b(0lqqk\x1b)0\x1b#8\x1bc\x1b[?1049h\x1b[9;0]",
    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
];

/// A machine that has everything, with at least two of each list.
fn full() -> Snapshot {
    let mut s = common::picture("S8").snapshot;
    s.degraded = Some("restarted".into());
    s.state_raw = Some("failed".into());
    s.agent.exit = Some(AgentExit { result: "signal".into(), code: "killed".into(), status: "KILL".into() });
    s.network.checks = common::picture("S12").snapshot.network.checks;
    s.network.nics = common::picture("S16").snapshot.network.nics;
    s.network.nics[0].address = Some("192.0.2.13/24".into());
    s.network.failing_since_mono = Some(1);
    s.cluster.cluster_id = Some("cl-3vin6yzz".into());
    s.registration.wait_reason = Some("waiting".into());
    s.registration.reject_reason = Some("no".into());
    s.registration.node_id = Some("n-msst0002".into());
    s.registration.last_pairing_code = Some("4F7-K2Q".into());
    for step in &mut s.steps {
        step.detail = Some("a detail".into());
    }
    s.steps.truncate(3);
    s.upgrade = Some(Upgrade {
        host: Some("mirror".into()),
        waiting: Some(UpgradeWait::Retry),
        from: "0.6.0".into(),
        to: "0.7.0".into(),
        ..Upgrade::default()
    });
    s.progress = Some(Progress { unit: Unit::Steps, total: 9, ..Progress::default() });
    s.fault.as_mut().unwrap().why = Some("why".into());
    s.fault.as_mut().unwrap().details =
        FaultDetails { cluster_release: Some("0.8.0".into()), iso: Some("0.8.0.iso".into()) };
    s.last_message = Some(LastMessage { text: "a line".into(), at_mono: 1 });
    s.hardware.disks = common::picture("S16").snapshot.hardware.disks;
    s.hardware.disks.truncate(2);
    s.log = common::picture("S14").snapshot.log;
    s
}

/// JSON pointers of every string.
fn leaves(value: &Value, at: &str, out: &mut Vec<String>) {
    match value {
        Value::String(_) => out.push(at.to_owned()),
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(n, one)| leaves(one, &format!("{at}/{n}"), out));
        }
        Value::Object(map) => map.iter().for_each(|(name, one)| leaves(one, &format!("{at}/{name}"), out)),
        Value::Null => panic!("{at} is empty: full() must fill every field"),
        Value::Bool(_) | Value::Number(_) => {}
    }
}

fn fields() -> &'static (Value, Vec<String>) {
    static FIELDS: OnceLock<(Value, Vec<String>)> = OnceLock::new();
    FIELDS.get_or_init(|| {
        let value = serde_json::to_value(full()).unwrap();
        let mut out = Vec::new();
        for (name, one) in value.as_object().unwrap() {
            // A speed and an address are unknown on some of the NICs.
            if name == "network" {
                let mut one = one.clone();
                one["nics"] = Value::Array(vec![one["nics"][0].clone()]);
                one["nextTryMono"] = 1.into();
                one["nics"][0]["speedMbps"] = 1.into();
                leaves(&one, "/network", &mut out);
            } else {
                leaves(&without_times(one), &format!("/{name}"), &mut out);
            }
        }
        (value, out)
    })
}

/// Numbers that a snapshot of this state has not got.
fn without_times(value: &Value) -> Value {
    let mut value = value.clone();
    if let Some(map) = value.as_object_mut() {
        map.retain(|name, one| !one.is_null() || !(name.ends_with("Mono") || name.ends_with("Sec")));
        map.values_mut().for_each(|one| *one = without_times(one));
    } else if let Some(list) = value.as_array_mut() {
        list.iter_mut().for_each(|one| *one = without_times(one));
        list.iter_mut().filter_map(Value::as_object_mut).for_each(|map| {
            map.retain(|name, one| !one.is_null() || name != "elapsedMs");
        });
    }
    value
}

/// The full machine with this text in these fields, in this state, as a reader of its file gets it.
fn with(state: Option<State>, at: &[&String], text: &str) -> Snapshot {
    let mut value = fields().0.clone();
    for pointer in at {
        *value.pointer_mut(pointer).unwrap() = text.into();
    }
    if let Some(state) = state {
        value["state"] = state.word().into();
    }
    Snapshot::parse(&serde_json::to_vec(&value).unwrap()).unwrap()
}

/// Fails when the bytes hold anything but printable text and the listed sequences.
fn assert_only_ours(bytes: &[u8], boxes: bool) {
    let text = std::str::from_utf8(bytes).unwrap();
    let mut parts = text.split('\x1b');
    let plain = |text: &str| text.chars().all(|c| matches!(c, ' '..='~') || boxes && "─│┌┐└┘├┤".contains(c));
    assert!(plain(parts.next().unwrap()));
    for sequence in parts {
        let body = sequence.strip_prefix('[').unwrap_or_else(|| panic!("not CSI: {sequence:?}"));
        let end = body.find(|c: char| ('@'..='~').contains(&c)).unwrap();
        let parameters = &body[..end];
        let good = match &body[end..=end] {
            "H" => parameters.bytes().all(|b| b.is_ascii_digit() || b == b';'),
            "J" => parameters == "2",
            "K" => parameters.is_empty(),
            "m" => parameters.split(';').all(|p| ["0", "1", "7", "31", "32", "33", "36", "37"].contains(&p)),
            _ => false,
        };
        assert!(good && plain(&body[end + 1..]), "{sequence:?}");
    }
}

fn color(cell: &Cell) -> vt100::Color {
    match cell.fg {
        Color::Reset => vt100::Color::Default,
        Color::Red => vt100::Color::Idx(1),
        Color::Green => vt100::Color::Idx(2),
        Color::Yellow => vt100::Color::Idx(3),
        Color::Cyan => vt100::Color::Idx(6),
        Color::White => vt100::Color::Idx(7),
        other => panic!("{other:?} is not allowed"),
    }
}

/// Fails when a terminal that is fed these pictures shows any other cell than theirs.
fn assert_shown(pictures: &[&Buffer], boxes: bool) {
    let area = pictures[0].area;
    let mut screen = vt100::Parser::new(area.height.try_into().unwrap(), area.width.try_into().unwrap(), 0);
    let mut before = None;
    for picture in pictures {
        let bytes = bytes_between(before, picture);
        assert_only_ours(&bytes, boxes);
        screen.process(&bytes);
        before = Some(*picture);
        for y in 0..area.height {
            for x in 0..area.width {
                // The very last cell is never written.
                if (x + 1, y + 1) == (area.width, area.height) && (x, y) != (0, 0) {
                    continue;
                }
                let (cell, shown) = (picture.cell((x, y)).unwrap(), screen.screen().cell(y, x).unwrap());
                let symbol = if shown.contents().is_empty() { " " } else { shown.contents() };
                assert_eq!(cell.symbol(), symbol, "{x} {y}");
                assert!((Modifier::BOLD | Modifier::REVERSED).contains(cell.modifier), "{:?}", cell.modifier);
                assert_eq!(cell.modifier.contains(Modifier::REVERSED), shown.inverse(), "{x} {y}");
                assert_eq!(cell.modifier.contains(Modifier::BOLD), shown.bold(), "{x} {y}");
                assert_eq!((color(cell), cell.bg), (shown.fgcolor(), Color::Reset), "{x} {y}");
            }
        }
    }
}

/// Fails when a full screen lost its frame, its identity or its keys.
fn assert_in_place(text: &str, view: &View) {
    let rows: Vec<&str> = text.lines().collect();
    let last = rows.len() - 1;
    let [h, v] = if view.boxes { ["─", "│"] } else { ["-", "|"] };
    let edge = |row: &str| row.contains(&h.repeat(2));
    assert!(edge(rows[0]) && rows[0].contains(" STRATUM JOIN ") && edge(rows[last - 1]), "{text}");
    for row in &rows[1..last - 1] {
        assert!(row.starts_with(v) && row.ends_with(v), "{row:?}\n{text}");
    }
    for (row, label) in rows[last - 4..last - 1].iter().zip(["This node  ", "Address    ", "Cluster    "]) {
        assert!(row.starts_with(&format!("{v} {label}")), "{row:?}\n{text}");
    }
    assert!(rows[last].chars().count() <= 78, "{text}");
    let tags = ["[ok]", "[..]", "[  ]", "[>>]", "[!!]", "[XX]", "[--]", "[??]"];
    let state = &rows[2].chars().skip(2).take(4).collect::<String>();
    assert!(
        !matches!(view.screen, Screen::Main | Screen::Network) || tags.contains(&state.as_str()),
        "{text}"
    );
}

fn assert_plain_texts(s: &Snapshot, view: &View) {
    let now = view.now;
    let issue = banner::issue(s, now, StatusScreen::Tty1);
    let motd = banner::motd(s, now, StatusScreen::Tty1);
    for text in [&issue, &motd, &card_of(s, view), &line(s, view.liveness, now)] {
        assert!(text.chars().all(|c| matches!(c, ' '..='~' | '\n')), "{text:?}");
    }
    assert!(!issue.replace("\\\\", "").contains('\\'), "agetty would expand it: {issue}");
    assert!(issue.lines().chain(motd.lines()).all(|row| row.len() <= 78), "{issue}{motd}");
    assert!(banner::status_line(s).chars().all(|c| matches!(c, ' '..='~')));
}

#[test]
fn every_text_of_the_schema_is_among_the_fields() {
    let all = &fields().1;
    for wanted in [
        "/machine/serial",
        "/hardware/disks/1/use",
        "/fault/do/0",
        "/log/1/text",
        "/agent/exit/status",
        "/pairingCode",
        "/steps/2/detail",
        "/network/checks/9/detail",
        "/upgrade/host",
        "/fault/details/iso",
    ] {
        assert!(all.iter().any(|pointer| pointer == wanted), "{wanted}: {all:?}");
    }
    assert!(all.len() > 80, "{}", all.len());
}

#[test]
fn a_nasty_text_in_one_field_changes_no_row_but_its_own() {
    let view = View::new(common::at("10:55:15Z"));
    for (n, pointer) in fields().1.iter().enumerate() {
        for text in [NASTY[n % NASTY.len()], NASTY[(n + 3) % NASTY.len()]] {
            let s = with(None, &[pointer], text);
            let buffer = draw(&s, &view, (80, 24));
            assert_only_ours(&bytes_between(None, &buffer), false);
            assert_in_place(&text_of(&buffer), &view);
            assert_plain_texts(&s, &view);
        }
    }
}

#[test]
fn a_nasty_text_in_every_field_at_once_is_drawn_as_text_in_every_state() {
    let every: Vec<&String> = fields().1.iter().collect();
    for (at, state) in State::ALL.iter().enumerate() {
        // Each text meets a few states, each state a few texts, all of them the same code.
        for (n, text) in NASTY.iter().enumerate().filter(|(n, _)| n % 4 == at % 4) {
            let s = with(Some(*state), &every, text);
            let screen = [Screen::Main, Screen::Details, Screen::Network, Screen::Log][n % 4];
            for screen in [Screen::Main, screen] {
                let view = View {
                    screen,
                    notice: (n % 2 == 0).then(|| (*text).into()),
                    ..View::new(common::at("10:55:15Z"))
                };
                let (plain, hostile) = (draw(&full(), &view, (80, 24)), draw(&s, &view, (80, 24)));
                assert_shown(&[&plain, &hostile, &plain], false);
                assert_in_place(&text_of(&hostile), &view);
                assert_plain_texts(&s, &view);
            }
        }
    }
}

proptest! {
    // A parser beside each picture takes its time.
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_text_in_any_fields_is_drawn_as_text_at_any_size(
        at in proptest::collection::vec(any::<proptest::sample::Index>(), 1..12),
        text in prop_oneof![any::<String>(), proptest::sample::select(NASTY.as_slice()).prop_map(str::to_owned), "[ -~]{0,300}"],
        state in proptest::option::of(proptest::sample::select(State::ALL)),
        screen in proptest::sample::select(vec![Screen::Main, Screen::Main, Screen::Details, Screen::Network, Screen::Log]),
        liveness in proptest::sample::select(vec![Liveness::Alive, Liveness::Late, Liveness::Gone]),
        (cols, rows, boxes, scroll) in (0_u16..=110, 0_u16..=34, any::<bool>(), 0_usize..40),
    ) {
        let all = &fields().1;
        let chosen: Vec<&String> = at.iter().map(|index| index.get(all)).collect();
        let s = with(state, &chosen, &text);
        let view = View { screen, liveness, boxes, scroll, ..View::new(common::at("10:55:15Z")) };
        let buffer = draw(&s, &view, (cols, rows));
        assert_shown(&[&draw(&full(), &view, (cols, rows)), &buffer], boxes);
        let (cols, rows) = effective_size((cols, rows));
        if cols >= 80 && rows >= 24 {
            assert_in_place(&text_of(&buffer), &view);
        }
        assert_plain_texts(&s, &view);
    }
}
