//! What is said about a snapshot in more than one place: the state in a line, the fact beside it, the identity.
//!
//! Pure functions, so that screen, card and banner cannot disagree. Every text is printable ASCII.

mod advice;

pub(crate) use advice::*;

use crate::clock::{self, Now};
use crate::layout::Tag;
use crate::snapshot::{Contact, FaultKind, Identity, Link, Nic, Snapshot, State, Step, StepStatus};
use crate::text::{Safe, ascii};

/// Where a person approves or retries.
pub(crate) const ADMIN: &str = "Console: Admin > Metal, Joining nodes";
/// The port that a command line need not name.
const DEFAULT_PORT: &str = ":9444";

/// The state as row 3 says it, without its tag.
pub(crate) struct Headline {
    pub(crate) tag: Tag,
    pub(crate) text: String,
}

/// The fact to the right of the state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fact {
    /// For 80 columns.
    pub(crate) long: String,
    /// For 40.
    pub(crate) short: String,
    /// Drawn to be seen: DO NOT POWER OFF.
    pub(crate) alarm: bool,
}

// === impl Fact ===

impl Fact {
    /// Gives way to the state it stands beside, when both do not fit: first to its short form, then altogether. An alarm stays.
    pub(crate) fn fit(&mut self, room: usize) {
        if self.alarm || self.long.len() <= room {
            return;
        }
        self.long = if self.short.len() <= room { self.short.clone() } else { String::new() };
    }
}

/// A headline up to the ` > ` behind which somebody else's word for the state stands, and that word.
pub(crate) fn own_part(text: &str) -> (&str, Option<&str>) {
    match text.split_once(" > ") {
        Some((own, theirs)) => (own.trim_end(), Some(theirs)),
        None => (text, None),
    }
}

/// The state in a line, and whose turn it is.
pub(crate) fn headline(s: &Snapshot, now: &Now) -> Headline {
    let say = |tag, text: String| Headline { tag, text: ascii(&text) };
    match s.state {
        State::Starting if nobody_asked(s) => say(Tag::Act, s.headline.as_str().to_uppercase()),
        State::Starting => say(Tag::Running, "STARTING".into()),
        State::Registering if refused_for_now(s) => refused_headline(s),
        State::Registering => match retry_in(s, now) {
            Some(left) if s.fault.is_some() => {
                say(Tag::Trouble, format!("REGISTERING WITH THE CLUSTER, NEXT TRY IN {left}"))
            }
            _ => say(Tag::Running, "REGISTERING WITH THE CLUSTER".into()),
        },
        State::Pending => say(Tag::Act, "WAITING FOR APPROVAL".into()),
        State::NeedsUpgrade => upgrade_headline(s, now),
        State::Approved => say(Tag::Running, "APPROVED - WAITING FOR ITS TURN".into()),
        State::Delivering => say(Tag::Running, "APPROVED - RECEIVING ITS CONFIGURATION".into()),
        State::Installing => say(
            Tag::Running,
            match current_step(s) {
                Some((index, 0)) => format!("INSTALLING STEP {index}"),
                Some((index, total)) => format!("INSTALLING STEP {index} OF {total}"),
                None => "INSTALLING".into(),
            },
        ),
        State::Joined => match &s.registration.node_id {
            Some(id) => say(Tag::Ok, format!("JOINED THE CLUSTER AS {}", token(id))),
            None => say(Tag::Ok, "JOINED THE CLUSTER".into()),
        },
        State::Failed => say(Tag::Stopped, failed(s)),
        State::Refused => refused_headline(s),
        State::Expired => say(Tag::Stopped, "EXPIRED - NOBODY APPROVED THIS MACHINE IN TIME".into()),
        State::Rejected => say(Tag::Stopped, "REJECTED BY AN ADMINISTRATOR OF THE CLUSTER".into()),
        State::IdentityFailed => say(Tag::Stopped, identity_headline(s)),
        State::Unknown => match &s.state_raw {
            Some(raw) => say(Tag::Unknown, format!("THE CLUSTER SAYS: > {raw}")),
            None => say(Tag::Unknown, format!("THE AGENT SAYS: > {}", s.headline)),
        },
    }
}

/// True when the agent runs and nobody gave it an address yet: the one kind of starting that a person must end.
pub(crate) fn nobody_asked(s: &Snapshot) -> bool {
    s.state == State::Starting
        && s.cluster.endpoint.is_empty()
        && !s.next.is_empty()
        && !s.headline.is_empty()
}

