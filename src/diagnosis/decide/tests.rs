//! The decision on facts that no laboratory makes: bonds, hostile texts, earlier tries, clocks.
#![allow(clippy::unwrap_used)]

use std::net::IpAddr;
use std::time::Duration;

use console::snapshot::Synced;
use console::text::Safe;
use proptest::prelude::*;

use super::super::facts::*;
use super::super::rows::{Diagnosis, Row, RowName, Status};
use super::decide;
use crate::join::fault::{Code, Fault};
use crate::protocol::encoding::Pin;
use crate::protocol::url::Endpoint;

/// 2026-11-29T10:42:07Z.
const NOW_MS: i64 = 1_795_948_927_000;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn nic(name: &str) -> NicFact {
    NicFact {
        index: 2,
        name: Safe::clean(name),
        mac: Safe::clean("3c:ec:ef:12:34:56"),
        up: true,
        carrier: Some(true),
        speed_mbps: Some(25_000),
        counts: true,
        arp: true,
        mtu: Some(1_500),
        addresses: vec![AddressFact {
            ip: ip("192.0.2.12"),
            prefix: 24,
            dad_failed: false,
            tentative: false,
        }],
    }
}

/// Everything is well.
fn good() -> Facts {
    let past = Past { pins: vec![Pin([1; 32])], proof: ProofFact::Good, ..Past::default() };
    let clock = ClockFact { wall_ms: NOW_MS, synced: Synced::Yes };
    let mut facts = Facts::new(Endpoint::parse("198.51.100.240").unwrap(), past, clock);
    facts.nics = Some(vec![nic("eno1")]);
    facts.name = Some(NameFact::Literal);
    facts.way = Some(WayFact {
        target: Target::Founder(ip("198.51.100.240")),
        route: RouteFact::Via {
            index: 2,
            nic: Safe::clean("eno1"),
            gateway: Some(ip("192.0.2.1")),
            source: Some(ip("192.0.2.12")),
        },
        neighbour: Some(NeighbourFact::Answers),
    });
    facts.duplicate = Some(DuplicateFact::None(vec![ip("192.0.2.12")]));
    facts.port = Some(PortFact::Open(ip("198.51.100.240"), Duration::from_millis(3)));
    facts.quality = Some(QualityFact { tried: 5, lost: 0, round_trip: Duration::from_millis(3) });
    facts.mtu = Some(MtuFact::Passes);
    let hello = HelloFact { server_time_ms: Some(NOW_MS + 900), our_time_ms: NOW_MS };
    facts.founder = Some(FounderFact { ca: Some(Pin([1; 32])), answer: Ok(hello) });
    facts
}

fn cause(facts: &Facts) -> (RowName, String) {
    let found = decide(facts, 0);
    let cause = found.cause().unwrap_or_else(|| panic!("nothing is red: {found:?}"));
    assert!(!cause.look_at.is_empty(), "{cause:?}");
    (cause.name, cause.text.to_string())
}

fn row(facts: &Facts, name: RowName) -> Row {
    decide(facts, 0).row(name).unwrap().clone()
}

fn shown(found: &Diagnosis) -> String {
    let line = |row: &Row| format!("{:<10} {:?} {}\n", row.name.title(), row.status, row.text);
    found.rows.iter().map(line).collect()
}

#[test]
fn where_everything_is_well_nothing_is_red_or_amber() {
    let found = decide(&good(), 0);
    let bad = |row: &&Row| matches!(row.status, Status::Failed | Status::Unknown);
    assert_eq!(found.rows.iter().filter(bad).count(), 0, "{}", shown(&found));
    assert_eq!(row(&good(), RowName::Link).text, "eno1 up, 25G, MAC 3c:ec:ef:12:34:56");
}

#[test]
fn of_several_faults_the_first_is_the_cause_and_what_is_behind_it_was_not_tried() {
    let mut facts = good();
    facts.way.as_mut().unwrap().neighbour = Some(NeighbourFact::Silent("FAILED"));
    facts.port = Some(PortFact::Closed(ip("198.51.100.240"), PortError::Refused));
    facts.past.proof = ProofFact::Failed(None);
    facts.proxy = Some("HTTPS_PROXY");
    let found = decide(&facts, 0);
    assert_eq!(found.cause().unwrap().name, RowName::Neighbour);
    let behind = found.rows.iter().filter(|row| row.name > RowName::Neighbour);
    for row in behind.filter(|row| !matches!(row.name, RowName::Clock | RowName::Proxy)) {
        assert_eq!((row.status, row.text.as_str()), (Status::Skipped, "not tried"), "{:?}", row.name);
    }
    assert_eq!(found.row(RowName::Proxy).unwrap().text, "HTTPS_PROXY is set and not used for the founder");
}

