//! Who may answer: the check of a founder's certificate chain inside the TLS handshake.
//!
//! Touches nothing. Identity is the key of the join CA and nothing else: not the name (an address may move), not the time (a machine with
//! a dead clock must join), not a public authority. A chain that merely contains the founder's CA is worthless without a leaf key
//! signed by it.

use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, SignatureVerificationAlgorithm, UnixTime};
use rustls::{DigitallySignedStruct, OtherError, SignatureScheme};
use tokio::time::Instant;
use webpki::ring::{ECDSA_P256_SHA256, ED25519};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

use super::spki_digest;
use crate::protocol::encoding::Pin;

/// Largest certificate in bytes.
pub const MAX_CERT: usize = 4 * 1024;
/// 2026-01-01T00:00:00Z, in seconds since 1970. Any fixed instant would do.
const FIXED_TIME: u64 = 1_767_225_600;
/// How many leaves are remembered: one for each control-plane node.
const REMEMBERED: usize = 8;

static CHAIN_ALGORITHMS: &[&dyn SignatureVerificationAlgorithm] = &[ECDSA_P256_SHA256, ED25519];
static ALGORITHMS: WebPkiSupportedAlgorithms = WebPkiSupportedAlgorithms {
    all: CHAIN_ALGORITHMS,
    mapping: &[
        (SignatureScheme::ECDSA_NISTP256_SHA256, &[ECDSA_P256_SHA256]),
        (SignatureScheme::ED25519, &[ED25519]),
    ],
};

/// Accepts a founder whose join CA is one of `pins`, or any founder when there are none.
#[derive(Debug)]
pub struct FounderVerifier {
    pins: Vec<Pin>,
    /// Leaves whose chain was accepted, and the CA above each.
    seen: Mutex<Vec<(Vec<u8>, Pin)>>,
    /// When a peer last showed that it holds its key: the handshake is as good as done.
    verified: Mutex<Option<Instant>>,
}

/// Why a chain was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// The join CA that it shows is none of the pins.
    #[error("the key of the join CA is {} and not {}", .seen.short_hex(16), .expected.short_hex(16))]
    OtherCa {
        /// The first pin.
        expected: Pin,
        /// The key that answered.
        seen: Pin,
    },
    /// Not exactly the leaf and the join CA.
    #[error("it shows {0} certificates instead of the two of a join listener")]
    Count(usize),
    /// A certificate over [`MAX_CERT`].
    #[error("it shows a certificate of {0} bytes")]
    Size(usize),
    /// Something that is no X.509 certificate.
    #[error("it shows something that is not a certificate")]
    Malformed,
    /// The leaf does not verify under the CA beside it.
    #[error("its certificate is not signed by the join CA that it shows")]
    Leaf(#[source] webpki::Error),
    /// The peer did not show that it holds the leaf's key.
    #[error("it does not hold the key of its certificate")]
    Possession,
    /// TLS 1.2 was negotiated in spite of our configuration.
    #[error("it speaks only TLS 1.2")]
    Tls12,
}

// === impl FounderVerifier ===

impl FounderVerifier {
    /// No pins: any founder is accepted, and [`FounderVerifier::ca_of`] tells which it was.
    pub fn new(pins: Vec<Pin>) -> Arc<Self> {
        Arc::new(Self { pins, seen: Mutex::default(), verified: Mutex::default() })
    }

    /// The join CA above a leaf that this verifier accepted.
    pub fn ca_of(&self, leaf: &[u8]) -> Option<Pin> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().find(|(known, _)| known == leaf).map(|(_, ca)| *ca)
    }

    /// The join CA of the last chain that was accepted.
    pub fn latest(&self) -> Option<Pin> {
        self.verified_at()?;
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).last().map(|(_, ca)| *ca)
    }

    /// When the last handshake succeeded.
    pub fn verified_at(&self) -> Option<Instant> {
        *self.verified.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, leaf: &[u8], ca: Pin) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.retain(|(known, _)| known != leaf);
        if seen.len() == REMEMBERED {
            seen.remove(0);
        }
        seen.push((leaf.to_vec(), ca));
    }

    /// The whole check, in the order of docs/protocol.md.
    fn check(&self, leaf: &CertificateDer<'_>, rest: &[CertificateDer<'_>]) -> Result<Pin, ChainError> {
        let [ca] = rest else { return Err(ChainError::Count(rest.len() + 1)) };
        if let Some(large) = [leaf, ca].into_iter().find(|cert| cert.len() > MAX_CERT) {
            return Err(ChainError::Size(large.len()));
        }
        let seen = Pin(spki_digest(ca).ok_or(ChainError::Malformed)?);
        if let Some(expected) = self.pins.first() {
            // Every pin is compared, whichever fits: the time tells nothing.
            let fits = self.pins.iter().fold(false, |fits, pin| pin.same(&seen) | fits);
            if !fits {
                return Err(ChainError::OtherCa { expected: *expected, seen });
            }
        }
        verify_leaf(leaf, ca)?;
        Ok(seen)
    }
}

impl ServerCertVerifier for FounderVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let ca = self.check(leaf, rest).map_err(refuse)?;
        self.remember(leaf, ca);
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(refuse(ChainError::Tls12))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let valid = verify_tls13_signature(message, cert, dss, &ALGORITHMS)
            .map_err(|_| refuse(ChainError::Possession))?;
        *self.verified.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        Ok(valid)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ALGORITHMS.supported_schemes()
    }
}

/// The leaf must be signed by the CA and be for servers. Dates are ignored: when they do not hold at the fixed time, the leaf is
/// verified at the nearest instant at which they do.
fn verify_leaf(leaf: &CertificateDer<'_>, ca: &CertificateDer<'_>) -> Result<(), ChainError> {
    let leaf = EndEntityCert::try_from(leaf).map_err(|_| ChainError::Malformed)?;
    let anchor = anchor_from_trusted_cert(ca).map_err(|_| ChainError::Malformed)?;
    let verify = |time| {
        let anchors = std::slice::from_ref(&anchor);
        leaf.verify_for_usage(CHAIN_ALGORITHMS, anchors, &[], time, KeyUsage::server_auth(), None, None)
            .map(|_| ())
    };
    let fixed = UnixTime::since_unix_epoch(std::time::Duration::from_secs(FIXED_TIME));
    let result = match verify(fixed) {
        Err(webpki::Error::CertExpired { not_after, .. }) => verify(not_after),
        Err(webpki::Error::CertNotValidYet { not_before, .. }) => verify(not_before),
        other => other,
    };
    result.map_err(ChainError::Leaf)
}

fn refuse(error: ChainError) -> rustls::Error {
    rustls::Error::Other(OtherError(Arc::new(error)))
}
