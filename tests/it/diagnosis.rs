//! The network diagnosis on real networks: one fault for each row, made in network namespaces, and what `stratum-join diagnose` and the agent
//! say first. The laboratory and its map: support/netlab.rs.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use console::snapshot::{CheckStatus, State};
use serde_json::{Value, json};

use crate::support::actions::{Said, mistyped};
use crate::support::netlab::{ENDPOINT, FOUNDER, JOINER, NetLab, ROUTER};
use crate::support::{Machine, World, bin};

/// Cases that run at once.
const AT_ONCE: usize = 8;

/// A laboratory with a founder, and a joiner that was asked to join.
struct Bench {
    lab: NetLab,
    machine: Machine,
}

/// What is broken, and what has to be said first. `row` empty: nothing is red, and `text` stands in an amber row.
struct Case {
    name: &'static str,
    fault: fn(&mut Bench),
    row: &'static str,
    text: &'static str,
}

const fn case(name: &'static str, row: &'static str, text: &'static str, fault: fn(&mut Bench)) -> Case {
    Case { name, fault, row, text }
}

/// The first fourteen are the issue's, one for each row; the others are what else a technician meets.
const CASES: &[Case] = &[
    case("no carrier", "link", "no cable on eth0", |b| drop(b.lab.router.run("ip link set r0 down"))),
    case("no address", "address", "eth0 has a link but no address", |b| {
        b.lab.joiner.run("ip addr flush dev eth0");
    }),
    case("duplicate address", "duplicate", "192.0.2.12 is also used by ", |b| b.lab.plug_in(JOINER)),
    case("gateway silent", "neighbour", "gateway 192.0.2.1 does not answer ARP", |b| {
        b.lab.router.run("ip link set br0 arp off");
    }),
    case("no route", "route", "no route to 198.51.100.240", |b| {
        drop(b.lab.joiner.run("ip route del default"))
    }),
    case("name fails", "name", "founder.example does not resolve: no answer from 192.0.2.1", |b| {
        b.lab.joiner.put(&format!("nameserver {ROUTER}\n"), "/etc/resolv.conf", &b.lab.path(""));
        b.ask_at("founder.example");
    }),
    case("port closed", "port", "port 9444 refused", |b| b.lab.stop_founder()),
    case("port filtered", "port", "port 9444: no answer in 5 s", |b| {
        b.lab.router.run("ip rule add ipproto tcp dport 9444 blackhole");
    }),
    case(
        "plain HTTP",
        "tls",
        "198.51.100.240:9444 does not speak the join protocol: it does not speak TLS",
        |b| {
            b.lab.run_founder("main", &json!([{"fault": "plainHttp", "at": "any"}]), &[]);
        },
    ),
    case("wrong CA", "pin", "another cluster answers at this address: its key is ", |b| {
        let url = b.lab.code("main")["url"].as_str().unwrap().to_owned();
        b.ask_by(&url);
        b.lab.run_founder("another", &json!([]), &[]);
    }),
    case("wrong code", "proof", "the cluster did not prove the join code", |b| {
        let code = b.lab.code("main")["code"].as_str().unwrap().to_owned();
        b.machine.ask_to_join(ENDPOINT, &mistyped(&code));
        b.start_agent();
        b.machine.wait_for_state(State::IdentityFailed);
        b.machine.kill();
    }),
    case(
        "clock at 1970",
        "",
        "this machine's clock is 56 years behind; the join does not depend on it",
        |b| {
            let url = b.lab.code("main")["url"].as_str().unwrap().to_owned();
            b.ask_by(&url);
            // A clock cannot be set for one namespace: as seen from this machine it is the same whose clock it is.
            b.lab.run_founder("main", &json!([]), &["--clock-offset-ms", "1795000000000"]);
        },
    ),
    case("MTU 1400 black hole", "path-mtu", "packets above 1400 bytes are lost: set MTU 1400 on eth0", |b| {
        // A virtual cable takes packets that are to be cut up later as they are.
        b.lab.joiner.run("ip link set eth0 gso_max_segs 1");
        b.lab.router.run("ip link set r0 mtu 1400");
    }),
    case("founder answers 503", "answer", "the founder answers 503: the cluster cannot answer now", |b| {
        let refuse = json!([{"fault": "refuseWith", "status": 503, "code": "UNAVAILABLE", "retryAfter": null, "at": "any"}]);
        b.lab.run_founder("main", &refuse, &[]);
    }),
    case("nothing", "", "", |_| {}),
    case("every card off", "link", "every network card is switched off: eth0", |b| {
        b.lab.joiner.run("ip link set eth0 down");
    }),
    case("no DHCP", "address", "eth0 has only 169.254.7.7, which it gave itself", |b| {
        b.lab.joiner.run("ip addr flush dev eth0");
        b.lab.joiner.run("ip addr add 169.254.7.7/16 dev eth0");
    }),
    case(
        "a route that forbids",
        "route",
        "a route of this machine forbids 198.51.100.240 (blackhole)",
        |b| {
            b.lab.joiner.run(&format!("ip route add blackhole {FOUNDER}"));
        },
    ),
    case("name server behind a silent gateway", "neighbour", "gateway 192.0.2.1 does not answer ARP", |b| {
        b.lab.joiner.put("nameserver 198.51.100.53\n", "/etc/resolv.conf", &b.lab.path(""));
        b.lab.router.run("ip link set br0 arp off");
        b.ask_at("founder.example");
    }),
    case("a router without a way", "port", "port 9444: a machine on the way says of 198.51.100.240", |b| {
        b.lab.router.run(&format!("ip route add unreachable {FOUNDER}"));
    }),
    case(
        "TLS 1.2",
        "tls",
        "198.51.100.240:9444 does not speak the join protocol: it speaks only TLS 1.2",
        |b| {
            b.lab.run_founder("main", &json!([{"fault": "tls12Only", "at": "any"}]), &[]);
        },
    ),
    case("HTML page", "founder", "something else answers there: an HTML page", |b| {
        b.lab.run_founder("main", &json!([{"fault": "htmlPage", "at": "any"}]), &[]);
    }),
    case("founder hangs", "founder", "the founder does not answer the request", |b| {
        b.lab.run_founder("main", &json!([{"fault": "neverAnswer", "at": "any"}]), &[]);
    }),
];

