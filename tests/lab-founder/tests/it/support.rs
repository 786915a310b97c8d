//! A tiny joiner that calls the core directly, and a founder with a clock of its own.

use std::net::IpAddr;

use lab_founder::{Config, Founder, Peer, Place, Request, Response, Seed};
use serde_json::{Value, json};
use stratum_join::protocol::code::JoinCode;
use stratum_join::protocol::encoding::B64;
use stratum_join::protocol::pairing::{commitment, delivery_digest};
use stratum_join::protocol::proof::{JoinerConfirmed, JoinerProof, ProofError, Stretched};
use stratum_join::protocol::wire::{Intent, ProofAnswer};

/// Where every story begins: 2026-11-29T10:00:00Z.
pub(crate) const T0: i64 = 1_795_946_400_000;
pub(crate) const SECOND: i64 = 1000;
pub(crate) const MINUTE: i64 = 60 * SECOND;
pub(crate) const HOUR: i64 = 60 * MINUTE;
pub(crate) const DAY: i64 = 24 * HOUR;

/// A founder in memory and the time.
pub(crate) struct World {
    pub(crate) founder: Founder,
    pub(crate) now: i64,
}

/// A code with its stretched form, which takes long to make.
#[derive(Clone)]
pub(crate) struct TestCode {
    pub(crate) id: String,
    pub(crate) code: JoinCode,
    pub(crate) w: Stretched,
}

/// A joiner.
#[derive(Clone)]
pub(crate) struct Joiner {
    pub(crate) fp: [u8; 32],
    pub(crate) addr: IpAddr,
    pub(crate) nonce: B64<32>,
    pub(crate) hostname: String,
    pub(crate) release: String,
    pub(crate) self_upgrade: bool,
    pub(crate) inventory: Value,
}

pub(crate) fn config() -> Config {
    Config::for_tests()
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(config())
    }

    pub(crate) fn with(config: Config) -> Self {
        Self { founder: Founder::open(&Place::Memory, config, Seed::Fixed(1)).unwrap(), now: T0 }
    }

    pub(crate) fn code(&self) -> TestCode {
        self.code_for(86_400)
    }

    pub(crate) fn code_for(&self, ttl_secs: u64) -> TestCode {
        let made = self.founder.create_code(self.now, ttl_secs, "").unwrap();
        TestCode { id: made.id, w: Stretched::of(&made.code), code: made.code }
    }

    pub(crate) fn pass(&mut self, ms: i64) {
        self.now += ms;
        self.founder.advance(self.now);
    }

    pub(crate) fn admin(&self, method: &str, path: &str, body: &Value) -> Response {
        let mut request = Request::send(method, &format!("/v1/admin/cluster{path}"), body);
        request.bearer = Some(self.founder.token().to_owned());
        self.founder.dispatch_admin(self.now, &request)
    }

    pub(crate) fn admin_get(&self, path: &str) -> Value {
        let mut request = Request::get(&format!("/v1/admin/cluster{path}"));
        request.bearer = Some(self.founder.token().to_owned());
        self.founder.dispatch_admin(self.now, &request).value()
    }

    pub(crate) fn record(&self, id: &str) -> Value {
        self.admin_get(&format!("/joins/{id}"))
    }

    pub(crate) fn approve(&self, id: &str) -> Response {
        let pairing = self.record(id)["pairingCode"].as_str().unwrap().to_owned();
        self.admin("POST", &format!("/joins/{id}/approve?pairing={pairing}"), &json!({}))
    }

    pub(crate) fn code_row(&self, id: &str) -> Value {
        let codes = self.admin_get("/join-codes");
        codes["codes"].as_array().unwrap().iter().find(|c| c["id"] == id).cloned().unwrap()
    }
}

impl Joiner {
    /// Joiner number `n`: another key, address and host name each.
    pub(crate) fn new(n: u8) -> Self {
        let addr = IpAddr::from([192, 0, 2, 100_u8.wrapping_add(n)]);
        Self {
            fp: [n; 32],
            addr,
            nonce: B64([n ^ 0x5a; 32]),
            hostname: format!("node-{n}.example.com"),
            release: "0.7.0".to_owned(),
            self_upgrade: true,
            inventory: json!({
                "disks": [
                    { "name": "sda", "keys": ["wwn-system"], "mounts": ["/"], "holds": ["ext4"], "notAssignable": [] },
                    { "name": "sdb", "keys": ["wwn-blank"], "mounts": [], "holds": [], "notAssignable": [] },
                    { "name": "sdc", "keys": ["wwn-data"], "mounts": [], "holds": ["ext4"], "notAssignable": [] },
                ],
                "nics": [
                    { "name": "eno1", "link": "up", "ipv4": [format!("{addr}/24")] },
                    { "name": "eno2", "link": "up", "ipv4": [] },
                    { "name": "eno3", "link": "up", "ipv4": [] },
                ],
                "somethingNew": { "kept": true },
            }),
        }
    }

    pub(crate) fn peer(&self) -> Peer {
        Peer { client_fp: self.fp, addr: self.addr }
    }

    pub(crate) fn call(&self, world: &World, request: &Request) -> Response {
        world.founder.dispatch(world.now, self.peer(), request)
    }

    /// Call 1. What the founder says, and what the joiner makes of it.
    pub(crate) fn begin(&self, world: &World, code: &TestCode, intent: Intent) -> Begun {
        let selector = code.code.selector();
        let proof = JoinerProof::start(&code.w, selector, &world.founder.ca_pin(), &self.fp, intent).unwrap();
        let response = self.call(world, &Request::send("POST", "/v1/join/proofs", proof.request()));
        if response.status != 200 {
            return Begun { response, confirmed: None };
        }
        let answer: ProofAnswer = serde_json::from_slice(&response.body).unwrap();
        Begun { response, confirmed: Some(proof.finish(&answer)) }
    }

