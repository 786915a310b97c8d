//! A joiner without a machine: registers at the founder's core directly. For filling its slots.

use std::net::IpAddr;

use lab_founder::{LabFounder, Peer, Request, Response};
use serde_json::json;
use stratum_join::protocol::code::JoinCode;
use stratum_join::protocol::encoding::B64;
use stratum_join::protocol::pairing::commitment;
use stratum_join::protocol::proof::{JoinerProof, Stretched};
use stratum_join::protocol::wire::{Intent, ProofAnswer};

use super::RELEASE;

/// Registers joiner number `n` with a code and its stretched form. Gives the id.
pub fn register(founder: &LabFounder, code: &JoinCode, w: &Stretched, n: u8) -> String {
    let peer = Peer { client_fp: [n; 32], addr: IpAddr::from([192, 0, 2, n]) };
    let call = |path: &str, body: &serde_json::Value| -> Response {
        let response = founder.core().dispatch(founder.now_ms(), peer, &Request::send("POST", path, body));
        assert!((200..300).contains(&response.status), "{path}: {}", response.value());
        response
    };
    let ca = founder.ca_pin();
    let proof = JoinerProof::start(w, code.selector(), &ca, &peer.client_fp, Intent::Register).unwrap();
    let opened = call("/v1/join/proofs", &serde_json::to_value(proof.request()).unwrap());
    let answer: ProofAnswer = serde_json::from_slice(&opened.body).unwrap();
    let confirmed = proof.finish(&answer).unwrap();
    let nonce = B64([n; 32]);
    let commit = commitment(&nonce);
    let path = format!("/v1/join/proofs/{}/confirm", confirmed.proof_id().encode());
    call(&path, &json!({ "confirm": confirmed.confirm(Some(&commit)), "commit": commit }));
    let body = json!({
        "proofId": confirmed.proof_id(), "pairingNonce": nonce, "release": RELEASE, "selfUpgrade": false,
        "hostname": format!("other-{n}.example.com"), "serial": "", "agent": "0.1.0",
        "bootId": "1b4e28ba-2fa1-41d2-883f-0016d3cca427",
        "inventory": { "disks": [], "nics": [], "osDiskLayout": "compute-tail" },
    });
    call("/v1/join/registrations", &body).value()["joinId"].as_str().unwrap().to_owned()
}
