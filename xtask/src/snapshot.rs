//! The few fields of the agent's snapshot that a demo shows and a bench measures, and what changed between two of them.
//!
//! Reads one file. Prints nothing that could move a cursor.

use std::path::Path;

use serde_json::Value;

/// One step of an upgrade or an install.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) index: u64,
    pub(crate) total: u64,
    pub(crate) status: String,
    pub(crate) elapsed_ms: Option<u64>,
    /// What it waits for, or does, in words.
    pub(crate) detail: Option<String>,
    /// Bytes, in the steps of an upgrade that have some.
    pub(crate) bytes: Option<Bytes>,
}

/// How far a running step is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bytes {
    pub(crate) done: u64,
    pub(crate) total: u64,
    /// Bytes that were on the disk when the step began.
    pub(crate) kept: u64,
    pub(crate) rate_per_sec: Option<u64>,
    pub(crate) eta_sec: Option<u64>,
    /// Where they come from, in a download.
    pub(crate) source: Option<String>,
    /// They are those that were on the disk, which are looked at first.
    pub(crate) checking: bool,
}

/// What is shown of one snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) state: String,
    pub(crate) state_since_ms: u64,
    pub(crate) headline: String,
    pub(crate) next: Vec<String>,
    pub(crate) pairing: Option<String>,
    pub(crate) join_id: Option<String>,
    pub(crate) wait_reason: Option<String>,
    pub(crate) started_ms: u64,
    pub(crate) registered_ms: Option<u64>,
    pub(crate) steps: Vec<Step>,
    pub(crate) fault: Option<String>,
    pub(crate) advice: Vec<String>,
    /// An attempt to upgrade failed, and the next one is waited for.
    pub(crate) waits_for_attempt: bool,
    /// The key that ends a wait works.
    pub(crate) may_retry: bool,
}

// === impl View ===

impl View {
    /// The snapshot at `path`; `None` while there is none. It is replaced by rename, so it is never half written.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        Some(Self::of(&serde_json::from_slice(&std::fs::read(path).ok()?).ok()?))
    }

    fn of(snapshot: &Value) -> Self {
        let registration = &snapshot["registration"];
        let fault = &snapshot["fault"];
        // What the agent does up to the pairing code is told as states.
        let told = matches!(snapshot["phase"].as_str(), Some("install" | "upgrade"));
        let mut steps = if told { list(&snapshot["steps"], step) } else { Vec::new() };
        if let Some(running) = steps.iter_mut().find(|step| step.status == "running") {
            running.bytes = bytes(snapshot, &running.name);
            if let (Some(bytes), Some(detail)) = (&mut running.bytes, &running.detail) {
                bytes.checking = detail == "looking at what is here";
            }
        }
        Self {
            state: text(&snapshot["state"]).unwrap_or_default(),
            state_since_ms: snapshot["stateSinceMono"].as_u64().unwrap_or(0),
            headline: text(&snapshot["headline"]).unwrap_or_default(),
            next: list(&snapshot["next"], |v| text(v).unwrap_or_default()),
            pairing: text(&snapshot["pairingCode"]),
            join_id: text(&registration["joinId"]),
            wait_reason: text(&registration["waitReason"]),
            started_ms: snapshot["agent"]["startedMono"].as_u64().unwrap_or(0),
            registered_ms: registration["registeredMono"].as_u64(),
            steps,
            fault: text(&fault["why"]).or_else(|| text(&fault["message"])),
            advice: list(&fault["do"], |v| text(v).unwrap_or_default()),
            waits_for_attempt: snapshot["upgrade"]["waiting"] == "retry",
            may_retry: snapshot["actions"]["retry"] == true,
        }
    }

    /// The agent's own figure from its start to its registration.
    pub(crate) fn registered_after_ms(&self) -> Option<u64> {
        self.registered_ms?.checked_sub(self.started_ms)
    }

    /// True where nothing more happens without a person, or at all.
    pub(crate) fn is_stuck(&self) -> bool {
        matches!(self.state.as_str(), "refused" | "identity-failed" | "failed" | "rejected" | "expired")
    }

    /// One plain line for each thing that changed since `old`.
    pub(crate) fn changes_since(&self, old: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        // What led to the end is told before the end.
        let is_end = matches!(self.state.as_str(), "joined" | "failed");
        let state = (self.state != old.state).then(|| format!("{}: {}", self.state, self.headline));
        if let (Some(line), false) = (&state, is_end) {
            lines.push(line.clone());
        }
        if self.pairing != old.pairing
            && let Some(code) = &self.pairing
        {
            lines.push(format!("pairing code {code}"));
        }
        if self.wait_reason != old.wait_reason
            && let Some(reason) = &self.wait_reason
        {
            lines.push(format!("waits for: {reason}"));
        }
        for step in &self.steps {
            let before = old.steps.iter().find(|s| s.index == step.index && s.name == step.name);
            if before.is_none_or(|s| s.status != step.status) && step.status != "waiting" {
                lines.push(step.line());
            }
        }
        if let (Some(line), true) = (state, is_end) {
            lines.push(line);
        }
        if self.fault != old.fault {
            match &self.fault {
                Some(fault) => {
                    lines.push(format!("fault: {fault}"));
                    lines.extend(self.advice.iter().map(|advice| format!("  do: {advice}")));
                }
                None => lines.push("the fault is over".to_owned()),
            }
        }
        lines
    }
}

