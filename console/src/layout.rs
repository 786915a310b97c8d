//! Rows of text and how they are wrapped and cut. Pure; every text that leaves here is printable ASCII.

use crate::text::ascii;

/// What a row is about, in one look and in one bit of colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tag {
    /// Done.
    Ok,
    /// Works by itself.
    Running,
    /// To come.
    Todo,
    /// A person must act.
    Act,
    /// Trouble, tried again.
    Trouble,
    /// Stopped.
    Stopped,
    /// Not applicable.
    Skipped,
    /// Unknown.
    Unknown,
}

impl Tag {
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Ok => "[ok]",
            Self::Running => "[..]",
            Self::Todo => "[  ]",
            Self::Act => "[>>]",
            Self::Trouble => "[!!]",
            Self::Stopped => "[XX]",
            Self::Skipped => "[--]",
            Self::Unknown => "[??]",
        }
    }
}

/// One row of a screen's body.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Row {
    /// Column and tag, when the row has one.
    pub(crate) tag: Option<(usize, Tag)>,
    /// The whole text, the tag's blanks included.
    pub(crate) text: String,
    /// Drawn bold and centred: the plain pairing code.
    pub(crate) code: bool,
}

impl Row {
    pub(crate) fn blank() -> Self {
        Self::default()
    }

    pub(crate) fn text(text: impl AsRef<str>) -> Self {
        Self { text: ascii(text.as_ref()), ..Self::default() }
    }

    /// `indent` blanks, the tag, a blank, the text.
    pub(crate) fn tagged(indent: usize, tag: Tag, text: impl AsRef<str>) -> Self {
        let text = format!("{:indent$}     {}", "", ascii(text.as_ref()));
        Self { tag: Some((indent, tag)), text, code: false }
    }

    /// The plain pairing code.
    pub(crate) fn code(text: impl AsRef<str>) -> Self {
        Self { text: ascii(text.as_ref()), code: true, tag: None }
    }

    pub(crate) fn is_blank(&self) -> bool {
        self.tag.is_none() && self.text.trim().is_empty()
    }

    /// The text with its tag in place.
    pub(crate) fn shown(&self) -> String {
        let Some((at, tag)) = self.tag else { return self.text.clone() };
        let mut out: String = self.text.chars().take(at).collect();
        out.push_str(tag.text());
        out.extend(self.text.chars().skip(at + 4));
        out
    }
}

/// Cut to `width` columns; what was cut ends in `~`.
pub(crate) fn cut(text: &str, width: usize) -> String {
    let text = ascii(text);
    if text.len() <= width {
        return text;
    }
    let mut out: String = text.chars().take(width.saturating_sub(1)).collect();
    if width > 0 {
        out.push('~');
    }
    out
}

/// `left`, blanks, `right`, exactly `width` columns. The right text is kept whole as long as it fits at all; the left one is
/// cut to leave one blank.
pub(crate) fn two_sided(left: &str, right: &str, width: usize) -> String {
    let right = cut(right, width);
    if right.is_empty() {
        return format!("{:<width$}", cut(left, width));
    }
    let room = width.saturating_sub(right.len() + 1);
    let left = cut(left, room);
    format!("{left:<0$}{right}", width - right.len())
}

/// `left` up to `column`, then `right`, cut to `width`.
pub(crate) fn at_column(left: &str, column: usize, right: &str, width: usize) -> String {
    if right.is_empty() {
        return cut(left, width);
    }
    let column = column.min(width.saturating_sub(right.len()));
    cut(&format!("{:<column$}{right}", cut(left, column.saturating_sub(1))), width)
}

/// Stands for a blank that no row ends at.
const GLUE: char = '\u{1}';

/// Wraps at blanks; a word longer than `width` is broken, and `Admin > Metal` is one word: a row of ours must not begin with `> `. Never
/// returns more than `rows` rows; the last one then ends in `~`.
pub(crate) fn wrap(text: &str, width: usize, rows: usize) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    if width == 0 || rows == 0 {
        return out;
    }
    let text = ascii(text).replace(" > ", "\u{1}>\u{1}");
    let mut line = String::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        if !line.is_empty() && line.len() + 1 + word.len() <= width {
            line.push(' ');
            line.push_str(word);
            continue;
        }
        if !line.is_empty() {
            out.push(std::mem::take(&mut line));
        }
        let mut rest = word;
        while rest.len() > width {
            let (head, tail) = rest.split_at(width);
            out.push(head.to_owned());
            rest = tail;
        }
        line.push_str(rest);
        if out.len() > rows {
            break;
        }
    }
    if !line.is_empty() {
        out.push(line);
    }
    if out.len() > rows {
        out.truncate(rows);
        if let Some(last) = out.last_mut() {
            *last = cut(&format!("{last:<width$}~"), width);
            let kept = last.trim_end_matches('~').trim_end().len();
            last.truncate(kept);
            last.push('~');
        }
    }
    out.iter().map(|line| line.replace(GLUE, " ")).collect()
}

