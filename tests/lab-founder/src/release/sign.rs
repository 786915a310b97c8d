//! Signatures of a release, as minisign makes them. Touches `payload/` of the release it is told.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use blake2::{Blake2b512, Digest};
use data_encoding::BASE64;
use stratum_join::upgrade::keys::{KeyId, ReleaseKey};
use stratum_join::upgrade::manifest::{MANIFEST, Manifest};
use stratum_join::upgrade::signature::SignatureName;

use super::SecretKey;

/// The `.minisig` text of `key` over `manifest`. Signs whatever it is given.
pub fn sign_text(key: &SecretKey, manifest: &[u8], trusted_comment: &str) -> String {
    text(key, *b"ED", &Blake2b512::digest(manifest), trusted_comment)
}

/// The same in the old form, over the bytes themselves: what the agent must refuse.
pub fn legacy_text(key: &SecretKey, manifest: &[u8], trusted_comment: &str) -> String {
    text(key, *b"Ed", manifest, trusted_comment)
}

fn text(key: &SecretKey, algorithm: [u8; 2], message: &[u8], trusted_comment: &str) -> String {
    let signature = key.sign(message);
    let global = key.sign(&[&signature, trusted_comment.as_bytes()].concat());
    format!(
        "untrusted comment: signature from minisign secret key\n{}\ntrusted comment: {trusted_comment}\n{}\n",
        BASE64.encode(&[&algorithm[..], &key.id().bytes(), &signature].concat()),
        BASE64.encode(&global)
    )
}

/// Signs the release at `dir`: the first key is the primary one, and each writes the file of its number. A manifest that breaks a rule is
/// not signed.
pub fn sign(dir: &Path, keys: &[SecretKey]) -> anyhow::Result<Vec<KeyId>> {
    let Some(primary) = keys.first() else { bail!("no key to sign with") };
    let (bytes, comment) = read(dir)?;
    for key in keys {
        replace(dir, SignatureName::Of(key.id()), &sign_text(key, &bytes, &comment))?;
    }
    replace(dir, SignatureName::Primary, &sign_text(primary, &bytes, &comment))?;
    Ok(keys.iter().map(SecretKey::id).collect())
}

/// The commands that do the same with minisign, for keys with a password. `keys` are the secret keys; the number of each is read from it or
/// from the `.pub` beside it.
pub fn print_minisign(dir: &Path, keys: &[PathBuf]) -> anyhow::Result<String> {
    let (_, comment) = read(dir)?;
    let mut lines = vec![format!("cd {}", quoted(&dir.to_string_lossy()))];
    for (n, path) in keys.iter().enumerate() {
        let file = SignatureName::Of(number_of(path)?).path();
        // The commands run in the release.
        let path = std::path::absolute(path).with_context(|| path.display().to_string())?;
        let key = quoted(&path.to_string_lossy());
        lines.push(format!("minisign -S -s {key} -m {MANIFEST} -x {file} -t {}", quoted(&comment)));
        if n == 0 {
            lines.push(format!("cp {file} {}", SignatureName::Primary.path()));
        }
    }
    lines.push(String::new());
    Ok(lines.join("\n"))
}

fn read(dir: &Path) -> anyhow::Result<(Vec<u8>, String)> {
    let path = dir.join(MANIFEST);
    let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let manifest = Manifest::read(&bytes).map_err(|refusal| anyhow::anyhow!("not signed: {refusal}"))?;
    Ok((bytes, manifest.about.trusted_comment()))
}

fn number_of(secret: &Path) -> anyhow::Result<KeyId> {
    if let Ok(key) = SecretKey::read(secret) {
        return Ok(key.id());
    }
    let public = secret.with_extension("pub");
    let text = std::fs::read(&public).with_context(|| {
        format!(
            "the number of {} is in its public key, which has to lie beside it: cannot read {}",
            secret.display(),
            public.display()
        )
    })?;
    let key = ReleaseKey::parse(&text).with_context(|| public.display().to_string())?;
    Ok(key.id())
}

pub(super) fn replace(dir: &Path, name: SignatureName, text: &str) -> anyhow::Result<()> {
    let path = dir.join(name.path());
    let write = || -> anyhow::Result<()> {
        let mut temp = tempfile::NamedTempFile::new_in(path.parent().context("payload/ has a parent")?)?;
        temp.write_all(text.as_bytes())?;
        temp.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
        temp.as_file().sync_all()?;
        temp.persist(&path)?;
        Ok(())
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// For a shell.
fn quoted(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/._-+".contains(&b);
    if !text.is_empty() && text.bytes().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}