#[test]
fn a_card_without_a_cable_is_the_cause_only_when_the_way_leads_through_it() {
    let dark = NicFact { carrier: Some(false), addresses: Vec::new(), ..nic("eno2") };
    let mut facts = good();
    facts.nics = Some(vec![nic("eno1"), NicFact { index: 3, ..dark.clone() }]);
    assert_eq!(decide(&facts, 0).cause(), None);
    facts.nics = Some(vec![NicFact { index: 3, ..nic("eno1") }, dark.clone()]);
    assert_eq!(
        cause(&facts),
        (RowName::Link, "no cable on eno2, and 198.51.100.240:9444 is reached through it".to_owned())
    );
    // A bond and its members: one cable is enough, and none is named together.
    facts.nics = Some(vec![dark.clone(), NicFact { index: 3, name: Safe::clean("eno3"), ..dark.clone() }]);
    assert_eq!(cause(&facts).1, "no cable on any of: eno2, eno3");
    facts.nics = Some(vec![dark.clone()]);
    facts.way = None;
    assert_eq!(cause(&facts).1, "no cable on eno2");
    let off = NicFact { up: false, ..dark };
    facts.nics = Some(vec![off]);
    assert_eq!(cause(&facts).1, "every network card is switched off: eno2");
    facts.nics = Some(Vec::new());
    facts.way = None;
    assert_eq!(cause(&facts).1, "this machine has no network card that the system knows");
}

#[test]
fn an_address_of_the_wrong_family_or_one_that_the_kernel_does_not_use_is_told_as_such() {
    let v6 =
        |dad_failed, tentative| AddressFact { ip: ip("2001:db8::12"), prefix: 64, dad_failed, tentative };
    let mut facts = good();
    facts.way = Some(WayFact {
        target: Target::Founder(ip("198.51.100.240")),
        route: RouteFact::Missing,
        neighbour: None,
    });
    facts.nics = Some(vec![NicFact { addresses: vec![v6(false, false)], ..nic("eno1") }]);
    assert_eq!(
        cause(&facts),
        (RowName::Address, "eno1 has no IPv4 address, and the founder's address is one".to_owned())
    );
    facts.endpoint = Endpoint::parse("[2001:db8::240]").unwrap();
    facts.way.as_mut().unwrap().target = Target::Founder(ip("2001:db8::240"));
    facts.nics = Some(vec![NicFact { addresses: vec![v6(true, true)], ..nic("eno1") }]);
    let (name, text) = cause(&facts);
    assert_eq!(name, RowName::Duplicate);
    assert!(text.starts_with("2001:db8::12 on eno1 is also used by another machine"), "{text}");
    facts.nics = Some(vec![NicFact { addresses: vec![v6(false, true)], ..nic("eno1") }]);
    assert_eq!(row(&facts, RowName::Address).text, "2001:db8::12/64 on eno1, still being checked");
}

#[test]
fn a_name_that_does_not_resolve_is_the_cause_only_when_the_way_to_the_name_server_is_good() {
    let mut facts = good();
    facts.endpoint = Endpoint::parse("founder.example").unwrap();
    facts.name = Some(NameFact::Failed(Safe::clean("no such name")));
    facts.way.as_mut().unwrap().target = Target::NameServer(ip("192.0.2.53"));
    assert_eq!(cause(&facts), (RowName::Name, "founder.example does not resolve: no such name".to_owned()));
    facts.way.as_mut().unwrap().route = RouteFact::Missing;
    assert_eq!(cause(&facts), (RowName::Route, "no route to the name server 192.0.2.53".to_owned()));
    // No name server that could be looked for: the name is all there is to say.
    facts.way = None;
    assert_eq!(cause(&facts).0, RowName::Name);
}

