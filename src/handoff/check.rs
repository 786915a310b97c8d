//! The checks before a hand-off (docs/protocol.md section 3.7). What they let through is firstboot's to judge.
//!
//! Touches nothing. Reads beside the bytes and never writes them anew. No text of the delivery gets into a fault: it is secret.

use console::text::Safe;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;
use serde::Deserialize;
use webpki::EndEntityCert;

use super::Delivery;
use crate::join::event::DeliveryView;
use crate::join::fault::{Code, Fault};
use crate::yaml;

/// Most nodes in a bundle.
pub const MAX_NODES: usize = 64;

/// Reads a delivery and tells the core what it needs: the digest, the first problem, the names.
pub fn check(delivery: &Delivery) -> DeliveryView {
    let mut view =
        DeliveryView { sha256: delivery.sha256().to_owned(), problem: None, cluster_id: None, node_id: None };
    let result = node_yaml(delivery.node_yaml()).and_then(|own| bundle(delivery.bundle(), own, &mut view));
    view.problem = result.err().map(|why| Fault::new(Code::DeliveryInvalid, why));
    view
}

/// What is read of a bundle. Unknown fields pass; a doubled known one does not.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bundle<'a> {
    cluster_id: Option<String>,
    role: Option<String>,
    nodes: Option<Vec<Node>>,
    #[serde(borrow)]
    node_cert: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow)]
    node_key: Option<std::borrow::Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Node {
    node_id: Option<String>,
}

/// Checks node.yaml; gives the node id it names, which is believed only when the bundle lists it.
fn node_yaml(bytes: &[u8]) -> Result<Option<String>, String> {
    match yaml::parse(bytes) {
        Ok(tree) if tree.as_object().is_some_and(|map| !map.is_empty()) => {
            Ok(tree.pointer("/node/id").and_then(|id| id.as_str()).map(str::to_owned))
        }
        Ok(_) => Err("node.yaml is not a map of settings".to_owned()),
        Err(error) => Err(format!("node.yaml {error}")),
    }
}

fn bundle(bytes: &[u8], named: Option<String>, view: &mut DeliveryView) -> Result<(), String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "the join bundle is not UTF-8")?;
    if !text.starts_with('{') {
        return Err("the join bundle is not a JSON object".to_owned());
    }
    let bundle: Bundle<'_> = serde_json::from_str(text).map_err(|error| json_problem(&error))?;
    let cluster_id = bundle.cluster_id.ok_or("the join bundle names no clusterId")?;
    if !is_cluster_id(&cluster_id) {
        return Err("clusterId of the join bundle is not 1 to 64 of a-z, 0-9 and -".to_owned());
    }
    view.cluster_id = Some(Safe::clean(&cluster_id));
    if bundle.role.is_none_or(|role| role.is_empty()) {
        return Err("the join bundle names no role".to_owned());
    }
    let nodes = bundle.nodes.unwrap_or_default();
    if !(1..=MAX_NODES).contains(&nodes.len()) {
        return Err(format!("the join bundle lists {} nodes, not 1 to {MAX_NODES}", nodes.len()));
    }
    let mut ids = Vec::with_capacity(nodes.len());
    for node in nodes {
        let id = node.node_id.filter(|id| is_node_id(id));
        let id = id.ok_or("a node of the join bundle has no proper nodeId")?;
        if ids.contains(&id) {
            return Err("the join bundle lists a nodeId twice".to_owned());
        }
        ids.push(id);
    }
    let cert = bundle.node_cert.ok_or("the join bundle holds no nodeCert")?;
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(cert.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|_| "nodeCert of the join bundle is not PEM")?;
    let leaf = chain.first().ok_or("nodeCert of the join bundle holds no certificate")?.clone();
    let parsed =
        EndEntityCert::try_from(&leaf).map_err(|_| "nodeCert of the join bundle is not a certificate")?;
    view.node_id =
        own_id(&parsed, &ids).or(named.as_deref().filter(|id| is_listed(&ids, id))).map(Safe::clean);
    if let Some(key) = bundle.node_key {
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
            .map_err(|_| "nodeKey of the join bundle is not PEM")?;
        let key = any_supported_type(&key).map_err(|_| "nodeKey of the join bundle is not a private key")?;
        CertifiedKey::new(chain, key)
            .keys_match()
            .map_err(|_| "nodeKey of the join bundle does not fit nodeCert")?;
    }
    Ok(())
}

/// The node the certificate was issued for, or the only one there is.
fn own_id<'a>(cert: &EndEntityCert<'_>, ids: &'a [String]) -> Option<&'a str> {
    let issued_for = |id: &&String| {
        ServerName::try_from(id.as_str())
            .is_ok_and(|name| cert.verify_is_valid_for_subject_name(&name).is_ok())
    };
    match ids {
        [only] => Some(only),
        _ => ids.iter().find(issued_for).map(String::as_str),
    }
}

fn is_listed(ids: &[String], id: &str) -> bool {
    ids.iter().any(|listed| listed == id)
}

