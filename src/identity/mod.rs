//! The machine's identity towards a founder: one client key and its self-signed certificate.
//!
//! Touches `key.pem` and `cert.pem` of its directory. Made once, durable before the first connection, and never replaced without saying
//! so: the founder knows a registration by this key. The key is never printed and never leaves the process.

pub mod verifier;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use console::text::Safe;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData,
    SerialNumber, date_time_ymd,
};
use ring::digest::{SHA256, digest};
use rustls::crypto::ring::sign::any_ecdsa_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use zeroize::Zeroizing;

use crate::durable_file::{self, FileError};
use crate::join::fault::{Code, Fault};
use crate::protocol::pake::{RandomFailed, random};

/// The certificate's common name. It identifies nobody: the key does.
const COMMON_NAME: &str = "stratum-joiner";
/// Largest file that is looked at, in bytes.
const CAP: u64 = 8 * 1024;
const SECRET: u32 = 0o600;

/// A client key and its certificate. `Debug` shows only the fingerprint.
pub struct Identity {
    certified: Arc<CertifiedKey>,
    client_fp: [u8; 32],
}

/// What [`load_or_create`] found or made.
#[derive(Debug)]
pub struct Loaded {
    /// The identity, on disk.
    pub identity: Identity,
    /// Whether the key was made just now.
    pub made: bool,
    /// Something a person must know: a key was lost.
    pub notice: Option<Safe<400>>,
}

/// Why there is no identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The disk or the file. A file that is not ours is left as it is.
    #[error(transparent)]
    File(#[from] FileError),
    /// The system gave no random bytes, or the library refused its own key.
    #[error("cannot make a client key: {0}")]
    Make(String),
}

// === impl IdentityError ===

impl IdentityError {
    /// Classified for the core.
    pub fn fault(&self) -> Fault {
        match self {
            IdentityError::File(error) => error.fault(),
            IdentityError::Make(_) => Fault::from_error(Code::Local, self),
        }
    }
}

impl From<rcgen::Error> for IdentityError {
    fn from(error: rcgen::Error) -> Self {
        IdentityError::Make(error.to_string())
    }
}

impl From<RandomFailed> for IdentityError {
    fn from(error: RandomFailed) -> Self {
        IdentityError::Make(error.to_string())
    }
}

// === impl Identity ===

impl Identity {
    /// `clientFP`: SHA-256 of the key's DER SubjectPublicKeyInfo.
    pub fn client_fp(&self) -> [u8; 32] {
        self.client_fp
    }

    /// The certificate in DER.
    pub fn cert_der(&self) -> &[u8] {
        self.certified.cert.first().map_or(&[], |cert| cert.as_ref())
    }

    /// For the TLS configuration.
    pub fn certified_key(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.certified)
    }

    /// An identity that is on no disk: for `--check` on a machine without one, and for tests.
    pub fn ephemeral() -> Result<Self, IdentityError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        Self::of(&key, certificate(&key)?.der().clone())
    }

    fn of(key: &KeyPair, cert: CertificateDer<'static>) -> Result<Self, IdentityError> {
        let der =
            PrivateKeyDer::try_from(key.serialize_der()).map_err(|e| IdentityError::Make(e.to_owned()))?;
        let signer = any_ecdsa_type(&der).map_err(|e| IdentityError::Make(e.to_string()))?;
        Ok(Self { certified: Arc::new(CertifiedKey::new(vec![cert], signer)), client_fp: fingerprint(key) })
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", data_encoding::HEXLOWER.encode(&self.client_fp[..8]))
    }
}

