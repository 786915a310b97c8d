//! What a drawing depends on besides the snapshot: the instant, the side screen, whether the agent is alive, the terminal.

use crate::clock::Now;
use crate::snapshot::{Liveness, ReadError, Snapshot, State};
use crate::text::{Safe, Text};

/// Which screen is in front.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Screen {
    /// What the state asks for.
    #[default]
    Main,
    /// Hardware, keys, identities.
    Details,
    /// The network diagnosis.
    Network,
    /// The last lines of the agent's log.
    Log,
}

/// What there is to draw.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Feed {
    /// A snapshot.
    #[default]
    Live,
    /// None yet.
    NotYet {
        /// Since when this console looks, CLOCK_BOOTTIME milliseconds.
        since_mono: u64,
    },
    /// None that can be used, and why.
    Unreadable(Text),
    /// One of a newer agent: only `headline` and `next` are filled.
    Foreign {
        /// Its schema.
        schema: u64,
    },
}

/// How a person gets from here to a shell, as the last row says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leave {
    /// Another virtual terminal has a login.
    #[default]
    AltF2,
    /// This process can be left.
    Quit,
    /// This line can be given to its login.
    HandBack,
    /// Not from here.
    Nowhere,
}

/// Everything a drawing depends on besides the snapshot and the size.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// The instant drawn.
    pub now: Now,
    /// The screen in front.
    pub screen: Screen,
    /// Verdict on the snapshot's age.
    pub liveness: Liveness,
    /// Is `agent.pid` a process?
    pub agent_alive: bool,
    /// What there is to draw.
    pub feed: Feed,
    /// Rows scrolled up (log) or down (details).
    pub scroll: usize,
    /// Shown instead of the keys: an answer, or a question.
    pub notice: Option<Safe<78>>,
    /// Box lines instead of `+-|`.
    pub boxes: bool,
    /// The way out.
    pub leave: Leave,
    /// Does this console end some time after the join, so that the login comes back?
    pub login_comes_back: bool,
}

// === impl Feed ===

impl Feed {
    /// What can be drawn of a snapshot that cannot be read whole; anything but a newer agent's is an error still.
    ///
    /// # Errors
    /// The error that was given.
    pub(crate) fn of_newer(error: ReadError) -> Result<(Snapshot, Self), ReadError> {
        match error {
            ReadError::Foreign { schema, headline: Some(headline), next, .. } => {
                let snapshot = Snapshot { headline, next, state: State::Unknown, ..Snapshot::default() };
                Ok((snapshot, Self::Foreign { schema }))
            }
            error => Err(error),
        }
    }
}

// === impl View ===

impl View {
    /// The main screen of a living agent.
    pub fn new(now: Now) -> Self {
        Self {
            now,
            screen: Screen::Main,
            liveness: Liveness::Alive,
            agent_alive: true,
            feed: Feed::Live,
            scroll: 0,
            notice: None,
            boxes: false,
            leave: Leave::AltF2,
            login_comes_back: true,
        }
    }
}
