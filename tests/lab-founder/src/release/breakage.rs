//! Copies of a release that are damaged in one named way, for tests. Reads the release, writes the copy.

use std::fs::{self, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::{Value, json};
use stratum_join::upgrade::manifest::{MANIFEST, Manifest};
use stratum_join::upgrade::signature::SignatureName;

use super::{SecretKey, check, sign};

/// One way to damage a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Breakage {
    /// One bit of the largest file
    FlipBit,
    /// The largest file without its last byte
    ShortFile,
    /// The largest file with a byte more
    LongFile,
    /// Without the largest file
    MissingFile,
    /// With a file that the manifest does not name
    ExtraFile,
    /// A login page as the manifest
    HtmlManifest,
    /// An empty manifest
    EmptyManifest,
    /// One bit of the manifest, under the old signature
    FlipManifest,
    /// Without signatures
    NoSignature,
    /// Signed by a key that nobody knows
    UnknownKey,
    /// Signed the old way, over the text and not its hash (needs --key)
    LegacySig,
    /// Signed with another trusted comment (needs --key)
    WrongComment,
    /// The signature of one key in the file of every other
    DupKeySig,
    /// Another release than the files' name says (needs --key)
    OtherRelease,
    /// The lowest sequence there is (needs --key)
    OldSequence,
    /// A path that climbs (needs --key)
    PathDotdot,
    /// A path that begins at the root (needs --key)
    PathAbsolute,
    /// Two paths that differ in case only (needs --key)
    PathCase,
    /// One path twice (needs --key)
    DuplicatePath,
    /// A key of the manifest twice (needs --key)
    DuplicateKey,
    /// A field that must be understood and is not (needs --key)
    NewerSchema,
}

/// Copies the release at `dir` to `out`, which must not be there, and damages the copy. `keys` sign it again where the damage is in what is
/// signed.
pub fn break_release(dir: &Path, how: Breakage, keys: &[SecretKey], out: &Path) -> anyhow::Result<()> {
    if out.exists() {
        bail!("{} is there already", out.display());
    }
    let manifest = out.join(MANIFEST);
    let bytes = fs::read(dir.join(MANIFEST)).with_context(|| format!("cannot read {MANIFEST}"))?;
    let whole =
        Manifest::read(&bytes).map_err(|refusal| anyhow::anyhow!("it is broken already: {refusal}"))?;
    let comment = whole.about.trusted_comment();
    if how.is_signed() && keys.is_empty() {
        bail!("this damage is in what is signed: give --key");
    }
    copy(dir, out)?;
    let largest = whole.files.iter().max_by_key(|file| file.size).context("it has no file")?;
    let largest = out.join(largest.path.as_str());
    let json = || serde_json::from_slice::<Value>(&bytes).context(MANIFEST);
    match how {
        Breakage::FlipBit => flip(&largest)?,
        Breakage::ShortFile => {
            let len = fs::metadata(&largest)?.len();
            OpenOptions::new().write(true).open(&largest)?.set_len(len.saturating_sub(1))?;
        }
        Breakage::LongFile => OpenOptions::new().append(true).open(&largest)?.write_all(b"\n")?,
        Breakage::MissingFile => fs::remove_file(&largest)?,
        Breakage::ExtraFile => put(out.join("os/extra"), "nobody asked for it\n")?,
        Breakage::HtmlManifest => put(&manifest, "<!doctype html><title>Log in</title>\n")?,
        Breakage::EmptyManifest => put(&manifest, "")?,
        Breakage::FlipManifest => flip(&manifest)?,
        Breakage::NoSignature => unsign(out)?,
        Breakage::UnknownKey => resign(out, &[SecretKey::generate()?], &bytes, &comment)?,
        Breakage::LegacySig => {
            unsign(out)?;
            let text = |key: &SecretKey| sign::legacy_text(key, &bytes, &comment);
            write_all(out, keys, text)?;
        }
        Breakage::WrongComment => {
            resign(out, keys, &bytes, &comment.replace("release=", "release=9"))?;
        }
        Breakage::DupKeySig => duplicate(out)?,
        Breakage::OtherRelease
        | Breakage::OldSequence
        | Breakage::PathDotdot
        | Breakage::PathAbsolute
        | Breakage::PathCase
        | Breakage::DuplicatePath
        | Breakage::DuplicateKey
        | Breakage::NewerSchema => {
            let text = change(json()?, how)?;
            put(&manifest, &text)?;
            let said = serde_json::from_str::<Value>(&text)?;
            let field = |name: &str| said[name].as_str().unwrap_or_default().to_owned();
            let comment = format!(
                "stratum-release/1 product={} release={} arch={}",
                field("product"),
                field("release"),
                field("arch")
            );
            resign(out, keys, text.as_bytes(), &comment)?;
        }
    }
    Ok(())
}

