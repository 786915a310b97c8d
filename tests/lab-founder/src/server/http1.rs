//! From hyper's requests to the core's and back. Touches the body of a request within its bound.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{AUTHORIZATION, HeaderValue, IF_RANGE, RANGE};

use crate::founder::Founder;
use crate::http::{FileBody, Request, Response, refuse};

/// A request body must be there within this.
const BODY_TIME: Duration = Duration::from_secs(15);

/// What hyper sends.
pub(super) type Answer = Result<hyper::Response<Payload>, Infallible>;

/// What is sent as a body.
pub(super) enum Payload {
    Bytes(Full<Bytes>),
    File(FileBody),
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
        Some(file) => Payload::File(file),
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
            Payload::File(file) if file.left() == 0 => Poll::Ready(None),
            Payload::File(file) => {
                Poll::Ready(Some(file.read().map(|piece| Frame::data(Bytes::from(piece)))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Payload::Bytes(bytes) => bytes.is_end_stream(),
            Payload::File(file) => file.left() == 0,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Payload::Bytes(bytes) => bytes.size_hint(),
            Payload::File(file) => SizeHint::with_exact(file.left()),
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
