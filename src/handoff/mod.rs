//! The hand-off: the delivery as received, its checks, what must not reach a log, and firstboot's progress.
//!
//! Touches the progress socket and nothing else; placing files and starting firstboot is `privileged`'s. Must never change a byte of the
//! delivery (the byte rule of docs/protocol.md section 3.7) and never print one.

pub mod check;
pub mod progress;
pub mod redact;

use std::fmt;
use std::sync::Arc;

use zeroize::Zeroizing;

pub use check::check;
pub use progress::ProgressSocket;
pub use redact::Redactor;

use crate::join::fault::{Code, Fault};
use crate::protocol::pairing::delivery_digest;
use crate::protocol::wire::{DeliveryWire, MAX_BUNDLE, MAX_NODE_YAML};

/// A delivery: both parts byte for byte as they stood in the answer. Secret: `Debug` prints no byte, memory is wiped. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct Delivery {
    parts: Arc<Parts>,
}

#[derive(PartialEq, Eq)]
struct Parts {
    node_yaml: Zeroizing<Vec<u8>>,
    bundle: Zeroizing<Vec<u8>>,
    sha256: String,
}

// === impl Delivery ===

impl Delivery {
    /// Takes both parts out of an answer. `RESPONSE_INVALID` when one is missing or over its size: the founder is asked again.
    pub fn from_wire(wire: DeliveryWire) -> Result<Self, Fault> {
        let missing = |part| Fault::new(Code::ResponseInvalid, format!("the delivery holds no {part}"));
        let node_yaml = wire.node_yaml.ok_or_else(|| missing("node.yaml"))?;
        let bundle = wire.bundle.ok_or_else(|| missing("join bundle"))?;
        Self::new(node_yaml.into_bytes(), Box::<str>::from(bundle).into_string().into_bytes())
    }

    /// From the bytes of both parts, within the sizes of docs/protocol.md section 3.7.
    pub fn new(node_yaml: Vec<u8>, bundle: Vec<u8>) -> Result<Self, Fault> {
        let node_yaml = Zeroizing::new(node_yaml);
        let bundle = Zeroizing::new(bundle);
        let size = |part: &str, len: usize, min: usize, max: usize| {
            let fault = || {
                Fault::new(
                    Code::ResponseInvalid,
                    format!("the {part} of the delivery has {len} bytes, not {min} to {max}"),
                )
            };
            if (min..=max).contains(&len) { Ok(()) } else { Err(fault()) }
        };
        size("node.yaml", node_yaml.len(), 1, MAX_NODE_YAML)?;
        size("join bundle", bundle.len(), 2, MAX_BUNDLE)?;
        let sha256 = delivery_digest(&node_yaml, &bundle);
        Ok(Self { parts: Arc::new(Parts { node_yaml, bundle, sha256 }) })
    }

    /// The exact bytes of node.yaml. Secret.
    pub fn node_yaml(&self) -> &[u8] {
        &self.parts.node_yaml
    }

    /// The exact bytes of the bundle. Secret.
    pub fn bundle(&self) -> &[u8] {
        &self.parts.bundle
    }

    /// The delivery digest, 64 hex digits. Not secret.
    pub fn sha256(&self) -> &str {
        &self.parts.sha256
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Delivery").field(&self.sha256()).finish()
    }
}

#[cfg(test)]
pub(crate) mod fixture {
    //! A good delivery as a founder makes it, with canaries as secrets.

    use rcgen::{CertificateParams, KeyPair};
    use serde_json::{Value, json};

    use super::Delivery;

    pub(crate) const NODE_YAML: &str = "mode: join\nhostname: node-2.example.com\nmgmt:\n  address: 192.0.2.12/24\nrootPassword: yaml-canary-77\n";

    /// A bundle with a fresh key and certificate for node `n-msst0002`.
    pub(crate) fn bundle() -> Value {
        let key = KeyPair::generate().unwrap();
        let cert = CertificateParams::new(vec!["n-msst0002".to_owned()]).unwrap().self_signed(&key).unwrap();
        json!({
            "clusterId": "cl-3vin6yzz",
            "role": "control-plane",
            "nodes": [
                {"nodeId": "n-msst0001", "role": "control-plane", "mgmtIp": "192.0.2.11"},
                {"nodeId": "n-msst0002", "role": "control-plane", "mgmtIp": "192.0.2.12"},
            ],
            "nodeCert": cert.pem(),
            "nodeKey": key.serialize_pem(),
            "postgresPassword": "canary-postgres-1",
            "openBaoToken": "s.canary-openbao-2",
            "adminPassword": "a:b@c/d",
            "anUrl": "https://192.0.2.11/members/n-msst0002/x",
            "aFieldOfTomorrow": {"deep": ["canary-tomorrow-3"]},
        })
    }

    pub(crate) fn delivery_of(bundle: &Value) -> Delivery {
        Delivery::new(NODE_YAML.into(), bundle.to_string().into_bytes()).unwrap()
    }

    pub(crate) fn delivery() -> Delivery {
        delivery_of(&bundle())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::wire::Registration;

    #[test]
    fn a_delivery_keeps_white_space_key_order_and_unknown_fields() {
        let raw = "{ \"z\" : 1,\n\t\"clusterId\":\"x\" , \"1e2\": 1E2 }";
        let body = format!(
            "{{\"joinId\":\"nj-1\",\"state\":\"delivering\",\"delivery\":{{\"bundle\": {raw} ,\"nodeYaml\":\"a: \\u00e9\\r\\n\"}}}}"
        );
        let registration: Registration = serde_json::from_str(&body).unwrap();
        let delivery = Delivery::from_wire(registration.delivery.unwrap()).unwrap();
        assert_eq!(delivery.bundle(), raw.as_bytes());
        assert_eq!(delivery.node_yaml(), "a: \u{e9}\r\n".as_bytes());
        assert_eq!(delivery.sha256(), delivery_digest("a: \u{e9}\r\n".as_bytes(), raw.as_bytes()));
    }

    #[test]
    fn a_missing_or_oversized_part_is_response_invalid() {
        let wire = |text: &str| Delivery::from_wire(serde_json::from_str(text).unwrap()).unwrap_err();
        assert_eq!(wire("{\"bundle\":{}}").detail, "the delivery holds no node.yaml");
        assert_eq!(wire("{\"nodeYaml\":\"a\"}").detail, "the delivery holds no join bundle");
        assert_eq!(wire("{\"nodeYaml\":\"\",\"bundle\":{}}").code, Code::ResponseInvalid);
        let huge = Delivery::new(vec![b'a'; MAX_NODE_YAML + 1], b"{}".to_vec()).unwrap_err();
        assert_eq!(huge.detail, "the node.yaml of the delivery has 262145 bytes, not 1 to 262144");
        assert!(Delivery::new(vec![b'a'], vec![b'b'; MAX_BUNDLE + 1]).is_err());
    }

    #[test]
    fn nothing_of_a_delivery_is_printed() {
        let shown = format!("{:?}", fixture::delivery());
        assert!(!shown.contains("canary") && shown.starts_with("Delivery("), "{shown}");
    }
}
