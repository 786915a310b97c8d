//! What holds for any snapshot on any terminal: no panic, only allowed characters, the pairing code in sight, their words behind `> `.

#![allow(clippy::unwrap_used)]

mod common;

use std::sync::OnceLock;

use console::banner::StatusScreen;
use console::snapshot::*;
use console::{Liveness, Screen, Snapshot, View, banner, card, draw, effective_size, line, text_of};
use proptest::prelude::*;
use ratatui::style::{Color, Modifier};

/// The machines of the pictures, made once.
fn machines() -> &'static [Snapshot] {
    static MACHINES: OnceLock<Vec<Snapshot>> = OnceLock::new();
    MACHINES.get_or_init(|| common::pictures().into_iter().map(|picture| picture.snapshot).collect())
}

/// Texts with a bias to what breaks screens.
fn hostile() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[ -~]{0,80}",
        2 => any::<String>(),
        1 => "[\\\\]{1,60}",
        1 => Just("PAIRING CODE AAA-AAA".to_owned()),
        1 => Just("\x1b[2J\x1b]0;x\x07\u{9b}1m\r\n\u{202e}\u{200b}".to_owned()),
        1 => Just("東京".repeat(60)),
        1 => Just("x".repeat(500)),
        1 => Just("[ok] [XX] [>>]".to_owned()),
    ]
}

fn time() -> impl Strategy<Value = u64> {
    prop_oneof![0_u64..2_000_000, Just(0), Just(u64::MAX), any::<u64>()]
}

prop_compose! {
    fn texts()(
        all in proptest::collection::vec(hostile(), 24),
    ) -> Vec<String> { all }
}

prop_compose! {
    fn snapshot()(
        picture in 0..machines().len(),
        state in proptest::sample::select(State::ALL),
        texts in texts(),
        (nothing, keep) in (any::<u32>(), any::<bool>()),
        times in proptest::collection::vec(time(), 10),
        code in proptest::option::of("[0-9A-HJKMNP-TV-Z]{3}-[0-9A-HJKMNP-TV-Z]{3}"),
        steps in proptest::collection::vec((0_u32..80, 0_u32..80, proptest::sample::select(StepStatus::ALL), hostile(), proptest::option::of(time())), 0..70),
        (done, total, rate) in (time(), time(), proptest::option::of(time())),
        fault_code in proptest::sample::select(vec!["", "JOIN_CODE_WRONG", "RELEASE_MISMATCH", "JOIN_QUEUE_FULL", "CODE_NOT_PROVEN", "PIN_MISMATCH", "PAIRING_MISMATCH", "X"]),
        (lists, identity, contact) in (0_usize..30, proptest::sample::select(Identity::ALL), proptest::sample::select(Contact::ALL)),
    ) -> Snapshot {
        let mut s = machines()[picture].clone();
        if keep {
            return Snapshot { pairing_code: code.map(Into::into), ..s };
        }
        // Each bit of `nothing` empties one optional field.
        let some = |bit: u32| nothing >> bit & 1 == 1;
        let t = |i: usize| texts[i % texts.len()].clone();
        let opt = |bit: u32, i: usize| some(bit).then(|| t(i));
        s.state = state;
        s.state_raw = opt(0, 0).map(Into::into);
        s.headline = t(1).into();
        s.next = (0..lists % 4).map(|i| t(i + 2).into()).collect();
        s.pairing_code = code.map(Into::into);
        s.machine = Machine {
            hostname: opt(1, 3).map(Into::into), serial: opt(2, 4).map(Into::into), vendor: opt(3, 5).map(Into::into),
            model: opt(4, 6).map(Into::into), release: opt(5, 7).map(Into::into),
        };
        let nic = |i: usize| Nic { nic: t(i).into(), mac: t(i + 1).into(), address: opt(6, i + 2).map(Into::into),
            speed_mbps: some(7).then_some(u32::try_from(times[0] & 0xffff_ffff).unwrap()), ..Nic::default() };
        s.network.primary = some(8).then(|| nic(8));
        s.network.nics = (0..lists).map(nic).collect();
        s.network.checks = (0..lists).map(|i| Check { name: t(i).into(), title: t(i + 1).into(), detail: Some(t(i + 2).into()), ..Check::default() }).collect();
        s.network.failing_since_mono = some(9).then_some(times[1]);
        s.network.next_try_mono = some(10).then_some(times[2]);
        s.cluster = Cluster { endpoint: t(9).into(), contact, identity, last_contact_mono: some(11).then_some(times[3]),
            release: opt(12, 10).map(Into::into), pin: opt(13, 11).map(Into::into), cluster_id: opt(14, 12).map(Into::into) };
        s.registration = Registration { join_id: opt(15, 13).map(Into::into), attempt: nothing, registered_mono: some(16).then_some(times[4]),
            expires_at: opt(17, 14).map(Into::into), approved_mono: some(18).then_some(times[5]), wait_reason: opt(19, 15).map(Into::into),
            reject_reason: opt(20, 16).map(Into::into), node_id: opt(21, 17).map(Into::into), last_pairing_code: None };
        s.steps = steps.into_iter().map(|(index, total, status, title, elapsed_ms)| Step { name: t(18).into(), title: title.clone().into(), index, total, status,
            elapsed_ms, detail: Some(title.into()) }).collect();
        s.progress = some(22).then_some(Progress { unit: Unit::Bytes, done, total, rate_per_sec: rate, eta_sec: rate });
        s.fault = some(23).then(|| Fault { code: fault_code.into(), message: t(19).into(), why: opt(24, 20).map(Into::into), step: opt(25, 21).map(Into::into),
            step_title: opt(26, 22).map(Into::into), what_to_do: (0..lists % 9).map(|i| t(i).into()).collect(), retry_at_mono: some(27).then_some(times[6]),
            details: FaultDetails { cluster_release: opt(28, 23).map(Into::into), iso: opt(29, 1).map(Into::into) }, ..Fault::default() });
        s.last_message = some(30).then(|| LastMessage { text: t(2).into(), at_mono: times[7] });
        s.do_not_power_off = some(31);
        s.degraded = opt(3, 4).map(Into::into);
        s.written_mono = times[8];
        s.state_since_mono = times[9];
        s.log = (0..lists * 4).map(|i| LogLine { at: t(i).into(), text: t(i + 1).into(), ..LogLine::default() }).collect();
        s.hardware.disks = (0..lists).map(|i| Disk { name: t(i).into(), size: t(i + 1).into(), usage: t(i + 2).into(), model: t(i + 3).into() }).collect();
        s
    }
}

