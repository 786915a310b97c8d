//! Lays out a release directory of given files and writes its manifest. The same input gives the same bytes.
//!
//! Reads its inputs and writes beside the directory it makes, which gets its name when it is whole. Files are copied and never linked: a
//! release must not change with what it was made of.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use stratum_join::durable_file;
use stratum_join::upgrade::manifest::{MANIFEST, Manifest, SCHEMA};
use stratum_join::upgrade::{CHUNK, Digest};

use super::blob::{self, Hashed};
use super::statement::{Ab, File, Os, Root, Statement, Sysext};
use super::{check, oci};

/// What a release is made of.
#[derive(Debug, Clone)]
pub struct Spec {
    /// Its name, `N.N.N[-pre]`.
    pub release: String,
    /// Higher than that of every earlier release.
    pub sequence: u64,
    /// The lowest release that may upgrade to it.
    pub min_upgrade_from: String,
    /// `stratum`.
    pub product: String,
    /// As Rust names it.
    pub arch: String,
    /// RFC 3339. Not read from a clock: a release made again has the same bytes.
    pub created: String,
    /// RFC 3339; a warning and nothing more.
    pub not_after: Option<String>,
    /// The A/B form.
    pub ab: Option<AbInput>,
    /// The OCI form: the directory of an OCI layout.
    pub oci: Option<PathBuf>,
    /// Extensions.
    pub sysexts: Vec<SysextInput>,
}

/// The files of the A/B form.
#[derive(Debug, Clone)]
pub struct AbInput {
    /// The image of the root file system.
    pub root: PathBuf,
    /// Its file system.
    pub fstype: String,
    /// The kernel.
    pub linux: PathBuf,
    /// Initrds, in order.
    pub initrds: Vec<PathBuf>,
    /// Arguments for the kernel.
    pub cmdline: Vec<String>,
}

/// A system extension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SysextInput {
    /// Its name, without `.raw`.
    pub name: String,
    /// The image.
    pub file: PathBuf,
    /// Whether a joiner fetches it.
    pub required: bool,
}

/// What was made.
#[derive(Debug, Clone)]
pub struct Made {
    /// Files besides the manifest.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
    /// The identity of the release.
    pub manifest_sha256: Digest,
}

/// A release directory in the making.
pub(super) struct Tree {
    root: PathBuf,
    files: BTreeMap<String, Hashed>,
}

impl Spec {
    /// A release of this name that still has no files; product `stratum` for this processor, from 2026.
    pub fn named(release: &str, sequence: u64, min_upgrade_from: &str) -> Self {
        Self {
            release: release.to_owned(),
            sequence,
            min_upgrade_from: min_upgrade_from.to_owned(),
            product: "stratum".to_owned(),
            arch: std::env::consts::ARCH.to_owned(),
            created: "2026-01-01T00:00:00Z".to_owned(),
            not_after: None,
            ab: None,
            oci: None,
            sysexts: Vec::new(),
        }
    }
}

/// Makes the release directory `out`, which must not be there or be empty. Whatever fails, `out` is as it was.
pub fn make(spec: &Spec, out: &Path) -> anyhow::Result<Made> {
    if fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some()) {
        bail!("{} is not empty; a release is made in a directory of its own", out.display());
    }
    let beside = out.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(beside).with_context(|| format!("cannot make {}", beside.display()))?;
    let temp = tempfile::Builder::new()
        .prefix(".release-")
        .tempdir_in(beside)
        .with_context(|| format!("cannot write in {}", beside.display()))?;
    let mut tree = Tree { root: temp.path().to_owned(), files: BTreeMap::new() };
    for dir in ["payload", "os/blobs/sha256", "sysext"] {
        fs::create_dir_all(tree.root.join(dir)).context("cannot make the directories of a release")?;
    }
    if spec.product.is_empty() || !spec.product.bytes().all(|b| b.is_ascii_lowercase() || b == b'-') {
        bail!("`{}` is no name of a product", spec.product);
    }
    let statement = statement(spec, &mut tree)?;
    let text = statement.text()?;
    let manifest = Manifest::read(text.as_bytes()).map_err(|refusal| anyhow::anyhow!("{refusal}"))?;
    if manifest.about.min_upgrade_from >= manifest.about.release {
        bail!("no release could upgrade to {}: --min-upgrade-from is not lower", spec.release);
    }
    durable_file::write(&tree.root.join(MANIFEST), text.as_bytes(), 0o644, "release-manifest")?;
    open_to_all(&tree.root)?;
    // An empty directory may be there, and only that: rename replaces nothing else.
    fs::rename(&tree.root, out).with_context(|| format!("cannot make {}", out.display()))?;
    let _renamed = temp.keep();
    Ok(Made {
        files: tree.files.len(),
        bytes: tree.files.values().map(|file| file.size).sum(),
        manifest_sha256: Digest::of(text.as_bytes()),
    })
}

