//! A man in the middle: ends TLS on both sides with keys of its own and forwards every byte of HTTP unchanged.
//!
//! Touches sockets on loopback, on a thread of its own. It knows no code; what it was told is in [`Relay::seen`].

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use stratum_join::protocol::encoding::Pin;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::founder::lock;
use crate::server::{StartError, acceptor, provider};
use crate::tls::{JoinCa, Leaf, SERVER_NAME};

/// Bytes that are kept of each direction.
const KEPT: usize = 8 * 1024 * 1024;

/// A running relay. Dropping it stops it.
pub struct Relay {
    addr: SocketAddr,
    pin: Pin,
    seen: Arc<Seen>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Seen {
    from_joiner: Mutex<Vec<u8>>,
    from_founder: Mutex<Vec<u8>>,
}

// === impl Relay ===

impl Relay {
    /// Between a joiner and the founder at `target`, with a join CA and a client key of its own.
    pub fn start(target: SocketAddr) -> Result<Self, StartError> {
        let ca = JoinCa::generate("relay join CA")?;
        let leaf = ca.server_leaf()?;
        let inward = acceptor(&[&leaf.cert_der, ca.cert_der()], &leaf, &rustls::version::TLS13)?;
        let outward = connector()?;
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let failed = |e| StartError::Listen(any, e);
        let listener = TcpListener::bind(any).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let addr = listener.local_addr().map_err(failed)?;
        let seen = Arc::new(Seen::default());
        let (stop, stopped) = oneshot::channel();
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(StartError::Thread)?;
        let inside = seen.clone();
        let thread = std::thread::Builder::new()
            .name("relay".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        () = accept(listener, target, inward, outward, inside) => {}
                        _ = stopped => {}
                    }
                });
            })
            .map_err(StartError::Thread)?;
        Ok(Self { addr, pin: ca.pin()?, seen, stop: Some(stop), thread: Some(thread) })
    }

    /// Where the joiner connects.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The pin of the relay's own CA: what a joiner observes.
    pub fn ca_pin(&self) -> Pin {
        self.pin
    }

    /// Everything that the joiner said, in clear.
    pub fn seen_from_joiner(&self) -> Vec<u8> {
        lock(&self.seen.from_joiner).clone()
    }

    /// Everything that the founder said, in clear.
    pub fn seen_from_founder(&self) -> Vec<u8> {
        lock(&self.seen.from_founder).clone()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.stop.take().map(|stop| stop.send(()));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn accept(
    listener: TcpListener,
    target: SocketAddr,
    inward: TlsAcceptor,
    outward: TlsConnector,
    seen: Arc<Seen>,
) {
    let mut tasks = JoinSet::new();
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    tasks.spawn(relay(stream, target, inward.clone(), outward.clone(), seen.clone()));
                }
            }
            Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
        }
    }
}

/// Both handshakes, then bytes until one side is done. Any failure just closes.
async fn relay(
    stream: TcpStream,
    target: SocketAddr,
    inward: TlsAcceptor,
    outward: TlsConnector,
    seen: Arc<Seen>,
) {
    let Ok(joiner) = inward.accept(stream).await else { return };
    let Ok(stream) = TcpStream::connect(target).await else { return };
    let Ok(name) = ServerName::try_from(SERVER_NAME) else { return };
    let Ok(founder) = outward.connect(name, stream).await else { return };
    let (joiner_in, joiner_out) = tokio::io::split(joiner);
    let (founder_in, founder_out) = tokio::io::split(founder);
    tokio::select! {
        () = copy(joiner_in, founder_out, &seen.from_joiner) => {}
        () = copy(founder_in, joiner_out, &seen.from_founder) => {}
    }
}

async fn copy(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, seen: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(n) = from.read(&mut buffer).await {
        if n == 0 {
            break;
        }
        {
            let mut seen = lock(seen);
            if seen.len() + n <= KEPT {
                seen.extend_from_slice(&buffer[..n]);
            }
        }
        if to.write_all(&buffer[..n]).await.is_err() || to.flush().await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
}

/// A client with a key of its own that believes any certificate: what an attacker is.
fn connector() -> Result<TlsConnector, StartError> {
    client(&Leaf::joiner()?)
}

/// A TLS client with this key that believes any server. For attackers, and for tests of the listener itself.
pub(crate) fn client(leaf: &Leaf) -> Result<TlsConnector, StartError> {
    let provider = Arc::new(provider());
    let algorithms = provider.signature_verification_algorithms;
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyServer(algorithms)))
        .with_client_auth_cert(vec![leaf.certificate()], leaf.key())?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

#[derive(Debug)]
struct AnyServer(WebPkiSupportedAlgorithms);

// === impl AnyServer ===

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _others: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls12_signature(message, cert, signed, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(message, cert, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
