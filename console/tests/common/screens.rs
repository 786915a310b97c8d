//! S1 to S16, the machine of the design's pictures.

use super::*;

pub fn all() -> Vec<Picture> {
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
    out.push(Picture::new("S1", "registering", s, now));

    let now = at("10:55:15Z");
    out.push(Picture::new("S2", "waiting for approval", pending(), now));

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
    out.push(Picture::new("S3", "needs-upgrade, the download runs", s, now));

    let now = at("10:58:40Z");
    out.push(Picture::new("S4", "needs-upgrade, an attempt failed", upgrade_failed(), now));

    let now = at("11:02:10Z");
    let mut s = written(State::Approved, &now);
    s.registration.approved_mono = Some(now.boot_ms - 15_000);
    s.registration.wait_reason = Some("join of node-1 (nj-3c9d1f7e) is running".into());
    out.push(Picture::new("S5", "approved, in the queue", s, now));

    let now = at("11:09:33Z");
    let mut s = written(State::Installing, &now);
    s.do_not_power_off = true;
    s.phase = Phase::Install;
    s.steps = install_steps(4, Running);
    s.last_message = Some(LastMessage {
        text: "2026-11-29T11:09:31Z patroni: replica is streaming, lag 412 MiB".into(),
        at_mono: now.boot_ms - 2000,
    });
    out.push(Picture::new("S6", "installing", s, now));

    let now = at("11:21:00Z");
    let mut s = written(State::Joined, &now);
    s.state_since_mono = now.boot_ms - 19_000;
    s.registration.approved_mono = Some(s.state_since_mono - (18 * 60 + 46) * 1000);
    s.registration.node_id = Some("n-msst0002".into());
    s.cluster.cluster_id = Some("cl-3vin6yzz".into());
    out.push(Picture::new("S7", "joined", s, now));

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
    out.push(Picture::new("S8", "failed at a step", s, now));

    let now = at("10:43:10Z");
    let mut s = written(State::Refused, &now);
    s.pairing_code = None;
    s.registration = Registration::default();
    told(
        &mut s,
        "The join code has expired.",
        fault("JOIN_CODE_EXPIRED", "the join code expired at 2026-11-29 09:00Z"),
        &["Make a new join code on the cluster, then run:", JOIN],
    );
    out.push(Picture::new("S9", "refused: the join code is expired", s, now));

    let now = at("2026-11-30T22:11:02Z");
    let mut s = written(State::Expired, &now);
    s.pairing_code = None;
    s.registration.last_pairing_code = Some("4F7-K2Q".into());
    out.push(Picture::new("S10", "expired", s, now));

    let now = at("11:31:47Z");
    let mut s = written(State::Rejected, &now);
    s.pairing_code = None;
    s.registration.last_pairing_code = Some("4F7-K2Q".into());
    s.registration.reject_reason = Some("wrong rack, this one belongs to lab-2".into());
    out.push(Picture::new("S11", "rejected", s, now));

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
    let todo = &[
        "3 gateway: the switch port's VLAN, and the gateway's address",
        "in this machine's network settings.",
    ];
    told(
        &mut s,
        "nothing answers at 192.0.2.240:9444",
        fault("ADDRESS_UNREACHABLE", "no route to host"),
        todo,
    );
    let up = |nic: &str, link| Nic { nic: nic.into(), link, ..Nic::default() };
    s.network.nics = vec![up("eno2", Link::Down), up("ens1f0", Link::Up), up("ens1f1", Link::Down)];
    out.push(Picture::new("S12", "the network diagnosis", s, now));

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
    let fault = Fault {
        why: Some("the check character fits".into()),
        ..fault("CODE_NOT_PROVEN", "certificate CN=idrac-7F2, SHA-256 9C11:02D7:..:A904")
    };
    let todo = &["Check code and address. If both are right, someone may be in between.", "Then run:", JOIN];
    told(&mut s, "The join code is wrong or long expired, or it is another cluster.", fault, todo);
    out.push(Picture::new("S13", "the address did not prove the join code", s, now));

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
    out.push(Picture::new("S14", "the agent was killed by a signal", s, now));

    let now = at("10:55:40Z");
    let mut s = written(State::Pending, &now);
    s.log = log();
    out.push(Picture::new("S15", "the log, followed", s.clone(), now).with(|view| view.screen = Screen::Log));

    let now = at("10:55:31Z");
    let mut s = written(State::Pending, &now);
    s.written_mono = now.boot_ms;
    s.agent.started_mono = now.boot_ms - (13 * 60 + 28) * 1000;
    s.hardware.disks = disks();
    s.network.nics = nics();
    out.push(Picture::new("S16", "details", s, now).with(|view| view.screen = Screen::Details));
    out
}

