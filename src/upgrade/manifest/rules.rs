//! What the fields may say: rules M11 to M20, each for the whole manifest before the next. Touches nothing.

use std::collections::{HashMap, HashSet};

use data_encoding::BASE64;

use super::super::refusal::{Refusal, Rule};
use super::super::{CHUNK, Digest, FileEntry, RelPath};
use super::raw::{Object, Raw, RawAb, RawFile, RawOs, RawSysext, Short};
use super::{
    Ab, MAX_CMDLINE, MAX_FILES, MAX_INITRDS, MAX_SIZE, MAX_SYSEXTS, Manifest, Oci, Statement, Sysext,
};

/// Where blobs lie, by their digest.
const BLOBS: &str = "os/blobs/sha256/";
/// What may be mounted as a root.
const FSTYPES: [&str; 3] = ["erofs", "squashfs", "ext4"];
/// Keys of the kernel's command line that the installer sets, and those with which an image would start something else than itself. `-` and
/// `_` are one to the kernel and to systemd.
const NO_KEYS: [&str; 17] = [
    "root",
    "ro",
    "rw",
    "rootfstype",
    "rootflags",
    "rootwait",
    "panic",
    "rd.shell",
    "rd.emergency",
    "initrd",
    "BOOT_IMAGE",
    "init",
    "rdinit",
    "systemd.unit",
    "systemd.debug_shell",
    "rd.break",
    "stratum",
];

pub(super) fn manifest(statement: Statement<'_>) -> Result<Manifest, Refusal> {
    let Statement { raw, about, image_digest } = statement;
    let files: Vec<&RawFile<'_>> = raw.files.items.iter().map(|Object(file)| file).collect();
    order(&files, raw.files.more)?;
    let paths = grammar(&files)?;
    places(&paths)?;
    sizes(&files)?;
    let digests = digests(&files)?;
    let files = chunks(&files, paths, digests)?;
    let known: HashMap<&str, &FileEntry> = files.iter().map(|file| (file.path.as_str(), file)).collect();
    references(&raw, about.release.as_str(), &known)?;
    let RawOs { ab, oci, .. } = &raw.os.0;
    if let Some(Object(ab)) = ab {
        root(ab, &known)?;
        kernel(ab)?;
    }
    sysexts(&raw)?;

    let path = |Short(text): &Short<'_>| known.get(&**text).map(|file| file.path.clone());
    let lost = || Refusal::invalid(Rule::M17, "a path is not in files");
    let list = |of: &[Short<'_>]| of.iter().map(|p| path(p).ok_or_else(lost)).collect::<Result<Vec<_>, _>>();
    let ab = match ab {
        None => None,
        Some(Object(ab)) => Some(Ab {
            root: path(&ab.root.0.path).ok_or_else(lost)?,
            fstype: ab.root.0.fstype.0.clone().into_owned(),
            linux: path(&ab.linux).ok_or_else(lost)?,
            initrds: list(&ab.initrds.items)?,
            cmdline: ab.cmdline.items.iter().map(|token| token.0.clone().into_owned()).collect(),
        }),
    };
    let oci = match (oci, image_digest) {
        (Some(Object(oci)), Some(image_digest)) => Some(Oci {
            layout: path(&oci.layout).ok_or_else(lost)?,
            index: path(&oci.index).ok_or_else(lost)?,
            image_digest,
            blobs: list(&oci.blobs.items)?,
        }),
        _ => None,
    };
    let sysext = |Object(ext): &Object<RawSysext<'_>>| {
        let path = path(&ext.path).ok_or_else(lost)?;
        Ok(Sysext { name: ext.name.0.clone().into_owned(), path, required: ext.required })
    };
    let sysexts = raw.sysexts.items.iter().map(sysext).collect::<Result<_, Refusal>>()?;
    Ok(Manifest { about, ab, oci, sysexts, files })
}

