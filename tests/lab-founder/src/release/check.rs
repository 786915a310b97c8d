//! What a joiner would say of a release directory, before anybody publishes it. Reads the directory and the keys; writes nothing.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;
use stratum_join::upgrade::FileEntry;
use stratum_join::upgrade::keys::{KeyId, KeyRing, Owner};
use stratum_join::upgrade::manifest::{MANIFEST, MAX_MANIFEST, Manifest, Statement};
use stratum_join::upgrade::refusal::Refusal;
use stratum_join::upgrade::running::RunningOs;
use stratum_join::upgrade::search::{Answer, Get, Next, Search};
use stratum_join::upgrade::verify::{Check, Kind, Verified};
use stratum_join::upgrade::version::{Floor, Version};

use super::blob;

/// The joiner that is asked.
#[derive(Debug, Clone)]
pub struct Against {
    /// The directory with the keys of its OS.
    pub os_keys: PathBuf,
    /// Its release; `None` is the lowest that may upgrade.
    pub from: Option<String>,
    /// Its sequence.
    pub from_sequence: u64,
    /// What the cluster asks for; `None` is what the directory holds.
    pub to: Option<String>,
}

/// What came of it.
#[derive(Debug)]
pub struct Report {
    /// The verifier's answer.
    pub verdict: Result<Verified, Refusal>,
    /// Every other thing that is wrong, a line each.
    pub findings: Vec<String>,
    /// What is worth a line and stops nobody.
    pub notes: Vec<String>,
}

/// Something below a directory.
pub(super) struct Entry {
    /// From that directory.
    pub(super) path: String,
    pub(super) is_dir: bool,
    pub(super) is_file: bool,
}

/// Checks the release at `dir`: signatures and manifest as the agent does, then every file.
pub fn check(dir: &Path, against: &Against) -> anyhow::Result<Report> {
    let bytes = read_up_to(&dir.join(MANIFEST), MAX_MANIFEST)?.unwrap_or_default();
    let keys = KeyRing::load_dir(&against.os_keys, Owner::Anybody)
        .context("the keys of the joiner's OS, which --os-keys names")?;
    let mut notes = keys.warnings().to_vec();
    let verdict = verdict(dir, &bytes, keys, against)?;
    let mut findings = Vec::new();
    // A release that is not signed well can still be looked at, to say everything in one go.
    match Manifest::read(&bytes) {
        Ok(manifest) => {
            for file in &manifest.files {
                findings.extend(file_finding(dir, file)?);
            }
            findings.extend(unlisted(dir, &manifest)?);
        }
        Err(refusal) if verdict.as_ref().err() != Some(&refusal) && !bytes.is_empty() => {
            // Nobody known signed this one.
            findings.push(refusal.to_string().replace("The signed manifest", "The manifest"));
        }
        Err(_) => {}
    }
    if let Ok(verified) = &verdict {
        let about = &verified.manifest().about;
        notes.extend(about.not_after.iter().map(|date| {
            format!("notAfter {date} is shown to people; joiners take the release after it, too")
        }));
    }
    Ok(Report { verdict, findings, notes })
}

/// Through the agent's own search and verifier.
fn verdict(
    dir: &Path,
    manifest: &[u8],
    keys: KeyRing,
    against: &Against,
) -> anyhow::Result<Result<Verified, Refusal>> {
    // Product and processor of the joiner are the release's own: a release for another machine is made here as well.
    let about = Statement::parse(manifest).ok().map(|statement| statement.about().clone());
    let parse = |text: &str| text.parse::<Version>().with_context(|| format!("`{text}`"));
    let lowest = || about.as_ref().map_or_else(|| parse("0.0.0"), |about| Ok(about.min_upgrade_from.clone()));
    let os = RunningOs {
        release: against.from.as_deref().map_or_else(lowest, parse)?,
        sequence: against.from_sequence,
        product: about.as_ref().map_or_else(|| "stratum".to_owned(), |about| about.product.clone()),
        arch: about.as_ref().map_or_else(|| std::env::consts::ARCH.to_owned(), |about| about.arch.clone()),
    };
    let mut search = Search::new(Check {
        keys,
        floor: Floor::of(None, &os),
        os,
        to: against.to.as_deref().map(parse).transpose()?,
        form: None,
        host: dir.display().to_string(),
        url: dir.display().to_string(),
    });
    loop {
        match search.next() {
            Next::Verdict(verdict) => return Ok(*verdict),
            Next::Get(Get { path, most, .. }) => {
                let found = read_up_to(&dir.join(path), most)?;
                search.answer(found.map_or(Answer::Absent, |bytes| Answer::Body(bytes, Kind::File)));
            }
        }
    }
}

