//! What every screen says: at every size, as card, as banner and as service status. Reviewed by eye; `INSTA_UPDATE=always` writes the
//! pictures anew, those in the documents as well.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

mod common;

use std::path::Path;

use common::*;
use console::banner::StatusScreen;
use console::snapshot::*;
use console::{Liveness, Screen, View, banner, bytes_between, card, card_of, draw, render_text, text_of};

#[test]
fn every_picture_looks_as_it_was_approved() {
    for picture in pictures() {
        insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false }, {
            insta::assert_snapshot!(picture.name, picture.all());
        });
    }
    let mut names: Vec<String> = pictures().iter().map(|picture| format!("{}.snap", picture.name)).collect();
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots");
    let files = std::fs::read_dir(dir).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut files: Vec<String> = files.filter(|name| !name.ends_with(".new")).collect();
    names.sort();
    files.sort();
    assert_eq!(names, files, "each picture has a name of its own, and none is left over");
}

/// A document with its pictures drawn anew: what stands between `<!-- picture: NAME SECTION -->` and `<!-- /picture -->`. Also how many.
fn with_pictures(document: &str) -> (String, usize) {
    const OPEN: &str = "<!-- picture: ";
    const CLOSE: &str = "<!-- /picture -->";
    let (mut out, mut rest, mut count) = (String::new(), document, 0);
    while let Some((before, after)) = rest.split_once(OPEN) {
        let (what, after) = after.split_once(" -->").unwrap();
        let (_, behind) = after.split_once(CLOSE).unwrap_or_else(|| panic!("{what} has no end"));
        let (name, section) = what.split_once(' ').unwrap_or_else(|| panic!("{what} names no section"));
        let text = picture(name).section(section);
        out.push_str(&format!(
            "{before}{OPEN}{what} -->\n```text\n{}\n```\n{CLOSE}",
            text.trim_matches('\n')
        ));
        rest = behind;
        count += 1;
    }
    (out + rest, count)
}

#[test]
fn the_documents_show_the_pictures_as_they_are() {
    for (name, at_least) in [("README.md", 2), ("docs/console.md", 8)] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
        let document = std::fs::read_to_string(&path).unwrap();
        let (wanted, count) = with_pictures(&document);
        assert!(count >= at_least, "{name} shows {count} pictures");
        if wanted != document && std::env::var("INSTA_UPDATE").is_ok_and(|how| how == "always") {
            std::fs::write(&path, &wanted).unwrap();
        } else {
            assert!(wanted == document, "{name} shows other pictures; INSTA_UPDATE=always draws them anew");
        }
    }
}

#[test]
fn a_clock_that_is_decades_wrong_counts_nothing_down() {
    let mut s = pending();
    s.clock.synced = Synced::Unknown;
    for (wall, countdown) in
        [("2026-11-29T10:55:15Z", true), ("1970-01-01T00:01:00Z", false), ("2039-01-01T00:00:00Z", false)]
    {
        let now = console::Now { boot_ms: s.written_mono, wall: wall.parse().unwrap() };
        let screen = render_text(&s, 80, 24, false, now);
        assert!(screen.contains("Expires 2026-11-30 22:10Z"), "{wall}:\n{screen}");
        assert_eq!(screen.contains("22:10Z (in "), countdown, "{wall}:\n{screen}");
    }
}

#[test]
fn a_failure_that_the_cluster_has_not_heard_of_is_not_said_to_be_known_there() {
    for (word, known) in [("failed", true), ("installing", false), ("delivering", false)] {
        let now = at("10:55:15Z");
        let mut s = written(State::Failed, &now);
        s.state_raw = Some(word.into());
        let screen = render_text(&s, 80, 24, false, now);
        assert_eq!(screen.contains("The cluster knows about this failure"), known, "{word}:\n{screen}");
        assert_eq!(screen.contains("The cluster has not heard of this yet"), !known, "{word}:\n{screen}");
    }
}

#[test]
fn a_key_that_the_agent_cannot_do_is_not_offered() {
    let now = at("2026-11-29T10:55:15Z");
    for (state, screen) in [
        (State::Pending, Screen::Main),
        (State::Pending, Screen::Details),
        (State::Pending, Screen::Network),
        (State::Joined, Screen::Main),
    ] {
        let mut s = written(state, &now);
        s.actions = Actions::default();
        let view = View { screen, ..View::new(now) };
        let keys = |s: &Snapshot| text_of(&draw(s, &view, (80, 24)));
        let without = keys(&s);
        assert!(!without.contains("blink LED") && !without.contains("check now"), "{state} {without}");
        s.actions = Actions { retry: false, check: true, identify: true };
        let with = keys(&s);
        assert!(with.contains("blink LED") || with.contains("check now"), "{state} {with}");
    }
}

#[test]
fn larger_terminals_keep_the_identity_at_the_bottom_and_scale_the_code() {
    let s = pending();
    let now = at("10:55:15Z");
    for (cols, rows, pixels) in [(80_u16, 25_u16, 2), (128, 48, 3), (240, 67, 7)] {
        let text = render_text(&s, cols, rows, false, now);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), usize::from(rows));
        assert!(lines[usize::from(rows) - 5].starts_with("| This node  node-2.example.com"));
        assert_eq!(lines[0].len(), usize::from(cols));
        // The first row of "4F7": a pixel, a gap, a pixel.
        let first = lines.iter().find(|line| line.contains('#')).unwrap();
        let run = first.trim_matches(|c| c != '#').split(' ').next().unwrap();
        assert_eq!(run.len(), pixels, "{cols}x{rows}");
    }
}