/// M11: how many, in order, each once, also where case does not count.
fn order(files: &[&RawFile<'_>], more: bool) -> Result<(), Refusal> {
    let no = |detail: String| Err(Refusal::invalid(Rule::M11, detail));
    if files.is_empty() {
        return no("files is empty".to_owned());
    }
    if more {
        return no(format!("files has more than {MAX_FILES} entries"));
    }
    for pair in files.windows(2) {
        let [a, b] = pair else { continue };
        match a.path.0.as_bytes().cmp(b.path.0.as_bytes()) {
            std::cmp::Ordering::Less => {}
            std::cmp::Ordering::Equal => return no(format!("`{}` comes twice in files", a.path.0)),
            std::cmp::Ordering::Greater => {
                return no(format!("files is not sorted: `{}` comes after `{}`", b.path.0, a.path.0));
            }
        }
    }
    let mut seen = HashSet::new();
    match files.iter().find(|file| !seen.insert(file.path.0.to_ascii_lowercase())) {
        Some(file) => no(format!("`{}` differs from another path in case only", file.path.0)),
        None => Ok(()),
    }
}

/// M12: the grammar of a path.
fn grammar(files: &[&RawFile<'_>]) -> Result<Vec<RelPath>, Refusal> {
    let parse = |file: &&RawFile<'_>| {
        let text = &file.path.0;
        text.parse().map_err(|why| Refusal::invalid(Rule::M12, format_args!("`{text}` is {why}")))
    };
    files.iter().map(parse).collect()
}

/// M13: where files may lie; none is a directory of another.
fn places(paths: &[RelPath]) -> Result<(), Refusal> {
    let all: HashSet<&str> = paths.iter().map(RelPath::as_str).collect();
    for path in paths {
        let text = path.as_str();
        if !text.starts_with("os/") && !text.starts_with("sysext/") {
            return Err(Refusal::invalid(
                Rule::M13,
                format_args!("`{text}` lies neither in os/ nor in sysext/"),
            ));
        }
        let mut above = text.match_indices('/').filter_map(|(at, _)| text.get(..at));
        if let Some(dir) = above.find(|dir| all.contains(dir)) {
            return Err(Refusal::invalid(
                Rule::M13,
                format_args!("`{dir}` is a file and a directory of `{text}`"),
            ));
        }
    }
    Ok(())
}

/// M14: sizes, each and together.
fn sizes(files: &[&RawFile<'_>]) -> Result<(), Refusal> {
    let mut sum = 0_u64;
    for file in files {
        if !(1..=MAX_SIZE).contains(&file.size) {
            return Err(Refusal::invalid(
                Rule::M14,
                format_args!("`{}` has {} bytes; 1 byte to 64 GiB are allowed", file.path.0, file.size),
            ));
        }
        sum = sum.saturating_add(file.size);
    }
    if sum > MAX_SIZE {
        return Err(Refusal::invalid(
            Rule::M14,
            format_args!("all files have {sum} bytes together, more than 64 GiB"),
        ));
    }
    Ok(())
}

/// M15: digests, and that a name that is a digest is the right one.
fn digests(files: &[&RawFile<'_>]) -> Result<Vec<Digest>, Refusal> {
    let mut size_of: HashMap<Digest, u64> = HashMap::new();
    let mut digests = Vec::with_capacity(files.len());
    for file in files {
        let (path, sha256) = (&file.path.0, &file.sha256.0);
        let no = |detail: String| Err(Refusal::invalid(Rule::M15, detail));
        let Ok(digest) = sha256.parse::<Digest>() else {
            return no(format!("the sha256 of `{path}` is not 64 lower-case hex digits"));
        };
        if *size_of.entry(digest).or_insert(file.size) != file.size {
            return no(format!("two files have the sha256 {digest} and different sizes"));
        }
        if path.strip_prefix(BLOBS).is_some_and(|name| name.rsplit('/').next() != Some(sha256)) {
            return no(format!("`{path}` is not named by its sha256, {digest}"));
        }
        digests.push(digest);
    }
    Ok(digests)
}

/// M16: the digests of the chunks.
fn chunks(
    files: &[&RawFile<'_>],
    paths: Vec<RelPath>,
    digests: Vec<Digest>,
) -> Result<Vec<FileEntry>, Refusal> {
    let mut entries = Vec::with_capacity(files.len());
    for ((file, path), sha256) in files.iter().zip(paths).zip(digests) {
        let no =
            |detail: &str| Err(Refusal::invalid(Rule::M16, format_args!("the chunks of `{path}` {detail}")));
        let chunks = match &file.chunks {
            None if file.size <= CHUNK => vec![sha256],
            None => return no("are missing"),
            Some(_) if file.size <= CHUNK => return no("are given, and it has only one"),
            Some(text) => {
                let Ok(bytes) = BASE64.decode(text.as_bytes()) else { return no("are not canonical base64") };
                let (digests, rest) = bytes.as_chunks::<32>();
                if !rest.is_empty() || digests.len() as u64 != file.size.div_ceil(CHUNK) {
                    return no("are not 32 bytes for each 4 MiB");
                }
                digests.iter().copied().map(Digest).collect()
            }
        };
        entries.push(FileEntry { path, size: file.size, sha256, chunks });
    }
    Ok(entries)
}

/// M17: a form to install, and every path that is named is a file.
fn references(raw: &Raw<'_>, release: &str, known: &HashMap<&str, &FileEntry>) -> Result<(), Refusal> {
    let RawOs { version_id, ab, oci } = &raw.os.0;
    if ab.is_none() && oci.is_none() {
        return Err(Refusal::invalid(Rule::M17, "it has neither os.ab nor os.oci"));
    }
    let ab =
        ab.iter().flat_map(|Object(ab)| [&ab.root.0.path, &ab.linux].into_iter().chain(&ab.initrds.items));
    let oci =
        oci.iter().flat_map(|Object(oci)| [&oci.layout, &oci.index].into_iter().chain(&oci.blobs.items));
    let exts = raw.sysexts.items.iter().map(|Object(ext)| &ext.path);
    if let Some(path) = ab.chain(oci).chain(exts).find(|path| !known.contains_key(&*path.0)) {
        return Err(Refusal::invalid(Rule::M17, format_args!("`{}` is named and not in files", path.0)));
    }
    if version_id.0 != release {
        return Err(Refusal::invalid(
            Rule::M17,
            format_args!("os.versionId is `{}`, the release is {release}", version_id.0),
        ));
    }
    Ok(())
}

/// M18: the image of the root.
fn root(ab: &RawAb<'_>, known: &HashMap<&str, &FileEntry>) -> Result<(), Refusal> {
    let no = |detail: String| Err(Refusal::invalid(Rule::M18, detail));
    let root = &ab.root.0;
    if root.format.0 != "raw" {
        return no(format!("the root's format is `{}`; only raw is installed", root.format.0));
    }
    if !FSTYPES.contains(&&*root.fstype.0) {
        return no(format!("the root's fstype is `{}`, none of {}", root.fstype.0, FSTYPES.join(", ")));
    }
    let Some(file) = known.get(&*root.path.0) else { return no("the root is not in files".to_owned()) };
    if root.raw_size != file.size {
        return no(format!("rawSize is {}, the file has {}", root.raw_size, file.size));
    }
    if root.raw_sha256.0 != file.sha256.to_string() {
        return no(format!("rawSha256 is not that of the file, {}", file.sha256));
    }
    Ok(())
}

/// M19: what starts the kernel.
fn kernel(ab: &RawAb<'_>) -> Result<(), Refusal> {
    let no = |detail: String| Err(Refusal::invalid(Rule::M19, detail));
    if ab.initrds.more {
        return no(format!("more than {MAX_INITRDS} initrds"));
    }
    if ab.cmdline.more {
        return no(format!("more than {MAX_CMDLINE} arguments in cmdline"));
    }
    for Short(token) in &ab.cmdline.items {
        let (key, value) = token.split_once('=').unwrap_or((token, ""));
        let in_key = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        let in_value = |b: u8| b.is_ascii_alphanumeric() || b"._:,/@+-".contains(&b);
        if key.is_empty() || !key.bytes().all(in_key) || !value.bytes().all(in_value) {
            return no(format!("`{token}` is no argument that cmdline may have"));
        }
        let plain = key.replace('-', "_");
        if NO_KEYS.contains(&plain.as_str()) || plain.starts_with("stratum.") {
            return no(format!("`{key}` in cmdline is not the release's to set"));
        }
    }
    Ok(())
}

/// M20: the extensions.
fn sysexts(raw: &Raw<'_>) -> Result<(), Refusal> {
    let no = |detail: String| Err(Refusal::invalid(Rule::M20, detail));
    if raw.sysexts.more {
        return no(format!("more than {MAX_SYSEXTS} sysexts"));
    }
    let mut seen = HashSet::new();
    for Object(RawSysext { name: Short(name), path: Short(path), version_id, .. }) in &raw.sysexts.items {
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if !(1..=63).contains(&name.len()) || !name.bytes().all(inner) || name.starts_with('-') {
            return no(format!("`{name}` is no name of an extension"));
        }
        if !seen.insert(name) {
            return no(format!("the extension `{name}` comes twice"));
        }
        if !path.starts_with("sysext/") {
            return no(format!("the extension `{name}` lies at `{path}`, not below sysext/"));
        }
        if version_id.0 != raw.os.0.version_id.0 {
            return no(format!(
                "the extension `{name}` is for {}, the OS is {}",
                version_id.0, raw.os.0.version_id.0
            ));
        }
    }
    Ok(())
}