/// The first of several ways to say the same that fits, or the last of them.
pub(crate) fn first_fit(forms: &[String], width: usize) -> &str {
    let fit = forms.iter().find(|form| form.len() <= width).or(forms.last());
    fit.map_or("", String::as_str)
}

/// A command in rows a shell still takes as one: broken only at blanks, with a backslash at the end of each but the last row.
pub(crate) fn command_lines(text: &str, width: usize) -> Vec<String> {
    if text.len() <= width {
        return vec![ascii(text)];
    }
    let mut lines = wrap(text, width.saturating_sub(2), 8);
    let last = lines.len().saturating_sub(1);
    for line in &mut lines[..last] {
        line.push_str(" \\");
    }
    lines
}

/// The rows of a body, with the few shapes all screens share.
pub(crate) struct Body {
    pub(crate) rows: Vec<Row>,
    width: usize,
}

impl Body {
    /// An empty body of `width` columns.
    pub(crate) fn new(width: usize) -> Self {
        Self { rows: Vec::new(), width }
    }

    pub(crate) fn width(&self) -> usize {
        self.width
    }

    pub(crate) fn blank(&mut self) {
        self.rows.push(Row::blank());
    }

    pub(crate) fn push(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Running text, wrapped.
    pub(crate) fn prose(&mut self, indent: usize, text: &str) {
        for line in wrap(text, self.width.saturating_sub(indent), 8) {
            self.rows.push(Row::text(format!("{:indent$}{line}", "")));
        }
    }

    /// `  Label   our own text`, wrapped under itself.
    pub(crate) fn labelled(&mut self, label: &str, column: usize, text: &str) {
        self.hanging(label, column, "", text, 6);
    }

    /// `  Label   > their text`: at most 3 rows, each behind `> `, so that it can never look like a state or a code.
    pub(crate) fn foreign(&mut self, label: &str, column: usize, text: &str) {
        self.hanging(label, column, "> ", text, 3);
    }

    /// A command, on its own row, moved left as far as needed to stay whole.
    pub(crate) fn command(&mut self, indent: usize, text: &str) {
        for line in command_lines(text, self.width) {
            let indent = indent.min(self.width.saturating_sub(line.len()));
            self.rows.push(Row::text(format!("{:indent$}{line}", "")));
        }
    }

    fn hanging(&mut self, label: &str, column: usize, mark: &str, text: &str, rows: usize) {
        let column = column.min(self.width / 2);
        let room = self.width.saturating_sub(column + mark.len());
        let mut label = format!("  {label}");
        for line in wrap(text, room, rows) {
            self.rows
                .push(Row::text(format!("{:<column$}{mark}{line}", cut(&label, column.saturating_sub(1)))));
            label.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_wrap_and_long_words_break() {
        assert_eq!(wrap("one two three", 7, 9), ["one two", "three"]);
        assert_eq!(wrap("abcdefghij k", 4, 9), ["abcd", "efgh", "ij k"]);
        assert_eq!(wrap("one two three four", 5, 2), ["one", "two~"]);
        assert_eq!(wrap("aaaaa bbbbb ccccc", 5, 2), ["aaaaa", "bbbb~"]);
        assert!(wrap("", 5, 5).is_empty() && wrap("x", 0, 5).is_empty());
    }

    #[test]
    fn the_right_hand_fact_survives_a_long_left_text() {
        assert_eq!(two_sided("ab", "cd", 8), "ab    cd");
        assert_eq!(two_sided("abcdefgh", "cd", 8), "abcd~ cd");
        assert_eq!(two_sided("ab", "cdefghijk", 4), "cde~");
        assert_eq!(two_sided("abcdef", "", 4), "abc~");
    }

    #[test]
    fn a_command_moves_left_before_it_wraps() {
        let mut body = Body::new(10);
        body.command(8, "12345678");
        body.command(8, "123 567 901");
        assert_eq!(body.rows[0].text, "  12345678");
        assert_eq!(body.rows[1].text, " 123 567 \\");
        assert_eq!(body.rows[2].text, "       901");
    }

    proptest! {
        #[test]
        fn nothing_is_wider_than_asked_for(text in any::<String>(), right in "[ -~]{0,40}", width in 0_usize..90, rows in 0_usize..6) {
            prop_assert!(wrap(&text, width, rows).len() <= rows);
            prop_assert!(wrap(&text, width, rows).iter().all(|line| line.len() <= width));
            prop_assert!(cut(&text, width).len() <= width);
            prop_assert_eq!(two_sided(&text, &right, width).len(), width);
            prop_assert!(at_column(&text, 20, &right, width).len() <= width.max(right.len()));
            let mut body = Body::new(width);
            body.foreign("Error", 10, &text);
            prop_assert!(body.rows.iter().all(|row| row.text.len() <= width.max(2)));
            prop_assert!(body.rows.len() <= 3);
        }
    }
}
