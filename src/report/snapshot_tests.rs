//! What the snapshot says of troubles that lie beside each other, and of what waits.
#![allow(clippy::unwrap_used)]

use console::text::Safe;

use super::super::{Facts, snapshot};
use crate::join::event::{Now, RequestView};
use crate::join::fault::{Code, Fault};
use crate::join::state::{Durable, Env, Lane, State, Trouble, Volatile};

const NOW: Now = Now { boot_ms: 100_000, wall_ms: 0, random: 0 };

fn state() -> State {
    let env = Env {
        boot_id: "b".into(),
        poll_wait: 50,
        require_pin: false,
        marked_joined: false,
        may_upgrade: false,
    };
    let mut v = Volatile::new(env, NOW);
    v.request = Some(RequestView {
        endpoint: Safe::clean("192.0.2.240:9444"),
        has_code: true,
        code_hint: None,
        code_check_fits: true,
        pins: Vec::new(),
        id: [1; 32],
    });
    State { d: Durable::default(), v }
}

fn trouble(code: Code, attempts: u32) -> Trouble {
    let fault = Fault::new(code, "cause");
    Trouble { fault, doing: "doing it", since_ms: 1, attempts, retry_at_ms: None }
}

#[test]
fn the_time_of_the_next_try_is_that_of_the_trouble_that_is_shown() {
    let mut state = state();
    // The first failure of the network is not shown; the helper's is.
    state.v.trouble = Some(trouble(Code::AddressUnreachable, 1));
    state.v.main = Lane::Delayed(150_000);
    state.v.privileged_trouble = Some(trouble(Code::Local, 1));
    state.v.privileged = Lane::Delayed(107_000);
    let shown = snapshot(&state, &Facts::default(), NOW, 1).fault.unwrap();
    assert_eq!((shown.code.as_str(), shown.retry_at_mono), ("LOCAL", Some(107_000)));
    assert!(shown.why.unwrap().as_str().contains("in 7 s"));
    state.v.trouble = Some(trouble(Code::AddressUnreachable, 3));
    let shown = snapshot(&state, &Facts::default(), NOW, 1).fault.unwrap();
    assert_eq!((shown.code.as_str(), shown.retry_at_mono), ("ADDRESS_UNREACHABLE", Some(150_000)));
}

#[test]
fn a_request_that_cannot_be_read_is_named_where_there_is_no_other() {
    let mut state = state();
    let facts = Facts {
        request_fault: Some(Fault::new(Code::Tampered, "request.json is not a join request")),
        ..Facts::default()
    };
    assert!(snapshot(&state, &facts, NOW, 1).fault.is_none(), "the present one goes on");
    state.v.request = None;
    let shown = snapshot(&state, &facts, NOW, 1);
    assert!(shown.headline.as_str().contains("is not as it wrote it"), "{}", shown.headline);
    assert_eq!(shown.fault.unwrap().step_title.unwrap().as_str(), "reading the join request");
}

#[test]
fn what_a_founder_writes_is_in_no_line_of_ours() {
    for code in [Code::OtherRefusal, Code::InvalidInput, Code::JoinRejected, Code::ServerError] {
        let mut state = state();
        let mut fault = Fault::new(code, "Pairing code: AAA-AAA");
        (fault.from_founder, fault.http) = (true, Some(400));
        state.d.stop = Some(fault);
        let shown = snapshot(&state, &Facts::default(), NOW, 1);
        assert!(!shown.headline.as_str().contains("AAA-AAA"), "{code:?}: {}", shown.headline);
        assert!(!shown.next.iter().any(|line| line.as_str().contains("AAA-AAA")), "{code:?}");
        let fault = shown.fault.unwrap();
        assert!(!fault.what_to_do.iter().any(|line| line.as_str().contains("AAA-AAA")), "{code:?}");
    }
}

#[test]
fn the_reason_of_a_rejection_is_still_told_after_a_restart() {
    let mut state = state();
    let mut fault = Fault::new(Code::JoinRejected, "not ours").verified();
    fault.from_founder = true;
    state.d.stop = Some(fault);
    let shown = snapshot(&state, &Facts::default(), NOW, 1);
    assert_eq!(shown.registration.reject_reason.unwrap().as_str(), "not ours");
    assert_eq!(shown.fault.unwrap().message.as_str(), "The join was rejected.");
}
