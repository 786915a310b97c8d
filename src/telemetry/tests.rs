//! Facts about the lines: their text, their fields, and which of them are not told.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::*;
use crate::join::fault::{Code, Details, Fault};
use crate::protocol::encoding::Pin;

type Line = BTreeMap<String, String>;

/// Keeps every event's fields as journald would name them.
#[derive(Clone, Default)]
struct Capture(Arc<Mutex<Vec<Line>>>);

struct Fields<'a>(&'a mut Line);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_uppercase(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_uppercase(), value.to_owned());
    }
}

impl<S: Subscriber> Layer<S> for Capture {
    fn on_event(&self, event: &Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        let mut line = Line::new();
        event.record(&mut Fields(&mut line));
        line.insert("TARGET".into(), event.metadata().target().into());
        line.insert("LEVEL".into(), event.metadata().level().to_string());
        self.0.lock().unwrap().push(line);
    }
}

fn told<T>(say: impl FnOnce(&mut Telemetry) -> T) -> Vec<Line> {
    let capture = Capture::default();
    let subscriber = tracing_subscriber::registry().with(capture.clone());
    tracing::subscriber::with_default(subscriber, || drop(say(&mut Telemetry::without_subscriber())));
    Arc::try_unwrap(capture.0).map(|lines| lines.into_inner().unwrap()).unwrap_or_default()
}

fn at(secs: u64) -> Now {
    Now { boot_ms: secs * 1000, wall_ms: 1_795_947_720_000 + i64::try_from(secs).unwrap() * 1000, random: 0 }
}

const CONTEXT: Context<'static> = Context {
    seq: 7,
    join_id: Some("nj-8w2k4m1p"),
    pairing: Some("4F7-K2Q"),
    endpoint: Some("192.0.2.240:9444"),
};

fn one(notice: &Notice) -> Line {
    let mut lines = told(|telemetry| telemetry.say(notice, &CONTEXT, at(0)));
    assert_eq!(lines.len(), 1);
    lines.remove(0)
}

fn refused(attempt: u32) -> Notice {
    let mut fault = Fault::new(Code::AddressUnreachable, "connect 192.0.2.240:9444: connection refused");
    fault.http = None;
    Notice::Fault { doing: "registering", fault: Box::new(fault), retry_ms: Some(8_000), attempt }
}

#[test]
fn a_state_change_is_one_notice_line_with_both_states() {
    let line = one(&Notice::State {
        from: "pending".into(),
        to: "approved".into(),
        why: Some("waiting for the cluster to be green".into()),
    });
    assert_eq!(
        line["MESSAGE"],
        "pending -> approved: waiting for the cluster to be green (nj-8w2k4m1p, pairing 4F7-K2Q)"
    );
    assert_eq!((line["STRATUM_STATE"].as_str(), line["STRATUM_PREVIOUS"].as_str()), ("approved", "pending"));
    assert_eq!((line["STRATUM_SEQ"].as_str(), line["STRATUM_JOIN_ID"].as_str()), ("7", "nj-8w2k4m1p"));
    assert_eq!(line["MESSAGE_ID"], "5b1f0d3a6c5e4d0e9a0b7f0c2d1e4a02");
    assert_eq!((line["TARGET"].as_str(), line["LEVEL"].as_str()), (NOTICE, "INFO"));
    assert!(!line.contains_key("STRATUM_CODE") && !line.contains_key("STRATUM_CHAIN"));
}

#[test]
fn a_fault_says_what_when_next_and_its_chain_once() {
    let line = one(&refused(3));
    assert_eq!(
        line["MESSAGE"],
        "registering failed: connect 192.0.2.240:9444: connection refused; next try in 8 s (attempt 3)"
    );
    assert_eq!(line["STRATUM_CODE"], "ADDRESS_UNREACHABLE");
    assert_eq!(line["STRATUM_CHAIN"], "connect 192.0.2.240:9444: connection refused");
    assert_eq!(
        (line["STRATUM_ATTEMPT"].as_str(), line["STRATUM_NEXT"].as_str()),
        ("3", "2026-11-29T10:22:08Z")
    );
    assert_eq!(line["LEVEL"], "WARN");
}

