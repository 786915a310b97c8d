//! YAML within its budget: settings and the delivered node.yaml pass here.
//!
//! Touches nothing. Must never take an alias, an anchor, an unknown tag, a merge key, a second document or a doubled key, and never puts a
//! piece of the text into an error: node.yaml may hold secrets.

use serde_json::Value;
use serde_yaml::{DuplicateKeyPolicy, Error, Options, budget::BudgetBreach, options::MergeKeyPolicy};

/// Deepest nesting.
pub const MAX_DEPTH: usize = 64;
/// Most nodes: maps, sequences and scalars.
pub const MAX_NODES: usize = 10_000;
/// Most bytes in scalars.
pub const MAX_SCALAR_BYTES: usize = 1024 * 1024;

/// Why a text was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct YamlError {
    /// In our words.
    pub why: &'static str,
    /// Line and column, from 1, when known.
    pub place: Option<(u64, u64)>,
}

// === impl YamlError ===

impl std::fmt::Display for YamlError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.why)?;
        match self.place {
            Some((line, column)) => write!(f, " at line {line}, column {column}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for YamlError {}

/// Reads one document. The caller has bounded the length of `text`. An empty document is `Null`.
pub fn parse(text: &[u8]) -> Result<Value, YamlError> {
    let text = std::str::from_utf8(text).map_err(|_| YamlError { why: "is not UTF-8", place: None })?;
    if let Some(at) = text.find(|c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t' | '\u{85}')) {
        let before = &text[..at];
        let line = before.matches('\n').count() as u64 + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() as u64 + 1;
        return Err(YamlError { why: "holds a control character", place: Some((line, column)) });
    }
    serde_yaml::from_str_with_options(text, options()).map_err(|error| explain(&error))
}

fn options() -> Options {
    let budget = serde_yaml::budget! {
        max_aliases: 0,
        max_anchors: 0,
        max_nodes: MAX_NODES,
        max_depth: MAX_DEPTH,
        max_documents: 1,
        max_total_scalar_bytes: MAX_SCALAR_BYTES,
        max_merge_keys: 0,
    };
    serde_yaml::options! {
        budget: budget,
        duplicate_keys: DuplicateKeyPolicy::Error,
        merge_keys: MergeKeyPolicy::Error,
        reject_unsupported_tags: true,
        strict_booleans: true,
        with_snippet: false,
    }
}

fn explain(error: &Error) -> YamlError {
    let why = match error.without_snippet() {
        Error::MultipleDocuments { .. } => "holds more than one document",
        Error::DuplicateMappingKey { .. } => "names a key twice",
        Error::MergeKeyNotAllowed { .. } | Error::MergeValueNotMapOrSeqOfMaps { .. } => "uses a merge key",
        Error::UnsupportedTag { .. } | Error::TaggedStructFieldName { .. } => "uses a tag",
        Error::UnknownAnchor { .. } | Error::AliasError { .. } => "uses an alias",
        Error::Eof { .. } => "is empty",
        Error::NonFiniteFloat { .. } => "holds a number that is not finite",
        Error::Budget { breach, .. } => match breach {
            BudgetBreach::Aliases { .. } | BudgetBreach::AliasAnchorRatio { .. } => "uses an alias",
            BudgetBreach::Anchors { .. } => "uses an anchor",
            BudgetBreach::Depth { .. } => "is nested too deep",
            BudgetBreach::Documents { .. } => "holds more than one document",
            BudgetBreach::MergeKeys { .. } => "uses a merge key",
            _ => "is too large to read safely",
        },
        _ => "is not valid YAML",
    };
    let place = error.location().map(|at| (at.line(), at.column())).filter(|(line, _)| *line > 0);
    YamlError { why, place }
}

#[cfg(test)]
#[path = "yaml_tests.rs"]
pub(crate) mod tests;
