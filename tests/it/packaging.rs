//! What is installed beside the programs says what is so.

use std::path::Path;
use std::process::Command;

use stratum_join::config::{KEYS, Settings};
use stratum_join::paths::Paths;

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The file as if every setting in it had been uncommented: a `#` before a setting, none before a sentence, which is `# Text`.
fn uncommented(text: &str) -> String {
    let setting = |line: &str| {
        let mut rest = line.strip_prefix('#')?.chars();
        let first = rest.next()?;
        (first != ' ' || rest.next() == Some(' ')).then(|| line[1..].to_owned())
    };
    text.lines().map(|line| setting(line).unwrap_or_default() + "\n").collect()
}

fn load(text: &str) -> Settings {
    let root = tempfile::tempdir().unwrap();
    let paths = Paths::under(root.path());
    std::fs::create_dir_all(paths.etc_dir()).unwrap();
    std::fs::write(paths.etc_dir().join("join.yaml"), text).unwrap();
    Settings::load(&paths).unwrap()
}

#[test]
fn the_packaged_settings_are_the_defaults_before_and_after_they_are_uncommented() {
    let text = std::fs::read_to_string(repository().join("packaging/join.yaml")).unwrap();
    assert_eq!(load(&text), Settings::default());
    let settings = load(&uncommented(&text));
    assert_eq!(Settings { sources: Default::default(), ..settings }, Settings::default());
}

#[test]
fn every_setting_stands_in_the_packaged_file_and_in_its_manual() {
    let uncommented =
        uncommented(&std::fs::read_to_string(repository().join("packaging/join.yaml")).unwrap());
    let manual = std::fs::read_to_string(repository().join("packaging/manual/pages/join.yaml.5")).unwrap();
    for key in KEYS {
        let leaf = key.rsplit('.').next().unwrap();
        let given = |line: &str| line.trim_start().starts_with(&format!("{leaf}:"));
        assert!(uncommented.lines().any(given), "{key} is not in packaging/join.yaml");
        assert!(manual.contains(&format!(".B {key}\n")), "{key} is not in join.yaml(5)");
    }
}

#[test]
fn the_status_of_a_member_that_was_restarted_says_that_it_is_one() {
    let root = tempfile::tempdir().unwrap();
    let paths = Paths::under(root.path());
    let status = |output: &str| {
        let program = env!("CARGO_BIN_EXE_stratum-join");
        let out =
            Command::new(program).args(["status", "--output", output, "--root"]).arg(root.path()).output();
        let out = out.unwrap();
        (out.status.code(), String::from_utf8(out.stdout).unwrap())
    };
    assert_eq!(status("text").0, Some(3), "no agent has run here");
    std::fs::create_dir_all(paths.state_dir()).unwrap();
    std::fs::write(paths.joined_marker(), "").unwrap();
    let (exit, text) = status("text");
    assert!(exit == Some(0) && text.contains("has joined"), "{text}");
    assert_eq!(status("json"), (Some(0), "{\"state\":\"joined\"}\n".to_owned()));
}
