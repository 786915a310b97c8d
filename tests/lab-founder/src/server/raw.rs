//! Faults that send bytes of their own, or none. Touches the one stream it is given.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::connection::Stream;
use super::http1::render;
use crate::evil::Evil;
use crate::http::Response;

/// What is done with a stream instead of an answer.
pub(super) enum Act {
    /// Reset.
    Reset,
    /// Close the sending side, then wait for the other.
    HalfClose,
    /// These bytes, then close.
    Bytes(Vec<u8>),
    /// These bytes, one per second.
    Drip(Vec<u8>),
    /// This head, then this piece without end.
    Endless(Vec<u8>, Vec<u8>),
}

// === impl Act ===

impl Act {
    /// The act of a fault. `response` is what an honest founder would have answered.
    pub(super) fn of(evil: &Evil, response: &Response) -> Option<Act> {
        let ok = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
        Some(match evil {
            Evil::ResetAfterRequest => Act::Reset,
            Evil::HalfClose => Act::HalfClose,
            Evil::OneBytePerSecond => Act::Drip(render(response)),
            Evil::CloseMidBody { after } => {
                let mut bytes = render(response);
                bytes.truncate(*after);
                Act::Bytes(bytes)
            }
            Evil::EndlessBody => Act::Endless(
                format!("{ok}content-length: 1073741824\r\n\r\n{{\"").into_bytes(),
                vec![b'a'; 16 * 1024],
            ),
            Evil::EndlessChunks => {
                let chunk = [b"1000\r\n".as_slice(), &[b' '; 0x1000], b"\r\n"].concat();
                Act::Endless(format!("{ok}transfer-encoding: chunked\r\n\r\n").into_bytes(), chunk)
            }
            Evil::TenThousandHeaders => {
                let mut head = ok.to_owned();
                for n in 0..10_000 {
                    head.push_str(&format!("x-lab-{n}: {n}\r\n"));
                }
                Act::Bytes(format!("{head}content-length: 2\r\n\r\n{{}}").into_bytes())
            }
            Evil::DeepJson => {
                let body = "[".repeat(100_000);
                Act::Bytes(with_body(ok, &body))
            }
            Evil::HtmlPage => {
                let body = "<!doctype html><title>It works</title><script>alert(1)</script>";
                Act::Bytes(with_body("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n", body))
            }
            Evil::Redirect => {
                let head = "HTTP/1.1 302 Found\r\nlocation: https://stratum-join.invalid/elsewhere\r\n";
                Act::Bytes(with_body(head, ""))
            }
            Evil::GzipBody => Act::Bytes(with_body(
                &format!("{ok}content-encoding: gzip\r\n"),
                &String::from_utf8_lossy(&response.body),
            )),
            Evil::WrongContentLength => {
                let promised = response.body.len() + 1000;
                let mut bytes = format!("{ok}content-length: {promised}\r\n\r\n").into_bytes();
                bytes.extend_from_slice(&response.body);
                Act::Bytes(bytes)
            }
            Evil::InformationalFlood => {
                Act::Endless(Vec::new(), b"HTTP/1.1 103 Early Hints\r\n\r\n".repeat(100))
            }
            _ => return None,
        })
    }

    pub(super) async fn perform(self, mut stream: TlsStream<TcpStream>) {
        match self {
            Act::Reset => reset(stream.get_ref().0),
            Act::HalfClose => {
                let _ = stream.shutdown().await;
                silence(stream).await;
            }
            Act::Bytes(bytes) => {
                let _ = stream.write_all(&bytes).await;
                let _ = stream.flush().await;
                // No close_notify: it is cut. What the peer still sends is read, so that the cut is no reset.
                let _ = tokio::time::timeout(Duration::from_millis(200), drain(&mut stream)).await;
            }
            Act::Drip(bytes) => {
                for byte in bytes {
                    if stream.write_all(&[byte]).await.is_err() || stream.flush().await.is_err() {
                        return;
                    }
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
            Act::Endless(head, piece) => {
                let mut sent = stream.write_all(&head).await;
                while sent.is_ok() {
                    sent = stream.write_all(&piece).await;
                    // Others have their turn too.
                    tokio::task::yield_now().await;
                }
            }
        }
    }
}

/// The next close of this socket is a reset.
pub(super) fn reset(stream: &TcpStream) {
    let _ = stream.set_zero_linger();
}

/// Reads until the peer goes away, and never says a byte.
pub(super) async fn silence(mut stream: impl Stream) {
    drain(&mut stream).await;
}

/// An HTTP server without TLS, as another service on the port would be.
pub(super) async fn plain_http(mut stream: TcpStream) {
    let mut first = [0; 1024];
    let _ = stream.read(&mut first).await;
    let page = with_body(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: text/html\r\nconnection: close\r\n",
        "<h1>400</h1>",
    );
    let _ = stream.write_all(&page).await;
    let _ = tokio::time::timeout(Duration::from_millis(200), drain(&mut stream)).await;
}

async fn drain(stream: &mut impl Stream) {
    let mut sink = [0; 4096];
    while matches!(stream.read(&mut sink).await, Ok(n) if n > 0) {}
}

fn with_body(head: &str, body: &str) -> Vec<u8> {
    format!("{head}content-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}
