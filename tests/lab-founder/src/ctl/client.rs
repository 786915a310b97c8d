//! The admin API over HTTP. Touches the network. Never goes through a proxy and never follows a redirect.

use std::time::Duration;

use anyhow::{Context, bail};
use console::text::Safe;
use reqwest::Method;
use serde_json::Value;

/// The connection to one founder.
pub(super) struct Client {
    http: reqwest::Client,
    server: String,
    token: String,
}

// === impl Client ===

impl Client {
    pub(super) fn new(server: &str, token: &str) -> anyhow::Result<Self> {
        let http = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(Duration::from_secs(30))
            .build()?;
        Ok(Self { http, server: server.trim_end_matches('/').to_owned(), token: token.to_owned() })
    }

    pub(super) async fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.call(Method::GET, path, None).await
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.call(Method::POST, path, Some(body)).await
    }

    pub(super) async fn delete(&self, path: &str) -> anyhow::Result<Value> {
        self.call(Method::DELETE, path, None).await
    }

    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        let mut request =
            self.http.request(method, format!("{}{path}", self.server)).bearer_auth(&self.token);
        if let Some(body) = body {
            request = request.json(body);
        }
        let unreachable = || format!("no answer from {}: is the lab founder running?", self.server);
        let response = request.send().await.map_err(reqwest::Error::without_url).with_context(unreachable)?;
        let status = response.status();
        let bytes =
            response.bytes().await.map_err(reqwest::Error::without_url).context("the answer broke off")?;
        if status.is_success() {
            if bytes.is_empty() {
                return Ok(Value::Null);
            }
            return serde_json::from_slice(&bytes).context("the answer is no JSON");
        }
        let problem: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        bail!("{}", refusal(status.as_u16(), &problem))
    }
}

/// What went wrong, every field on its own line.
fn refusal(status: u16, problem: &Value) -> String {
    let text = |value: &Value| Safe::<400>::clean(value.as_str().unwrap_or_default()).to_string();
    let code = text(&problem["code"]);
    if code.is_empty() {
        return format!("the answer was HTTP status {status}, without a reason");
    }
    let mut out = format!("{} ({code})", text(&problem["title"]));
    let detail = text(&problem["detail"]);
    if !detail.is_empty() {
        out.push_str(&format!(": {detail}"));
    }
    for error in problem["errors"].as_array().into_iter().flatten() {
        let (field, message) = (text(&error["field"]), text(&error["message"]));
        let line = if field.is_empty() { message } else { format!("{field}: {message}") };
        out.push_str(&format!("\n  {line}"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_refusal_lists_every_field_and_no_control_character() {
        let problem = json!({
            "code": "JOIN_APPROVAL_REFUSED", "title": "the approval is refused\u{1b}[2J",
            "errors": [{ "field": "role", "message": "no" }, { "field": "", "message": "the pairing code does not match" }],
        });
        let expected =
            "the approval is refused (JOIN_APPROVAL_REFUSED)\n  role: no\n  the pairing code does not match";
        assert_eq!(refusal(409, &problem), expected);
        assert_eq!(refusal(502, &Value::Null), "the answer was HTTP status 502, without a reason");
    }
}
