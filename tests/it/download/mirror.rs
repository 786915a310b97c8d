//! Mirrors that lie, break off or stand still: each way has its name here, and what a person reads of it.

use std::io::ErrorKind;
use std::net::TcpListener;

use stratum_join::clock;
use stratum_join::upgrade::plan::Waiting;
use stratum_join::upgrade::source::FounderTime;

use super::*;
use crate::support::closed_port;

fn host(mirror: &EvilMirror) -> String {
    mirror.addr().to_string()
}

#[test]
fn an_ordinary_mirror_is_asked_for_each_byte_once_and_told_nothing_of_us() {
    let lab = Lab::new();
    fs::write(lab.release().join("os/extra"), b"nobody wants this").unwrap();
    let mirror = lab.mirror(&[]);
    let progress = lab.fetch_and_look(&mirror, STEADY);
    assert_eq!((progress.done, progress.fetched, progress.kept), (lab.total(), lab.total(), 0));
    assert_eq!(mirror.sent(), lab.total());
    // The mirror's tags, of which each connection has its own, are not even asked about.
    for seen in mirror.seen() {
        assert!(!seen.client_certificate);
        assert_ne!(seen.path, "os/extra");
        assert_eq!(seen.range.is_some(), seen.path == "os/root", "only what has several chunks has ranges");
        for header in ["cookie", "authorization", "referer", "if-range", "user-agent"] {
            assert!(!seen.headers.iter().any(|name| name == header), "{header}");
        }
        assert!(seen.headers.iter().any(|name| name == "accept-encoding"));
    }
    // Nothing is asked for again, not even to see that nothing is missing.
    let again = lab.fetch_and_look(&mirror, STEADY);
    assert_eq!((again.kept, again.fetched), (lab.total(), 0));
    assert_eq!(mirror.sent(), lab.total());
}

#[test]
fn a_wrong_byte_once_costs_its_chunk_and_always_is_named() {
    let lab = Lab::new();
    let mirror = lab.mirror(&[Fault::times(MirrorFault::WrongByte(CHUNK + 3), 1).at("os/root")]);
    let progress = lab.fetch_and_look(&mirror, STEADY);
    assert_eq!(progress.fetched, lab.total() + CHUNK);
    let lab = Lab::new();
    let mirror = lab.mirror(&[Fault::always(MirrorFault::WrongByte(CHUNK + 3)).at("os/root")]);
    let fault = lab.fetch(&mirror, FAST).unwrap_err();
    says(
        &fault,
        Code::Hash,
        &format!("os/root from {} does not match the signed manifest.", host(&mirror)),
        "Repair the mirror.",
    );
    // What was right stays: with the mirror repaired the rest comes.
    mirror.set_faults(&[]);
    let progress = lab.fetch_and_look(&mirror, STEADY);
    assert!(progress.kept >= lab.total() - CHUNK, "{progress:?}");
}

#[test]
fn a_body_that_ends_early_is_gone_on_with_and_one_that_always_does_is_a_stall() {
    let lab = Lab::new();
    let mirror = lab.mirror(&[Fault::times(MirrorFault::Truncate(CHUNK + 1), 1).at("os/root")]);
    assert!(lab.fetch_and_look(&mirror, STEADY).fetched <= lab.total() + CHUNK);
    let lab = Lab::new();
    let fault = lab.fails(MirrorFault::Truncate(1));
    says(&fault, Code::Stalled, "No new data from 127.0.0.1", "Check the link to 127.0.0.1");
    says(&fault, Code::Stalled, "are here", "");
}

