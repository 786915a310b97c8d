//! The stage against power cuts, flipped bits and planted names, on real files.
#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};

use super::*;

/// A step of a part that can be made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::upgrade) enum Op {
    Create,
    Allocate,
    Write,
    /// Behind the second chunk.
    LateWrite,
    Sync,
    Rename,
}

/// A disk that fails as told: at the n-th such step (from 1) with this error. Says so itself: it is no real disk.
#[derive(Debug, Clone, Default)]
pub(in crate::upgrade) struct Trouble(Arc<Mutex<Vec<(Op, u32, Errno)>>>);

impl Trouble {
    pub(in crate::upgrade) fn ask(&self, op: Op) -> rustix::io::Result<()> {
        let mut script = self.0.lock().unwrap();
        for (_, left, _) in script.iter_mut().filter(|(of, left, _)| *of == op && *left > 0) {
            *left -= 1;
        }
        match script.iter().position(|(of, left, _)| *of == op && *left == 0) {
            Some(at) => Err(script.remove(at).2),
            None => Ok(()),
        }
    }
}

impl Stage {
    /// The fake says so: from now on this disk fails as told.
    pub(in crate::upgrade) fn with_trouble(mut self, script: &[(Op, u32, Errno)]) -> Self {
        self.trouble = Trouble(Arc::new(Mutex::new(script.to_vec())));
        self
    }
}
