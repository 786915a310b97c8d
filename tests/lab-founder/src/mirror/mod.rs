//! A mirror of releases for tests, demos and labs: a directory over HTTPS, with ranges, and with faults when it is told.
//!
//! Touches its directory (reading), its certificates' directory and sockets. It speaks HTTP/1.1 by hand, because its faults are of the kind that no HTTP
//! library would send.

mod fault;
mod run;
mod serve;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose,
    SanType, date_time_ymd,
};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::{TLS12, TLS13};
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

pub use self::fault::{BadFault, Fault, MirrorFault, fault_names};
pub use self::run::Args;
pub(crate) use self::serve::{open, parse_range};
use crate::founder::lock;
use crate::server::provider;

/// How a mirror is set up.
#[derive(Debug, Clone)]
pub struct MirrorConfig {
    /// What it serves.
    pub dir: PathBuf,
    /// Where; port 0 takes any.
    pub listen: SocketAddr,
    /// Where its certificates are kept, so that another start has the same ones; `None` makes new ones.
    pub certs: Option<PathBuf>,
    /// Names and addresses in its certificate.
    pub names: Vec<String>,
    /// From the beginning of which year to the beginning of which its certificate is valid.
    pub valid: (i32, i32),
    /// Faults from the start.
    pub faults: Vec<Fault>,
    /// At most so many bytes per second on each connection; 0 is no limit.
    pub bytes_per_second: u64,
}

/// A running mirror. Dropping it stops it abruptly.
pub struct EvilMirror {
    shared: Arc<Shared>,
    addr: SocketAddr,
    ca_pem: String,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A request as it came in, and what went out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Path without the leading `/`.
    pub path: String,
    /// First and last byte asked for; `None` without `Range`.
    pub range: Option<(u64, Option<u64>)>,
    /// Status of the answer; 0 when there was none.
    pub status: u16,
    /// Bytes of the body that went out.
    pub sent: u64,
    /// Names of headers, lower case.
    pub headers: Vec<String>,
    /// The client showed a certificate.
    pub client_certificate: bool,
}

struct Shared {
    dir: PathBuf,
    faults: Mutex<Vec<Fault>>,
    seen: Mutex<Vec<Seen>>,
    connections: Mutex<u64>,
    bytes_per_second: u64,
}

// === impl MirrorConfig ===

impl MirrorConfig {
    /// A healthy mirror of `dir` on loopback.
    pub fn of(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            certs: None,
            names: vec!["127.0.0.1".to_owned(), "localhost".to_owned(), "::1".to_owned()],
            valid: (1970, 9999),
            faults: Vec::new(),
            bytes_per_second: 0,
        }
    }
}

// === impl EvilMirror ===

impl EvilMirror {
    /// Starts it on a thread of its own. When this returns, it listens.
    pub fn start(config: MirrorConfig) -> io::Result<Self> {
        let (ca_pem, tls) = match &config.certs {
            Some(dir) => kept_certificates(dir, &config)?,
            None => certificates(&config).map_err(io::Error::other)?,
        };
        let acceptor = acceptor(&tls)?;
        let listener = TcpListener::bind(config.listen)?;
        listener.set_nonblocking(true)?;
        let addr = listener.local_addr()?;
        let shared = Arc::new(Shared {
            dir: config.dir,
            faults: Mutex::new(config.faults),
            seen: Mutex::default(),
            connections: Mutex::default(),
            bytes_per_second: config.bytes_per_second,
        });
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let serving = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("mirror".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = serve::listen(listener, acceptor, serving) => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Self { shared, addr, ca_pem, stop: Some(stop), thread: Some(thread) })
    }

    /// A healthy mirror of `dir`, with these faults.
    pub fn of(dir: &Path, faults: &[Fault]) -> io::Result<Self> {
        Self::start(MirrorConfig { faults: faults.to_vec(), ..MirrorConfig::of(dir) })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// URL of the directory.
    pub fn url(&self) -> String {
        format!("https://{}", self.addr)
    }

    /// The authority that signed its certificate.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// Replaces the faults.
    pub fn set_faults(&self, faults: &[Fault]) {
        *lock(&self.shared.faults) = faults.to_vec();
    }

    /// Every request since the start, in the order of their ends.
    pub fn seen(&self) -> Vec<Seen> {
        lock(&self.shared.seen).clone()
    }

    /// Bytes of bodies sent since the start.
    pub fn sent(&self) -> u64 {
        lock(&self.shared.seen).iter().map(|seen| seen.sent).sum()
    }

    /// TCP connections since the start.
    pub fn connections(&self) -> u64 {
        *lock(&self.shared.connections)
    }

    /// Stops it. The port is closed when this returns.
    pub fn stop(&mut self) {
        let _ = self.stop.take().map(|stop| stop.send(()));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for EvilMirror {
    fn drop(&mut self) {
        self.stop();
    }
}

// --- certificates ---

/// Certificate chain and key of the server, PEM.
struct Served {
    chain: String,
    key: String,
}

/// A fresh authority, valid always, and a leaf of it, which is too unless told: a test must pass with any clock.
fn certificates(config: &MirrorConfig) -> Result<(String, Served), rcgen::Error> {
    let valid = |name: &str, (from, to): (i32, i32)| {
        let mut params = CertificateParams::default();
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(to, 1, 1);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params
    };
    let mut ca = valid("Stratum lab mirror CA", (1970, 9999));
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let ca_key = KeyPair::generate()?;
    let ca_pem = ca.self_signed(&ca_key)?.pem();
    let mut leaf = valid("Stratum lab mirror", config.valid);
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    for name in &config.names {
        leaf.subject_alt_names.push(match name.parse() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName(name.as_str().try_into()?),
        });
    }
    let key = KeyPair::generate()?;
    let chain = leaf.signed_by(&key, &Issuer::from_params(&ca, &ca_key))?.pem();
    Ok((ca_pem, Served { chain, key: key.serialize_pem() }))
}

fn kept_certificates(dir: &Path, config: &MirrorConfig) -> io::Result<(String, Served)> {
    let file = |name: &str| dir.join(name);
    if file("key.pem").exists() {
        let read = |name: &str| std::fs::read_to_string(file(name));
        return Ok((read("ca.pem")?, Served { chain: read("cert.pem")?, key: read("key.pem")? }));
    }
    std::fs::create_dir_all(dir)?;
    let (ca_pem, served) = certificates(config).map_err(io::Error::other)?;
    // The key comes last: it says that all is there.
    for (name, text) in [("ca.pem", &ca_pem), ("cert.pem", &served.chain), ("key.pem", &served.key)] {
        let mut temp = tempfile::NamedTempFile::new_in(dir)?;
        io::Write::write_all(&mut temp, text.as_bytes())?;
        temp.persist(file(name))?;
    }
    Ok((ca_pem, served))
}

fn acceptor(served: &Served) -> io::Result<TlsAcceptor> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(served.chain.as_bytes()).collect();
    let chain = chain.map_err(io::Error::other)?;
    let key = PrivateKeyDer::from_pem_slice(served.key.as_bytes()).map_err(io::Error::other)?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider()))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(io::Error::other)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