/// The whole file, or one byte more than `most` of it; `None` when there is none.
fn read_up_to(path: &Path, most: usize) -> anyhow::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e).with_context(|| format!("cannot read {}", path.display())),
    };
    let mut bytes = Vec::new();
    file.take(most as u64 + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Some(bytes))
}

fn file_finding(dir: &Path, file: &FileEntry) -> anyhow::Result<Option<String>> {
    let path = dir.join(file.path.as_str());
    let Ok(meta) = path.symlink_metadata() else { return Ok(Some(format!("{} is missing", file.path))) };
    if !meta.is_file() {
        return Ok(Some(format!("{} is not a file", file.path)));
    }
    if meta.len() != file.size {
        return Ok(Some(format!("{} has {} bytes, the manifest says {}", file.path, meta.len(), file.size)));
    }
    let hashed = blob::read(&path)?;
    let wrong: Vec<String> = hashed
        .chunks
        .iter()
        .zip(&file.chunks)
        .enumerate()
        .filter(|(_, (is, should))| is != should)
        .map(|(n, _)| n.to_string())
        .collect();
    if !wrong.is_empty() {
        return Ok(Some(format!("{} differs from the manifest in chunk {}", file.path, wrong.join(", "))));
    }
    let whole = hashed.size == file.size && hashed.sha256 == file.sha256;
    Ok((!whole).then(|| format!("{} has another sha256 than the manifest says", file.path)))
}

/// Files that no joiner would ask for.
fn unlisted(dir: &Path, manifest: &Manifest) -> anyhow::Result<Vec<String>> {
    let listed: BTreeSet<&str> = manifest.files.iter().map(|file| file.path.as_str()).collect();
    let of_release = |path: &str| {
        let Some(rest) = path.strip_prefix(MANIFEST) else { return listed.contains(path) };
        let id = rest.strip_prefix('.').and_then(|rest| rest.strip_suffix(".minisig"));
        rest.is_empty() || rest == ".minisig" || id.is_some_and(|id| id.parse::<KeyId>().is_ok())
    };
    let stray = walk(dir)?.into_iter().filter(|entry| !entry.is_dir && !of_release(&entry.path));
    Ok(stray
        .map(|entry| match entry.is_file {
            true => format!("{} is not in the manifest", entry.path),
            false => format!("{} is neither a file nor a directory", entry.path),
        })
        .collect())
}

/// Everything below `root`, what lies deeper first; links are not followed.
pub(super) fn walk(root: &Path) -> anyhow::Result<Vec<Entry>> {
    let mut found = Vec::new();
    let mut open = vec![String::new()];
    while let Some(dir) = open.pop() {
        let path = root.join(&dir);
        for entry in std::fs::read_dir(&path).with_context(|| format!("cannot list {}", path.display()))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if dir.is_empty() { name } else { format!("{dir}/{name}") };
            let kind = entry.file_type()?;
            if kind.is_dir() {
                open.push(path.clone());
            }
            found.push(Entry { path, is_dir: kind.is_dir(), is_file: kind.is_file() });
        }
    }
    found.sort_by(|a, b| {
        b.path.matches('/').count().cmp(&a.path.matches('/').count()).then(a.path.cmp(&b.path))
    });
    Ok(found)
}

// === impl Report ===

impl Report {
    /// Whether it may be published.
    pub fn good(&self) -> bool {
        self.verdict.is_ok() && self.findings.is_empty()
    }

    /// A line for each finding, then what it is.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Err(Refusal { rule, fault }) = &self.verdict {
            lines.push(format!("{} {rule}: {} {}", fault.code.as_str(), fault.what, fault.todo));
        }
        lines.extend(self.findings.iter().cloned());
        lines.extend(self.notes.iter().map(|note| format!("note: {note}")));
        if let (true, Ok(verified)) = (self.good(), &self.verdict) {
            let about = &verified.manifest().about;
            let signers: Vec<String> = verified.signatures().iter().map(|(id, _)| id.to_string()).collect();
            let files = &verified.manifest().files;
            lines.push(format!(
                "good: {} {} {}, sequence {}, from {} up; {} files, {} bytes; signed by {}; manifest {}",
                about.product,
                about.release,
                about.arch,
                about.sequence,
                about.min_upgrade_from,
                files.len(),
                files.iter().map(|file| file.size).sum::<u64>(),
                signers.join(", "),
                verified.sha256()
            ));
        }
        lines
    }
}
