//! Tells the driver when the saved request changes, without polling: inotify on the state directory, in a thread of its own that sleeps in
//! `read` (tokio offers no safe way to wait for a foreign descriptor).

use std::io;
use std::mem::MaybeUninit;
use std::path::Path;

use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};
use tokio::sync::mpsc::Sender;

use super::perform::Msg;

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
