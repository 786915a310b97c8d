//! What a console's font makes of a screen: whether it has every character that stands there, and whether the picture shows them.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::screen::still;
use crate::guest::Guest;
use crate::picture::{Picture, Shape};
use crate::screen::Screen;
use crate::vm::Vm;
use crate::wait;

/// What the console may draw (docs/console.md): printable ASCII and the lines of its frame.
const LINES: &str = "─│┌┐└┘├┤";
/// The text is read inside the machine, the picture outside: what changes in between is another try.
const SAME_MOMENT: Duration = Duration::from_secs(30);

/// A font in the machine, with the table that says which characters it has.
pub struct Font {
    /// What pictures under it are called.
    pub name: &'static str,
    file: String,
    characters: BTreeSet<char>,
}

/// How each character looks on one screen.
pub type Looks = HashMap<char, Shape>;

// === impl Font ===

impl Font {
    /// Keeps what tty1 has now, by this name.
    pub fn of_tty1(guest: &mut Guest, name: &'static str) -> Result<Self> {
        let file = format!("/run/{name}.psf");
        guest.sh(&format!("setfont -C /dev/tty1 -O {file} -ou /run/{name}.map"))?;
        let map = guest.read(&format!("/run/{name}.map"))?.context("setfont wrote no table")?;
        let characters = characters(&map);
        ensure!(characters.contains(&'A'), "the font's table makes no sense:\n{map}");
        Ok(Self { name, file, characters })
    }

    /// Puts it on tty1.
    pub fn put(&self, guest: &mut Guest) -> Result<()> {
        guest.sh(&format!("setfont -C /dev/tty1 {}", self.file)).map(drop)
    }

    /// Every character on tty1 is one that the console may draw, that this font has, and that is seen in the picture: each looks the
    /// same wherever it stands, and like no other. What a font lacks looks like something else that it lacks.
    pub fn shows_all_of(&self, vm: &mut Vm) -> Result<Looks> {
        let mut wrong = None;
        let seen = wait::until("the screen to hold still", SAME_MOMENT, || {
            let before = vm.screen(1)?;
            let picture = vm.picture()?;
            let after = vm.screen(1)?;
            if still(&before) != still(&after) {
                return Ok(None);
            }
            self.has_all_of(&after)?;
            // A card that is just being given another font shows half of each.
            match looks(&before, &after, &picture) {
                Ok(looks) => Ok(Some(looks)),
                Err(error) => {
                    wrong = Some(error.context(format!("in the font {}:\n{}", self.name, after.text())));
                    Ok(None)
                }
            }
        });
        seen.map_err(|error| wrong.unwrap_or(error))
    }

    fn has_all_of(&self, screen: &Screen) -> Result<()> {
        for c in screen.rows.iter().flat_map(|row| row.chars()) {
            ensure!(matches!(c, ' '..='~') || LINES.contains(c), "{c:?} on the screen:\n{}", screen.text());
            ensure!(self.characters.contains(&c), "{c:?} is not in the font {}", self.name);
        }
        Ok(())
    }
}

// === private ===

/// The table as setfont writes it: a line for each place in the font, with the characters that are drawn with it.
fn characters(map: &str) -> BTreeSet<char> {
    let code = |word: &str| u32::from_str_radix(word.strip_prefix("U+")?, 16).ok().and_then(char::from_u32);
    map.split_whitespace().filter_map(code).collect()
}

/// How each character looks. A cell that changed meanwhile is not looked at.
fn looks(before: &Screen, after: &Screen, picture: &Picture) -> Result<Looks> {
    let size = (after.columns(), after.rows.len());
    let mut looks = Looks::new();
    for (y, (was, row)) in before.rows.iter().zip(&after.rows).enumerate() {
        for (x, (was, c)) in was.chars().zip(row.chars()).enumerate() {
            let shape = picture.shape(size, (x, y));
            if was == c && looks.insert(c, shape.clone()).is_some_and(|known| known != shape) {
                bail!("the picture shows something else than {c:?} in row {} column {}", y + 1, x + 1);
            }
        }
    }
    let mut seen = HashMap::new();
    for (c, shape) in &looks {
        if let Some(other) = seen.insert(shape, c) {
            bail!("{c:?} and {other:?} look the same");
        }
    }
    Ok(looks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_characters_of_a_table_are_read() {
        let map = "0x000\tU+fffd\n0x041\tU+0041 U+0410\n# comment U-1\n";
        assert_eq!(characters(map).into_iter().collect::<String>(), "A\u{410}\u{fffd}");
    }

    fn screen(rows: &[&str]) -> Screen {
        Screen { rows: rows.iter().map(|row| (*row).to_owned()).collect() }
    }

    /// One row of cells, three points wide and one high.
    fn picture(points: &[u8]) -> Picture {
        let mut ppm = format!("P6\n{} 1\n255\n", points.len()).into_bytes();
        ppm.extend(points.iter().flat_map(|level| [*level; 3]));
        Picture::of_ppm(&ppm).unwrap()
    }

    #[test]
    fn two_characters_that_look_the_same_are_found() {
        let text = screen(&["ab "]);
        assert!(looks(&text, &text, &picture(&[0, 9, 0, 0, 0, 9, 0, 0, 0])).is_ok());
        let error = looks(&text, &text, &picture(&[0, 9, 0, 0, 9, 0, 0, 0, 0])).unwrap_err();
        assert!(error.to_string().contains("look the same"), "{error}");
    }

    #[test]
    fn a_character_that_looks_another_way_elsewhere_is_found_unless_it_changed_meanwhile() {
        let text = screen(&["aa"]);
        let other = picture(&[0, 9, 0, 0, 0, 9]);
        assert!(looks(&text, &text, &other).unwrap_err().to_string().contains("row 1 column 2"));
        assert!(looks(&screen(&["ab"]), &text, &other).is_ok());
    }
}
