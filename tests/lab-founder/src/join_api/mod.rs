//! The join listener's calls, by path. Touches the store through one transaction per call.

pub(crate) mod proof;
pub(crate) mod register;
pub(crate) mod release_file;
pub(crate) mod release_rules;
pub(crate) mod report;
pub(crate) mod view;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use stratum_join::protocol::encoding::B64;
use subtle::ConstantTimeEq;

use crate::evil::Evil;
use crate::founder::Founder;
use crate::http::{Handled, Peer, Refusal, Request, Response, Stop, field, refuse};
use crate::model::Join;
use crate::store::Tx;
use crate::time::rfc3339;

/// Longest pad that is echoed.
const MAX_PAD: usize = 4096;

pub(crate) fn route(
    founder: &Founder,
    now: i64,
    peer: Peer,
    request: &Request,
    evil: Option<&Evil>,
) -> Handled {
    let Some(rest) = request.path.strip_prefix("/v1/join") else {
        return member_call(founder, now, peer, request);
    };
    let parts: Vec<&str> = rest.split('/').skip(1).collect();
    if !(rest.is_empty() || rest.starts_with('/')) {
        return Err(refuse::join_not_found().into());
    }
    match (request.method.as_str(), parts.as_slice()) {
        ("GET", []) => Ok(hello(now, request)),
        ("POST", ["proofs"]) => {
            proof::open(founder, now, peer, request, matches!(evil, Some(Evil::WrongCode)))
        }
        ("POST", ["proofs", id, "confirm"]) => proof::confirm(founder, now, peer, id, request),
        ("POST", ["registrations"]) => register::post(founder, now, peer, request),
        ("PUT", ["registrations", id]) => register::put(founder, now, peer, id, request),
        ("GET", ["registrations", id]) => view::poll(founder, now, peer, id, request),
        ("POST", ["registrations", id, "ack"]) => report::ack(founder, now, peer, id, request),
        ("POST", ["registrations", id, "progress"]) => report::progress(founder, now, peer, id, request),
        ("POST", ["registrations", id, "log"]) => report::log(founder, now, peer, id, request),
        ("GET", ["registrations", id, "release", path @ ..]) => {
            release_file::get(founder, peer, id, &path.join("/"), request)
        }
        _ => Err(refuse::join_not_found().into()),
    }
}

/// Body cap by path, for whoever reads the body (docs/protocol.md 2.3).
pub(crate) fn body_cap(path: &str) -> usize {
    match path.rsplit('/').next() {
        Some("log") => 256 * 1024,
        Some("progress") => 8 * 1024,
        Some("proofs" | "confirm" | "ack") => 4 * 1024,
        _ if path.starts_with("/v1/join/registrations") => 256 * 1024,
        _ => 4 * 1024,
    }
}

/// A request body of one of our types; what is wrong is named, never echoed whole.
pub(crate) fn body<T: DeserializeOwned>(request: &Request) -> Result<T, Refusal> {
    serde_json::from_slice(&request.body).map_err(|e| {
        // serde_json names the field in backticks, and the text of an unknown field or value.
        refuse::invalid(vec![field("", e.to_string())])
    })
}

/// The registration, if it is this key's; the same refusal for a foreign key, an unknown id and an id of no form.
pub(crate) fn own_join(tx: &Tx<'_>, peer: &Peer, id: &str) -> Handled<Join> {
    let join = tx.join(id)?;
    let same = join.as_ref().is_some_and(|j| j.client_fp.0.ct_eq(&peer.client_fp).into());
    match join {
        Some(join) if same => Ok(join),
        _ => Err(refuse::join_not_found().into()),
    }
}

/// A proof id from a path.
pub(crate) fn proof_id(text: &str) -> Result<B64<16>, Stop> {
    B64::parse(text).map_err(|_| refuse::proof_expired().into())
}

fn hello(now: i64, request: &Request) -> Response {
    let mut response = Response::json(
        200,
        &serde_json::json!({
            "protocols": [stratum_join::protocol::wire::PROTOCOL],
            "suites": [stratum_join::protocol::wire::SUITE],
            "serverTime": rfc3339(now),
        }),
    );
    if let Some(pad) = &request.pad
        && (1..=MAX_PAD).contains(&pad.len())
        && pad.bytes().all(|b| b.is_ascii_alphanumeric())
    {
        response.headers.push(("x-stratum-pad", pad.clone()));
    }
    response
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct JoinFailed {
    pub(crate) step: String,
    pub(crate) error: String,
}

/// The one member call that the join listener takes: a node that failed says so itself, with the key of its node certificate.
fn member_call(founder: &Founder, now: i64, peer: Peer, request: &Request) -> Handled {
    let parts: Vec<&str> = request.path.split('/').collect();
    let ("POST", ["", "v1", "admin", "cluster", "members", node_id, "join-failed"]) =
        (request.method.as_str(), parts.as_slice())
    else {
        return Err(refuse::join_not_found().into());
    };
    founder.store.tx(|tx| {
        let member = tx.member(node_id)?;
        let key = member.and_then(|m| m.node_key);
        if !key.is_some_and(|k| k.0.ct_eq(&peer.client_fp).into()) {
            return Err(refuse::join_not_found().into());
        }
        crate::admin::members::join_failed(tx, now, node_id, &body(request)?)
    })
}