/// 100 lines, the last of them those of the design's picture.
pub fn log() -> Vec<LogLine> {
    let line = |at: &str, level, text: &str| LogLine {
        at: format!("2026-11-29T{at}Z").into(),
        level,
        text: text.into(),
    };
    let mut log: Vec<LogLine> =
        (1..=85).map(|n| line("10:41:00", Level::Info, &format!("an older line, number {n}"))).collect();
    use Level::{Info, Warn};
    let last = [
        ("10:42:03", Info, "agent 1.0.0 started, install record of 0.7.0"),
        ("10:42:03", Info, "identity: made a P-256 key, fingerprint 7D1A:44E0:..:9C03"),
        ("10:42:04", Info, "probe: 48 cores, 512 GiB, 6 disks, 4 NICs in 212 ms"),
        ("10:42:04", Warn, "probe: /sys/block/sdb: no serial, using the WWN"),
        ("10:42:04", Info, "founder: 192.0.2.240:9444 TLS 1.3, stratum-join/1"),
        ("10:42:05", Info, "proof: code 4F**-****-*** proven, pin 9B20:17CC:..:5E81 saved"),
        ("10:42:07", Warn, "register: 503 UNAVAILABLE, next try in 3 s"),
        ("10:42:10", Info, "register: attempt 2"),
        ("10:42:31", Info, "register: nj-8w2k4m1p created, state pending"),
        ("10:42:31", Info, "pairing: code agreed, shown on the console"),
        ("10:43:21", Info, "poll: state pending, waited 50 s"),
        ("10:44:11", Info, "poll: state pending, waited 50 s"),
        ("10:45:00", Warn, "poll: connection reset by peer, next try in 1 s"),
        ("10:45:01", Info, "poll: state pending"),
        ("10:55:01", Info, "poll: state pending, waited 50 s (12 times)"),
    ];
    log.extend(last.map(|(at, level, text)| line(at, level, text)));
    log
}

pub fn disks() -> Vec<Disk> {
    let disk = |name: &str, size: &str, usage: &str, model: &str| Disk {
        name: name.into(),
        size: size.into(),
        usage: usage.into(),
        model: model.into(),
    };
    const SAMSUNG: &str = "Samsung SSD 980 PRO 2TB";
    vec![
        disk("nvme0n1", "894 GiB", "system", "Dell BOSS-S2"),
        disk("nvme1n1", "1863 GiB", "blank", SAMSUNG),
        disk("nvme2n1", "1863 GiB", "holds data: LVM", SAMSUNG),
        disk("nvme3n1", "1863 GiB", "blank", SAMSUNG),
        disk("sda", "3726 GiB", "holds data: Linux software RAID member of md127", "ST4000NM0035-1V4107"),
        disk("sdb", "3726 GiB", "blank", "ST4000NM0035-1V4107"),
    ]
}

pub fn nics() -> Vec<Nic> {
    let nic = |nic: &str, mac: &str, link, speed_mbps| Nic {
        nic: nic.into(),
        mac: mac.into(),
        link,
        speed_mbps,
        ..Nic::default()
    };
    vec![
        nic("eno2", "3c:ec:ef:12:34:57", Link::Down, None),
        nic("ens1f0", "b8:ce:f6:aa:00:10", Link::Up, Some(100_000)),
        nic("ens1f1", "b8:ce:f6:aa:00:11", Link::Down, None),
    ]
}
