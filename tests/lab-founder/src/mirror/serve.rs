//! One connection after the other, one request after the other: the honest answer, or the one that a fault makes of it.

use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::fault::MirrorFault;
use super::{Seen, Shared};
use crate::founder::lock;

/// Largest request head.
const HEAD: usize = 16 * 1024;
/// Sent at once.
const PIECE: usize = 256 * 1024;
/// A web page, as portals and proxies give it.
const PAGE: &str = "<!doctype html><html><head><title>Sign in</title></head><body>Welcome to the guest network. Please sign in.</body></html>";

type Stream = TlsStream<TcpStream>;

/// A request's head.
struct Asked {
    method: String,
    path: String,
    range: Option<(u64, Option<u64>)>,
    headers: Vec<String>,
}

/// What is answered.
struct Plan {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Body,
    /// Written as `Content-Length`; `None` leaves it out.
    length: Option<u64>,
    /// Where the body breaks off, and how.
    end: End,
    drip: bool,
    /// The connection takes no further request.
    last: bool,
}

enum Body {
    Text(String),
    /// Of this file: the first byte, how many, from where on every byte is wrong, and which single one is.
    File {
        file: File,
        first: u64,
        len: u64,
        wrong_from: u64,
        wrong: Option<u64>,
    },
    Endless,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Good,
    /// Close after so many bytes.
    Close(u64),
    /// Close without a TLS end.
    Cut(u64),
    Reset(u64),
    Silence(u64),
}

pub(super) async fn listen(listener: TcpListener, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    *lock(&shared.connections) += 1;
                    let _ = stream.set_nodelay(true);
                    tasks.spawn(connection(stream, acceptor.clone(), Arc::clone(&shared)));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            },
            Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
        }
    }
}

async fn connection(stream: TcpStream, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    let Ok(Ok(mut stream)) = tokio::time::timeout(Duration::from_secs(10), acceptor.accept(stream)).await
    else {
        return;
    };
    let client_certificate = stream.get_ref().1.peer_certificates().is_some();
    while let Ok(Some(asked)) = read_head(&mut stream).await {
        let plan = plan(&shared, &asked);
        let mut seen = Seen {
            path: asked.path,
            range: asked.range,
            status: plan.as_ref().map_or(0, |plan| plan.status),
            sent: 0,
            headers: asked.headers,
            client_certificate,
        };
        // Noted as it begins, so that a client that goes away early is seen, too.
        let at = {
            let mut all = lock(&shared.seen);
            all.push(seen.clone());
            all.len() - 1
        };
        let Some(plan) = plan else { return std::future::pending().await };
        let done = send(&mut stream, &plan, shared.bytes_per_second, &mut |sent| {
            seen.sent = sent;
            lock(&shared.seen)[at].sent = sent;
        })
        .await;
        if done.is_err() || plan.last {
            return;
        }
    }
}

async fn read_head(stream: &mut Stream) -> io::Result<Option<Asked>> {
    let mut head = Vec::new();
    let mut byte = [0; 1];
    // A byte at a time: what follows is the next request. The stream buffers.
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).await? == 0 || head.len() > HEAD {
            return Ok(None);
        }
        head.push(byte[0]);
    }
    let text = String::from_utf8_lossy(&head);
    let mut lines = text.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut asked = Asked {
        method: method.to_owned(),
        path: path.trim_start_matches('/').to_owned(),
        range: None,
        headers: Vec::new(),
    };
    for line in lines {
        let Some((name, value)) = line.split_once(':') else { continue };
        let name = name.to_ascii_lowercase();
        if name == "range" {
            asked.range = parse_range(value.trim());
        }
        asked.headers.push(name);
    }
    Ok(Some(asked))
}

/// `bytes=a-b` or `bytes=a-`. More than one range is answered with the whole file.
pub(crate) fn parse_range(text: &str) -> Option<(u64, Option<u64>)> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let first = first.parse().ok()?;
    match last {
        "" => Some((first, None)),
        last => last.parse().ok().filter(|last| *last >= first).map(|last| (first, Some(last))),
    }
}

/// A file below `dir`, by a path without tricks; nothing that a link leads to.
pub(crate) fn open(dir: &Path, path: &str) -> Option<(File, u64)> {
    let good = |segment: &str| {
        !segment.is_empty()
            && !matches!(segment, "." | "..")
            && segment.bytes().all(|b| b.is_ascii_alphanumeric() || b"._+~-".contains(&b))
    };
    if path.len() > 512 || !path.split('/').all(good) {
        return None;
    }
    let mut at = dir.to_owned();
    for segment in path.split('/') {
        at.push(segment);
        if std::fs::symlink_metadata(&at).ok()?.is_symlink() {
            return None;
        }
    }
    let file = File::open(at).ok()?;
    let meta = file.metadata().ok()?;
    meta.is_file().then_some((file, meta.len()))
}

