//! Where the files of a release come from: a mirror, or the founder itself. Both answer the same request, so that everything behind this does not
//! know the difference.
//!
//! Touches the network. Only `GET`; no cookie, no referrer, no decoding, no cache. A body is given out only with what its head says of it; the body
//! of a refusal is never shown, logged or written.

mod address;
mod founder;
mod mirror;
mod range;
mod words;

use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HeaderMap, RETRY_AFTER,
};
use tokio::time::{Instant, sleep, timeout, timeout_at};

pub use self::address::check_url;
pub use self::founder::FounderSource;
pub use self::mirror::{FounderTime, Mirror, MirrorSettings};
pub use self::range::{BadRange, ContentRange};
pub(super) use self::words::{Who, fault};
use super::fault::UpgradeFault;
use super::manifest::MANIFEST;
use super::plan::{End, Head, Reason};
use super::search::{Answer, Get, Next, Search};
use super::verify::{Check, Kind, Verified};
use crate::protocol::wire::Problem;

/// Connecting, TLS included.
const CONNECT: Duration = Duration::from_secs(15);
/// The head of an answer to a small request, connecting included; and between two pieces of its body.
const SMALL_HEAD: Duration = Duration::from_secs(45);
const SMALL_SILENCE: Duration = Duration::from_secs(30);
/// All of a small body.
const SMALL_WHOLE: Duration = Duration::from_secs(120);
/// Tries of a small request that fails for a reason that may pass, and how long between them.
const SMALL_TRIES: u32 = 4;
const SMALL_WAIT: Duration = Duration::from_millis(700);
/// Times that a busy source is asked again for a small file, each after 5 s or what it says.
const SMALL_BUSY: u32 = 100;
/// A problem is read up to this.
const MAX_PROBLEM: usize = 16 * 1024;

/// One source of one release.
#[derive(Debug)]
pub enum Source {
    /// A mirror, by WebPKI.
    Mirror(Mirror),
    /// The founder, over the pinned channel.
    Founder(FounderSource),
}

/// An answer whose body can be read.
#[derive(Debug)]
pub struct Reply {
    /// What its head says.
    pub head: Head,
    response: reqwest::Response,
}

/// A small file, whole: the manifest, a signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Small {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// It came as `text/html`.
    pub html: bool,
}

// === impl Source ===

impl Source {
    /// How many requests at once.
    pub fn streams(&self) -> usize {
        match self {
            Source::Mirror(_) => 4,
            // "A few files at once" (documented), and others want some, too.
            Source::Founder(_) => 2,
        }
    }

    /// Who it is, for a person.
    pub fn host(&self) -> &str {
        match self {
            Source::Mirror(mirror) => mirror.host(),
            Source::Founder(founder) => founder.host(),
        }
    }

    /// Where a file is, for a person.
    pub fn url(&self, path: &str) -> String {
        match self {
            Source::Mirror(mirror) => mirror.url(path),
            Source::Founder(founder) => founder.url(path),
        }
    }

    /// Whom to name in a sentence.
    pub(super) fn who(&self) -> Who {
        Who {
            host: self.host().to_owned(),
            founder: matches!(self, Source::Founder(_)),
            manifest: self.url(MANIFEST),
        }
    }

    /// Finds the release, and checks its manifest and its signatures: the small requests before any blob.
    pub async fn release(&self, mut check: Check) -> Result<Verified, UpgradeFault> {
        check.host = self.host().to_owned();
        check.url = self.url("").trim_end_matches('/').to_owned();
        let mut search = Search::new(check);
        loop {
            match search.next() {
                Next::Verdict(verdict) => return Ok((*verdict)?),
                Next::Get(Get { path, most, fresh }) => {
                    search.answer(match self.small(&path, most, fresh).await? {
                        Some(Small { bytes, html }) => {
                            Answer::Body(bytes, if html { Kind::Html } else { Kind::File })
                        }
                        None => Answer::Absent,
                    });
                }
            }
        }
    }

    /// Asks for a file of the release, or for its bytes from the first to the last named. `path` is of the form of
    /// [`super::RelPath`]. `fresh` asks caches in between to look again. `Ok` is any answer but a redirect.
    pub async fn open(&self, path: &str, range: Option<(u64, u64)>, fresh: bool) -> Result<Reply, End> {
        let response = match self {
            Source::Mirror(mirror) => mirror.get(path, range, fresh).await?,
            Source::Founder(founder) => founder.get(path, range).await?,
        };
        let mut head = head_of(response.status().as_u16(), response.headers());
        let mut answer = Reply { head: Head::default(), response };
        if head.status == 503 {
            head.busy = answer.is_busy().await;
        }
        answer.head = head;
        Ok(answer)
    }