#[test]
fn a_terminal_without_a_size_is_drawn_as_80x24() {
    let (s, now) = (pending(), at("10:55:15Z"));
    let usual = render_text(&s, 80, 24, false, now);
    for (cols, rows) in [(0, 0), (0, 24), (80, 0)] {
        assert_eq!(render_text(&s, cols, rows, false, now), usual);
    }
}

#[test]
fn a_card_fits_its_byte_budget() {
    let (s, now) = (pending(), at("10:55:15Z"));
    let text = card(&s, Liveness::Alive, now, Some("R repeat   N network   L log   X login"));
    assert!(text.len() <= 700, "{}", text.len());
}

#[test]
fn a_joined_machine_says_nothing_at_its_login_after_the_next_boot() {
    let now = at("11:21:00Z");
    let mut s = written(State::Joined, &now);
    assert!(banner::issue(&s, now, StatusScreen::Tty1).contains("Stratum node"));
    assert_eq!(banner::motd(&s, now, StatusScreen::Tty1), "");
    s.cluster.last_contact_mono = None;
    assert_eq!(banner::issue(&s, now, StatusScreen::Tty1), "");
}

#[test]
fn nobody_is_sent_to_a_status_screen_that_is_not_there() {
    let (s, now) = (pending(), at("10:55:15Z"));
    for (screen, sent) in [(StatusScreen::Tty1, true), (StatusScreen::None, false)] {
        for text in [banner::issue(&s, now, screen), banner::motd(&s, now, screen)] {
            assert_eq!(text.contains("Alt+F1"), sent, "{text}");
            assert!(text.contains(s.pairing_code.as_ref().unwrap().as_str()));
        }
    }
}

#[test]
fn a_machine_that_nobody_asked_to_join_names_the_command_and_nothing_that_is_not_there() {
    let s = Snapshot {
        state: State::Starting,
        headline: "no join was asked for".into(),
        next: vec!["Give this machine a join code:".into(), "stratum-installer join".into()],
        ..Snapshot::default()
    };
    let now = at("10:55:15Z");
    for text in [
        banner::issue(&s, now, StatusScreen::None),
        banner::motd(&s, now, StatusScreen::None),
        card(&s, Liveness::Alive, now, None),
    ] {
        assert!(
            text.contains("NO JOIN WAS ASKED FOR") && text.contains(" stratum-installer join\n"),
            "{text}"
        );
        assert!(!text.contains("unknown") && !text.contains("--check"), "{text}");
    }
}

#[test]
fn the_stamp_alone_is_no_new_banner() {
    let s = pending();
    assert_ne!(
        banner::issue(&s, at("10:55:15Z"), StatusScreen::Tty1),
        banner::issue(&s, at("10:56:15Z"), StatusScreen::Tty1)
    );
    assert!(!banner::unstamped(&s).contains("as of"));
    let mut later = s.clone();
    later.written_mono += 60_000;
    later.written_at = "2026-11-29T10:56:15Z".into();
    assert_eq!(banner::unstamped(&s), banner::unstamped(&later));
}

#[test]
fn an_unsynchronised_clock_is_marked_and_no_countdown_is_shown() {
    let now = at("10:55:15Z");
    let mut s = pending();
    s.clock.synced = Synced::No;
    let text = render_text(&s, 80, 24, false, now);
    assert!(text.contains("10:55:15Z? -+"));
    assert!(text.contains("Expires 2026-11-30 22:10Z if nobody approves it."));
}

#[test]
fn every_frame_tick_and_card_keeps_its_byte_budget() {
    for picture in pictures() {
        let (name, s) = (picture.name, &picture.snapshot);
        for boxes in [false, true] {
            let view = View { boxes, ..picture.view.clone() };
            let frame = draw(s, &view, (80, 24));
            let bytes = bytes_between(None, &frame).len();
            let big = s.pairing_code.is_some() && text_of(&frame).contains("##");
            // The log and the details are as long as what they list.
            let full = big || matches!(view.screen, Screen::Log | Screen::Details);
            assert!(bytes <= if full { 3072 } else { 2048 }, "{name}: {bytes}");
            let mut later = view;
            later.now.boot_ms += 1000;
            later.now.wall += jiff::SignedDuration::from_secs(1);
            let tick = bytes_between(Some(&frame), &draw(s, &later, (80, 24))).len();
            assert!(tick <= 60, "{name}: {tick}");
            assert_eq!(bytes_between(Some(&frame), &frame), b"", "{name}");
        }
        // The longest are of a join that failed, with three rows of somebody else's words.
        let card = card_of(s, &picture.view).replace('\n', "\r\n").len();
        let most = if picture.view.screen != Screen::Main {
            1840
        } else if name.starts_with("S8") {
            760
        } else {
            700
        };
        assert!(card <= most, "{name}: {card}");
    }
}
