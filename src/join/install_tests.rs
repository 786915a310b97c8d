//! Single facts of the hand-off, in the simulated world.
#![allow(clippy::unwrap_used)]

use console::text::Safe;

use super::effect::Effect;
use super::event::{DeliveryView, Event, FirstbootEnd};
use super::fault::{Code, Fault};
use super::sim::{Outcome, World, is_main, report, view};
use super::state::{Phase, Stage};
use super::trust_tests::until;
use crate::protocol::wire::{self, StepStatus};
use crate::report::{self as shown, Facts};

/// A world whose firstboot runs.
fn installing() -> World {
    let mut world = World::new();
    for _ in 0..200 {
        if let Some(record) = world.record()
            && record.state == "pending"
        {
            record.state = "approved";
        }
        if world.outstanding.iter().any(|e| matches!(e, Effect::StartFirstboot { .. })) {
            break;
        }
        if world.outstanding.is_empty() {
            world.fire();
        }
        world.answer(0, Outcome::Deliver);
    }
    // Starts it.
    let place = world.outstanding.iter().position(|e| matches!(e, Effect::StartFirstboot { .. })).unwrap();
    world.answer(place, Outcome::Deliver);
    world
}

#[test]
fn a_step_whose_end_was_lost_is_done_when_the_next_one_starts() {
    let mut world = installing();
    world.feed(Event::FirstbootStep(report("storage", 1, StepStatus::Running)));
    world.feed(Event::FirstbootStep(report("join/patroni", 2, StepStatus::Running)));
    let steps = &world.state.d.handoff.as_ref().unwrap().steps;
    assert_eq!(steps[0].report.status, StepStatus::Done);
    assert_eq!(steps[1].report.status, StepStatus::Running);
}

#[test]
fn a_poll_that_left_out_another_attempts_delivery_is_followed_by_one_that_asks_for_it_at_once() {
    let mut world = installing();
    // A poll under way left the delivery out, because firstboot of attempt 1 runs; meanwhile the founder went on to attempt 2.
    let place =
        world.outstanding.iter().position(|e| matches!(e, Effect::Poll { skip_delivery: true, .. })).unwrap();
    let record = world.record().unwrap();
    record.state = "delivering";
    record.attempt += 1;
    world.answer(place, Outcome::Deliver);
    let next = world.outstanding.iter().find(|e| matches!(e, Effect::Poll { .. })).unwrap();
    assert!(matches!(next, Effect::Poll { wait: 0, skip_delivery: false, .. }), "{next:?}");
}

/// The founder tells its record as it is now, with a delivery of that digest.
fn polled(world: &mut World, sha256: &str) {
    let answer = view(world.record().unwrap());
    let delivery = DeliveryView { sha256: sha256.to_owned(), problem: None, cluster_id: None, node_id: None };
    world.outstanding.retain(|effect| !is_main(effect));
    if !matches!(world.state.v.main, super::state::Lane::Busy(super::state::Call::Poll, _)) {
        until(world, |e| matches!(e, Effect::Poll { .. }));
        world.outstanding.retain(|effect| !is_main(effect));
    }
    world.feed(Event::Polled(Ok((answer, Some(delivery)))));
}

/// The founder failed the attempt that still runs here, and retried it with the same bytes.
fn retried_under_way() -> World {
    let mut world = installing();
    let sha256 = world.state.d.handoff.as_ref().unwrap().sha256.clone();
    let record = world.record().unwrap();
    (record.state, record.attempt) = ("delivering", 2);
    polled(&mut world, &sha256);
    assert_eq!(world.state.d.handoff.as_ref().unwrap().attempt, Some(2));
    world
}

#[test]
fn what_an_older_attempt_still_says_is_not_the_retrys_also_when_both_deliver_the_same_bytes() {
    let mut world = retried_under_way();
    world.feed(Event::FirstbootStep(report("storage", 1, StepStatus::Failed)));
    world.outstanding.retain(|e| !matches!(e, Effect::StartFirstboot { .. }));
    world.feed(Event::FirstbootEnded(Ok(FirstbootEnd::Failed(Safe::clean("exit status 1")))));
    let handoff = world.state.d.handoff.as_ref().unwrap();
    assert_eq!((handoff.stage, &handoff.failure), (Stage::Received, &None));
    assert!(handoff.steps.is_empty());
    assert!(world.outstanding.iter().any(|e| matches!(e, Effect::WriteDelivery { attempt: Some(2), .. })));
}

#[test]
fn while_an_older_attempt_still_runs_the_founder_is_asked_and_a_person_sees_what_is_waited_for() {
    let mut world = retried_under_way();
    while !world.outstanding.iter().any(|e| matches!(e, Effect::Poll { .. })) {
        assert!(world.fire(), "nobody asks the founder");
    }
    let now = super::event::Now { boot_ms: world.boot_ms, wall_ms: 0, random: 0 };
    let screen = shown::snapshot(&world.state, &Facts::default(), now, 1);
    let fault = screen.fault.unwrap();
    assert!(fault.message.as_str().contains("earlier attempt still runs"), "{fault:?}");
}

