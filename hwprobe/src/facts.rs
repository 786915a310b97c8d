//! A small collector for the facts of one device: takes the first source that answers and notes why there is none.
//!
//! May touch: files below `Roots`. Must never: make up a value.

use crate::finding::{Finding, Missing};
use crate::roots::Roots;
use crate::text::Text;
use crate::warning::{Code, Warnings};

/// Facts of one device at one place of the inventory.
pub(crate) struct Facts<'a> {
    pub(crate) roots: &'a Roots,
    pub(crate) at: String,
    pub(crate) warnings: &'a mut Warnings,
}

// === impl Facts ===

impl<'a> Facts<'a> {
    pub(crate) fn new(roots: &'a Roots, at: String, warnings: &'a mut Warnings) -> Self {
        Self { roots, at, warnings }
    }

    /// Cleans bytes into text and notes when something had to be replaced.
    pub(crate) fn text<const MAX: usize>(&mut self, fact: &str, bytes: &[u8]) -> Option<Text<MAX>> {
        let clean = Text::from_bytes(bytes)?;
        if clean.altered {
            self.warnings.note(&self.at, Code::HostileText, fact, "");
        }
        Some(clean.text)
    }

    /// The value, or a note why there is none.
    pub(crate) fn keep<T>(&mut self, fact: &str, found: Finding<T>) -> Option<T> {
        match found {
            Ok(value) => Some(value),
            Err(missing) => {
                self.warnings.note(&self.at, missing, fact, "");
                None
            }
        }
    }

    /// The first of `files` (relative to the root) whose bytes `accept` takes. A refused value is `Junk`, and worth
    /// more than "absent" as a reason, as is any failure.
    pub(crate) fn first<const MAX: usize>(
        &mut self,
        fact: &str,
        files: &[String],
        accept: impl Fn(&str) -> bool,
    ) -> Finding<(Text<MAX>, usize)> {
        let mut why = Missing::Absent;
        for (n, file) in files.iter().enumerate() {
            let missing = match self.roots.read(file) {
                Ok(bytes) => match self.text::<MAX>(fact, &bytes) {
                    Some(text) if accept(&text) => return Ok((text, n)),
                    Some(_) => Missing::Junk,
                    None => Missing::Absent,
                },
                Err(missing) => missing,
            };
            if why == Missing::Absent {
                why = missing;
            }
        }
        Err(why)
    }
}

/// Runs of white space become one space.
pub(crate) fn collapse(bytes: &[u8]) -> Vec<u8> {
    let words = bytes.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty());
    words.collect::<Vec<_>>().join(&b' ')
}
