//! The pictures: every screen and every variant of it as one snapshot and one view, and what a terminal of each size shows of it.

#![allow(clippy::unwrap_used, dead_code, unreachable_pub)]

mod screens;
mod variants;

use console::banner::StatusScreen;
use console::snapshot::*;
use console::{Now, Screen, Snapshot, View, banner, card_of, draw, line, text_of};

/// The sizes that every picture is approved at. 0x0 is a terminal that does not know its own.
pub const SIZES: [(u16, u16); 7] = [(80, 24), (80, 25), (128, 48), (60, 18), (40, 10), (20, 5), (0, 0)];

/// One screen of one machine.
pub struct Picture {
    pub name: &'static str,
    pub about: &'static str,
    pub snapshot: Snapshot,
    pub view: View,
}

/// Every screen, then every variant.
pub fn pictures() -> Vec<Picture> {
    let mut all = screens::all();
    all.extend(variants::all());
    all
}

/// One by its name.
pub fn picture(name: &str) -> Picture {
    pictures().into_iter().find(|picture| picture.name == name).unwrap_or_else(|| panic!("no picture {name}"))
}

// === impl Picture ===

impl Picture {
    fn new(name: &'static str, about: &'static str, snapshot: Snapshot, now: Now) -> Self {
        let liveness = snapshot.liveness(now.boot_ms, |_| true);
        Self { name, about, snapshot, view: View { liveness, ..View::new(now) } }
    }

    fn with(mut self, change: impl FnOnce(&mut View)) -> Self {
        change(&mut self.view);
        self
    }

    /// The screen at a size.
    pub fn at(&self, size: (u16, u16)) -> String {
        text_of(&draw(&self.snapshot, &self.view, size))
    }

    /// What is shown of it, one section for each kind of terminal: the contents of its `.snap` file.
    pub fn sections(&self) -> Vec<(String, String)> {
        let mut out: Vec<(String, String)> =
            SIZES.iter().map(|size| (format!("{}x{}", size.0, size.1), self.at(*size))).collect();
        out.push(("card".into(), card_of(&self.snapshot, &self.view)));
        if self.view.screen == Screen::Main {
            let (s, now) = (&self.snapshot, self.view.now);
            out.push(("line".into(), line(s, self.view.liveness, now)));
            out.push(("issue".into(), banner::issue(s, now, StatusScreen::Tty1)));
            out.push(("motd".into(), banner::motd(s, now, StatusScreen::Tty1)));
            out.push(("STATUS=".into(), format!("{}\n", banner::status_line(s))));
        }
        out
    }

    /// The section of that name.
    pub fn section(&self, name: &str) -> String {
        let all = self.sections();
        all.into_iter().find(|(section, _)| section == name).unwrap_or_else(|| panic!("no section {name}")).1
    }

    /// All sections in one text. What says nothing new is told in a line.
    pub fn all(&self) -> String {
        let mut out = format!("{}\n", self.about);
        let usual = self.section("80x24");
        for (name, text) in self.sections() {
            if name == "0x0" && text == usual {
                out.push_str("=== 0x0 shows the 80x24 above\n");
            } else if name == "80x25" && text == with_a_row_more(&usual) {
                out.push_str("=== 80x25 shows the 80x24 above with one more empty row over the last five\n");
            } else if text.trim().is_empty() {
                out.push_str(&format!("=== {name} is empty\n"));
            } else {
                out.push_str(&format!("=== {name}\n{text}"));
            }
        }
        out
    }
}

/// A full screen with an empty row above what keeps its place: identity, rule, keys.
fn with_a_row_more(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    let empty = format!("|{:78}|", "");
    lines.insert(lines.len().saturating_sub(5), &empty);
    lines.iter().map(|line| format!("{line}\n")).collect()
}

pub fn pending() -> Snapshot {
    Snapshot::parse(include_bytes!("../fixtures/pending.json")).unwrap()
}

pub fn upgrade_failed() -> Snapshot {
    Snapshot::parse(include_bytes!("../fixtures/upgrade-failed.json")).unwrap()
}

/// The instant of a wall time on 2026-11-29, by the clock of `pending.json`: 812400 ms at 10:55:15Z, with the last contact 2 s ago.
pub fn at(time: &str) -> Now {
    let wall: jiff::Timestamp = if time.contains('T') {
        time.parse().unwrap()
    } else {
        format!("2026-11-29T{time}").parse().unwrap()
    };
    let zero: jiff::Timestamp = "2026-11-29T10:55:15Z".parse().unwrap();
    let boot = 812_400 + wall.duration_since(zero).as_millis();
    Now { boot_ms: u64::try_from(boot.max(0)).unwrap(), wall }
}