fn is_cluster_id(id: &str) -> bool {
    (1..=64).contains(&id.len())
        && id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

fn is_node_id(id: &str) -> bool {
    (1..=64).contains(&id.len())
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// serde_json's own text can quote the input.
fn json_problem(error: &serde_json::Error) -> String {
    use serde_json::error::Category;
    let why = match error.classify() {
        Category::Eof => "ends too early",
        Category::Data => "has a field of another kind than documented, or one twice,",
        Category::Syntax | Category::Io => "is not JSON",
    };
    format!("the join bundle {why} at line {}, column {}", error.line(), error.column())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::fixture::{NODE_YAML, bundle as good, delivery, delivery_of};
    use super::*;

    fn problem(bundle: &Value) -> String {
        let fault = check(&delivery_of(bundle)).problem.expect("a problem");
        assert_eq!(fault.code, Code::DeliveryInvalid);
        fault.detail.to_string()
    }

    fn with(field: &str, value: Value) -> Value {
        let mut bundle = good();
        bundle[field] = value;
        bundle
    }

    #[test]
    fn a_good_delivery_passes_and_tells_its_names() {
        let delivery = delivery();
        let view = check(&delivery);
        assert_eq!(view.problem, None);
        assert_eq!(view.cluster_id.unwrap(), "cl-3vin6yzz");
        assert_eq!(view.node_id.unwrap(), "n-msst0002");
        assert_eq!(view.sha256, delivery.sha256());
    }

    #[test]
    fn only_three_names_are_required_and_a_key_is_checked_when_it_is_there() {
        let mut bundle = good();
        for field in ["nodeKey", "postgresPassword", "openBaoToken", "adminPassword", "aFieldOfTomorrow"] {
            bundle.as_object_mut().unwrap().remove(field);
        }
        assert_eq!(check(&delivery_of(&bundle)).problem, None);
    }

    #[test]
    fn each_bad_bundle_has_its_own_words() {
        let many: Vec<Value> = (0..65).map(|n| json!({"nodeId": format!("n-{n}")})).collect();
        let other = good()["nodeKey"].clone();
        let cases = [
            (with("clusterId", Value::Null), "the join bundle names no clusterId"),
            (
                with("clusterId", json!("Cl_1")),
                "clusterId of the join bundle is not 1 to 64 of a-z, 0-9 and -",
            ),
            (
                with("clusterId", json!("a".repeat(65))),
                "clusterId of the join bundle is not 1 to 64 of a-z, 0-9 and -",
            ),
            (with("role", json!("")), "the join bundle names no role"),
            (with("nodes", json!([])), "the join bundle lists 0 nodes, not 1 to 64"),
            (with("nodes", json!(many)), "the join bundle lists 65 nodes, not 1 to 64"),
            (with("nodes", json!([{"role": "x"}])), "a node of the join bundle has no proper nodeId"),
            (with("nodes", json!([{"nodeId": "a b"}])), "a node of the join bundle has no proper nodeId"),
            (
                with("nodes", json!([{"nodeId": "n"}, {"nodeId": "n"}])),
                "the join bundle lists a nodeId twice",
            ),
            (with("nodeCert", Value::Null), "the join bundle holds no nodeCert"),
            (with("nodeCert", json!("")), "nodeCert of the join bundle holds no certificate"),
            (
                with("nodeCert", json!("-----BEGIN CERTIFICATE-----\n*\n-----END CERTIFICATE-----")),
                "nodeCert of the join bundle is not PEM",
            ),
            (
                with("nodeCert", json!("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")),
                "nodeCert of the join bundle is not a certificate",
            ),
            (with("nodeKey", json!("secret-without-pem")), "nodeKey of the join bundle is not PEM"),
            (with("nodeKey", other), "nodeKey of the join bundle does not fit nodeCert"),
        ];
        for (bundle, want) in cases {
            assert_eq!(problem(&bundle), want);
        }
        let typed = problem(
            &with("postgresPassword", json!({"x": 1})).as_object().map(|_| with("role", json!(7))).unwrap(),
        );
        assert!(typed.starts_with("the join bundle has a field of another kind than documented"), "{typed}");
    }

    #[test]
    fn broken_json_is_told_without_its_text() {
        for text in [
            "[]",
            "{ ",
            "{\"clusterId\":\"s3cret",
            "nul",
            "{} {}",
            "{\"role\":\"a\",\"role\":\"s3cret\"}",
            "{\"nodes\":\"s3cret\"}",
        ] {
            let delivery = Delivery::new(NODE_YAML.into(), text.as_bytes().to_vec()).unwrap();
            let fault = check(&delivery).problem.expect(text);
            assert!(!fault.detail.as_str().contains("s3cret"), "{text}: {}", fault.detail);
        }
        let deep = format!("{{\"x\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(check(&Delivery::new(NODE_YAML.into(), deep.into_bytes()).unwrap()).problem.is_some());
    }

    #[test]
    fn node_yaml_must_be_one_map_within_the_budget() {
        for (text, want) in [
            ("- 1\n", "node.yaml is not a map of settings"),
            ("{}\n", "node.yaml is not a map of settings"),
            ("# nothing\n", "node.yaml is not a map of settings"),
            ("a: 1\n---\nb: 2\n", "node.yaml holds more than one document"),
            ("a: &x s3cret\n", "node.yaml uses an anchor"),
            ("a: !!python/object s3cret\n", "node.yaml uses a tag"),
        ] {
            let delivery = Delivery::new(text.into(), good().to_string().into_bytes()).unwrap();
            let fault = check(&delivery).problem.expect(text);
            assert!(fault.detail.as_str().starts_with(want), "{text}: {}", fault.detail);
            assert!(!fault.detail.as_str().contains("s3cret"));
        }
    }

    #[test]
    fn every_bad_yaml_document_stops_the_hand_off() {
        for (what, text) in
            crate::yaml::tests::bad_documents().into_iter().filter(|(_, text)| text.len() <= 256 * 1024)
        {
            let delivery = Delivery::new(text, good().to_string().into_bytes()).unwrap();
            assert!(check(&delivery).problem.is_some(), "{what}");
        }
    }
}
