//! The machine's firstboot: the stand-in behind a script that writes down every start, and what a power cut does to it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::{Machine, PATIENCE, bin, wait};

/// Writes the script that the agent starts: it notes which attempt it is, then becomes the stand-in.
pub fn install(root: &Path) {
    let script = root.join("firstboot");
    let text = format!(
        "#!/bin/sh\n# firstboot --config <root>/etc/stratum/node.yaml\nroot=${{2%/etc/stratum/node.yaml}}\n\
         # One write: a power cut leaves the line or none.\n\
         printf '%s\\n' \"$(cat \"$root/run/stratum/delivery/attempt.json\")\" >> \"$root/firstboot.starts\"\n\
         exec {:?} \"$@\"\n",
        bin("firstboot-stand-in")
    );
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
}

impl Machine {
    /// The attempts that firstboot was started for, in order. One that was started twice is there twice.
    pub fn starts(&self) -> Vec<u64> {
        let text = fs::read_to_string(self.path("firstboot.starts")).unwrap_or_default();
        text.lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["attempt"].as_u64().unwrap())
            .collect()
    }

    /// What the stand-in does from its next start on (options of tests/stand-in).
    pub fn firstboot_does(&self, options: &str) {
        let dir = self.path("etc/stratum");
        fs::create_dir_all(&dir).unwrap();
        // The stand-in may read it at any moment: it sees the old text or the new one.
        fs::write(dir.join(".stand-in.new"), options).unwrap();
        fs::rename(dir.join(".stand-in.new"), dir.join("stand-in")).unwrap();
    }

    /// Kills firstboot, its runner and what they started: every process whose command line names this machine's delivery or run.
    pub fn kill_firstboot(&self) {
        let run = self.path("run/stratum/firstboot").display().to_string();
        let config = self.path("etc/stratum/node.yaml").display().to_string();
        // A runner may be about to start the next process: look again until there is none.
        let gone = wait::until(PATIENCE, || {
            let pids = processes_with(&[&run, &config]);
            for pid in &pids {
                let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
            }
            pids.is_empty().then_some(())
        });
        assert!(gone.is_some(), "firstboot does not die");
    }

    /// Kills firstboot's own process; its runner lives and sees it.
    pub fn kill_firstboot_itself(&self) {
        let config = self.path("etc/stratum/node.yaml").display().to_string();
        for pid in processes_with(&[&config]) {
            let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            if !line.contains("stratum-firstboot-runner") {
                kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
            }
        }
    }

    /// A power cut and a boot: nothing runs, what was on tmpfs is gone, the kernel has another boot id.
    pub fn reboot(&mut self) {
        self.kill();
        self.kill_firstboot();
        let _ = fs::remove_dir_all(self.path("run"));
        self.boots += 1;
        self.set_env("STRATUM_BOOT_ID", format!("{:032x}", self.boots));
    }
}

fn processes_with(words: &[&str]) -> Vec<i32> {
    let pids =
        fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        words.iter().any(|word| line.contains(word))
    })
    .collect()
}
