//! The variants: the same layouts with other texts, one picture for each row of the design's table and for what else the agent writes.

use super::*;
use console::snapshot::*;
use console::{Feed, Leave, Liveness};

pub fn all() -> Vec<Picture> {
    let mut out = refused();
    out.extend(identity());
    out.extend(on_the_way());
    out.extend(trouble());
    out.extend(agent());
    out
}

const NOW: &str = "10:55:15Z";
const NEW_CODE: &str = "Make a new join code on the cluster, then run:";

/// S9 for the other codes.
fn refused() -> Vec<Picture> {
    let now = at(NOW);
    let picture = |name, about, fault: Fault, what: &str, todo: &[&str]| {
        let mut s = written(State::Refused, &now);
        s.pairing_code = None;
        s.registration = Registration::default();
        told(&mut s, what, fault, todo);
        Picture::new(name, about, s, now)
    };
    let soon = Some(now.boot_ms + 42_000);
    let later =
        |code, message| Fault { kind: FaultKind::Transient, retry_at_mono: soon, ..fault(code, message) };
    let mut all = vec![
        picture(
            "S9-wrong",
            "refused: the join code is wrong, and looks mistyped",
            fault("JOIN_CODE_WRONG", "no join code begins with 4F"),
            "The join code is wrong.",
            &["The code looks mistyped: its last character does not fit.", NEW_CODE, JOIN],
        ),
        picture(
            "S9-revoked",
            "refused: the join code was revoked",
            fault("JOIN_CODE_REVOKED", "the join code was revoked by admin@example.com"),
            "The join code was revoked.",
            &[NEW_CODE, JOIN],
        ),
        picture(
            "S9-burned",
            "refused: the join code was burned; nobody proved that this answer is the cluster's",
            Fault { verified: false, ..fault("JOIN_CODE_BURNED", "5 wrong tries") },
            "The join code was burned by too many wrong tries.",
            &[
                NEW_CODE,
                JOIN,
                "Look on the cluster who tried.",
                "This answer came before the cluster proved the code.",
            ],
        ),
        picture(
            "S9-release",
            "refused: another release, and its ISO",
            Fault {
                details: FaultDetails {
                    cluster_release: Some("0.8.0".into()),
                    iso: Some("https://releases.example.com/stratum-0.8.0.iso".into()),
                },
                ..fault("RELEASE_MISMATCH", "this cluster takes machines of release 0.8.0")
            },
            "This machine runs 0.7.0, the cluster 0.8.0.",
            &["Install this machine from https://releases.example.com/stratum-0.8.0.iso."],
        ),
        picture(
            "S9-queue-full",
            "refused for now: 16 machines wait",
            later("JOIN_QUEUE_FULL", "16 joins are pending"),
            "16 machines already wait.",
            &["Approve or reject some in Console: Admin > Metal, Joining nodes."],
        ),
        picture(
            "S9-upgrade-running",
            "refused for now: the cluster is being upgraded",
            later("UPGRADE_RUNNING", "upgrade to 0.8.0 is running"),
            "The cluster is being upgraded.",
            &["Wait."],
        ),
        picture(
            "S9-data",
            "refused for a reason that this console has no picture of",
            fault("INVALID_INPUT", "hostname: not a host name"),
            "The cluster refused our data.",
            &["Keep journalctl -u stratum-join: this is a fault of the agent."],
        ),
    ];
    for picture in &mut all {
        // The agent goes on registering while the cluster takes nobody.
        if picture.snapshot.fault.as_ref().is_some_and(|fault| fault.kind == FaultKind::Transient) {
            picture.snapshot.state = State::Registering;
        }
        let retry = picture.snapshot.fault.as_ref().is_some_and(|fault| {
            fault.retry_at_mono.is_some() || matches!(fault.code.as_str(), "RELEASE_MISMATCH")
        });
        picture.snapshot.actions.retry = retry;
    }
    all
}

/// S13 for the other codes.
fn identity() -> Vec<Picture> {
    let now = at(NOW);
    let picture = |name, about, code, what: &str, todo: &[&str]| {
        let mut s = written(State::IdentityFailed, &now);
        s.cluster.identity = Identity::Changed;
        told(&mut s, what, fault(code, "key 9C11:02D7:..:A904"), todo);
        Picture::new(name, about, s, now)
    };
    vec![
        picture(
            "S13-key-changed",
            "the founder has another key than the pinned one",
            "FOUNDER_KEY_CHANGED",
            "The cluster's key changed: had 9B20:17CC:..:5E81, now 9C11:02D7:..:A904.",
            &["If this is planned, run with a new code:", JOIN],
        ),
        picture(
            "S13-pin-mismatch",
            "the founder has another key than the join URL says",
            "PIN_MISMATCH",
            "The key at 192.0.2.240:9444 is not the one in the URL.",
            &["Check the address and copy the URL again."],
        ),
        picture(
            "S13-pairing",
            "the two sides computed different pairing codes",
            "PAIRING_MISMATCH",
            "The two pairing codes differ.",
            &["Do not approve. Reject the entry and use a new join code."],
        ),
    ]
}

