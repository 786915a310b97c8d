//! The few fields of the agent's snapshot that a demo shows and a bench measures, and what changed between two of them.
//!
//! Reads one file. Prints nothing that could move a cursor.

use std::path::Path;

use serde_json::Value;

/// One install step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) index: u64,
    pub(crate) total: u64,
    pub(crate) status: String,
    pub(crate) elapsed_ms: Option<u64>,
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
        // Steps of the agent's own phases are not install steps.
        let steps = if snapshot["phase"] == "install" { list(&snapshot["steps"], step) } else { Vec::new() };
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
    /// `step 3 of 7 done in 1.2 s: storage (Preparing the disks)`.
    pub(crate) fn line(&self) -> String {
        let Self { name, title, index, total, status, elapsed_ms } = self;
        let time = match elapsed_ms {
            Some(ms) if status == "done" || status == "failed" => format!(" in {:.1} s", *ms as f64 / 1000.0),
            _ => String::new(),
        };
        format!("step {index} of {total} {status}{time}: {name} ({title})")
    }
}

fn step(value: &Value) -> Step {
    Step {
        name: text(&value["name"]).unwrap_or_default(),
        title: text(&value["title"]).unwrap_or_default(),
        index: value["index"].as_u64().unwrap_or(0),
        total: value["total"].as_u64().unwrap_or(0),
        status: text(&value["status"]).unwrap_or_default(),
        elapsed_ms: value["elapsedMs"].as_u64(),
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