#[test]
fn a_fault_that_needs_a_person_is_an_error_and_one_of_trust_is_critical() {
    let mut fault = Fault::new(Code::JoinCodeExpired, "the code expired at 10:00");
    fault.from_founder = true;
    fault.http = Some(403);
    let line =
        one(&Notice::Fault { doing: "registering", fault: Box::new(fault), retry_ms: None, attempt: 1 });
    assert_eq!(
        line["MESSAGE"],
        "registering failed: JOIN_CODE_EXPIRED: the founder says: > the code expired at 10:00; this waits for a person"
    );
    assert_eq!((line["LEVEL"].as_str(), line["STRATUM_HTTP"].as_str()), ("ERROR", "403"));
    let mut fault = Fault::new(Code::FounderKeyChanged, "another key answers");
    fault.details = Details {
        expected_pin: Some("00112233".into()),
        seen_pin: Some("44556677".into()),
        ..Details::default()
    };
    let line =
        one(&Notice::Fault { doing: "polling", fault: Box::new(fault), retry_ms: Some(60_000), attempt: 1 });
    assert_eq!(
        line["MESSAGE"],
        "FOUNDER_KEY_CHANGED: expected sha256:00112233..., got sha256:44556677...; nothing was sent"
    );
    assert_eq!(
        (line["TARGET"].as_str(), line["MESSAGE_ID"].as_str()),
        (CRIT, "5b1f0d3a6c5e4d0e9a0b7f0c2d1e4a09")
    );
}

#[test]
fn a_step_tells_how_long_it_ran() {
    let step = |status| Notice::Step {
        step: "join/raft-openbao".into(),
        title: "Joining the OpenBao raft".into(),
        index: Some(7),
        total: Some(19),
        status,
        error: None,
    };
    let lines = told(|telemetry| {
        telemetry.say(&step("running"), &CONTEXT, at(10));
        telemetry.say(&step("running"), &CONTEXT, at(100));
        telemetry.say(&step("done"), &CONTEXT, at(140));
    });
    assert_eq!(lines[0]["MESSAGE"], "step 7 of 19 running: join/raft-openbao (Joining the OpenBao raft)");
    assert_eq!(
        lines[2]["MESSAGE"],
        "step 7 of 19 done in 130 s: join/raft-openbao (Joining the OpenBao raft)"
    );
    assert_eq!((lines[2]["STRATUM_MS"].as_str(), lines[2]["TARGET"].as_str()), ("130000", INFO));
}

#[test]
fn the_other_lines_are_those_of_the_table() {
    let recovered = one(&Notice::Recovered { after_ms: 250_000, attempts: 37 });
    assert_eq!(recovered["MESSAGE"], "the founder answers again after 4 min 10 s (37 attempts)");
    let proven = one(&Notice::Proven { pin: Pin([0xab; 32]) });
    assert_eq!(proven["MESSAGE"], "the cluster proved the join code; pin sha256:abababababababab... stored");
    let verb = one(&Notice::Verb { verb: "write-delivery", result: "ok".into() });
    assert_eq!(
        (verb["MESSAGE"].as_str(), verb["STRATUM_VERB"].as_str()),
        ("helper write-delivery: ok", "write-delivery")
    );
    let start = Start { version: "1.4.0", release: Some("0.7.0"), state: "pending", start: 1 };
    let lines = told(|telemetry| telemetry.started(&start, &CONTEXT, at(0)));
    assert_eq!(
        lines[0]["MESSAGE"],
        "stratum-join 1.4.0 started: release 0.7.0, state pending, endpoint 192.0.2.240:9444, start 1"
    );
}

#[test]
fn an_identical_fault_is_told_at_five_attempts_and_then_once_an_hour() {
    let lines = told(|telemetry| {
        // Every 30 s for three hours.
        for n in 1..=360 {
            telemetry.say(&refused(n), &CONTEXT, at(u64::from(n) * 30));
        }
    });
    let attempts: Vec<u64> = lines.iter().map(|line| line["STRATUM_ATTEMPT"].parse().unwrap()).collect();
    assert_eq!(attempts, [1, 2, 3, 5, 10, 130, 250]);
    assert!(
        lines[5]["MESSAGE"].ends_with("(attempt 130) (repeated 130 times since 10:22Z)"),
        "{}",
        lines[5]["MESSAGE"]
    );
}

