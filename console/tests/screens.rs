//! What every screen says, at three sizes, as card, as banner and as service status. Reviewed by eye: `INSTA_UPDATE=always` writes them anew.

#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use console::banner::StatusScreen;
use console::snapshot::*;
use console::{Feed, Leave, Liveness, Screen, Snapshot, View, banner, card, draw, render_text, text_of};

fn everything(s: &Snapshot, now: console::Now) -> String {
    let mut out = String::new();
    for (cols, rows) in [(80, 24), (60, 18), (40, 10), (20, 5)] {
        out.push_str(&format!("=== {cols}x{rows}\n{}", render_text(s, cols, rows, false, now)));
    }
    out.push_str(&format!("=== card\n{}", render_text(s, 0, 0, true, now)));
    out.push_str(&format!("=== issue\n{}", banner::issue(s, now, StatusScreen::Tty1)));
    out.push_str(&format!("=== motd\n{}", banner::motd(s, now, StatusScreen::Tty1)));
    out.push_str(&format!("=== STATUS={}\n", banner::status_line(s)));
    out
}

#[test]
fn every_picture_looks_as_it_was_approved() {
    for (name, s, now) in pictures() {
        insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false }, {
            insta::assert_snapshot!(name, everything(&s, now));
        });
    }
}

#[test]
fn side_screens_look_as_they_were_approved() {
    let mut s = pending();
    s.log = (1..=30)
        .map(|n| LogLine {
            at: format!("2026-11-29T10:42:{n:02}Z").into(),
            level: if n % 7 == 0 { Level::Warn } else { Level::Info },
            text: format!("register: attempt {n}").into(),
        })
        .collect();
    s.hardware.disks = (0..8)
        .map(|n| Disk {
            name: format!("nvme{n}n1").into(),
            size: "1863 GiB".into(),
            usage: if n == 2 { "holds data: LVM".into() } else { "blank".into() },
            model: "Samsung SSD 980 PRO 2TB".into(),
        })
        .collect();
    let now = at("10:55:40Z");
    let mut out = String::new();
    for (screen, scroll) in [
        (Screen::Log, 0),
        (Screen::Log, 5),
        (Screen::Details, 0),
        (Screen::Details, 99),
        (Screen::Network, 0),
    ] {
        let view = View { screen, scroll, ..View::new(now) };
        out.push_str(&format!("=== {screen:?} {scroll}\n{}", text_of(&draw(&s, &view, (80, 24)))));
    }
    insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!("side", out);
    });
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
fn variants_look_as_they_were_approved() {
    let now = at("10:55:15Z");
    let mut out = String::new();
    let mut show = |name: &str, s: &Snapshot, view: &View| {
        out.push_str(&format!("=== {name}\n{}", text_of(&draw(s, view, (80, 24)))));
        out.push_str(&format!("    STATUS={}\n", banner::status_line(s)));
    };
    let view = View::new(now);
    let empty = Snapshot { written_mono: now.boot_ms, ..Snapshot::default() };
    let not_yet =
        |waited: u64| View { feed: Feed::NotYet { since_mono: now.boot_ms - waited }, ..View::new(now) };
    show("no snapshot yet", &empty, &not_yet(5_000));
    show("no snapshot for a minute", &empty, &not_yet(61_000));
    show(
        "not readable",
        &empty,
        &View { feed: Feed::Unreadable("permission denied".into()), ..View::new(now) },
    );
    let newer =
        Snapshot { headline: "waiting for the moon".into(), next: vec!["Look up.".into()], ..empty.clone() };
    show("newer agent", &newer, &View { feed: Feed::Foreign { schema: 2 }, ..View::new(now) });
    show("starting", &empty, &view);
    let mut s = empty.clone();
    s.headline = "no join was asked for".into();
    s.next = vec![
        "Give this machine the cluster's address and a join code:".into(),
        "stratum-installer join --endpoint ADDRESS --code XXXX-XXXX-XXX".into(),
    ];
    show("nobody asked for a join", &s, &view);
    let mut s = written(State::NeedsUpgrade, &now);
    s.headline = "this machine's release is older than the cluster's".into();
    s.next = vec![
        "This agent cannot upgrade the machine: install it from an ISO of the".into(),
        "cluster\'s release.".into(),
    ];
    s.upgrade = Some(Upgrade { from: "0.6.0".into(), to: "0.7.0".into(), ..Upgrade::default() });
    show("needs an upgrade that this agent does not do", &s, &view);
    let mut s = pending();
    s.fault = Some(fault("UNAVAILABLE", "503 the database is away"));
    show("pending, the cluster cannot answer now", &s, &view);
    let mut s = written(State::Failed, &now);
    s.steps = install_steps(2, StepStatus::Failed);
    s.steps[1].detail = Some("disk is in use".into());
    s.fault = Some(fault("UNAVAILABLE", "503 the database is away"));
    show("failed at a step, and the cluster cannot answer now", &s, &view);
    for (code, kind, retry) in [
        ("JOIN_CODE_BURNED", FaultKind::Refused, None),
        ("RELEASE_MISMATCH", FaultKind::Refused, None),
        ("JOIN_QUEUE_FULL", FaultKind::Transient, Some(now.boot_ms + 42_000)),
        ("UPGRADE_RUNNING", FaultKind::Transient, Some(now.boot_ms + 42_000)),
        ("INVALID_INPUT", FaultKind::Refused, None),
    ] {
        let mut s = written(State::Refused, &now);
        s.pairing_code = None;
        s.registration = Registration::default();
        s.fault = Some(Fault {
            kind,
            verified: code != "JOIN_CODE_BURNED",
            retry_at_mono: retry,
            details: FaultDetails { cluster_release: Some("0.8.0".into()), iso: None },
            ..fault(code, "the founder's own words")
        });
        if code == "RELEASE_MISMATCH" {
            s.fault.as_mut().unwrap().details.iso = Some("stratum-0.8.0.iso".into());
        }
        show(code, &s, &view);
    }
    for code in ["FOUNDER_KEY_CHANGED", "PIN_MISMATCH", "PAIRING_MISMATCH"] {
        let mut s = written(State::IdentityFailed, &now);
        s.cluster.identity = Identity::Changed;
        s.fault = Some(fault(code, "key 9C11:02D7:..:A904"));
        show(code, &s, &view);
    }
    let mut s = written(State::Registering, &now);
    s.pairing_code = None;
    s.registration = Registration { attempt: 3, ..Registration::default() };
    s.fault = Some(Fault {
        retry_at_mono: Some(now.boot_ms + 9000),
        ..fault("UNAVAILABLE", "503 the database is away")
    });
    show("registering, the cluster cannot answer now", &s, &view);
    s.fault = None;
    s.network.failing_since_mono = Some(now.boot_ms - 10_000);
    show("registering, no contact for 10 s", &s, &view);
    s.network.failing_since_mono = Some(now.boot_ms - 30_000);
    show("registering, no contact for 30 s and no diagnosis yet", &s, &view);
    let mut s = pending();
    s.network.failing_since_mono = Some(now.boot_ms - 41_000);
    s.cluster.contact = Contact::Failing;
    s.degraded = Some("restarted 6 times in 10 minutes".into());
    show("pending, no contact", &s, &view);
    s.network.failing_since_mono = None;
    show("pending, degraded", &s, &view);
    s.written_mono -= 17_000;
    show("pending, late", &s, &View { liveness: Liveness::Late, ..View::new(now) });
    let gone = View { liveness: Liveness::Gone, agent_alive: false, ..View::new(now) };
    show("pending, the agent was killed", &s, &gone);
    let mut s = written(State::Delivering, &now);
    s.do_not_power_off = true;
    show("delivering", &s, &view);
    let mut s = written(State::Failed, &now);
    s.fault = Some(Fault {
        step: Some("join".into()),
        step_title: Some("Joining".into()),
        ..fault("X", "raft said no")
    });
    show("failed outside of the steps, without advice", &s, &view);
    let mut s = written(State::Unknown, &now);
    s.state_raw = Some("teleporting".into());
    show("a state this console does not know", &s, &view);
    let mut s = written(State::Joined, &now);
    s.state_since_mono = now.boot_ms;
    show(
        "joined, on one's own terminal",
        &s,
        &View { login_comes_back: false, leave: Leave::Quit, ..View::new(now) },
    );
    insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!("variants", out);
    });
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
