//! A disk that fails as a test tells it to. Outside of tests it never does.

#[cfg(test)]
use std::sync::{Arc, Mutex};

use rustix::io::Errno;

/// What fails.
#[derive(Debug, Clone, Default)]
pub(crate) enum Trouble {
    /// Nothing.
    #[default]
    None,
    /// The third write.
    #[cfg(test)]
    Write(Errno, Arc<Mutex<u32>>),
    /// Every sync.
    #[cfg(test)]
    Sync(Errno),
    /// What is read back is not what was written.
    #[cfg(test)]
    ReadBack,
    /// Each write waits until it gets this.
    #[cfg(test)]
    Gate(Arc<Mutex<()>>),
}

// === impl Trouble ===

impl Trouble {
    pub(super) fn write(&self) -> Result<(), Errno> {
        match self {
            #[cfg(test)]
            Trouble::Write(errno, count) => {
                let mut count = count.lock().expect("no test panics while it counts");
                *count += 1;
                if *count == 3 { Err(*errno) } else { Ok(()) }
            }
            #[cfg(test)]
            Trouble::Gate(gate) => {
                drop(gate.lock());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    pub(super) fn sync(&self) -> Result<(), Errno> {
        match self {
            #[cfg(test)]
            Trouble::Sync(errno) => Err(*errno),
            _ => Ok(()),
        }
    }

    pub(super) fn spoil(&self, bytes: &mut [u8]) {
        let _ = &bytes;
        #[cfg(test)]
        if let (Trouble::ReadBack, Some(first)) = (self, bytes.first_mut()) {
            *first ^= 1;
        }
    }
}
