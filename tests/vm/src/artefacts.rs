//! What a run leaves behind for a person to look at: `target/vm/<story>/`. Nothing here has to survive a power cut.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The folder of one story.
#[derive(Clone, Debug)]
pub struct Artefacts {
    dir: PathBuf,
}

// === impl Artefacts ===

impl Artefacts {
    /// An empty folder: what an older run left is removed.
    pub fn fresh(dir: PathBuf) -> Result<Self> {
        if dir.exists() {
            std::fs::remove_dir_all(&dir).with_context(|| format!("remove {}", dir.display()))?;
        }
        std::fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
        Ok(Self { dir })
    }

    /// The path of one file in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Writes one file.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> Result<()> {
        write(&self.path(name), bytes)
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

/// Writes a file that no power cut has to find whole.
pub fn write(path: &Path, bytes: impl AsRef<[u8]>) -> Result<()> {
    File::create(path)
        .and_then(|mut file| file.write_all(bytes.as_ref()))
        .with_context(|| format!("write {}", path.display()))
}
