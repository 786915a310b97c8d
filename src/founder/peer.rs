//! A join listener for tests, scripted to misbehave: a thread for each connection, real sockets, real TLS.
#![allow(clippy::unwrap_used)]

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    PKCS_ECDSA_P256_SHA256, SignatureAlgorithm, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    DigitallySignedStruct, DistinguishedName, ServerConfig, ServerConnection, SignatureScheme,
    SupportedProtocolVersion,
};

use crate::identity::spki_digest;
use crate::protocol::encoding::Pin;
use crate::protocol::url::Endpoint;

/// A join CA.
pub(super) struct Ca {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A request as it came.
pub(super) struct Request {
    pub(super) line: String,
    pub(super) head: String,
    pub(super) body: Vec<u8>,
    /// `clientFP`, from the TLS session.
    pub(super) client_fp: [u8; 32],
}

type Script = dyn Fn(&Request, &mut dyn Write) -> io::Result<()> + Send + Sync;

/// A listener on a port of its own, until the process ends.
pub(super) struct Peer {
    pub(super) endpoint: Endpoint,
    requests: Arc<Mutex<Vec<String>>>,
    connections: Arc<Mutex<usize>>,
}

// === impl Ca ===

impl Ca {
    pub(super) fn new() -> Self {
        Self::with(&PKCS_ECDSA_P256_SHA256)
    }

    pub(super) fn with(algorithm: &'static SignatureAlgorithm) -> Self {
        let mut params = params("join CA");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate_for(algorithm).unwrap();
        Self { issuer: CertifiedIssuer::self_signed(params, key).unwrap() }
    }

    pub(super) fn der(&self) -> CertificateDer<'static> {
        self.issuer.der().clone()
    }

    pub(super) fn pin(&self) -> Pin {
        Pin(spki_digest(&self.der()).unwrap())
    }

    /// A leaf for servers.
    pub(super) fn leaf(&self) -> (CertificateDer<'static>, KeyPair) {
        self.leaf_with(|_| {})
    }

    pub(super) fn leaf_with(
        &self,
        change: impl FnOnce(&mut CertificateParams),
    ) -> (CertificateDer<'static>, KeyPair) {
        let mut params = params("founder");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        change(&mut params);
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().der().clone(), key)
    }

    /// The chain that a founder shows.
    pub(super) fn chain(&self) -> CertifiedKey {
        let (leaf, key) = self.leaf();
        certified(vec![leaf, self.der()], &key)
    }
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.not_before = date_time_ymd(1970, 1, 1);
    params.not_after = date_time_ymd(9999, 12, 31);
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

/// Any certificates with any key, whether they belong together or not.
pub(super) fn certified(chain: Vec<CertificateDer<'static>>, key: &KeyPair) -> CertifiedKey {
    let der = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    CertifiedKey::new(chain, rustls::crypto::ring::sign::any_supported_type(&der).unwrap())
}

// === impl Peer ===

impl Peer {
    /// A TLS 1.3 listener that asks for a client certificate, as a founder does.
    pub(super) fn tls(
        chain: CertifiedKey,
        script: impl Fn(&Request, &mut dyn Write) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self::tls_versions(chain, &[&rustls::version::TLS13], script)
    }

    pub(super) fn tls_versions(
        chain: CertifiedKey,
        versions: &[&'static SupportedProtocolVersion],
        script: impl Fn(&Request, &mut dyn Write) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let mut config =
            ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_protocol_versions(versions)
                .unwrap()
                .with_client_cert_verifier(Arc::new(AnyClient))
                .with_cert_resolver(Arc::new(SingleCertAndKey::from(chain)));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let config = Arc::new(config);
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        let script: Arc<Script> = Arc::new(script);
        Self::listen(requests, move |tcp| {
            let mut tls = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut tcp = tcp;
            let _ = serve(&mut tls, &mut tcp, &seen, &*script);
        })
    }

    /// A plain listener: `talk` gets the socket.
    pub(super) fn plain(talk: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        Self::listen(Arc::default(), talk)
    }

    fn listen(requests: Arc<Mutex<Vec<String>>>, talk: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(Mutex::new(0));
        let count = Arc::clone(&connections);
        let talk = Arc::new(talk);
        std::thread::spawn(move || {
            for tcp in listener.incoming().flatten() {
                *count.lock().unwrap() += 1;
                let talk = Arc::clone(&talk);
                std::thread::spawn(move || talk(tcp));
            }
        });
        Self { endpoint: endpoint(address), requests, connections }
    }

    /// The request lines so far.
    pub(super) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    pub(super) fn connections(&self) -> usize {
        *self.connections.lock().unwrap()
    }
}

pub(super) fn endpoint(address: SocketAddr) -> Endpoint {
    Endpoint::parse(&address.to_string()).unwrap()
}

/// A JSON answer.
pub(super) fn json(to: &mut dyn Write, status: u16, body: &str) -> io::Result<()> {
    let kind = if status < 400 { "application/json" } else { "application/problem+json" };
    raw(
        to,
        &format!(
            "HTTP/1.1 {status} x\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ),
    )
}

pub(super) fn raw(to: &mut dyn Write, bytes: &str) -> io::Result<()> {
    to.write_all(bytes.as_bytes())?;
    to.flush()
}

fn serve(
    tls: &mut ServerConnection,
    tcp: &mut TcpStream,
    seen: &Mutex<Vec<String>>,
    script: &Script,
) -> io::Result<()> {
    while tls.is_handshaking() {
        tls.complete_io(tcp)?;
    }
    let client =
        tls.peer_certificates().and_then(|certs| certs.first()).map(|cert| cert.clone().into_owned());
    let client_fp = client.and_then(|cert| spki_digest(&cert)).unwrap_or_default();
    let mut stream = rustls::Stream::new(tls, tcp);
    loop {
        let mut bytes = Vec::new();
        let end = loop {
            if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            let mut piece = [0; 4096];
            match stream.read(&mut piece)? {
                0 => return Ok(()),
                n => bytes.extend_from_slice(&piece[..n]),
            }
        };
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let mut body = bytes.split_off(end);
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .map_or(0, |n| n.parse().unwrap());
        while body.len() < length {
            let mut piece = [0; 4096];
            let n = stream.read(&mut piece)?;
            body.extend_from_slice(&piece[..n]);
        }
        let line = head.lines().next().unwrap().to_owned();
        seen.lock().unwrap().push(line.clone());
        script(&Request { line, head, body, client_fp }, &mut stream)?;
    }
}

/// Accepts any client that holds its key.
#[derive(Debug)]
struct AnyClient;

impl ClientCertVerifier for AnyClient {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _cert: &CertificateDer<'_>,
        _rest: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let all = rustls::crypto::ring::default_provider().signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, &all)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let all = rustls::crypto::ring::default_provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, &all)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