#[test]
fn another_cause_and_a_recovery_are_news() {
    let other = |text: &str| {
        let fault = Fault::new(Code::AddressUnreachable, text);
        Notice::Fault { doing: "polling", fault: Box::new(fault), retry_ms: Some(1), attempt: 4 }
    };
    let lines = told(|telemetry| {
        for _ in 0..4 {
            telemetry.say(&other("no route"), &CONTEXT, at(0));
        }
        telemetry.say(&other("timed out"), &CONTEXT, at(1));
        telemetry.say(&Notice::Recovered { after_ms: 1, attempts: 4 }, &CONTEXT, at(2));
        telemetry.say(&other("no route"), &CONTEXT, at(3));
    });
    assert_eq!(lines.len(), 3 + 1 + 1 + 1);
}

#[test]
fn at_most_twenty_lines_a_minute_and_the_rest_is_counted_but_states_are_never_lost() {
    let info = Notice::Info("x".into());
    let state = Notice::State { from: "a".into(), to: "b".into(), why: None };
    let lines = told(|telemetry| {
        for _ in 0..50 {
            telemetry.say(&info, &CONTEXT, at(1));
        }
        telemetry.say(&state, &CONTEXT, at(2));
        telemetry.say(&info, &CONTEXT, at(62));
    });
    assert_eq!(lines.len(), 20 + 2 + 1);
    // Before the change of state: after the last one there is no next line.
    assert_eq!(lines[20]["MESSAGE"], "suppressed 30 lines");
    assert!(lines[21]["MESSAGE"].starts_with("a -> b"));
    assert_eq!(lines[22]["MESSAGE"], "x");
}

#[test]
fn every_step_of_a_short_install_is_told_and_a_flood_of_them_is_not() {
    let step = |n: u32, status| Notice::Step {
        step: format!("join/{n}").as_str().into(),
        title: "A step".into(),
        index: Some(n),
        total: Some(64),
        status,
        error: None,
    };
    let lines = told(|telemetry| {
        for n in 1..=64 {
            telemetry.say(&step(n, "running"), &CONTEXT, at(1));
            telemetry.say(&step(n, "done"), &CONTEXT, at(1));
        }
    });
    assert_eq!(lines.len(), 128);
    let lines = told(|telemetry| {
        for n in 1..=1_000 {
            telemetry.say(&step(n, "running"), &CONTEXT, at(1));
        }
        telemetry.say(&step(7, "failed"), &CONTEXT, at(1));
    });
    assert_eq!(lines.len(), 150 + 2);
    assert_eq!(lines[150]["MESSAGE"], "suppressed 850 lines");
}

#[test]
fn a_forged_line_stays_inside_its_field() {
    let line = one(&Notice::State {
        from: "pending".into(),
        to: "rejected".into(),
        why: Some("no\nMESSAGE=joined\n__CURSOR=x\u{1b}[2J".into()),
    });
    assert_eq!(
        line["MESSAGE"],
        "pending -> rejected: no MESSAGE=joined __CURSOR=x (nj-8w2k4m1p, pairing 4F7-K2Q)"
    );
    assert!(!line.contains_key("__CURSOR"));
}

#[test]
fn only_the_stream_of_our_own_stderr_is_the_journal() {
    assert!(is_stream("9:1234", 9, 1234));
    for said in ["9:1235", "8:1234", "9", "", "9:1234:1", "x:y"] {
        assert!(!is_stream(said, 9, 1234), "{said}");
    }
}

#[test]
fn without_journald_a_line_is_time_level_and_message() {
    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);
    impl std::io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let sink = Sink::default();
    let writer = sink.clone();
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .event_format(OneLine);
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let mut telemetry = Telemetry::without_subscriber();
        telemetry.say(&Notice::Security("the key\nwas lost".into()), &CONTEXT, at(0));
        tracing::warn!("a\u{1b}[1m b");
    });
    let text = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
    let lines: Vec<&str> = text.lines().map(|line| line.split_once(' ').unwrap().1).collect();
    assert_eq!(lines, ["CRIT the key was lost", "WARN a b"]);
}
