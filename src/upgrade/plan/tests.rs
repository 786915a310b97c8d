//! The planner against every kind of answer: single rules by name, and whole downloads from servers that are scripted at random.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;
use crate::upgrade::{Digest, RelPath};

const MIB: u64 = 1024 * 1024;

fn want(name: &str, size: u64) -> FileEntry {
    let chunks = vec![Digest([0; 32]); usize::try_from(size.div_ceil(CHUNK)).unwrap()];
    FileEntry { path: name.parse::<RelPath>().unwrap(), size, sha256: Digest([0; 32]), chunks }
}

fn head(status: u16) -> Head {
    Head { status, ..Head::default() }
}

fn partial(first: u64, last: u64, total: u64) -> Head {
    Head { range: Some(ContentRange::Bytes { first, last, total: Some(total) }), ..head(206) }
}

use crate::upgrade::source::ContentRange;

type Opened = (StreamId, usize, Option<(u64, u64)>);

fn opened(acts: &[Act]) -> Vec<Opened> {
    let open = |act: &Act| match act {
        Act::Open { s, file, range } => Some((*s, *file, *range)),
        _ => None,
    };
    acts.iter().filter_map(open).collect()
}

fn failed(acts: &[Act]) -> Option<Reason> {
    acts.iter().find_map(|act| if let Act::Fail(reason) = act { Some(reason.clone()) } else { None })
}

/// One file of `size`, one stream, its first request.
fn one(size: u64) -> (Planner, StreamId) {
    let mut planner = Planner::new(&[want("a", size)], &[], 1, 1);
    let s = opened(&planner.next(0))[0].0;
    (planner, s)
}

#[test]
fn the_largest_file_comes_first_in_spans_of_64_mib_and_small_ones_without_a_range() {
    let wants = [want("a", 5), want("b", 100 * MIB), want("c", CHUNK)];
    let mut planner = Planner::new(&wants, &[], 4, 1);
    let open = opened(&planner.next(0));
    let what: Vec<_> = open.iter().map(|(_, file, range)| (*file, *range)).collect();
    assert_eq!(
        what,
        [(1, Some((0, 64 * MIB - 1))), (1, Some((64 * MIB, 100 * MIB - 1))), (2, None), (0, None)]
    );
}

#[test]
fn what_is_verified_is_never_asked_for() {
    let mut have = vec![true; 10];
    have[3] = false;
    have[4] = false;
    have[9] = false;
    let mut planner = Planner::new(&[want("a", 10 * CHUNK)], &[have], 4, 1);
    let open: Vec<_> = opened(&planner.next(0)).iter().map(|(_, _, range)| range.unwrap()).collect();
    assert_eq!(open, [(3 * CHUNK, 5 * CHUNK - 1), (9 * CHUNK, 10 * CHUNK - 1)]);
    assert_eq!(planner.done(), 7 * CHUNK);
}

#[test]
fn a_complete_file_costs_no_request_only_its_seal() {
    let mut planner = Planner::new(&[want("a", CHUNK + 1)], &[vec![true, true]], 4, 1);
    assert_eq!(planner.next(0), [Act::Seal(0)]);
    assert_eq!(planner.next(1), []);
    planner.on(Ev::Sealed(0), 2);
    assert_eq!(planner.next(2), [Act::Done]);
    assert_eq!(planner.next(3), []);
}

#[test]
fn an_answer_that_begins_early_is_skipped_up_to_what_was_asked() {
    let mut planner = Planner::new(&[want("a", 2 * CHUNK)], &[vec![true, false]], 1, 1);
    let (s, _, range) = opened(&planner.next(0))[0];
    assert_eq!(range, Some((CHUNK, 2 * CHUNK - 1)));
    planner.on(Ev::Head(s, partial(CHUNK - 10, 2 * CHUNK - 1, 2 * CHUNK)), 1);
    let pieces = planner.body(s, 15, 2);
    assert_eq!(pieces, [Piece::Skip(10), Piece::Write { file: 0, at: CHUNK, len: 5 }]);
}

