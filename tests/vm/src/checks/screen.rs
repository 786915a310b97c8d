//! The screen of a machine that waits: the big pairing code, legible, and nothing written over it.
//!
//! What should be there is what the console draws of the agent's snapshot; what is there is read from the picture, point by point, and
//! from the terminal's cells.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use console::{Now, Snapshot, render_text};

use crate::picture::Picture;
use crate::screen::Screen;
use crate::vm::Vm;
use crate::wait;

/// The text of the screen is read inside the machine, the picture outside: both must be of one moment, so a change in between is
/// another try.
const SAME_MOMENT: Duration = Duration::from_secs(30);
/// Bright cells are drawn in the terminal's light grey, dark ones in black.
const BRIGHT: f64 = 0.5;
const DARK: f64 = 0.05;

/// Shows the pairing code of `snapshot`, and nothing in its place.
pub fn shows_the_big_code(vm: &mut Vm, snapshot: &serde_json::Value) -> Result<()> {
    let snapshot = Snapshot::parse(snapshot.to_string().as_bytes()).context("the agent's snapshot")?;
    wait::until("the screen to hold still", SAME_MOMENT, || {
        let before = vm.screen(1)?;
        let picture = vm.picture()?;
        let after = vm.screen(1)?;
        if still(&before) != still(&after) {
            return Ok(None);
        }
        frame_is_whole(&after)?;
        code_is_legible(&snapshot, &after, &picture).map(Some)
    })
}

/// All but the clocks in it.
pub fn still(screen: &Screen) -> Vec<String> {
    screen
        .rows
        .iter()
        .map(|row| row.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect())
        .collect()
}

/// Whatever writes over the screen without knowing of it moves or breaks the frame.
pub fn frame_is_whole(screen: &Screen) -> Result<()> {
    let (frame, keys) = screen.rows.split_at(screen.rows.len().saturating_sub(1));
    for (number, row) in frame.iter().enumerate() {
        let sides = if number == 0 {
            ('┌', '┐')
        } else if number == frame.len() - 1 {
            ('└', '┘')
        } else {
            ('│', '│')
        };
        let found = (row.chars().next().unwrap_or(' '), row.chars().last().unwrap_or(' '));
        ensure!(found == sides, "the frame is broken in row {}:\n{}", number + 1, screen.text());
    }
    ensure!(keys.iter().all(|row| row.contains('[')), "the last row has no keys:\n{}", screen.text());
    Ok(())
}

fn code_is_legible(snapshot: &Snapshot, screen: &Screen, picture: &Picture) -> Result<()> {
    let size = (screen.columns(), screen.rows.len());
    let now = Now { boot_ms: snapshot.written_mono, wall: jiff::Timestamp::UNIX_EPOCH };
    let narrow = |n: usize| u16::try_from(n).unwrap_or(u16::MAX);
    let drawn = render_text(snapshot, narrow(size.0), narrow(size.1), false, now);
    let mut bright = 0;
    for (y, row) in drawn.lines().enumerate().filter(|(_, row)| row.contains('#')) {
        for (x, cell) in row.chars().enumerate() {
            let seen = picture.brightness(size, (x, y));
            match cell {
                '#' => ensure!(
                    seen > BRIGHT,
                    "row {} column {} of the big code is dark ({seen:.2})",
                    y + 1,
                    x + 1
                ),
                ' ' => ensure!(
                    seen < DARK,
                    "row {} column {} beside the big code is not ({seen:.2})",
                    y + 1,
                    x + 1
                ),
                // The frame.
                _ => continue,
            }
            bright += usize::from(cell == '#');
        }
    }
    ensure!(bright > 60, "there is no big code on a screen of {} x {}", size.0, size.1);
    Ok(())
}