/// Loads the identity of `dir`, or makes it once. What is returned is on disk.
///
/// A key file that is not readable as a key is kept as `key.pem.bad` and replaced, with a notice. A missing or unfitting certificate is
/// made again for the same key, which changes no fingerprint. A file with another owner, a link or open permissions is an error and
/// stays as it is.
pub fn load_or_create(dir: &Path) -> Result<Loaded, IdentityError> {
    durable_file::make_dir(dir, 0o700)?;
    // What a crash left of writing a key is half a secret.
    durable_file::sweep(dir)?;
    let (key, made, notice) = match durable_file::read_private(&key_path(dir), CAP)? {
        None => (make_key(dir)?, true, None),
        Some(bytes) => {
            let bytes = Zeroizing::new(bytes);
            match parse_key(&bytes) {
                Some(key) => (key, false, None),
                None => {
                    durable_file::write(&bad_path(dir), &bytes, SECRET, "identity-discard")?;
                    let notice = format!(
                        "the client key {} was damaged and is kept as key.pem.bad; a new key was made, so the cluster sees a new machine",
                        key_path(dir).display()
                    );
                    (make_key(dir)?, true, Some(Safe::clean(notice)))
                }
            }
        }
    };
    let cert = match durable_file::read_private(&cert_path(dir), CAP)?.as_deref().and_then(parse_cert) {
        Some(cert) if spki_digest(&cert) == Some(fingerprint(&key)) => cert,
        _ => {
            let cert = certificate(&key)?;
            durable_file::write(&cert_path(dir), cert.pem().as_bytes(), SECRET, "cert-create")?;
            cert.der().clone()
        }
    };
    Ok(Loaded { identity: Identity::of(&key, cert)?, made, notice })
}

/// The identity of `dir` for somebody who only looks; `None` when there is none that can be used. Makes and moves nothing.
pub fn load(dir: &Path) -> Result<Option<Identity>, IdentityError> {
    let Some(bytes) = durable_file::read_private(&key_path(dir), CAP)? else { return Ok(None) };
    let bytes = Zeroizing::new(bytes);
    let cert = durable_file::read_private(&cert_path(dir), CAP)?;
    let (Some(key), Some(cert)) = (parse_key(&bytes), cert.as_deref().and_then(parse_cert)) else {
        return Ok(None);
    };
    Identity::of(&key, cert).map(Some)
}

/// Removes key and certificate, durably. The key goes first: a crash in between then cannot bring the old identity back.
pub fn discard(dir: &Path) -> Result<(), IdentityError> {
    for path in [key_path(dir), cert_path(dir), bad_path(dir)] {
        durable_file::remove(&path, "identity-discard")?;
    }
    Ok(())
}

/// SHA-256 of a certificate's DER SubjectPublicKeyInfo; `None` when it is no certificate.
pub fn spki_digest(cert: &CertificateDer<'_>) -> Option<[u8; 32]> {
    let cert = webpki::EndEntityCert::try_from(cert).ok()?;
    Some(sha256(&cert.subject_public_key_info()))
}

fn key_path(dir: &Path) -> PathBuf {
    dir.join("key.pem")
}

fn cert_path(dir: &Path) -> PathBuf {
    dir.join("cert.pem")
}

fn bad_path(dir: &Path) -> PathBuf {
    dir.join("key.pem.bad")
}

fn make_key(dir: &Path) -> Result<KeyPair, IdentityError> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let pem = Zeroizing::new(key.serialize_pem());
    durable_file::write(&key_path(dir), pem.as_bytes(), SECRET, "key-create")?;
    Ok(key)
}

fn parse_key(pem: &[u8]) -> Option<KeyPair> {
    let pem = std::str::from_utf8(pem).ok()?;
    KeyPair::from_pkcs8_pem_and_sign_algo(pem, &PKCS_ECDSA_P256_SHA256).ok()
}

fn parse_cert(pem: &[u8]) -> Option<CertificateDer<'static>> {
    CertificateDer::from_pem_slice(pem).ok()
}

/// Valid for all time, because a machine whose clock is dead must join.
fn certificate(key: &KeyPair) -> Result<rcgen::Certificate, IdentityError> {
    let mut params = CertificateParams::default();
    params.not_before = date_time_ymd(1970, 1, 1);
    params.not_after = date_time_ymd(9999, 12, 31);
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, COMMON_NAME);
    let mut serial = random::<16>()?;
    // A serial number is a positive integer without leading zeros (RFC 5280, 4.1.2.2).
    serial[0] = serial[0] & 0x7f | 0x40;
    params.serial_number = Some(SerialNumber::from_slice(serial.as_slice()));
    Ok(params.self_signed(key)?)
}

