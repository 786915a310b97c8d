//! Long-polls that are held: at most two of one registration, the oldest is answered at once. Touches nothing but memory.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

use crate::founder::lock;

/// Polls of one registration that may be held.
const MOST: usize = 2;

/// Every held poll.
#[derive(Default)]
pub(super) struct Polls(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    next: u64,
    held: HashMap<String, VecDeque<(u64, oneshot::Sender<()>)>>,
}

/// One held poll; it leaves the list on drop.
pub(super) struct Held {
    polls: Arc<Polls>,
    join_id: String,
    number: u64,
    /// Fires when it must be answered.
    pub(super) evicted: oneshot::Receiver<()>,
}

// === impl Polls ===

impl Polls {
    pub(super) fn hold(self: &Arc<Self>, join_id: &str) -> Held {
        let (evict, evicted) = oneshot::channel();
        let mut inner = lock(&self.0);
        inner.next += 1;
        let number = inner.next;
        let held = inner.held.entry(join_id.to_owned()).or_default();
        held.push_back((number, evict));
        if held.len() > MOST
            && let Some((_, oldest)) = held.pop_front()
        {
            // A poll that is gone needs no answer.
            let _ = oldest.send(());
        }
        Held { polls: self.clone(), join_id: join_id.to_owned(), number, evicted }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut inner = lock(&self.polls.0);
        if let Some(held) = inner.held.get_mut(&self.join_id) {
            held.retain(|(number, _)| *number != self.number);
            if held.is_empty() {
                inner.held.remove(&self.join_id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_third_poll_of_a_registration_sends_the_oldest_home() {
        let polls = Arc::new(Polls::default());
        let mut first = polls.hold("nj-1");
        let mut second = polls.hold("nj-1");
        let other = polls.hold("nj-2");
        assert!(first.evicted.try_recv().is_err());
        let third = polls.hold("nj-1");
        assert!(first.evicted.try_recv().is_ok());
        assert!(second.evicted.try_recv().is_err());
        drop((first, second, third, other));
        assert!(lock(&polls.0).held.is_empty());
    }
}