fn take_fault(shared: &Shared, path: &str) -> Option<MirrorFault> {
    let mut faults = lock(&shared.faults);
    let found = faults.iter_mut().find(|f| path.contains(&f.at) && f.times != Some(0))?;
    if let Some(times) = &mut found.times {
        *times -= 1;
    }
    Some(found.what.clone())
}

fn text(status: u16, kind: &str, body: String) -> Plan {
    let length = Some(body.len() as u64);
    let headers = vec![("content-type", kind.to_owned())];
    Plan { status, headers, body: Body::Text(body), length, end: End::Good, drip: false, last: false }
}

/// `None`: nothing is said.
fn plan(shared: &Shared, asked: &Asked) -> Option<Plan> {
    let problem = |status: u16, code: &str| {
        let body = serde_json::json!({ "title": "no", "status": status, "code": code });
        text(status, "application/problem+json", body.to_string())
    };
    if asked.method != "GET" {
        return Some(problem(405, "METHOD_NOT_ALLOWED"));
    }
    let fault = take_fault(shared, &asked.path);
    match &fault {
        Some(MirrorFault::Silent) => return None,
        Some(MirrorFault::Html) => return Some(text(200, "text/html", PAGE.to_owned())),
        Some(MirrorFault::Empty) => return Some(text(200, "application/octet-stream", String::new())),
        Some(MirrorFault::NotSatisfiable) => {
            let mut plan = text(416, "text/html", PAGE.to_owned());
            plan.headers.push(("content-range", "bytes */0".to_owned()));
            return Some(plan);
        }
        Some(MirrorFault::Redirect(to)) => {
            let mut plan = text(302, "text/html", PAGE.to_owned());
            plan.headers.push(("location", to.replace("{path}", &asked.path)));
            return Some(plan);
        }
        Some(MirrorFault::RedirectLoop) => {
            let mut plan = text(302, "text/html", PAGE.to_owned());
            plan.headers.push(("location", format!("/{}", asked.path)));
            return Some(plan);
        }
        Some(MirrorFault::Status(status)) => return Some(problem(*status, "LAB")),
        Some(MirrorFault::Busy(after)) => {
            let mut plan = problem(503, "RELEASE_BUSY");
            plan.headers.extend(after.map(|secs| ("retry-after", secs.to_string())));
            return Some(plan);
        }
        Some(MirrorFault::Later(secs)) => {
            let mut plan = problem(503, "UNAVAILABLE");
            plan.headers.push(("retry-after", secs.to_string()));
            return Some(plan);
        }
        _ => {}
    }
    let Some((file, size)) = open(&shared.dir, &asked.path) else {
        return Some(text(404, "text/html", PAGE.to_owned()));
    };
    let mut plan = file_plan(file, size, asked, fault.as_ref());
    // As behind a balancer whose servers do not agree: another one for each connection.
    plan.headers.push(("etag", format!("\"{size:x}-{}\"", lock(&shared.connections))));
    Some(plan)
}

fn file_plan(file: File, real: u64, asked: &Asked, fault: Option<&MirrorFault>) -> Plan {
    let size = match fault {
        Some(MirrorFault::ShortFile(n)) => real.saturating_sub(*n),
        Some(MirrorFault::LongFile(n)) => real + n,
        _ => real,
    };
    let no_range = matches!(fault, Some(MirrorFault::NoRange | MirrorFault::NoRangeButHeader));
    let range = asked.range.filter(|_| !no_range);
    let (mut first, mut last) = range.map_or((0, size.saturating_sub(1)), |(first, last)| {
        (first, last.unwrap_or(u64::MAX).min(size.saturating_sub(1)))
    });
    if range.is_some() && first >= size {
        let mut plan = text(416, "text/html", PAGE.to_owned());
        plan.headers.push(("content-range", format!("bytes */{size}")));
        return plan;
    }
    let (mut total, mut from) = (size, None);
    match fault {
        Some(MirrorFault::Early(n)) => first = first.saturating_sub(*n),
        Some(MirrorFault::Late(n)) => first = (first + n).min(last),
        Some(MirrorFault::WrongTotal(n)) => total += n,
        Some(MirrorFault::Less(n)) => last = last.min(first + n - 1),
        Some(MirrorFault::Shifted(n)) => from = Some(first + n),
        _ => {}
    }
    let len = if size == 0 { 0 } else { last + 1 - first };
    let mut plan = Plan {
        status: if range.is_some() { 206 } else { 200 },
        headers: vec![("content-type", "application/octet-stream".to_owned())],
        body: Body::File {
            file,
            first: from.unwrap_or(first),
            len,
            wrong_from: match fault {
                Some(MirrorFault::OtherContent) => 0,
                Some(MirrorFault::Changed(at)) => *at,
                _ => u64::MAX,
            },
            wrong: match fault {
                Some(MirrorFault::WrongByte(at)) => Some(*at),
                _ => None,
            },
        },
        length: Some(len),
        end: End::Good,
        drip: matches!(fault, Some(MirrorFault::Drip)),
        last: false,
    };
    if (range.is_some() && !matches!(fault, Some(MirrorFault::NoContentRange)))
        || matches!(fault, Some(MirrorFault::NoRangeButHeader))
    {
        let (first, last) = match (fault, asked.range) {
            (Some(MirrorFault::NoRangeButHeader), Some((first, last))) => (first, last.unwrap_or(size - 1)),
            _ => (first, last),
        };
        plan.headers.push(("content-range", format!("bytes {first}-{last}/{total}")));
    }
    match fault {
        Some(MirrorFault::Multipart) => {
            plan.headers[0].1 = "multipart/byteranges; boundary=x".to_owned();
        }
        Some(MirrorFault::Gzip) => plan.headers.push(("content-encoding", "gzip".to_owned())),
        Some(MirrorFault::Truncate(n)) => plan.end = End::Close(len.saturating_sub(*n)),
        Some(MirrorFault::Longer(n)) => {
            if let Body::File { len, .. } = &mut plan.body {
                *len += n;
            }
            plan.last = true;
        }
        Some(MirrorFault::Endless) => {
            plan.body = Body::Endless;
            plan.length = None;
        }
        Some(MirrorFault::Stall(n)) => plan.end = End::Silence(*n),
        Some(MirrorFault::Reset(n)) => plan.end = End::Reset(*n),
        Some(MirrorFault::Cut(n)) => plan.end = End::Cut(*n),
        _ => {}
    }
    plan
}

