//! The table "Files on a node" of ARCHITECTURE.md, compared with the machine: nothing more, nothing less, no other mode or owner.

use anyhow::{Result, ensure};

use crate::vm::Vm;

/// The directories that are ours alone.
const LIST: &str = "find /var/lib/stratum /run/stratum /run/stratum-join /etc/stratum /run/agetty.reload /run/motd.d/60-stratum /etc/issue.d/60-stratum.issue \
    -printf '%p %M %m %u:%g\\n' | sort";
/// What is there as soon as the agent runs. Path, mode, owner.
const ALWAYS: &[&str] = &[
    "/etc/issue.d/60-stratum.issue l 777 root:root",
    "/etc/stratum d 755 root:root",
    "/etc/stratum/join.yaml - 644 root:root",
    "/run/agetty.reload - 600 root:root",
    "/run/motd.d/60-stratum l 777 root:root",
    "/run/stratum d 755 root:root",
    "/run/stratum/helper.sock s 600 stratum-join:root",
    "/run/stratum-join d 1775 root:stratum-join",
    "/run/stratum-join/control.sock s 660 root:stratum-console",
    "/run/stratum-join/issue - 644 root:root",
    "/run/stratum-join/motd - 644 root:root",
    "/run/stratum-join/snapshot.json - 644 stratum-join:stratum-join",
    "/var/lib/stratum d 755 root:root",
    "/var/lib/stratum/join d 700 stratum-join:stratum-join",
    "/var/lib/stratum/join/identity d 700 stratum-join:stratum-join",
    "/var/lib/stratum/join/journal.json - 600 stratum-join:stratum-join",
    "/var/lib/stratum/join/lock - 600 stratum-join:stratum-join",
    "/var/lib/stratum/os d 755 root:root",
];
/// What a machine that waits has besides.
const WAITING: &[&str] = &[
    "/run/stratum/console.json - 600 root:root",
    "/run/stratum-join/progress.sock s 600 stratum-join:stratum-join",
    "/var/lib/stratum/join/identity/cert.pem - 600 stratum-join:stratum-join",
    "/var/lib/stratum/join/identity/key.pem - 600 stratum-join:stratum-join",
    "/var/lib/stratum/join/request.json - 600 stratum-join:stratum-join",
];
/// What a member has besides.
const MEMBER: &[&str] = &[
    "/etc/stratum/node.yaml - 600 root:root",
    "/run/stratum/delivery d 700 root:root",
    "/run/stratum/delivery/attempt.json - 600 root:root",
    "/run/stratum/firstboot d 700 root:root",
    "/run/stratum/firstboot/<run> d 700 root:root",
    "/run/stratum/firstboot/<run>/before - 600 root:root",
    "/run/stratum/firstboot/<run>/end - 600 root:root",
    "/run/stratum/firstboot/<run>/invocation - 600 root:root",
    "/run/stratum/firstboot/<run>/log - 600 root:root",
    "/run/stratum/firstboot/<run>/started.json - 600 root:root",
    "/run/stratum/helper.lock - 600 root:root",
    "/run/stratum-join/login-tty1 - 644 root:root",
    "/run/stratum-join/progress.sock s 600 stratum-join:stratum-join",
    "/var/lib/stratum/join/request.json - 600 stratum-join:stratum-join",
    "/var/lib/stratum/join/joined - 600 stratum-join:stratum-join",
];

pub(super) fn are_as_the_table_says_while_it_waits(vm: &mut Vm) -> Result<()> {
    compare(vm, &[ALWAYS, WAITING].concat())
}

pub(super) fn are_as_the_table_says_after_the_join(vm: &mut Vm) -> Result<()> {
    compare(vm, &[ALWAYS, MEMBER].concat())
}

fn compare(vm: &mut Vm, expected: &[&str]) -> Result<()> {
    let listed = vm.guest.sh(LIST)?;
    let found: Vec<String> = listed.lines().filter_map(entry).collect();
    let missing: Vec<_> = expected.iter().filter(|line| !found.iter().any(|entry| entry == *line)).collect();
    let unknown: Vec<_> = found.iter().filter(|entry| !expected.contains(&entry.as_str())).collect();
    ensure!(
        missing.is_empty() && unknown.is_empty(),
        "the files are not those of the table.\n  expected: {missing:#?}\n  found instead: {unknown:#?}"
    );
    Ok(())
}

/// `path kind mode owner`, of `path drwxr-xr-x 755 owner`.
fn entry(line: &str) -> Option<String> {
    let [path, kind, mode, owner] = line.split(' ').collect::<Vec<_>>()[..] else { return None };
    // Those of the harness itself.
    if path == "/etc/stratum/stand-in" {
        return None;
    }
    let path: Vec<&str> = path
        .split('/')
        .map(|name| if name.starts_with("attempt-") && !name.contains('.') { "<run>" } else { name })
        .collect();
    Some(format!("{} {} {mode} {owner}", path.join("/"), kind.get(..1)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_find_is_an_entry_of_the_table() {
        let line = "/run/stratum/helper.sock srw------- 600 stratum-join:root";
        assert_eq!(entry(line).unwrap(), "/run/stratum/helper.sock s 600 stratum-join:root");
        assert_eq!(entry("find: nothing here at all"), None);
    }
}