#[test]
fn who_did_not_prove_the_code_is_red_only_while_it_is_the_one_that_answers() {
    let mut facts = good();
    facts.past = Past { proof: ProofFact::Failed(Some(Pin([1; 32]))), ..Past::default() };
    assert_eq!(cause(&facts).0, RowName::Proof);
    facts.past.proof = ProofFact::Failed(Some(Pin([9; 32])));
    assert_eq!(decide(&facts, 0).cause(), None);
    facts.past.proof = ProofFact::Failed(None);
    assert_eq!(cause(&facts).0, RowName::Proof);
}

#[test]
fn another_key_is_told_with_both_and_without_a_known_one_nothing_is_red() {
    let mut facts = good();
    facts.past.pins = vec![Pin([0xab; 32])];
    let (name, text) = cause(&facts);
    assert_eq!(name, RowName::Pin);
    assert!(text.contains("0101010101010101...") && text.contains("abababababababab..."), "{text}");
    facts.past.pins.clear();
    assert_eq!(row(&facts, RowName::Pin).status, Status::Skipped);
}

#[test]
fn a_refusal_is_repeated_with_its_advice_and_never_in_the_founders_words() {
    for (code, http, wanted) in [
        (Code::JoinQueueFull, 503, "the founder answers 503: 16 machines already wait"),
        (Code::JoinCodeExpired, 403, "the join code has expired"),
        (Code::JoinRejected, 410, "the join was rejected"),
    ] {
        let mut fault = Fault::new(code, "PAIRING CODE AAA-AAA");
        (fault.http, fault.from_founder) = (Some(http), true);
        let mut facts = good();
        facts.past.refusal = Some(Box::new(fault.clone()));
        assert_eq!(cause(&facts), (RowName::Answer, wanted.to_owned()));
        // The same as the answer to this very question.
        facts.past.refusal = None;
        facts.founder.as_mut().unwrap().answer = Err(Box::new(fault));
        assert_eq!(cause(&facts), (RowName::Answer, wanted.to_owned()));
        assert!(!shown(&decide(&facts, 0)).contains("AAA-AAA"));
    }
    // Who speaks so and is no founder, is none.
    let mut facts = good();
    let mut fault = Fault::new(Code::Unavailable, "status 503 without a reason");
    fault.http = Some(503);
    facts.founder.as_mut().unwrap().answer = Err(Box::new(fault));
    assert_eq!(cause(&facts).0, RowName::Founder);
}

#[test]
fn a_clock_is_never_red_and_only_a_known_founder_is_compared_with() {
    const YEARS_56: i64 = 56 * 31_557_600_000;
    let mut facts = good();
    let off = |server: i64, ours: i64| HelloFact { server_time_ms: Some(server), our_time_ms: ours };
    let mut text = |pins: Vec<Pin>, answer: HelloFact, wall_ms, synced| {
        facts.past.pins = pins;
        facts.founder.as_mut().unwrap().answer = Ok(answer);
        facts.clock = ClockFact { wall_ms, synced };
        assert_eq!(decide(&facts, 0).cause(), None);
        row(&facts, RowName::Clock)
    };
    let pinned = || vec![Pin([1; 32])];
    let behind = text(pinned(), off(NOW_MS, NOW_MS - YEARS_56), NOW_MS - YEARS_56, Synced::No);
    assert_eq!(behind.status, Status::Unknown);
    assert_eq!(behind.text, "this machine's clock is 56 years behind; the join does not depend on it");
    let ahead = text(pinned(), off(NOW_MS - 3_600_000, NOW_MS), NOW_MS, Synced::No);
    assert_eq!(ahead.text, "this machine's clock is 60 minutes ahead; the join does not depend on it");
    // Who is not known may say what it likes.
    let liar = text(Vec::new(), off(0, NOW_MS), NOW_MS, Synced::Yes);
    assert_eq!((liar.status, liar.text.as_str()), (Status::Ok, "2026-11-29 10:42:07Z, synchronised"));
    let dead = text(Vec::new(), off(NOW_MS, 60_000), 60_000, Synced::Unknown);
    assert_eq!(dead.text, "1970-01-01 00:01:00Z: it is not set; the join does not depend on it");
}

