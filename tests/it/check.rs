//! `stratum-installer join` and `--check` as a technician uses them: verdicts, exit codes, and where the code may be seen.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use console::snapshot::State;
use lab_founder::{Evil, Impostor, Step};
use serde_json::{Value, json};

use crate::support::actions::{Said, mistyped};
use crate::support::told::{assert_nothing_given_away, heap, spellings};
use crate::support::{Machine, PATIENCE, World, bin, closed_port, wait};

/// The verdict of `--check` in words and as JSON, and that the two say the same.
fn verdict(machine: &Machine, endpoint: &str, code: &str) -> (i32, Value, Said) {
    let said = machine.check(endpoint, code);
    let (exit, json) = machine.check_json(endpoint, code);
    assert_eq!((said.exit, json["exit"].as_i64()), (exit, Some(i64::from(exit))), "{}{}", said.out, said.err);
    assert_eq!(json["good"], exit == 0);
    let words = if exit == 0 { &said.out } else { &said.err };
    assert!(words.contains(json["verdict"].as_str().unwrap()), "{words} / {json}");
    for fact in json["facts"].as_array().unwrap() {
        assert!(said.out.contains(fact.as_str().unwrap()), "{} / {json}", said.out);
    }
    for spelling in spellings(code) {
        for text in [&said.out, &said.err, &json.to_string()] {
            assert!(!text.contains(&spelling), "the code is printed back: {text}");
        }
    }
    (exit, json, said)
}

/// What the agent shows with the same address and code.
fn agent_says(endpoint: &str, code: &str) -> String {
    let mut machine = Machine::new();
    machine.ask_to_join(endpoint, code);
    machine.start();
    let shown = machine.wait_for("a verdict", |s| s.state == State::Pending || s.fault.is_some());
    shown.fault.map_or("good".to_owned(), |fault| fault.code.to_string())
}

#[test]
fn a_good_founder_is_good_and_nothing_is_left_behind_on_either_side() {
    let world = World::new();
    let code = world.code();
    let (exit, json, said) = verdict(&world.machine, &world.endpoint(), &code);
    assert_eq!((exit, &json["code"]), (0, &Value::Null), "{}{}", said.out, said.err);
    let lines: Vec<&str> = said.out.lines().map(str::trim).collect();
    assert_eq!(
        [lines[0].split(';').next().unwrap(), lines[1], lines[3], lines[4], lines[5]],
        [
            &format!("[ok] {} answers", world.endpoint()),
            "[ok] the cluster proves that it knows the join code",
            "[ok] this machine runs 0.7.0, the cluster 0.7.0",
            "[ok] the cluster takes machines now",
            "good: a join with this code would be taken",
        ],
        "{lines:?}"
    );
    assert!(lines[2].starts_with("[ok] the join code is valid until 20"), "{lines:?}");
    assert!(said.err.is_empty(), "{}", said.err);

    assert!(world.joins().is_empty());
    assert!(!world.machine.path("var").exists(), "no request, no key, no journal");
    let told = heap(&world.founder.core().received());
    assert!(!crate::support::told::holds(&told, "inventory"));
    assert_eq!(agent_says(&world.endpoint(), &code), "good");
}

