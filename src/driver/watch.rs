//! Tells the driver what changes without it, and polls for nothing: the saved request, by inotify on the state directory; disks and the network,
//! by the kernel's and udev's own messages. Each in a thread of its own that sleeps in the kernel (tokio offers no safe way to wait for a
//! foreign descriptor).

use std::io;
use std::mem::MaybeUninit;
use std::path::Path;
use std::time::Duration;

use hwprobe::{Changed, Watch};
use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};
use tokio::sync::mpsc::Sender;

use super::perform::Msg;

/// Between two messages of one burst of events: udev alone sends dozens for one disk.
const BURST: Duration = Duration::from_millis(250);

/// Starts watching. The thread ends with the receiver.
pub(super) fn request(state_dir: &Path, tx: Sender<Msg>) -> io::Result<()> {
    let inotify = init(CreateFlags::CLOEXEC)?;
    // Not CLOSE_WRITE: the request is only ever replaced by a rename, and its writer then overwrites what the old file held, which would count
    // as a second request, and each one may cost a try of the join code.
    add_watch(&inotify, state_dir, WatchFlags::MOVED_TO | WatchFlags::DELETE)?;
    let watch = move || {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(&inotify, &mut buffer);
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => {
                    tracing::warn!("a new join request is heard of only after a restart: {error}");
                    return;
                }
            };
            let lost = event.events().contains(ReadFlags::QUEUE_OVERFLOW);
            let request = event.file_name().is_some_and(|name| name.to_bytes() == b"request.json");
            if (request || lost) && tx.blocking_send(Msg::RequestChanged).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("watch-request".to_owned()).stack_size(128 * 1024).spawn(watch)?;
    Ok(())
}

/// Starts listening for changes of the hardware. The first message comes at once: what happened before anybody listened, and what a late driver
/// brings, is found by a second look. The thread ends with the receiver.
pub(super) fn hardware(tx: Sender<Msg>) -> io::Result<()> {
    let listen = move || {
        let mut watch = match Watch::new() {
            Ok(watch) => watch,
            Err(error) => {
                tracing::warn!("disks and NICs that change are seen only after a restart: {error}");
                return;
            }
        };
        let mut changed = Changed { devices: true, network: false };
        loop {
            if changed != Changed::default() && tx.blocking_send(Msg::Changed(changed)).is_err() {
                return;
            }
            std::thread::sleep(BURST);
            changed = match watch.wait(None) {
                Ok(changed) => changed,
                Err(error) => {
                    tracing::warn!("disks and NICs that change are seen only after a restart: {error}");
                    return;
                }
            };
        }
    };
    std::thread::Builder::new().name("watch-hardware".to_owned()).stack_size(256 * 1024).spawn(listen)?;
    Ok(())
}