#[test]
fn a_file_that_is_shorter_or_longer_at_the_source_is_no_file_of_this_release() {
    for fault in [MirrorFault::ShortFile(1), MirrorFault::LongFile(1), MirrorFault::WrongTotal(5)] {
        let lab = Lab::with(&[("os/root", 2 * CHUNK)]);
        let fault = lab.fails(fault);
        says(
            &fault,
            Code::NotARelease,
            "the answer is for other bytes than were asked for",
            "payload/manifest.json",
        );
    }
    for fault in [MirrorFault::ShortFile(1), MirrorFault::LongFile(1), MirrorFault::Empty] {
        let lab = Lab::with(&[("os/kernel", CHUNK)]);
        let fault = lab.fails(fault);
        says(&fault, Code::NotARelease, "the file has another length than the release says", "check proxies");
    }
}

#[test]
fn what_comes_behind_the_end_of_a_body_is_not_read() {
    let lab = Lab::new();
    let mirror = lab.mirror(&[Fault::always(MirrorFault::Longer(100_000))]);
    assert_eq!(lab.fetch_and_look(&mirror, STEADY).fetched, lab.total());
}

#[test]
fn a_server_that_ignores_ranges_is_read_from_the_start_and_nothing_is_glued_together() {
    for fault in [MirrorFault::NoRange, MirrorFault::NoRangeButHeader] {
        let lab = Lab::new();
        // The second chunk is here already.
        fs::create_dir_all(lab.stage().join("parts")).unwrap();
        let mut part = vec![0; usize::try_from(lab.wants[0].size).unwrap()];
        let second = usize::try_from(CHUNK).unwrap()..usize::try_from(2 * CHUNK).unwrap();
        part[second.clone()].copy_from_slice(&lab.served(0)[second]);
        fs::write(lab.part(0), part).unwrap();
        let mirror = lab.mirror(&[Fault::always(fault)]);
        let progress = lab.fetch_and_look(&mirror, STEADY);
        assert_eq!(progress.kept, CHUNK);
        let whole = mirror
            .seen()
            .iter()
            .filter(|seen| seen.path == "os/root" && seen.sent == lab.wants[0].size)
            .count();
        assert_eq!(whole, 1, "{:?}", mirror.seen());
    }
}

#[test]
fn a_range_that_begins_early_is_skipped_and_one_that_begins_late_is_refused() {
    let lab = Lab::new();
    fs::create_dir_all(lab.stage().join("parts")).unwrap();
    fs::write(lab.part(0), &lab.served(0)[..usize::try_from(CHUNK).unwrap()]).unwrap();
    let mirror = lab.mirror(&[Fault::always(MirrorFault::Early(1000)).at("os/root")]);
    assert_eq!(lab.fetch_and_look(&mirror, STEADY).fetched, lab.total() - CHUNK + 1000);
    for late in [MirrorFault::Late(1), MirrorFault::NoContentRange, MirrorFault::Multipart] {
        let lab = Lab::with(&[("os/root", 2 * CHUNK)]);
        let fault = lab.fails_and(late, || lab.look_empty());
        says(&fault, Code::NotARelease, "for other bytes than were asked for", "check proxies");
    }
}

#[test]
fn a_range_answered_from_another_offset_does_not_pass_the_hash() {
    let lab = Lab::with(&[("os/root", 3 * CHUNK)]);
    says(&lab.fails(MirrorFault::Shifted(4096)), Code::Hash, "os/root from 127.0.0.1", "Repair the mirror.");
}

#[test]
fn fewer_bytes_than_asked_for_are_taken_and_the_rest_is_asked_for() {
    let lab = Lab::new();
    let mirror = lab.mirror(&[Fault::always(MirrorFault::Less(CHUNK)).at("os/root")]);
    assert_eq!(lab.fetch_and_look(&mirror, STEADY).fetched, lab.total());
}

#[test]
fn status_416_is_an_error_and_its_page_is_in_no_file() {
    let lab = Lab::new();
    says(
        &lab.fails(MirrorFault::NotSatisfiable),
        Code::NotARelease,
        "the file is shorter than the release says",
        "payload/manifest.json",
    );
}