#[test]
fn a_run_that_had_to_end_says_what_it_did_not_get_to() {
    let mut facts = good();
    (facts.mtu, facts.founder, facts.quality, facts.timed_out) = (None, None, None, true);
    let found = decide(&facts, 10_000);
    assert!(found.timed_out && found.cause().is_none());
    assert_eq!(found.row(RowName::Tls).unwrap().text, "no time was left for it");
}

fn hostile() -> impl Strategy<Value = String> {
    prop_oneof![Just("\u{1b}[2J\u{202e}PAIRING CODE AAA-AAA\n".to_owned()), ".{0,300}", Just(String::new())]
}

fn any_facts() -> impl Strategy<Value = Facts> {
    let small = (0..6usize, 0..6usize, 0..7usize, 0..6usize, 0..5usize, 0..6usize, 0..Code::ALL.len());
    (small, hostile(), any::<[bool; 8]>()).prop_map(
        |((name, route, port, mtu, nics, proof, code), text, bits)| {
            let mut facts = good();
            let dirty = || Safe::clean(&text);
            facts.nics = match nics {
                0 => None,
                n => Some(
                    (1..n)
                        .map(|n| NicFact {
                            index: u32::try_from(n).unwrap(),
                            name: dirty(),
                            up: bits[0],
                            counts: bits[1],
                            carrier: if bits[2] { None } else { Some(bits[3]) },
                            ..nic("x")
                        })
                        .collect(),
                ),
            };
            facts.name = [None, Some(NameFact::Literal), Some(NameFact::Failed(Safe::clean(&text)))]
                .get(name)
                .cloned()
                .unwrap_or(None);
            let route = match route {
                0 => RouteFact::Local,
                1 => RouteFact::Missing,
                2 => RouteFact::Refused("blackhole"),
                3 => RouteFact::Unknown,
                _ => RouteFact::Via {
                    index: 2,
                    nic: dirty(),
                    gateway: bits[4].then(|| ip("fe80::1")),
                    source: None,
                },
            };
            facts.way = bits[5].then(|| WayFact {
                target: if bits[6] {
                    Target::NameServer(ip("::1"))
                } else {
                    Target::Founder(ip("169.254.1.1"))
                },
                route,
                neighbour: bits[7].then_some(NeighbourFact::Silent("FAILED")),
            });
            facts.port = match port {
                0 => None,
                1 => Some(PortFact::Closed(ip("::1"), PortError::Other(Safe::clean(&text)))),
                2 => Some(PortFact::Closed(ip("::1"), PortError::Silent(Duration::from_secs(5)))),
                _ => facts.port,
            };
            facts.mtu = [
                None,
                Some(MtuFact::Silent),
                Some(MtuFact::NotReached),
                Some(MtuFact::Lost { passes: 1_280 }),
            ]
            .get(mtu)
            .copied()
            .unwrap_or(Some(MtuFact::Passes));
            let mut fault = Fault::new(Code::ALL[code], &text);
            (fault.http, fault.from_founder) = (bits[0].then_some(if bits[1] { 503 } else { 200 }), bits[2]);
            facts.past.proof =
                [ProofFact::NotYet, ProofFact::Good].get(proof).copied().unwrap_or(ProofFact::Failed(None));
            facts.past.refusal = bits[3].then(|| Box::new(fault.clone()));
            if bits[4] {
                facts.founder =
                    Some(FounderFact { ca: bits[5].then_some(Pin([1; 32])), answer: Err(Box::new(fault)) });
            }
            facts.timed_out = bits[6];
            facts
        },
    )
}

proptest! {
    #![proptest_config(crate::test_support::config())]

    #[test]
    fn whatever_was_found_there_is_a_row_for_each_name_at_most_one_is_red_and_it_says_what_to_look_at(facts in any_facts()) {
        let found = decide(&facts, 1);
        prop_assert_eq!(found.rows.iter().map(|row| row.name).collect::<Vec<_>>(), RowName::ALL.to_vec());
        prop_assert!(found.rows.iter().filter(|row| row.status == Status::Failed).count() <= 1);
        prop_assert_eq!(found.checks().len(), 10);
        for row in &found.rows {
            prop_assert!(!row.text.is_empty());
            prop_assert!(!row.text.as_str().chars().any(char::is_control));
            let red = row.status == Status::Failed;
            // Some refusals need nothing but patience.
            prop_assert!(!red || !row.look_at.is_empty() || row.name == RowName::Answer, "{:?}", row);
        }
    }
}
