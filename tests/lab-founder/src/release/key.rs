//! Signing keys in the form of minisign, without a password.
//!
//! Touches the key files it is told. Must never write a secret key that others can read, nor over a file that is there.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use blake2::digest::consts::U32;
use blake2::{Blake2b, Digest};
use data_encoding::BASE64;
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{Ed25519KeyPair, KeyPair};
use stratum_join::upgrade::keys::KeyId;

/// Ed25519.
const ALGORITHM: &[u8; 2] = b"Ed";
/// BLAKE2b, of the checksum.
const CHECKSUM: &[u8; 2] = b"B2";
/// No password.
const NO_KDF: [u8; 2] = [0, 0];
/// Salt and the two limits, which count only with a password.
const KDF_FIELDS: usize = 32 + 8 + 8;
/// Bytes of a secret key file's second line, decoded.
const SECRET_LEN: usize = 2 + 2 + 2 + KDF_FIELDS + 8 + 64 + 32;

/// A key that signs.
pub struct SecretKey {
    id: KeyId,
    seed: [u8; 32],
    pair: Ed25519KeyPair,
}

/// Why a file is no key that can be used here.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// It has a password.
    #[error("the key has a password: sign with minisign itself (`release sign --print-minisign` prints how)")]
    Password,
    /// Anything else.
    #[error("not a secret key of minisign: {0}")]
    Invalid(&'static str),
}

// === impl SecretKey ===

impl SecretKey {
    /// A new one.
    pub fn generate() -> anyhow::Result<Self> {
        let random = SystemRandom::new();
        let (mut seed, mut id) = ([0; 32], [0; 8]);
        random
            .fill(&mut seed)
            .and_then(|()| random.fill(&mut id))
            .map_err(|_| anyhow::anyhow!("the system gives no random bytes"))?;
        Ok(Self::from_seed(seed, id))
    }

    /// The same for the same bytes: for tests.
    pub fn from_seed(seed: [u8; 32], id: [u8; 8]) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).expect("32 bytes are a seed");
        Self { id: KeyId::of_bytes(id), seed, pair }
    }

    /// Its number.
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// The `.pub` file.
    pub fn public_text(&self) -> String {
        let line = BASE64.encode(&[&ALGORITHM[..], &self.id.bytes(), self.public()].concat());
        format!("untrusted comment: minisign public key {}\n{line}\n", self.id)
    }

    /// The `.key` file.
    pub fn secret_text(&self) -> String {
        let mut bytes = Vec::with_capacity(SECRET_LEN);
        bytes.extend_from_slice(ALGORITHM);
        bytes.extend_from_slice(&NO_KDF);
        bytes.extend_from_slice(CHECKSUM);
        bytes.extend_from_slice(&[0; KDF_FIELDS]);
        bytes.extend_from_slice(&self.id.bytes());
        bytes.extend_from_slice(&self.seed);
        bytes.extend_from_slice(self.public());
        bytes.extend_from_slice(&self.checksum());
        format!("untrusted comment: minisign secret key\n{}\n", BASE64.encode(&bytes))
    }

    /// Reads a `.key` file of ours or of `minisign -G -W`.
    pub fn parse(text: &str) -> Result<Self, KeyFileError> {
        let invalid = KeyFileError::Invalid;
        let line = text.lines().nth(1).ok_or(invalid("it has no second line"))?;
        let bytes = BASE64.decode(line.as_bytes()).map_err(|_| invalid("not base64"))?;
        if bytes.len() != SECRET_LEN || bytes[..2] != ALGORITHM[..] || bytes[4..6] != CHECKSUM[..] {
            return Err(invalid("another format"));
        }
        if bytes[2..4] != NO_KDF[..] {
            return Err(KeyFileError::Password);
        }
        let rest = &bytes[6 + KDF_FIELDS..];
        let (id, rest) = rest.split_at(8);
        let (seed, rest) = rest.split_at(32);
        let (public, checksum) = rest.split_at(32);
        let array = |b: &[u8]| b.try_into().expect("the length was checked");
        let key = Self::from_seed(array(seed), id.try_into().expect("the length was checked"));
        // minisign 0.11 leaves the checksum of a key without a password zero.
        let whole = *checksum == [0; 32] || *checksum == key.checksum();
        if !whole || *public != *key.public() {
            return Err(invalid("it is damaged"));
        }
        Ok(key)
    }

    /// Reads a `.key` file.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    /// Ed25519 over `bytes`.
    pub(super) fn sign(&self, bytes: &[u8]) -> Vec<u8> {
        self.pair.sign(bytes).as_ref().to_vec()
    }

    fn public(&self) -> &[u8] {
        self.pair.public_key().as_ref()
    }

    fn checksum(&self) -> [u8; 32] {
        let mut hash = Blake2b::<U32>::new();
        hash.update(ALGORITHM);
        hash.update(self.id.bytes());
        hash.update(self.seed);
        hash.update(self.public());
        hash.finalize().into()
    }
}

/// Its number and nothing of the secret.
impl std::fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SecretKey({})", self.id)
    }
}

/// Makes `out/<name>.key` (0600) and `out/<name>.pub`; neither may be there.
pub fn keygen(out: &Path, name: &str) -> anyhow::Result<(SecretKey, PathBuf)> {
    if name.is_empty() || name.starts_with('.') || name.contains('/') {
        bail!("`{name}` is no name of a file");
    }
    let (secret, public) = (out.join(format!("{name}.key")), out.join(format!("{name}.pub")));
    if public.exists() {
        bail!("{} is there already; a key is never written over", public.display());
    }
    std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let key = SecretKey::generate()?;
    new_file(&secret, 0o600, &key.secret_text())?;
    new_file(&public, 0o644, &key.public_text())?;
    Ok((key, secret))
}

fn new_file(path: &Path, mode: u32, text: &str) -> anyhow::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    if file.as_ref().is_err_and(|e| e.kind() == std::io::ErrorKind::AlreadyExists) {
        bail!("{} is there already; a key is never written over", path.display());
    }
    let write = file.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    write.with_context(|| format!("cannot write {}", path.display()))
}
