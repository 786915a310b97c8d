//! The proof: both sides show that they know the join code, bound to both TLS keys, without either learning anything it could test.
//!
//! Pure computation, except that [`JoinerProof::start`] and [`FounderProof::answer`] draw random bytes. The joiner takes `ca` from its own TLS
//! session and `client_fp` from its own key, the founder the other way round; neither is ever read from a message. `confirmJ` exists
//! only in a [`JoinerConfirmed`], which exists only after the founder's confirmation was compared.

use std::fmt;
use std::num::NonZeroU32;

use ring::{hkdf, hmac, pbkdf2};
use zeroize::Zeroizing;

use super::code::JoinCode;
use super::encoding::{B64, Pin};
use super::pake::{Message, MessageError, Pake, RandomFailed, SharedKey, Side, Spake2Ed25519, random};
use super::transcript::{Transcript, length};
use super::wire::{Intent, ProofAnswer, ProofRequest, SUITE};

/// PBKDF2 rounds: about 77 ms on a small machine. Once per code, off the async thread.
const ROUNDS: u32 = 200_000;

/// `w`: the stretched code, which is the password of the exchange. What a founder stores. Secret.
#[derive(Clone)]
pub struct Stretched(Zeroizing<[u8; 32]>);

/// A proof that the joiner has begun.
pub struct JoinerProof<P: Pake = Spake2Ed25519> {
    pake: P,
    th0: [u8; 32],
    request: ProofRequest,
}

/// The founder has proved the code. Holds what the joiner's confirmation is made of.
pub struct JoinerConfirmed {
    proof_id: B64<16>,
    resume_commit: Option<B64<32>>,
    confirming: Confirming,
}

/// A proof that the founder has answered and whose confirmation it awaits.
pub struct FounderProof {
    confirming: Confirming,
}

/// Why a proof went no further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// The peer's message fails the message check.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// The founder's confirmation does not fit: it does not know the code, or another key sits in between.
    #[error("the confirmation does not fit the join code")]
    NotProven,
    /// No randomness.
    #[error(transparent)]
    Random(#[from] RandomFailed),
}

/// `kJ` and `th1`.
struct Confirming {
    key: hmac::Key,
    th1: [u8; 32],
}

// === impl Stretched ===

impl Stretched {
    /// Stretches a code. Takes tens of milliseconds: do it once per code and never on the async thread.
    pub fn of(code: &JoinCode) -> Self {
        Self::stretch(code.password(), code.selector())
    }

    /// A stored `w`.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// For the founder's store. Secret.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    fn stretch(password: &str, selector: &str) -> Self {
        let salt = [b"stratum-join/1 pw|".as_slice(), selector.as_bytes()].concat();
        let rounds = const { NonZeroU32::new(ROUNDS).unwrap() };
        let mut out = Zeroizing::new([0; 32]);
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, rounds, &salt, password.as_bytes(), out.as_mut_slice());
        Self(out)
    }
}

impl fmt::Debug for Stretched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

// === impl JoinerProof ===

impl JoinerProof {
    /// Begins a proof. `ca` is the key of the join CA that this machine saw in its own TLS session.
    pub fn start(
        w: &Stretched,
        selector: &str,
        ca: &Pin,
        client_fp: &[u8; 32],
        intent: Intent,
    ) -> Result<Self, ProofError> {
        Ok(Self::start_with(w, selector, th0(ca, client_fp, selector, intent), intent, &random()?))
    }
}

impl<P: Pake> JoinerProof<P> {
    fn start_with(
        w: &Stretched,
        selector: &str,
        th0: [u8; 32],
        intent: Intent,
        entropy: &Zeroizing<[u8; 64]>,
    ) -> Self {
        let pake = P::start(Side::Joiner, w, &th0, entropy);
        let request = ProofRequest {
            v: 1,
            suite: SUITE.to_owned(),
            intent,
            selector: selector.to_owned(),
            msg: pake.message(),
        };
        Self { pake, th0, request }
    }

    /// Body of the first proof call.
    pub fn request(&self) -> &ProofRequest {
        &self.request
    }

    /// Checks the founder's message and compares its confirmation in constant time.
    pub fn finish(self, answer: &ProofAnswer) -> Result<JoinerConfirmed, ProofError> {
        let key = self.pake.finish(&answer.msg.0)?;
        let th1 = th1(&self.th0, &self.request.msg, &answer.msg, &answer.proof_id);
        let (k_f, k_j) = confirmation_keys(&key, &th1);
        let founder = Confirming { key: k_f, th1 };
        if !founder.fits(&answer.confirm, answer.resume_commit.as_ref()) {
            return Err(ProofError::NotProven);
        }
        Ok(JoinerConfirmed {
            proof_id: answer.proof_id,
            resume_commit: answer.resume_commit,
            confirming: Confirming { key: k_j, th1 },
        })
    }
}

// === impl JoinerConfirmed ===

impl JoinerConfirmed {
    /// The proof to confirm.
    pub fn proof_id(&self) -> B64<16> {
        self.proof_id
    }