// === impl Step ===

impl Step {
    /// `step 3 of 7 done in 1.2 s: storage (Preparing the disks)`, with its bytes when it had some.
    pub(crate) fn line(&self) -> String {
        let Self { name, title, index, total, status, elapsed_ms, .. } = self;
        let ended = status == "done" || status == "failed";
        let time = elapsed_ms.filter(|_| ended).map(|ms| ms as f64 / 1000.0);
        let took = time.map(|time| format!(" in {time:.1} s")).unwrap_or_default();
        let bytes = self.bytes.as_ref().filter(|_| ended).map(|bytes| bytes.moved(time)).unwrap_or_default();
        format!("step {index} of {total} {status}{took}: {name} ({title}){bytes}")
    }

    /// How far it is, while it runs.
    pub(crate) fn progress(&self) -> Option<String> {
        let bytes = self.bytes.as_ref().filter(|bytes| self.status == "running" && bytes.total > 0)?;
        let mut line = format!("{} of {}", mib(bytes.done), mib(bytes.total));
        if let Some(detail) = &self.detail {
            return Some(format!("{line}, {detail}"));
        }
        if let Some(rate) = bytes.rate_per_sec {
            line.push_str(&format!(", {}/s", mib(rate)));
        }
        if let Some(left) = bytes.eta_sec {
            line.push_str(&format!(", {left} s left"));
        }
        Some(line)
    }

    /// The same step, with what an earlier look at it knew and this one does not.
    pub(crate) fn after(mut self, known: &Self) -> Self {
        // One that begins anew is another.
        if self.status != "waiting" && (self.status != "running" || known.status == "running") {
            self.bytes = self.bytes.or_else(|| known.bytes.clone());
        }
        if self.status == known.status {
            self.elapsed_ms = self.elapsed_ms.or(known.elapsed_ms);
        }
        self
    }
}

// === impl Bytes ===

impl Bytes {
    /// `, 264.0 MiB from the founder, 120.0 MiB/s`. How much came is not known when the last look was at what is here.
    fn moved(&self, seconds: Option<f64>) -> String {
        let mut line = format!(", {}", mib(self.total));
        if self.checking {
            return line;
        }
        if let Some(source) = &self.source {
            line.push_str(&format!(" from {source}"));
        }
        if self.kept > 0 {
            line.push_str(&format!(" ({} of them were here)", mib(self.kept)));
        }
        let fresh = self.total.saturating_sub(self.kept) as f64;
        match seconds {
            Some(seconds) if seconds >= 0.05 && fresh > 0.0 => {
                format!("{line}, {}/s", mib((fresh / seconds) as u64))
            }
            _ => line,
        }
    }
}

/// `264.0 MiB`.
pub(crate) fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / (1024.0 * 1024.0))
}