#[test]
fn status_416_for_the_end_of_a_file_is_no_word_that_it_is_complete() {
    let lab = Lab::with(&[("os/root", 3 * CHUNK)]);
    let had = usize::try_from(2 * CHUNK).unwrap();
    fs::create_dir_all(lab.stage().join("parts")).unwrap();
    fs::write(lab.part(0), &lab.served(0)[..had]).unwrap();
    // The file ends there at the mirror, too.
    let mirror = lab.mirror(&[Fault::always(MirrorFault::ShortFile(CHUNK))]);
    let fault = lab.fetch(&mirror, FAST).unwrap_err();
    says(&fault, Code::NotARelease, "the file is shorter than the release says", "from another machine");
    assert!(mirror.seen().iter().all(|seen| seen.status == 416), "{:?}", mirror.seen());
    lab.look_empty();
    mirror.set_faults(&[]);
    let progress = lab.fetch_and_look(&mirror, STEADY);
    assert_eq!((progress.kept, progress.fetched), (2 * CHUNK, CHUNK));
}

#[test]
fn a_file_that_is_here_whole_and_has_no_name_yet_costs_no_request() {
    let lab = Lab::with(&[("os/root", 3 * CHUNK)]);
    fs::create_dir_all(lab.stage().join("parts")).unwrap();
    fs::write(lab.part(0), lab.served(0)).unwrap();
    let mirror = lab.mirror(&[Fault::always(MirrorFault::NotSatisfiable)]);
    let progress = lab.fetch_and_look(&mirror, FAST);
    assert_eq!((progress.kept, progress.fetched, mirror.connections()), (lab.total(), 0, 0));
}

#[test]
fn a_file_that_is_replaced_midway_keeps_its_old_chunks_and_never_becomes_a_mixture() {
    let lab = Lab::with(&[("os/root", 3 * CHUNK)]);
    let mirror = lab.mirror(&[Fault::always(MirrorFault::Changed(2 * CHUNK + 17))]);
    let fault = lab.fetch(&mirror, FAST).unwrap_err();
    says(&fault, Code::Hash, "os/root from 127.0.0.1", "Repair the mirror.");
    assert!(!lab.blob(0).exists());
    mirror.set_faults(&[]);
    let progress = lab.fetch_and_look(&mirror, STEADY);
    assert_eq!((progress.kept, progress.fetched), (2 * CHUNK, CHUNK));
}

#[test]
fn files_of_another_release_under_the_same_names_are_refused() {
    let lab = Lab::new();
    let fault = lab.fails_and(MirrorFault::OtherContent, || lab.look_empty());
    says(&fault, Code::Hash, "does not match the signed manifest", "Repair the mirror.");
}

#[test]
fn a_compressed_answer_is_refused() {
    let lab = Lab::new();
    says(
        &lab.fails(MirrorFault::Gzip),
        Code::NotARelease,
        "the answer is compressed, which nobody asked for",
        "check proxies",
    );
}

#[test]
fn a_login_page_in_place_of_a_file_is_recognised_and_written_nowhere() {
    let lab = Lab::new();
    let fault = lab.fails(MirrorFault::Html);
    says(
        &fault,
        Code::NotARelease,
        "a web page came instead of the file",
        "from another machine; check proxies",
    );
}

#[test]
fn a_body_without_end_is_cut_at_what_was_asked_and_hashed() {
    let lab = Lab::new();
    let mirror = lab.mirror(&[Fault::always(MirrorFault::Endless)]);
    let fault = lab.fetch(&mirror, FAST).unwrap_err();
    says(&fault, Code::Hash, "does not match", "Repair the mirror.");
    let stage: u64 =
        fs::read_dir(lab.stage().join("parts")).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum();
    assert!(stage <= lab.total(), "{stage}");
}