/// True when the cluster answers that it takes no machine now. The agent goes on registering; to a person it is a refusal with an end.
pub(crate) fn refused_for_now(s: &Snapshot) -> bool {
    let code = s.fault.as_ref().map(|fault| fault.code.as_str());
    s.state == State::Registering && matches!(code, Some("JOIN_QUEUE_FULL" | "UPGRADE_RUNNING"))
}

/// True when the fault is one of the upgrade's own steps, not one of the way to the cluster.
pub(crate) fn upgrade_failed(s: &Snapshot) -> bool {
    let step = s.fault.as_ref().and_then(|fault| fault.step.as_ref());
    s.state == State::NeedsUpgrade && step.is_some_and(|step| step.as_str().starts_with("upgrade/"))
}

/// True when an upgrade is wanted and none is running here: what comes next is in the advice, not in our words.
pub(crate) fn upgrade_stands(s: &Snapshot) -> bool {
    s.state == State::NeedsUpgrade && s.steps.is_empty() && s.progress.is_none() && !upgrade_failed(s)
}

fn upgrade_headline(s: &Snapshot, now: &Now) -> Headline {
    let say = |tag, text: String| Headline { tag, text: ascii(&text) };
    if upgrade_stands(s) && !s.headline.is_empty() {
        return say(Tag::Act, s.headline.as_str().to_uppercase());
    }
    let Some(upgrade) = &s.upgrade else { return say(Tag::Running, "UPGRADING THIS MACHINE".into()) };
    let boot = s.fault.as_ref().is_some_and(|f| f.step.as_ref().is_some_and(|step| *step == "upgrade/boot"));
    let next = retry_in(s, now).map(|left| format!(", NEXT IN {left}")).unwrap_or_default();
    if boot {
        return say(
            Tag::Trouble,
            format!("THE NEW OS DID NOT COME UP, RUNNING {} AGAIN{next}", token(&upgrade.from)),
        );
    }
    if upgrade_failed(s) {
        return say(Tag::Trouble, format!("UPGRADE ATTEMPT {} FAILED{next}", upgrade.attempt));
    }
    let step = match current_step(s) {
        Some((index, total)) if total > 0 => format!(", step {index} of {total}"),
        _ => String::new(),
    };
    say(
        Tag::Running,
        format!("UPGRADING THIS MACHINE {} -> {}{step}", token(&upgrade.from), token(&upgrade.to)),
    )
}

fn failed(s: &Snapshot) -> String {
    let step = s.fault.as_ref().and_then(|fault| fault.step.as_ref());
    let at = s
        .steps
        .iter()
        .find(|one| one.status == StepStatus::Failed || step.is_some_and(|step| *step == one.name));
    match at {
        Some(Step { index, total: 0, .. }) => format!("JOIN FAILED AT STEP {index}"),
        Some(Step { index, total, .. }) => format!("JOIN FAILED AT STEP {index} OF {total}"),
        None => match s.fault.as_ref().and_then(|fault| fault.step_title.as_ref()) {
            Some(title) => format!("JOIN FAILED: {title}"),
            None => "JOIN FAILED".into(),
        },
    }
}

fn refused_headline(s: &Snapshot) -> Headline {
    let say = |tag, text: String| Headline { tag, text: ascii(&text) };
    let Some(fault) = &s.fault else { return say(Tag::Stopped, "THE CLUSTER REFUSED THIS MACHINE".into()) };
    let here = s.machine.release.as_ref().map_or("?".into(), token);
    let there =
        fault.details.cluster_release.as_ref().or(s.cluster.release.as_ref()).map_or("?".into(), token);
    match fault.code.as_str() {
        "JOIN_QUEUE_FULL" => say(Tag::Trouble, "TOO MANY MACHINES ARE WAITING (16)".into()),
        "UPGRADE_RUNNING" => say(Tag::Trouble, "THE CLUSTER IS BEING UPGRADED".into()),
        "RELEASE_MISMATCH" => say(Tag::Stopped, format!("THE CLUSTER RUNS {there}, THIS MACHINE {here}")),
        code => match refused_code(code) {
            Some(why) => say(Tag::Stopped, format!("THE CLUSTER REFUSED THE JOIN CODE: {why}")),
            None if fault.kind == FaultKind::Transient => {
                say(Tag::Trouble, "THE CLUSTER REFUSED THIS MACHINE FOR NOW".into())
            }
            None => say(Tag::Stopped, "THE CLUSTER REFUSED THIS MACHINE".into()),
        },
    }
}

