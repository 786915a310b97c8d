//! What systemd does for the helper on a node: listens on its socket, and starts one helper for each connection with the connection as
//! standard input and output.

use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread;

use super::bin;

/// The helper's socket. It listens until it is dropped.
pub struct HelperSocket {
    shared: Arc<Mutex<Shared>>,
    path: std::path::PathBuf,
}

#[derive(Default)]
struct Shared {
    /// Set in the helpers until one has died of it.
    fault: Option<String>,
    /// The helpers only write down which OS they would install; the boot of the machine they are in.
    recorded_os: bool,
    boot_id: Option<String>,
    died: bool,
    running: Vec<Arc<Mutex<Child>>>,
    closed: bool,
}

// === impl HelperSocket ===

impl HelperSocket {
    /// Listens below `root`. `fault`: a crash point that one helper, the first that comes there, dies at.
    pub fn listen(root: &Path, fault: Option<&str>) -> Self {
        let path = root.join("run/stratum/helper.sock");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let listener = UnixListener::bind(&path).unwrap();
        let shared =
            Arc::new(Mutex::new(Shared { fault: fault.map(ToOwned::to_owned), ..Shared::default() }));
        let (root, state) = (root.to_owned(), shared.clone());
        thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                if state.lock().unwrap().closed {
                    return;
                }
                start(&root, connection, &state);
            }
        });
        Self { shared, path }
    }

    /// From now on the helpers only write down which OS they would install.
    pub fn record_the_os(&self) {
        self.shared.lock().unwrap().recorded_os = true;
    }

    /// The machine was started anew.
    pub fn booted(&self, boot_id: &str) {
        self.shared.lock().unwrap().boot_id = Some(boot_id.to_owned());
    }

    /// Whether a helper died at its crash point.
    pub fn died_at_the_crash_point(&self) -> bool {
        self.shared.lock().unwrap().died
    }

    /// Kills every helper that runs; gives how many those were.
    pub fn kill_all(&self) -> usize {
        let running = self.shared.lock().unwrap().running.clone();
        running.iter().filter(|child| child.lock().unwrap().kill().is_ok()).count()
    }

    /// How many helpers run.
    pub fn running(&self) -> usize {
        self.shared.lock().unwrap().running.len()
    }
}

impl Drop for HelperSocket {
    fn drop(&mut self) {
        self.shared.lock().unwrap().closed = true;
        // Wakes the thread that accepts.
        let _ = UnixStream::connect(&self.path);
        let _ = std::fs::remove_file(&self.path);
        self.kill_all();
    }
}

fn start(root: &Path, connection: UnixStream, state: &Arc<Mutex<Shared>>) {
    let mut command = Command::new(bin("stratum-join"));
    command.arg("helper").arg("--root").arg(root).arg("--firstboot").arg(root.join("firstboot"));
    let log = std::fs::File::options().create(true).append(true).open(root.join("helper.log")).unwrap();
    let out = connection.try_clone().unwrap();
    command.stdin(OwnedFd::from(connection)).stdout(OwnedFd::from(out)).stderr(log);
    {
        let state = state.lock().unwrap();
        if let Some(fault) = &state.fault {
            command.env("STRATUM_FAULT", fault);
        }
        if state.recorded_os {
            command.arg("--recorded-os");
        }
        if let Some(boot_id) = &state.boot_id {
            command.env("STRATUM_BOOT_ID", boot_id);
        }
    }
    let child = Arc::new(Mutex::new(command.spawn().unwrap()));
    // The command holds the connection too, and its caller waits for the end of it.
    drop(command);
    state.lock().unwrap().running.push(child.clone());
    let state = state.clone();
    thread::spawn(move || {
        let status = super::wait::until(super::PATIENCE * 5, || child.lock().unwrap().try_wait().unwrap());
        let mut state = state.lock().unwrap();
        state.running.retain(|other| !Arc::ptr_eq(other, &child));
        if state.fault.is_some() && status.is_some_and(|status| status.signal() == Some(9)) {
            state.fault = None;
            state.died = true;
        }
    });
}
