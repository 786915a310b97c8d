//! The documented join-failed call: `POST /v1/admin/cluster/members/{nodeId}/join-failed` with `{"step","error"}`.
//!
//! Touches the network, once. The node certificate of the bundle is the identity; the address and the CA behind it are in the bundle's
//! `labFounder`, which only a lab founder sends: without it there is nobody to tell.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use serde_json::{Value, json};

use crate::delivered::Delivered;

/// Tells the founder; gives the member's state afterwards.
pub(crate) fn join_failed(delivered: &Delivered, step: &str, error: &str) -> anyhow::Result<String> {
    let bundle = &delivered.bundle;
    let lab = &bundle["labFounder"];
    let url = lab["joinFailedUrl"].as_str().context("the bundle names no lab founder")?;
    let mine = format!("/members/{}/join-failed", delivered.node_id());
    ensure!(
        url.starts_with("https://") && url.ends_with(&mine),
        "the bundle's URL is not that of this node's call"
    );
    let config = tls(text(lab, "caCert")?, text(bundle, "nodeCert")?, text(bundle, "nodeKey")?)?;
    let client = reqwest::Client::builder()
        .tls_backend_preconfigured(config)
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .timeout(Duration::from_secs(10))
        .build()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let answer = client.post(url).json(&json!({ "step": step, "error": error })).send().await?;
        let status = answer.status();
        let member: Value = answer.json().await.unwrap_or_default();
        ensure!(
            status.is_success(),
            "the founder answers {status} {}",
            member["code"].as_str().unwrap_or_default()
        );
        Ok(member["state"].as_str().unwrap_or("unknown").to_owned())
    })
}

// === private ===

fn text<'a>(value: &'a Value, name: &str) -> anyhow::Result<&'a str> {
    value[name].as_str().with_context(|| format!("the bundle has no {name}"))
}

fn tls(ca: &str, cert: &str, key: &str) -> anyhow::Result<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(ca.as_bytes()) {
        roots.add(root.context("the founder's CA is not PEM")?)?;
    }
    let inner = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build()?;
    let chain = CertificateDer::pem_slice_iter(cert.as_bytes()).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|_| anyhow::anyhow!("nodeCert is not PEM"))?;
    let key =
        PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_| anyhow::anyhow!("nodeKey is not PEM"))?;
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyName { inner, provider }))
        .with_client_auth_cert(chain, key)?;
    Ok(config)
}

/// The founder is known by its CA; its address is whatever it is at the moment.
#[derive(Debug)]
struct AnyName {
    inner: Arc<WebPkiServerVerifier>,
    provider: Arc<CryptoProvider>,
}

// === impl AnyName ===

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // The library checks the chain first and the name last, so that this error says that the chain is good.
        match self.inner.verify_server_cert(leaf, chain, name, ocsp, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.3 only".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, cert, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
