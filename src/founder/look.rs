//! What the network diagnosis asks a founder: `GET /v1/join` from whoever answers, once with any size of packets and once as a whole. Nothing
//! else is ever sent here, and nothing of the answer is trusted.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::transport::{Call, Channel, Limits, Mismatch, NAME, tls};
use super::{Client, SMALL};
use crate::identity::verifier::FounderVerifier;
use crate::join::fault::{Code, Fault};
use crate::protocol::encoding::Pin;
use crate::protocol::url::Endpoint;
use crate::protocol::wire::{Hello, PROTOCOL, SUITE};

/// Most bytes of an answer's head that are read.
const MAX_HEAD: usize = 16 * 1024;

/// Who answers, and what.
#[derive(Debug, Clone)]
pub struct Looked {
    /// The join CA, once the handshake was good.
    pub ca: Option<Pin>,
    /// The answer. It is unauthenticated.
    pub answer: Result<Hello, Fault>,
}

/// What became of a request of a given size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sized {
    /// The head of an answer came, padded in its turn when the founder knows that header.
    Answered,
    /// Nothing more came in time.
    Silent,
    /// It ended otherwise: no TLS, another protocol, a closed connection.
    Ended,
}

// === impl Client ===

impl Client {
    /// Asks whoever answers, within `time` in all. The key is told, not judged.
    pub async fn look(&self, endpoint: &Endpoint, time: Duration) -> Looked {
        let limits = Limits { connect: time, head: time, silence: time };
        let channel = match Channel::once(&self.identity, endpoint, &[], limits) {
            Ok(channel) => channel,
            Err(fault) => return Looked { ca: None, answer: Err(fault) },
        };
        let call = channel.call(Call::get("/v1/join", Mismatch::UrlPin, SMALL));
        let answer = match timeout(time, call).await {
            Err(_) => {
                let detail = format!("it gives no answer within {} s", time.as_millis().div_ceil(1_000));
                Err(Fault::new(Code::AddressUnreachable, detail))
            }
            Ok(reply) => reply.and_then(|reply| {
                let hello: Hello = reply.read()?;
                let ours =
                    hello.protocols.iter().any(|p| p == PROTOCOL) && hello.suites.iter().any(|s| s == SUITE);
                if ours { Ok(hello) } else { Err(reply.fault(Code::ProtocolUnsupported, "")) }
            }),
        };
        Looked { ca: channel.ca(), answer }
    }

    /// A request padded to `pad` bytes over a connection of its own, whose packets carry at most `mss` bytes of payload (the kernel's choice
    /// when `None`).
    pub async fn padded(&self, to: SocketAddr, mss: Option<u32>, pad: usize, time: Duration) -> Sized {
        let Ok(config) = tls(&self.identity, FounderVerifier::new(Vec::new())) else { return Sized::Ended };
        let connector = TlsConnector::from(Arc::new(config));
        let exchange = async {
            let mut tcp = connect(to, mss).await.map_err(drop)?;
            // What is lost on the way must not keep the connection open at the founder's.
            let _ = tcp.set_zero_linger();
            let name = ServerName::try_from(NAME).map_err(drop)?;
            let mut tls = connector.connect(name, &mut tcp).await.map_err(drop)?;
            let request = format!(
                "GET /v1/join HTTP/1.1\r\nhost: {NAME}\r\nconnection: close\r\nx-stratum-pad: {}\r\n\r\n",
                "s".repeat(pad)
            );
            tls.write_all(request.as_bytes()).await.map_err(drop)?;
            tls.flush().await.map_err(drop)?;
            let mut head: Vec<u8> = Vec::new();
            while head.len() < MAX_HEAD && !head.windows(4).any(|four| four == b"\r\n\r\n") {
                let mut piece = [0; 4096];
                match tls.read(&mut piece).await.map_err(drop)? {
                    0 => return Err(()),
                    n => head.extend(piece.iter().copied().take(n)),
                }
            }
            Ok(())
        };
        match timeout(time, exchange).await {
            Ok(Ok(())) => Sized::Answered,
            Ok(Err(())) => Sized::Ended,
            Err(_) => Sized::Silent,
        }
    }
}

async fn connect(to: SocketAddr, mss: Option<u32>) -> std::io::Result<TcpStream> {
    let socket = if to.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if let Some(mss) = mss {
        // Told to the other side with the first packet: its packets are then as small.
        setsockopt(&socket, sockopt::TcpMaxSeg, &mss)?;
    }
    socket.connect(to).await
}