#[test]
fn every_verdict_has_its_exit_code_its_words_and_is_the_agents() {
    let world = World::new();
    let good = world.code();
    let here = world.endpoint();
    let (closed, _nobody) = closed_port(0);
    let plain = World::new();
    plain.founder.core().set_evil(vec![Evil::PlainHttp.always(Step::Any)]);
    let impostor = Impostor::start_now(lab_founder::Config::for_tests()).unwrap();

    let unproven = format!("The join code is wrong or long expired, or {here} is another cluster.");
    let other = format!("The join code is wrong or long expired, or {} is another cluster.", impostor.addr());
    let refused = format!("Nothing answers at {closed}: connection refused.");
    let http =
        format!("{} answers, but not as a Stratum join listener: it does not speak TLS", plain.endpoint());
    let cases: [(&str, String, i32, &str, &str, &str); 7] = [
        ("a wrong code", here.clone(), 4, "CODE_NOT_PROVEN", &unproven, "[XX] the cluster does not prove"),
        (
            "another cluster",
            impostor.addr().to_string(),
            4,
            "CODE_NOT_PROVEN",
            &other,
            "[XX] the cluster does not prove",
        ),
        ("a closed port", closed.to_string(), 3, "ADDRESS_UNREACHABLE", &refused, "[XX] nothing answers at"),
        ("plain HTTP", plain.endpoint(), 3, "TLS_FAILED", &http, "answers, but not as a join listener"),
        // A multicast address cannot be connected to, whatever the network of the machine is.
        (
            "no route",
            "224.0.0.1:9444".to_owned(),
            3,
            "ADDRESS_UNREACHABLE",
            "Nothing answers at 224.0.0.1:9444: ",
            "[XX] nothing answers at",
        ),
        (
            "no route, IPv6",
            "[ff02::1]:9444".to_owned(),
            3,
            "ADDRESS_UNREACHABLE",
            "Nothing answers at [ff02::1]:9444: ",
            "[XX] nothing answers at",
        ),
        (
            "an unknown name",
            "nowhere.invalid".to_owned(),
            3,
            "ADDRESS_UNREACHABLE",
            "nowhere.invalid does not resolve: ",
            "[XX] nothing answers at nowhere.invalid:9444",
        ),
    ];
    for (what, endpoint, exit, name, words, fact) in cases {
        let code = if what == "a wrong code" { mistyped(&good) } else { good.clone() };
        let (got, json, said) = verdict(&world.machine, &endpoint, &code);
        assert_eq!((got, json["code"].as_str()), (exit, Some(name)), "{what}: {json}");
        assert!(said.err.contains(words), "{what}: {}", said.err);
        assert!(said.out.contains(fact), "{what}: {}", said.out);
        assert!(!json["advice"].as_array().unwrap().is_empty(), "{what}: {json}");
        assert!(said.err.contains("help: "), "{what}: {}", said.err);
        assert_eq!(agent_says(&endpoint, &code), name, "{what}");
    }
    assert_nothing_given_away(&heap(&impostor.received()), &good);
}

#[test]
fn too_many_tries_say_when_the_next_one_is_good() {
    let limits = lab_founder::config::Limits {
        proofs_per_minute_per_address: 1,
        ..lab_founder::config::Limits::wide()
    };
    let world = World::with(lab_founder::Config { limits, ..lab_founder::Config::for_tests() });
    let code = world.code();
    assert_eq!(world.machine.check(&world.endpoint(), &code).exit, 0);
    let (exit, json, said) = verdict(&world.machine, &world.endpoint(), &code);
    assert_eq!((exit, json["code"].as_str()), (3, Some("RATE_LIMITED")), "{json}");
    assert!(said.out.contains("[--] the join code could not be tried"), "{}", said.out);
    assert!(said.err.contains("help: Try again in "), "{}", said.err);
}

#[test]
fn the_command_to_run_next_names_the_address_that_was_given() {
    let world = World::new();
    let made = world.new_code(3600);
    world.admin("DELETE", &format!("/v1/admin/cluster/join-codes/{}", made["id"].as_str().unwrap()), None);
    let said = world.machine.check(&world.endpoint(), made["code"].as_str().unwrap());
    let command = format!("help: stratum-installer join --endpoint {} --code <code>", world.endpoint());
    assert!(said.err.contains(&command), "{}", said.err);
    assert_eq!(
        said.err.to_lowercase().matches("the join code was revoked").count(),
        1,
        "said once: {}",
        said.err
    );
}

#[test]
fn a_mistyped_code_is_called_so() {
    let world = World::new();
    let said = world.machine.check(&world.endpoint(), &mistyped(&world.code()));
    assert!(
        said.err.contains("help: The code looks mistyped: its last character does not fit."),
        "{}",
        said.err
    );
}

#[test]
fn a_code_is_taken_as_people_write_it() {
    let world = World::new();
    let code = world.code();
    let plain = code.replace('-', "");
    let spaced = format!(" {} {} {}\r\n", &plain[..4], &plain[4..8], &plain[8..]);
    for typed in [code.to_ascii_lowercase(), plain, spaced, code.replace('0', "O").replace('1', "l")] {
        assert_eq!(world.machine.check(&world.endpoint(), &typed).exit, 0);
    }
}

#[test]
fn a_registered_machine_is_asked_about_its_registration_and_no_try_is_spent() {
    let world = World::joining();
    let pairing = world.machine.wait_for_state(State::Pending).pairing_code.unwrap();
    let before = crate::support::told::proofs(&world.founder);
    let said = Said::from(world.machine.installer(&["--check"], ""));
    assert_eq!(said.exit, 0, "{}{}", said.out, said.err);
    assert!(said.out.contains("good: the registration is waiting for approval"), "{}", said.out);
    assert!(said.out.contains(&format!("its pairing code is {pairing}")), "{}", said.out);
    assert_eq!(crate::support::told::proofs(&world.founder), before);
}

