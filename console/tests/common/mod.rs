//! The machines of the pictures in the design: one snapshot per screen, with the instant it is drawn at.

#![allow(clippy::unwrap_used, dead_code, unreachable_pub)]

use console::snapshot::*;
use console::{Now, Snapshot};

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
    s.headline = state.word().into();
    if !matches!(state, State::Pending) {
        s.next.clear();
    }
    s.written_mono = now.boot_ms;
    s.cluster.last_contact_mono = Some(now.boot_ms.saturating_sub(2000));
    s
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

/// Every picture: name, snapshot, instant.
pub fn pictures() -> Vec<(&'static str, Snapshot, Now)> {
    use StepStatus::*;
    let mut out = Vec::new();

    // Registration came before the boot clock of pending.json had run this far: S1 has a clock of its own.
    let now = Now { boot_ms: 40_000, wall: "2026-11-29T10:42:07Z".parse().unwrap() };
    let mut s = written(State::Registering, &now);
    s.pairing_code = None;
    s.registration = Registration { attempt: 1, ..Registration::default() };
    let titles = [
        ("make the node key", Done, None),
        ("read the hardware", Done, Some("48 cores, 512 GiB, 6 disks, 4 NICs")),
        ("reach the cluster at 192.0.2.240:9444", Done, None),
        ("the cluster proves the join code", Done, None),
        ("send hardware, release, host name and serial", Running, Some("attempt 1")),
        ("agree on the pairing code", Waiting, None),
    ];
    s.steps = (1..)
        .zip(titles)
        .map(|(index, (title, status, detail))| Step {
            detail: detail.map(Into::into),
            ..step(index, 6, "register", title, status, None)
        })
        .collect();
    out.push(("S1", s, now));

    let now = at("10:55:15Z");
    out.push(("S2", pending(), now));

    let now = at("10:44:02Z");
    let mut s = written(State::NeedsUpgrade, &now);
    s.machine.release = Some("0.6.0".into());
    s.do_not_power_off = true;
    s.upgrade = Some(Upgrade { from: "0.6.0".into(), to: "0.7.0".into(), attempt: 1, ..Upgrade::default() });
    s.phase = Phase::Upgrade;
    s.steps = vec![
        step(1, 6, "upgrade/manifest", "check the release manifest", Done, Some(1)),
        step(2, 6, "upgrade/fetch", "download the release", Running, Some(17)),
        step(3, 6, "upgrade/verify", "verify every file", Waiting, None),
        step(4, 6, "upgrade/install", "install the OS", Waiting, None),
        step(5, 6, "upgrade/boot", "restart into the new OS", Waiting, None),
        step(6, 6, "upgrade/bless", "check that the new OS works", Waiting, None),
    ];
    s.progress = Some(Progress {
        unit: Unit::Bytes,
        done: 682 << 20,
        total: 1843 << 20,
        rate_per_sec: Some(43_201_332),
        eta_sec: Some(28),
    });
    out.push(("S3", s, now));

    let now = at("10:58:40Z");
    out.push(("S4", upgrade_failed(), now));

    let now = at("11:02:10Z");
    let mut s = written(State::Approved, &now);
    s.registration.approved_mono = Some(now.boot_ms - 15_000);
    s.registration.wait_reason = Some("join of node-1 (nj-3c9d1f7e) is running".into());
    out.push(("S5", s, now));

    let now = at("11:09:33Z");
    let mut s = written(State::Installing, &now);
    s.do_not_power_off = true;
    s.phase = Phase::Install;
    s.steps = install_steps(4, Running);
    s.last_message = Some(LastMessage {
        text: "patroni: replica is streaming, lag 412 MiB".into(),
        at_mono: now.boot_ms - 2000,
    });
    out.push(("S6", s, now));

    let now = at("11:21:00Z");
    let mut s = written(State::Joined, &now);
    s.state_since_mono = now.boot_ms - 19_000;
    s.registration.approved_mono = Some(s.state_since_mono - (18 * 60 + 46) * 1000);
    s.registration.node_id = Some("n-msst0002".into());
    s.cluster.cluster_id = Some("cl-3vin6yzz".into());
    out.push(("S7", s, now));

    let now = at("11:12:04Z");
    let mut s = written(State::Failed, &now);
    s.steps = install_steps(2, Failed);
    s.fault = Some(Fault {
        step: Some("storage".into()),
        step_title: Some("Preparing the disks".into()),
        what_to_do: vec![
            "Correct the cause named above on this machine or in the approval.".into(),
            "Then retry it in Console: Admin > Metal, Joining nodes.".into(),
        ],
        ..fault(
            "STORAGE_IN_USE",
            "/dev/disk/by-id/nvme-Samsung_SSD_980_PRO_2TB_S6B0NL0W123456 is in use: LVM physical volume of \"old-vg\"",
        )
    });
    out.push(("S8", s, now));

    let now = at("10:43:10Z");
    let mut s = written(State::Refused, &now);
    s.pairing_code = None;
    s.registration = Registration::default();
    s.fault = Some(fault("JOIN_CODE_EXPIRED", "the join code expired at 2026-11-29 09:00Z"));
    out.push(("S9", s, now));

    let now = at("2026-11-30T22:11:02Z");
    let mut s = written(State::Expired, &now);
    s.pairing_code = None;
    s.registration.last_pairing_code = Some("4F7-K2Q".into());
    out.push(("S10", s, now));

    let now = at("11:31:47Z");
    let mut s = written(State::Rejected, &now);
    s.pairing_code = None;
    s.registration.last_pairing_code = Some("4F7-K2Q".into());
    s.registration.reject_reason = Some("wrong rack, this one belongs to lab-2".into());
    out.push(("S11", s, now));

    let now = at("10:46:38Z");
    let mut s = written(State::Registering, &now);
    s.pairing_code = None;
    s.registration = Registration::default();
    s.cluster =
        Cluster { endpoint: "192.0.2.240:9444".into(), contact: Contact::Never, ..Cluster::default() };
    s.network.failing_since_mono = Some(now.boot_ms - 133_000);
    s.network.next_try_mono = Some(now.boot_ms + 9000);
    let check = |name: &str, title: &str, status, detail: &str| Check {
        name: name.into(),
        title: title.into(),
        status,
        detail: Some(detail.into()),
    };
    use CheckStatus as C;
    s.network.checks = vec![
        check("link", "link", C::Ok, "eno1 up, 25G full duplex, MAC 3c:ec:ef:12:34:56"),
        check("address", "address", C::Ok, "192.0.2.12/24, static"),
        check("gateway", "gateway", C::Failed, "192.0.2.1 on eno1 does not answer (neighbour FAILED)"),
        check("name", "name", C::Skipped, "not needed, the endpoint is an address"),
        check("tcp", "connect", C::Failed, "> no route to host"),
        check("mtu", "path MTU", C::Skipped, "not tried"),
        check("tls", "TLS", C::Skipped, "not tried"),
        check("proof", "proof", C::Skipped, "not tried"),
        check("release", "release", C::Skipped, "not tried"),
        check("clock", "clock", C::Unknown, "2026-11-29 10:46:38Z, not synchronised"),
    ];
    s.fault = Some(Fault {
        what_to_do: vec![
            "3 gateway: the switch port's VLAN, and the gateway's address".into(),
            "in this machine's network settings.".into(),
        ],
        ..fault("ADDRESS_UNREACHABLE", "no route to host")
    });
    let up = |nic: &str, link| Nic { nic: nic.into(), link, ..Nic::default() };
    s.network.nics = vec![up("eno2", Link::Down), up("ens1f0", Link::Up), up("ens1f1", Link::Down)];
    out.push(("S12", s, now));

    let now = at("10:44:20Z");
    let mut s = written(State::IdentityFailed, &now);
    s.pairing_code = None;
    s.registration = Registration::default();
    s.cluster = Cluster {
        endpoint: "192.0.2.240:9444".into(),
        contact: Contact::Ok,
        identity: Identity::Failed,
        ..Cluster::default()
    };
    s.fault = Some(Fault {
        why: Some("the check character fits".into()),
        ..fault("CODE_NOT_PROVEN", "certificate CN=idrac-7F2, SHA-256 9C11:02D7:..:A904")
    });
    out.push(("S13", s, now));

    let now = at("10:50:00Z");
    let mut s = written(State::Pending, &now);
    s.written_mono = now.boot_ms - 41_000;
    s.cluster.last_contact_mono = Some(now.boot_ms - 43_000);
    s.agent.restarts = 3;
    s.agent.exit = Some(AgentExit { result: "signal".into(), code: "dumped".into(), status: "SEGV".into() });
    let line = |at: &str, level, text: &str| LogLine { at: at.into(), level, text: text.into() };
    s.log = vec![
        line("2026-11-29T10:49:17Z", Level::Info, "poll: state pending, waited 50 s"),
        line("2026-11-29T10:49:19Z", Level::Error, "agent: panicked at src/report/snapshot.rs:88"),
    ];
    out.push(("S14", s, now));
    out
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
