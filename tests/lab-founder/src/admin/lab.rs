//! The lab's own switches: `/v1/lab/...`. No real founder has them.

use serde::Deserialize;
use serde_json::json;

use crate::evil::Scripted;
use crate::founder::Founder;
use crate::http::{Handled, Request, Response, refuse};
use crate::join_api::body;
use crate::model::{MemberState, Switches};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Apply {
    node_id: String,
    generation: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MoveClock {
    advance_ms: i64,
}

pub(crate) fn route(founder: &Founder, now: i64, method: &str, what: &str, request: &Request) -> Handled {
    match (method, what) {
        ("GET", "switches") => Ok(Response::json(200, &founder.switches()?)),
        ("PUT", "switches") => {
            let switches: Switches = body(request)?;
            founder.set_switches(now, &switches)?;
            Ok(Response::json(200, &switches))
        }
        ("GET", "evil") => Ok(Response::json(200, &founder.evil())),
        ("PUT", "evil") => {
            let script: Vec<Scripted> = body(request)?;
            founder.set_evil(script);
            Ok(Response::json(200, &founder.evil()))
        }
        ("POST", "applied") => {
            let apply: Apply = body(request)?;
            founder.applied(&apply.node_id, apply.generation)?;
            Ok(Response::nothing())
        }
        ("POST", "clock") => {
            let step: MoveClock = body(request)?;
            founder.config.clock.advance_ms(step.advance_ms);
            Ok(Response::json(200, &json!({ "nowMs": founder.config.clock.now_ms() })))
        }
        _ => Err(refuse::not_found().into()),
    }
}

// === impl Founder ===

impl Founder {
    /// A member reports that it applied a generation. For labs that do not apply by themselves.
    pub fn applied(&self, node_id: &str, generation: u64) -> Result<(), crate::store::StoreError> {
        self.store.tx(|tx| {
            if let Some(mut member) = tx.member(node_id)?
                && matches!(member.state, MemberState::Joining | MemberState::Active)
            {
                member.applied_generation = member.applied_generation.max(generation);
                tx.put_member(&member)?;
            }
            Ok(())
        })
    }
}
