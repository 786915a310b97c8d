//! The password-authenticated key exchange behind a trait, and the check of the peer's message that the crate leaves out.
//!
//! Touches nothing but the random source. Suite `spake2-ed25519`: SPAKE2 over Ed25519 as the crate `spake2` and the Python package of the
//! same name compute it. The crate checks only the length, the side byte and that the point decompresses; it accepts the identity, points
//! of small order, points with a torsion part and non-canonical encodings. All of these are refused here, before it sees them.

use std::fmt;

use curve25519_dalek::edwards::CompressedEdwardsY;
use curve25519_dalek::traits::IsIdentity;
use rand_core::{CryptoRng, RngCore};
use ring::rand::{SecureRandom, SystemRandom};
use spake2::{Ed25519Group, Identity, Password, Spake2};
use zeroize::{Zeroize, Zeroizing};

use super::encoding::B64;
use super::proof::Stretched;

/// A message of the exchange: the side byte and a compressed point.
pub type Message = B64<33>;
/// The shared key. Secret.
pub type SharedKey = Zeroizing<[u8; 32]>;

/// Which end of the exchange this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Side A.
    Joiner,
    /// Side B.
    Founder,
}

/// Why a peer's message is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Not 33 bytes, or not the peer's side byte (a reflected message).
    #[error("the proof message has the wrong form")]
    Form,
    /// Not the canonical encoding of its point.
    #[error("the proof message is not encoded canonically")]
    Encoding,
    /// Off the curve, the identity, or outside the prime-order group.
    #[error("the proof message is not a point of the group")]
    Group,
}

/// One side of a password-authenticated key exchange. The port for another implementation or suite.
pub trait Pake: Sized {
    /// Begins with 64 bytes of fresh entropy, which become the secret scalar. `th0` binds both keys, the selector and the intent.
    fn start(side: Side, password: &Stretched, th0: &[u8; 32], entropy: &Zeroizing<[u8; 64]>) -> Self;

    /// What to send.
    fn message(&self) -> Message;

    /// Checks the peer's message, then computes the shared key. Both ends have the same key only if both had the same password and `th0`.
    fn finish(self, peer: &[u8]) -> Result<SharedKey, MessageError>;
}

/// SPAKE2 over Ed25519.
pub struct Spake2Ed25519 {
    side: Side,
    state: Spake2<Ed25519Group>,
    message: [u8; 33],
}

/// The system gave no random bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the system's random source failed")]
pub struct RandomFailed;

// === impl Side ===

impl Side {
    /// The first byte of what the other side sends.
    fn peer_byte(self) -> u8 {
        match self {
            Side::Joiner => b'B',
            Side::Founder => b'A',
        }
    }
}

// === impl MessageError ===

impl MessageError {
    /// The reason's name: `form`, `encoding` or `group`.
    pub fn reason(self) -> &'static str {
        match self {
            MessageError::Form => "form",
            MessageError::Encoding => "encoding",
            MessageError::Group => "group",
        }
    }
}

// === impl Spake2Ed25519 ===

impl Pake for Spake2Ed25519 {
    fn start(side: Side, password: &Stretched, th0: &[u8; 32], entropy: &Zeroizing<[u8; 64]>) -> Self {
        let password = Password::new(password.as_bytes());
        let joiner = Identity::new(&[b"joiner".as_slice(), th0].concat());
        let founder = Identity::new(&[b"founder".as_slice(), th0].concat());
        let random = OneScalar::new(entropy);
        let (state, sent) = match side {
            Side::Joiner => Spake2::<Ed25519Group>::start_a_with_rng(&password, &joiner, &founder, random),
            Side::Founder => Spake2::<Ed25519Group>::start_b_with_rng(&password, &joiner, &founder, random),
        };
        let message = sent.try_into().expect("a side byte and a compressed point are 33 bytes");
        Self { side, state, message }
    }

    fn message(&self) -> Message {
        B64(self.message)
    }

    fn finish(self, peer: &[u8]) -> Result<SharedKey, MessageError> {
        check(peer, self.side.peer_byte())?;
        // The crate checks the same form again, so no other error is left.
        let key = Zeroizing::new(self.state.finish(peer).map_err(|_| MessageError::Form)?);
        let mut out = Zeroizing::new([0; 32]);
        out.copy_from_slice(key.get(..32).ok_or(MessageError::Form)?);
        Ok(out)
    }
}

impl fmt::Debug for Spake2Ed25519 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

/// The message check (docs/protocol.md): form, encoding, group, in this order.
pub fn check(peer: &[u8], side_byte: u8) -> Result<(), MessageError> {
    let (first, point) = peer.split_first().ok_or(MessageError::Form)?;
    let bytes: [u8; 32] = point.try_into().map_err(|_| MessageError::Form)?;
    if *first != side_byte {
        return Err(MessageError::Form);
    }
    let compressed = CompressedEdwardsY(bytes);
    let point = compressed.decompress().ok_or(MessageError::Group)?;
    if point.compress() != compressed {
        return Err(MessageError::Encoding);
    }
    if point.is_identity() || !point.is_torsion_free() {
        return Err(MessageError::Group);
    }
    Ok(())
}

/// Fresh random bytes of the system.
pub fn random<const N: usize>() -> Result<Zeroizing<[u8; N]>, RandomFailed> {
    let mut bytes = Zeroizing::new([0; N]);
    SystemRandom::new().fill(bytes.as_mut_slice()).map_err(|_| RandomFailed)?;
    Ok(bytes)
}

/// Gives the crate the one scalar it draws, so that a run can be repeated by a test vector.
struct OneScalar {
    bytes: [u8; 64],
    used: bool,
}

impl OneScalar {
    fn new(entropy: &[u8; 64]) -> Self {
        Self { bytes: *entropy, used: false }
    }
}

impl Drop for OneScalar {
    fn drop(&mut self) {
        self.bytes.zeroize();
    }
}

impl RngCore for OneScalar {
    fn next_u32(&mut self) -> u32 {
        rand_core::impls::next_u32_via_fill(self)
    }

    fn next_u64(&mut self) -> u64 {
        rand_core::impls::next_u64_via_fill(self)
    }

    fn fill_bytes(&mut self, dest: &mut [u8]) {
        // The version of the crate is pinned and the vectors prove it: handing out the same bytes twice would be worse than stopping.
        assert!(!self.used && dest.len() == 64, "spake2 draws exactly one scalar of 64 bytes");
        dest.copy_from_slice(&self.bytes);
        self.used = true;
    }

    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), rand_core::Error> {
        self.fill_bytes(dest);
        Ok(())
    }
}

impl CryptoRng for OneScalar {}