    /// Fetches a small file whole; of one that is longer than `cap`, a byte more than that. `None`: the source has none of that name.
    /// What may pass is tried a few times, within seconds; a busy source is waited for.
    pub async fn small(&self, path: &str, cap: usize, fresh: bool) -> Result<Option<Small>, UpgradeFault> {
        let (mut tries, mut busy) = (0, 0);
        loop {
            let (reason, wait) = match self.small_once(path, cap, fresh).await {
                Ok(found) => return Ok(found),
                Err(SmallError::Final(fault)) => return Err(fault),
                Err(SmallError::Busy(secs)) if busy < SMALL_BUSY => {
                    busy += 1;
                    sleep(Duration::from_secs(secs.unwrap_or(5).clamp(1, 120))).await;
                    continue;
                }
                Err(SmallError::Busy(_)) => (Reason::Stalled(Some(503)), SMALL_WAIT),
                Err(SmallError::Again(reason, wait)) => (reason, wait),
            };
            tries += 1;
            if tries >= SMALL_TRIES {
                return Err(self.small_fault(path, &reason));
            }
            sleep(wait * tries).await;
        }
    }

    async fn small_once(&self, path: &str, cap: usize, fresh: bool) -> Result<Option<Small>, SmallError> {
        let again = |reason| SmallError::Again(reason, SMALL_WAIT);
        let silent = |what: &str| again(Reason::Unreachable(what.to_owned()));
        let opened = timeout(SMALL_HEAD, self.open(path, None, fresh)).await;
        let opened = opened.map_err(|_| silent("it takes the connection but gives no answer"))?;
        let mut answer = opened.map_err(|end| match end {
            End::Connect(why) => again(Reason::Unreachable(why)),
            End::Eof | End::Cut => silent("the connection breaks off"),
            End::Tls(why) => self.small_final(path, &Reason::Tls(why)),
            End::Certificate(why) => self.small_final(path, &Reason::Certificate(why)),
            End::Clock(date) => self.small_final(path, &Reason::Clock(date)),
            End::Refused(rule) => self.small_final(path, &Reason::Refused(rule)),
        })?;
        let head = answer.head.clone();
        match head.status {
            200 => {}
            404 | 410 => return Ok(None),
            503 if head.busy => return Err(SmallError::Busy(head.retry_after)),
            // Proxies and portals that want a person first.
            401 | 403 | 407 | 511 => {
                return Err(SmallError::Final(words::not_a_release(self.host(), &self.url(path))));
            }
            408 | 425 | 429 | 500..=599 => {
                let wait = head.retry_after.map_or(SMALL_WAIT, |secs| Duration::from_secs(secs.clamp(1, 10)));
                return Err(SmallError::Again(Reason::Status { file: 0, status: head.status }, wait));
            }
            status => return Err(self.small_final(path, &Reason::Status { file: 0, status })),
        }
        if head.encoded {
            return Err(SmallError::Final(words::not_a_release(self.host(), &self.url(path))));
        }
        let whole = Instant::now() + SMALL_WHOLE;
        let mut bytes = Vec::new();
        loop {
            let piece = timeout_at(whole, timeout(SMALL_SILENCE, answer.chunk())).await;
            let piece =
                piece.ok().and_then(Result::ok).ok_or_else(|| silent("the answer comes too slowly"))?;
            match piece {
                Ok(Some(piece)) => {
                    bytes.extend_from_slice(&piece);
                    if bytes.len() > cap {
                        bytes.truncate(cap + 1);
                        return Ok(Some(Small { bytes, html: head.html }));
                    }
                }
                Ok(None) => return Ok(Some(Small { bytes, html: head.html })),
                Err(_) => return Err(silent("the connection breaks off")),
            }
        }
    }

    fn small_final(&self, path: &str, reason: &Reason) -> SmallError {
        SmallError::Final(self.small_fault(path, reason))
    }

    fn small_fault(&self, path: &str, reason: &Reason) -> UpgradeFault {
        fault(&self.who(), reason, |_| path.to_owned(), 0, 0)
    }
}

/// Why a small file did not come.
enum SmallError {
    Final(UpgradeFault),
    Again(Reason, Duration),
    Busy(Option<u64>),
}

// === impl Reply ===

impl Reply {
    /// The next piece of the body; `None` at its end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, End> {
        self.response.chunk().await.map_err(|_| End::Cut)
    }

    /// Whether a refusal says `RELEASE_BUSY`.
    async fn is_busy(&mut self) -> bool {
        let mut body = Vec::new();
        while let Ok(Ok(Some(piece))) = timeout(CONNECT, self.chunk()).await {
            if body.len() + piece.len() > MAX_PROBLEM {
                return false;
            }
            body.extend_from_slice(&piece);
        }
        serde_json::from_slice::<Problem>(&body).is_ok_and(|problem| problem.code.as_str() == "RELEASE_BUSY")
    }
}

fn head_of(status: u16, headers: &HeaderMap) -> Head {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let kind = text(CONTENT_TYPE).unwrap_or_default().to_ascii_lowercase();
    Head {
        status,
        range: text(CONTENT_RANGE).and_then(|text| text.parse().ok()),
        len: text(CONTENT_LENGTH).and_then(|text| text.parse().ok()),
        encoded: headers
            .get_all(CONTENT_ENCODING)
            .iter()
            .any(|value| !value.to_str().is_ok_and(|text| text.trim().eq_ignore_ascii_case("identity"))),
        html: kind.starts_with("text/html"),
        multipart: kind.starts_with("multipart/"),
        retry_after: text(RETRY_AFTER).and_then(|text| text.parse().ok()),
        busy: false,
    }
}

/// `bytes=a-b`
fn range_header(range: (u64, u64)) -> String {
    format!("bytes={}-{}", range.0, range.1)
}
