//! What the process that faces the network can do, and what it cannot.

use anyhow::{Context, Result, ensure};

use crate::vm::Vm;

/// What is tried in place of the agent.
const SANDBOX: &str = include_str!("sandbox.sh");
/// The last lines of it: without them the sandbox would be so tight that nothing works, and the refusals would prove nothing.
const POSSIBLE: [&str; 2] = ["write its state", "write where the snapshot is"];
/// Asks the helper for its most harmless verb as somebody. Exit code 0: it answered; 7: nobody was let in.
const ASK: &str = r#"perl -MIO::Socket::UNIX -e '
    my $helper = IO::Socket::UNIX->new(Peer => "/run/stratum/helper.sock") or exit 7;
    print $helper qq({"v":1,"verb":"reload-banner","args":{"reload":false}}\n);
    $helper->flush;
    shutdown $helper, 1;
    exit(join("", <$helper>) =~ /"ok"/ ? 0 : 8);
'"#;

/// Read from the kernel, because a score alone would let a capability pass.
pub(super) fn the_agent_has_none(vm: &mut Vm) -> Result<()> {
    let status = vm.guest.sh("cat /proc/$(systemctl show -P MainPID stratum-join.service)/status")?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
        line.map(|rest| rest.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
            .with_context(|| format!("/proc/<pid>/status has no {name}"))
    };
    let uids = field("Uid")?;
    ensure!(uids.iter().all(|uid| uid != "0"), "the agent's uids are {uids:?}");
    let own = vm.guest.sh("id -u stratum-join")?;
    ensure!(uids.iter().all(|uid| uid == own.trim()), "the agent's uids are {uids:?}, its user is {own}");
    for capabilities in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        let held = field(capabilities)?;
        ensure!(held == ["0000000000000000"], "the agent's {capabilities} is {held:?}");
    }
    ensure!(field("NoNewPrivs")? == ["1"], "the agent may gain privileges");
    ensure!(field("Seccomp")? == ["2"], "the agent has no system call filter");
    // In its user namespace every group but its own would read as 65534.
    let groups = vm.guest.sh("id -G stratum-join")?;
    ensure!(field("Groups")?.join(" ") == groups.trim(), "the agent's groups are {:?}", field("Groups")?);
    let limit = vm
        .guest
        .sh("grep '^Max core file size' /proc/$(systemctl show -P MainPID stratum-join.service)/limits")?;
    ensure!(limit.split_whitespace().nth(4) == Some("0"), "the agent may leave a core file: {limit}");
    Ok(())
}

/// The agent's own unit with another program: whatever the agent could be made to do, it does it in there.
pub(super) fn its_sandbox_holds(vm: &mut Vm) -> Result<()> {
    vm.guest.write("/run/sandbox.sh", SANDBOX)?;
    vm.guest.sh("mkdir -p /run/systemd/system/stratum-sandbox.service.d")?;
    vm.guest.sh("systemctl cat stratum-join.service > /run/systemd/system/stratum-sandbox.service")?;
    vm.guest.write(
        "/run/systemd/system/stratum-sandbox.service.d/program.conf",
        "[Service]\nType=oneshot\nExecStart=\nExecStart=/bin/sh /run/sandbox.sh\nExecStopPost=\nRestart=no\nWatchdogSec=0\n",
    )?;
    vm.guest.sh("systemctl daemon-reload; systemctl start stratum-sandbox.service")?;
    let said =
        vm.guest.sh("journalctl --sync; journalctl -b -o cat _SYSTEMD_UNIT=stratum-sandbox.service")?;
    let tried = SANDBOX.lines().filter(|line| line.starts_with("try ")).count();
    let told = said.lines().filter(|line| line.contains(": ")).count();
    ensure!(tried == told, "{tried} things were to be tried, {told} were:\n{said}");
    let possible: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("possible: ")).collect();
    ensure!(possible == POSSIBLE, "in the agent's sandbox it is possible to: {}", possible.join(", "));
    vm.guest
        .sh("rm -r /run/systemd/system/stratum-sandbox.service* /run/sandbox.sh; systemctl daemon-reload")
        .map(drop)
}

/// The kernel refuses strangers at `connect`; the same program as the agent's user gets in, so it is the user that decides.
pub(super) fn the_helper_hears_only_the_agent(vm: &mut Vm) -> Result<()> {
    for (user, expected) in [("nobody", 7), ("stratum-console", 7), ("stratum-join", 0)] {
        let out = vm.guest.run(
            "/bin/sh",
            &["-c", &format!("setpriv --reuid {user} --clear-groups --regid $(id -g {user}) {ASK}")],
        )?;
        ensure!(
            out.code == Some(expected),
            "connecting to the helper as {user}: {} {}",
            out.ending(),
            out.stderr
        );
    }
    Ok(())
}
