//! The TLS faces of the join listener: the honest one, and the faulty ones.
//!
//! Touches nothing. TLS 1.3 only, a client certificate is demanded and its possession proved, nothing is resumed.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, InvalidMessage, ServerConfig, SignatureScheme,
    SupportedProtocolVersion,
};
use tokio_rustls::TlsAcceptor;

use super::StartError;
use crate::evil::Evil;
use crate::founder::Founder;
use crate::tls::{JoinCa, Leaf, spki_fingerprint};

/// Largest client certificate in bytes.
const MAX_CLIENT_CERT: usize = 4096;

/// What the listener shows.
pub(super) struct Chains {
    ca: JoinCa,
    other: JoinCa,
    honest: TlsAcceptor,
}

// === impl Chains ===

impl Chains {
    pub(super) fn new(core: &Founder) -> Result<Self, StartError> {
        let ca = core.join_ca();
        // A fresh leaf at every start: the leaf is no identity, the CA is.
        let leaf = ca.server_leaf()?;
        let honest = acceptor(&[&leaf.cert_der, ca.cert_der()], &leaf, &rustls::version::TLS13)?;
        // One for the whole life, so that another cluster stays that other cluster.
        let other = JoinCa::generate("another join CA")?;
        Ok(Self { ca, other, honest })
    }

    /// The face for one connection.
    pub(super) fn acceptor(&self, evil: Option<&Evil>) -> Result<TlsAcceptor, StartError> {
        let (ca, other) = (&self.ca, &self.other);
        let tls13 = &rustls::version::TLS13;
        Ok(match evil {
            Some(Evil::Tls12Only) => {
                let leaf = ca.server_leaf()?;
                acceptor(&[&leaf.cert_der, ca.cert_der()], &leaf, &rustls::version::TLS12)?
            }
            Some(Evil::LeafOnly) => {
                let leaf = ca.server_leaf()?;
                acceptor(&[&leaf.cert_der], &leaf, tls13)?
            }
            Some(Evil::ThreeCerts) => {
                let leaf = ca.server_leaf()?;
                acceptor(&[&leaf.cert_der, ca.cert_der(), other.cert_der()], &leaf, tls13)?
            }
            Some(Evil::LeafFromOtherCa) => {
                let leaf = other.server_leaf()?;
                acceptor(&[&leaf.cert_der, ca.cert_der()], &leaf, tls13)?
            }
            Some(Evil::OtherJoinCa) => {
                let leaf = other.server_leaf()?;
                acceptor(&[&leaf.cert_der, other.cert_der()], &leaf, tls13)?
            }
            Some(Evil::HugeCertificate) => {
                let leaf = ca.huge_leaf()?;
                acceptor(&[&leaf.cert_der, ca.cert_der()], &leaf, tls13)?
            }
            Some(Evil::OtherLeafSameCa) => {
                let leaf = ca.server_leaf()?;
                acceptor(&[&leaf.cert_der, ca.cert_der()], &leaf, tls13)?
            }
            _ => self.honest.clone(),
        })
    }
}

/// A server that shows a chain.
pub(crate) fn acceptor(
    chain: &[&[u8]],
    leaf: &Leaf,
    version: &'static SupportedProtocolVersion,
) -> Result<TlsAcceptor, StartError> {
    let provider = Arc::new(provider());
    let algorithms = provider.signature_verification_algorithms;
    let chain = chain.iter().map(|der| CertificateDer::from(der.to_vec())).collect();
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])?
        .with_client_cert_verifier(Arc::new(Possession(algorithms)))
        .with_single_cert(chain, leaf.key())?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// ring, with the key exchanges of docs/protocol.md.
pub(crate) fn provider() -> CryptoProvider {
    let mut provider = ring::default_provider();
    provider.kx_groups = vec![ring::kx_group::X25519, ring::kx_group::SECP256R1];
    provider
}

/// Any self-made certificate will do, if the client holds its key: the key is the identity.
#[derive(Debug)]
struct Possession(WebPkiSupportedAlgorithms);

// === impl Possession ===

impl ClientCertVerifier for Possession {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        cert: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let readable = cert.len() <= MAX_CLIENT_CERT && spki_fingerprint(cert).is_ok();
        if !others.is_empty() || !readable {
            return Err(Error::InvalidMessage(InvalidMessage::CertificatePayloadTooLarge));
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls12_signature(message, cert, signed, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(message, cert, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
