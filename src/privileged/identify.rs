//! `identify-led`: the chassis light, which shows a person in front of a rack which machine this is.
//!
//! Runs one stock program with fixed arguments. It asks the board's management controller; whatever that does ends by itself.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use console::text::Safe;

use super::InProcess;
use crate::join::fault::{Code, Fault};
use crate::paths::Paths;

/// Where Debian and Fedora have it (package ipmitool).
const PROGRAM: &str = "usr/bin/ipmitool";
/// The kernel's list of management controllers (drivers/char/ipmi/ipmi_devintf.c); readable by everybody, also without the device nodes.
const CONTROLLERS: &str = "sys/class/ipmi";
/// How long it blinks, in seconds: a walk to the other end of the aisle.
const SECONDS: u64 = 60;
/// A controller that hangs must not keep a helper.
const PATIENCE: Duration = Duration::from_secs(10);

/// Whether this machine has a light that can be asked for: a management controller, and the program that speaks to it.
pub(crate) fn is_possible(paths: &Paths) -> bool {
    let controllers = std::fs::read_dir(paths.root().join(CONTROLLERS));
    controllers.is_ok_and(|mut list| list.next().is_some()) && paths.root().join(PROGRAM).is_file()
}

// === impl InProcess ===

impl InProcess {
    pub(super) async fn blink(&self) -> Result<(), Fault> {
        if !is_possible(&self.paths) {
            return Err(Fault::new(
                Code::Unsupported,
                "no light: there is no IPMI controller, or no ipmitool",
            ));
        }
        run(&self.paths.root().join(PROGRAM)).await
    }
}

async fn run(program: &Path) -> Result<(), Fault> {
    let failed = |why: String| Fault::new(Code::Local, format!("ipmitool chassis identify: {why}"));
    let child = tokio::process::Command::new(program)
        .args(["chassis", "identify", &SECONDS.to_string()])
        .env_clear()
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let done = tokio::time::timeout(PATIENCE, child).await;
    let done = done.map_err(|_| failed(format!("no answer in {} s", PATIENCE.as_secs())))?;
    let done = done.map_err(|error| failed(error.to_string()))?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    let last: Safe<120> = Safe::clean(said.lines().last().unwrap_or_default());
    Err(failed(if last.as_str().is_empty() { done.status.to_string() } else { last.to_string() }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::privileged::{FirstbootRunner, Privileged};

    /// A machine with a controller and a program that stands in for ipmitool: a real one needs the hardware.
    fn machine(stand_in: &str) -> (tempfile::TempDir, InProcess) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join(CONTROLLERS).join("ipmi0")).unwrap();
        std::fs::create_dir_all(dir.path().join("usr/bin")).unwrap();
        let program = dir.path().join(PROGRAM);
        std::fs::File::create(&program)
            .unwrap()
            .set_permissions(std::fs::Permissions::from_mode(0o755))
            .unwrap();
        std::io::Write::write_all(
            &mut std::fs::File::options().write(true).open(&program).unwrap(),
            format!("#!/bin/sh\n{stand_in}\n").as_bytes(),
        )
        .unwrap();
        let paths = Paths::under(dir.path());
        let verbs = InProcess::new(paths, FirstbootRunner::Unit, "b");
        (dir, verbs)
    }

    #[tokio::test]
    async fn the_light_is_asked_for_a_minute() {
        let (dir, verbs) = machine("echo \"$@\" > \"${0%/usr/bin/*}/asked\"");
        verbs.identify_led().await.unwrap();
        assert_eq!(std::fs::read_to_string(dir.path().join("asked")).unwrap(), "chassis identify 60\n");
    }

    #[tokio::test]
    async fn what_the_controller_says_against_it_is_told() {
        let (_dir, verbs) = machine("echo 'Could not open device' >&2; exit 1");
        let fault = verbs.identify_led().await.unwrap_err();
        assert_eq!(fault.detail.as_str(), "ipmitool chassis identify: Could not open device");
    }

    #[tokio::test]
    async fn a_machine_without_a_controller_has_no_light() {
        let (dir, verbs) = machine("exit 0");
        std::fs::remove_dir_all(dir.path().join("sys")).unwrap();
        assert_eq!(verbs.identify_led().await.unwrap_err().code, Code::Unsupported);
    }
}