fn bytes(snapshot: &Value, step: &str) -> Option<Bytes> {
    let (progress, upgrade) = (&snapshot["progress"], &snapshot["upgrade"]);
    if progress["unit"] != "bytes" {
        return None;
    }
    let download = step == "upgrade/download";
    let host = || text(&upgrade["host"]).unwrap_or_default();
    let source = match upgrade["source"].as_str() {
        Some("mirror") => format!("the mirror {}", host()),
        _ => format!("the founder {}", host()),
    };
    Some(Bytes {
        done: progress["done"].as_u64()?,
        total: progress["total"].as_u64()?,
        kept: if download { upgrade["kept"].as_u64().unwrap_or(0) } else { 0 },
        rate_per_sec: progress["ratePerSec"].as_u64(),
        eta_sec: progress["etaSec"].as_u64(),
        source: download.then_some(source),
        checking: false,
    })
}

/// The steps in the cluster's record of a machine. It numbers none: they stand there in their order.
pub(crate) fn reported(record: &Value) -> Vec<Step> {
    let steps = list(&record["steps"], step);
    let total = steps.len() as u64;
    steps.into_iter().zip(1..).map(|(step, index)| Step { index, total, ..step }).collect()
}

fn step(value: &Value) -> Step {
    Step {
        name: text(&value["name"]).unwrap_or_default(),
        title: text(&value["title"]).unwrap_or_default(),
        index: value["index"].as_u64().unwrap_or(0),
        total: value["total"].as_u64().unwrap_or(0),
        status: text(&value["status"]).unwrap_or_default(),
        elapsed_ms: value["elapsedMs"].as_u64(),
        detail: text(&value["detail"]),
        bytes: None,
    }
}

/// A string without control characters: the agent cleans what it shows, and a terminal gets nothing on trust.
fn text(value: &Value) -> Option<String> {
    value.as_str().map(|text| text.chars().map(|c| if c.is_control() { '?' } else { c }).collect())
}

fn list<T>(value: &Value, one: impl Fn(&Value) -> T) -> Vec<T> {
    value.as_array().map(|values| values.iter().map(one).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pending() -> Value {
        json!({"state": "pending", "headline": "waiting for approval", "next": ["Approve it."],
            "agent": {"startedMono": 4400}, "pairingCode": "4F7-K2Q", "phase": "register",
            "registration": {"joinId": "nj-8w2k4m1p", "registeredMono": 4512, "waitReason": null},
            "steps": [{"name": "proof", "status": "done"}], "fault": null})
    }

    #[test]
    fn a_change_of_state_and_the_pairing_code_are_a_line_each() {
        let view = View::of(&pending());
        assert_eq!(
            view.changes_since(&View::default()),
            ["pending: waiting for approval", "pairing code 4F7-K2Q"]
        );
        assert_eq!(view.registered_after_ms(), Some(112));
        assert!(view.changes_since(&view).is_empty());
    }

    #[test]
    fn an_install_step_is_a_line_when_it_starts_and_when_it_ends() {
        let mut value = pending();
        value["phase"] = "install".into();
        value["steps"] = json!([{"name": "storage", "title": "Disks", "index": 1, "total": 2, "status": "running"},
            {"name": "join/patroni", "title": "Postgres", "index": 2, "total": 2, "status": "waiting"}]);
        let running = View::of(&value);
        assert_eq!(running.changes_since(&View::of(&pending())), ["step 1 of 2 running: storage (Disks)"]);
        value["steps"][0]["status"] = "done".into();
        value["steps"][0]["elapsedMs"] = 1240.into();
        let done = View::of(&value);
        assert_eq!(done.changes_since(&running), ["step 1 of 2 done in 1.2 s: storage (Disks)"]);
    }

    #[test]
    fn nothing_read_can_move_a_cursor() {
        let mut value = pending();
        value["headline"] = "\u{1b}[2Jgone".into();
        assert_eq!(View::of(&value).headline, "?[2Jgone");
    }

    #[test]
    fn a_snapshot_without_the_fields_is_shown_as_far_as_it_goes() {
        let view = View::of(&json!({"state": "pending", "steps": 3}));
        assert_eq!(view.state, "pending");
        assert_eq!(view.registered_after_ms(), None);
    }
}
