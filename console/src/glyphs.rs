//! The big pairing code: four columns by five rows a character, drawn with reverse-video spaces.
//!
//! Why spaces: blocks, halves and quadrants are missing from one or more of the default console fonts; a space never is. The
//! alphabet is Crockford's, without I, L, O, U, so M may be a gate and W a trough: better told from H at a distance than the
//! textbook shapes. Every pair of glyphs differs in at least 3 pixels.

/// The characters a pairing code is made of.
pub const ALPHABET: &str = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// Pixels across a whole code: six characters of 4, a dash of 3, six gaps.
pub(crate) const CODE_WIDTH: usize = 33;
/// Pixels down.
pub(crate) const CODE_HEIGHT: usize = 5;

/// Five rows of four pixels, the leftmost in bit 3, in the order of [`ALPHABET`].
const GLYPHS: [[u8; CODE_HEIGHT]; 32] = [
    [0b0110, 0b1011, 0b1001, 0b1101, 0b0110], // 0
    [0b0100, 0b1100, 0b0100, 0b0100, 0b1110], // 1
    [0b1110, 0b0001, 0b0110, 0b1000, 0b1111], // 2
    [0b1110, 0b0001, 0b0110, 0b0001, 0b1110], // 3
    [0b1010, 0b1010, 0b1111, 0b0010, 0b0010], // 4
    [0b1111, 0b1000, 0b1111, 0b0001, 0b1111], // 5
    [0b0110, 0b1000, 0b1111, 0b1001, 0b1111], // 6
    [0b1111, 0b0001, 0b0010, 0b0100, 0b0100], // 7
    [0b0110, 0b1001, 0b0110, 0b1001, 0b0110], // 8
    [0b0111, 0b1001, 0b0111, 0b0001, 0b0001], // 9
    [0b0110, 0b1001, 0b1111, 0b1001, 0b1001], // A
    [0b1110, 0b1001, 0b1110, 0b1001, 0b1110], // B
    [0b0111, 0b1000, 0b1000, 0b1000, 0b0111], // C
    [0b1110, 0b1001, 0b1001, 0b1001, 0b1110], // D
    [0b1111, 0b1000, 0b1110, 0b1000, 0b1111], // E
    [0b1111, 0b1000, 0b1110, 0b1000, 0b1000], // F
    [0b0111, 0b1000, 0b1011, 0b1001, 0b0111], // G
    [0b1001, 0b1001, 0b1111, 0b1001, 0b1001], // H
    [0b0011, 0b0001, 0b0001, 0b1001, 0b0110], // J
    [0b1001, 0b1010, 0b1100, 0b1010, 0b1001], // K
    [0b1111, 0b1111, 0b1001, 0b1001, 0b1001], // M
    [0b1101, 0b1101, 0b1111, 0b1011, 0b1011], // N
    [0b1110, 0b1001, 0b1001, 0b1110, 0b1000], // P
    [0b0110, 0b1001, 0b1001, 0b1011, 0b0111], // Q
    [0b1110, 0b1001, 0b1110, 0b1010, 0b1001], // R
    [0b0111, 0b1000, 0b0110, 0b0001, 0b1110], // S
    [0b1111, 0b0110, 0b0110, 0b0110, 0b0110], // T
    [0b1001, 0b1001, 0b1001, 0b0110, 0b0110], // V
    [0b1001, 0b1001, 0b1001, 0b1111, 0b1111], // W
    [0b1001, 0b0110, 0b0110, 0b0110, 0b1001], // X
    [0b1001, 0b1001, 0b0110, 0b0110, 0b0110], // Y
    [0b1111, 0b0010, 0b0100, 0b1000, 0b1111], // Z
];

/// Columns and rows of one pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scale {
    pub(crate) w: usize,
    pub(crate) h: usize,
}

/// The scale for a terminal, or `None` where a big code does not fit. 80x24 gives 2x1, 128x48 3x1, 240x67 7x3.
pub(crate) fn scale(cols: usize, rows: usize) -> Option<Scale> {
    let w = cols.saturating_sub(6) / CODE_WIDTH;
    (w > 0 && rows >= 10).then(|| Scale { w, h: (w / 2).min(rows.saturating_sub(18) / 5).max(1) })
}

