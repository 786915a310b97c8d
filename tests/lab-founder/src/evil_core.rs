//! Faults that change an answer and need no socket. Touches the answer, and for `ForgetRecord` the store.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::evil::{Evil, Layer, Step};
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

/// Changes a finished answer. A held poll is changed when it is answered, except by what makes it answered at once.
pub(crate) fn after(
    founder: &Founder,
    step: Option<Step>,
    peer: &Peer,
    request: &Request,
    response: &mut Response,
) {
    let Ok(mut body) = serde_json::from_slice::<Body>(&response.body) else { return };
    let held = response.hold.is_some();
    let applies = |evil: &Evil| match evil {
        Evil::AnswerAtOnceFlood => held,
        Evil::UnknownState | Evil::BackwardState => body.contains_key("state"),
        Evil::DeliveryBeforeApproval => body.contains_key("state") && !body.has("delivery"),
        _ if held => false,
        Evil::BadNodeYaml => body.has("delivery"),
        Evil::WrongPairingCode => body.has("pairingCode"),
        Evil::OtherJoinIdOnRetry | Evil::OtherNonceOnRetry => body.has("founderNonce"),
        Evil::ReflectMessage
        | Evil::OffCurveMessage
        | Evil::LowOrderMessage
        | Evil::SkipConfirm
        | Evil::ConfirmOfOtherSession => body.has("proofId"),
        _ => true,
    };
    let Some(evil) = founder.evil.take_if(step, Layer::After, applies) else { return };
    response.hold = None;
    change(founder, &evil, peer, request, &mut body);
    response.body = serde_json::to_vec(&body).unwrap_or_default();
}

/// The top level of an answer. What is below is kept byte for byte, so that a delivery keeps its digest.
type Body = BTreeMap<String, Box<RawValue>>;

trait Fields {
    fn has(&self, key: &str) -> bool;
    fn text(&self, key: &str) -> Option<String>;
    fn set(&mut self, key: &str, value: &Value);
}

// === impl Fields ===

impl Fields for Body {
    fn has(&self, key: &str) -> bool {
        self.get(key).is_some_and(|v| v.get() != "null")
    }

    fn text(&self, key: &str) -> Option<String> {
        serde_json::from_str(self.get(key)?.get()).ok()
    }

    fn set(&mut self, key: &str, value: &Value) {
        // The text of a Value is JSON.
        if let Ok(raw) = RawValue::from_string(value.to_string()) {
            self.insert(key.to_owned(), raw);
        }
    }
}

fn change(founder: &Founder, evil: &Evil, peer: &Peer, request: &Request, body: &mut Body) {
    match evil {
        Evil::ReflectMessage => {
            let asked: Value = serde_json::from_slice(&request.body).unwrap_or_default();
            body.set("msg", &asked["msg"]);
        }
        Evil::OffCurveMessage => body.set("msg", &point(2)),
        Evil::LowOrderMessage => body.set("msg", &point(1)),
        Evil::SkipConfirm => body.set("confirm", &base64(&[0; 32])),
        Evil::ConfirmOfOtherSession => {
            let own = body.text("confirm");
            if let Some(other) = std::mem::replace(&mut *lock(&founder.last_confirm), own) {
                body.set("confirm", &json!(other));
            }
        }
        Evil::OtherJoinIdOnRetry if again(founder, peer) => body.set("joinId", &json!("nj-0ther1d0")),
        Evil::OtherNonceOnRetry if again(founder, peer) => body.set("founderNonce", &base64(&[0x42; 32])),
        Evil::WrongPairingCode => body.set("pairingCode", &json!("AAA-AAA")),
        Evil::UnknownState => body.set("state", &json!("quantum-superposition")),
        Evil::BackwardState => body.set("state", &json!("registering")),
        Evil::DeliveryBeforeApproval => body.set(
            "delivery",
            &json!({
                "nodeYaml": "node:\n  name: decoy\n",
                "bundle": { "clusterId": "cl-decoy", "nodes": [{ "nodeId": "n-decoy" }], "nodeCert": "decoy" },
            }),
        ),
        Evil::BadNodeYaml => {
            let delivery = body.get("delivery").and_then(|d| serde_json::from_str::<Body>(d.get()).ok());
            if let Some(mut delivery) = delivery {
                delivery.set("nodeYaml", &json!("node: [unclosed\n\tname: \"x\n"));
                if let Ok(raw) = serde_json::value::to_raw_value(&delivery) {
                    body.insert("delivery".to_owned(), raw);
                }
            }
        }
        Evil::HostileText => hostile(body),
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
fn hostile(body: &mut Body) {
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
    let nasty = json!(
        "\u{1b}[2J\u{1b}]0;pwned\u{7}\u{9b}31m\r\nPairing code: AAA-AAA\n\u{202e}gnorw\u{200b}\u{0}\u{85}end"
    );
    for key in TEXTS.into_iter().filter(|key| body.contains_key(*key)).collect::<Vec<_>>() {
        body.set(key, &nasty);
    }
    if body.contains_key("state") {
        body.set("reason", &nasty);
        body.set("waitReason", &nasty);
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