/// The helper could not even start firstboot.
fn not_started() -> World {
    let mut world = World::new();
    until(&mut world, |e| matches!(e, Effect::Poll { wait: 1.., .. }));
    world.record().unwrap().state = "approved";
    until(&mut world, |e| matches!(e, Effect::StartFirstboot { .. }));
    world.outstanding.retain(|e| !matches!(e, Effect::StartFirstboot { .. }));
    world.feed(Event::FirstbootEnded(Err(Fault::new(Code::Local, "no shell"))));
    world
}

#[test]
fn what_the_cluster_gave_up_before_it_was_started_is_never_started() {
    for word in ["failed", "rejected", "expired"] {
        let mut world = not_started();
        world.record().unwrap().state = word;
        for _ in 0..20 {
            match world.outstanding.is_empty() {
                true => drop(world.fire()),
                false => world.answer(0, Outcome::Deliver),
            }
            let starts = |e: &Effect| matches!(e, Effect::StartFirstboot { .. });
            let known = world.state.word() == Some(word);
            assert!(!known || !world.outstanding.iter().any(starts), "{word}");
        }
        assert_eq!(world.state.d.handoff.as_ref().unwrap().stage, Stage::Failed, "{word}");
    }
}

#[test]
fn what_could_not_be_started_is_tried_again_while_the_cluster_wants_it() {
    let mut world = not_started();
    until(&mut world, |e| matches!(e, Effect::StartFirstboot { .. }));
    assert!(world.run_fairly());
}

#[test]
fn a_step_that_failed_stays_the_failure_when_the_machine_restarts_before_firstboot_ended() {
    let mut world = installing();
    world.feed(Event::FirstbootStep(report("storage", 1, StepStatus::Failed)));
    world.reboot();
    let handoff = world.state.d.handoff.as_ref().unwrap();
    let failure = handoff.failure.as_ref().unwrap();
    assert_eq!(handoff.stage, Stage::Failed);
    assert_eq!((failure.step.as_str(), failure.error.as_ref().unwrap().as_str()), ("storage", "no disk"));
}

fn lines(world: &mut World, count: usize) {
    let cursor = format!("c{}", world.boot_ms);
    world.feed(Event::FirstbootLog { lines: vec![Safe::clean("a line"); count], cursor });
}

fn log_call(world: &World) -> Option<(usize, wire::LogRequest)> {
    world.outstanding.iter().enumerate().find_map(|(place, effect)| match effect {
        Effect::SendLog { body, .. } => Some((place, body.clone())),
        _ => None,
    })
}

#[test]
fn lines_that_come_faster_than_log_calls_go_out_are_put_together_and_none_is_lost() {
    let mut world = installing();
    let mut told = 0;
    // Three lines each 200 ms for a minute, one call a second.
    for tick in 0..300 {
        lines(&mut world, 3);
        world.boot_ms += 200;
        if tick % 5 == 4 {
            world.feed(Event::Timer(super::effect::Timer::Post));
        }
        if let Some((place, body)) = log_call(&world) {
            assert_eq!((body.first, body.lost), (told + 1, 0));
            told += body.lines.len() as u64;
            world.answer(place, Outcome::Deliver);
        }
    }
    assert!(told > 850, "{told} of 900");
}

#[test]
fn lines_under_way_are_not_the_ones_that_are_dropped() {
    let mut world = installing();
    lines(&mut world, 200);
    assert_eq!(log_call(&world).unwrap().1.lines.len(), 200);
    for _ in 0..60 {
        lines(&mut world, 200);
    }
    let (place, _) = log_call(&world).unwrap();
    world.answer(place, Outcome::Deliver);
    world.boot_ms += 2_000;
    world.feed(Event::Timer(super::effect::Timer::Post));
    let (_, body) = log_call(&world).unwrap();
    // 11 of the 60 batches behind the one under way did not fit.
    assert_eq!((body.first, body.lost), (201 + body.lost, 11 * 200));
}

#[test]
fn numbers_of_a_founder_that_are_out_of_bounds_stop_nothing() {
    let mut world = installing();
    world.feed(Event::FirstbootStep(report("storage", 1, StepStatus::Running)));
    let answer = wire::ProgressAnswer { state: "installing".into(), last_seq: u64::MAX };
    world.outstanding.retain(|e| !matches!(e, Effect::SendProgress { .. }));
    world.feed(Event::ProgressSent(Ok(answer)));
    lines(&mut world, 1);
    world.feed(Event::Timer(super::effect::Timer::Post));
    for _ in 0..5 {
        world.outstanding.retain(|e| !matches!(e, Effect::SendLog { .. }));
        world.feed(Event::LogSent(Ok(wire::LogAnswer { last_line: u64::MAX })));
        world.boot_ms += 60_000;
        world.feed(Event::Timer(super::effect::Timer::Post));
    }
}

