//! Problems (RFC 7807) into faults. Touches nothing.
//!
//! The agent decides by `code`, then by status; `title` and `detail` are shown in the founder's own area and never parsed.

use console::text::Safe;
use reqwest::StatusCode;
use serde_json::Value;

use crate::join::fault::{Code, Details, Fault};
use crate::protocol::wire::Problem;

/// Codes that only we ourselves may find. From the wire they are an unknown code.
const OURS: &[Code] = &[
    Code::CodeMalformed,
    Code::UrlMalformed,
    Code::AddressUnreachable,
    Code::TlsFailed,
    Code::CodeNotProven,
    Code::PinMismatch,
    Code::FounderKeyChanged,
    Code::PairingMismatch,
    Code::ResponseInvalid,
    Code::ResponseTooLarge,
    Code::DeliveryInvalid,
    Code::ServerError,
    Code::OtherRefusal,
    Code::Local,
    Code::Tampered,
    Code::Unsupported,
];

/// The fault of an answer with status 400 or above. `kind` is the content type in lower case, `what` the call.
pub(super) fn fault(
    status: StatusCode,
    kind: &str,
    body: &[u8],
    what: &str,
    retry_after: Option<u32>,
) -> Fault {
    let mut fault = match read(kind, body) {
        Some(problem) => of(status, &problem, what),
        None => {
            let text = format!("status {} without a reason", status.as_u16());
            let mut fault = Fault::new(by_status(status), &text);
            fault.chain = Safe::clean(format!("{what}: {text}"));
            fault
        }
    };
    fault.retry_after = retry_after;
    fault
}

/// `None` for anything that is not a problem with a code, an HTML page for example.
fn read(kind: &str, body: &[u8]) -> Option<Problem> {
    let kind = kind.split(';').next().unwrap_or_default().trim_end();
    if !matches!(kind, "application/problem+json" | "application/json") {
        return None;
    }
    let problem: Problem = serde_json::from_slice(body).ok()?;
    let code = problem.code.as_str().as_bytes();
    let fits =
        !code.is_empty() && code.iter().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || *b == b'_');
    fits.then_some(problem)
}

fn of(status: StatusCode, problem: &Problem, what: &str) -> Fault {
    let known = Code::from_wire(problem.code.as_str()).filter(|code| !OURS.contains(code));
    let code = known.unwrap_or_else(|| by_status(status));
    let said = words(problem);
    let detail = match known {
        Some(_) => said,
        None if said.is_empty() => problem.code.to_string(),
        None => format!("{} {said}", problem.code),
    };
    let mut fault = Fault::new(code, detail);
    fault.from_founder = true;
    fault.chain = Safe::clean(format!("{what}: {} {}: {}", status.as_u16(), problem.code, words(problem)));
    fault.request_id = Some(problem.request_id.clone()).filter(|id| !id.is_empty());
    fault.details = details(problem.details.as_ref());
    fault
}

/// A status without a code we know. 404 and 409 are no statement about our registration then: a proxy may have made them.
fn by_status(status: StatusCode) -> Code {
    match status.as_u16() {
        429 => Code::RateLimited,
        503 => Code::Unavailable,
        500.. => Code::ServerError,
        _ => Code::OtherRefusal,
    }
}

/// The field errors when there are any, else the detail, else the title.
fn words(problem: &Problem) -> String {
    if !problem.errors.is_empty() {
        let each = problem.errors.iter().take(8).map(|error| match error.field.as_str() {
            "" => error.message.to_string(),
            field => format!("{field}: {}", error.message),
        });
        return each.collect::<Vec<_>>().join("; ");
    }
    match &problem.detail {
        Some(detail) if !detail.is_empty() => detail.to_string(),
        _ => problem.title.to_string(),
    }
}

/// Facts by name; one of another type counts as absent.
fn details(value: Option<&Value>) -> Details {
    let text =
        |name: &str| value.and_then(|v| v.get(name)).and_then(Value::as_str).filter(|text| !text.is_empty());
    Details {
        cluster_release: text("clusterRelease").map(Safe::from),
        iso: text("iso").map(Safe::from),
        min_upgrade_from: text("minUpgradeFrom").map(Safe::from),
        state: text("state").map(Safe::from),
        ..Details::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = "application/problem+json; charset=utf-8";

    fn of_body(status: u16, kind: &str, body: &str) -> Fault {
        let status = StatusCode::from_u16(status).expect("a status");
        fault(status, kind, body.as_bytes(), "POST /v1/join/registrations", Some(7))
    }

    #[test]
    fn every_code_of_the_founder_is_known_and_none_of_ours_is_taken_from_it() {
        for code in Code::ALL {
            let body = format!(
                r#"{{"type":"about:blank","title":"t","status":409,"code":"{}","requestId":"r1","detail":"d"}}"#,
                code.as_str()
            );
            let fault = of_body(409, JSON, &body);
            if OURS.contains(code) {
                assert_eq!(fault.code, Code::OtherRefusal, "{code:?}");
                assert_eq!(fault.detail, format!("{} d", code.as_str()).as_str());
            } else {
                assert_eq!(fault.code, *code);
                assert_eq!(fault.detail, "d");
            }
            assert!(fault.from_founder);
            assert_eq!(fault.request_id, Some(Safe::from("r1")));
            assert_eq!(fault.retry_after, Some(7));
        }
    }

    #[test]
    fn what_is_no_problem_is_judged_by_its_status_alone_and_never_shown() {
        let page = "<html>Pairing code: AAA-AAA</html>";
        for (status, code) in [
            (404, Code::OtherRefusal),
            (409, Code::OtherRefusal),
            (429, Code::RateLimited),
            (500, Code::ServerError),
            (502, Code::ServerError),
            (503, Code::Unavailable),
        ] {
            for (kind, body) in [
                ("text/html", page),
                (JSON, page),
                (JSON, "{}"),
                (JSON, r#"{"code":"lower"}"#),
                ("text/plain", r#"{"code":"JOIN_REJECTED"}"#),
                (JSON, ""),
            ] {
                let fault = of_body(status, kind, body);
                assert_eq!(fault.code, code);
                assert_eq!(fault.detail, format!("status {status} without a reason").as_str());
                assert!(!fault.from_founder);
            }
        }
    }

    #[test]
    fn field_errors_and_facts_are_kept_and_cleaned() {
        let body = r#"{"code":"RELEASE_MISMATCH","title":"t","details":{"clusterRelease":"0.7.0","iso":"a\u001b[31m.iso","minUpgradeFrom":7,"state":"joined"}}"#;
        let fault = of_body(409, JSON, body);
        assert_eq!(fault.details.cluster_release, Some(Safe::from("0.7.0")));
        assert_eq!(fault.details.iso, Some(Safe::from("a.iso")));
        assert_eq!(fault.details.min_upgrade_from, None);
        assert_eq!(fault.details.state, Some(Safe::from("joined")));
        let body = r#"{"code":"INVALID_INPUT","errors":[{"field":"serial","message":"too long"},{"field":"","message":"x"}]}"#;
        assert_eq!(of_body(400, JSON, body).detail, "serial: too long; x");
    }
}
