//! Rule M5: JSON that every reader reads alike. Touches nothing.
//!
//! Parsers differ in what they make of a key that comes twice, of `1.0`, of a NUL and of deep nesting; a statement that two programs can read
//! in two ways is refused before anybody reads it. It holds no tree: what it needs is bounded by the text.

use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Deepest nesting; the statement itself is one.
const MAX_DEPTH: u8 = 16;

/// The text, or why it is refused: a lowercase fragment.
pub(super) fn strict(bytes: &[u8]) -> Result<&str, String> {
    if bytes.contains(&0) {
        return Err("it holds a NUL".to_owned());
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|e| format!("byte {} is not UTF-8", e.valid_up_to().saturating_add(1)))?;
    if text.starts_with('\u{feff}') {
        return Err("it begins with a byte order mark".to_owned());
    }
    let mut json = serde_json::Deserializer::from_str(text);
    Strict { depth: 0 }.deserialize(&mut json).and_then(|()| json.end()).map_err(|e| e.to_string())?;
    Ok(text)
}

/// One value at a depth; nothing of it is kept.
#[derive(Clone, Copy)]
struct Strict {
    depth: u8,
}

impl Strict {
    fn inside<E: Error>(self) -> Result<Self, E> {
        if self.depth >= MAX_DEPTH {
            return Err(E::custom(format_args!("it is nested deeper than {MAX_DEPTH}")));
        }
        Ok(Self { depth: self.depth.saturating_add(1) })
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    /// What the parser cannot keep as a whole number is given as a float: fractions, exponents, what is too large.
    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Err(E::custom("a number that is not whole, or is too large"))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        if text.contains('\0') { Err(E::custom("a string that holds a NUL")) } else { Ok(()) }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let inside = self.inside()?;
        while seq.next_element_seed(inside)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let inside = self.inside()?;
        let mut keys = HashSet::new();
        while let Some(Key(key)) = map.next_key()? {
            if keys.contains(&key) {
                return Err(A::Error::custom(format_args!("the key `{key}` comes twice in one object")));
            }
            keys.insert(key);
            map.next_value_seed(inside)?;
        }
        Ok(())
    }
}

/// A key as it is after unescaping: `"a"` and `"\u0061"` are one.
#[derive(serde::Deserialize)]
struct Key<'a>(#[serde(borrow)] std::borrow::Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_readers_could_read_differently_is_refused() {
        let deep = |n: usize| format!("{}1{}", "[".repeat(n), "]".repeat(n));
        let cases: [(&[u8], &str); 14] = [
            (b"{\"a\":1,\"a\":2}", "comes twice"),
            (b"{\"a\":{\"b\":1,\"\\u0062\":2}}", "`b` comes twice"),
            (b"[{\"x\":{\"y\":1,\"y\":1}}]", "comes twice"),
            (b"{\"a\":1.0}", "not whole"),
            (b"{\"a\":1e2}", "not whole"),
            (b"{\"a\":-0}", "not whole"),
            (b"{\"a\":18446744073709551616}", "too large"),
            (b"{\"a\":\"\\u0000\"}", "NUL"),
            (b"{\"a\":1}\0", "NUL"),
            (b"{\"a\":1} {}", "trailing"),
            (b"\xef\xbb\xbf{}", "byte order mark"),
            (b"{\"a\":\"\xff\"}", "byte 7 is not UTF-8"),
            (b"{\"a\":\"\\ud800\"}", "hex escape"),
            (b"{\"a\":}", "expected value"),
        ];
        for (bytes, why) in cases {
            let error = strict(bytes).expect_err(why);
            assert!(error.contains(why), "{error} / {why}");
        }
        assert!(strict(deep(17).as_bytes()).unwrap_err().contains("deeper than 16"));
        assert!(strict(deep(4000).as_bytes()).is_err());
        assert!(strict(deep(16).as_bytes()).is_ok());
        assert!(strict(br#" {"a":[1,-1,true,null,"x"],"b":{"a":9007199254740991}} "#).is_ok());
    }
}