async fn send(
    stream: &mut Stream,
    plan: &Plan,
    bytes_per_second: u64,
    told: &mut impl FnMut(u64),
) -> io::Result<()> {
    let mut head = format!("HTTP/1.1 {} Lab\r\n", plan.status);
    for (name, value) in &plan.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    match plan.length {
        Some(length) => head.push_str(&format!("content-length: {length}\r\n\r\n")),
        None => head.push_str("connection: close\r\n\r\n"),
    }
    stream.write_all(head.as_bytes()).await?;
    let stop_at = match plan.end {
        End::Good => u64::MAX,
        End::Close(n) | End::Cut(n) | End::Reset(n) | End::Silence(n) => n,
    };
    let mut buffer = vec![0; PIECE];
    let mut sent = 0;
    let began = tokio::time::Instant::now();
    loop {
        let most = usize::try_from(stop_at - sent).map_or(PIECE, |left| left.min(PIECE));
        let most = if plan.drip { most.min(1) } else { most };
        let len = plan.body.read(sent, &mut buffer[..most])?;
        if len == 0 {
            break;
        }
        stream.write_all(&buffer[..len]).await?;
        sent += len as u64;
        told(sent);
        if plan.drip {
            stream.flush().await?;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        if let Some(micros) = sent.saturating_mul(1_000_000).checked_div(bytes_per_second) {
            let due = began + Duration::from_micros(micros);
            stream.flush().await?;
            tokio::time::sleep_until(due).await;
        }
    }
    stream.flush().await?;
    let over = || Err(io::Error::from(io::ErrorKind::ConnectionAborted));
    match plan.end {
        End::Good if plan.length.is_some() => Ok(()),
        End::Good | End::Close(_) => {
            stream.shutdown().await?;
            over()
        }
        End::Cut(_) => over(),
        End::Reset(_) => {
            // The next close is a reset.
            let _ = stream.get_ref().0.set_zero_linger();
            over()
        }
        End::Silence(_) => std::future::pending().await,
    }
}

// === impl Body ===

impl Body {
    /// The bytes from `at` of the body on.
    fn read(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Body::Text(text) => {
                let rest =
                    text.as_bytes().get(usize::try_from(at).unwrap_or(usize::MAX)..).unwrap_or_default();
                let len = rest.len().min(buffer.len());
                buffer[..len].copy_from_slice(&rest[..len]);
                Ok(len)
            }
            Body::Endless => {
                buffer.fill(b'x');
                Ok(buffer.len())
            }
            Body::File { file, first, len, wrong_from, wrong } => {
                let most = usize::try_from(len - at).map_or(buffer.len(), |left| left.min(buffer.len()));
                let buffer = &mut buffer[..most];
                let offset = first + at;
                let mut read = 0;
                while read < buffer.len() {
                    match file.read_at(&mut buffer[read..], offset + read as u64)? {
                        0 => break,
                        n => read += n,
                    }
                }
                // A longer file than there is ends in dots.
                buffer[read..].fill(b'.');
                let end = offset + buffer.len() as u64;
                if *wrong_from < end || wrong.is_some_and(|wrong| wrong >= offset && wrong < end) {
                    for (n, byte) in buffer.iter_mut().enumerate() {
                        let at = offset + n as u64;
                        if at >= *wrong_from || Some(at) == *wrong {
                            *byte ^= 0x20;
                        }
                    }
                }
                Ok(buffer.len())
            }
        }
    }
}
