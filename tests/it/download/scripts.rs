//! The whole engine against scripts made at random: real TLS, a real stage, a mirror that does one wrong thing after the other over parts that were
//! damaged at random. The right bytes come, or a fault that has a name and a cause in the script; and with the mirror in order, the right bytes.

use proptest::prelude::*;
use proptest::test_runner::Config;

use super::*;

/// Scripts in the gate; `cargo xtask test --long` asks for more.
const SCRIPTS: u32 = 12;

/// How many scripts are tried.
fn config() -> Config {
    let wanted = std::env::var("STRATUM_TEST_SCRIPTS").ok().and_then(|n| n.parse().ok());
    Config { cases: wanted.unwrap_or(SCRIPTS), failure_persistence: None, ..Config::default() }
}

fn what() -> impl Strategy<Value = MirrorFault> {
    use MirrorFault as F;
    let n = || prop_oneof![0..100u64, CHUNK - 3..CHUNK + 3, 0..4 * CHUNK];
    let more = || prop_oneof![1..100u64, 1..2 * CHUNK];
    prop_oneof![
        2 => n().prop_map(F::WrongByte),
        1 => Just(F::OtherContent),
        2 => more().prop_map(F::Truncate),
        1 => more().prop_map(F::ShortFile),
        1 => more().prop_map(F::LongFile),
        1 => more().prop_map(F::Longer),
        1 => Just(F::Endless),
        1 => Just(F::Empty),
        1 => Just(F::Html),
        2 => Just(F::NoRange),
        1 => Just(F::NoRangeButHeader),
        2 => more().prop_map(F::Early),
        1 => more().prop_map(F::Late),
        1 => more().prop_map(F::Shifted),
        1 => more().prop_map(F::WrongTotal),
        1 => Just(F::NoContentRange),
        1 => Just(F::Multipart),
        2 => more().prop_map(F::Less),
        1 => Just(F::NotSatisfiable),
        1 => Just(F::Gzip),
        2 => n().prop_map(F::Changed),
        2 => n().prop_map(F::Stall),
        1 => Just(F::Silent),
        1 => Just(F::Drip),
        3 => n().prop_map(F::Reset),
        3 => n().prop_map(F::Cut),
        1 => prop_oneof![Just("/moved"), Just("http://mirror.example/x"), Just("https://[fe80::1]/x")]
            .prop_map(|to| F::Redirect(to.to_owned())),
        1 => Just(F::RedirectLoop),
        2 => prop_oneof![Just(204u16), Just(403), Just(404), Just(429), Just(500), Just(502)].prop_map(F::Status),
        1 => proptest::option::of(0..200u64).prop_map(F::Busy),
        1 => (0..200u64).prop_map(F::Later),
    ]
}

fn script() -> impl Strategy<Value = Vec<Fault>> {
    let at = prop_oneof![3 => Just(""), 2 => Just("root"), 1 => Just("kernel"), 1 => Just("small")];
    let times = prop_oneof![4 => (1..4u32).prop_map(Some), 1 => Just(None)];
    // A source that is busy for ever is waited for, for ever.
    let fault = (what(), at, times).prop_map(|(what, at, times)| {
        let times = if matches!(what, MirrorFault::Busy(_)) { Some(times.unwrap_or(3)) } else { times };
        Fault { what, at: at.to_owned(), times }
    });
    proptest::collection::vec(fault, 0..6)
}

/// What of this could have come to a fault of that name?
fn explains(fault: &Fault, code: Code) -> bool {
    use MirrorFault as F;
    match code {
        Code::Hash => matches!(
            fault.what,
            F::WrongByte(_) | F::OtherContent | F::Changed(_) | F::Shifted(_) | F::Endless | F::Longer(_)
        ),
        Code::NotARelease => matches!(
            fault.what,
            F::ShortFile(_)
                | F::LongFile(_)
                | F::Empty
                | F::Html
                | F::Late(_)
                // Of a file that is asked for whole.
                | F::Less(_)
                | F::WrongTotal(_)
                | F::NoContentRange
                | F::Multipart
                | F::NotSatisfiable
                | F::Gzip
                | F::Status(204)
        ),
        Code::SourceStatus => matches!(fault.what, F::Status(403 | 404) | F::Redirect(_)),
        Code::SourceRefused => matches!(fault.what, F::Redirect(_) | F::RedirectLoop),
        Code::Stalled | Code::SourceUnreachable => true,
        _ => false,
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_script_of_a_mirror_over_any_stage_leads_to_the_right_bytes_or_a_named_fault(
        script in script(),
        here in proptest::collection::vec(proptest::option::of(any::<bool>()), 4),
        cut in proptest::option::of(0..4 * CHUNK),
    ) {
        let lab = Lab::new();
        // Of the largest file each chunk is here, or is here wrong, or is not.
        fs::create_dir_all(lab.stage().join("parts")).unwrap();
        let mut part = lab.served(0);
        for (chunk, state) in part.chunks_mut(usize::try_from(CHUNK).unwrap()).zip(&here) {
            match state {
                Some(true) => {}
                Some(false) => chunk[0] ^= 1,
                None => chunk.fill(0),
            }
        }
        part.truncate(cut.map_or(part.len(), |cut| usize::try_from(cut).unwrap()));
        fs::write(lab.part(0), part).unwrap();

        let mirror = lab.mirror(&script);
        match lab.fetch(&mirror, FAST) {
            Ok(_) => lab.look(),
            Err(fault) => {
                prop_assert!(script.iter().any(|done| explains(done, fault.code)), "{:?}", fault);
                reads_well(&fault);
            }
        }
        mirror.set_faults(&[]);
        lab.fetch_and_look(&mirror, STEADY);
    }
}