/// The ways of a join that goes well.
fn on_the_way() -> Vec<Picture> {
    let now = at(NOW);
    let mut out = Vec::new();
    let empty = Snapshot { written_mono: now.boot_ms, ..Snapshot::default() };
    out.push(Picture::new("S1-starting", "the agent has just started", empty.clone(), now));

    let mut s = empty;
    s.headline = "no join was asked for".into();
    s.next = vec!["Give this machine the cluster's address and a join code:".into(), JOIN.into()];
    out.push(Picture::new("S1-nobody-asked", "no join was asked for", s, now));

    let mut s = written(State::Pending, &now);
    s.pairing_code = None;
    out.push(Picture::new("S2-no-code", "pending, the pairing code is not agreed on yet", s, now));

    let mut s = written(State::NeedsUpgrade, &now);
    s.machine.release = Some("0.6.0".into());
    s.next = vec![
        "This agent cannot upgrade the machine: install it from an ISO of the".into(),
        "cluster's release.".into(),
    ];
    s.upgrade = Some(Upgrade { from: "0.6.0".into(), to: "0.7.0".into(), ..Upgrade::default() });
    out.push(Picture::new("S3-no-upgrade", "needs an upgrade that this agent does not do", s, now));

    let mut s = picture_of("S3");
    for step in &mut s.steps {
        step.status = match step.index {
            1..=4 => StepStatus::Done,
            5 => StepStatus::Running,
            _ => StepStatus::Waiting,
        };
        step.elapsed_ms = (step.index <= 5).then_some(u64::from(step.index) * 21_000);
    }
    s.progress = None;
    s.written_mono = now.boot_ms;
    out.push(Picture::new("S3-restart", "needs-upgrade, about to restart into the new OS", s.clone(), now));
    out.push(Picture::new("S14-restart", "the agent is gone, because the machine restarts", s, now).with(
        |view| {
            view.liveness = Liveness::Gone;
            view.agent_alive = false;
        },
    ));

    let mut s = written(State::Approved, &now);
    s.registration.approved_mono = Some(now.boot_ms - 4000);
    out.push(Picture::new("S5-its-turn", "approved, and the cluster gives no reason to wait", s, now));

    let mut s = written(State::Delivering, &now);
    s.do_not_power_off = true;
    out.push(Picture::new("S6-delivering", "delivering", s, now));

    let mut s = picture_of("S6");
    s.steps = install_steps(8, StepStatus::Running);
    s.written_mono = now.boot_ms;
    s.last_message = None;
    out.push(Picture::new("S6-late-step", "installing, one of the last steps", s, now));

    let mut s = written(State::Joined, &now);
    s.state_since_mono = now.boot_ms;
    s.registration.node_id = Some("n-msst0002".into());
    out.push(
        Picture::new("S7-own-terminal", "joined, on a terminal that a person started it on", s, now).with(
            |view| {
                view.login_comes_back = false;
                view.leave = Leave::Quit;
            },
        ),
    );
    out
}

/// What goes wrong for a while, or for good.
fn trouble() -> Vec<Picture> {
    let now = at(NOW);
    let mut out = Vec::new();
    let away = |s: &mut Snapshot, retry_at_mono| {
        let fault = Fault {
            kind: FaultKind::Transient,
            retry_at_mono,
            ..fault("UNAVAILABLE", "503 the database is away")
        };
        s.fault = Some(Fault { what_to_do: vec!["Wait.".into()], ..fault });
    };

    let mut s = written(State::Registering, &now);
    s.pairing_code = None;
    s.registration = Registration { attempt: 3, ..Registration::default() };
    let before = s.clone();
    away(&mut s, Some(now.boot_ms + 9000));
    s.actions.retry = true;
    out.push(Picture::new("S1-unavailable", "registering, the cluster cannot answer now", s, now));
    let mut s = before;
    s.network.failing_since_mono = Some(now.boot_ms - 10_000);
    out.push(Picture::new("S1-no-contact", "registering, no contact for 10 s", s.clone(), now));
    s.network.failing_since_mono = Some(now.boot_ms - 30_000);
    out.push(Picture::new("S12-no-checks", "registering, no contact for 30 s, nothing checked yet", s, now));

    let mut s = pending();
    away(&mut s, Some(now.boot_ms + 9000));
    out.push(Picture::new("S2-unavailable", "pending, the cluster cannot answer now", s, now));
    let mut s = pending();
    s.network.failing_since_mono = Some(now.boot_ms - 41_000);
    s.cluster.contact = Contact::Failing;
    s.degraded = Some("restarted 6 times in 10 minutes".into());
    out.push(Picture::new("S2-no-contact", "pending, no contact", s.clone(), now));
    s.network.failing_since_mono = None;
    s.cluster.contact = Contact::Ok;
    out.push(Picture::new("S2-degraded", "pending, the agent is restarted again and again", s, now));

    let mut s = upgrade_failed();
    s.written_mono = now.boot_ms;
    s.cluster.last_contact_mono = Some(now.boot_ms - 2000);
    for step in &mut s.steps {
        step.status = StepStatus::Done;
    }
    s.steps.push(step(5, 6, "upgrade/boot", "restart into the new OS", StepStatus::Failed, Some(181)));
    if let Some(fault) = &mut s.fault {
        fault.step = Some("upgrade/boot".into());
        fault.step_title = Some("restart into the new OS".into());
        fault.message = "the new OS did not confirm within 180 s of its start".into();
        fault.why = Some("The machine fell back to the old OS by itself.".into());
        fault.what_to_do = vec!["If it happens again, look at the console during the restart.".into()];
        fault.retry_at_mono = Some(now.boot_ms + 432_000);
    }
    out.push(Picture::new("S3-fell-back", "needs-upgrade, the new OS did not come up", s, now));

    let mut s = written(State::Failed, &now);
    s.steps = install_steps(2, StepStatus::Failed);
    s.steps[1].detail = Some("disk is in use".into());
    away(&mut s, Some(now.boot_ms + 9000));
    out.push(Picture::new("S8-unavailable", "failed at a step, the cluster cannot answer now", s, now));
    let mut s = written(State::Failed, &now);
    let cause = "raft: no leader for 120 s; last election by n-msst0001";
    s.fault = Some(Fault {
        step: Some("join".into()),
        step_title: Some("Joining the cluster".into()),
        ..fault("STEP_FAILED", cause)
    });
    out.push(Picture::new("S8-founder-side", "failed at a step of the founder's, without advice", s, now));
    let mut s = picture_of("S8");
    s.written_mono = now.boot_ms;
    s.state_raw = Some("installing".into());
    out.push(Picture::new("S8-unheard", "failed, and the cluster has not heard of it yet", s, now));

    let mut s = written(State::Unknown, &now);
    s.state_raw = Some("teleporting".into());
    out.push(Picture::new("unknown", "a state this console does not know", s, now));
    out
}

