//! Length-prefixed hashing: what makes two different lists of parts never hash the same. Touches nothing.

use ring::digest::{Context, SHA256};

/// SHA-256 of everything fed so far.
pub(super) struct Transcript(Context);

// === impl Transcript ===

impl Transcript {
    pub(super) fn new() -> Self {
        Self(Context::new(&SHA256))
    }

    /// The bytes as they are.
    pub(super) fn raw(mut self, part: &[u8]) -> Self {
        self.0.update(part);
        self
    }

    /// `LP`: u16 big-endian length, then the bytes. Every caller's part is a constant, a key, an id or a message, far below 64 KiB.
    pub(super) fn lp(self, part: &[u8]) -> Self {
        self.raw(&length(part)).raw(part)
    }

    /// `LP32`: u32 big-endian length, then the bytes. Parts are capped at 512 KiB on the way in.
    pub(super) fn lp32(self, part: &[u8]) -> Self {
        let length = u32::try_from(part.len()).expect("deliveries are capped far below 4 GiB");
        self.raw(&length.to_be_bytes()).raw(part)
    }

    pub(super) fn finish(self) -> [u8; 32] {
        let mut out = [0; 32];
        out.copy_from_slice(self.0.finish().as_ref());
        out
    }
}

/// The length prefix of `LP`.
pub(super) fn length(part: &[u8]) -> [u8; 2] {
    u16::try_from(part.len()).expect("parts are constants, keys, ids and messages").to_be_bytes()
}
