//! What a diagnosis says: rows in a fixed order, each a colour and one line. The first red one is the cause. Pure.

use console::snapshot::{Check, CheckStatus};
use console::text::{Safe, Text};
use serde::Serialize;

/// What one row is about, in the order in which they are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RowName {
    /// A cable, and a switch at its other end.
    Link,
    /// An address.
    Address,
    /// Nobody else has that address.
    Duplicate,
    /// The kernel knows a way to the founder.
    Route,
    /// The next machine on that way answers.
    Neighbour,
    /// The founder's name resolves.
    Name,
    /// TCP connects.
    Port,
    /// Connects are neither slow nor lost. Amber at worst.
    Quality,
    /// No proxy setting misleads a person. Amber at worst.
    Proxy,
    /// Large packets arrive.
    PathMtu,
    /// TLS 1.3 with a chain of two.
    Tls,
    /// What answers speaks `stratum-join/1`.
    Founder,
    /// Its key is the one we trust.
    Pin,
    /// The cluster proved the join code. Told, never tried.
    Proof,
    /// It refuses nothing.
    Answer,
    /// The clock. Amber at worst.
    Clock,
}

/// The colour of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Green.
    Ok,
    /// Red: nothing behind it was looked at.
    Failed,
    /// Not needed, or not tried.
    Skipped,
    /// Amber: worth a look, and no reason for a join to fail; or it could not be found out.
    Unknown,
}

/// One row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Which.
    pub name: RowName,
    /// Its colour.
    pub status: Status,
    /// What was found: one sentence without its full stop.
    pub text: Text,
    /// What a person looks at, a sentence each; empty unless red or amber.
    pub look_at: Vec<Text>,
}

/// A finished diagnosis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Diagnosis {
    /// `host:port` that was looked for.
    pub endpoint: Text,
    /// One for each [`RowName`], in that order.
    pub rows: Vec<Row>,
    /// It had to stop before it was through: what it did not get to says so.
    pub timed_out: bool,
    /// How long it took.
    pub took_ms: u64,
}

/// Names and titles of `network.checks`, and the rows that each shows.
const CHECKS: [(&str, &str, &[RowName]); 10] = [
    ("link", "link", &[RowName::Link]),
    ("address", "address", &[RowName::Address, RowName::Duplicate]),
    ("gateway", "gateway", &[RowName::Route, RowName::Neighbour]),
    ("name", "name", &[RowName::Name]),
    ("tcp", "connect", &[RowName::Port, RowName::Quality, RowName::Proxy]),
    ("mtu", "path MTU", &[RowName::PathMtu]),
    ("tls", "TLS", &[RowName::Tls, RowName::Founder, RowName::Pin]),
    ("proof", "proof", &[RowName::Proof]),
    ("release", "release", &[RowName::Answer]),
    ("clock", "clock", &[RowName::Clock]),
];

// === impl RowName ===

impl RowName {
    /// All of them, in order.
    pub const ALL: [RowName; 16] = [
        RowName::Link,
        RowName::Address,
        RowName::Duplicate,
        RowName::Route,
        RowName::Neighbour,
        RowName::Name,
        RowName::Port,
        RowName::Quality,
        RowName::Proxy,
        RowName::PathMtu,
        RowName::Tls,
        RowName::Founder,
        RowName::Pin,
        RowName::Proof,
        RowName::Answer,
        RowName::Clock,
    ];

    /// What a person reads in front of the line, at most 10 characters.
    pub fn title(self) -> &'static str {
        match self {
            RowName::Link => "link",
            RowName::Address => "address",
            RowName::Duplicate => "duplicate",
            RowName::Route => "route",
            RowName::Neighbour => "neighbour",
            RowName::Name => "name",
            RowName::Port => "port",
            RowName::Quality => "quality",
            RowName::Proxy => "proxy",
            RowName::PathMtu => "path MTU",
            RowName::Tls => "TLS",
            RowName::Founder => "founder",
            RowName::Pin => "pin",
            RowName::Proof => "proof",
            RowName::Answer => "answer",
            RowName::Clock => "clock",
        }
    }

    /// The number and the title of the check on the console that shows this row.
    pub fn check(self) -> (usize, &'static str) {
        let at = CHECKS.iter().position(|(_, _, rows)| rows.contains(&self)).unwrap_or_default();
        (at + 1, CHECKS.get(at).map_or("", |(_, title, _)| title))
    }
}

// === impl Row ===

impl Row {
    /// A row without advice.
    pub fn new(name: RowName, status: Status, text: impl AsRef<str>) -> Self {
        Self { name, status, text: Safe::clean(text.as_ref()), look_at: Vec::new() }
    }