/// Why a join code is no good, in one word; `None` for other refusals.
pub(crate) fn refused_code(code: &str) -> Option<&'static str> {
    match code {
        "JOIN_CODE_WRONG" => Some("wrong"),
        "JOIN_CODE_EXPIRED" => Some("expired"),
        "JOIN_CODE_REVOKED" => Some("revoked"),
        "JOIN_CODE_BURNED" => Some("burned"),
        _ => None,
    }
}

fn identity_headline(s: &Snapshot) -> String {
    let host = endpoint_host(s);
    match s.fault.as_ref().map(|fault| fault.code.as_str()) {
        Some("FOUNDER_KEY_CHANGED") => format!("{host} HAS ANOTHER KEY THAN BEFORE"),
        Some("PIN_MISMATCH") => format!("{host} HAS ANOTHER KEY THAN THE JOIN URL SAYS"),
        Some("PAIRING_MISMATCH") => "THE CLUSTER SHOWS ANOTHER PAIRING CODE".into(),
        _ => format!("{host} DID NOT PROVE THE JOIN CODE"),
    }
}

/// The fact beside the state. The pairing code goes there wherever the screen has no other place for it.
pub(crate) fn fact(s: &Snapshot, now: &Now) -> Fact {
    let fact = |long: String, short: String| Fact { long: ascii(&long), short: ascii(&short), alarm: false };
    match s.state {
        State::Pending => match s.registration.registered_mono {
            Some(at) => {
                let age = clock::hms(now.since(at));
                fact(format!("registered {age} ago"), age)
            }
            None => Fact::default(),
        },
        State::Joined => {
            let finished = clock::time_of_day(now.wall_of(s.state_since_mono));
            let begun = s.registration.approved_mono.or(s.registration.registered_mono);
            match begun.map(|begun| clock::ms(s.state_since_mono.saturating_sub(begun))) {
                Some(took) => fact(format!("finished {finished}, took {took}"), finished),
                None => fact(format!("finished {finished}"), finished),
            }
        }
        _ if keep_powered(s) => Fact { long: "DO NOT POWER OFF".into(), short: String::new(), alarm: true },
        _ => match &s.pairing_code {
            Some(code) => fact(format!("pairing code {code}"), String::new()),
            None => match retry_in(s, now) {
                Some(left) if s.state == State::Refused || refused_for_now(s) => {
                    fact(format!("next try in {left}"), left)
                }
                _ => Fact::default(),
            },
        },
    }
}

/// True while a cut of power would cost something.
pub(crate) fn keep_powered(s: &Snapshot) -> bool {
    s.do_not_power_off || s.state.changes_machine()
}

/// Index and total of the step that runs, or of the next one, or of the last one.
pub(crate) fn current_step(s: &Snapshot) -> Option<(u32, u32)> {
    let with = |status| s.steps.iter().find(|step| step.status == status);
    let step = with(StepStatus::Running)
        .or_else(|| with(StepStatus::Failed))
        .or_else(|| with(StepStatus::Waiting))
        .or_else(|| s.steps.last())?;
    Some((step.index, step.total.max(u32::try_from(s.steps.len()).unwrap_or(0))))
}

/// Time until the fault's own retry, `07:12`.
pub(crate) fn retry_in(s: &Snapshot, now: &Now) -> Option<String> {
    let at = s.fault.as_ref().and_then(|fault| fault.retry_at_mono)?;
    Some(clock::ms(now.until(at)))
}

/// The address of the cluster as a command line wants it: without the default port.
pub(crate) fn endpoint_host(s: &Snapshot) -> String {
    let endpoint = ascii(s.cluster.endpoint.as_str());
    match endpoint.strip_suffix(DEFAULT_PORT) {
        _ if endpoint.is_empty() => "the cluster".into(),
        Some(host) => host.to_owned(),
        None => endpoint,
    }
}

/// The command that gives this machine another join code.
pub(crate) fn join_command(s: &Snapshot) -> String {
    let host = if s.cluster.endpoint.is_empty() { "ADDRESS".into() } else { endpoint_host(s) };
    format!("stratum-installer join --endpoint {host} --code XXXX-XXXX-XXX")
}