/// When the agent itself is the news.
fn agent() -> Vec<Picture> {
    let now = at(NOW);
    let mut out = Vec::new();
    let empty = Snapshot { written_mono: now.boot_ms, ..Snapshot::default() };
    for (name, about, waited) in [
        ("S14-not-yet", "no snapshot yet", 5_000),
        ("S14-not-yet-late", "no snapshot for more than a minute", 61_000),
    ] {
        let feed = Feed::NotYet { since_mono: now.boot_ms - waited };
        out.push(Picture::new(name, about, empty.clone(), now).with(|view| view.feed = feed));
    }
    let why = Feed::Unreadable(
        "cannot read the snapshot /run/stratum-join/snapshot.json: permission denied".into(),
    );
    out.push(
        Picture::new("S14-unreadable", "the snapshot cannot be read", empty.clone(), now)
            .with(|view| view.feed = why),
    );
    let newer = Snapshot {
        headline: "waiting for the moon".into(),
        next: vec!["Look up.".into()],
        state: State::Unknown,
        ..empty
    };
    out.push(
        Picture::new("S14-newer", "a newer agent than this console", newer, now)
            .with(|view| view.feed = Feed::Foreign { schema: 2 }),
    );
    let mut s = pending();
    s.written_mono -= 17_000;
    out.push(
        Picture::new("S2-late", "pending, the agent missed a write", s, now)
            .with(|view| view.liveness = Liveness::Late),
    );
    out.push(Picture::new("S14-killed", "the agent's process is no more", pending(), now).with(|view| {
        view.liveness = Liveness::Gone;
        view.agent_alive = false;
    }));
    let mut s = pending();
    s.agent.exit = Some(AgentExit { result: "success".into(), code: "killed".into(), status: "TERM".into() });
    out.push(Picture::new("S14-stopped", "the agent was stopped by somebody", s, now));
    let mut s = pending();
    s.written_mono -= 41_000;
    out.push(
        Picture::new("S14-hangs", "the agent's process is there and writes nothing", s, now)
            .with(|view| view.liveness = Liveness::Gone),
    );
    let mut s = pending();
    s.log = super::screens::log();
    out.push(Picture::new("S15-scrolled", "the log, scrolled up", s, now).with(|view| {
        view.screen = Screen::Log;
        view.scroll = 10;
    }));
    let mut s = pending();
    s.hardware.disks = super::screens::disks();
    s.network.nics = super::screens::nics();
    out.push(Picture::new("S16-scrolled", "details, scrolled to the end", s, now).with(|view| {
        view.screen = Screen::Details;
        view.scroll = 99;
    }));
    out.push(
        Picture::new("S12-good", "the network screen of a machine that is connected", pending(), now)
            .with(|view| view.screen = Screen::Network),
    );
    out.push(
        Picture::new("S4-question", "a key that asks back", upgrade_failed(), at("10:58:40Z"))
            .with(|view| view.notice = Some("Retry now? press Y".into())),
    );
    out
}

fn picture_of(name: &str) -> Snapshot {
    super::screens::all().into_iter().find(|picture| picture.name == name).unwrap().snapshot
}
