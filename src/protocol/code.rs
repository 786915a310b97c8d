//! The join code: 2 characters that find it at the founder, 8 that are secret, 1 check character.
//!
//! Touches nothing. A code is never printed whole except through [`JoinCode::written`], and a refused text is never echoed: it may be
//! most of a secret.

use std::fmt;

use subtle::ConstantTimeEq;
use zeroize::{Zeroize, Zeroizing};

/// Crockford's base 32: no I, L, O, U.
pub const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
/// Characters of a normalised code.
pub const CODE_LEN: usize = 11;
/// Longest text that is looked at, in bytes.
pub const MAX_TYPED: usize = 128;

/// A join code as the founder knows it: 11 characters of [`ALPHABET`]. Secret; wiped on drop; compared in constant time.
#[derive(Clone)]
pub struct JoinCode {
    chars: [u8; CODE_LEN],
}

/// Why a text is no join code. Never holds the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CodeError {
    /// Nothing but separators.
    #[error("the join code is empty")]
    Empty,
    /// Something that neither is in the alphabet nor a separator nor a known slip.
    #[error("the join code contains a character that no join code has")]
    Character,
    /// Another number of characters than 11.
    #[error("a join code has {CODE_LEN} characters, this one has {0}")]
    Length(usize),
    /// Over [`MAX_TYPED`] bytes; not looked at.
    #[error("a join code has {CODE_LEN} characters, this text has more than {MAX_TYPED}")]
    TooLong,
}

// === impl CodeError ===

impl CodeError {
    /// The reason's name: `empty`, `character` or `length`.
    pub fn reason(self) -> &'static str {
        match self {
            CodeError::Empty => "empty",
            CodeError::Character => "character",
            CodeError::Length(_) | CodeError::TooLong => "length",
        }
    }
}

// === impl JoinCode ===

impl JoinCode {
    /// Normalises what a person typed or pasted: separators of word processors are dropped, lower case is accepted, `I` and `L` are `1`,
    /// `O` is `0`. A check character that does not fit is no refusal (another founder may mint codes without one): see
    /// [`JoinCode::check_fits`].
    pub fn parse(typed: &str) -> Result<Self, CodeError> {
        if typed.len() > MAX_TYPED {
            return Err(CodeError::TooLong);
        }
        let mut chars = Zeroizing::new([0_u8; MAX_TYPED]);
        let mut count = 0;
        for c in typed.chars().filter(|c| !is_separator(*c)) {
            let c = u8::try_from(c).map_err(|_| CodeError::Character)?;
            let c = match c.to_ascii_uppercase() {
                b'I' | b'L' => b'1',
                b'O' => b'0',
                c => c,
            };
            value(c).ok_or(CodeError::Character)?;
            chars[count] = c;
            count += 1;
        }
        match count {
            0 => Err(CodeError::Empty),
            CODE_LEN => {
                let mut code = Self { chars: [0; CODE_LEN] };
                code.chars.copy_from_slice(&chars[..CODE_LEN]);
                Ok(code)
            }
            n => Err(CodeError::Length(n)),
        }
    }

    /// Mints a code from ten random bytes, of which the low five bits count: the first two make the selector, the others the secret.
    /// The selector is independent of the secret, so that showing it gives nothing away.
    pub fn mint(random: &[u8; 10]) -> Self {
        let mut chars = [0; CODE_LEN];
        for (c, byte) in chars.iter_mut().zip(random) {
            *c = ALPHABET[usize::from(byte & 31)];
        }
        chars[10] = check_character(&chars[..10]);
        Self { chars }
    }

    /// Characters 1 and 2: public, finds the code at the founder.
    pub fn selector(&self) -> &str {
        self.text(0, 2)
    }

    /// Characters 1 to 10: what is stretched into the password of the proof. Secret.
    pub fn password(&self) -> &str {
        self.text(0, 10)
    }

    /// The whole code in groups, `4F7K-2Q9M-ABD`. Secret: only for where it is first shown, and for its own file.
    pub fn written(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("{}-{}-{}", self.text(0, 4), self.text(4, 8), self.text(8, CODE_LEN)))
    }

    /// Whether the last character fits the others: a hint for a person, never a refusal.
    pub fn check_fits(&self) -> bool {
        check_character(&self.chars[..10]) == self.chars[10]
    }

    /// What may be shown: the selector and stars, `4F**-****-***`.
    pub fn hint(&self) -> String {
        format!("{}**-****-***", self.selector())
    }

    fn text(&self, from: usize, to: usize) -> &str {
        // The bytes are of ALPHABET, so they are ASCII.
        std::str::from_utf8(&self.chars[from..to]).unwrap_or_default()
    }
}

