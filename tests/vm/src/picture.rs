//! A picture of the screen as the monitor on the desk gets it, cell by cell: bright or dark.

use anyhow::{Context, Result, ensure};

/// Three bytes for each point, row by row.
pub struct Picture {
    width: usize,
    height: usize,
    points: Vec<u8>,
}

/// Which points of a cell have another colour than its ground, whatever the two colours are.
pub type Shape = Vec<bool>;

// === impl Picture ===

impl Picture {
    /// Reads the simplest of all formats, binary PPM with 255 levels.
    pub fn of_ppm(bytes: &[u8]) -> Result<Self> {
        let mut at = 0;
        let mut word = || {
            let start = at + bytes.get(at..)?.iter().position(|b| !b.is_ascii_whitespace())?;
            let end = start + bytes.get(start..)?.iter().position(u8::is_ascii_whitespace)?;
            at = end;
            std::str::from_utf8(bytes.get(start..end)?).ok()
        };
        let (magic, width, height, levels) = (word(), word(), word(), word());
        ensure!((magic, levels) == (Some("P6"), Some("255")), "the picture is no PPM");
        let number =
            |text: Option<&str>| text.and_then(|text| text.parse().ok()).context("the picture has no size");
        let (width, height): (usize, usize) = (number(width)?, number(height)?);
        let points = bytes.get(at + 1..).unwrap_or_default().to_vec();
        ensure!(points.len() == width * height * 3, "the picture is not {width} x {height}");
        Ok(Self { width, height, points })
    }

    /// How bright a cell of a terminal of this size is, 0 to 1.
    pub fn brightness(&self, (columns, rows): (usize, usize), (column, row): (usize, usize)) -> f64 {
        let (w, h) = (self.width / columns.max(1), self.height / rows.max(1));
        let mut sum = 0_u64;
        for y in row * h..(row + 1) * h {
            let from = (y * self.width + column * w) * 3;
            sum += self
                .points
                .get(from..from + w * 3)
                .unwrap_or_default()
                .iter()
                .map(|b| u64::from(*b))
                .sum::<u64>();
        }
        sum as f64 / (w * h * 3 * 255).max(1) as f64
    }

    /// What is drawn in a cell of a terminal of this size. Its ground is the colour of its first point: no letter begins there, and
    /// of a line that does, the shape is another one all the same.
    pub fn shape(&self, (columns, rows): (usize, usize), (column, row): (usize, usize)) -> Shape {
        let (w, h) = (self.width / columns.max(1), self.height / rows.max(1));
        let points = (row * h..(row + 1) * h).flat_map(|y| {
            let from = (y * self.width + column * w) * 3;
            self.points.get(from..from + w * 3).unwrap_or_default().chunks(3)
        });
        let points: Vec<&[u8]> = points.collect();
        points.iter().map(|point| points.first() != Some(point)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cell_has_a_brightness_of_its_own() {
        // Two cells of one row, two points each: white, then black.
        let mut ppm = b"P6\n4 1\n255\n".to_vec();
        ppm.extend([255; 6]);
        ppm.extend([0; 6]);
        let picture = Picture::of_ppm(&ppm).unwrap();
        assert!((picture.brightness((2, 1), (0, 0)) - 1.0).abs() < 0.01);
        assert!(picture.brightness((2, 1), (1, 0)) < 0.01);
    }

    #[test]
    fn a_shape_is_the_same_in_reverse() {
        let mut ppm = b"P6\n4 1\n255\n".to_vec();
        ppm.extend([0, 0, 0, 255, 0, 0, 170, 170, 170, 0, 0, 0]);
        let picture = Picture::of_ppm(&ppm).unwrap();
        assert_eq!(picture.shape((2, 1), (0, 0)), [false, true]);
        assert_eq!(picture.shape((2, 1), (0, 0)), picture.shape((2, 1), (1, 0)));
    }

    #[test]
    fn half_a_picture_is_none() {
        assert!(Picture::of_ppm(b"P6\n4 1\n255\nabc").is_err() && Picture::of_ppm(b"GIF89a").is_err());
    }
}
