//! Certificates of the founder: the join CA and its leaf, the cluster CA and the node leaves, and key fingerprints.
//!
//! Touches nothing. All keys are ECDSA P-256, so that they verify with ring.

use data_encoding::HEXLOWER;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType, date_time_ymd,
};
use ring::digest::{SHA256, digest};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use stratum_join::protocol::encoding::Pin;

/// The constant server name of the join listener; no identity.
pub const SERVER_NAME: &str = "stratum-join.invalid";

/// A certificate authority: join CA or cluster CA. The key is secret.
#[derive(Clone)]
pub struct JoinCa {
    name: String,
    cert_der: Vec<u8>,
    key_pem: String,
}

/// A leaf and its key. The key is secret.
#[derive(Clone)]
pub struct Leaf {
    /// DER of the certificate.
    pub cert_der: Vec<u8>,
    /// PEM of the certificate.
    pub cert_pem: String,
    /// PKCS#8 DER of the key.
    pub key_der: Vec<u8>,
    /// PKCS#8 PEM of the key.
    pub key_pem: String,
}

/// A certificate or key could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum CertError {
    /// rcgen said no.
    #[error("certificate work failed")]
    Make(#[from] rcgen::Error),
    /// Not X.509.
    #[error("not an X.509 certificate")]
    Parse,
}

// === impl JoinCa ===

impl JoinCa {
    /// A fresh CA.
    pub fn generate(name: &str) -> Result<Self, CertError> {
        let key = KeyPair::generate()?;
        let cert = ca_params(name).self_signed(&key)?;
        Ok(Self { name: name.to_owned(), cert_der: cert.der().to_vec(), key_pem: key.serialize_pem() })
    }

    /// From its stored parts.
    pub(crate) fn from_parts(name: &str, cert_der: Vec<u8>, key_pem: String) -> Result<Self, CertError> {
        KeyPair::from_pem(&key_pem)?;
        spki_fingerprint(&cert_der)?;
        Ok(Self { name: name.to_owned(), cert_der, key_pem })
    }

    /// Name, certificate and key, for the store. The last is secret.
    pub(crate) fn parts(&self) -> (&str, &[u8], &str) {
        (&self.name, &self.cert_der, &self.key_pem)
    }

    /// `caFP`.
    pub fn pin(&self) -> Result<Pin, CertError> {
        Ok(Pin(spki_fingerprint(&self.cert_der)?))
    }

    /// DER of the CA's certificate.
    pub fn cert_der(&self) -> &[u8] {
        &self.cert_der
    }

    /// PEM of the CA's certificate.
    pub fn cert_pem(&self) -> String {
        pem("CERTIFICATE", &self.cert_der)
    }

    /// A leaf of this CA for the server side of TLS.
    pub fn server_leaf(&self) -> Result<Leaf, CertError> {
        let mut params = leaf_params("stratum-founder");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.subject_alt_names = vec![SanType::DnsName(SERVER_NAME.try_into()?)];
        self.sign(&params)
    }

    /// A transport leaf for a node: both sides of TLS.
    pub fn node_leaf(&self, node_id: &str) -> Result<Leaf, CertError> {
        let mut params = leaf_params(node_id);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.subject_alt_names = vec![SanType::DnsName(format!("{node_id}.node.invalid").try_into()?)];
        self.sign(&params)
    }

    /// A leaf that is far larger than any verifier should read.
    pub fn huge_leaf(&self) -> Result<Leaf, CertError> {
        let mut params = leaf_params("stratum-founder");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        for n in 0..250 {
            params
                .subject_alt_names
                .push(SanType::DnsName(format!("padding-{n:04}.{SERVER_NAME}").try_into()?));
        }
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> Result<Leaf, CertError> {
        let ca_key = KeyPair::from_pem(&self.key_pem)?;
        let ca = ca_params(&self.name);
        let issuer = Issuer::from_params(&ca, &ca_key);
        let key = KeyPair::generate()?;
        let cert = params.signed_by(&key, &issuer)?;
        Ok(Leaf {
            cert_der: cert.der().to_vec(),
            cert_pem: cert.pem(),
            key_der: key.serialize_der(),
            key_pem: key.serialize_pem(),
        })
    }
}

// === impl Leaf ===

impl Leaf {
    /// A self-signed client certificate, as a joiner's is.
    pub fn joiner() -> Result<Self, CertError> {
        let key = KeyPair::generate()?;
        let cert = leaf_params("stratum-joiner").self_signed(&key)?;
        Ok(Self {
            cert_der: cert.der().to_vec(),
            cert_pem: cert.pem(),
            key_der: key.serialize_der(),
            key_pem: key.serialize_pem(),
        })
    }

    /// The fingerprint of its key.
    pub fn fingerprint(&self) -> Result<[u8; 32], CertError> {
        spki_fingerprint(&self.cert_der)
    }

    pub(crate) fn certificate(&self) -> CertificateDer<'static> {
        CertificateDer::from(self.cert_der.clone())
    }

    pub(crate) fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key_der.clone()))
    }
}

/// SHA-256 of the DER SubjectPublicKeyInfo of a certificate.
pub fn spki_fingerprint(cert_der: &[u8]) -> Result<[u8; 32], CertError> {
    let (_, cert) = x509_parser::parse_x509_certificate(cert_der).map_err(|_| CertError::Parse)?;
    let mut out = [0; 32];
    out.copy_from_slice(digest(&SHA256, cert.public_key().raw).as_ref());
    Ok(out)
}

/// 64 hex digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    HEXLOWER.encode(bytes)
}

fn pem(label: &str, der: &[u8]) -> String {
    let body = data_encoding::BASE64.encode(der);
    let mut out = format!("-----BEGIN {label}-----\n");
    for line in body.as_bytes().chunks(64) {
        out.push_str(&String::from_utf8_lossy(line));
        out.push('\n');
    }
    out.push_str(&format!("-----END {label}-----\n"));
    out
}

/// Valid always: a machine with a dead clock must join.
fn params(common_name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.not_before = date_time_ymd(1970, 1, 1);
    params.not_after = date_time_ymd(9999, 12, 31);
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}

fn ca_params(name: &str) -> CertificateParams {
    let mut params = params(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    params
}

fn leaf_params(common_name: &str) -> CertificateParams {
    let mut params = params(common_name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_ca_signs_leaves_that_carry_its_name() {
        let ca = JoinCa::generate("lab join CA").unwrap();
        let (name, cert, key) = ca.parts();
        let again = JoinCa::from_parts(name, cert.to_vec(), key.to_owned()).unwrap();
        assert_eq!(again.pin().unwrap(), ca.pin().unwrap());
        let leaf = again.server_leaf().unwrap();
        let (_, cert) = x509_parser::parse_x509_certificate(&leaf.cert_der).unwrap();
        assert_eq!(cert.issuer().to_string(), "CN=lab join CA");
        assert!(ca.huge_leaf().unwrap().cert_der.len() > 4096);
    }
}
