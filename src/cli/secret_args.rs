//! A join code on the command line can be read by every user. It is taken off it at once: the program starts itself anew with the code on
//! standard input.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// What is said when a code stood on the command line.
pub const WARNING: &str = "warning: the code was on the command line, where other users can see it; --code-file or stdin keeps it private";

/// The options that carry a secret, and what stands in their place.
const SECRET: [(&str, [&str; 2]); 2] = [("--code", ["--code-file", "-"]), ("--url", ["--url", "-"])];

/// The command line without its secret, and the secret. `None` when there is none to hide.
fn hide(args: &[OsString]) -> Option<(Vec<OsString>, OsString)> {
    for (place, arg) in args.iter().enumerate() {
        let text = arg.to_str()?;
        for (name, instead) in SECRET {
            let (value, taken) = match text.strip_prefix(name) {
                Some("") => (args.get(place + 1)?.clone(), 2),
                Some(rest) if rest.starts_with('=') => (OsString::from(&rest[1..]), 1),
                _ => continue,
            };
            if value == "-" {
                return None;
            }
            let mut plain = args[..place].to_vec();
            plain.extend(instead.map(OsString::from));
            plain.extend_from_slice(&args[place + taken..]);
            return Some((plain, value));
        }
    }
    None
}

/// Starts this program anew without the secret in its arguments. Returns when there was none, or when that cannot be done.
pub fn take_off_the_command_line() {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let Some((plain, secret)) = hide(&args) else { return };
    let Ok(program) = std::env::current_exe() else { return };
    let Ok((reader, mut writer)) = std::io::pipe() else { return };
    // A code or URL is far smaller than a pipe.
    if secret.len() > 4096 || writer.write_all(secret.as_encoded_bytes()).is_err() {
        return;
    }
    drop(writer);
    if plain.iter().any(|arg| arg == "--code-file") {
        eprintln!("{WARNING}");
    }
    // Only returns when it failed; then the code stays where it was, which the warning has said.
    let _ = Command::new(program).args(plain).stdin(Stdio::from(reader)).exec();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden(args: &[&str]) -> Option<(Vec<String>, String)> {
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        let (plain, secret) = hide(&args)?;
        let text = |t: OsString| t.into_string().unwrap();
        Some((plain.into_iter().map(text).collect(), text(secret)))
    }

    #[test]
    fn the_code_leaves_the_command_line_in_both_spellings() {
        for args in [&["join", "--code", "SECRET", "--check"][..], &["join", "--code=SECRET", "--check"][..]]
        {
            let (plain, secret) = hidden(args).unwrap();
            assert_eq!(plain, ["join", "--code-file", "-", "--check"]);
            assert_eq!(secret, "SECRET");
        }
        assert_eq!(hidden(&["join", "--url", "x"]).unwrap().0, ["join", "--url", "-"]);
    }

    #[test]
    fn a_command_line_without_a_secret_is_left_alone() {
        assert!(hidden(&["join", "--check"]).is_none());
        assert!(hidden(&["join", "--url", "-"]).is_none());
        assert!(hidden(&["join", "--code-file", "f"]).is_none());
    }
}