/// A snapshot of `state` as it would be written at `now`.
pub fn written(state: State, now: &Now) -> Snapshot {
    let mut s = pending();
    s.state = state;
    let (headline, next) = as_the_agent_says(state);
    s.headline = headline.into();
    s.next = next.iter().map(|line| (*line).into()).collect();
    s.written_mono = now.boot_ms;
    s.cluster.last_contact_mono = Some(now.boot_ms.saturating_sub(2000));
    s
}

/// Headline and advice of a state that has no fault, word for word as the agent writes them (src/report/words.rs).
fn as_the_agent_says(state: State) -> (&'static str, &'static [&'static str]) {
    const NEW_CODE: &[&str] = &["Give this machine another join code:", JOIN];
    match state {
        State::Starting => ("starting", &["No action needed. This usually takes less than 30 seconds."]),
        State::Registering => {
            ("registering with the cluster", &["No action needed. This usually takes less than 30 seconds."])
        }
        State::NeedsUpgrade => (
            "this machine's release is older than the cluster's",
            &["No action needed. Do not power it off."],
        ),
        State::Pending => (
            "waiting for approval",
            &[
                "Approve the machine whose console shows this code:",
                "Console: Admin > Metal, Joining nodes, or stratumctl admin nodes joins list",
            ],
        ),
        State::Approved => (
            "approved, waiting for its turn",
            &["No action needed at this machine. Joins run one at a time."],
        ),
        State::Delivering => {
            ("approved, receiving its configuration", &["No action needed. Do not power it off."])
        }
        State::Installing => ("installing step 4 of 9", &["No action needed. Do not power it off."]),
        State::Joined => (
            "joined as n-msst0002",
            &["You can unplug the screen and the keyboard. Manage it in Admin > Metal."],
        ),
        State::Failed => (
            "failed at: Preparing the disks",
            &[
                "Correct the cause named above on this machine or in the approval.",
                "Then retry it in Console: Admin > Metal, Joining nodes.",
            ],
        ),
        State::Rejected => ("rejected by an administrator of the cluster", NEW_CODE),
        State::Expired => ("expired: nobody approved this machine in time", NEW_CODE),
        State::Refused => ("the cluster refused this machine", NEW_CODE),
        State::IdentityFailed => ("the cluster did not prove its identity", NEW_CODE),
        State::Unknown => (
            "the cluster is in a state this agent does not know (teleporting)",
            &["No action needed. This agent is older than the cluster."],
        ),
    }
}

/// The command as the agent spells it; a console knows the address.
pub const JOIN: &str = "stratum-installer join --endpoint <address> --code <code>";

/// A fault with its advice, which is also what the snapshot's own lines say.
pub fn told(s: &mut Snapshot, headline: &str, fault: Fault, todo: &[&str]) {
    s.headline = headline.into();
    s.next = todo.iter().take(3).map(|line| (*line).into()).collect();
    s.fault = Some(Fault { what_to_do: todo.iter().map(|line| (*line).into()).collect(), ..fault });
}

pub fn step(
    index: u32,
    total: u32,
    name: &str,
    title: &str,
    status: StepStatus,
    seconds: Option<u64>,
) -> Step {
    Step {
        name: name.into(),
        title: title.into(),
        index,
        total,
        status,
        elapsed_ms: seconds.map(|s| s * 1000),
        detail: None,
    }
}

pub fn fault(code: &str, message: &str) -> Fault {
    Fault {
        code: code.into(),
        kind: FaultKind::Refused,
        verified: true,
        message: message.into(),
        ..Fault::default()
    }
}

/// The nine steps of S6 and S8 with `current` in `status`.
pub fn install_steps(current: u32, status: StepStatus) -> Vec<Step> {
    let known = [
        ("network", "Applying the network", 4),
        ("storage", "Preparing the disks", 21),
        ("images", "Loading the service images", 160),
        ("join/patroni", "Joining Patroni", 108),
        ("join/raft-openbao", "Joining the OpenBao raft", 30),
        ("join/six", "Joining six", 1),
        ("join/seven", "Joining seven", 1),
        ("join/eight", "Joining eight", 1),
        ("join/nine", "Joining nine", 1),
    ];
    let one = |(index, (name, title, seconds)): (u32, (&str, &str, u64))| match index.cmp(&current) {
        std::cmp::Ordering::Less => step(index, 9, name, title, StepStatus::Done, Some(seconds)),
        std::cmp::Ordering::Equal => step(index, 9, name, title, status, Some(seconds)),
        std::cmp::Ordering::Greater => step(index, 9, name, title, StepStatus::Waiting, None),
    };
    (1..).zip(known).map(one).collect()
}