#[test]
fn a_redirect_out_of_https_or_into_this_machine_is_refused_before_any_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let inside = format!("https://{}/admin", listener.local_addr().unwrap());
    for (to, rule) in [
        ("http://mirror.example/{path}", "does not begin with https://"),
        ("https://169.254.169.254/latest/meta-data", "link-local"),
        ("https://[fd00:ec2::254]/x", "metadata"),
        ("https://user:pw@mirror.example/{path}", "names a user"),
        (inside.as_str(), "this machine's loopback address"),
    ] {
        let lab = Lab::with(&[("os/kernel", 5)]);
        let mirror = lab.mirror(&[Fault::always(MirrorFault::Redirect(to.to_owned()))]);
        let fault = lab.fetch(&mirror, FAST).unwrap_err();
        says(
            &fault,
            Code::SourceRefused,
            &format!("{} redirects to", host(&mirror)),
            "Correct the release mirror's URL",
        );
        says(&fault, Code::SourceRefused, rule, "");
    }
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn redirects_end_after_five_and_one_is_followed() {
    let lab = Lab::with(&[("os/kernel", 5)]);
    let fault = lab.fails(MirrorFault::RedirectLoop);
    says(&fault, Code::SourceRefused, "redirects more than 5 times", "Correct the release mirror's URL");
    let lab = Lab::new();
    let to = MirrorFault::Redirect("/moved?sig=1".to_owned());
    let mirror = lab.mirror(&[Fault::always(to).at("small.raw")]);
    // There it is not, which shows that the redirect was followed, query and all.
    let fault = lab.fetch(&mirror, STEADY).unwrap_err();
    says(&fault, Code::SourceStatus, "answered 404 for sysext/small.raw", "complete on the mirror");
    assert!(mirror.seen().iter().any(|seen| seen.path == "moved?sig=1"), "{:?}", mirror.seen());
}

#[test]
fn this_machine_is_no_mirror_unless_a_person_typed_it() {
    let lab = Lab::with(&[("os/kernel", 5)]);
    let mirror = lab.mirror(&[]);
    let strict = MirrorSettings { allow_local: false, ..settings(&mirror) };
    let fault = source(&strict).unwrap_err();
    says(&fault, Code::SourceRefused, "this machine's loopback address", "Correct the release mirror's URL");
    // A name that leads here is found out when it is resolved.
    let url = format!("https://localhost:{}", mirror.addr().port());
    let named = source(&MirrorSettings { url, ..strict }).unwrap();
    let fault = lab.fetch_from(named, FAST, |_| {}).unwrap_err();
    says(&fault, Code::SourceRefused, "localhost is this machine's loopback address", "");
    assert_eq!(mirror.connections(), 0);
}

#[test]
fn one_byte_a_second_is_given_up_for_a_new_connection() {
    let lab = Lab::with(&[("os/root", 2 * CHUNK)]);
    let mirror = lab.mirror(&[Fault::times(MirrorFault::Drip, 1)]);
    lab.fetch_and_look(&mirror, STEADY);
    assert_eq!(mirror.seen().len(), 2);
}

#[test]
fn silence_is_given_up_for_a_new_connection_before_the_head_and_within_the_body() {
    for fault in [MirrorFault::Silent, MirrorFault::Stall(0), MirrorFault::Stall(CHUNK + 100)] {
        let lab = Lab::with(&[("os/root", 2 * CHUNK)]);
        let mirror = lab.mirror(&[Fault::times(fault.clone(), 1)]);
        let progress = lab.fetch_and_look(&mirror, STEADY);
        assert!(progress.fetched <= lab.total() + CHUNK, "{fault:?} {progress:?}");
    }
}

#[test]
fn silence_for_ten_minutes_is_a_stall_that_says_how_much_is_here() {
    let lab = Lab::with(&[("os/root", 2 * CHUNK)]);
    let mirror =
        lab.mirror(&[Fault::times(MirrorFault::Stall(CHUNK), 1), Fault::always(MirrorFault::Silent)]);
    let fault = lab.fetch(&mirror, FAST).unwrap_err();
    let what = format!("No new data from {} for 10 minutes; 4.0 MiB of 8.0 MiB are here.", host(&mirror));
    says(&fault, Code::Stalled, &what, "Check the link to");
}

