//! What the agent delivered: node.yaml and the bundle.
//!
//! Reads both files. Checks what a firstboot cannot do without; prints no secret unless it is told to.

use std::path::Path;

use anyhow::{Context, bail, ensure};
use serde::Deserialize;
use serde_json::Value;

/// Both parts, read and checked.
pub(crate) struct Delivered {
    node: Node,
    /// The bundle. Secret.
    pub(crate) bundle: Value,
}

#[derive(Deserialize)]
struct NodeYaml {
    node: Node,
    network: Network,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    name: String,
    role: String,
    cluster: String,
}

#[derive(Deserialize)]
struct Network {
    mgmt: Mgmt,
}

#[derive(Deserialize)]
struct Mgmt {
    interface: String,
    address: String,
}

// === impl Delivered ===

impl Delivered {
    /// Reads `config` and the file that `STRATUM_JOIN_BUNDLE` names.
    pub(crate) fn read(config: &Path) -> anyhow::Result<Self> {
        #[expect(clippy::disallowed_methods, reason = "the variable is the contract with the agent")]
        let bundle = std::env::var_os("STRATUM_JOIN_BUNDLE").context("STRATUM_JOIN_BUNDLE is not set")?;
        let read = |path: &Path| {
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
        };
        let yaml = read(config)?;
        let text = read(Path::new(&bundle))?;
        Self::of(&yaml, &text).with_context(|| format!("{} or its bundle is not usable", config.display()))
    }

    fn of(yaml: &str, bundle: &str) -> anyhow::Result<Self> {
        let options = serde_yaml::options! { with_snippet: false };
        let yaml: NodeYaml = serde_yaml::from_str_with_options(yaml, options)
            .map_err(|error| anyhow::anyhow!("node.yaml: {}", error.without_snippet()))?;
        let NodeYaml { node, network: Network { mgmt } } = yaml;
        for (name, value) in [
            ("node.id", &node.id),
            ("node.name", &node.name),
            ("node.role", &node.role),
            ("node.cluster", &node.cluster),
            ("network.mgmt.interface", &mgmt.interface),
            ("network.mgmt.address", &mgmt.address),
        ] {
            ensure!(!value.is_empty(), "node.yaml: {name} is empty");
        }
        // Its text is secret, so no error of the parser is shown.
        let Ok(bundle) = serde_json::from_str::<Value>(bundle) else { bail!("the bundle is not JSON") };
        let cluster = bundle["clusterId"].as_str().context("the bundle has no clusterId")?;
        ensure!(cluster == node.cluster, "node.yaml is of cluster {}, the bundle of {cluster}", node.cluster);
        let nodes = bundle["nodes"].as_array().context("the bundle has no nodes")?;
        let listed = nodes.iter().any(|peer| peer["nodeId"] == node.id.as_str());
        ensure!(listed, "the bundle does not list this node, {}", node.id);
        ensure!(bundle["nodeCert"].is_string(), "the bundle has no nodeCert");
        Ok(Self { node, bundle })
    }

    /// Our node id.
    pub(crate) fn node_id(&self) -> &str {
        &self.node.id
    }

    /// What may be told of it.
    pub(crate) fn summary(&self) -> String {
        let peers = self.bundle["nodes"].as_array().map_or(0, Vec::len);
        let Node { id, name, role, cluster } = &self.node;
        format!("node {id} ({name}) joins {cluster} as {role}, with {peers} members")
    }

    /// Every text of the bundle. Secret.
    pub(crate) fn strings(&self) -> Vec<String> {
        fn walk(value: &Value, found: &mut Vec<String>) {
            match value {
                Value::String(text) => found.extend(text.lines().map(str::to_owned)),
                Value::Array(list) => list.iter().for_each(|value| walk(value, found)),
                Value::Object(map) => map.values().for_each(|value| walk(value, found)),
                _ => {}
            }
        }
        let mut found = Vec::new();
        walk(&self.bundle, &mut found);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const YAML: &str = "node: {id: n-1, name: two, role: hybrid, cluster: cl-1}\nnetwork: {mgmt: {interface: eno1, address: 192.0.2.12/24}}\nmore: 1\n";
    const BUNDLE: &str = r#"{"clusterId":"cl-1","nodes":[{"nodeId":"n-0"},{"nodeId":"n-1"}],"nodeCert":"x","postgresPassword":"s3cret"}"#;

    #[test]
    fn a_good_delivery_is_taken_and_told_without_its_secrets() {
        let delivered = Delivered::of(YAML, BUNDLE).unwrap();
        assert_eq!(delivered.summary(), "node n-1 (two) joins cl-1 as hybrid, with 2 members");
        assert!(delivered.strings().contains(&"s3cret".to_owned()));
    }

    #[test]
    fn each_part_that_is_missing_or_does_not_fit_is_named() {
        for (yaml, bundle, want) in [
            (YAML.replace("n-1", "n-9"), BUNDLE.to_owned(), "does not list this node"),
            (YAML.replace("cl-1", "cl-2"), BUNDLE.to_owned(), "is of cluster cl-2"),
            (YAML.replace("eno1", "''"), BUNDLE.to_owned(), "network.mgmt.interface is empty"),
            (YAML.replace("role: hybrid, ", ""), BUNDLE.to_owned(), "role"),
            (YAML.to_owned(), BUNDLE.replace("nodeCert", "x"), "no nodeCert"),
            (YAML.to_owned(), BUNDLE.replace('}', ""), "not JSON"),
        ] {
            let error =
                Delivered::of(&yaml, &bundle).err().map(|error| format!("{error:#}")).unwrap_or_default();
            assert!(error.contains(want) && !error.contains("s3cret"), "{want}: {error}");
        }
    }
}
