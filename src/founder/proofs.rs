//! What outlives one proof call: the stretched code, and the half-finished proofs by their id. In memory only.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::faults::{When, point};
use crate::join::fault::{Code, Fault};
use crate::protocol::code::JoinCode;
use crate::protocol::encoding::B64;
use crate::protocol::proof::{JoinerConfirmed, JoinerProof, Stretched};
use crate::protocol::url::Endpoint;
use crate::protocol::wire::{Intent, ProofAnswer};

/// How many proofs are kept for a repeated confirmation: one, and the one before it.
const KEPT: usize = 2;

/// Stretched code and proofs under way. Shared between the clients of one run.
#[derive(Default)]
pub struct Proofs {
    stretch: Mutex<Option<Arc<Stretch>>>,
    confirmed: Mutex<Vec<(JoinerConfirmed, Intent)>>,
}

/// A code and its `w`, once computed.
struct Stretch {
    code: JoinCode,
    w: OnceLock<Stretched>,
}

// === impl Stretch ===

impl Stretch {
    /// Tens of milliseconds the first time; a second caller waits for the first.
    fn get(&self) -> Stretched {
        self.w.get_or_init(|| Stretched::of(&self.code)).clone()
    }
}

// === impl Proofs ===

impl Proofs {
    /// Begins to stretch the code on another thread.
    pub fn warm(&self, code: &JoinCode) {
        let stretch = self.stretch_of(code);
        if stretch.w.get().is_none() {
            // A thread of its own, so that it needs no runtime. If there is none to be had, the proof itself computes it.
            let _ = std::thread::Builder::new().name("stretch".to_owned()).spawn(move || drop(stretch.get()));
        }
    }

    /// Drops the code and what was made of it: it is not needed any more.
    pub fn forget(&self) {
        self.confirmed.lock().unwrap_or_else(PoisonError::into_inner).clear();
        *self.stretch.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(super) async fn stretched(&self, code: &JoinCode) -> Result<Stretched, Fault> {
        let stretch = self.stretch_of(code);
        if let Some(w) = stretch.w.get() {
            return Ok(w.clone());
        }
        let work = tokio::task::spawn_blocking(move || stretch.get());
        work.await.map_err(|error| Fault::from_error(Code::Local, &error))
    }

    /// The cell of this code; another code takes the place of the last one, which is wiped.
    fn stretch_of(&self, code: &JoinCode) -> Arc<Stretch> {
        let mut slot = self.stretch.lock().unwrap_or_else(PoisonError::into_inner);
        match slot.as_ref() {
            Some(stretch) if stretch.code == *code => Arc::clone(stretch),
            _ => {
                let stretch = Arc::new(Stretch { code: code.clone(), w: OnceLock::new() });
                *slot = Some(Arc::clone(&stretch));
                stretch
            }
        }
    }

    pub(super) fn keep(&self, confirmed: JoinerConfirmed, intent: Intent) {
        let mut kept = self.confirmed.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == KEPT {
            kept.remove(0);
        }
        kept.push((confirmed, intent));
    }

    /// `confirmJ` for a proof whose founder was confirmed, and what the proof was for.
    pub(super) fn confirm(
        &self,
        proof_id: B64<16>,
        commit: Option<&B64<32>>,
    ) -> Result<(B64<32>, Intent), Fault> {
        let kept = self.confirmed.lock().unwrap_or_else(PoisonError::into_inner);
        let (confirmed, intent) = kept
            .iter()
            .find(|(confirmed, _)| confirmed.proof_id() == proof_id)
            .ok_or_else(|| Fault::new(Code::ProofExpired, "the proof was begun before a restart"))?;
        if commit.is_some() != (*intent == Intent::Register) {
            return Err(Fault::new(
                Code::Local,
                "a commitment goes with a registration and with nothing else",
            ));
        }
        Ok((confirmed.confirm(commit), *intent))
    }
}

/// The founder's confirmation, or `CODE_NOT_PROVEN`. A message that fails the message check proves as little.
pub(super) fn confirm_founder(
    proof: JoinerProof,
    answer: &ProofAnswer,
    endpoint: &Endpoint,
) -> Result<JoinerConfirmed, Fault> {
    point("confirm-check", When::Before);
    let result = proof.finish(answer);
    point("confirm-check", When::During);
    let confirmed = result.map_err(|error| {
        let mut fault = Fault::from_error(Code::CodeNotProven, &error);
        fault.detail = console::text::Safe::clean(format!("{endpoint} did not prove the join code"));
        fault
    })?;
    point("confirm-check", When::After);
    Ok(confirmed)
}