// === impl Bench ===

impl Bench {
    fn new() -> Result<Self, String> {
        let mut lab = NetLab::new()?;
        lab.run_founder("main", &json!([]), &[]);
        let mut machine = Machine::new();
        let through = lab.joiner.command("env");
        machine.through =
            [through.get_program()].into_iter().chain(through.get_args()).map(ToOwned::to_owned).collect();
        let code = lab.code("main");
        machine.ask_to_join(ENDPOINT, code["code"].as_str().unwrap());
        Ok(Self { lab, machine })
    }

    /// The joiner is asked to join at that name instead.
    fn ask_at(&self, host: &str) {
        let code = self.lab.code("main");
        self.machine.ask_to_join(host, code["code"].as_str().unwrap());
    }

    fn ask_by(&self, url: &str) {
        let said = self.machine.installer(&["--url", "-"], url);
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    }

    fn start_agent(&mut self) {
        self.machine.start();
    }

    fn diagnose(&self) -> Value {
        let root = self.machine.root.path().to_str().unwrap();
        let out = self.lab.diagnose(&["--root", root, "--output", "json"]);
        let json: Value = serde_json::from_slice(&out.stdout)
            .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&out.stderr)));
        assert_eq!(out.status.code().map(i64::from), json["exit"].as_i64());
        json
    }
}

fn diagnose(machine: &Machine, args: &[&str]) -> Output {
    let mut command = Command::new(bin("stratum-join"));
    command.arg("diagnose").arg("--root").arg(machine.root.path()).args(args).output().unwrap()
}

/// What is wrong with the answer; empty when it is as it should be.
fn judge(case: &Case, said: &Value) -> String {
    let rows: BTreeMap<&str, &Value> =
        said["rows"].as_array().unwrap().iter().map(|row| (row["name"].as_str().unwrap(), row)).collect();
    let mut wrong = String::new();
    if case.row.is_empty() {
        let amber = |row: &&&Value| row["status"] == "unknown" && row["text"] == case.text;
        if !said["cause"].is_null()
            || said["exit"] != 0
            || (!case.text.is_empty() && rows.values().find(amber).is_none())
        {
            wrong = format!("nothing should be red: {}", said["cause"]);
        }
    } else if said["cause"]["name"] != case.row
        || !said["cause"]["text"].as_str().unwrap_or_default().starts_with(case.text)
        || said["exit"] != 3
    {
        wrong = format!("{:?} {:?} was wanted, not {}", case.row, case.text, said["cause"]);
    }
    if said["timedOut"] != false {
        wrong.push_str(" it was not through in its time");
    }
    if !case.row.is_empty() && said["cause"]["lookAt"].as_array().is_none_or(Vec::is_empty) {
        wrong.push_str(" it does not say what to look at");
    }
    wrong
}

