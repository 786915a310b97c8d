//! A founder that does not know the code: another cluster behind the same address, or an attacker. Touches what [`LabFounder`] touches.

use std::net::SocketAddr;

use crate::config::Config;
use crate::evil::{Evil, Step};
use crate::founder::Received;
use crate::server::{LabFounder, StartError};

/// A running impostor. It answers every call as a founder does and proves nothing.
pub struct Impostor {
    founder: LabFounder,
}

// === impl Impostor ===

impl Impostor {
    /// On a port of its own. `config` says where; its own join CA is another one unless `config.ca` names it.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        Self::start_now(config)
    }

    /// The same for code that is not async.
    pub fn start_now(mut config: Config) -> Result<Self, StartError> {
        config.record = true;
        config.evil.push(Evil::WrongCode.always(Step::Proof));
        Ok(Self { founder: LabFounder::start_now(config)? })
    }

    /// Where the joiner connects.
    pub fn addr(&self) -> SocketAddr {
        self.founder.join_addr()
    }

    /// The founder behind it.
    pub fn founder(&self) -> &LabFounder {
        &self.founder
    }

    /// Everything that it was told.
    pub fn received(&self) -> Vec<Received> {
        self.founder.core().received()
    }

    /// Whether any request held this text, in path, query or body. What a test asks about codes and inventories.
    pub fn was_told(&self, text: &str) -> bool {
        let holds =
            |bytes: &[u8]| !text.is_empty() && bytes.windows(text.len()).any(|w| w == text.as_bytes());
        self.received().iter().any(|r| {
            holds(&r.body)
                || holds(r.path.as_bytes())
                || r.query.as_deref().is_some_and(|q| holds(q.as_bytes()))
        })
    }
}