#[test]
fn nothing_saved_and_nothing_given_is_said_and_exits_2() {
    let machine = Machine::new();
    let cases: [(&[&str], &str, &str); 5] = [
        (
            &["--check"],
            "error: no join request is saved on this machine",
            "help: stratum-installer join --endpoint",
        ),
        (&[], "error: no address and no join code are given", "help: stratum-installer join --endpoint"),
        (&["--endpoint", "192.0.2.1"], "error: no join code is given", "help: Give it with --code-file"),
        (
            &["--endpoint", "192.0.2.1", "--code-file", "/nowhere/code"],
            "cannot be read from /nowhere/code: no such file",
            "help: Name a file",
        ),
        (
            &["--endpoint", "a_b", "--code-file", "-"],
            "error: The address cannot be right: the host is neither",
            "help: Give host, host:port",
        ),
    ];
    for (args, error, help) in cases {
        let said = Said::from(machine.installer(args, "4F7K-2Q9M-ABD"));
        assert_eq!(said.exit, 2, "{args:?}: {}{}", said.out, said.err);
        assert!(said.err.contains(error) && said.err.contains(help), "{args:?}: {}", said.err);
        assert!(!machine.path("var").exists(), "{args:?}");
    }
}

#[test]
fn what_cannot_be_right_exits_2_before_any_packet_and_is_not_repeated() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = connections.clone();
    std::thread::spawn(move || {
        for _ in listener.incoming() {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });

    let machine = Machine::new();
    for code in
        ["", "4F7K-2Q9M-AB", "4F7K-2Q9M-ABDD", "4F7K-2Q9M-ABU", "4F7K-2Q9M-AB\u{fc}", &"7".repeat(900)]
    {
        for check in [&["--check"][..], &[][..]] {
            let args =
                [&["--endpoint", &address, "--code-file", "-", "--output", "json"][..], check].concat();
            let said = Said::from(machine.installer(&args, code));
            assert_eq!(said.exit, 2, "{}{}", said.out, said.err);
            assert_eq!(said.json()["code"], "CODE_MALFORMED");
            let shown = code.len() < 4 || !(said.out.contains(code) || said.err.contains(code));
            assert!(shown, "a refused code may be most of a secret: {}{}", said.out, said.err);
        }
    }
    let code = "4F7K-2Q9M-ABD";
    let urls = [
        format!("http://{address}/{code}"),
        format!("stratum-join://{address}/{code}#x"),
        format!("stratum-join://user@{address}/{code}"),
        format!("stratum-join://{address}/{code}?pin=sha256.short"),
        format!("stratum-join://{address}/{code}?x-must-know=1"),
        format!("stratum-join://{address}/{code}/more"),
        format!("stratum-join:///{code}"),
        format!("stratum-join://{address}/{}", "4F7K-2Q9M"),
    ];
    for url in &urls {
        let said = Said::from(machine.installer(&["--check", "--url", "-", "--output", "json"], url));
        assert_eq!(said.exit, 2, "{}{}", said.out, said.err);
        let name = if url.ends_with("4F7K-2Q9M") { "CODE_MALFORMED" } else { "URL_MALFORMED" };
        assert_eq!(said.json()["code"], name, "{}", said.out);
        assert!(!said.out.contains("2Q9M") && !said.err.contains("2Q9M"), "{}{}", said.out, said.err);
    }
    assert_eq!(connections.load(Ordering::SeqCst), 0);
    assert!(!machine.path("var").exists());
}