#[test]
fn each_fault_of_the_network_is_named_first_by_its_row_and_nothing_else_is() {
    if let Err(why) = NetLab::new() {
        println!("skipped: no network namespaces here: {why}");
        return;
    }
    let next = AtomicUsize::new(0);
    let results = Mutex::new(BTreeMap::new());
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::SeqCst);
            let Some(case) = CASES.get(at) else { return };
            let mut bench = Bench::new().unwrap();
            (case.fault)(&mut bench);
            let began = Instant::now();
            let said = bench.diagnose();
            let took = began.elapsed();
            results.lock().unwrap().insert(at, (case.name, said, took));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(work);
        }
    });
    let results = results.into_inner().unwrap();
    let mut wrong = Vec::new();
    for (at, (name, said, took)) in &results {
        let cause = said["cause"]["text"].as_str().unwrap_or("nothing is red");
        println!(
            "{name:<36} {:>5} ms  {:<10} {cause}",
            took.as_millis(),
            said["cause"]["name"].as_str().unwrap_or("-")
        );
        let judged = judge(&CASES[*at], said);
        if !judged.is_empty() {
            wrong.push(format!("{name}: {judged}"));
        }
    }
    assert_eq!(results.len(), CASES.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_agent_names_the_cause_once_and_goes_on_by_itself_when_the_cable_is_back() {
    let mut bench = match Bench::new() {
        Ok(bench) => bench,
        Err(why) => return println!("skipped: no network namespaces here: {why}"),
    };
    bench.lab.router.run("ip link set r0 down");
    bench.start_agent();
    let pid = bench.machine.pid();
    let shown = bench
        .machine
        .wait_for("a cause", |s| s.network.checks.first().is_some_and(|c| c.status == CheckStatus::Failed));
    assert_eq!(shown.headline.as_str(), format!("Nothing answers at {ENDPOINT}: no cable on eth0."));
    assert_eq!(shown.network.checks.len(), 10);
    assert!(shown.next[0].as_str().starts_with("1 link: the cable"), "{:?}", shown.next);
    assert!(shown.actions.check);
    bench.lab.router.run("ip link set r0 up");
    let shown = bench.machine.wait_for_state(State::Pending);
    assert_eq!(shown.agent.pid, pid, "it was not started anew");
    assert!(shown.network.checks.is_empty() && shown.fault.is_none(), "{:?}", shown.network);
    let log = bench.machine.log();
    assert_eq!(log.matches("network: no cable on eth0").count(), 1, "{log}");
}

#[test]
fn an_operator_who_asks_sees_the_whole_way() {
    let mut world = World::joining();
    world.machine.wait_for_state(State::Pending);
    let socket = world.machine.path("run/stratum-join/control.sock");
    let mut stream = UnixStream::connect(socket).unwrap();
    writeln!(stream, "{{\"v\":1,\"op\":\"check\"}}").unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    assert_eq!(answer, "{\"ok\":true}\n");
    let shown = world
        .machine
        .wait_for("what was found", |s| s.network.checks.iter().any(|c| c.status == CheckStatus::Ok));
    let status = |name: &str| shown.network.checks.iter().find(|c| c.name.as_str() == name).unwrap().status;
    for name in ["tcp", "mtu", "tls", "proof", "release"] {
        assert_eq!(status(name), CheckStatus::Ok, "{name}: {:?}", shown.network.checks);
    }
    assert_eq!(world.joins().len(), 1);
    assert!(world.machine.running());
}

#[test]
fn without_a_request_it_says_what_to_give_and_a_given_address_needs_none() {
    let world = World::new();
    let said = Said::from(diagnose(&world.machine, &[]));
    assert_eq!(said.exit, 2);
    assert!(said.err.contains("no join request is saved") && said.err.contains("--endpoint"), "{}", said.err);
    let said = Said::from(diagnose(&world.machine, &["--endpoint", &world.endpoint()]));
    assert_eq!((said.exit, said.err.as_str()), (0, ""), "{}", said.out);
    assert!(said.out.lines().all(|line| line.len() <= 80), "{}", said.out);
    let said = Said::from(diagnose(&world.machine, &["--endpoint", "a b"]));
    assert_eq!(said.exit, 2, "{}", said.err);
    assert!(!world.machine.path("var").exists(), "nothing is left behind");
}