#[test]
fn hardware_that_is_refused_during_an_install_does_not_leave_the_install_alone() {
    let mut world = installing();
    world.crash();
    let place = until(&mut world, |e| matches!(e, Effect::Reregister { .. }));
    world.answer(place, Outcome::Refuse(Code::InvalidInput));
    assert_eq!(world.state.d.stop, None);
    assert_eq!(world.state.phase(), Phase::Installing);
    assert!(world.run_fairly());
    assert_eq!(world.violations, Vec::<String>::new());
}

#[test]
fn a_firstboot_that_names_no_step_is_told_of_within_three_minutes() {
    let mut world = installing();
    let began = world.boot_ms;
    let told = |world: &World| {
        world.outstanding.iter().any(
            |e| matches!(e, Effect::SendProgress { body, .. } if body.step == "join" && body.status == StepStatus::Running),
        )
    };
    while !told(&world) {
        assert!(world.fire() && world.boot_ms - began < 180_000, "{} ms", world.boot_ms - began);
    }
    assert!(world.boot_ms - began > 100_000);
}

#[test]
fn steps_with_long_texts_fit_the_journal() {
    let mut world = installing();
    for n in 0..80 {
        let mut step = report(&format!("step-{n}"), 1, StepStatus::Running);
        step.error = Some(Safe::clean("\u{1f4a5}\"".repeat(2_000)));
        step.title = Safe::clean("\u{1f4a5}".repeat(200));
        world.feed(Event::FirstbootStep(step));
    }
    let bytes = serde_json::to_vec(&world.state.d).unwrap().len() as u64;
    assert!(bytes < crate::journal::CAP / 2, "{bytes}");
}

#[test]
fn two_silent_tries_and_one_refusal_are_not_three_refusals() {
    let mut world = World::new();
    for outcome in [Outcome::LoseRequest, Outcome::LoseRequest, Outcome::Refuse(Code::OtherRefusal)] {
        let place = until(&mut world, |e| matches!(e, Effect::Observe { .. }));
        world.answer(place, outcome);
    }
    assert_eq!(world.state.d.stop, None);
    for _ in 0..2 {
        let place = until(&mut world, |e| matches!(e, Effect::Observe { .. }));
        world.answer(place, Outcome::Refuse(Code::OtherRefusal));
    }
    assert_eq!(world.state.d.stop.as_ref().unwrap().code, Code::OtherRefusal);
}

#[test]
fn a_delivery_that_stays_missing_is_one_trouble_that_goes_on() {
    let mut world = installing();
    let record = world.record().unwrap();
    (record.state, record.attempt) = ("installing", 2);
    let answer = view(record);
    for tries in 1..=5 {
        world.outstanding.retain(|e| !is_main(e));
        world.state.v.skipped = false;
        world.feed(Event::Polled(Ok((answer.clone(), None))));
        assert_eq!(world.state.v.trouble.as_ref().unwrap().attempts, tries);
        until_main(&mut world);
    }
}

/// Lets the main lane's wait end.
fn until_main(world: &mut World) {
    while !world.outstanding.iter().any(is_main) {
        world.feed(Event::Timer(super::effect::Timer::Main));
    }
}

#[test]
fn an_acknowledgement_that_was_refused_by_mistake_is_made_again() {
    let mut world = World::new();
    until(&mut world, |e| matches!(e, Effect::Poll { wait: 1.., .. }));
    world.record().unwrap().state = "approved";
    let place = until(&mut world, |e| matches!(e, Effect::Ack { .. }));
    world.answer(place, Outcome::Refuse(Code::JoinStateConflict));
    assert!(world.run_fairly());
    assert_eq!(world.violations, Vec::<String>::new());
}

#[test]
fn an_end_that_is_refused_while_the_registration_is_made_anew_is_told_again() {
    let mut world = installing();
    world.feed(Event::FirstbootStep(report("storage", 1, StepStatus::Failed)));
    let is_end = |e: &Effect| matches!(e, Effect::SendProgress { .. });
    let end = FirstbootEnd::Failed(Safe::clean("exit status 1"));
    world.outstanding.retain(|e| !matches!(e, Effect::StartFirstboot { .. }));
    world.feed(Event::FirstbootEnded(Ok(end)));
    world.new_request();
    assert!(world.state.d.registration.is_none());
    let place = world.outstanding.iter().position(is_end).unwrap();
    world.answer(place, Outcome::Refuse(Code::InvalidInput));
    let place = until(&mut world, is_end);
    world.answer(place, Outcome::Deliver);
    assert_eq!(world.record().unwrap().state, "failed");
}