#[test]
fn answers_for_other_bytes_are_no_release_after_five() {
    for (wrong, meaning) in [
        (partial(CHUNK + 1, 2 * CHUNK - 1, 2 * CHUNK), Meaning::WrongRange),
        (partial(CHUNK, 2 * CHUNK - 1, 2 * CHUNK + 1), Meaning::WrongRange),
        (partial(0, CHUNK - 1, 2 * CHUNK), Meaning::WrongRange),
        (head(206), Meaning::WrongRange),
        (Head { multipart: true, ..partial(CHUNK, 2 * CHUNK - 1, 2 * CHUNK) }, Meaning::WrongRange),
        (Head { encoded: true, ..partial(CHUNK, 2 * CHUNK - 1, 2 * CHUNK) }, Meaning::Encoded),
        (Head { range: Some(ContentRange::None { total: 2 * CHUNK }), ..head(416) }, Meaning::TooShort),
        (Head { len: Some(3), ..head(200) }, Meaning::WrongLength),
        (Head { len: Some(3), html: true, ..head(200) }, Meaning::WebPage),
        (Head { html: true, ..head(200) }, Meaning::WebPage),
        (head(204), Meaning::Strange),
    ] {
        let mut planner = Planner::new(&[want("a", 2 * CHUNK)], &[vec![true, false]], 1, 1);
        let mut now = 0;
        for n in 1.. {
            let acts = planner.next(now);
            if let Some(reason) = failed(&acts) {
                assert_eq!((reason, n), (Reason::NotARelease(meaning), 6), "{wrong:?}");
                break;
            }
            if let Some((s, ..)) = opened(&acts).first() {
                planner.on(Ev::Head(*s, wrong.clone()), now);
                assert_eq!(planner.body(*s, 100, now), [Piece::Skip(100)], "{wrong:?}");
            }
            now = planner.wake(now);
        }
    }
}

#[test]
fn an_answer_with_no_is_final_and_names_file_and_status() {
    for status in [301, 400, 401, 403, 404, 410] {
        let (mut planner, s) = one(5);
        planner.on(Ev::Head(s, head(status)), 1);
        assert_eq!(failed(&planner.next(1)), Some(Reason::Status { file: 0, status }));
    }
}

#[test]
fn a_server_without_ranges_gets_one_request_and_its_bytes_go_where_they_belong() {
    let have = vec![true, false, true, false];
    let mut planner = Planner::new(&[want("a", 4 * CHUNK)], &[have], 4, 1);
    let open = opened(&planner.next(0));
    assert_eq!(open.len(), 2);
    planner.on(Ev::Head(open[0].0, Head { len: Some(4 * CHUNK), ..head(200) }), 1);
    // The other one would get the whole file, too.
    assert!(planner.next(1).contains(&Act::Close(open[1].0)));
    let chunk = usize::try_from(CHUNK).unwrap();
    let mut pieces = Vec::new();
    for _ in 0..4 {
        pieces.extend(planner.body(open[0].0, chunk, 2));
    }
    let write = |at| Piece::Write { file: 0, at, len: chunk };
    assert_eq!(pieces, [Piece::Skip(chunk), write(CHUNK), Piece::Skip(chunk), write(3 * CHUNK)]);
    assert!(planner.next(2).contains(&Act::Close(open[0].0)));
}

#[test]
fn a_longer_body_is_cut_where_the_request_ends() {
    let (mut planner, s) = one(100);
    planner.on(Ev::Head(s, head(200)), 1);
    let pieces = planner.body(s, 150, 2);
    assert_eq!(pieces, [Piece::Write { file: 0, at: 0, len: 100 }, Piece::Skip(50)]);
    assert_eq!(planner.next(2), [Act::Close(s)]);
}

