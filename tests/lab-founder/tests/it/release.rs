//! Releases as an engineer makes, signs and checks them; Debian's minisign on the other side, where it is installed.
#![allow(clippy::disallowed_methods, reason = "inputs of a test need not survive a power cut")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use clap::ValueEnum;
use lab_founder::release::{
    AbInput, Against, Breakage, Report, SecretKey, Spec, SysextInput, break_release, check, keygen, make,
    print_minisign, sign,
};
use stratum_join::upgrade::fault::Code;
use stratum_join::upgrade::manifest::Form;
use stratum_join::upgrade::{CHUNK, Digest};
use tempfile::TempDir;

const OK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/manifests/ok");

/// Inputs, keys and a place for releases.
struct Desk {
    dir: TempDir,
    key: SecretKey,
}

impl Desk {
    fn new() -> Self {
        let desk = Self { dir: TempDir::new().unwrap(), key: SecretKey::from_seed([7; 32], *b"\x01releasK") };
        let mut root = vec![0; CHUNK as usize];
        root.extend_from_slice(b"end\n");
        for (name, bytes) in
            [("root", &root[..]), ("linux", b"kernel\n"), ("initrd", b"initrd\n"), ("ceph", b"sysext\n")]
        {
            fs::write(desk.at(name), bytes).unwrap();
        }
        fs::create_dir(desk.at("keys")).unwrap();
        fs::write(desk.at("keys/a.pub"), desk.key.public_text()).unwrap();
        fs::write(desk.at("a.key"), desk.key.secret_text()).unwrap();
        desk
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The release of docs/upgrade.md.
    fn spec(&self) -> Spec {
        Spec {
            arch: "x86_64".to_owned(),
            created: "2026-11-29T00:00:00Z".to_owned(),
            ab: Some(AbInput {
                root: self.at("root"),
                fstype: "erofs".to_owned(),
                linux: self.at("linux"),
                initrds: vec![self.at("initrd")],
                cmdline: vec!["quiet".to_owned()],
            }),
            sysexts: vec![SysextInput {
                name: "stratum-ceph".to_owned(),
                file: self.at("ceph"),
                required: true,
            }],
            ..Spec::named("0.7.0", 70, "0.5.0")
        }
    }

    fn made(&self, name: &str) -> PathBuf {
        make(&self.spec(), &self.at(name)).unwrap();
        self.at(name)
    }

    fn signed(&self, name: &str) -> PathBuf {
        let release = self.made(name);
        sign(&release, std::slice::from_ref(&self.key)).unwrap();
        release
    }

    /// What a machine of 0.6.0 with the keys in `keys/` says that was asked to go to 0.7.0.
    fn check(&self, release: &Path) -> Report {
        let against = Against {
            os_keys: self.at("keys"),
            from: Some("0.6.0".to_owned()),
            from_sequence: 60,
            to: Some("0.7.0".to_owned()),
        };
        check(release, &against).unwrap()
    }
}

/// Every file below, with its bytes.
fn tree(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(at) = open.pop() {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.push((path.strip_prefix(dir).unwrap().to_owned(), fs::read(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

/// Runs Debian's program in `dir`; `None`, said plainly, where it is not installed.
fn minisign(dir: &Path, args: &[&str]) -> Option<Output> {
    match Command::new("minisign").args(args).current_dir(dir).stdin(Stdio::null()).output() {
        Ok(out) => Some(out),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            println!("skipped: minisign is not installed");
            None
        }
        Err(e) => panic!("minisign: {e}"),
    }
}

#[test]
fn the_release_of_the_documentation_comes_out_byte_for_byte() {
    let desk = Desk::new();
    let release = desk.made("r");
    let committed = fs::read(Path::new(OK).join("manifest.json")).unwrap();
    assert_eq!(committed.len(), 1933);
    assert_eq!(
        Digest::of(&committed).to_string(),
        "f97380080766a0e7a1aaaca09614974759bd337c8f09510dc6dfc9b10e64f765"
    );
    assert_eq!(fs::read(release.join("payload/manifest.json")).unwrap(), committed);
    assert_eq!(tree(&release).len(), 5);
}

#[test]
fn the_same_input_gives_the_same_release() {
    let desk = Desk::new();
    assert_eq!(tree(&desk.signed("one")), tree(&desk.signed("two")));
}

#[test]
fn a_release_is_open_to_a_web_server_and_shares_nothing_with_its_input() {
    let desk = Desk::new();
    let release = desk.signed("r");
    for (path, _) in tree(&release) {
        let meta = fs::metadata(release.join(&path)).unwrap();
        assert_eq!(meta.permissions().mode() & 0o777, 0o644, "{}", path.display());
        assert_eq!(std::os::unix::fs::MetadataExt::nlink(&meta), 1);
    }
    assert_eq!(fs::metadata(&release).unwrap().permissions().mode() & 0o777, 0o755);
    fs::write(desk.at("linux"), "another\n").unwrap();
    assert!(desk.check(&release).good());
}

#[test]
fn what_cannot_be_a_release_is_not_made_and_nothing_is_left() {
    let desk = Desk::new();
    let good = desk.spec();
    let without = |change: fn(&mut Spec)| {
        let mut spec = good.clone();
        change(&mut spec);
        spec
    };
    let mut missing = good.clone();
    missing.ab.as_mut().unwrap().linux = desk.at("none");
    fs::write(desk.at("empty"), "").unwrap();
    let mut empty = good.clone();
    empty.ab.as_mut().unwrap().initrds = vec![desk.at("empty")];
    for (spec, why) in [
        (without(|s| s.ab = None), "M17"),
        (without(|s| s.release = "0.7".to_owned()), "M7"),
        (without(|s| s.sequence = 0), "M7"),
        (without(|s| s.min_upgrade_from = "0.7.0".to_owned()), "no release could upgrade"),
        (without(|s| s.sysexts[0].name = "../x".to_owned()), "no name of an extension"),
        (without(|s| s.sysexts.push(s.sysexts[0].clone())), "given twice"),
        (without(|s| s.product = "a b".to_owned()), "no name of a product"),
        (without(|s| s.ab.as_mut().unwrap().fstype = "btrfs".to_owned()), "M18"),
        (without(|s| s.ab.as_mut().unwrap().cmdline.push("init=/x".to_owned())), "M19"),
        (missing, "none"),
        (empty, "M14"),
    ] {
        let error = format!("{:#}", make(&spec, &desk.at("r")).unwrap_err());
        assert!(error.contains(why), "{error}");
        assert!(!desk.at("r").exists());
    }
    let left: Vec<_> =
        fs::read_dir(desk.dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().starts_with('.')), "{left:?}");
    let release = desk.made("r");
    let error = make(&good, &release).unwrap_err().to_string();
    assert!(error.contains("is not empty"), "{error}");
}

#[test]
fn each_named_damage_is_found_by_the_check_under_its_name() {
    let desk = Desk::new();
    let release = desk.signed("good");
    let report = desk.check(&release);
    assert!(report.good(), "{:?}", report.lines());
    assert!(report.lines()[0].contains(&desk.key.id().to_string()));
    for how in Breakage::value_variants() {
        if *how == Breakage::DupKeySig {
            // One key counts once; it only shows where two are asked for: the next test.
            continue;
        }
        let copy = desk.at(how.to_possible_value().unwrap().get_name());
        break_release(&release, *how, &[SecretKey::parse(&desk.key.secret_text()).unwrap()], &copy).unwrap();
        let report = desk.check(&copy);
        assert!(!report.good(), "{how:?}");
        let (code, finding) = match how {
            Breakage::FlipBit => (None, "differs from the manifest in chunk 0"),
            Breakage::ShortFile | Breakage::LongFile => (None, "bytes, the manifest says 4194308"),
            Breakage::MissingFile => (None, "is missing"),
            Breakage::ExtraFile => (None, "os/extra is not in the manifest"),
            Breakage::HtmlManifest | Breakage::EmptyManifest => (Some(Code::NotARelease), ""),
            Breakage::FlipManifest | Breakage::LegacySig | Breakage::WrongComment => (Some(Code::SigBad), ""),
            Breakage::NoSignature => (Some(Code::SourceStatus), ""),
            Breakage::UnknownKey => (Some(Code::KeyUnknown), "newer ISO"),
            Breakage::DupKeySig => unreachable!("see above"),
            Breakage::OtherRelease => (Some(Code::WrongRelease), "99.0.0"),
            Breakage::OldSequence => (Some(Code::Downgrade), "sequence"),
            Breakage::PathDotdot | Breakage::PathAbsolute => (Some(Code::ManifestInvalid), "M12"),
            Breakage::PathCase | Breakage::DuplicatePath => (Some(Code::ManifestInvalid), "M11"),
            Breakage::DuplicateKey => (Some(Code::ManifestInvalid), "`release` comes twice"),
            Breakage::NewerSchema => (Some(Code::ManifestInvalid), "newer installer"),
        };
        let lines = report.lines().join("\n");
        assert_eq!(report.verdict.as_ref().err().map(|r| r.fault.code), code, "{how:?}: {lines}");
        assert!(lines.contains(finding), "{how:?}: {lines}");
    }
}

#[test]
fn two_keys_that_must_sign_are_not_one_key_in_two_files() {
    let desk = Desk::new();
    let second = SecretKey::from_seed([8; 32], *b"\x02releasK");
    fs::write(desk.at("keys/b.pub"), second.public_text()).unwrap();
    fs::write(desk.at("keys/threshold"), "2\n").unwrap();
    let release = desk.made("r");
    let first = SecretKey::parse(&desk.key.secret_text()).unwrap();
    sign(&release, &[first, second]).unwrap();
    assert!(desk.check(&release).good());
    break_release(&release, Breakage::DupKeySig, &[], &desk.at("dup")).unwrap();
    let report = desk.check(&desk.at("dup"));
    assert_eq!(report.verdict.unwrap_err().fault.code, Code::KeyUnknown);
}

#[test]
fn a_release_is_checked_for_the_machine_that_is_named() {
    let desk = Desk::new();
    let release = desk.signed("r");
    let against = |from: Option<&str>, to: Option<&str>| Against {
        os_keys: desk.at("keys"),
        from: from.map(str::to_owned),
        from_sequence: 0,
        to: to.map(str::to_owned),
    };
    let code = |against| check(&release, &against).unwrap().verdict.err().map(|refusal| refusal.fault.code);
    assert_eq!(code(against(None, None)), None);
    assert_eq!(code(against(Some("0.5.0"), Some("0.7.0"))), None);
    assert_eq!(code(against(Some("0.4.0"), None)), Some(Code::TooOld));
    assert_eq!(code(against(Some("0.8.0"), None)), Some(Code::Downgrade));
    assert_eq!(code(against(Some("0.6.0"), Some("0.8.0"))), Some(Code::WrongRelease));
    assert!(check(&release, &against(Some("soon"), None)).is_err());
    let gone = Against { os_keys: desk.at("none"), ..against(None, None) };
    let error = format!("{:#}", check(&release, &gone).unwrap_err());
    assert!(error.contains("--os-keys") && error.contains("no release key"), "{error}");
}

#[test]
fn a_damaged_manifest_is_not_signed() {
    let desk = Desk::new();
    let release = desk.made("r");
    let path = release.join("payload/manifest.json");
    let text = fs::read_to_string(&path).unwrap().replace("\"raw\"", "\"zstd\"");
    fs::write(&path, text).unwrap();
    let error = sign(&release, std::slice::from_ref(&desk.key)).unwrap_err().to_string();
    assert!(error.contains("not signed") && error.contains("M18"), "{error}");
    assert_eq!(fs::read_dir(release.join("payload")).unwrap().count(), 1);
}

#[test]
fn an_image_in_the_oci_form_is_taken_with_every_blob() {
    let desk = Desk::new();
    let oci = desk.at("oci");
    fs::create_dir_all(oci.join("blobs/sha256")).unwrap();
    let put = |bytes: &[u8]| {
        let digest = Digest::of(bytes);
        fs::write(oci.join(format!("blobs/sha256/{digest}")), bytes).unwrap();
        digest
    };
    put(b"a layer\n");
    let image = put(b"{}\n");
    fs::write(oci.join("oci-layout"), "{\"imageLayoutVersion\":\"1.0.0\"}").unwrap();
    let index = |digest: &str| format!("{{\"schemaVersion\":2,\"manifests\":[{{\"digest\":\"{digest}\"}}]}}");
    fs::write(oci.join("index.json"), index(&format!("sha256:{image}"))).unwrap();
    let spec = Spec { ab: None, oci: Some(oci.clone()), ..desk.spec() };
    make(&spec, &desk.at("r")).unwrap();
    sign(&desk.at("r"), std::slice::from_ref(&desk.key)).unwrap();
    let report = desk.check(&desk.at("r"));
    assert!(report.good(), "{:?}", report.lines());
    let verified = report.verdict.unwrap();
    assert_eq!(verified.manifest().oci.as_ref().unwrap().image_digest, image);
    assert_eq!(verified.wanted(Form::Oci).len(), 5);

    fs::write(oci.join("index.json"), index(&format!("sha256:{}", "0".repeat(64)))).unwrap();
    let error = make(&spec, &desk.at("x")).unwrap_err().to_string();
    assert!(error.contains("not among its blobs"), "{error}");
    fs::write(oci.join("index.json"), index(&format!("sha256:{image}"))).unwrap();
    fs::write(oci.join("blobs/sha256").join("0".repeat(64)), "another\n").unwrap();
    let error = make(&spec, &desk.at("x")).unwrap_err().to_string();
    assert!(error.contains("not named by its SHA-256"), "{error}");
}

#[test]
fn a_new_key_is_private_and_never_written_over_another() {
    let desk = Desk::new();
    let (key, path) = keygen(&desk.at("new/keys"), "rel").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(SecretKey::read(&path).unwrap().id(), key.id());
    let before = tree(&desk.at("new/keys"));
    assert!(keygen(&desk.at("new/keys"), "rel").unwrap_err().to_string().contains("never written over"));
    fs::remove_file(&path).unwrap();
    assert!(keygen(&desk.at("new/keys"), "rel").is_err());
    assert_eq!(tree(&desk.at("new/keys")), before[1..]);
    assert!(keygen(&desk.at("new/keys"), "../rel").is_err());
    let (other, _) = keygen(&desk.at("new/keys"), "other").unwrap();
    assert_ne!(other.public_text(), key.public_text());
}

#[test]
fn a_key_that_was_damaged_or_has_a_password_does_not_sign() {
    let text = SecretKey::from_seed([7; 32], [1; 8]).secret_text();
    let line = text.lines().nth(1).unwrap();
    let bytes = data_encoding::BASE64.decode(line.as_bytes()).unwrap();
    let with = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        format!("untrusted comment: x\n{}\n", data_encoding::BASE64.encode(&bytes))
    };
    let error = |text: &str| SecretKey::parse(text).map(drop).unwrap_err().to_string();
    // The key derivation of a password; the seed; the public half; the checksum.
    assert!(error(&with(2, b'S')).contains("has a password"));
    for at in [62, 94, 126] {
        assert!(error(&with(at, bytes[at] ^ 1)).contains("damaged"), "{at}");
    }
    assert!(error("").contains("no second line"));
}

/// `lab-founder release` with these arguments, in `dir`.
fn release(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab-founder"));
    command.arg("release").args(args).current_dir(dir).env_remove("SOURCE_DATE_EPOCH");
    command.stdin(Stdio::null()).output().unwrap()
}

#[test]
fn on_the_command_line_a_check_that_finds_something_ends_with_1_and_a_line_for_each() {
    let desk = Desk::new();
    let dir = desk.dir.path();
    let make = |more: &[&str]| {
        let common =
            ["make", "--out", "r", "--release", "0.7.0", "--sequence", "70", "--min-upgrade-from", "0.5.0"];
        let files = ["--root", "root", "--fstype", "erofs", "--linux", "linux", "--arch", "x86_64"];
        release(dir, &[&common[..], &files, more].concat())
    };
    let out = make(&[]);
    assert!(String::from_utf8_lossy(&out.stderr).contains("SOURCE_DATE_EPOCH"), "{out:?}");
    assert_eq!(make(&["--created", "yesterday"]).status.code(), Some(1));
    let out = make(&["--created", "2026-11-29T00:00:00Z", "--sysext", "ceph=ceph,optional"]);
    assert!(out.status.success(), "{out:?}");
    assert!(release(dir, &["sign", "r", "--key", "a.key"]).status.success());
    let check = |from: &str| {
        let out = release(dir, &["check", "r", "--os-keys", "keys", "--from", from]);
        (out.status.code(), String::from_utf8(out.stdout).unwrap())
    };
    let (code, text) = check("0.6.0");
    assert_eq!(code, Some(0));
    assert!(text.starts_with("good: stratum 0.7.0 x86_64, sequence 70, from 0.5.0 up; 3 files"), "{text}");
    fs::write(desk.at("r/sysext/ceph.raw"), "SYSEXT\n").unwrap();
    fs::write(desk.at("r/os/stray"), "x").unwrap();
    let (code, text) = check("0.4.0");
    assert_eq!(code, Some(1));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(lines[0].starts_with("TOO_OLD M10: 0.7.0 accepts upgrades from 0.5.0"), "{text}");
    assert!(
        lines[1].contains("sysext/ceph.raw differs") && lines[2].contains("os/stray is not in"),
        "{text}"
    );
}

#[test]
fn minisign_accepts_what_we_sign_and_reads_our_keys() {
    let desk = Desk::new();
    let release = desk.signed("r");
    let verify = ["-V", "-m", "payload/manifest.json", "-p", "../keys/a.pub"];
    let Some(out) = minisign(&release, &verify) else { return };
    assert!(out.status.success(), "{out:?}");
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(said.contains("stratum-release/1 product=stratum release=0.7.0 arch=x86_64"), "{said}");
    // It signs with the secret key that we wrote, and gets the same signature: Ed25519 has only one.
    let ours = fs::read(release.join("payload/manifest.json.minisig")).unwrap();
    let comment = "stratum-release/1 product=stratum release=0.7.0 arch=x86_64";
    let args = ["-S", "-s", "../a.key", "-m", "payload/manifest.json", "-x", "theirs", "-t", comment];
    let out = minisign(&release, &args).unwrap();
    assert!(out.status.success(), "{out:?}");
    assert_eq!(fs::read(release.join("theirs")).unwrap(), ours);
}

#[test]
fn minisign_finds_the_committed_example_good() {
    let Some(out) = minisign(Path::new(OK), &["-V", "-m", "manifest.json", "-p", "release.pub"]) else {
        return;
    };
    assert!(out.status.success(), "{out:?}");
}

/// With keys that minisign made, by the commands that `sign --print-minisign` prints.
#[test]
fn we_accept_what_minisign_signs_unless_it_signs_the_old_way() {
    let desk = Desk::new();
    let release = desk.made("r");
    fs::remove_dir_all(desk.at("keys")).unwrap();
    fs::create_dir(desk.at("keys")).unwrap();
    for name in ["one", "two"] {
        let (public, secret) = (format!("keys/{name}.pub"), format!("keys/{name}.key"));
        let args = ["-G", "-W", "-p", &public, "-s", &secret];
        let Some(out) = minisign(desk.dir.path(), &args) else { return };
        assert!(out.status.success(), "{out:?}");
        SecretKey::read(&desk.at(&secret)).unwrap();
    }
    fs::write(desk.at("keys/threshold"), "2").unwrap();
    let keys = [desk.at("keys/one.key"), desk.at("keys/two.key")];
    let script = print_minisign(&release, &keys).unwrap();
    let out = Command::new("sh").args(["-e", "-c", &script]).stdin(Stdio::null()).output().unwrap();
    assert!(out.status.success(), "{script}\n{out:?}");
    let report = desk.check(&release);
    assert!(report.good(), "{:?}", report.lines());
    assert_eq!(report.verdict.unwrap().signatures().len(), 2);

    let out =
        Command::new("sh").args(["-e", "-c", &script.replace("minisign -S ", "minisign -S -l ")]).output();
    assert!(out.unwrap().status.success());
    assert_eq!(desk.check(&release).verdict.unwrap_err().fault.code, Code::SigBad);
}
