//! `stratum-join release fetch` where the machine around it wants something else of it: proxies in the environment, a name that moves.

use std::io::Write;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use lab_founder::MirrorConfig;

use super::release::{Maker, key};
use super::*;
use crate::support::bin;

/// A release on a mirror of this name, and where the command may put it.
struct Try {
    maker: Maker,
    mirror: EvilMirror,
    host: &'static str,
}

impl Try {
    fn new(host: &'static str, faults: &[Fault]) -> Self {
        let maker = Maker::new();
        let release = maker.release("0.7.0", 70, &[key(1)]);
        maker.os_keys(&[&key(1)]);
        let config =
            MirrorConfig { names: vec![host.to_owned()], faults: faults.to_vec(), ..mirror_of(&release) };
        let mirror = EvilMirror::start(config).unwrap();
        fs::write(maker.at("ca.pem"), mirror.ca_pem()).unwrap();
        Self { maker, mirror, host }
    }

    fn arguments(&self) -> Vec<String> {
        let url = format!("https://{}:{}", self.host, self.mirror.addr().port());
        let at = |name: &str| self.maker.at(name).to_str().unwrap().to_owned();
        let flags =
            [("--source", url), ("--keys", at("os-keys")), ("--to", at("to")), ("--ca", at("ca.pem"))];
        let flags = flags.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]);
        ["release", "fetch", "--output", "json"].map(str::to_owned).into_iter().chain(flags).collect()
    }
}

fn ended(child: Child) -> (Option<i32>, serde_json::Value) {
    let out = child.wait_with_output().unwrap();
    (out.status.code(), serde_json::from_slice(&out.stdout).unwrap_or_default())
}

#[test]
fn a_proxy_of_the_environment_is_not_asked() {
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    proxy.set_nonblocking(true).unwrap();
    let tried = Try::new("127.0.0.1", &[]);
    let mut command = Command::new(bin("stratum-join"));
    for name in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "HTTP_PROXY"] {
        command.env(name, format!("http://{}", proxy.local_addr().unwrap()));
    }
    command.args(tried.arguments()).stdout(Stdio::piped());
    let (code, report) = ended(command.spawn().unwrap());
    assert_eq!((code, &report["good"]), (Some(0), &serde_json::json!(true)), "{report}");
    assert_eq!(proxy.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

/// The name is that of the mirror for the first connection, and for the second one that of a service which trusts whoever can reach it.
#[test]
fn a_name_that_leads_elsewhere_at_the_second_connection_is_refused_there() {
    // The first answer breaks off, so that there is a second connection.
    let tried = Try::new("mirror.test", &[Fault::times(MirrorFault::Reset(3), 1)]);
    let hosts = tried.maker.at("hosts");
    let name = |address: &str| format!("{address} mirror.test\n");
    fs::write(&hosts, name("127.0.0.1")).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", "mount --bind \"$0\" /etc/hosts && exec \"$@\""]).arg(&hosts);
    if !command.arg("true").output().is_ok_and(|out| out.status.success()) {
        println!("skipped: no file can be put in the place of another here");
        return;
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", "mount --bind \"$0\" /etc/hosts && exec \"$@\""]).arg(&hosts);
    command.arg(bin("stratum-join")).args(tried.arguments()).stdout(Stdio::piped());
    let child = command.spawn().unwrap();
    soon("the first connection", || !tried.mirror.seen().is_empty());
    // The same file: what is mounted is the file, not its name.
    let mut file = fs::File::options().write(true).truncate(true).open(&hosts).unwrap();
    file.write_all(name("169.254.169.254").as_bytes()).unwrap();
    let (code, report) = ended(child);
    assert_eq!((code, report["code"].as_str()), (Some(2), Some("SOURCE_REFUSED")), "{report}");
    assert!(report["verdict"].as_str().unwrap().contains("mirror.test is a link-local address"), "{report}");
    assert_eq!(tried.mirror.connections(), 1);
}
