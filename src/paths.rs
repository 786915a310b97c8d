//! Every location on disk, once (the table "Files on a node" in ARCHITECTURE.md).
//!
//! Touches nothing: it only builds names. No other module may hold an absolute path of its own, so that a whole agent runs under a
//! temporary root.

use std::path::{Path, PathBuf};

/// The locations below one root: `/` on a node, a temporary directory in tests and in the demo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    root: PathBuf,
}

// === impl Paths ===

impl Paths {
    /// The real machine.
    pub fn system() -> Self {
        Self::under("/")
    }

    /// Everything below `root`.
    pub fn under(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The root itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whether this is the real machine. Only then may anything outside the files of this table be touched (a terminal's banner, login1).
    pub fn is_system(&self) -> bool {
        self.root == Path::new("/")
    }

    fn at(&self, below: &str) -> PathBuf {
        self.root.join(below)
    }

    // --- settings, root's ---

    /// Directories that may hold `join.yaml` and `join.d/*.yaml`, weakest first.
    pub fn config_dirs(&self) -> [PathBuf; 3] {
        [self.at("usr/lib/stratum"), self.at("run/stratum"), self.at("etc/stratum")]
    }

    /// `/etc/stratum`: root 0755.
    pub fn etc_dir(&self) -> PathBuf {
        self.at("etc/stratum")
    }

    /// `/etc/stratum/install.yaml`: the install record of stage 1.
    pub fn install_record(&self) -> PathBuf {
        self.at("etc/stratum/install.yaml")
    }

    /// `/etc/stratum/node.yaml`: delivered, root 0600. Secret.
    pub fn node_yaml(&self) -> PathBuf {
        self.at("etc/stratum/node.yaml")
    }

    // --- the OS image's ---

    /// `/usr/share/stratum/release-keys.d`: the public keys that may sign a release, part of the read-only image.
    pub fn release_keys_dir(&self) -> PathBuf {
        self.at("usr/share/stratum/release-keys.d")
    }

    /// Where os-release(5) may be, in its order.
    pub fn os_release(&self) -> [PathBuf; 2] {
        [self.at("etc/os-release"), self.at("usr/lib/os-release")]
    }

    // --- /run/stratum, root's ---

    /// `/run/stratum`: root 0755.
    pub fn run_dir(&self) -> PathBuf {
        self.at("run/stratum")
    }

    /// `/run/stratum/delivery`: root 0700, tmpfs.
    pub fn delivery_dir(&self) -> PathBuf {
        self.at("run/stratum/delivery")
    }

    /// `/run/stratum/delivery/bundle.json`: delivered, root 0600. Secret.
    pub fn bundle(&self) -> PathBuf {
        self.at("run/stratum/delivery/bundle.json")
    }

    /// `/run/stratum/delivery/attempt.json`: which attempt was written in this boot.
    pub fn attempt(&self) -> PathBuf {
        self.at("run/stratum/delivery/attempt.json")
    }

    /// `/run/stratum/firstboot`: what the in-process runner knows of the firstboot it started. Root 0700. A node with systemd has none:
    /// there the unit knows.
    pub fn firstboot_dir(&self) -> PathBuf {
        self.at("run/stratum/firstboot")
    }

    /// `/run/stratum/helper.sock`.
    pub fn helper_socket(&self) -> PathBuf {
        self.at("run/stratum/helper.sock")
    }

    /// `/run/stratum/helper.lock`: lock of the delivery verbs.
    pub fn helper_lock(&self) -> PathBuf {
        self.at("run/stratum/helper.lock")
    }

    /// `/run/stratum/console.json`: what the console's unit changed of the machine, to be put back. Root 0600.
    pub fn console_note(&self) -> PathBuf {
        self.at("run/stratum/console.json")
    }

    // --- the kernel's ---

    /// `/proc/sys/kernel/printk`: the console log level.
    pub fn printk(&self) -> PathBuf {
        self.at("proc/sys/kernel/printk")
    }

    /// `/sys/class/tty/console/active`: the kernel's consoles; the last is `/dev/console`.
    pub fn active_consoles(&self) -> PathBuf {
        self.at("sys/class/tty/console/active")
    }

    /// `/sys/class/tty/<tty>/type`: 0 for a serial port without hardware. The caller has checked the name.
    pub fn serial_type(&self, tty: &str) -> PathBuf {
        self.at("sys/class/tty").join(tty).join("type")
    }

    /// `/dev/<name>`. The caller has checked the name.
    pub fn device(&self, name: &str) -> PathBuf {
        self.at("dev").join(name)
    }

    // --- /var/lib/stratum/join, the agent's ---

    /// `/var/lib/stratum/join`: the agent's state, 0700.
    pub fn state_dir(&self) -> PathBuf {
        self.at("var/lib/stratum/join")
    }

    /// `request.json`: endpoint, code, pins. Secret while it holds the code.
    pub fn request(&self) -> PathBuf {
        self.at("var/lib/stratum/join/request.json")
    }

    /// `identity/`: 0700.
    pub fn identity_dir(&self) -> PathBuf {
        self.at("var/lib/stratum/join/identity")
    }

    /// `identity/key.pem`: the client key. Secret.
    pub fn identity_key(&self) -> PathBuf {
        self.at("var/lib/stratum/join/identity/key.pem")
    }

    /// `identity/cert.pem`: the client certificate.
    pub fn identity_cert(&self) -> PathBuf {
        self.at("var/lib/stratum/join/identity/cert.pem")
    }

    /// `journal.json`: the durable state. Secret: it holds the pairing nonce.
    pub fn journal(&self) -> PathBuf {
        self.at("var/lib/stratum/join/journal.json")
    }

    /// `joined`: the empty joined marker.
    pub fn joined_marker(&self) -> PathBuf {
        self.at("var/lib/stratum/join/joined")
    }

    /// `lock`: one agent only.
    pub fn agent_lock(&self) -> PathBuf {
        self.at("var/lib/stratum/join/lock")
    }

    /// `upgrade/`: the stage.
    pub fn upgrade_dir(&self) -> PathBuf {
        self.at("var/lib/stratum/join/upgrade")
    }

    // --- /var/lib/stratum/os, root's ---

    /// `/var/lib/stratum/os`: state of the OS slots.
    pub fn os_dir(&self) -> PathBuf {
        self.at("var/lib/stratum/os")
    }

    /// `floor.json`: the highest release ever accepted here, root 0644.
    pub fn os_floor(&self) -> PathBuf {
        self.at("var/lib/stratum/os/floor.json")
    }

    /// `installed.json`: which OS was written whole to the slot that did not run, root 0644.
    pub fn os_installed(&self) -> PathBuf {
        self.at("var/lib/stratum/os/installed.json")
    }

    /// `armed.json`: which OS was made the next to start, and in which boot, root 0644.
    pub fn os_armed(&self) -> PathBuf {
        self.at("var/lib/stratum/os/armed.json")
    }

    /// `lock`: one verb about the OS at a time.
    pub fn os_lock(&self) -> PathBuf {
        self.at("var/lib/stratum/os/lock")
    }

    /// `sysext/`: the system extensions of each slot.
    pub fn os_sysexts(&self) -> PathBuf {
        self.at("var/lib/stratum/os/sysext")
    }

    /// `recorded/`: the slots, boot entries and calls of the backend that only writes down what it is told. Never on a node.
    pub fn os_recorded(&self) -> PathBuf {
        self.at("var/lib/stratum/os/recorded")
    }

    /// `/run/systemd/timesync`: systemd-timesyncd's; holds `synchronized` once the clock is.
    pub fn timesync_dir(&self) -> PathBuf {
        self.at("run/systemd/timesync")
    }

    // --- /run/stratum-join, root:stratum-join 1775 ---

    /// `/run/stratum-join`: what people and the console read.
    pub fn public_dir(&self) -> PathBuf {
        self.at("run/stratum-join")
    }

    /// `snapshot.json`: what may be shown, 0644.
    pub fn snapshot(&self) -> PathBuf {
        self.at("run/stratum-join/snapshot.json")
    }

    /// `issue`: the login banner, root 0644.
    pub fn issue(&self) -> PathBuf {
        self.at("run/stratum-join/issue")
    }

    /// `motd`: the same after the login, root 0644.
    pub fn motd(&self) -> PathBuf {
        self.at("run/stratum-join/motd")
    }

    /// `control.sock`: the operator's requests.
    pub fn control_socket(&self) -> PathBuf {
        self.at("run/stratum-join/control.sock")
    }

    /// `progress.sock`: firstboot's progress, 0600.
    pub fn progress_socket(&self) -> PathBuf {
        self.at("run/stratum-join/progress.sock")
    }

    /// `login-<tty>`: the login was given back there. The caller has checked that `tty` is a terminal name.
    pub fn login_marker(&self, tty: &str) -> PathBuf {
        self.at("run/stratum-join").join(format!("login-{tty}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_lies_outside_the_root() {
        let paths = Paths::under("/tmp/somewhere");
        let all = [
            paths.node_yaml(),
            paths.bundle(),
            paths.firstboot_dir(),
            paths.journal(),
            paths.identity_key(),
            paths.snapshot(),
            paths.login_marker("tty1"),
            paths.os_dir(),
        ];
        for path in all.iter().chain(&paths.config_dirs()) {
            assert!(path.starts_with("/tmp/somewhere"), "{}", path.display());
        }
        assert!(!paths.is_system());
    }

    #[test]
    fn on_a_node_the_names_are_the_documented_ones() {
        let paths = Paths::system();
        assert!(paths.is_system());
        assert_eq!(paths.node_yaml(), Path::new("/etc/stratum/node.yaml"));
        assert_eq!(paths.bundle(), Path::new("/run/stratum/delivery/bundle.json"));
        assert_eq!(paths.progress_socket(), Path::new("/run/stratum-join/progress.sock"));
        assert_eq!(paths.request(), Path::new("/var/lib/stratum/join/request.json"));
    }
}