    /// Green.
    pub fn ok(name: RowName, text: impl AsRef<str>) -> Self {
        Self::new(name, Status::Ok, text)
    }

    /// Red, with what to look at.
    pub fn failed(name: RowName, text: impl AsRef<str>, look_at: &[&str]) -> Self {
        Self::new(name, Status::Failed, text).look_at(look_at)
    }

    /// Not needed, or not tried.
    pub fn skipped(name: RowName, text: impl AsRef<str>) -> Self {
        Self::new(name, Status::Skipped, text)
    }

    /// Amber.
    pub fn unknown(name: RowName, text: impl AsRef<str>) -> Self {
        Self::new(name, Status::Unknown, text)
    }

    /// The same with what to look at.
    #[must_use]
    pub fn look_at(mut self, look_at: &[&str]) -> Self {
        self.look_at = look_at.iter().map(Safe::clean).collect();
        self
    }
}

// === impl Diagnosis ===

impl Diagnosis {
    /// The first red row: what is wrong. `None` when nothing stands in the way.
    pub fn cause(&self) -> Option<&Row> {
        self.rows.iter().find(|row| row.status == Status::Failed)
    }

    /// The row of that name.
    pub fn row(&self, name: RowName) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// As the snapshot's `network.checks`: ten, in its order. Where several rows share one, it shows the red one, else the amber one, else
    /// a green one.
    pub fn checks(&self) -> Vec<Check> {
        let of = |rows: &[RowName]| {
            let mine: Vec<&Row> = rows.iter().filter_map(|name| self.row(*name)).collect();
            let first = |status| mine.iter().copied().find(|row| row.status == status);
            [Status::Failed, Status::Unknown, Status::Ok]
                .into_iter()
                .find_map(first)
                .or(mine.first().copied())
        };
        let check = |(name, title, rows): (&str, &str, &[RowName])| {
            let row = of(rows);
            let status = match row.map(|row| row.status) {
                Some(Status::Ok) => CheckStatus::Ok,
                Some(Status::Failed) => CheckStatus::Failed,
                Some(Status::Skipped) => CheckStatus::Skipped,
                Some(Status::Unknown) | None => CheckStatus::Unknown,
            };
            let detail = row.map(|row| row.text.clone());
            Check { name: Safe::clean(name), title: Safe::clean(title), status, detail }
        };
        CHECKS.into_iter().map(check).collect()
    }
}

/// The ten checks while the first diagnosis runs.
pub fn running() -> Vec<Check> {
    let check = |(name, title, _): (&str, &str, &[RowName])| Check {
        name: Safe::clean(name),
        title: Safe::clean(title),
        status: CheckStatus::Running,
        detail: None,
    };
    CHECKS.into_iter().map(check).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(change: impl Fn(RowName) -> Row) -> Diagnosis {
        let rows = RowName::ALL.into_iter().map(change).collect();
        Diagnosis { endpoint: Safe::clean("x"), rows, timed_out: false, took_ms: 0 }
    }

    #[test]
    fn every_row_is_shown_by_one_check_and_has_a_short_title() {
        for name in RowName::ALL {
            assert_eq!(CHECKS.iter().filter(|(_, _, rows)| rows.contains(&name)).count(), 1, "{name:?}");
            assert!(name.title().len() <= 10);
        }
        assert!(RowName::ALL.is_sorted());
        assert_eq!(RowName::Neighbour.check(), (3, "gateway"));
    }

    #[test]
    fn a_check_shows_its_red_row_before_its_amber_one_before_its_green_one() {
        let shown = |change: &dyn Fn(RowName) -> Row| all(change).checks();
        let green = shown(&|name| Row::ok(name, name.title()));
        assert_eq!(green.len(), 10);
        assert!(green.iter().all(|check| check.status == CheckStatus::Ok));
        let skipped = shown(&|name| match name {
            RowName::Duplicate => Row::skipped(name, "as root"),
            name => Row::ok(name, name.title()),
        });
        assert_eq!(
            (skipped[1].status, skipped[1].detail.clone()),
            (CheckStatus::Ok, Some(Safe::clean("address")))
        );
        let red = shown(&|name| match name {
            RowName::Tls => Row::unknown(name, "slow"),
            RowName::Pin => Row::failed(name, "another cluster", &[]),
            name => Row::ok(name, name.title()),
        });
        assert_eq!(
            (red[6].status, red[6].detail.clone()),
            (CheckStatus::Failed, Some(Safe::clean("another cluster")))
        );
    }
}
