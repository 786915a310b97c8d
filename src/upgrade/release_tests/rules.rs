//! Rules M5 to M20: each case is the committed manifest with one change, signed well.

use serde_json::json;

use super::*;

/// What is changed, which rule that breaks, and how.
type Case = (&'static str, Rule, fn(&mut Value));

/// Another file of one byte, where it belongs in the order.
pub(super) fn add_file(m: &mut Value, path: &str) -> usize {
    let digest = super::super::Digest::of(path.as_bytes()).to_string();
    put(m, json!({ "path": path, "size": 1, "sha256": digest }))
}

fn put(m: &mut Value, file: Value) -> usize {
    let path = file["path"].as_str().unwrap().to_owned();
    let files = m["files"].as_array_mut().unwrap();
    let at = files.partition_point(|f| f["path"].as_str().unwrap() <= path.as_str());
    files.insert(at, file);
    at
}

fn set_path(m: &mut Value, path: &str) {
    add_file(m, path);
}

/// The two-chunk root image.
fn root(m: &mut Value) -> &mut Value {
    &mut m["files"][2]
}

const CASES: &[Case] = &[
    ("a newer schema", Rule::M6, |m| m["schema"] = json!("stratum.release/2")),
    ("a schema of no number", Rule::M6, |m| m["schema"] = json!("stratum.release/x")),
    ("a critical field that is unknown", Rule::M6, |m| m["critical"] = json!(["files", "delta"])),
    ("a schema of something else", Rule::M7, |m| m["schema"] = json!("other/1")),
    ("no schema", Rule::M7, |m| drop(m.as_object_mut().unwrap().remove("schema"))),
    ("no critical", Rule::M7, |m| drop(m.as_object_mut().unwrap().remove("critical"))),
    ("no product", Rule::M7, |m| drop(m.as_object_mut().unwrap().remove("product"))),
    ("no files", Rule::M7, |m| drop(m.as_object_mut().unwrap().remove("files"))),
    ("no os", Rule::M7, |m| drop(m.as_object_mut().unwrap().remove("os"))),
    ("a release that is a number", Rule::M7, |m| m["release"] = json!(7)),
    ("a release with a build", Rule::M7, |m| m["release"] = json!("0.7.0+1")),
    ("a release with a v", Rule::M7, |m| m["release"] = json!("v0.7.0")),
    ("a release of two numbers", Rule::M7, |m| m["release"] = json!("0.7")),
    ("a release of 33 bytes", Rule::M7, |m| m["release"] = json!(format!("0.7.0-{}", "a".repeat(27)))),
    ("a number of six digits", Rule::M7, |m| m["minUpgradeFrom"] = json!("0.100000.0")),
    ("a sequence of 0", Rule::M7, |m| m["sequence"] = json!(0)),
    ("a sequence below 0", Rule::M7, |m| m["sequence"] = json!(-1)),
    ("a sequence of 2^53", Rule::M7, |m| m["sequence"] = json!(1_u64 << 53)),
    ("a sequence as text", Rule::M7, |m| m["sequence"] = json!("70")),
    ("created null", Rule::M7, |m| m["created"] = Value::Null),
    ("a created of 257 bytes", Rule::M7, |m| m["created"] = json!("x".repeat(257))),
    ("another chunkSize", Rule::M7, |m| m["chunkSize"] = json!(1_048_576)),
    ("files as an object", Rule::M7, |m| m["files"] = json!({})),
    ("an os as the list of its values", Rule::M7, |m| m["os"] = json!(["0.7.0", m["os"]["ab"], null])),
    ("a size as text", Rule::M7, |m| m["files"][0]["size"] = json!("7")),
    ("a file without a size", Rule::M7, |m| drop(m["files"][0].as_object_mut().unwrap().remove("size"))),
    ("required as text", Rule::M7, |m| m["sysexts"][0]["required"] = json!("yes")),
    ("an image digest of no form", Rule::M7, |m| m["os"]["oci"] = oci("sha512:00")),
    ("another product", Rule::M8, |m| m["product"] = json!("granite")),
    ("another processor", Rule::M8, |m| m["arch"] = json!("aarch64")),
    ("no file", Rule::M11, |m| m["files"] = json!([])),
    ("4097 files", Rule::M11, |m| {
        let file = |n| json!({ "path": format!("os/{n:05}"), "size": 1, "sha256": "0".repeat(64) });
        m["files"] = (0..4097).map(file).collect();
    }),
    ("files in another order", Rule::M11, |m| m["files"].as_array_mut().unwrap().swap(0, 1)),
    ("one file twice", Rule::M11, |m| _ = put(m, m["files"][3].clone())),
    ("two paths that case alone tells apart", Rule::M11, |m| set_path(m, "sysext/STRATUM-ceph.raw")),
    ("a path from the root", Rule::M12, |m| set_path(m, "/etc/passwd")),
    ("a path that climbs", Rule::M12, |m| set_path(m, "os/../../etc/passwd")),
    ("a path that stands still", Rule::M12, |m| set_path(m, "os/./x")),
    ("a path with an empty segment", Rule::M12, |m| set_path(m, "os//x")),
    ("a path that ends in a slash", Rule::M12, |m| set_path(m, "os/x/")),
    ("a path with a backslash", Rule::M12, |m| set_path(m, "os\\x")),
    ("a path with a percent", Rule::M12, |m| set_path(m, "os/%2e%2e")),
    ("a path with a space", Rule::M12, |m| set_path(m, "os/a b")),
    ("a path with a tilde", Rule::M12, |m| set_path(m, "os/~root")),
    ("a path beyond ASCII", Rule::M12, |m| set_path(m, "os/\u{e4}")),
    ("a path with a line end", Rule::M12, |m| set_path(m, "os/a\nb")),
    ("a hidden path", Rule::M12, |m| set_path(m, "os/.x")),
    ("a path that is an option", Rule::M12, |m| set_path(m, "os/-rf")),
    ("a path of seven segments", Rule::M12, |m| set_path(m, "os/2/3/4/5/6/7")),
    ("a segment of 129 bytes", Rule::M12, |m| set_path(m, &format!("os/{}", "a".repeat(129)))),
    ("a path of 256 bytes", Rule::M12, |m| {
        set_path(m, &format!("os/{}/{}", "a".repeat(126), "b".repeat(126)));
    }),
    ("an empty path", Rule::M12, |m| set_path(m, "")),
    ("a path in another place", Rule::M13, |m| set_path(m, "etc/passwd")),
    ("a path in the payload", Rule::M13, |m| set_path(m, "payload/manifest.json")),
    ("a place without a file", Rule::M13, |m| set_path(m, "os")),
    ("a file that is a directory, too", Rule::M13, |m| {
        set_path(m, "os/x");
        set_path(m, "os/x.y");
        set_path(m, "os/x/y");
    }),
    ("a file of 0 bytes", Rule::M14, |m| m["files"][0]["size"] = json!(0)),
    ("a file of more than 64 GiB", Rule::M14, |m| root(m)["size"] = json!((64_u64 << 30) + 1)),
    ("files of more than 64 GiB together", Rule::M14, |m| root(m)["size"] = json!(64_u64 << 30)),
    ("a size near the end of numbers", Rule::M14, |m| root(m)["size"] = json!(u64::MAX)),
    ("a digest of 63 digits", Rule::M15, |m| {
        let digest = m["files"][3]["sha256"].as_str().unwrap()[1..].to_owned();
        m["files"][3]["sha256"] = json!(digest);
    }),
    ("a digest in upper case", Rule::M15, |m| {
        let digest = m["files"][3]["sha256"].as_str().unwrap().to_uppercase();
        m["files"][3]["sha256"] = json!(digest);
    }),
    ("a digest with two sizes", Rule::M15, |m| {
        m["files"][3]["sha256"] = m["files"][0]["sha256"].clone();
        m["files"][3]["size"] = json!(8);
    }),
    ("a blob of another name", Rule::M15, |m| m["files"][0]["sha256"] = json!("0".repeat(64))),
    ("chunks of a small file", Rule::M16, |m| m["files"][3]["chunks"] = json!("AAAA")),
    ("no chunks of a large file", Rule::M16, |m| drop(root(m).as_object_mut().unwrap().remove("chunks"))),
    ("chunks that are no base64", Rule::M16, |m| root(m)["chunks"] = json!("!!!!")),
    ("chunks in another base64", Rule::M16, |m| {
        let text = root(m)["chunks"].as_str().unwrap().replace('/', "_").replace('+', "-");
        root(m)["chunks"] = json!(text);
    }),
    ("chunks with other padding bits", Rule::M16, |m| {
        let text = root(m)["chunks"].as_str().unwrap().replace("FQ==", "FR==");
        root(m)["chunks"] = json!(text);
    }),
    ("one chunk too few", Rule::M16, |m| {
        root(m)["chunks"] = json!("u5+N9hR00l5x+gByIxjNOHOWyhc2YF4SSIIcwN49Ovg=");
    }),
    ("neither form", Rule::M17, |m| m["os"] = json!({ "versionId": "0.7.0" })),
    ("an OS of another version", Rule::M17, |m| m["os"]["versionId"] = json!("0.6.0")),
    ("a kernel that is no file", Rule::M17, |m| m["os"]["ab"]["linux"] = json!("os/none")),
    ("a root that is no file", Rule::M17, |m| m["os"]["ab"]["root"]["path"] = json!("os/none")),
    ("an initrd that is no file", Rule::M17, |m| m["os"]["ab"]["initrds"] = json!(["../x"])),
    ("an extension that is no file", Rule::M17, |m| m["sysexts"][0]["path"] = json!("sysext/none.raw")),
    ("an index that is no file", Rule::M17, |m| m["os"]["oci"] = oci(&format!("sha256:{}", "0".repeat(64)))),
    ("a compressed root", Rule::M18, |m| m["os"]["ab"]["root"]["format"] = json!("zstd")),
    ("a root on another file system", Rule::M18, |m| m["os"]["ab"]["root"]["fstype"] = json!("btrfs")),
    ("another rawSize", Rule::M18, |m| m["os"]["ab"]["root"]["rawSize"] = json!(4_194_304)),
    ("another rawSha256", Rule::M18, |m| m["os"]["ab"]["root"]["rawSha256"] = json!("0".repeat(64))),
    ("five initrds", Rule::M19, |m| {
        let initrd = m["os"]["ab"]["initrds"][0].clone();
        m["os"]["ab"]["initrds"] = json!([initrd, initrd, initrd, initrd, initrd]);
    }),
    ("17 arguments", Rule::M19, |m| m["os"]["ab"]["cmdline"] = json!(vec!["quiet"; 17])),
    ("an argument with a space", Rule::M19, |m| m["os"]["ab"]["cmdline"] = json!(["a b"])),
    ("an empty argument", Rule::M19, |m| m["os"]["ab"]["cmdline"] = json!([""])),
    ("an argument with a quote", Rule::M19, |m| m["os"]["ab"]["cmdline"] = json!(["a=\"b\""])),
    ("an argument of two signs", Rule::M19, |m| m["os"]["ab"]["cmdline"] = json!(["a=b=c"])),
    ("another init", Rule::M19, |m| m["os"]["ab"]["cmdline"] = json!(["init=/bin/sh"])),
    ("another root", Rule::M19, |m| m["os"]["ab"]["cmdline"] = json!(["root=/dev/sda1"])),
    ("a root shell", Rule::M19, |m| m["os"]["ab"]["cmdline"] = json!(["rd.break"])),
    ("a debug shell, spelt with a dash", Rule::M19, |m| {
        m["os"]["ab"]["cmdline"] = json!(["systemd.debug-shell=1"]);
    }),
    ("our own arguments", Rule::M19, |m| m["os"]["ab"]["cmdline"] = json!(["stratum.slot=a"])),
    ("33 extensions", Rule::M20, |m| {
        let ext = m["sysexts"][0].clone();
        m["sysexts"] = (0..33).map(|_| ext.clone()).collect();
    }),
    ("an extension in capitals", Rule::M20, |m| m["sysexts"][0]["name"] = json!("Ceph")),
    ("an extension that begins with a dash", Rule::M20, |m| m["sysexts"][0]["name"] = json!("-ceph")),
    ("an extension of 64 bytes", Rule::M20, |m| m["sysexts"][0]["name"] = json!("a".repeat(64))),
    ("an extension without a name", Rule::M20, |m| m["sysexts"][0]["name"] = json!("")),
    ("one extension twice", Rule::M20, |m| {
        let ext = m["sysexts"][0].clone();
        m["sysexts"] = json!([ext, ext]);
    }),
    ("an extension among the blobs", Rule::M20, |m| m["sysexts"][0]["path"] = m["files"][0]["path"].clone()),
    ("an extension for another OS", Rule::M20, |m| m["sysexts"][0]["versionId"] = json!("0.6.0")),
];

/// Changes of the text, which no JSON value can hold.
const TEXTS: &[(&str, &str, &str)] = &[
    ("a key twice", "\"release\":", "\"release\": \"0.7.0\",\n  \"release\":"),
    ("a key twice, once escaped", "\"release\":", "\"\\u0072elease\": \"0.7.0\",\n  \"release\":"),
    ("a key twice deep inside", "\"linux\":", "\"linux\": \"x\", \"linux\":"),
    ("a fraction", "\"sequence\": 70", "\"sequence\": 70.0"),
    ("an exponent", "\"sequence\": 70", "\"sequence\": 7e1"),
    ("an exponent in a field that nobody reads", "\"sequence\"", "\"x\": 1e400, \"sequence\""),
    ("a NUL in a string", "\"quiet\"", "\"qui\\u0000et\""),
    ("half a character", "\"quiet\"", "\"\\ud800\""),
    ("a comment", "\"sequence\"", "// no\n \"sequence\""),
    ("a comma too many", "\"notAfter\": null,", "\"notAfter\": null,,"),
    ("a second value", "\n}\n", "\n}\n{}"),
];

fn oci(digest: &str) -> Value {
    json!({ "layout": "os/oci-layout", "index": "os/index.json", "imageDigest": digest, "blobs": [] })
}

#[test]
fn each_rule_refuses_each_thing_that_breaks_it() {
    for (name, rule, change) in CASES {
        let mut manifest = example();
        change(&mut manifest);
        let refusal = judge(&manifest.to_string()).map(drop).expect_err(name);
        let code = if *rule == Rule::M8 { Code::WrongRelease } else { Code::ManifestInvalid };
        assert_eq!((refusal.rule, refusal.fault.code), (*rule, code), "{name}: {refusal}");
        reads_well(&refusal);
    }
}

#[test]
fn a_text_that_two_readers_could_read_in_two_ways_is_refused() {
    let example = std::str::from_utf8(EXAMPLE).unwrap();
    for (name, from, to) in TEXTS {
        assert!(example.contains(from), "{name}");
        let text = example.replacen(from, to, 1);
        let refusal = judge(&text).map(drop).expect_err(name);
        assert_eq!(refusal.rule, Rule::M5, "{name}: {refusal}");
        reads_well(&refusal);
    }
    let deep = example.replacen("\"quiet\"", &format!("{}{}", "[".repeat(13), "]".repeat(13)), 1);
    assert_eq!(judge(&deep).unwrap_err().rule, Rule::M5);
    let mut latin = example.as_bytes().to_vec();
    let at = example.find("quiet").unwrap();
    latin[at] = 0xe4;
    let signature = sign_text(&key(b'A'), &latin, COMMENT);
    let signatures = found(&[(SignatureName::Primary, signature.as_bytes())]);
    let refusal = verify(&machine(ring(b"A", 1)), &latin, Kind::File, &signatures).unwrap_err();
    assert_eq!(refusal.rule, Rule::M5);
}

/// An older agent has to read what a newer maker adds.
#[test]
fn what_is_not_known_and_not_critical_is_passed_over() {
    let mut manifest = example();
    manifest["delta"] = json!({ "from": ["0.6.0"], "notes": "x".repeat(1000), "nothing": null });
    manifest["files"][0]["zstd"] = json!(true);
    manifest["os"]["uki"] = json!([]);
    manifest["critical"] = json!(["files", "os", "sequence"]);
    judge(&manifest.to_string()).unwrap();
}

#[test]
fn a_release_may_be_as_large_as_the_rules_allow() {
    let mut manifest = example();
    for n in 0..4092 {
        add_file(&mut manifest, &format!("os/{n:05}"));
    }
    manifest["os"]["ab"]["cmdline"] = json!(vec!["a=1"; 16]);
    set_path(&mut manifest, "os/x");
    manifest["files"].as_array_mut().unwrap().retain(|file| file["path"] != "os/x");
    assert_eq!(judge(&manifest.to_string()).unwrap().manifest().files.len(), 4096);
}

#[test]
fn optional_extensions_and_files_that_nothing_names_are_not_fetched() {
    let mut manifest = example();
    manifest["sysexts"][0]["required"] = json!(false);
    add_file(&mut manifest, "os/extra");
    let verified = judge(&manifest.to_string()).unwrap();
    let wanted: Vec<&str> = verified.wanted(Form::Ab).iter().map(|file| file.path.as_str()).collect();
    assert_eq!(wanted.len(), 3);
    assert!(wanted.iter().all(|path| path.starts_with("os/blobs/")), "{wanted:?}");
    assert!(verified.wanted(Form::Oci).is_empty());
}

#[test]
fn the_form_with_blobs_needs_its_index_and_every_blob() {
    let mut manifest = example();
    let blob = manifest["files"][0]["path"].clone();
    add_file(&mut manifest, "os/index.json");
    add_file(&mut manifest, "os/oci-layout");
    manifest["os"]["oci"] = oci(&format!("sha256:{}", "a".repeat(64)));
    manifest["os"]["oci"]["blobs"] = json!([blob, blob]);
    let verified = judge(&manifest.to_string()).unwrap();
    let wanted: Vec<&str> = verified.wanted(Form::Oci).iter().map(|file| file.path.as_str()).collect();
    let blob = blob.as_str().unwrap();
    assert_eq!(wanted, [blob, "os/index.json", "os/oci-layout", "sysext/stratum-ceph.raw"]);
}
