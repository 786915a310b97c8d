//! The founder as a source: over the pinned channel, for one registration. Touches the network through `founder`.

use std::sync::Arc;

use super::End;
use crate::founder::Client;
use crate::join::fault::{Code, Fault};
use crate::protocol::encoding::Pin;
use crate::protocol::url::Endpoint;
use crate::protocol::wire::JoinId;

/// The founder of a registration.
pub struct FounderSource {
    client: Arc<Client>,
    endpoint: Endpoint,
    pins: Vec<Pin>,
    join_id: JoinId,
    host: String,
}

// === impl FounderSource ===

impl FounderSource {
    /// Connects nothing yet.
    pub fn new(client: Arc<Client>, endpoint: Endpoint, pins: Vec<Pin>, join_id: JoinId) -> Self {
        let host = endpoint.to_string();
        Self { client, endpoint, pins, join_id, host }
    }

    /// `host:port`.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Where a file is, for a person.
    pub fn url(&self, path: &str) -> String {
        format!("https://{}/v1/join/registrations/{}/release/{path}", self.host, self.join_id)
    }

    pub(super) async fn get(&self, path: &str, range: Option<(u64, u64)>) -> Result<reqwest::Response, End> {
        let (endpoint, pins) = (&self.endpoint, &self.pins);
        let answer = self.client.release_file(endpoint, pins, &self.join_id, path, range).await;
        let response = answer.map_err(|fault| end(&fault))?;
        if response.status().is_redirection() {
            return Err(End::Refused(format!("{} redirects, which a founder never does", self.host)));
        }
        Ok(response)
    }
}

impl std::fmt::Debug for FounderSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FounderSource").field("host", &self.host).finish_non_exhaustive()
    }
}

fn end(fault: &Fault) -> End {
    let detail = fault.detail.as_str().to_owned();
    match fault.code {
        Code::TlsFailed | Code::FounderKeyChanged | Code::PinMismatch => End::Tls(detail),
        Code::AddressUnreachable => End::Connect(detail),
        _ => End::Cut,
    }
}