fn statement(spec: &Spec, tree: &mut Tree) -> anyhow::Result<Statement> {
    let ab = spec.ab.as_ref().map(|ab| add_ab(ab, tree)).transpose()?;
    let oci = spec.oci.as_ref().map(|dir| oci::add(dir, tree)).transpose()?;
    let mut sysexts = Vec::new();
    for ext in &spec.sysexts {
        // The name becomes a path here, before the manifest's rules have seen it.
        if ext.name.is_empty() || !ext.name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
            bail!("`{}` is no name of an extension", ext.name);
        }
        let path = format!("sysext/{}.raw", ext.name);
        tree.add_at(&path, &ext.file)?;
        sysexts.push(Sysext {
            name: ext.name.clone(),
            path,
            version_id: spec.release.clone(),
            required: ext.required,
        });
    }
    let file = |(path, hashed): (&String, &Hashed)| File {
        path: path.clone(),
        size: hashed.size,
        sha256: hashed.sha256.to_string(),
        chunks: hashed.chunks_field(),
    };
    Ok(Statement {
        schema: SCHEMA,
        critical: [],
        product: spec.product.clone(),
        arch: spec.arch.clone(),
        release: spec.release.clone(),
        sequence: spec.sequence,
        min_upgrade_from: spec.min_upgrade_from.clone(),
        created: spec.created.clone(),
        not_after: spec.not_after.clone(),
        chunk_size: CHUNK,
        os: Os { version_id: spec.release.clone(), ab, oci },
        sysexts,
        files: tree.files.iter().map(file).collect(),
    })
}

fn add_ab(ab: &AbInput, tree: &mut Tree) -> anyhow::Result<Ab> {
    let path = tree.add_blob(&ab.root)?;
    let root = &tree.files[&path];
    let root = Root {
        format: "raw",
        fstype: ab.fstype.clone(),
        raw_size: root.size,
        raw_sha256: root.sha256.to_string(),
        path,
    };
    Ok(Ab {
        root,
        linux: tree.add_blob(&ab.linux)?,
        initrds: ab.initrds.iter().map(|file| tree.add_blob(file)).collect::<Result<_, _>>()?,
        cmdline: ab.cmdline.clone(),
    })
}

// === impl Tree ===

impl Tree {
    /// Copies a file to the name that its content gives it, and says that name. The same content is kept once.
    pub(super) fn add_blob(&mut self, from: &Path) -> anyhow::Result<String> {
        let temp = self.root.join("os/blobs/sha256/.new");
        let hashed = blob::copy(from, &temp)?;
        let path = format!("os/blobs/sha256/{}", hashed.sha256);
        fs::rename(&temp, self.root.join(&path)).with_context(|| format!("cannot write {path}"))?;
        self.files.insert(path.clone(), hashed);
        Ok(path)
    }

    /// Copies a file to a name of its own.
    pub(super) fn add_at(&mut self, path: &str, from: &Path) -> anyhow::Result<()> {
        if self.files.contains_key(path) {
            bail!("{path} is given twice");
        }
        let hashed = blob::copy(from, &self.root.join(path))?;
        self.files.insert(path.to_owned(), hashed);
        Ok(())
    }
}

/// A web server reads it as somebody else.
fn open_to_all(root: &Path) -> anyhow::Result<()> {
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
            .with_context(|| format!("cannot set the mode of {}", path.display()))
    };
    mode(root, 0o755)?;
    for entry in check::walk(root)? {
        let path = root.join(&entry.path);
        mode(&path, if entry.is_dir { 0o755 } else { 0o644 })?;
        // No directory stands there for nothing.
        if entry.is_dir {
            let _ = fs::remove_dir(&path);
        }
    }
    Ok(())
}
