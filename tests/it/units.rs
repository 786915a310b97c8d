//! What can be known of the units without booting a machine. What systemd makes of them is seen in the virtual machine (tests/vm).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use stratum_join::paths::Paths;

/// The services, with the largest exposure that `systemd-analyze security` may find, in tenths.
const SERVICES: [(&str, u32); 3] = [
    ("stratum-join.service", 15),
    ("stratum-join-helper@.service", 30),
    ("stratum-join-console@.service", 40),
];

const UNITS: [&str; 6] = [
    "stratum-join.service",
    "stratum-join-control.socket",
    "stratum-join-helper.socket",
    "stratum-join-helper@.service",
    "stratum-join-console@.service",
    "stratum-join-console-login@.service",
];

fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd")
}

fn text(file: &str) -> String {
    std::fs::read_to_string(dir().join(file)).unwrap()
}

/// The values of each directive, in order, without regard to its section: no directive of ours is in two.
fn directives(file: &str) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in text(file).lines().filter(|line| !line.starts_with(['#', '[']) && !line.is_empty()) {
        let (key, value) = line.split_once('=').unwrap_or_else(|| panic!("{file}: {line}"));
        found.entry(key.to_owned()).or_default().push(value.to_owned());
    }
    found
}

fn values(file: &str, key: &str) -> Vec<String> {
    directives(file).remove(key).unwrap_or_default()
}

fn words(file: &str, key: &str) -> Vec<String> {
    values(file, key).iter().flat_map(|value| value.split_whitespace()).map(str::to_owned).collect()
}