#[test]
fn busy_two_hundred_times_is_no_failure_and_leaves_one_stream() {
    let wants = [want("a", 200 * MIB), want("b", 5)];
    let mut planner = Planner::new(&wants, &[], 2, 1);
    let mut now = 0;
    let mut asked = 0;
    while asked < 200 {
        let acts = planner.next(now);
        assert_eq!(failed(&acts), None, "after {asked}");
        for (s, ..) in opened(&acts) {
            asked += 1;
            let retry_after = (asked % 2 == 0).then_some(5);
            planner.on(Ev::Head(s, Head { busy: true, retry_after, ..head(503) }), now);
        }
        assert_eq!(planner.waiting(now), Some(Waiting::Busy));
        now = planner.wake(now);
    }
    assert!(now > 3 * QUIET_MS / 2, "{now}");
    // The last busy answer is recent: one stream. A while later: both.
    assert_eq!(opened(&planner.next(planner.busy_until)).len(), 1);
    // The first one got no answer in that time and is tried again, too.
    planner.next(now + FEWER_MS);
    planner.next(now + FEWER_MS + 1_000);
    assert_eq!(planner.streams(), 2);
}

#[test]
fn silence_closes_after_30_s_and_a_missing_head_after_45() {
    let (mut planner, s) = one(2 * CHUNK);
    assert!(!planner.next(44_999).contains(&Act::Close(s)));
    assert!(planner.next(45_000).contains(&Act::Close(s)));
    let (mut planner, s) = one(2 * CHUNK);
    planner.on(Ev::Head(s, partial(0, 2 * CHUNK - 1, 2 * CHUNK)), 1_000);
    planner.body(s, 1000, 2_000);
    assert_eq!(planner.wake(2_000), 32_000);
    assert!(!planner.next(31_999).contains(&Act::Close(s)));
    assert!(planner.next(32_000).contains(&Act::Close(s)));
}

#[test]
fn one_byte_a_second_is_closed_within_121_s_and_64_kib_a_second_never() {
    for (bytes, slow) in [(1, true), (8 * 1024 - 100, true), (64 * 1024, false)] {
        let (mut planner, s) = one(64 * MIB);
        planner.on(Ev::Head(s, partial(0, 64 * MIB - 1, 64 * MIB)), 0);
        let mut closed = None;
        for second in 1..900u64 {
            planner.body(s, bytes, second * 1000);
            if planner.next(second * 1000).contains(&Act::Close(s)) {
                closed = Some(second);
                break;
            }
        }
        assert_eq!(closed.is_some(), slow, "{bytes}");
        assert!(closed.is_none_or(|at| (120..=121).contains(&at)), "{closed:?}");
    }
}

#[test]
fn two_hours_of_64_kib_a_second_are_one_download() {
    let size = 7200 * 64 * 1024;
    let mut planner = Planner::new(&[want("a", size)], &[], 1, 1);
    let (mut asked, mut at, mut second) = (0, 0, 0);
    let mut open = None;
    loop {
        let acts = planner.next(second * 1000);
        if acts.contains(&Act::Seal(0)) {
            break;
        }
        assert_eq!(failed(&acts), None, "{second}");
        if let Some((s, _, Some((first, last)))) = opened(&acts).first().copied() {
            asked += 1;
            planner.on(Ev::Head(s, partial(first, last, size)), second * 1000);
            open = Some(s);
        }
        let pieces = planner.body(open.unwrap(), 64 * 1024, second * 1000);
        assert_eq!(pieces, [Piece::Write { file: 0, at, len: 64 * 1024 }]);
        at += 64 * 1024;
        if at % CHUNK == 0 || at == size {
            planner.on(
                Ev::ChunkOk { file: 0, chunk: usize::try_from((at - 1) / CHUNK).unwrap() },
                second * 1000,
            );
        }
        second += 1;
    }
    assert_eq!((asked, at, second), (8, size, 7200));
}

#[test]
fn a_good_stream_that_turns_into_a_trickle_is_seen_within_two_minutes() {
    let (mut planner, s) = one(2000 * MIB);
    planner.on(Ev::Head(s, partial(0, 64 * MIB - 1, 2000 * MIB)), 0);
    for second in 1..300u64 {
        planner.body(s, 64 * 1024, second * 1000);
        assert_eq!(planner.next(second * 1000), []);
    }
    let closed = (300..500u64).find(|second| {
        planner.body(s, 1, second * 1000);
        planner.next(second * 1000).contains(&Act::Close(s))
    });
    assert!(closed.is_some_and(|at| at <= 300 + 121), "{closed:?}");
}

