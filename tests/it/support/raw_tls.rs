//! A joiner that speaks TLS and hands out the bytes of an answer as they came.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use stratum_join::identity::Identity;
use stratum_join::identity::verifier::FounderVerifier;

/// A key of its own.
pub struct RawJoiner(Identity);

// === impl RawJoiner ===

impl RawJoiner {
    pub fn new() -> Self {
        Self(Identity::ephemeral().unwrap())
    }

    /// The whole answer, head and body, to one request on a connection of its own.
    pub fn call(&self, founder: SocketAddr, method: &str, path: &str, body: &str) -> Vec<u8> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(FounderVerifier::new(Vec::new()))
            .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(self.0.certified_key())));
        let name = "stratum-join.invalid".try_into().unwrap();
        let socket = TcpStream::connect(founder).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut stream = StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), socket);
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: stratum-join.invalid\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = Vec::new();
        // The founder closes without close_notify: what came is the answer.
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.starts_with(b"HTTP/1.1 "), "{method} {path}: {}", String::from_utf8_lossy(&answer));
        answer
    }
}
