//! The founder's randomness: the system's, or a seeded stream for simulations that must repeat.
//!
//! Touches the system's random source. A seeded stream must never be used where a real secret is at stake.

use std::sync::Mutex;

use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};

/// Where ids, nonces and codes come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Seed {
    /// The system's random source.
    #[default]
    System,
    /// A stream that repeats: the same seed and the same calls give the same ids. For simulations only.
    Fixed(u64),
}

/// A source of random bytes behind a [`Seed`].
pub(crate) struct Entropy {
    seed: Seed,
    epoch: u64,
    counter: Mutex<u64>,
}

/// The system gave no random bytes.
#[derive(Debug, thiserror::Error)]
#[error("the system's random source failed")]
pub struct NoEntropy;

const ID_ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

// === impl Entropy ===

impl Entropy {
    /// `epoch` is the number of this start, so that a seeded founder does not repeat ids after a restart.
    pub(crate) fn new(seed: Seed, epoch: u64) -> Self {
        Self { seed, epoch, counter: Mutex::new(0) }
    }

    /// Fresh bytes.
    pub(crate) fn bytes<const N: usize>(&self) -> Result<[u8; N], NoEntropy> {
        let mut out = [0; N];
        match self.seed {
            Seed::System => SystemRandom::new().fill(&mut out).map_err(|_| NoEntropy)?,
            Seed::Fixed(seed) => {
                for chunk in out.chunks_mut(32) {
                    let mut counter = self.counter.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    *counter += 1;
                    let input =
                        [seed.to_be_bytes(), self.epoch.to_be_bytes(), counter.to_be_bytes()].concat();
                    chunk.copy_from_slice(&digest(&SHA256, &input).as_ref()[..chunk.len()]);
                }
            }
        }
        Ok(out)
    }

    /// `prefix` and eight characters of Crockford's alphabet in lower case.
    pub(crate) fn id(&self, prefix: &str) -> Result<String, NoEntropy> {
        let random: [u8; 8] = self.bytes()?;
        let tail = random.iter().map(|b| char::from(ID_ALPHABET[usize::from(b & 31)]));
        Ok(prefix.chars().chain(tail).collect())
    }

    /// A secret of 64 hex digits.
    pub(crate) fn hex64(&self) -> Result<String, NoEntropy> {
        Ok(data_encoding::HEXLOWER.encode(&self.bytes::<32>()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seeded_stream_repeats_and_a_restart_goes_on_elsewhere() {
        let draw = |epoch| Entropy::new(Seed::Fixed(7), epoch).id("nj-").unwrap();
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }
}