#[test]
fn ten_minutes_without_news_end_the_attempt_and_say_why() {
    let ends: [(Ev, Reason); 3] = [
        (Ev::Ended(StreamId { slot: 0, nth: 0 }, End::Cut), Reason::Stalled(None)),
        (
            Ev::Ended(StreamId { slot: 0, nth: 0 }, End::Connect("refused".into())),
            Reason::Unreachable("refused".into()),
        ),
        (Ev::Head(StreamId { slot: 0, nth: 0 }, head(500)), Reason::Stalled(Some(500))),
    ];
    for (event, reason) in ends {
        let mut planner = Planner::new(&[want("a", 5)], &[], 1, 7);
        let mut now = 0;
        let mut asked = 0;
        let found = loop {
            let acts = planner.next(now);
            if let Some(reason) = failed(&acts) {
                break reason;
            }
            for (s, ..) in opened(&acts) {
                asked += 1;
                let event = match event.clone() {
                    Ev::Ended(_, why) => Ev::Ended(s, why),
                    Ev::Head(_, head) => Ev::Head(s, head),
                    other => other,
                };
                planner.on(event, now);
            }
            now = planner.wake(now);
        };
        assert_eq!(found, reason);
        assert!((QUIET_MS..QUIET_MS + 1000).contains(&now), "{now}");
        assert!(asked < 100, "{asked}");
    }
}

#[test]
fn a_slow_disk_is_no_fault_of_the_source() {
    let (mut planner, s) = one(2 * CHUNK);
    planner.on(Ev::Head(s, partial(0, 2 * CHUNK - 1, 2 * CHUNK)), 0);
    planner.on(Ev::Paused(700_000), 700_000);
    assert_eq!(planner.next(700_001), []);
    assert!(planner.next(731_000).contains(&Act::Close(s)));
}

#[test]
fn a_chunk_that_is_wrong_three_times_and_sixteen_wrong_chunks_are_the_sources_fault() {
    let mut planner = Planner::new(&[want("a", 1)], &[], 1, 1);
    for n in 1..=3 {
        let s = opened(&planner.next(0))[0].0;
        planner.on(Ev::Head(s, head(200)), 0);
        planner.body(s, 1, 0);
        planner.on(Ev::ChunkBad { file: 0, chunk: 0 }, 0);
        assert_eq!(planner.end.is_some(), n == 3);
    }
    assert_eq!(failed(&planner.next(0)), Some(Reason::Hash(0)));
    let wants: Vec<_> = (0..20).map(|n| want(&format!("f{n}"), 1)).collect();
    let mut planner = Planner::new(&wants, &[], 1, 1);
    let mut bad = 0;
    loop {
        let acts = planner.next(0);
        if failed(&acts).is_some() {
            break;
        }
        let (s, file, _) = opened(&acts)[0];
        planner.on(Ev::Head(s, head(200)), 0);
        planner.body(s, 1, 0);
        planner.on(Ev::ChunkBad { file, chunk: 0 }, 0);
        bad += 1;
    }
    assert!(bad == 3 || bad == 16, "{bad}");
}

#[test]
fn a_file_that_the_disk_lost_is_fetched_once_more_and_only_once() {
    let lost = || Reason::Io("sync".into());
    let (mut planner, s) = one(5);
    planner.on(Ev::Head(s, head(200)), 0);
    planner.body(s, 5, 0);
    planner.on(Ev::ChunkOk { file: 0, chunk: 0 }, 0);
    assert!(planner.next(0).contains(&Act::Seal(0)));
    planner.on(Ev::Lost(0, lost()), 0);
    assert_eq!(planner.done(), 0);
    assert_eq!(opened(&planner.next(0)).len(), 1);
    planner.on(Ev::Lost(0, lost()), 0);
    assert_eq!(failed(&planner.next(0)), Some(lost()));
}

#[test]
fn a_late_event_of_a_closed_request_changes_nothing() {
    let (mut planner, s) = one(100);
    planner.on(Ev::Ended(s, End::Cut), 0);
    planner.on(Ev::Head(s, head(404)), 0);
    planner.on(Ev::Ended(s, End::Tls("x".into())), 0);
    assert_eq!(planner.body(s, 10, 0), [Piece::Skip(10)]);
    assert_eq!(failed(&planner.next(1)), None);
}

