//! Names for what the raw read found: `wipefs`, if the machine has it.
//!
//! May touch: one child process, read-only (`--no-act`). Must never: decide anything. No name means no name, not "no
//! data".

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::holds::Token;
use crate::text::Text;

/// Where `wipefs` lives.
const PROGRAMS: [&str; 2] = ["/usr/sbin/wipefs", "/sbin/wipefs"];
/// Output that is read at most.
const MAX_OUTPUT: u64 = 1024 * 1024;
/// Time for one disk.
const DEADLINE: Duration = Duration::from_secs(10);

/// Names the signatures of a device. Only a name, never a verdict.
pub trait Namer {
    /// Distinct signature types by offset; empty when there is no answer.
    fn names(&self, node: &str) -> Vec<Token>;
}

/// `wipefs` of the running machine.
#[doc(hidden)]
#[derive(Debug)]
pub struct Wipefs {
    /// Where the nodes are: `/dev`; in tests a directory of image files.
    pub dir: PathBuf,
}

/// Nobody: for captured trees.
#[derive(Debug)]
pub(crate) struct NoNames;

impl Namer for NoNames {
    fn names(&self, _node: &str) -> Vec<Token> {
        Vec::new()
    }
}

// === impl Wipefs ===

impl Namer for Wipefs {
    fn names(&self, node: &str) -> Vec<Token> {
        let Some(program) = PROGRAMS.iter().find(|p| Path::new(p).exists()) else {
            return Vec::new();
        };
        let child = Command::new(program)
            .args(["--no-act", "--json", "--"])
            .arg(self.dir.join(node))
            .env_clear()
            .env("LC_ALL", "C")
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        child.ok().and_then(|c| output(c, DEADLINE)).map(|text| parse(&text)).unwrap_or_default()
    }
}

/// The output of `child` if it ends well within `deadline`; otherwise it is killed.
fn output(mut child: Child, deadline: Duration) -> Option<Vec<u8>> {
    let pipe = child.stdout.take()?;
    let (tell, told) = mpsc::channel();
    let reader = std::thread::Builder::new().name("wipefs".to_owned()).spawn(move || {
        let mut text = Vec::new();
        let read = pipe.take(MAX_OUTPUT).read_to_end(&mut text);
        let _ = tell.send(read.ok().map(|_| text));
    });
    let end = Instant::now() + deadline;
    let text = reader.ok().and_then(|_| told.recv_timeout(deadline).ok().flatten());
    // Its output is closed, so that it is about to exit; a child that hangs in the kernel is not waited for.
    while text.is_some() && Instant::now() < end {
        match child.try_wait() {
            Ok(Some(status)) => return if status.success() { text } else { None },
            Ok(None) => std::thread::sleep(Duration::from_millis(2)),
            Err(_) => return None,
        }
    }
    let _ = child.kill();
    let _ = child.try_wait();
    None
}

#[derive(Deserialize)]
struct Output {
    signatures: Vec<Signature>,
}

#[derive(Deserialize)]
struct Signature {
    offset: Option<String>,
    #[serde(rename = "type")]
    name: Option<String>,
}

/// Distinct types of `wipefs --json` in the order of their offsets. Anything odd is no answer.
pub(crate) fn parse(json: &[u8]) -> Vec<Token> {
    let Ok(output) = serde_json::from_slice::<Output>(json) else { return Vec::new() };
    let offset = |s: &Signature| {
        let text = s.offset.as_deref()?;
        u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
    };
    let mut signatures = output.signatures;
    signatures.sort_by_key(|s| offset(s).unwrap_or(u64::MAX));
    let mut names: Vec<Token> = Vec::new();
    for signature in signatures {
        if let Some(name) = signature.name.as_deref().and_then(Text::of)
            && !names.contains(&name)
        {
            names.push(name);
        }
    }
    names
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn types_come_once_in_the_order_of_their_offsets() {
        let json = br#"{"signatures":[{"device":"x","offset":"0x9ffe00","type":"gpt"},
            {"offset":"0x438","type":"ext4"},{"offset":"0x200","type":"gpt"},{"offset":null,"type":null}]}"#;
        assert_eq!(parse(json), ["gpt", "ext4"].map(|n| Text::of(n).unwrap()));
    }

    #[test]
    fn anything_odd_is_no_name() {
        for json in [&b""[..], b"{}", b"[]", b"{\"signatures\":{}}", b"\xff"] {
            assert!(parse(json).is_empty());
        }
    }

    #[test]
    fn a_child_that_does_not_end_is_given_up() {
        let child = Command::new("/bin/cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        assert_eq!(output(child, Duration::from_millis(20)), None);
    }
}