// === impl Breakage ===

impl Breakage {
    /// Whether the copy has to be signed again with the release's own keys.
    fn is_signed(self) -> bool {
        use Breakage as B;
        !matches!(
            self,
            B::FlipBit
                | B::ShortFile
                | B::LongFile
                | B::MissingFile
                | B::ExtraFile
                | B::HtmlManifest
                | B::EmptyManifest
                | B::FlipManifest
                | B::NoSignature
                | B::UnknownKey
                | B::DupKeySig
        )
    }
}

/// The manifest with one thing changed in what it says.
fn change(mut json: Value, how: Breakage) -> anyhow::Result<String> {
    let first = || -> anyhow::Result<Value> { json["files"].get(0).cloned().context("it has no file") };
    let mut file = first()?;
    let files = |json: &mut Value, file: Value| {
        if let Some(files) = json["files"].as_array_mut() {
            files.push(file);
            files.sort_by_key(|file| file["path"].as_str().unwrap_or_default().to_owned());
        }
    };
    match how {
        Breakage::OtherRelease => {
            let release = "99.0.0";
            json["release"] = json!(release);
            json["os"]["versionId"] = json!(release);
            for ext in json["sysexts"].as_array_mut().into_iter().flatten() {
                ext["versionId"] = json!(release);
            }
        }
        Breakage::OldSequence => json["sequence"] = json!(1),
        Breakage::PathDotdot | Breakage::PathAbsolute | Breakage::PathCase | Breakage::DuplicatePath => {
            let path = file["path"].as_str().unwrap_or_default().to_owned();
            file["path"] = match how {
                Breakage::PathDotdot => json!("os/../../etc/cron.d/x"),
                Breakage::PathAbsolute => json!("/etc/cron.d/x"),
                Breakage::PathCase => json!(path.to_ascii_uppercase()),
                _ => json!(path),
            };
            files(&mut json, file);
        }
        Breakage::NewerSchema => json["critical"] = json!(["delta"]),
        _ => {}
    }
    let text = serde_json::to_string_pretty(&json)?;
    Ok(match how {
        Breakage::DuplicateKey => text.replacen("\"release\":", "\"release\": \"0.0.1\",\n  \"release\":", 1),
        _ => text,
    })
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let mut entries = check::walk(from)?;
    // Directories before what is in them.
    entries.reverse();
    fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    for entry in entries {
        let (from, to) = (from.join(&entry.path), to.join(&entry.path));
        if entry.is_dir {
            fs::create_dir(&to).with_context(|| format!("cannot make {}", to.display()))?;
        } else if entry.is_file {
            fs::copy(&from, &to).with_context(|| format!("cannot write {}", to.display()))?;
        }
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a damaged copy need not survive a power cut")]
fn put(path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> anyhow::Result<()> {
    let path = path.as_ref();
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

/// Flips a bit of the byte in the middle.
fn flip(path: &Path) -> anyhow::Result<()> {
    let mut file = OpenOptions::new().read(true).write(true).open(path)?;
    let at = file.metadata()?.len() / 2;
    let mut byte = [0];
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(&mut byte)?;
    file.seek(SeekFrom::Start(at))?;
    file.write_all(&[byte[0] ^ 1])?;
    Ok(())
}

fn signature_files(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let names = check::walk(dir)?.into_iter().map(|entry| entry.path);
    Ok(names.filter(|path| path.ends_with(".minisig")).map(|path| dir.join(path)).collect())
}

fn unsign(dir: &Path) -> anyhow::Result<()> {
    signature_files(dir)?.iter().try_for_each(|path| Ok(fs::remove_file(path)?))
}

/// The signatures of `keys` and no others.
fn resign(dir: &Path, keys: &[SecretKey], manifest: &[u8], comment: &str) -> anyhow::Result<()> {
    unsign(dir)?;
    write_all(dir, keys, |key| sign::sign_text(key, manifest, comment))
}

fn write_all(dir: &Path, keys: &[SecretKey], text: impl Fn(&SecretKey) -> String) -> anyhow::Result<()> {
    for key in keys {
        sign::replace(dir, SignatureName::Of(key.id()), &text(key))?;
    }
    keys.first().map_or(Ok(()), |key| sign::replace(dir, SignatureName::Primary, &text(key)))
}

/// The primary signature in place of all others.
fn duplicate(dir: &Path) -> anyhow::Result<()> {
    let primary = dir.join(SignatureName::Primary.path());
    let text = fs::read(&primary).context("it has no primary signature")?;
    signature_files(dir)?.iter().try_for_each(|path| put(path, &text))
}