// --- whole downloads ---

/// What a server does with one request.
#[derive(Debug, Clone)]
enum Server {
    Good,
    /// Good up to that many bytes, then the connection breaks.
    Cut(u64),
    /// Right head, wrong bytes.
    Wrong,
    Early(u64),
    Late(u64),
    OtherTotal,
    /// The whole file, with or without a length.
    Whole(bool),
    WholeOfOther,
    /// 206 for fewer bytes than asked.
    Less(u64),
    Endless,
    Status(u16, Option<u64>),
    Busy,
    Gzip,
    Html,
    NoConnection,
    Untrusted,
    /// Silent before the head, or after so many bytes.
    Silent(Option<u64>),
    Drip,
}

fn server() -> impl Strategy<Value = Server> {
    let n = 0..20 * MIB;
    prop_oneof![
        8 => Just(Server::Good),
        6 => n.clone().prop_map(Server::Cut),
        2 => Just(Server::Wrong),
        2 => n.clone().prop_map(Server::Early),
        1 => (1..CHUNK).prop_map(Server::Late),
        1 => Just(Server::OtherTotal),
        2 => any::<bool>().prop_map(Server::Whole),
        1 => Just(Server::WholeOfOther),
        2 => n.clone().prop_map(Server::Less),
        1 => Just(Server::Endless),
        3 => (
            prop_oneof![Just(416u16), Just(500), Just(502), Just(429), Just(404), Just(403), Just(204)],
            proptest::option::of(0..200u64),
        )
            .prop_map(|(status, after)| Server::Status(status, after)),
        2 => Just(Server::Busy),
        1 => Just(Server::Gzip),
        1 => Just(Server::Html),
        2 => Just(Server::NoConnection),
        1 => Just(Server::Untrusted),
        2 => proptest::option::of(n).prop_map(Server::Silent),
        1 => Just(Server::Drip),
    ]
}

/// A request as the world plays it.
struct Playing {
    s: StreamId,
    file: usize,
    asked: Option<(u64, u64)>,
    server: Server,
    head_sent: bool,
    /// Offset of the next byte of the body, and where it ends.
    at: u64,
    end: u64,
    sent: u64,
}

/// What the disk holds: the chunk that each stream writes.
#[derive(Default)]
struct Disk {
    running: HashMap<StreamId, (usize, usize, u64, bool)>,
}

struct World {
    sizes: Vec<u64>,
    planner: Planner,
    now: BootMs,
    right: Vec<Vec<bool>>,
    playing: Vec<Playing>,
    disk: Disk,
    opens: u32,
    ranges: bool,
    served: Vec<Server>,
}

impl World {
    fn act(&mut self, script: &mut std::vec::IntoIter<Server>, tail: &Server) -> Option<Result<(), Reason>> {
        for act in self.planner.next(self.now) {
            match act {
                Act::Open { s, file, range } => {
                    self.opens += 1;
                    let asked = range.unwrap_or((0, self.sizes[file] - 1));
                    assert!(asked.0 <= asked.1 && asked.1 < self.sizes[file]);
                    let chunks = asked.0 / CHUNK..=asked.1 / CHUNK;
                    if self.ranges {
                        assert!(chunks.clone().count() <= SPAN);
                        let asked_again =
                            chunks.clone().any(|chunk| self.right[file][usize::try_from(chunk).unwrap()]);
                        assert!(!asked_again, "a verified byte was asked for again");
                    }
                    let twice = self.playing.iter().any(|p| {
                        // What it has still to bring.
                        let (a, b) = p.asked.unwrap_or((0, self.sizes[p.file] - 1));
                        self.ranges && p.file == file && a.max(p.at) <= asked.1 && asked.0 <= b
                    });
                    assert!(!twice, "two requests for the same bytes");
                    let server = script.next().unwrap_or_else(|| tail.clone());
                    self.served.push(server.clone());
                    self.playing.push(Playing {
                        s,
                        file,
                        asked: range,
                        server,
                        head_sent: false,
                        at: asked.0,
                        end: asked.1 + 1,
                        sent: 0,
                    });
                }
                Act::Close(s) => self.playing.retain(|p| p.s != s),
                Act::Seal(file) => {
                    assert!(self.right[file].iter().all(|right| *right), "sealed, and not right");
                    self.planner.on(Ev::Sealed(file), self.now);
                }
                Act::Done => return Some(Ok(())),
                Act::Fail(reason) => return Some(Err(reason)),
            }
        }
        None
    }