#[test]
fn resets_and_cuts_cost_at_most_a_chunk_each() {
    for n in [0, 1, 1000, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 77] {
        for fault in [MirrorFault::Reset(n), MirrorFault::Cut(n)] {
            let lab = Lab::with(&[("os/root", 3 * CHUNK + 5)]);
            let mirror = lab.mirror(&[Fault::times(fault.clone(), 1)]);
            let progress = lab.fetch_and_look(&mirror, STEADY);
            assert!(progress.fetched <= lab.total() + CHUNK, "{fault:?} {progress:?}");
        }
    }
}

#[test]
fn a_missing_file_is_named_with_its_status() {
    for status in [404, 410, 401, 403] {
        let lab = Lab::new();
        let mirror = lab.mirror(&[Fault::always(MirrorFault::Status(status)).at("sysext")]);
        let fault = lab.fetch(&mirror, FAST).unwrap_err();
        says(
            &fault,
            Code::SourceStatus,
            &format!("{} answered {status} for sysext/small.raw.", host(&mirror)),
            "Check that the release is complete on the mirror.",
        );
    }
}

#[test]
fn a_server_in_trouble_is_tried_again_and_its_last_answer_is_said() {
    let lab = Lab::new();
    let mirror = lab.mirror(&[
        Fault::times(MirrorFault::Status(500), 2),
        Fault::times(MirrorFault::Status(429), 1),
        Fault::times(MirrorFault::Later(2), 1),
    ]);
    lab.fetch_and_look(&mirror, STEADY);
    let lab = Lab::new();
    let fault = lab.fails(MirrorFault::Status(502));
    says(&fault, Code::Stalled, "for 10 minutes (its last answer was 502)", "Check the link");
}

#[test]
fn a_busy_source_is_waited_for_without_a_failure_and_the_figures_say_so() {
    let lab = Lab::new();
    let busy = |n| Fault::times(MirrorFault::Busy(n), 6);
    // On this clock a wait of 120 s is two seconds: longer than figures take to come.
    let mirror = lab.mirror(&[Fault::times(MirrorFault::Busy(Some(120)), 1), busy(None), busy(Some(5))]);
    let mut waited = false;
    let source = source(&settings(&mirror)).unwrap();
    lab.fetch_from(source, STEADY, |progress| {
        waited |= progress.waiting == Some(Waiting::Busy);
        assert!(progress.waiting != Some(Waiting::Busy) || progress.eta.is_none());
    })
    .unwrap();
    lab.look();
    assert!(waited);
}

#[test]
fn a_mirror_that_is_not_there_is_said_to_be_unreachable_with_the_reason() {
    let lab = Lab::new();
    let mut mirror = lab.mirror(&[]);
    let source = source(&settings(&mirror)).unwrap();
    mirror.stop();
    let address: std::net::SocketAddr = host(&mirror).parse().unwrap();
    let _closed = closed_port(address.port());
    let fault = lab.fetch_from(source, FAST, |_| {}).unwrap_err();
    says(
        &fault,
        Code::SourceUnreachable,
        &format!("{} cannot be reached: connection refused.", host(&mirror)),
        "stratum-join diagnose",
    );
    let nowhere =
        MirrorSettings { url: "https://no-such-host.invalid/x".to_owned(), ..MirrorSettings::default() };
    let fault = lab.fetch_from(super::source(&nowhere).unwrap(), FAST, |_| {}).unwrap_err();
    says(&fault, Code::SourceUnreachable, "no-such-host.invalid cannot be reached", "");
}

