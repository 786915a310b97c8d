//! The table a bench prints: figure, median and spread, target, reached or not. Pure.

use std::fmt;

/// How a line ends whose figure is worse than its target.
pub(crate) const MISSED: &str = "MISSED";

/// One figure.
pub(crate) struct Row {
    name: String,
    unit: &'static str,
    values: Vec<u64>,
    at_most: Option<u64>,
}

/// The lines in order.
#[derive(Default)]
pub(crate) struct Table(Vec<Line>);

enum Line {
    Row(Row),
    Note(String),
}

// === impl Row ===

impl Row {
    pub(crate) fn new(name: impl Into<String>, unit: &'static str, values: Vec<u64>) -> Self {
        Self { name: name.into(), unit, values, at_most: None }
    }

    /// Sets the target.
    pub(crate) fn at_most(mut self, target: u64) -> Self {
        self.at_most = Some(target);
        self
    }

    /// The middle value; of an even number of them the greater of the two in the middle.
    fn median(&self) -> u64 {
        let mut sorted = self.values.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied().unwrap_or(0)
    }

    fn reached(&self) -> bool {
        !self.values.is_empty() && self.at_most.is_none_or(|target| self.median() <= target)
    }
}

// === impl Table ===

impl Table {
    pub(crate) fn add(&mut self, row: Row) {
        self.0.push(Line::Row(row));
    }

    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.0.push(Line::Note(note.into()));
    }

    /// True when every figure with a target is within it.
    pub(crate) fn all_reached(&self) -> bool {
        self.0.iter().all(|line| match line {
            Line::Row(row) => row.reached(),
            Line::Note(_) => true,
        })
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<46} {:>10} {:>15} {:>10}", "figure", "median", "least - most", "target")?;
        for line in &self.0 {
            let row = match line {
                Line::Row(row) => row,
                Line::Note(note) => {
                    writeln!(f, "{note}")?;
                    continue;
                }
            };
            let with_unit = |value: u64| format!("{value} {}", row.unit).trim_end().to_owned();
            let (least, most) = (row.values.iter().min(), row.values.iter().max());
            let spread = format!("{} - {}", least.unwrap_or(&0), most.unwrap_or(&0));
            let (target, verdict) = match row.at_most {
                Some(target) => (with_unit(target), if row.reached() { "reached" } else { MISSED }),
                None => ("-".to_owned(), ""),
            };
            let text = format!(
                "{:<46} {:>10} {spread:>15} {target:>10}  {verdict}",
                row.name,
                with_unit(row.median())
            );
            writeln!(f, "{}", text.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_and_not_the_best_run_is_compared_with_the_target() {
        let mut table = Table::default();
        table.add(Row::new("start", "ms", vec![90, 200, 210]).at_most(150));
        assert!(!table.all_reached());
        assert!(table.to_string().contains("200 ms        90 - 210     150 ms  MISSED"), "{table}");
    }

    #[test]
    fn a_figure_that_was_not_measured_is_not_reached() {
        let mut table = Table::default();
        table.add(Row::new("start", "ms", Vec::new()).at_most(150));
        assert!(!table.all_reached());
    }

    #[test]
    fn a_figure_without_a_target_is_only_shown() {
        let mut table = Table::default();
        table.add(Row::new("peer", "ms", vec![77]));
        table.note("no peer");
        assert!(table.all_reached());
        assert!(table.to_string().ends_with("no peer\n"));
    }
}