fn view() -> impl Strategy<Value = View> {
    let screens =
        vec![Screen::Main, Screen::Main, Screen::Main, Screen::Details, Screen::Network, Screen::Log];
    let verdicts = vec![Liveness::Alive, Liveness::Late, Liveness::Gone];
    let parts = (
        proptest::sample::select(screens),
        proptest::sample::select(verdicts),
        any::<bool>(),
        0_usize..200,
        proptest::option::of(hostile()),
    );
    parts.prop_map(|(screen, liveness, boxes, scroll, notice)| View {
        screen,
        liveness,
        boxes,
        scroll,
        notice: notice.map(Into::into),
        ..View::new(common::at("10:55:15Z"))
    })
}

/// The smallest terminals and the largest, and the borders between the modes.
fn size() -> impl Strategy<Value = (u16, u16)> {
    let borders = vec![
        (80, 24),
        (80, 25),
        (128, 48),
        (59, 17),
        (60, 18),
        (79, 23),
        (40, 10),
        (39, 9),
        (20, 2),
        (20, 1),
        (8, 1),
        (8, 2),
        (8, 3),
        (20, 5),
        (1, 1),
        (0, 0),
        (0, 24),
        (80, 0),
    ];
    prop_oneof![(0_u16..=300, 0_u16..=100), (0_u16..=90, 0_u16..=30), proptest::sample::select(borders)]
}

