//! Join codes: made, listed, revoked. The code itself is shown once and never kept.

use serde::Deserialize;
use serde_json::json;
use stratum_join::protocol::code::JoinCode;
use stratum_join::protocol::proof::Stretched;

use crate::founder::Founder;
use crate::http::{Handled, Request, Response, Stop, field, refuse};
use crate::join_api::body;
use crate::model::Code;
use crate::time::rfc3339;

/// Selectors in use at once, live or kept for 7 days.
const MAX_CODES: usize = 128;
/// Default life of a code in seconds.
const TTL_SECS: u64 = 86_400;

/// A join code that was just made: the only time that it is readable.
#[derive(Debug)]
pub struct CreatedCode {
    /// `jc-` and eight characters.
    pub id: String,
    /// The code. Secret.
    pub code: JoinCode,
    /// The join URL with the pin. Secret, because the code is in it.
    pub url: String,
    /// When it expires, in milliseconds since 1970.
    pub expires_ms: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CreateRequest {
    #[serde(default)]
    ttl_seconds: Option<u64>,
    #[serde(default)]
    note: String,
}

// === impl Founder ===

impl Founder {
    /// Makes a join code that lives `ttl_secs`. Takes tens of milliseconds (the code is stretched). `None`: 128 are in use.
    pub fn create_code(&self, now: i64, ttl_secs: u64, note: &str) -> Option<CreatedCode> {
        make(self, now, ttl_secs, note).ok()
    }
}

fn make(founder: &Founder, now: i64, ttl_secs: u64, note: &str) -> Result<CreatedCode, Stop> {
    let ttl_ms = i64::try_from(ttl_secs).unwrap_or(i64::MAX / 2000).saturating_mul(1000);
    loop {
        let code = JoinCode::mint(&founder.entropy.bytes()?);
        let taken = founder.store.tx(|tx| -> Handled<bool> {
            if tx.codes()?.len() >= MAX_CODES {
                return Err(refuse::codes_full().into());
            }
            Ok(tx.code_by_selector(code.selector())?.is_some())
        })?;
        if taken {
            continue;
        }
        // Outside any transaction: it takes tens of milliseconds.
        let row = Code {
            id: founder.entropy.id("jc-")?,
            selector: code.selector().to_owned(),
            w: *Stretched::of(&code).as_bytes(),
            note: note.to_owned(),
            created_ms: now,
            expires_ms: now.saturating_add(ttl_ms),
            revoked_ms: None,
            burned_ms: None,
            bad_tries: 0,
            open_tries: 0,
        };
        let stored = founder.store.tx(|tx| -> Handled<bool> {
            if tx.code_by_selector(&row.selector)?.is_some() {
                return Ok(false);
            }
            // Tries at this selector from before it existed are nobody's.
            tx.forget_strangers()?;
            tx.put_code(&row)?;
            Ok(true)
        })?;
        if stored {
            let url = url(founder, &code);
            return Ok(CreatedCode { id: row.id, code, url, expires_ms: row.expires_ms });
        }
    }
}

/// With the pin, so that nobody in between can prove a leaked code.
fn url(founder: &Founder, code: &JoinCode) -> String {
    let at = founder.advertise();
    let host = at.strip_suffix(":9444").unwrap_or(&at);
    format!("stratum-join://{host}/{}?pin={}", code.written().as_str(), founder.pin)
}

pub(crate) fn create(founder: &Founder, now: i64, request: &Request) -> Handled {
    let asked: CreateRequest = if request.body.is_empty() {
        CreateRequest { ttl_seconds: None, note: String::new() }
    } else {
        body(request)?
    };
    let ttl = asked.ttl_seconds.unwrap_or(TTL_SECS);
    let mut errors = Vec::new();
    if !(300..=604_800).contains(&ttl) {
        errors.push(field("ttlSeconds", "must be 300 to 604800"));
    }
    if asked.note.chars().count() > 200 || asked.note.chars().any(char::is_control) {
        errors.push(field("note", "must be at most 200 characters on one line"));
    }
    if !errors.is_empty() {
        return Err(refuse::invalid(errors).into());
    }
    let made = make(founder, now, ttl, &asked.note)?;
    let answer = json!({
        "id": made.id,
        "code": made.code.written().as_str(),
        "url": made.url,
        "expiresAt": rfc3339(made.expires_ms),
    });
    Ok(Response::json(201, &answer))
}

pub(crate) fn list(founder: &Founder, now: i64) -> Handled {
    founder.store.tx(|tx| {
        let codes: Vec<_> = tx
            .codes()?
            .iter()
            .map(|code| {
                json!({
                    "id": code.id,
                    "selector": code.selector,
                    "state": code.state(now),
                    "expiresAt": rfc3339(code.expires_ms),
                    "badTries": code.bad_tries,
                    "openTries": code.open_tries,
                    "note": code.note,
                })
            })
            .collect();
        Ok(Response::json(200, &json!({ "codes": codes })))
    })
}

pub(crate) fn revoke(founder: &Founder, now: i64, id: &str) -> Handled {
    founder.store.tx(|tx| {
        let mut code = tx.code(id)?.ok_or_else(refuse::not_found)?;
        if code.revoked_ms.is_none() {
            code.revoked_ms = Some(now);
            tx.put_code(&code)?;
        }
        Ok(Response::nothing())
    })
}