/// The lines of a tmpfiles.d or sysusers.d file, split.
fn table(file: &str) -> Vec<Vec<String>> {
    let text = text(file);
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

#[test]
fn no_unit_of_ours_is_something_that_a_boot_waits_for() {
    for unit in UNITS {
        for key in ["RequiredBy", "RequisiteOf", "UpheldBy"] {
            assert!(values(unit, key).is_empty(), "{unit} has {key}=");
        }
        // rescue and emergency take the terminal from the console; nobody waits for those in a good boot.
        let before = words(unit, "Before");
        assert!(before.iter().all(|unit| ["rescue.service", "emergency.service"].contains(&unit.as_str())));
        let type_of = values(unit, "Type").concat();
        assert!(type_of != "oneshot" || words(unit, "WantedBy").is_empty(), "{unit} holds up its target");
        // multi-user.target waits until these are ready, so that wait is bounded.
        if !words(unit, "WantedBy").is_empty() {
            let limit: u32 = values(unit, "TimeoutStartSec").concat().parse().unwrap();
            assert!(limit < 90, "{unit} waits as long as what has no limit of its own");
        }
        let after = words(unit, "After");
        assert!(!after.iter().any(|unit| unit == "network-online.target"), "{unit} waits for a network");
    }
}

#[test]
fn a_member_starts_nothing_of_the_join_and_a_machine_without_a_request_starts_the_agent() {
    let joined = format!("!{}", Paths::system().joined_marker().display());
    for unit in UNITS.iter().filter(|unit| {
        !["stratum-join-helper@.service", "stratum-join-console-login@.service"].contains(unit)
    }) {
        assert!(values(unit, "ConditionPathExists").contains(&joined), "{unit}");
    }
    assert_eq!(values("stratum-join.service", "ConditionPathExists"), [joined]);
}

#[test]
fn the_login_starts_whenever_the_console_does_not() {
    let console = values("stratum-join-console@.service", "ConditionPathExists");
    for (drop_in, instance) in [("getty@tty1.service.d", "tty1"), ("serial-getty@.service.d", "%i")] {
        let login = values(&format!("{drop_in}/10-stratum-join.conf"), "ConditionPathExists");
        // `|`: any one of them is enough. Each condition of the console has its opposite there, but for the terminal itself: without a
        // terminal there is no login on it either.
        for condition in console.iter().filter(|condition| *condition != "/dev/%I") {
            let condition = condition.replace("%i", instance);
            let opposite = match condition.strip_prefix('!') {
                Some(path) => format!("|{path}"),
                None => format!("|!{condition}"),
            };
            assert!(login.contains(&opposite), "{opposite} is not among {login:?}");
        }
        // A console that is not enabled, or masked, takes nobody's login.
        let unit = format!("stratum-join-console@{instance}.service");
        assert!(login.contains(&format!("|!/etc/systemd/system/getty.target.wants/{unit}")), "{login:?}");
        let masked = values(&format!("{drop_in}/10-stratum-join.conf"), "ConditionPathIsSymbolicLink");
        assert_eq!(masked, [format!("|/etc/systemd/system/{unit}")]);
        assert!(login.iter().all(|condition| condition.starts_with('|')));
    }
    // A conflict would win over the conditions: a machine that is not joining would have neither.
    for unit in words("stratum-join-console@.service", "Conflicts") {
        assert!(!unit.contains("getty"), "{unit}");
    }
}

#[test]
fn the_agent_has_no_privilege_and_the_helper_has_no_network() {
    let agent = directives("stratum-join.service");
    assert_eq!(agent["User"], ["stratum-join"]);
    assert_eq!(
        (&agent["CapabilityBoundingSet"], &agent["AmbientCapabilities"]),
        (&vec![String::new()], &vec![String::new()])
    );
    assert!(!agent.contains_key("SupplementaryGroups"));
    assert_eq!(agent["ReadWritePaths"], [Paths::system().public_dir().display().to_string()]);
    assert_eq!(values("stratum-join-helper@.service", "PrivateNetwork"), ["yes"]);
    assert_eq!(values("stratum-join-helper@.service", "RestrictAddressFamilies"), ["AF_UNIX"]);
    for (unit, _) in SERVICES {
        assert_eq!(values(unit, "NoNewPrivileges"), ["yes"], "{unit}");
        assert_eq!(values(unit, "LimitCORE"), ["0"], "{unit} could leave secrets in a core file");
    }
}

#[test]
fn only_the_agent_and_root_reach_the_helper() {
    let socket = "stratum-join-helper.socket";
    assert_eq!(values(socket, "ListenStream"), [Paths::system().helper_socket().display().to_string()]);
    assert_eq!(values(socket, "SocketUser"), values("stratum-join.service", "User"));
    assert_eq!(
        (values(socket, "SocketMode"), values(socket, "Accept")),
        (vec!["0600".into()], vec!["yes".into()])
    );
}

#[test]
fn only_the_console_and_root_reach_the_keys_of_the_console() {
    let socket = "stratum-join-control.socket";
    assert_eq!(values(socket, "ListenStream"), [Paths::system().control_socket().display().to_string()]);
    assert_eq!(values(socket, "SocketGroup"), values("stratum-join-console@.service", "User"));
    let rest = ["SocketUser", "SocketMode", "Service"].map(|key| values(socket, key).concat());
    assert_eq!(rest, ["root", "0660", "stratum-join.service"]);
}

#[test]
fn every_path_and_user_that_a_unit_names_is_made_before_it_starts() {
    let made: Vec<String> =
        table("stratum-join.tmpfiles.conf").into_iter().map(|line| line[1].clone()).collect();
    let users: Vec<String> =
        table("stratum-join.sysusers.conf").into_iter().map(|line| line[1].clone()).collect();
    for unit in UNITS {
        for path in words(unit, "ReadWritePaths") {
            // "-" keeps the unit going without it; it has to be made all the same.
            let path = path.trim_start_matches('-').to_owned();
            assert!(
                made.contains(&path),
                "{unit}: {path} is made by nobody, and systemd would not start the unit"
            );
        }
        for user in [values(unit, "User"), values(unit, "Group")].concat() {
            assert!(users.contains(&user), "{unit}: {user}");
        }
    }
}

#[test]
fn the_banner_files_are_roots_in_a_sticky_directory() {
    let paths = Paths::system();
    let line = |path: PathBuf| {
        let path = path.display().to_string();
        table("stratum-join.tmpfiles.conf").into_iter().find(|line| line[1] == path).unwrap()
    };
    assert_eq!(line(paths.public_dir())[..5], ["d", "/run/stratum-join", "1775", "root", "stratum-join"]);
    for file in [paths.issue(), paths.motd()] {
        let line = line(file);
        assert_eq!((line[0].as_str(), line[2].as_str(), line[3].as_str()), ("f", "0644", "root"));
        // A member has no agent that could take a text away again.
        assert_eq!(line[6], "-");
    }
}

#[test]
fn the_exposure_of_each_service_is_as_low_as_was_set() {
    for (unit, limit) in SERVICES {
        let mut command = Command::new("systemd-analyze");
        command.args(["security", "--offline=true", &format!("--threshold={limit}")]).arg(dir().join(unit));
        let Ok(out) = command.output() else {
            println!("skipped: systemd-analyze is not here");
            return;
        };
        let said = String::from_utf8_lossy(&out.stdout);
        assert!(out.status.success(), "{unit}: {said}{}", String::from_utf8_lossy(&out.stderr));
    }
}

#[test]
fn systemd_finds_nothing_wrong_in_any_unit() {
    let root = tempfile::tempdir().unwrap();
    let units = root.path().join("units");
    std::fs::create_dir(&units).unwrap();
    let mut names = Vec::new();
    for unit in UNITS {
        // A program that is there: systemd looks for it.
        let text = text(unit).replace("/usr/bin/stratum-join ", "/bin/true ");
        std::fs::write(units.join(unit), text).unwrap();
        names.push(units.join(unit));
    }
    let mut command = Command::new("systemd-analyze");
    // Not the manual: it is not installed here. The units of this machine are found as well, for what ours refer to.
    let Ok(out) = command.args(["verify", "--man=no"]).args(&names).output() else {
        println!("skipped: systemd-analyze is not here");
        return;
    };
    let said = String::from_utf8_lossy(&out.stderr);
    let ours: Vec<&str> = said.lines().filter(|line| line.contains("stratum")).collect();
    assert!(out.status.success() && ours.is_empty(), "{said}");
}