impl fmt::Debug for JoinCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinCode({})", self.hint())
    }
}

impl PartialEq for JoinCode {
    fn eq(&self, other: &Self) -> bool {
        self.chars.ct_eq(&other.chars).into()
    }
}

impl Eq for JoinCode {}

impl Drop for JoinCode {
    fn drop(&mut self) {
        self.chars.zeroize();
    }
}

/// What mail and word processors put between the groups: hyphens and dashes, the minus sign, spaces, line ends.
fn is_separator(c: char) -> bool {
    matches!(c, '-' | '\u{2010}'..='\u{2015}' | '\u{2212}' | ' ' | '\u{a0}' | '\t' | '\r' | '\n')
}

fn value(c: u8) -> Option<u8> {
    ALPHABET.iter().position(|a| *a == c).and_then(|at| u8::try_from(at).ok())
}

/// Luhn mod 32 over the characters given, the rightmost doubled.
fn check_character(chars: &[u8]) -> u8 {
    let mut factor = 2;
    let mut sum = 0_usize;
    for c in chars.iter().rev() {
        let addend = factor * usize::from(value(*c).unwrap_or(0));
        sum += addend / 32 + addend % 32;
        factor = 3 - factor;
    }
    ALPHABET[(32 - sum % 32) % 32]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::config;
    use proptest::prelude::*;

    #[test]
    fn a_code_is_never_printed_whole() {
        let code = JoinCode::parse("4f7k 2q9m abd").expect("a good code");
        assert_eq!(format!("{code:?}"), "JoinCode(4F**-****-***)");
        assert_eq!(code.hint(), "4F**-****-***");
        assert_eq!(code.written().as_str(), "4F7K-2Q9M-ABD");
        assert!(code.check_fits());
    }

    #[test]
    fn a_refusal_never_echoes_what_was_typed() {
        let cases = [
            ("", "the join code is empty"),
            ("4F7K-2Q9M-ABU", "the join code contains a character that no join code has"),
            ("4F7K-2Q9M-AB", "a join code has 11 characters, this one has 10"),
            (&"4".repeat(129), "a join code has 11 characters, this text has more than 128"),
        ];
        for (typed, text) in cases {
            assert_eq!(JoinCode::parse(typed).expect_err("a bad code").to_string(), text);
        }
    }

    #[test]
    fn a_wrong_check_character_is_a_hint_and_no_refusal() {
        let code = JoinCode::parse("4F7K-2Q9M-AB0").expect("a code");
        assert!(!code.check_fits());
    }

    /// A code as a person may write it: case, separators and slips by the seed.
    fn written_otherwise(code: &str, seed: &[u8]) -> String {
        let separators = ["", "-", " ", "\u{2013}", "\u{a0}", "\t", "\r\n", "\u{2212}", "--"];
        let mut out = String::new();
        for (c, s) in code.chars().zip(seed.iter().cycle()) {
            out.push_str(separators[usize::from(s >> 4) % separators.len()]);
            let c = match (c, s & 3) {
                ('1', 1) => 'I',
                ('1', 2) => 'l',
                ('0', 1 | 2) => 'O',
                (c, 3) => c.to_ascii_lowercase(),
                (c, _) => c,
            };
            out.push(c);
        }
        out
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn however_it_is_written_it_is_the_same_code(random: [u8; 10], seed: [u8; 13]) {
            let code = JoinCode::mint(&random);
            prop_assert!(code.check_fits());
            let typed = written_otherwise(&code.written(), &seed);
            prop_assume!(typed.len() <= MAX_TYPED);
            let again = JoinCode::parse(&typed).unwrap();
            prop_assert_eq!(&again, &code);
            prop_assert_eq!(again.password(), code.password());
            prop_assert_eq!(JoinCode::parse(&code.written()).unwrap(), code);
        }

        #[test]
        fn one_wrong_character_never_fits_the_check(random: [u8; 10], at in 0_usize..11, shift in 1_u8..32) {
            let code = JoinCode::mint(&random);
            let mut chars = code.chars;
            let wrong = (value(chars[at]).unwrap() + shift) % 32;
            chars[at] = ALPHABET[usize::from(wrong)];
            let typed = String::from_utf8(chars.to_vec()).unwrap();
            prop_assert!(!JoinCode::parse(&typed).unwrap().check_fits());
        }

        #[test]
        fn any_text_is_a_code_or_refused_without_being_echoed(typed in "\\PC{0,140}") {
            match JoinCode::parse(&typed) {
                Ok(code) => prop_assert_eq!(JoinCode::parse(&code.written()).unwrap(), code),
                Err(e) => prop_assert!(typed.len() < 3 || !e.to_string().contains(&typed)),
            }
        }
    }
}
