//! Fixed-length values on the wire: `b64(n)` and pins. Touches nothing.

use std::fmt;

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::wire::Malformed;

/// Exactly `N` bytes, written as base64url without padding. Another length, padding or a non-canonical last character is refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct B64<const N: usize>(pub [u8; N]);

/// `caFP`: SHA-256 of the DER SubjectPublicKeyInfo of a founder's join CA, written `sha256.<b64(32)>`.
///
/// Not secret. Compare with [`Pin::same`], which takes constant time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pin(pub [u8; 32]);

// === impl B64 ===

impl<const N: usize> B64<N> {
    /// The text form.
    pub fn encode(&self) -> String {
        BASE64URL_NOPAD.encode(&self.0)
    }

    /// Parses the text form.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let bytes = BASE64URL_NOPAD.decode(text.as_bytes()).map_err(|_| Malformed("base64url value"))?;
        Ok(Self(bytes.try_into().map_err(|_| Malformed("base64url value"))?))
    }
}

impl<const N: usize> fmt::Debug for B64<N> {
    // Nonces pass through here: never print them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "B64<{N}>")
    }
}

impl<const N: usize> Serialize for B64<N> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.encode())
    }
}

impl<'de, const N: usize> Deserialize<'de> for B64<N> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(d)?).map_err(de::Error::custom)
    }
}

// === impl Pin ===

impl Pin {
    /// Parses `sha256.<b64(32)>`.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let digits = text.strip_prefix("sha256.").ok_or(Malformed("pin"))?;
        Ok(Self(B64::parse(digits).map_err(|_| Malformed("pin"))?.0))
    }

    /// Constant-time comparison.
    pub fn same(&self, other: &Pin) -> bool {
        use subtle::ConstantTimeEq;
        self.0.ct_eq(&other.0).into()
    }

    /// The first `digits` hex digits, for a person to compare.
    pub fn short_hex(&self, digits: usize) -> String {
        let mut hex = HEXLOWER.encode(&self.0);
        hex.truncate(digits);
        hex
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256.{}", BASE64URL_NOPAD.encode(&self.0))
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Pin {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Pin {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(d)?).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_length_padding_or_a_loose_last_character_is_refused() {
        assert!(B64::<1>::parse("AA").is_ok());
        for bad in ["A", "AA==", "AAA", "AB", "A+", ""] {
            assert!(B64::<1>::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_pin_reads_back_what_it_writes() {
        let pin = Pin([7; 32]);
        assert_eq!(Pin::parse(&pin.to_string()), Ok(pin));
        assert!(Pin::parse("sha512.AAAA").is_err());
    }
}
