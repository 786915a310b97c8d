//! The admin API (docs/protocol.md 5), by path. Every call needs a token with its permission.

pub(crate) mod codes;
mod joins;
mod lab;
pub(crate) mod members;

use crate::config::Permission;
use crate::founder::Founder;
use crate::http::{Handled, Request, refuse};

/// Largest request body in bytes.
pub(crate) const BODY_CAP: usize = 256 * 1024;

pub(crate) fn route(founder: &Founder, now: i64, request: &Request) -> Handled {
    let parts: Vec<&str> = request.path.split('/').skip(1).collect();
    let permit = |permission| founder.permit(request, permission);
    let [v1, rest @ ..] = parts.as_slice() else { return Err(refuse::not_found().into()) };
    if *v1 != "v1" {
        return Err(refuse::not_found().into());
    }
    match (request.method.as_str(), rest) {
        (method, ["admin", "cluster", "joins", rest @ ..]) => match (method, rest) {
            ("GET", []) => {
                permit(Permission::ReadNodeJoins)?;
                joins::list(founder)
            }
            ("GET", [id]) => {
                permit(Permission::ReadNodeJoins)?;
                joins::show(founder, id)
            }
            ("POST", [id, "approve"]) => {
                permit(Permission::ApproveNodeJoin)?;
                joins::approve(founder, id, request)
            }
            ("POST", [id, "reject"]) => {
                permit(Permission::ApproveNodeJoin)?;
                joins::reject(founder, id, request)
            }
            ("POST", [id, "retry"]) => {
                permit(Permission::ApproveNodeJoin)?;
                joins::retry(founder, id)
            }
            (_, [] | [_] | [_, "approve" | "reject" | "retry"]) => Err(refuse::method().into()),
            _ => Err(refuse::not_found().into()),
        },
        (method, ["admin", "cluster", "join-codes", rest @ ..]) => {
            permit(Permission::ManageJoinCodes)?;
            match (method, rest) {
                ("POST", []) => codes::create(founder, now, request),
                ("GET", []) => codes::list(founder, now),
                ("DELETE", [id]) => codes::revoke(founder, now, id),
                (_, [] | [_]) => Err(refuse::method().into()),
                _ => Err(refuse::not_found().into()),
            }
        }
        ("GET", ["admin", "cluster", "members"]) => {
            permit(Permission::ClusterRead)?;
            members::list(founder)
        }
        ("GET", ["admin", "cluster", "networks"]) => {
            permit(Permission::ClusterRead)?;
            Ok(members::networks(founder))
        }
        ("POST", ["admin", "cluster", "members", node_id, "join-failed"]) => {
            permit(Permission::ReportJoinFailure)?;
            members::report_join_failed(founder, now, node_id, request)
        }
        (method, ["lab", what]) => {
            permit(Permission::LabControl)?;
            lab::route(founder, now, method, what, request)
        }
        _ => Err(refuse::not_found().into()),
    }
}
