//! The manifest as it is written: fields in the order of docs/upgrade.md, two spaces, one line end. Touches nothing.
//!
//! Its own types and not the agent's: what is written here is read there, and the two must agree through the text alone.

use serde::Serialize;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Statement {
    pub(super) schema: &'static str,
    pub(super) critical: [&'static str; 0],
    pub(super) product: String,
    pub(super) arch: String,
    pub(super) release: String,
    pub(super) sequence: u64,
    pub(super) min_upgrade_from: String,
    pub(super) created: String,
    pub(super) not_after: Option<String>,
    pub(super) chunk_size: u64,
    pub(super) os: Os,
    pub(super) sysexts: Vec<Sysext>,
    pub(super) files: Vec<File>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Os {
    pub(super) version_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ab: Option<Ab>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) oci: Option<Oci>,
}

#[derive(Serialize)]
pub(super) struct Ab {
    pub(super) root: Root,
    pub(super) linux: String,
    pub(super) initrds: Vec<String>,
    pub(super) cmdline: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Root {
    pub(super) path: String,
    pub(super) format: &'static str,
    pub(super) fstype: String,
    pub(super) raw_size: u64,
    pub(super) raw_sha256: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Oci {
    pub(super) layout: &'static str,
    pub(super) index: &'static str,
    pub(super) image_digest: String,
    pub(super) blobs: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Sysext {
    pub(super) name: String,
    pub(super) path: String,
    pub(super) version_id: String,
    pub(super) required: bool,
}

#[derive(Serialize)]
pub(super) struct File {
    pub(super) path: String,
    pub(super) size: u64,
    pub(super) sha256: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) chunks: Option<String>,
}

// === impl Statement ===

impl Statement {
    /// The bytes that are signed.
    pub(super) fn text(&self) -> anyhow::Result<String> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        Ok(text)
    }
}
