//! When the way to the founder is looked at, and what of it is kept. How, is the driver's and `diagnosis`'s.
//!
//! Touches nothing.

use super::fault::Fault;
use super::state::Durable;
use crate::diagnosis::decide::is_refusal;
use crate::diagnosis::facts::{Past, ProofFact};

/// What earlier tries have shown: of the saved state, and of the trouble of the moment.
pub fn past_of(durable: &Durable, trouble: Option<&Fault>) -> Past {
    let stop = durable.stop.as_ref();
    let proof = match (&durable.unproven, &durable.trust) {
        (Some(who), _) => ProofFact::Failed(Some(*who)),
        (None, _) if stop.is_some_and(|stop| stop.code == super::fault::Code::CodeNotProven) => {
            ProofFact::Failed(None)
        }
        (None, Some(_)) => ProofFact::Good,
        (None, None) => ProofFact::NotYet,
    };
    let refusal = [stop, trouble].into_iter().flatten().find(|fault| is_refusal(fault));
    Past { pins: durable.pins(), proof, refusal: refusal.cloned().map(Box::new), ..Past::default() }
}