    /// The commitment of this key's live registration, now known to come from the founder.
    pub fn resume_commit(&self) -> Option<B64<32>> {
        self.resume_commit
    }

    /// `confirmJ` over the commitment that goes with it; `None` for a check.
    pub fn confirm(&self, commit: Option<&B64<32>>) -> B64<32> {
        self.confirming.tag(commit)
    }
}

// === impl FounderProof ===

impl FounderProof {
    /// The founder's half: checks the joiner's message and makes the answer with `confirmF` in it. `ca` is the founder's own join CA key,
    /// `client_fp` that of its TLS session, `proof_id` 16 fresh random bytes. An unknown selector takes the same way with a random `w`.
    pub fn answer(
        w: &Stretched,
        ca: &Pin,
        client_fp: &[u8; 32],
        request: &ProofRequest,
        proof_id: B64<16>,
        resume_commit: Option<B64<32>>,
    ) -> Result<(ProofAnswer, Self), ProofError> {
        let th0 = th0(ca, client_fp, &request.selector, request.intent);
        Ok(Self::answer_with::<Spake2Ed25519>(w, &th0, &request.msg, proof_id, resume_commit, &random()?)?)
    }

    fn answer_with<P: Pake>(
        w: &Stretched,
        th0: &[u8; 32],
        msg_a: &Message,
        proof_id: B64<16>,
        resume_commit: Option<B64<32>>,
        entropy: &Zeroizing<[u8; 64]>,
    ) -> Result<(ProofAnswer, Self), MessageError> {
        let pake = P::start(Side::Founder, w, th0, entropy);
        let msg = pake.message();
        let key = pake.finish(&msg_a.0)?;
        let th1 = th1(th0, msg_a, &msg, &proof_id);
        let (k_f, k_j) = confirmation_keys(&key, &th1);
        let confirm = Confirming { key: k_f, th1 }.tag(resume_commit.as_ref());
        Ok((
            ProofAnswer { proof_id, msg, resume_commit, confirm },
            Self { confirming: Confirming { key: k_j, th1 } },
        ))
    }

    /// Whether the joiner's confirmation fits, in constant time.
    pub fn accepts(&self, confirm: &B64<32>, commit: Option<&B64<32>>) -> bool {
        self.confirming.fits(confirm, commit)
    }
}

// === impl Confirming ===

impl Confirming {
    fn tag(&self, commit: Option<&B64<32>>) -> B64<32> {
        let mut tag = [0; 32];
        tag.copy_from_slice(hmac::sign(&self.key, &self.message(commit)).as_ref());
        B64(tag)
    }

    /// ring compares in constant time.
    fn fits(&self, tag: &B64<32>, commit: Option<&B64<32>>) -> bool {
        hmac::verify(&self.key, &self.message(commit), &tag.0).is_ok()
    }

    fn message(&self, commit: Option<&B64<32>>) -> Vec<u8> {
        let commit = commit.map_or([].as_slice(), |c| &c.0);
        [length(&self.th1).as_slice(), &self.th1, &length(commit), commit].concat()
    }
}

macro_rules! secret_debug {
    ($($type:ty),*) => {$(
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("[secret]")
            }
        }
    )*};
}
secret_debug!(JoinerProof, JoinerConfirmed, FounderProof);

/// What both sides must agree on before the exchange: the suite, both keys, the code's selector and what the proof is for.
fn th0(ca: &Pin, client_fp: &[u8; 32], selector: &str, intent: Intent) -> [u8; 32] {
    Transcript::new()
        .lp(b"stratum-join/1 th0")
        .lp(SUITE.as_bytes())
        .lp(&ca.0)
        .lp(client_fp)
        .lp(selector.as_bytes())
        .lp(intent.as_str().as_bytes())
        .finish()
}

fn th1(th0: &[u8; 32], msg_a: &Message, msg_b: &Message, proof_id: &B64<16>) -> [u8; 32] {
    Transcript::new().lp(b"stratum-join/1 th1").lp(th0).lp(&msg_a.0).lp(&msg_b.0).lp(&proof_id.0).finish()
}

/// `(kF, kJ)`.
fn confirmation_keys(key: &SharedKey, th1: &[u8; 32]) -> (hmac::Key, hmac::Key) {
    let prk = hkdf::Salt::new(hkdf::HKDF_SHA256, b"stratum-join/1").extract(key.as_slice());
    let derive = |label: &[u8]| {
        let info = [label, th1.as_slice()];
        let mut out = Zeroizing::new([0; 32]);
        prk.expand(&info, hkdf::HKDF_SHA256)
            .and_then(|okm| okm.fill(out.as_mut_slice()))
            .expect("one block of HKDF-SHA256 is 32 bytes");
        hmac::Key::new(hmac::HMAC_SHA256, out.as_slice())
    };
    (derive(b"founder confirm"), derive(b"joiner confirm"))
}

#[cfg(test)]
#[path = "vectors.rs"]
mod vectors;