/// A received id or release number that may stand among our own words: one word of at most 32 plain characters, else `?`. A
/// sentence in such a field would otherwise read as if we had said it.
pub(crate) fn token<const N: usize>(text: &Safe<N>) -> String {
    let text = text.as_str();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '+' | '~' | ':');
    if !text.is_empty() && text.len() <= 32 && text.chars().all(plain) { text.to_owned() } else { "?".into() }
}

/// `unknown` for what is not known.
pub(crate) fn or_unknown<const N: usize>(text: &Option<Safe<N>>) -> String {
    match text {
        Some(text) if !text.is_empty() => text.ascii(),
        _ => "unknown".into(),
    }
}

/// `Dell R650`, or what of it is known.
pub(crate) fn maker(s: &Snapshot) -> String {
    let parts = [&s.machine.vendor, &s.machine.model];
    let known: Vec<String> =
        parts.into_iter().flatten().filter(|part| !part.is_empty()).map(|part| part.ascii()).collect();
    known.join(" ")
}

/// `serial SN0002, Dell R650`.
pub(crate) fn serial_and_maker(s: &Snapshot) -> String {
    let serial = format!("serial {}", or_unknown(&s.machine.serial));
    let maker = maker(s);
    if maker.is_empty() { serial } else { format!("{serial}, {maker}") }
}

/// `192.0.2.12/24 on eno1, link up 25G`, in shorter and shorter words.
pub(crate) fn address(s: &Snapshot) -> Vec<String> {
    let Some(nic) = &s.network.primary else {
        // Without a single NIC nothing was looked at yet.
        let known = !s.network.nics.is_empty();
        return vec![if known {
            "no network interface leads to the cluster".into()
        } else {
            "unknown".into()
        }];
    };
    let name = nic.nic.ascii();
    let address = nic.address.as_ref().map_or("none".into(), |address| address.ascii());
    match nic.link {
        Link::Up => vec![
            format!("{address} on {name}, link up {}", speed(nic)).trim_end().to_owned(),
            format!("{address} on {name}, up"),
            format!("{address} on {name}"),
            address,
        ],
        Link::Down => vec![format!("{address} on {name}, link DOWN"), format!("{address}, link DOWN")],
        Link::Unknown => vec![format!("{address} on {name}"), address],
    }
}

/// The address without its prefix length.
pub(crate) fn bare_address(s: &Snapshot) -> Option<String> {
    let address = s.network.primary.as_ref()?.address.as_ref()?.ascii();
    Some(address.split('/').next().unwrap_or_default().to_owned())
}

/// `25G`, `100M`, or nothing.
pub(crate) fn speed(nic: &Nic) -> String {
    match nic.speed_mbps {
        Some(mbps @ 1000..) if mbps % 1000 == 0 => format!("{}G", mbps / 1000),
        Some(mbps @ 1000..) => format!("{}.{}G", mbps / 1000, mbps % 1000 / 100),
        Some(mbps @ 1..) => format!("{mbps}M"),
        _ => String::new(),
    }
}

/// `192.0.2.240:9444 reached 2 s ago, identity proven`, in shorter and shorter words.
pub(crate) fn cluster(s: &Snapshot, now: &Now) -> Vec<String> {
    if s.cluster.endpoint.is_empty() {
        return vec!["no address yet".into()];
    }
    let age = s.cluster.last_contact_mono.map(|at| clock::short(now.since(at)));
    let (long, short): (String, String) = match (s.cluster.identity, s.cluster.contact, age) {
        (Identity::Failed, _, _) => {
            return said(s, &["answers, IDENTITY NOT PROVEN", "IDENTITY NOT PROVEN", "NOT PROVEN"]);
        }
        (Identity::Changed, _, _) => {
            return said(
                s,
                &["answers with ANOTHER KEY THAN BEFORE", "ANOTHER KEY THAN BEFORE", "ANOTHER KEY"],
            );
        }
        (_, Contact::Never, _) | (_, Contact::Unknown, None) => {
            ("not reached yet".into(), "not reached yet".into())
        }
        (_, Contact::Failing, Some(age)) => {
            (format!("NO ANSWER, last {age} ago"), format!("NO ANSWER, {age}"))
        }
        (_, Contact::Failing, None) => ("NO ANSWER".into(), "NO ANSWER".into()),
        (_, _, Some(age)) => (format!("reached {age} ago"), format!("{age} ago")),
        (_, Contact::Ok, None) => ("reached".into(), "reached".into()),
    };
    match (s.cluster.identity, s.cluster.contact) {
        // Who does not answer is told before who it is.
        (Identity::Proven, Contact::Failing) => {
            said(s, &[&format!("{long}, identity proven"), &long, &short])
        }
        (Identity::Proven, _) => said(
            s,
            &[
                &format!("{long}, identity proven"),
                &format!("{long}, proven"),
                &format!("proven, {short}"),
                "proven",
            ],
        ),
        _ => said(s, &[&long, &short]),
    }
}