/// The pixels of `XXX-XXX`, or `None` when it is not a pairing code.
pub(crate) fn pixels(code: &str) -> Option<[[bool; CODE_WIDTH]; CODE_HEIGHT]> {
    let code = code.as_bytes();
    if code.len() != 7 || code[3] != b'-' {
        return None;
    }
    let mut out = [[false; CODE_WIDTH]; CODE_HEIGHT];
    let mut at = 0;
    for (position, c) in code.iter().enumerate() {
        if position == 3 {
            out[2][at..at + 3].fill(true);
            at += 4;
            continue;
        }
        let glyph = GLYPHS[ALPHABET.bytes().position(|a| a == *c)?];
        for (row, bits) in glyph.iter().enumerate() {
            for column in 0..4 {
                out[row][at + column] = bits >> (3 - column) & 1 == 1;
            }
        }
        at += 5;
    }
    Some(out)
}

/// How a code is said aloud: `four, Foxtrot, seven - Kilo, two, Quebec`.
pub(crate) fn spoken(code: &str) -> Option<String> {
    pixels(code)?;
    let half = |part: &str| part.bytes().map(word).collect::<Vec<_>>().join(", ");
    Some(format!("{} - {}", half(&code[..3]), half(&code[4..])))
}

fn word(c: u8) -> &'static str {
    const DIGITS: [&str; 10] =
        ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"];
    #[rustfmt::skip]
    const LETTERS: [&str; 26] = [
        "Alfa", "Bravo", "Charlie", "Delta", "Echo", "Foxtrot", "Golf", "Hotel", "India", "Juliett", "Kilo", "Lima", "Mike", "November",
        "Oscar", "Papa", "Quebec", "Romeo", "Sierra", "Tango", "Uniform", "Victor", "Whiskey", "X-ray", "Yankee", "Zulu",
    ];
    match c {
        b'0'..=b'9' => DIGITS[usize::from(c - b'0')],
        b'A'..=b'Z' => LETTERS[usize::from(c - b'A')],
        _ => "?",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(pixels: &[[bool; CODE_WIDTH]; CODE_HEIGHT]) -> String {
        let read = |at: usize| {
            let bits: Vec<u8> = pixels
                .iter()
                .map(|row| (0..4).fold(0, |bits, column| bits << 1 | u8::from(row[at + column])))
                .collect();
            let index = GLYPHS.iter().position(|glyph| glyph[..] == bits[..]).unwrap();
            char::from(ALPHABET.as_bytes()[index])
        };
        [0, 5, 10].into_iter().map(read).chain(['-']).chain([19, 24, 29].into_iter().map(read)).collect()
    }

    #[test]
    fn every_pair_of_glyphs_differs_in_at_least_three_pixels() {
        for (i, a) in GLYPHS.iter().enumerate() {
            for b in &GLYPHS[..i] {
                let distance: u32 = a.iter().zip(b).map(|(x, y)| (x ^ y).count_ones()).sum();
                assert!(distance >= 3, "{i}: {a:?} {b:?}");
            }
        }
    }

    #[test]
    fn the_scale_follows_the_terminal() {
        let of = |cols, rows| scale(cols, rows).map(|s| (s.w, s.h));
        assert_eq!(of(80, 24), Some((2, 1)));
        assert_eq!(of(128, 48), Some((3, 1)));
        assert_eq!(of(240, 67), Some((7, 3)));
        assert_eq!(of(40, 10), Some((1, 1)));
        assert_eq!(of(38, 24), None);
        assert_eq!(of(80, 9), None);
        assert_eq!(of(0, 0), None);
    }

    #[test]
    fn what_is_not_a_pairing_code_has_no_pixels() {
        for bad in ["", "4F7K2QA", "4F7-K2", "4F7-K2I", "4f7-k2q", "4F7-K2Q ", "\u{e9}F-K2Q"] {
            assert!(pixels(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_code_is_spoken_with_digits_as_words_and_letters_as_on_the_radio() {
        assert_eq!(spoken("4F7-K2Q").unwrap(), "four, Foxtrot, seven - Kilo, two, Quebec");
        assert_eq!(spoken("hello"), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10_000))]
        #[test]
        fn a_drawn_code_reads_back(code in "[0-9A-HJKMNP-TV-Z]{3}-[0-9A-HJKMNP-TV-Z]{3}") {
            prop_assert_eq!(decode(&pixels(&code).unwrap()), code);
        }
    }
}
