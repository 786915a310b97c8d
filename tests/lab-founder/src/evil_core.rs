//! Faults that change an answer and need no socket. Touches the answer, and for `ForgetRecord` the store.

use serde_json::{Value, json};

use crate::evil::{Evil, Step};
use crate::founder::{Founder, lock};
use crate::http::{Peer, Refusal, Request, Response};

/// Answers instead of the founder, or prepares its answer.
pub(crate) fn before(founder: &Founder, evil: &Evil, peer: &Peer, request: &Request) -> Option<Response> {
    match evil {
        Evil::RefuseWith { status, code, retry_after } => Some(refusal(founder, *status, code, *retry_after)),
        Evil::RefuseThenAccept { .. } => Some(refusal(founder, 503, "UNAVAILABLE", None)),
        Evil::ForgetRecord => {
            let _ = founder.store.tx(|tx| match tx.live_join(&peer.client_fp)? {
                Some(join) => tx.delete_join(&join.id),
                None => Ok(()),
            });
            None
        }
        Evil::ProtocolVersionOnly { version } if request.path == "/v1/join" => {
            let protocols = [format!("stratum-join/{version}")];
            Some(Response::json(200, &json!({ "protocols": protocols, "suites": ["spake2-ed25519"] })))
        }
        _ => None,
    }
}

/// Changes a finished answer.
pub(crate) fn after(founder: &Founder, evil: &Evil, peer: &Peer, request: &Request, response: &mut Response) {
    let step = Step::of(&request.method, &request.path);
    let mut body = response.value();
    match (evil, step) {
        (Evil::AnswerAtOnceFlood, _) => {
            response.hold = None;
            return;
        }
        (Evil::ConfirmOfOtherSession, Some(Step::Proof)) => {
            let own = body["confirm"].as_str().map(str::to_owned);
            let mut last = lock(&founder.last_confirm);
            if let Some(other) = std::mem::replace(&mut *last, own) {
                body["confirm"] = json!(other);
            }
        }
        (Evil::BadNodeYaml, _) => {
            if let Some(yaml) = body.pointer_mut("/delivery/nodeYaml") {
                *yaml = json!("node: [unclosed\n\tname: \"x\n");
            }
        }
        (Evil::HostileText, _) => hostile(&mut body),
        (evil, Some(step)) => change(founder, evil, step, peer, request, &mut body),
        _ => return,
    }
    response.body = serde_json::to_vec(&body).unwrap_or_default();
}

fn change(founder: &Founder, evil: &Evil, step: Step, peer: &Peer, request: &Request, body: &mut Value) {
    let has = |body: &Value, key: &str| body.get(key).is_some_and(|v| !v.is_null());
    match (evil, step) {
        (Evil::ReflectMessage, Step::Proof) if has(body, "msg") => {
            let asked: Value = serde_json::from_slice(&request.body).unwrap_or_default();
            body["msg"] = asked["msg"].clone();
        }
        (Evil::OffCurveMessage, Step::Proof) if has(body, "msg") => body["msg"] = point(2),
        (Evil::LowOrderMessage, Step::Proof) if has(body, "msg") => body["msg"] = point(1),
        (Evil::SkipConfirm, Step::Proof) if has(body, "confirm") => body["confirm"] = base64(&[0; 32]),
        (Evil::OtherJoinIdOnRetry, Step::Confirm) if has(body, "joinId") && again(founder, peer) => {
            body["joinId"] = json!("nj-0ther1d0");
        }
        (Evil::OtherNonceOnRetry, Step::Confirm) if has(body, "founderNonce") && again(founder, peer) => {
            body["founderNonce"] = base64(&[0x42; 32]);
        }
        (Evil::WrongPairingCode, _) if has(body, "pairingCode") => body["pairingCode"] = json!("AAA-AAA"),
        (Evil::UnknownState, _) if has(body, "state") => body["state"] = json!("quantum-superposition"),
        (Evil::BackwardState, _) if has(body, "state") => body["state"] = json!("registering"),
        (Evil::DeliveryBeforeApproval, _) if has(body, "state") => {
            body["delivery"] = json!({
                "nodeYaml": "node:\n  name: decoy\n",
                "bundle": { "clusterId": "cl-decoy", "nodes": [{ "nodeId": "n-decoy" }], "nodeCert": "decoy" },
            });
        }
        _ => {}
    }
}

/// True from a key's second confirmation on.
fn again(founder: &Founder, peer: &Peer) -> bool {
    let mut keys = lock(&founder.confirmed_keys);
    let n = keys.entry(peer.client_fp).or_insert(0);
    *n += 1;
    *n > 1
}

fn refusal(founder: &Founder, status: u16, code: &str, retry_after: Option<u64>) -> Response {
    let mut refusal =
        Refusal::new(status, "", "a scripted refusal").detail("the lab founder was told to say this");
    if let Some(secs) = retry_after {
        refusal = refusal.retry_after(secs);
    }
    let mut response = founder.problem(refusal);
    let mut body = response.value();
    body["code"] = json!(code);
    response.body = serde_json::to_vec(&body).unwrap_or_default();
    response
}

/// Side B's byte and a little-endian y: 1 is the identity, 2 is off the curve.
fn point(y: u8) -> Value {
    let mut message = [0; 33];
    message[0] = b'B';
    message[1] = y;
    base64(&message)
}

fn base64(bytes: &[u8]) -> Value {
    json!(data_encoding::BASE64URL_NOPAD.encode(bytes))
}

/// Puts into every text that is only shown what would move a cursor, hide a line or forge one. The pairing code, the ids and the
/// delivery stay, so that the join goes on.
fn hostile(body: &mut Value) {
    const TEXTS: [&str; 12] = [
        "reason",
        "waitReason",
        "failedStep",
        "failedStepTitle",
        "failedError",
        "title",
        "detail",
        "requestId",
        "iso",
        "serverTime",
        "codeExpiresAt",
        "expiresAt",
    ];
    let nasty =
        "\u{1b}[2J\u{1b}]0;pwned\u{7}\u{9b}31m\r\nPairing code: AAA-AAA\n\u{202e}gnorw\u{200b}\u{0}\u{85}end";
    let Some(map) = body.as_object_mut() else { return };
    for (key, value) in map.iter_mut() {
        if TEXTS.contains(&key.as_str()) {
            *value = json!(nasty);
        }
    }
    if map.contains_key("state") {
        map.insert("reason".to_owned(), json!(nasty));
        map.insert("waitReason".to_owned(), json!(nasty));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stratum_join::protocol::encoding::B64;
    use stratum_join::protocol::pake::{MessageError, check};

    #[test]
    fn the_bad_points_are_what_their_names_say() {
        let message = |y| B64::<33>::parse(point(y).as_str().unwrap()).unwrap();
        // y = 1 is the identity; y = 2 has no x on this curve.
        assert_eq!(check(&message(1).0, b'B'), Err(MessageError::Group));
        assert_eq!(check(&message(2).0, b'B'), Err(MessageError::Group));
        assert!(check(&message(3).0, b'B').is_err());
    }
}
