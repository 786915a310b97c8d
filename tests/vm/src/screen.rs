//! What a virtual terminal of the machine shows, as text: read inside it from `/dev/vcsu*`, so no picture has to be guessed at.

use anyhow::{Context, Result, bail};

use crate::guest::Guest;

/// The cells of one screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Screen {
    /// One string for each row, each as long as the screen is wide.
    pub rows: Vec<String>,
}

// === impl Screen ===

impl Screen {
    /// Reads the screen of `/dev/tty<vt>`.
    pub fn read(guest: &mut Guest, vt: u8) -> Result<Self> {
        // Rows and columns are the first two bytes of the device that has the attributes too.
        let size = guest.bytes("/usr/bin/head", &["-c", "2", &format!("/dev/vcsa{vt}")])?;
        let [_, columns] = size[..] else { bail!("the size of tty{vt} is unknown") };
        let cells = guest.bytes("/bin/cat", &[&format!("/dev/vcsu{vt}")])?;
        Self::decode(&cells, usize::from(columns)).with_context(|| format!("the screen of tty{vt}"))
    }

    fn decode(cells: &[u8], columns: usize) -> Result<Self> {
        if columns == 0 || cells.is_empty() || !cells.len().is_multiple_of(4 * columns) {
            bail!("{} bytes are no rows of {columns} cells", cells.len());
        }
        let rows = cells.chunks(4 * columns).map(|row| row.chunks(4).map(cell).collect()).collect();
        Ok(Self { rows })
    }

    /// The whole text, without the blanks at the ends of rows.
    pub fn text(&self) -> String {
        self.rows.iter().map(|row| format!("{}\n", row.trim_end())).collect()
    }

    /// How wide it is.
    pub fn columns(&self) -> usize {
        self.rows.first().map_or(0, |row| row.chars().count())
    }

    /// True when a row holds `text`.
    pub fn shows(&self, text: &str) -> bool {
        self.rows.iter().any(|row| row.contains(text))
    }
}

/// One UTF-32 cell; what is no character is shown as one that nobody mistakes for text.
fn cell(bytes: &[u8]) -> char {
    let code = bytes.try_into().map_or(0, u32::from_le_bytes);
    match char::from_u32(code) {
        Some('\0') => ' ',
        Some(c) => c,
        None => char::REPLACEMENT_CHARACTER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_become_rows() {
        let cells: Vec<u8> = "ab \u{2588}".chars().flat_map(|c| u32::from(c).to_le_bytes()).collect();
        let screen = Screen::decode(&cells, 2).unwrap();
        assert_eq!(screen.rows, ["ab", " \u{2588}"]);
        assert_eq!(screen.text(), "ab\n \u{2588}\n");
        assert!(Screen::decode(&cells, 3).is_err() && Screen::decode(&[], 2).is_err());
    }
}