#[test]
fn a_code_on_the_command_line_disappears_from_it_and_is_warned_about() {
    let world = World::new();
    let made = world.new_code(3600);
    let (code, url) = (made["code"].as_str().unwrap(), made["url"].as_str().unwrap());
    // Holds the command long enough to look at it.
    world.founder.core().set_evil(vec![Evil::AcceptThenSilence.always(Step::Any)]);
    let endpoint = world.endpoint();
    let spellings = [
        vec!["--endpoint", &endpoint, "--code", code],
        vec!["--code", code, "--endpoint", &endpoint],
        vec!["--url", url],
    ];
    for args in spellings {
        let mut child = Command::new(bin("stratum-installer"))
            .args(["join", "--root", &world.machine.path("").display().to_string(), "--check"])
            .args(&args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let proc = format!("/proc/{}", child.id());
        let read =
            |file: &str| String::from_utf8_lossy(&fs::read(format!("{proc}/{file}")).unwrap()).into_owned();
        let gone = wait::until(PATIENCE, || {
            let line = read("cmdline");
            (line.contains("stratum-installer") && !line.contains(code) && line.contains("\0-\0"))
                .then_some(line)
        });
        let line = gone.unwrap_or_else(|| panic!("still there: {}", read("cmdline")));
        assert!(line.contains("--check"), "{line}");
        assert!(!read("environ").contains(code));
        child.kill().unwrap();
        let err = child.wait_with_output().unwrap().stderr;
        let err = String::from_utf8_lossy(&err);
        let warned = err.contains("the code was on the command line, where other users can see it");
        assert_eq!(warned, args[0] != "--url", "{err}");
    }
}

#[test]
fn the_code_comes_from_a_file_or_standard_input_and_is_shown_by_its_selector_only() {
    let world = World::new();
    let code = world.code();
    let file = world.machine.path("code");
    fs::write(&file, format!("{}\n", code.to_ascii_lowercase())).unwrap();
    let args = ["--endpoint", &world.endpoint(), "--code-file", file.to_str().unwrap()];
    let said = Said::from(world.machine.installer(&args, ""));
    assert_eq!(said.exit, 0, "{}", said.err);
    assert_eq!(world.machine.request()["code"], json!(code));
    assert!(said.out.contains(&format!("with code {}**-****-***", &code[..2])), "{}", said.out);
    for spelling in spellings(&code) {
        assert!(!said.out.contains(&spelling) && !said.err.contains(&spelling), "{}{}", said.out, said.err);
    }
    let mode =
        fs::metadata(world.machine.path("var/lib/stratum/join/request.json")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(said.out.contains("the agent of that system takes it at its next start"), "{}", said.out);
}

#[test]
fn what_this_machine_does_not_allow_exits_8_and_names_it() {
    let machine = Machine::new();
    let args = ["--endpoint", "192.0.2.1", "--code-file", "-", "--output", "json"];
    fs::create_dir_all(machine.path("var/lib/stratum")).unwrap();
    fs::write(machine.path("var/lib/stratum/join"), "in the way").unwrap();
    let said = Said::from(machine.installer(&args, "4F7K-2Q9M-ABD"));
    assert_eq!((said.exit, said.json()["code"].as_str()), (8, Some("TAMPERED")), "{}", said.out);
    assert!(said.json()["verdict"].as_str().unwrap().contains("var/lib/stratum/join"), "{}", said.out);
    fs::remove_file(machine.path("var/lib/stratum/join")).unwrap();

    machine.ask_to_join("192.0.2.1", "4F7K-2Q9M-ABD");
    let request = machine.path("var/lib/stratum/join/request.json");
    fs::set_permissions(&request, fs::Permissions::from_mode(0o644)).unwrap();
    let said = Said::from(machine.installer(&["--check", "--output", "json"], ""));
    assert_eq!((said.exit, said.json()["code"].as_str()), (8, Some("TAMPERED")), "{}", said.out);

    fs::write(machine.path("var/lib/stratum/join/joined"), "").unwrap();
    let said = Said::from(machine.installer(&args, "4F7K-2Q9M-ABD"));
    assert_eq!(said.exit, 8);
    assert_eq!(said.json()["verdict"], "this machine has joined a cluster already; nothing is changed");
}

#[test]
fn another_user_is_told_to_run_it_as_root() {
    // Only root can become another user.
    if fs::read("/proc/self/status").is_ok_and(|s| !String::from_utf8_lossy(&s).contains("Uid:\t0\t0")) {
        println!("skipped: only root can run a program as another user");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = dir.path().join("stratum-installer");
    fs::copy(bin("stratum-installer"), &program).unwrap();
    let machine = Machine::new();
    machine.ask_to_join("192.0.2.1", "4F7K-2Q9M-ABD");
    fs::set_permissions(machine.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let run = |args: &[&str]| {
        let root = machine.path("").display().to_string();
        let mut command = Command::new(&program);
        command.args(["join", "--root", &root]).args(args).uid(65534).gid(65534).stdin(Stdio::null());
        Said::from(command.output().unwrap())
    };
    for args in [&["--check"][..], &["--endpoint", "192.0.2.1", "--code", "4F7K-2Q9M-ABD"][..]] {
        let said = run(args);
        assert_eq!(said.exit, 8, "{args:?}: {}{}", said.out, said.err);
        assert!(
            said.err.contains("permission denied") && said.err.contains("help: Run it as root."),
            "{}",
            said.err
        );
    }
}