    /// Plays one step of request `n`. `false`: it waits for time to pass.
    fn play(&mut self, n: usize, piece: usize) -> bool {
        let Playing { s, file, asked, server, head_sent, at, end, sent } = &mut self.playing[n];
        let (s, size) = (*s, self.sizes[*file]);
        if !*head_sent {
            *head_sent = true;
            let good = match asked {
                Some((first, last)) => partial(*first, *last, size),
                None => Head { len: Some(size), ..head(200) },
            };
            let head = match server {
                Server::NoConnection | Server::Untrusted => {
                    let why = match server {
                        Server::Untrusted => End::Tls("unknown issuer".into()),
                        _ => End::Connect("refused".into()),
                    };
                    self.planner.on(Ev::Ended(s, why), self.now);
                    self.playing.retain(|p| p.s != s);
                    return true;
                }
                Server::Silent(None) => {
                    *head_sent = false;
                    return false;
                }
                Server::Early(n) if asked.is_some() => {
                    *at = at.saturating_sub(*n);
                    partial(*at, *end - 1, size)
                }
                Server::Late(n) if asked.is_some() => partial((*at + *n).min(*end - 1), *end - 1, size),
                Server::OtherTotal if asked.is_some() => partial(*at, *end - 1, size + 1),
                Server::Less(n) if asked.is_some() => {
                    *end = (*at + *n + 1).min(*end);
                    partial(*at, *end - 1, size)
                }
                Server::Whole(len) => {
                    (*at, *end) = (0, size);
                    self.ranges = false;
                    Head { len: len.then_some(size), ..head(200) }
                }
                Server::WholeOfOther => Head { len: Some(size + 1), ..head(200) },
                Server::Status(status, retry_after) => Head { retry_after: *retry_after, ..head(*status) },
                Server::Busy => Head { busy: true, ..head(503) },
                Server::Gzip => Head { encoded: true, ..good },
                Server::Html => Head { html: true, ..head(200) },
                Server::Endless => {
                    *end = u64::MAX;
                    good
                }
                _ => good,
            };
            self.planner.on(Ev::Head(s, head), self.now);
            return true;
        }
        let mut len = (*end - *at).min(piece as u64);
        match server {
            Server::Cut(n) => len = len.min(*n - *sent),
            Server::Silent(Some(n)) => {
                len = len.min(*n - *sent);
                if len == 0 {
                    return false;
                }
            }
            Server::Drip => {
                len = len.min(1);
                self.now += 1000;
            }
            _ => {}
        }
        if len == 0 {
            let why = if matches!(server, Server::Cut(_)) { End::Cut } else { End::Eof };
            self.planner.on(Ev::Ended(s, why), self.now);
            self.playing.retain(|p| p.s != s);
            return true;
        }
        let good = !matches!(server, Server::Wrong);
        *at += len;
        *sent += len;
        let pieces = self.planner.body(s, usize::try_from(len).unwrap(), self.now);
        let sum: usize = pieces
            .iter()
            .map(|piece| match piece {
                Piece::Skip(len) | Piece::Write { len, .. } => *len,
            })
            .sum();
        assert_eq!(sum as u64, len, "every byte is accounted for");
        for piece in pieces {
            if let Piece::Write { file, at, len } = piece {
                self.write(s, file, at, len as u64, good);
            }
        }
        true
    }