    /// Call 2.
    pub(crate) fn confirm(&self, world: &World, confirmed: &JoinerConfirmed, intent: Intent) -> Response {
        let commit = match intent {
            Intent::Register => Some(commitment(&self.nonce)),
            Intent::Check => None,
        };
        let body = json!({ "confirm": confirmed.confirm(commit.as_ref()), "commit": commit });
        let path = format!("/v1/join/proofs/{}/confirm", confirmed.proof_id().encode());
        self.call(world, &Request::send("POST", &path, &body))
    }

    /// Calls 1 and 2 with a code that both know.
    pub(crate) fn prove(&self, world: &World, code: &TestCode) -> (B64<16>, Response) {
        let confirmed = self.begin(world, code, Intent::Register).proven();
        let response = self.confirm(world, &confirmed, Intent::Register);
        (confirmed.proof_id(), response)
    }

    pub(crate) fn body(&self) -> Value {
        json!({
            "release": self.release, "selfUpgrade": self.self_upgrade, "hostname": self.hostname, "serial": "SN0002",
            "agent": "0.1.0", "bootId": "1b4e28ba-2fa1-41d2-883f-0016d3cca427", "inventory": self.inventory,
        })
    }

    pub(crate) fn post(&self, world: &World, proof_id: &B64<16>) -> Response {
        let mut body = self.body();
        body["proofId"] = json!(proof_id);
        body["pairingNonce"] = json!(self.nonce);
        self.call(world, &Request::send("POST", "/v1/join/registrations", &body))
    }

    pub(crate) fn put(&self, world: &World, id: &str) -> Response {
        self.call(world, &Request::send("PUT", &format!("/v1/join/registrations/{id}"), &self.body()))
    }

    /// The whole way to a registration; its id.
    pub(crate) fn register(&self, world: &World, code: &TestCode) -> String {
        let (proof_id, confirm) = self.prove(world, code);
        assert_eq!(confirm.status, 200, "{}", confirm.value());
        let response = self.post(world, &proof_id);
        assert_eq!(response.status, 201, "{}", response.value());
        response.value()["joinId"].as_str().unwrap().to_owned()
    }

    pub(crate) fn poll(&self, world: &World, id: &str) -> Value {
        self.call(world, &Request::get(&format!("/v1/join/registrations/{id}"))).value()
    }

    pub(crate) fn send(&self, world: &World, id: &str, what: &str, body: &Value) -> Response {
        self.call(world, &Request::send("POST", &format!("/v1/join/registrations/{id}/{what}"), body))
    }

    pub(crate) fn progress(
        &self,
        world: &World,
        id: &str,
        seq: u64,
        step: &str,
        n: (u32, u32),
        status: &str,
    ) -> Response {
        let error = (status == "failed").then_some("it broke");
        let body = json!({
            "seq": seq, "bootId": "1b4e28ba-2fa1-41d2-883f-0016d3cca427", "step": step, "title": format!("Doing {step}"),
            "index": n.0, "total": n.1, "status": status, "error": error,
        });
        self.send(world, id, "progress", &body)
    }

    /// Fetches, acknowledges, installs and reports the last step done.
    pub(crate) fn install(&self, world: &World, id: &str, seq: u64) {
        let answer = self.call(world, &Request::get(&format!("/v1/join/registrations/{id}")));
        assert_eq!(answer.value()["state"], "delivering", "{}", answer.value());
        let (attempt, digest) = digest(&answer.body);
        let ack = self.send(world, id, "ack", &json!({ "attempt": attempt, "sha256": digest }));
        assert_eq!(ack.status, 200, "{}", ack.value());
        assert_eq!(
            self.progress(world, id, seq, "storage", (1, 2), "running").value()["state"],
            "installing"
        );
        self.progress(world, id, seq + 1, "storage", (1, 2), "done");
        self.progress(world, id, seq + 2, "join/patroni", (2, 2), "done");
        assert_eq!(self.progress(world, id, seq + 3, "join", (2, 2), "done").status, 200);
    }
}

/// What call 1 gave.
pub(crate) struct Begun {
    pub(crate) response: Response,
    pub(crate) confirmed: Option<Result<JoinerConfirmed, ProofError>>,
}

impl Begun {
    pub(crate) fn proven(self) -> JoinerConfirmed {
        self.confirmed.expect("an answer").expect("the founder knows the code")
    }
}

/// Attempt and digest of the delivery in a poll's body, by the byte rule.
pub(crate) fn digest(body: &[u8]) -> (u64, String) {
    let registration: stratum_join::protocol::wire::Registration = serde_json::from_slice(body).unwrap();
    let delivery = registration.delivery.unwrap();
    let digest =
        delivery_digest(delivery.node_yaml.unwrap().as_bytes(), delivery.bundle.unwrap().get().as_bytes());
    (registration.attempt.unwrap(), digest)
}

/// A code of the same selector that is another one: what a guesser has.
pub(crate) fn guess(code: &TestCode) -> TestCode {
    let mut written = code.code.written().to_string().replace('-', "").into_bytes();
    written[9] = if written[9] == b'7' { b'8' } else { b'7' };
    let code = JoinCode::parse(std::str::from_utf8(&written).unwrap()).unwrap();
    // A wrong password is a wrong password: no need to stretch it for real.
    TestCode { id: String::new(), code, w: Stretched::from_bytes([9; 32]) }
}
