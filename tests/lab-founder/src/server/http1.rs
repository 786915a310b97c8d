//! From hyper's requests to the core's and back. Touches the body of a request within its bound.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{AUTHORIZATION, HeaderValue, IF_RANGE, RANGE};
use tokio::time::{Instant, Sleep};

use crate::founder::Founder;
use crate::http::{FileBody, Request, Response, refuse};

/// A request body must be there within this.
const BODY_TIME: Duration = Duration::from_secs(15);

/// What hyper sends.
pub(super) type Answer = Result<hyper::Response<Payload>, Infallible>;

/// What is sent as a body.
pub(super) enum Payload {
    Bytes(Full<Bytes>),
    File(Paced),
}

/// A part of a file that leaves no faster than it may.
pub(super) struct Paced {
    body: FileBody,
    due: Option<Pin<Box<Sleep>>>,
}

// === impl Paced ===

impl Paced {
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<Bytes>> {
        if let Some(due) = &mut self.due {
            ready!(due.as_mut().poll(cx));
        }
        let piece = self.body.read()?;
        let micros = (piece.len() as u64).saturating_mul(1_000_000).checked_div(self.body.rate());
        self.due = micros.map(|micros| {
            // From when the last piece was due, so that what the wait took too long is made up for.
            let before = self.due.as_ref().map_or_else(Instant::now, |due| due.deadline());
            Box::pin(tokio::time::sleep_until(before + Duration::from_micros(micros)))
        });
        Poll::Ready(Ok(Bytes::from(piece)))
    }
}

/// Reads a request, or gives the answer to one that is too large or too slow.
pub(super) async fn read(
    core: &Founder,
    request: hyper::Request<Incoming>,
    cap: usize,
) -> Result<Request, Response> {
    let (head, body) = request.into_parts();
    let header = |name: &str| head.headers.get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
    let bearer = head.headers.get(AUTHORIZATION).and_then(|v| v.to_str().ok());
    let bearer = bearer.and_then(|v| v.strip_prefix("Bearer ")).map(str::to_owned);
    let path = head.uri.path().to_owned();
    let too_large = || {
        core.problem(match path.as_str() {
            p if p.starts_with("/v1/join/registrations") && !p.ends_with("/log") => {
                refuse::inventory_too_large()
            }
            _ => refuse::too_large(),
        })
    };
    if body.size_hint().lower() > u64::try_from(cap).unwrap_or(u64::MAX) {
        return Err(too_large());
    }
    let body = match tokio::time::timeout(BODY_TIME, Limited::new(body, cap).collect()).await {
        Ok(Ok(body)) => body.to_bytes().to_vec(),
        Ok(Err(_)) => return Err(too_large()),
        Err(_) => return Err(core.problem(refuse::unavailable().detail("the request body took over 15 s"))),
    };
    Ok(Request {
        method: head.method.as_str().to_owned(),
        query: head.uri.query().map(str::to_owned),
        pad: header("x-stratum-pad"),
        range: head.headers.get(RANGE).and_then(|v| v.to_str().ok()).map(str::to_owned),
        if_range: head.headers.get(IF_RANGE).and_then(|v| v.to_str().ok()).map(str::to_owned),
        bearer,
        path,
        body,
    })
}

/// The core's answer for hyper.
pub(super) fn write(response: Response) -> hyper::Response<Payload> {
    let mut out = hyper::Response::new(match response.file {
        Some(body) => Payload::File(Paced { body, due: None }),
        None => Payload::Bytes(Full::new(Bytes::from(response.body))),
    });
    *out.status_mut() =
        hyper::StatusCode::from_u16(response.status).unwrap_or(hyper::StatusCode::BAD_GATEWAY);
    for (name, value) in response.headers {
        if let Ok(value) = HeaderValue::from_str(&value) {
            out.headers_mut().insert(name, value);
        }
    }
    out
}

impl Body for Payload {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        match self.get_mut() {
            Payload::Bytes(bytes) => Pin::new(bytes)
                .poll_frame(cx)
                .map(|frame| frame.map(|frame| frame.map_err(|never| match never {}))),
            Payload::File(file) if file.body.left() == 0 => Poll::Ready(None),
            Payload::File(file) => file.poll_piece(cx).map(|piece| Some(piece.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Payload::Bytes(bytes) => bytes.is_end_stream(),
            Payload::File(file) => file.body.left() == 0,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Payload::Bytes(bytes) => bytes.size_hint(),
            Payload::File(file) => SizeHint::with_exact(file.body.left()),
        }
    }
}

/// The same as bytes, for faults that send it their own way.
pub(super) fn render(response: &Response) -> Vec<u8> {
    let mut out = format!("HTTP/1.1 {} Lab\r\n", response.status);
    for (name, value) in &response.headers {
        out.push_str(&format!("{name}: {value}\r\n"));
    }
    out.push_str(&format!("content-length: {}\r\n\r\n", response.body.len()));
    let mut out = out.into_bytes();
    out.extend_from_slice(&response.body);
    out
}