fn said(s: &Snapshot, forms: &[&str]) -> Vec<String> {
    let endpoint = s.cluster.endpoint.ascii();
    forms.iter().map(|form| format!("{endpoint} {form}")).collect()
}

/// `runs 0.7.0`. A member that did not hear it again since it started is not asked about it.
pub(crate) fn cluster_release(s: &Snapshot) -> String {
    match &s.cluster.release {
        Some(release) => format!("runs {}", token(release)),
        None if s.state == State::Joined || s.cluster.endpoint.is_empty() => String::new(),
        None => "runs ?".into(),
    }
}

/// `7D1A:44E0:..:9C03` and its long form: a fingerprint as people compare it.
pub(crate) fn fingerprint(hex: &str) -> String {
    let hex = ascii(hex).to_uppercase();
    hex.as_bytes()
        .chunks(4)
        .map(|four| String::from_utf8_lossy(four).into_owned())
        .collect::<Vec<_>>()
        .join(":")
}

/// True when the agent ended without a failure before the machine is a member: somebody stopped it, and systemd does not start it again.
pub(crate) fn was_stopped(s: &Snapshot) -> bool {
    s.state != State::Joined && s.agent.exit.as_ref().is_some_and(|exit| exit.result.as_str() == "success")
}

/// True when the agent had asked for the restart into a new OS: that it ends then is as it should be.
pub(crate) fn restarts(s: &Snapshot) -> bool {
    let asked = |step: &Step| step.name.as_str() == "upgrade/boot" && step.status == StepStatus::Running;
    s.state == State::NeedsUpgrade && s.steps.iter().any(asked) && exit_words(s).is_none()
}

/// The headline of an agent that is no more.
pub(crate) fn gone(s: &Snapshot) -> &'static str {
    match (restarts(s), was_stopped(s)) {
        (true, _) => "THIS MACHINE RESTARTS INTO THE NEW OS",
        (false, true) => "THE JOIN AGENT WAS STOPPED",
        (false, false) => "THE JOIN AGENT DOES NOT ANSWER",
    }
}

/// What to run about it: why a failure happened is in the journal, why somebody stopped it is not.
pub(crate) fn gone_command(s: &Snapshot) -> &'static str {
    match (restarts(s), was_stopped(s)) {
        (true, _) => "Wait: the new OS starts by itself.",
        (false, true) => "systemctl start stratum-join",
        (false, false) => "journalctl -u stratum-join -b",
    }
}

/// How the agent failed, `signal SEGV` or `exit code 1`; nothing of one that was stopped.
pub(crate) fn exit_words(s: &Snapshot) -> Option<String> {
    let exit = s.agent.exit.as_ref().filter(|_| !was_stopped(s))?;
    Some(match (exit.result.as_str(), exit.status.as_str()) {
        (result, "") => ascii(result),
        ("exit-code", status) => format!("exit code {}", ascii(status)),
        // A core dump is a signal to a person.
        ("core-dump", status) => format!("signal {}", ascii(status)),
        (result, status) => format!("{} {}", ascii(result), ascii(status)),
    })
}

/// A step that failed, of which the fault does not speak: the fault is then about the way to the cluster.
pub(crate) fn failed_step(s: &Snapshot) -> Option<&Step> {
    let told = s.fault.as_ref().is_some_and(|fault| fault.step.is_some());
    s.steps.iter().find(|step| step.status == StepStatus::Failed).filter(|_| !told)
}

/// What went wrong, in the words of whoever says so. A failed step comes before trouble on the way to the cluster.
pub(crate) fn error(s: &Snapshot) -> Option<&str> {
    let step = failed_step(s).and_then(|step| step.detail.as_ref());
    step.map(|detail| detail.as_str()).or(s.fault.as_ref().map(|fault| fault.message.as_str()))
}