proptest! {
    #[test]
    fn any_snapshot_is_drawn_with_allowed_characters_only(s in snapshot(), view in view(), size in size()) {
        let buffer = draw(&s, &view, size);
        let (cols, rows) = effective_size(size);
        prop_assert_eq!((buffer.area.width, buffer.area.height), (cols, rows));
        for cell in &buffer.content {
            let mut chars = cell.symbol().chars();
            let (c, more) = (chars.next().unwrap(), chars.next());
            prop_assert!(more.is_none() && (matches!(c, ' '..='~') || view.boxes && "─│┌┐└┘├┤".contains(c)), "{:?}", cell.symbol());
            prop_assert_eq!(cell.bg, Color::Reset);
            prop_assert!((Modifier::BOLD | Modifier::REVERSED).contains(cell.modifier), "{:?}", cell.modifier);
            prop_assert!(matches!(cell.fg, Color::Reset | Color::Red | Color::Green | Color::Yellow | Color::Cyan | Color::White));
        }
        let text = text_of(&buffer);
        if cols >= 80 && rows >= 24 {
            let last = text.lines().last().unwrap();
            prop_assert!(last.len() <= 78, "{last}");
            prop_assert!(text.lines().nth(usize::from(rows) - 5).unwrap().contains("This node"));
        }
        if let (Some(code), Screen::Main, true) = (&s.pairing_code, view.screen, s.state != State::Joined) {
            prop_assert!(cols < 8 || text.contains(code.as_str()), "{code} is not in\n{text}");
        }
    }

    #[test]
    fn their_words_stand_only_behind_an_angle(mut s in snapshot(), view in view(), size in size()) {
        const LIE: &str = "PAIRING CODE AAA-AAA";
        let mut t = machines()[1].clone();
        t.state = s.state;
        t.steps = std::mem::take(&mut s.steps).into_iter().map(|step| Step { title: "a step".into(), detail: None, name: "step".into(), ..step }).collect();
        t.state_raw = Some(LIE.into());
        t.registration.wait_reason = Some(LIE.into());
        t.registration.reject_reason = Some(LIE.into());
        t.registration.node_id = Some(LIE.into());
        t.registration.join_id = Some(LIE.into());
        t.cluster.release = Some(LIE.into());
        t.cluster.cluster_id = Some(LIE.into());
        t.last_message = Some(LastMessage { text: LIE.into(), at_mono: 0 });
        t.fault = s.fault.map(|fault| Fault { message: LIE.into(), what_to_do: Vec::new(), why: None, step: None, step_title: None,
            details: FaultDetails { cluster_release: Some(LIE.into()), iso: Some(LIE.into()) }, ..fault });
        t.upgrade = Some(Upgrade { to: LIE.into(), ..Upgrade::default() });
        let view = View { screen: if view.screen == Screen::Details { Screen::Main } else { view.screen }, notice: None, ..view };
        let now = view.now;
        for text in [
            text_of(&draw(&t, &view, size)), card(&t, view.liveness, now, None), banner::issue(&t, now, StatusScreen::Tty1), banner::motd(&t, now, StatusScreen::Tty1),
            banner::status_line(&t), line(&t, view.liveness, now),
        ] {
            for row in text.lines().filter(|row| row.contains("AAA-AAA")) {
                let (before, _) = row.split_once("AAA-AAA").unwrap();
                prop_assert!(before.contains("> "), "{row}\n{text}");
            }
        }
    }

    #[test]
    fn banner_card_and_status_are_clean_text_within_their_bounds(s in snapshot(), liveness in 0_usize..3) {
        let now = common::at("10:55:15Z");
        let liveness = [Liveness::Alive, Liveness::Late, Liveness::Gone][liveness];
        let issue = banner::issue(&s, now, StatusScreen::Tty1);
        for text in [&issue, &banner::motd(&s, now, StatusScreen::Tty1), &card(&s, liveness, now, Some("R repeat"))] {
            prop_assert!(text.len() <= 2048);
            prop_assert!(text.chars().all(|c| matches!(c, ' '..='~' | '\n')));
            prop_assert!(text.lines().all(|row| row.len() <= 78), "{text}");
        }
        prop_assert!(issue.is_empty() || issue.starts_with('\n') && issue.ends_with("\n\n"));
        // agetty expands a single backslash.
        prop_assert!(!issue.replace("\\\\", "").contains('\\'), "{issue}");
        let status = banner::status_line(&s);
        prop_assert!(!status.is_empty() && status.chars().all(|c| matches!(c, ' '..='~')));
        prop_assert_eq!(line(&s, liveness, now).matches('\n').count(), 1);
        if let (Some(code), true) = (&s.pairing_code, s.state != State::Joined) {
            prop_assert!(issue.contains(code.as_str()));
            prop_assert!(card(&s, liveness, now, None).contains(code.as_str()));
        }
    }

    #[test]
    fn any_snapshot_survives_its_file(s in snapshot()) {
        let bytes = s.encode();
        prop_assert!(bytes.len() <= MAX_BYTES);
        let back = Snapshot::parse(&bytes).unwrap();
        prop_assert_eq!(back.encode(), bytes);
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(raw in proptest::collection::vec(any::<u8>(), 0..400), cut in 0_usize..3000) {
        let _ = Snapshot::parse(&raw);
        let good = include_bytes!("fixtures/pending.json");
        let _ = Snapshot::parse(&good[..cut.min(good.len())]);
        let mut bent = good.to_vec();
        for (at, byte) in raw.iter().enumerate().take(3) {
            let len = bent.len();
            bent[(cut + at * 97) % len] = *byte;
        }
        let _ = Snapshot::parse(&bent);
    }
}