#[test]
fn a_certificate_of_nobody_we_know_is_refused_and_the_advice_names_the_setting() {
    let lab = Lab::new();
    let (mirror, other) = (lab.mirror(&[]), lab.mirror(&[]));
    for ca_pem in [None, Some(other.ca_pem().as_bytes().to_vec())] {
        let wrong = MirrorSettings { ca_pem, ..settings(&mirror) };
        let fault = lab.fetch_from(source(&wrong).unwrap(), FAST, |_| {}).unwrap_err();
        says(
            &fault,
            Code::SourceTls,
            "no authority that this machine trusts signed it",
            "upgrade.mirror.caFile",
        );
    }
    let config = MirrorConfig { names: vec!["mirror.example".to_owned()], ..mirror_of(&lab.release()) };
    let elsewhere = EvilMirror::start(config).unwrap();
    let fault = lab.fetch(&elsewhere, FAST).unwrap_err();
    says(&fault, Code::SourceTls, "it is for another name", "for the name in its address");
}

#[test]
fn the_founders_clock_and_not_this_machines_dates_a_certificate() {
    let lab = Lab::with(&[("os/kernel", 5)]);
    // Whatever year this machine thinks it is, it is not 2200.
    let config = MirrorConfig { valid: (2200, 2201), ..mirror_of(&lab.release()) };
    let mirror = EvilMirror::start(config).unwrap();
    let at = |year_begins: u64| FounderTime { unix_secs: year_begins + 86_400, at_boot_ms: clock::boot_ms() };
    let with = |time| source(&MirrorSettings { time, ..settings(&mirror) }).unwrap();
    let fault = lab.fetch_from(with(None), FAST, |_| {}).unwrap_err();
    // Which of the two it is depends on whether this machine's own date is possible at all.
    match fault.code {
        Code::Clock => says(&fault, Code::Clock, "The system clock says ", "Set the hardware clock or NTP."),
        code => says(
            &fault,
            code,
            "it is not valid yet by this machine's clock, which says ",
            "that is valid now",
        ),
    }
    let fault = lab.fetch_from(with(Some(at(7_289_654_400))), FAST, |_| {}).unwrap_err();
    says(&fault, Code::SourceTls, "it has expired by the founder's clock", "that is valid now");
    lab.fetch_from(with(Some(at(7_258_118_400))), STEADY, |_| {}).unwrap();
    lab.look();
}

#[test]
fn another_mirror_goes_on_with_what_the_first_one_gave() {
    let lab = Lab::with(&[("os/root", 4 * CHUNK)]);
    let first =
        lab.mirror(&[Fault::times(MirrorFault::Cut(2 * CHUNK + 5), 1), Fault::always(MirrorFault::Silent)]);
    lab.fetch(&first, FAST).unwrap_err();
    let second = lab.mirror(&[]);
    let progress = lab.fetch_and_look(&second, STEADY);
    assert_eq!((progress.kept, progress.fetched), (2 * CHUNK, 2 * CHUNK));
}

#[test]
fn giving_up_takes_less_than_a_second_and_what_is_verified_stays() {
    let lab = Lab::with(&[("os/root", 4 * CHUNK)]);
    let mirror = lab.mirror(&[Fault::always(MirrorFault::Stall(2 * CHUNK))]);
    let stage = Stage::open(&lab.stage()).unwrap();
    let slow = Options { seed: 7, ..Options::default() };
    let source = Arc::new(source(&settings(&mirror)).unwrap());
    let took = block_on(async {
        let mut work = Box::pin(fetch(source, stage, lab.wants.clone(), slow, |_| {}));
        let seen = || mirror.sent() >= 2 * CHUNK;
        let deadline = Instant::now() + Duration::from_secs(30);
        while !seen() && Instant::now() < deadline {
            let _ = tokio::time::timeout(Duration::from_millis(20), &mut work).await;
        }
        let _ = tokio::time::timeout(Duration::from_millis(300), &mut work).await;
        let began = Instant::now();
        drop(work);
        // The stage can be used again as soon as its thread has let go.
        drop(Stage::open(&lab.stage()).unwrap());
        began.elapsed()
    });
    assert!(took < Duration::from_secs(1), "{took:?}");
    mirror.set_faults(&[]);
    let progress = lab.fetch_and_look(&mirror, STEADY);
    assert_eq!(progress.kept, 2 * CHUNK);
}
