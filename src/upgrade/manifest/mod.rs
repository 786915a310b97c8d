//! The manifest of a release, `stratum.release/1`: what it says, and the rules of what it may say (docs/upgrade.md, "The manifest").
//!
//! Touches nothing. A [`Manifest`] has kept rules M5 to M7 and M11 to M20; only a [`super::verify::Verified`] is also signed and the one asked
//! for. Signed bytes are checked first and parsed then; nothing is ever serialised again to be checked.

mod json;
mod raw;
mod rules;

use serde::{Deserialize, Serialize};

use super::refusal::{Refusal, Rule};
use super::version::Version;
use super::{Digest, FileEntry, RelPath};

/// Where the manifest lies in a release.
pub const MANIFEST: &str = "payload/manifest.json";
/// Longest manifest, bytes.
pub const MAX_MANIFEST: usize = 4 * 1024 * 1024;
/// The one schema there is.
pub const SCHEMA: &str = "stratum.release/1";
/// Most files of a release.
pub const MAX_FILES: usize = 4096;
/// Most bytes of a file, and of all files.
pub const MAX_SIZE: u64 = 64 << 30;
/// Most initrds.
pub const MAX_INITRDS: usize = 4;
/// Most arguments for the kernel.
pub const MAX_CMDLINE: usize = 16;
/// Most system extensions.
pub const MAX_SYSEXTS: usize = 32;
/// Most blobs of the OCI form: never more than files.
const MAX_BLOBS: usize = MAX_FILES;

/// What a release is, besides its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// `stratum`, or the product of the OS.
    pub product: String,
    /// As Rust names it: `x86_64`.
    pub arch: String,
    /// Its name.
    pub release: Version,
    /// Rises with every release of a product; 1 to 2^53-1.
    pub sequence: u64,
    /// The lowest running release that may upgrade to it.
    pub min_upgrade_from: Version,
    /// When it was made, RFC 3339. For people: no decision reads it.
    pub created: String,
    /// Until when its maker meant it. For a warning: no decision reads it.
    pub not_after: Option<String>,
}

/// A manifest that keeps to its schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// What it is.
    pub about: About,
    /// Two slots with a boot loader.
    pub ab: Option<Ab>,
    /// An image in the OCI form.
    pub oci: Option<Oci>,
    /// Extensions for the new OS.
    pub sysexts: Vec<Sysext>,
    /// Every file, by path in byte order.
    pub files: Vec<FileEntry>,
}

/// What the A/B backend installs. Every path is one of [`Manifest::files`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ab {
    /// The image of the root file system, as it is written to the slot.
    pub root: RelPath,
    /// Its file system: `erofs`, `squashfs` or `ext4`.
    pub fstype: String,
    /// The kernel.
    pub linux: RelPath,
    /// Its initrds, in order.
    pub initrds: Vec<RelPath>,
    /// More arguments for it; none that the installer sets itself.
    pub cmdline: Vec<String>,
}

/// What the bootc backend installs. Every path is one of [`Manifest::files`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Oci {
    /// `os/oci-layout`.
    pub layout: RelPath,
    /// `os/index.json`.
    pub index: RelPath,
    /// Of the image's manifest.
    pub image_digest: Digest,
    /// The blobs.
    pub blobs: Vec<RelPath>,
}

/// A system extension. Its path is one of [`Manifest::files`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sysext {
    /// Its name, without `.raw`.
    pub name: String,
    /// Where it is.
    pub path: RelPath,
    /// Whether the agent fetches it.
    pub required: bool,
}

/// How an OS may be installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Form {
    /// [`Manifest::ab`].
    Ab,
    /// [`Manifest::oci`].
    Oci,
}

/// A statement whose syntax is checked, and nothing that it says of its files.
pub struct Statement<'a> {
    raw: raw::Raw<'a>,
    about: About,
    image_digest: Option<Digest>,
}

// === impl Statement ===

impl<'a> Statement<'a> {
    /// M5, M6, M7.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Refusal> {
        let text = json::strict(bytes).map_err(|why| Refusal::invalid(Rule::M5, why))?;
        let (raw, typed) = raw::read(text)?;
        let about = About {
            product: raw.product.0.clone().into_owned(),
            arch: raw.arch.0.clone().into_owned(),
            release: typed.release,
            sequence: raw.sequence,
            min_upgrade_from: typed.min_upgrade_from,
            created: raw.created.0.clone().into_owned(),
            not_after: raw.not_after.as_ref().map(|text| text.0.clone().into_owned()),
        };
        Ok(Self { raw, about, image_digest: typed.image_digest })
    }

    /// What it is a release of.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// M11 to M20.
    pub fn manifest(self) -> Result<Manifest, Refusal> {
        rules::manifest(self)
    }
}

// === impl About ===

impl About {
    /// What the trusted comment of every signature must say (M9).
    pub fn trusted_comment(&self) -> String {
        format!("stratum-release/1 product={} release={} arch={}", self.product, self.release, self.arch)
    }
}

// === impl Manifest ===

impl Manifest {
    /// Reads one that need not be signed: all rules that the text alone can break.
    pub fn read(bytes: &[u8]) -> Result<Self, Refusal> {
        Statement::parse(bytes)?.manifest()
    }

    /// The file at `path`.
    pub fn file(&self, path: &RelPath) -> Option<&FileEntry> {
        let at = self.files.binary_search_by(|file| file.path.cmp(path)).ok()?;
        self.files.get(at)
    }

    /// Whether it can be installed in this form.
    pub fn has(&self, form: Form) -> bool {
        match form {
            Form::Ab => self.ab.is_some(),
            Form::Oci => self.oci.is_some(),
        }
    }

    /// The files that an installer of this form needs, each once, by path. Optional extensions are not among them.
    pub fn wanted(&self, form: Form) -> Vec<&FileEntry> {
        let mut paths: Vec<&RelPath> = match form {
            Form::Ab => {
                let ab = self.ab.iter();
                ab.flat_map(|ab| [&ab.root, &ab.linux].into_iter().chain(&ab.initrds)).collect()
            }
            Form::Oci => {
                let oci = self.oci.iter();
                oci.flat_map(|oci| [&oci.layout, &oci.index].into_iter().chain(&oci.blobs)).collect()
            }
        };
        paths.extend(self.sysexts.iter().filter(|ext| ext.required).map(|ext| &ext.path));
        paths.sort_unstable();
        paths.dedup();
        paths.into_iter().filter_map(|path| self.file(path)).collect()
    }
}
