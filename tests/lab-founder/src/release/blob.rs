//! One file of a release: read once from its start to its end, in pieces. Touches the files it is told.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use anyhow::Context;
use data_encoding::BASE64;
use ring::digest::{Context as Hash, SHA256};
use stratum_join::upgrade::{CHUNK, Digest};

/// Bytes in memory at a time.
const PIECE: usize = 256 * 1024;

/// What the manifest says of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hashed {
    pub(super) size: u64,
    pub(super) sha256: Digest,
    /// One for each chunk; one alone is `sha256`.
    pub(super) chunks: Vec<Digest>,
}

/// Hashes `from` and writes what it reads to `to`. The bytes written are the bytes hashed.
pub(super) fn copy(from: &Path, to: &Path) -> anyhow::Result<Hashed> {
    let source = open(from)?;
    let mut out = File::create_new(to).with_context(|| format!("cannot write {}", to.display()))?;
    hash(source, |piece| out.write_all(piece).with_context(|| format!("cannot write {}", to.display())))
        .with_context(|| format!("while {} is copied", from.display()))
}

/// Hashes `path`.
pub(super) fn read(path: &Path) -> anyhow::Result<Hashed> {
    hash(open(path)?, |_| Ok(())).with_context(|| path.display().to_string())
}

fn open(path: &Path) -> anyhow::Result<File> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    anyhow::ensure!(file.metadata()?.is_file(), "{} is not a file", path.display());
    Ok(file)
}

fn hash(mut from: impl Read, mut each: impl FnMut(&[u8]) -> anyhow::Result<()>) -> anyhow::Result<Hashed> {
    let mut piece = vec![0; PIECE];
    let (mut whole, mut chunk) = (Hash::new(&SHA256), Hash::new(&SHA256));
    let (mut size, mut in_chunk) = (0_u64, 0_u64);
    let mut chunks = Vec::new();
    loop {
        // Never over the end of a chunk: both are whole multiples of the piece.
        let most = (CHUNK - in_chunk).min(PIECE as u64) as usize;
        let n = match from.read(&mut piece[..most]) {
            Ok(0) => break,
            Ok(n) => n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e.into()),
        };
        each(&piece[..n])?;
        whole.update(&piece[..n]);
        chunk.update(&piece[..n]);
        size += n as u64;
        in_chunk += n as u64;
        if in_chunk == CHUNK {
            chunks.push(digest(std::mem::replace(&mut chunk, Hash::new(&SHA256))));
            in_chunk = 0;
        }
    }
    if in_chunk > 0 {
        chunks.push(digest(chunk));
    }
    Ok(Hashed { size, sha256: digest(whole), chunks })
}

fn digest(hash: Hash) -> Digest {
    Digest(hash.finish().as_ref().try_into().expect("SHA-256 has 32 bytes"))
}

// === impl Hashed ===

impl Hashed {
    /// The field `chunks`: absent for a file of one chunk.
    pub(super) fn chunks_field(&self) -> Option<String> {
        let bytes: Vec<u8> = self.chunks.iter().flat_map(|digest| digest.0).collect();
        (self.size > CHUNK).then(|| BASE64.encode(&bytes))
    }
}