    fn write(&mut self, s: StreamId, file: usize, at: u64, len: u64, good: bool) {
        let chunk = usize::try_from(at / CHUNK).unwrap();
        let end = ((chunk as u64 + 1) * CHUNK).min(self.sizes[file]);
        assert!(at + len <= end, "a piece crosses a chunk");
        assert!(!self.right[file][chunk], "a verified chunk is written to");
        let running = self.disk.running.entry(s).or_insert((file, chunk, at, true));
        if at == chunk as u64 * CHUNK {
            *running = (file, chunk, at, true);
        }
        assert_eq!((running.0, running.1, running.2), (file, chunk, at), "a gap");
        running.2 += len;
        running.3 &= good;
        if running.2 == end {
            let event = if running.3 { Ev::ChunkOk { file, chunk } } else { Ev::ChunkBad { file, chunk } };
            self.right[file][chunk] = running.3;
            self.planner.on(event, self.now);
        }
    }
}

fn download(
    sizes: Vec<u64>,
    have: Vec<Vec<bool>>,
    script: Vec<Server>,
    tail: Server,
    streams: usize,
    mut random: u64,
) {
    let wants: Vec<FileEntry> =
        sizes.iter().enumerate().map(|(n, size)| want(&format!("f{n}"), *size)).collect();
    let chunks = |size: &u64| usize::try_from(size.div_ceil(CHUNK)).unwrap();
    let right: Vec<Vec<bool>> = sizes
        .iter()
        .enumerate()
        .map(|(n, size)| {
            (0..chunks(size)).map(|c| have.get(n).and_then(|h| h.get(c)) == Some(&true)).collect()
        })
        .collect();
    let planner = Planner::new(&wants, &right, streams, random);
    let mut world = World {
        sizes,
        planner,
        now: 0,
        right,
        playing: Vec::new(),
        disk: Disk::default(),
        opens: 0,
        ranges: true,
        served: Vec::new(),
    };
    let mut script = script.into_iter();
    let mut done = world.planner.done();
    let end = loop {
        if let Some(end) = world.act(&mut script, &tail) {
            break end;
        }
        assert!(world.planner.streams() <= streams);
        assert!(world.planner.done() >= done, "done falls");
        done = world.planner.done();
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let count = world.playing.len();
        let piece = usize::try_from(random >> 41).unwrap() + 1;
        let first = usize::try_from(random >> 33).unwrap();
        let moved = (0..count).any(|n| world.play((first + n) % count, piece));
        if !moved {
            let wake = world.planner.wake(world.now);
            assert!(wake > world.now);
            world.now = wake;
        } else {
            world.now += 3;
        }
        if world.now >= 40 * QUIET_MS {
            // A source that is busy for ever is waited for, for ever: that is no failure.
            assert!(matches!(tail, Server::Busy), "it never ends");
            return;
        }
    };
    let had = |wanted: fn(&Server) -> bool| world.served.iter().any(wanted);
    match end {
        Ok(()) => {
            assert!(world.right.iter().flatten().all(|right| *right), "done, and not right");
            assert_eq!(world.planner.done(), world.planner.total());
        }
        Err(Reason::Hash(_)) => assert!(had(|s| matches!(s, Server::Wrong))),
        Err(Reason::Tls(_)) => assert!(had(|s| matches!(s, Server::Untrusted))),
        Err(Reason::Status { status, .. }) => {
            assert!(world.served.iter().any(|s| matches!(s, Server::Status(it, _) if *it == status)));
        }
        Err(Reason::NotARelease(_) | Reason::Stalled(_) | Reason::Unreachable(_)) => {
            assert!(!matches!(tail, Server::Good) || world.served.len() >= 5);
        }
        Err(other) => panic!("{other:?}"),
    }
    assert!(world.opens < 1000, "{} requests", world.opens);
}

proptest! {
    #![proptest_config(crate::test_support::config())]

    #[test]
    fn any_script_of_answers_leads_to_the_right_bytes_or_a_named_fault(
        sizes in prop::collection::vec(prop_oneof![1..CHUNK, 1..30 * CHUNK, (1u64..5).prop_map(|n| n * CHUNK)], 1..5),
        have in prop::collection::vec(prop::collection::vec(any::<bool>(), 0..30), 0..5),
        script in prop::collection::vec(server(), 0..30),
        tail in prop_oneof![4 => Just(Server::Good), 3 => server()],
        streams in 1usize..5,
        random in any::<u64>(),
    ) {
        download(sizes, have, script, tail, streams, random);
    }
}