fn fingerprint(key: &KeyPair) -> [u8; 32] {
    sha256(&key.subject_public_key_info())
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(digest(&SHA256, bytes).as_ref());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn dir() -> tempfile::TempDir {
        tempfile::tempdir().expect("a temporary directory")
    }

    fn identity(dir: &Path) -> PathBuf {
        dir.join("identity")
    }

    #[expect(clippy::disallowed_methods, reason = "the test plays the damage")]
    fn damage(path: &Path, bytes: &[u8]) {
        std::fs::write(path, bytes).expect("a file of the test");
    }

    #[test]
    fn it_is_made_once_and_loaded_afterwards() {
        let root = dir();
        let first = load_or_create(&identity(root.path())).expect("a new identity");
        let second = load_or_create(&identity(root.path())).expect("the same identity");
        assert!(first.made && !second.made && second.notice.is_none());
        assert_eq!(first.identity.client_fp(), second.identity.client_fp());
        assert_eq!(first.identity.cert_der(), second.identity.cert_der());
        for name in ["key.pem", "cert.pem"] {
            let mode = std::fs::metadata(identity(root.path()).join(name)).expect(name).permissions().mode();
            assert_eq!(mode & 0o7777, 0o600, "{name}");
        }
    }

    #[test]
    fn the_fingerprint_is_that_of_the_certificate_and_the_certificate_is_small() {
        let identity = Identity::ephemeral().expect("an identity");
        let cert = CertificateDer::from(identity.cert_der());
        assert_eq!(spki_digest(&cert), Some(identity.client_fp()));
        assert!(identity.cert_der().len() < 1024);
        assert!(!format!("{identity:?}").contains("PRIVATE"));
    }

    #[test]
    fn a_lost_or_foreign_certificate_is_made_again_for_the_same_key() {
        let root = dir();
        let dir = identity(root.path());
        let first = load_or_create(&dir).expect("a new identity").identity.client_fp();
        std::fs::remove_file(cert_path(&dir)).expect("it was there");
        let again = load_or_create(&dir).expect("the same key");
        assert!(!again.made && again.notice.is_none());
        assert_eq!(again.identity.client_fp(), first);

        let foreign = Identity::ephemeral().expect("another identity");
        let pem = data_encoding::BASE64.encode(foreign.cert_der());
        for bad in
            [format!("-----BEGIN CERTIFICATE-----\n{pem}\n-----END CERTIFICATE-----\n"), "rubbish".to_owned()]
        {
            damage(&cert_path(&dir), bad.as_bytes());
            let again = load_or_create(&dir).expect("the same key");
            assert_eq!(again.identity.client_fp(), first);
            assert_eq!(spki_digest(&CertificateDer::from(again.identity.cert_der())), Some(first));
        }
    }

    #[test]
    fn a_damaged_key_is_kept_and_replaced_loudly() {
        let root = dir();
        let dir = identity(root.path());
        let first = load_or_create(&dir).expect("a new identity").identity.client_fp();
        for bad in [&b""[..], b"\0\0\0\0", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"]
        {
            damage(&key_path(&dir), bad);
            let again = load_or_create(&dir).expect("a new key");
            assert!(again.made && again.notice.is_some());
            assert_ne!(again.identity.client_fp(), first);
            assert_eq!(std::fs::read(bad_path(&dir)).expect("kept"), bad);
            assert!(!load_or_create(&dir).expect("the new key").made);
        }
    }

    #[test]
    fn a_key_that_others_can_read_is_not_used_and_not_replaced() {
        let root = dir();
        let dir = identity(root.path());
        load_or_create(&dir).expect("a new identity");
        let before = std::fs::read(key_path(&dir)).expect("the key");
        std::fs::set_permissions(key_path(&dir), std::fs::Permissions::from_mode(0o644)).expect("our file");
        let error = load_or_create(&dir).expect_err("open permissions");
        assert_eq!(error.fault().code, Code::Tampered);
        assert_eq!(std::fs::read(key_path(&dir)).expect("the key"), before);
    }

    #[test]
    fn discarding_makes_room_for_another_key() {
        let root = dir();
        let dir = identity(root.path());
        let first = load_or_create(&dir).expect("a new identity").identity.client_fp();
        discard(&dir).expect("our files");
        discard(&dir).expect("nothing to discard is fine");
        let second = load_or_create(&dir).expect("a new identity");
        assert!(second.made);
        assert_ne!(second.identity.client_fp(), first);
    }
}
