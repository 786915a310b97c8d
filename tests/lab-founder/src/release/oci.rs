//! The image of the OCI form: an OCI layout with one image. Reads the directory it is told; what it copies is named by what it read.

use std::path::Path;

use anyhow::{Context, bail, ensure};
use serde::Deserialize;

use super::make::Tree;
use super::statement::Oci;

/// Longest `index.json`, bytes.
const MAX_INDEX: u64 = 1024 * 1024;
/// Where the layout's own two files lie in a release.
const LAYOUT: &str = "os/oci-layout";
const INDEX: &str = "os/index.json";

#[derive(Deserialize)]
struct Index {
    manifests: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Descriptor {
    digest: String,
}

/// Puts the layout at `dir` into the release.
pub(super) fn add(dir: &Path, tree: &mut Tree) -> anyhow::Result<Oci> {
    let index = dir.join("index.json");
    let size = std::fs::metadata(&index).with_context(|| format!("cannot read {}", index.display()))?.len();
    ensure!(size <= MAX_INDEX, "{} has more than 1 MiB", index.display());
    let text = std::fs::read(&index).with_context(|| format!("cannot read {}", index.display()))?;
    let parsed: Index = serde_json::from_slice(&text).with_context(|| index.display().to_string())?;
    let [image] = parsed.manifests.as_slice() else {
        bail!("{} names {} images; a release has one", index.display(), parsed.manifests.len());
    };
    tree.add_at(LAYOUT, &dir.join("oci-layout"))?;
    tree.add_at(INDEX, &index)?;
    let blobs_dir = dir.join("blobs/sha256");
    let mut names = Vec::new();
    for entry in
        std::fs::read_dir(&blobs_dir).with_context(|| format!("cannot list {}", blobs_dir.display()))?
    {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort_unstable();
    let mut blobs = Vec::new();
    for name in names {
        let path = tree.add_blob(&blobs_dir.join(&name))?;
        ensure!(path.ends_with(&format!("/{name}")), "the blob {name} is not named by its SHA-256");
        blobs.push(path);
    }
    let named = image.digest.strip_prefix("sha256:").map(|hex| format!("os/blobs/sha256/{hex}"));
    if !named.is_some_and(|path| blobs.contains(&path)) {
        bail!("{} names the image {}, which is not among its blobs", index.display(), image.digest);
    }
    Ok(Oci { layout: LAYOUT, index: INDEX, image_digest: image.digest.clone(), blobs })
}
